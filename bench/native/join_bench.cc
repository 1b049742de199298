// Joins of keys and row numbers on one host device: the hash join primitive's phases and the whole operators.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "join/join.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

constexpr uint64_t kRows = 20'000'000;

template <class Key>
struct Side {
  std::vector<Key> keys;
  std::vector<uint32_t> values;
  std::vector<uint64_t> offsets;

  Side(std::vector<Key> all, unsigned bits) : keys(all.size()), values(all.size()), offsets((size_t{1} << bits) + 1) {
    const auto part = [&](Key key) { return bits ? mix_key(key) >> (64 - bits) : 0; };
    for (const Key key : all) ++offsets[part(key) + 1];
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    std::vector<uint64_t> next(offsets.begin(), offsets.end());
    for (uint64_t i = 0; i < all.size(); ++i) {
      const uint64_t to = next[part(all[i])]++;
      keys[to] = all[i];
      values[to] = static_cast<uint32_t>(i);
    }
  }
  PartitionedTuples tuples(uint8_t value_bytes) const {
    return {{sizeof(Key), value_bytes}, {{keys.data(), values.data(), 0, keys.size()}}, {offsets.data()}};
  }
};

enum class Keys { unique, half_hit, repeated };

template <class Key>
void match(benchmark::State& state, Keys kind) {
  const auto bits = static_cast<unsigned>(state.range(0));
  const bool count_only = state.range(1) != 0;
  Engine engine({.threads = 0, .host_devices = 1, .memory_limit_bytes = size_t{8} << 30});
  std::mt19937_64 random(1);
  std::vector<Key> build(kRows), probe(kRows);
  const auto key = [&](uint64_t i) { return static_cast<Key>(i * 0xD1342543DE82EF95ull >> (64 - 8 * sizeof(Key))); };
  for (uint64_t i = 0; i < kRows; ++i) build[i] = key(kind == Keys::repeated ? random() % (kRows / 4) : i);
  for (uint64_t i = 0; i < kRows; ++i)
    probe[i] = key(random() % (kind == Keys::half_hit ? 2 * kRows : kind == Keys::repeated ? kRows / 4 : kRows));
  const Side<Key> r(std::move(build), bits), s(std::move(probe), bits);
  const auto stream = engine.devices[0]->create_stream();
  Primitives& primitives = engine.devices[0]->primitives();
  const PartitionedTuples build_side = r.tuples(count_only ? 0 : 4), probe_side = s.tuples(count_only ? 0 : 4);
  const HostBuffer scratch = engine.memory->allocate(
      primitives.hash_match_scratch_bytes(build_side.layout, kRows, probe_side.layout, kRows, 1u << bits, count_only), "a bench");
  HostBuffer keys, left, right;
  const Job job;
  double emit_ms = 1e9, match_ms = 1e9, emit_cpu_ms = 1e9, match_cpu_ms = 1e9;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    const auto ms = [&] {
      const auto now = std::chrono::steady_clock::now();
      return std::chrono::duration<double, std::milli>(now - std::exchange(start, now)).count();
    };
    std::clock_t cpu = std::clock();
    const auto cpu_ms = [&] {  // of all threads together: what a busy machine can't distort much
      const std::clock_t now = std::clock();
      return 1e3 * static_cast<double>(now - std::exchange(cpu, now)) / CLOCKS_PER_SEC;
    };
    const auto found = primitives.hash_match(build_side, probe_side, 1u << bits, bits, count_only, scratch.data(), job, *stream);
    stream->synchronize();
    match_ms = std::min(match_ms, ms());
    match_cpu_ms = std::min(match_cpu_ms, cpu_ms());
    if (count_only) continue;
    const uint64_t pairs = found->tally().pairs;
    if (!keys) {
      keys = engine.memory->allocate(pairs * sizeof(Key), "a bench");
      left = engine.memory->allocate(pairs * 4, "a bench");
      right = engine.memory->allocate(pairs * 4, "a bench");
    }
    ms();
    cpu_ms();
    primitives.hash_emit(*found, JoinEmit::pairs, 0, pairs, {keys.data(), left.data(), right.data()}, job, *stream);
    stream->synchronize();
    emit_ms = std::min(emit_ms, ms());
    emit_cpu_ms = std::min(emit_cpu_ms, cpu_ms());
  }
  state.counters["match_ms"] = match_ms;
  state.counters["match_cpu_ms"] = match_cpu_ms;
  if (count_only) return;
  state.counters["emit_ms"] = emit_ms;
  state.counters["emit_cpu_ms"] = emit_cpu_ms;
}

