// Sorts on GPUs beside the ceilings of their links, all in one run:
//
//   warpjoin_gpu_sort_bench [--keys N] [--pairs N] [--resident N] [--chunksets N] [--topk N] [--first N] [--runs N] [--json FILE]
//
// Host to host from pinned memory: uint64 keys, and (uint64, uint64) pairs whose values are row numbers. The floor is the
// bytes over the host-to-device ceiling plus the bytes over the device-to-host ceiling of the same GPUs, the best of those that
// are measured before and after each sort. Every result is checked: in order, stable, and made of the input's tuples. GPUs that
// would sort the tuples in several chunksets are left out.
//
// Out of core: the keys in so many chunksets, or as many as the GPUs need (4; 0: not at all), on all GPUs, also from pinned
// memory through pinned memory. The floor is that of its two passes, each of which moves all bytes both ways at once.
//
// Resident: as many pairs on each GPU, sorted from device memory to device memory. One GPU is compared with the radix sort of CUB
// or rocPRIM alone; several are compared with as many times the rate of one.
//
// Top-k: the first rows (--first) of a sort of a table of int64 keys and int32 payloads, --topk rows on each GPU, into a table
// that stays. The floor is a pass that reads all keys once, measured in the same run.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "device/gpu_device.h"
#include "engine/engine.h"
#include "gpu_bench.h"
#include "plans.h"
#include "primitives/primitives.h"
#include "several_gpus.h"
#include "sort/sample_sort.h"
#include "sort/table_sort.h"
#include "transfer/host_transfer.h"
#include "transfer/link_speeds.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t keys = 4'000'000'000, pairs = 2'000'000'000, resident = uint64_t{1} << 29, topk = uint64_t{1} << 28, first = 8192;
  unsigned runs = 3, chunksets = 4;
  std::string json;
};

