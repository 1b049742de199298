#include "parquet/column_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"
#include "parquet/encode_delta.h"
#include "parquet/thrift_writer.h"

namespace warpjoin::parquet {
namespace {

constexpr uint64_t kBlockRows = 2048;         ///< that are read at a time for a dictionary
constexpr uint64_t kSampledRows = 2048;       ///< to estimate how many values differ
constexpr uint64_t kSampledBytes = 32 << 10;  ///< of a page, to see whether compression pays
constexpr uint64_t kSampledPages = 4;
constexpr double kLeastSaving = 0.1;               ///< of a chunk's bytes, for compression to pay
constexpr uint64_t kPageRows = uint64_t{1} << 17;  ///< a multiple of 64

std::string page_header(PageType type, Encoding encoding, uint64_t values, uint64_t uncompressed, uint64_t compressed) {
  ThriftWriter header;
  header.int32(1, static_cast<int32_t>(type));
  header.int32(2, static_cast<int32_t>(uncompressed));
  header.int32(3, static_cast<int32_t>(compressed));
  header.begin_struct(type == PageType::dictionary ? 7 : 5);
  header.int32(1, static_cast<int32_t>(values));
  header.int32(2, static_cast<int32_t>(encoding));
  if (type == PageType::data) {
    header.int32(3, static_cast<int32_t>(Encoding::rle));
    header.int32(4, static_cast<int32_t>(Encoding::rle));
  }
  header.end_struct();
  header.end_struct();
  return header.bytes();
}

/// How many values differ where `distinct` of `drawn` ones do that were drawn from all alike.
double estimated_values(double distinct, double drawn) {
  double low = distinct, high = 1e12;
  while (high / low > 1.01) {
    const double middle = std::sqrt(low * high);
    (middle * -std::expm1(-drawn / middle) < distinct ? low : high) = middle;
  }
  return low;
}

bool is_integer(PhysicalType type) { return type == PhysicalType::int32 || type == PhysicalType::int64; }

uint8_t* write_differences(const ValueSource& source, const uint8_t* values, uint64_t count, uint8_t* out) {
  if (source.type() == PhysicalType::int32) return write_delta(reinterpret_cast<const int32_t*>(values), count, out);
  return write_delta(reinterpret_cast<const int64_t*>(values), count, out);
}

uint8_t* write_bits(const uint8_t* values, uint64_t count, uint8_t* out) {
  std::fill_n(out, (count + 7) / 8, uint8_t{0});
  for (uint64_t i = 0; i < count; ++i) out[i / 8] = static_cast<uint8_t>(out[i / 8] | (values[i] & 1) << (i % 8));
  return out + (count + 7) / 8;
}

}  // namespace

void ColumnWriter::reserve(Output& output, uint64_t bytes) {
  const uint64_t needed = output.size + bytes;
  if (!output.buffer) {
    output.buffer = memory_->allocate(needed, "a column chunk");
  } else if (output.buffer.size() < needed) {
    output.buffer.grow(std::max(needed, output.buffer.size() + output.buffer.size() / 2), "a column chunk");
  }
}

/// Where a page's body begins, with space for so many bytes.
uint8_t* ColumnWriter::begin_page(uint64_t most_bytes) {
  reserve(output_, header_bytes_ + most_bytes + 64);
  return output_.at(output_.size + header_bytes_);
}

void ColumnWriter::end_page(PageType type, Encoding encoding, uint64_t values, const uint8_t* end) {
  const uint64_t begin = output_.size, size = static_cast<uint64_t>(end - output_.at(begin + header_bytes_));
  const std::string header = page_header(type, encoding, values, size, size);
  if (header.size() != header_bytes_) std::memmove(output_.at(begin + header.size()), output_.at(begin + header_bytes_), size);
  header_bytes_ = header.size();
  std::memcpy(output_.at(begin), header.data(), header_bytes_);
  pages_.push_back({type, encoding, values, begin, begin + header_bytes_, size});
  output_.size = begin + header_bytes_ + size;
}

uint8_t* ColumnWriter::write_levels(uint64_t begin, uint64_t end, uint8_t* out) const {
  return optional_ ? levels_.write(begin, end, out) : out;
}

uint64_t ColumnWriter::read_fixed(const ValueSource& source, uint64_t begin, uint64_t end, uint8_t* out) {
  if (!source.has_dictionary()) return source.read(begin, end, out, levels_);
  positions_.resize(end - begin);
  const uint64_t count = source.read_numbers(begin, end, positions_.data(), levels_);
  source.look_up(positions_.data(), count, out);
  return count;
}

/// To bytes_.
uint64_t ColumnWriter::read_bytes(const ValueSource& source, uint64_t begin, uint64_t end) {
  bytes_.resize(std::max<uint64_t>(bytes_.size(), end - begin));
  if (!source.has_dictionary()) return source.read(begin, end, bytes_.data(), levels_);
  positions_.resize(end - begin);
  const uint64_t count = source.read_numbers(begin, end, positions_.data(), levels_);
  source.look_up(positions_.data(), count, bytes_.data());
  return count;
}

/// How many values differ, estimated by rows at equal distances; infinity: hardly any two are equal.
double ColumnWriter::distinct_in_sample(const ValueSource& source, uint64_t begin, uint64_t end, double& value_bytes) {
  const uint64_t rows = end - begin, sampled = std::min(rows, kSampledRows);
  levels_.clear();
  dictionary_.clear(source.width(), {.values = kSampledRows, .bytes = INT32_MAX});
  numbers_.resize(std::max<uint64_t>(numbers_.size(), 64));
  uint64_t drawn = 0;
  double bytes = 0;
  for (uint64_t i = 0; i < sampled; ++i) {
    const uint64_t row = begin + static_cast<uint64_t>(static_cast<unsigned __int128>(rows) * i / sampled);
    if (source.is_bytes()) {
      const uint64_t found = read_bytes(source, row, row + 1);
      for (uint64_t j = 0; j < found; ++j) bytes += static_cast<double>(4 + bytes_[j].size);
      drawn += found;
      if (!dictionary_.add(bytes_.data(), found, numbers_.data())) return INFINITY;
    } else {
      values_.resize(std::max<uint64_t>(values_.size(), source.width()));
      const uint64_t found = read_fixed(source, row, row + 1, values_.data());
      drawn += found;
      if (!dictionary_.add(values_.data(), found, numbers_.data())) return INFINITY;
    }
  }
  value_bytes = source.is_bytes() ? bytes / static_cast<double>(std::max<uint64_t>(drawn, 1)) : source.width();
  const auto distinct = static_cast<double>(dictionary_.size());
  if (sampled == rows) return distinct;
  const double repeated = static_cast<double>(drawn) - distinct;
  if (repeated < 4) return INFINITY;
  return std::min(estimated_values(distinct, static_cast<double>(drawn)), static_cast<double>(rows));
}

/// What the rows take as differences, estimated by stretches of rows.
double ColumnWriter::delta_bytes(const ValueSource& source, uint64_t begin, uint64_t end) {
  constexpr uint64_t kStretches = 16, kStretch = kDeltaBlock + 1;
  const uint64_t rows = end - begin;
  values_.resize(std::max<uint64_t>(values_.size(), kStretch * source.width()));
  sample_.resize(std::max<uint64_t>(sample_.size(), delta_bound(kStretch, source.width())));
  double bytes = 0, read = 0;
  for (uint64_t i = 0; i < kStretches; ++i) {
    const uint64_t row = begin + static_cast<uint64_t>(static_cast<unsigned __int128>(rows) * i / kStretches);
    const uint64_t to = std::min(end, row + kStretch);
    levels_.clear();
    const uint64_t count = read_fixed(source, row, to, values_.data());
    bytes += static_cast<double>(write_differences(source, values_.data(), count, sample_.data()) - sample_.data());
    read += static_cast<double>(to - row);
  }
  return bytes / read * static_cast<double>(rows);
}

ColumnWriter::Plan ColumnWriter::plan(const ValueSource& source, uint64_t begin, uint64_t end) {
  Plan plan;
  if (begin == end || source.all_null() || source.type() == PhysicalType::boolean) return plan;
  const auto rows = static_cast<double>(end - begin);
  if (source.has_dictionary()) {
    plan.dictionary = true;
    plan.limits.values = std::max(plan.limits.values, (end - begin) / 2);
    plan.limits.bytes = std::max(plan.limits.bytes, source.plain_bytes(begin, end) / 2);
    return plan;
  }
  double value_bytes = 1;
  const double distinct = distinct_in_sample(source, begin, end, value_bytes);
  const double plain = rows * value_bytes;
  double least = plain;
  if (is_integer(source.type())) {
    const double delta = delta_bytes(source, begin, end);
    plan.delta = delta < 0.9 * plain;
    if (plan.delta) least = delta;
  }
  if (distinct == 0 || distinct > static_cast<double>(plan.limits.values)) return plan;
  const double bits = std::max(1.0, std::ceil(std::log2(distinct)));
  const double page = distinct * value_bytes;
  plan.dictionary = page <= static_cast<double>(plan.limits.bytes) && page + rows * bits / 8 < 0.85 * least;
  return plan;
}

/// Numbers the positions_ of values in the column's own dictionary; each one of them is looked up once.
bool ColumnWriter::number_indices(const ValueSource& source, uint64_t count, uint32_t* numbers) {
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t& known = known_[positions_[i]];
    if (known == UINT32_MAX) {
      bool added = false;
      if (source.is_bytes()) {
        Bytes value;
        source.look_up(&positions_[i], 1, &value);
        added = dictionary_.add(&value, 1, &known);
      } else {
        values_.resize(std::max<uint64_t>(values_.size(), source.width()));
        source.look_up(&positions_[i], 1, values_.data());
        added = dictionary_.add(values_.data(), 1, &known);
      }
      if (!added) return false;
    }
    numbers[i] = known;
  }
  return true;
}

