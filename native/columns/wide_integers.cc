// Integers and decimals of up to 32 bytes, multiplied exactly so that they compare.
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include "columns/plain_parts.h"
#include "columns/scan.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

constexpr size_t kLimbs = 16;  // of 64 bits, the least significant first
using Limbs = std::array<uint64_t, kLimbs>;

/// A 256-bit integer, two's complement.
struct Int256 {
  uint64_t limbs[4];

  friend bool operator<(const Int256& a, const Int256& b) {
    if (a.limbs[3] != b.limbs[3]) return static_cast<int64_t>(a.limbs[3]) < static_cast<int64_t>(b.limbs[3]);
    for (int i = 2; i >= 0; --i) {
      if (a.limbs[i] != b.limbs[i]) return a.limbs[i] < b.limbs[i];
    }
    return false;
  }
};

/// How a value of some width is read: as a Number, of which limbs are taken.
template <class Raw>
struct Narrow {
  using Number = __int128;
  static Number read(const void* values, uint64_t index) { return static_cast<Number>(load<Raw>(values, index)); }
  static uint64_t low(const Number& number) { return static_cast<uint64_t>(number); }
  static uint64_t limb(const Number& number, size_t i) {
    return static_cast<uint64_t>(i == 0 ? number : i == 1 ? number >> 64 : number >> 127);
  }
  static constexpr Number kLeast = static_cast<Number>(static_cast<unsigned __int128>(1) << 127), kGreatest = ~kLeast;
};

struct Wide {
  using Number = Int256;
  static Number read(const void* values, uint64_t index) { return load<Int256>(values, index); }
  static uint64_t low(const Number& number) { return number.limbs[0]; }
  static uint64_t limb(const Number& number, size_t i) {
    return i < 4 ? number.limbs[i] : static_cast<uint64_t>(static_cast<int64_t>(number.limbs[3]) >> 63);
  }
  static constexpr Number kLeast{{0, 0, 0, uint64_t{1} << 63}};
  static constexpr Number kGreatest{{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0} >> 1}};
};

template <class Body>
auto with_reader(const ColumnType& type, Body&& body) {
  if (type.width == 16) return body.template operator()<Narrow<__int128>>();
  if (type.width == 32) return body.template operator()<Wide>();
  return with_key_type(type, [&]<class Key>() {
    using Raw = typename Key::Raw;
    if constexpr (Key::kOrder == KeyOrder::signed_integer) {
      return body.template operator()<Narrow<std::make_signed_t<Raw>>>();
    } else {
      return body.template operator()<Narrow<Raw>>();
    }
  });
}

/// A number by sign and magnitude.
struct Extreme {
  bool negative = false;
  Limbs magnitude{};

  /// False where it doesn't fit.
  bool multiply(uint64_t factor) {
    uint64_t carry = 0;
    for (uint64_t& limb : magnitude) {
      const unsigned __int128 product = static_cast<unsigned __int128>(limb) * factor + carry;
      limb = static_cast<uint64_t>(product);
      carry = static_cast<uint64_t>(product >> 64);
    }
    return carry == 0;
  }

  /// Bits of the magnitude, of a negative number less one.
  unsigned bits() const {
    Limbs limbs = magnitude;
    if (negative) {
      for (uint64_t& limb : limbs) {
        if (limb-- != 0) break;
      }
    }
    for (size_t i = kLimbs; i-- > 0;) {
      if (limbs[i]) return static_cast<unsigned>(64 * i + static_cast<unsigned>(std::bit_width(limbs[i])));
    }
    return 0;
  }
};

template <class Reader>
Extreme extreme_of(const typename Reader::Number& number) {
  Extreme extreme;
  extreme.negative = static_cast<int64_t>(Reader::limb(number, kLimbs - 1)) < 0;
  bool carry = extreme.negative;
  for (size_t i = 0; i < kLimbs; ++i) {
    const uint64_t limb = Reader::limb(number, i);
    extreme.magnitude[i] = extreme.negative ? ~limb + carry : limb;
    carry = carry && extreme.magnitude[i] == 0;
  }
  return extreme;
}

