// Tables that stay on the devices, and joins and sorts of them there.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "join/join_rows.h"
#include "join/table_join.h"
#include "sort/table_sort.h"

namespace warpjoin::binding {
namespace {

MakeResult resident_to_handle(Engine& engine, ResidentTable table) {
  auto state =
      std::make_shared<ResidentState>(ResidentState{{engine.weak_from_this()}, engine.shared_from_this(), std::move(table)});
  return [state = std::move(state)](Napi::Env env) -> Napi::Value {
    Napi::Object handle = to_handle(env, state);
    const ResidentTable& made = state->table;
    handle.Set("rows", number(env, made.size()));
    handle.Set("spreadEvenly", Napi::Boolean::New(env, spread_evenly(made)));
    Napi::Array nullable = Napi::Array::New(env, made.columns.size());
    for (uint32_t i = 0; i < made.columns.size(); ++i) nullable.Set(i, Napi::Boolean::New(env, made.columns[i].nullable));
    handle.Set("nullable", nullable);
    handle.Set("skew", made.skew);
    handle.Set("splitRows", number(env, made.split_rows));
    return handle;
  };
}

size_t required_column(const ResidentTable& table, const Napi::Value& index, const char* what) {
  const uint64_t column = to_count(index, what);
  if (column >= table.columns.size())
    throw Napi::RangeError::New(index.Env(), std::string(what) + " is not a column of the table");
  return column;
}

std::optional<size_t> optional_column(const ResidentTable& table, const Napi::Value& index, const char* what) {
  if (index.IsNull()) return std::nullopt;
  return required_column(table, index, what);
}

std::vector<size_t> table_columns(const ResidentTable& table, const Napi::Value& indices, const char* what) {
  std::vector<size_t> columns;
  for (const uint64_t column : to_counts(indices, what)) {
    if (column >= table.columns.size())
      throw Napi::RangeError::New(indices.Env(), std::string(what) + " is not a column of the table");
    columns.push_back(column);
  }
  return columns;
}

/// Columns that a table on devices is joined by, and what holds it.
struct HeldColumns {
  std::shared_ptr<ResidentState> held;
  std::vector<size_t> columns;

  HeldColumns(const EngineWrap& engine, const Napi::Value& value) {
    const Napi::Object object = to_object(value, "table");
    held = engine.own<ResidentState>(object.Get("table"));
    columns = table_columns(held->table, object.Get("keys"), "table.keys");
  }
};

RowWindow to_window(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "window");
  return {to_count(object.Get("first"), "window.first"), to_count(object.Get("rows"), "window.rows")};
}

/// Tables to join on devices, and what holds them.
struct HeldTables {
  std::shared_ptr<TableJoinKeysState> held;
  KeyedTables keyed;

  HeldTables(const EngineWrap& engine, const Napi::Value& value) {
    const Napi::Object object = to_object(value, "tables");
    held = engine.own<TableJoinKeysState>(object.Get("keys"));
    const Napi::Object payload = to_object(object.Get("payload"), "tables.payload");
    keyed = {&held->keys, optional_column(held->left->table, payload.Get("left"), "tables.payload.left"),
             optional_column(held->right->table, payload.Get("right"), "tables.payload.right")};
    for (const auto& [side, column] : {std::pair(&held->left, &keyed.left_payload), {&held->right, &keyed.right_payload}}) {
      if (*column) check_payload((*side)->table.columns[**column]);
    }
  }
};

std::vector<TableSortColumn> to_sort_columns(const ResidentTable& table, const Napi::Value& value) {
  if (!value.IsArray()) throw Napi::TypeError::New(value.Env(), "Expected an array for by");
  const auto array = value.As<Napi::Array>();
  std::vector<TableSortColumn> by;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object spec = to_object(array.Get(i), "by");
    by.push_back({required_column(table, spec.Get("column"), "by.column"), to_bool(spec.Get("descending"), "by.descending"),
                  to_bool(spec.Get("nullsLast"), "by.nullsLast")});
  }
  return by;
}

