// Columns on the host: 2 * 10^7 rows; bytes read and written as the ceiling (copy) counts them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "columns/encode.h"
#include "columns/gather.h"

namespace warpjoin {
namespace {

constexpr uint64_t kRows = 20'000'000;

Engine& engine() {
  static Engine engine({.host_devices = 1, .memory_limit_bytes = size_t{3} << 30});
  return engine;
}

/// A column of one chunk with the memory behind it.
struct BenchColumn {
  Column column;
  HostBuffer values, offsets;

  BenchColumn(ColumnType type, uint64_t value_bytes) {
    column.name = "c";
    column.type = type;
    column.length = kRows;
    values = engine().memory->allocate(value_bytes, "benchmark");
    ColumnChunk chunk;
    chunk.length = kRows;
    chunk.values = values.data();
    chunk.values_bytes = value_bytes;
    column.chunks.push_back(chunk);
  }
};

BenchColumn numbers(uint32_t width) {
  BenchColumn column({ColumnKind::fixed, KeyOrder::signed_integer, width}, kRows * width);
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < kRows * width / 8; ++i) column.values.as<uint64_t>()[i] = random();
  return column;
}

/// Texts of `least` to `most` random bytes.
BenchColumn texts(uint32_t least, uint32_t most) {
  std::mt19937_64 random(2);
  HostBuffer offsets = engine().memory->allocate((kRows + 1) * 4, "benchmark");
  auto* at = offsets.as<int32_t>();
  at[0] = 0;
  for (uint64_t i = 0; i < kRows; ++i) at[i + 1] = at[i] + static_cast<int32_t>(least + random() % (most - least + 1));
  BenchColumn column({ColumnKind::utf8, KeyOrder::bytes, 0}, static_cast<uint64_t>(at[kRows]));
  for (int32_t i = 0; i + 8 <= at[kRows]; i += 8) {
    const uint64_t word = random() & 0x3F3F3F3F3F3F3F3Full;
    std::memcpy(column.values.as<char>() + i, &word, 8);
  }
  column.offsets = std::move(offsets);
  column.column.chunks[0].offsets = column.offsets.data();
  column.column.chunks[0].offsets_bytes = (kRows + 1) * 4;
  return column;
}

HostBuffer rows(bool shuffled) {
  HostBuffer rows = engine().memory->allocate(kRows * 4, "benchmark");
  auto* numbers = rows.as<uint32_t>();
  std::iota(numbers, numbers + kRows, 0u);
  if (shuffled) std::shuffle(numbers, numbers + kRows, std::mt19937_64(3));
  return rows;
}

void copy(benchmark::State& state) {
  const BenchColumn column = numbers(8);
  const HostBuffer out = engine().memory->allocate(kRows * 8, "benchmark");
  const Job job;
  for (auto _ : state) {
    engine().pool.for_blocks(kRows, 1 << 16, job, [&](uint64_t begin, uint64_t end) {
      std::memcpy(out.as<uint64_t>() + begin, column.values.as<uint64_t>() + begin, (end - begin) * 8);
    });
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kRows * 16));
}

void validate_text(benchmark::State& state) {
  BenchColumn column = texts(8, 24);
  const Job job;
  for (auto _ : state) validate_column(column.column, engine(), job);
}

void encode_sort(benchmark::State& state, const BenchColumn& column) {
  const Job job;
  const SortColumn by{&column.column};
  for (auto _ : state) benchmark::DoNotOptimize(encode_sort_keys({&by, 1}, nullptr, false, engine(), job));
}
void encode_sort_int64(benchmark::State& state) { encode_sort(state, numbers(8)); }
void encode_sort_int32(benchmark::State& state) { encode_sort(state, numbers(4)); }
void encode_sort_utf8(benchmark::State& state) { encode_sort(state, texts(8, 24)); }

void decode_int64(benchmark::State& state) {
  const BenchColumn column = numbers(8);
  const Job job;
  const SortColumn by{&column.column};
  const auto keys = encode_sort_keys({&by, 1}, nullptr, false, engine(), job);
  for (auto _ : state)
    benchmark::DoNotOptimize(keys->decode(0, keys->tuples().view.keys, keys->tuples().view.size, engine(), job));
}