void match64(benchmark::State& state, Keys kind) { match<uint64_t>(state, kind); }
void match32(benchmark::State& state, Keys kind) { match<uint32_t>(state, kind); }

// Arguments: partition bits, count only.
void settings(benchmark::internal::Benchmark* benchmark) {
  benchmark->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(8)->ArgNames({"bits", "count"});
}
BENCHMARK_CAPTURE(match64, unique, Keys::unique)->Apply(settings)->Args({11, 0})->Args({11, 1})->Args({12, 0});
BENCHMARK_CAPTURE(match64, half_hit, Keys::half_hit)->Apply(settings)->Args({11, 0})->Args({12, 0});
BENCHMARK_CAPTURE(match64, repeated, Keys::repeated)->Apply(settings)->Args({11, 0})->Args({12, 0});
BENCHMARK_CAPTURE(match32, unique, Keys::unique)->Apply(settings)->Args({11, 0})->Args({11, 1});

/// Unique keys on both sides in random order, with implied row numbers.
JoinKeys make_keys(Engine& engine, uint64_t left_rows, uint64_t right_rows) {
  JoinKeys keys;
  for (JoinSide* side : {&keys.left, &keys.right}) {
    const uint64_t rows = side->rows = side == &keys.left ? left_rows : right_rows;
    side->tuples.layout = {8, 4};
    side->tuples.keys = engine.memory->allocate(rows * 8, "a bench");
    side->tuples.view = {side->tuples.keys.data(), nullptr, 0, rows};
    auto* all = side->tuples.keys.as<uint64_t>();
    for (uint64_t i = 0; i < rows; ++i) all[i] = i % left_rows * 0xD1342543DE82EF95ull;
    std::shuffle(all, all + rows, std::mt19937_64(rows));
  }
  return keys;
}

// Arguments: build rows, probe rows, kind.
void operator_hash(benchmark::State& state) {
  Engine engine({.threads = 0, .host_devices = 1, .memory_limit_bytes = size_t{8} << 30});
  const JoinKeys keys = make_keys(engine, static_cast<uint64_t>(state.range(0)), static_cast<uint64_t>(state.range(1)));
  const JoinRequest request{.kind = state.range(2) ? JoinKind::full : JoinKind::inner, .want_keys = state.range(2) == 0};
  std::vector<PhaseStats> phases;
  double best = 1e9;
  for (auto _ : state) {
    Job job;
    const auto start = std::chrono::steady_clock::now();
    const JoinRows rows = hash_join(engine, keys, request, {.devices = {0}}, job);
    benchmark::DoNotOptimize(rows.size);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (ms < best) phases = job.phases();
    best = std::min(best, ms);
  }
  state.counters["best_ms"] = best;
  for (const PhaseStats& phase : phases) state.counters[phase.name + "_ms"] = phase.milliseconds;
}
BENCHMARK(operator_hash)
    ->ArgNames({"build", "probe", "full"})
    ->Args({kRows, kRows, 0})
    ->Args({kRows, kRows, 1})
    ->Args({16 << 10, kRows, 0})
    ->Args({32 << 10, kRows, 0})
    ->Args({64 << 10, kRows, 0})
    ->Args({128 << 10, kRows, 0})
    ->Args({512 << 10, kRows, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(8);

void operator_merge(benchmark::State& state) {
  Engine engine({.threads = 0, .host_devices = 1, .memory_limit_bytes = size_t{8} << 30});
  const JoinKeys keys = make_keys(engine, kRows, kRows);
  SortedRun runs[2];
  for (SortedRun& run : runs) {
    run.layout = {8, 4};
    run.size = kRows;
    run.keys = engine.memory->allocate(kRows * 8, "a bench");
    run.values = engine.memory->allocate(kRows * 4, "a bench");
    for (uint64_t i = 0; i < kRows; ++i) {
      run.keys.as<uint64_t>()[i] = 3 * i;
      run.values.as<uint32_t>()[i] = static_cast<uint32_t>(i);
    }
  }
  std::vector<PhaseStats> phases;
  double best = 1e9;
  for (auto _ : state) {
    Job job;
    const auto start = std::chrono::steady_clock::now();
    const JoinRows rows = merge_join(engine, runs[0].view(), runs[1].view(), keys, {.want_keys = true}, {.devices = {0}}, job);
    benchmark::DoNotOptimize(rows.size);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (ms < best) phases = job.phases();
    best = std::min(best, ms);
  }
  state.counters["best_ms"] = best;
  for (const PhaseStats& phase : phases) state.counters[phase.name + "_ms"] = phase.milliseconds;
}
BENCHMARK(operator_merge)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(8);

}  // namespace
}  // namespace warpjoin
