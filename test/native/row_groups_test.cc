#include "columns/row_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "plain_columns.h"

namespace warpjoin {
namespace {

using namespace test;

enum class Family { integers, floats, texts, booleans };

/// A key column of one side, of any type of a family, with the memory behind it.
struct Side {
  std::vector<std::unique_ptr<TestColumn>> plain;
  std::unique_ptr<ViewColumn> view;
  std::unique_ptr<DictionaryColumn> dictionary;
  ColumnType type;
  Values values;
  GroupKey key{};

  /// With `indices` it may be indices of dictionaries; then it has as many rows as it likes.
  Side(Family family, uint64_t rows, bool indices, bool nulls_equal, std::mt19937_64& random) {
    type = draw_type(family, random);
    const auto draw = [&] { return draw_one(family, random); };
    if (indices && random() % 3 == 0 && type.kind != ColumnKind::view) {
      const ColumnType index = random() % 2 ? signed_type(4) : unsigned_type(2);
      dictionary = std::make_unique<DictionaryColumn>("d", index, type, rows, draw, random);
      values = dictionary->values;
      key.column = &dictionary->column;
    } else {
      for (uint64_t row = 0; row < rows; ++row) values.push_back(random() % 8 ? draw() : Value());
      if (type.kind == ColumnKind::view) {
        view = std::make_unique<ViewColumn>("v", values, random);
        key.column = &view->column;
      } else {
        plain.push_back(std::make_unique<TestColumn>("c", type, values, random));
        key.column = &plain.back()->column;
      }
    }
    if (family == Family::integers) key.factor = {static_cast<uint32_t>(random() % 3), random() % 3 ? 1u : 1000u};
    key.nulls_equal = nulls_equal;
  }

  static ColumnType draw_type(Family family, std::mt19937_64& random) {
    const auto pick = [&](const std::vector<ColumnType>& types) { return types[random() % types.size()]; };
    switch (family) {
      case Family::integers: return pick(integer_types());
      case Family::floats: return pick({floating_type(2), floating_type(4), floating_type(8)});
      case Family::texts: {
        const ColumnType view{ColumnKind::view, KeyOrder::bytes, 0}, fixed{ColumnKind::fixed, KeyOrder::bytes, 3};
        return pick({utf8_type(), large_utf8_type(), view, fixed});
      }
      case Family::booleans: return boolean_type();
    }
    return boolean_type();
  }

  /// One of few values, that every type of the family has.
  Value draw_one(Family family, std::mt19937_64& random) const {
    const uint64_t number = random() % 6;
    switch (family) {
      case Family::integers: {
        std::string bytes(type.width, '\0');
        bytes[0] = static_cast<char>(number * 10);
        if (number == 5 && type.order == KeyOrder::signed_integer) std::fill(bytes.begin(), bytes.end(), '\xFF');
        return bytes;
      }
      case Family::floats: {
        constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
        const double values[] = {0.0, -0.0, 1.5, -2, kNan, -kNan};
        if (type.width == 8) return value_of(values[number]);
        if (type.width == 4) return value_of(static_cast<float>(values[number]));
        constexpr uint16_t kHalves[] = {0, 0x8000, 0x3E00, 0xC000, 0x7E00, 0xFE00};
        return value_of(kHalves[number]);
      }
      case Family::texts: {
        if (number == 5 && type.kind != ColumnKind::fixed) return "a text that is too long to lie within a view";
        return std::string(3, static_cast<char>('a' + number));
      }
      case Family::booleans: return std::string(1, static_cast<char>(number % 2));
    }
    return {};
  }

