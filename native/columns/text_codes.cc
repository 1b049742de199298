#include "columns/text_codes.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "columns/matchable.h"
#include "core/bytes_hash.h"
#include "core/error.h"
#include "primitives/host/first_rows.h"

namespace warpjoin::columns {
namespace {

/// Rows looked at together: texts may be long.
constexpr uint64_t kRowsAtOnce = 4096;

/// Value `index` of a column of fixed width.
Text fixed_at(uint64_t width, const ColumnChunk& chunk, uint64_t index) {
  const auto* bytes = static_cast<const uint8_t*>(chunk.values);
  return {bytes + index * width, width, bytes + chunk.length * width};
}

/// Calls body(bytes_at) with the function of a type, so that loops over rows decide nothing.
template <class Body>
void with_bytes(const ColumnType& type, Body&& body) {
  switch (type.kind) {
    case ColumnKind::utf8: return body([](const ColumnChunk& chunk, uint64_t i) { return text_at<int32_t>(chunk, i); });
    case ColumnKind::large_utf8: return body([](const ColumnChunk& chunk, uint64_t i) { return text_at<int64_t>(chunk, i); });
    default: return body([width = type.width](const ColumnChunk& chunk, uint64_t i) { return fixed_at(width, chunk, i); });
  }
}

/// The hashes of a column's texts as the keys of tuples, without the null rows.
struct HashedTexts {
  HostBuffer hashes, rows;
  TupleLayout layout;
  TupleView view;
};

template <class Row>
HashedTexts hash_texts(const ChunkIndex& chunks, Engine& engine, const Job& job) {
  HashedTexts out;
  out.layout = {8, sizeof(Row)};
  std::vector<uint64_t> starts(block_count(chunks.rows()) + 1, 0);
  if (chunks.nullable()) {
    for_row_blocks(engine, chunks.rows(), job, [&](uint64_t block, uint64_t begin, uint64_t end) {
      uint64_t valid_rows = 0;
      chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
        for_groups(chunk, first, count,
                   [&](uint64_t, unsigned, uint64_t valid) { valid_rows += static_cast<unsigned>(std::popcount(valid)); });
      });
      starts[block + 1] = valid_rows;
    });
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    out.rows = engine.memory->allocate(starts.back() * sizeof(Row), "the rows of join keys");
  } else {
    for (uint64_t block = 0; block < block_count(chunks.rows()); ++block)
      starts[block + 1] = std::min(chunks.rows(), (block + 1) * kBlockRows);
  }
  out.hashes = engine.memory->allocate(starts.back() * sizeof(uint64_t), "the hashes of join keys");
  const auto hash_rows = [&](auto&& bytes_at) {
    for_row_blocks(engine, chunks.rows(), job, [&, hash = engine.text_hash](uint64_t block, uint64_t begin, uint64_t end) {
      uint64_t at = starts[block];
      const uint64_t last = starts[block + 1];
      auto* const hashes = out.hashes.as<uint64_t>();
      auto* const rows = out.rows.as<Row>();
      for (uint64_t from = begin; from < end; from += kRowsAtOnce) {
        job.check();
        chunks.for_pieces(from, std::min(end, from + kRowsAtOnce),
                          [&](const ColumnChunk& borrowed, uint64_t first, uint64_t count, uint64_t row) {
                            const ColumnChunk chunk = borrowed;  // a local copy: its pointers stay in registers
                            const auto hash_at = [&](uint64_t index) {
                              const Text text = bytes_at(chunk, index);
                              return hash(text.data, text.size);
                            };
                            if (!rows) {
                              for (uint64_t i = 0; i < count; ++i) hashes[at++] = hash_at(first + i);
                              return;
                            }
                            for_groups(chunk, first, count, [&](uint64_t index, unsigned, uint64_t valid) {
                              for_set_bits(valid, [&](unsigned bit) {
                                if (at == last)
                                  throw Error(ErrorCode::invalid_table, "The nulls of a key column changed during the call");
                                hashes[at] = hash_at(index + bit);
                                rows[at++] = static_cast<Row>(row + (index - first) + bit);
                              });
                            });
                          });
      }
      if (at != last) throw Error(ErrorCode::invalid_table, "The nulls of a key column changed during the call");
    });
  };
  with_bytes(chunks.type(), hash_rows);
  out.view = {out.hashes.data(), chunks.nullable() ? out.rows.data() : nullptr, 0, starts.back()};
  return out;
}