/// Fills dictionary_, numbers_ and levels_; false where there are too many values.
bool ColumnWriter::number_values(const ValueSource& source, uint64_t begin, uint64_t end, const Job& job) {
  numbers_.resize(std::max<uint64_t>(numbers_.size(), end - begin + 32));
  if (source.has_dictionary()) known_.assign(source.dictionary_size(), UINT32_MAX);
  values_.resize(std::max<uint64_t>(values_.size(), kBlockRows * source.width()));
  uint64_t found = 0;
  for (uint64_t row = begin; row < end;) {
    if ((row - begin) % (16 * kBlockRows) == 0) job.check();
    const uint64_t to = std::min(end, row + kBlockRows);
    uint32_t* const numbers = numbers_.data() + found;
    uint64_t count = 0;
    bool fits = true;
    if (source.has_dictionary()) {
      positions_.resize(std::max<uint64_t>(positions_.size(), kBlockRows));
      count = source.read_numbers(row, to, positions_.data(), levels_);
      fits = number_indices(source, count, numbers);
    } else if (source.is_bytes()) {
      count = read_bytes(source, row, to);
      fits = dictionary_.add(bytes_.data(), count, numbers);
    } else {
      count = source.read(row, to, values_.data(), levels_);
      fits = dictionary_.add(values_.data(), count, numbers);
    }
    if (!fits) return false;
    found += count;
    row = to;
  }
  return true;
}

