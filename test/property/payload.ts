/** Payload columns of nested types, dictionaries and decimals: their Arrow memory, what DuckDB takes for them, and both read back. */
import {
  ARRAY,
  arrayValue,
  BIGINT,
  BOOLEAN,
  DATE,
  DECIMAL,
  DOUBLE,
  DuckDBDateValue,
  DuckDBDecimalValue,
  type DuckDBType,
  type DuckDBValue,
  INTEGER,
  LIST,
  listValue,
  MAP,
  mapValue,
  STRUCT,
  structValue,
  VARCHAR,
} from '@duckdb/node-api';
import * as arrow from 'apache-arrow';
import type { Random } from './cases.js';

/**
 * A value of any type, in a form that Arrow's and DuckDB's both have: a list is an array, a struct the array of its fields, a map the
 * array of its entries, a date its days, a decimal its digits.
 */
export type Plain = null | boolean | number | bigint | string | readonly Plain[];

/** A type of payload. Values are never null here but in `data`. */
export interface Payload {
  readonly kind: string;
  readonly arrow: arrow.DataType;
  readonly duckdb: DuckDBType;
  draw(random: Random): Plain;
  /** Arrow memory of these values. */
  data(random: Random, values: readonly Plain[]): arrow.Data;
  toDuckDB(value: Plain): DuckDBValue;
  fromDuckDB(value: DuckDBValue): Plain;
  fromArrow(value: unknown): Plain;
}

const orNull =
  <T, R>(convert: (value: NonNullable<T>) => R) =>
  (value: T): R | null =>
    value === null || value === undefined ? null : convert(value);

/** A value of the type, or null now and then. */
const maybe = (of: Payload, random: Random): Plain => (random.below(5) === 0 ? null : of.draw(random));

const bytes = (random: Random, length: number): Uint8Array => Uint8Array.from({ length }, () => random.below(256));

/** Validity bits of these values, where there are nulls, or all the same. */
function validity(random: Random, values: readonly Plain[]): { nullCount: number; nullBitmap?: Uint8Array } {
  const nullCount = values.filter((value) => value === null).length;
  if (nullCount === 0 && random.below(2)) return { nullCount };
  const nullBitmap = new Uint8Array((values.length + 7) >> 3);
  values.forEach((value, row) => {
    if (value !== null) nullBitmap[row >> 3]! |= 1 << (row & 7);
  });
  return { nullCount, nullBitmap };
}

const make = (type: arrow.DataType, length: number, parts: object): arrow.Data =>
  arrow.makeData({ type, length, ...parts } as never);

/** Numbers of a fixed width; under nulls there is anything. */
function fixed(
  kind: string,
  type: arrow.DataType,
  duckdb: DuckDBType,
  draw: (random: Random) => Plain,
  width: number,
  write: (view: DataView, at: number, value: never) => void,
): Payload {
  const same = (value: unknown): Plain => value as Plain;
  return {
    kind,
    arrow: type,
    duckdb,
    draw,
    data(random, values) {
      const data = bytes(random, values.length * width);
      const view = new DataView(data.buffer);
      values.forEach((value, row) => {
        if (value !== null) write(view, row * width, value as never);
      });
      return make(type, values.length, { ...validity(random, values), data: new type.ArrayType(data.buffer) });
    },
    toDuckDB: same as (value: Plain) => DuckDBValue,
    fromDuckDB: same,
    fromArrow: same,
  };
}

const WORDS = ['', 'a', 'ab', 'a text of several words', 'ö€𐍈', 'z'.repeat(40)];

const int32 = (): Payload =>
  fixed(
    'int32',
    new arrow.Int32(),
    INTEGER,
    (random) => random.below(2 ** 32) | 0,
    4,
    (view, at, value) => view.setInt32(at, value, true),
  );
const int64 = (): Payload =>
  fixed(
    'int64',
    new arrow.Int64(),
    BIGINT,
    (random) => BigInt.asIntN(64, random.bits()),
    8,
    (view, at, value) => view.setBigInt64(at, value, true),
  );
const float64 = (): Payload =>
  fixed(
    'float64',
    new arrow.Float64(),
    DOUBLE,
    (random) => (random.below(10) ? random.unit() - 0.5 : [Number.POSITIVE_INFINITY, 0, -0, 5e-324][random.below(4)]!),
    8,
    (view, at, value) => view.setFloat64(at, value, true),
  );

