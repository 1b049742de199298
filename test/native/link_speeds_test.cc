// Links measured on devices whose copies take the time that links of known speeds would take, on a clock that only they move.
#include "transfer/link_speeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "core/error.h"
#include "device/host_device.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

/// When the last copy comes to its end. What measures has waited for all copies by the time it looks.
struct Clock {
  double now = 0;  ///< as it was read last: copies begin then
  double end = 0;
  uint64_t begun = 0;
  std::atomic<uint64_t> ended{0};

  double read() {
    EXPECT_EQ(ended, begun);
    return now = end;
  }
};

/// A link that carries one copy at a time.
struct Link {
  double bytes_per_second;
  double free_at = 0;

  explicit Link(double speed) : bytes_per_second(speed) {}
};

struct Links {
  std::shared_ptr<Link> h2d, d2h, peers;
};

/// A device behind links. Its copies move nothing but the clock.
class LinkedDevice final : public Device {
 public:
  LinkedDevice(std::unique_ptr<Device> host, Links links, Clock& clock)
      : host_(std::move(host)), links_(std::move(links)), clock_(clock) {
    info_ = host_->info();
    memory_ = std::make_unique<StackAllocator>(info_.name, info_.limit_bytes,
                                               StackAllocator::Physical{[this](size_t bytes) {
                                                                          base_ =
                                                                              static_cast<char*>(std::aligned_alloc(128, bytes));
                                                                          size_ = bytes;
                                                                          return base_;
                                                                        },
                                                                        [this](void* data, size_t) {
                                                                          std::free(data);
                                                                          base_ = nullptr;
                                                                        },
                                                                        [this] { return info_.memory_bytes; }});
  }
  ~LinkedDevice() override { memory_.reset(); }

  bool addresses_host_memory() const noexcept override { return false; }
  std::unique_ptr<Stream> create_stream(bool urgent) override { return host_->create_stream(urgent); }
  std::unique_ptr<Event> create_event() override { return host_->create_event(); }
  void pin(void* data, size_t bytes) override {
    if (pins_until_failure && --pins_until_failure == 0) throw Error(ErrorCode::memory_limit, "no pin");
    pinned[static_cast<char*>(data)] = bytes;
  }
  void unpin(void* data) noexcept override { pinned.erase(static_cast<char*>(data)); }
  void copy(void* target, const void* source, size_t bytes, Stream& stream) override {
    const bool arrives = holds(target, bytes);
    EXPECT_TRUE(arrives || holds(source, bytes));
    EXPECT_TRUE(is_pinned(arrives ? source : target, bytes));
    take_time(arrives ? *links_.h2d : *links_.d2h, bytes, stream);
  }
  void copy_to_peer(void* target, Device& peer, const void* source, size_t bytes, Stream& stream) override {
    EXPECT_TRUE(holds(source, bytes) && static_cast<LinkedDevice&>(peer).holds(target, bytes));
    take_time(*links_.peers, bytes, stream);
  }
  void fill(void* target, unsigned char, size_t bytes, Stream&) override { EXPECT_TRUE(holds(target, bytes)); }
  Primitives& primitives() noexcept override { return host_->primitives(); }

  std::map<char*, size_t> pinned;
  int pins_until_failure = 0;
  std::function<void()> begins = [] {};  ///< is called as each copy begins

 private:
  bool holds(const void* data, size_t bytes) const {
    const char* begin = static_cast<const char*>(data);
    return base_ && begin >= base_ && begin + bytes <= base_ + size_;
  }
  bool is_pinned(const void* data, size_t bytes) const {
    const auto range = pinned.find(const_cast<char*>(static_cast<const char*>(data)));
    return range != pinned.end() && range->second >= bytes;
  }
  void take_time(Link& link, size_t bytes, Stream& stream) {
    begins();
    link.free_at = std::max(link.free_at, clock_.now) + static_cast<double>(bytes) / link.bytes_per_second;
    clock_.end = std::max(clock_.end, link.free_at);
    ++clock_.begun;
    static_cast<HostStream&>(stream).enqueue([this] { ++clock_.ended; });
  }

