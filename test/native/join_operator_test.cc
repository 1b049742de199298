#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/engine.h"
#include "device/host_device.h"
#include "join/join.h"
#include "join/resolve.h"

namespace warpjoin {

namespace {

constexpr uint64_t kMissing = ~uint64_t{0};

/// A host device that hides that it addresses host memory, so that operators copy to and from it.
class RemoteDevice final : public Device {
 public:
  RemoteDevice(int ordinal, std::shared_ptr<HostMemory> memory, ThreadPool& pool)
      : inner_(create_host_device(ordinal, size_t{1} << 30, memory, pool)) {
    info_ = inner_->info();
    memory_ = std::make_unique<StackAllocator>(
        info_.name, info_.limit_bytes,
        StackAllocator::Physical{[](size_t bytes) { return std::aligned_alloc(128, bytes); },
                                 [](void* data, size_t) { std::free(data); }, [this] { return info_.memory_bytes; }});
  }
  bool addresses_host_memory() const noexcept override { return false; }
  std::unique_ptr<Stream> create_stream() override { return inner_->create_stream(); }
  std::unique_ptr<Event> create_event() override { return inner_->create_event(); }
  void copy(void* target, const void* source, size_t bytes, Stream& stream) override {
    inner_->copy(target, source, bytes, stream);
  }
  void copy_to_peer(void* target, Device& peer, const void* source, size_t bytes, Stream& stream) override {
    inner_->copy_to_peer(target, peer, source, bytes, stream);
  }
  void fill(void* target, unsigned char value, size_t bytes, Stream& stream) override {
    inner_->fill(target, value, bytes, stream);
  }
  Primitives& primitives() noexcept override { return inner_->primitives(); }

