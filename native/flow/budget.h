// What an operator takes of a device's memory, counted by the code that takes it: plans and runs can't differ.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "device/stack_allocator.h"

namespace warpjoin::flow {

/// The most bytes that `take` holds at a time of the memory that it is given: what StackAllocator::reserve() needs for it.
/// Nothing may read or write what `take` gets there.
size_t counted_bytes(const std::function<void(StackAllocator& memory)>& take);

/// Takes memory for a T and gives it back: for counted_bytes().
template <class T, class... Args>
void count(StackAllocator& memory, Args&&... args) {
  [[maybe_unused]] const T taken(memory, std::forward<Args>(args)...);
}

/// How many times `bytes` there is room for: as often as is planned for, or up to `most` times.
size_t times_with_room(const StackAllocator& memory, size_t bytes, size_t planned, size_t most);

}  // namespace warpjoin::flow
