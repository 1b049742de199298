#include "csv/values.h"

#include <locale.h>
#include <stdlib.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>

namespace warpjoin::csv {
namespace {

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
unsigned digit(char c) { return static_cast<unsigned>(c - '0'); }

/// Appends the digits at `at` to `value`, modulo 2^64; `at` ends behind them.
inline void take_digits(const char*& at, const char* end, uint64_t& value) {
  // Eight at a time: multiplications add up neighbours.
  while (end - at >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    constexpr uint64_t kHigh = 0xf0f0f0f0f0f0f0f0, kZeros = 0x3030303030303030;
    if ((word & kHigh) != kZeros || ((word + 0x0606060606060606) & kHigh) != kZeros) break;
    word = ((word & 0x0f0f0f0f0f0f0f0f) * 2561) >> 8;
    word = ((word & 0x00ff00ff00ff00ff) * 6553601) >> 16;
    word = ((word & 0x0000ffff0000ffff) * 42949672960001) >> 32;
    value = value * 100000000 + word;
    at += 8;
  }
  for (; at != end && is_digit(*at); ++at) value = value * 10 + digit(*at);
}

/// Two digits as a number, or a large one.
unsigned two(const char* at) { return is_digit(at[0]) && is_digit(at[1]) ? digit(at[0]) * 10 + digit(at[1]) : 1000; }

constexpr std::array<unsigned, 12> kDaysInMonth = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

/// The day of dddd-dd-dd.
bool parse_day(const char* at, int32_t& days) {
  const unsigned century = two(at), rest = two(at + 2), month = two(at + 5), day = two(at + 8);
  if (century > 99 || rest > 99 || at[4] != '-' || at[7] != '-' || month - 1 > 11) return false;
  const unsigned year = century * 100 + rest;
  const bool leap = rest % 4 == 0 && (rest != 0 || century % 4 == 0);
  if (day - 1 >= kDaysInMonth[month - 1] + (month == 2 && leap ? 1 : 0)) return false;
  // Years that begin in March, so that the leap day is the last one; 719468 days are from 0000-03-01 to 1970-01-01.
  const int of_year = static_cast<int>(year) - (month <= 2 ? 1 : 0);
  const int era = (of_year + 400) / 400 - 1;
  const int in_era = of_year - era * 400;
  const int in_year = (153 * static_cast<int>(month > 2 ? month - 3 : month + 9) + 2) / 5 + static_cast<int>(day) - 1;
  days = era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
  return true;
}

constexpr std::array<double, 23> kPowersOf10 = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/// The nearest double to a decimal number; infinite or zero beyond the range.
double nearest(const char* begin, const char* end) {
  double value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc::result_out_of_range) return value;
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(std::string(begin, end).c_str(), nullptr, c_locale);
}

bool parse_float_word(std::string_view text, double& value) {
  if (text == "NaN" || text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const bool negative = text[0] == '-';
  if (negative || text[0] == '+') text.remove_prefix(1);
  if (text != "inf" && text != "Infinity") return false;
  value = negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  return true;
}

}  // namespace

const char* type_name(Type type) noexcept {
  constexpr std::array<const char*, kTypes> kNames = {"empty", "bool",      "int64",       "float64",
                                                      "date",  "timestamp", "timestamptz", "utf8"};
  return kNames[static_cast<size_t>(type)];
}

Type wider(Type a, Type b) noexcept {
  if (a == b || b == Type::empty) return a;
  if (a == Type::empty) return b;
  if (a > b) return wider(b, a);
  if (a == Type::int64 && b == Type::float64) return Type::float64;
  if (a == Type::date && b == Type::timestamp) return Type::timestamp;
  return Type::utf8;
}

bool converts(Type from, Type to) noexcept { return from == Type::empty || (to != Type::utf8 && wider(from, to) == to); }

Type type_of(std::string_view text) noexcept {
  int64_t integer = 0;
  double number = 0;
  int32_t days = 0;
  bool flag = false;
  if (parse_int64(text, false, integer)) return Type::int64;
  if (parse_float64(text, false, number)) return Type::float64;
  if (parse_date(text, days)) return Type::date;
  if (parse_timestamp(text, integer, flag)) return flag ? Type::timestamptz : Type::timestamp;
  return parse_boolean(text, flag) ? Type::boolean : Type::utf8;
}

bool parse_boolean(std::string_view text, bool& value) noexcept {
  value = text == "true" || text == "True" || text == "TRUE";
  return value || text == "false" || text == "False" || text == "FALSE";
}

bool parse_int64(std::string_view text, bool lenient, int64_t& value) noexcept {
  const char* at = text.data();
  const char* const end = at + text.size();
  const bool negative = *at == '-';
  if (negative || *at == '+') ++at;
  if (lenient) {
    while (end - at > 1 && *at == '0') ++at;
  }
  constexpr ptrdiff_t kMostDigits = 19;
  if (at == end || end - at > kMostDigits || (*at == '0' && end - at > 1)) return false;
  uint64_t magnitude = 0;
  take_digits(at, end, magnitude);
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (at != end || magnitude > kMost + (negative ? 1 : 0)) return false;
  if (negative && magnitude == 0 && !lenient) return false;  // -0 is a float
  value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool parse_float64(std::string_view text, bool lenient, double& value) noexcept {
  const char* at = text.data();
  const char* const end = at + text.size();
  const bool negative = *at == '-';
  if (negative || *at == '+') ++at;
  const char* const begin = at;
  uint64_t mantissa = 0;
  take_digits(at, end, mantissa);
  const ptrdiff_t whole = at - begin;
  if (whole > 1 && *begin == '0' && !lenient) return false;
  if (at == end && whole > 0) {
    int64_t integer = 0;
    if (parse_int64(text, lenient, integer) && (integer != 0 || !negative)) {
      value = static_cast<double>(integer);
      return true;
    }
    if (!lenient && text != "-0") return false;
    value = negative ? -nearest(begin, end) : nearest(begin, end);
    return true;
  }
  ptrdiff_t fraction = 0;
  if (at != end && *at == '.') {
    const char* const point = at++;
    take_digits(at, end, mantissa);
    fraction = at - point - 1;
  }
  if (whole + fraction == 0) return parse_float_word(text, value);
  if (at == end) {
    // Exact: both the mantissa and the power are doubles, so that one rounding makes the quotient.
    constexpr ptrdiff_t kMostDigits = 19;
    if (whole + fraction <= kMostDigits && mantissa <= uint64_t{1} << 53) {
      const double quotient = static_cast<double>(mantissa) / kPowersOf10[static_cast<size_t>(fraction)];
      value = negative ? -quotient : quotient;
      return true;
    }
  } else {
    if (*at != 'e' && *at != 'E') return false;
    ++at;
    if (at != end && (*at == '-' || *at == '+')) ++at;
    if (at == end) return false;
    for (; at != end; ++at) {
      if (!is_digit(*at)) return false;
    }
  }
  value = negative ? -nearest(begin, end) : nearest(begin, end);
  return true;
}

bool parse_date(std::string_view text, int32_t& days) noexcept {
  constexpr size_t kDateLength = 10;
  return text.size() == kDateLength && parse_day(text.data(), days);
}

bool parse_timestamp(std::string_view text, int64_t& microseconds, bool& zoned) noexcept {
  constexpr size_t kLeast = 16;  // dddd-dd-ddTdd:dd
  int32_t days = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  if (text.size() < kLeast || (at[10] != 'T' && at[10] != ' ') || at[13] != ':' || !parse_day(at, days)) return false;
  const unsigned hours = two(at + 11), minutes = two(at + 14);
  unsigned seconds = 0, fraction = 0;
  at += kLeast;
  if (end - at >= 3 && *at == ':') {
    seconds = two(at + 1);
    at += 3;
    if (at != end && *at == '.') {
      unsigned digits = 0;
      for (++at; at != end && is_digit(*at) && digits < 6; ++at, ++digits) fraction = fraction * 10 + digit(*at);
      if (digits == 0) return false;
      for (; digits < 6; ++digits) fraction *= 10;
    }
  }
  if (hours > 23 || minutes > 59 || seconds > 59) return false;
  int64_t time = int64_t{days} * 86400 + hours * 3600 + minutes * 60 + seconds;
  zoned = at != end;
  if (zoned && *at == 'Z') {
    ++at;
  } else if (zoned) {
    const bool west = *at == '-';
    if ((!west && *at != '+') || end - at < 5) return false;
    const unsigned offset_hours = two(at + 1);
    at += at[3] == ':' ? 4 : 3;
    if (end - at != 2) return false;
    const unsigned offset_minutes = two(at);
    if (offset_hours > 99 || offset_minutes > 99) return false;
    const int64_t offset = int64_t{offset_hours} * 3600 + int64_t{offset_minutes} * 60;
    time -= west ? -offset : offset;
    at = end;
  }
  if (at != end) return false;
  microseconds = time * 1000000 + fraction;
  return true;
}

}  // namespace warpjoin::csv