// The order of keys says nothing about which tuples they are: sums of mixed tuples do.
struct Fingerprint {
  uint64_t sum = 0, mixed = 0;
  bool ordered = true;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint fingerprint(ThreadPool& pool, const TupleView& tuples, bool with_values) {
  const auto* keys = static_cast<const uint64_t*>(tuples.keys);
  const auto* values = static_cast<const uint64_t*>(tuples.values);
  const uint64_t blocks = 4 * uint64_t{pool.threads()};
  std::vector<Fingerprint> parts(blocks);
  pool.parallel_for(blocks, [&](uint64_t b) {
    Fingerprint found;
    for (uint64_t i = tuples.size / blocks * b; i < (b + 1 == blocks ? tuples.size : tuples.size / blocks * (b + 1)); ++i) {
      const uint64_t value = !with_values ? 0 : values ? values[i] : i;
      found.sum += keys[i];
      found.mixed += mix_key(keys[i] ^ mix_key(value));
      if (i && (keys[i] < keys[i - 1] || (with_values && values && keys[i] == keys[i - 1] && value <= values[i - 1]))) {
        found.ordered = false;
      }
    }
    parts[b] = found;
  });
  Fingerprint all;
  for (const Fingerprint& part : parts) {
    all.sum += part.sum, all.mixed += part.mixed;
    all.ordered = all.ordered && part.ordered;
  }
  return all;
}

struct HostSort {
  const char* name;
  size_t set;  // of Ceilings
  TupleLayout layout;
  TupleView in;
  TupleSpan out;
  std::function<double(const Ceilings&)> floor;  // milliseconds
  std::function<void(const std::vector<Device*>& devices, Job& job)> run;
  std::vector<double> milliseconds;
  std::string phases;
  bool right = true;
};

void measure(Engine& engine, HostSort& sort, const std::vector<Device*>& devices, unsigned runs) {
  const bool pairs = sort.layout.value_bytes != 0;
  const Fingerprint expected = fingerprint(engine.pool, sort.in, pairs);
  for (unsigned run = 0; run <= runs; ++run) {  // the first is the warm-up, whose result is checked
    Job job;
    const double took = milliseconds_of([&] { sort.run(devices, job); });
    if (run > 0) sort.milliseconds.push_back(took);
    if (run == 0) {
      const Fingerprint got = fingerprint(engine.pool, sort.out.view(), pairs);
      sort.right = got.ordered && got.sum == expected.sum && got.mixed == expected.mixed;
      std::memset(sort.out.keys, 0xEE, size_t{1} << 20);
    }
    sort.phases = phases_of(job);
  }
}

void report_host_sort(const HostSort& sort, const Ceilings& ceilings, Report& report) {
  report.wrong = report.wrong || !sort.right;
  const double floor = sort.floor(ceilings);
  const Times times = times_of(sort.milliseconds);
  std::printf("%s, %-6s %d GPUs  %7.1f ms (%.1f to %.1f)  floor %7.1f ms  ratio %.3f  %6.2f G tuples/s  %s  [%s]\n", sort.name,
              sort.layout.value_bytes ? "pairs" : "keys", static_cast<int>(ceilings.devices.size()), times.median, times.least,
              times.most, floor, times.median / floor, static_cast<double>(sort.in.size) / times.median / 1e6,
              sort.right ? "right" : "WRONG", sort.phases.c_str());
  report.rows.push_back("{\"sort\": \"" + std::string(sort.name) + "\", \"tuples\": " + std::to_string(sort.in.size) +
                        ", \"keyBytes\": 8, \"valueBytes\": " + std::to_string(sort.layout.value_bytes) +
                        ", \"gpus\": " + std::to_string(ceilings.devices.size()) + ", \"milliseconds\": " + json_of(times) +
                        ", \"floorMilliseconds\": " + std::to_string(floor) +
                        ", \"ratioToFloor\": " + std::to_string(times.median / floor) +
                        ", \"right\": " + (sort.right ? "true" : "false") + ", \"phases\": {" + sort.phases + "}}");
}

// Sets the speeds of `links` to the ceilings of the buffers that are sorted.
void measure_host_to_host(Engine& engine, LinkSpeeds& links, const Options& options, Report& report) {
  const uint64_t words = std::max(options.keys, 2 * options.pairs);
  Device& device = *engine.devices[0];
  Pinned in(device, words * sizeof(uint64_t)), out(device, words * sizeof(uint64_t));
  const auto keys_or_rows = [&](uint64_t i) { return i < options.pairs ? random_word(i) : i - options.pairs; };
  fill(engine.pool, in, keys_or_rows);
  fill(engine.pool, out, [](uint64_t) { return 0; });
  std::thread pin_in([&] { in.pin(); });
  out.pin();
  pin_in.join();
  std::printf("pinned 2 x %.1f GB\n", static_cast<double>(words) * 8 / 1e9);

  std::vector<Ceilings> ceilings;
  for (const LinkSpeeds::Set& set : links.sets) ceilings.push_back({engine.select(set.devices)});
  const auto each_set = [&](const std::function<void(size_t)>& body) {
    for (size_t s = 0; s < links.sets.size(); ++s) {
      if (links.sets[s].devices.size() > 1 || links.sets[s].devices[0] == 0) body(s);
    }
  };
  std::vector<HostSort> sorts;
  const auto sort = [&](HostSort what) {
    Ceilings& set = ceilings[what.set];
    set.measure(engine, in, out);
    measure(engine, what, set.devices, options.runs);
    for (Device* each : set.devices) each->memory().release();
    set.measure(engine, in, out);
    sorts.push_back(std::move(what));
  };
  const auto in_core = [&](TupleLayout layout, const TupleView& from, const TupleSpan& to) {
    const double bytes = static_cast<double>(from.size * layout.tuple_bytes());
    each_set([&](size_t set) {
      const size_t chunksets = bench::sort_plan(engine, ceilings[set].devices, layout, from.size).chunkset_ends.size();
      if (chunksets > 1) {
        std::printf("host to host, %zu GPUs: not measured, as they sort %llu tuples of %zu bytes in %zu chunksets\n",
                    ceilings[set].devices.size(), static_cast<unsigned long long>(from.size), layout.tuple_bytes(), chunksets);
        return;
      }
      sort({"host to host",
            set,
            layout,
            from,
            to,
            [=](const Ceilings& best) { return 1e3 * (bytes / best.h2d + bytes / best.d2h); },
            [&engine, layout, from, to](const auto& devices, Job& job) {
              sorting::sample_sort(engine, layout, devices, from, 0, to, ~uint64_t{0}, job);
            },
            {},
            {}});
    });
  };
  if (options.pairs) {
    in_core({8, 8}, {in.at(0), in.at(options.pairs), 0, options.pairs}, {out.at(0), out.at(options.pairs), options.pairs});
  }
  if (options.keys) {
    fill(engine.pool, in, random_word);
    in_core({8, 0}, {in.at(0), nullptr, 0, options.keys}, {out.at(0), nullptr, options.keys});
  }
  if (options.keys && options.chunksets) {
    const KeptMemory spilled(engine, {options.keys * sizeof(uint64_t)}, true);
    const TupleLayout layout{8, 0};
    const std::vector<uint64_t> ends =
        bench::sort_plan(engine, ceilings.back().devices, layout, options.keys, options.chunksets).chunkset_ends;
    const TupleView from{in.at(0), nullptr, 0, options.keys};
    const TupleSpan to{out.at(0), nullptr, options.keys};
    const double bytes = static_cast<double>(options.keys) * 8;
    sort({"out of core",
          links.sets.size() - 1,
          layout,
          from,
          to,
          [=](const Ceilings& best) { return 1e3 * 2 * 2 * bytes / best.both; },
          [&](const auto& devices, Job& job) {
            sorting::spilled_sample_sort(engine, layout, devices, from, 0, ends, to, ~uint64_t{0}, job);
          },
          {},
          {}});
  }
  each_set([&](size_t s) {
    LinkSpeeds::Set& set = links.sets[s];
    set.h2d = ceilings[s].h2d, set.d2h = ceilings[s].d2h, set.both = ceilings[s].both;
    std::printf("%d GPUs: H2D %.1f, D2H %.1f, both %.1f GB/s\n", static_cast<int>(set.devices.size()), set.h2d / 1e9,
                set.d2h / 1e9, set.both / 1e9);
  });
  for (const HostSort& each : sorts) report_host_sort(each, ceilings[each.set], report);
}

// Pairs on one GPU.
struct Resident {
  Device* device;
  Buffer keys, values, out_keys, out_values;
  TupleView in;
  TupleSpan out;

