/** Full joins whose keys become one column: of each type with each that it compares with, against a reference, row by row. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, JoinOptions, ResultTable } from '../../lib/index.js';
import { describeDevices, engineMaker, splittingEngine } from '../support/engines.js';
import { KINDS, type Kind, type Meaning, NULLS, type Side, same, side } from '../support/kinds.js';
import { failure, random } from '../support/tables.js';

/** What the values of a type count, by the finest unit of its group. */
function unitOf({ typeId, unit, scale }: arrow.DataType & { unit?: number; scale?: number }): bigint {
  if (typeId === arrow.Type.Int) return 1000n;
  if (typeId === arrow.Type.Decimal) return 10n ** BigInt(3 - scale!);
  if (typeId === arrow.Type.Date) return unit === arrow.DateUnit.DAY ? 86_400_000_000_000n : 1_000_000n;
  return 10n ** BigInt(9 - 3 * unit!);
}

/** What a value of a result means. */
function meaningOf(vector: arrow.Vector, row: number): Meaning {
  let [index, chunk] = [row, 0];
  while (index >= vector.data[chunk]!.length) index -= vector.data[chunk++]!.length;
  const data = vector.data[chunk]!;
  const { type } = data;
  if (arrow.DataType.isNull(type) || !data.getValid(index)) return null;
  const numberAt = (bytes: number, signed: boolean): bigint => {
    const { buffer, byteOffset } = data.values as Uint8Array;
    const raw = new Uint8Array(buffer, byteOffset + index * bytes, bytes).reduceRight(
      (high, byte) => (high << 8n) | BigInt(byte),
      0n,
    );
    return signed ? BigInt.asIntN(8 * bytes, raw) : raw;
  };
  if (arrow.DataType.isDictionary(type)) {
    const { bitWidth, isSigned } = type.indices;
    return meaningOf(data.dictionary!, Number(numberAt(bitWidth / 8, isSigned)));
  }
  const value = vector.get(row);
  if (arrow.DataType.isFloat(type)) return Object.is(value, -0) ? '-0' : `${value}`;
  if (arrow.DataType.isBool(type)) return `${value}`;
  if (typeof value === 'string') return value;
  if (value instanceof Uint8Array && !arrow.DataType.isDecimal(type)) return Buffer.from(value).toString();
  const { bitWidth, isSigned = true } = type as arrow.Int;
  const bytes = bitWidth ? bitWidth / 8 : arrow.DataType.isDate(type) && type.unit === arrow.DateUnit.DAY ? 4 : 8;
  return numberAt(bytes, isSigned) * unitOf(type as never);
}

/** The rows of a full join, with the value of each key. */
function expectedRows(left: Side, right: Side, nullsEqual: readonly boolean[]): string[] {
  const matched = new Set<number>();
  const rows: string[] = [];
  const add = (x: number | null, y: number | null) =>
    rows.push(String([x, y, ...nullsEqual.map((_, key) => (x === null ? right.keys[key]![y!] : left.keys[key]![x]))]));
  for (let x = 0; x < left.table.numRows; x++) {
    let found = false;
    for (let y = 0; y < right.table.numRows; y++) {
      if (!nullsEqual.every((equal, key) => same(left.keys[key]![x]!, right.keys[key]![y]!, equal))) continue;
      found = true;
      matched.add(y);
      add(x, y);
    }
    if (!found) add(x, null);
  }
  for (let y = 0; y < right.table.numRows; y++) if (!matched.has(y)) add(null, y);
  return rows.sort();
}

/** The row of a sliced side: values of `row` count from the first one. */
const rowAt = (vector: arrow.Vector, row: number, from: number): number | null => {
  const value = vector.get(row);
  return value === null ? null : value - from;
};

/** Rows [from, to) of a side. */
function sliced({ table, keys }: Side, from: number, to: number): Side {
  return { table: table.slice(from, to), keys: keys.map((values) => values.slice(from, to)) };
}

