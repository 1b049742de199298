/** Joins by keys of every type, one to four columns of any mix, by value whatever their units: against a reference, row by row. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, JoinOptions } from '../../lib/index.js';
import { describeDevices, engineMaker, inspectedEngine } from '../support/engines.js';
import { failure, random, table } from '../support/tables.js';

type Draw = (below: number) => number;
/** What a value means, in the finest unit of its group; or text. null: none. */
type Meaning = bigint | string | null;

/** A type of key columns. Types of the same group compare. */
interface Kind {
  name: string;
  group: string;
  draw(draw: Draw): Meaning;
  vector(values: readonly Meaning[], draw: Draw): arrow.Vector;
}

function bitmap(values: readonly Meaning[]): { nullBitmap: Uint8Array; nullCount: number } {
  const nullBitmap = new Uint8Array((values.length + 7) >> 3);
  for (const [row, value] of values.entries()) if (value !== null) nullBitmap[row >> 3]! |= 1 << (row & 7);
  return { nullBitmap, nullCount: values.filter((value) => value === null).length };
}

const vectorOf = (data: object): arrow.Vector => new arrow.Vector([arrow.makeData(data as never)]);

/** Values of so many bytes, each the meaning divided by `unit`. */
function fixed(name: string, group: string, type: () => arrow.DataType, bytes: number, unit: bigint, coarsest: bigint): Kind {
  return {
    name,
    group,
    draw: (draw) => (draw(4) > 0 ? BigInt(draw(4)) * coarsest : BigInt(draw(3)) * unit),
    vector(values) {
      const data = new Uint8Array(values.length * bytes);
      for (const [row, value] of values.entries()) {
        let rest = BigInt.asUintN(8 * bytes, ((value ?? 7n * unit) as bigint) / unit);
        for (let byte = 0; byte < bytes; byte++, rest >>= 8n) data[row * bytes + byte] = Number(rest & 255n);
      }
      const of = type();
      const { ArrayType } = of as unknown as { ArrayType: { new (buffer: ArrayBuffer): unknown } };
      return vectorOf({ type: of, length: values.length, ...bitmap(values), data: new ArrayType(data.buffer) });
    },
  };
}

const NS = 1n;
const [US, MS, S, DAY] = [1000n * NS, 1000_000n * NS, 1000_000_000n * NS, 86_400_000_000_000n * NS];
const number = (name: string, type: () => arrow.DataType, bytes: number, unit = 1000n) =>
  fixed(name, 'number', type, bytes, unit, 1000n);
const decimal = (bits: number, scale: number) =>
  number(
    `decimal${bits} of ${scale}`,
    () => new arrow.Decimal(scale, bits === 64 ? 18 : 30, bits),
    bits / 8,
    10n ** BigInt(3 - scale),
  );
const point = (name: string, type: () => arrow.DataType, bytes: number, unit: bigint) =>
  fixed(name, 'time point', type, bytes, unit, DAY);
const zoned = (unit: arrow.TimeUnit, of: bigint) =>
  fixed(`zoned ${unit}`, 'zoned', () => new arrow.Timestamp(unit, unit % 2 ? 'UTC' : 'Asia/Tokyo'), 8, of, S);

const TEXTS = ['', 'a', 'ab', 'a text of more than seven bytes', 'a text of more than seven bytes, too', 'seven b', 'é'];
const text = (name: string, group: string, vector: (values: readonly (string | null)[], draw: Draw) => arrow.Vector): Kind => ({
  name,
  group,
  draw: (draw) => TEXTS[draw(TEXTS.length)]!,
  vector: (values, draw) => vector(values as (string | null)[], draw),
});
const bytesOf = (values: readonly (string | null)[]) => values.map((value) => (value === null ? null : Buffer.from(value)));

/** Indices of a dictionary in any order, with values twice, values of no row, and perhaps a null. */
function dictionaryOf(kind: Kind): Kind {
  return {
    ...kind,
    name: `dictionary of ${kind.name}`,
    vector(values, draw) {
      const entries = [...values, ...values.slice(0, 3), kind.draw(draw), ...(draw(2) ? [null] : [])].filter(
        (value) => value !== null || draw(2) === 0,
      );
      entries.sort(() => draw(3) - 1);
      const places = values.map((value) => {
        const all = entries.flatMap((entry, place) => (entry === value ? [place] : []));
        return all.length > 0 ? BigInt(all[draw(all.length)]!) : null;
      });
      const dictionary = kind.vector(entries, draw);
      const type = new arrow.Dictionary(dictionary.type, new arrow.Int16());
      const data = Int16Array.from(places, (place) => Number(place ?? -1));
      return vectorOf({ type, length: values.length, ...bitmap(places), data, dictionary });
    },
  };
}