host::PartitionedKeys partition_texts(const ChunkIndex& chunks, unsigned bits, Engine& engine, const Job& job) {
  const HashedTexts hashed =
      row_bytes_for(chunks.rows()) == 4 ? hash_texts<uint32_t>(chunks, engine, job) : hash_texts<uint64_t>(chunks, engine, job);
  return host::partition_keys(engine.pool, *engine.memory, hashed.layout, hashed.view, bits, job);
}

bool equal(const Text& a, const Text& b) { return a.size == b.size && equal_bytes(a.data, b.data, a.size); }

/// Texts that share their hash with another one that comes first, each with its first row.
class CollidingTexts {
 public:
  void add(const Text& text, uint64_t row) {
    const std::lock_guard lock(mutex_);
    const auto [at, fresh] = rows_.try_emplace(view(text), row);
    if (!fresh) at->second = std::min(at->second, row);
  }
  /// All ones if it is not there.
  uint64_t first_row(const Text& text) const {
    const auto found = rows_.find(view(text));
    return found == rows_.end() ? ~uint64_t{0} : found->second;
  }
  bool empty() const { return rows_.empty(); }

 private:
  static std::string_view view(const Text& text) { return {reinterpret_cast<const char*>(text.data), text.size}; }

  std::mutex mutex_;
  std::map<std::string_view, uint64_t> rows_;
};

/// Compares the texts of rows with those of the rows that their codes name; calls differ(row, text, code) where they are not the
/// same. Offsets are prefetched two batches ahead of the comparison, and bytes one.
template <class Code, class Differ>
void compare_texts(const ChunkIndex& column, const ChunkIndex& named, Code* codes, Engine& engine, const Job& job,
                   Differ&& differ) {
  constexpr uint64_t kBatch = 32;
  // Kinds apart from widths, and no call for texts: this loop waits for memory, and the processor must see far ahead.
  const ColumnKind kind = column.type().kind, named_kind = named.type().kind;
  const uint64_t width = column.type().width;
  const bool texts = column.type().variable_width();
  const bool same = &column == &named;
  for_row_blocks(engine, column.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    struct Pair {
      Text own, named;
    };
    Pair batches[2][kBatch];
    const auto compared = [&](uint64_t row) { return codes[row] != kNoCode<Code> && !(same && codes[row] == row); };
    const auto prefetch_offsets = [&](uint64_t from) {
      if (!texts) return;
      for (uint64_t row = from; row < std::min(end, from + kBatch); ++row) {
        if (compared(row)) prefetch_offset(named_kind, named.at(codes[row]));
      }
    };
    const auto find_texts = [&](uint64_t from) {
      Pair* pair = batches[from / kBatch % 2];
      for (uint64_t row = from; row < std::min(end, from + kBatch); ++row, ++pair) {
        if (!compared(row)) continue;
        const Place a = column.at(row), b = named.at(codes[row]);
        if (texts) {
          *pair = {text_at(kind, *a.chunk, a.index), text_at(named_kind, *b.chunk, b.index)};
        } else {
          *pair = {fixed_at(width, *a.chunk, a.index), fixed_at(width, *b.chunk, b.index)};
        }
        if (pair->named.size == 0) continue;
        __builtin_prefetch(pair->named.data);
        __builtin_prefetch(pair->named.data + pair->named.size - 1);  // short texts are often on two lines
      }
    };
    prefetch_offsets(begin);
    find_texts(begin);
    prefetch_offsets(begin + kBatch);
    for (uint64_t from = begin; from < end; from += kBatch) {
      job.check();  // texts may be long
      find_texts(from + kBatch);
      prefetch_offsets(from + 2 * kBatch);
      const Pair* pair = batches[from / kBatch % 2];
      for (uint64_t row = from; row < std::min(end, from + kBatch); ++row, ++pair) {
        if (compared(row) && !equal(pair->own, pair->named)) differ(row, pair->own, codes[row]);
      }
    }
  });
}