void ColumnWriter::write_dictionary(const ValueSource& source, uint64_t rows) {
  const std::vector<uint8_t>& page = dictionary_.page();
  uint8_t* out = begin_page(page.size());
  std::copy(page.begin(), page.end(), out);
  end_page(PageType::dictionary, Encoding::plain, dictionary_.size(), out + page.size());
  if (source.is_bytes()) {
    for (uint32_t number = 0; number < dictionary_.size(); ++number) {
      const Bytes value = dictionary_.value(number);
      statistics_->add(&value, 1);
    }
  } else {
    statistics_->add(page.data(), dictionary_.size());
  }
  const auto width = std::max(1U, static_cast<unsigned>(std::bit_width(dictionary_.size() - 1)));
  const uint32_t* numbers = numbers_.data();
  for (uint64_t row = 0; row < rows; row += kPageRows) {
    const uint64_t to = std::min(rows, row + kPageRows), count = levels_.valid(row, to);
    out = begin_page(Levels::bound(to - row) + hybrid_bound(count, width));
    out = write_levels(row, to, out);
    *out++ = static_cast<uint8_t>(width);
    out = write_hybrid(numbers, count, width, out);
    end_page(PageType::data, Encoding::rle_dictionary, to - row, out);
    numbers += count;
  }
}

