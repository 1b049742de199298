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

}  // namespace

TableJoinKeys::TableJoinKeys(const ResidentTable& left, size_t left_column, const ResidentTable& right, size_t right_column,
                             const Job& job)
    : left_{&left, left_column}, right_{&right, right_column} {
  const ResidentColumn &l = left_.key(), &r = right_.key();
  const bool same = is_one_type(l.type, r.type);
  const bool ordered = l.type.order != KeyOrder::none && l.type.order != KeyOrder::bytes;
  if (!(same && ordered) && !(is_integer_key(l.type) && is_integer_key(r.type))) {
    throw Error(ErrorCode::not_supported, "Columns '" + l.name + "' and '" + r.name + "' can't be joined by on devices");
  }
  if (left.devices != right.devices) {
    throw Error(ErrorCode::not_supported, "Tables of two sets of devices can't be joined on devices");
  }
  are_columns_ = same && are_integer_keys(l.type) && !l.nullable && !r.nullable;
  if (are_columns_) {
    bits_ = 8 * l.type.width;
  } else {
    lay_out(value_ranges(left, {left_column}, job)[0], value_ranges(right, {right_column}, job)[0]);
  }
}

std::vector<TupleView> TableJoinKeys::chunks(const Side& side, const std::optional<size_t>& payload, std::vector<Buffer>& made,
                                             const Job& job) const {
  const ResidentTable& table = *side.table;
  if (are_columns_) return tuples_of(table, keys_in(table, side.column), payload);
  const auto make = [&](size_t device, void* keys, Stream& stream) {
    KeyField field = side.field;
    field.null_code += std::accumulate(table.rows.begin(), table.rows.begin() + device, uint64_t{0});
    table.devices[device]->primitives().encode_field(stretch_of(table, side.column, device), field, true, key_bytes(), keys, job,
                                                     stream);
  };
  return tuples_of(table, make_keys(table, bits_, made, job, make), payload);
}

// Values have the codes from 0 on, then come those of the left nulls, then those of the right ones.
void TableJoinKeys::lay_out(const ValueRange& left, const ValueRange& right) {
  struct Found {
    Side* side;
    const ValueRange& range;
    Wide origin;  // what ordered bits of 0 stand for
  };
  const Found both[] = {{&left_, left, least_value(left_.key().type)}, {&right_, right, least_value(right_.key().type)}};
  Wide begin = 0, end = 0;
  for (const auto& [side, range, origin] : both) {
    if (range.empty()) continue;
    const Wide first = origin + range.least, behind = origin + range.greatest + 1;
    const bool is_first = begin == end;
    begin = is_first ? first : std::min(begin, first);
    end = is_first ? behind : std::max(end, behind);
  }
  Wide codes = end - begin;
  for (const auto& [side, range, origin] : both) {
    side->field.base = static_cast<uint64_t>(begin - origin);
    side->field.null_code = static_cast<uint64_t>(codes);
    side->field.distinct_nulls = true;
    side->given = !range.canonicalized;
    if (range.nulls) codes += side->table->size();
  }
  const auto last = static_cast<unsigned __int128>(std::max<Wide>(codes, 1) - 1);
  const auto low = static_cast<uint64_t>(last), high = static_cast<uint64_t>(last >> 64);
  bits_ = static_cast<unsigned>(high ? 64 + std::bit_width(high) : std::bit_width(low));
  for (const Found& found : both) found.side->field.bits = bits_;
}

}  // namespace warpjoin
