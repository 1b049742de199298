#include "join/table_join.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"

namespace warpjoin {
namespace {

using From = ResidentOrigin::From;

ResidentRelation relation_of(const KeyedTable& side) { return {side.layout(), side.chunks()}; }

void check_sides(const KeyedTable& left, const KeyedTable& right) {
  left.check();
  right.check();
  const auto refuse = [](const char* what) { throw Error(ErrorCode::not_supported, std::string(what) + " on devices"); };
  const ColumnType &l = left.key_column().type, &r = right.key_column().type;
  if (l.width != r.width || l.order != r.order) refuse("Keys of two types can't be joined");
  if (left.table->devices != right.table->devices) refuse("Tables of two sets of devices can't be joined");
}

}  // namespace

ResidentTable join_tables(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job) {
  check_sides(left, right);
  std::vector<Buffer> held = reserve_beside_tables(left.table->devices, join_tables_device_bytes(engine, left, right, request));
  const std::vector<Device*>& devices = left.table->devices;
  ResidentRows rows = resident_hash_join(engine, devices, relation_of(left), relation_of(right), request, job);
  held.clear();

  ResidentTable result{devices, {}, {}, {}, rows.skew, rows.split_rows};
  for (const ResidentRows::Chunk& chunk : rows.chunks) result.rows.push_back(chunk.size);
  std::vector<ResidentColumn> made(origins.size());
  const auto gather = [&](const KeyedTable& side, From from, Buffer ResidentRows::Chunk::*numbers, uint8_t row_bytes,
                          bool missing) {
    std::unique_ptr<TableGather> gathering;
    for (size_t i = 0; i < origins.size(); ++i) {
      if (origins[i].from != from || !origins[i].column) continue;
      if (!gathering) {
        std::vector<RowNumbers> by;
        for (const ResidentRows::Chunk& chunk : rows.chunks) by.push_back({(chunk.*numbers).data(), row_bytes, chunk.size});
        gathering = std::make_unique<TableGather>(engine, *side.table, std::move(by), missing, job);
      }
      made[i] = gathering->gather(side.table->columns.at(*origins[i].column), result.memory);
    }
    if (!gathering) return;
    gathering->wait();
    for (ResidentRows::Chunk& chunk : rows.chunks) chunk.*numbers = Buffer();
  };
  {
    const PhaseTimer timer(job, "gather");
    gather(left, From::left, &ResidentRows::Chunk::left, rows.left_layout.value_bytes, rows.left_may_be_missing);
    gather(right, From::right, &ResidentRows::Chunk::right, rows.right_layout.value_bytes, rows.right_may_be_missing);
  }
  for (size_t i = 0; i < origins.size(); ++i) {
    if (origins[i].column) continue;
    const KeyedTable& side = origins[i].from == From::right ? right : left;
    const ResidentColumn& like = origins[i].from == From::keys ? left.key_column() : side.table->columns.at(side.payload.value());
    made[i] = {like.name, like.type, false, {}};
    for (const ResidentRows::Chunk& chunk : rows.chunks) {
      const Buffer& carried = origins[i].from == From::keys   ? chunk.keys
                              : origins[i].from == From::left ? chunk.left
                                                              : chunk.right;
      made[i].stretches.push_back({carried.data(), nullptr});
    }
  }
  result.columns = std::move(made);
  for (ResidentRows::Chunk& chunk : rows.chunks) {
    for (Buffer* buffer : {&chunk.keys, &chunk.left, &chunk.right}) {
      if (*buffer) result.memory.push_back(std::move(*buffer));
    }
  }
  return result;
}

JoinRows join_tables_home(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request, Job& job) {
  check_sides(left, right);
  const std::vector<Buffer> held =
      reserve_beside_tables(left.table->devices, join_tables_device_bytes(engine, left, right, request));
  return resident_hash_join_home(engine, left.table->devices, relation_of(left), relation_of(right), request, job);
}

size_t join_tables_device_bytes(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request) {
  const size_t devices = left.table->devices.size();
  // As many rows as if all stretches were as long as the longest.
  const auto rows = [&](const KeyedTable& side) {
    return *std::max_element(side.table->rows.begin(), side.table->rows.end()) * devices;
  };
  return StackAllocator::kAlignment +
         resident_hash_join_device_bytes(left.layout(), rows(left), right.layout(), rows(right), devices, request, engine);
}

}  // namespace warpjoin
