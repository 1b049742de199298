// Joins whose keys only narrow (hashed strings): from candidate pairs to the rows of any kind of join.
#pragma once

#include <functional>

#include "join/join_rows.h"

namespace warpjoin {

/// verify_pairs with its columns bound.
using PairVerifier = std::function<uint64_t(void* left_rows, void* right_rows, uint8_t row_bytes, uint64_t pairs)>;

PairVerifier column_verifier(JoinColumns columns, Engine& engine, const Job& job);

/// What to ask of a join for candidates: every pair, whatever is wanted in the end.
JoinRequest candidate_request(const JoinRequest& request);

/// Verifies `candidates` (row numbers of both sides) and derives what `request` wants from the pairs that are left and
/// the rows that are in none. Row numbers are as wide as those of the wider side. Host memory: the result, the
/// candidates, and a bit a row.
JoinRows resolve_pairs(Engine& engine, const JoinKeys& keys, const JoinRequest& request, JoinRows candidates,
                       const PairVerifier& verify, Job& job);

}  // namespace warpjoin
