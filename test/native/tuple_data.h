// Tuples for the tests of the primitives: key distributions, layouts, and arrays that are as unaligned as allowed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "core/tuples.h"
#include "device/host_device.h"
#include "primitives/primitives.h"
#include "words.h"

namespace warpjoin::test {

inline const std::vector<TupleLayout> kLayouts = {{4, 0}, {4, 4}, {4, 8}, {8, 0}, {8, 4}, {8, 8}};

struct Distribution {
  const char* name;
  std::vector<uint64_t> (*keys)(uint64_t size, std::mt19937_64& random);
};

template <class F>
std::vector<uint64_t> generate(uint64_t size, F&& key) {
  std::vector<uint64_t> keys(size);
  for (uint64_t i = 0; i < size; ++i) keys[i] = key(i);
  return keys;
}

inline uint64_t zipf(std::mt19937_64& random, double most) {
  const double u = std::uniform_real_distribution<double>(0, 1)(random);
  return static_cast<uint64_t>(std::exp(u * std::log(most)));
}

/// Keys are cut to the key width by their user: shapes are in the low 32 bits as well as in the high ones.
inline const std::vector<Distribution> kDistributions = {
    {"uniform", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r(); }); }},
    {"sorted", [](uint64_t n, std::mt19937_64&) { return generate(n, [](uint64_t i) { return i * 3; }); }},
    {"reverse", [](uint64_t n, std::mt19937_64&) { return generate(n, [n](uint64_t i) { return (n - i) * 5; }); }},
    {"nearly_sorted",
     [](uint64_t n, std::mt19937_64& r) {
       return generate(n, [&](uint64_t i) { return r() % 50 == 0 ? r() % (2 * n) : i * 2; });
     }},
    {"all_equal", [](uint64_t n, std::mt19937_64&) { return generate(n, [](uint64_t) { return 0xABCDEF0123456789ull; }); }},
    {"few_distinct",
     [](uint64_t n, std::mt19937_64& r) {
       const uint64_t values[] = {r(), r(), r(), r(), r()};
       return generate(n, [&](uint64_t) { return values[r() % 5]; });
     }},
    {"one_bit", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return (r() & 1) << 17; }); }},
    {"small_range", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r() % 1000; }); }},
    {"bits_20", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r() >> 44; }); }},
    {"low_constant",
     [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return (r() & ~0xFFFFull) | 0x1234; }); }},
    {"middle_constant",
     [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r() & 0xFFFF00000F0000FFull; }); }},
    {"sparse_bits",
     [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r() & 0x8421084284210843ull; }); }},
    {"zipf", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return mix_key(zipf(r, 1e6)); }); }},
    {"zipf_ranks", [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return zipf(r, 1e9); }); }},
    {"one_bucket",  // all but a few in one narrow range
     [](uint64_t n, std::mt19937_64& r) {
       return generate(n, [&](uint64_t) { return r() % 1000 == 0 ? r() : 0x5A5A5A5A7B000000ull | (r() & 0xFFFFF); });
     }},
    {"exponents",  // a run of ties below each leading bit
     [](uint64_t n, std::mt19937_64& r) { return generate(n, [&](uint64_t) { return r() >> (r() % 64); }); }},
};

/// Owns tuple arrays that start `shift` elements after a 64-byte boundary, with guard bytes around them.
class TupleArray {
 public:
  TupleArray(TupleLayout layout, uint64_t size, uint64_t shift = 0) : layout_(layout), size_(size) {
    keys_ = make(layout.key_bytes, shift);
    if (layout.value_bytes) values_ = make(layout.value_bytes, shift * 3 + (shift ? 2 : 0));
  }

  TupleArray(TupleArray&&) = default;

  void set(uint64_t i, uint64_t key, uint64_t value) {
    words::write(keys_.at, layout_.key_bytes, i, key);
    words::write(values_.at, layout_.value_bytes, i, value);
  }
  uint64_t key(uint64_t i) const { return words::read(keys_.at, layout_.key_bytes, i); }
  uint64_t value(uint64_t i) const { return words::read(values_.at, layout_.value_bytes, i); }
  uint64_t size() const { return size_; }

