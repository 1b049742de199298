/**
 * joinBatches() where memory has no room for the build side: both sides are cut into partitions in temporary files, these into further
 * ones, and what has few keys is sorted.
 */

import { mkdtempSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import type { WarpjoinError } from '../../lib/errors.js';
import type { JoinKind } from '../../lib/index.js';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { describeDevices, describeHost, inspectedEngine, onGpus, testEngine } from '../support/engines.js';
import { cut, failure, later, random, rows, unordered } from '../support/tables.js';

const KINDS: Exclude<JoinKind, 'cross'>[] = ['inner', 'left', 'right', 'full', 'semi', 'anti'];
const LIMIT = '2500KiB';

/** Keys, of 100 rows so many 7, and one row in so many null; texts, and row numbers. */
function keyed(
  length: number,
  distinct: number,
  seed: number,
  [key, row]: [string, string],
  { hot = 0, rowsANull = 20 } = {},
): arrow.Table {
  const draw = random(seed);
  return arrow.tableFromArrays({
    [key]: Array.from({ length }, () => (draw(rowsANull) ? (draw(100) < hot ? 7 : draw(distinct)) : null)),
    t: Array.from({ length }, () => `t${draw(3)}`),
    [row]: Int32Array.from({ length }, (_, index) => index),
  });
}

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-test-'));
const small = (devices: number, memoryLimit: string | number = LIMIT) =>
  inspectedEngine(devices, { memoryLimit, threads: 2, tempDirectory: folder });
/** All rows, as objects, and how many came. */
async function read(batches: AsyncIterable<arrow.RecordBatch>): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  for await (const batch of batches) all.push(...rows(new arrow.Table([batch])));
  return all;
}

const [left, right] = [keyed(60_000, 40_000, 1, ['k', 'l']), keyed(50_000, 40_000, 2, ['key', 'r'])];
const on = { leftOn: 'k', rightOn: 'key' } as const;

describeDevices((devices) => {
  // On the host every other kind, for odd numbers of devices others than for even ones.
  test.each(KINDS.filter((_, kind) => onGpus || (kind + devices) % 2))('%s gives the rows that join() gives', async (how) => {
    await using large = await testEngine(devices, { memoryLimit: '2GiB' });
    const expected = await large.join(left, right, { ...on, how } as never);
    const { engine, inner } = small(devices);
    const joined = engine.joinBatches(later(cut(left, 1000)), later(cut(right, 700)), { ...on, how } as never);
    expect(unordered((await read(joined)) as never)).toEqual(unordered(rows(expected)));
    expect(joined.stats).toMatchObject({ inputRows: 110_000, outputRows: expected.numRows });
    expect(joined.stats.runs).toBeGreaterThan(4);
    expect(joined.stats.readBytes).toBe(joined.stats.spilledBytes);
    if (!onGpus) expect(inner.memory().peakBytes).toBeLessThanOrEqual(2500 * 1024);
    expect(await readdir(folder)).toEqual([]);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });
});

/** A join in which many rows of a side, or of both, have one key. */
async function joinsCrowdedKey(how: JoinKind, side: 'left' | 'right' | 'both'): Promise<void> {
  await using large = await testEngine(1, { memoryLimit: '2GiB' });
  // Where both have it there are few: their product is the result.
  const hot = (of: string) => (side === 'both' ? 20 : side === of ? 90 : 0);
  const [length, limit] = side === 'both' ? [1600, 88_000] : [40_000, 1_600_000];
  const one = keyed(length, length, 5, ['k', 'l'], { hot: hot('left') });
  const other = keyed(length, length, 6, ['k', 'r'], { hot: hot('right') });
  const options = { on: 'k', how, select: how === 'semi' || how === 'anti' ? ['l'] : ['l', 'r'] } as never;
  const expected = await large.join(one, other, options);
  const { engine, inner } = small(1, limit);
  const joined = engine.joinBatches(later(cut(one, 100)), later(cut(other, 100)), options);
  let [count, sum] = [0, 0];
  for await (const batch of joined) {
    count += batch.numRows;
    for (const vector of ['l', 'r'].map((name) => batch.getChild(name))) if (vector) for (const row of vector) sum += row ?? 1;
  }
  let wanted = 0;
  for (const vector of ['l', 'r'].map((name) => expected.getChild(name as never)))
    if (vector) for (const row of vector as Iterable<number | null>) wanted += row ?? 1;
  expect([count, sum]).toEqual([expected.numRows, wanted]);
  expect(joined.stats.runs).toBeGreaterThan(0);
  expect(inner.memory().peakBytes).toBeLessThanOrEqual(limit);
  await engine.dispose();
}