/** Views of 16 bytes, and a buffer of the longer texts. */
function viewsOf(values: readonly (string | null)[], type: arrow.DataType): arrow.Vector {
  const views = Buffer.alloc(values.length * 16);
  const long: Buffer[] = [];
  let end = 0;
  for (const [row, value] of values.entries()) {
    const bytes = Buffer.from(value ?? '');
    views.writeInt32LE(bytes.length, row * 16);
    bytes.copy(views, row * 16 + 4, 0, bytes.length > 12 ? 4 : 12);
    if (bytes.length <= 12) continue;
    views.writeInt32LE(end, row * 16 + 12);
    long.push(bytes);
    end += bytes.length;
  }
  return vectorOf({ type, length: values.length, ...bitmap(values), views, variadicBuffers: [Buffer.concat(long)] });
}

const floats = (name: string, type: () => arrow.DataType): Kind => ({
  name,
  group: 'float',
  draw: (draw) => ['-0', '0', 'NaN', '1.5', '-2', 'Infinity'][draw(6)]!,
  vector: (values) =>
    arrow.vectorFromArray(
      values.map((value) => (value === null ? null : Number(value))),
      type(),
    ),
});

const plainKinds: Kind[] = [
  number('int8', () => new arrow.Int8(), 1),
  number('int32', () => new arrow.Int32(), 4),
  number('uint16', () => new arrow.Uint16(), 2),
  number('int64', () => new arrow.Int64(), 8),
  number('uint64', () => new arrow.Uint64(), 8),
  decimal(64, 2),
  decimal(128, 0),
  decimal(128, 3),
  decimal(256, 1),
  point('date32', () => new arrow.DateDay(), 4, DAY),
  point('date64', () => new arrow.DateMillisecond(), 8, MS),
  point('timestamp[s]', () => new arrow.TimestampSecond(), 8, S),
  point('timestamp[us]', () => new arrow.TimestampMicrosecond(), 8, US),
  point('timestamp[ns]', () => new arrow.TimestampNanosecond(), 8, NS),
  zoned(arrow.TimeUnit.SECOND, S),
  zoned(arrow.TimeUnit.NANOSECOND, NS),
  fixed('time[s]', 'time', () => new arrow.TimeSecond(), 4, S, S),
  fixed('time[ns]', 'time', () => new arrow.TimeNanosecond(), 8, NS, S),
  fixed('duration[ms]', 'duration', () => new arrow.DurationMillisecond(), 8, MS, S),
  fixed('duration[ns]', 'duration', () => new arrow.DurationNanosecond(), 8, NS, S),
  floats('float32', () => new arrow.Float32()),
  floats('float64', () => new arrow.Float64()),
  {
    name: 'bool',
    group: 'bool',
    draw: (draw) => `${draw(2) === 0}`,
    vector: (values) =>
      arrow.vectorFromArray(
        values.map((value) => (value === null ? null : value === 'true')),
        new arrow.Bool(),
      ),
  },
  text('utf8', 'utf8', (values) => arrow.vectorFromArray(values, new arrow.Utf8())),
  text('large utf8', 'utf8', (values) => arrow.vectorFromArray(values, new arrow.LargeUtf8())),
  text('utf8 view', 'utf8', (values) => viewsOf(values, new arrow.Utf8View())),
  text('binary view', 'binary', (values) => viewsOf(values, new arrow.BinaryView())),
  text('binary', 'binary', (values) => arrow.vectorFromArray(bytesOf(values), new arrow.Binary())),
  text('large binary', 'binary', (values) => arrow.vectorFromArray(bytesOf(values), new arrow.LargeBinary())),
  {
    ...text('fixed-size binary', 'binary', () => undefined as never),
    draw: (draw) => ['seven b', 'SEVEN B', '1234567'][draw(3)]!,
    vector: (values) =>
      vectorOf({
        type: new arrow.FixedSizeBinary(7),
        length: values.length,
        ...bitmap(values),
        data: Buffer.concat(values.map((value) => Buffer.from((value ?? '.......') as string))),
      }),
  },
];
const KINDS = [...plainKinds, ...plainKinds.filter((_, index) => index % 3 !== 1).map(dictionaryOf)];
const NULLS: Kind = {
  name: 'null',
  group: 'null',
  draw: () => null,
  vector: (values) => vectorOf({ type: new arrow.Null(), length: values.length }),
};

