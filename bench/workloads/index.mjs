// The workloads of the benchmarks: what they hold at `rows` rows of the larger side, and what is asked of them.
// Payloads stay below 2^24, so that their sums over 10^9 rows are exact as float64.
import { DateDay, Dictionary, Float64, Int32, Int64, makeData, makeVector, Table, Utf8, Vector } from 'apache-arrow';
import { int64, permutation, random, zipf } from './random.mjs';

const payloadBits = 8; // of 32 shifted out

const vector = (type, data) => new Vector([makeData({ type, data })]);
const int64Column = (length, value) => vector(new Int64(), int64(length, value));
function payload(length, seed) {
  const { uint32 } = random(seed);
  return int64Column(length, () => uint32() >>> payloadBits);
}

const alphabet = Buffer.from('0123456789abcdefghijklmnopqrstuv');

/** Keys of 8 to 24 bytes: 40 bits of the id, scrambled and so unique below 2^40, then filler. */
function textKeys(length, idOf) {
  const offsets = new Int32Array(length + 1);
  const bytes = new Uint8Array(length * 24);
  let end = 0;
  for (let i = 0; i < length; i++) {
    const id = idOf(i);
    const high = Math.imul(id, 0x9e3779b1) >>> 0; // odd factor: a bijection of 32 bits
    let rest = high;
    bytes[end++] = alphabet[id & 31];
    for (let digit = 0; digit < 7; digit++) {
      bytes[end++] = alphabet[rest & 31];
      rest >>>= 5;
    }
    let filler = Math.imul(high ^ (high >>> 15), 0x735a2d97) >>> 0;
    for (let more = filler % 17; more > 0; more--) {
      bytes[end++] = alphabet[filler & 31];
      filler = (Math.imul(filler, 1664525) + 1013904223) >>> 0;
    }
    offsets[i + 1] = end;
  }
  return new Vector([makeData({ type: new Utf8(), length, nullCount: 0, valueOffsets: offsets, data: bytes.slice(0, end) })]);
}

/** A join of `left` unique keys with `right` foreign keys. `keyColumn` makes the key column from ids, which are below `left`. */
function join({
  description,
  leftRows = (rows) => rows,
  foreign,
  keyColumn = int64Column,
  keyColumns = () => keyColumn,
  options = {},
}) {
  return {
    kind: 'join',
    description,
    options: { on: 'key', ...options },
    generate(rows) {
      const left = leftRows(rows);
      const ids = permutation(left, 1);
      const idOf = foreign(left, ids);
      const keyColumn = keyColumns(left);
      return {
        left: new Table({ key: keyColumn(left, (i) => ids[i]), left_payload: payload(left, 3) }),
        right: new Table({ key: keyColumn(rows, () => idOf()), right_payload: payload(rows, 4) }),
      };
    },
  };
}

/** The same by several columns, which `columnsOf` makes of ids that are below `rows`. */
function joinBySeveral({ description, on, columnsOf }) {
  return {
    kind: 'join',
    description,
    options: { on },
    generate(rows) {
      const ids = permutation(rows, 1);
      const idOf = uniform(rows);
      return {
        left: new Table({ ...columnsOf(rows, (i) => ids[i]), left_payload: payload(rows, 3) }),
        right: new Table({ ...columnsOf(rows, idOf), right_payload: payload(rows, 4) }),
      };
    },
  };
}

/** A dictionary of `distinct` texts, and columns of its indices: of a table's rows `idOf` each. */
function dictionaryColumns(distinct) {
  const dictionary = textKeys(distinct, (id) => id);
  const type = new Dictionary(new Utf8(), new Int32(), 0);
  return (length, idOf) => new Vector([makeData({ type, length, nullCount: 0, data: codes(length, idOf), dictionary })]);
}
const codes = (length, idOf) => new Int32Array(length).map((_, i) => idOf(i));

/** Int32 columns of the numbers that `split` makes of each id. */
function int32Columns(length, idOf, count, split) {
  const columns = Array.from({ length: count }, () => new Int32Array(length));
  for (let i = 0; i < length; i++) {
    for (const [column, number] of split(idOf(i)).entries()) columns[column][i] = number;
  }
  return columns;
}

const uniform = (left) => {
  const { below } = random(2);
  return () => below(left);
};

/** One row of each of `distinct` keys, which are scattered over 32 bits. */
function unique({ description, distinct }) {
  return {
    kind: 'unique',
    description,
    options: { on: 'key' },
    generate(rows) {
      const { below } = random(1);
      const most = Math.ceil(distinct(rows));
      const key = int64Column(rows, () => Math.imul(below(most), 0x9e3779b1) >>> 0); // odd factor: a bijection of 32 bits
      return { table: new Table({ key, payload: payload(rows, 3) }) };
    },
  };
}

function sort({ description, by, limit, columns }) {
  return {
    kind: 'sort',
    description,
    options: { by, ...(limit && { limit }) },
    generate: (rows) => ({ table: new Table({ ...columns(rows), payload: payload(rows, 3) }) }),
  };
}

