#include "core/format.h"

#include <cstdio>

namespace warpjoin {

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes);
  int unit = 0;
  while (amount >= 1024 && unit < 5) {
    amount /= 1024;
    ++unit;
  }
  char text[32];
  const bool whole = amount == static_cast<double>(static_cast<uint64_t>(amount));
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return text;
}

}  // namespace warpjoin