 private:
  std::unique_ptr<Device> inner_;
};

std::unique_ptr<Engine> make_engine(int devices, bool remote = false) {
  auto engine =
      std::make_unique<Engine>(EngineConfig{.threads = 3, .host_devices = devices, .memory_limit_bytes = size_t{3} << 30});
  for (int d = 0; remote && d < devices; ++d) {
    engine->devices[static_cast<size_t>(d)] = std::make_unique<RemoteDevice>(d, engine->memory, engine->pool);
  }
  return engine;
}

/// A side as drawn: each row's key, or nothing where the row can't match.
using Rows = std::vector<std::optional<uint64_t>>;

struct Shape {
  uint8_t key_bytes = 8, left_value = 4, right_value = 4;
  bool payload = false;  ///< values are not row numbers
};

uint64_t payload_of(uint64_t row) { return row * 2654435761u % 1000003; }

HostBuffer buffer_of(Engine& engine, const std::vector<uint64_t>& values, uint8_t width) {
  HostBuffer buffer = engine.memory->allocate(values.size() * width, "a test");
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(buffer.as<char>() + i * width, &values[i], width);
  return buffer;
}

JoinSide make_side(Engine& engine, const Rows& rows, uint8_t key_bytes, uint8_t value_bytes, bool payload) {
  std::vector<uint64_t> keys, values, excluded;
  for (uint64_t row = 0; row < rows.size(); ++row) {
    if (!rows[row]) {
      excluded.push_back(row);
      continue;
    }
    keys.push_back(*rows[row]);
    values.push_back(payload ? payload_of(row) : row);
  }
  JoinSide side;
  side.tuples.layout = {key_bytes, value_bytes};
  side.tuples.keys = buffer_of(engine, keys, key_bytes);
  side.tuples.view = {side.tuples.keys.data(), nullptr, 0, keys.size()};
  if (payload || !excluded.empty()) {
    side.tuples.values = buffer_of(engine, values, value_bytes);
    side.tuples.view.values = side.tuples.values.data();
  }
  side.excluded = buffer_of(engine, excluded, value_bytes);
  side.excluded_rows = excluded.size();
  side.rows = rows.size();
  side.carries_payload = payload;
  return side;
}

JoinKeys make_keys(Engine& engine, const Rows& left, const Rows& right, Shape shape) {
  JoinKeys keys;
  keys.left = make_side(engine, left, shape.key_bytes, shape.left_value, shape.payload);
  keys.right = make_side(engine, right, shape.key_bytes, shape.right_value, shape.payload);
  return keys;
}

SortedRun make_run(Engine& engine, const JoinSide& side) {
  const TupleLayout layout = side.tuples.layout;
  std::vector<std::pair<uint64_t, uint64_t>> tuples;
  for (uint64_t i = 0; i < side.tuples.view.size; ++i) {
    uint64_t key = 0, value = i;
    std::memcpy(&key, static_cast<const char*>(side.tuples.view.keys) + i * layout.key_bytes, layout.key_bytes);
    if (side.tuples.view.values) {
      value = 0;
      std::memcpy(&value, static_cast<const char*>(side.tuples.view.values) + i * layout.value_bytes, layout.value_bytes);
    }
    tuples.emplace_back(key, value);
  }
  std::stable_sort(tuples.begin(), tuples.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<uint64_t> keys, values;
  for (const auto& [key, value] : tuples) {
    keys.push_back(key);
    values.push_back(value);
  }
  SortedRun run;
  run.layout = layout;
  run.size = tuples.size();
  run.keys = buffer_of(engine, keys, layout.key_bytes);
  run.values = buffer_of(engine, values, layout.value_bytes);
  return run;
}

using Row = std::tuple<uint64_t, uint64_t, uint64_t>;  // left, right, key

std::vector<Row> naive(const Rows& left, const Rows& right, const JoinRequest& request, bool payload = false) {
  std::vector<Row> rows;
  std::multimap<uint64_t, uint64_t> table;
  for (uint64_t r = 0; r < right.size(); ++r) {
    if (right[r]) table.emplace(*right[r], r);
  }
  std::vector<bool> matched(right.size());
  const bool pairs = request.kind != JoinKind::semi && request.kind != JoinKind::anti;
  const auto value = [&](uint64_t row) { return payload ? payload_of(row) : row; };
  for (uint64_t l = 0; l < left.size(); ++l) {
    auto range = left[l] ? table.equal_range(*left[l]) : std::pair{table.end(), table.end()};
    const bool any = range.first != range.second;
    for (auto it = range.first; it != range.second; ++it) {
      matched[it->second] = true;
      if (pairs) rows.emplace_back(value(l), value(it->second), request.want_keys ? *left[l] : 0);
    }
    if (any ? request.kind == JoinKind::semi
            : request.kind == JoinKind::left || request.kind == JoinKind::full || request.kind == JoinKind::anti) {
      rows.emplace_back(value(l), kMissing, 0);
    }
  }
  for (uint64_t r = 0; r < right.size(); ++r) {
    if (!matched[r] && (request.kind == JoinKind::right || request.kind == JoinKind::full))
      rows.emplace_back(kMissing, value(r), 0);
  }
  for (Row& row : rows) {
    if (!request.want_left) std::get<0>(row) = 0;
    if (!request.want_right && pairs) std::get<1>(row) = 0;
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<Row> read(const JoinRows& joined, const JoinRequest& request) {
  const bool left_only = request.kind == JoinKind::semi || request.kind == JoinKind::anti;
  const auto at = [](const HostBuffer& buffer, uint8_t width, uint64_t i) {
    uint64_t value = 0;
    std::memcpy(&value, buffer.as<char>() + i * width, width);
    return width == 4 && value == UINT32_MAX ? kMissing : value;
  };
  std::vector<Row> rows;
  bool left_missing = false, right_missing = false, past_pairs = false;
  for (uint64_t i = 0; i < joined.size; ++i) {
    Row row{0, left_only ? kMissing : 0, 0};
    if (request.want_left) std::get<0>(row) = at(joined.left, joined.left_layout.value_bytes, i);
    if (!left_only && request.want_right) std::get<1>(row) = at(joined.right, joined.right_layout.value_bytes, i);
    if (request.want_keys) std::get<2>(row) = at(joined.keys, joined.left_layout.key_bytes, i);
    left_missing |= std::get<0>(row) == kMissing;
    right_missing |= !left_only && std::get<1>(row) == kMissing;
    const bool alone = std::get<0>(row) == kMissing || std::get<1>(row) == kMissing;
    if (request.want_left && request.want_right) EXPECT_TRUE(alone || !past_pairs) << "pairs come first";
    past_pairs |= alone;
    rows.push_back(row);
  }
  EXPECT_TRUE(joined.left_may_be_missing || !left_missing);
  EXPECT_TRUE(joined.right_may_be_missing || !right_missing);
  std::sort(rows.begin(), rows.end());
  return rows;
}

struct Plan {
  bool merge = false;
  uint32_t rounds = 1, partitions = 0, subpartitions = 3;
};

std::vector<int> all_devices(const Engine& engine) {
  std::vector<int> devices(engine.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

JoinRows join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const Plan& plan, Job& job,
              JoinColumns columns = {}) {
  if (!plan.merge) return hash_join(engine, keys, columns, request, {all_devices(engine), plan.rounds, plan.partitions}, job);
  const SortedRun left = make_run(engine, keys.left), right = make_run(engine, keys.right);
  return merge_join(engine, left, right, keys, columns, request, {all_devices(engine), plan.subpartitions}, job);
}

void check(Engine& engine, const Rows& left, const Rows& right, Shape shape, JoinRequest request, const Plan& plan) {
  const JoinKeys keys = make_keys(engine, left, right, shape);
  const std::vector<Row> expected = naive(left, right, request, shape.payload);
  SCOPED_TRACE(testing::Message() << "kind " << int(request.kind) << " build_left " << request.build_left << " devices "
                                  << engine.devices.size() << " merge " << plan.merge << " rounds " << plan.rounds
                                  << " partitions " << plan.partitions << " rows " << left.size() << " " << right.size()
                                  << " keys " << int(shape.key_bytes));
  Job job;
  JoinRows rows = join(engine, keys, request, plan, job);
  ASSERT_EQ(rows.size, expected.size());
  ASSERT_EQ(read(rows, request), expected);
  ASSERT_EQ(job.done(), job.planned());
  ASSERT_GE(rows.skew, 1.0);
  request.count_only = true;
  ASSERT_EQ(join(engine, keys, request, plan, job).size, expected.size());
  request.count_only = false;
  request.max_rows = expected.size();
  ASSERT_EQ(join(engine, keys, request, plan, job).size, expected.size());
  if (expected.empty()) return;
  request.max_rows = expected.size() - 1;
  try {
    join(engine, keys, request, plan, job);
    FAIL() << "expected the row limit to hold";
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::memory_limit);
  }
}

Rows draw(std::mt19937_64& random, size_t size, uint64_t domain, double excluded, uint8_t key_bytes) {
  Rows rows(size);
  for (auto& row : rows) {
    if (static_cast<double>(random() % 1000) < excluded * 1000) continue;
    const uint64_t key = random() % domain * 0x9E3779B97F4A7C15ull;
    row = key_bytes == 4 ? static_cast<uint32_t>(key) : key;
  }
  return rows;
}

constexpr JoinKind kKinds[] = {JoinKind::inner, JoinKind::left, JoinKind::right, JoinKind::full, JoinKind::semi, JoinKind::anti};

class JoinOperator : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Devices, JoinOperator, testing::Values(1, 2, 3, 4, 8));

TEST_P(JoinOperator, GivesTheNaiveJoinForAllKindsAlgorithmsSidesAndLayouts) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  for (const bool remote : {false, true}) {
    const auto engine = make_engine(GetParam(), remote);
    for (const JoinKind kind : kKinds) {
      for (const bool merge : {false, true}) {
        for (const bool build_left : {false, true}) {
          for (int draws = 0; draws < 3; ++draws) {
            const auto pick = [&](auto... choices) {
              const uint64_t all[] = {static_cast<uint64_t>(choices)...};
              return all[random() % sizeof...(choices)];
            };
            const Shape shape{static_cast<uint8_t>(pick(4, 8)), static_cast<uint8_t>(pick(4, 8)),
                              static_cast<uint8_t>(pick(4, 8)), kind == JoinKind::inner && random() % 3 == 0};
            const double excluded = shape.payload ? 0 : static_cast<double>(pick(0, 1)) * 0.1;
            const uint64_t domain = pick(3, 300, 3000, 1000000);
            const uint64_t most = domain == 3 ? 100 : 2000;
            const Rows left = draw(random, random() % most, domain, excluded, shape.key_bytes);
            const Rows right = draw(random, random() % most, domain, excluded, shape.key_bytes);
            JoinRequest request{.kind = kind, .build_left = build_left};
            request.want_left = random() % 4 != 0;
            request.want_right = random() % 4 != 0;
            request.want_keys = kind == JoinKind::inner && random() % 2 != 0;
            const Plan plan{merge, remote ? 1u : static_cast<uint32_t>(pick(1, 1, 2, 8)),
                            static_cast<uint32_t>(pick(0, 1, 4, 64)), static_cast<uint32_t>(pick(3, 9))};
            check(*engine, left, right, shape, request, plan);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(JoinOperator, TakesEmptyAndDisjointSides) {
  const auto engine = make_engine(GetParam());
  Rows some(100), others(90);
  for (uint64_t i = 0; i < some.size(); ++i) some[i] = i % 50;
  for (uint64_t i = 0; i < others.size(); ++i) others[i] = 1000 + i;
  Rows none, excluded(20);
  for (const JoinKind kind : kKinds) {
    for (const bool merge : {false, true}) {
      for (const uint32_t rounds : {1u, 2u}) {
        for (const auto& [left, right] :
             {std::pair{&none, &none}, std::pair{&some, &none}, std::pair{&none, &some}, std::pair{&some, &others},
              std::pair{&some, &excluded}, std::pair{&excluded, &excluded}}) {
          check(*engine, *left, *right, {}, {.kind = kind, .build_left = rounds == 1}, {merge, rounds});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(JoinOperator, StandsSkew) {
  const auto engine = make_engine(GetParam());
  std::mt19937_64 random(7);
  const auto zipf = [&] { return static_cast<uint64_t>(1.0 / (static_cast<double>(random() % 10000 + 1) / 10000.0)); };
  Rows flat(300), hot(600), zipfian(500), equal(70);
  for (uint64_t i = 0; i < flat.size(); ++i) flat[i] = i;
  for (auto& key : hot) key = random() % 4 ? 42 : random() % 1000;
  for (auto& key : zipfian) key = zipf();
  for (auto& key : equal) key = 42;
  for (const JoinKind kind : kKinds) {
    for (const bool merge : {false, true}) {
      for (const bool build_left : {false, true}) {
        for (const auto& [left, right] : {std::pair{&flat, &hot}, std::pair{&zipfian, &flat}, std::pair{&equal, &hot},
                                          std::pair{&equal, &equal}, std::pair{&zipfian, &equal}}) {
          check(*engine, *left, *right, {}, {.kind = kind, .build_left = build_left}, {merge, 1, build_left ? 0u : 16u, 9});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(JoinOperator, PartitionsLargeBuildSidesBySize) {
  for (const bool remote : {false, true}) {
    const auto engine = make_engine(GetParam(), remote);
    std::mt19937_64 random(11);
    const Rows left = draw(random, 140000, 200000, 0.01, 8), right = draw(random, 90000, 200000, 0.01, 8);
    check(*engine, left, right, {8, 4, 8}, {.kind = JoinKind::full}, {});
    check(*engine, left, right, {8, 4, 8}, {.kind = JoinKind::full}, {true});
  }
}

TEST_P(JoinOperator, GrowsDeviceMemoryWhenKeysCrowdOnOneDevice) {
  const auto engine = make_engine(GetParam(), true);
  std::mt19937_64 random(12);
  Rows left(60000), right(200000);
  for (uint64_t i = 0; i < left.size(); ++i) left[i] = i;
  for (auto& key : right) key = random() % 50 ? 17 : random() % 100000;
  const JoinKeys keys = make_keys(*engine, left, right, {});
  Job job;
  const JoinRows rows = join(*engine, keys, {}, {.partitions = 64}, job);
  EXPECT_EQ(rows.size, naive(left, right, {}).size());
  if (GetParam() > 1) EXPECT_GT(rows.skew, 1.3);
}

/// Strings whose hashes collide: the key is the number modulo 13.
struct Strings {
  Column column;
  std::string bytes;
  std::vector<int32_t> offsets{0};
  Rows values, hashes;

  Strings(std::mt19937_64& random, size_t rows, uint64_t domain) {
    for (size_t i = 0; i < rows; ++i) {
      const uint64_t number = random() % domain;
      const bool excluded = random() % 10 == 0;
      bytes += "key " + std::to_string(number);
      offsets.push_back(static_cast<int32_t>(bytes.size()));
      values.push_back(excluded ? std::nullopt : std::optional(number));
      hashes.push_back(excluded ? std::nullopt : std::optional(number % 13));
    }
    column.type.kind = ColumnKind::utf8;
    column.type.order = KeyOrder::bytes;
    column.length = rows;
    column.chunks.push_back({.values = bytes.data(),
                             .offsets = offsets.data(),
                             .length = rows,
                             .values_bytes = bytes.size(),
                             .offsets_bytes = offsets.size() * 4});
  }
};

TEST_P(JoinOperator, VerifiesInexactKeysForAllKinds) {
  const auto engine = make_engine(GetParam());
  std::mt19937_64 random(13);
  for (const JoinKind kind : kKinds) {
    for (const bool merge : {false, true}) {
      for (const Shape shape : {Shape{8, 4, 4}, Shape{8, 8, 4}, Shape{4, 4, 8}}) {
        for (const size_t size : {0, 1, 500}) {
          const Strings left(random, size, 100), right(random, 300, 100);
          JoinKeys keys = make_keys(*engine, left.hashes, right.hashes, shape);
          keys.exact = false;
          JoinRequest request{.kind = kind, .build_left = random() % 2 == 0};
          const std::vector<Row> expected = naive(left.values, right.values, request);
          Job job;
          const Plan plan{merge, 1, 4, 3};
          const JoinColumns columns{&left.column, &right.column};
          ASSERT_EQ(read(join(*engine, keys, request, plan, job, columns), request), expected);
          request.count_only = true;
          ASSERT_EQ(join(*engine, keys, request, plan, job, columns).size, expected.size());
          request.max_rows = expected.size() - 1;
          if (!expected.empty()) ASSERT_THROW(join(*engine, keys, request, plan, job, columns), Error);
        }
      }
    }
  }
}

TEST_P(JoinOperator, LeavesNothingBehindWhenAnAllocationFails) {
  for (const bool remote : {false, true}) {
    const auto engine = make_engine(GetParam(), remote);
    std::mt19937_64 random(17);
    const Rows left = draw(random, 800, 700, 0.1, 8), right = draw(random, 900, 700, 0.1, 8);
    const JoinKeys keys = make_keys(*engine, left, right, {});
    const SortedRun left_run = make_run(*engine, keys.left), right_run = make_run(*engine, keys.right);
    const JoinRequest request{.kind = JoinKind::full};
    const std::vector<Row> expected = naive(left, right, request);
    const auto release = [&] {
      for (const auto& device : engine->devices) {
        ASSERT_EQ(device->memory().used_bytes(), 0u);
        device->memory().release();
      }
    };
    for (const Plan& plan : {Plan{}, Plan{.partitions = 16}, Plan{.rounds = 2, .partitions = 4}, Plan{.merge = true}}) {
      if (remote && plan.rounds > 1) continue;
      const auto run = [&] {
        Job job;
        return plan.merge ? merge_join(*engine, left_run, right_run, keys, {}, request, {all_devices(*engine), 3}, job)
                          : hash_join(*engine, keys, {}, request, {all_devices(*engine), plan.rounds, plan.partitions}, job);
      };
      release();
      const size_t before = engine->memory->used_bytes();
      for (size_t source = 0; source <= engine->devices.size(); ++source) {
        const auto fail = [&](uint64_t n) {
          if (source == 0) {
            engine->memory->fail_allocation(n);
          } else {
            engine->devices[source - 1]->memory().fail_allocation(n);
          }
        };
        bool failed = true;
        int failures = 0;
        for (uint64_t n = 1; failed; ++n) {
          failed = false;
          fail(n);
          try {
            const JoinRows rows = run();
            ASSERT_EQ(read(rows, request), expected);
          } catch (const Error& error) {
            ASSERT_TRUE(error.code() == ErrorCode::memory_limit || error.code() == ErrorCode::device) << error.what();
            failed = true;
            ++failures;
          }
          fail(0);
          release();
          ASSERT_EQ(engine->memory->used_bytes(), before);
        }
        if (source == 0) ASSERT_GT(failures, 1);
        ASSERT_EQ(read(run(), request), expected);
        release();
      }
    }
  }
}

TEST_P(JoinOperator, StopsWhenCancelled) {
  const auto engine = make_engine(GetParam());
  std::mt19937_64 random(19);
  const JoinKeys keys = make_keys(*engine, draw(random, 5000, 4000, 0, 8), draw(random, 5000, 4000, 0, 8), {});
  for (const Plan& plan : {Plan{}, Plan{.partitions = 8}, Plan{.rounds = 4}, Plan{.merge = true}}) {
    Job job;
    job.cancel();
    try {
      join(*engine, keys, {.kind = JoinKind::full}, plan, job);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
    }
    Job again;
    EXPECT_NO_THROW(join(*engine, keys, {.kind = JoinKind::full}, plan, again));
  }
}

TEST(JoinOperators, GiveTheSameRowsInTheSameOrderOnEveryRun) {
  const auto engine = make_engine(3);
  std::mt19937_64 random(23);
  const JoinKeys keys = make_keys(*engine, draw(random, 5000, 700, 0, 8), draw(random, 5000, 700, 0, 8), {});
  for (const Plan& plan : {Plan{.partitions = 64}, Plan{.rounds = 2}, Plan{.merge = true}}) {
    Job job;
    const JoinRows first = join(*engine, keys, {.kind = JoinKind::full}, plan, job);
    for (int again = 0; again < 3; ++again) {
      const JoinRows rows = join(*engine, keys, {.kind = JoinKind::full}, plan, job);
      ASSERT_EQ(rows.size, first.size);
      EXPECT_EQ(std::memcmp(rows.left.data(), first.left.data(), rows.size * 4), 0);
      EXPECT_EQ(std::memcmp(rows.right.data(), first.right.data(), rows.size * 4), 0);
    }
  }
}

TEST(JoinOperators, RefuseWhatTheyCannotDo) {
  const auto engine = make_engine(2, true);
  const JoinKeys keys = make_keys(*engine, Rows(3, 1), Rows(3, 1), {});
  Job job;
  const auto code = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {}, {{0}, 2, 0}, job); }), ErrorCode::not_supported);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {}, {{0}, 3, 0}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {}, {{0}, 1, 5}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {}, {{}, 1, 1}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {}, {{2}, 1, 1}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] {
              hash_join(*engine, keys, {}, {.kind = JoinKind::left, .want_keys = true}, {{0}, 1, 0}, job);
            }),
            ErrorCode::not_supported);
  EXPECT_EQ(code([&] { join(*engine, keys, {}, {.merge = true, .subpartitions = 2}, job); }), ErrorCode::option);
}

TEST(CrossJoin, GivesEveryPairAndRefusesTooMany) {
  const auto engine = make_engine(1);
  Job job;
  for (const auto& [left, right] :
       {std::pair{700, 900}, std::pair{0, 5}, std::pair{5, 0}, std::pair{1, 300000}, std::pair{300000, 1}}) {
    const auto l = static_cast<uint64_t>(left), r = static_cast<uint64_t>(right);
    const JoinRows rows = cross_join(*engine, l, r, l * r, job);
    ASSERT_EQ(rows.size, l * r);
    ASSERT_EQ(rows.left_layout.value_bytes, 4);
    for (uint64_t i = 0; i < rows.size; ++i) {
      ASSERT_EQ(rows.left.as<uint32_t>()[i], i / r);
      ASSERT_EQ(rows.right.as<uint32_t>()[i], i % r);
    }
  }
  EXPECT_EQ(job.done(), job.planned());
  const size_t used = engine->memory->used_bytes();
  EXPECT_THROW(cross_join(*engine, 10, 10, 99, job), Error);
  EXPECT_THROW(cross_join(*engine, uint64_t{1} << 33, uint64_t{1} << 33, UINT64_MAX, job), Error);
  EXPECT_THROW(cross_join(*engine, uint64_t{1} << 31, uint64_t{1} << 32, UINT64_MAX, job), Error);
  EXPECT_EQ(engine->memory->used_bytes(), used);
}

}  // namespace
}  // namespace warpjoin
