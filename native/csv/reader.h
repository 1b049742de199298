// A CSV file, block by block, into record batches: cut at ends of records, split into fields and parsed on all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "csv/batch.h"
#include "csv/records.h"
#include "csv/values.h"

namespace warpjoin::csv {

struct ReaderOptions {
  uint8_t delimiter = ',';
  /// Whether the first record names the columns; otherwise they are column1, column2 and so on.
  bool header = true;
  std::vector<std::string> nulls = {};  ///< texts that mean null, in addition to the empty one
  /// Types of columns by name: a value that is none is a fault.
  std::vector<std::pair<std::string, Type>> given = {};
  /// Types to begin with, of all columns, as an earlier pass found them; empty: they are found here.
  std::vector<Type> known = {};
  /// The first block's rows decide the types, and batches are handed over as they are made: a later value that does not fit is a
  /// fault. Otherwise a column's type is widened.
  bool streaming = false;
  uint64_t most_rows = UINT64_MAX;
  uint64_t batch_rows = uint64_t{1} << 20;         ///< a batch ends with the block that brings it to so many
  uint64_t batch_bytes = uint64_t{1} << 30;        ///< most bytes of texts of a column in a batch
  uint64_t part_bytes = uint64_t{1} << 18;         ///< what one thread parses at a time
  uint64_t most_record_bytes = uint64_t{1} << 30;  ///< a longer record is a fault
};

/// Not thread-safe.
class Reader {
 public:
  Reader(ReaderOptions options, std::shared_ptr<HostMemory> memory, ThreadPool& pool);

  /// A copy of bytes for push(). May be called on another thread than the rest.
  HostBuffer make_block(const void* bytes, uint64_t size) const { return splitter_.make_block(bytes, size); }
  void push(HostBuffer block, uint64_t size, const Job& job);
  /// No more blocks come.
  void finish(const Job& job);

  /// What is wrong with the file; nothing is read after that.
  const std::optional<Fault>& fault() const { return fault_; }
  bool streams() const { return options_.streaming; }
  /// Whether most_rows were read.
  bool done() const { return rows_ == options_.most_rows && !names_.empty(); }
  /// After finish(): whether a column turned out to be text whose texts are gone. Another pass, with the types() known, reads it.
  bool lost() const { return lost_; }
  /// Empty before the header was read.
  const std::vector<std::string>& names() const { return names_; }
  /// After finish() none is `empty`.
  const std::vector<Type>& types() const { return types_; }
  uint64_t rows() const { return rows_; }

  struct Finished {
    uint64_t rows = 0;
    std::vector<OwnedColumn> columns;
  };
  /// The batches that are complete: when streaming those so far, otherwise all after finish(); none after a fault.
  std::vector<Finished> take_batches();

 private:
  /// Whole records, and what is found in them.
  struct Part {
    const uint8_t* text = nullptr;
    uint64_t size = 0;
    std::vector<Field> fields;  // row by row
    uint64_t rows = 0;
    uint64_t lines = 0;
    uint64_t first_row = 0;                        // in the batch
    std::vector<uint64_t> text_bytes, first_byte;  // of each column
    std::vector<std::optional<uint64_t>> misfits;  // of each column: the first row whose value does not fit
    std::optional<Fault> fault;                    // its line counts from the part's first one
  };

  bool start(bool at_end);
  bool read_header(uint64_t size, uint64_t& end);
  void name_columns(std::vector<std::string> names);
  void read_records(bool at_end, const Job& job);
  void guess_types(Part& part);
  void read_parts(std::span<Part> parts, const Job& job);
  void split_fields(Part& part, uint64_t most_rows) const;
  void place(std::span<Part> parts, const Job& job);
  bool widen(std::span<Part> parts, const Job& job);
  void settle_types();
  void end_batch();
  FieldColumn column_of(const Part& part, size_t column) const;
  void fail(const std::string& what, uint64_t line);
  void fail_value(std::span<const Part> parts);

  ReaderOptions options_;
  std::shared_ptr<HostMemory> memory_;
  ThreadPool& pool_;
  Nulls nulls_;
  RecordSplitter splitter_;
  Dialect dialect_;
  bool started_ = false, settled_ = false, lost_ = false;
  std::vector<std::string> names_;
  std::vector<Type> types_;
  std::vector<bool> fixed_;  // columns whose type is not widened
  std::vector<bool> given_;
  std::vector<Part> parts_;  // kept for their memory
  std::optional<Batch> batch_;
  std::vector<Batch> batches_;
  uint64_t rows_ = 0;
  uint64_t lines_ = 0;  // that ended before the splitter's text
  std::optional<Fault> fault_;
};

}  // namespace warpjoin::csv