/// 10^pow10 * times; nothing where it takes more than all limbs.
std::optional<Limbs> limbs_of(const KeyFactor& factor) {
  Extreme product{false, {factor.times}};
  constexpr uint32_t kMostPow10 = 64 * kLimbs;
  if (factor.pow10 > kMostPow10) return {};
  for (uint32_t i = 0; i < factor.pow10; ++i) {
    if (!product.multiply(10)) return {};
  }
  return product.magnitude;
}

/// One source while it is read: its extremes, in its own unit.
struct Side {
  const Column& column;
  KeyFactor factor;
  ChunkIndex chunks;
  std::optional<Limbs> limbs;
  bool empty = true;  ///< no value but nulls
  Extreme least, greatest;
  __int128 narrow_least = 0, narrow_greatest = 0;  ///< as numbers of up to 16 bytes, or of 32
  Int256 wide_least{}, wide_greatest{};

  explicit Side(const KeySource& source)
      : column(*source.column), factor(source.factor), chunks(*source.column), limbs(limbs_of(source.factor)) {}

  template <class Reader>
  auto& bounds(bool greatest_one) {
    if constexpr (std::is_same_v<Reader, Wide>) {
      return greatest_one ? wide_greatest : wide_least;
    } else {
      return greatest_one ? narrow_greatest : narrow_least;
    }
  }
};

[[noreturn]] void too_large(const Column& column) {
  throw Error(ErrorCode::key_type, "Column '" + column.name +
                                       "' can't be compared: in the unit of the other columns its values take more than " +
                                       std::to_string(64 * kLimbs) + " bits");
}

template <class Reader>
void find_extremes(Side& side, Engine& engine, const Job& job) {
  using Number = typename Reader::Number;
  Number least = Reader::kGreatest, greatest = Reader::kLeast;
  if (side.column.type.width <= 8) {
    if constexpr (!std::is_same_v<Reader, Wide>) {
      const FixedScan scan = scan_fixed(side.chunks, engine, job);
      if (scan.empty()) return;
      // Ordered bits count from the least value of the type.
      least = static_cast<__int128>(scan.least) + least_value(side.column.type);
      greatest = static_cast<__int128>(scan.greatest) + least_value(side.column.type);
    }
  } else {
    std::mutex mutex;
    for_row_blocks(engine, side.chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      Number block_least = Reader::kGreatest, block_greatest = Reader::kLeast;
      for_rows(side.chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t, bool valid) {
        if (!valid) return;
        const Number number = Reader::read(chunk.values, index);
        if (number < block_least) block_least = number;
        if (block_greatest < number) block_greatest = number;
      });
      const std::lock_guard lock(mutex);
      if (block_least < least) least = block_least;
      if (greatest < block_greatest) greatest = block_greatest;
    });
    if (greatest < least) return;
  }
  side.empty = false;
  side.bounds<Reader>(false) = least;
  side.bounds<Reader>(true) = greatest;
  side.least = extreme_of<Reader>(least);
  side.greatest = extreme_of<Reader>(greatest);
  for (Extreme* extreme : {&side.least, &side.greatest}) {
    if (extreme->magnitude == Limbs{}) continue;
    if (!extreme->multiply(side.factor.times)) too_large(side.column);
    for (uint32_t i = 0; i < side.factor.pow10; ++i) {
      if (!extreme->multiply(10)) too_large(side.column);
    }
    if (extreme->bits() >= 64 * kLimbs) too_large(side.column);
  }
}