  Resident(Device& on, uint64_t size, uint64_t room) : device(&on) {
    keys = on.memory().allocate(size * 8), values = on.memory().allocate(size * 8);
    out_keys = on.memory().allocate(room * 8), out_values = on.memory().allocate(room * 8);
    in = {keys.data(), values.data(), 0, size};
    out = {out_keys.data(), out_values.data(), room};
  }
};

// The radix sort of all bits that devices get from CUB or rocPRIM, from one buffer to the other and back.
Times time_library(Device& device, const Resident& of, unsigned runs, Stream& stream) {
  constexpr TupleLayout layout{8, 8};
  const uint64_t size = of.in.size;
  const Buffer keys = device.memory().allocate(size * 8), values = device.memory().allocate(size * 8);
  const Buffer scratch = device.memory().allocate(device.primitives().sort_scratch_bytes(layout, size));
  const TupleSpan a{keys.data(), values.data(), size};
  const Job job;
  std::vector<double> milliseconds;
  for (unsigned run = 0; run <= runs; ++run) {
    device.copy(a.keys, of.in.keys, size * 8, stream);
    device.copy(a.values, of.in.values, size * 8, stream);
    stream.synchronize();
    const double took = milliseconds_of([&] {
      device.primitives().sort(layout, a.view(), a, of.out.slice(layout, 0, size), ~uint64_t{0}, scratch.data(), job, stream);
      stream.synchronize();
    });
    if (run > 0) milliseconds.push_back(took);
  }
  return times_of(milliseconds);
}

void measure_resident(Engine& engine, const LinkSpeeds& links, const Options& options, Report& report) {
  constexpr TupleLayout layout{8, 8};
  const uint64_t each = options.resident;
  double alone = 0;
  for (const LinkSpeeds::Set& set : links.sets) {
    if (set.devices.size() == 1 && set.devices[0] != 0) continue;
    const std::vector<Device*> devices = engine.select(set.devices);
    const uint64_t size = each * devices.size();
    Pinned host(*devices[0], size * 16);
    fill(engine.pool, host, [&](uint64_t i) { return i < size ? random_word(i) : i - size; });
    const TupleView all{host.at(0), host.at(size), 0, size};
    const Fingerprint expected = fingerprint(engine.pool, all, true);
    std::vector<Resident> residents;
    std::vector<std::unique_ptr<Stream>> streams;
    for (size_t i = 0; i < devices.size(); ++i) {
      devices[i]->memory().release();
      const size_t beside = sorting::sort_resident_bytes(*devices[i], layout, each, size, devices.size());
      const uint64_t room = sorting::most_in_stretch(size, devices.size());
      devices[i]->memory().reserve((each + room) * 16 + beside + 4096);
      residents.emplace_back(*devices[i], each, room);
      streams.push_back(devices[i]->create_stream());
      devices[i]->copy(residents[i].keys.data(), host.at(each * i), each * 8, *streams[i]);
      devices[i]->copy(residents[i].values.data(), host.at(size + each * i), each * 8, *streams[i]);
    }
    for (auto& stream : streams) stream->synchronize();
    std::vector<TupleView> in;
    std::vector<TupleSpan> out;
    for (const Resident& resident : residents) in.push_back(resident.in), out.push_back(resident.out);
    std::vector<uint64_t> sizes(devices.size(), each);
    const sorting::StretchOf stretch_of = [&](size_t d, uint64_t own) {
      sizes[d] = own;
      return out[d].slice(layout, 0, own);
    };
    std::string library;
    if (devices.size() == 1) {
      const Times times = time_library(*devices[0], residents[0], options.runs, *streams[0]);
      std::printf("resident 1 GPU   %7.2f ms (%.2f to %.2f) by the library's radix sort alone\n", times.median, times.least,
                  times.most);
      library = ", \"libraryMilliseconds\": " + json_of(times);
    }
    std::vector<double> milliseconds;
    std::string phases;
    for (unsigned run = 0; run <= options.runs; ++run) {
      Job job;
      const double took =
          milliseconds_of([&] { sorting::sort_resident(engine, layout, devices, in, 0, ~uint64_t{0}, stretch_of, job); });
      if (run > 0) milliseconds.push_back(took);
      phases = phases_of(job);
    }
    std::memset(host.at(0), 0xEE, size_t{1} << 20);
    uint64_t at = 0;
    for (size_t i = 0; i < devices.size(); at += sizes[i++]) {
      devices[i]->copy(host.at(at), out[i].keys, sizes[i] * 8, *streams[i]);
      devices[i]->copy(host.at(size + at), out[i].values, sizes[i] * 8, *streams[i]);
    }
    for (auto& stream : streams) stream->synchronize();
    const Fingerprint got = fingerprint(engine.pool, all, true);
    const bool right = at == size && got.ordered && got.sum == expected.sum && got.mixed == expected.mixed;
    report.wrong = report.wrong || !right;
    const Times times = times_of(milliseconds);
    if (devices.size() == 1) alone = times.median;
    const double efficiency = alone / times.median;
    std::printf("resident %d GPUs  %7.2f ms (%.2f to %.2f)  %.2f G tuples/s, %.0f %% of as many single ones  %s  [%s]\n",
                static_cast<int>(devices.size()), times.median, times.least, times.most,
                static_cast<double>(size) / times.median / 1e6, 100 * efficiency, right ? "right" : "WRONG", phases.c_str());
    std::fflush(stdout);
    report.rows.push_back("{\"sort\": \"resident\", \"tuples\": " + std::to_string(size) +
                          ", \"keyBytes\": 8, \"valueBytes\": 8, \"gpus\": " + std::to_string(devices.size()) +
                          ", \"milliseconds\": " + json_of(times) + library +
                          ", \"shareOfSingleRate\": " + std::to_string(efficiency) +
                          ", \"right\": " + (right ? "true" : "false") + ", \"phases\": {" + phases + "}}");
  }
  for (Device* device : engine.select(links.sets.back().devices)) device->memory().release();
}

// A table of int64 keys and of row numbers in 32 bits.
ResidentTable top_table(const std::vector<Device*>& devices, const Pinned& host, uint64_t rows) {
  ResidentTable table{devices, {}, {}, {}};
  table.columns = {{"k", {ColumnKind::fixed, KeyOrder::signed_integer, 8}},
                   {"v", {ColumnKind::fixed, KeyOrder::signed_integer, 4}}};
  const Streams streams = create_streams(devices);
  for (size_t d = 0; d < devices.size(); ++d) {
    const auto [begin, end] = Shard::of(rows, devices.size(), d);
    table.rows.push_back(end - begin);
    const char* const from[] = {reinterpret_cast<const char*>(host.at(begin)),
                                reinterpret_cast<const char*>(host.at(rows)) + begin * 4};
    for (size_t c = 0; c < 2; ++c) {
      const size_t bytes = (end - begin) * table.columns[c].type.width;
      table.memory.push_back(devices[d]->memory().allocate_resident(bytes));
      table.columns[c].stretches.push_back({table.memory.back().data(), nullptr});
      devices[d]->copy(table.memory.back().data(), from[c], bytes, *streams[d]);
    }
  }
  synchronize_all(streams);
  return table;
}

// They are the rows, in order, if each is what the host has in its row, if they ascend by key and row, and if no more rows than
// these come before the last one.
bool are_first(Engine& engine, const Pinned& host, uint64_t rows, const std::vector<OwnedColumn>& got, uint64_t first) {
  const auto* const keys = got[0].values.as<int64_t>();
  const auto* const numbers = got[1].values.as<uint32_t>();
  const auto* const all = reinterpret_cast<const int64_t*>(host.at(0));
  if (got[0].length != std::min(first, rows)) return false;
  for (uint64_t i = 0; i < got[0].length; ++i) {
    if (numbers[i] >= rows || all[numbers[i]] != keys[i]) return false;
    if (i && (keys[i] < keys[i - 1] || (keys[i] == keys[i - 1] && numbers[i] <= numbers[i - 1]))) return false;
  }
  const int64_t last = keys[got[0].length - 1];
  const uint32_t last_row = numbers[got[0].length - 1];
  std::atomic<uint64_t> before{0};
  const Job job;
  engine.pool.for_blocks(rows, uint64_t{1} << 20, job, [&](uint64_t begin, uint64_t end) {
    uint64_t found = 0;
    for (uint64_t row = begin; row < end; ++row) found += all[row] < last || (all[row] == last && row <= last_row);
    before += found;
  });
  return before == got[0].length;
}

void measure_top(Engine& engine, const LinkSpeeds& links, const Options& options, Report& report) {
  struct Data {
    const char* name;
    std::function<uint64_t(uint64_t)> key;
  };
  for (const LinkSpeeds::Set& set : links.sets) {
    if (set.devices.size() == 1 && set.devices[0] != 0) continue;
    const std::vector<Device*> devices = engine.select(set.devices);
    const uint64_t rows = options.topk * devices.size();
    for (Device* device : devices) device->memory().release();
    Pinned host(*devices[0], rows * 12 + 8);
    for (const auto& [name, key] :
         {Data{"random", random_word}, Data{"256 keys", [](uint64_t i) { return random_word(i) % 256; }},
          Data{"ascending", [](uint64_t i) { return i; }}}) {
      fill(engine.pool, host, [&](uint64_t i) { return i < rows ? key(i) : (2 * (i - rows) + 1) << 32 | 2 * (i - rows); });
      host.pin();
      const ResidentTable table = top_table(devices, host, rows);
      std::vector<double> floor, milliseconds;
      std::string phases;
      const Streams streams = create_streams(devices);
      bool right = true;
      for (unsigned run = 0; run <= 4 * options.runs; ++run) {
        Job job;
        std::vector<ValueRange> ranges(devices.size());
        const double read = milliseconds_of([&] {
          for (size_t d = 0; d < devices.size(); ++d) {
            devices[d]->primitives().value_range(stretch_of(table, 0, d), &ranges[d], job, *streams[d]);
          }
          synchronize_all(streams);
        });
        ResidentTable sorted;
        const double took = milliseconds_of([&] {
          const TableSortKeys keys(table, {{0}}, 1, job);
          sorted = sort_table(engine, keys, {0, 1}, job, {0, options.first});
        });
        if (run == 0 || run == 1) {
          right = right && are_first(engine, host, rows, bring_home(engine, sorted, {0, 1}, job), options.first);
          continue;
        }
        floor.push_back(read);
        milliseconds.push_back(took);
        phases = phases_of(job);
      }
      report.wrong = report.wrong || !right;
      const Times times = times_of(milliseconds), floors = times_of(floor);
      std::printf("top %llu of %llu, %s, %d GPUs  %7.3f ms (%.3f to %.3f)  floor %.3f ms  ratio %.3f  %s  [%s]\n",
                  static_cast<unsigned long long>(options.first), static_cast<unsigned long long>(rows), name,
                  static_cast<int>(devices.size()), times.median, times.least, times.most, floors.median,
                  times.median / floors.median, right ? "right" : "WRONG", phases.c_str());
      std::fflush(stdout);
      report.rows.push_back("{\"sort\": \"topk\", \"data\": \"" + std::string(name) + "\", \"tuples\": " + std::to_string(rows) +
                            ", \"first\": " + std::to_string(options.first) +
                            ", \"keyBytes\": 8, \"valueBytes\": 4, \"gpus\": " + std::to_string(devices.size()) +
                            ", \"milliseconds\": " + json_of(times) + ", \"readMilliseconds\": " + json_of(floors) +
                            ", \"ratioToRead\": " + std::to_string(times.median / floors.median) +
                            ", \"right\": " + (right ? "true" : "false") + ", \"phases\": {" + phases + "}}");
    }
  }
}

int run(const Options& options) {
  EngineConfig config;
  config.host_devices = 0;
  for (const DeviceInfo& gpu : visible_gpus()) config.gpus.push_back(gpu.ordinal);
  config.memory_limit_bytes = size_t{64} << 30;
  Engine engine(config);
  Report report;
  LinkSpeeds links = measure_links(engine, Job());
  if (options.topk) measure_top(engine, links, options, report);
  if (options.resident) measure_resident(engine, links, options, report);
  if (options.keys + options.pairs) measure_host_to_host(engine, links, options, report);
  std::string sets;
  for (const LinkSpeeds::Set& set : links.sets) {
    if (set.devices.size() == 1 && set.devices[0] != 0) continue;
    sets += (sets.empty() ? "" : ", ") + ("{\"gpus\": " + std::to_string(set.devices.size())) +
            ", \"h2dGBps\": " + std::to_string(set.h2d / 1e9) + ", \"d2hGBps\": " + std::to_string(set.d2h / 1e9) +
            ", \"bothGBps\": " + std::to_string(set.both / 1e9) + "}";
  }
  return report.write(options.json, engine, ", \"links\": [" + sets + "]");
}

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(argc, argv,
                        {{"--keys", &options.keys, 0},
                         {"--pairs", &options.pairs, 0},
                         {"--resident", &options.resident, 0},
                         {"--chunksets", &options.chunksets, 0},
                         {"--topk", &options.topk, 0, uint64_t{1} << 29},
                         {"--first", &options.first},
                         {"--runs", &options.runs},
                         {"--json", &options.json}},
                        [&] { return run(options); });
}
