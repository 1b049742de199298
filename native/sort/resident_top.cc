#include "sort/resident_top.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>

#include "columns/bits.h"
#include "columns/chunks.h"
#include "core/error.h"
#include "device/streams.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "primitives/primitives.h"
#include "sort/parts.h"
#include "transfer/arrival.h"

namespace warpjoin::sorting {
namespace {

constexpr uint64_t kSampled = uint64_t{1} << 16;

/// How the first tuples of a device are selected.
struct Selection {
  uint64_t sampled = 0;  // 0: all are taken
  uint64_t rank = 0;     // of the key in the sample up to which they are
  uint64_t room = 0;     // for what is selected

  // How many keys of a sample are among some of the tuples varies by the root of it. The rank and the room are so many of these
  // roots off that one call in 10^9 fails.
  Selection(uint64_t wanted, uint64_t size) : room(size) {
    const uint64_t most_sampled = std::min(kSampled, size / 8);
    if (wanted >= size || most_sampled == 0) return;
    const double each = static_cast<double>(size) / static_cast<double>(most_sampled);
    const double expected = static_cast<double>(wanted) / each, up_to = expected + 6 * std::sqrt(expected) + 9;
    const double most = up_to + 8 * std::sqrt(up_to) + 40;
    if (most >= static_cast<double>(most_sampled)) return;
    sampled = most_sampled;
    rank = static_cast<uint64_t>(up_to);
    room = static_cast<uint64_t>(most * each);
  }
};

TupleLayout sample_layout(TupleLayout layout) { return {layout.key_bytes, 4}; }
TupleLayout swapped(TupleLayout layout) { return {layout.value_bytes, layout.key_bytes}; }
TupleSpan swapped(const TupleSpan& tuples) { return {tuples.values, tuples.keys, tuples.size}; }

constexpr size_t kScratch = Primitives::kSelectScratchBytes;

/// Device memory of a device's part: for a sample, for what is selected, and for `wanted` values.
struct Room {
  OwnedTuples sample, sample_beside, selected, beside;
  Buffer scratch, payload;

  /// `rows`: the layout of what is selected. `payload_bytes`: of a value, where values are gathered at the end.
  Room(StackAllocator& memory, Primitives& primitives, TupleLayout layout, TupleLayout rows, const Selection& selection,
       uint64_t wanted, uint8_t payload_bytes)
      : sample(memory, sample_layout(layout), selection.sampled),
        sample_beside(memory, sample_layout(layout), selection.sampled),
        selected(memory, rows, selection.room),
        beside(memory, rows, selection.room),
        scratch(allocate(memory, std::max({primitives.sort_scratch_bytes(sample_layout(layout), selection.sampled),
                                           primitives.sort_scratch_bytes(rows, selection.room),
                                           primitives.sort_scratch_bytes(swapped(rows), selection.room), kScratch}))),
        payload(allocate(memory, wanted * payload_bytes)) {}
};

/// Memory of the first device beside that, for what all devices selected.
struct Merging {
  OwnedTuples all, beside;
  Buffer scratch;

  Merging(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t tuples)
      : all(memory, layout, tuples),
        beside(memory, layout, tuples),
        scratch(allocate(memory, primitives.sort_scratch_bytes(layout, tuples))) {}
};

/// The first tuples of one device.
class Top {
 public:
  Top(Device& device, TupleLayout layout, const TupleView& in, uint64_t wanted)
      : layout_(layout),
        rows_{layout.key_bytes, carries_rows(in) ? layout.value_bytes : columns::row_bytes_for(in.size)},
        in_(in),
        wanted_(std::min(wanted, in.size)),
        selection_(wanted_, in.size),
        sorted_(device.create_event()) {
    if (wanted_ == 0) return;
    room_.emplace(device.memory(), device.primitives(), layout, rows_, selection_, wanted_,
                  carries_payload() ? layout.value_bytes : uint8_t{0});
  }

  /// The first of its tuples, with key ^ flip for keys, once it is sorted.
  const TupleSpan& top() const { return top_; }
  Event& done() const { return *sorted_; }
  bool is_empty() const { return wanted_ == 0; }
  bool was_misled() const { return count_ < wanted_ || count_ > selection_.room; }

  void select(Primitives& primitives, uint64_t flip, uint64_t bits, const Job& job, Stream& stream) {
    const Selection& s = selection_;
    SampleBound bound;
    if (s.sampled) {
      const TupleLayout keys = sample_layout(layout_);
      TupleSpan sample = room_->sample.span;
      primitives.sample_keys(keys, in_, s.sampled, sample.keys, job, stream);
      if (flip) primitives.flip_keys(keys, sample.keys, sample.keys, s.sampled, flip, job, stream);
      sample = primitives.sort(keys, {sample.keys, nullptr, 0, s.sampled}, sample, room_->sample_beside.span, bits,
                               room_->scratch.data(), job, stream);
      const TupleSpan last = sample.slice(keys, s.rank, s.rank + 1);
      bound = {last.keys, last.values, s.sampled};
    }
    const TupleView numbered{in_.keys, nullptr, carries_rows(in_) ? in_.first_value : 0, in_.size};
    primitives.select_up_to(rows_, numbered, flip, bound, room_->selected.span, &count_, room_->scratch.data(), job, stream);
  }