/// Calls write(row, number) for each row with a value, and zero(row) for each null.
template <class Reader, class Write, class Zero>
void for_values(Side& side, Engine& engine, const Job& job, Write&& write, Zero&& zero) {
  const auto least = side.bounds<Reader>(false), greatest = side.bounds<Reader>(true);
  for_row_blocks(engine, side.chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for_rows(side.chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
      if (!valid) return zero(row);
      const auto number = Reader::read(chunk.values, index);
      if (side.empty || number < least || greatest < number) throw InputChanged("Column '" + side.column.name + "'");
      write(row, number);
    });
  });
}

/// Keys of 8 bytes, which all values fit.
PlainKey as_number(Side& side, const ColumnType& type, Engine& engine, const Job& job) {
  PlainKey key = key_like(side.column, type);
  HostBuffer values = engine.memory->allocate(side.column.length * 8, "keys of numbers");
  auto* const out = values.as<uint64_t>();
  // Where there is no factor of 64 bits all values are zero.
  const uint64_t factor = side.limbs ? (*side.limbs)[0] : 0;
  with_reader(side.column.type, [&]<class Reader>() {
    for_values<Reader>(
        side, engine, job, [=](uint64_t row, const auto& number) { out[row] = Reader::low(number) * factor; },
        [=](uint64_t row) { out[row] = 0; });
  });
  add_fixed_chunks(key, side.chunks, std::move(values));
  return key;
}

/// Writes the low `size` bytes of a number, the most significant first, and the sign bit flipped.
void write_bytes(const uint64_t* limbs, size_t size, uint8_t* out) {
  size_t left = size;
  for (size_t i = 0; left; ++i) {
    const uint64_t bytes = __builtin_bswap64(limbs[i]);
    const size_t part = std::min<size_t>(8, left);
    left -= part;
    std::memcpy(out + left, reinterpret_cast<const uint8_t*>(&bytes) + (8 - part), part);
  }
  out[0] ^= 0x80;
}

/// Keys of `size` bytes.
PlainKey as_text(Side& side, size_t size, Engine& engine, const Job& job) {
  PlainKey key = key_like(side.column, kTextKey);
  const uint64_t rows = side.column.length;
  HostBuffer values = engine.memory->allocate(rows * size, "keys of decimals");
  auto* const out = values.as<uint8_t>();
  const size_t count = (size + 7) / 8;
  const bool multiply = !side.factor.one();
  // Where the factor takes more limbs than there are all values are zero.
  const Limbs factor = side.limbs.value_or(Limbs{});
  with_reader(side.column.type, [&]<class Reader>() {
    for_values<Reader>(
        side, engine, job,
        [=](uint64_t row, const auto& number) {
          uint64_t limbs[kLimbs];
          for (size_t i = 0; i < count; ++i) limbs[i] = Reader::limb(number, i);
          if (multiply) {  // two's complement: what is beyond `count` limbs makes no difference to those
            uint64_t product[kLimbs] = {};
            for (size_t i = 0; i < count; ++i) {
              uint64_t carry = 0;
              for (size_t j = 0; i + j < count; ++j) {
                const unsigned __int128 sum = static_cast<unsigned __int128>(limbs[i]) * factor[j] + product[i + j] + carry;
                product[i + j] = static_cast<uint64_t>(sum);
                carry = static_cast<uint64_t>(sum >> 64);
              }
            }
            std::copy(product, product + count, limbs);
          }
          write_bytes(limbs, size, out + row * size);
        },
        [=](uint64_t row) { std::memset(out + row * size, 0, size); });
  });
  EvenOffsets even(size, rows, engine);
  uint64_t row = 0;
  for (const ColumnChunk& chunk : side.chunks.chunks()) {
    add_even_texts(key, even, chunk, out + row * size, size);
    row += chunk.length;
  }
  key.owned.push_back(std::move(values));
  key.owned.push_back(std::move(even.offsets));
  return key;
}

}  // namespace

