// The values of a CSV column: which type a text has, and its value. A text is a number only if writing the number gives the
// text's meaning back: "007" and integers beyond 64 bits are texts.
#pragma once

#include <cstdint>
#include <string_view>

namespace warpjoin::csv {

/// Types of a column, `empty` where no value was found yet. lib/io/csv.ts has the same names.
enum class Type : uint8_t { empty, boolean, int64, float64, date, timestamp, timestamptz, utf8 };
inline constexpr unsigned kTypes = 8;

const char* type_name(Type type) noexcept;

/// The type that holds all values of both.
Type wider(Type a, Type b) noexcept;
/// Whether a column of type `from` becomes one of type `to` exactly, without its texts.
bool converts(Type from, Type to) noexcept;
/// The narrowest type of a text that is not empty.
Type type_of(std::string_view text) noexcept;

// Each parser takes a text that is not empty and says whether it is a value of the type. `lenient` is for types that the caller
// gave: integers may have leading zeros, and floats may be integers of any size.
bool parse_boolean(std::string_view text, bool& value) noexcept;
bool parse_int64(std::string_view text, bool lenient, int64_t& value) noexcept;
bool parse_float64(std::string_view text, bool lenient, double& value) noexcept;
/// Days since 1970-01-01.
bool parse_date(std::string_view text, int32_t& days) noexcept;
/// Microseconds since 1970-01-01, of UTC if the text has an offset, which `zoned` says.
bool parse_timestamp(std::string_view text, int64_t& microseconds, bool& zoned) noexcept;

inline constexpr int64_t kMicrosecondsPerDay = int64_t{86400} * 1000000;

}  // namespace warpjoin::csv
