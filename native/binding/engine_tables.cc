// Tables that stay on the devices, and joins of them there.
#include <optional>

#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "join/table_join.h"

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

std::optional<size_t> optional_column(const ResidentTable& table, const Napi::Value& index, const char* what) {
  if (index.IsNull()) return std::nullopt;
  const uint64_t column = to_count(index, what);
  if (column >= table.columns.size())
    throw Napi::RangeError::New(index.Env(), std::string(what) + " is not a column of the table");
  return column;
}

/// A side of a join of tables on devices, and what holds it.
struct JoinedTable {
  std::shared_ptr<ResidentState> held;
  TableSide side;

  explicit JoinedTable(const Napi::Value& value) {
    const Napi::Object object = to_object(value, "side");
    held = from_handle<ResidentState>(object.Get("table"));
    const auto key = optional_column(held->table, object.Get("key"), "side.key");
    if (!key) throw Napi::TypeError::New(value.Env(), "Expected a column for side.key");
    side = {&held->table, *key, optional_column(held->table, object.Get("payload"), "side.payload")};
  }
};

std::vector<ResidentOrigin> to_origins(const Napi::Value& value, const TableSide& left, const TableSide& right) {
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
    const ResidentTable& table = *(of_left ? left : right).table;
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
  std::vector<size_t> columns;
  for (const uint64_t column : to_counts(info[2], "columns")) {
    if (column >= resident->table.columns.size()) throw Napi::RangeError::New(info.Env(), "columns is not a column of the table");
    columns.push_back(column);
  }
  return enqueue(info, {resident}, [table = &resident->table, columns = std::move(columns)](Engine& engine, Job& job) {
    const PhaseTimer timer(job, "bring home");
    return columns_result(warpjoin::bring_home(engine, *table, columns, job));
  });
}

Napi::Value EngineWrap::join_tables(const Napi::CallbackInfo& info) {
  const JoinedTable left(info[1]), right(info[2]);
  return enqueue(info, {left.held, right.held},
                 [left = left.side, right = right.side, request = to_join_request(info[3]), owner = engine_,
                  origins = to_origins(info[4], left.side, right.side)](Engine& engine, Job& job) {
                   return resident_to_handle(owner, warpjoin::join_tables(engine, left, right, request, origins, job));
                 });
}

Napi::Value EngineWrap::join_tables_home(const Napi::CallbackInfo& info) {
  const JoinedTable left(info[1]), right(info[2]);
  return enqueue(info, {left.held, right.held},
                 [left = left.side, right = right.side, request = to_join_request(info[3])](Engine& engine, Job& job) {
                   return rows_to_handle(warpjoin::join_tables_home(engine, left, right, request, job));
                 });
}

Napi::Value EngineWrap::join_tables_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const JoinedTable left(info[0]), right(info[1]);
    return number(info.Env(), warpjoin::join_tables_device_bytes(engine(), left.side, right.side, to_join_request(info[2])));
  });
}

}  // namespace warpjoin::binding
