// The CSV reader against a naive one, over files cut into tiny blocks and parts: quotes, line ends and characters lie across all
// their boundaries.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "csv/reader.h"

namespace warpjoin::csv {
namespace {

using Cell = std::optional<std::string>;

struct Read {
  std::optional<Fault> fault;
  std::vector<std::string> names;
  std::vector<Type> types;
  std::vector<std::vector<Cell>> rows;
  int passes = 0;
};

/// A value of a column as text, so that columns of all types compare.
Cell cell(const OwnedColumn& column, Type type, uint64_t row) {
  const auto bit = [&](const HostBuffer& bits) { return (bits.as<uint8_t>()[row / 8] >> (row % 8)) & 1; };
  if (column.null_count && !bit(column.validity)) return std::nullopt;
  switch (type) {
    case Type::boolean: return bit(column.values) ? "true" : "false";
    case Type::float64: return std::to_string(column.values.as<double>()[row]);
    case Type::date: return std::to_string(column.values.as<int32_t>()[row]);
    case Type::utf8: {
      const int32_t* const offsets = column.offsets.as<int32_t>() + row;
      return std::string(column.values.as<char>() + offsets[0], static_cast<size_t>(offsets[1] - offsets[0]));
    }
    default: return std::to_string(column.values.as<int64_t>()[row]);
  }
}

class CsvReader : public testing::Test {
 protected:
  std::shared_ptr<HostMemory> memory_ = HostMemory::create(size_t{1} << 30);
  ThreadPool pool_{3};

  Read read(const std::string& text, size_t block, ReaderOptions options = {}) {
    Read result;
    Job job;
    for (;;) {
      ++result.passes;
      Reader reader(options, memory_, pool_);
      std::vector<Reader::Finished> batches;
      const auto take = [&] {
        for (Reader::Finished& batch : reader.take_batches()) batches.push_back(std::move(batch));
      };
      for (size_t at = 0; at < text.size(); at += block) {
        const size_t size = std::min(block, text.size() - at);
        reader.push(reader.make_block(text.data() + at, size), size, job);
        if (options.streaming) take();
      }
      reader.finish(job);
      result.fault = reader.fault();
      result.names = reader.names();
      result.types = reader.types();
      if (result.fault) {
        EXPECT_TRUE(reader.take_batches().empty());
        return result;
      }
      if (reader.lost()) {
        EXPECT_LT(result.passes, 2) << text;
        if (result.passes == 2) return result;
        options.known = reader.types();
        continue;
      }
      take();
      for (const Reader::Finished& batch : batches) {
        for (uint64_t row = 0; row < batch.rows; ++row) {
          result.rows.emplace_back();
          for (size_t c = 0; c < batch.columns.size(); ++c) {
            EXPECT_EQ(batch.columns[c].length, batch.rows);
            result.rows.back().push_back(cell(batch.columns[c], result.types[c], row));
          }
        }
      }
      return result;
    }
  }
  static ReaderOptions small(uint64_t part = 7) { return {.batch_rows = 5, .part_bytes = part}; }
  Fault fault_of(const std::string& text, ReaderOptions options = {}) {
    const Read whole = read(text, text.size() + 1, options);
    for (const size_t block : {1, 2, 3, 5, 64}) {
      options.part_bytes = block;
      const Read cut = read(text, block, options);
      EXPECT_TRUE(cut.fault) << text;
      if (cut.fault && whole.fault) {
        EXPECT_EQ(cut.fault->what, whole.fault->what) << block;
        EXPECT_EQ(cut.fault->line, whole.fault->line) << block;
      }
    }
    EXPECT_TRUE(whole.fault) << text;
    return whole.fault.value_or(Fault{});
  }
};

/// Draws files whose cells are known.
class Files {
 public:
  explicit Files(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }

  /// Text of a cell of a kind of column.
  std::string value(size_t kind) {
    switch (kind) {
      case 0: return std::to_string(static_cast<int64_t>(random_()) >> below(64));
      case 1: return std::to_string(static_cast<int>(below(2001)) - 1000) + "." + std::to_string(below(1000));
      case 2: return below(2) ? "true" : "false";
      case 3: return "20" + two() + "-0" + std::to_string(1 + below(9)) + "-1" + std::to_string(below(10));
      case 4: return value(3) + " 1" + std::to_string(below(10)) + ":00:0" + std::to_string(below(10)) + ".5";
      case 5: return below(50) ? value(0) : "x";
      default: {
        static const std::vector<std::string> kPieces = {"a", "\"", ",", "\n", "\r\n", "é", "€", "😀", " ", "word", "\r", "0"};
        std::string text;
        for (size_t n = below(7); n > 0; --n) text += kPieces[below(kPieces.size())];
        return text;
      }
    }
  }
  /// As it is written: with quotes where it needs them, and now and then where it does not.
  std::string written(const std::string& text) {
    if (text.find_first_of("\",\r\n") == std::string::npos && below(4)) return text;
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"' + (below(6) ? "" : " ");
  }