async function expectCoalesced(
  engine: Engine,
  left: Side,
  right: Side,
  nullsEqual: readonly boolean[],
  options: Partial<JoinOptions> = {},
  from: readonly [number, number] = [0, 0],
): Promise<ResultTable> {
  const on = nullsEqual.map((_, index) => `k${index}`);
  const full = { on, nullsEqual, how: 'full', coalesce: true, ...options } as JoinOptions;
  const joined = (await engine.join(left.table, right.table, full)) as ResultTable;
  expect(joined.schema.names).toEqual([...on, 'row', 'row_right']);
  const vectors = on.map((name) => joined.getChild(name)!);
  const [rows, others] = [joined.getChild('row')!, joined.getChild('row_right')!];
  const found = Array.from({ length: joined.numRows }, (_, row) =>
    String([rowAt(rows, row, from[0]), rowAt(others, row, from[1]), ...vectors.map((vector) => meaningOf(vector, row))]),
  );
  expect(found.sort()).toEqual(expectedRows(left, right, nullsEqual));
  return joined;
}

const named = (name: string): Kind => [...KINDS, NULLS].find((kind) => kind.name === name)!;

describe('each type with each that it compares with', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const splitting = splittingEngine(3, 64, { memoryLimit: '512MiB', threads: 2 });
  test.each([...KINDS, NULLS].map((kind) => [kind.name, kind] as const))('%s', async (_, kind) => {
    const draw = random(kind.name.length * 17);
    const engine = await engineFor(2);
    const partners = kind === NULLS ? [...KINDS, NULLS] : [...KINDS.filter(({ group }) => group === kind.group), NULLS];
    for (const other of partners) {
      const nullsEqual = [draw(2) === 0];
      const [left, right] = [side([kind], 40, draw(3) > 0, draw), side([other], 30, draw(3) > 0, draw)];
      try {
        const joined = await expectCoalesced(engine, left, right, nullsEqual, { algorithm: 'radix-hash' });
        await expectCoalesced(engine, left, right, nullsEqual, { algorithm: 'sort-merge' });
        const split = await expectCoalesced(splitting, left, right, nullsEqual);
        expect(`${split.getChild('k0')!.type}`).toBe(`${joined.getChild('k0')!.type}`);
        const [from, to, begin, end] = [draw(20), 20 + draw(21), draw(15), 15 + draw(16)];
        await expectCoalesced(engine, sliced(left, from, to), sliced(right, begin, end), nullsEqual, {}, [from, begin]);
      } catch (cause) {
        throw new Error(`${kind.name} = ${other.name}, nulls equal: ${nullsEqual}`, { cause });
      }
    }
  });
});

describeDevices((devices) => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });

  test.each([1, 2])('several keys of any types, seed %i', async (seed) => {
    const draw = random(seed * 100 + devices);
    const engine = await engineFor(devices);
    for (let round = 0; round < 15; round++) {
      const kinds = Array.from({ length: 1 + draw(3) }, () => {
        const kind = KINDS[draw(KINDS.length)]!;
        const others = [...KINDS.filter(({ group }) => group === kind.group), NULLS];
        return [kind, others[draw(others.length)]!] as const;
      });
      const sideOf = (index: 0 | 1) =>
        side(
          kinds.map((pair) => pair[index]),
          20 + draw(60),
          draw(3) > 0,
          draw,
        );
      const nullsEqual = kinds.map(() => draw(2) === 0);
      const algorithm = draw(2) ? 'radix-hash' : 'sort-merge';
      try {
        await expectCoalesced(engine, sideOf(0), sideOf(1), nullsEqual, { algorithm });
      } catch (cause) {
        const names = kinds.map((pair) => pair.map(({ name }) => name).join(' = '));
        throw new Error(`${names.join(', ')}; nulls equal: ${nullsEqual}; ${algorithm}, round ${round}`, { cause });
      }
    }
  });

  test('rows of several blocks', async () => {
    const engine = await engineFor(devices);
    const [few, many] = [1000, 200_000];
    const left = new arrow.Table({ k: arrow.makeVector(Int32Array.from({ length: few }, (_, row) => 2 * row - few)) });
    const right = new arrow.Table({ k: arrow.makeVector(Uint32Array.from({ length: many }, (_, row) => row)) });
    const joined = await engine.join(left, right, { on: 'k', how: 'full', coalesce: true });
    expect(joined.getChild('k')!.type).toEqual(new arrow.Int64());
    const expected = new Set([...Array(many).keys(), ...Array.from({ length: few }, (_, row) => 2 * row - few)]);
    const found = [...joined.getChild('k')!.toArray()].map(Number);
    expect(found.sort((a, b) => a - b)).toEqual([...expected].sort((a, b) => a - b));
  });
});