interface Side {
  table: arrow.Table;
  keys: Meaning[][];
}

/** A table of key columns k0, k1, ... and `row`, in two record batches. */
function side(kinds: readonly Kind[], rows: number, nulls: boolean, draw: Draw): Side {
  const keys = kinds.map((kind) => Array.from({ length: rows }, () => (nulls && draw(5) === 0 ? null : kind.draw(draw))));
  const cut = draw(rows + 1);
  const batches = [
    [0, cut],
    [cut, rows],
  ].map(([begin, end]) => {
    const columns = kinds.map((kind, index) => kind.vector(keys[index]!.slice(begin, end), draw));
    const numbers = arrow.makeVector(Int32Array.from({ length: end! - begin! }, (_, row) => begin! + row));
    return [...columns, numbers];
  });
  const names = [...kinds.map((_, index) => `k${index}`), 'row'];
  const vectors = names.map((name, index) => {
    const data = batches.flatMap((batch) => [...batch[index]!.data]);
    // One type for both batches, whose dictionaries differ.
    const type = data[0]!.type;
    return [name, new arrow.Vector(data.map((one) => Object.assign(one.clone(type), { dictionary: one.dictionary })))] as const;
  });
  return { table: new arrow.Table(Object.fromEntries(vectors)), keys };
}

const same = (a: Meaning, b: Meaning, nullsEqual: boolean): boolean => {
  if (a === null || b === null) return a === b && nullsEqual;
  return a === b || (`${a}`.replace('-0', '0') === `${b}`.replace('-0', '0') && typeof a === 'string');
};

function expectedPairs(left: Side, right: Side, nullsEqual: readonly boolean[]): [number, number][] {
  const pairs: [number, number][] = [];
  for (let x = 0; x < left.table.numRows; x++) {
    for (let y = 0; y < right.table.numRows; y++) {
      if (nullsEqual.every((equal, key) => same(left.keys[key]![x]!, right.keys[key]![y]!, equal))) pairs.push([x, y]);
    }
  }
  return pairs;
}

async function expectJoined(
  engine: Engine,
  left: Side,
  right: Side,
  nullsEqual: boolean[],
  algorithm: 'radix-hash' | 'sort-merge',
) {
  const on = nullsEqual.map((_, index) => `k${index}`);
  const expected = expectedPairs(left, right, nullsEqual);
  const options = { on, nullsEqual, algorithm } as JoinOptions;
  const text = (pairs: Iterable<readonly unknown[]>) => [...pairs].map(String).sort();
  const joined = await engine.join(left.table, right.table, { ...options, select: ['row', 'row_right'] } as JoinOptions);
  const [rows, others] = [joined.getChild('row')!.toArray(), joined.getChild('row_right')!.toArray()];
  expect(text(Array.from(rows, (row, index) => [row, others[index]]))).toEqual(text(expected));
  expect(await engine.joinCount(left.table, right.table, options)).toBe(expected.length);
  const anti = await engine.joinIndices(left.table, right.table, { ...options, how: 'anti' } as JoinOptions);
  const matched = new Set(expected.map(([row]) => row));
  expect([...anti.left].map(Number).sort((a, b) => a - b)).toEqual(
    [...Array(left.table.numRows).keys()].filter((row) => !matched.has(row)),
  );
  return expected.length;
}

