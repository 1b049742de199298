// The P2P radix sort of multi-gpu-sort-merge-join 3.1.2.
#include <bit>

#include "sort/lanes.h"

namespace warpjoin::sorting {
namespace {

constexpr unsigned kDigitBits = 8;  // m
constexpr uint32_t kBuckets = 1u << kDigitBits;
constexpr uint64_t kFusedTuples = 4096;  // below this, starting a sort costs more than sorting a few bits more

constexpr uint64_t low_bits(unsigned bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

struct Rows {
  uint64_t begin = 0, end = 0;
};

// Tuples with the same leading key bits, wherever they are.
struct Bucket {
  uint64_t prefix = 0;     // those bits
  uint64_t rest = 0;       // the varying bits below
  uint64_t size = 0;       // on all devices
  std::vector<Rows> rows;  // in each device's x
};

// Buckets in key order, and where each device's part of the chunkset ends.
struct Distribution {
  std::vector<uint64_t> ends;    // devices + 1, from 0
  std::vector<size_t> spanning;  // buckets to refine: an end falls into them
};

// Neighbouring buckets of one device that are sorted together.
struct Group {
  size_t device = 0;
  uint64_t begin = 0, size = 0;  // in the chunkset
  uint64_t prefix = 0;           // of the first bucket
  uint64_t rest = 0, bits = 0;   // bits: those that vary within the group
  std::vector<Rows> rows;
};

Digit leading_digit(uint64_t bits) {
  const auto width = static_cast<unsigned>(std::bit_width(bits | 1));
  const unsigned shift = width > kDigitBits ? width - kDigitBits : 0;
  return {static_cast<uint8_t>(shift), static_cast<uint8_t>(width - shift), false};
}

// The parts of a bucket, after partitioning by `digit`; offsets[i] are device i's, relative to its rows.
void append_parts(std::vector<Bucket>& buckets, const Bucket& parent, Digit digit, const std::vector<const uint64_t*>& offsets) {
  for (uint32_t p = 0; p < digit.count(); ++p) {
    Bucket part{parent.prefix | uint64_t{p} << digit.shift, parent.rest & low_bits(digit.shift), 0, {}};
    for (size_t i = 0; i < offsets.size(); ++i) {
      part.rows.push_back({parent.rows[i].begin + offsets[i][p], parent.rows[i].begin + offsets[i][p + 1]});
      part.size += offsets[i][p + 1] - offsets[i][p];
    }
    if (part.size) buckets.push_back(std::move(part));
  }
}

Distribution distribute(const std::vector<Bucket>& buckets, uint64_t size, size_t devices) {
  Distribution found{std::vector<uint64_t>(devices + 1, size), {}};
  found.ends[0] = 0;
  const uint64_t tolerance = share_tolerance(size, devices);
  uint64_t begin = 0;
  size_t device = 1;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const uint64_t end = begin + buckets[b].size;
    bool spans = false;
    for (; device < devices && share_begin(size, devices, device) < end; ++device) {
      const uint64_t share = share_begin(size, devices, device);
      if (share - begin <= tolerance) {
        found.ends[device] = begin;
      } else if (end - share <= tolerance) {
        found.ends[device] = end;
      } else {
        found.ends[device] = share;  // by position where no bits are left: all its keys are equal
        spans = true;
      }
    }
    if (spans && buckets[b].rest) found.spanning.push_back(b);
    begin = end;
  }
  return found;
}

std::vector<Group> form_groups(const std::vector<Bucket>& buckets, const std::vector<uint64_t>& ends, uint64_t varying_bits,
                               uint64_t fuse_below) {
  std::vector<Group> groups;
  uint64_t begin = 0;
  size_t device = 0;
  for (const Bucket& bucket : buckets) {
    const uint64_t bucket_end = begin + bucket.size;
    for (uint64_t at = begin; at < bucket_end;) {
      while (ends[device + 1] <= at) ++device;
      const uint64_t end = std::min(bucket_end, ends[device + 1]);
      std::vector<Rows> rows;
      uint64_t before = begin;  // tuples of the bucket on the devices so far: equal keys keep the order of the devices
      for (const Rows& all : bucket.rows) {
        const uint64_t here = all.end - all.begin;
        const auto within = [&](uint64_t position) { return all.begin + std::clamp(position, before, before + here) - before; };
        rows.push_back({within(at), within(end)});
        before += here;
      }
      Group* last = groups.empty() ? nullptr : &groups.back();
      if (last && last->device == device && last->rest == bucket.rest && last->size + (end - at) <= fuse_below) {
        last->size += end - at;
        last->bits = varying_bits & low_bits(static_cast<unsigned>(std::bit_width(last->prefix ^ bucket.prefix)));
        for (size_t i = 0; i < rows.size(); ++i) last->rows[i].end = rows[i].end;
      } else {
        groups.push_back({device, at, end - at, bucket.prefix, bucket.rest, bucket.rest, std::move(rows)});
      }
      at = end;
    }
    begin = bucket_end;
  }
  return groups;
}

// Partitions the chunks into x, and spanning buckets further, until each device's part ends at the end of a bucket.
std::vector<Bucket> partition_chunks(ChunkLanes& lanes, const Chunkset& set, const std::vector<TupleSpan>& spare,
                                     Distribution& found) {
  const TupleLayout layout = lanes.layout;
  const size_t devices = lanes.size();
  const auto offsets_of = [&](size_t nth) {
    std::vector<const uint64_t*> offsets;
    for (size_t i = 0; i < devices; ++i) offsets.push_back(lanes[i].results.data() + nth * (kBuckets + 1));
    return offsets;
  };

  Bucket all{0, set.varying_bits, set.in.size, {}};
  const Digit digit = leading_digit(all.rest);
  for (size_t i = 0; i < devices; ++i) {
    Lane& lane = lanes[i];
    all.rows.push_back({0, lane.in.size});
    lane.results.assign(kBuckets + 1, 0);
    lane.primitives().partition(layout, lane.in, digit, lane.x.slice(layout, 0, lane.in.size), lane.results.data(),
                                lane.room.scratch.data(), lanes.job, lane.stream(kCompute));
  }
  lanes.wait(kCompute);
  std::vector<Bucket> buckets;
  append_parts(buckets, all, digit, offsets_of(0));

  for (;;) {
    found = distribute(buckets, set.in.size, devices);
    if (found.spanning.empty()) return buckets;
    for (size_t i = 0; i < devices; ++i) {
      Lane& lane = lanes[i];
      lane.results.assign(found.spanning.size() * (kBuckets + 1), 0);
      for (size_t s = 0; s < found.spanning.size(); ++s) {
        const Bucket& bucket = buckets[found.spanning[s]];
        const TupleSpan here = lane.x.slice(layout, bucket.rows[i].begin, bucket.rows[i].end);
        const TupleSpan refined = spare[i].slice(layout, bucket.rows[i].begin, bucket.rows[i].end);
        lane.primitives().partition(layout, here.view(), leading_digit(bucket.rest), refined,
                                    lane.results.data() + s * (kBuckets + 1), lane.room.scratch.data(), lanes.job,
                                    lane.stream(kCompute));
        lanes.copy(lane, here, refined.view(), lane.stream(kCompute));
      }
    }
    lanes.wait(kCompute);
    std::vector<Bucket> finer;
    size_t s = 0;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (s < found.spanning.size() && found.spanning[s] == b) {
        append_parts(finer, buckets[b], leading_digit(buckets[b].rest), offsets_of(s++));
      } else {
        finer.push_back(std::move(buckets[b]));
      }
    }
    buckets = std::move(finer);
  }
}

// Sends each group's tuples to its device, in the order of the devices they come from.
void exchange_groups(ChunkLanes& lanes, const std::vector<Group>& groups, const std::vector<TupleSpan>& parts,
                     const std::vector<uint64_t>& ends) {
  lanes.for_each([&](size_t i) {
    Lane& lane = lanes[i];
    for (const Group& group : groups) {
      const Rows rows = group.rows[i];
      if (rows.begin == rows.end) continue;
      uint64_t at = group.begin - ends[group.device];
      for (size_t before = 0; before < i; ++before) at += group.rows[before].end - group.rows[before].begin;
      const TupleView source = lane.x.slice(lanes.layout, rows.begin, rows.end).view();
      const TupleSpan target = parts[group.device].slice(lanes.layout, at, at + source.size);
      if (group.device == i) {
        lanes.copy(lane, target, source, lane.stream(kCopies));
      } else {
        lanes.copy_to_peer(lane, target, lanes[group.device], source, lane.stream(kCompute));
      }
    }
  });
  lanes.wait(kCopies);
  lanes.wait(kCompute);
}

}  // namespace

