#include "parquet/file_writer.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "columns/encode.h"
#include "core/error.h"
#include "parquet/thrift_writer.h"

namespace warpjoin::parquet {
namespace {

constexpr uint64_t kStepBytes = uint64_t{256} << 20;  ///< of values that are encoded at a time, but for a larger group
constexpr uint64_t kTasksPerThread = 4;
constexpr uint64_t kLeastPart = uint64_t{256} << 10;  ///< smaller ones are put together
constexpr std::string_view kCreator = "warpjoin";

void write_unit(ThriftWriter& out, TimeUnit unit) {
  out.begin_struct(2);
  out.begin_struct(static_cast<int16_t>(unit));
  out.end_struct();
  out.end_struct();
}

void write_annotation(ThriftWriter& out, const Field& field) {
  const Annotation& annotation = *field.annotation;
  out.begin_struct(10);
  out.begin_struct(static_cast<int16_t>(annotation.type));
  switch (annotation.type) {
    case LogicalType::decimal:
      out.int32(1, field.scale);
      out.int32(2, field.precision);
      break;
    case LogicalType::time:
    case LogicalType::timestamp:
      out.boolean(1, annotation.utc);
      write_unit(out, annotation.unit);
      break;
    case LogicalType::integer:
      out.int8(1, annotation.bits);
      out.boolean(2, annotation.is_signed);
      break;
    default: break;
  }
  out.end_struct();
  out.end_struct();
}

}  // namespace

FileWriter::FileWriter(WriterOptions options, std::shared_ptr<HostMemory> memory, ThreadPool& pool)
    : options_(std::move(options)), memory_(std::move(memory)), pool_(pool) {}

void FileWriter::set_columns(std::vector<Column> columns, uint64_t rows, const Job& job) {
  if (rows_left() > 0) throw Error(ErrorCode::option, "There are rows that have not been written");
  if (columns.size() != options_.fields.size()) throw Error(ErrorCode::option, "Expected a column for each field");
  rows_ = row_ = 0;
  sources_.clear();
  columns_ = std::move(columns);
  for (Column& column : columns_) {
    if (column.length != rows) {
      throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has " + std::to_string(column.length) +
                                                " rows where its table has " + std::to_string(rows));
    }
    validate_column(column, pool_, job);
  }
  sources_.reserve(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    sources_.emplace_back(columns_[i], options_.fields[i].type, options_.fields[i].width);
  }
  rows_ = rows;
}

/// The end of a row group that begins at a row; adds the bytes of its values.
uint64_t FileWriter::group_end(uint64_t begin, uint64_t& bytes) const {
  for (uint64_t rows = std::min(options_.group_rows, rows_ - begin);;) {
    uint64_t needed = 0;
    for (const ValueSource& source : sources_) needed += source.plain_bytes(begin, begin + rows);
    if (needed <= options_.group_bytes || rows == 1) {
      bytes += needed;
      return begin + rows;
    }
    // As many as fit if all take as much.
    const double share = static_cast<double>(options_.group_bytes) / static_cast<double>(needed);
    rows = std::clamp<uint64_t>(static_cast<uint64_t>(static_cast<double>(rows) * share), 1, rows - 1);
  }
}

std::unique_ptr<ColumnWriter> FileWriter::take_writer() {
  const std::lock_guard lock(mutex_);
  if (writers_.empty()) return std::make_unique<ColumnWriter>(memory_, options_.page_bytes);
  std::unique_ptr<ColumnWriter> taken = std::move(writers_.back());
  writers_.pop_back();
  return taken;
}

void FileWriter::give_back(std::unique_ptr<ColumnWriter> writer) {
  const std::lock_guard lock(mutex_);
  writers_.push_back(std::move(writer));
}

FileWriter::Part FileWriter::to_part(std::string_view bytes) const {
  Part part{memory_->allocate(bytes.size(), "a part of a file"), bytes.size()};
  std::memcpy(part.bytes.data(), bytes.data(), bytes.size());
  return part;
}

/// Adds a chunk's bytes. `small`: those of chunks before that are too few for a part of their own.
void FileWriter::add_part(std::vector<Part>& parts, std::string& small, ColumnChunkBytes& chunk) {
  offset_ += chunk.size;
  HostBuffer bytes = std::move(chunk.bytes);
  if (chunk.size < kLeastPart) {
    small.append(bytes.as<char>(), chunk.size);
    if (small.size() < kLeastPart) return;
  }
  if (!small.empty()) parts.push_back(to_part(small));
  small.clear();
  if (chunk.size >= kLeastPart) parts.push_back({std::move(bytes), chunk.size});
}

std::vector<FileWriter::Part> FileWriter::write(const Job& job) {
  std::vector<Part> parts;
  if (rows_left() == 0 || sources_.empty()) return parts;
  std::string small;
  if (offset_ == 0) small.assign(kMagic, sizeof kMagic);
  offset_ += small.size();
  const uint64_t columns = sources_.size();
  std::vector<uint64_t> ends{row_};
  uint64_t bytes = 0;
  do {
    ends.push_back(group_end(ends.back(), bytes));
  } while (ends.back() < rows_ && bytes < kStepBytes && (ends.size() - 1) * columns < kTasksPerThread * pool_.threads());
  const uint64_t groups = ends.size() - 1;
  std::vector<ColumnChunkBytes> chunks(groups * columns);
  pool_.parallel_for(chunks.size(), [&](uint64_t task) {
    const uint64_t group = task / columns, column = task % columns;
    const Field& field = options_.fields[column];
    std::unique_ptr<ColumnWriter> writer = take_writer();
    chunks[task] = writer->encode(sources_[column], field.name, field.nullable, ends[group], ends[group + 1], job);
    give_back(std::move(writer));
  });
  for (uint64_t group = 0; group < groups; ++group) {
    Group& made = groups_.emplace_back(Group{.rows = ends[group + 1] - ends[group], .offset = offset_, .chunks = {}});
    for (uint64_t column = 0; column < columns; ++column) {
      ColumnChunkBytes& chunk = chunks[group * columns + column];
      add_part(parts, small, chunk);
      made.chunks.push_back(std::move(chunk));
    }
  }
  if (!small.empty()) parts.push_back(to_part(small));
  row_ = ends.back();
  return parts;
}

