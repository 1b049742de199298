#include "columns/scan.h"

#include <atomic>
#include <limits>
#include <mutex>
#include <string>

#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

void add(FixedScan& total, const FixedScan& part) {
  total.nulls += part.nulls;
  total.least = std::min(total.least, part.least);
  total.greatest = std::max(total.greatest, part.greatest);
  total.any |= part.any;
  total.all &= part.all;
  total.canonicalized |= part.canonicalized;
}

/// Vectorizes: extremes are taken as signed numbers, for which AVX2 has comparisons.
template <class Key>
struct Extremes {
  using Raw = typename Key::Raw;
  using Signed = std::make_signed_t<Raw>;
  static constexpr Raw kSign = static_cast<Raw>(Raw{1} << (8 * sizeof(Raw) - 1));

  Signed least = std::numeric_limits<Signed>::max(), greatest = std::numeric_limits<Signed>::min();
  Raw any = 0, all = static_cast<Raw>(~Raw{0}), changed = 0;

  void add(const void* values, uint64_t first, uint64_t count) {
    Extremes extremes = *this;  // in registers
    for (uint64_t i = first; i < first + count; ++i) {
      const Raw raw = load<Raw>(values, i), canonical = Key::canonical(raw);
      const auto number = static_cast<Signed>(Key::ordered(raw) ^ kSign);
      extremes.least = number < extremes.least ? number : extremes.least;
      extremes.greatest = number > extremes.greatest ? number : extremes.greatest;
      extremes.any = static_cast<Raw>(extremes.any | canonical);
      extremes.all = static_cast<Raw>(extremes.all & canonical);
      extremes.changed = static_cast<Raw>(extremes.changed | (canonical ^ raw));
    }
    *this = extremes;
  }

  void add_to(FixedScan& scan) const {
    if (least > greatest) return;
    FixedScan part;
    part.least = static_cast<Raw>(static_cast<Raw>(least) ^ kSign);
    part.greatest = static_cast<Raw>(static_cast<Raw>(greatest) ^ kSign);
    part.any = any;
    part.all = all;
    part.canonicalized = changed != 0;
    columns::add(scan, part);
  }
};

template <class Key>
FixedScan scan_block(const ChunkIndex& chunks, uint64_t begin, uint64_t end) {
  FixedScan scan;
  Extremes<Key> extremes;
  chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
    if (!chunk.validity) {
      extremes.add(chunk.values, first, count);
      return;
    }
    for_groups(chunk, first, count, [&](uint64_t row, unsigned rows, uint64_t valid) {
      if (valid == low_bits(rows)) {
        extremes.add(chunk.values, row, rows);
        return;
      }
      scan.nulls += rows - static_cast<unsigned>(std::popcount(valid));
      for_set_bits(valid, [&](unsigned bit) { extremes.add(chunk.values, row + bit, 1); });
    });
  });
  extremes.add_to(scan);
  return scan;
}

FixedScan scan_boolean_block(const ChunkIndex& chunks, uint64_t begin, uint64_t end) {
  FixedScan scan;
  chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
    for_groups(chunk, first, count, [&](uint64_t row, unsigned rows, uint64_t valid) {
      const uint64_t values = bits_at(chunk.values, chunk.bit_offset + row, rows);
      scan.nulls += rows - static_cast<unsigned>(std::popcount(valid));
      if (valid & ~values) scan.least = scan.all = 0;
      if (valid & values) {
        scan.greatest = scan.any = 1;
        scan.least = std::min<uint64_t>(scan.least, 1);
      }
    });
  });
  return scan;
}

/// The first value that is not null.
Text first_text(const ChunkIndex& chunks) {
  for (const ColumnChunk& chunk : chunks.chunks()) {
    for (uint64_t row = 0; row < chunk.length; row += 64) {
      const uint64_t valid = valid_bits(chunk, row, static_cast<unsigned>(std::min<uint64_t>(64, chunk.length - row)));
      if (valid) return text_at(chunks.type().kind, chunk, row + static_cast<unsigned>(std::countr_zero(valid)));
    }
  }
  return {};
}

}  // namespace

FixedScan scan_fixed(const ChunkIndex& chunks, Engine& engine, const Job& job) {
  FixedScan total;
  std::mutex mutex;
  const auto run = [&](auto&& block_scan) {
    for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      const FixedScan part = block_scan(chunks, begin, end);
      const std::lock_guard lock(mutex);
      add(total, part);
    });
  };
  if (is_boolean_key(chunks.type())) {
    run(scan_boolean_block);
  } else {
    with_key_type(chunks.type(), [&]<class Key>() { run(scan_block<Key>); });
  }
  return total;
}