/// Columns of what a join's rows carry: checked, for the join gathers by row numbers without a look at them.
std::vector<ResidentOrigin> to_origins(const Napi::Value& value, const HeldTables& tables, const JoinRequest& request) {
  if (!value.IsArray()) throw Napi::TypeError::New(value.Env(), "Expected an array for columns");
  const auto array = value.As<Napi::Array>();
  std::vector<ResidentOrigin> origins;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object origin = to_object(array.Get(i), "columns");
    const std::string from = to_string(origin.Get("from"), "columns.from");
    const auto refuse = [&](const char* what) {
      throw Napi::TypeError::New(value.Env(), "A column is made of " + std::string(what) + " that the rows do not carry");
    };
    if (from == "keys") {
      if (!request.want_keys || request.count_only) refuse("keys");
      const size_t pair = to_count(origin.Get("pair"), "columns.pair");
      if (pair >= tables.held->keys.left().parts.size())
        throw Napi::RangeError::New(value.Env(), "columns.pair is not a pair of the keys");
      origins.push_back({ResidentOrigin::From::keys, std::nullopt, pair});
      continue;
    }
    const bool of_left = to_side_is_left(origin.Get("from"));
    const ResidentTable& table = (of_left ? tables.held->left : tables.held->right)->table;
    const auto column = optional_column(table, origin.Get("column"), "columns.column");
    const bool carries_payload = (of_left ? tables.keyed.left_payload : tables.keyed.right_payload).has_value();
    if (!(of_left ? wants_left(request) : wants_right(request))) refuse("values");
    if (column && carries_payload) refuse("row numbers");
    if (!column && !carries_payload) refuse("a payload");
    origins.push_back({of_left ? ResidentOrigin::From::left : ResidentOrigin::From::right, column});
  }
  return origins;
}

/// null: any order.
std::optional<TableRowOrder> to_row_order(const Napi::Value& value) {
  if (value.IsNull()) return std::nullopt;
  const Napi::Object order = to_object(value, "order");
  return TableRowOrder{to_side_is_left(order.Get("side")), to_window(order.Get("window"))};
}

}  // namespace

Napi::Value EngineWrap::resident_bytes(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[0]);
  const std::vector<const Column*> columns = columns_at(*relation, info[1], "columns");
  check_for_devices(info.Env(), columns);
  return number(info.Env(),
                warpjoin::resident_table_bytes(columns, relation->rows, engine().select(to_devices(info[2], engine()))));
}

Napi::Value EngineWrap::load_table(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  const std::vector<const Column*> columns = columns_at(*relation, info[2], "columns");
  return enqueue(info, {relation},
                 [columns, rows = relation->rows, ordinals = to_devices(info[3], engine())](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "load");
                   return resident_to_handle(engine, warpjoin::load_table(engine, engine.select(ordinals), columns, rows, job));
                 });
}

Napi::Value EngineWrap::bring_home(const Napi::CallbackInfo& info) {
  const auto resident = own<ResidentState>(info[1]);
  return enqueue(
      info, {resident},
      [table = &resident->table, columns = table_columns(resident->table, info[2], "columns")](Engine& engine, Job& job) {
        const PhaseTimer timer(job, "bring home");
        // They become a table, also in a call that gives typed arrays.
        return columns_result(warpjoin::bring_home(engine, *table, columns, job),
                              std::min(job.max_buffer_bytes(), kMaxBufferBytes));
      });
}

Napi::Value EngineWrap::table_join_keys(const Napi::CallbackInfo& info) {
  const HeldColumns left(*this, info[1]), right(*this, info[2]);
  const std::vector<bool> nulls_equal = to_bools(info[3], "nullsEqual");
  if (left.columns.empty() || right.columns.size() != left.columns.size() || nulls_equal.size() != left.columns.size())
    throw Napi::RangeError::New(info.Env(), "Expected as many columns of both tables, at least one, and nullsEqual for each");
  std::vector<TableKeyPair> pairs;
  for (size_t i = 0; i < nulls_equal.size(); ++i) pairs.push_back({left.columns[i], right.columns[i], nulls_equal[i]});
  return enqueue(
      info, {left.held, right.held}, [left = left.held, right = right.held, pairs](Engine& engine, Job& job) -> MakeResult {
        const PhaseTimer timer(job, "encode");
        auto state = std::make_shared<TableJoinKeysState>(
            TableJoinKeysState{{engine.weak_from_this()}, left, right, TableJoinKeys(left->table, right->table, pairs, job)});
        return [state = std::move(state)](Napi::Env env) -> Napi::Value {
          const TableJoinKeys& keys = state->keys;
          Napi::Object handle = to_handle(env, state);
          handle.Set("bits", number(env, keys.bits()));
          handle.Set("mostBits", number(env, kMostKeyBits));
          handle.Set("areColumns", Napi::Boolean::New(env, keys.are_columns()));
          const std::vector<TableJoinKeys::Part>& parts = keys.left().parts;
          Napi::Array gives = Napi::Array::New(env, parts.size());
          for (uint32_t i = 0; i < parts.size(); ++i) gives.Set(i, Napi::Boolean::New(env, parts[i].given));
          handle.Set("giveLeft", gives);
          return handle;
        };
      });
}

