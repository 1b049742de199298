#include "flow/budget.h"

#include <algorithm>

namespace warpjoin::flow {

size_t counted_bytes(const std::function<void(StackAllocator& memory)>& take) {
  constexpr size_t kAll = size_t{1} << 62;
  StackAllocator nowhere("nowhere", kAll,
                         {.allocate = [](size_t) { return reinterpret_cast<void*>(StackAllocator::kAlignment); },
                          .free = [](void*, size_t) {},
                          .free_bytes = [] { return kAll; }});
  nowhere.reserve(kAll);
  take(nowhere);
  return nowhere.peak_bytes();
}

size_t times_with_room(const StackAllocator& memory, size_t bytes, size_t planned, size_t most) {
  return std::clamp(memory.room_bytes() / std::max<size_t>(bytes, 1), planned, most);
}

}  // namespace warpjoin::flow
