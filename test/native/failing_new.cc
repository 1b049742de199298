// Part of the addon that scripts/asan-addon.mjs builds: lets an allocation of the addon's C++ fail. A test writes n to the start
// of the file that WARPJOIN_FAIL_NEW names; the n-th allocation from then on fails, after which there is 0.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t>* map_countdown() {
  const char* const path = std::getenv("WARPJOIN_FAIL_NEW");
  if (!path) return nullptr;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const mapped = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::atomic<uint64_t>*>(mapped);
}

bool fails_now() {
  static std::atomic<uint64_t>* const countdown = map_countdown();
  if (!countdown) return false;
  uint64_t left = countdown->load(std::memory_order_relaxed);
  while (left != 0 && !countdown->compare_exchange_weak(left, left - 1)) continue;
  return left == 1;
}

void* allocate(size_t size, size_t alignment) {
  if (fails_now()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size ? size : 1);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(size_t size, size_t alignment) {
  void* const data = allocate(size, alignment);
  if (!data) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t size) { return allocate_or_throw(size, 1); }
void* operator new[](size_t size) { return allocate_or_throw(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) { return allocate_or_throw(size, static_cast<size_t>(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return allocate_or_throw(size, static_cast<size_t>(alignment)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { std::free(data); }