 private:
  std::string two() { return std::to_string(10 + below(90)); }
  std::mt19937_64 random_;
};

TEST_F(CsvReader, ReadsAnyFileCutAnywhere) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Files files(seed);
    const size_t width = 1 + files.below(5), rows = files.below(60);
    const std::string line_end = files.below(2) ? "\n" : "\r\n";
    std::vector<size_t> kinds(width);
    for (size_t& kind : kinds) kind = files.below(7);
    std::string text = files.below(3) ? "" : "\xef\xbb\xbf";
    for (size_t c = 0; c < width; ++c) text += (c ? "," : "") + std::string("c") + std::to_string(c);
    std::vector<std::vector<std::string>> cells;
    for (size_t row = 0; row < rows; ++row) {
      text += line_end;
      cells.emplace_back();
      for (size_t c = 0; c < width; ++c) {
        cells.back().push_back(files.below(6) ? files.value(kinds[c]) : "");
        text += (c ? "," : "") + files.written(cells.back().back());
      }
      if (width > 1 && files.below(10) == 0) text += line_end;  // a blank line
    }
    const bool last_is_blank = width == 1 && rows > 0 && text.ends_with(line_end);
    if (files.below(2) || last_is_blank || rows == 0) text += line_end;

    for (const size_t block : {size_t{1}, size_t{2}, 1 + files.below(9), 1 + files.below(200), text.size() + 1}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", blocks of " + std::to_string(block));
      const Read found = read(text, block, small(1 + files.below(30)));
      ASSERT_FALSE(found.fault) << found.fault->what << " in line " << found.fault->line << " of " << text;
      ASSERT_EQ(found.names.size(), width);
      ASSERT_EQ(found.rows.size(), rows) << text;
      for (size_t c = 0; c < width; ++c) {
        Type type = Type::empty;
        for (const auto& row : cells) {
          if (!row[c].empty()) type = wider(type, type_of(row[c]));
        }
        if (type == Type::empty) type = Type::utf8;
        ASSERT_EQ(found.types[c], type);
        for (size_t row = 0; row < rows; ++row) {
          const std::string& expected = cells[row][c];
          const Cell& value = found.rows[row][c];
          ASSERT_EQ(value.has_value(), !expected.empty());
          if (!value) continue;
          int64_t integer = 0;
          double number = 0;
          int32_t day = 0;
          bool zoned = false;
          switch (type) {
            case Type::int64: ASSERT_EQ(*value, std::to_string(std::stoll(expected))); break;
            case Type::float64:
              ASSERT_TRUE(parse_float64(expected, false, number));
              ASSERT_EQ(*value, std::to_string(number));
              break;
            case Type::date:
              ASSERT_TRUE(parse_date(expected, day));
              ASSERT_EQ(*value, std::to_string(day));
              break;
            case Type::timestamp:
              if (!parse_timestamp(expected, integer, zoned)) {
                ASSERT_TRUE(parse_date(expected, day));
                integer = day * kMicrosecondsPerDay;
              }
              ASSERT_EQ(*value, std::to_string(integer));
              break;
            default: ASSERT_EQ(*value, expected);
          }
        }
      }
    }
  }
}

TEST_F(CsvReader, WidensTypesOfEarlierBatches) {
  std::string text = "i,d,e,t\n";
  for (int row = 0; row < 40; ++row) text += std::to_string(row) + ",2024-01-0" + std::to_string(1 + row % 9) + ",,7\n";
  text += "0.5,2024-01-01 10:00,true,x\n";
  const Read found = read(text, 16, small());
  EXPECT_EQ(found.types, (std::vector{Type::float64, Type::timestamp, Type::boolean, Type::utf8}));
  EXPECT_EQ(found.passes, 2);  // the sevens are text
  ASSERT_EQ(found.rows.size(), 41u);
  EXPECT_EQ(found.rows[3], (std::vector<Cell>{"3.000000", "1704326400000000", std::nullopt, "7"}));
  EXPECT_EQ(found.rows[40], (std::vector<Cell>{"0.500000", "1704103200000000", "true", "x"}));
  text.replace(text.size() - 2, 1, "8");
  EXPECT_EQ(read(text, 16, small()).passes, 1);
}

