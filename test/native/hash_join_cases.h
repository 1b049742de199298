// Hash joins of the primitives against a naive join: for the tests on any device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "primitives/primitives.h"
#include "words.h"

namespace warpjoin::hash_join_cases {

using Row = std::tuple<uint64_t, uint64_t, uint64_t>;  // key, build value, probe value

/// Tuples in fragments, each grouped by the topmost bits of the mixed keys.
struct Side {
  TupleLayout layout;
  bool implied = false;
  std::vector<std::vector<char>> keys, values;
  std::vector<std::vector<uint64_t>> offsets;
  PartitionedTuples tuples;
  std::vector<std::pair<uint64_t, uint64_t>> rows;  // key, value

  Side(TupleLayout layout, const std::vector<uint64_t>& all, size_t fragments, unsigned bits, bool implied)
      : layout(layout), implied(implied) {
    tuples.layout = layout;
    for (size_t f = 0; f < fragments; ++f) {
      std::vector<std::pair<uint64_t, uint64_t>> part;
      for (uint64_t i = all.size() * f / fragments; i < all.size() * (f + 1) / fragments; ++i) part.emplace_back(all[i], i + 7);
      const auto digit = [&](uint64_t key) { return bits ? mix_key(key) >> (64 - bits) : 0; };
      std::stable_sort(part.begin(), part.end(), [&](auto& a, auto& b) { return digit(a.first) < digit(b.first); });
      std::vector<char> k(part.size() * layout.key_bytes + 1), v(part.size() * layout.value_bytes + 1);
      std::vector<uint64_t> o((size_t{1} << bits) + 1);
      for (size_t i = 0; i < part.size(); ++i) {
        if (implied) part[i].second = 1000 * f + i;
        words::write(k.data(), layout.key_bytes, i, part[i].first);
        words::write(v.data(), layout.value_bytes, i, part[i].second);
        ++o[digit(part[i].first) + 1];
      }
      std::partial_sum(o.begin(), o.end(), o.begin());
      rows.insert(rows.end(), part.begin(), part.end());
      keys.push_back(std::move(k));
      values.push_back(std::move(v));
      offsets.push_back(std::move(o));
      tuples.fragments.push_back({keys.back().data(), implied ? nullptr : values.back().data(), 1000 * f, part.size()});
    }
    for (const auto& o : offsets) tuples.host_offsets.push_back(o.data());
  }
};

/// Rows in order.
struct Expected {
  std::vector<Row> pairs, build_matched, build_unmatched, probe_matched, probe_unmatched;
};

inline Expected naive(const Side& build, const Side& probe) {
  Expected expected;
  std::vector<std::pair<uint64_t, uint64_t>> table = build.rows;
  std::sort(table.begin(), table.end());
  std::vector<uint64_t> seen;
  const uint64_t with_build = build.layout.value_bytes ? ~0ull : 0, with_probe = probe.layout.value_bytes ? ~0ull : 0;
  for (const auto& [key, value] : probe.rows) {
    seen.push_back(key);
    const auto first = std::lower_bound(table.begin(), table.end(), std::pair(key, uint64_t{0}));
    auto last = first;
    while (last != table.end() && last->first == key) ++last;
    for (auto it = first; it != last; ++it) expected.pairs.emplace_back(key, it->second & with_build, value & with_probe);
    (first != last ? expected.probe_matched : expected.probe_unmatched).emplace_back(key, 0, value & with_probe);
  }
  std::sort(seen.begin(), seen.end());
  for (const auto& [key, value] : build.rows) {
    (std::binary_search(seen.begin(), seen.end(), key) ? expected.build_matched : expected.build_unmatched)
        .emplace_back(key, value & with_build, 0);
  }
  for (auto* rows : {&expected.pairs, &expected.build_matched, &expected.build_unmatched, &expected.probe_matched,
                     &expected.probe_unmatched}) {
    std::sort(rows->begin(), rows->end());
  }
  return expected;
}

/// A side in a device's memory, each fragment in arrays of its own.
struct SideOnDevice {
  PartitionedTuples tuples;
  std::vector<Buffer> memory;