export const workloads = {
  'join-int64': join({
    description: 'int64 key and payload, unique keys joined with as many uniform foreign keys',
    foreign: uniform,
  }),
  'join-10to1': join({
    description: 'the same with ten foreign keys for each unique key',
    leftRows: (rows) => Math.ceil(rows / 10),
    foreign: uniform,
  }),
  'join-zipf1': join({
    description: 'the same with foreign keys drawn from a Zipf distribution of exponent 1',
    foreign: (left, ids) => {
      const rank = zipf(left, 2);
      return () => ids[rank()];
    },
  }),
  'join-int64-ordered': join({
    description: "join-int64 in the order of the left rows (maintainOrder: 'left'; ORDER BY row numbers in DuckDB)",
    foreign: uniform,
    options: { maintainOrder: 'left' },
  }),
  'join-utf8': join({
    description: 'utf8 keys of 8 to 24 bytes with int64 payload, uniform foreign keys',
    foreign: uniform,
    keyColumn: textKeys,
  }),
  'join-dictionary': join({
    description: 'dictionary keys of utf8 values of 8 to 24 bytes and int32 indices, int64 payload, twenty foreign keys for each',
    leftRows: (rows) => Math.ceil(rows / 20),
    foreign: uniform,
    keyColumns: dictionaryColumns,
  }),
  'join-dictionary-codes': join({
    description: 'the same rows, the indices as int32 keys',
    leftRows: (rows) => Math.ceil(rows / 20),
    foreign: uniform,
    keyColumn: (length, idOf) => vector(new Int32(), codes(length, idOf)),
  }),
  'join-two-int32': joinBySeveral({
    description:
      'two int32 keys, of up to 5000 values and the rest, with int64 payload, unique keys joined with uniform foreign keys',
    on: ['store', 'number'],
    columnsOf: (length, idOf) => {
      const [store, number] = int32Columns(length, idOf, 2, (id) => [id % 5000, 1_000_000 + Math.floor(id / 5000)]);
      return { store: vector(new Int32(), store), number: vector(new Int32(), number) };
    },
  }),
  'join-int32-date32-text': joinBySeveral({
    description: 'keys of an int32, a date and a utf8 of 8 to 24 bytes (200, 1000 and the rest of the values), int64 payload',
    on: ['store', 'day', 'product'],
    columnsOf: (length, idOf) => {
      const split = (id) => [id % 200, 10_957 + (Math.floor(id / 200) % 1000), Math.floor(id / 200_000)];
      const [store, day, product] = int32Columns(length, idOf, 3, split);
      return {
        store: vector(new Int32(), store),
        day: vector(new DateDay(), day),
        product: textKeys(length, (i) => product[i]),
      };
    },
  }),
  'unique-int64': unique({
    description: 'any row of each int64 key with its int64 payload, twenty rows a key',
    distinct: (rows) => rows / 20,
  }),
  'unique-int64-many': unique({
    description: 'the same with two rows a key',
    distinct: (rows) => rows / 2,
  }),
  'sort-int64': sort({
    description: 'pairs of an int64 key, uniform over 53 bits (what all engines here give back exactly), and an int64 payload',
    by: ['key'],
    columns: (rows) => {
      const { uint32 } = random(1);
      const words = new Uint32Array(2 * rows).map((_, i) => (i % 2 ? uint32() >>> 11 : uint32()));
      return { key: vector(new Int64(), new BigInt64Array(words.buffer)) };
    },
  }),
  'sort-float64': sort({
    description: 'a uniform float64 key of either sign and an int64 payload',
    by: ['key'],
    columns: (rows) => {
      const { unit } = random(1);
      return {
        key: vector(
          new Float64(),
          new Float64Array(rows).map(() => (unit() - 0.5) * 1e6),
        ),
      };
    },
  }),
  'sort-utf8': sort({
    description: 'a utf8 key of 8 to 24 bytes and an int64 payload',
    by: ['key'],
    columns: (rows) => ({ key: textKeys(rows, random(1).uint32) }),
  }),
  'sort-three-columns': sort({
    description: 'by an int32 of 1000 values, then a date of 10000 days descending, then a float64; int64 payload',
    by: ['group', { column: 'day', descending: true }, 'amount'],
    columns: (rows) => {
      const { below, unit } = random(1);
      const [group, day, amount] = [new Int32Array(rows), new Int32Array(rows), new Float64Array(rows)];
      for (let i = 0; i < rows; i++) {
        group[i] = below(1000);
        day[i] = 10957 + below(10000);
        amount[i] = unit() * 1000;
      }
      return { group: vector(new Int32(), group), day: vector(new DateDay(), day), amount: makeVector(amount) };
    },
  }),
  'sort-limit': sort({
    description: 'the first 100 rows by a uniform int64 key, of nine columns: five of int64, two of float64, int32 and utf8',
    by: ['key'],
    limit: 100,
    columns: (rows) => {
      const { uint32, unit, below } = random(1);
      const words = new Uint32Array(2 * rows).map((_, i) => (i % 2 ? uint32() >>> 11 : uint32()));
      const columns = { key: vector(new Int64(), new BigInt64Array(words.buffer)), text: textKeys(rows, uint32) };
      for (const name of ['a', 'b', 'c']) columns[name] = payload(rows, 5);
      for (const name of ['x', 'y']) columns[name] = makeVector(new Float64Array(rows).map(() => unit() * 1000));
      return {
        ...columns,
        group: vector(
          new Int32(),
          new Int32Array(rows).map(() => below(1000)),
        ),
      };
    },
  }),
};
