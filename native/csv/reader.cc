#include "csv/reader.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/format.h"

namespace warpjoin::csv {
namespace {

/// A value in a message: in one line, and not long.
std::string shown(std::string text) {
  constexpr size_t kMost = 40;
  if (text.size() > kMost) {
    size_t end = kMost;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  for (char& c : text) {
    if (static_cast<uint8_t>(c) < 0x20) c = ' ';
  }
  return '"' + text + '"';
}

const char* bad_byte_text(uint8_t byte) { return byte == 0 ? "not a text file (it holds zero bytes)" : "not UTF-8 text"; }

}  // namespace

Reader::Reader(ReaderOptions options, std::shared_ptr<HostMemory> memory, ThreadPool& pool)
    : options_(std::move(options)),
      memory_(std::move(memory)),
      pool_(pool),
      nulls_(options_.nulls),
      splitter_(memory_),
      dialect_{.delimiter = options_.delimiter} {}

void Reader::push(HostBuffer block, uint64_t size, const Job& job) {
  if (fault_ || done()) return;
  splitter_.append(std::move(block), size);
  read_records(false, job);
}

void Reader::finish(const Job& job) {
  if (!fault_ && !done()) read_records(true, job);
  if (!fault_ && names_.empty()) fail("the file is empty", 0);
  if (fault_) return;
  end_batch();
  for (Type& type : types_) {
    if (type == Type::empty) type = Type::utf8;
  }
  for (const Batch& batch : batches_) {
    for (size_t c = 0; c < types_.size(); ++c) lost_ = lost_ || !batch.converts(c, types_[c]);
  }
  if (lost_) batches_.clear();
  for (Batch& batch : batches_) {
    job.check();
    for (size_t c = 0; c < types_.size(); ++c) batch.convert(c, types_[c]);
  }
}

std::vector<Reader::Finished> Reader::take_batches() {
  std::vector<Finished> finished;
  finished.reserve(batches_.size());
  for (Batch& batch : batches_) finished.push_back({batch.rows(), batch.take()});
  batches_.clear();
  return finished;
}

/// Finds the line ends, and skips a byte order mark. Whether that could be decided.
bool Reader::start(bool at_end) {
  constexpr uint64_t kMarkBytes = 3;
  if (started_) return true;
  if (splitter_.size() < kMarkBytes && !at_end) return false;
  const uint8_t* const text = splitter_.text();
  const bool marked = splitter_.size() >= kMarkBytes && text[0] == 0xef && text[1] == 0xbb && text[2] == 0xbf;
  const uint64_t mark = marked ? kMarkBytes : 0;
  const auto line_end = find_line_end(text + mark, splitter_.size() - mark, dialect_.delimiter, at_end);
  if (!line_end) return false;
  dialect_.line_end = *line_end;
  splitter_.drop(mark);
  started_ = true;
  return true;
}

void Reader::name_columns(std::vector<std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (!options_.header || names[i].empty()) names[i] = "column" + std::to_string(i + 1);
  }
  std::set<std::string> distinct;
  for (const std::string& name : names) {
    if (!distinct.insert(name).second) return fail("two columns are named " + shown(name), lines_ + 1);
  }
  names_ = std::move(names);
  types_ = options_.known;
  settled_ = !types_.empty();
  types_.resize(names_.size(), Type::empty);
  fixed_.assign(names_.size(), false);
  for (const auto& [name, type] : options_.given) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      throw Error(ErrorCode::option, "types has " + shown(name) + ", which is no column of the file");
    }
    const auto column = static_cast<size_t>(found - names_.begin());
    types_[column] = type;
    fixed_[column] = true;
  }
  given_ = fixed_;
}

