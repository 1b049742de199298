#include <mutex>

#include "primitives/column_rows.h"
#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {

void HostPrimitives::value_range(const ColumnStretch& column, ValueRange* host_range, const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    with_rows(column, [&](const auto& rows) {
      std::mutex mutex;
      pool_.for_blocks(column.size, host::kCheckRows, job, [&](uint64_t begin, uint64_t end) {
        ValueRange range;
        for (uint64_t row = begin; row < end; ++row) rows.add_to(range, row);
        const std::lock_guard lock(mutex);
        host_range->add(range);
      });
    });
  });
}

void HostPrimitives::encode_field(const ColumnStretch& column, const KeyField& field, bool first, uint8_t key_bytes, void* keys,
                                  const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    with_rows(column, [&](const auto& rows) {
      const auto encode = [&]<class Key>(Key* to) {
        pool_.for_blocks(column.size, host::kCheckRows, job, [&](uint64_t begin, uint64_t end) {
          for (uint64_t row = begin; row < end; ++row) {
            const auto part = static_cast<Key>(rows.part_of_key(field, row));
            to[row] = first ? part : to[row] | part;
          }
        });
      };
      key_bytes == 4 ? encode(static_cast<uint32_t*>(keys)) : encode(static_cast<uint64_t*>(keys));
    });
  });
}

}  // namespace warpjoin
