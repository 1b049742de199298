#include "core/profiler.h"
#include "device/gpu_profiler.h"

#if !defined(WARPJOIN_HIP) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define WARPJOIN_NVTX
#endif

namespace warpjoin {

#if defined(WARPJOIN_NVTX)

namespace {

nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("warpjoin");  // null where no tool is attached
  return domain;
}

uint64_t begin(const char* name) noexcept {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  return nvtxDomainRangeStartEx(domain(), &range);
}

void end(uint64_t range) noexcept { nvtxDomainRangeEnd(domain(), range); }

constexpr Profiler kNvtx{begin, end};

}  // namespace

void attach_gpu_profiler() noexcept {
  if (domain()) profiler.store(&kNvtx, std::memory_order_release);
}

#else

void attach_gpu_profiler() noexcept {}

#endif

}  // namespace warpjoin