/// Makes a side's tuples of the codes of its rows; those without one are excluded.
template <class Code>
JoinSide coded_side(HostBuffer codes, uint64_t rows, Engine& engine, const Job& job) {
  const Code* const all = codes.as<Code>();
  return matchable_side<Code>(
      std::move(codes), rows,
      [all](uint64_t row, unsigned count) {
        uint64_t coded = 0;
        for (unsigned i = 0; i < count; ++i) coded |= uint64_t{all[row + i] != kNoCode<Code>} << i;
        return coded;
      },
      engine, job);
}

/// `giving` gives the codes; `taking` may be the same column, and gets none then. Returns whether no text is in it twice.
template <class Code>
bool find_codes(const ChunkIndex& giving, const ChunkIndex& taking, HostBuffer& own, HostBuffer& other, Engine& engine,
                const Job& job) {
  const bool same = &giving == &taking;
  own = engine.memory->allocate(giving.rows() * sizeof(Code), "the codes of a join key");
  if (!same) other = engine.memory->allocate(taking.rows() * sizeof(Code), "the codes of a join key");
  Code *const own_codes = own.as<Code>(), *const other_codes = other.as<Code>();
  for_row_blocks(engine, giving.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    giving.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
        const uint64_t at = row + (index - first);
        for (unsigned i = 0; i < group; ++i) own_codes[at + i] = valid >> i & 1 ? static_cast<Code>(at + i) : kNoCode<Code>;
      });
    });
  });
  if (!same && taking.nullable()) {
    for_row_blocks(engine, taking.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      std::fill(other_codes + begin, other_codes + end, kNoCode<Code>);
    });
  }
  uint64_t repeated;
  {
    const unsigned bits = host::first_rows_bits(giving.rows());
    const host::PartitionedKeys own_keys = partition_texts(giving, bits, engine, job);
    host::PartitionedKeys other_keys;
    if (same) {
      other_keys.offsets.resize((size_t{1} << bits) + 1);
    } else {
      other_keys = partition_texts(taking, bits, engine, job);
    }
    repeated =
        host::find_first_rows(engine.pool, *engine.memory, own_keys, other_keys, sizeof(Code), own_codes, other_codes, job);
  }
  CollidingTexts colliding;
  if (repeated) {
    compare_texts(giving, giving, own_codes, engine, job,
                  [&](uint64_t row, const Text& text, Code) { colliding.add(text, row); });
    if (!colliding.empty()) {
      compare_texts(giving, giving, own_codes, engine, job,
                    [&](uint64_t row, const Text& text, Code) { own_codes[row] = static_cast<Code>(colliding.first_row(text)); });
    }
  }
  if (!same) {
    compare_texts(taking, giving, other_codes, engine, job,
                  [&](uint64_t row, const Text& text, Code) { other_codes[row] = static_cast<Code>(colliding.first_row(text)); });
  }
  return repeated == 0;
}

// --- Few distinct texts ---------------------------------------------------------------------------------------------

/// Rows that tell whether few texts are distinct.
constexpr uint64_t kSampleRows = 4096;

/// The texts of some rows, evenly spread; nothing where few of them are equal. Of a small column all rows are looked at, and
/// any number of texts will do.
std::optional<FewTexts> sample_texts(const ChunkIndex& column, Engine& engine) {
  const uint64_t rows = column.rows(), looked_at = std::min(rows, kSampleRows);
  FewTexts texts(*engine.memory, engine.text_hash, std::min(rows, FewTexts::kMost));
  const uint64_t most = looked_at < rows ? looked_at / 2 : FewTexts::kMost;
  bool few = true;
  with_bytes(column.type(), [&](auto&& bytes_at) {
    for (uint64_t i = 0; i < looked_at && few; ++i) {
      const Place place = column.at(i * rows / looked_at);
      if (!valid_at(*place.chunk, place.index)) continue;
      few = texts.insert(bytes_at(*place.chunk, place.index)) != FewTexts::kNone && texts.size() <= most;
    }
  });
  if (!few) return std::nullopt;
  return texts;
}

