#include "parquet/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "columns/bits.h"
#include "core/error.h"

namespace warpjoin::parquet {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::file, what); }

void read_at(int file, uint64_t at, uint8_t* to, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = pread(file, to, bytes, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) throw Damaged("the file has lost its end");
    at += static_cast<uint64_t>(got);
    to += got;
    bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace

FileReader::~FileReader() {
  if (file_ >= 0) close(file_);
}

FileReader::State FileReader::state() const {
  struct stat info = {};
  if (fstat(file_, &info) != 0) fail(std::string("cannot be read: ") + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail("is a directory");
  if (!S_ISREG(info.st_mode)) fail("not a regular file");
  return {static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

void FileReader::open() {
  if (file_ >= 0) throw Error(ErrorCode::option, "The file is open");
  do {
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0)
    fail(errno == ENOENT ? "no such file or directory" : errno == EACCES ? "permission denied" : std::strerror(errno));
  state_ = state();
  constexpr uint64_t kEnd = sizeof(uint32_t) + sizeof kMagic;
  try {
    if (state_.size < sizeof kMagic + kEnd) fail("not a Parquet file: shorter than its header and footer");
    uint8_t start[sizeof kMagic], end[kEnd];
    read_at(file_, 0, start, sizeof start);
    read_at(file_, state_.size - kEnd, end, sizeof end);
    const auto* const magic = end + sizeof(uint32_t);
    if (std::memcmp(magic, "PARE", sizeof kMagic) == 0) fail("its metadata is encrypted, which is not supported yet");
    if (std::memcmp(magic, kMagic, sizeof kMagic) != 0) {
      if (std::memcmp(start, kMagic, sizeof kMagic) == 0) throw Damaged("the file has lost its end");
      fail("not a readable Parquet file: it has no footer");
    }
    const uint64_t size = columns::load<uint32_t>(end);
    if (size > state_.size - sizeof kMagic - kEnd) {
      throw Damaged("a footer of " + std::to_string(size) + " bytes does not fit the file");
    }
    const uint64_t begin = state_.size - kEnd - size;
    const HostBuffer footer = memory_->allocate(size, "the footer of a Parquet file");
    read_at(file_, begin, footer.as<uint8_t>(), size);
    metadata_ = read_metadata({footer.as<uint8_t>(), size}, begin);
  } catch (const Damaged& damage) {
    fail(std::string("damaged: ") + damage.what());
  }
  layouts_.reserve(metadata_.leaves.size());
  for (const Leaf& leaf : metadata_.leaves) layouts_.push_back(layout_of(leaf));
}

void FileReader::check_request(const std::vector<BatchRequest>& batches, const std::vector<WantedColumn>& columns) const {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::option, what); };
  if (file_ < 0) refuse("The file is not open");
  for (const WantedColumn& column : columns) {
    if (column.leaf >= metadata_.leaves.size()) refuse("There is no such column");
    if (!layouts_[column.leaf]) refuse("The column is of a type that is not read");
  }
  for (const BatchRequest& batch : batches) {
    uint64_t rows = 0;
    for (const uint64_t group : batch.groups) {
      if (group >= metadata_.groups.size()) refuse("There is no such row group");
      rows += metadata_.groups[group].rows;
      if (rows > kMostRows) refuse("A batch has too many rows");
      for (const WantedColumn& column : columns) {
        const ChunkPlace& place = metadata_.groups[group].chunks[column.leaf];
        if (place.elsewhere) refuse("The column is in another file, or encrypted");
        if (!knows_codec(place.codec)) refuse("The column is compressed with " + codec_name(place.codec));
      }
    }
    if (batch.rows > rows) refuse("The row groups have fewer rows");
  }
}

std::unique_ptr<Scratch> FileReader::take_scratch() {
  const std::lock_guard lock(mutex_);
  if (scratches_.empty()) return std::make_unique<Scratch>(memory_);
  auto scratch = std::move(scratches_.back());
  scratches_.pop_back();
  return scratch;
}

OwnedColumn FileReader::read_column(const BatchRequest& batch, const WantedColumn& column, const Job& job) {
  const Leaf& leaf = metadata_.leaves[column.leaf];
  std::unique_ptr<Scratch> scratch = take_scratch();
  ColumnReader reader(leaf, *layouts_[column.leaf], column.large, batch.rows, memory_, most_chunk_bytes_);
  uint64_t left = batch.rows;
  try {
    for (const uint64_t group : batch.groups) {
      const RowGroup& from = metadata_.groups[group];
      const uint64_t rows = std::min(from.rows, left);
      left -= rows;
      if (rows > 0) reader.read(file_, from.chunks[column.leaf], from.rows, rows, *scratch, job);
    }
  } catch (const Damaged& damage) {
    fail("damaged: column \"" + leaf.path[0] + "\": " + damage.what());
  }
  const std::lock_guard lock(mutex_);
  scratches_.push_back(std::move(scratch));
  return reader.take();
}

std::vector<ReadBatch> FileReader::read(const std::vector<BatchRequest>& batches, const std::vector<WantedColumn>& columns,
                                        const Job& job) {
  check_request(batches, columns);
  std::vector<ReadBatch> made(batches.size());
  for (size_t b = 0; b < batches.size(); ++b) {
    made[b].rows = batches[b].rows;
    made[b].columns.resize(columns.size());
  }
  const uint64_t count = batches.size() * columns.size();
  // The largest first, so that threads end together.
  std::vector<uint64_t> order(count), bytes(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t task = 0; task < count; ++task) {
    for (const uint64_t group : batches[task / columns.size()].groups) {
      const ChunkPlace& place = metadata_.groups[group].chunks[columns[task % columns.size()].leaf];
      bytes[task] += place.bytes + std::min(place.uncompressed, uint64_t{1} << 40);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return bytes[a] > bytes[b]; });
  try {
    pool_.parallel_for(count, [&](uint64_t next) {
      job.check();
      const uint64_t task = order[next];
      const uint64_t batch = task / columns.size(), column = task % columns.size();
      made[batch].columns[column] = read_column(batches[batch], columns[column], job);
    });
  } catch (const Error& error) {
    if (error.code() == ErrorCode::file && state() != state_) fail("changed while it was read");
    throw;
  }
  if (state() != state_) fail("changed while it was read");
  return made;
}

}  // namespace warpjoin::parquet
