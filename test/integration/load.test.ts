/** Tables that stay on an engine's devices: on GPUs where they lie, on host devices the same calls without them. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, ResultTable, TableInput } from '../../lib/index.js';
import { describeDevices, engineMaker, onGpus, testEngine } from '../support/engines.js';
import { chunked, failure, random, rows, table, unordered } from '../support/tables.js';

const draw = random(11);
const numbers = (count: number, value: (row: number) => unknown) => Array.from({ length: count }, (_, row) => value(row));
const types = { k: new arrow.Int32(), w: new arrow.Int64(), f: new arrow.Float64(), b: new arrow.Bool(), t: new arrow.Utf8() };
const someNulls = (value: unknown) => (draw(7) ? value : null);

/** Rows with keys below `keys`, in several record batches. */
function tableOf(count: number, keys: number) {
  const of = table(types, {
    k: numbers(count, () => draw(keys)),
    w: numbers(count, () => BigInt(draw(keys)) - 5n),
    f: numbers(count, (row) => someNulls(row / 4)),
    b: numbers(count, () => someNulls(draw(2) === 1)),
    t: numbers(count, (row) => someNulls(`row ${row}`)),
  });
  return chunked(of, [Math.floor(count / 3), Math.floor(count / 2)]);
}

const [left, right] = [tableOf(3001, 900), tableOf(2003, 900)];
const residentBytes = (engine: Engine): number => engine.devices().reduce((bytes, device) => bytes + device.residentBytes, 0);
const make = engineMaker({ memoryLimit: '1GiB', threads: 2 });

