// Files as memory.
#pragma once

#include <cstddef>

namespace warpjoin {

/// The bytes of a file, which come from the disk as they are read. They can be written to: then this process alone sees it.
class MappedFile {
 public:
  /// Bytes [0, size) of an open file, which may be closed then, and lose its name. It must stay as long. Throws Error(file), with
  /// the system's reason, for what is no regular file, or is shorter, or where the system has no addresses left.
  MappedFile(int file, size_t size);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  char* data() const noexcept { return data_; }

 private:
  char* data_ = nullptr;
  size_t size_;
};

}  // namespace warpjoin
