#include "join/streamed_join.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/sharding.h"
#include "core/threads.h"
#include "join/streamed_part.h"

namespace warpjoin {
namespace {

using streaming::Coordinator;
using streaming::Part;
using streaming::Shape;

/// One use.
class StreamedJoin {
 public:
  StreamedJoin(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
               const JoinKeys& keys, const JoinRequest& request, const Shape& shape, Job& job)
      : engine_(engine),
        devices_(devices),
        build_(build.views.at(0)),
        probe_(probe.views.at(0)),
        shared_(engine, keys, request, shape, job) {
    for (size_t d = 0; d < devices.size(); ++d) shared_.parts.push_back(std::make_unique<Part>(shared_, *devices[d], d));
    begin(shape);
    shared_.begin_bytes();
  }

  JoinRows run() {
    for (plan_first_round(); !run_planned(); plan_first_round()) begin_again();
    for (const auto& part : parts()) part->take_spilled();
    while (plan_spilled_rounds()) shared_.shape.crowded |= !run_planned();
    if (plan_blocks() && !run_planned()) throw Error(ErrorCode::internal, "There is no room for keys that crowd in a block");
    shared_.end_phase();
    JoinRows rows = shared_.finish();
    rows.spilled_rows = spilled();
    uint64_t joined = 0, most = 0;
    for (const auto& part : parts()) {
      joined += part->joined_rows();
      most = std::max(most, part->joined_rows());
      rows.split_rows += part->split_rows();
    }
    if (joined) rows.skew = static_cast<double>(most * parts().size()) / static_cast<double>(joined);
    return rows;
  }

 private:
  std::vector<std::unique_ptr<Part>>& parts() { return shared_.parts; }
  const Shape& shape() const { return shared_.shape; }
  uint64_t spilled() const { return shared_.spilled[kBuild]->size() + shared_.spilled[kProbe]->size(); }

  /// Takes memory for the shape, of the devices and for what should be spilled. Nothing has been joined yet.
  void begin(const Shape& shape) {
    const auto work = [](const Shape& of) { return (of.cuts() ? 2 : 1) * (of.build().rows + of.probe().rows); };
    shared_.job.add_planned(work(shape) - (shared_.lanes ? work(shared_.shape) : 0));
    shared_.shape = shape;
    for (auto& spilled : shared_.spilled) spilled.reset();
    for (const SideIndex side : {kBuild, kProbe}) {
      shared_.spilled[side] = std::make_unique<SpilledTuples>(*engine_.memory, shape.sides[side].layout,
                                                              shape.spilled_rows(side == kBuild), "the spilled tuples of a join");
    }
    take_room();
    for (const auto& part : parts()) part->drop_arrivals(0);
  }

  /// Keys crowd more than samples told, so that build tuples had no room. No partition is joined at once, but in rounds that go
  /// by what each has. For keys that repeat there is room from now on.
  void begin_again() {
    bool overflowed = false;
    for (const auto& part : parts()) {
      shared_.job.add_planned(part->done());  // which is done once more
      overflowed |= part->stop() == Part::Stop::crowded && part->overflowed();
    }
    Shape roomy = shape();
    roomy.keep(devices_[0]->primitives(), roomy.build().rows);
    if (overflowed && !shape().spills() && streaming::fits(devices_, roomy)) return begin(roomy);
    if (!overflowed) return begin(streaming::crowded_shape_for(devices_, shape()));
    Shape fewer = shape();
    fewer.cache_none();
    begin(fewer);
  }

  /// The relations as they are, a wave to each device at a time.
  void plan_first_round() {
    plan_waves(true, shape().build().layout, build_);
    plan_waves(false, shape().probe().layout, probe_);
    for (const auto& part : parts()) part->close_first_round();
  }

  /// Of the probe side one at least.
  void plan_waves(bool of_build, TupleLayout layout, const TupleView& all) {
    const uint64_t most = std::max<uint64_t>(shape().most_at_once(), 1);
    for (uint64_t at = 0; at < all.size || (at == 0 && !of_build); at += most) {
      const TupleView wave = all.slice(layout, at, std::min(all.size, at + most));
      for (size_t d = 0; d < parts().size(); ++d) {
        const auto begin = [&](size_t of) { return share_begin(wave.size, parts().size(), of); };
        parts()[d]->plan(of_build, wave.slice(layout, begin(d), begin(d + 1)));
      }
    }
  }

  uint64_t most_of_parts(uint64_t (Part::*rows)() const) const {
    uint64_t most = 0;
    for (const auto& part : shared_.parts) most = std::max(most, ((*part).*rows)());
    return most;
  }