TextScan scan_text(const ChunkIndex& chunks, bool find_prefix, Engine& engine, const Job& job) {
  TextScan total;
  std::mutex mutex;
  const ColumnKind kind = chunks.type().kind;
  const Text sample = find_prefix ? first_text(chunks) : Text{};
  std::atomic<uint64_t> prefix{sample.size};
  const auto scan_block = [&]<class Offset>(uint64_t begin, uint64_t end) {
    TextScan scan;
    uint64_t shared = prefix.load(std::memory_order_relaxed);
    const auto add_value = [&](const ColumnChunk& chunk, uint64_t index) {
      const Text text = text_at<Offset>(chunk, index);
      scan.least_size = std::min(scan.least_size, text.size);
      scan.greatest_size = std::max(scan.greatest_size, text.size);
      if (shared) shared = common_bytes(sample.data, text.data, std::min(shared, text.size));
    };
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
      if (!chunk.validity) {
        uint64_t index = first;
        for (; index < first + count && shared; ++index) add_value(chunk, index);
        auto previous = static_cast<std::make_unsigned_t<Offset>>(index < first + count ? load<Offset>(chunk.offsets, index) : 0);
        std::make_unsigned_t<Offset> least = std::numeric_limits<std::make_unsigned_t<Offset>>::max(), greatest = 0;
        for (; index < first + count; ++index) {
          const auto next = static_cast<std::make_unsigned_t<Offset>>(load<Offset>(chunk.offsets, index + 1));
          const auto size = static_cast<std::make_unsigned_t<Offset>>(next - previous);
          least = std::min(least, size);
          greatest = std::max(greatest, size);
          previous = next;
        }
        if (least <= greatest) {
          scan.least_size = std::min<uint64_t>(scan.least_size, least);
          scan.greatest_size = std::max<uint64_t>(scan.greatest_size, greatest);
        }
        return;
      }
      for_groups(chunk, first, count, [&](uint64_t row, unsigned rows, uint64_t valid) {
        scan.nulls += rows - static_cast<unsigned>(std::popcount(valid));
        for_set_bits(valid, [&](unsigned bit) { add_value(chunk, row + bit); });
      });
    });
    scan.prefix = shared;
    return scan;
  };
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    const TextScan part = kind == ColumnKind::utf8 ? scan_block.template operator()<int32_t>(begin, end)
                                                   : scan_block.template operator()<int64_t>(begin, end);
    const std::lock_guard lock(mutex);
    total.nulls += part.nulls;
    total.least_size = std::min(total.least_size, part.least_size);
    total.greatest_size = std::max(total.greatest_size, part.greatest_size);
    prefix.store(std::min(prefix.load(std::memory_order_relaxed), part.prefix), std::memory_order_relaxed);
  });
  if (!total.empty()) total.prefix = prefix.load(std::memory_order_relaxed);
  return total;
}

uint64_t count_nulls(const ChunkIndex& chunks, Engine& engine, const Job& job) {
  if (!chunks.nullable()) return 0;
  std::atomic<uint64_t> nulls{0};
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    uint64_t found = 0;
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
      if (!chunk.validity) return;
      for_groups(chunk, first, count,
                 [&](uint64_t, unsigned rows, uint64_t valid) { found += rows - static_cast<unsigned>(std::popcount(valid)); });
    });
    nulls.fetch_add(found, std::memory_order_relaxed);
  });
  return nulls.load();
}

void require_key_type(const Column& column) {
  const ColumnType& type = column.type;
  if (is_text_key(type) || (is_boolean_key(type) && type.order != KeyOrder::none)) return;
  const bool number = type.order == KeyOrder::signed_integer || type.order == KeyOrder::unsigned_integer ||
                      (type.order == KeyOrder::floating && type.width != 1);
  const bool wide = type.width == 1 || type.width == 2 || type.width == 4 || type.width == 8;
  if (type.kind == ColumnKind::fixed && number && wide) return;
  throw Error(ErrorCode::key_type, "Column '" + column.name +
                                       "' can't be a key: keys are booleans, integers and floats of up to 8 bytes, utf8 and "
                                       "binary");
}

}  // namespace warpjoin::columns
