// What a profiler from outside is told.
#include "core/profiler.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/job.h"

namespace warpjoin {
namespace {

std::vector<std::string> told;

uint64_t begin(const char* name) noexcept {
  told.push_back("begin " + std::string(name));
  return told.size();
}
void end(uint64_t range) noexcept { told.push_back("end of " + told[range - 1]); }
constexpr Profiler kProfiler{begin, end};

TEST(Profiler, IsToldEachPhaseOfAJob) {
  Job job;
  { const PhaseTimer before(job, "before it looks on"); }
  std::optional<PhaseTimer> longer;
  {
    const PhaseTimer unseen(job, "begun before");
    profiler = &kProfiler;
  }
  longer.emplace(job, "longer");
  { const PhaseTimer within(job, "within"); }
  profiler = nullptr;
  longer.reset();
  EXPECT_EQ(told, (std::vector<std::string>{"begin longer", "begin within", "end of begin within", "end of begin longer"}));
  EXPECT_EQ(job.phases().size(), 4u);
}

}  // namespace
}  // namespace warpjoin