describeDevices((devices) => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });

  test.each([1, 2, 3, 4])('one to four columns of any types, seed %i', async (seed) => {
    const draw = random(seed * 100 + devices);
    const engine = await engineFor(devices);
    let matches = 0;
    for (let round = 0; round < 25; round++) {
      const count = 1 + draw(4);
      const kinds = Array.from({ length: count }, () => {
        const kind = KINDS[draw(KINDS.length)]!;
        const others = KINDS.filter(({ group }) => group === kind.group);
        return [kind, others[draw(others.length)]!] as const;
      });
      const sides = [0, 1].map((index) =>
        side(
          kinds.map((pair) => pair[index]!),
          30 + draw(60),
          draw(3) > 0,
          draw,
        ),
      );
      const nullsEqual = kinds.map(() => draw(2) === 0);
      const algorithm = draw(2) ? 'radix-hash' : 'sort-merge';
      const names = kinds.map((pair) => pair.map(({ name }) => name).join(' = '));
      try {
        matches += await expectJoined(engine, sides[0]!, sides[1]!, nullsEqual, algorithm);
      } catch (error) {
        throw new Error(`${names.join(', ')}; nulls equal: ${nullsEqual}; ${algorithm}, round ${round}`, { cause: error });
      }
    }
    expect(matches).toBeGreaterThan(500);
  });
});

describe('each type with each that it compares with', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  test.each(KINDS.map((kind) => [kind.name, kind] as const))('%s', async (_, kind) => {
    const draw = random(kind.name.length * 31);
    const engine = await engineFor(2);
    for (const other of [...KINDS.filter(({ group }) => group === kind.group), NULLS]) {
      const nullsEqual = draw(2) === 0;
      const [left, right] = [side([kind], 40, true, draw), side([other], 30, true, draw)];
      await expectJoined(engine, left, right, [nullsEqual], 'radix-hash');
      await expectJoined(engine, right, left, [nullsEqual], 'sort-merge');
    }
  });
});

test('texts and rows of words whose hashes collide', async () => {
  const draw = random(5);
  const kinds = ['utf8', 'int64', 'dictionary of large utf8', 'float64'].map(
    (wanted) => KINDS.find(({ name }) => name === wanted)!,
  );
  expect(kinds.every(Boolean)).toBe(true);
  for (const hashBits of [0, 1, 4]) {
    const { engine } = inspectedEngine(2, { memoryLimit: '512MiB', threads: 2 }, { hashBits });
    await expectJoined(engine, side(kinds, 70, true, draw), side(kinds, 90, true, draw), [true, false, true, true], 'radix-hash');
    await engine.dispose();
  }
});

describe('the result', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const left = table(
    { a: new arrow.Int32(), b: new arrow.Utf8(), x: new arrow.Int32() },
    {
      a: [1, 2, null, 4],
      b: ['x', null, null, 'y'],
      x: [0, 1, 2, 3],
    },
  );
  const right = table(
    { b: new arrow.Utf8(), c: new arrow.Int32(), x: new arrow.Int32() },
    {
      b: ['x', null, 'z', null],
      c: [1, 2, 9, null],
      x: [10, 11, 12, 13],
    },
  );
  const rowsOf = (of: arrow.Table) => of.toArray().map((row) => Object.values(row!.toJSON()));

  test('has each key once, named like the left one', async () => {
    const options = { leftOn: ['a', 'b'], rightOn: ['c', 'b'], nullsEqual: [false, true] } as const;
    const engine = await engineFor(1);
    const inner = await engine.join(left, right, options);
    expect(inner.schema.names).toEqual(['a', 'b', 'x', 'x_right']);
    expect(rowsOf(inner).sort()).toEqual([
      [1, 'x', 0, 10],
      [2, null, 1, 11],
    ]);
    const right_ = await engine.join(left, right, { ...options, how: 'right' });
    expect(right_.schema.names).toEqual(['a', 'b', 'x', 'x_right']);
    expect(
      rowsOf(right_)
        .filter((row) => row[2] === null)
        .sort(),
    ).toEqual([
      [null, null, null, 13],
      [9, 'z', null, 12],
    ]);
    const full = await engine.join(left, right, { ...options, how: 'full', coalesce: true, nullsEqual: true });
    expect(full.schema.names).toEqual(['a', 'b', 'x', 'x_right']);
    expect(rowsOf(full)).toHaveLength(5);
    expect(rowsOf(full)).toContainEqual([9, 'z', null, 12]);
    expect(rowsOf(full)).toContainEqual([null, null, 2, 13]);
    const apart = await engine.join(left, right, { ...options, how: 'full' });
    expect(apart.schema.names).toEqual(['a', 'b', 'x', 'b_right', 'c', 'x_right']);
  });

  test('explain shows all keys, and how they are made', async () => {
    const engine = await engineFor(1);
    const options = { leftOn: ['a', 'x'], rightOn: ['c', 'x'], nullsEqual: [true, false] } as const;
    const text = await engine.explain('join', left, right, options);
    expect(text).toMatch(/^inner join on "a" = "c" \(nulls equal\) and "x" = "x": /);
    expect(text).toMatch(/\n {2}keys {5}\d+ bits of each row, in 4 bytes\n/);
    const wide = table({ a: new arrow.Float64(), b: new arrow.Float64() }, { a: [1, -2, 3], b: [4, -5, 6] });
    expect(await engine.explain('join', wide, wide, { on: ['a', 'b'] })).toMatch(/keys {5}4-byte codes of rows of 1\d\d bits/);
    expect(await engine.explain('join', left, right, { on: 'x' })).toMatch(/keys {5}values of 4 bytes/);
  });

  test('a suffix is appended until the name is free', async () => {
    const engine = await engineFor(1);
    const many = table(
      { x: new arrow.Int32(), x_right: new arrow.Int32(), c: new arrow.Int32() },
      { x: [1], x_right: [2], c: [1] },
    );
    const of = await engine.join(left, many, { leftOn: 'a', rightOn: 'c' });
    expect(of.schema.names).toEqual(['a', 'b', 'x', 'x_right_right', 'x_right']);
  });
});

