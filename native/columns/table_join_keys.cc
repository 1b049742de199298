#include "columns/table_join_keys.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "columns/encode.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin {
namespace {

using Wide = __int128;  // holds any integer value

bool is_one_type(const ColumnType& a, const ColumnType& b) {
  return a.kind == b.kind && a.order == b.order && a.width == b.width;
}

void require_comparable(const ResidentColumn& left, const ResidentColumn& right) {
  const bool ordered = left.type.order != KeyOrder::none && left.type.order != KeyOrder::bytes;
  if (is_one_type(left.type, right.type) ? ordered : is_integer_key(left.type) && is_integer_key(right.type)) return;
  throw Error(ErrorCode::not_supported, "Columns '" + left.name + "' and '" + right.name + "' can't be joined by on devices");
}

/// Bits that tell so many codes apart.
unsigned bits_for(Wide codes) {
  const auto last = static_cast<unsigned __int128>(std::max<Wide>(codes, 1) - 1);
  const auto low = static_cast<uint64_t>(last), high = static_cast<uint64_t>(last >> 64);
  return static_cast<unsigned>(high ? 64 + std::bit_width(high) : std::bit_width(low));
}

/// The values of a pair of columns, from the least one of both.
class PairRange {
 public:
  PairRange(const ColumnType& left_type, const ValueRange& left, const ColumnType& right_type, const ValueRange& right) {
    add(left_type, left);
    add(right_type, right);
  }

  Wide values() const { return end_ - begin_; }
  /// What is taken from the ordered bits of a type for its codes to begin at 0.
  uint64_t base(const ColumnType& type) const { return static_cast<uint64_t>(begin_ - least_value(type)); }

 private:
  void add(const ColumnType& type, const ValueRange& range) {
    if (range.empty()) return;
    const Wide first = least_value(type) + range.least, behind = least_value(type) + range.greatest + 1;
    const bool is_first = begin_ == end_;
    begin_ = is_first ? first : std::min(begin_, first);
    end_ = is_first ? behind : std::max(end_, behind);
  }

  Wide begin_ = 0, end_ = 0;
};

}  // namespace

TableJoinKeys::TableJoinKeys(const ResidentTable& left, const ResidentTable& right, const std::vector<TableKeyPair>& pairs,
                             const Job& job)
    : left_{&left}, right_{&right} {
  if (pairs.empty()) throw Error(ErrorCode::option, "A join needs at least one pair of columns");
  std::vector<size_t> left_columns, right_columns;
  for (const TableKeyPair& pair : pairs) {
    require_comparable(left.columns.at(pair.left), right.columns.at(pair.right));
    left_columns.push_back(pair.left);
    right_columns.push_back(pair.right);
    left_.parts.push_back({pair.left});
    right_.parts.push_back({pair.right});
  }
  if (left.devices != right.devices) {
    throw Error(ErrorCode::not_supported, "Tables of two sets of devices can't be joined on devices");
  }
  const ResidentColumn &l = left_.column(0), &r = right_.column(0);
  are_columns_ = pairs.size() == 1 && is_one_type(l.type, r.type) && are_integer_keys(l.type) && !l.nullable && !r.nullable;
  if (are_columns_) {
    bits_ = 8 * l.type.width;
  } else {
    lay_out(pairs, value_ranges(left, left_columns, job), value_ranges(right, right_columns, job));
  }
}

std::vector<TupleView> TableJoinKeys::chunks(const Side& side, const std::optional<size_t>& payload, std::vector<Buffer>& made,
                                             const Job& job) const {
  const ResidentTable& table = *side.table;
  if (are_columns_) return tuples_of(table, keys_in(table, side.parts[0].column), payload);
  const auto make = [&](size_t device, void* keys, Stream& stream) {
    const uint64_t begin = std::accumulate(table.rows.begin(), table.rows.begin() + device, uint64_t{0});
    std::vector<KeyPart> parts;
    for (const Part& part : side.parts) {
      if (part.field.bits == 0 && !part.field.distinct_nulls) continue;
      KeyField& field = parts.emplace_back(KeyPart{stretch_of(table, part.column, device), part.field}).field;
      if (field.distinct_from) field.distinct_from += begin;
    }
    table.devices[device]->primitives().encode_keys(parts, table.rows[device], key_bytes(), keys, job, stream);
  };
  return tuples_of(table, make_keys(table, bits_, made, job, make), payload);
}

// The fields of all pairs, the first one lowest. Then the keys of the left rows that have a null which equals nothing, and those
// of the right ones.
void TableJoinKeys::lay_out(const std::vector<TableKeyPair>& pairs, const std::vector<ValueRange>& left,
                            const std::vector<ValueRange>& right) {
  Wide keys = 1;  // behind all that fields make
  bool own_left = false, own_right = false;
  for (size_t p = 0; p < pairs.size(); ++p) {
    const bool equal = pairs[p].nulls_equal, nulls = left[p].nulls || right[p].nulls;
    const PairRange range(left_.column(p).type, left[p], right_.column(p).type, right[p]);
    const Wide codes = range.values() + (equal && nulls);
    const unsigned bits = bits_for(codes);
    for (Side* side : {&left_, &right_}) {
      const ValueRange& own = side == &left_ ? left[p] : right[p];
      Part& part = side->parts[p];
      KeyField& field = part.field;
      field.base = range.base(side->column(p).type);
      field.bits = bits;
      field.shift = bits ? bits_ : 0;
      field.nulls = equal && left[p].nulls && right[p].nulls;  // of rows that match
      field.null_code = equal ? static_cast<uint64_t>(range.values()) : 0;
      field.distinct_nulls = !equal && own.nulls;
      part.given = !own.canonicalized;
      (side == &left_ ? own_left : own_right) |= field.distinct_nulls;
    }
    if (bits && bits_ + bits <= kMostKeyBits) keys = codes << bits_;
    bits_ += bits;
  }
  if (bits_ > kMostKeyBits) return;
  for (Side* side : {&left_, &right_}) {
    if (!(side == &left_ ? own_left : own_right)) continue;
    for (Part& part : side->parts) part.field.distinct_from = static_cast<uint64_t>(keys);
    keys += side->table->size();
  }
  bits_ = bits_for(keys);
}

}  // namespace warpjoin