/// `column` refined from sorted word-0 keys.
void refine(benchmark::State& state, const BenchColumn& column) {
  const Job job;
  const SortColumn by{&column.column};
  const auto keys = encode_sort_keys({&by, 1}, nullptr, false, engine(), job);
  const uint64_t* words = static_cast<const uint64_t*>(keys->tuples().view.keys);
  std::vector<std::pair<uint64_t, uint32_t>> pairs(kRows);
  for (uint32_t i = 0; i < kRows; ++i) pairs[i] = {words[i], i};
  std::sort(pairs.begin(), pairs.end());
  const HostBuffer sorted_keys = engine().memory->allocate(kRows * 8, "benchmark");
  const HostBuffer sorted_rows = engine().memory->allocate(kRows * 4, "benchmark");
  for (uint64_t i = 0; i < kRows; ++i) sorted_keys.as<uint64_t>()[i] = pairs[i].first;
  for (auto _ : state) {
    state.PauseTiming();
    for (uint64_t i = 0; i < kRows; ++i) sorted_rows.as<uint32_t>()[i] = pairs[i].second;
    state.ResumeTiming();
    keys->refine_ties({sorted_keys.data(), sorted_rows.data(), kRows}, engine(), job);
  }
}
void refine_few_ties(benchmark::State& state) { refine(state, texts(8, 24)); }
void refine_short_ties(benchmark::State& state) {
  BenchColumn column = texts(16, 24);
  // Four million starts: about five texts share each.
  for (uint64_t i = 0; i < kRows; ++i) {
    const uint64_t start = i * 0x9E3779B97F4A7C15ull % (kRows / 5);
    std::memcpy(column.values.as<char>() + column.offsets.as<int32_t>()[i], &start, 8);
  }
  refine(state, column);
}

void encode_join_int64(benchmark::State& state) {
  const BenchColumn column = numbers(8);
  const Job job;
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_join_keys(column.column, column.column, nullptr, nullptr, engine(), job));
  }
}
void encode_join_utf8(benchmark::State& state) {
  const BenchColumn column = texts(8, 24);
  const Job job;
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_join_keys(column.column, column.column, nullptr, nullptr, engine(), job));
  }
}

/// Unique texts joined with as many, each drawn from them.
void encode_join_utf8_foreign(benchmark::State& state) {
  const BenchColumn left = texts(8, 24);
  const HostBuffer numbers = rows(true);
  const Job job;
  const OwnedColumn drawn = gather(left.column, {numbers.data(), 4, false, kRows}, engine(), job);
  Column right = left.column;
  right.chunks[0].values = drawn.values.data();
  right.chunks[0].values_bytes = drawn.values.size();
  right.chunks[0].offsets = drawn.offsets.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_join_keys(left.column, right, nullptr, nullptr, engine(), job));
  }
}

void gather_column(benchmark::State& state, const BenchColumn& column, bool shuffled) {
  const HostBuffer numbers = rows(shuffled);
  const Job job;
  for (auto _ : state) benchmark::DoNotOptimize(gather(column.column, {numbers.data(), 4, false, kRows}, engine(), job));
}
void gather_8_random(benchmark::State& state) { gather_column(state, numbers(8), true); }
void gather_8_in_order(benchmark::State& state) { gather_column(state, numbers(8), false); }
void gather_8_chunked_random(benchmark::State& state) {
  BenchColumn column = numbers(8);
  const ColumnChunk whole = column.column.chunks[0];
  column.column.chunks.clear();
  constexpr uint64_t kChunk = 1'000'000;
  for (uint64_t begin = 0; begin < kRows; begin += kChunk) {
    ColumnChunk chunk = whole;
    chunk.values = static_cast<const uint64_t*>(whole.values) + begin;
    chunk.length = kChunk;
    chunk.values_bytes = kChunk * 8;
    column.column.chunks.push_back(chunk);
  }
  gather_column(state, column, true);
}
void gather_utf8_random(benchmark::State& state) { gather_column(state, texts(16, 16), true); }
void gather_utf8_in_order(benchmark::State& state) { gather_column(state, texts(16, 16), false); }

BENCHMARK(copy)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(validate_text)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(encode_sort_int64)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(encode_sort_int32)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(encode_sort_utf8)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(decode_int64)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(refine_few_ties)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime()->Iterations(5);
BENCHMARK(refine_short_ties)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime()->Iterations(3);
BENCHMARK(encode_join_int64)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(encode_join_utf8)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(encode_join_utf8_foreign)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(gather_8_random)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(gather_8_in_order)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(gather_8_chunked_random)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(gather_utf8_random)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(gather_utf8_in_order)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace
}  // namespace warpjoin
