// Tables that stay on real GPUs, and joins and sorts of them there.
#include "gpu_engine.h"
#include "table_join_cases.h"
#include "table_sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuTables : public ::testing::TestWithParam<int> {};

TEST_P(GpuTables, ComeHomeAsTheyWere) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  for (const uint64_t rows : {0, 1, 127, 129, 300'001}) check_resident_table(*engine, rows, rows + 1);
}

TEST_P(GpuTables, AreJoinedWhereTheyLie) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_table_joins(*engine, 100'000, 70'000, 40'000, 4);
  check_table_joins(*engine, 20'000, 150'000, 50'000, 8);
  check_table_joins(*engine, 0, 100, 10, 4);
  check_table_joins(*engine, 100, 0, 10, 8);
}

TEST_P(GpuTables, AreJoinedByKeysThatAreMade) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_joins_by_made_keys(*engine, 40'000, 30'000);
  check_joins_by_made_keys(*engine, 0, 3);
  check_joins_by_any_values(*engine);
  check_joins_by_several_keys(*engine, 6'000, 4'000);
}

TEST_P(GpuTables, AreSortedWhereTheyLie) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_table_sorts(*engine, 300'000, 1'000'000);
  check_table_sorts(*engine, 100'000, 3);
  check_table_sorts(*engine, 5, 10);
  check_table_sorts(*engine, 0, 1);
}

TEST_P(GpuTables, GiveTheRowsThatAreWanted) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_top_rows(*engine, 300'000, 1'000'000);
  check_top_rows(*engine, 700'000, 3);
  check_top_rows(*engine, 3, 10);
  check_top_rows(*engine, 0, 1);
}

TEST_P(GpuTables, GiveAFewRowsForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_top_rows(*engine, 5000, 300, {{0, 60}, {100, 70}});
}

// Small enough for compute-sanitizer.
TEST_P(GpuTables, AreSortedALittleForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_table_sorts(*engine, 9000, 500);
}

TEST_P(GpuTables, AreJoinedALittleForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_table_joins(*engine, 700, 500, 300, 8);
  check_table_joins(*engine, 200, 130, {test::floating_type(8), {.nulls = 0.3, .distinct = 90}},
                    {test::floating_type(8), {.distinct = 80}});
  const DrawnKeys some{test::signed_type(4), {.nulls = 0.1, .distinct = 20}},
      few{test::signed_type(8), {.nulls = 0.1, .distinct = 5}};
  check_table_joins(*engine, 200, 150, {{some, some}, {few, few}}, {true, false});
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuTables, ::testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param) + "Gpus"; });

}  // namespace
}  // namespace warpjoin
