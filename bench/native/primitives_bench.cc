// The host primitives against the ceiling of the machine: copying memory with the same threads (Copy). Rows, threads and
// key distributions are the axes; bytes are those that a call must read and write once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/host_device.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

enum class Keys { uniform, bits_20, few_distinct, zipf, sorted, nearly_sorted, one_bucket };
constexpr const char* kKeyNames[] = {"uniform", "bits_20", "few_distinct", "zipf", "sorted", "nearly_sorted", "one_bucket"};

uint64_t make_key(Keys kind, uint64_t i, std::mt19937_64& random) {
  switch (kind) {
    case Keys::uniform: return random();
    case Keys::bits_20: return random() >> 44;
    case Keys::few_distinct: return mix_key(random() % 100);
    case Keys::zipf:
      return mix_key(static_cast<uint64_t>(std::exp(static_cast<double>(random() >> 11) * 0x1p-53 * std::log(1e8))));
    case Keys::sorted: return i;
    case Keys::nearly_sorted: return random() % 100 == 0 ? random() % (i + 1000) : i;
    case Keys::one_bucket: return random() % 1000 == 0 ? random() : random() & 0xFFFFFFFFFF;
  }
  return 0;
}

/// A host device whose memory has been touched before.
struct Machine {
  explicit Machine(unsigned threads)
      : memory(HostMemory::create(size_t{16} << 30)),
        pool(threads),
        device(create_host_device(0, size_t{1} << 30, memory, pool)),
        stream(device->create_stream()) {}

  HostBuffer allocate(size_t bytes) {
    HostBuffer buffer = memory->allocate(bytes, "a benchmark");
    std::memset(buffer.data(), 0, bytes);
    return buffer;
  }

  std::shared_ptr<HostMemory> memory;
  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Job job;
};

struct Array {
  Array(Machine& machine, TupleLayout layout, uint64_t size)
      : keys(machine.allocate(size * layout.key_bytes)), values(machine.allocate(size * layout.value_bytes)), size(size) {}
  TupleSpan span() const { return {keys.data(), values.data(), size}; }
  void fill(TupleLayout layout, Keys kind, bool ascending = false) {
    std::mt19937_64 random(7);
    std::vector<uint64_t> made(size);
    for (uint64_t i = 0; i < size; ++i) made[i] = make_key(kind, i, random);
    if (ascending) std::sort(made.begin(), made.end());
    for (uint64_t i = 0; i < size; ++i) {
      if (layout.key_bytes == 8) {
        keys.as<uint64_t>()[i] = made[i];
      } else {
        keys.as<uint32_t>()[i] = static_cast<uint32_t>(ascending ? made[i] >> 32 : made[i]);
      }
    }
  }
  HostBuffer keys, values;
  uint64_t size;
};

TupleLayout layout_of(const benchmark::State& state) {
  return {static_cast<uint8_t>(state.range(1)), static_cast<uint8_t>(state.range(2))};
}

void report(benchmark::State& state, uint64_t tuples, uint64_t bytes) {
  state.SetItemsProcessed(static_cast<int64_t>(tuples) * state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
}

const auto kMostThreads = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));

