/** Random tables, drawn by fast-check from a seed each, for property tests against DuckDB. */
import {
  Binary,
  BinaryView,
  Bool,
  type DataType,
  DateDay,
  DateMillisecond,
  Decimal,
  Dictionary,
  DurationMillisecond,
  FixedSizeBinary,
  Float32,
  Float64,
  Int8,
  Int16,
  Int32,
  Int64,
  LargeUtf8,
  makeData,
  Table,
  TimeMicrosecond,
  TimestampMicrosecond,
  TimestampNanosecond,
  TimestampSecond,
  Uint8,
  Uint16,
  Uint32,
  Uint64,
  Utf8,
  Utf8View,
  Vector,
  vectorFromArray,
} from 'apache-arrow';
import fc from 'fast-check';
import {
  arrowValues,
  drawPayload,
  drawPayloadValues,
  PAYLOAD_KINDS,
  type Payload,
  type PayloadKind,
  type Plain,
  textOf,
} from './payload.js';

/** Most bytes of a result's buffers: mostly as many as it takes. */
export const bufferBytes = fc.constantFrom(null, null, 100, 2000);

export type KeyType =
  | 'int8'
  | 'int16'
  | 'int32'
  | 'int64'
  | 'uint8'
  | 'uint16'
  | 'uint32'
  | 'uint64'
  | 'float32'
  | 'float64'
  | 'date'
  | 'timestamp'
  | 'utf8'
  | 'bool'
  | OtherKeyType;

/** Types that need another form to be compared, and those of other units and offsets than the usual ones. */
export type OtherKeyType =
  | 'decimal64'
  | 'decimal128'
  | 'decimal256'
  | 'binary'
  | 'binary5'
  | 'binary11'
  | 'binary_view'
  | 'large_utf8'
  | 'utf8_view'
  | 'date_ms'
  | 'timestamp_s'
  | 'timestamp_ns'
  | 'time'
  | 'duration'
  | 'dictionary';

/** What a key value is in JavaScript; null for a null. */
export type Value = number | bigint | string | boolean | null;

export const KEY_TYPES: readonly KeyType[] = [
  'int8',
  'int16',
  'int32',
  'int64',
  'uint8',
  'uint16',
  'uint32',
  'uint64',
  'float32',
  'float64',
  'date',
  'timestamp',
  'utf8',
  'bool',
];

export const OTHER_KEY_TYPES: readonly OtherKeyType[] = [
  'decimal64',
  'decimal128',
  'decimal256',
  'binary',
  'binary5',
  'binary11',
  'binary_view',
  'large_utf8',
  'utf8_view',
  'date_ms',
  'timestamp_s',
  'timestamp_ns',
  'time',
  'duration',
  'dictionary',
];

const ARROW: Record<KeyType, () => DataType> = {
  int8: () => new Int8(),
  int16: () => new Int16(),
  int32: () => new Int32(),
  int64: () => new Int64(),
  uint8: () => new Uint8(),
  uint16: () => new Uint16(),
  uint32: () => new Uint32(),
  uint64: () => new Uint64(),
  float32: () => new Float32(),
  float64: () => new Float64(),
  date: () => new DateDay(),
  timestamp: () => new TimestampMicrosecond(),
  utf8: () => new Utf8(),
  bool: () => new Bool(),
  decimal64: () => new Decimal(4, 18, 64),
  decimal128: () => new Decimal(2, 38, 128),
  decimal256: () => new Decimal(2, 38, 256),
  binary: () => new Binary(),
  binary5: () => new FixedSizeBinary(5),
  binary11: () => new FixedSizeBinary(11),
  binary_view: () => new BinaryView(),
  large_utf8: () => new LargeUtf8(),
  utf8_view: () => new Utf8View(),
  date_ms: () => new DateMillisecond(),
  timestamp_s: () => new TimestampSecond(),
  timestamp_ns: () => new TimestampNanosecond(),
  time: () => new TimeMicrosecond(),
  duration: () => new DurationMillisecond(),
  dictionary: () => new Dictionary(new Utf8(), new Int32()),
};

