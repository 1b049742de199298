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

/// From host memory to the devices.
inline void check_kept_joins(Engine& engine) {
  std::mt19937_64 random(19);
  const Rows left = draw(random, 3000, 2000, 0, 8), right = draw(random, 2000, 2000, 0, 8);
  for (const JoinKind kind : kKinds) {
    for (const uint32_t partitions : {0u, 1u, 64u}) {
      const JoinRequest request{.kind = kind, .build_left = kind != JoinKind::left, .want_keys = kind == JoinKind::inner};
      const std::vector<Row> expected = naive(left, right, request);
      const JoinKeys keys = make_keys(engine, left, right, {});
      Job job;
      const ResidentRows rows =
          hash_join_there(engine, devices_of(engine), keys, request, 2 * expected.size() + 4096, job, partitions);
      ASSERT_EQ(read(engine, rows, request), expected);
      ASSERT_EQ(job.done(), job.planned());
    }
  }
  Rows some = left;
  some[7].reset();
  const JoinKeys keys = make_keys(engine, some, right, {});
  Job job;
  ASSERT_EQ(hash_join_there(engine, devices_of(engine), keys, {.count_only = true}, 0, job).size(),
            naive(some, right, {}).size());
  ASSERT_THROW(hash_join_there(engine, devices_of(engine), keys, {.kind = JoinKind::left}, 1 << 20, job), Error);
}

/// Pairs that stay on the devices, of which not every wave of the probe side has as many.
struct UnevenPairs {
  const char* name;
  /// Of 100 probe tuples those that match, in the first part of what comes to each device, and in the rest.
  unsigned first_match, later_match;
  bool crowd = false;  ///< most have the same key

  JoinKeys keys(Engine& engine, size_t probe_rows) const {
    const Rows build = build_rows(), probe = this->probe_rows(engine, probe_rows);
    return make_keys(engine, build, probe, {});
  }
  std::vector<Row> expected(Engine& engine, size_t probe_rows, const JoinRequest& request) const {
    return naive(build_rows(), this->probe_rows(engine, probe_rows), request);
  }

 private:
  /// Some keys are there twice.
  static Rows build_rows() {
    Rows rows(1000);
    for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = i % 900;
    return rows;
  }
  Rows probe_rows(Engine& engine, size_t size) const {
    Rows rows(size);
    const size_t g = engine.devices.size();
    for (size_t d = 0; d < g; ++d) {
      const uint64_t begin = share_begin(size, g, d), end = share_begin(size, g, d + 1);
      for (uint64_t i = begin; i < end; ++i) {
        // Keys and matches in turns: waves of one kind are all alike.
        const bool matches = i * 37 % 100 < (i - begin < (end - begin) / 5 ? first_match : later_match);
        rows[i] = matches && crowd && i % 20 ? 17 : i * 7919 % 900 + (matches ? 0 : 1000);
      }
    }
    return rows;
  }
};
inline constexpr UnevenPairs kUnevenPairs[] = {{"even", 100, 100}, {"few at first", 20, 100}, {"many at first", 100, 20},
                                               {"none", 0, 0},     {"none at first", 0, 100}, {"only at first", 100, 0},
                                               {"some", 50, 50},   {"crowd", 100, 100, true}};

/// Whatever the first wave lets expect: the same pairs, and the same refusal of more than are allowed.
inline void check_uneven_kept_pairs(Engine& engine, size_t probe_rows) {
  for (const UnevenPairs& pairs : kUnevenPairs) {
    for (const uint32_t partitions : {1u, 64u}) {
      SCOPED_TRACE(::testing::Message() << pairs.name << ", partitions " << partitions);
      JoinRequest request{.want_keys = true, .want_left = partitions == 1};
      const std::vector<Row> expected = pairs.expected(engine, probe_rows, request);
      const JoinKeys keys = pairs.keys(engine, probe_rows);
      Job job;
      {
        const ResidentRows rows = hash_join_there(engine, devices_of(engine), keys, request, expected.size(), job, partitions);
        ASSERT_EQ(read(engine, rows, request), expected);
      }
      if (expected.empty()) continue;
      request.max_rows = expected.size() - 1;
      ASSERT_THROW(hash_join_there(engine, devices_of(engine), keys, request, expected.size(), job, partitions), Error);
      for (Device* device : devices_of(engine)) ASSERT_EQ(device->memory().resident_bytes(), 0u);
    }
  }
}

inline RepeatedCall repeated_kept_join(Engine& engine, const UnevenPairs& pairs, uint32_t partitions, size_t probe_rows) {
  return RepeatedCall(engine, [=, &engine, expected = pairs.expected(engine, probe_rows, {})](Job& job) {
    const JoinKeys keys = pairs.keys(engine, probe_rows);
    const ResidentRows rows = hash_join_there(engine, devices_of(engine), keys, {}, expected.size(), job, partitions);
    ASSERT_EQ(read(engine, rows, {}), expected);
  });
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
  std::vector<OwnedTuples> tuples;
  ResidentRelation sides[2];
  for (size_t s = 0; s < 2; ++s) {
    const Rows& rows = s == 0 ? left : right;
    sides[s].layout = layout;
    for (size_t d = 0; d < g; ++d) {
      const uint64_t begin = share_begin(rows.size(), g, d), size = share_begin(rows.size(), g, d + 1) - begin;
      const OwnedTuples& chunk = tuples.emplace_back(devices[d]->memory(), TupleLayout{8, 0}, size);
      std::vector<uint64_t> keys(size);
      for (uint64_t i = 0; i < size; ++i) keys[i] = *rows[begin + i];
      const auto stream = devices[d]->create_stream();
      devices[d]->copy(chunk.span.keys, keys.data(), size * 8, *stream);
      stream->synchronize();
      sides[s].chunks.push_back({chunk.span.keys, nullptr, begin, size});
    }
  }
  Job job;
  const JoinRows rows = resident_hash_join_home(engine, devices, sides[0], sides[1], request, job);
  ASSERT_EQ(read(rows, request), naive(left, right, request));
}

}  // namespace warpjoin::testing