describe('keys', () => {
  test.each([
    [
      ['k', 't'],
      [false, false],
    ],
    [
      ['t', 'k'],
      [false, true],
    ],
  ] as const)('%j, nulls equal %j', async (by, nullsEqual) => {
    await using large = await testEngine(1, { memoryLimit: '2GiB' });
    // Few nulls: all pairs of them are rows.
    const [one, other] = [
      keyed(50_000, 30_000, 3, ['k', 'l'], { rowsANull: 200 }),
      keyed(40_000, 30_000, 4, ['k', 'r'], { rowsANull: 200 }),
    ];
    const options = { on: by, nullsEqual, how: 'full', select: ['l', 'r'] } as never;
    const expected = await large.join(one, other, options);
    const { engine } = small(1);
    const joined = engine.joinBatches(later(cut(one, 1000)), later(cut(other, 1000)), options);
    expect(unordered((await read(joined)) as never)).toEqual(unordered(rows(expected)));
    expect(joined.stats.runs).toBeGreaterThan(0);
    await engine.dispose();
  });

  test.each(KINDS.flatMap((how) => (['left', 'right'] as const).map((side) => [how, side] as const)))(
    '%s: many rows of the %s side have one key',
    joinsCrowdedKey,
  );

  test.each([30, 60])('partitions are cut again: %d of 100 rows have one key', async (hot) => {
    const { engine, inner } = small(1);
    const [one, other] = [keyed(200_000, 150_000, 7, ['k', 'l'], { hot }), keyed(150_000, 150_000, 8, ['k', 'r'])];
    const options = { on: 'k', how: 'full', buildSide: 'left' } as const;
    await using large = await testEngine(1, { memoryLimit: '2GiB' });
    const expected = await large.joinCount(one, other, { on: 'k', how: 'full' });
    const joined = engine.joinBatches(later(cut(one, 1000)), later(cut(other, 1000)), options);
    let [count, sum] = [0, 0];
    for await (const batch of joined) {
      count += batch.numRows;
      for (const row of batch.getChild('l')!) sum += row ?? 0;
    }
    const rowsOfOne = await large.join(one, other, options);
    let wanted = 0;
    for (const row of rowsOfOne.getChild('l')!) wanted += row ?? 0;
    expect([count, sum]).toEqual([expected, wanted]);
    // More than each side once.
    expect(joined.stats.spilledBytes).toBeGreaterThan(1.2 * (200_000 + 150_000) * 15);
    expect(inner.memory().peakBytes).toBeLessThanOrEqual(2500 * 1024);
    await engine.dispose();
  });

  test('of types that compare but do not sort alike', async () => {
    const { engine } = small(1);
    const day = (row: number) => new Date(86_400_000 * row);
    const days = (rows: number[], type: arrow.DateDay | arrow.DateMillisecond) =>
      new arrow.Table({ day: arrow.vectorFromArray(rows.map(day), type as arrow.DateDay) });
    const joined = (limited: typeof engine, rowOf: (row: number) => number) => {
      const numbers = Array.from({ length: 200_000 }, (_, row) => rowOf(row));
      const [one, other] = [days(numbers, new arrow.DateDay()), days(numbers, new arrow.DateMillisecond())];
      const options = { on: 'day', how: 'anti' } as const;
      return read(limited.joinBatches(later(cut(one, 1000)), later(cut(other.slice(1000), 700)), options));
    };
    expect(await joined(engine, (row) => row)).toHaveLength(1000);
    // One key has most rows: they are sorted.
    const error = await failure(joined(engine, (row) => (row % 10 ? 5 : row)));
    expect(error).toMatchObject({ code: 'ERR_KEY_TYPE', message: expect.stringMatching(/can't be sorted by their keys/) });
    await engine.dispose();
  });
});

describeHost('many rows of both sides have one key', 'their transfer buffers take more than these limits', () => {
  test.each(KINDS)('%s', (how) => joinsCrowdedKey(how, 'both'));
});

describe('columns that nobody asks for', () => {
  const wide = (seed: number, row: string) => {
    const table = keyed(40_000, 30_000, seed, ['k', row]);
    const texts = arrow.vectorFromArray(Array(40_000).fill('a text that takes some room'), new arrow.Utf8());
    return new arrow.Table({ ...Object.fromEntries(table.schema.names.map((name) => [name, table.getChild(name)!])), v: texts });
  };
  const [one, other] = [wide(21, 'l'), wide(22, 'r')];
  const spilled = async (options: object) => {
    const { engine } = small(1);
    await using large = await testEngine(1, { memoryLimit: '2GiB' });
    const expected = await large.join(one, other, { on: 'k', ...options } as never);
    const joined = engine.joinBatches(later(cut(one, 1000)), later(cut(other, 1000)), { on: 'k', ...options } as never);
    const found = await read(joined);
    expect(found.length).toBe(expected.numRows);
    expect(unordered(found as never)).toEqual(unordered(rows(expected)));
    await engine.dispose();
    return joined.stats.spilledBytes;
  };
  const bytes = (table: arrow.Table) => table.batches.reduce((sum, { data }) => sum + data.byteLength, 0);

  test.each([
    [{ select: ['l'], how: 'left' }, 0.35],
    [{ select: ['k', 'r'], how: 'full' }, 0.45],
    [{ how: 'semi' }, 0.75],
    // Its name comes from the other side's column.
    [{ select: ['l', 'v_right'] }, 1.4],
    [{}, 1.4],
  ])('do not go to disk: %j', async (options, share) => {
    expect(await spilled(options)).toBeLessThan(share * (bytes(one) + bytes(other)));
  });
});

test('batches whose dictionaries have other numbers', async () => {
  const parts = (seed: number, row: string) => {
    const draw = random(seed);
    return Array.from({ length: 50 }, (_, part) => {
      const texts = Array.from({ length: 1000 }, () => `t${draw(3)}`);
      return new arrow.Table({
        k: arrow.makeVector(Int32Array.from({ length: 1000 }, () => draw(30_000))),
        t: arrow.vectorFromArray(texts, new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32())),
        [row]: arrow.makeVector(Int32Array.from({ length: 1000 }, (_, index) => 1000 * part + index)),
      });
    });
  };
  const [one, other] = [parts(41, 'l'), parts(42, 'r')];
  const options = { on: ['k', 't'], how: 'full', select: ['l', 'r', 't'] } as never;
  await using large = await testEngine(1, { memoryLimit: '2GiB' });
  const whole = (tables: arrow.Table[]) => tables.flatMap(({ batches }) => batches);
  const expected = await large.join(whole(one) as never, whole(other) as never, options);
  const { engine } = small(1);
  const joined = engine.joinBatches(later(one) as never, later(other) as never, options);
  expect(unordered((await read(joined)) as never)).toEqual(unordered(rows(expected)));
  expect(joined.stats.runs).toBeGreaterThan(4);
  await engine.dispose();
});

test('a cross join is refused, which has no keys', async () => {
  const { engine } = small(1);
  const error = await failure(read(engine.joinBatches(later(cut(left, 1000)), later(cut(right, 700)), { how: 'cross' })));
  expect(error.code).toBe('ERR_MEMORY_LIMIT');
  expect(error.message).toMatch(/cross join has no keys/);
  await engine.dispose();
});

// Keys that are there several times, and columns that have the names of those that say where a row was.
const named = (table: arrow.Table, side: string) =>
  new arrow.Table({
    ...Object.fromEntries(table.schema.names.map((name) => [name, table.getChild(name)!])),
    [`low bits of rows, ${side}`]: table.getChild(side[0]!)!,
  });
describeHost('rows in the order of a side', 'their transfer buffers take more than these limits', () => {
  const [one, other] = [
    named(keyed(25_000, 12_500, 31, ['k', 'l']), 'left'),
    named(keyed(20_000, 12_500, 32, ['k', 'r']), 'right'),
  ];

  test.each(KINDS.flatMap((how) => (['left', 'right'] as const).map((order) => [how, order] as const)))(
    '%s, %s',
    async (how, order) => {
      await using large = await testEngine(1, { memoryLimit: '2GiB' });
      const options = { on: 'k', how, maintainOrder: order } as const;
      const expected = rows(await large.join(one, other, options as never));
      const { engine, inner } = small(1, '1250KiB');
      const buildSide = order === 'left' || how === 'semi' || how === 'anti' ? 'right' : 'left';
      const joined = () => engine.joinBatches(later(cut(one, 1000)), later(cut(other, 700)), { ...options, buildSide } as never);
      const spilled = joined();
      const found = await read(spilled);
      expect(spilled.stats.runs).toBeGreaterThan(4);
      expect(inner.memory().peakBytes).toBeLessThanOrEqual(1250 * 1024);
      expect(found).toEqual(expected);
      expect(await readdir(folder)).toEqual([]);
      const broken = async () => {
        for await (const batch of joined()) {
          expect(rows(new arrow.Table([batch]))).toEqual(expected.slice(0, batch.numRows));
          break;
        }
      };
      await broken();
      expect(await readdir(folder)).toEqual([]);
      await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
      await engine.dispose();
    },
  );
});

test('rows in the order of a side go through a window, and are counted', async () => {
  await using large = await testEngine(1, { memoryLimit: '2GiB' });
  const [one, other] = [keyed(50_000, 20_000, 31, ['k', 'l']), keyed(40_000, 20_000, 32, ['k', 'r'])];
  const options = { on: 'k', maintainOrder: 'left', select: ['r', 'l'] } as const;
  const expected = rows(await large.join(one, other, options));
  const { engine } = small(1);
  const joined = (more: object) => engine.joinBatches(later(cut(one, 1000)), later(cut(other, 700)), { ...options, ...more });
  const some = joined({ offset: 300, limit: 2000 });
  expect(await read(some)).toEqual(expected.slice(300, 2300));
  expect(some.stats.runs).toBeGreaterThan(4);
  const error = await failure(read(joined({ maxOutputRows: expected.length - 1 })));
  expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: expect.stringMatching(/more rows than/) });
  await engine.dispose();
});