std::vector<PlainKey> multiplied_integers(std::span<const KeySource> sources, Engine& engine, const Job& job) {
  std::vector<Side> sides;
  sides.reserve(sources.size());
  unsigned bits = 0;
  bool negative = false;
  for (const KeySource& source : sources) {
    Side& side = sides.emplace_back(source);
    with_reader(side.column.type, [&]<class Reader>() { find_extremes<Reader>(side, engine, job); });
    if (side.empty) continue;
    bits = std::max({bits, side.least.bits(), side.greatest.bits()});
    negative |= side.least.negative;
  }
  std::vector<PlainKey> keys;
  keys.reserve(sides.size());
  const bool fits_signed = bits <= 63, fits_unsigned = bits <= 64 && !negative;
  for (Side& side : sides) {
    if (fits_signed || fits_unsigned) {
      keys.push_back(as_number(side, fits_signed ? kSignedKey : kUnsignedKey, engine, job));
    } else {
      keys.push_back(as_text(side, bits / 8 + 1, engine, job));
    }
  }
  return keys;
}

// --- One column as integers of another width ------------------------------------------------------------------------

namespace {

/// Decimal digits, and the sign.
std::string in_words(Extreme number) {
  if (number.magnitude == Limbs{}) return "0";
  std::string digits;
  while (number.magnitude != Limbs{}) {
    uint64_t rest = 0;
    for (size_t i = kLimbs; i-- > 0;) {
      const unsigned __int128 part = static_cast<unsigned __int128>(rest) << 64 | number.magnitude[i];
      number.magnitude[i] = static_cast<uint64_t>(part / 10);
      rest = static_cast<uint64_t>(part % 10);
    }
    digits.push_back(static_cast<char>('0' + rest));
  }
  if (number.negative) digits.push_back('-');
  return {digits.rbegin(), digits.rend()};
}

/// The product as an integer of some type, if it is one; for numbers of up to 256 bits.
class WideProduct {
 public:
  WideProduct(const ColumnType& to, const std::optional<Limbs>& factor)
      : factor_(factor.value_or(Limbs{})), bytes_(to.width), signed_(to.order == KeyOrder::signed_integer) {
    while (count_ && !factor_[count_ - 1]) --count_;
    if (!factor) count_ = kLimbs;
  }

  template <class Reader>
  bool write(const typename Reader::Number& number, void* out) const {
    const bool negative = static_cast<int64_t>(Reader::limb(number, kMost - 1)) < 0;
    uint64_t magnitude[kMost];
    bool carry = negative, zero = true;
    for (size_t i = 0; i < kMost; ++i) {
      const uint64_t limb = Reader::limb(number, i);
      magnitude[i] = negative ? ~limb + carry : limb;
      carry = carry && magnitude[i] == 0;
      zero &= magnitude[i] == 0;
    }
    if (zero) {
      std::memset(out, 0, bytes_);
      return true;
    }
    // A factor of more limbs is greater than all that there is room for.
    if ((negative && !signed_) || count_ > kMost) return false;
    uint64_t product[2 * kMost] = {};
    for (size_t i = 0; i < kMost; ++i) {
      uint64_t rest = 0;
      for (size_t j = 0; j < count_; ++j) {
        const unsigned __int128 sum = static_cast<unsigned __int128>(magnitude[i]) * factor_[j] + product[i + j] + rest;
        product[i + j] = static_cast<uint64_t>(sum);
        rest = static_cast<uint64_t>(sum >> 64);
      }
      product[i + count_] = rest;
    }
    // -n is ~(n - 1).
    for (size_t i = 0; negative && product[i]-- == 0; ++i) {
    }
    size_t bits = 0;
    for (size_t i = 2 * kMost; i-- > 0 && bits == 0;) {
      if (product[i]) bits = 64 * i + static_cast<size_t>(std::bit_width(product[i]));
    }
    if (bits > 8 * bytes_ - signed_) return false;
    if (negative) {
      for (size_t i = 0; i < kMost; ++i) product[i] = ~product[i];
    }
    std::memcpy(out, product, bytes_);
    return true;
  }