void radix_sort(ChunkLanes& lanes, const Chunkset& set) {
  const TupleLayout layout = lanes.layout;
  const size_t devices = lanes.size();
  const uint64_t size = set.in.size;
  const uint64_t bytes = size * layout.tuple_bytes();

  // The second buffer: y, or the device's part of the run.
  const auto second = [&](const std::vector<uint64_t>& ends) {
    std::vector<TupleSpan> parts;
    for (size_t i = 0; i < devices; ++i) {
      parts.push_back(lanes.in_place ? set.run.slice(layout, ends[i], ends[i + 1])
                                     : lanes[i].y.slice(layout, 0, ends[i + 1] - ends[i]));
    }
    return parts;
  };
  std::vector<uint64_t> shares;
  for (size_t i = 0; i <= devices; ++i) shares.push_back(share_begin(size, devices, i));

  Distribution found;
  std::vector<Group> groups;
  {
    PhaseTimer timer(lanes.job, "partition", 2 * bytes);
    const std::vector<Bucket> buckets = partition_chunks(lanes, set, second(shares), found);
    groups = form_groups(buckets, found.ends, set.varying_bits, std::max(size / devices / 100, kFusedTuples));
    lanes.job.add_done(size);
  }
  const std::vector<TupleSpan> parts = second(found.ends);
  if (devices > 1) {
    PhaseTimer timer(lanes.job, "exchange", 2 * bytes);
    exchange_groups(lanes, groups, parts, found.ends);
  }

  PhaseTimer timer(lanes.job, "sort", 2 * bytes);
  for (size_t i = 0; i < devices; ++i) {
    Lane& lane = lanes[i];
    std::vector<const Group*> own;
    for (const Group& group : groups) {
      if (group.device == i) own.push_back(&group);
    }
    while (!lanes.in_place && lane.events.size() < own.size()) lane.events.push_back(lane.device->create_event());
    for (size_t k = 0; k < own.size(); ++k) {
      const uint64_t at = own[k]->begin - found.ends[i];
      const TupleSpan x = lane.x.slice(layout, at, at + own[k]->size), y = parts[i].slice(layout, at, at + own[k]->size);
      // The result goes where the next chunk does not arrive, or to its place in the run.
      const TupleSpan &from = devices > 1 ? y : x, &other = devices > 1 ? x : y, &wanted = lanes.in_place ? y : x;
      lanes.sort_into(lane, from.view(), from, other, wanted, own[k]->bits);
      if (lanes.in_place) continue;
      Event* const sorted = lane.events[k].get();
      lane.stream(kCompute).record(*sorted);
      lane.y_free = sorted;
      const TupleSpan run = set.run.slice(layout, own[k]->begin, own[k]->begin + own[k]->size);
      lane.home.push_back(host_copy(layout, run, wanted.view(), sorted));
    }
  }
  lanes.move(set.next);
  lanes.wait(kCompute);
  lanes.job.add_done(size);
}

}  // namespace warpjoin::sorting
