#include "join/table_join.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"

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

}  // namespace

ResidentTable join_tables(Engine& engine, const KeyedTables& tables, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job) {
  const TableJoinKeys& keys = *tables.keys;
  const ResidentTable &left = *keys.left().table, &right = *keys.right().table;
  const std::vector<Device*>& devices = left.devices;
  ResidentRows rows;
  {
    const Relations relations = relations_of(engine, tables, request, job);
    rows = resident_hash_join(engine, devices, relations.left, relations.right, request, job);
  }

  ResidentTable result{devices, {}, {}, {}, rows.skew, rows.split_rows};
  for (const ResidentRows::Chunk& chunk : rows.chunks) result.rows.push_back(chunk.size);
  result.columns.resize(origins.size());
  const auto gather = [&](const ResidentTable& table, From from, Buffer ResidentRows::Chunk::*numbers, uint8_t row_bytes,
                          bool missing) {
    std::unique_ptr<TableGather> gathering;
    for (size_t i = 0; i < origins.size(); ++i) {
      if (origins[i].from != from || !origins[i].column) continue;
      if (!gathering) {
        std::vector<RowNumbers> by;
        for (const ResidentRows::Chunk& chunk : rows.chunks) by.push_back({(chunk.*numbers).data(), row_bytes, chunk.size});
        gathering = std::make_unique<TableGather>(engine, table, std::move(by), missing, job);
      }
      result.columns[i] = gathering->gather(table.columns.at(*origins[i].column), result.memory);
    }
    if (!gathering) return;
    gathering->wait();
    for (ResidentRows::Chunk& chunk : rows.chunks) chunk.*numbers = Buffer();
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
    gather(left, From::left, &ResidentRows::Chunk::left, rows.left_layout.value_bytes, rows.left_may_be_missing);
    gather(right, From::right, &ResidentRows::Chunk::right, rows.right_layout.value_bytes, rows.right_may_be_missing);
    if (!keys.are_columns()) decode();
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