const date = (): Payload => ({
  ...fixed(
    'date',
    new arrow.DateDay(),
    DATE,
    (random) => random.below(40_000) - 10_000,
    4,
    (view, at, value) => view.setInt32(at, value, true),
  ),
  toDuckDB: (value) => new DuckDBDateValue(value as number),
  fromDuckDB: (value) => (value as DuckDBDateValue).days,
  fromArrow: (value) => Number(value) / 86_400_000,
});

/** A decimal of any width; DuckDB has those of up to 38 digits. */
function decimal(bits: 32 | 64 | 128 | 256, precision: number, scale: number): Payload {
  const below = 10n ** BigInt(precision);
  return {
    ...fixed(
      'decimal',
      new arrow.Decimal(scale, precision, bits),
      DECIMAL(precision, scale),
      (random) => {
        const digits = ((random.bits() << 64n) | random.bits()) % (random.below(2) ? below : 10n ** BigInt(1 + random.below(9)));
        return random.below(2) ? digits : -digits;
      },
      bits / 8,
      (view, at, value) => {
        for (let word = 0; word < bits / 32; word++)
          view.setUint32(at + 4 * word, Number(BigInt.asUintN(32, BigInt(value) >> BigInt(32 * word))), true);
      },
    ),
    toDuckDB: (value) => new DuckDBDecimalValue(value as bigint, precision, scale),
    fromDuckDB: (value) => (value as DuckDBDecimalValue).value,
    fromArrow: (value) => {
      const words = value as Uint32Array;
      const unsigned = words.reduceRight((sum, word) => (sum << 32n) | BigInt(word), 0n);
      return BigInt.asIntN(bits, unsigned);
    },
  };
}

const bool = (): Payload => ({
  ...fixed(
    'bool',
    new arrow.Bool(),
    BOOLEAN,
    (random) => random.below(2) === 1,
    0,
    () => {},
  ),
  data(random, values) {
    const data = bytes(random, (values.length + 7) >> 3);
    values.forEach((value, row) => {
      const bit = 1 << (row & 7);
      data[row >> 3] = value ? data[row >> 3]! | bit : data[row >> 3]! & ~bit;
    });
    return make(new arrow.Bool(), values.length, { ...validity(random, values), data });
  },
});

/** Offsets of things of these sizes: the first one need not be at 0. */
function offsets(random: Random, sizes: readonly number[], Type: Int32ArrayConstructor | BigInt64ArrayConstructor) {
  const before = random.below(3);
  const ends = [before];
  for (const size of sizes) ends.push(ends.at(-1)! + size);
  const valueOffsets = Type === Int32Array ? Int32Array.from(ends) : BigInt64Array.from(ends, BigInt);
  return { before, valueOffsets };
}

function text(large: boolean): Payload {
  const type = large ? new arrow.LargeUtf8() : new arrow.Utf8();
  return {
    ...fixed(
      'text',
      type,
      VARCHAR,
      (random) => (random.below(3) ? WORDS[random.below(WORDS.length)]! : `${random.below(1000)}`),
      0,
      () => {},
    ),
    data(random, values) {
      const texts = values.map((value) => Buffer.from((value ?? '') as string));
      const sizes = texts.map((one) => one.length);
      const { before, valueOffsets } = offsets(random, sizes, large ? BigInt64Array : Int32Array);
      const data = Buffer.concat([bytes(random, before), ...texts, bytes(random, random.below(3))]);
      return make(type, values.length, { ...validity(random, values), valueOffsets, data });
    },
  };
}

/** What lists' items and others are: these values, and some before and behind them that belong to none. */
function padded(of: Payload, random: Random, before: number, values: readonly Plain[]): arrow.Data {
  const some = (count: number): Plain[] => Array.from({ length: count }, () => maybe(of, random));
  return of.data(random, [...some(before), ...values, ...some(random.below(3))]);
}

const field = (name: string, of: Payload, nullable = true): arrow.Field => new arrow.Field(name, of.arrow, nullable);
const items = (value: unknown): readonly DuckDBValue[] => (value as { items: readonly DuckDBValue[] }).items;

function list(of: Payload, large: boolean): Payload {
  const type = large ? new arrow.LargeList(field('item', of)) : new arrow.List(field('item', of));
  return {
    kind: 'list',
    arrow: type,
    duckdb: LIST(of.duckdb),
    draw: (random) => Array.from({ length: random.below(2) * random.below(5) }, () => maybe(of, random)),
    data(random, values) {
      // A null may have items.
      const lists = values.map((value) => (value ?? (random.below(4) ? [] : this.draw(random))) as readonly Plain[]);
      const sizes = lists.map((one) => one.length);
      const { before, valueOffsets } = offsets(random, sizes, large ? BigInt64Array : Int32Array);
      const child = padded(of, random, before, lists.flat(1) as Plain[]);
      return make(type, values.length, { ...validity(random, values), valueOffsets, child });
    },
    toDuckDB: (value) => listValue((value as Plain[]).map(orNull(of.toDuckDB))),
    fromDuckDB: (value) => items(value).map(orNull(of.fromDuckDB)),
    fromArrow: (value) => Array.from(value as Iterable<unknown>, orNull(of.fromArrow)),
  };
}