 private:
  static constexpr size_t kMost = 4;  // limbs of 256 bits

  Limbs factor_;
  size_t count_ = kLimbs;  ///< limbs of the factor that are not zeros in front
  size_t bytes_;
  bool signed_;
};

/// The same for what 127 bits hold.
template <class Out>
class NarrowProduct {
 public:
  NarrowProduct(const ColumnType& to, __int128 factor) : factor_(factor) {
    const unsigned bits = 8 * to.width;
    if (to.order != KeyOrder::signed_integer) {
      greatest_ = (__int128{1} << bits) - 1;  // of at most 64 bits
    } else if (bits < 128) {
      greatest_ = (__int128{1} << (bits - 1)) - 1;
      least_ = -greatest_ - 1;
    } else {
      greatest_ = Narrow<__int128>::kGreatest;
      least_ = Narrow<__int128>::kLeast;
    }
  }

  template <class Reader>
  bool write(const __int128& number, void* out) const {
    __int128 product;
    if (__builtin_mul_overflow(number, factor_, &product) || product < least_ || product > greatest_) return false;
    const auto value = static_cast<Out>(product);
    std::memcpy(out, &value, sizeof(Out));
    return true;
  }

 private:
  __int128 factor_, least_ = 0, greatest_;
};

template <class Reader, class Product>
void write_products(const ChunkIndex& chunks, const Conversion& to, const Product& product, uint8_t* out, Engine& engine,
                    const Job& job) {
  const size_t width = to.type.width;
  std::atomic<uint64_t> first{UINT64_MAX};  // row whose product does not fit
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for_rows(chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
      uint8_t* const here = out + row * width;
      if (product.template write<Reader>(Reader::read(chunk.values, index), here)) return;
      std::memset(here, 0, width);
      if (!valid) return;
      for (uint64_t known = first.load(); row < known && !first.compare_exchange_weak(known, row);) {
      }
    });
  });
  if (first == UINT64_MAX) return;
  const Place place = chunks.at(first);
  throw Error(ErrorCode::key_type, to.column + " can't become " + to.target + ": the value of row " + std::to_string(first) +
                                       ", " + in_words(extreme_of<Reader>(Reader::read(place.chunk->values, place.index))) +
                                       " in its own unit, is too large or too small for that. Cast one of the keys, or leave "
                                       "coalesce unset");
}

}  // namespace

PlainKey converted_integers(const Column& source, const Conversion& to, Engine& engine, const Job& job) {
  PlainKey made = key_like(source, to.type);
  const ChunkIndex chunks(source);
  HostBuffer values = engine.memory->allocate(source.length * to.type.width, "a column of another type");
  auto* const out = values.as<uint8_t>();
  const std::optional<Limbs> factor = limbs_of(to.factor);
  const bool narrow = to.type.width <= 16 && factor && Extreme{false, *factor}.bits() <= 127;
  with_reader(source.type, [&]<class Reader>() {
    const auto write = [&](const auto& product) { write_products<Reader>(chunks, to, product, out, engine, job); };
    if constexpr (!std::is_same_v<Reader, Wide>) {
      if (narrow) {
        const auto times = static_cast<__int128>(static_cast<unsigned __int128>((*factor)[1]) << 64 | (*factor)[0]);
        switch (to.type.width) {
          case 1: return write(NarrowProduct<int8_t>(to.type, times));
          case 2: return write(NarrowProduct<int16_t>(to.type, times));
          case 4: return write(NarrowProduct<int32_t>(to.type, times));
          case 8: return write(NarrowProduct<int64_t>(to.type, times));
          default: return write(NarrowProduct<__int128>(to.type, times));
        }
      }
    }
    write(WideProduct(to.type, factor));
  });
  add_fixed_chunks(made, chunks, std::move(values));
  return made;
}

}  // namespace warpjoin::columns
