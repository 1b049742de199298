// What is wrong with a file's bytes.
#pragma once

#include <stdexcept>
#include <string>

namespace warpjoin::parquet {

/// A file breaks the format, or is cut off. The message names neither the file nor the column: who knows them adds them.
class Damaged : public std::runtime_error {
 public:
  explicit Damaged(const std::string& what) : std::runtime_error(what) {}
};

/// Bytes that may be read behind the end of a page's bytes, and written behind the end of what they become.
inline constexpr unsigned kSlack = 64;

}  // namespace warpjoin::parquet
