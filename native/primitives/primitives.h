// What a device computes: the contracts that operators are written against. primitives/host and primitives/gpu each
// implement them.
//
// Shared by all:
// - Functions enqueue on `stream` and return; results are there once the stream, or an event recorded on it behind them,
//   has been synchronized. Whatever an argument points to (spans and vectors are copied at the call, the tuples they
//   refer to are not) must live until then.
// - Tuple arrays are in memory that the device addresses: its own, a peer's where a contract says so, or host memory
//   where Device::addresses_host_memory(). Pointers named `host_...` are host memory on every device.
// - Nothing allocates device memory: scratch comes from the caller, `..._scratch_bytes` large and 128-byte aligned
//   (null where that is 0).
// - Sizes count tuples and are 64-bit. Size 0 is allowed everywhere and writes empty results.
// - Keys compare as unsigned integers of the layout's key width; nulls and NaN have been encoded away before.
// - Unsorted tuples in host memory, and both sides of match_ranges, may be the caller's, who may write to them meanwhile. Host
//   primitives then neither read nor write beyond their arrays, nor lose or repeat a value; keys that are read twice give
//   InputChanged where it shows, and results in any order where it doesn't. GPUs are given copies.
// - A cancelled `job` makes enqueued work throw Error(aborted) at its next block of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/column.h"
#include "core/error.h"
#include "core/job.h"
#include "core/sharding.h"
#include "core/tuples.h"
#include "device/device.h"

namespace warpjoin {

/// One relation's part in a local join: tuples already grouped by partition, in one or more fragments (one for each
/// device that sent some). Fragment f holds partition p in rows [offsets[f][p], offsets[f][p + 1]); every fragment's
/// offsets are host memory with partitions + 1 entries.
struct PartitionedTuples {
  TupleLayout layout;
  std::vector<TupleView> fragments;
  std::vector<const uint64_t*> host_offsets;
};

/// Values or bits of a column in shards, which lie in memory of one device each; those that hold no row may be null.
struct ShardedColumn {
  Sharding sharding;
  std::vector<const void*> shards;  ///< at most Primitives::kMostShards
};

/// Row numbers in memory: 4 or 8 bytes each.
struct RowNumbers {
  const void* rows = nullptr;
  uint8_t row_bytes = 4;
  uint64_t size = 0;
};

/// Rows of a column in a device's memory: booleans, or values of a type with an order.
struct ColumnStretch {
  ColumnType type;
  const void* values = nullptr;    ///< 16-byte aligned; booleans: whole 64-bit words of a bitmap
  const void* validity = nullptr;  ///< such a bitmap; null where no value is null
  uint64_t size = 0;
};

/// What keys that hold a column need to know of its rows. Ordered and canonical bits are those of core/key_types.h; of booleans,
/// 0 and 1.
struct ValueRange {
  uint64_t nulls = 0;
  uint64_t least = ~uint64_t{0}, greatest = 0;  ///< ordered bits; least > greatest if there are no values
  bool canonicalized = false;                   ///< some value's bits are not canonical: ordered bits don't give them back

  constexpr bool empty() const { return least > greatest; }
  constexpr void add(const ValueRange& other) {
    nulls += other.nulls;
    least = other.least < least ? other.least : least;
    greatest = other.greatest > greatest ? other.greatest : greatest;
    canonicalized |= other.canonicalized;
  }
};

/// A column's part of a key: `bits` of it from bit `shift` on. They are (ordered bits ^ flip) - base, or `null_code` for a null.
struct KeyField {
  uint64_t flip = 0, base = 0;
  unsigned shift = 0, bits = 0;  ///< shift < 64
  bool nulls = false;            ///< some rows are null, and are decoded as such
  uint64_t null_code = 0;
  /// Where rows have keys of their own, the first of these, above what fields can make and not 0: the key of row r is this + r
  /// where one of its parts has distinct nulls and is null. The same in all fields of a key.
  uint64_t distinct_from = 0;
  bool distinct_nulls = false;

