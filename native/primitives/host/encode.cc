#include <algorithm>
#include <mutex>
#include <vector>

#include "primitives/column_rows.h"
#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace {

constexpr uint64_t kRowsAtATime = 2048;  // whose keys stay in a core's cache while parts are added or read

/// Writes the rows of a column in words [begin, end) of 64 of them.
template <class Key>
void decode_words(const Key* keys, uint64_t size, const DecodedPart& part, uint64_t begin, uint64_t end) {
  with_values(part.type, [&]<class Values>() {
    const KeyField field = part.field;
    auto* const values = static_cast<typename Values::Raw*>(part.values);
    auto* const validity = static_cast<uint64_t*>(part.validity);
    for (uint64_t word = begin; word < end; ++word) {
      uint64_t valid = 0, bits = 0;
      for (uint64_t row = 64 * word; row < std::min(size, 64 * (word + 1)); ++row) {
        const uint64_t code = field.code_in(keys[row]);
        const bool is_valid = !field.nulls || code != field.null_code;
        valid |= uint64_t{is_valid} << (row % 64);
        if constexpr (std::is_same_v<Values, BitValues>) {
          bits |= (is_valid ? field.ordered(code) : 0) << (row % 64);
        } else {
          values[row] = is_valid ? Values::raw(field.ordered(code)) : typename Values::Raw{0};
        }
      }
      if constexpr (std::is_same_v<Values, BitValues>) values[word] = bits;
      if (validity) validity[word] = valid;
    }
  });
}

}  // namespace

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

void HostPrimitives::encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                                 Stream& stream) {
  host(stream).enqueue([=, this, &job, parts = std::vector<KeyPart>(parts.begin(), parts.end())] {
    const auto encode = [&]<class Key>(Key* to) {
      pool_.for_blocks(size, host::kCheckRows, job, [&](uint64_t first, uint64_t last) {
        for (uint64_t begin = first; begin < last; begin += kRowsAtATime) {
          const uint64_t end = std::min(last, begin + kRowsAtATime);
          std::fill(to + begin, to + end, Key{0});
          for (const KeyPart& part : parts) {
            with_rows(part.column, [&](const auto& rows) {
              for (uint64_t row = begin; row < end; ++row) to[row] = static_cast<Key>(rows.add_to_key(to[row], part.field, row));
            });
          }
        }
      });
    };
    key_bytes == 4 ? encode(static_cast<uint32_t*>(keys)) : encode(static_cast<uint64_t*>(keys));
  });
}

void HostPrimitives::decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts,
                                   const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job, parts = std::vector<DecodedPart>(parts.begin(), parts.end())] {
    const auto decode = [&](const auto* from) {
      pool_.for_blocks((size + 63) / 64, host::kCheckRows / 64, job, [&](uint64_t first, uint64_t last) {
        constexpr uint64_t kWords = kRowsAtATime / 64;
        for (uint64_t begin = first; begin < last; begin += kWords) {
          const uint64_t end = std::min(last, begin + kWords);
          for (const DecodedPart& part : parts) decode_words(from, size, part, begin, end);
        }
      });
    };
    key_bytes == 4 ? decode(static_cast<const uint32_t*>(keys)) : decode(static_cast<const uint64_t*>(keys));
  });
}

}  // namespace warpjoin
