#include "core/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace warpjoin {

MappedFile::MappedFile(int file, size_t size) : size_(size) {
  struct stat known {};
  if (fstat(file, &known) != 0) throw Error(ErrorCode::file, std::strerror(errno));
  if (!S_ISREG(known.st_mode)) throw Error(ErrorCode::file, "not a regular file");
  // Bytes behind the end can't be read: that ends the process.
  if (static_cast<size_t>(known.st_size) < size) throw Error(ErrorCode::file, "shorter than it should be");
  if (size == 0) return;
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) throw Error(ErrorCode::file, std::strerror(errno));
  data_ = static_cast<char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

}  // namespace warpjoin