describeDevices((devices) => {
  const engine = make(devices);
  const load = async (of: typeof left) => (await engine).load(of);

  test('loading takes device memory on GPUs, and disposing gives it back', async () => {
    const own = await engine;
    const loaded = await load(left);
    expect(loaded.resident).toBe(onGpus);
    // k, w, f with validity and b with validity
    expect(residentBytes(own)).toBeGreaterThanOrEqual(onGpus ? 3001 * 20 + (3 * 3001) / 8 : 0);
    expect(await loaded.toArrow()).toBe(left);
    await loaded.dispose();
    expect(residentBytes(own)).toBe(0);
  });

  const byKeysThatAreMade = [
    { leftOn: 'w', rightOn: 'k', select: ['k', 'w', 'w_right'] },
    { on: 'f', select: ['f', 'k', 'w_right'] },
    { on: 'f', select: ['w', 'k_right'] },
    { on: 'f', how: 'full', coalesce: false, select: ['f', 'b', 'f_right', 'k_right'] },
    { on: 'f', how: 'anti', select: ['f', 'k'] },
  ] as const;
  const joins = [
    ...byKeysThatAreMade,
    { on: 'k' },
    { on: 'w', select: ['w', 'k', 'k_right'] },
    { on: 'k', select: ['f', 'b', 'w_right'] },
    { leftOn: 'k', rightOn: 'w' },
    { on: 'f' },
    { on: 't' },
    ...(['left', 'right', 'full', 'semi', 'anti'] as const).map((how) => ({ on: 'k', how })),
    { on: 'w', how: 'full', coalesce: true },
    { on: 'k', algorithm: 'sort-merge' },
    { on: 'k', buildSide: 'left' },
  ] as const;
  test.each(joins.map((options) => [JSON.stringify(options), options] as const))('join %s', async (_, options) => {
    const own = await engine;
    const ask = (l: TableInput, r: TableInput) => own.join(l, r, options as { on: string }) as Promise<ResultTable>;
    const expected = unordered(rows(await ask(left, right)));
    await using one = await load(left);
    await using other = await load(right);
    const joined = await ask(one, other);
    expect(unordered(rows(joined))).toEqual(expected);
    await using stays = await own.join(one, other, { ...(options as { on: 'k' }), resident: true });
    expect([stays.numRows, stays.schema.names]).toEqual([joined.numRows, joined.schema.names]);
    expect(unordered(rows(await stays.toArrow()))).toEqual(expected);
    if (onGpus && (byKeysThatAreMade as readonly object[]).includes(options)) {
      expect([joined, stays].map(({ stats }) => stats.residentReason)).toEqual(Array(2).fill('joined where they lie'));
    }
    const { select, coalesce, ...match } = { select: [], coalesce: false, ...options };
    expect(await own.joinCount<TableInput, TableInput>(one, other, match as { on: string })).toBe(joined.numRows);
  });

  test('joinIndices and sort take loaded tables', async () => {
    const own = await engine;
    await using one = await load(left);
    await using other = await load(right);
    const pairs = ({ left: l, right: r }: Awaited<ReturnType<Engine['joinIndices']>>) =>
      [...l].map((row, i) => `${row} ${r![i]}`).sort();
    expect(pairs(await own.joinIndices(one, other, { on: 'k', how: 'left' }))).toEqual(
      pairs(await own.joinIndices(left, right, { on: 'k', how: 'left' })),
    );
    expect(rows(await own.sort(one, { by: ['k', 't'] }))).toEqual(rows(await own.sort(left, { by: ['k', 't'] })));
  });

  const sorts = [
    { by: 'k' },
    { by: 'k', select: ['f', 'k', 'b', 'w'] },
    { by: { column: 'w', descending: true }, select: ['k', 'w'] },
    { by: { column: 'k', descending: true }, select: ['k'] },
    { by: 'w', select: ['b'] },
    { by: ['k', 'w'], select: ['f'] },
    { by: 'f', select: ['f', 'k'] },
    { by: { column: 'f', descending: true, nullsLast: false }, select: ['w'] },
    { by: [{ column: 'b', nullsLast: false }, { column: 'k', descending: true }, 'w'], select: ['b', 'w', 'f'] },
    { by: ['k', 't'], select: ['w'] },
    { by: 'k', select: ['w'], algorithm: 'radix' },
  ] as const;
  test.each(sorts.map((options) => [JSON.stringify(options), options] as const))('sort %s', async (_, options) => {
    const own = await engine;
    const expected = rows(await own.sort(left, options));
    await using loaded = await load(left);
    const sorted = await own.sort(loaded, options);
    expect(rows(sorted)).toEqual(expected);
    await using stays = await own.sort(loaded, { ...options, resident: true });
    expect([stays.numRows, stays.schema.names]).toEqual([sorted.numRows, sorted.schema.names]);
    expect(rows(await stays.toArrow())).toEqual(expected);
    const there = !('algorithm' in options) && 'select' in options && !JSON.stringify(options.by).includes('"t"');
    if (onGpus && there) expect([sorted.stats.resident, stays.stats.resident]).toEqual([['input'], ['input']]);
  });

  test('a result that stayed goes into further calls', async () => {
    const own = await engine;
    await using one = await load(left);
    await using other = await load(right);
    await using ids = await own.join(one, other, { on: 'k', select: ['k', 'w_right'], resident: true });
    const expected = await own.join(await ids.toArrow(), left, { on: 'k', select: ['k', 'w_right', 'w'] });
    await using again = await own.join(one, other, { on: 'k', select: ['k', 'w_right'], resident: true });
    const twice = await own.join(again, one, { on: 'k', select: ['k', 'w_right', 'w'] });
    expect(unordered(rows(twice))).toEqual(unordered(rows(expected)));
    expect((await own.sort(again, { by: 'k' })).numRows).toBe(again.numRows);
  });

  test('empty tables', async () => {
    const own = await engine;
    const empty = left.slice(0, 0) as typeof left;
    await using one = await load(empty);
    await using other = await load(right);
    expect(await own.joinCount(one, other, { on: 'k' })).toBe(0);
    await using joined = await own.join(one, other, { on: 'k', how: 'right', resident: true });
    expect((await joined.toArrow()).numRows).toBe(2003);
    await using none = await own.join(one, one, { on: 'k', resident: true });
    expect((await none.toArrow()).numRows).toBe(0);
    await using sorted = await own.sort(one, { by: 'k', select: ['k', 'w', 'b'], resident: true });
    expect((await sorted.toArrow()).numRows).toBe(0);
  });

  test('explain and stats say what runs where the tables lie', async () => {
    const own = await engine;
    await using one = await load(left);
    await using other = await load(right);
    const plan = await own.explain('join', one, other, { on: 'k', select: ['k', 'w'] });
    expect(plan).toMatch(onGpus ? /^ {2}loaded {3}left, right: joined where they lie/m : /^ {2}loaded {3}/m);
    const { stats } = await own.join(one, other, { on: 'k', select: ['k', 'w'] });
    expect(stats.resident).toEqual(onGpus ? ['left', 'right'] : []);
    const host = await own.join(one, other, { on: 't', select: ['k'] });
    expect([host.stats.resident, host.stats.residentReason]).toEqual([[], expect.stringContaining('host memory')]);
    expect((await own.join(left, right, { on: 't', select: ['k'] })).stats.residentReason).toBeNull();
  });

  test('nothing is left when all is disposed, in any order', async () => {
    const own = await testEngine(devices, { memoryLimit: '1GiB', threads: 2 });
    const [one, other] = [await own.load(left), await own.load(right)];
    const joined = await own.join(one, other, { on: 'k', select: ['k', 'w'], resident: true });
    await one.dispose();
    expect(joined.numRows).toBeGreaterThan(0);
    expect((await failure(own.joinCount(one, other, { on: 'k' }))).code).toBe('ERR_INVALID_TABLE');
    await own.dispose();
    expect([one, other, joined].map(({ resident }) => resident)).toEqual([false, false, false]);
    await Promise.all([other.dispose(), joined.dispose()]);
  });
});

