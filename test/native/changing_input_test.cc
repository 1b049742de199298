// Inputs that their owner writes to while operators run. What comes out then is of no use, but nothing is read or written beyond
// an array (ASan sees it), no row number is made up, nothing runs for ever, and the engine works afterwards. TSan would report
// the races that these tests are about: it does not run them.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "columns/convert.h"
#include "columns/encode.h"
#include "columns/gather.h"
#include "columns/top_rows.h"
#include "core/error.h"
#include "join/join.h"
#include "sort/sort.h"
#include "test_columns.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

/// Writes to arrays until it is destroyed: stretches of one byte, random bytes, and of offsets numbers of any size.
class Writer {
 public:
  struct Array {
    uint8_t* data;
    size_t bytes;
  };

  Writer(std::vector<Array> arrays, uint64_t seed) : arrays_(std::move(arrays)), thread_([this, seed] { write(seed); }) {}
  ~Writer() {
    stop_ = true;
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  void write(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::erase_if(arrays_, [](const Array& array) { return array.bytes == 0; });
    if (arrays_.empty()) return;
    while (!stop_) {
      const Array& array = arrays_[random() % arrays_.size()];
      const size_t begin = random() % 2 ? 0 : random() % array.bytes;
      const size_t size = std::min<size_t>(array.bytes - begin, random() % 2 ? array.bytes : random() % 4096);
      switch (random() % 4) {
        case 0: std::memset(array.data + begin, random() % 2 ? 0xFF : 0, size); break;
        case 1: std::memset(array.data + begin, static_cast<int>(random()), size); break;
        default: {
          const uint64_t few = random() % 2 ? 0xFFFF : ~uint64_t{0};
          for (size_t i = begin; i + 8 <= begin + size; i += 8) {
            const uint64_t word = random() & few;
            std::memcpy(array.data + i, &word, 8);
          }
        }
      }
    }
  }

  std::vector<Array> arrays_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// False where an input has been found to change, or what it became needs more room than there is, or was planned for, on the
/// host or a device; other errors fail.
bool completes(const std::function<void()>& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const ErrorCode code = error.code();
    EXPECT_TRUE(code == ErrorCode::invalid_table || code == ErrorCode::memory_limit || code == ErrorCode::not_supported ||
                code == ErrorCode::device_memory || code == ErrorCode::output_rows)
        << error.what();
    return false;
  }
}

/// Whether the values are the row numbers 0 .. size - 1 in any order.
testing::AssertionResult each_row_once(const TupleArray& tuples) {
  std::vector<bool> seen(tuples.size());
  for (uint64_t i = 0; i < tuples.size(); ++i) {
    const uint64_t row = tuples.value(i);
    if (row >= seen.size() || seen[row]) return testing::AssertionFailure() << "value " << row << " at " << i;
    seen[row] = true;
  }
  return testing::AssertionSuccess();
}

/// Calls body(bench, layout, in) often, for implied values and keys that are being written.
void while_written(uint64_t size, bool ascending, const std::function<void(HostBench&, TupleLayout, const TupleView&)>& body) {
  std::mt19937_64 random(size);
  HostBench bench(2);
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    std::vector<uint8_t> keys(size * layout.key_bytes);
    for (int round = 0; round < 12; ++round) {
      for (uint64_t i = 0; i < size; ++i) words::write(keys.data(), layout.key_bytes, i, ascending ? i / 2 : random());
      const Writer writer({{keys.data(), keys.size()}}, random());
      body(bench, layout, {keys.data(), nullptr, 0, size});
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(ChangingInput, IsPartitionedWithinBounds) {
  for (const uint64_t size : {uint64_t{1000}, uint64_t{100'000}}) {
    while_written(size, false, [&](HostBench& bench, TupleLayout layout, const TupleView& in) {
      for (const bool mixed : {false, true}) {
        const Digit digit{static_cast<uint8_t>(8 * layout.key_bytes - 9), 9, mixed};
        TupleArray out(layout, size, 3);
        std::vector<uint64_t> offsets(digit.count() + 1);
        const Scratch scratch(bench.primitives().partition_scratch_bytes(layout, size, digit));
        const bool done = completes([&] {
          bench.primitives().partition(layout, in, digit, out.span(), offsets.data(), scratch.data(), bench.job, *bench.stream);
          bench.stream->synchronize();
        });
        ASSERT_TRUE(out.guarded());
        if (!done) continue;
        ASSERT_TRUE(each_row_once(out));
        for (uint32_t p = 0; p < digit.count(); ++p) {
          for (uint64_t i = offsets[p]; i < offsets[p + 1]; ++i) ASSERT_EQ(digit(out.key(i)), p);
        }
      }
      const std::vector<uint64_t> bounds{1, 1000, 1 << 15, 0x7FFFFFFF};
      TupleArray out(layout, size, 5);
      std::vector<uint64_t> offsets(bounds.size() + 2);
      const Scratch scratch(bench.primitives().partition_ranges_scratch_bytes(layout, size, bounds.size() + 1));
      const bool done = completes([&] {
        bench.primitives().partition_ranges(layout, in, 0xF0, bounds, out.span(), offsets.data(), scratch.data(), bench.job,
                                            *bench.stream);
        bench.stream->synchronize();
      });
      ASSERT_TRUE(out.guarded());
      if (!done) return;
      ASSERT_TRUE(each_row_once(out));
      for (size_t r = 0; r <= bounds.size(); ++r) {
        for (uint64_t i = offsets[r]; i < offsets[r + 1]; ++i) {
          ASSERT_TRUE((r == 0 || out.key(i) >= bounds[r - 1]) && (r == bounds.size() || out.key(i) < bounds[r]));
        }
      }
    });
  }
}

TEST(ChangingInput, IsSortedWithinBounds) {
  for (const uint64_t size : {uint64_t{30}, uint64_t{20'000}, uint64_t{200'000}}) {
    while_written(size, false, [&](HostBench& bench, TupleLayout layout, const TupleView& in) {
      TupleArray a(layout, size, 1), b(layout, size, 2);
      const Scratch scratch(bench.primitives().sort_scratch_bytes(layout, size));
      const uint64_t bits = size % 3 ? ~uint64_t{0} : 0xFFFF;
      const bool done = completes([&] {
        bench.primitives().sort(layout, in, a.span(), b.span(), bits, scratch.data(), bench.job, *bench.stream);
        bench.stream->synchronize();
      });
      ASSERT_TRUE(a.guarded() && b.guarded());
      if (done) ASSERT_TRUE(each_row_once(b));
    });
  }
}

TEST(ChangingInput, IsMatchedWithinBounds) {
  for (const uint64_t probe_size : {uint64_t{300}, uint64_t{60'000}}) {
    std::vector<uint8_t> probe_keys(probe_size * 8);
    while_written(40'000, true, [&](HostBench& bench, TupleLayout layout, const TupleView& build) {
      for (uint64_t i = 0; i < probe_size; ++i) words::write(probe_keys.data(), layout.key_bytes, i, i * 40'000 / probe_size / 2);
      const Writer writer({{probe_keys.data(), probe_size * layout.key_bytes}}, probe_size);
      const TupleView probe{probe_keys.data(), nullptr, 0, probe_size};
      std::vector<NarrowMatchRange> ranges(std::min(build.size, probe.size));
      uint64_t count = 0;
      const bool done = completes([&] {
        bench.primitives().match_ranges({layout.key_bytes, 0}, build, {layout.key_bytes, 0}, probe, ranges.data(), 4, &count,
                                        nullptr, bench.job, *bench.stream);
        bench.stream->synchronize();
      });
      if (!done) return;
      uint32_t build_end = 0, probe_end = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const NarrowMatchRange& range = ranges[i];
        ASSERT_TRUE(build_end <= range.build_begin && range.build_begin < range.build_end && range.build_end <= build.size);
        ASSERT_TRUE(probe_end <= range.probe_begin && range.probe_begin < range.probe_end && range.probe_end <= probe.size);
        build_end = range.build_end, probe_end = range.probe_end;
      }
    });
  }
}

TEST(ChangingInput, RunsOutOfOrderAreCutWithinBounds) {
  std::mt19937_64 random(3);
  HostBench bench(2);
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    for (const size_t count : {2, 3, 5}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<TupleArray> runs;
        std::vector<TupleView> views;
        uint64_t size = 0;
        for (size_t r = 0; r < count; ++r) {
          const uint64_t rows = random() % 30'000;
          TupleArray& run = runs.emplace_back(layout, rows, r);
          for (uint64_t i = 0; i < rows; ++i) run.set(i, round % 2 ? random() : i * 1000 + random() % 2000, size + i);
          size += rows;
        }
        for (TupleArray& run : runs) views.push_back(run.view());
        const std::vector<uint64_t> ranks{0, size / 3, size / 2, size};
        std::vector<uint64_t> cuts(ranks.size() * count);
        bench.primitives().split_runs(layout, views, ranks, cuts.data(), *bench.stream);
        bench.stream->synchronize();
        for (size_t q = 0; q < ranks.size(); ++q) {
          uint64_t sum = 0;
          for (size_t r = 0; r < count; ++r) {
            sum += cuts[q * count + r];
            ASSERT_LE(cuts[q * count + r], views[r].size);
            if (q > 0) ASSERT_GE(cuts[q * count + r], cuts[(q - 1) * count + r]);
          }
          ASSERT_EQ(sum, ranks[q]);
        }
      }
    }
  }
}

/// All buffers of a column, for a writer.
std::vector<Writer::Array> buffers_of(const TestColumn& test) {
  std::vector<Writer::Array> arrays;
  for (const ColumnChunk& chunk : test.column.chunks) {
    if (chunk.validity) arrays.push_back({test.buffer(chunk.validity), chunk.validity_bytes});
    if (chunk.values) arrays.push_back({test.buffer(chunk.values), chunk.values_bytes});
    if (chunk.offsets) arrays.push_back({test.buffer(chunk.offsets), chunk.offsets_bytes});
  }
  return arrays;
}

std::vector<Writer::Array> buffers_of(const std::vector<const TestColumn*>& columns) {
  std::vector<Writer::Array> arrays;
  for (const TestColumn* column : columns) {
    for (const Writer::Array& array : buffers_of(*column)) arrays.push_back(array);
  }
  return arrays;
}

TestColumn draw_column(const ColumnType& type, uint64_t rows, bool one_chunk, std::mt19937_64& random) {
  const Draw draw{
      .nulls = random() % 3 ? 0 : 0.2, .distinct = random() % 2 ? rows / 2 + 1 : 0, .longest = random() % 2 ? 7u : 40u};
  const Values values = draw_values(type, rows, draw, random);
  if (one_chunk) return {"c", type, values, {rows}, random};
  return {"c", type, values, random};
}

/// Integers that serve as keys as they are come as often as all other types together.
ColumnType draw_key_type(std::mt19937_64& random) {
  const auto types = key_types();
  if (random() % 2) return types[random() % types.size()];
  const uint32_t width = random() % 2 ? 4 : 8;
  return random() % 2 ? signed_type(width) : unsigned_type(width);
}

uint64_t draw_rows(std::mt19937_64& random) { return std::vector<uint64_t>{1, 70, 3000, 40'000}[random() % 4]; }

std::vector<int> first(int devices) {
  std::vector<int> ordinals(static_cast<size_t>(devices));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

TEST(ChangingInput, TablesAreSortedWithinBounds) {
  std::mt19937_64 random(7);
  Engine engine({.threads = 2, .host_devices = 4, .memory_limit_bytes = size_t{1} << 30});
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Job job;
    const uint64_t rows = draw_rows(random);
    const size_t by_count = 1 + random() % 3;
    std::vector<TestColumn> columns;
    for (size_t i = 0; i < by_count; ++i) columns.push_back(draw_column(draw_key_type(random), rows, random() % 2, random));
    columns.push_back(draw_column(opaque_type(random() % 2 ? 8 : 16), rows, random() % 2, random));
    std::vector<SortColumn> by;
    std::vector<const TestColumn*> all;
    for (size_t i = 0; i < by_count; ++i) by.push_back({&columns[i].column, random() % 2 == 0, random() % 2 == 0});
    for (const TestColumn& column : columns) all.push_back(&column);
    const SortPlan plan{.algorithm = std::vector{SortAlgorithm::merge, SortAlgorithm::radix, SortAlgorithm::sample}[random() % 3],
                        .devices = first(1 + static_cast<int>(random() % 4)),
                        .chunkset_ends = random() % 2 ? std::vector{rows} : std::vector{rows / 3, rows}};
    const bool carry = random() % 2 != 0, allow_flip = random() % 2 != 0;
    completes([&] {
      for (TestColumn& column : columns) validate_column(column.column, engine, job);
      const Writer writer(buffers_of(all), random());
      const auto keys = encode_sort_keys(by, carry ? &columns.back().column : nullptr, allow_flip, engine, job);
      const EncodedTuples& tuples = keys->tuples();
      is_sorted(tuples, engine, job);
      SortPlan own = plan;
      own.flip = tuples.flip;
      own.borrowed = tuples.borrowed_from != nullptr;
      const SortedRun run =
          merge_runs(engine, sort_chunksets(engine, tuples.layout, tuples.view, tuples.varying_bits, own, job), job);
      if (!keys->complete()) keys->refine_ties({run.keys.data(), run.values.data(), run.size}, engine, job);
      for (size_t i = 0; i < by_count; ++i) keys->decode(i, run.keys.data(), run.size, engine, job);
      if (tuples.view.values) return;  // no row numbers
      for (const TestColumn* column : all) {
        gather(column->column, {run.values.data(), run.layout.value_bytes, false, run.size}, engine, job);
      }
    });
    if (HasFailure()) return;
  }
}

TEST(ChangingInput, FirstRowsAreFoundWithinBounds) {
  std::mt19937_64 random(9);
  Engine engine({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30});
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(round);
    const Job job;
    const uint64_t rows = random() % 4 ? draw_rows(random) : 200'000;
    const size_t by_count = 1 + random() % 3;
    std::vector<TestColumn> columns;
    for (size_t i = 0; i < by_count; ++i) columns.push_back(draw_column(draw_key_type(random), rows, random() % 2, random));
    std::vector<SortColumn> by;
    std::vector<const TestColumn*> all;
    for (const TestColumn& column : columns) {
      by.push_back({&column.column, random() % 2 == 0, random() % 2 == 0});
      all.push_back(&column);
    }
    const uint64_t skip = random() % 2 ? 0 : random() % rows, count = random() % 2 ? 100 : random() % (rows + 1);
    completes([&] {
      for (TestColumn& column : columns) validate_column(column.column, engine, job);
      const Writer writer(buffers_of(all), random());
      const TopRows top = top_rows(by, skip, count, engine, job);
      EXPECT_EQ(top.size, std::min(count, rows - skip));
      std::vector<uint32_t> numbers(top.rows.as<uint32_t>(), top.rows.as<uint32_t>() + top.size);
      std::sort(numbers.begin(), numbers.end());
      EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
      EXPECT_TRUE(numbers.empty() || numbers.back() < rows);
    });
    if (HasFailure()) return;
  }
}

TEST(ChangingInput, KeysOfAllTypesBecomePlainWithinBounds) {
  std::mt19937_64 random(10);
  Engine engine({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30});
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const Job job;
    const uint64_t rows = draw_rows(random);
    const auto width = std::vector<uint32_t>{3, 8, 16, 32}[random() % 4];
    const ColumnType opaque{ColumnKind::fixed, width < 16 || random() % 2 ? KeyOrder::bytes : KeyOrder::signed_integer, width};
    TestColumn values("v", opaque, draw_values(opaque, rows, {.nulls = 0.1}, random), random);
    std::vector<const TestColumn*> all{&values};
    const uint64_t entries = 1 + random() % 20;
    const ColumnType text = random() % 2 ? utf8_type() : signed_type(16);
    const TestColumn dictionary("d", text, draw_values(text, entries, {.nulls = 0.1}, random), random);
    // Indices that change are refused soon: those of one byte may also stay within the dictionary.
    Values indices;
    for (uint64_t row = 0; row < rows; ++row) indices.push_back(value_of(static_cast<uint8_t>(random() % entries)));
    TestColumn column("i", unsigned_type(1), indices, random);
    const bool with_dictionary = random() % 2;
    if (with_dictionary) {
      column.column.dictionary = std::make_shared<const Column>(dictionary.column);
      for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = entries;
      all = {&dictionary};
      if (random() % 2) all.push_back(&column);
    }
    // Views whose texts are within one buffer, or not.
    std::vector<uint8_t> views(rows * 16), bytes(1000);
    for (uint64_t row = 0; row < rows; ++row) {
      const uint32_t words[4] = {static_cast<uint32_t>(random() % 40), 0, 0, static_cast<uint32_t>(random() % 900)};
      std::memcpy(&views[row * 16], words, 16);
    }
    const std::vector<ViewBuffer> buffers{{bytes.data(), bytes.size()}};
    Column view;
    view.name = "view";
    view.type = {ColumnKind::view, KeyOrder::bytes, 0};
    view.length = rows;
    view.chunks.emplace_back();
    view.chunks[0].length = rows;
    view.chunks[0].values = views.data();
    view.chunks[0].values_bytes = views.size();
    view.chunks[0].buffers = buffers;
    std::vector<Writer::Array> arrays = buffers_of(all);
    if (random() % 2) arrays.push_back({views.data(), views.size()});
    arrays.push_back({bytes.data(), bytes.size()});
    completes([&] {
      const Writer writer(std::move(arrays), random());
      for (const Column* one : std::initializer_list<const Column*>{with_dictionary ? &column.column : &values.column, &view}) {
        completes([&] {
          const SortColumn by{one};
          const auto keys = encode_sort_keys({&by, 1}, nullptr, false, engine, job);
          EXPECT_EQ(keys->tuples().view.size, rows);
          const TopRows top = top_rows({&by, 1}, 0, 10, engine, job);
          EXPECT_EQ(top.size, std::min<uint64_t>(10, rows));
        });
      }
    });
    if (HasFailure()) return;
  }
}

TEST(ChangingInput, ColumnsBecomeOtherTypesWithinBounds) {
  std::mt19937_64 random(11);
  Engine engine({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30});
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const Job job(random() % 2 ? 500 : kMaxBufferBytes);
    const uint64_t rows = draw_rows(random);
    const ColumnType from = std::vector<ColumnType>{
        utf8_type(), signed_type(4), signed_type(16), {ColumnKind::fixed, KeyOrder::bytes, 3}}[random() % 4];
    const bool number = from.order == KeyOrder::signed_integer;
    const columns::Conversion to{number         ? signed_type(32)
                                 : random() % 2 ? utf8_type()
                                                : large_utf8_type(),
                                 {number ? 3u : 0u, 1},
                                 "c",
                                 "that"};
    const bool with_dictionary = random() % 2;
    const uint64_t entries = 1 + random() % 20;
    const TestColumn values("c", from, draw_values(from, with_dictionary ? entries : rows, {.nulls = 0.1}, random), random);
    Values indices;
    for (uint64_t row = 0; row < rows; ++row) indices.push_back(value_of(static_cast<uint8_t>(random() % entries)));
    TestColumn column("i", unsigned_type(1), indices, random);
    column.column.dictionary = std::make_shared<const Column>(values.column);
    for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = entries;
    std::vector<const TestColumn*> written{&values};
    if (with_dictionary && random() % 2) written.push_back(&column);
    std::vector<uint32_t> numbers(rows);
    for (uint32_t& row : numbers) row = static_cast<uint32_t>(random() % rows);
    completes([&] {
      const Writer writer(buffers_of(written), random());
      const columns::PlainKey made = columns::converted(with_dictionary ? column.column : values.column, to, engine, job);
      EXPECT_EQ(made.column.length, rows);
      EXPECT_EQ(gather(made.column, {numbers.data(), 4, false, rows}, engine, job).length, rows);
    });
    if (HasFailure()) return;
  }
}

TEST(ChangingInput, TextsAndIndicesThatHaveNumbersAreJoinedWithinBounds) {
  std::mt19937_64 random(11);
  Engine engine({.threads = 3, .host_devices = 2, .memory_limit_bytes = size_t{1} << 30});
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(round);
    Job job;
    const uint64_t rows = std::vector<uint64_t>{70, 5000, 200'000}[random() % 3];
    const auto texts_of = [&](uint64_t distinct) {
      const Draw draw{.nulls = random() % 3 ? 0 : 0.2, .distinct = distinct, .longest = random() % 2 ? 24u : 60u};
      return TestColumn("text", utf8_type(), draw_values(utf8_type(), rows, draw, random), random);
    };
    const TestColumn left_text = texts_of(20), right_text = texts_of(30);
    const uint64_t entries = 1 + random() % 50;
    Values values;
    for (uint64_t i = 0; i < entries; ++i) values.push_back("value " + std::to_string(i));
    const TestColumn left_values("v", utf8_type(), values, {entries}, random);
    if (random() % 2) std::shuffle(values.begin(), values.end(), random);
    const TestColumn right_values("v", utf8_type(), values, {entries}, random);
    const auto indices_of = [&](const TestColumn& dictionary) {
      Values indices;
      for (uint64_t row = 0; row < rows; ++row) indices.push_back(value_of(static_cast<int32_t>(random() % entries)));
      TestColumn column("i", signed_type(4), indices, {rows}, random);
      column.column.dictionary = std::make_shared<const Column>(dictionary.column);
      for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = entries;
      return column;
    };
    TestColumn left = indices_of(left_values), right = indices_of(right_values);
    std::vector<JoinKeyPair> pairs;
    const int which = static_cast<int>(random() % 3);
    if (which != 0) pairs.push_back({.left = &left.column, .right = &right.column});
    if (which != 1) pairs.push_back({.left = &left_text.column, .right = &right_text.column});
    std::vector<const TestColumn*> written{&left, &right};
    if (random() % 2) written = {&left_text, &right_text, &left_values, &right_values};
    const JoinRequest request{.kind = JoinKind::inner, .build_left = random() % 2 == 0, .want_keys = true, .max_rows = 300'000};
    completes([&] {
      const Writer writer(buffers_of(written), random());
      const JoinKeys keys = encode_join_keys(pairs, nullptr, nullptr, engine, job);
      const JoinRows found = hash_join(engine, keys, request, {first(2), 1, 0}, job);
      for (size_t pair = 0; pair < keys.left_values.size(); ++pair) {
        if (!keys.left_values[pair].given) continue;
        const OwnedColumn decoded =
            decode_join_keys(keys.left_values[pair], found.left_layout.key_bytes, found.keys.data(), found.size, engine, job);
        EXPECT_EQ(decoded.length, found.size);
      }
    });
    if (HasFailure()) return;
  }
}

TEST(ChangingInput, TablesAreJoinedWithinBounds) {
  std::mt19937_64 random(8);
  Engine engine({.threads = 2, .host_devices = 4, .memory_limit_bytes = size_t{1} << 30});
  const std::vector<JoinKind> kinds{JoinKind::inner, JoinKind::left, JoinKind::right,
                                    JoinKind::full,  JoinKind::semi, JoinKind::anti};
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(round);
    Job job;
    const ColumnType type = draw_key_type(random);
    const uint64_t left_rows = draw_rows(random), right_rows = draw_rows(random);
    TestColumn left = draw_column(type, left_rows, random() % 2, random);
    TestColumn right = draw_column(type, right_rows, random() % 2, random);
    TestColumn left_text = draw_column(utf8_type(), left_rows, random() % 2, random);
    TestColumn right_text = draw_column(large_utf8_type(), right_rows, random() % 2, random);
    std::vector<JoinKeyPair> pairs{{.left = &left.column, .right = &right.column, .nulls_equal = random() % 2 == 0}};
    if (random() % 2) pairs.push_back({.left = &left_text.column, .right = &right_text.column, .nulls_equal = random() % 2 == 0});
    JoinRequest request{.kind = kinds[random() % kinds.size()], .build_left = random() % 2 == 0, .max_rows = 300'000};
    request.count_only = random() % 3 == 0;
    const std::vector<int> devices = first(1 + static_cast<int>(random() % 4));
    const int way = static_cast<int>(random() % 4);
    completes([&] {
      for (TestColumn* column : {&left, &right, &left_text, &right_text}) validate_column(column->column, engine, job);
      const Writer writer(buffers_of({&left, &right, &left_text, &right_text}), random());
      const JoinKeys keys = encode_join_keys(pairs, nullptr, nullptr, engine, job);
      const TupleView &left_view = keys.left.tuples.view, &right_view = keys.right.tuples.view;
      JoinRows rows;
      if (way == 0) {
        rows = hash_join(engine, keys, request, {devices, 1, 0}, job);
      } else if (way == 1) {
        rows = hash_join(engine, keys, request, {devices, 1, 16}, job);
      } else if (way == 2) {  // as if both sides had been found to be in order
        rows = merge_join(engine, left_view, right_view, keys, request, {devices, 3}, job);
      } else {
        rows = sort_merge_join(engine, keys, request, devices, job);
      }
      if (request.count_only) return;
      const bool left_only = request.kind == JoinKind::semi || request.kind == JoinKind::anti;
      gather(left_text.column, {rows.left.data(), rows.left_layout.value_bytes, rows.left_may_be_missing, rows.size}, engine,
             job);
      if (left_only) return;
      const RowList right_list{rows.right.data(), rows.right_layout.value_bytes, rows.right_may_be_missing, rows.size};
      gather(right.column, right_list, engine, job);
      if (request.kind != JoinKind::full) return;
      gather_coalesced(left.column, {rows.left.data(), rows.left_layout.value_bytes, rows.left_may_be_missing, rows.size},
                       right.column, right_list, engine, job);
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace warpjoin
