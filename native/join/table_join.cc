#include "join/table_join.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "join/join_rows.h"
#include "sort/table_sort.h"

namespace warpjoin {
namespace {

using From = ResidentOrigin::From;

void check(const std::optional<size_t>& payload, const TableJoinKeys::Side& side) {
  if (payload) check_payload(side.table->columns.at(*payload));
}

/// Both sides, and memory for their keys and the join on their devices.
struct Relations {
  std::vector<Buffer> memory;
  ResidentRelation left, right;
};

Relations relations_of(Engine& engine, const KeyedTables& tables, const JoinRequest& request, Job& job) {
  const PhaseTimer timer(job, "encode");
  const TableJoinKeys& keys = *tables.keys;
  check(tables.left_payload, keys.left());
  check(tables.right_payload, keys.right());
  Relations relations{
      reserve_beside_tables(keys.left().table->devices, join_tables_device_bytes(engine, tables, request)), {}, {}};
  const auto of = [&](const TableJoinKeys::Side& side, const std::optional<size_t>& payload) {
    std::vector<TupleView> chunks = keys.chunks(side, payload, relations.memory, job);
    return ResidentRelation{tuple_layout(*side.table, keys.key_bytes(), payload), std::move(chunks)};
  };
  relations.left = of(keys.left(), tables.left_payload);
  relations.right = of(keys.right(), tables.right_payload);
  return relations;
}

/// The row numbers of a join as a table on its devices, in an order: those of the side that it goes by, and of the other one.
ResidentTable ordered_numbers(Engine& engine, const std::vector<Device*>& devices, ResidentRows rows, const JoinRequest& request,
                              const TableRowOrder& order, Job& job) {
  if (!(order.by_left ? wants_left(request) : wants_right(request)))
    throw Error(ErrorCode::option, "The row numbers to order by were not asked for");
  ResidentTable table{devices, {}, {}, {}};
  for (const ResidentRows::Chunk& chunk : rows.chunks) table.rows.push_back(chunk.size);
  const auto add = [&](bool left) {
    const ColumnType type{ColumnKind::fixed, KeyOrder::unsigned_integer,
                          (left ? rows.left_layout : rows.right_layout).value_bytes};
    ResidentColumn& column = table.columns.emplace_back(ResidentColumn{left ? "left" : "right", type, false, {}});
    for (ResidentRows::Chunk& chunk : rows.chunks) {
      Buffer& numbers = left ? chunk.left : chunk.right;
      column.stretches.push_back({numbers.data(), nullptr});
      if (numbers) table.memory.push_back(std::move(numbers));
    }
  };
  add(order.by_left);
  if (order.by_left ? wants_right(request) : wants_left(request)) add(!order.by_left);
  std::vector<TableSortColumn> by;
  std::vector<size_t> all;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    by.push_back({i});
    all.push_back(i);
  }
  return sort_table(engine, TableSortKeys(table, std::move(by), {}, job), all, job, order.window);
}

}  // namespace