/// Names the columns by the first record, which ends at `end` if it is a header; `size`: of whole records. False: it is not
/// there.
bool Reader::read_header(uint64_t size, uint64_t& end) {
  const uint8_t* const text = splitter_.text();
  Tokenizer fields(text, size, dialect_);
  while (!fields.done()) {
    const uint64_t begin = fields.at();
    std::vector<std::string> names;
    Field field;
    auto ended = Tokenizer::End::delimiter;
    while (ended == Tokenizer::End::delimiter) {
      ended = fields.next(field);
      if (ended != Tokenizer::End::junk) names.push_back(unquoted({.text = text}, field));
    }
    if (ended == Tokenizer::End::junk) {
      fail("a quoted field goes on after its closing quote", lines_ + 1);
      return false;
    }
    const uint64_t bad = begin + find_bad_byte(text + begin, fields.at() - begin);
    if (bad < fields.at()) {
      fail(bad_byte_text(text[bad]), lines_ + 1 + count_bytes(text + begin, bad - begin, dialect_.line_end));
      return false;
    }
    const bool blank = names.size() == 1 && names[0].empty();
    if (!options_.header || !blank) name_columns(std::move(names));
    if (fault_) return false;
    if (!names_.empty() && !options_.header) return true;
    lines_ += count_bytes(text + begin, fields.at() - begin, dialect_.line_end);
    end = fields.at();
    if (!names_.empty()) return true;
  }
  return false;
}

void Reader::read_records(bool at_end, const Job& job) {
  if (!start(at_end)) {
    if (splitter_.size() > options_.most_record_bytes)
      fail("a record has more than " + format_bytes(options_.most_record_bytes), 1);
    return;
  }
  std::vector<uint64_t> cuts = splitter_.cuts(dialect_, options_.part_bytes);
  const uint64_t whole = cuts.empty() ? 0 : cuts.back();
  if (at_end && splitter_.size() > whole) {
    // The last record has no line end: it gets one.
    splitter_.append(splitter_.make_block(&dialect_.line_end, 1), 1);
    cuts = splitter_.cuts(dialect_, options_.part_bytes);
    if (cuts.empty() || cuts.back() < splitter_.size()) {
      // What is before the record is read first, for its faults come first.
      cuts.assign(whole ? 1 : 0, whole);
    }
  }
  uint64_t begin = 0;
  if (!cuts.empty() && names_.empty()) read_header(cuts.back(), begin);
  if (fault_) return;
  if (!names_.empty()) {
    size_t count = 0;
    for (const uint64_t cut : cuts) {
      if (cut <= begin) continue;
      if (parts_.size() == count) parts_.emplace_back();
      Part& part = parts_[count++];
      part.text = splitter_.text() + begin;
      part.size = cut - begin;
      begin = cut;
    }
    const std::span<Part> parts(parts_.data(), count);
    if (!settled_ && count > 1) guess_types(parts[0]);
    if (count > 0) read_parts(parts, job);
    if (fault_) return;
    if (rows_ > 0) settle_types();
    if (done()) return;
  }
  splitter_.drop(begin);
  if (splitter_.size() > options_.most_record_bytes) {
    fail("a record has more than " + format_bytes(options_.most_record_bytes) +
             (splitter_.in_quotes() ? ": a quoted field seems to have no end" : ""),
         lines_ + 1);
  } else if (at_end && splitter_.size() > 0) {
    fail("a quoted field has no end", lines_ + 1);
  }
}

void Reader::settle_types() {
  if (std::exchange(settled_, true) || !options_.streaming) return;
  for (size_t c = 0; c < types_.size(); ++c) {
    if (types_[c] == Type::empty) {
      types_[c] = Type::utf8;
      if (batch_) batch_->convert(c, Type::utf8);
      for (Batch& batch : batches_) batch.convert(c, Type::utf8);
    }
  }
  fixed_.assign(fixed_.size(), true);
}

/// The first rows say nearly always what types there are.
void Reader::guess_types(Part& part) {
  split_fields(part, options_.most_rows);
  for (size_t c = 0; c < types_.size(); ++c) {
    if (!fixed_[c]) types_[c] = infer(column_of(part, c), 0, types_[c], nulls_);
  }
}

