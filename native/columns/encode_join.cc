#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "columns/composite_keys.h"
#include "columns/encoded_sort_keys.h"
#include "columns/text_codes.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin {
namespace columns {
namespace {

constexpr uint64_t kExactTextBytes = 7;  // texts up to this size are their own keys, with their size in the top byte

/// What both sides' keys become.
struct KeyForm {
  enum class Kind : uint8_t { number, boolean, short_text, text } kind;
  uint8_t key_bytes;
};

/// One side while it is encoded.
struct Side {
  const Column& column;
  ChunkIndex chunks;
  FixedScan fixed;
  TextScan text;
  bool scanned = false;
  uint64_t least_allowed = 0, greatest_allowed = ~uint64_t{0};  ///< ordered bits of values that the other type holds

  explicit Side(const Column& column) : column(column), chunks(column) {}
  bool is_text() const { return chunks.type().variable_width(); }
  uint64_t nulls() const { return is_text() ? text.nulls : fixed.nulls; }
  bool all_in_range() const {
    return is_text() || fixed.empty() || (fixed.least >= least_allowed && fixed.greatest <= greatest_allowed);
  }
};

void require_comparable(const Column& left, const Column& right) {
  require_key_type(left);
  require_key_type(right);
  const ColumnType &a = left.type, &b = right.type;
  if (is_text_key(a) == is_text_key(b) && is_boolean_key(a) == is_boolean_key(b)) {
    if (is_text_key(a) || is_boolean_key(a) || (is_integer_key(a) && is_integer_key(b)) || a.order == b.order) return;
  }
  throw Error(ErrorCode::key_type,
              "Columns '" + left.name + "' and '" + right.name + "' can't be compared: their types order differently");
}

/// Restricts a side's integers to those that the other side's type can hold.
void restrict_to(Side& side, const ColumnType& other) {
  const ColumnType& own = side.chunks.type();
  if (!is_integer_key(own)) return;
  using Wide = __int128;
  const auto greatest_of = [](const ColumnType& type) {
    return (Wide{1} << (type.order == KeyOrder::signed_integer ? 8 * type.width - 1 : 8 * type.width)) - 1;
  };
  // Ordered bits count from the least value of the type.
  side.least_allowed = static_cast<uint64_t>(std::max(least_value(own), least_value(other)) - least_value(own));
  side.greatest_allowed = static_cast<uint64_t>(std::min(greatest_of(own), greatest_of(other)) - least_value(own));
}

/// The canonical key of a value, widened exactly.
template <class Key, class Target>
Target key_of(typename Key::Raw raw) {
  using Raw = typename Key::Raw;
  if constexpr (Key::kOrder == KeyOrder::signed_integer) {
    return static_cast<Target>(static_cast<std::make_signed_t<Target>>(static_cast<std::make_signed_t<Raw>>(raw)));
  } else if constexpr (Key::kOrder == KeyOrder::floating && sizeof(Raw) < sizeof(Target)) {
    uint32_t narrow;
    if constexpr (sizeof(Raw) == 2) {
      narrow = widened_half(Key::canonical(raw));
    } else {
      narrow = Key::canonical(raw);
    }
    if constexpr (sizeof(Target) == 4) {
      return narrow;
    } else {
      using Double = KeyType<uint64_t, KeyOrder::floating>;
      return Double::canonical(std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(narrow))));
    }
  } else {
    return static_cast<Target>(Key::canonical(raw));
  }
}

