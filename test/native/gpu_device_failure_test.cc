// GPUs that fail for good. A faulting kernel ends the context of its GPU in the whole process, so each test runs in a child.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gpu_engine.h"
#include "join_cases.h"
#include "primitives/primitives.h"
#include "sort_cases.h"

namespace warpjoin::testing {
namespace {

constexpr unsigned kMostSeconds = 120;  // of a child: one that hangs is killed

/// Ends the child, as a failure, unless `holds`.
void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "unexpected: %s\n", what.c_str());
  std::_Exit(1);
}

/// What `call` throws, which must be Error(device).
std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::device, std::string(code_name(error.code())) + ": " + error.what());
    return error.what();
  }
  require(false, "no error");
  return {};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Enqueues a kernel that writes where nothing is.
void fault(Device& device, Stream& stream) {
  void* const nothing = reinterpret_cast<void*>(StackAllocator::kAlignment);
  device.primitives().flip_keys({8, 0}, nothing, nothing, 1, 0, Job(), stream);
}

/// Has the device fail, and says what its stream throws.
std::string lose(Device& device) {
  const auto stream = device.create_stream();
  return failure_of([&] {
    fault(device, *stream);
    stream->synchronize();
  });
}

void require_work(Engine& engine) {
  const int devices = static_cast<int>(engine.devices.size());
  Job job;
  repeated_sort(engine, SortAlgorithm::sample, devices, 100'000).run(job);
  repeated_join(engine, {}, 20'000, 30'000).run(job);
  require(!::testing::Test::HasFailure(), "a wrong result");
}

/// A lost GPU and the engine on it; then the process goes on without it.
void lose_a_gpu() {
  auto engine = make_gpu_engine(1);
  Device& device = *engine->devices[0];
  const std::string name = "Device '" + device.info().name + "'";
  require_work(*engine);
  engine->check();
  Buffer resident = device.memory().allocate_resident(size_t{64} << 20);
  const std::string first = lose(device);
  std::fprintf(stderr, "first: %s\n", first.c_str());
  require(first.starts_with(name + ": ") && contains(first, "Error") && contains(first, " in "), first);

  Job job;
  const std::function<void()> calls[] = {
      [&] { engine->check(); },
      [&] { device.memory().reserve(size_t{1} << 30); },
      [&] { static_cast<void>(device.memory().allocate_resident(size_t{1} << 20)); },
      [&] { device.create_stream(); },
      [&] { device.create_event(); },
      [&] { repeated_sort(*engine, SortAlgorithm::sample, 1, 1000).run(job); },
      [&] { repeated_join(*engine, {}, 1000, 1000).run(job); },
      [&] { make_gpu_engine(1); },
  };
  for (const auto& call : calls) {
    const std::string later = failure_of(call);
    require(later.starts_with(name + " failed earlier: ") && contains(later, "restart it"), later);
  }
  for (const DeviceInfo& gpu : visible_gpus()) {
    require(contains(gpu.failure, "failed earlier"), gpu.name + ": " + gpu.failure);
  }
  resident = Buffer();
  engine.reset();
  Engine processor({.threads = 2, .host_devices = 2, .memory_limit_bytes = size_t{1} << 30});
  require_work(processor);
  std::fprintf(stderr, "goes on\n");
}

TEST(GpuDeviceFailure, NamesDeviceCallAndErrorAndLeavesTheProcess) {
  SKIP_WITHOUT_GPUS(1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(kMostSeconds);
        lose_a_gpu();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "first: Device '.*': .* \\((cuda|hip)Error[A-Za-z]+\\) in (cuda|hip)[A-Za-z]+\ngoes on\n");
}

class GpuDeviceFailureDuring : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(AfterMilliseconds, GpuDeviceFailureDuring, ::testing::Values(0, 3, 6, 9, 12, 15));

TEST_P(GpuDeviceFailureDuring, AnOperatorEndsIt) {
  SKIP_WITHOUT_GPUS(1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(kMostSeconds);
        auto engine = make_gpu_engine(1);
        const std::shared_ptr<HostMemory> memory = engine->memory;
        {
          const RepeatedCall call = GetParam() % 2 ? repeated_sort(*engine, SortAlgorithm::sample, 1, 400'000)
                                                   : repeated_join(*engine, {}, 100'000, 200'000);
          std::thread loser([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(GetParam()));
            Device& device = *engine->devices[0];
            const auto stream = device.create_stream();
            fault(device, *stream);
          });
          const std::string failure = failure_of([&] {
            Job job;
            for (;;) call.run(job);
          });
          loser.join();
          std::fprintf(stderr, "%s\n", failure.c_str());
        }
        engine.reset();
        require(memory->used_bytes() == 0, "host memory is still in use");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^Device ");
}

TEST(GpuDeviceFailure, EndsTheOtherGpusOfTheProcess) {
  SKIP_WITHOUT_GPUS(2);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(kMostSeconds);
        const auto alone = make_gpu_engine(1);
        const auto both = make_gpu_engine(2);
        require_work(*both);
        lose(*both->devices[1]);
        const std::string name = "Device '" + both->devices[1]->info().name + "' failed earlier";
        for (Engine* engine : {alone.get(), both.get()}) {
          require(failure_of([&] { engine->check(); }).starts_with(name), "not named");
          require(failure_of([&] { require_work(*engine); }).starts_with(name), "not named");
        }
        require(failure_of([] { make_gpu_engine(1); }).starts_with(name), "not named");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace warpjoin::testing
