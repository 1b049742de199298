// Codes of texts: as many as distinct texts, whichever table finds them.
#include "columns/text_codes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "sizes.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;
using columns::ChunkIndex;
using columns::TextCodes;

std::vector<uint64_t> list(const HostBuffer& codes, uint8_t bytes, uint64_t rows) {
  std::vector<uint64_t> all;
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t code = bytes == 4 ? codes.as<uint32_t>()[row] : codes.as<uint64_t>()[row];
    all.push_back(bytes == 4 && code == 0xFFFFFFFFu ? ~uint64_t{0} : code);
  }
  return all;
}

struct Codes {
  std::vector<uint64_t> left, right;
  uint64_t count;
  bool few, distinct;
  bool operator==(const Codes&) const = default;
};

Codes codes_of(const Column& left, const Column& right, Engine& engine) {
  const bool same = &left == &right;
  const ChunkIndex lefts(left);
  const TextCodes codes = same ? text_codes(lefts, lefts, engine, Job()) : text_codes(lefts, ChunkIndex(right), engine, Job());
  Codes out{list(codes.left, codes.bytes, left.length), {}, codes.count, codes.texts != nullptr, codes.distinct};
  if (!same) out.right = list(codes.right, codes.bytes, right.length);
  return out;
}

/// Each text of the column that gives the codes has one, which no other text has; what that column lacks has none.
void expect_codes(const Values& left, const Values& right, const Codes& codes) {
  const bool left_gives = left.size() <= right.size();
  const Values &givers = left_gives ? left : right, &takers = left_gives ? right : left;
  const std::vector<uint64_t>&own = left_gives ? codes.left : codes.right, &other = left_gives ? codes.right : codes.left;
  std::map<std::string, uint64_t> known;
  std::set<uint64_t> taken;
  for (uint64_t row = 0; row < givers.size(); ++row) {
    if (!givers[row]) {
      ASSERT_EQ(own[row], ~uint64_t{0}) << row;
      continue;
    }
    ASSERT_LT(own[row], codes.count);
    const auto [at, fresh] = known.try_emplace(*givers[row], own[row]);
    ASSERT_EQ(at->second, own[row]) << row;
    if (fresh) ASSERT_TRUE(taken.insert(own[row]).second) << row;
  }
  if (codes.few) ASSERT_EQ(known.size(), codes.count);
  ASSERT_EQ(codes.distinct,
            known.size() + static_cast<size_t>(std::count(givers.begin(), givers.end(), Value())) == givers.size() &&
                (!codes.few || known.size() == givers.size()));
  if (codes.distinct) {
    for (uint64_t row = 0; row < givers.size(); ++row) ASSERT_TRUE(!givers[row] || own[row] == row);
  }
  for (uint64_t row = 0; row < takers.size() && !other.empty(); ++row) {
    const auto found = takers[row] ? known.find(*takers[row]) : known.end();
    ASSERT_EQ(other[row], found == known.end() ? ~uint64_t{0} : found->second) << row;
  }
}

/// The texts of rows: `number` of them, of `least` to `most` bytes that begin alike.
Values some_texts(uint64_t rows, uint64_t number, unsigned least, unsigned most, double nulls, std::mt19937_64& random) {
  Values texts, values;
  for (uint64_t i = 0; i < number; ++i) {
    std::string text(least + random() % (most - least + 1), 'x');
    uint64_t rest = i;
    for (size_t at = text.size(); at > 0 && rest; rest /= 64) text[--at] = static_cast<char>('0' + rest % 64);
    texts.push_back(text);
  }
  for (uint64_t row = 0; row < rows; ++row) {
    values.push_back(static_cast<double>(random() % 1000) < 1000 * nulls ? Value() : texts[random() % number]);
  }
  return values;
}

/// The codes of two columns, which are to be the same on any number of threads.
Codes expect_joined(const ColumnType& left_type, const Values& left, const ColumnType& right_type, const Values& right,
                    unsigned bits, std::mt19937_64& random) {
  const TestColumn left_column("l", left_type, left, random), right_column("r", right_type, right, random);
  std::optional<Codes> first;
  for (const unsigned threads : {1u, 2u, 3u}) {
    Engine engine = make_engine(threads);
    engine.text_hash = BytesHash(random(), bits);
    const Codes codes = codes_of(left_column.column, right_column.column, engine);
    expect_codes(left, right, codes);
    if (!first) first = codes;
    EXPECT_TRUE(*first == codes) << threads << " threads";
  }
  return *first;
}