  SideOnDevice(const Side& side, Device& device, Stream& stream) : tuples(side.tuples) {
    const auto take = [&](const std::vector<char>& bytes) {
      memory.push_back(device.memory().allocate(bytes.size()));
      device.copy(memory.back().data(), bytes.data(), bytes.size(), stream);
      return memory.back().data();
    };
    for (size_t f = 0; f < tuples.fragments.size(); ++f) {
      tuples.fragments[f].keys = take(side.keys[f]);
      if (tuples.fragments[f].values) tuples.fragments[f].values = take(side.values[f]);
    }
    stream.synchronize();
  }
};

/// Runs match and every emit on the engine's first device, and compares; guard bytes around each output must stay.
inline void check(Engine& engine, const Side& build_side, const Side& probe_side, unsigned bits) {
  constexpr size_t kGuard = 128;
  Device& device = *engine.devices[0];
  Primitives& primitives = device.primitives();
  const auto stream = device.create_stream();
  const Expected expected = naive(build_side, probe_side);
  const uint64_t rows = build_side.rows.size() + probe_side.rows.size(),
                 most_rows = std::max<uint64_t>(rows, expected.pairs.size());
  constexpr uint32_t kSlices = 3;
  const HashBuildPlan plan{build_side.layout,
                           probe_side.layout,
                           build_side.rows.size(),
                           build_side.rows.size(),
                           probe_side.rows.size(),
                           kSlices,
                           1u << bits,
                           false};
  device.memory().reserve((size_t{1} << 20) + 24 * (rows + 2 * most_rows) + primitives.hash_build_scratch_bytes(plan) +
                          kSlices * primitives.hash_probe_scratch_bytes(plan) +
                          16 * primitives.hash_build_crowded_room(plan.build, plan.build_rows, false) +
                          5 * primitives.hash_match_scratch_bytes(build_side.layout, build_side.rows.size(), probe_side.layout,
                                                                  probe_side.rows.size(), 1u << bits, false));
  const SideOnDevice build(build_side, device, *stream), probe(probe_side, device, *stream);
  const TupleLayout build_layout = build_side.layout, probe_layout = probe_side.layout;
  const uint32_t partitions = 1u << bits;
  const Job job;
  for (const bool count_only : {false, true}) {
    const size_t bytes = primitives.hash_match_scratch_bytes(build_layout, build_side.rows.size(), probe_layout,
                                                             probe_side.rows.size(), partitions, count_only);
    const Buffer scratch = device.memory().allocate(bytes);
    device.fill(scratch.data(), 0xA5, bytes, *stream);
    const auto match =
        primitives.hash_match(build.tuples, probe.tuples, partitions, bits, count_only, scratch.data(), job, *stream);
    do stream->synchronize();
    while (primitives.hash_match_goes_on(*match, job, *stream));
    ASSERT_EQ(match->tally().pairs, expected.pairs.size());
    ASSERT_EQ(match->tally().build_matched, expected.build_matched.size());
    ASSERT_EQ(match->tally().probe_matched, expected.probe_matched.size());
    if (count_only) continue;
    struct Out {
      Buffer memory;
      size_t bytes;
      char* data() const { return memory.as<char>() + kGuard; }
    };
    const auto make = [&](size_t bytes) {
      Out out{device.memory().allocate(bytes + 2 * kGuard), bytes};
      device.fill(out.memory.data(), 0x5A, bytes + 2 * kGuard, *stream);
      return out;
    };
    const auto fetch = [&](const Out& out) {
      std::vector<char> all(out.bytes + 2 * kGuard);
      device.copy(all.data(), out.memory.data(), all.size(), *stream);
      stream->synchronize();
      const auto guard = [](char c) { return c == 0x5A; };
      EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kGuard, guard) && std::all_of(all.end() - kGuard, all.end(), guard));
      return std::vector<char>(all.begin() + kGuard, all.end() - kGuard);
    };
    const auto compare = [&](const Out& keys, const Out& left, const Out& right, const std::vector<Row>& rows, bool with_build,
                             bool with_probe) {
      const std::vector<char> found_keys = fetch(keys), found_left = fetch(left), found_right = fetch(right);
      std::vector<Row> got;
      for (size_t i = 0; i < rows.size(); ++i) {
        got.emplace_back(words::read(found_keys.data(), build_layout.key_bytes, i),
                         with_build ? words::read(found_left.data(), build_layout.value_bytes, i) : 0,
                         with_probe ? words::read(found_right.data(), probe_layout.value_bytes, i) : 0);
      }
      std::sort(got.begin(), got.end());
      ASSERT_TRUE(got == rows);
    };
    // The matches of slices of the probe side, of which the last one knows what was found of the build side.
    struct Slice {
      const HashMatch* match;
      uint64_t probe_rows;
    };
    const auto emit = [&](const std::vector<Slice>& slices, JoinEmit what, const std::vector<Row>& rows, bool with_build,
                          bool with_probe) {
      SCOPED_TRACE(::testing::Message() << "emit " << static_cast<int>(what));
      const size_t size = rows.size();
      const Out keys = make(size * build_layout.key_bytes), left = make(size * build_layout.value_bytes),
                right = make(size * probe_layout.value_bytes);
      uint64_t at = 0;
      for (const Slice& slice : slices) {
        const JoinTally& tally = slice.match->tally();
        const uint64_t of_build = &slice == &slices.back() ? size : 0;
        const uint64_t own = what == JoinEmit::pairs             ? tally.pairs
                             : what == JoinEmit::probe_matched   ? tally.probe_matched
                             : what == JoinEmit::probe_unmatched ? slice.probe_rows - tally.probe_matched
                                                                 : of_build;
        ASSERT_LE(at + own, size);
        // In two calls, to try windows that begin and end anywhere.
        const uint64_t cut = own * 2 / 3;
        for (const auto& [first, count] : {std::pair(uint64_t{0}, cut), std::pair(cut, own - cut)}) {
          const uint64_t to = at + first;
          primitives.hash_emit(
              *slice.match, what, first, count,
              {keys.data() + to * build_layout.key_bytes, with_build ? left.data() + to * build_layout.value_bytes : nullptr,
               with_probe ? right.data() + to * probe_layout.value_bytes : nullptr},
              job, *stream);
        }
        at += own;
      }
      ASSERT_EQ(at, size);
      compare(keys, left, right, rows, with_build, with_probe);
    };
    const auto emit_all = [&](const std::vector<Slice>& slices) {
      emit(slices, JoinEmit::pairs, expected.pairs, true, true);
      emit(slices, JoinEmit::build_matched, expected.build_matched, true, false);
      emit(slices, JoinEmit::build_unmatched, expected.build_unmatched, true, false);
      emit(slices, JoinEmit::probe_matched, expected.probe_matched, false, true);
      emit(slices, JoinEmit::probe_unmatched, expected.probe_unmatched, false, true);
    };
    emit_all({{match.get(), probe_side.rows.size()}});