describe('refused are', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const of = (type: arrow.DataType) => table({ k: type, j: type }, { k: [], j: [] });
  const list = new arrow.List(new arrow.Field('item', new arrow.Int32()));

  test.each([
    [{ on: ['k', 'k'] }, /^Expected each column once for on but received "k"\.$/],
    [{ leftOn: ['k', 'j'], rightOn: ['k', 'k'] }, /^Expected each column once for rightOn but received "k"\.$/],
    [{ leftOn: ['k', 'j'], rightOn: ['k'] }, /^Expected as many columns as leftOn has \(2\) for rightOn/],
    [{ on: ['k', 'j'], nullsEqual: [true] }, /^Expected a boolean, or one for each of the keys \(2\) for nullsEqual/],
    [{ on: ['k', 'j'], nullsEqual: [true, 1] }, /^Expected a boolean, or an array of booleans, one for each key for nullsEqual/],
  ] as const)('%o', async (options, message) => {
    const engine = await engineFor(1);
    const int = of(new arrow.Int32());
    const calls = [engine.join, engine.joinCount, engine.joinIndices] as ((...of: unknown[]) => Promise<unknown>)[];
    for (const call of calls) {
      const error = await failure(call.call(engine, int, int, options));
      expect([error.code, error.message]).toEqual(['ERR_OPTION', expect.stringMatching(message)]);
    }
  });

  test.each([
    [new arrow.Int32(), new arrow.Utf8()],
    [new arrow.Int32(), new arrow.Float64()],
    [new arrow.Bool(), new arrow.Int8()],
    [new arrow.Utf8(), new arrow.Binary()],
    [new arrow.DateDay(), new arrow.Int32()],
    [new arrow.TimestampSecond(), new arrow.Timestamp(arrow.TimeUnit.SECOND, 'UTC')],
    [new arrow.DateDay(), new arrow.Timestamp(arrow.TimeUnit.SECOND, 'UTC')],
    [new arrow.TimeSecond(), new arrow.DurationSecond()],
    [new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32()), new arrow.Int32()],
  ])('%s with %s', async (one, other) => {
    const error = await failure((await engineFor(1)).join(of(one), of(other), { on: 'k' }));
    expect(error.code).toBe('ERR_KEY_TYPE');
    expect(error.message).toMatch(/^Key columns "k" of the left table \(.+\) and "k" of the right table \(.+\) don't compare: /);
  });

  test('nested types', async () => {
    const error = await failure((await engineFor(1)).join(of(list), of(list), { on: 'k' }));
    expect([error.code, error.message]).toEqual(['ERR_NOT_SUPPORTED', expect.stringContaining('list<int32>')]);
  });

  test('one column of a full join for two types', async () => {
    const error = await failure(
      (await engineFor(1)).join(of(new arrow.DateDay()), of(new arrow.TimestampSecond()), {
        on: 'k',
        how: 'full',
        coalesce: true,
      }),
    );
    expect([error.code, error.message]).toEqual(['ERR_NOT_SUPPORTED', expect.stringContaining('have different types')]);
  });
});