  /// Rounds of what was spilled, of as many partitions as a device keeps the build side of: at least one, for which there is more
  /// room where the devices have it. False where none is left that fits.
  bool plan_spilled_rounds() {
    if (spilled() == 0) return false;
    Primitives& primitives = devices_[0]->primitives();
    const uint64_t kept = shape().crowded ? shape().crowded_rows(primitives) : shape().kept_rows;
    const uint64_t most = most_of_parts(&Part::most_in_partition);
    Shape roomy = shape();
    if (most > kept) roomy.keep(primitives, most);
    const bool fits = streaming::fits(devices_, roomy);
    bool any = false;
    for (const auto& part : parts()) any |= part->plan_spilled_rounds(kept, !fits);
    if (!any) return false;
    if (fits) shared_.shape = roomy;
    take_room();
    return true;
  }

  /// Rounds of the partitions that stayed behind, as no device has room for the build side of one: it comes in blocks. What is
  /// asked of a tuple alone is known once it has met all of the other side, so the side that is asked is the build side.
  bool plan_blocks() {
    if (most_of_parts(&Part::most_set_aside) == 0) return false;
    if (!shape().build().may_stay) shared_.swap_sides();
    const uint64_t most = most_of_parts(&Part::most_set_aside);
    shared_.shape = streaming::blocked_shape_for(devices_, shape(), most);
    if (!shape().build().may_stay && most > shape().kept_rows) {
      throw Error(ErrorCode::device_memory,
                  "A full join has a key with so many rows on either side that no device has room for those of one");
    }
    take_room();
    for (const auto& part : parts()) part->plan_blocks(shape().kept_rows);
    return true;
  }

  /// Takes the devices' memory for the shape, in place of what they had.
  void take_room() {
    shared_.lanes.reset();  // which ends what refers to the others
    for (const auto& part : parts()) part->drop_lane();
    shared_.lanes.emplace(devices_, streaming::kJoinStreams,
                          [&](Device& device, size_t i) { return streaming::Room::take(device, shape(), i); });
  }

  /// Lets all arrivals come that are planned, beside a thread for each part that matches them and sends its rows home. False
  /// where build tuples have no room. Nothing is on its way any more then.
  bool run_planned() {
    shared_.start_again();
    FedTransfer transfer(engine_, shared_.job);
    shared_.transfer = &transfer;
    for (const auto& part : parts()) part->open(build_, probe_);
    // They only launch and wait, so they go before the threads that copy.
    std::vector<std::thread> threads;
    const auto join = [&] {
      for (std::thread& thread : threads) thread.join();
    };
    try {
      for (const auto& part : parts()) threads.push_back(start_thread("the waves of a join", [&part] { part->run(); }));
      transfer.run();
    } catch (...) {
      shared_.stop();
      join();
      throw;
    }
    join();
    if (shared_.error()) std::rethrow_exception(shared_.error());
    shared_.lanes->wait(shared_.job);
    return std::none_of(parts().begin(), parts().end(), [](const auto& part) { return part->stop() == Part::Stop::crowded; });
  }

  Engine& engine_;
  const std::span<Device* const> devices_;
  const TupleView build_, probe_;
  Coordinator shared_;
};

}  // namespace

bool can_stream(const Device& device) { return !device.addresses_host_memory(); }

JoinRows streamed_join(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
                       const JoinKeys& keys, const JoinRequest& request, const StreamedJoinPlan& plan, Job& job) {
  Shape whole(build.layout, build.size(), probe.layout, probe.size(), request, devices.size());
  whole.forced = plan.force_waves;
  // Where all of the build side stays on one device, it doesn't matter how keys spread.
  if (devices.size() > 1 || plan.rounds > 1) {
    whole = whole.with_samples_of(build.views.at(0), probe.views.at(0));
  }
  const Shape shape = streaming::shape_for(devices, whole, plan.rounds);
  if (plan.either_side && plan.rounds > 1) {
    whole.swap_sides();
    const Shape swapped = streaming::shape_for(devices, whole, plan.rounds);
    if (swapped.spilled_bytes() < shape.spilled_bytes() / 8 * 7 && streaming::fits(devices, swapped)) {
      JoinRequest other = request;
      other.build_left = !request.build_left;
      return StreamedJoin(engine, devices, probe, build, keys, other, swapped, job).run();
    }
  }
  return StreamedJoin(engine, devices, build, probe, keys, request, shape, job).run();
}

}  // namespace warpjoin
