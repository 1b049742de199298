// Joins of resident relations, beside the naive join: the same on host devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "core/sharding.h"
#include "failure_cases.h"
#include "join/resident_join.h"
#include "join_cases.h"
#include "transfer/arrival.h"
#include "words.h"

namespace warpjoin::testing {

/// A side without excluded rows in device memory, in chunks of any size.
class ResidentSide {
 public:
  /// `payload` and `implied` exclude each other.
  ResidentSide(Engine& engine, const Rows& rows, TupleLayout layout, bool payload, bool implied, std::mt19937_64& random) {
    relation.layout = layout;
    std::vector<uint64_t> ends{rows.size()};
    for (size_t d = 1; d < engine.devices.size(); ++d) ends.push_back(random() % (rows.size() + 1));
    std::sort(ends.begin(), ends.end());
    uint64_t begin = 0;
    for (size_t d = 0; d < ends.size(); begin = ends[d++]) {
      Device& device = *engine.devices[d];
      const uint64_t size = ends[d] - begin;
      TupleLayout written = layout;
      if (implied) written.value_bytes = 0;
      const OwnedTuples& tuples = chunks_.emplace_back(device.memory(), written, size);
      std::vector<char> keys(size * layout.key_bytes), values(size * written.value_bytes);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t row = begin + i, value = payload ? payload_of(row) : row;
        words::write(keys.data(), layout.key_bytes, i, *rows[row]);
        words::write(values.data(), written.value_bytes, i, value);
      }
      const auto stream = device.create_stream();
      device.copy(tuples.span.keys, keys.data(), keys.size(), *stream);
      device.copy(tuples.span.values, values.data(), values.size(), *stream);
      stream->synchronize();
      relation.chunks.push_back({tuples.span.keys, tuples.span.values, begin, size});
    }
  }

  ResidentRelation relation;

 private:
  std::vector<OwnedTuples> chunks_;
};

/// A side of row numbers in device memory, in even chunks. `layout`: whether its values are asked for.
class EvenSide {
 public:
  EvenSide(Engine& engine, const TupleView& rows, TupleLayout layout) {
    relation.layout = layout;
    const size_t g = engine.devices.size();
    for (size_t d = 0; d < g; ++d) {
      Device& device = *engine.devices[d];
      const TupleView part = rows.slice(layout, share_begin(rows.size, g, d), share_begin(rows.size, g, d + 1));
      const TupleSpan& chunk = chunks_.emplace_back(device.memory(), TupleLayout{layout.key_bytes, 0}, part.size).span;
      const auto stream = device.create_stream();
      device.copy(chunk.keys, part.keys, part.size * layout.key_bytes, *stream);
      stream->synchronize();
      relation.chunks.push_back({chunk.keys, nullptr, part.first_value, part.size});
    }
  }

  ResidentRelation relation;

 private:
  std::vector<OwnedTuples> chunks_;
};

inline std::vector<Device*> devices_of(const Engine& engine) {
  std::vector<Device*> devices;
  for (const auto& device : engine.devices) devices.push_back(device.get());
  return devices;
}

/// Reserves what resident joins take, for as long as the result lives: a host device gives its memory back with its last buffer.
[[nodiscard]] inline std::vector<Buffer> reserve_all(const Engine& engine, size_t bytes) {
  std::vector<Buffer> held;
  for (const auto& device : engine.devices) {
    device->memory().reserve(bytes + StackAllocator::kAlignment);
    held.push_back(device->memory().allocate(1));
  }
  return held;
}

