/** Joins by keys of every type, one to four columns of any mix, by value whatever their units: against a reference, row by row. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, JoinOptions } from '../../lib/index.js';
import { describeDevices, engineMaker, inspectedEngine } from '../support/engines.js';
import { KINDS, NULLS, type Side, same, side } from '../support/kinds.js';
import { failure, random, table } from '../support/tables.js';

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
    [{ on: ['k', 'j'], nullsEqual: [true, 1] }, /^Expected a boolean or an array of as many booleans as keys for nullsEqual/],
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
});
