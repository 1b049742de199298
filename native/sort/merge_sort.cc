// The P2P merge sort of multi-gpu-sort-merge-join 3.1.1 with one exchange; why one: docs/decisions/0001.
#include "sort/lanes.h"

namespace warpjoin::sorting {
namespace {

// Where to cut each device's sorted chunk: the parts between cuts[j] and cuts[j + 1] are device j's.
std::vector<std::vector<uint64_t>> cut_chunks(ChunkLanes& lanes, const std::vector<TupleView>& chunks, uint64_t size) {
  const size_t devices = lanes.size();
  std::vector<uint64_t> ranks;
  for (size_t j = 1; j < devices; ++j) ranks.push_back(share_begin(size, devices, j));
  Lane& first = lanes[0];
  first.results.assign(ranks.size() * devices, 0);
  first.primitives().split_runs(lanes.layout, chunks, ranks, first.results.data(), first.stream(kCompute));
  lanes.wait(kCompute);

  std::vector<std::vector<uint64_t>> cuts(1, std::vector<uint64_t>(devices, 0));
  for (size_t j = 0; j < ranks.size(); ++j) {
    const auto row = first.results.begin() + static_cast<std::ptrdiff_t>(j * devices);
    cuts.emplace_back(row, row + static_cast<std::ptrdiff_t>(devices));
  }
  cuts.emplace_back();
  for (const TupleView& chunk : chunks) cuts.back().push_back(chunk.size);
  return cuts;
}

}  // namespace

void merge_sort(ChunkLanes& lanes, const Chunkset& set) {
  const TupleLayout layout = lanes.layout;
  const size_t devices = lanes.size();
  const uint64_t size = set.in.size;
  const uint64_t bytes = size * layout.tuple_bytes();
  const auto run_part = [&](size_t i) {
    return set.run.slice(layout, share_begin(size, devices, i), share_begin(size, devices, i + 1));
  };

  std::vector<TupleView> chunks;
  {
    PhaseTimer timer(lanes.job, "sort", 2 * bytes);
    for (size_t i = 0; i < devices; ++i) {
      Lane& lane = lanes[i];
      TupleSpan x = lane.x.slice(layout, 0, lane.in.size);
      if (lanes.in_place) {
        const TupleSpan run = run_part(i);
        if (devices == 1) {
          lanes.sort_into(lane, lane.in, x, run, run, set.varying_bits);
        } else {
          lanes.sort_into(lane, lane.in, run, x, x, set.varying_bits);
        }
      } else {
        x = lane.primitives().sort(layout, lane.in, lane.y.slice(layout, 0, lane.in.size), x, set.varying_bits,
                                   lane.room.scratch.data(), lanes.job, lane.stream(kCompute));
        if (x.keys == lane.y.keys) std::swap(lane.x, lane.y);
      }
      chunks.push_back(x.view());
    }
    lanes.wait(kCompute);
    lanes.job.add_done(size);
  }

  if (devices > 1) {
    if (set.doubtful) {
      for (const TupleView& chunk : chunks) require_sorted(lanes, chunk);
    }
    std::vector<std::vector<TupleView>> blocks(devices);  // of each device, in the order of the devices they come from
    {
      PhaseTimer timer(lanes.job, "exchange", lanes.in_place ? 0 : 2 * bytes);
      const auto cuts = cut_chunks(lanes, chunks, size);
      for (size_t j = 0; j < devices; ++j) {
        for (size_t i = 0; i < devices; ++i) blocks[j].push_back(chunks[i].slice(layout, cuts[j][i], cuts[j + 1][i]));
      }
      if (!lanes.in_place) {
        std::vector<std::vector<TupleView>> arrived(devices, std::vector<TupleView>(devices));
        for (size_t j = 0; j < devices; ++j) {
          uint64_t at = 0;
          for (size_t i = 0; i < devices; ++i) {
            const uint64_t end = at + blocks[j][i].size;
            arrived[j][i] = lanes[j].y.slice(layout, at, end).view();
            at = end;
          }
        }
        lanes.for_each([&](size_t i) {
          // Each device starts with its right neighbour, so that no receiver's links carry all blocks at once.
          for (size_t step = 0; step < devices; ++step) {
            const size_t j = (i + step) % devices;
            const TupleView& to = arrived[j][i];
            const TupleSpan target{const_cast<void*>(to.keys), const_cast<void*>(to.values), to.size};
            if (i == j) {
              lanes.copy(lanes[i], target, blocks[j][i], lanes[i].stream(kCopies));
            } else {
              lanes.copy_to_peer(lanes[i], target, lanes[j], blocks[j][i], lanes[i].stream(kCompute));
            }
          }
        });
        lanes.wait(kCopies);
        lanes.wait(kCompute);
        blocks = std::move(arrived);
      }
    }
    PhaseTimer timer(lanes.job, "merge", 2 * bytes);
    for (size_t j = 0; j < devices; ++j) {
      const TupleSpan out = lanes.in_place ? run_part(j) : lanes[j].x.slice(layout, 0, run_part(j).size);
      lanes[j].primitives().merge(layout, blocks[j], out, lanes[j].room.scratch.data(), lanes.job, lanes[j].stream(kCompute));
    }
    lanes.wait(kCompute);
    lanes.job.add_done(size);
  }

  for (size_t j = 0; j < devices && !lanes.in_place; ++j) {
    const TupleSpan run = run_part(j);
    lanes[j].home.push_back(host_copy(layout, run, lanes[j].x.slice(layout, 0, run.size).view(), nullptr));
  }
  lanes.move(set.next);
}

}  // namespace warpjoin::sorting