/// The chunks' rows together, each read like a result in host memory.
inline std::vector<Row> read(Engine& engine, const ResidentRows& joined, const JoinRequest& request) {
  std::vector<Row> all;
  for (size_t d = 0; d < joined.chunks.size(); ++d) {
    const ResidentRows::Chunk& chunk = joined.chunks[d];
    JoinRows rows;
    rows.size = chunk.size;
    rows.left_layout = joined.left_layout;
    rows.right_layout = joined.right_layout;
    rows.left_may_be_missing = joined.left_may_be_missing;
    rows.right_may_be_missing = joined.right_may_be_missing;
    const auto stream = engine.devices[d]->create_stream();
    const auto fetch = [&](const Buffer& from, uint8_t width) {
      HostBuffer to = engine.memory->allocate(std::max<uint64_t>(chunk.size * width, 1), "a test");
      EXPECT_TRUE(!from || from.size() == chunk.size * width);
      if (from) engine.devices[d]->copy(to.data(), from.data(), from.size(), *stream);
      stream->synchronize();
      return to;
    };
    rows.keys = fetch(chunk.keys, joined.left_layout.key_bytes);
    rows.left = fetch(chunk.left, joined.left_layout.value_bytes);
    rows.right = fetch(chunk.right, joined.right_layout.value_bytes);
    const std::vector<Row> own = read(rows, request);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Where no bytes are said, as many are reserved on each device as sides need that give few pairs a row.
inline void check_resident(Engine& engine, const Rows& left, const Rows& right, Shape shape, bool implied, JoinRequest request,
                           uint32_t partitions, std::mt19937_64& random, size_t reserved_bytes = 0) {
  SCOPED_TRACE(::testing::Message() << "kind " << int(request.kind) << " build_left " << request.build_left << " devices "
                                    << engine.devices.size() << " partitions " << partitions << " rows " << left.size() << " "
                                    << right.size() << " keys " << int(shape.key_bytes));
  const std::vector<Device*> devices = devices_of(engine);
  const std::vector<Row> expected = naive(left, right, request, shape.payload);
  const std::vector<Buffer> reserved =
      reserve_all(engine, reserved_bytes ? reserved_bytes : (size_t{4} << 20) + 320 * (left.size() + right.size()));
  const ResidentSide l(engine, left, {shape.key_bytes, shape.left_value}, shape.payload, implied, random);
  const ResidentSide r(engine, right, {shape.key_bytes, shape.right_value}, shape.payload, implied, random);
  Job job;
  {
    const ResidentRows rows = resident_hash_join(engine, devices, l.relation, r.relation, request, job, partitions);
    ASSERT_EQ(rows.size(), expected.size());
    ASSERT_EQ(rows.chunks.size(), devices.size());
    ASSERT_EQ(read(engine, rows, request), expected);
    ASSERT_GE(rows.skew, 1.0);
  }
  const JoinRows home = resident_hash_join_home(engine, devices, l.relation, r.relation, request, job, partitions);
  ASSERT_EQ(read(home, request), expected);
  ASSERT_EQ(job.done(), job.planned());
  request.count_only = true;
  const ResidentRows counted = resident_hash_join(engine, devices, l.relation, r.relation, request, job, partitions);
  ASSERT_EQ(counted.size(), expected.size());
  for (const auto& chunk : counted.chunks) ASSERT_FALSE(chunk.keys || chunk.left || chunk.right);
  ASSERT_EQ(resident_hash_join_home(engine, devices, l.relation, r.relation, request, job, partitions).size, expected.size());
  request.count_only = false;
  if (expected.empty()) return;
  request.max_rows = expected.size() - 1;
  ASSERT_THROW(resident_hash_join(engine, devices, l.relation, r.relation, request, job, partitions), Error);
}

/// Pairs that stay where they lie. Build keys are there once, but for one that has more pairs in its part than there are probe
/// tuples, if any.
struct FoundPairs {
  const char* name;
  unsigned matching;  ///< of 100 probe tuples
  bool repeated_key;

  Rows build(size_t scale) const {
    Rows rows(4000 * scale);
    for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = repeated_key && i < 1000 ? 0 : i;
    return rows;
  }
  Rows probe(size_t scale) const {
    Rows rows(9000 * scale);
    const uint64_t keys = 3000 * scale;
    for (uint64_t i = 0; i < rows.size(); ++i) {
      rows[i] = repeated_key && i < 10 ? 0 : 1000 + i % keys + (i % 100 < matching ? 0 : 4 * keys);
    }
    return rows;
  }
};
inline constexpr FoundPairs kFoundPairs[] = {
    {"all match", 100, false}, {"most match", 60, false}, {"none match", 0, false}, {"some are many", 60, true}};

/// The naive join; returns how many rows it has. `prepare` is called once the relations are there.
inline uint64_t check_found_pairs(Engine& engine, const FoundPairs& pairs, size_t scale,
                                  const std::function<void(Device&)>& prepare = {}) {
  const JoinRequest request{.want_keys = true};
  const TupleLayout layout{8, 8};
  std::mt19937_64 random(5);
  const Rows build = pairs.build(scale), probe = pairs.probe(scale);
  const std::vector<Row> expected = naive(build, probe, request);
  const std::vector<Buffer> reserved = reserve_all(engine, scale * (size_t{8} << 20));
  const ResidentSide l(engine, build, layout, false, false, random), r(engine, probe, layout, false, false, random);
  for (Device* device : devices_of(engine)) {
    if (prepare) prepare(*device);
  }
  Job job;
  const ResidentRows rows = resident_hash_join(engine, devices_of(engine), l.relation, r.relation, request, job, 64);
  EXPECT_EQ(read(engine, rows, request), expected);
  return expected.size();
}

/// Random joins of all kinds.
inline void check_drawn_resident_joins(Engine& engine) {
  std::mt19937_64 random(engine.devices.size());
  const auto pick = [&](auto... choices) {
    const uint64_t all[] = {static_cast<uint64_t>(choices)...};
    return all[random() % sizeof...(choices)];
  };
  for (const JoinKind kind : kKinds) {
    for (const bool build_left : {false, true}) {
      for (int draws = 0; draws < 4; ++draws) {
        const Shape shape{static_cast<uint8_t>(pick(4, 8)), static_cast<uint8_t>(pick(4, 8)), static_cast<uint8_t>(pick(4, 8)),
                          random() % 3 == 0};
        const uint64_t domain = pick(3, 300, 3000, 1000000), most = domain == 3 ? 100 : 2000;
        const Rows left = draw(random, random() % most, domain, 0, shape.key_bytes);
        const Rows right = draw(random, random() % most, domain, 0, shape.key_bytes);
        JoinRequest request{.kind = kind, .build_left = build_left};
        request.want_left = random() % 4 != 0;
        request.want_right = random() % 4 != 0;
        request.want_keys = kind == JoinKind::inner && random() % 2 != 0;
        const bool implied = !shape.payload && random() % 2 != 0;
        check_resident(engine, left, right, shape, implied, request, static_cast<uint32_t>(pick(0, 1, 4, 64, 256)), random);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

inline void check_empty_resident_joins(Engine& engine) {
  std::mt19937_64 random(3);
  Rows some(100), others(90);
  for (uint64_t i = 0; i < some.size(); ++i) some[i] = i % 50;
  for (uint64_t i = 0; i < others.size(); ++i) others[i] = 1000 + i;
  Rows none;
  for (const JoinKind kind : kKinds) {
    for (const bool build_left : {false, true}) {
      for (const auto& [left, right] :
           {std::pair{&none, &none}, std::pair{&some, &none}, std::pair{&none, &some}, std::pair{&some, &others}}) {
        for (const uint32_t partitions : {0u, 64u}) {
          check_resident(engine, *left, *right, {}, true, {.kind = kind, .build_left = build_left}, partitions, random);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// One key has most of the tuples: those of a full join are all on one device.
inline void check_skewed_resident_joins(Engine& engine) {
  std::mt19937_64 random(12);
  Rows left(6000), right(40000);
  for (uint64_t i = 0; i < left.size(); ++i) left[i] = i;
  for (auto& key : right) key = random() % 50 ? 17 : random() % 10000;
  for (const JoinKind kind : {JoinKind::full, JoinKind::inner, JoinKind::right}) {
    for (const bool build_left : {false, true}) {
      check_resident(engine, left, right, {}, true, {.kind = kind, .build_left = build_left}, 64, random);
    }
  }
}

/// Build sides that are sent to each device, and partitions by size.
inline void check_large_resident_joins(Engine& engine, size_t rows, size_t reserved_bytes = 0) {
  std::mt19937_64 random(11);
  const Rows left = draw(random, rows, rows, 0, 8), right = draw(random, rows / 2, rows, 0, 8);
  const Rows few = draw(random, rows / 100, rows, 0, 8);
  const auto check = [&](const Rows& l, const Rows& r, Shape shape, bool implied, JoinRequest request, uint32_t partitions) {
    check_resident(engine, l, r, shape, implied, request, partitions, random, reserved_bytes);
  };
  check(left, right, {8, 4, 8}, true, {.kind = JoinKind::full}, 0);
  check(left, right, {8, 8, 4}, false, {.kind = JoinKind::inner, .build_left = false}, 64);
  check(left, few, {8, 4, 4}, true, {.kind = JoinKind::left, .build_left = false}, 0);
  check(few, left, {8, 4, 4}, false, {.kind = JoinKind::left}, 0);
}

/// A full join from tuples in host memory to rows in host memory.
inline RepeatedCall repeated_resident_join(Engine& engine, uint32_t partitions, bool home, size_t left_rows, size_t right_rows) {
  std::mt19937_64 random(17);
  const Rows left = draw(random, left_rows, right_rows, 0, 8), right = draw(random, right_rows, right_rows, 0, 8);
  const JoinRequest request{.kind = JoinKind::full};
  return RepeatedCall(engine, [=, &engine, expected = naive(left, right, request)](Job& job) {
    std::mt19937_64 cuts(5);
    const std::vector<Buffer> reserved = reserve_all(engine, (size_t{1} << 20) + 160 * (left_rows + right_rows));
    const ResidentSide l(engine, left, {8, 8}, false, true, cuts), r(engine, right, {8, 8}, false, false, cuts);
    const std::vector<Device*> devices = devices_of(engine);
    if (home) {
      ASSERT_EQ(read(resident_hash_join_home(engine, devices, l.relation, r.relation, request, job, partitions), request),
                expected);
    } else {
      const ResidentRows rows = resident_hash_join(engine, devices, l.relation, r.relation, request, job, partitions);
      ASSERT_EQ(read(engine, rows, request), expected);
    }
  });
}

/// A join of even chunks needs what it says, beside them and the result.
inline void check_announced_resident_bytes(Engine& engine, size_t left_rows, size_t right_rows, JoinKind kind) {
  std::mt19937_64 random(31);
  const Rows left = draw(random, left_rows, 2 * left_rows, 0, 8), right = draw(random, right_rows, 2 * left_rows, 0, 8);
  const std::vector<Device*> devices = devices_of(engine);
  const size_t g = devices.size();
  const TupleLayout layout{8, 8};
  const JoinRequest request{.kind = kind};
  const auto share = [&](size_t rows) { return OwnedTuples::bytes(layout, rows / g + 1); };
  const size_t bytes = resident_hash_join_device_bytes(layout, left_rows, layout, right_rows, g, request, engine);
  for (Device* device : devices) device->memory().release();
  const std::vector<Buffer> reserved = reserve_all(engine, share(left_rows) + share(right_rows) + bytes);
  const JoinKeys keys = make_keys(engine, left, right, {});
  const EvenSide l(engine, keys.left.tuples.view, layout), r(engine, keys.right.tuples.view, layout);
  Job job;
  const JoinRows rows = resident_hash_join_home(engine, devices, l.relation, r.relation, request, job);
  ASSERT_EQ(read(rows, request), naive(left, right, request));
}

}  // namespace warpjoin::testing
