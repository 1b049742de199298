#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "primitives/host/bucket_sort.h"
#include "primitives/host/host_primitives.h"
#include "primitives/host/radix_scatter.h"
#include "primitives/host/sort_tuples.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {
namespace {

using namespace host;

// Half of a common L2 cache: a bucket and its working copy fit together.
constexpr uint64_t kMostBucketBytes = 512 << 10;
// What an evenly spread scatter aims at.
constexpr uint64_t kBucketBytes = 192 << 10;
// A part that differs in size this much from its neighbours is skewed: cut it more finely than its size asks for.
constexpr uint32_t kSkewBits = 3;

uint32_t digit_bits(uint64_t size, size_t tuple_bytes) {
  const auto bits = static_cast<uint32_t>(std::bit_width(size * tuple_bytes / kBucketBytes));
  return std::clamp(bits, 1u, kMaxDigitBits);
}

uint32_t most_partitions(uint64_t size, size_t tuple_bytes) {
  return uint32_t{1} << std::min(digit_bits(size, tuple_bytes) + kSkewBits, kMaxDigitBits);
}

template <class Key, class Value>
class Sorter {
 public:
  Sorter(ThreadPool& pool, uint64_t size, void* scratch) : pool_(pool), size_(size) {
    Carver carver(scratch);
    if (size <= kLimit) {
      runners_.emplace_back(carver, size);
    } else {
      const uint32_t partitions = most_partitions(size, kTupleBytes);
      histograms_ = carver.take<uint64_t>(partitions * block_count(pool, size, kBlockGrain));
      for (unsigned runner = 0; runner < pool.threads(); ++runner) runners_.emplace_back(carver, kLimit, partitions);
    }
    scratch_bytes_ = carver.bytes();
  }

  size_t scratch_bytes() const { return scratch_bytes_; }

  void run(const TupleView& in, const Tuples<Key, Value>& a, const Tuples<Key, Value>& b, uint64_t varying, const Job& job) {
    job.check();
    a_ = a;
    b_ = b;
    if (size_ <= kLimit) return sort_bucket(in, varying);
    if (varying == 0 || is_sorted_parallel(in, job)) return copy_tuples(pool_, in, b, job);
    // Parts larger than a thread's share are split by all threads together, the others each by one.
    const uint64_t share = size_ / (uint64_t{2} * pool_.threads());
    std::vector<Part> large, parts;
    const auto keep = [&](const Part& part) { (part.size() > share ? large : parts).push_back(part); };
    split(
        in, {0, size_, varying, false}, digit_bits(size_, kTupleBytes), block_count(pool_, size_, kBlockGrain),
        histograms_, [&](uint64_t runner) -> const auto& { return runners_[runner].scatter; }, job, keep);
    while (!large.empty()) {
      Part part = large.back();
      large.pop_back();
      const TupleView tuples = view(part);
      part.varying &= varying_parallel(tuples, job);
      if (part.varying == 0) {
        if (!part.in_b) copy_tuples(pool_, tuples, b_.at(part.begin), job);
        continue;
      }
      split(
          tuples, part, skewed_bits(part), block_count(pool_, part.size(), kBlockGrain),
          histograms_, [&](uint64_t runner) -> const auto& { return runners_[runner].scatter; }, job, keep);
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Part& x, const Part& y) {
      return std::max(x.size(), kLimit) > std::max(y.size(), kLimit);  // the large first, the others in order
    });
    for_each_task(pool_, parts.size(), job, [&](uint64_t i, uint64_t runner) { sort_part(parts[i], runners_[runner], job); });
  }

 private:
  static constexpr size_t kTupleBytes = tuple_bytes<Key, Value>;
  static constexpr uint64_t kLimit = kMostBucketBytes / kTupleBytes;

  /// Rows [begin, end) hold the tuples that belong there, in `a` or in `b`, and differ in `varying` bits at most.
  struct Part {
    uint64_t begin, end, varying;
    bool in_b;
    uint64_t size() const { return end - begin; }
  };