TEST_F(CsvReader, NamesTheLineOfWhatIsWrong) {
  const auto expect = [&](const std::string& text, const std::string& what, uint64_t line) {
    const Fault fault = fault_of(text);
    EXPECT_EQ(fault.what, what);
    EXPECT_EQ(fault.line, line) << what;
  };
  expect("a,b\n1,2\n3\n", "expected 2 fields, found 1", 3);
  expect("a,b\n\"x\ny\",2\n3,4,5\n", "expected 2 fields, found 3", 4);
  expect("a,b\n1,2\n\"x,4\n5,6\n", "a quoted field has no end", 3);
  expect("a,b\n1,2\n\"x\"y,4\n", "a quoted field goes on after its closing quote", 3);
  expect("a,b\n1,2\nx,\"y\"\r,\n", "a quoted field goes on after its closing quote", 3);
  expect("a,a\n1,2\n", "two columns are named \"a\"", 1);
  expect("", "the file is empty", 0);
  expect("\n\n", "the file is empty", 0);
  expect("a\n\xff\xfe\n", "not UTF-8 text", 2);
  expect("a\n1\n\xc3", "not UTF-8 text", 3);
  expect("a\n\"x\n\xed\xa0\x80\"\n", "not UTF-8 text", 3);
  expect(std::string("a\n\0\n", 4), "not a text file (it holds zero bytes)", 2);
  expect("a\r1\r\"\r\"\r\"x", "a quoted field has no end", 5);
}

TEST_F(CsvReader, AFaultBehindABatchLeavesNone) {
  const std::string text = "a,b\n1,\n2,\n3,\n4,\n5,\n6,\n7,\n8,8,8\n";
  EXPECT_EQ(fault_of(text, small()).line, 9u);
}

TEST_F(CsvReader, RefusesLongRecords) {
  const std::string text = "a\n1\n\"" + std::string(500, 'x');
  const Read found = read(text, 10, {.most_record_bytes = 100});
  ASSERT_TRUE(found.fault);
  EXPECT_EQ(found.fault->line, 3u);
  EXPECT_NE(found.fault->what.find("seems to have no end"), std::string::npos);
}

TEST_F(CsvReader, GivenTypesAreNotInferred) {
  ReaderOptions options = small();
  options.given = {{"a", Type::int64}, {"b", Type::utf8}, {"c", Type::float64}};
  const std::string text = "a,b,c\n007,1,1\n-0,2,18446744073709551616\n";
  for (const size_t block : {1, 3, 100}) {
    const Read found = read(text, block, options);
    ASSERT_EQ(found.rows.size(), 2u);
    EXPECT_EQ(found.rows[0], (std::vector<Cell>{"7", "1", "1.000000"}));
    EXPECT_EQ(found.rows[1], (std::vector<Cell>{"0", "2", "18446744073709551616.000000"}));
  }
  const Fault fault = fault_of(text + "\"x\ny\",2,3\n4,5,z\n", options);
  EXPECT_EQ(fault.what, "\"x y\" in column \"a\" is not of type int64");
  EXPECT_EQ(fault.line, 4u);
  options.given = {{"d", Type::int64}};
  EXPECT_THROW(read(text, 100, options), Error);
}

TEST_F(CsvReader, StreamsBatchesOfTheFirstTypes) {
  std::string text = "a,b\n";
  for (int row = 0; row < 100; ++row) text += std::to_string(row) + ",\n";
  ReaderOptions options = small();
  options.streaming = true;
  for (const size_t block : {1, 9, 60}) {
    const Read found = read(text, block, options);
    EXPECT_EQ(found.types, (std::vector{Type::int64, Type::utf8}));
    ASSERT_EQ(found.rows.size(), 100u);
    EXPECT_EQ(found.rows[99], (std::vector<Cell>{"99", std::nullopt}));
    const Read wrong = read(text + "x,\n", block, options);
    ASSERT_TRUE(wrong.fault);
    EXPECT_EQ(wrong.fault->line, 102u);
    EXPECT_NE(wrong.fault->what.find("types"), std::string::npos);
    ReaderOptions some = options;
    some.most_rows = options.batch_rows;
    EXPECT_EQ(read(text, block, some).rows.back(), (std::vector<Cell>{"4", std::nullopt}));
  }
}

