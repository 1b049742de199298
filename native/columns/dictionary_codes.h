// Codes of a dictionary's values: whether its indices are codes already, and the way back from codes to indices.
#pragma once

#include <cstdint>
#include <memory>

#include "columns/chunks.h"
#include "columns/plain_keys.h"

namespace warpjoin::columns {

/// Whether each value of a dictionary has its own position as code, of `code_bytes`: those from `count` on have none (kNoCode).
bool are_positions(const HostBuffer& codes, uint8_t code_bytes, uint64_t entries, uint64_t count, Engine& engine, const Job& job);

/// Whether the indices of all chunks count from the same value.
bool is_one_dictionary(const ChunkIndex& chunks);

/// Whether two plain columns have the same bytes. Looks at one chunk alone, as dictionaries nearly always have; false of others.
bool same_values(const Column& left, const Column& right, Engine& engine, const Job& job);

/// The index, of a type, that each of `count` codes of a dictionary's values stands for: nothing where several have one code.
std::shared_ptr<const PlainKey> indices_of_codes(const uint32_t* codes, uint64_t entries, uint64_t count, const ColumnType& type,
                                                 Engine& engine, const Job& job);

}  // namespace warpjoin::columns
