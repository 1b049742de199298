#include "columns/dictionary_codes.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "columns/text_codes.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

template <class Code>
bool have_own_positions(const Code* codes, uint64_t entries, uint64_t count, Engine& engine, const Job& job) {
  std::atomic<bool> all{true};
  for_row_blocks(engine, entries, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    bool here = true;
    for (uint64_t i = begin; i < end; ++i) here &= codes[i] == (i < count ? static_cast<Code>(i) : kNoCode<Code>);
    if (!here) all.store(false, std::memory_order_relaxed);
  });
  return all.load();
}

}  // namespace

bool are_positions(const HostBuffer& codes, uint8_t code_bytes, uint64_t entries, uint64_t count, Engine& engine,
                   const Job& job) {
  return code_bytes == 4 ? have_own_positions(codes.as<uint32_t>(), entries, count, engine, job)
                         : have_own_positions(codes.as<uint64_t>(), entries, count, engine, job);
}

bool is_one_dictionary(const ChunkIndex& chunks) {
  return std::all_of(chunks.chunks().begin(), chunks.chunks().end(),
                     [](const ColumnChunk& chunk) { return chunk.dictionary_base == 0; });
}

bool same_values(const Column& left, const Column& right, Engine& engine, const Job& job) {
  const ChunkIndex a(left), b(right);
  const ColumnType &type = a.type(), &other = b.type();
  if (type.kind != other.kind || type.order != other.order || type.width != other.width || a.rows() != b.rows()) return false;
  if (!a.single() || !b.single() || a.nullable() || b.nullable() || is_boolean_key(type)) return false;
  const ColumnChunk &x = a.chunks()[0], &y = b.chunks()[0];
  std::atomic<bool> same{true};
  const auto compare = [&](const void* one, const void* two, uint64_t bytes) {
    engine.pool.for_blocks(bytes, uint64_t{1} << 20, job, [&](uint64_t begin, uint64_t end) {
      if (!same.load(std::memory_order_relaxed)) return;
      if (std::memcmp(static_cast<const char*>(one) + begin, static_cast<const char*>(two) + begin, end - begin) != 0)
        same.store(false, std::memory_order_relaxed);
    });
    return same.load();
  };
  if (!type.variable_width()) return compare(x.values, y.values, a.rows() * type.width);
  if (!compare(x.offsets, y.offsets, (a.rows() + 1) * (type.kind == ColumnKind::utf8 ? 4 : 8))) return false;
  const uint64_t last = a.rows() - 1;
  const uint64_t bytes = (type.kind == ColumnKind::utf8 ? text_range<int32_t>(x, last) : text_range<int64_t>(x, last)).end;
  return bytes <= y.values_bytes && compare(x.values, y.values, bytes);
}

std::shared_ptr<const PlainKey> indices_of_codes(const uint32_t* codes, uint64_t entries, uint64_t count, const ColumnType& type,
                                                 Engine& engine, const Job& job) {
  HostBuffer indices = engine.memory->allocate(count * type.width, "the indices of join keys");
  std::memset(indices.data(), 0, indices.size());
  HostBuffer taken = engine.memory->allocate((count + 63) / 64 * 8, "the indices of join keys");
  std::memset(taken.data(), 0, taken.size());
  for (uint64_t entry = 0; entry < entries; ++entry) {
    if (entry % kBlockRows == 0) job.check();
    const uint64_t code = codes[entry];
    if (code >= count) continue;  // none, or null
    uint64_t& word = taken.as<uint64_t>()[code / 64];
    if (word >> (code % 64) & 1) return nullptr;
    word |= uint64_t{1} << (code % 64);
    std::memcpy(indices.as<char>() + code * type.width, &entry, type.width);
  }
  auto key = std::make_shared<PlainKey>();
  key->column.type = type;
  key->column.length = count;
  ColumnChunk chunk;
  chunk.length = count;
  chunk.values = indices.data();
  chunk.values_bytes = indices.size();
  key->column.chunks.push_back(chunk);
  key->owned.push_back(std::move(indices));
  return key;
}

}  // namespace warpjoin::columns
