#include "transfer/arrival.h"

#include <iterator>
#include <utility>

namespace warpjoin {

HostCopy host_copy(TupleLayout layout, const TupleSpan& target, const TupleView& source, Event* after) {
  HostCopy copy{{}, after};
  copy.stretches.push_back({target.keys, source.keys, source.size * layout.key_bytes});
  if (layout.value_bytes && source.values)
    copy.stretches.push_back({target.values, source.values, source.size * layout.value_bytes});
  return copy;
}

bool copies_directly(const Device& device, TupleLayout layout, const TupleView& tuples) {
  return device.copies_all_directly(tuples.keys, tuples.size * layout.key_bytes) &&
         (!layout.value_bytes || !tuples.values || device.copies_all_directly(tuples.values, tuples.size * layout.value_bytes));
}

HostQueue arrival_of(Device& device, TupleLayout layout, std::span<Piece> pieces, const std::vector<OwnedTuples>& slots,
                     std::span<const std::unique_ptr<Event>> slot_free, Stream& compute,
                     std::function<void(Piece& piece, const TupleView& arrived)> partition) {
  HostQueue queue{&device, HostQueue::Direction::to_device, {}, slots.size(), {}};
  for (size_t p = 0; p < pieces.size(); ++p) {
    queue.copies.push_back(host_copy(layout, slots[p % slots.size()].span, pieces[p].in, slot_free[p % slots.size()].get()));
  }
  queue.enqueued = [pieces, &slots, slot_free, &compute, partition = std::move(partition)](size_t p,
                                                                                           std::span<Event* const> done) {
    for (Event* event : done) compute.wait(*event);
    Piece& piece = pieces[p];
    const TupleSpan& slot = slots[p % slots.size()].span;
    partition(piece, {slot.keys, piece.in.values ? slot.values : nullptr, piece.in.first_value, piece.in.size});
    compute.record(*slot_free[p % slots.size()]);
  };
  return queue;
}

HostQueue one_after_the_other(HostQueue first, HostQueue second) {
  HostQueue both{first.device, first.direction, std::move(first.copies), first.depth, {}};
  const size_t firsts = both.copies.size();
  std::move(second.copies.begin(), second.copies.end(), std::back_inserter(both.copies));
  both.enqueued = [firsts, of_first = std::move(first.enqueued), of_second = std::move(second.enqueued)](
                      size_t copy, std::span<Event* const> done) {
    copy < firsts ? of_first(copy, done) : of_second(copy - firsts, done);
  };
  return both;
}

}  // namespace warpjoin