/// Writes a page of the first of the rows; returns where they end.
uint64_t ColumnWriter::write_fixed_page(const ValueSource& source, bool delta, uint64_t begin, uint64_t end) {
  const uint64_t width = source.width();
  const uint64_t rows = std::min({end - begin, kPageRows, std::max<uint64_t>(1, page_bytes_ / width)}), to = begin + rows;
  const bool packed = source.type() == PhysicalType::boolean;
  levels_.clear();
  if (delta || packed) {
    values_.resize(std::max<uint64_t>(values_.size(), rows * width));
    const uint64_t count = read_fixed(source, begin, to, values_.data());
    statistics_->add(values_.data(), count);
    uint8_t* out = begin_page(Levels::bound(rows) + (delta ? delta_bound(count, width) : count));
    out = write_levels(0, rows, out);
    out = delta ? write_differences(source, values_.data(), count, out) : write_bits(values_.data(), count, out);
    end_page(PageType::data, delta ? Encoding::delta_binary_packed : Encoding::plain, rows, out);
  } else {
    // Levels come first. They are as long as those of valid rows, most likely.
    uint8_t* const out = begin_page(Levels::bound(rows) + rows * width);
    uint8_t run[16];
    const auto likely = optional_ ? static_cast<uint64_t>(write_varint(run, rows << 1) - run) + 5 : 0;
    const uint64_t count = read_fixed(source, begin, to, out + likely);
    statistics_->add(out + likely, count);
    if (optional_ && levels_.valid() < rows) {
      values_.resize(std::max<uint64_t>(values_.size(), Levels::bound(rows)));
      const auto size = static_cast<uint64_t>(levels_.write(0, rows, values_.data()) - values_.data());
      std::memmove(out + size, out + likely, count * width);
      std::memcpy(out, values_.data(), size);
      end_page(PageType::data, Encoding::plain, rows, out + size + count * width);
    } else {
      write_levels(0, rows, out);
      end_page(PageType::data, Encoding::plain, rows, out + likely + count * width);
    }
  }
  add_nulls(levels_);
  return to;
}

/// The same for values of variable width.
uint64_t ColumnWriter::write_bytes_page(const ValueSource& source, uint64_t begin, uint64_t end) {
  uint64_t rows = std::min({end - begin, kPageRows, std::max<uint64_t>(1, page_bytes_ / 4)});
  while (rows > 1) {
    const uint64_t bytes = source.plain_bytes(begin, begin + rows);
    if (bytes <= page_bytes_) break;
    // Rows are about as long, or else half as many will do.
    rows = std::clamp<uint64_t>(
        static_cast<uint64_t>(static_cast<double>(rows) * static_cast<double>(page_bytes_) / static_cast<double>(bytes)),
        rows / 8 + 1, rows - rows / 16 - 1);
    rows = std::max<uint64_t>(rows, 1);
  }
  levels_.clear();
  const uint64_t count = read_bytes(source, begin, begin + rows);
  uint64_t size = 4 * count;
  for (uint64_t i = 0; i < count; ++i) {
    size += bytes_[i].size;
    if (size > kMostValueBytes + 4 * count) {
      throw Error(ErrorCode::not_supported, "A value of more than 1 GiB is not supported in Parquet files");
    }
  }
  statistics_->add(bytes_.data(), count);
  uint8_t* out = write_levels(0, rows, begin_page(Levels::bound(rows) + size));
  for (uint64_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<uint32_t>(bytes_[i].size);
    std::memcpy(out, &bytes, 4);
    if (bytes) std::memcpy(out + 4, bytes_[i].data, bytes);
    out += 4 + uint64_t{bytes};
  }
  end_page(PageType::data, Encoding::plain, rows, out);
  add_nulls(levels_);
  return begin + rows;
}

void ColumnWriter::write_values(const ValueSource& source, bool delta, uint64_t begin, uint64_t end, const Job& job) {
  for (uint64_t row = begin; row < end;) {
    job.check();
    row = source.is_bytes() ? write_bytes_page(source, row, end) : write_fixed_page(source, delta, row, end);
  }
}