    // A build side that was prepared for several probe sides.
    {
      std::vector<Buffer> rooms;
      const auto room = [&](size_t size) {
        device.fill(rooms.emplace_back(device.memory().allocate(size)).data(), 0xA5, size, *stream);
        return rooms.back().data();
      };
      std::vector<std::unique_ptr<HashMatch>> matches;
      const auto built = primitives.hash_build(plan, room(primitives.hash_build_scratch_bytes(plan)));
      std::deque<std::vector<uint64_t>> offsets;
      const auto slice = [&](PartitionedTuples part, size_t s) {
        for (size_t f = 0; f < part.fragments.size(); ++f) {
          TupleView& tuples = part.fragments[f];
          const uint64_t begin = tuples.size * s / kSlices, end = tuples.size * (s + 1) / kSlices;
          std::vector<uint64_t>& own = offsets.emplace_back();
          for (uint32_t p = 0; p <= partitions; ++p) own.push_back(std::clamp(part.host_offsets[f][p], begin, end) - begin);
          part.host_offsets[f] = own.data();
          tuples = tuples.slice(part.layout, begin, end);
        }
        return part;
      };
      for (size_t s = 0; s < kSlices; ++s) built->add(slice(build.tuples, s), job, *stream);
      built->finish(job, *stream);
      stream->synchronize();
      const size_t more = built->more_bytes();
      built->go_on(more ? room(more) : nullptr, job, *stream);
      std::vector<Slice> slices;
      for (size_t s = 0; s < kSlices; ++s) {
        const PartitionedTuples part = slice(probe.tuples, s);
        uint64_t rows = 0;
        for (const TupleView& tuples : part.fragments) rows += tuples.size;
        matches.push_back(
            primitives.hash_probe(*built, part, bits, room(primitives.hash_probe_scratch_bytes(plan)), job, *stream));
        slices.push_back({matches.back().get(), rows});
      }
      stream->synchronize();
      for (const auto& own : matches) ASSERT_FALSE(primitives.hash_match_goes_on(*own, job, *stream));
      ASSERT_EQ(matches.back()->tally().build_matched, expected.build_matched.size());
      emit_all(slices);
      matches.clear();
    }

    // All at once where there is room for the pairs, else as before.
    for (const bool room : {true, false}) {
      const size_t size = expected.pairs.size(), most = room ? size : size / 2;
      const Out keys = make(size * build_layout.key_bytes), left = make(size * build_layout.value_bytes),
                right = make(size * probe_layout.value_bytes);
      const JoinOutput out{keys.data(), left.data(), right.data()};
      device.fill(scratch.data(), 0xA5, bytes, *stream);
      const auto into =
          primitives.hash_match_into(out, most, build.tuples, probe.tuples, partitions, bits, scratch.data(), job, *stream);
      do stream->synchronize();
      while (primitives.hash_match_goes_on(*into, job, *stream));
      ASSERT_EQ(into->tally().pairs, size);
      ASSERT_TRUE(room || size == most || !into->written());
      if (!into->written()) primitives.hash_emit(*into, JoinEmit::pairs, 0, size, out, job, *stream);
      compare(keys, left, right, expected.pairs, true, true);
    }
  }
}

// Keys of many shapes; `domain` small against the size makes duplicates.
inline std::vector<uint64_t> keys(std::mt19937_64& random, size_t size, uint64_t domain, uint8_t key_bytes) {
  std::vector<uint64_t> all(size);
  for (uint64_t& key : all) {
    key = random() % domain * 0x9E3779B97F4A7C15ull;
    // The key that stands for an empty slot, not so often that its pairs are most of the result.
    if (random() % std::max<size_t>(64, size / 50) == 0) key = 0x8F1BBCDC5A827999ull;
    if (key_bytes == 4) key = static_cast<uint32_t>(key);
  }
  return all;
}

}  // namespace warpjoin::hash_join_cases