FieldColumn Reader::column_of(const Part& part, size_t column) const {
  return {.text = part.text, .fields = part.fields.data() + column, .stride = names_.size(), .rows = part.rows};
}

void Reader::split_fields(Part& part, uint64_t most_rows) const {
  const size_t width = names_.size();
  const uint64_t bad = find_bad_byte(part.text, part.size);
  part.rows = 0;
  part.fault.reset();
  part.lines = count_bytes(part.text, part.size, dialect_.line_end);
  const auto fault = [&](const std::string& what, uint64_t at) {
    part.fault = Fault{what, count_bytes(part.text, at, dialect_.line_end)};
  };
  Tokenizer fields(part.text, part.size, dialect_);
  size_t used = 0;
  while (!fields.done() && part.rows < most_rows) {
    const uint64_t begin = fields.at();
    if (part.fields.size() < used + width) part.fields.resize(std::max(used + width, part.fields.size() * 2));
    Field* const row = part.fields.data() + used;
    Field surplus;
    size_t count = 0;
    auto ended = Tokenizer::End::delimiter;
    while (ended == Tokenizer::End::delimiter) {
      ended = fields.next(count < width ? row[count] : surplus);
      ++count;
    }
    if (ended == Tokenizer::End::junk) return fault("a quoted field goes on after its closing quote", begin);
    if (bad < fields.at()) return fault(bad_byte_text(part.text[bad]), bad);
    if (count != width) {
      if (count == 1 && row[0].size() == 0) continue;  // a blank line
      return fault("expected " + std::to_string(width) + " fields, found " + std::to_string(count), begin);
    }
    used += width;
    ++part.rows;
  }
}

void Reader::read_parts(std::span<Part> parts, const Job& job) {
  uint64_t bytes = 0;
  for (const Part& part : parts) bytes += part.size;
  const uint64_t most = options_.most_rows - rows_;
  if (most >= bytes) {
    pool_.parallel_for(parts.size(), [&](uint64_t i) {
      job.check();
      split_fields(parts[i], UINT64_MAX);
    });
  } else {
    // Nothing behind the last row that is wanted may be looked at.
    uint64_t left = most;
    for (size_t i = 0; i < parts.size(); ++i) {
      job.check();
      split_fields(parts[i], left);
      left -= parts[i].rows;
      if (left == 0 || parts[i].fault) parts = parts.first(i + 1);
    }
  }
  uint64_t lines = lines_;
  for (const Part& part : parts) {
    if (part.fault) return fail(part.fault->what, lines + 1 + part.fault->line);
    lines += part.lines;
  }
  place(parts, job);
  lines_ = lines;
}

/// Whether parts' values did not fit, and their types are wider now. A type that is fixed makes a fault.
bool Reader::widen(std::span<Part> parts, const Job& job) {
  std::vector<Type> types = types_;
  bool any = false, of_fixed = false;
  for (size_t c = 0; c < types_.size(); ++c) {
    std::vector<Type> found(parts.size(), types_[c]);
    bool misfits = false;
    for (const Part& part : parts) misfits = misfits || part.misfits[c];
    if (!misfits) continue;
    any = true;
    of_fixed = of_fixed || fixed_[c];
    if (fixed_[c]) continue;
    pool_.parallel_for(parts.size(), [&](uint64_t i) {
      job.check();
      if (parts[i].misfits[c]) found[i] = infer(column_of(parts[i], c), *parts[i].misfits[c], types_[c], nulls_);
    });
    for (const Type type : found) types[c] = wider(types[c], type);
  }
  if (of_fixed) {
    fail_value(parts);
    return false;
  }
  types_ = std::move(types);
  return any;
}

/// Batches may have columns whose type is not known yet: nobody is to read them.
void Reader::fail(const std::string& what, uint64_t line) {
  fault_ = Fault{what, line};
  batches_.clear();
}

