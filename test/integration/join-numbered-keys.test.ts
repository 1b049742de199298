/** Joins by few distinct texts and by dictionaries, whose numbers are the keys, and the key columns that come of these. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { describeDevices, engineMaker, testEngine } from '../support/engines.js';
import { failure, random } from '../support/tables.js';

type Key = string | number | null;
type Values = readonly Key[];

const KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const;

const int32 = (values: readonly number[]): arrow.Vector =>
  new arrow.Vector([arrow.makeData({ type: new arrow.Int32(), data: Int32Array.from(values) })]);
const texts = (values: Values, type: arrow.DataType = new arrow.Utf8()): arrow.Vector => arrow.vectorFromArray(values, type);

/** Indices of `dictionary`, which are null for null rows. */
function indices(dictionary: arrow.Vector, places: readonly (number | null)[], width: 1 | 4 = 4): arrow.Vector {
  const type = new arrow.Dictionary(dictionary.type, width === 1 ? new arrow.Uint8() : new arrow.Int32());
  const nullBitmap = new Uint8Array((places.length + 7) >> 3);
  for (const [row, place] of places.entries()) if (place !== null) nullBitmap[row >> 3]! |= 1 << (row & 7);
  const numbers = places.map((place) => place ?? -1);
  const data = width === 1 ? Uint8Array.from(numbers) : Int32Array.from(numbers);
  const nullCount = places.filter((place) => place === null).length;
  const bitmap = nullCount > 0 ? { nullBitmap, nullCount } : { nullCount: 0 };
  return new arrow.Vector([arrow.makeData({ type, length: places.length, data, dictionary, ...bitmap } as never)]);
}

function table(keys: Record<string, arrow.Vector>, row: string): arrow.Table {
  const { length } = Object.values(keys)[0]!;
  return new arrow.Table({ ...keys, [row]: int32([...Array(length).keys()]) });
}

/** The rows of a table as texts, sorted. */
const rowsOf = (of: arrow.Table): string[] => [...of].map((row) => JSON.stringify(row.toArray())).sort();

/** The rows that a join by all columns but the last is to have. */
function expected(left: arrow.Table, right: arrow.Table, how: (typeof KINDS)[number], nullsEqual = false): string[] {
  const [lefts, rights] = [left, right].map((of) => [...of].map((row) => [...row.toArray()] as Key[])) as [Key[][], Key[][]];
  const keyOf = (row: Key[]): string | null => {
    const key = row.slice(0, -1);
    return !nullsEqual && key.includes(null) ? null : JSON.stringify(key);
  };
  const places = new Map<string | null, Key[][]>();
  for (const row of rights) places.set(keyOf(row), [...(places.get(keyOf(row)) ?? []), row]);
  const matched = new Set<Key[]>();
  const rows: Key[][] = [];
  for (const row of lefts) {
    const key = keyOf(row);
    const found = key === null ? [] : (places.get(key) ?? []);
    for (const other of found) matched.add(other);
    if (how === 'semi' ? found.length > 0 : how === 'anti' && found.length === 0) rows.push(row);
    if (how === 'semi' || how === 'anti') continue;
    for (const other of found) rows.push([...row, other.at(-1)!]);
    if (found.length === 0 && (how === 'left' || how === 'full')) rows.push([...row, null]);
  }
  if (how === 'right' || how === 'full') {
    for (const row of rights) if (!matched.has(row)) rows.push([...row.slice(0, -1), null, row.at(-1)!]);
  }
  return rows.map((row) => JSON.stringify(row)).sort();
}