  /// Whether two rows are equal; nothing where it is a matter of `nulls_equal`.
  friend bool equal(Family family, const Side& a, uint64_t row, const Side& b, uint64_t other) {
    if (!a.values[row] || !b.values[other]) return !a.values[row] && !b.values[other] && a.key.nulls_equal;
    if (family == Family::integers) {
      return compare(big_of(a.type, *a.values[row], a.key.factor), big_of(b.type, *b.values[other], b.key.factor)) == 0;
    }
    return compare_values(a.type, *a.values[row], b.type, *b.values[other]) == 0;
  }
};

/// The group of each row; checks that there is one, and that rows ascend in each.
std::vector<uint64_t> groups_of(const RowGroups& groups, uint64_t rows) {
  std::vector<uint64_t> of_row(rows, UINT64_MAX);
  uint64_t begin = 0;
  for (uint64_t group = 0; group < groups.ends.size(); ++group) {
    int64_t before = -1;
    for (uint64_t i = begin; i < groups.ends[group]; ++i) {
      const uint64_t row = groups.row_bytes == 4 ? groups.rows.as<uint32_t>()[i] : groups.rows.as<uint64_t>()[i];
      EXPECT_LT(before, static_cast<int64_t>(row));
      EXPECT_EQ(of_row.at(row), UINT64_MAX);
      of_row[row] = group;
      before = static_cast<int64_t>(row);
    }
    begin = groups.ends[group];
  }
  EXPECT_EQ(begin, rows);
  return of_row;
}

TEST(RowGroups, EqualKeysOfTwoTablesAreInOneGroup) {
  Engine engine = make_engine(3);
  uint64_t equal_pairs = 0, apart = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t pairs = 1 + random() % 2;
    const bool nulls_equal = random() % 2;
    std::vector<Family> families;
    std::vector<Side> left, right;
    const uint64_t left_rows = random() % 60, right_rows = random() % 60;
    for (uint64_t pair = 0; pair < pairs; ++pair) {
      families.push_back(static_cast<Family>(random() % 4));
      left.emplace_back(families.back(), left_rows, pairs == 1, nulls_equal, random);
      right.emplace_back(families.back(), right_rows, pairs == 1, nulls_equal, random);
    }
    const uint64_t groups = uint64_t{1} << random() % 9;
    const auto grouped = [&](const std::vector<Side>& sides) {
      std::vector<GroupKey> keys;
      for (const Side& side : sides) keys.push_back(side.key);
      const PoisonedMemory poisoned(engine, 1);
      return groups_of(group_rows(keys, groups, seed, engine, Job()), sides[0].values.size());
    };
    const std::vector<uint64_t> of_left = grouped(left), of_right = grouped(right);
    for (uint64_t a = 0; a < of_left.size(); ++a) {
      for (uint64_t b = 0; b < of_right.size(); ++b) {
        bool all = true;
        for (uint64_t pair = 0; pair < pairs; ++pair) all &= equal(families[pair], left[pair], a, right[pair], b);
        equal_pairs += all;
        apart += of_left[a] != of_right[b];
        if (all) ASSERT_EQ(of_left[a], of_right[b]) << "rows " << a << " and " << b;
      }
    }
  }
  EXPECT_GT(equal_pairs, 10'000U);
  EXPECT_GT(apart, 10'000U);
}

TEST(RowGroups, SpreadKeysAndNullsEvenly) {
  Engine engine = make_engine(4);
  std::mt19937_64 random(1);
  constexpr uint64_t kRows = 200'000, kGroups = 64;
  Values ascending, apart, texts, nulls(kRows);
  for (uint64_t row = 0; row < kRows; ++row) {
    ascending.push_back(value_of(row));
    apart.push_back(value_of(row << 32));
    texts.push_back("key " + std::to_string(row));
  }
  const std::pair<ColumnType, const Values*> columns[] = {
      {signed_type(8), &ascending}, {unsigned_type(8), &apart}, {utf8_type(), &texts}, {signed_type(8), &nulls}};
  for (const auto& [type, values] : columns) {
    const TestColumn test("c", type, *values, random);
    for (const uint64_t seed : {0, 1, 2}) {
      const RowGroups groups = group_rows({{GroupKey{&test.column, {}, false}}}, kGroups, seed, engine, Job());
      uint64_t begin = 0;
      for (const uint64_t end : groups.ends) {
        EXPECT_NEAR(static_cast<double>(end - begin), kRows / kGroups, 0.1 * kRows / kGroups) << type_name(type);
        begin = end;
      }
    }
  }
}

TEST(RowGroups, OtherSeedsMakeOtherGroups) {
  Engine engine = make_engine(2);
  std::mt19937_64 random(1);
  Values values;
  for (uint64_t row = 0; row < 64'000; ++row) values.push_back(value_of(row));
  const TestColumn test("c", signed_type(8), values, random);
  const GroupKey keys[] = {{&test.column, {}, false}};
  const auto grouped = [&](uint64_t seed) { return groups_of(group_rows(keys, 8, seed, engine, Job()), values.size()); };
  const std::vector<uint64_t> one = grouped(1), other = grouped(2);
  EXPECT_EQ(one, grouped(1));
  uint64_t together[8][8] = {};
  for (size_t row = 0; row < values.size(); ++row) ++together[one[row]][other[row]];
  for (const auto& group : together) {
    for (const uint64_t rows : group) EXPECT_NEAR(static_cast<double>(rows), 1000, 200);
  }
}

TEST(RowGroups, OfANullTypeAndOfNoRows) {
  Engine engine = make_engine(2);
  Column nulls;
  nulls.name = "n";
  nulls.type = {ColumnKind::null, KeyOrder::none, 0};
  nulls.length = 1000;
  nulls.chunks.push_back({.length = 1000});
  const RowGroups equal = group_rows({{GroupKey{&nulls, {}, true}}}, 4, 1, engine, Job());
  EXPECT_EQ(std::count(equal.ends.begin(), equal.ends.end(), 0U) + std::count(equal.ends.begin(), equal.ends.end(), 1000U), 4);
  const RowGroups spread = group_rows({{GroupKey{&nulls, {}, false}}}, 4, 1, engine, Job());
  EXPECT_NEAR(static_cast<double>(spread.ends[0]), 250, 80);
  nulls.length = 0;
  nulls.chunks.clear();
  EXPECT_EQ(group_rows({{GroupKey{&nulls, {}, true}}}, 4, 1, engine, Job()).ends, std::vector<uint64_t>(4));
}

TEST(RowGroups, RefuseWhatIsNoKey) {
  Engine engine = make_engine(1);
  std::mt19937_64 random(1);
  const TestColumn opaque("bytes", opaque_type(8), Values{value_of(uint64_t{1})}, random);
  const TestColumn key("k", signed_type(8), Values{value_of(uint64_t{1})}, random);
  const auto refused = [&](const Column& column, uint64_t groups, const std::string& part) {
    try {
      group_rows({{GroupKey{&column, {}, false}}}, groups, 1, engine, Job());
    } catch (const Error& error) {
      return std::string(error.what()).find(part) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused(opaque.column, 4, "Column 'bytes' can't be a key"));
  EXPECT_TRUE(refused(key.column, 3, "a power of two"));
  EXPECT_TRUE(refused(key.column, 512, "up to 256"));
}

}  // namespace
}  // namespace warpjoin