  struct Runner {
    Tuples<Key, Value> spare;
    ScatterScratch<Key, Value> scatter;
    uint64_t* histogram;

    Runner(Carver& carver, uint64_t bucket, uint32_t partitions = 0)
        : spare(carver.take<Key>(bucket), has_values<Value> ? carver.take<Value>(bucket) : nullptr),
          scatter(carver, partitions),
          histogram(carver.take<uint64_t>(partitions)) {}
  };

  TupleView view(const Part& part) const { return (part.in_b ? b_ : a_).at(part.begin).view(part.size()); }

  /// All tuples, which fit a core's caches. Keys elsewhere than in `a` are the caller's, who may write to them: what is sorted is
  /// a copy, and which bits vary is not known of it.
  void sort_bucket(TupleView in, uint64_t varying) const {
    if (in.keys != a_.keys) {
      copy_tuples<Key, NoValue>(in, {b_.keys, nullptr});
      in.keys = b_.keys;
      varying = ~uint64_t{0};
    }
    if (is_sorted(static_cast<const Key*>(in.keys), size_)) return copy_tuples(in, b_);
    BucketSort<Key, Value>(runners_[0].spare).run(in, b_, varying);
  }

  static uint32_t skewed_bits(const Part& part) {
    return std::min(digit_bits(part.size(), kTupleBytes) + kSkewBits, kMaxDigitBits);
  }

  /// Splits `in`, whose place is `part`, by its next digit into the buffer it is not in, and hands on the parts that are
  /// not sorted yet.
  template <class ScratchOf, class Keep>
  void split(const TupleView& in, const Part& part, uint32_t bits, uint64_t blocks, uint64_t* histograms,
             const ScratchOf& scratch, const Job& job, const Keep& keep) {
    const KeyDigit digit = top_digit(part.varying, bits);
    const uint64_t rest = digit.rest(part.varying);
    const bool to_b = !part.in_b;
    std::vector<uint64_t> offsets(digit.count() + 1);
    radix_pass<Key, Value>(pool_, in, digit, digit.count(), (to_b ? b_ : a_).at(part.begin), offsets.data(), histograms, blocks,
                           scratch, job);
    for (uint32_t p = 0; p < digit.count(); ++p) {
      const uint64_t size = offsets[p + 1] - offsets[p];
      if (size == 0 || (to_b && (size == 1 || rest == 0))) continue;
      keep(Part{part.begin + offsets[p], part.begin + offsets[p + 1], rest, to_b});
    }
  }

  void sort_part(Part part, const Runner& runner, const Job& job) {
    const TupleView tuples = view(part);
    if (part.size() <= kLimit) return BucketSort<Key, Value>(runner.spare).run(tuples, b_.at(part.begin), part.varying);
    if (part.varying) part.varying &= differing_bits(static_cast<const Key*>(tuples.keys), part.size(), job);
    if (part.varying == 0) {
      if (!part.in_b) copy_tuples(tuples, b_.at(part.begin));
      return;
    }
    std::vector<Part> parts;
    split(
        tuples, part, skewed_bits(part), 1, runner.histogram, [&](uint64_t) -> const auto& { return runner.scatter; }, job,
        [&](const Part& next) { parts.push_back(next); });
    for (const Part& next : parts) {
      job.check();
      sort_part(next, runner, job);
    }
  }

  bool is_sorted_parallel(const TupleView& in, const Job& job) {
    const auto* const keys = static_cast<const Key*>(in.keys);
    std::atomic<bool> sorted{true};
    pool_.for_blocks(in.size, kBlockGrain, job, [&](uint64_t begin, uint64_t end) {
      uint64_t from = begin ? begin - 1 : 0;  // blocks share a row, so that the step between them is checked
      for (; from < end && sorted.load(std::memory_order_relaxed); from += kCheckRows) {
        job.check();
        const uint64_t to = std::min(end, from + kCheckRows + 1);
        if (!is_sorted(keys + from, to - from)) sorted.store(false, std::memory_order_relaxed);
      }
    });
    return sorted;
  }

