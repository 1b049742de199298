import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { describeDevices, engineMaker, testOn } from '../support/engines.js';
import { KEY_TYPES } from '../support/keys.js';
import { random, rows, table } from '../support/tables.js';

const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });
const byName = Object.fromEntries(KEY_TYPES.map((key) => [key.name, key]));

/** Rows with many ties. */
function input(names: readonly string[], length: number, seed: number): arrow.Table {
  const draw = random(seed);
  const types: Record<string, arrow.DataType> = { row: new arrow.Int32(), text: new arrow.Utf8() };
  const values: Record<string, unknown[]> = {
    row: Array.from({ length }, (_, row) => row),
    text: Array.from({ length }, (_, row) => (row % 5 ? `text ${row}` : null)),
  };
  for (const name of names) {
    const key = byName[name]!;
    types[name] = key.type;
    values[name] = Array.from({ length }, () => (draw(9) ? key.values[draw(key.values.length)] : null));
  }
  return table(types, values);
}

describeDevices((devices) => {
  const engine = engineOf(devices);
  test.each(['auto', 'merge', 'radix', 'sample'] as const)(
    '%s: some rows of a sort are those of the whole one',
    async (algorithm) => {
      for (const [length, names] of [
        [0, ['int32']],
        [1, ['utf8']],
        [300, ['utf8', 'float64']],
        [6000, ['int64']],
        [6000, ['bool', 'utf8', 'int8']],
      ] as const) {
        const of = input(names, length, length + 1);
        const by = names.map((column, index) => ({ column, descending: index % 2 === 1, nullsLast: index % 3 !== 0 }));
        const whole = rows(await (await engine).sort(of, { by, algorithm }));
        const indices = (await (await engine).sortIndices(of, { by, algorithm })).rows;
        expect([...indices]).toEqual(whole.map(({ row }) => row));
        for (const [limit, offset] of [
          [1, 0],
          [10, 0],
          [10, 7],
          [length >> 1, 3],
          [length, 0],
          [1e9, length >> 1],
          [0, 0],
          [5, length],
          [5, 2 ** 40],
        ] as const) {
          const part = await (await engine).sort(of, { by, algorithm, limit, offset });
          expect(rows(part)).toEqual(whole.slice(offset, offset + limit));
          expect(part.stats.outputRows).toBe(part.numRows);
          const some = await (await engine).sortIndices(of, { by, algorithm, limit, offset });
          expect([...some.rows]).toEqual([...indices.subarray(offset, offset + limit)]);
        }
      }
    },
  );
});

test('few rows are found without a sort of all, and explain says so', async () => {
  const engine = await engineOf(1);
  const of = input(['int64', 'utf8'], 20_000, 5);
  const by = ['utf8', { column: 'int64', descending: true }] as const;
  const { stats } = await engine.sort(of, { by, limit: 10, offset: 3 });
  expect(stats).toMatchObject({ algorithm: 'top', outputRows: 10, inputRows: [20_000] });
  expect(stats.steps.map(({ name }) => name)).toEqual([
    'check buffers',
    'first rows',
    ...['row', 'text', 'int64', 'utf8'].map((name) => `column ${name} (gather)`),
  ]);
  const plan = await engine.explain('sort', of, { by, limit: 10, offset: 3, analyze: true });
  expect(plan).toContain('sort by "utf8", "int64" descending, rows 3 to 13: top');
  expect(plan).toContain('13 of 20000 rows are found in one pass');
  expect(plan).toMatch(/first rows +20,000/);
  const cut = await engine.explain('sort', of, { by, offset: 3 });
  expect(cut).toMatch(/\ncut +19,997/);
  expect((await engine.sort(of, { by, limit: 10, algorithm: 'merge' })).stats.algorithm).toBe('merge');
});

