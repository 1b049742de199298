import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, JoinKind } from '../../lib/index.js';
import { describeDevices, engineMaker, onGpus } from '../support/engines.js';
import { failure, random, rows, table } from '../support/tables.js';

const HOWS = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const satisfies JoinKind[];
const ALGORITHMS = ['radix-hash', 'sort-merge'] as const;
const ORDERS = ['left', 'right', 'left_right', 'right_left'] as const;
type How = (typeof HOWS)[number];
type Order = (typeof ORDERS)[number];
type Pair = [left: number | null, right: number | null];

const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });
const none = 2 ** 32 - 1;

/** Keys drawn of so many values, a tenth of them null. */
function keysOf(seed: number, length: number, distinct: number): (number | null)[] {
  const draw = random(seed);
  return Array.from({ length }, () => (draw(10) === 0 ? null : draw(distinct) * 7 - 3));
}
const left = (keys: (number | null)[]) =>
  table({ key: new arrow.Int32(), i: new arrow.Int32() }, { key: keys, i: keys.map((_, row) => row) });
const right = (keys: (number | null)[]) =>
  table(
    { key: new arrow.Int32(), j: new arrow.Utf8(), n: new arrow.Float64() },
    { key: keys, j: keys.map((_, row) => `right ${row}`), n: keys.map((_, row) => row) },
  );

/** All pairs of a join, by left rows and then by right rows; without a left row last. */
function pairsOf(one: (number | null)[], other: (number | null)[], how: How, order: Order): Pair[] {
  const byKey = new Map<number, number[]>();
  for (const [row, key] of other.entries()) if (key !== null) byKey.set(key, [...(byKey.get(key) ?? []), row]);
  const pairs: Pair[] = [];
  const matched = new Set<number>();
  for (const [row, key] of one.entries()) {
    const found = (key !== null && byKey.get(key)) || [];
    if (how === 'semi' || how === 'anti') {
      if (found.length > 0 === (how === 'semi')) pairs.push([row, null]);
      continue;
    }
    for (const at of found) pairs.push([row, at]);
    for (const at of found) matched.add(at);
    if (found.length === 0 && (how === 'left' || how === 'full')) pairs.push([row, null]);
  }
  if (how === 'right' || how === 'full') for (const row of other.keys()) if (!matched.has(row)) pairs.push([null, row]);
  const place = (row: number | null): number => row ?? Number.POSITIVE_INFINITY;
  const by = (side: 0 | 1, a: Pair, b: Pair): number => (a[side] === b[side] ? 0 : place(a[side]) - place(b[side]));
  if (how === 'semi' || how === 'anti' || order.startsWith('left')) return pairs.sort((a, b) => by(0, a, b) || by(1, a, b));
  return pairs.sort((a, b) => by(1, a, b) || by(0, a, b));
}

const numbered = (indices: { left: ArrayLike<unknown>; right: ArrayLike<unknown> | null }): Pair[] =>
  Array.from({ length: indices.left.length }, (_, at) => {
    const row = (side: ArrayLike<unknown> | null): number | null =>
      side === null || side[at] === none ? null : Number(side[at]);
    return [row(indices.left), row(indices.right)];
  });
const read = (out: arrow.Table): Pair[] =>
  rows(out).map(({ i, n }) => [(i as number | null) ?? null, (n as number | null | undefined) ?? null]);

const SHAPES = [
  [0, 0, 1],
  [0, 9, 3],
  [9, 0, 3],
  [1, 1, 1],
  [65, 64, 1],
  [300, 700, 50],
  [2000, 1000, 100_000],
] as const;

describeDevices((devices) => {
  const engine = engineOf(devices);
  describe.each(ALGORITHMS)('%s', (algorithm) => {
    test.each(HOWS)('%s: rows come in the order that is asked for', async (how) => {
      for (const [leftRows, rightRows, distinct] of SHAPES) {
        const [one, other] = [keysOf(leftRows + 1, leftRows, distinct), keysOf(rightRows + 2, rightRows, distinct)];
        for (const maintainOrder of ORDERS) {
          const expected = pairsOf(one, other, how, maintainOrder);
          const options = { on: 'key', how, algorithm, maintainOrder } as const;
          const [offset, limit] = [Math.floor(expected.length / 3), Math.ceil(expected.length / 2)];
          const some = expected.slice(offset, offset + limit);
          if (maintainOrder.startsWith('left')) {
            const out = await (await engine).join(left(one), right(other), options);
            expect(read(out)).toEqual(expected);
            const indices = await (await engine).joinIndices(left(one), right(other), { ...options, offset, limit });
            expect(numbered(indices)).toEqual(some);
          } else {
            expect(numbered(await (await engine).joinIndices(left(one), right(other), options))).toEqual(expected);
            expect(read(await (await engine).join(left(one), right(other), { ...options, offset, limit }))).toEqual(some);
          }
          expect(await (await engine).joinCount(left(one), right(other), { ...options, offset, limit })).toBe(some.length);
        }
      }
    });
  });

  test('chunksets do not show', async () => {
    const [one, other] = [keysOf(1, 30_000, 20_000), keysOf(2, 40_000, 20_000)];
    for (const algorithm of ALGORITHMS) {
      // GPUs need more memory than the rows of this join, and a hash join of host devices has no parts.
      const few = !onGpus && algorithm !== 'radix-hash';
      await using tight = await engineOf(devices, few ? { deviceMemoryLimit: Math.floor(2 ** 19 / devices) } : {});
      for (const how of ['inner', 'full'] as const) {
        const out = await tight.join(left(one), right(other), { on: 'key', how, algorithm, maintainOrder: 'left' });
        if (few) expect(out.stats.chunksets).toBeGreaterThan(1);
        expect(read(out)).toEqual(pairsOf(one, other, how, 'left'));
      }
    }
  });
});