double ColumnWriter::compressed_share(const Page& page) {
  const uint64_t size = std::min(page.size, kSampledBytes);
  if (size == 0) return 1;
  sample_.resize(std::max<uint64_t>(sample_.size(), snappy_bound(size)));
  const uint64_t begin = page.body + (page.size - size) / 2;
  return static_cast<double>(snappy_compress(output_.at(begin), size, sample_.data(), table_)) / static_cast<double>(size);
}

/// By samples of the dictionary and of some pages.
bool ColumnWriter::pays_to_compress() {
  double all = 0, saved = 0, data = 0, share = 0;
  uint64_t first = 0;
  if (!pages_.empty() && pages_[0].type == PageType::dictionary) {
    all = static_cast<double>(pages_[0].size);
    saved = all * (1 - compressed_share(pages_[0]));
    first = 1;
  }
  for (uint64_t i = first; i < pages_.size(); ++i) data += static_cast<double>(pages_[i].size);
  const uint64_t there = pages_.size() - first, sampled = std::min(there, kSampledPages);
  for (uint64_t i = 0; i < sampled; ++i)
    share += compressed_share(pages_[first + there * i / sampled]) / static_cast<double>(sampled);
  if (sampled) saved += data * (1 - share);
  return saved > kLeastSaving * (all + data);
}

/// Compresses all pages: compressed_ becomes the output.
void ColumnWriter::compress() {
  compressed_.size = 0;
  uint64_t room = 24;
  for (Page& page : pages_) {
    reserve(compressed_, room + snappy_bound(page.size) + 64);
    uint8_t* const body = compressed_.at(compressed_.size + room);
    const uint64_t size = snappy_compress(output_.at(page.body), page.size, body, table_);
    const std::string header = page_header(page.type, page.encoding, page.values, page.size, size);
    uint8_t* const begin = compressed_.at(compressed_.size);
    if (header.size() != room) std::memmove(begin + header.size(), body, size);
    room = header.size();
    std::memcpy(begin, header.data(), room);
    page.header = compressed_.size;
    compressed_.size += room + size;
  }
  std::swap(output_, compressed_);
}

ColumnChunkBytes ColumnWriter::encode(const ValueSource& source, const std::string& name, bool optional, uint64_t begin,
                                      uint64_t end, const Job& job) {
  job.check();
  const Plan plan = this->plan(source, begin, end);
  optional_ = optional;
  nulls_ = 0;
  pages_.clear();
  output_.size = 0;
  statistics_.emplace(source.type(), source.width(), source.order());
  ColumnChunkBytes chunk;
  bool numbered = false;
  if (plan.dictionary) {
    levels_.clear();
    dictionary_.clear(source.width(), plan.limits);
    numbered = number_values(source, begin, end, job) && dictionary_.size() > 0;
  }
  if (numbered) {
    reserve(output_, dictionary_.page().size() + (end - begin) / 4);
    chunk.encoding = Encoding::rle_dictionary;
    add_nulls(levels_);
    write_dictionary(source, end - begin);
    chunk.data_pages = pages_.size() > 1 ? pages_[1].header : output_.size;
  } else {
    reserve(output_, plan.delta ? (end - begin) * 4 : source.plain_bytes(begin, end) + (end - begin) / 8 + 4096);
    chunk.encoding = plan.delta ? Encoding::delta_binary_packed : Encoding::plain;
    write_values(source, plan.delta, begin, end, job);
  }
  if (!optional && nulls_) {
    throw Error(ErrorCode::invalid_table, "Column '" + name + "' is not nullable, but has " + std::to_string(nulls_) + " nulls");
  }
  chunk.uncompressed = output_.size;
  if (pays_to_compress()) {
    chunk.codec = Codec::snappy;
    compress();
    if (chunk.data_pages) chunk.data_pages = pages_[1].header;
  }
  chunk.rows = end - begin;
  chunk.nulls = nulls_;
  chunk.bounds = statistics_->bounds();
  chunk.size = output_.size;
  chunk.bytes = std::move(output_.buffer);
  chunk.bytes.shrink(chunk.size);
  output_ = {};
  return chunk;
}

}  // namespace warpjoin::parquet
