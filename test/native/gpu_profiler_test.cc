// Phases of jobs as NVIDIA's tools see them: this program is such a tool. It needs no GPU.
#include <gtest/gtest.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/job.h"
#include "device/gpu_profiler.h"

namespace {

std::vector<std::string> seen;

nvtxDomainHandle_t NVTX_API create(const char* name) {
  seen.push_back("domain " + std::string(name));
  return reinterpret_cast<nvtxDomainHandle_t>(&seen);
}
nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  seen.push_back("start " + std::string(range->message.ascii));
  return seen.size();
}
void NVTX_API end(nvtxDomainHandle_t, nvtxRangeId_t range) { seen.push_back("end of " + seen[range - 1]); }

int NVTX_API attach(NvtxGetExportTableFunc_t table_of) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangeStartEx] = reinterpret_cast<NvtxFunctionPointer>(start);
  *table[NVTX_CBID_CORE2_DomainRangeEnd] = reinterpret_cast<NvtxFunctionPointer>(end);
  return 1;
}

}  // namespace

namespace warpjoin {
namespace {

[[noreturn]] void see_phases() {
  InitializeInjectionNvtx2_fnptr = attach;
  attach_gpu_profiler();
  attach_gpu_profiler();
  Job job;
  { const PhaseTimer phase(job, "build side"); }
  for (const std::string& each : seen) std::fprintf(stderr, "%s, ", each.c_str());
  std::exit(0);
}

/// In a process of its own, for a tool attaches before the first use of a GPU, or never.
TEST(GpuProfilerDeathTest, SeesThePhasesOfJobsInADomain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(see_phases(), ::testing::ExitedWithCode(0), "domain warpjoin, start build side, end of start build side, ");
}

}  // namespace
}  // namespace warpjoin
#else

TEST(GpuProfilerDeathTest, SeesThePhasesOfJobsInADomain) { GTEST_SKIP() << "built without NVTX"; }

#endif