/// Binds a side's columns to functions: key(chunk, index), and whether a valid value is allowed.
template <class Target, class Body>
void with_keys(const Side& side, KeyForm form, Body&& body) {
  const auto allow_all = [](const ColumnChunk&, uint64_t) { return true; };
  const auto with_text = [&]<class Offset>() {
    body(
        [](const ColumnChunk& chunk, uint64_t index) {
          const Text text = text_at<Offset>(chunk, index);
          constexpr unsigned kBits = 8 * sizeof(Target) - 8;
          const uint64_t bytes = leading_bytes(text.data, text.size, text.end) >> (64 - kBits);
          return static_cast<Target>(text.size << kBits | bytes);
        },
        allow_all);
  };
  switch (form.kind) {
    case KeyForm::Kind::text: return;  // text_codes()
    case KeyForm::Kind::short_text:
      if (side.chunks.type().kind == ColumnKind::utf8) {
        with_text.template operator()<int32_t>();
      } else {
        with_text.template operator()<int64_t>();
      }
      return;
    case KeyForm::Kind::boolean:
      body([](const ColumnChunk& chunk,
              uint64_t index) { return static_cast<Target>(bit_at(chunk.values, chunk.bit_offset + index)); },
           allow_all);
      return;
    case KeyForm::Kind::number:
      with_key_type(side.chunks.type(), [&]<class Key>() {
        if constexpr (sizeof(typename Key::Raw) <= sizeof(Target)) {
          using Raw = typename Key::Raw;
          body([](const ColumnChunk& chunk, uint64_t index) { return key_of<Key, Target>(load<Raw>(chunk.values, index)); },
               [least = side.least_allowed, greatest = side.greatest_allowed](const ColumnChunk& chunk, uint64_t index) {
                 const Raw ordered = Key::ordered(load<Raw>(chunk.values, index));
                 return ordered >= least && ordered <= greatest;
               });
        }
      });
      return;
  }
}

template <class Target>
struct Bits {
  std::atomic<uint64_t> any{0}, all{~uint64_t{0}};
  void add(const Target* keys, uint64_t size) {
    if (size == 0) return;
    Target any_here = 0, all_here = static_cast<Target>(~Target{0});
    for (uint64_t i = 0; i < size; ++i) {
      any_here |= keys[i];
      all_here &= keys[i];
    }
    any.fetch_or(any_here, std::memory_order_relaxed);
    all.fetch_and(all_here, std::memory_order_relaxed);
  }
  uint64_t varying() const { return any.load() & ~all.load(); }
};

/// All rows: keys alone.
template <class Target, class Key>
void write_all(const Side& side, Key&& key, JoinSide& out, Engine& engine, const Job& job) {
  const uint64_t rows = side.chunks.rows();
  out.tuples.keys = engine.memory->allocate(rows * sizeof(Target), "join keys");
  auto* const keys = out.tuples.keys.as<Target>();
  Bits<Target> bits;
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    side.chunks.for_pieces(begin, end, [&](const ColumnChunk& borrowed, uint64_t first, uint64_t count, uint64_t row) {
      const ColumnChunk chunk = borrowed;  // a local copy: its pointers stay in registers
      constexpr uint64_t kAtOnce = 4096;
      for (uint64_t done = 0; done < count; done += kAtOnce) {
        job.check();  // texts may be long
        const uint64_t batch = std::min(kAtOnce, count - done);
        Target* __restrict const batch_keys = keys + row + done;
        for (uint64_t i = 0; i < batch; ++i) batch_keys[i] = key(chunk, first + done + i);
        bits.add(batch_keys, batch);
      }
    });
  });
  out.tuples.view.size = rows;
  if (rows) out.tuples.varying_bits = bits.varying();
}