  constexpr uint64_t code(uint64_t ordered) const { return (ordered ^ flip) - base; }
  constexpr uint64_t code_in(uint64_t key) const { return bits ? (key >> shift) & (~uint64_t{0} >> (64 - bits)) : 0; }
  constexpr uint64_t ordered(uint64_t code) const { return (code + base) ^ flip; }
};

/// A column and its field of a key.
struct KeyPart {
  ColumnStretch column;
  KeyField field;
};

/// A field of keys, and room in a device's memory for the column that it holds.
struct DecodedPart {
  KeyField field;
  ColumnType type;
  void* values = nullptr;    ///< as in ColumnStretch
  void* validity = nullptr;  ///< null where no value can be null
};

/// How far down an order tuples are selected: a key of those that sample_keys() has written.
struct SampleBound {
  const void* key = nullptr;    ///< as key ^ flip, in the device's memory; null: all tuples are selected
  const void* index = nullptr;  ///< which of them it is, in 4 bytes of the device's memory
  uint64_t count = 0;           ///< how many there are
};

/// What a local join found.
struct JoinTally {
  uint64_t pairs = 0;          ///< matching (build, probe) pairs
  uint64_t build_matched = 0;  ///< build tuples with at least one match
  uint64_t probe_matched = 0;  ///< probe tuples with at least one match
};

/// Which rows a local join is asked to write.
enum class JoinEmit { pairs, build_matched, build_unmatched, probe_matched, probe_unmatched };

/// Where to write them; members that are null are not written. Keys have the key width, values their side's value width.
struct JoinOutput {
  void* keys = nullptr;
  void* build_values = nullptr;
  void* probe_values = nullptr;
};

/// What match ranges add up to. Pairs may take more than 64 bits: they are pairs_high * 2^32 + pairs_low.
struct MatchSums {
  uint64_t build_rows = 0, probe_rows = 0;
  uint64_t pairs_low = 0, pairs_high = 0;

  constexpr void add(uint64_t build, uint64_t probe) {  // both below 2^32
    build_rows += build;
    probe_rows += probe;
    pairs_low += build * probe & 0xFFFFFFFF;
    pairs_high += build * probe >> 32;
  }
  constexpr void add(const MatchSums& other) {
    build_rows += other.build_rows;
    probe_rows += other.probe_rows;
    pairs_low += other.pairs_low;
    pairs_high += other.pairs_high;
  }
  friend constexpr bool operator==(const MatchSums&, const MatchSums&) = default;
};

/// Matches found and kept between counting and writing. Holds what Primitives::hash_match needs to retrieve them.
class HashMatch {
 public:
  virtual ~HashMatch() = default;
  /// Valid once the match is complete.
  virtual const JoinTally& tally() const = 0;
  /// Once it is complete: whether hash_match_into wrote the pairs.
  virtual bool written() const { return false; }
};

/// Of a build side that several probe sides are matched with: the most tuples that there are.
struct HashBuildPlan {
  TupleLayout build, probe;
  uint64_t build_rows;                    ///< in all
  uint64_t build_at_once, probe_at_once;  ///< in a piece, and in a match
  uint32_t pieces;                        ///< up to kMostPieces
  uint32_t partitions;
  bool count_only;
  bool tracks_build = true;  ///< whether matches know which build tuples have been found

  static constexpr uint32_t kMostPieces = 256;
};

/// A build side that several probe sides are matched with, one after the other on one stream, which is that of all calls. It
/// takes its tuples piece by piece, and keeps them its own way.
class HashBuild {
 public:
  virtual ~HashBuild() = default;
  /// Adds tuples, which may go once the stream has got past this. Offsets are read when the stream gets there.
  virtual void add(const PartitionedTuples& tuples, const Job& job, Stream& stream) = 0;
  /// Prepares for matches, as no more tuples come.
  virtual void finish(const Job& job, Stream& stream) = 0;
  /// Once the stream has been synchronized after finish(): how much memory it takes beside its scratch, as keys crowd.
  virtual size_t more_bytes() const { return 0; }
  /// Goes on then, with so much memory, which must stay untouched until it is destroyed. Matches may follow on the stream.
  virtual void go_on(void* /*memory*/, const Job& /*job*/, Stream& /*stream*/) {}
};

class HashGroups;

class Primitives {
 public:
  virtual ~Primitives() = default;

  // --- Encode ---------------------------------------------------------------------------------------------------

  /// Adds a column's rows to *host_range.
  virtual void value_range(const ColumnStretch& column, ValueRange* host_range, const Job& job, Stream& stream) = 0;

  /// Writes a key for each of `size` rows, the number that each part's column has: the fields of its parts, zero without any.
  virtual void encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                           Stream& stream) = 0;