TEST(TextCodes, FewTextsAreNumbered) {
  std::mt19937_64 random(1);
  const std::vector<ColumnType> types{utf8_type(), large_utf8_type()};
  for (const auto& [least, most] : {std::pair{0u, 0u}, {0u, 8u}, {8u, 24u}, {20u, 40u}, {100u, 300u}}) {
    for (const uint64_t number : {1, 3, 100}) {
      for (const double nulls : {0.0, 0.3}) {
        SCOPED_TRACE(std::to_string(most) + " bytes, " + std::to_string(number) + " texts, nulls " + std::to_string(nulls));
        const Values left = some_texts(many(150'000), number, least, most, nulls, random);
        const Values right = some_texts(many(70'000), number + 2, least, most, nulls, random);
        EXPECT_TRUE(expect_joined(types[random() % 2], left, types[random() % 2], right, 64, random).few);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(TextCodes, HashesThatCollideAreToldApart) {
  std::mt19937_64 random(2);
  for (const unsigned bits : {0, 1, 4, 10}) {
    SCOPED_TRACE(bits);
    const Values left = some_texts(30'000, 200, 4, 50, 0.1, random), right = some_texts(40'000, 300, 4, 50, 0.1, random);
    EXPECT_TRUE(expect_joined(utf8_type(), left, utf8_type(), right, bits, random).few);
    // None of which is there twice.
    const Values unique = [] {
      Values all;
      for (int i = 0; i < 900; ++i) all.push_back("number " + std::to_string(i));
      return all;
    }();
    const Codes codes = expect_joined(utf8_type(), unique, utf8_type(), right, bits, random);
    EXPECT_TRUE(codes.few && codes.distinct);
    if (HasFatalFailure()) return;
  }
}

TEST(TextCodes, TextsThatASampleLacksAreAdded) {
  std::mt19937_64 random(3);
  const uint64_t rows = 4096 * many(100);
  for (const uint64_t rare : {1, 50, 3000}) {
    Values left(rows, "an everyday text");
    // Between the rows of the sample, which are each of many.
    for (uint64_t i = 0; i < 3 * rare; ++i)
      left[random() % 4096 * many(100) + 1 + random() % (many(100) - 1)] = "rare " + std::to_string(random() % rare);
    Values right = left;
    right.resize(rows + 7, "not there");
    const Codes codes = expect_joined(utf8_type(), left, utf8_type(), right, 64, random);
    EXPECT_TRUE(codes.few);
    EXPECT_GT(codes.count, 1u);
    if (HasFatalFailure()) return;
  }
}

TEST(TextCodes, TextsThatTurnOutToBeManyGoTheGeneralWay) {
  std::mt19937_64 random(4);
  const uint64_t rows = 4096 * 20;
  for (const uint64_t from : {uint64_t{0}, rows / 2}) {
    Values left(rows, "an everyday text");
    for (uint64_t row = from; row < rows; ++row) {
      if (row % 20 && random() % 2 == 0) left[row] = "rare " + std::to_string(random() % 20'000);
    }
    const Codes codes = expect_joined(utf8_type(), left, utf8_type(), left, 64, random);
    EXPECT_FALSE(codes.few);
    // Texts that take more room than a table has.
    for (Value& value : left) {
      if (*value != "an everyday text") value = std::string(500, 'y') + value->substr(0, 8);
    }
    EXPECT_FALSE(expect_joined(utf8_type(), left, utf8_type(), left, 64, random).few);
    if (HasFatalFailure()) return;
  }
}

TEST(TextCodes, AColumnWithItselfIsLookedAtOnce) {
  std::mt19937_64 random(5);
  Engine engine = make_engine(3);
  for (const uint64_t number : {20, 100'000}) {
    const Values values = some_texts(200'000, number, 10, 40, 0.1, random);
    const TestColumn column("c", utf8_type(), values, random);
    const Codes codes = codes_of(column.column, column.column, engine);
    EXPECT_TRUE(codes.right.empty());
    EXPECT_EQ(codes.few, number == 20);
    expect_codes(values, values, codes);
  }
}

TEST(TextCodes, SmallColumns) {
  std::mt19937_64 random(6);
  for (const uint64_t rows : {0, 1, 2, 63, 65, 4095, 4096, 4097}) {
    for (const uint64_t number : {uint64_t{1}, 2 * rows + 1}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(number));
      const Values left = some_texts(rows, number, 6, 40, rows % 2 ? 0.2 : 0, random);
      const Values right = some_texts(rows + random() % 3, number, 6, 40, 0.1, random);
      expect_joined(utf8_type(), left, large_utf8_type(), right, 64, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(TextCodes, ValuesOfFixedWidth) {
  std::mt19937_64 random(7);
  for (const uint32_t width : {8u, 16u, 24u, 40u}) {
    for (const uint64_t number : {7, 50'000}) {
      Values texts;
      for (uint64_t i = 0; i < number; ++i) {
        std::string value(width, '\0');
        std::memcpy(value.data(), &i, sizeof i);
        texts.push_back(value);
      }
      const auto draw = [&](uint64_t rows) {
        Values values;
        for (uint64_t i = 0; i < rows; ++i) values.push_back(random() % 9 ? texts[random() % number] : Value());
        return values;
      };
      EXPECT_EQ(expect_joined(opaque_type(width), draw(many(90'000)), opaque_type(width), draw(many(80'000)), 64, random).few,
                number == 7);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace warpjoin