  TupleSpan span() { return {keys_.at, layout_.value_bytes ? values_.at : nullptr, size_}; }
  TupleView view() { return span().view(); }
  /// The keys with row numbers for values.
  TupleView implied(uint64_t first_value) { return {keys_.at, nullptr, first_value, size_}; }
  TupleView view(bool with_implied, uint64_t first_value) { return with_implied ? implied(first_value) : view(); }

  /// False if anything was written outside the arrays.
  bool guarded() const {
    return intact(keys_, layout_.key_bytes) && (!layout_.value_bytes || intact(values_, layout_.value_bytes));
  }

  friend bool operator==(const TupleArray& x, const TupleArray& y) {
    if (x.size_ != y.size_) return false;
    for (uint64_t i = 0; i < x.size_; ++i) {
      if (x.key(i) != y.key(i) || x.value(i) != y.value(i)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  struct Array {
    std::vector<unsigned char> bytes;
    unsigned char* at = nullptr;
  };

  Array make(size_t element, uint64_t shift) const {
    Array array;
    array.bytes.assign(size_ * element + 3 * kGuard + shift * element + 64, 0xEE);
    auto* begin = array.bytes.data() + kGuard;
    begin += (64 - reinterpret_cast<uintptr_t>(begin) % 64) % 64;
    array.at = begin + shift * element;
    return array;
  }
  bool intact(const Array& array, size_t element) const {
    const auto* const end = array.bytes.data() + array.bytes.size();
    const auto poison = [](unsigned char byte) { return byte == 0xEE; };
    return std::all_of(array.bytes.data(), const_cast<const unsigned char*>(array.at), poison) &&
           std::all_of(const_cast<const unsigned char*>(array.at) + size_ * element, end, poison);
  }

  TupleLayout layout_;
  uint64_t size_;
  Array keys_, values_;
};

/// Scratch memory of exactly the size asked for, poisoned, 128-byte aligned.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    data_.reset(static_cast<unsigned char*>(std::aligned_alloc(128, (bytes + 127) / 128 * 128)));
    std::memset(data_.get(), 0xDD, bytes);
  }
  void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(unsigned char* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<unsigned char, Free> data_;
};

/// A host device with `threads` threads.
struct HostBench {
  explicit HostBench(unsigned threads)
      : threads(threads),
        memory(HostMemory::create(size_t{1} << 30)),
        pool(threads),
        device(create_host_device(0, size_t{1} << 30, memory, pool)),
        stream(device->create_stream()) {}
  Primitives& primitives() { return device->primitives(); }

  unsigned threads;
  std::shared_ptr<HostMemory> memory;
  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Job job;
};

/// Host devices of several numbers of threads: a test that draws one for each case tries them all on each layout, distribution
/// and size, but not on every combination of these.
class HostBenches {
 public:
  HostBench& draw(std::mt19937_64& random) { return benches_[random() % 4]; }

 private:
  HostBench benches_[4]{HostBench(1), HostBench(2), HostBench(3), HostBench(8)};
};

inline uint64_t cut(TupleLayout layout, uint64_t key) { return layout.key_bytes == 4 ? key & 0xFFFFFFFFu : key; }

/// `count` ascending bounds: the least and the greatest key now and then, keys and their successors, and random ones.
inline std::vector<uint64_t> draw_bounds(TupleLayout layout, const std::vector<uint64_t>& keys, size_t count,
                                         std::mt19937_64& random) {
  std::set<uint64_t> bounds;
  const auto add = [&](uint64_t bound) {
    if (bounds.size() < count) bounds.insert(cut(layout, bound));
  };
  if (random() % 3 == 0) add(0);
  if (random() % 3 == 0) add(~uint64_t{0});
  for (size_t i = 0; i < 2 * count && !keys.empty(); ++i) add(keys[random() % keys.size()] + random() % 2);
  while (bounds.size() < count) add(random() >> random() % 33);
  return {bounds.begin(), bounds.end()};
}

inline std::string describe(TupleLayout layout, const char* what, uint64_t size, unsigned threads) {
  return std::string(what) + " key " + std::to_string(layout.key_bytes) + " value " + std::to_string(layout.value_bytes) +
         " size " + std::to_string(size) + " threads " + std::to_string(threads);
}

}  // namespace warpjoin::test