  uint64_t varying_parallel(const TupleView& in, const Job& job) {
    const auto* const keys = static_cast<const Key*>(in.keys);
    std::atomic<uint64_t> bits{0};
    pool_.for_blocks(in.size, kBlockGrain, job, [&](uint64_t begin, uint64_t end) {
      bits.fetch_or(differing_bits(keys + begin, end - begin, job) | (keys[begin] ^ keys[0]), std::memory_order_relaxed);
    });
    return bits;
  }

  ThreadPool& pool_;
  const uint64_t size_;
  Tuples<Key, Value> a_, b_;
  uint64_t* histograms_ = nullptr;
  std::vector<Runner> runners_;
  size_t scratch_bytes_ = 0;
};

}  // namespace

void host::sort_tuples(ThreadPool& pool, TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch,
                       const Job& job) {
  with_layout(layout, [&]<class K, class V>(K, V) {
    Sorter<K, V>(pool, in.size, scratch).run(in, Tuples<K, V>(a), Tuples<K, V>(b), bits, job);
  });
}

size_t host::sort_tuples_scratch_bytes(ThreadPool& pool, TupleLayout layout, uint64_t size) {
  return with_layout(layout, [&]<class K, class V>(K, V) { return Sorter<K, V>(pool, size, nullptr).scratch_bytes(); });
}

TupleSpan HostPrimitives::sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch,
                               const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] { sort_tuples(pool_, layout, in, a, b, bits, scratch, job); });
  return b;
}

size_t HostPrimitives::sort_scratch_bytes(TupleLayout layout, uint64_t size) {
  return sort_tuples_scratch_bytes(pool_, layout, size);
}

void HostPrimitives::sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* host_unsorted, const Job& job,
                               Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    with_layout(layout, [&]<class K, class V>(K, V) {
      const Tuples<K, V> all(tuples);
      const auto tied = [&](uint64_t i, uint64_t j) { return ((all.keys[i] ^ all.keys[j]) >> low_bits) == 0; };
      // Blocks end where ties end.
      std::vector<uint64_t> ends;
      for (uint64_t end = kBlockGrain; end < tuples.size; end += kBlockGrain) {
        while (end < tuples.size && tied(end - 1, end)) ++end;
        ends.push_back(end);
      }
      if (ends.empty() || ends.back() < tuples.size) ends.push_back(tuples.size);
      std::atomic<bool> unsorted{false};
      pool_.parallel_for(ends.size(), [&](uint64_t block) {
        job.check();
        for (uint64_t begin = block ? ends[block - 1] : 0, end; begin < ends[block]; begin = end) {
          for (end = begin + 1; end < ends[block] && tied(begin, end);) ++end;
          if (end - begin <= kMostTied) {
            insertion_sort(all, begin, end);
          } else if (!is_sorted(all.keys + begin, end - begin)) {
            unsorted = true;
          }
        }
      });
      if (unsorted) *host_unsorted = true;
    });
  });
}

void HostPrimitives::varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits,
                                  const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    with_layout(layout, [&]<class K, class V>(K, V) {
      const auto* const keys = static_cast<const K*>(in.keys);
      const auto first_key = static_cast<K>(*host_first_key);
      std::atomic<uint64_t> bits{0};
      pool_.for_blocks(in.size, kBlockGrain, job, [&](uint64_t begin, uint64_t end) {
        bits.fetch_or(differing_bits(keys + begin, end - begin, job) | (keys[begin] ^ first_key), std::memory_order_relaxed);
      });
      *host_varying_bits |= bits;
    });
  });
}

void HostPrimitives::sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    with_layout(layout, [&]<class K, class V>(K, V) {
      pool_.for_blocks(count, kBlockGrain, job, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) {
          static_cast<K*>(keys)[i] = static_cast<const K*>(in.keys)[sampled_row(in.size, count, i)];
        }
      });
    });
  });
}

}  // namespace warpjoin
