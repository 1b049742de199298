#include "join/table_join.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "columns/chunks.h"
#include "core/error.h"
#include "device/streams.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

using From = ResidentOrigin::From;

TupleLayout layout_of(const TableSide& side) {
  const size_t value_bytes =
      side.payload ? side.table->columns.at(*side.payload).type.width : columns::row_bytes_for(side.table->size());
  return {static_cast<uint8_t>(side.key_column().type.width), static_cast<uint8_t>(value_bytes)};
}

ResidentRelation relation_of(const TableSide& side) {
  ResidentRelation relation{layout_of(side), {}};
  uint64_t begin = 0;
  for (size_t d = 0; d < side.table->devices.size(); ++d) {
    const void* const payload = side.payload ? side.table->columns[*side.payload].stretches[d].values : nullptr;
    relation.chunks.push_back({side.key_column().stretches[d].values, payload, begin, side.table->rows[d]});
    begin += side.table->rows[d];
  }
  return relation;
}

void check_sides(const TableSide& left, const TableSide& right) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::not_supported, what + " on devices"); };
  const auto carried = [](const ResidentColumn& column) {
    return !column.nullable && column.type.kind == ColumnKind::fixed && (column.type.width == 4 || column.type.width == 8);
  };
  for (const TableSide* side : {&left, &right}) {
    const KeyOrder order = side->key_column().type.order;
    const bool integers = order == KeyOrder::signed_integer || order == KeyOrder::unsigned_integer;
    if (!integers || !carried(side->key_column())) refuse("Column '" + side->key_column().name + "' can't be a key");
    if (side->payload && !carried(side->table->columns.at(*side->payload))) {
      refuse("Column '" + side->table->columns[*side->payload].name + "' can't be carried along");
    }
  }
  const ColumnType &l = left.key_column().type, &r = right.key_column().type;
  if (l.width != r.width || l.order != r.order) refuse("Keys of two types can't be joined");
  if (left.table->devices != right.table->devices) refuse("Tables of two sets of devices can't be joined");
}

/// Reserves what a join takes; host devices give it back with the last range.
[[nodiscard]] std::vector<Buffer> reserve(Engine& engine, const TableSide& left, const TableSide& right,
                                          const JoinRequest& request) {
  std::vector<Buffer> held;
  const size_t bytes = join_tables_device_bytes(engine, left, right, request);
  for (Device* device : left.table->devices) {
    StackAllocator& memory = device->memory();
    // What an earlier call has left larger may be in the way of the result, which is about as large as what the join takes.
    if (memory.resident_bytes() + memory.reserved_bytes() + bytes > memory.limit_bytes()) memory.release();
    memory.reserve(bytes);
    held.push_back(memory.allocate(1));
  }
  return held;
}

/// Gathers columns of one side's table on each device by the row numbers that a join has left there.
class TableGather {
 public:
  TableGather(Engine& engine, const ResidentTable& from, std::vector<RowNumbers> rows, bool may_be_missing, const Job& job)
      : from_(from),
        sharding_(Sharding::of(from.size(), from.devices.size())),
        rows_(std::move(rows)),
        may_be_missing_(may_be_missing),
        job_(job) {
    check(engine);
    for (Device* device : from.devices) streams_.push_back(device->create_stream());
    if (may_be_missing) fill_ones();
  }