/** A table of one column of no rows. */
const of = (type: arrow.DataType): arrow.Table =>
  new arrow.Table({ k: new arrow.Vector([new arrow.Data(type as never, 0, 0, 0)]) } as never);

describe('the type', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const decimal = (bits: number, precision: number, scale: number) => new arrow.Decimal(scale, precision, bits);
  const dictionary = (type: arrow.DataType, indices: arrow.Int8 | arrow.Int32 = new arrow.Int8()) =>
    new arrow.Dictionary(type, indices);
  const { SECOND, MILLISECOND, MICROSECOND, NANOSECOND } = arrow.TimeUnit;

  test.each([
    [new arrow.Int8(), new arrow.Int16(), new arrow.Int16()],
    [new arrow.Uint8(), new arrow.Uint32(), new arrow.Uint32()],
    [new arrow.Uint8(), new arrow.Int8(), new arrow.Int16()],
    [new arrow.Uint8(), new arrow.Int32(), new arrow.Int32()],
    [new arrow.Uint32(), new arrow.Int32(), new arrow.Int64()],
    [new arrow.Uint32(), new arrow.Int64(), new arrow.Int64()],
    [new arrow.Uint64(), new arrow.Int8(), decimal(128, 20, 0)],
    [new arrow.Int32(), decimal(128, 5, 2), decimal(128, 12, 2)],
    [new arrow.Int32(), decimal(32, 5, 2), decimal(64, 12, 2)],
    [new arrow.Uint64(), decimal(128, 30, 19), decimal(256, 39, 19)],
    [new arrow.Int8(), decimal(128, 38, 0), decimal(128, 38, 0)],
    [decimal(128, 10, 2), decimal(128, 12, 2), decimal(128, 12, 2)],
    [decimal(128, 10, 2), decimal(128, 10, 5), decimal(128, 13, 5)],
    [decimal(128, 38, 0), decimal(128, 38, 38), decimal(256, 76, 38)],
    [decimal(64, 5, -2), decimal(64, 5, -1), decimal(64, 6, -1)],
    [decimal(256, 10, 2), new arrow.Int8(), decimal(256, 10, 2)],
    [new arrow.Float16(), new arrow.Float32(), new arrow.Float32()],
    [new arrow.Float64(), new arrow.Float16(), new arrow.Float64()],
    [new arrow.DateDay(), new arrow.DateMillisecond(), new arrow.DateMillisecond()],
    [new arrow.DateDay(), new arrow.TimestampSecond(), new arrow.TimestampSecond()],
    [new arrow.DateMillisecond(), new arrow.TimestampSecond(), new arrow.TimestampMillisecond()],
    [new arrow.DateMillisecond(), new arrow.TimestampMillisecond(), new arrow.TimestampMillisecond()],
    [new arrow.TimestampSecond(), new arrow.TimestampNanosecond(), new arrow.TimestampNanosecond()],
    [new arrow.Timestamp(SECOND, 'UTC'), new arrow.Timestamp(MICROSECOND, 'UTC'), new arrow.Timestamp(MICROSECOND, 'UTC')],
    [new arrow.Timestamp(SECOND, 'UTC'), new arrow.Timestamp(MICROSECOND, 'Asia/Tokyo'), new arrow.Timestamp(MICROSECOND, 'UTC')],
    [new arrow.TimeSecond(), new arrow.TimeMillisecond(), new arrow.TimeMillisecond()],
    [new arrow.TimeSecond(), new arrow.TimeMicrosecond(), new arrow.TimeMicrosecond()],
    [new arrow.Duration(MILLISECOND), new arrow.Duration(NANOSECOND), new arrow.Duration(NANOSECOND)],
    [new arrow.Utf8(), new arrow.LargeUtf8(), new arrow.LargeUtf8()],
    [new arrow.Utf8View(), new arrow.Utf8(), new arrow.Utf8()],
    [new arrow.Utf8View(), new arrow.LargeUtf8(), new arrow.LargeUtf8()],
    [new arrow.Utf8View(), new arrow.Utf8View(), new arrow.Utf8View()],
    [new arrow.FixedSizeBinary(3), new arrow.FixedSizeBinary(3), new arrow.FixedSizeBinary(3)],
    [new arrow.FixedSizeBinary(3), new arrow.FixedSizeBinary(4), new arrow.Binary()],
    [new arrow.FixedSizeBinary(3), new arrow.LargeBinary(), new arrow.LargeBinary()],
    [new arrow.FixedSizeBinary(3), new arrow.BinaryView(), new arrow.Binary()],
    [new arrow.Null(), new arrow.Null(), new arrow.Null()],
    [new arrow.Null(), new arrow.Bool(), new arrow.Bool()],
    [new arrow.Null(), dictionary(new arrow.Utf8()), dictionary(new arrow.Utf8())],
    [dictionary(new arrow.Utf8()), new arrow.Utf8(), new arrow.Utf8()],
    [dictionary(new arrow.Utf8()), new arrow.LargeUtf8(), new arrow.LargeUtf8()],
    [dictionary(new arrow.Utf8()), dictionary(new arrow.LargeUtf8()), new arrow.LargeUtf8()],
    [dictionary(new arrow.Int8()), dictionary(new arrow.Int64()), new arrow.Int64()],
    [dictionary(new arrow.Utf8()), dictionary(new arrow.Utf8()), dictionary(new arrow.Utf8())],
  ])('of %s and %s is %s', async (one, other, common) => {
    const engine = await engineFor(1);
    for (const [left, right] of [
      [one, other],
      [other, one],
    ] as const) {
      const joined = await engine.join(of(left), of(right), { on: 'k', how: 'full', coalesce: true });
      const { type } = joined.schema.fields[0]!;
      expect(`${type}`.replace('Asia/Tokyo', 'UTC')).toBe(`${common}`);
      const { bitWidth, precision, scale } = common as arrow.Decimal;
      if (arrow.DataType.isDecimal(common)) expect(type).toMatchObject({ bitWidth, precision, scale });
    }
  });

  test('keeps the object, where one of the columns has it', async () => {
    const engine = await engineFor(1);
    const [one, other] = [new arrow.Int16(), new arrow.Int64()];
    const joined = await engine.join(of(one), of(other), { on: 'k', how: 'full', coalesce: true });
    expect(joined.schema.fields[0]!.type).toBe(other);
  });

  test('is refused where no decimal is wide enough, unless the column is not selected', async () => {
    const engine = await engineFor(1);
    const [one, other] = [of(decimal(256, 76, 0)), of(decimal(256, 76, 1))];
    const options = { on: 'k', how: 'full', coalesce: true } as const;
    const error = await failure(engine.join(one, other, options));
    expect(error.code).toBe('ERR_KEY_TYPE');
    expect(error.message).toBe(
      'Key columns "k" of the left table (decimal256(76, 0)) and "k" of the right table (decimal256(76, 1)) can\'t become one: ' +
        'no decimal of 256 bits has 76 digits or fewer and holds the values of both. Cast one of them, or leave coalesce unset.',
    );
    const apart = await engine.join(one, other, { ...options, coalesce: false });
    expect(apart.schema.names).toEqual(['k', 'k_right']);
    const more = one.assign(new arrow.Table({ x: arrow.makeVector(new Int8Array(0)) }));
    expect((await engine.join(more, other, { ...options, select: ['x'] })).schema.names).toEqual(['x']);
  });
});

