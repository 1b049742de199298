#pragma once

#include <cstdint>
#include <string>

namespace warpjoin {

/// "1.5 GiB", "640 MiB", "12 bytes": for messages.
std::string format_bytes(uint64_t bytes);

}  // namespace warpjoin