  /// By row, and then by key: what is selected comes in any order.
  void sort(Primitives& primitives, uint64_t bits, const Job& job, Stream& stream) {
    const uint64_t first = carries_rows(in_) ? in_.first_value : 0, last = first + in_.size - 1;
    const uint64_t row_bits = columns::low_bits(static_cast<unsigned>(std::bit_width(first ^ last)));
    top_ = room_->selected.span.slice(rows_, 0, count_);
    TupleSpan other = room_->beside.span.slice(rows_, 0, count_);
    const auto sort_by = [&](TupleLayout layout, TupleSpan from, TupleSpan to, uint64_t by) {
      const TupleSpan sorted = primitives.sort(layout, from.view(), from, to, by, room_->scratch.data(), job, stream);
      if (sorted.keys != from.keys) std::swap(top_, other);
    };
    sort_by(swapped(rows_), swapped(top_), swapped(other), row_bits);
    sort_by(rows_, top_, other, bits);
    top_.size = wanted_;
    if (carries_payload()) {
      const ShardedColumn all{Sharding::of(in_.size, 1), {in_.values}};
      void* const payload = room_->payload.data();
      primitives.gather(all, layout_.value_bytes, {top_.values, rows_.value_bytes, wanted_}, nullptr, payload, job, stream);
      top_.values = payload;
    } else if (layout_.value_bytes == 0) {
      top_.values = nullptr;
    }
    stream.record(*sorted_);
  }

 private:
  bool carries_payload() const { return layout_.value_bytes && in_.values; }
  // Others number their own rows: a payload takes the place of these later, or nothing does.
  bool carries_rows(const TupleView& in) const { return layout_.value_bytes && !in.values; }

  TupleLayout layout_, rows_;
  TupleView in_;
  uint64_t wanted_;
  Selection selection_;
  uint64_t count_ = 0;
  std::optional<Room> room_;
  TupleSpan top_;
  std::unique_ptr<Event> sorted_;
};

}  // namespace

// The first `wanted` of each device are sorted on one.
bool are_few(const RowWindow& window, uint64_t tuples, size_t devices) {
  const RowWindow rows = window.within(tuples);
  return rows.end() <= tuples / (4 * devices);
}

bool top_resident(TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in, uint64_t flip,
                  uint64_t bits, const RowWindow& window, const StretchOf& out, Job& job) {
  uint64_t size = 0;
  for (const TupleView& tuples : in) size += tuples.size;
  const uint64_t wanted = window.end();
  flow::Lanes<Top> lanes(devices, 1, [&](Device& device, size_t d) { return Top(device, layout, in[d], wanted); });
  {
    const PhaseTimer timer(job, "select", size * layout.key_bytes);
    for (auto& lane : lanes) {
      if (!lane.is_empty()) lane.select(lane.primitives(), flip, bits, job, lane.stream());
    }
    lanes.wait(job);
  }
  if (std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.was_misled(); })) return false;
  const PhaseTimer timer(job, "sort");
  job.add_planned(size);
  Device& first = *devices[0];
  TupleSpan sorted;
  std::optional<Merging> merging;
  std::unique_ptr<Event> ready = first.create_event();
  const Streams streams = create_streams(devices);  // last: they wait for their work, which reads the lanes' memory
  Stream& on_first = *streams[0];
  uint64_t found = 0;
  for (auto& lane : lanes) {
    if (lane.is_empty()) continue;
    lane.sort(lane.primitives(), bits, job, lane.stream());
    on_first.wait(lane.done());
    found += lane.top().size;
    sorted = lane.top();
  }
  if (devices.size() > 1) {
    merging.emplace(first.memory(), first.primitives(), layout, found);
    const TupleSpan& all = merging->all.span;
    uint64_t at = 0;
    for (const auto& lane : lanes) {
      if (lane.is_empty()) continue;
      copy_tuples(first, layout, all.slice(layout, at, at + lane.top().size), lane.top().view(), on_first);
      at += lane.top().size;
    }
    sorted = first.primitives().sort(layout, all.view(), all, merging->beside.span, bits, merging->scratch.data(), job, on_first);
  }
  std::vector<std::pair<TupleSpan, TupleView>> copies;
  for (size_t d = 0; d < devices.size(); ++d) {
    const auto [begin, end] = Shard::of(window.rows, devices.size(), d);
    const TupleSpan to = out(d, end - begin);
    copies.emplace_back(to, sorted.slice(layout, window.first + begin, window.first + end).view());
  }
  if (flip) first.primitives().flip_keys(layout, sorted.keys, sorted.keys, wanted, flip, job, on_first);
  on_first.record(*ready);
  for (size_t d = 0; d < devices.size(); ++d) {
    if (copies[d].second.size == 0) continue;
    if (d > 0) streams[d]->wait(*ready);
    copy_tuples(*devices[d], layout, copies[d].first, copies[d].second, *streams[d]);
  }
  synchronize_all(streams);
  lanes.wait(job);
  job.add_done(size);
  return true;
}

size_t top_resident_bytes(Device& device, TupleLayout layout, uint64_t own, const RowWindow& window, size_t devices) {
  const uint64_t wanted = std::min(window.end(), own);
  const TupleLayout rows{layout.key_bytes, std::max(layout.value_bytes, columns::row_bytes_for(own))};
  Selection selection(wanted, own);
  selection.sampled = std::min(kSampled, own / 8);  // devices with fewer tuples may sample where this one would not
  return flow::counted_bytes([&](StackAllocator& memory) {
    const Room room(memory, device.primitives(), layout, rows, selection, wanted, layout.value_bytes);
    if (devices > 1) flow::count<Merging>(memory, device.primitives(), layout, devices * wanted);
  });
}

}  // namespace warpjoin::sorting