const int64 = (count: number, factor = 1) =>
  arrow.makeVector(BigInt64Array.from({ length: count }, (_, row) => BigInt(row * factor)));

describe.runIf(onGpus)('on GPUs, whose memory is limited', () => {
  const pairs = (factor: number) => new arrow.Table({ k: int64(200_000, factor), v: int64(200_000) });
  const limited = (deviceMemoryLimit: string) => make(1, { deviceMemoryLimit });

  test('tables that were not used make room for others, and go on', async () => {
    const own = await limited('8MiB');
    const [one, two, three] = [await own.load(pairs(1)), await own.load(pairs(2)), await own.load(pairs(3))];
    expect([one, two, three].map(({ resident }) => resident)).toEqual([false, true, true]);
    expect(await own.joinCount(one, two, { on: 'k' })).toBe(100_000);
    expect((await failure(own.load(new arrow.Table({ k: int64(2_000_000) })))).code).toBe('ERR_MEMORY_LIMIT');
  });

  test('a result that is evicted goes to host memory first', async () => {
    const own = await limited('64MiB');
    const [one, two] = [await own.load(pairs(1)), await own.load(pairs(2))];
    const joined = await own.join(one, two, { on: 'k', resident: true });
    expect([joined.resident, joined.stats.residentReason]).toEqual([true, 'joined where they lie']);
    const large = await own.load(new arrow.Table({ k: int64(7_600_000) }));
    expect([one, two, joined, large].map(({ resident }) => resident)).toEqual([false, false, false, true]);
    const home = await joined.toArrow();
    expect(home.numRows).toBe(100_000);
    for (const row of [0, 777, 99_999]) {
      const { k, v, v_right } = home.get(row)!;
      expect([k, v]).toEqual([v, 2n * v_right!]);
    }
    await large.dispose();
    expect(await own.joinCount(joined, one, { on: 'k' })).toBe(100_000);
    expect([joined, one].map(({ resident }) => resident)).toEqual([true, true]);
  });
});
