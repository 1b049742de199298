// Tables that stay on the devices, and joins and sorts of them there.
#include <algorithm>
#include <optional>

#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "join/table_join.h"
#include "sort/table_sort.h"

namespace warpjoin::binding {
namespace {

MakeResult resident_to_handle(std::shared_ptr<Engine> engine, ResidentTable table) {
  auto state = std::make_shared<ResidentState>(ResidentState{std::move(engine), std::move(table)});
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

/// A column that a table on devices is joined by, and what holds it.
struct HeldColumn {
  std::shared_ptr<ResidentState> held;
  size_t column = 0;

  explicit HeldColumn(const Napi::Value& value) {
    const Napi::Object object = to_object(value, "table");
    held = from_handle<ResidentState>(object.Get("table"));
    column = required_column(held->table, object.Get("key"), "table.key");
  }
};

/// Tables to join on devices, and what holds them.
struct HeldTables {
  std::shared_ptr<TableJoinKeysState> held;
  KeyedTables keyed;

  explicit HeldTables(const Napi::Value& value) {
    const Napi::Object object = to_object(value, "tables");
    held = from_handle<TableJoinKeysState>(object.Get("keys"));
    const Napi::Object payload = to_object(object.Get("payload"), "tables.payload");
    keyed = {&held->keys, optional_column(held->left->table, payload.Get("left"), "tables.payload.left"),
             optional_column(held->right->table, payload.Get("right"), "tables.payload.right")};
  }
};

std::vector<size_t> table_columns(const ResidentTable& table, const Napi::Value& indices) {
  std::vector<size_t> columns;
  for (const uint64_t column : to_counts(indices, "columns")) {
    if (column >= table.columns.size()) throw Napi::RangeError::New(indices.Env(), "columns is not a column of the table");
    columns.push_back(column);
  }
  return columns;
}

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

std::vector<ResidentOrigin> to_origins(const Napi::Value& value, const TableJoinKeysState& joined) {
  if (!value.IsArray()) throw Napi::TypeError::New(value.Env(), "Expected an array for columns");
  const auto array = value.As<Napi::Array>();
  std::vector<ResidentOrigin> origins;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object origin = to_object(array.Get(i), "columns");
    const std::string from = to_string(origin.Get("from"), "columns.from");
    if (from == "keys") {
      origins.push_back({ResidentOrigin::From::keys, std::nullopt});
      continue;
    }
    const bool of_left = to_side_is_left(origin.Get("from"));
    const ResidentTable& table = (of_left ? joined.left : joined.right)->table;
    origins.push_back({of_left ? ResidentOrigin::From::left : ResidentOrigin::From::right,
                       optional_column(table, origin.Get("column"), "columns.column")});
  }
  return origins;
}

}  // namespace

Napi::Value EngineWrap::resident_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto relation = from_handle<Relation>(info[0]);
    return number(info.Env(), warpjoin::resident_table_bytes(columns_at(*relation, info[1], "columns"), relation->rows,
                                                             engine().select(to_ordinals(info[2], "devices"))));
  });
}

Napi::Value EngineWrap::load_table(const Napi::CallbackInfo& info) {
  const auto relation = from_handle<Relation>(info[1]);
  return enqueue(info, {relation},
                 [columns = columns_at(*relation, info[2], "columns"), rows = relation->rows, owner = engine_,
                  ordinals = to_ordinals(info[3], "devices")](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "load");
                   return resident_to_handle(owner, warpjoin::load_table(engine, engine.select(ordinals), columns, rows, job));
                 });
}

Napi::Value EngineWrap::bring_home(const Napi::CallbackInfo& info) {
  const auto resident = from_handle<ResidentState>(info[1]);
  return enqueue(info, {resident},
                 [table = &resident->table, columns = table_columns(resident->table, info[2])](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "bring home");
                   // They become a table, also in a call that gives typed arrays.
                   return columns_result(warpjoin::bring_home(engine, *table, columns, job),
                                         std::min(job.max_buffer_bytes(), kMaxBufferBytes));
                 });
}

Napi::Value EngineWrap::table_join_keys(const Napi::CallbackInfo& info) {
  const HeldColumn left(info[1]), right(info[2]);
  return enqueue(info, {left.held, right.held}, [left, right](Engine&, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "encode");
    auto state = std::make_shared<TableJoinKeysState>(TableJoinKeysState{
        left.held, right.held, TableJoinKeys(left.held->table, left.column, right.held->table, right.column, job)});
    return [state = std::move(state)](Napi::Env env) -> Napi::Value {
      const TableJoinKeys& keys = state->keys;
      Napi::Object handle = to_handle(env, state);
      handle.Set("bits", number(env, keys.bits()));
      handle.Set("mostBits", number(env, kMostKeyBits));
      handle.Set("areColumns", Napi::Boolean::New(env, keys.are_columns()));
      handle.Set("giveLeft", Napi::Boolean::New(env, keys.left().given));
      return handle;
    };
  });
}

Napi::Value EngineWrap::join_tables(const Napi::CallbackInfo& info) {
  const HeldTables tables(info[1]);
  return enqueue(info, {tables.held},
                 [tables = tables.keyed, request = to_join_request(info[2]), owner = engine_,
                  origins = to_origins(info[3], *tables.held)](Engine& engine, Job& job) {
                   return resident_to_handle(owner, warpjoin::join_tables(engine, tables, request, origins, job));
                 });
}

Napi::Value EngineWrap::join_tables_home(const Napi::CallbackInfo& info) {
  const HeldTables tables(info[1]);
  return enqueue(info, {tables.held}, [tables = tables.keyed, request = to_join_request(info[2])](Engine& engine, Job& job) {
    return rows_to_handle(warpjoin::join_tables_home(engine, tables, request, job));
  });
}

Napi::Value EngineWrap::join_tables_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const HeldTables tables(info[0]);
    return number(info.Env(), warpjoin::join_tables_device_bytes(engine(), tables.keyed, to_join_request(info[1])));
  });
}

Napi::Value EngineWrap::table_sort_keys(const Napi::CallbackInfo& info) {
  const auto resident = from_handle<ResidentState>(info[1]);
  return enqueue(info, {resident},
                 [resident, by = to_sort_columns(resident->table, info[2]),
                  payload = optional_column(resident->table, info[3], "payload")](Engine&, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "encode");
                   auto state = std::make_shared<TableSortKeysState>(
                       TableSortKeysState{resident, TableSortKeys(resident->table, by, payload, job)});
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
  const auto state = from_handle<TableSortKeysState>(info[1]);
  return enqueue(
      info, {state},
      [keys = &state->keys, columns = table_columns(state->resident->table, info[2]), owner = engine_](Engine& engine, Job& job) {
        return resident_to_handle(owner, warpjoin::sort_table(engine, *keys, columns, job));
      });
}

Napi::Value EngineWrap::sort_table_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto state = from_handle<TableSortKeysState>(info[0]);
    return number(info.Env(), warpjoin::sort_table_device_bytes(state->keys, table_columns(state->resident->table, info[1])));
  });
}

}  // namespace warpjoin::binding