describe('a value that the type has no room for', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const column = (type: arrow.DataType, values: bigint[], nullAt = -1): arrow.Vector => {
    const nullBitmap = new Uint8Array(Math.ceil(values.length / 8)).fill(255);
    if (nullAt >= 0) nullBitmap[nullAt >> 3]! &= ~(1 << (nullAt & 7));
    return new arrow.Vector([
      arrow.makeData({
        type,
        length: values.length,
        nullCount: nullAt < 0 ? 0 : 1,
        nullBitmap,
        data: BigInt64Array.from(values),
      } as never),
    ]);
  };
  const MOST = 2n ** 63n - 1n;
  const finer = new arrow.Table({ k: column(new arrow.TimestampNanosecond(), [5n, 7n]) });
  const options = { on: 'k', how: 'full', coalesce: true } as const;

  test.each([1, 2, 3])('is refused, by the first such row, on %i devices', async (devices) => {
    const engine = await engineFor(devices);
    const values = Array.from({ length: 200_000 }, (_, row) =>
      row >= 70_000 && row % 3 === 1 ? MOST - BigInt(row) : BigInt(row),
    );
    const coarse = new arrow.Table({ k: column(new arrow.TimestampSecond(), values) });
    for (const [left, right, name] of [
      [coarse, finer, 'left'],
      [finer, coarse, 'right'],
    ] as const) {
      const error = await failure(engine.join(left, right, options));
      expect(error.code).toBe('ERR_KEY_TYPE');
      expect(error.message).toBe(
        `Column "k" of the ${name} table (timestamp[s]) can't become timestamp[ns]: the value of row 70000, ` +
          `${MOST - 70_000n} in its own unit, is too large or too small for that. Cast one of the keys, or leave coalesce unset`,
      );
      // It matches nothing, and is no trouble where it keeps its type.
      const apart = await engine.join(left, right, { ...options, coalesce: false });
      expect(apart.numRows).toBe(200_002);
    }
  });

  test('is none where it is null, or a dictionary has it for no row', async () => {
    const engine = await engineFor(1);
    const coarse = new arrow.Table({ k: column(new arrow.TimestampSecond(), [MOST, 1n], 0) });
    const joined = await engine.join(coarse, finer, options);
    expect([...joined.getChild('k')!.data[0]!.values].sort()).toEqual([0n, 1_000_000_000n, 5n, 7n]);
    const dictionary = column(new arrow.TimestampSecond(), [MOST, 2n]);
    const type = new arrow.Dictionary(dictionary.type, new arrow.Int8());
    const indices = arrow.makeData({ type, length: 2, nullCount: 0, data: Int8Array.of(1, 1), dictionary } as never);
    const some = await engine.join(new arrow.Table({ k: new arrow.Vector([indices]) } as never), finer, options);
    expect([...some.getChild('k')!.data[0]!.values].sort()).toEqual([2_000_000_000n, 2_000_000_000n, 5n, 7n]);
  });
});

