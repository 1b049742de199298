// A Parquet file: its footer, and its row groups as record batches, decoded on all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "parquet/column_reader.h"
#include "parquet/metadata.h"

namespace warpjoin::parquet {

/// Row groups that become one batch, one after the other.
struct BatchRequest {
  std::vector<uint64_t> groups;
  uint64_t rows = 0;  ///< the first ones of the groups: at most as many as these have
};

struct WantedColumn {
  uint64_t leaf = 0;
  bool large = false;  ///< texts: with offsets of 64 bits
};

struct ReadBatch {
  uint64_t rows = 0;
  std::vector<OwnedColumn> columns;
};

/// Errors that the file is to blame for are Error(file), whose messages don't name it.
class FileReader {
 public:
  FileReader(std::string path, std::shared_ptr<HostMemory> memory, ThreadPool& pool, uint64_t most_chunk_bytes = kMaxBufferBytes)
      : path_(std::move(path)), memory_(std::move(memory)), pool_(pool), most_chunk_bytes_(most_chunk_bytes) {}
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Opens the file and reads its footer. Once.
  void open();
  bool is_open() const { return file_ >= 0; }
  const FileMetadata& metadata() const { return metadata_; }
  const std::vector<std::optional<Layout>>& layouts() const { return layouts_; }
  /// Reads batches. Throws Error(option) for a request that does not fit the metadata.
  std::vector<ReadBatch> read(const std::vector<BatchRequest>& batches, const std::vector<WantedColumn>& columns, const Job& job);

 private:
  /// What tells whether a file changed.
  struct State {
    uint64_t size = 0;
    int64_t seconds = 0, nanoseconds = 0;
    bool operator==(const State&) const = default;
  };
  State state() const;
  void check_request(const std::vector<BatchRequest>& batches, const std::vector<WantedColumn>& columns) const;
  OwnedColumn read_column(const BatchRequest& batch, const WantedColumn& column, const Job& job);
  std::unique_ptr<Scratch> take_scratch();

  std::string path_;
  std::shared_ptr<HostMemory> memory_;
  ThreadPool& pool_;
  uint64_t most_chunk_bytes_;
  int file_ = -1;
  State state_;
  FileMetadata metadata_;
  std::vector<std::optional<Layout>> layouts_;  // of each leaf
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> scratches_;  // that no thread uses
};

}  // namespace warpjoin::parquet