  std::unique_ptr<Device> host_;
  Links links_;
  Clock& clock_;
  char* base_ = nullptr;
  size_t size_ = 0;
};

constexpr size_t kMiB = size_t{1} << 20;

/// An engine of linked devices, and the clock that they share.
struct LinkedEngine {
  LinkedEngine(const std::vector<Links>& links, size_t memory_limit, size_t device_limit = 0)
      : engine({.threads = 2,
                .host_devices = static_cast<int>(links.size()),
                .memory_limit_bytes = memory_limit,
                .device_memory_limit_bytes = device_limit}) {
    for (size_t i = 0; i < links.size(); ++i)
      engine.devices[i] = std::make_unique<LinkedDevice>(std::move(engine.devices[i]), links[i], clock);
  }

  LinkedDevice& device(size_t i) { return static_cast<LinkedDevice&>(*engine.devices[i]); }
  LinkSpeeds measure(const Job& job = Job()) {
    return measure_links(engine, job, [this] { return clock.read(); });
  }
  void expect_all_given_back() {
    EXPECT_EQ(engine.memory->used_bytes(), 0u);
    for (size_t i = 0; i < engine.devices.size(); ++i) {
      EXPECT_EQ(device(i).memory().used_bytes(), 0u);
      EXPECT_TRUE(device(i).pinned.empty());
    }
  }
  void expect_code(ErrorCode code, const Job& job = Job()) {
    try {
      measure(job);
      ADD_FAILURE() << "ran to its end";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
    expect_all_given_back();
  }

  Clock clock;
  Engine engine;
};

std::vector<Links> fast_links(size_t devices) {
  std::vector<Links> links(devices);
  for (Links& one : links) one = {std::make_shared<Link>(1e13), std::make_shared<Link>(1e13), std::make_shared<Link>(1e13)};
  return links;
}

void expect_speed(double measured, double link) { EXPECT_NEAR(measured, link, 1e-9 * link); }

TEST(LinkSpeeds, AreThoseOfTheLinks) {
  // Two devices with links of their own to the device and between them, that share one link to the host.
  const auto shared = std::make_shared<Link>(2e8);
  const std::vector<Links> links = {{std::make_shared<Link>(4e8), shared, std::make_shared<Link>(8e8)},
                                    {std::make_shared<Link>(4e8), shared, std::make_shared<Link>(1e8)}};
  LinkedEngine linked(links, 16 * kMiB);
  const LinkSpeeds speeds = linked.measure();
  ASSERT_EQ(speeds.sets.size(), 3u);
  for (const int i : {0, 1}) {
    EXPECT_EQ(speeds.sets[i].devices, std::vector<int>{i});
    expect_speed(speeds.sets[i].h2d, 4e8);
    expect_speed(speeds.sets[i].d2h, 2e8);
    expect_speed(speeds.sets[i].both, 4e8);  // the slower direction takes twice the time of the other
  }
  EXPECT_EQ(speeds.sets[2].devices, (std::vector<int>{0, 1}));
  expect_speed(speeds.sets[2].h2d, 8e8);
  expect_speed(speeds.sets[2].d2h, 2e8);
  expect_speed(speeds.sets[2].both, 4e8);
  ASSERT_EQ(speeds.peers.size(), 2u);
  EXPECT_EQ(speeds.peers[0].from, 0);
  EXPECT_EQ(speeds.peers[0].to, 1);
  expect_speed(speeds.peers[0].speed, 8e8);
  expect_speed(speeds.peers[1].speed, 1e8);
  linked.expect_all_given_back();
}

TEST(LinkSpeeds, AreMeasuredAloneAndInGrowingSets) {
  for (const int devices : {1, 2, 3, 4, 5, 8}) {
    LinkedEngine linked(fast_links(static_cast<size_t>(devices)), 64 * kMiB);
    const LinkSpeeds speeds = linked.measure();
    std::vector<std::vector<int>> sets, expected;
    for (const LinkSpeeds::Set& set : speeds.sets) {
      sets.push_back(set.devices);
      for (const double speed : {set.h2d, set.d2h, set.both}) EXPECT_TRUE(std::isfinite(speed) && speed > 0);
    }
    for (int i = 0; i < devices; ++i) expected.push_back({i});
    for (const int size : {2, 4, 8}) {
      if (size < devices) expected.emplace_back();
      for (int i = 0; size < devices && i < size; ++i) expected.back().push_back(i);
    }
    if (devices > 1) expected.emplace_back();
    for (int i = 0; devices > 1 && i < devices; ++i) expected.back().push_back(i);
    EXPECT_EQ(sets, expected);
    EXPECT_EQ(speeds.peers.size(), static_cast<size_t>(devices * (devices - 1)));
    for (const LinkSpeeds::Peers& pair : speeds.peers) {
      EXPECT_NE(pair.from, pair.to);
      EXPECT_GT(pair.speed, 0);
    }
    linked.expect_all_given_back();
  }
}

TEST(LinkSpeeds, OfHostDevicesAreNone) {
  Engine engine({.threads = 1, .host_devices = 3, .memory_limit_bytes = kMiB});
  const LinkSpeeds speeds = measure_links(engine, Job());
  EXPECT_TRUE(speeds.sets.empty());
  EXPECT_TRUE(speeds.peers.empty());
  EXPECT_EQ(engine.memory->peak_bytes(), 0u);
}

TEST(LinkSpeeds, FitTheMemoryThatThereIs) {
  for (const size_t limit : {16 * kMiB, 37 * kMiB, 200 * kMiB}) {
    LinkedEngine linked(fast_links(2), limit);
    EXPECT_EQ(linked.measure().sets.size(), 3u);
    EXPECT_LE(linked.engine.memory->peak_bytes(), limit);
    EXPECT_GT(linked.engine.memory->peak_bytes(), limit - 8 * kMiB);
  }
  LinkedEngine narrow(fast_links(2), 200 * kMiB, 9 * kMiB);
  EXPECT_EQ(narrow.measure().sets.size(), 3u);
  EXPECT_EQ(narrow.engine.memory->peak_bytes(), 16 * kMiB);
  for (const auto& device : narrow.engine.devices) EXPECT_EQ(device->memory().peak_bytes(), 8 * kMiB);

  LinkedEngine(fast_links(2), 15 * kMiB).expect_code(ErrorCode::memory_limit);
  LinkedEngine(fast_links(2), 200 * kMiB, 7 * kMiB).expect_code(ErrorCode::device_memory);
}

TEST(LinkSpeeds, GiveEverythingBackWhateverFails) {
  LinkedEngine linked(fast_links(3), 48 * kMiB);
  for (int n = 1; n <= 6; ++n) {
    linked.engine.memory->fail_allocation(static_cast<uint64_t>(n));
    EXPECT_THROW(linked.measure(), Error);
    linked.expect_all_given_back();
    linked.engine.memory->fail_allocation(0);
    if (n <= 2) {
      linked.device(1).memory().fail_allocation(static_cast<uint64_t>(n));
      EXPECT_THROW(linked.measure(), Error);
      linked.expect_all_given_back();
      linked.device(2).pins_until_failure = n;
      EXPECT_THROW(linked.measure(), Error);
      linked.expect_all_given_back();
    }
  }
  EXPECT_EQ(linked.measure().sets.size(), 5u);
}

TEST(LinkSpeeds, StopWithACancelledJob) {
  LinkedEngine linked(fast_links(1), 16 * kMiB);
  Job whole;
  linked.measure(whole);
  const uint64_t copies = linked.clock.begun;
  for (uint64_t after = 1; after <= copies - 2; ++after) {  // the last two copies run together
    Job job;
    uint64_t begun = 0;
    linked.device(0).begins = [&] {
      if (++begun == after) job.cancel();
    };
    linked.expect_code(ErrorCode::aborted, job);
    EXPECT_LE(begun, after + 1) << "goes on with other copies";
  }
}

}  // namespace
}  // namespace warpjoin