  /// Writes the columns that fields of `size` keys hold, each of so many rows. Values of nulls are zero, and so are a bitmap's
  /// bits behind the last row.
  virtual void decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts,
                             const Job& job, Stream& stream) = 0;

  // --- Sort -----------------------------------------------------------------------------------------------------

  /// Sorts tuples by the key bits set in `bits`: all that vary, or the topmost of these. Stable, but tuples that agree in `bits`
  /// and not in those below may also come in the order of whole keys. `in`, or its keys alone, may be the same memory as `a` and
  /// is not changed otherwise; `a` and `b` are two distinct working buffers of in.size tuples. Returns the one of them that will
  /// hold the result.
  virtual TupleSpan sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch, const Job& job,
                         Stream& stream) = 0;
  virtual size_t sort_scratch_bytes(TupleLayout layout, uint64_t size) = 0;

  /// The most tuples that sort_ties() sorts as one tie.
  static constexpr uint64_t kMostTied = 16;
  /// Completes a sort by key >> low_bits: brings tuples that agree in that into the order of whole keys, stable. Ties of more
  /// than kMostTied tuples stay as they are; *host_unsorted becomes true where one of them is not in order.
  virtual void sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* host_unsorted, const Job& job,
                         Stream& stream) = 0;

  /// ORs into *host_varying_bits the key bits that are not the same in all keys of `in` and in `host_first_key`'s key:
  /// bits = OR over keys of (key XOR *host_first_key).
  virtual void varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits,
                            const Job& job, Stream& stream) = 0;

  /// Writes the keys of rows sampled_row(in.size, count, 0 .. count - 1) of `in` to `keys`, which may lie on a peer device.
  /// count <= in.size.
  virtual void sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) = 0;

  /// Writes the tuples of `in` that come no later than the bound in the order of key ^ flip, equal ones in that of rows. They
  /// come in any order, with key ^ flip for keys and implied values written out. *host_count is their number; those that `out`
  /// has no room for are counted alone. One pass over the keys.
  virtual void select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out,
                            uint64_t* host_count, void* scratch, const Job& job, Stream& stream) = 0;
  static constexpr size_t kSelectScratchBytes = 128;

  /// Merges k >= 1 sorted runs into `out`, stable: equal keys keep the order of the runs. Runs may lie on peer devices. What is
  /// out of order would be read past its end.
  virtual void merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
                     Stream& stream) = 0;
  virtual size_t merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) = 0;

  /// Where to cut k sorted runs so that the parts before the cuts are the first `rank` tuples of their stable merge
  /// (multisequence selection; for two runs the pivot of multi-gpu-sort-merge-join 3.1.1 and the merge path of 3.3.1). Ranks
  /// ascend, and so do each run's cuts. For each rank r, host_cuts[r * k + i] is the cut in run i; the cuts of a rank add up to
  /// it. Runs may lie on peer devices; only O(log n) of their keys are read.
  virtual void split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks,
                          uint64_t* host_cuts, Stream& stream) = 0;

  // --- Partition ------------------------------------------------------------------------------------------------

  /// Groups tuples by digit, stable. `host_offsets` has digit.count() + 1 entries: partition p is rows
  /// [host_offsets[p], host_offsets[p + 1]) of `out`. Implied values are written out. digit.bits <= 12.
  virtual void partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void* scratch,
                         const Job& job, Stream& stream) = 0;
  virtual size_t partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) = 0;

  /// Groups tuples by key range, stable: range r holds the keys with bounds[r - 1] <= key ^ flip < bounds[r]; the first range
  /// has no lower bound and the last no upper one. Keys are written as key ^ flip. `bounds` ascend strictly and are at most
  /// kMostRanges - 1. `host_offsets` has bounds.size() + 2 entries: range r is rows [host_offsets[r], host_offsets[r + 1])
  /// of `out`. Implied values are written out.
  virtual void partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds, TupleSpan out,
                                uint64_t* host_offsets, void* scratch, const Job& job, Stream& stream) = 0;
  virtual size_t partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) = 0;
  static constexpr size_t kMostRanges = 256;

  /// Writes key ^ flip of `size` keys; `flipped` may be `keys`.
  virtual void flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                         Stream& stream) = 0;

  /// Writes the tuples of `parts`, one part behind the other, to `out`, whose size is that of all parts together. Parts
  /// may lie on peer devices; their values are in memory, not implied.
  virtual void concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void* scratch, const Job& job,
                           Stream& stream) = 0;
  virtual size_t concatenate_scratch_bytes(size_t parts) = 0;

  // --- Gather ---------------------------------------------------------------------------------------------------
  // Columns may lie on peer devices; rows, `valid` and `out` are the device's own, 16-byte aligned. `valid` is a bitmap that
  // says which rows of the result have a value; null: all.

  static constexpr size_t kMostShards = 32;

  /// Writes to out[i] the value in row rows[i] of `column`, zero where it is not valid; `width` is 1, 2, 4, 8 or 16 bytes, and
  /// shards are so aligned.
  virtual void gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* out, const Job& job,
                      Stream& stream) = 0;
  /// The same of a bitmap's bits, where a row number of all ones is a missing row, whose bit is zero. Writes whole 64-bit words;
  /// the bits behind the last row are zero.
  virtual void gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* out, const Job& job,
                           Stream& stream) = 0;

  // --- Merge join -----------------------------------------------------------------------------------------------

  /// Finds the match ranges of two sorted relations in ascending key order, each key once; row numbers are relative to
  /// the views (multi-gpu-sort-merge-join 3.3.3). At most min(build.size, probe.size) ranges are written to `ranges`,
  /// their number to *host_count. With `ranges` null they are only counted. `row_bytes` is 8 (MatchRange) or, for sizes
  /// below 2^32, 4 (NarrowMatchRange).
  virtual void match_ranges(TupleLayout build_layout, TupleView build, TupleLayout probe_layout, TupleView probe, void* ranges,
                            uint8_t row_bytes, uint64_t* host_count, void* scratch, const Job& job, Stream& stream) = 0;
  /// Grows with the sum of the sizes, and depends on that alone where both sides have rows.
  virtual size_t match_ranges_scratch_bytes(TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout,
                                            uint64_t probe_size) = 0;
  /// Adds up `count` ranges, fewer than 2^32.
  virtual void sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* host_sums, const Job& job,
                          Stream& stream) = 0;

  // --- Hash join ------------------------------------------------------------------------------------------------

  /// Joins two relations partition by partition: builds a hash table over each build partition, probes it, and keeps
  /// which tuples match (design: count, reserve, retrieve). Layouts have the same key width. Equal keys are in partitions
  /// of the same number (at least one partition). Within a partition all keys have the same topmost `common_bits` bits
  /// of mix_key(key), so tables take the bits below. With count_only nothing is kept and only the tally may be used.
  /// `scratch` must stay untouched until the returned object is destroyed. Offsets are read when the stream gets there.
  virtual std::unique_ptr<HashMatch> hash_match(const PartitionedTuples& build, const PartitionedTuples& probe,
                                                uint32_t partitions, uint32_t common_bits, bool count_only, void* scratch,
                                                const Job& job, Stream& stream) = 0;
  /// Without tuples yet. `scratch` must stay untouched until it is destroyed.
  virtual std::unique_ptr<HashBuild> hash_build(const HashBuildPlan& plan, void* scratch) = 0;
  /// hash_match with one that is ready and must outlive the match. Where the plan tracks them, the match says how many build
  /// tuples it and those before it found, and emits those. Its other rows may be emitted, on another stream, beside later
  /// matches.
  virtual std::unique_ptr<HashMatch> hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t common_bits,
                                                void* scratch, const Job& job, Stream& stream) = 0;
  /// hash_match for pairs that `out` has room for, `most` of them, in memory that the device addresses: where hash_match_writes()
  /// and each build key is there once, they are written as soon as they are found, in no order. No emit of them is needed nor
  /// allowed then, and the tally knows nothing of build tuples. Tuples must stay in memory until the match is complete: it may
  /// look at them again.
  virtual std::unique_ptr<HashMatch> hash_match_into(JoinOutput /*out*/, uint64_t /*most*/, const PartitionedTuples& build,
                                                     const PartitionedTuples& probe, uint32_t partitions, uint32_t common_bits,
                                                     void* scratch, const Job& job, Stream& stream) {
    return hash_match(build, probe, partitions, common_bits, false, scratch, job, stream);
  }
  /// Whether it writes pairs of tuples with these layouts at all.
  virtual bool hash_match_writes(TupleLayout /*build*/, TupleLayout /*probe*/) const { return false; }
  /// Goes on with a match whose stream has been synchronized, where what it found there decides what comes next: enqueues
  /// that and returns true, or returns false where the match is complete and its tally valid. To be called, and the stream
  /// synchronized, until it returns false.
  virtual bool hash_match_goes_on(HashMatch& /*match*/, const Job& /*job*/, Stream& /*stream*/) { return false; }
  /// Build tuples that a partition should have at most; more are slower, not wrong. UINT64_MAX where hash_match cuts the
  /// relations by itself.
  virtual uint64_t hash_partition_tuples() const = 0;
  /// Sizes are those of all fragments together. Enough for smaller sides too.
  virtual size_t hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                          uint32_t partitions, bool count_only) = 0;
  virtual size_t hash_build_scratch_bytes(const HashBuildPlan& plan) = 0;
  virtual size_t hash_probe_scratch_bytes(const HashBuildPlan& plan) = 0;
  /// For how many tuples a build side has to be planned so that all keys of `rows` may crowd, and no more memory is taken.
  virtual uint64_t hash_build_crowded_room(TupleLayout /*build*/, uint64_t rows, bool /*count_only*/) { return rows; }

  /// Writes rows [first, first + rows) of a complete match, which has as many as the tally says: pairs, or one side's matched or
  /// unmatched tuples (keys and that side's values). Their order is that of the match. Several emits of a match may run at
  /// once.
  virtual void hash_emit(const HashMatch& match, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, const Job& job,
                         Stream& stream) = 0;
  /// How tuples are grouped for devices that share a join, if this one can (primitives/hash_groups.h).
  virtual HashGroups* hash_groups() { return nullptr; }
};

/// What a device can't do yet.
[[noreturn]] inline void not_supported_on(const Device& device, const char* what) {
  throw Error(ErrorCode::not_supported, std::string(what) + " is not supported yet on device '" + device.info().name + "'");
}

}  // namespace warpjoin