/// The rows that can match with their numbers, and the numbers of those that can't. The second pass over validity and values
/// writes no more rows than the first one counted: they may have changed.
template <class Target, class Row, class Key, class Allowed>
void write_matchable(const Side& side, Key&& key, Allowed&& allowed, JoinSide& out, Engine& engine, const Job& job) {
  const uint64_t rows = side.chunks.rows();
  const bool check_range = !side.all_in_range();
  // Calls body(chunk, first, row, rows, wanted) for groups of rows, `wanted` having a bit for each that can match.
  const auto for_wanted = [&](uint64_t begin, uint64_t end, auto&& body) {
    side.chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t wanted) {
        if (check_range) {
          uint64_t in_range = 0;
          for (unsigned i = 0; i < group; ++i) in_range |= uint64_t{allowed(chunk, index + i)} << i;
          wanted &= in_range;
        }
        body(chunk, index, row + (index - first), group, wanted);
      });
    });
  };
  std::vector<uint64_t> starts(block_count(rows) + 1, 0);
  for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t found = 0;
    for_wanted(begin, end, [&](const ColumnChunk&, uint64_t, uint64_t, unsigned, uint64_t wanted) {
      found += static_cast<unsigned>(std::popcount(wanted));
    });
    starts[block + 1] = found;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  const uint64_t size = starts.back();
  out.excluded_rows = rows - size;
  out.tuples.keys = engine.memory->allocate(size * sizeof(Target), "join keys");
  out.tuples.values = engine.memory->allocate(size * sizeof(Row), "join row numbers");
  out.excluded = engine.memory->allocate(out.excluded_rows * sizeof(Row), "rows that can't match");
  Bits<Target> bits;
  for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    Target* keys = out.tuples.keys.as<Target>() + starts[block];
    const Target* const keys_end = out.tuples.keys.as<Target>() + starts[block + 1];
    uint64_t excluded_left = end - begin - (starts[block + 1] - starts[block]);
    Row* numbers = out.tuples.values.as<Row>() + starts[block];
    Row* excluded = out.excluded.as<Row>() + (begin - starts[block]);
    for_wanted(begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, unsigned group, uint64_t wanted) {
      const auto found = static_cast<unsigned>(std::popcount(wanted));
      if (found > static_cast<uint64_t>(keys_end - keys) || group - found > excluded_left) {
        throw InputChanged("Column '" + side.column.name + "'");
      }
      excluded_left -= group - found;
      for_set_bits(wanted, [&](unsigned bit) {
        *keys++ = key(chunk, index + bit);
        *numbers++ = static_cast<Row>(row + bit);
      });
      for_set_bits(~wanted & low_bits(group), [&](unsigned bit) { *excluded++ = static_cast<Row>(row + bit); });
    });
    bits.add(out.tuples.keys.as<Target>() + starts[block], starts[block + 1] - starts[block]);
  });
  out.tuples.view.size = size;
  out.tuples.view.values = out.tuples.values.data();
  if (size) out.tuples.varying_bits = bits.varying();
}

template <class Target>
JoinSide encode_side(const Side& side, KeyForm form, const Column* payload, Engine& engine, const Job& job) {
  JoinSide out;
  out.rows = side.chunks.rows();
  EncodedTuples& tuples = out.tuples;
  tuples.layout = {sizeof(Target), row_bytes_for(out.rows)};
  const bool all = side.nulls() == 0 && side.all_in_range();
  const bool raw = form.kind == KeyForm::Kind::number && side.chunks.type().width == sizeof(Target) && !side.fixed.canonicalized;
  if (all && raw) {
    if (aliasable(side.chunks, sizeof(Target))) {
      tuples.view.keys = side.chunks.chunks()[0].values;
      tuples.borrowed_from = &side.column;
    } else {
      tuples.keys = in_one_piece(side.chunks, "join keys", engine, job);
      tuples.view.keys = tuples.keys.data();
    }
    tuples.view.size = out.rows;
    out.scanned = side.scanned;
    if (side.scanned) tuples.varying_bits = side.fixed.varying_bits();
  } else {
    with_keys<Target>(side, form, [&](auto&& key, auto&& allowed) {
      if (all) {
        write_all<Target>(side, key, out, engine, job);
      } else if (tuples.layout.value_bytes == 4) {
        write_matchable<Target, uint32_t>(side, key, allowed, out, engine, job);
      } else {
        write_matchable<Target, uint64_t>(side, key, allowed, out, engine, job);
      }
    });
    tuples.view.keys = tuples.keys.data();
  }
  if (all) out.carries_payload = carry_payload(tuples, payload, engine, job);
  return out;
}

/// Integers that are all there, and are joined with integers of their own type, serve as they are.
bool serves_unread(const Side& side, const ColumnType& other, Engine& engine, const Job& job) {
  const ColumnType& own = side.chunks.type();
  return are_integer_keys(own) && own.order == other.order && own.width == other.width &&
         count_nulls(side.chunks, engine, job) == 0;
}

