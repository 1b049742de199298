#include "columns/convert.h"

#include <string>

#include "columns/plain_parts.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

[[noreturn]] void refuse(const Conversion& to) {
  throw Error(ErrorCode::key_type, to.column + " can't become " + to.target + ": its values are of another kind");
}

PlainKey as_it_is(const Column& source) {
  PlainKey made;
  made.column = source;
  made.is_source = true;
  return made;
}

bool is_fixed(const ColumnType& type, std::initializer_list<KeyOrder> orders) {
  return type.kind == ColumnKind::fixed && std::find(orders.begin(), orders.end(), type.order) != orders.end();
}

/// Whether the values are as they have to be.
bool is_that(const Column& source, const Conversion& to) {
  const ColumnType& type = source.type;
  return !source.dictionary && to.factor.one() && type.kind == to.type.kind && type.order == to.type.order &&
         type.width == to.type.width;
}

PlainKey as_texts(const Column& source, const Conversion& to, Engine& engine, const Job& job) {
  const bool large = to.type.kind == ColumnKind::large_utf8;
  const auto texts = [&]() -> PlainKey {
    switch (source.type.kind) {
      case ColumnKind::fixed: return binary_as_text(source, engine);
      case ColumnKind::view: return large ? view_as_text(source, engine, job) : view_as_small_text(source, engine, job);
      case ColumnKind::utf8: return as_it_is(source);
      default: refuse(to);
    }
  };
  return large ? with_large_offsets(texts(), engine, job) : texts();
}

/// A column whose chunks may refer to those of `flat`.
PlainKey holding(PlainKey made, PlainKey flat) {
  std::move(flat.owned.begin(), flat.owned.end(), std::back_inserter(made.owned));
  made.is_source = false;
  return made;
}

/// Texts are converted once a value of the dictionary. Numbers are once a row: a value that no row has can't be refused.
PlainKey without_dictionary(const Column& source, const Conversion& to, Engine& engine, const Job& job) {
  const Column& values = *source.dictionary;
  if (to.type.order == KeyOrder::bytes) return decoded(source, converted(values, to, engine, job).column, engine, job);
  const Column* leaf = &values;
  while (leaf->dictionary) leaf = leaf->dictionary.get();
  const PlainKey entries = converted(values, {leaf->type, {}, to.column, to.target}, engine, job);
  PlainKey flat = decoded(source, entries.column, engine, job);
  PlainKey made = converted(flat.column, to, engine, job);
  return holding(std::move(made), std::move(flat));
}

}  // namespace

PlainKey converted(const Column& source, const Conversion& to, Engine& engine, const Job& job) {
  if (source.dictionary) return without_dictionary(source, to, engine, job);
  if (is_that(source, to)) return as_it_is(source);
  const auto integers = {KeyOrder::signed_integer, KeyOrder::unsigned_integer};
  if (is_fixed(source.type, integers) && is_fixed(to.type, integers)) return converted_integers(source, to, engine, job);
  const auto floats = {KeyOrder::floating};
  if (is_fixed(source.type, floats) && is_fixed(to.type, floats) && source.type.width < to.type.width) {
    return wider_floats(source, to.type, engine, job);
  }
  if (source.type.order == KeyOrder::bytes && is_text_key(to.type)) return as_texts(source, to, engine, job);
  refuse(to);
}

}  // namespace warpjoin::columns