/// Calls body(at, text) for each row of [begin, end) that is not null; none(at) for those that are.
template <class BytesAt, class Body, class None>
void for_texts(const ChunkIndex& column, uint64_t begin, uint64_t end, const Job& job, BytesAt&& bytes_at, Body&& body,
               None&& none) {
  for (uint64_t from = begin; from < end; from += kRowsAtOnce) {
    job.check();  // texts may be long
    column.for_pieces(from, std::min(end, from + kRowsAtOnce),
                      [&](const ColumnChunk& borrowed, uint64_t first, uint64_t count, uint64_t row) {
                        const ColumnChunk chunk = borrowed;  // a local copy: its pointers stay in registers
                        if (!chunk.validity) {
                          for (uint64_t i = 0; i < count; ++i) body(row + i, bytes_at(chunk, first + i));
                          return;
                        }
                        for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
                          const uint64_t at = row + (index - first);
                          for_set_bits(valid, [&](unsigned bit) { body(at + bit, bytes_at(chunk, index + bit)); });
                          for_set_bits(~valid & low_bits(group), [&](unsigned bit) { none(at + bit); });
                        });
                      });
  }
}

/// A table that one thread adds to, and where the texts that it has added come first among the rows that it has seen.
struct AddedTexts {
  FewTexts texts;
  std::vector<uint64_t> first_rows;
};

/// Numbers a column's texts, and adds to `texts` those that it lacks, in the order of their first rows. Returns false where there
/// is no room for them. Each thread adds to a copy of its own; where it has added something, numbers are replaced afterwards.
bool number_texts(const ChunkIndex& column, FewTexts& texts, uint32_t* codes, Engine& engine, const Job& job) {
  constexpr uint32_t kNobody = ~uint32_t{0};
  const uint64_t blocks = block_count(column.rows());
  const uint32_t known = texts.size();
  std::vector<std::optional<AddedTexts>> added(std::min<uint64_t>(engine.pool.threads(), blocks));
  std::vector<uint32_t> added_in(blocks, kNobody);  // whose numbers a block has
  std::atomic<uint64_t> next{0};
  std::atomic<bool> full{false};
  with_bytes(column.type(), [&](auto&& bytes_at) {
    engine.pool.parallel_for(added.size(), [&](uint64_t thread) {
      AddedTexts own{texts.clone(), {}};
      for (uint64_t block; !full.load(std::memory_order_relaxed) && (block = next.fetch_add(1)) < blocks;) {
        uint32_t greatest = 0;
        bool fits = true;
        const auto number = [&](uint64_t row, const Text& text) {
          uint32_t code = own.texts.find(text);
          if (code == FewTexts::kNone) [[unlikely]] {
            if (fits) code = own.texts.insert(text);
            fits &= code != FewTexts::kNone;
            if (fits && code - known == own.first_rows.size()) own.first_rows.push_back(row);
            if (!fits) code = 0;
          }
          codes[row] = code;
          greatest = std::max(greatest, code);
        };
        for_texts(column, block * kBlockRows, std::min(column.rows(), (block + 1) * kBlockRows), job, bytes_at, number,
                  [codes](uint64_t row) { codes[row] = kNoCode<uint32_t>; });
        if (!fits) full.store(true, std::memory_order_relaxed);
        if (greatest >= known) added_in[block] = static_cast<uint32_t>(thread);
      }
      if (!own.first_rows.empty()) added[thread].emplace(std::move(own));
    });
  });
  if (full.load()) return false;

  struct Added {
    uint64_t row;
    uint32_t thread, id;
  };
  std::vector<Added> all;
  for (uint32_t thread = 0; thread < added.size(); ++thread) {
    for (uint32_t i = 0; added[thread] && i < added[thread]->first_rows.size(); ++i)
      all.push_back({added[thread]->first_rows[i], thread, known + i});
  }
  std::sort(all.begin(), all.end(), [](const Added& a, const Added& b) { return a.row < b.row; });
  std::vector<std::vector<uint32_t>> renumbered(added.size());
  for (const Added& one : all) {
    std::vector<uint32_t>& numbers = renumbered[one.thread];
    numbers.resize(added[one.thread]->first_rows.size());
    const uint32_t number = texts.insert(added[one.thread]->texts[one.id]);
    if (number == FewTexts::kNone) return false;
    numbers[one.id - known] = number;
  }
  for_row_blocks(engine, column.rows(), job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    if (added_in[block] == kNobody) return;
    const std::vector<uint32_t>& numbers = renumbered[added_in[block]];
    for (uint64_t row = begin; row < end; ++row) {
      if (codes[row] >= known && codes[row] != kNoCode<uint32_t>) codes[row] = numbers[codes[row] - known];
    }
  });
  return true;
}