TEST_F(CsvReader, ReadsNoMoreRowsThanAskedFor) {
  std::string text = "a,b\n";
  for (int row = 0; row < 50; ++row) text += std::to_string(row) + ",\"x\n\"\n";
  text += "1\nx,y\n\xff";
  for (const size_t block : {size_t{1}, size_t{7}, size_t{100}, text.size()}) {
    for (const uint64_t most : {0, 1, 5, 49, 50}) {
      ReaderOptions options = small(1 + block % 13);
      options.most_rows = most;
      const Read found = read(text, block, options);
      EXPECT_FALSE(found.fault) << block << ' ' << most;
      EXPECT_EQ(found.rows.size(), most);
      EXPECT_EQ(found.names.size(), 2u);
      EXPECT_EQ(found.types[0], most ? Type::int64 : Type::utf8);
    }
  }
}

TEST_F(CsvReader, NullTextsAndNoHeader) {
  ReaderOptions options = small();
  options.header = false;
  options.nulls = {"NA", "\"", "-"};
  const Read found = read("1,NA\n-,x\n3,\"\"\"\"\n", 4, options);
  EXPECT_EQ(found.names, (std::vector<std::string>{"column1", "column2"}));
  EXPECT_EQ(found.types, (std::vector{Type::int64, Type::utf8}));
  EXPECT_EQ(found.rows, (std::vector<std::vector<Cell>>{{"1", std::nullopt}, {std::nullopt, "x"}, {"3", std::nullopt}}));
}

TEST_F(CsvReader, StopsOnceCancelled) {
  Job job;
  job.cancel();
  Reader reader({}, memory_, pool_);
  EXPECT_THROW(reader.push(reader.make_block("a\n1\n", 4), 4, job), Error);
}

TEST(CsvValues, FloatsAreTheNearestOnes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    char text[64];
    double expected = 0;
    const uint64_t bits = random();
    std::memcpy(&expected, &bits, sizeof expected);
    if (!std::isfinite(expected)) continue;
    if (i % 2) expected = static_cast<double>(static_cast<int64_t>(bits) >> 20) / 1000;
    std::snprintf(text, sizeof text, i % 3 ? "%.17g" : "%.4f", i % 3 ? expected : std::fmod(expected, 1e12));
    double value = 0;
    if (!parse_float64(text, true, value)) FAIL() << text;
    EXPECT_EQ(value, std::strtod(text, nullptr)) << text;
  }
  double value = 0;
  EXPECT_TRUE(parse_float64("1e999", false, value) && value == HUGE_VAL);
  EXPECT_TRUE(parse_float64("-1e-999", false, value) && value == 0 && std::signbit(value));
  EXPECT_TRUE(parse_float64("-0", false, value) && std::signbit(value));
}

TEST(CsvValues, TypesOfTexts) {
  const std::vector<std::pair<std::string, Type>> kTypes = {
      {"0", Type::int64},
      {"+0", Type::int64},
      {"-9223372036854775808", Type::int64},
      {"9223372036854775807", Type::int64},
      {"9223372036854775808", Type::utf8},
      {"007", Type::utf8},
      {"-", Type::utf8},
      {"1.", Type::float64},
      {".5", Type::float64},
      {"-0", Type::float64},
      {"00.5", Type::utf8},
      {"1e5", Type::float64},
      {"1e", Type::utf8},
      {"1e+", Type::utf8},
      {".", Type::utf8},
      {".e1", Type::utf8},
      {"+inf", Type::float64},
      {"nan", Type::float64},
      {"-NaN", Type::utf8},
      {"Inf", Type::utf8},
      {"0x10", Type::utf8},
      {"True", Type::boolean},
      {"tRUE", Type::utf8},
      {"2024-02-29", Type::date},
      {"2023-02-29", Type::utf8},
      {"1900-02-29", Type::utf8},
      {"2000-02-29", Type::date},
      {"2024-1-01", Type::utf8},
      {"2024-01-01T10:00", Type::timestamp},
      {"2024-01-01 10:00:59.123456", Type::timestamp},
      {"2024-01-01 10:00:59.1234567", Type::utf8},
      {"2024-01-01 10:00:60", Type::utf8},
      {"2024-01-01 10:00:", Type::utf8},
      {"2024-01-01 10:00Z", Type::timestamptz},
      {"2024-01-01 10:00:00+0230", Type::timestamptz},
      {"2024-01-01 10:00:00.5-02:30", Type::timestamptz},
      {"2024-01-01 10:00:00+02", Type::utf8},
      {"2024-01-01 10:00:00Zx", Type::utf8},
  };
  for (const auto& [text, type] : kTypes) EXPECT_EQ(type_of(text), type) << text;
}

}  // namespace
}  // namespace warpjoin::csv