Napi::Value EngineWrap::join_tables(const Napi::CallbackInfo& info) {
  const HeldTables tables(*this, info[1]);
  const JoinRequest request = to_join_request(info[2]);
  return enqueue(info, {tables.held},
                 [tables = tables.keyed, request, origins = to_origins(info[3], tables, request), order = to_row_order(info[4])](
                     Engine& engine, Job& job) {
                   return resident_to_handle(engine, warpjoin::join_tables(engine, tables, request, origins, job, order));
                 });
}

Napi::Value EngineWrap::join_tables_home(const Napi::CallbackInfo& info) {
  const HeldTables tables(*this, info[1]);
  const auto values_of = [](const ResidentState& resident, const std::optional<size_t>& payload) -> RowNumbersBelow {
    if (payload) return {};
    return {resident.table.size()};
  };
  return enqueue(
      info, {tables.held},
      [tables = tables.keyed, request = to_join_request(info[2]), left = values_of(*tables.held->left, tables.keyed.left_payload),
       right = values_of(*tables.held->right, tables.keyed.right_payload)](Engine& engine, Job& job) {
        return rows_to_handle(engine, left, right, warpjoin::join_tables_home(engine, tables, request, job));
      });
}

Napi::Value EngineWrap::join_tables_device_bytes(const Napi::CallbackInfo& info) {
  const HeldTables tables(*this, info[0]);
  return number(info.Env(), warpjoin::join_tables_device_bytes(engine(), tables.keyed, to_join_request(info[1])));
}

Napi::Value EngineWrap::table_sort_keys(const Napi::CallbackInfo& info) {
  const auto resident = own<ResidentState>(info[1]);
  return enqueue(info, {resident},
                 [resident, by = to_sort_columns(resident->table, info[2]),
                  payload = optional_column(resident->table, info[3], "payload")](Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "encode");
                   auto state = std::make_shared<TableSortKeysState>(
                       TableSortKeysState{{engine.weak_from_this()}, resident, TableSortKeys(resident->table, by, payload, job)});
                   return [state = std::move(state)](Napi::Env env) -> Napi::Value {
                     const TableSortKeys& keys = state->keys;
                     Napi::Object handle = to_handle(env, state);
                     handle.Set("bits", number(env, keys.bits()));
                     handle.Set("mostBits", number(env, kMostKeyBits));
                     handle.Set("keyBytes", number(env, keys.layout().key_bytes));
                     handle.Set("giveColumns", Napi::Boolean::New(env, keys.give_columns()));
                     handle.Set("carriesPayload", Napi::Boolean::New(env, keys.payload().has_value()));
                     return handle;
                   };
                 });
}

Napi::Value EngineWrap::sort_table(const Napi::CallbackInfo& info) {
  const auto state = own<TableSortKeysState>(info[1]);
  return enqueue(info, {state},
                 [keys = &state->keys, columns = table_columns(state->resident->table, info[2], "columns"),
                  window = to_window(info[3])](Engine& engine, Job& job) {
                   return resident_to_handle(engine, warpjoin::sort_table(engine, *keys, columns, job, window));
                 });
}

Napi::Value EngineWrap::sort_table_device_bytes(const Napi::CallbackInfo& info) {
  const auto state = own<TableSortKeysState>(info[0]);
  const std::vector<size_t> columns = table_columns(state->resident->table, info[1], "columns");
  return number(info.Env(), warpjoin::sort_table_device_bytes(state->keys, columns, to_window(info[2])));
}

}  // namespace warpjoin::binding