/// Names the first value that does not fit its column's fixed type.
void Reader::fail_value(std::span<const Part> parts) {
  uint64_t lines = lines_;
  for (const Part& part : parts) {
    std::optional<size_t> column;
    for (size_t c = 0; c < types_.size(); ++c) {
      if (fixed_[c] && part.misfits[c] && (!column || *part.misfits[c] < *part.misfits[*column])) column = c;
    }
    if (column) {
      const uint64_t row = *part.misfits[*column];
      const std::string text = unquoted(column_of(part, *column), column_of(part, *column)[row]);
      std::string what = shown(text) + " in column " + shown(names_[*column]) + " is not of type " + type_name(types_[*column]);
      if (!given_[*column]) what += ", as the first values are: give the column's type in types";
      return fail(what, lines + 1 + count_bytes(part.text, column_of(part, 0)[row].begin, dialect_.line_end));
    }
    lines += part.lines;
  }
}

void Reader::place(std::span<Part> parts, const Job& job) {
  const size_t width = types_.size();
  uint64_t rows = 0;
  for (const Part& part : parts) rows += part.rows;
  if (rows == 0) return;
  for (Part& part : parts) {
    part.text_bytes.resize(width);
    part.first_byte.resize(width);
  }
  for (;;) {
    const auto same_type = [&](size_t c) { return batch_->column(c).type == types_[c]; };
    for (size_t c = 0; batch_ && c < width; ++c) {
      if (!same_type(c)) end_batch();
    }
    pool_.parallel_for(parts.size() * width, [&](uint64_t task) {
      const size_t c = task % width;
      Part& part = parts[task / width];
      part.text_bytes[c] = types_[c] == Type::utf8 ? text_bytes(column_of(part, c), nulls_) : 0;
    });
    std::vector<uint64_t> bytes(width);
    for (const Part& part : parts) {
      for (size_t c = 0; c < width; ++c) bytes[c] += part.text_bytes[c];
    }
    for (size_t c = 0; batch_ && c < width; ++c) {
      if (batch_->column(c).bytes + bytes[c] > options_.batch_bytes) end_batch();
    }
    if (!batch_) batch_.emplace(memory_, types_);
    batch_->reserve(rows, bytes);
    uint64_t next_row = batch_->rows();
    std::vector<uint64_t> next_byte(width);
    for (size_t c = 0; c < width; ++c) next_byte[c] = batch_->column(c).bytes;
    for (Part& part : parts) {
      part.first_row = next_row;
      part.first_byte = next_byte;
      part.misfits.assign(width, std::nullopt);
      next_row += part.rows;
      for (size_t c = 0; c < width; ++c) next_byte[c] += part.text_bytes[c];
    }
    pool_.parallel_for(parts.size(), [&](uint64_t i) {
      Part& part = parts[i];
      for (size_t c = 0; c < width; ++c) {
        job.check();
        const Place place{part.first_row, part.first_byte[c], part.first_byte[c] + part.text_bytes[c]};
        part.misfits[c] = batch_->parse(c, place, column_of(part, c), given_[c], nulls_);
      }
    });
    const bool again = widen(parts, job);
    if (!again && !fault_) {
      batch_->commit(rows, bytes);
      break;
    }
    batch_->forget();
    if (fault_) return;
  }
  rows_ += rows;
  if (batch_->rows() >= options_.batch_rows) end_batch();
}

void Reader::end_batch() {
  if (batch_ && batch_->rows() > 0) {
    batches_.push_back(std::move(*batch_));
    for (size_t c = 0; !options_.streaming && c < types_.size(); ++c) {
      lost_ = lost_ || !batches_.back().converts(c, types_[c]);
    }
  }
  // The types alone are of interest once texts are gone.
  if (lost_) batches_.clear();
  batch_.reset();
}

}  // namespace warpjoin::csv