describeDevices((devices) => {
  const engineFor = engineMaker({ memoryLimit: '1GiB' });

  test.each(['utf8', 'large_utf8'])('few distinct texts (%s) with two other keys', async (kind) => {
    const engine = await engineFor(devices);
    const draw = random(11 + devices);
    const type = kind === 'utf8' ? new arrow.Utf8() : new arrow.LargeUtf8();
    const side = (rows: number, products: number, row: string): arrow.Table => {
      const of = <T>(value: () => T): T[] => Array.from({ length: rows }, value);
      const product = of(() => (draw(40) ? `product of the number ${draw(products)}`.slice(0, 8 + draw(2) * 40) : null));
      return table(
        { store: int32(of(() => draw(20))), product: texts(product, type), day: int32(of(() => 10_000 + draw(9))) },
        row,
      );
    };
    for (const [left, right] of [
      [side(1500, 12, 'l'), side(1200, 15, 'r')],
      [side(400, 3, 'l'), side(2000, 12, 'r')],
      [side(700, 1, 'l'), side(900, 1, 'r')],
    ] as const) {
      for (const how of KINDS) {
        const out = await engine.join(left, right, { on: ['store', 'product', 'day'], how, coalesce: true } as never);
        expect(rowsOf(out as arrow.Table)).toEqual(expected(left, right, how));
      }
      const out = await engine.join(left, right, { on: ['store', 'product', 'day'] });
      expect(String(out.schema.fields[1]!.type)).toBe(String(type));
      expect(out.getChild('product')!.toArray().length).toBe(out.numRows);
    }
  });

  test('plain numbers of few values with a dictionary of them', async () => {
    const engine = await engineFor(devices);
    const draw = random(31 + devices);
    const values = Array.from({ length: 50 }, (_, place) => 1_000_000 + 7 * place);
    const plain = (row: string) => table({ key: int32(Array.from({ length: 900 }, () => values[draw(45)]!)) }, row);
    const coded = (row: string) =>
      table(
        {
          key: indices(
            int32([...values].reverse()),
            Array.from({ length: 1100 }, () => draw(50)),
          ),
        },
        row,
      );
    for (const [left, right] of [
      [plain('l'), coded('r')],
      [coded('l'), plain('r')],
    ] as const) {
      for (const how of KINDS) {
        const out = await engine.join(left, right, { on: 'key', how, coalesce: true } as never);
        expect(rowsOf(out as arrow.Table)).toEqual(expected(left, right, how));
      }
    }
  });

  test.each([
    ['the same memory', (all: string[]) => [all, null]],
    ['equal values', (all: string[]) => [all, [...all]]],
    ['one that begins with the other', (all: string[]) => [all.slice(0, 30), all]],
    ['another order', (all: string[]) => [all, [...all].reverse()]],
    ['values that the other lacks', (all: string[]) => [all.slice(10), all.slice(0, 50).reverse()]],
    [
      'values twice',
      (all: string[]) => [
        [...all, ...all.slice(0, 20)],
        [...all.slice(5, 40), ...all.slice(5, 40)],
      ],
    ],
    ['the same memory with values twice', (all: string[]) => [[...all, ...all.slice(0, 20)], null]],
    [
      'a null among the values',
      (all: string[]) => [
        [...all, null],
        [null, ...all],
      ],
    ],
    ['the same memory with a null', (all: string[]) => [[null, ...all], null]],
    // Both have values behind the common ones, below and above all that the other side has.
    [
      'numbers that begin alike',
      () => [
        [5, 6, 7, 20, 21],
        [5, 6, 7, 1, 2],
      ],
    ],
    [
      'numbers of ranges apart',
      () => [
        [100, 101, 102],
        [-3, -2, -1],
      ],
    ],
    ['one number, and another', () => [[1], [2]]],
    [
      'a common number behind',
      () => [
        [20, 21, 5],
        [1, 2, 5],
      ],
    ],
    [
      'numbers that begin with the other',
      () => [
        [5, 6, 7],
        [5, 6, 7, 20, 21],
      ],
    ],
  ] as [string, (all: string[]) => [Values, Values | null]][])('dictionaries: %s', async (_, make) => {
    const engine = await engineFor(devices);
    const draw = random(5 + devices);
    const [one, other] = make(Array.from({ length: 60 }, (_, i) => `value ${i} of a dictionary`));
    const vector = (values: Values) => (typeof values[0] === 'number' ? int32(values as number[]) : texts(values));
    const left = vector(one);
    const right = other === null ? left : vector(other);
    for (const [leftRows, rightRows, nulls] of [
      [200, 150, 0],
      [60, 300, 0],
      [150, 170, 9],
    ] as const) {
      const places = (rows: number, of: arrow.Vector) =>
        Array.from({ length: rows }, () => (nulls && draw(nulls) === 0 ? null : draw(of.length)));
      const tables = (width: 1 | 4): [arrow.Table, arrow.Table] => [
        table({ key: indices(left, places(leftRows, left), width) }, 'l'),
        table({ key: indices(right, places(rightRows, right)) }, 'r'),
      ];
      for (const [a, b] of [tables(4), tables(1)]) {
        for (const how of KINDS.filter((how) => how !== 'full')) {
          const out = (await engine.join(a, b, { on: 'key', how, coalesce: true } as never)) as arrow.Table;
          expect(rowsOf(out)).toEqual(expected(a, b, how));
          expect(arrow.DataType.isDictionary(out.schema.fields[0]!.type)).toBe(true);
        }
        const equal = await engine.join(a, b, { on: 'key', nullsEqual: true } as never);
        expect(rowsOf(equal as unknown as arrow.Table)).toEqual(expected(a, b, 'inner', true));
        expect(await engine.joinCount(a, b, { on: 'key' })).toBe(expected(a, b, 'inner').length);
      }
    }
  });

  test('a dictionary and a number together', async () => {
    const engine = await engineFor(devices);
    const draw = random(17);
    const dictionary = texts(Array.from({ length: 40 }, (_, i) => `value ${i} of a dictionary`));
    const other = texts(Array.from({ length: 35 }, (_, i) => `value ${40 - i} of a dictionary`));
    const of = (rows: number, below: number): number[] => Array.from({ length: rows }, () => draw(below));
    const left = table({ key: indices(dictionary, of(2000, 40)), number: int32(of(2000, 50)) }, 'l');
    for (const values of [dictionary, other]) {
      const right = table({ key: indices(values, of(1800, 35)), number: int32(of(1800, 70)) }, 'r');
      const out = await engine.join(left, right, { on: ['key', 'number'] });
      expect(rowsOf(out as unknown as arrow.Table)).toEqual(expected(left, right, 'inner'));
    }
  });
});

test('an index outside of a dictionary is refused before it is read', async () => {
  const engine = await testEngine(1);
  const dictionary = texts(['one of the values', 'another one']);
  for (const place of [2, -2, 2 ** 31 - 1]) {
    const bad = table({ key: indices(dictionary, [0, 1, place]) }, 'l');
    const good = table({ key: indices(dictionary, [0, 1, 1]) }, 'r');
    for (const [left, right] of [
      [bad, good],
      [good, bad],
    ] as const) {
      expect(await failure(engine.joinCount(left, right, { on: 'key' }))).toMatchObject({ code: 'ERR_INVALID_TABLE' });
    }
  }
  await engine.dispose();
});