KeyForm scan_sides(Side& left, Side& right, Engine& engine, const Job& job) {
  for (Side* side : {&left, &right}) {
    side->scanned = !serves_unread(*side, (side == &left ? right : left).chunks.type(), engine, job);
    if (!side->scanned) continue;
    if (side->is_text()) {
      side->text = scan_text(side->chunks, false, engine, job);
    } else {
      side->fixed = scan_fixed(side->chunks, engine, job);
    }
  }
  if (left.is_text()) {
    const uint64_t longest = std::max(left.text.greatest_size, right.text.greatest_size);
    if (longest > kExactTextBytes) return {KeyForm::Kind::text, 0};
    return {KeyForm::Kind::short_text, static_cast<uint8_t>(longest > 3 ? 8 : 4)};
  }
  if (is_boolean_key(left.chunks.type())) return {KeyForm::Kind::boolean, 4};
  restrict_to(left, right.chunks.type());
  restrict_to(right, left.chunks.type());
  const bool wide = left.chunks.type().width == 8 || right.chunks.type().width == 8;
  return {KeyForm::Kind::number, static_cast<uint8_t>(wide ? 8 : 4)};
}

}  // namespace
}  // namespace columns

uint64_t varying_bits(const JoinSide& side, Engine& engine, const Job& job) {
  using namespace columns;
  const EncodedTuples& tuples = side.tuples;
  if (side.scanned) return tuples.varying_bits;
  const auto scan = [&]<class Key>(const Key* keys) {
    Bits<Key> bits;
    for_row_blocks(engine, tuples.view.size, job,
                   [&](uint64_t, uint64_t begin, uint64_t end) { bits.add(keys + begin, end - begin); });
    return tuples.view.size ? bits.varying() : 0;
  };
  return tuples.layout.key_bytes == 4 ? scan(static_cast<const uint32_t*>(tuples.view.keys))
                                      : scan(static_cast<const uint64_t*>(tuples.view.keys));
}

void carry_payload(JoinSide& side, const Column* payload, Engine& engine, const Job& job) {
  if (side.excluded_rows) return;
  side.tuples.view.values = nullptr;
  side.tuples.values = HostBuffer();
  side.carries_payload = columns::carry_payload(side.tuples, payload, engine, job);
}

JoinKeys encode_join_keys(std::span<const JoinKeyPair> pairs, const Column* left_payload, const Column* right_payload,
                          Engine& engine, const Job& job) {
  using namespace columns;
  const JoinKeyPair& pair = pairs[0];
  if (pairs.size() > 1 || !is_plain(pair, engine, job)) {
    JoinKeys keys = encode_composite_keys(pairs, false, engine, job);
    carry_payload(keys.left, left_payload, engine, job);
    carry_payload(keys.right, right_payload, engine, job);
    return keys;
  }
  return encode_join_keys(*pair.left, *pair.right, left_payload, right_payload, engine, job);
}

JoinSide encode_own_keys(std::span<const Column* const> own_columns, bool nulls_equal, Engine& engine, const Job& job) {
  std::vector<JoinKeyPair> pairs;
  for (const Column* column : own_columns) pairs.push_back({.left = column, .right = column, .nulls_equal = nulls_equal});
  return columns::encode_composite_keys(pairs, true, engine, job).left;
}

JoinKeys encode_join_keys(const Column& left, const Column& right, const Column* left_payload, const Column* right_payload,
                          Engine& engine, const Job& job) {
  using namespace columns;
  require_comparable(left, right);
  Side left_side(left), right_side(right);
  const KeyForm form = scan_sides(left_side, right_side, engine, job);
  JoinKeys keys;
  keys.keys_are_left_values =
      form.kind == KeyForm::Kind::number && left.type.width == form.key_bytes && !left_side.fixed.canonicalized;
  if (form.kind == KeyForm::Kind::text) {
    keys.made = JoinKeys::Made::code;
    take_codes(text_codes(left_side.chunks, right_side.chunks, engine, job), left.length, right.length, keys.left, keys.right,
               engine, job);
    carry_payload(keys.left, left_payload, engine, job);
    carry_payload(keys.right, right_payload, engine, job);
    return keys;
  }
  const auto encode = [&](const Side& side, const Column* payload) {
    return form.key_bytes == 4 ? encode_side<uint32_t>(side, form, payload, engine, job)
                               : encode_side<uint64_t>(side, form, payload, engine, job);
  };
  keys.left = encode(left_side, left_payload);
  keys.right = encode(right_side, right_payload);
  return keys;
}

}  // namespace warpjoin