ResidentTable join_tables(Engine& engine, const KeyedTables& tables, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job, const std::optional<TableRowOrder>& order) {
  const bool all_gathered = std::all_of(origins.begin(), origins.end(), [](const ResidentOrigin& origin) {
    return origin.from != From::keys && origin.column.has_value();
  });
  if (order && !all_gathered) throw Error(ErrorCode::option, "Rows of a join that carry more than row numbers can't be ordered");
  const TableJoinKeys& keys = *tables.keys;
  const ResidentTable &left = *keys.left().table, &right = *keys.right().table;
  const std::vector<Device*>& devices = left.devices;
  ResidentRows rows;
  {
    const Relations relations = relations_of(engine, tables, request, job);
    rows = resident_hash_join(engine, devices, relations.left, relations.right, request, job);
  }

  ResidentTable result{devices, {}, {}, {}, rows.skew, rows.split_rows};
  const TupleLayout left_layout = rows.left_layout, right_layout = rows.right_layout;
  const bool left_may_be_missing = rows.left_may_be_missing, right_may_be_missing = rows.right_may_be_missing;
  ResidentTable ordered;
  if (order) {
    ordered = ordered_numbers(engine, devices, std::exchange(rows, {}), request, *order, job);
    result.rows = ordered.rows;
  } else {
    for (const ResidentRows::Chunk& chunk : rows.chunks) result.rows.push_back(chunk.size);
  }
  result.columns.resize(origins.size());
  /// The row numbers of a side on each device.
  const auto numbers_of = [&](From from, uint8_t row_bytes) {
    std::vector<RowNumbers> numbers;
    for (size_t d = 0; d < devices.size(); ++d) {
      const void* data;
      if (order) {
        data = ordered.columns.at((from == From::left) == order->by_left ? 0 : 1).stretches[d].values;
      } else {
        data = (from == From::left ? rows.chunks[d].left : rows.chunks[d].right).data();
      }
      numbers.push_back({data, row_bytes, result.rows[d]});
    }
    return numbers;
  };
  const auto gather = [&](const ResidentTable& table, From from, uint8_t row_bytes, bool missing) {
    std::unique_ptr<TableGather> gathering;
    for (size_t i = 0; i < origins.size(); ++i) {
      if (origins[i].from != from || !origins[i].column) continue;
      if (!gathering) gathering = std::make_unique<TableGather>(engine, table, numbers_of(from, row_bytes), missing, job);
      result.columns[i] = gathering->gather(table.columns.at(*origins[i].column), result.memory);
    }
    if (!gathering) return;
    gathering->wait();
    for (ResidentRows::Chunk& chunk : rows.chunks) (from == From::left ? chunk.left : chunk.right) = Buffer();
  };
  const auto decode = [&] {
    const Streams streams = create_streams(devices);
    std::vector<TupleView> found;
    for (const ResidentRows::Chunk& chunk : rows.chunks) found.push_back({chunk.keys.data(), nullptr, 0, chunk.size});
    std::vector<HeldColumn> held;
    for (size_t i = 0; i < origins.size(); ++i) {
      if (origins[i].from != From::keys) continue;
      const TableJoinKeys::Part& part = keys.left().parts.at(origins[i].pair);
      held.push_back({part.column, part.field, i});
    }
    decode_columns(left, held, keys.key_bytes(), found, result, streams, job);
    synchronize_all(streams);
    for (ResidentRows::Chunk& chunk : rows.chunks) chunk.keys = Buffer();
  };
  {
    const PhaseTimer timer(job, "gather");
    gather(left, From::left, left_layout.value_bytes, left_may_be_missing);
    gather(right, From::right, right_layout.value_bytes, right_may_be_missing);
    if (!keys.are_columns() && !order) decode();
  }
  const auto carry = [&](size_t i, const ResidentColumn& like, Buffer ResidentRows::Chunk::*part) {
    result.columns[i] = {like.name, like.type, false, {}};
    for (const ResidentRows::Chunk& chunk : rows.chunks) result.columns[i].stretches.push_back({(chunk.*part).data(), nullptr});
  };
  for (size_t i = 0; i < origins.size(); ++i) {
    if (origins[i].column) continue;
    switch (origins[i].from) {
      case From::keys:
        if (keys.are_columns()) carry(i, keys.left().column(0), &ResidentRows::Chunk::keys);
        break;
      case From::left: carry(i, left.columns.at(tables.left_payload.value()), &ResidentRows::Chunk::left); break;
      case From::right: carry(i, right.columns.at(tables.right_payload.value()), &ResidentRows::Chunk::right); break;
    }
  }
  for (ResidentRows::Chunk& chunk : rows.chunks) {
    for (Buffer* buffer : {&chunk.keys, &chunk.left, &chunk.right}) {
      if (*buffer) result.memory.push_back(std::move(*buffer));
    }
  }
  return result;
}

JoinRows join_tables_home(Engine& engine, const KeyedTables& tables, const JoinRequest& request, Job& job) {
  const Relations relations = relations_of(engine, tables, request, job);
  return resident_hash_join_home(engine, tables.keys->left().table->devices, relations.left, relations.right, request, job);
}

size_t join_tables_device_bytes(Engine& engine, const KeyedTables& tables, const JoinRequest& request) {
  const TableJoinKeys& keys = *tables.keys;
  const size_t devices = keys.left().table->devices.size();
  // As many rows as if all stretches were as long as the longest.
  const auto longest = [](const TableJoinKeys::Side& side) {
    return *std::max_element(side.table->rows.begin(), side.table->rows.end());
  };
  const auto layout = [&](const TableJoinKeys::Side& side, const std::optional<size_t>& payload) {
    return tuple_layout(*side.table, keys.key_bytes(), payload);
  };
  const auto made_bytes = [&](const TableJoinKeys::Side& side) {
    return StackAllocator::aligned(keys.made_bytes(longest(side)));
  };
  return StackAllocator::kAlignment + made_bytes(keys.left()) + made_bytes(keys.right()) +
         resident_hash_join_device_bytes(layout(keys.left(), tables.left_payload), longest(keys.left()) * devices,
                                         layout(keys.right(), tables.right_payload), longest(keys.right()) * devices, devices,
                                         request, engine);
}

}  // namespace warpjoin