test.each(KINDS)('batches of a %s join that are kept stay as they are', async (how) => {
  await using large = await testEngine(1, { memoryLimit: '2GiB' });
  const [one, other] = [keyed(40_000, 80_000, 10, ['k', 'l']), keyed(40_000, 80_000, 11, ['key', 'r'])];
  const { engine } = small(1, '2200KiB');
  const joined = engine.joinBatches(later(cut(one, 500)), later(cut(other, 500)), { ...on, how, select: ['l'] } as never);
  const kept: arrow.RecordBatch[] = [];
  for await (const batch of joined) kept.push(batch);
  expect(joined.stats.runs).toBeGreaterThan(0);
  const expected = await large.join(one, other, { ...on, how, select: ['l'] } as never);
  expect(unordered(rows(new arrow.Table(kept)))).toEqual(unordered(rows(expected)));
  await engine.dispose();
});

describe('whatever ends it', () => {
  test('leaves no file and no memory', async () => {
    const { engine, inner } = small(1);
    // What a running function holds would not be collected.
    const aborted = async (batches: number) => {
      const controller = new AbortController();
      const joined = engine.joinBatches(later(cut(left, 1000)), later(cut(right, 700)), { ...on, signal: controller.signal });
      const iterator = joined[Symbol.asyncIterator]();
      for (let batch = 0; batch < batches; batch++) await iterator.next();
      const next = iterator.next();
      if (batches === 0) await expect.poll(() => joined.stats.runs, { interval: 1 }).toBeGreaterThan(2);
      controller.abort('enough');
      await expect(next).rejects.toBe('enough');
    };
    const broken = async () => {
      for await (const _ of engine.joinBatches(later(cut(left, 1000)), later(cut(right, 700)), on)) break;
    };
    for (const batches of [0, 1, 3]) await aborted(batches);
    await broken();
    expect(await readdir(folder)).toEqual([]);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });

  test('a disk that is full', async () => {
    const { engine, inner } = inspectedEngine(1, { memoryLimit: LIMIT, tempDirectory: folder, maxTempDirectorySize: '300KiB' });
    const fails = async () => {
      const error = await failure(read(engine.joinBatches(later(cut(left, 1000)), later(cut(right, 700)), on)));
      expect(error).toMatchObject({ code: 'ERR_SPILL', message: expect.stringMatching(/maxTempDirectorySize/) });
    };
    await fails();
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });

  test('the n-th allocation that fails', async () => {
    const { engine, inner } = small(1, '1MiB');
    const [one, other] = [keyed(20_000, 15_000, 8, ['k', 'l']), keyed(18_000, 15_000, 9, ['key', 'r'])];
    const options = { ...on, how: 'full' } as const;
    const counts = new Set<number>();
    for (let n = 0; n < 700; n += 1 + (n >> 2)) {
      inner.failAllocation('memory', n);
      const joined = engine.joinBatches(later(cut(one, 500)), later(cut(other, 500)), options);
      const found = await read(joined).catch((error: unknown) => error as WarpjoinError);
      inner.failAllocation('memory', 0);
      if (Array.isArray(found)) counts.add(found.length);
      else expect(found).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
    }
    expect(counts.size).toBe(1);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    expect(await readdir(folder)).toEqual([]);
    await engine.dispose();
  });
});

afterAll(async () => expect(await readdir(folder)).toEqual([]));
