/** Joins by text: frequent texts, texts whose hashes collide, texts of many lengths. */
import { Binary, type DataType, Int32, LargeUtf8, makeData, Table, Utf8, Vector, vectorFromArray } from 'apache-arrow';
import { expect, test } from 'vitest';
import type { JoinOptions } from '../../lib/index.js';
import { describeDevices, engineMaker, inspectedEngine } from '../support/engines.js';

const KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const;

/** A column of texts, row by row, without the JavaScript strings of vectorFromArray. */
function texts(rows: number, textOf: (row: number) => string | null, type: DataType = new Utf8()): Vector {
  return vectorFromArray(
    Array.from({ length: rows }, (_, row) => textOf(row)),
    type,
  );
}

const table = (key: Vector): Table =>
  new Table({
    key,
    row: new Vector([makeData({ type: new Int32(), data: Int32Array.from({ length: key.length }, (_, i) => i) })]),
  });

/** The number of rows of a join, counted by key. */
function expectedRows(left: Vector, right: Vector, how: (typeof KINDS)[number]): number {
  const count = (vector: Vector): Map<string | null, number> => {
    const counts = new Map<string | null, number>();
    for (const value of vector) counts.set(value, (counts.get(value) ?? 0) + 1);
    return counts;
  };
  const [l, r] = [count(left), count(right)];
  let [pairs, leftMatched, rightMatched] = [0, 0, 0];
  for (const [key, rows] of l) {
    const others = key === null ? 0 : (r.get(key) ?? 0);
    pairs += rows * others;
    if (others > 0) [leftMatched, rightMatched] = [leftMatched + rows, rightMatched + others];
  }
  const [leftAlone, rightAlone] = [left.length - leftMatched, right.length - rightMatched];
  return {
    inner: pairs,
    left: pairs + leftAlone,
    right: pairs + rightAlone,
    full: pairs + leftAlone + rightAlone,
    semi: leftMatched,
    anti: leftAlone,
  }[how];
}

describeDevices((devices) => {
  const engineFor = engineMaker({ memoryLimit: '1GiB' });

  test('half of the rows have one text: every kind takes memory in proportion to the rows', async () => {
    const rows = 50_000;
    const [left, right] = [3, 7].map((step) =>
      table(texts(rows, (row) => (row % 2 ? 'United States' : `Country ${(row * step) % 1000}`))),
    ) as [Table, Table];
    const engine = await engineFor(devices, { memoryLimit: '64MiB' });
    for (const how of ['semi', 'anti'] as const) {
      const out = await engine.join(left, right, { on: 'key', how });
      expect(out.numRows).toBe(expectedRows(left.getChild('key')!, right.getChild('key')!, how));
    }
    expect(await engine.joinCount(left, right, { on: 'key' })).toBe(
      expectedRows(left.getChild('key')!, right.getChild('key')!, 'inner'),
    );
  });

  test.each([1, 700])('%i distinct texts in a million rows a side are counted', async (distinct) => {
    const rows = 1_000_000;
    const column = texts(1000, (row) => `the text number ${row % distinct}`);
    const key = new Vector(Array.from({ length: rows / 1000 }, () => column.data[0]!));
    const side = table(key);
    const engine = await engineFor(devices);
    const options = { on: 'key' } as const;
    const each = 1000 / distinct;
    const pairs = distinct === 1 ? rows * rows : expectedRows(column, column, 'inner') * 1000 * 1000;
    expect(each).toBeGreaterThan(0);
    expect(await engine.joinCount(side, side, options)).toBe(pairs);
    expect(await engine.joinCount(side, side, { ...options, how: 'semi' })).toBe(rows);
    expect(await engine.joinCount(side, side, { ...options, how: 'anti' })).toBe(0);
  });

  test.each([0, 2, 64])('texts that share hashes of %i bits are told apart in every kind of join', async (bits) => {
    const { engine } = inspectedEngine(devices, { memoryLimit: '1GiB' }, { hashBits: bits });
    const types = [new Utf8(), new LargeUtf8()];
    for (const [index, how] of KINDS.entries()) {
      const type = types[index % 2]!;
      const left = table(texts(400, (row) => (row % 11 ? `left or right ${(row * 7) % 150}` : null), type));
      const right = table(texts(300, (row) => (row % 13 ? `left or right ${(row * 5) % 200}${row % 3 ? '' : '!'}` : null)));
      for (const [one, other] of [
        [left, right],
        [right, left],
      ] as const) {
        const out = await engine.join(one, other, { on: 'key', how } as JoinOptions);
        expect(out.numRows).toBe(expectedRows(one.getChild('key')!, other.getChild('key')!, how));
        if (how !== 'inner') continue;
        const [a, b] = [one.getChild('key')!, other.getChild('key')!];
        for (const { row, row_right } of out.toArray()) expect(a.get(row)).toBe(b.get(row_right));
      }
    }
    await engine.dispose();
  });

  test('keys of unique texts are looked up, unless an algorithm is asked for', async () => {
    const engine = await engineFor(devices);
    const [few, many] = [
      table(texts(500, (row) => `customer ${row}`)),
      table(texts(4000, (row) => (row % 9 ? `customer ${(row * 3) % 700}` : null))),
    ];
    for (const how of KINDS) {
      for (const [left, right] of [
        [few, many],
        [many, few],
      ] as const) {
        const looked = await engine.join(left, right, { on: 'key', how } as JoinOptions);
        const hashed = await engine.join(left, right, { on: 'key', how, algorithm: 'radix-hash' } as JoinOptions);
        expect([looked.stats.algorithm, hashed.stats.algorithm]).toEqual(['lookup', 'radix-hash']);
        const sorted = (out: Table): string[] =>
          out
            .toArray()
            .map((row) => JSON.stringify(row))
            .sort();
        expect(sorted(looked)).toEqual(sorted(hashed));
      }
    }
  });

  test('binary keys, with bytes that are no text', async () => {
    const engine = await engineFor(devices);
    const bytes = (row: number): Uint8Array => Uint8Array.of(0xff, row % 40, 0, row % 3, 1, 2, 3, 4, 5, 6, 7);
    const key = vectorFromArray(
      Array.from({ length: 600 }, (_, row) => bytes(row)),
      new Binary(),
    );
    expect(await engine.joinCount(table(key), table(key), { on: 'key' })).toBe((600 / 120) ** 2 * 120);
  });
});