describe('the result', () => {
  const engine = engineOf(1);
  const [one, other] = [keysOf(5, 400, 60), keysOf(6, 300, 60)];
  const of = async (options: object): Promise<arrow.Table> =>
    (await engine).join(left(one), right(other), { on: 'key', ...options } as never);

  test('a lookup join is in the order of the side that looks up already', async () => {
    const unique = table(
      { key: new arrow.Utf8(), a: new arrow.Int32() },
      { key: ['p', 'q', 'a key of some length'], a: [1, 2, 3] },
    );
    const many = table(
      { key: new arrow.Utf8(), i: new arrow.Int32() },
      { key: ['q', 'p', null, 'q', 'a key of some length', 'p'], i: [0, 1, 2, 3, 4, 5] },
    );
    const by = async (maintainOrder: Order) => {
      const out = await (await engine).join(many, unique, { on: 'key', maintainOrder });
      expect(out.stats.algorithm).toBe('lookup');
      return rows(out).map((row) => row.i);
    };
    expect(await by('left')).toEqual([0, 1, 3, 4, 5]);
    expect(await by('right')).toEqual([1, 5, 0, 3, 4]);
  });

  test.each([[['i']], [['j']], [['key']], [['n', 'j']]])('columns %j alone', async (select) => {
    for (const how of ['inner', 'left', 'right', 'full'] as const) {
      for (const maintainOrder of ['left', 'right'] as const) {
        const all = await of({ how, maintainOrder, coalesce: true });
        const some = await of({ how, maintainOrder, coalesce: true, select });
        const project = (out: arrow.Table) => rows(out).map((row) => select.map((name) => row[name]));
        expect(project(some)).toEqual(project(all));
      }
    }
  });

  test('a payload that could travel with the keys does not', async () => {
    const keys = (seed: number) => keysOf(seed, 500, 40).map((key) => key ?? 0);
    const [a, b] = [keys(7), keys(8)];
    const numbers = (name: string, of: number[]) =>
      table({ key: new arrow.Int32(), [name]: new arrow.Int32() }, { key: of, [name]: of.map((_, row) => row) });
    const out = await (await engine).join(numbers('i', a), numbers('n', b), { on: 'key', maintainOrder: 'right' });
    expect(read(out)).toEqual(pairsOf(a, b, 'inner', 'right'));
    const pairs = await (await engine).joinKeys(
      { keys: Int32Array.from(a), values: Int32Array.from(a.keys()) },
      { keys: Int32Array.from(b), values: Int32Array.from(b.keys()) },
      { maintainOrder: 'right', offset: 3, limit: 20 },
    );
    expect(Array.from(pairs.r, (row, at) => [row, pairs.s[at]])).toEqual(pairsOf(a, b, 'inner', 'right').slice(3, 23));
  });

  test.each([
    [0, 0],
    [0, 1],
    [7, 5],
    [1e9, 5],
    [10, Number.MAX_SAFE_INTEGER],
  ])('offset %d, limit %d, in any order', async (offset, limit) => {
    const all = new Set(pairsOf(one, other, 'full', 'left').map(String));
    const out = read(await of({ how: 'full', offset, limit }));
    expect(out).toHaveLength(Math.min(limit, Math.max(0, all.size - offset)));
    expect(new Set(out.map(String)).size).toBe(out.length);
    for (const pair of out) expect(all).toContain(String(pair));
    // Carried along with the keys, both are cut, too.
    const sides = await of({ offset, limit, select: ['key', 'i', 'n'] });
    expect(sides.numRows).toBe(Math.min(limit, Math.max(0, pairsOf(one, other, 'inner', 'left').length - offset)));
    for (const { key, i, n } of rows(sides)) expect([one[i as number], other[n as number]]).toEqual([key, key]);
  });

  test('cross joins', async () => {
    const [a, b] = [left(one.slice(0, 7)), right(other.slice(0, 5))];
    const all = (order: Order): Pair[] => {
      const pairs = [...Array(35).keys()].map((at): Pair => [Math.floor(at / 5), at % 5]);
      return order.startsWith('left') ? pairs : pairs.sort((x, y) => x[1]! - y[1]! || x[0]! - y[0]!);
    };
    for (const maintainOrder of ORDERS) {
      for (const [offset, limit] of [
        [0, undefined],
        [4, 13],
        [30, 100],
        [35, 1],
      ] as const) {
        const options = { how: 'cross', maintainOrder, offset, limit } as const;
        const expected = all(maintainOrder).slice(offset, limit && offset + limit);
        expect(read(await (await engine).join(a, b, options))).toEqual(expected);
        expect(numbered(await (await engine).joinIndices(a, b, options))).toEqual(expected);
        expect(await (await engine).joinCount(a, b, options)).toBe(expected.length);
      }
    }
  });

  test('a cross join of which a few rows are wanted makes these alone', async () => {
    const numbers = new arrow.Table({ v: arrow.makeVector(new Int32Array(100_000).map((_, row) => row)) });
    const out = await (await engine).join(numbers, numbers, { how: 'cross', offset: 100_000 * 77_777 + 5, limit: 3 });
    expect(rows(out)).toEqual([5, 6, 7].map((row) => ({ v: 77_777, v_right: row })));
    expect(out.stats.peakMemoryBytes).toBeLessThan(2 ** 24);
    expect((await failure((await engine).join(numbers, numbers, { how: 'cross' }))).code).toBe('ERR_MEMORY_LIMIT');
  });
});