test('a result of some rows may stay, and a loaded table give some', async () => {
  const engine = await engineOf(1);
  const of = input(['int32'], 500, 6);
  const whole = rows(await engine.sort(of, { by: 'int32' }));
  await using loaded = await engine.load(of);
  const some = await engine.sort(loaded, { by: 'int32', limit: 20, offset: 2 });
  expect(rows(some)).toEqual(whole.slice(2, 22));
  expect(some.stats.residentReason).not.toBeNull();
  await using stays = await engine.sort(of, { by: 'int32', limit: 20, resident: true });
  expect(rows(await stays.toArrow())).toEqual(whole.slice(0, 20));
  expect([...(await engine.sortIndices(loaded, { by: 'int32', limit: 4 })).rows]).toEqual(
    whole.slice(0, 4).map(({ row }) => row),
  );
});

describe('keys of other types', () => {
  const length = 700;
  const draw = random(7);
  const valid = Array.from({ length }, () => draw(8) > 0);
  const bitmap = new Uint8Array(Math.ceil(length / 8));
  valid.forEach((one, row) => {
    if (one) bitmap[row >> 3]! |= 1 << (row & 7);
  });
  const nullCount = valid.filter((one) => !one).length;
  const column = (type: arrow.DataType, data: ArrayBufferView) =>
    new arrow.Vector([arrow.makeData({ type, length, nullCount, nullBitmap: bitmap, data } as never)]);
  const row = arrow.vectorFromArray(
    Array.from({ length }, (_, index) => index),
    new arrow.Int32(),
  );

  /** Sorts by a column whose values compare as `keys` do. */
  async function expectOrder(key: arrow.Vector, compare: (a: number, b: number) => number): Promise<void> {
    const engine = await engineOf(1);
    const of = new arrow.Table({ key, row } as never);
    for (const descending of [false, true]) {
      const order = [...Array(length).keys()].sort((a, b) => {
        if (!valid[a] || !valid[b]) return Number(!valid[a]) - Number(!valid[b]) || a - b;
        return (descending ? -1 : 1) * compare(a, b) || a - b;
      });
      const by = { column: 'key', descending };
      const sorted = await engine.sort(of, { by });
      expect([...sorted.getChild('row')!]).toEqual(order);
      expect(sorted.getChild('key')!.toJSON().map(String)).toEqual(order.map((at) => String(key.get(at))));
      expect([...(await engine.sort(of, { by, limit: 9, offset: 1 })).getChild('row')!]).toEqual(order.slice(1, 10));
      expect(await engine.isSorted(sorted, { by })).toBe(true);
      expect(await engine.isSorted(of, { by })).toBe(false);
      expect([...(await engine.searchSorted(sorted, of.slice(5, 6), { by, side: 'right' }))]).toEqual([
        1 + order.findLastIndex((at) => valid[at] === valid[5] && (!valid[5] || compare(at, 5) === 0)),
      ]);
    }
  }

  test.each([32, 64, 128, 256])('decimals of %i bits, by value', async (bits) => {
    for (const spread of [7n, 2n ** BigInt(bits - 3)]) {
      const values = Array.from({ length }, () => (BigInt(draw(2 ** 31)) ** 12n % spread) - spread / 2n);
      const words = new Uint32Array((length * bits) / 32);
      values.forEach((value, at) => {
        for (let word = 0; word < bits / 32; ++word) {
          words[(at * bits) / 32 + word] = Number(BigInt.asUintN(32, value >> BigInt(32 * word)));
        }
      });
      const type = new arrow.Decimal(2, Math.floor(bits * 0.3), bits);
      await expectOrder(column(type, words), (a, b) => Number(values[a]! > values[b]!) - Number(values[a]! < values[b]!));
    }
  });

  test.each([1, 4, 7, 8, 9, 20])('fixed-size binary of %i bytes, by its bytes', async (width) => {
    const bytes = Uint8Array.from({ length: length * width }, () => [0, 1, 127, 128, 255][draw(5)]!);
    const text = (at: number) => Buffer.from(bytes.subarray(at * width, (at + 1) * width));
    await expectOrder(column(new arrow.FixedSizeBinary(width), bytes), (a, b) => Buffer.compare(text(a), text(b)));
  });

  test('float16, by value', async () => {
    const bits = Uint16Array.from({ length }, () => [0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x0001][draw(8)]!);
    const number = (half: number): number => {
      const exponent = (half >> 10) & 31;
      const mantissa = half & 1023;
      const size =
        exponent === 31 ? (mantissa ? 1e9 : 1e8) : exponent ? (1 + mantissa / 1024) * 2 ** (exponent - 15) : mantissa * 2 ** -24;
      return half & 0x8000 && size < 1e9 ? -size : size;
    };
    await expectOrder(column(new arrow.Float16(), bits), (a, b) => number(bits[a]!) - number(bits[b]!) || 0);
  });
});