/// Codes of few distinct texts: their numbers, in the order of a sample's rows, then in that of their first rows. Returns false
/// where the column that gives the codes has more than a core's own cache has room for.
bool number_few(const ChunkIndex& giving, const ChunkIndex& taking, HostBuffer& own, HostBuffer& other, TextCodes& codes,
                Engine& engine, const Job& job) {
  std::optional<FewTexts> texts = sample_texts(giving, engine);
  if (!texts) return false;
  own = engine.memory->allocate(giving.rows() * sizeof(uint32_t), "the codes of a join key");
  if (!number_texts(giving, *texts, own.as<uint32_t>(), engine, job)) {
    own = HostBuffer();
    return false;
  }
  if (&giving != &taking) {
    other = engine.memory->allocate(taking.rows() * sizeof(uint32_t), "the codes of a join key");
    with_bytes(taking.type(), [&, codes = other.as<uint32_t>()](auto&& bytes_at) {
      for_row_blocks(engine, taking.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
        for_texts(
            taking, begin, end, job, bytes_at, [&](uint64_t row, const Text& text) { codes[row] = texts->find(text); },
            [codes](uint64_t row) { codes[row] = kNoCode<uint32_t>; });
      });
    });
  }
  codes.bytes = sizeof(uint32_t);
  codes.count = texts->size();
  codes.distinct = codes.count == giving.rows();  // which were all in the sample
  codes.texts = std::make_shared<const FewTexts>(std::move(*texts));
  return true;
}

}  // namespace

TextCodes text_codes(const ChunkIndex& left, const ChunkIndex& right, Engine& engine, const Job& job, Giver giver) {
  TextCodes out;
  out.left_gives = giver == Giver::shorter ? left.rows() <= right.rows() : giver == Giver::left;
  const ChunkIndex &giving = out.left_gives ? left : right, &taking = out.left_gives ? right : left;
  HostBuffer &own = out.left_gives ? out.left : out.right, &other = out.left_gives ? out.right : out.left;
  if (number_few(giving, taking, own, other, out, engine, job)) return out;
  out.count = giving.rows();
  out.bytes = row_bytes_for(giving.rows());
  out.distinct = out.bytes == 4 ? find_codes<uint32_t>(giving, taking, own, other, engine, job)
                                : find_codes<uint64_t>(giving, taking, own, other, engine, job);
  return out;
}

void take_codes(TextCodes codes, uint64_t left_rows, uint64_t right_rows, JoinSide& left, JoinSide& right, Engine& engine,
                const Job& job) {
  const auto side = [&](HostBuffer& of, uint64_t rows, bool gives) {
    JoinSide out = codes.bytes == 4 ? coded_side<uint32_t>(std::move(of), rows, engine, job)
                                    : coded_side<uint64_t>(std::move(of), rows, engine, job);
    out.tuples.varying_bits = low_bits(static_cast<unsigned>(std::bit_width(codes.count)));
    out.keys_are_rows = gives && codes.distinct;
    return out;
  };
  if (codes.left) left = side(codes.left, left_rows, codes.left_gives);
  if (codes.right) right = side(codes.right, right_rows, !codes.left_gives);
}

}  // namespace warpjoin::columns