function fixedList(of: Payload, size: number): Payload {
  const type = new arrow.FixedSizeList(size, field('item', of));
  return {
    kind: 'fixed list',
    arrow: type,
    duckdb: ARRAY(of.duckdb, size),
    draw: (random) => Array.from({ length: size }, () => maybe(of, random)),
    data(random, values) {
      const lists = values.map((value) => (value ?? this.draw(random)) as readonly Plain[]);
      return make(type, values.length, {
        ...validity(random, values),
        child: padded(of, random, 0, lists.flat(1) as Plain[]),
      });
    },
    toDuckDB: (value) => arrayValue((value as Plain[]).map(orNull(of.toDuckDB))),
    fromDuckDB: (value) => items(value).map(orNull(of.fromDuckDB)),
    fromArrow: (value) => Array.from(value as Iterable<unknown>, orNull(of.fromArrow)),
  };
}

function struct(fields: readonly Payload[]): Payload {
  const name = (index: number) => `f${index}`;
  const type = new arrow.Struct(fields.map((of, index) => field(name(index), of)));
  return {
    kind: 'struct',
    arrow: type,
    duckdb: STRUCT(Object.fromEntries(fields.map((of, index) => [name(index), of.duckdb]))),
    draw: (random) => fields.map((of) => maybe(of, random)),
    data(random, values) {
      const structs = values.map((value) => (value ?? this.draw(random)) as readonly Plain[]);
      const children = fields.map((of, index) =>
        padded(
          of,
          random,
          0,
          structs.map((one) => one[index]!),
        ),
      );
      return make(type, values.length, { ...validity(random, values), children });
    },
    toDuckDB: (value) =>
      structValue(Object.fromEntries(fields.map((of, index) => [name(index), orNull(of.toDuckDB)((value as Plain[])[index]!)]))),
    fromDuckDB: (value) =>
      fields.map((of, index) => orNull(of.fromDuckDB)((value as { entries: Record<string, DuckDBValue> }).entries[name(index)]!)),
    fromArrow: (value) =>
      fields.map((of, index) => orNull(of.fromArrow)((value as Record<string, unknown>)[name(index)] as never)),
  };
}

/** Keys of a map are there once each, as DuckDB wants them. */
function map(key: Payload, of: Payload): Payload {
  const entries = new arrow.Field('entries', new arrow.Struct([field('key', key, false), field('value', of)]), false);
  const type = new arrow.Map_(entries as never);
  return {
    kind: 'map',
    arrow: type,
    duckdb: MAP(key.duckdb, of.duckdb),
    draw(random) {
      const keys = new Set(Array.from({ length: random.below(2) * random.below(4) }, () => key.draw(random)));
      return [...keys].map((one) => [one, maybe(of, random)]);
    },
    data(random, values) {
      const maps = values.map((value) => (value ?? (random.below(4) ? [] : this.draw(random))) as readonly Plain[][]);
      const sizes = maps.map((one) => one.length);
      const { before, valueOffsets } = offsets(random, sizes, Int32Array);
      const some = (count: number): Plain[][] => Array.from({ length: count }, () => [key.draw(random), maybe(of, random)]);
      const all = [...some(before), ...maps.flat(1), ...some(random.below(3))];
      const column = (at: number): Plain[] => all.map((entry) => entry[at]!);
      const children = [key.data(random, column(0)), of.data(random, column(1))];
      const child = make(entries.type, all.length, { nullCount: 0, children });
      return make(type, values.length, { ...validity(random, values), valueOffsets, child });
    },
    toDuckDB: (value) =>
      mapValue((value as Plain[][]).map(([one, other]) => ({ key: key.toDuckDB(one!), value: orNull(of.toDuckDB)(other!) }))),
    fromDuckDB: (value) =>
      (value as { entries: { key: DuckDBValue; value: DuckDBValue }[] }).entries.map((entry) => [
        key.fromDuckDB(entry.key),
        orNull(of.fromDuckDB)(entry.value),
      ]),
    fromArrow: (value) =>
      Array.from(value as Iterable<[unknown, never]>, ([one, other]) => [key.fromArrow(one), orNull(of.fromArrow)(other)]),
  };
}