void FileWriter::write_schema(ThriftWriter& footer) const {
  footer.begin_list(2, ThriftType::structure, options_.fields.size() + 1);
  footer.begin_element();
  footer.binary(4, "arrow_schema");
  footer.int32(5, static_cast<int32_t>(options_.fields.size()));
  footer.end_struct();
  for (const Field& field : options_.fields) {
    footer.begin_element();
    footer.int32(1, static_cast<int32_t>(field.type));
    if (field.type == PhysicalType::fixed_bytes) footer.int32(2, static_cast<int32_t>(field.width));
    footer.int32(3, static_cast<int32_t>(field.nullable ? Repetition::optional : Repetition::required));
    footer.binary(4, field.name);
    if (field.converted) footer.int32(6, static_cast<int32_t>(*field.converted));
    if (field.annotation && field.annotation->type == LogicalType::decimal) {
      footer.int32(7, field.scale);
      footer.int32(8, field.precision);
    }
    if (field.annotation) write_annotation(footer, field);
    footer.end_struct();
  }
}

void FileWriter::write_chunk(ThriftWriter& footer, const Field& field, const ColumnChunkBytes& chunk, uint64_t offset) const {
  const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
  footer.begin_element();
  footer.int64(2, number(offset));
  footer.begin_struct(3);
  footer.int32(1, static_cast<int32_t>(field.type));
  std::vector<Encoding> encodings{Encoding::rle, chunk.encoding};
  if (chunk.data_pages) encodings.push_back(Encoding::plain);
  footer.begin_list(2, ThriftType::int32, encodings.size());
  for (const Encoding encoding : encodings) footer.element_int32(static_cast<int32_t>(encoding));
  footer.begin_list(3, ThriftType::binary, 1);
  footer.element_binary(field.name);
  footer.int32(4, static_cast<int32_t>(chunk.codec));
  footer.int64(5, number(chunk.rows));
  footer.int64(6, number(chunk.uncompressed));
  footer.int64(7, number(chunk.size));
  footer.int64(9, number(offset + chunk.data_pages.value_or(0)));
  if (chunk.data_pages) footer.int64(11, number(offset));
  footer.begin_struct(12);
  footer.int64(3, number(chunk.nulls));
  if (chunk.bounds) {
    footer.binary(5, chunk.bounds->greatest);
    footer.binary(6, chunk.bounds->least);
  }
  footer.end_struct();
  footer.end_struct();
  footer.end_struct();
}

void FileWriter::write_group(ThriftWriter& footer, const Group& group, size_t ordinal) const {
  footer.begin_element();
  footer.begin_list(1, ThriftType::structure, group.chunks.size());
  uint64_t offset = group.offset, uncompressed = 0;
  for (size_t i = 0; i < group.chunks.size(); ++i) {
    write_chunk(footer, options_.fields[i], group.chunks[i], offset);
    offset += group.chunks[i].size;
    uncompressed += group.chunks[i].uncompressed;
  }
  footer.int64(2, static_cast<int64_t>(uncompressed));
  footer.int64(3, static_cast<int64_t>(group.rows));
  footer.int64(5, static_cast<int64_t>(group.offset));
  footer.int64(6, static_cast<int64_t>(offset - group.offset));
  if (ordinal <= INT16_MAX) footer.int16(7, static_cast<int16_t>(ordinal));
  footer.end_struct();
}

FileWriter::Part FileWriter::finish() {
  if (rows_left() > 0) throw Error(ErrorCode::option, "There are rows that have not been written");
  std::string bytes;
  if (offset_ == 0) bytes.append(kMagic, sizeof kMagic);
  ThriftWriter footer;
  footer.int32(1, 1);
  write_schema(footer);
  uint64_t rows = 0;
  for (const Group& group : groups_) rows += group.rows;
  footer.int64(3, static_cast<int64_t>(rows));
  footer.begin_list(4, ThriftType::structure, groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) write_group(footer, groups_[i], i);
  if (!options_.metadata.empty()) {
    footer.begin_list(5, ThriftType::structure, options_.metadata.size());
    for (const auto& [key, value] : options_.metadata) {
      footer.begin_element();
      footer.binary(1, key);
      footer.binary(2, value);
      footer.end_struct();
    }
  }
  footer.binary(6, kCreator);
  footer.begin_list(7, ThriftType::structure, options_.fields.size());
  for (size_t i = 0; i < options_.fields.size(); ++i) {
    footer.begin_element();
    footer.begin_struct(1);
    footer.end_struct();
    footer.end_struct();
  }
  footer.end_struct();
  if (footer.bytes().size() > INT32_MAX) throw Error(ErrorCode::not_supported, "The footer of a Parquet file has at most 2 GiB");
  const auto size = static_cast<uint32_t>(footer.bytes().size());
  bytes += footer.bytes();
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(kMagic, sizeof kMagic);
  return to_part(bytes);
}

}  // namespace warpjoin::parquet