testOn(2)('isSorted tells of every row', async () => {
  const engine = await engineOf(2);
  const numbers = Array.from({ length: 5000 }, (_, row) => row >> 1);
  const of = (values: readonly (number | null)[]) => table({ k: new arrow.Int32() }, { k: values });
  expect(await engine.isSorted(of([]), { by: 'k' })).toBe(true);
  expect(await engine.isSorted(of([3]), { by: 'k' })).toBe(true);
  expect(await engine.isSorted(of(numbers), { by: 'k' })).toBe(true);
  expect(await engine.isSorted(of(numbers), { by: { column: 'k', descending: true } })).toBe(false);
  expect(await engine.isSorted(of([...numbers, 0]), { by: 'k' })).toBe(false);
  expect(await engine.isSorted(of([...numbers, null]), { by: 'k' })).toBe(true);
  expect(await engine.isSorted(of([...numbers, null]), { by: { column: 'k', nullsLast: false } })).toBe(false);
});

describe('searchSorted', () => {
  test('gives the place of each row, for one key and for several', async () => {
    const engine = await engineOf(1);
    const sorted = table({ a: new arrow.Int32(), b: new arrow.Utf8() }, { a: [1, 1, 2, 5, null], b: ['x', 'y', 'y', 'a', 'z'] });
    const values = table({ b: new arrow.LargeUtf8(), a: new arrow.Int64() }, { b: ['y', '', 'b', 'z'], a: [1n, 9n, 5n, null] });
    expect([...(await engine.searchSorted(sorted, values, { by: 'a' }))]).toEqual([0, 4, 3, 4]);
    expect([...(await engine.searchSorted(sorted, values, { by: 'a', side: 'right' }))]).toEqual([2, 4, 4, 5]);
    expect([...(await engine.searchSorted(sorted, values, { by: ['a', 'b'] }))]).toEqual([1, 4, 4, 4]);
    expect([...(await engine.searchSorted(sorted, values, { by: ['a', 'b'], side: 'right' }))]).toEqual([2, 4, 4, 5]);
  });

  test('refuses columns that differ, and tables that are seen not to be sorted', async () => {
    const engine = await engineOf(1);
    const of = table({ a: new arrow.Int32() }, { a: Array.from({ length: 500 }, (_, row) => -row) });
    await expect(engine.searchSorted(of, of, { by: 'a' })).rejects.toMatchObject({
      code: 'ERR_OPTION',
      message: expect.stringContaining("The table is not sorted by 'a'"),
    });
    const texts = table({ a: new arrow.Utf8() }, { a: ['x'] });
    await expect(engine.searchSorted(of, texts, { by: 'a' })).rejects.toMatchObject({
      code: 'ERR_KEY_TYPE',
      message: expect.stringContaining(
        'Expected column "a" of one type in both tables but it is int32 in the input table and utf8',
      ),
    });
    await expect(engine.searchSorted(of, texts, { by: 'b' } as never)).rejects.toMatchObject({ code: 'ERR_COLUMN_NOT_FOUND' });
    await expect(engine.searchSorted(of, of, { by: 'a', side: 'middle' } as never)).rejects.toMatchObject({ code: 'ERR_OPTION' });
  });
});