  /// Enqueues what makes `column`, in memory that goes to `memory`.
  ResidentColumn gather(const ResidentColumn& column, std::vector<Buffer>& memory) {
    ResidentColumn made{column.name, column.type, may_be_missing_ || column.nullable, {}};
    ShardedColumn values{sharding_, {}}, validity{sharding_, {}};
    for (size_t d = 0; d < streams_.size(); ++d) {
      values.shards.push_back(column.stretches[d].values);
      validity.shards.push_back(column.nullable ? column.stretches[d].validity : may_be_missing_ ? ones_[d].data() : nullptr);
    }
    for (size_t d = 0; d < streams_.size(); ++d) {
      Device& device = *from_.devices[d];
      const RowNumbers& rows = rows_[d];
      const auto allocate = [&](size_t bytes) {
        return bytes ? memory.emplace_back(device.memory().allocate_resident(bytes)).data() : nullptr;
      };
      const DeviceStretch to{allocate(values_bytes(column.type, rows.size)),
                             made.nullable ? allocate(bitmap_bytes(rows.size)) : nullptr};
      made.stretches.push_back(to);
      if (rows.size == 0) continue;
      if (to.validity) device.primitives().gather_bits(validity, rows, nullptr, to.validity, job_, *streams_[d]);
      if (column.type.kind == ColumnKind::boolean) {
        device.primitives().gather_bits(values, rows, to.validity, to.values, job_, *streams_[d]);
      } else {
        device.primitives().gather(values, static_cast<uint8_t>(column.type.width), rows, to.validity, to.values, job_,
                                   *streams_[d]);
      }
    }
    return made;
  }

  void wait() const {
    std::vector<Stream*> streams;
    for (const auto& stream : streams_) streams.push_back(stream.get());
    synchronize_all(streams);
  }

 private:
  void check(const Engine& engine) const {
    if (!spread_evenly(from_)) throw Error(ErrorCode::not_supported, "Columns of a join's result can't be gathered on devices");
    for (const Device* a : from_.devices) {
      for (const Device* b : from_.devices) {
        if (a != b && !engine.topology.link(a->info().ordinal, b->info().ordinal).direct) {
          throw Error(ErrorCode::not_supported,
                      "Device '" + a->info().name + "' does not read the memory of '" + b->info().name + "'");
        }
      }
    }
  }

  // Columns without nulls have a valid value in every row but those that are not there.
  void fill_ones() {
    for (size_t d = 0; d < streams_.size(); ++d) {
      Device& device = *from_.devices[d];
      const size_t bytes = bitmap_bytes(from_.rows[d]);
      device.memory().reserve(bytes);
      ones_.push_back(device.memory().allocate(bytes));
      device.fill(ones_[d].data(), 0xFF, bytes, *streams_[d]);
    }
    wait();
  }

  const ResidentTable& from_;
  const Sharding sharding_;
  const std::vector<RowNumbers> rows_;
  const bool may_be_missing_;
  const Job& job_;
  std::vector<Buffer> ones_;
  std::vector<std::unique_ptr<Stream>> streams_;  // last: they wait for their work
};

}  // namespace

ResidentTable join_tables(Engine& engine, const TableSide& left, const TableSide& right, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job) {
  check_sides(left, right);
  std::vector<Buffer> held = reserve(engine, left, right, request);
  const std::vector<Device*>& devices = left.table->devices;
  ResidentRows rows = resident_hash_join(engine, devices, relation_of(left), relation_of(right), request, job);
  held.clear();

  ResidentTable result{devices, {}, {}, {}, rows.skew, rows.split_rows};
  for (const ResidentRows::Chunk& chunk : rows.chunks) result.rows.push_back(chunk.size);
  std::vector<ResidentColumn> made(origins.size());
  const auto gather = [&](const TableSide& side, From from, Buffer ResidentRows::Chunk::*numbers, uint8_t row_bytes,
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
    const TableSide& side = origins[i].from == From::right ? right : left;
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

JoinRows join_tables_home(Engine& engine, const TableSide& left, const TableSide& right, const JoinRequest& request, Job& job) {
  check_sides(left, right);
  const std::vector<Buffer> held = reserve(engine, left, right, request);
  return resident_hash_join_home(engine, left.table->devices, relation_of(left), relation_of(right), request, job);
}

size_t join_tables_device_bytes(Engine& engine, const TableSide& left, const TableSide& right, const JoinRequest& request) {
  const size_t devices = left.table->devices.size();
  // As many rows as if all stretches were as long as the longest.
  const auto rows = [&](const TableSide& side) {
    return *std::max_element(side.table->rows.begin(), side.table->rows.end()) * devices;
  };
  return StackAllocator::kAlignment +
         resident_hash_join_device_bytes(layout_of(left), rows(left), layout_of(right), rows(right), devices, request, engine);
}

}  // namespace warpjoin