test('loaded tables give the same', async () => {
  const draw = random(4);
  const engine = splittingEngine(2, 2 ** 30, { memoryLimit: '512MiB', threads: 2 });
  for (const [one, other] of [
    ['int32', 'uint64'],
    ['dictionary of utf8', 'utf8 view'],
    ['null', 'dictionary of int8'],
  ] as const) {
    const [left, right] = [side([named(one)], 40, true, draw), side([named(other)], 30, true, draw)];
    await using loaded = await engine.load(left.table);
    await using also = await engine.load(right.table);
    const of = { ...left, table: loaded as unknown as arrow.Table };
    await expectCoalesced(engine, of, right, [true]);
    await expectCoalesced(engine, of, { ...right, table: also as unknown as arrow.Table }, [false]);
  }
  await engine.dispose();
});

describe('explain', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  test('says that columns are made one type', async () => {
    const engine = await engineFor(1);
    const options = { on: 'k', how: 'full', coalesce: true } as const;
    const text = await engine.explain('join', of(new arrow.Int8()), of(new arrow.Int64()), options);
    expect(text).toContain('column k (gather both keys in one type)');
  });

  test('a column of another type counts as memory', async () => {
    const rows = 2 ** 20;
    const engine = await engineFor(1, { memoryLimit: '40MiB' });
    const left = new arrow.Table({ k: arrow.makeVector(Int32Array.from({ length: rows }, (_, row) => row)) });
    const right = new arrow.Table({
      k: new arrow.Vector([
        arrow.makeData({ type: new arrow.Decimal(0, 20, 256), length: 1, nullCount: 0, data: new Uint32Array(8) } as never),
      ]),
    } as never);
    const error = await failure(engine.join(left, right, { on: 'k', how: 'full', coalesce: true }));
    expect([error.code, error.message]).toEqual([
      'ERR_MEMORY_LIMIT',
      expect.stringMatching(
        /^A full join of 1048576 and 1 rows takes at least 7\d\.?\d* MiB of host memory but memoryLimit is 40 MiB/,
      ),
    ]);
  });
});

test('what keeps apart, keeps its types', async () => {
  const draw = random(9);
  const [left, right] = [side([named('int8')], 20, true, draw), side([named('int64')], 20, true, draw)];
  const engine = splittingEngine(1, 2 ** 30, { memoryLimit: '512MiB', threads: 2 });
  const joined = await engine.join(left.table, right.table, { on: 'k0', how: 'full' } as JoinOptions);
  expect(joined.schema.fields.map(({ name, type }) => `${name}: ${type}`)).toEqual([
    'k0: Int8',
    'row: Int32',
    'k0_right: Int64',
    'row_right: Int32',
  ]);
  await engine.dispose();
});