void Copy(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(state.range(1)));
  const auto bytes = static_cast<size_t>(state.range(0)) * 16;
  const HostBuffer from = machine.allocate(bytes), to = machine.allocate(bytes);
  for (auto _ : state) {
    machine.device->copy(to.data(), from.data(), bytes, *machine.stream);
    machine.stream->synchronize();
  }
  report(state, bytes / 16, 2 * bytes);
}
BENCHMARK(Copy)
    ->ArgNames({"rows", "threads"})
    ->Args({20'000'000, 1})
    ->Args({20'000'000, kMostThreads})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void Sort(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(state.range(5)));
  const auto size = static_cast<uint64_t>(state.range(0));
  const TupleLayout layout = layout_of(state);
  const auto kind = static_cast<Keys>(state.range(4));
  Array in(machine, layout, size), a(machine, layout, size), b(machine, layout, size);
  in.fill(layout, kind);
  TupleView view = in.span().view();
  if (state.range(3)) view.values = nullptr;
  const HostBuffer scratch = machine.allocate(machine.device->primitives().sort_scratch_bytes(layout, size));
  uint64_t varying = 0;
  machine.device->primitives().varying_bits(layout, view, in.keys.as<uint64_t>(), &varying, machine.job, *machine.stream);
  machine.stream->synchronize();
  for (auto _ : state) {
    machine.device->primitives().sort(layout, view, a.span(), b.span(), varying, scratch.data(), machine.job, *machine.stream);
    machine.stream->synchronize();
  }
  state.SetLabel(kKeyNames[state.range(4)]);
  report(state, size, size * (2 * layout.tuple_bytes() - (state.range(3) ? layout.value_bytes : 0)));
}
void sort_axes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "key", "value", "implied", "keys", "threads"});
  for (const int64_t threads : {int64_t{1}, kMostThreads}) bench->Args({20'000'000, 8, 8, 0, 0, threads});
  for (const int64_t rows : {1'000, 30'000, 100'000, 1'000'000}) bench->Args({rows, 8, 4, 1, 0, kMostThreads});
  bench->Args({20'000'000, 8, 0, 0, 0, kMostThreads});
  bench->Args({20'000'000, 4, 4, 1, 0, kMostThreads});
  for (int64_t kind = 0; kind <= static_cast<int64_t>(Keys::one_bucket); ++kind)
    bench->Args({20'000'000, 8, 4, 1, kind, kMostThreads});
}
BENCHMARK(Sort)->Apply(sort_axes)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void VaryingBits(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(kMostThreads));
  const TupleLayout layout = layout_of(state);
  Array in(machine, layout, static_cast<uint64_t>(state.range(0)));
  in.fill(layout, Keys::uniform);
  uint64_t bits = 0;
  for (auto _ : state) {
    machine.device->primitives().varying_bits(layout, in.span().view(), in.keys.as<uint64_t>(), &bits, machine.job,
                                              *machine.stream);
    machine.stream->synchronize();
  }
  report(state, in.size, in.size * layout.key_bytes);
}
BENCHMARK(VaryingBits)
    ->ArgNames({"rows", "key", "value"})
    ->Args({20'000'000, 8, 0})
    ->Args({20'000'000, 4, 0})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void Partition(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(kMostThreads));
  const TupleLayout layout = layout_of(state);
  const auto size = static_cast<uint64_t>(state.range(0));
  const auto bits = static_cast<uint8_t>(state.range(4));
  const Digit digit{static_cast<uint8_t>(64 - bits), bits, true};
  Array in(machine, layout, size), out(machine, layout, size);
  in.fill(layout, static_cast<Keys>(state.range(5)));
  TupleView view = in.span().view();
  if (state.range(3)) view.values = nullptr;
  std::vector<uint64_t> offsets(digit.count() + 1);
  const HostBuffer scratch = machine.allocate(machine.device->primitives().partition_scratch_bytes(layout, size, digit));
  for (auto _ : state) {
    machine.device->primitives().partition(layout, view, digit, out.span(), offsets.data(), scratch.data(), machine.job,
                                           *machine.stream);
    machine.stream->synchronize();
  }
  state.SetLabel(kKeyNames[state.range(5)]);
  report(state, size, size * (2 * layout.tuple_bytes() - (state.range(3) ? layout.value_bytes : 0)));
}
void partition_axes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "key", "value", "implied", "bits", "keys"});
  for (const int64_t bits : {6, 8, 10, 11, 12}) bench->Args({20'000'000, 8, 4, 1, bits, 0});
  bench->Args({20'000'000, 8, 4, 0, 11, 0});
  bench->Args({20'000'000, 8, 8, 0, 11, 0});
  bench->Args({20'000'000, 8, 4, 1, 11, static_cast<int64_t>(Keys::few_distinct)});
  bench->Args({100'000, 8, 4, 1, 6, 0});
}
BENCHMARK(Partition)->Apply(partition_axes)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void Merge(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(kMostThreads));
  const TupleLayout layout = layout_of(state);
  const auto size = static_cast<uint64_t>(state.range(0));
  const auto count = static_cast<uint64_t>(state.range(3));
  std::vector<TupleView> runs;
  Array in(machine, layout, size), out(machine, layout, size);
  in.fill(layout, static_cast<Keys>(state.range(4)));
  for (uint64_t r = 0; r < count; ++r) {
    runs.push_back(in.span().view().slice(layout, size * r / count, size * (r + 1) / count));
    auto* const keys = in.keys.as<uint64_t>() + size * r / count;
    std::sort(keys, keys + runs.back().size);
  }
  const HostBuffer scratch = machine.allocate(machine.device->primitives().merge_scratch_bytes(layout, count, size));
  for (auto _ : state) {
    machine.device->primitives().merge(layout, runs, out.span(), scratch.data(), machine.job, *machine.stream);
    machine.stream->synchronize();
  }
  state.SetLabel(kKeyNames[state.range(4)]);
  report(state, size, size * 2 * layout.tuple_bytes());
}
void merge_axes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "key", "value", "runs", "keys"});
  for (const int64_t runs : {2, 3, 4, 8, 16, 64, 1000}) bench->Args({20'000'000, 8, 8, runs, 0});
  bench->Args({20'000'000, 8, 4, 2, 0});
  bench->Args({20'000'000, 8, 8, 2, static_cast<int64_t>(Keys::few_distinct)});
  bench->Args({20'000'000, 8, 8, 2, static_cast<int64_t>(Keys::sorted)});
}
BENCHMARK(Merge)->Apply(merge_axes)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void MatchRanges(benchmark::State& state) {
  Machine machine(static_cast<unsigned>(kMostThreads));
  const TupleLayout layout{8, 0};
  const auto size = static_cast<uint64_t>(state.range(1));
  Array build(machine, layout, static_cast<uint64_t>(state.range(0))), probe(machine, layout, size);
  std::mt19937_64 random(3);
  for (uint64_t i = 0; i < build.size; ++i) build.keys.as<uint64_t>()[i] = i * 8;
  for (uint64_t i = 0; i < size; ++i) {  // a share of the probe tuples finds a partner
    const bool hit = static_cast<int64_t>(random() % 100) < state.range(2);
    probe.keys.as<uint64_t>()[i] = random() % build.size * 8 + (hit ? 0 : 1 + random() % 7);
  }
  std::sort(probe.keys.as<uint64_t>(), probe.keys.as<uint64_t>() + size);
  const HostBuffer ranges = machine.allocate(std::min(build.size, size) * sizeof(NarrowMatchRange));
  uint64_t found = 0;
  for (auto _ : state) {
    machine.device->primitives().match_ranges(layout, build.span().view(), layout, probe.span().view(), ranges.data(), 4, &found,
                                              nullptr, machine.job, *machine.stream);
    machine.stream->synchronize();
  }
  state.counters["ranges"] = static_cast<double>(found);
  report(state, build.size + size, (build.size + size) * 8 + found * sizeof(NarrowMatchRange));
}
BENCHMARK(MatchRanges)
    ->ArgNames({"build", "probe", "hit%"})
    ->Args({20'000'000, 20'000'000, 100})
    ->Args({20'000'000, 20'000'000, 50})
    ->Args({1'000'000, 20'000'000, 100})
    ->Args({1'000, 20'000'000, 100})
    ->Args({20'000'000, 1'000, 100})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace warpjoin
