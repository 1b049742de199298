#include <algorithm>
#include <array>
#include <atomic>

#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {
namespace {

using namespace host;

constexpr size_t kKept = 512;  // tuples that a thread finds before it asks for room

/// What one thread has found and not written yet.
template <class Key, class Value>
class Found {
 public:
  Found(const TupleSpan& out, std::atomic<uint64_t>& count) : out_(out), count_(count) {}
  ~Found() { write(); }

  void add(Key key, Value value) {
    keys_[size_] = key;
    values_[size_] = value;
    if (++size_ == kKept) write();
  }

 private:
  void write() {
    const uint64_t at = count_.fetch_add(size_, std::memory_order_relaxed);
    const uint64_t room = at < out_.size ? std::min<uint64_t>(size_, out_.size - at) : 0;
    for (uint64_t i = 0; i < room; ++i) write_tuple(out_, at + i, keys_[i], values_[i]);
    size_ = 0;
  }

  const TupleSpan& out_;
  std::atomic<uint64_t>& count_;
  size_t size_ = 0;
  std::array<Key, kKept> keys_;
  std::array<Value, kKept> values_;
};

}  // namespace

void HostPrimitives::select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out,
                                  uint64_t* host_count, void*, const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    std::atomic<uint64_t> count{0};
    with_layout(layout, [&]<class Key, class Value>(Key, Value) {
      const TupleReader<Key, Value> tuples(in);
      const Key last = bound.key ? *static_cast<const Key*>(bound.key) : static_cast<Key>(~Key{0});
      const uint64_t last_row =
          bound.key ? sampled_row(in.size, bound.count, *static_cast<const uint32_t*>(bound.index)) : in.size;
      pool_.for_blocks(in.size, kBlockGrain, job, [&](uint64_t first, uint64_t end) {
        Found<Key, Value> found(out, count);
        for (uint64_t row = first; row < end; ++row) {
          const Key key = tuples.key(row) ^ static_cast<Key>(flip);
          if (key > last || (key == last && row > last_row)) continue;
          found.add(key, tuples.value(row));
        }
      });
    });
    *host_count = count;
  });
}

}  // namespace warpjoin