/** A small seeded generator (xorshift128+): the data of a case depend on its seed alone. */
export class Random {
  #a: bigint;
  #b: bigint;
  constructor(seed: number) {
    this.#a = BigInt(seed) * 0x9e3779b97f4a7c15n + 1n;
    this.#b = BigInt(seed) ^ 0xd1b54a32d192ed03n;
    for (let i = 0; i < 8; ++i) this.bits();
  }
  /** 64 random bits. */
  bits(): bigint {
    const mask = (1n << 64n) - 1n;
    let a = this.#a & mask;
    const b = this.#b & mask;
    this.#a = b;
    a ^= (a << 23n) & mask;
    this.#b = a ^ b ^ (a >> 18n) ^ (b >> 5n);
    return (this.#b + b) & mask;
  }
  /** An integer in [0, bound). */
  below(bound: number): number {
    return bound <= 1 ? 0 : Number(this.bits() % BigInt(bound));
  }
  /** The integers below `bound` in any order. */
  order(bound: number): number[] {
    const order = Array.from({ length: bound }, (_, i) => i);
    for (let i = bound - 1; i > 0; --i) {
      const j = this.below(i + 1);
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    return order;
  }
  /** In [0, 1). */
  unit(): number {
    return Number(this.bits() >> 11n) / 2 ** 53;
  }
}

/** How the values of a key column are spread. */
export type Spread = 'uniform' | 'few' | 'zipf' | 'equal' | 'sorted' | 'unique' | 'extreme';
export const SPREADS: readonly Spread[] = ['uniform', 'few', 'zipf', 'equal', 'sorted', 'unique', 'extreme'];

/** Whether a column of these values has each of them many times. */
export const isHeavy = (type: KeyType, spread: Spread): boolean =>
  ['equal', 'few', 'extreme', 'zipf'].includes(spread) || ['bool', 'int8', 'uint8'].includes(type);

const DECIMALS = [0n, -1n, 2n ** 63n - 1n, 2n ** 63n, -(2n ** 63n), -(2n ** 63n) - 1n, 10n ** 38n - 1n, 1n - 10n ** 38n];

const TEXTS = [
  '',
  'a',
  'a\u0001',
  'prefix-shared-by-many-0',
  'prefix-shared-by-many-1',
  'prefix-shared-by-many',
  'é',
  'z'.repeat(40),
  '日本',
];

const EXTREMES: Record<KeyType, Value[]> = {
  int8: [-128, 127, 0, -1],
  int16: [-32768, 32767, 0, -1],
  int32: [-2147483648, 2147483647, 0, -1],
  int64: [-(2n ** 63n), 2n ** 63n - 1n, 0n, -1n, 2n ** 32n, -(2n ** 32n)],
  uint8: [0, 255, 128],
  uint16: [0, 65535],
  uint32: [0, 4294967295, 2147483648],
  uint64: [0n, 2n ** 64n - 1n, 2n ** 63n, 2n ** 32n],
  float32: [Number.NaN, 0, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1.5, -1.5],
  float64: [Number.NaN, 0, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 5e-324, -5e-324, 1e308],
  date: [0, -1, 20000, -20000],
  timestamp: [0n, -1n, 10n ** 15n, -(10n ** 15n)],
  utf8: TEXTS,
  large_utf8: TEXTS,
  utf8_view: TEXTS,
  date_ms: [0n, -86_400_000n, 86_400_000n, 86_400_000n * 20_000n, -86_400_000n * 20_000n],
  timestamp_s: [0n, -1n, 10n ** 9n, -(10n ** 9n)],
  timestamp_ns: [0n, -1n, 10n ** 18n, -(10n ** 18n), 1000n],
  time: [0n, 1n, 86_399_999_999n],
  duration: [0n, -1n, 2n ** 62n, -(2n ** 62n)],
  bool: [true, false],
  decimal64: [0n, -1n, 1n, 100n, -100n, 10n ** 18n - 1n, 1n - 10n ** 18n],
  decimal128: DECIMALS,
  decimal256: DECIMALS,
  binary: ['', '\0', '\0\0', 'a', 'a\0', '\xff', 'prefix-shared-by-many\0', 'prefix-shared-by-many'],
  binary_view: ['', '\0', '\0\0', 'a', 'a\0', '\xff', 'twelve bytes', 'twelve bytes\0', 'twelve bytes and others'],
  binary5: ['', '\0', '\x7f', '\x80', '\xff\xff\xff\xff\xff'],
  binary11: ['', '\0\0\0\0\0\0\0\0\0\0\x01', '\xff\xff\xff\xff\xff\xff\xff\xff', 'prefix\0', 'prefix\xff'],
  dictionary: ['', 'a', 'a\u0001', 'prefix-shared-by-many-0', 'prefix-shared-by-many', 'é', '日本'],
};

// The value with rank i among the values that a column can take.
function ranked(type: KeyType, i: number): Value {
  switch (type) {
    case 'int8':
      return ((i * 37) % 256) - 128;
    case 'uint8':
      return (i * 37) % 256;
    case 'int16':
      return ((i * 7919) % 65536) - 32768;
    case 'uint16':
      return (i * 7919) % 65536;
    case 'int32':
      return ((i * 7919) % 2 ** 31) | 0;
    case 'uint32':
      return (i * 2654435761) % 2 ** 32;
    case 'int64':
      return BigInt.asIntN(64, BigInt(i) * 0x9e3779b97f4a7c15n);
    case 'uint64':
      return BigInt.asUintN(64, BigInt(i) * 0x9e3779b97f4a7c15n);
    case 'float32':
      return Math.fround((i % 2 ? -1 : 1) * i * 0.37);
    case 'float64':
      return (i % 2 ? -1 : 1) * i * 0.37;
    case 'date':
      return i % 2 ? -i : i;
    case 'timestamp':
      return BigInt(i % 2 ? -i : i) * (i % 3 ? 86_400_000_000n : 1_000_003n);
    case 'date_ms':
      return BigInt(i % 2 ? -i : i) * 86_400_000n;
    case 'timestamp_s':
      return BigInt(i % 2 ? -i : i) * 86_400n;
    case 'timestamp_ns':
      return BigInt(i % 2 ? -i : i) * (i % 3 ? 86_400_000_000_000n : 1_000_003_000n);
    case 'time':
      return (BigInt((i * 7919) % 86_400) * 1_000_003n) % 86_400_000_000n;
    case 'duration':
      return BigInt(i % 2 ? -i : i) * 1_000_003n;
    case 'decimal64':
      return BigInt(i % 2 ? -i : i) * (i % 3 ? 10_000n : 1_000_003n);
    case 'decimal128':
    case 'decimal256':
      return BigInt(i % 2 ? -i : i) * (i % 5 === 0 ? 10n ** 21n : i % 3 ? 100n : 1_000_003n);
    case 'binary':
    case 'binary_view':
      return String.fromCharCode(i % 3, (i * 37) % 256).repeat(1 + (i % 9));
    case 'binary5':
    case 'binary11':
      return String.fromCharCode(i % 3, (i * 37) % 256, (i * 7) % 256);
    case 'dictionary':
    case 'large_utf8':
    case 'utf8_view':
    case 'utf8':
      return i % 3 === 0 ? `key-number-${i}` : i % 3 === 1 ? `${i}` : `a rather long shared prefix ${i % 7} ${i}`;
    case 'bool':
      return i % 2 === 0;
  }
}

/** `size` values of a type; nulls at `nullRate`. */
export function drawValues(random: Random, type: KeyType, size: number, spread: Spread, nullRate: number): Value[] {
  const distinct = spread === 'few' ? 5 : spread === 'equal' ? 1 : Math.max(1, Math.ceil(size * 0.8));
  const values: Value[] = [];
  const order = spread === 'unique' ? random.order(size) : [];
  for (let i = 0; i < size; ++i) {
    if (random.unit() < nullRate) {
      values.push(null);
    } else if (spread === 'extreme' && random.unit() < 0.7) {
      const some = EXTREMES[type];
      values.push(some[random.below(some.length)]!);
    } else if (spread === 'zipf') {
      values.push(ranked(type, Math.min(distinct - 1, Math.floor(distinct ** random.unit()) - 1)));
    } else if (spread === 'unique') {
      values.push(ranked(type, order[i]!));
    } else if (spread === 'sorted') {
      values.push(ranked(type, i % distinct));
    } else {
      values.push(ranked(type, random.below(distinct)));
    }
  }
  return values;
}

const RAW = {
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
  date: Int32Array,
  timestamp: BigInt64Array,
  date_ms: BigInt64Array,
  timestamp_s: BigInt64Array,
  timestamp_ns: BigInt64Array,
  time: BigInt64Array,
  duration: BigInt64Array,
} as const;

/** Bytes of a value in so many of them: a number, the least significant first, or text of a byte a letter. */
function bytesOf(value: Value, width: number): Uint8Array {
  if (typeof value === 'string') return Uint8Array.from({ length: width }, (_, at) => value.charCodeAt(at) || 0);
  const number = BigInt.asUintN(8 * width, BigInt(value ?? 0));
  return Uint8Array.from({ length: width }, (_, at) => Number((number >> BigInt(8 * at)) & 255n));
}

const WIDTHS = { decimal64: 8, decimal128: 16, decimal256: 32, binary5: 5, binary11: 11 } as const;

/** The bytes of a binary value, which is text of a byte a letter. */
export const binaryOf = (value: string): Uint8Array => Uint8Array.from(value, (letter) => letter.charCodeAt(0));

/** Views of these values, the longer ones in one buffer. */
function views(values: readonly (Uint8Array | null)[]): { views: Uint8Array; variadicBuffers: Uint8Array[] } {
  const long: Uint8Array[] = [];
  let at = 0;
  const made = Buffer.alloc(values.length * 16);
  values.forEach((value, row) => {
    if (!value) return;
    made.writeInt32LE(value.length, row * 16);
    made.set(value.subarray(0, value.length > 12 ? 4 : 12), row * 16 + 4);
    if (value.length <= 12) return;
    made.writeInt32LE(at, row * 16 + 12);
    long.push(value);
    at += value.length;
  });
  return { views: new Uint8Array(made), variadicBuffers: [new Uint8Array(Buffer.concat(long))] };
}

/** Of all chunks of a case: apache-arrow numbers types of dictionaries. */
const dictionaryType = ARROW.dictionary();

/** Indices of a dictionary with some values twice, and a null. */
function toDictionary(values: Value[]): Vector {
  const distinct = [...new Set(values.filter((value) => value !== null))];
  const entries = [...distinct, null, ...distinct.slice(0, 3)];
  const dictionary = vectorFromArray(entries as string[], new Utf8());
  const indices = Int32Array.from(values, (value, row) => {
    const at = value === null ? distinct.length : distinct.indexOf(value);
    return row % 2 && at < Math.min(3, distinct.length) ? distinct.length + 1 + at : at;
  });
  return new Vector([
    makeData({ type: dictionaryType as never, length: values.length, nullCount: 0, data: indices, dictionary } as never),
  ]);
}

// Fixed-width values go in bit for bit: Arrow's builders convert dates and timestamps.
function toVector(type: KeyType, values: Value[]): Vector {
  if (type === 'utf8' || type === 'large_utf8' || type === 'bool') return vectorFromArray(values as never[], ARROW[type]());
  if (type === 'binary') {
    const bytes = values.map((value) => (value === null ? null : binaryOf(value as string)));
    return vectorFromArray(bytes as never[], ARROW[type]());
  }
  if (type === 'dictionary') return toDictionary(values);
  const nullBitmap = new Uint8Array((values.length + 7) >> 3);
  let nullCount = 0;
  values.forEach((value, i) => {
    if (value === null) ++nullCount;
    else nullBitmap[i >> 3]! |= 1 << (i & 7);
  });
  if (type === 'utf8_view' || type === 'binary_view') {
    const bytes = values.map((value) =>
      value === null ? null : type === 'utf8_view' ? Buffer.from(value as string) : binaryOf(value as string),
    );
    return new Vector([
      makeData({ type: ARROW[type](), length: values.length, nullCount, nullBitmap, ...views(bytes) } as never),
    ]);
  }
  if (type in WIDTHS) {
    const width = WIDTHS[type as keyof typeof WIDTHS];
    const bytes = new Uint8Array(values.length * width);
    values.forEach((value, row) => {
      bytes.set(bytesOf(value, width), row * width);
    });
    const of = ARROW[type]();
    const data = new of.ArrayType(bytes.buffer);
    return new Vector([makeData({ type: of, length: values.length, nullCount, nullBitmap, data } as never)]);
  }
  const raw = type as keyof typeof RAW;
  const zero = RAW[raw] === BigInt64Array || RAW[raw] === BigUint64Array ? 0n : 0;
  const data = new RAW[raw](values.map((value) => value ?? zero) as never[]);
  return new Vector([makeData({ type: ARROW[type](), length: values.length, nullCount, nullBitmap, data } as never)]);
}

/** The values as indices of a dictionary of their own, in any order: with a value twice, and where there are nulls perhaps one. */
function asDictionary(random: Random, type: KeyType, values: Value[], id: number): Vector {
  const entries = [...new Set(values.filter((value) => value !== null || random.below(2) === 0))];
  if (entries.length > 0) entries.push(entries[random.below(entries.length)]!);
  const shuffled = random.order(entries.length).map((at) => entries[at]!);
  const places = new Map(shuffled.map((value, place) => [value as Value, place]));
  const nullBitmap = new Uint8Array((values.length + 7) >> 3);
  const data = Int32Array.from(values, (value, row) => {
    const place = places.get(value);
    if (place !== undefined) nullBitmap[row >> 3]! |= 1 << (row & 7);
    return place ?? -1;
  });
  const nullCount = data.filter((place) => place < 0).length;
  const dictionary = toVector(type, shuffled);
  const of = new Dictionary(ARROW[type](), new Int32(), id);
  return new Vector([makeData({ type: of, length: values.length, nullCount, nullBitmap, data, dictionary } as never)]);
}

/** Values in several chunks, each sliced out of a longer one at a random offset. */
function sliced<V>(random: Random, values: V[], chunks: number, padding: () => V, whole: (values: V[]) => Vector): Vector {
  const vectors: Vector[] = [];
  for (let c = 0, begin = 0; c < chunks; ++c) {
    const end =
      c === chunks - 1
        ? values.length
        : Math.min(values.length, begin + random.below(Math.ceil((2 * values.length) / chunks) + 1));
    const before = random.below(13);
    const after = random.below(3);
    const some = (n: number) => Array.from({ length: n }, padding);
    vectors.push(whole([...some(before), ...values.slice(begin, end), ...some(after)]).slice(before, before + end - begin));
    begin = end;
  }
  return new Vector(vectors.flatMap((vector) => [...vector.data]));
}

/** A column of keys; with dictionaries by chunk. */
export function makeVector(random: Random, type: KeyType, values: Value[], chunks: number, dictionary = false): Vector {
  const id = random.below(2 ** 31);
  const whole = (some: Value[]) =>
    dictionary && type !== 'dictionary' ? asDictionary(random, type, some, id) : toVector(type, some);
  return sliced(random, values, chunks, () => ranked(type, random.below(100)), whole);
}

const makePayload = (random: Random, of: Payload, values: Plain[], chunks: number): Vector =>
  sliced(
    random,
    values,
    chunks,
    () => of.draw(random),
    (some) => new Vector([of.data(random, some)]),
  );

export interface CaseTable {
  table: Table;
  /** Values of each key column, row by row. */
  keys: Record<string, Value[]>;
  types: Record<string, KeyType>;
  /** Payload columns that DuckDB holds, too. */
  payload: Record<string, { of: Payload; values: Plain[] }>;
  rows: number;
}

export interface ColumnSpec {
  name: string;
  type: KeyType;
  spread: Spread;
  nullRate: number;
  dictionary?: boolean;
}

/**
 * A table of the columns asked for, its row number in column `${prefix}row`, payload of several types, and columns `${prefix}p0`, ...
 * of these kinds.
 */
export function makeTable(
  seed: number,
  prefix: string,
  rows: number,
  chunks: number,
  columns: ColumnSpec[],
  kinds: readonly PayloadKind[] = [],
): CaseTable {
  const random = new Random(seed);
  const keys: Record<string, Value[]> = {};
  const types: Record<string, KeyType> = {};
  const vectors: Record<string, Vector> = {};
  for (const { name, type, spread, nullRate, dictionary } of columns) {
    keys[name] = drawValues(random, type, rows, spread, nullRate);
    types[name] = type;
    vectors[name] = makeVector(random, type, keys[name], chunks, dictionary);
  }
  const numbers = Array.from({ length: rows }, (_, i) => i);
  vectors[`${prefix}row`] = makeVector(random, 'int32', numbers, chunks);
  vectors[`${prefix}text`] = makeVector(random, 'utf8', numbers.map(payloadText), Math.max(1, chunks - 1));
  vectors[`${prefix}flag`] = makeVector(random, 'bool', numbers.map(payloadFlag), chunks === 1 ? 1 : chunks + 1);
  vectors[`${prefix}real`] = makeVector(random, 'float64', numbers.map(payloadReal), chunks);
  const payload: CaseTable['payload'] = {};
  kinds.forEach((kind, index) => {
    const of = drawPayload(random, kind, 3);
    const values = drawPayloadValues(random, of, rows);
    payload[`${prefix}p${index}`] = { of, values };
    vectors[`${prefix}p${index}`] = makePayload(random, of, values, 1 + ((chunks + index) % 4));
  });
  return { table: new Table(vectors), keys, types, payload, rows };
}

// The payload of a row is a function of its row number, so that a result can be checked row by row.
export const payloadText = (row: number): Value => (row % 5 === 4 ? null : `payload ${row}`.repeat(row % 3));
export const payloadFlag = (row: number): Value => (row % 7 === 6 ? null : row % 2 === 0);
export const payloadReal = (row: number): Value => row / 8;

/** Checks the payload of every result row against the row number it came with. */
export function checkPayload(table: Table, prefix: string, expectedRows: (number | null)[]): string | undefined {
  const column = (name: string) => table.getChild(`${prefix}${name}`);
  const checks: [string, (row: number) => Value][] = [
    ['row', (row) => row],
    ['text', payloadText],
    ['flag', payloadFlag],
    ['real', payloadReal],
  ];
  for (const [name, payload] of checks) {
    const vector = column(name);
    if (!vector) return `column ${prefix}${name} is missing`;
    for (let i = 0; i < expectedRows.length; ++i) {
      const row = expectedRows[i]!;
      const expected = row === null ? null : payload(row);
      const got = vector.get(i);
      if (got !== expected) return `${prefix}${name}[${i}] is ${String(got)}, not ${String(expected)} (row ${row})`;
    }
  }
  return undefined;
}

/** Compares payload columns with what DuckDB has for the rows of a result; row i of theirs is row `order[i]` of the result. */
export function checkOraclePayload(
  result: Table,
  of: CaseTable['payload'],
  expected: Record<string, Plain[]>,
  order?: readonly number[],
): string | undefined {
  for (const [name, { of: type }] of Object.entries(of)) {
    const vector = result.getChild(name);
    if (!vector) return `column ${name} is missing`;
    const got = arrowValues(type, vector);
    const want = expected[name]!;
    if (got.length !== want.length) return `${name} has ${got.length} rows, not ${want.length}`;
    for (const [at, value] of want.entries()) {
      const row = order ? order[at]! : at;
      const [one, other] = [textOf(got[row]!), textOf(value)];
      if (one !== other) return `${name}[${row}] of ${type.arrow} is ${one}, not ${other}`;
    }
  }
  return undefined;
}

/** Kinds of payload columns that DuckDB holds, too: none, one or two. */
export const payloadKinds = fc.oneof(
  { weight: 1, arbitrary: fc.constant([]) },
  { weight: 2, arbitrary: fc.array(fc.constantFrom(...PAYLOAD_KINDS), { minLength: 1, maxLength: 2 }) },
);

/** Whether two values of Arrow are the same: those of decimals and binary are arrays. */
export const same = (a: unknown, b: unknown): boolean =>
  Object.is(a, b) || (typeof a === 'object' && a !== null && String(a) === String(b));

/** Row counts: mostly small, sometimes some thousands. */
export const rowCounts = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 60 }) },
  { weight: 3, arbitrary: fc.integer({ min: 61, max: 1500 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1501, max: 12000 }) },
);

export const nullRates = fc.constantFrom(0, 0, 0, 0.1, 0.5, 1);
export const seeds = fc.integer({ min: 1, max: 2 ** 31 - 1 });