let dictionaries = 0;

/** Values by their place in a dictionary of each chunk: some twice, some of no row, and a null by chance. */
function dictionary(of: Payload, indices: arrow.Int8 | arrow.Int16 | arrow.Uint32): Payload {
  const type = new arrow.Dictionary(of.arrow, indices as never, 1_000_000 + dictionaries++);
  return {
    ...of,
    kind: 'dictionary',
    arrow: type,
    data(random, values) {
      const texts = values.map(textOf);
      const distinct = new Map(texts.map((one, row) => [one, values[row]!]));
      const known = [...distinct].filter(([, value]) => value !== null || random.below(2));
      const entries = [...known, ...known.slice(0, 2), [textOf(null), random.below(2) ? null : of.draw(random)] as const];
      const places = new Map<string, number>();
      entries.slice(0, -1).forEach(([one], place) => {
        if (!places.has(one) || random.below(2)) places.set(one, place);
      });
      const nulls = values.map((value, row) => (value === null && !places.has(texts[row]!) ? null : true));
      const data = (indices.ArrayType as unknown as Int32ArrayConstructor).from(texts, (one) => places.get(one) ?? 0);
      const chunk = of.data(
        random,
        entries.map(([, value]) => value),
      );
      return make(type, values.length, { ...validity(random, nulls), data, dictionary: new arrow.Vector([chunk]) });
    },
  };
}

/** Equal values have equal texts, and no others. */
export function textOf(value: Plain): string {
  if (Array.isArray(value)) return `[${value.map(textOf).join(',')}]`;
  if (Object.is(value, -0)) return '-0';
  return typeof value === 'string' ? JSON.stringify(value) : `${value}${typeof value === 'bigint' ? 'n' : ''}`;
}

/** The kinds of a payload column itself; within lists, structs and maps there are others, too. */
export const PAYLOAD_KINDS = ['list', 'fixed list', 'struct', 'map', 'dictionary', 'decimal'] as const;
export type PayloadKind = (typeof PAYLOAD_KINDS)[number];

/** A random type of this kind, of up to `levels` nested ones. */
export function drawPayload(random: Random, kind: PayloadKind, levels: number): Payload {
  const inner = () => drawInner(random, levels - 1);
  switch (kind) {
    case 'list':
      return list(inner(), random.below(3) === 0);
    case 'fixed list':
      return fixedList(inner(), 1 + random.below(3));
    case 'struct':
      return struct(Array.from({ length: 1 + random.below(3) }, inner));
    case 'map':
      return map(random.below(2) ? text(false) : int32(), inner());
    case 'dictionary':
      // Within others, too: the indices must hold the distinct values of all their items.
      return dictionary(random.below(4) ? drawFlat(random) : inner(), random.below(2) ? new arrow.Int16() : new arrow.Uint32());
    case 'decimal':
      return (
        [() => decimal(32, 9, 1), () => decimal(64, 18, 4), () => decimal(128, 38, 10), () => decimal(256, 38, 0)] as const
      )[random.below(4)]!();
  }
}

function drawFlat(random: Random): Payload {
  const flat = [int32, int64, float64, date, bool, () => text(false), () => text(true), () => drawPayload(random, 'decimal', 0)];
  return flat[random.below(flat.length)]!();
}

function drawInner(random: Random, levels: number): Payload {
  if (levels <= 0 || random.below(2)) return drawFlat(random);
  return drawPayload(random, PAYLOAD_KINDS[random.below(PAYLOAD_KINDS.length)]!, levels);
}

/** Values of a payload column: few of them, many times each, as they may be large. */
export function drawPayloadValues(random: Random, of: Payload, size: number): Plain[] {
  const nulls = [0, 4, 2][random.below(3)]!;
  const pool = Array.from({ length: Math.min(size, 100) }, () => of.draw(random));
  return Array.from({ length: size }, () => (nulls && random.below(nulls) === 0 ? null : pool[random.below(pool.length)]!));
}

/** A column's values, read from Arrow or from DuckDB. */
export const arrowValues = (of: Payload, vector: arrow.Vector): Plain[] =>
  Array.from({ length: vector.length }, (_, row) => orNull(of.fromArrow)(vector.get(row) as never));
export const duckdbValues = (of: Payload, values: readonly DuckDBValue[]): Plain[] =>
  values.map(orNull(of.fromDuckDB)) as Plain[];
