/** Calls on one engine at the same time: the same rows as one by one, one limit for all, and none waits without need. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { describeHost, inspectedEngine } from '../support/engines.js';
import { cut, failure, later, random, rows } from '../support/tables.js';

const MIB = 2 ** 20;
type Pairs = arrow.Table<{ k: arrow.Int32; v: arrow.Float64 }>;

function pairs(length: number, distinct: number, seed: number): Pairs {
  const draw = random(seed);
  const k = Int32Array.from({ length }, () => draw(distinct));
  const v = Float64Array.from({ length }, () => draw(1000) / 8);
  return new arrow.Table({ k: arrow.makeVector(k), v: arrow.makeVector(v) }) as unknown as Pairs;
}

const inUse = ({ inner }: ReturnType<typeof inspectedEngine>): number => inner.memory().usedBytes;

describe.each([1, 3])('calls at the same time on %d devices', (devices) => {
  const engine = () => inspectedEngine(devices, { memoryLimit: '512MiB', threads: 2 });

  test('give what they give one after the other', async () => {
    const made = engine();
    const calls = Array.from({ length: 48 }, (_, seed) => {
      const draw = random(seed + 1);
      const [left, right] = [pairs(draw(4000), 1 + draw(3000), seed), pairs(draw(4000), 1 + draw(3000), 1000 + seed)];
      const hows = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const;
      const how = hows[draw(hows.length)]!;
      return [
        async () => rows(await made.engine.join(left, right, { on: 'k', how, maintainOrder: 'left' })),
        async () => rows(await made.engine.sort(left, { by: ['k', 'v'] })),
        async () => rows(await made.engine.unique(left, { on: 'k', keep: 'first', maintainOrder: true })),
        () => made.engine.joinCount(left, right, { on: 'k', how }),
        async () => [...(await made.engine.sortIndices(right, { by: 'v', limit: 10 })).rows],
      ][seed % 5]!;
    });
    const expected: unknown[] = [];
    for (const call of calls) expected.push(await call());
    expect(await Promise.all(calls.map((call) => call()))).toEqual(expected);
    await made.engine.dispose();
  });

  test('keep to one limit together: those that have no room beside others wait', async () => {
    const made = inspectedEngine(devices, { memoryLimit: 24 * MIB, threads: 2 });
    const table = pairs(400_000, 1e9, 7);
    const expected = (await made.engine.sortIndices(table, { by: 'k', limit: 5 })).rows;
    // Each takes more than a third of the limit.
    const calls = Array.from({ length: 12 }, async () => {
      const sorted = await made.engine.sort(table, { by: 'k' });
      expect(sorted.numRows).toBe(400_000);
      return sorted.getChild('v')!.get(0);
    });
    const least = table.getChild('v')!.get(expected[0] as number);
    expect(await Promise.all(calls)).toEqual(Array(12).fill(least));
    expect(made.inner.memory().peakBytes).toBeLessThanOrEqual(24 * MIB);
    await made.engine.dispose();
  });

  test('stand an allocation that fails, any one', async () => {
    const made = engine();
    const [left, right] = [pairs(3000, 2000, 1), pairs(2000, 2000, 2)];
    const counted = await made.engine.joinCount(left, right, { on: 'k' });
    for (let n = 1; n <= 60; n += 3) {
      const calls = [1, 2, 3, 4].map(() => made.engine.joinCount(left, right, { on: 'k' }));
      made.inner.failAllocation('memory', n);
      // The one that it fails runs again, alone.
      expect(await Promise.all(calls)).toEqual([counted, counted, counted, counted]);
      made.inner.failAllocation('memory', 0);
    }
    expect(await collectGarbage(() => inUse(made))).toBe(0);
    await made.engine.dispose();
  });

  test('that are aborted leave the others alone, and nothing behind', async () => {
    const made = engine();
    const [left, right] = [pairs(100_000, 60_000, 3), pairs(80_000, 60_000, 4)];
    const counted = await made.engine.joinCount(left, right, { on: 'k' });
    const draw = random(5);
    for (let round = 0; round < 5; round++) {
      const calls = Array.from({ length: 16 }, async (_, index) => {
        if (index % 2 === 0) return made.engine.joinCount(left, right, { on: 'k' });
        const controller = new AbortController();
        const call = made.engine.joinCount(left, right, { on: 'k', signal: controller.signal });
        setTimeout(() => controller.abort('enough'), draw(20));
        return call.catch((reason) => reason);
      });
      for (const [index, result] of (await Promise.all(calls)).entries()) {
        if (index % 2 === 0) expect(result).toBe(counted);
        else expect([counted, 'enough']).toContain(result);
      }
    }
    expect(await collectGarbage(() => inUse(made))).toBe(0);
    await made.engine.dispose();
  });
});

describeHost('on the processor', 'calls on GPUs run one after the other', () => {
  test('a small call does not wait for a large one, and disposal waits for both', async () => {
    const { engine } = inspectedEngine(1, { memoryLimit: '2GiB', threads: 1 });
    const [large, small] = [pairs(4_000_000, 1e9, 1), pairs(100, 50, 2)];
    const order: string[] = [];
    const calls = [engine.sort(large, { by: 'k' }).then(() => order.push('large'))];
    await new Promise((resolve) => setTimeout(resolve, 5));
    calls.push(engine.sort(small, { by: 'k' }).then(() => order.push('small')));
    const disposed = engine.dispose().then(() => order.push('disposed'));
    expect(await failure(engine.sort(small, { by: 'k' }))).toMatchObject({ code: 'ERR_OPTION' });
    await Promise.all([...calls, disposed]);
    expect(order).toEqual(['small', 'large', 'disposed']);
  });

  test('thousands of small calls leave nothing', async () => {
    const made = inspectedEngine(1, { memoryLimit: '64MiB', threads: 2 });
    const [left, right] = [pairs(100, 50, 1), pairs(80, 50, 2)];
    const counted = await made.engine.joinCount(left, right, { on: 'k' });
    for (let round = 0; round < 20; round++) {
      const calls = Array.from({ length: 100 }, () => made.engine.joinCount(left, right, { on: 'k' }));
      expect(new Set(await Promise.all(calls))).toEqual(new Set([counted]));
    }
    expect(await collectGarbage(() => inUse(made))).toBe(0);
    await made.engine.dispose();
  });
});

describeHost('streams at the same time', 'their transfer buffers take more than these limits', () => {
  const table = pairs(20_000, 15_000, 8);
  const small = () => inspectedEngine(1, { memoryLimit: 8 * MIB, threads: 2 });
  async function sumOf(batches: AsyncIterable<arrow.RecordBatch>): Promise<number> {
    let sum = 0;
    for await (const batch of batches) for (const value of batch.getChild('v')!) sum += 1 + (value as number);
    return sum;
  }

  test('wait for each other where memory has no room for all', async () => {
    const made = small();
    const { engine } = made;
    const calls: Record<string, () => Promise<number>> = {
      sort: () => sumOf(engine.sortBatches(later(cut(table, 1000)), { by: 'k' })),
      join: () => sumOf(engine.joinBatches(later(cut(table, 1000)), later(cut(table.slice(0, 9000), 1000)), { on: 'k' })),
      mapped: async () => {
        const { batches } = await engine.sort(later(cut(table, 1000)), { by: 'v', result: 'mapped' });
        return sumOf(later(batches));
      },
    };
    const alone: Record<string, number> = {};
    for (const [name, call] of Object.entries(calls)) alone[name] = await call();
    const names = Array.from({ length: 150 }, (_, index) => Object.keys(calls)[index % 3]!);
    expect(await Promise.all(names.map((name) => calls[name]!()))).toEqual(names.map((name) => alone[name]));
    expect(made.inner.memory().peakBytes).toBeLessThanOrEqual(8 * MIB);
    await expect.poll(() => collectGarbage(() => inUse(made))).toBe(0);
    await engine.dispose();
  });

  test('that nobody reads on do not hold up others for long', async () => {
    const made = small();
    const { engine } = made;
    const sorted = () => engine.sortBatches(later(cut(table, 1000)), { by: 'k', batchRows: 100 })[Symbol.asyncIterator]();
    // Each has all of its rows in memory: together they have more than half of it.
    const idle = Array.from({ length: 18 }, sorted);
    for (const iterator of idle) expect((await iterator.next()).value!.numRows).toBe(100);
    expect(inUse(made)).toBeGreaterThan(4 * MIB);
    const more = await Promise.all([sorted(), sorted(), sorted()].map((iterator) => iterator.next()));
    expect(more.map(({ value }) => value!.numRows)).toEqual([100, 100, 100]);
    for (const iterator of idle) await iterator.return!();
    await engine.dispose();
  });

  test('reject when they are aborted while they wait, and leave their place to others', async () => {
    const made = small();
    const { engine } = made;
    const sorted = (signal?: AbortSignal) =>
      engine.sortBatches(later(cut(table, 1000)), { by: 'k', batchRows: 100, signal })[Symbol.asyncIterator]();
    const idle = Array.from({ length: 18 }, () => sorted());
    for (const iterator of idle) await iterator.next();
    const controller = new AbortController();
    const waiting = Array.from({ length: 5 }, () => failure(sorted(controller.signal).next()));
    const others = [sorted(), sorted()].map((iterator) => iterator.next());
    controller.abort('enough');
    expect(await Promise.all(waiting)).toEqual(Array(5).fill('enough'));
    for (const iterator of idle) await iterator.return!();
    expect((await Promise.all(others)).map(({ value }) => value!.numRows)).toEqual([100, 100]);
    await engine.dispose();
  });
});