describe('limits', () => {
  const engine = engineOf(1);
  const [one, other] = [keysOf(9, 400, 60), keysOf(10, 300, 60)];
  const found = pairsOf(one, other, 'inner', 'left').length;
  type Call = (engine: Engine, options: object) => Promise<unknown>;
  const calls: Record<string, Call> = {
    join: (engine, options) => engine.join(left(one), right(other), options as never),
    joinIndices: (engine, options) => engine.joinIndices(left(one), right(other), options as never),
    joinCount: (engine, options) => engine.joinCount(left(one), right(other), options as never),
  };

  test.each(Object.entries(calls))('%s: maxOutputRows bounds what the join finds', async (_, call) => {
    for (const algorithm of ALGORITHMS) {
      await call(await engine, { on: 'key', algorithm, maxOutputRows: found });
      for (const more of [{}, { limit: 1 }, { offset: found }]) {
        const error = await failure(call(await engine, { on: 'key', algorithm, maxOutputRows: found - 1, ...more }));
        expect(error.code).toBe('ERR_MEMORY_LIMIT');
        expect(error.message).toContain(`The join gives ${found} rows, more than the ${found - 1} allowed`);
      }
    }
    const error = await failure(call(await engine, { how: 'cross', maxOutputRows: 119_999, limit: 1 }));
    expect(error).toMatchObject({
      code: 'ERR_MEMORY_LIMIT',
      message: 'The cross join has 120000 rows but maxOutputRows is 119999.',
    });
  });

  test('a count that no number holds', async () => {
    const long = new arrow.Table({ v: new arrow.Vector([arrow.makeData({ type: new arrow.Null(), length: 2 ** 31 - 1 })]) });
    const options = { how: 'cross' } as const;
    expect((await failure((await engine).joinCount(long, long, options))).code).toBe('ERR_NOT_SUPPORTED');
    expect(await (await engine).joinCount(long, long, { ...options, limit: 12 })).toBe(12);
  });

  test('ordering that does not fit the memory fails, and names the limit', async () => {
    // 980,000 pairs, of two keys: the rows of neither side ascend.
    const keys = new arrow.Table({ key: arrow.makeVector(Int32Array.from({ length: 1400 }, (_, row) => row % 2)) });
    await using small = await engineOf(1, { memoryLimit: '12MiB' });
    await small.joinIndices(keys, keys, { on: 'key' });
    const error = await failure(small.joinIndices(keys, keys, { on: 'key', maintainOrder: 'left' }));
    expect(error.code).toBe('ERR_MEMORY_LIMIT');
    expect(error.message).toMatch(/^Ordering 980000 rows takes at least .* but memoryLimit/);
  });

  test('explain shows the steps', async () => {
    const text = await (await engine).explain('join', left(one), right(other), {
      on: 'key',
      maintainOrder: 'right',
      offset: 2,
      limit: 10,
      analyze: true,
    });
    expect(text).toMatch(/hash join, build right[\s\S]*order rows by right[\s\S]*10 rows from 2 on[\s\S]*column key/);
    expect(text).toMatch(/rows out 10,/);
  });
});
