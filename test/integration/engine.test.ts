/** Limits, abort, progress, faults and the event loop, on the real data plane. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { Engine } from '../../lib/engine.js';
import { type EngineOptions, WarpjoinError } from '../../lib/index.js';
import { type NativeEngine, type NativeEngineConfig, native } from '../../lib/native.js';
import { engineSchema } from '../../lib/options.js';
import { parse } from '../../lib/schema.js';
import { DEVICE_COUNTS, describeHost, inspectedEngine, onGpus, testEngine, testOn } from '../support/engines.js';
import { failure, random } from '../support/tables.js';

/** Two int64 columns without nulls: keys drawn from `distinct` values, and row numbers. */
function pairs(length: number, distinct: number, seed = 1): arrow.Table<{ k: arrow.Int64; v: arrow.Int64 }> {
  const draw = random(seed);
  const column = (data: BigInt64Array): arrow.Data<arrow.Int64> => arrow.makeData({ type: new arrow.Int64(), data });
  return new arrow.Table({
    k: new arrow.Vector([column(BigInt64Array.from({ length }, () => BigInt(draw(distinct))))]),
    v: new arrow.Vector([column(BigInt64Array.from({ length }, (_, row) => BigInt(row)))]),
  });
}
const column = (of: arrow.Table, name: string): BigInt64Array => of.getChild(name)!.toArray() as BigInt64Array;

/** An engine on so many devices, and the native one in it: for its figures and its faults. */
const inspected = (devices: number, options: EngineOptions = {}) =>
  inspectedEngine(devices, { memoryLimit: '512MiB', threads: 2, ...options });

describeHost('device memory limits', 'their buffers alone take more than these limits', () => {
  const table = pairs(300_000, 100_000);
  const other = pairs(200_000, 100_000, 2);

  test.each([1, 3])('many chunksets give the same answer on %d devices, and a hash join is refused', async (devices) => {
    const wide = await testEngine(1, { memoryLimit: '1GiB', threads: 2 });
    const narrow = await testEngine(devices, { memoryLimit: '1GiB', deviceMemoryLimit: '2MiB', threads: 2 });
    const [sorted, again] = [await wide.sort(table, { by: 'k' }), await narrow.sort(table, { by: 'k' })];
    expect(again.stats.chunksets).toBeGreaterThan(1);
    expect(column(again, 'k')).toEqual(column(sorted, 'k'));
    expect(column(again, 'v')).toEqual(column(sorted, 'v'));
    const count = await wide.joinCount(table, other, { on: 'k' });
    for (const algorithm of ['auto', 'sort-merge'] as const) {
      const joined = await narrow.join(table, other, { on: 'k', algorithm });
      expect(joined.numRows).toBe(count);
      expect(joined.stats.chunksets).toBeGreaterThan(1);
      for (const device of joined.stats.devices) expect(device.peakBytes).toBeLessThanOrEqual(2 * 2 ** 20);
    }
    const error = await failure(narrow.join(table, other, { on: 'k', algorithm: 'radix-hash' }));
    expect(error.code).toBe('ERR_MEMORY_LIMIT');
    expect(error.message).toMatch(/deviceMemoryLimit is 2 MiB\. algorithm "sort-merge" takes less at a time\./);
    await wide.dispose();
    await narrow.dispose();
  });

  test('too small for anything is refused by name', async () => {
    const engine = await testEngine(1, { memoryLimit: '1GiB', deviceMemoryLimit: 64, threads: 2 });
    for (const call of [() => engine.sort(table, { by: 'k' }), () => engine.joinCount(table, other, { on: 'k' })]) {
      const error = await failure(call());
      expect(error.code).toBe('ERR_MEMORY_LIMIT');
      expect(error.message).toContain('deviceMemoryLimit is 64 bytes');
    }
    await engine.dispose();
  });
});

describeHost('the host memory limit', 'it holds what these devices use, too', () => {
  test('is never exceeded, and a request over it fails early and by name', async () => {
    const table = pairs(400_000, 10);
    const engine = await testEngine(1, { memoryLimit: '24MiB', threads: 2 });
    const early = await failure(engine.join(table, table, { how: 'cross' }));
    expect(early).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: expect.stringContaining('memoryLimit is 24 MiB') });
    const late = await failure(engine.join(table, table, { on: 'k' }));
    expect(late.code).toBe('ERR_MEMORY_LIMIT');
    const sorted = await engine.sort(table, { by: 'k' });
    expect(sorted.stats.peakMemoryBytes).toBeLessThanOrEqual(24 * 2 ** 20);
    await engine.dispose();
  });

  test('results that nobody holds make room for others', async () => {
    const table = pairs(400_000, 10);
    const engine = await testEngine(1, { memoryLimit: '24MiB', threads: 2 });
    for (let round = 0; round < 12; round++) expect((await engine.sort(table, { by: 'k' })).numRows).toBe(400_000);
    const held = [await engine.sort(table, { by: 'k' })];
    const error = await failure(
      (async () => {
        for (;;) held.push(await engine.sort(table, { by: 'k' }));
      })(),
    );
    expect(error.code).toBe('ERR_MEMORY_LIMIT');
    expect(held.length).toBeLessThan(5);
    expect(new Set(held.map((result) => result.numRows))).toEqual(new Set([400_000]));
    await engine.dispose();
  });
});

describe('the most rows', () => {
  test('maxOutputRows', async () => {
    const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
    const [one, other] = [pairs(1000, 10), pairs(1000, 10, 2)];
    const count = await engine.joinCount(one, other, { on: 'k' });
    expect((await engine.join(one, other, { on: 'k', maxOutputRows: count })).numRows).toBe(count);
    for (const algorithm of ['radix-hash', 'sort-merge'] as const) {
      expect(await failure(engine.join(one, other, { on: 'k', maxOutputRows: count - 1, algorithm }))).toMatchObject({
        code: 'ERR_MEMORY_LIMIT',
      });
    }
    expect(await failure(engine.join(one, other, { how: 'cross', maxOutputRows: 999_999 }))).toMatchObject({
      code: 'ERR_MEMORY_LIMIT',
    });
    await engine.dispose();
  });

  test('are no shortage of memory, whatever is held', async () => {
    const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
    const [one, other] = [pairs(1000, 10), pairs(1000, 10, 2)];
    const held = await engine.join(one, other, { on: 'k' });
    for (const how of ['inner', 'cross'] as const) {
      const keys = how === 'cross' ? {} : { on: 'k' as const };
      const error = await failure(engine.join(one, other, { ...keys, how, maxOutputRows: held.numRows - 1 } as never));
      expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: expect.not.stringContaining('earlier calls') });
    }
    await engine.dispose();
  });
});

describe('faults', () => {
  const [one, other] = [pairs(20_000, 5_000), pairs(15_000, 5_000, 2)];

  testOn(2).each(['memory', 'devices'] as const)(
    'an allocation that fails in %s, the first, the second and so on',
    async (where) => {
      const { engine, inner } = inspected(2, onGpus ? {} : { deviceMemoryLimit: '16MiB' });
      const calls = [
        () => engine.sort(one, { by: 'k' }),
        () => engine.join(one, other, { on: 'k', how: 'full' }),
        () => engine.join(one, other, { on: 'k', algorithm: 'sort-merge' }),
      ];
      const results: unknown[] = [];
      for (const call of calls) {
        let failures = 0;
        for (let n = 1; n < 200; n++) {
          inner.failAllocation(where, n);
          // Held: a collected result would let a call that ran short of memory try again.
          const error = await call().then(
            (result) => void results.push(result),
            (reason) => reason as WarpjoinError,
          );
          inner.failAllocation(where, 0);
          if (!error) break;
          failures++;
          expect(error).toBeInstanceOf(WarpjoinError);
          expect(error.code).toBe('ERR_MEMORY_LIMIT');
        }
        expect(failures).toBeGreaterThan(0);
        expect(failures).toBeLessThan(199);
        results.push(await call());
      }
      await engine.dispose();
    },
  );
});

describeHost('device memory that others use', 'their buffers alone take more than what is left here', () => {
  const [one, other] = [pairs(100_000, 30_000), pairs(80_000, 30_000, 2)];

  test.each([1, 2])('calls are planned anew for what is left, on %d devices', async (devices) => {
    const { engine, inner } = inspected(devices);
    const calls = [
      () => engine.sort(one, { by: 'k' }),
      () => engine.join(one, other, { on: 'k', algorithm: 'sort-merge' }),
      () => engine.join(one, other, { on: 'k' }),
    ];
    for (const call of calls) {
      const wide = await call();
      expect(wide.stats.replanned).toBeNull();
      inner.leaveDeviceMemory(2 ** 20);
      const again = await call();
      inner.leaveDeviceMemory(Number.POSITIVE_INFINITY);
      expect(again.stats.replanned).toMatch(/host 0.* [KM]iB of free memory \(1 MiB left\)/);
      expect(again.stats.chunksets * again.stats.rounds).toBeGreaterThan(wide.stats.chunksets * wide.stats.rounds);
      for (const device of again.stats.devices) expect(device.peakBytes).toBeLessThanOrEqual(2 ** 20);
      expect(again.numRows).toBe(wide.numRows);
      if (call === calls[0]) expect(column(again, 'v')).toEqual(column(wide, 'v'));
    }
    await engine.dispose();
  });

  test('too little for any plan is refused by name', async () => {
    const { engine, inner } = inspected(1);
    inner.leaveDeviceMemory(64);
    for (const call of [() => engine.sort(one, { by: 'k' }), () => engine.joinCount(one, other, { on: 'k' })]) {
      expect(await failure(call())).toMatchObject({
        code: 'ERR_MEMORY_LIMIT',
        message: expect.stringContaining('(64 bytes left)'),
      });
    }
    inner.leaveDeviceMemory(Number.POSITIVE_INFINITY);
    expect((await engine.sort(one, { by: 'k' })).numRows).toBe(100_000);
    await engine.dispose();
  });
});

describe('abort', () => {
  const [one, other] = [pairs(1_000_000, 300_000), pairs(800_000, 300_000, 2)];

  test('at any time rejects with the reason, and the engine goes on', async () => {
    const engine = await testEngine(1, { memoryLimit: '1GiB', threads: 2 });
    const calls = [
      (signal?: AbortSignal) => engine.sort(one, { by: ['v', 'k'], signal }),
      (signal?: AbortSignal) => engine.join(one, other, { on: 'k', how: 'full', signal }),
      (signal?: AbortSignal) => engine.join(one, other, { on: 'k', algorithm: 'sort-merge', signal }),
    ];
    for (const call of calls) {
      const start = performance.now();
      await call();
      const whole = performance.now() - start;
      for (const share of [0.05, 0.2, 0.4, 0.6, 0.8]) {
        const reason = new Error(`at ${share}`);
        const controller = new AbortController();
        setTimeout(() => controller.abort(reason), whole * share);
        const outcome = await call(controller.signal).then(
          () => null,
          (error) => error,
        );
        if (outcome !== null) expect(outcome).toBe(reason);
      }
    }
    await engine.dispose();
  });
});

test('progress rises to 1, and the event loop is never blocked', { retry: 3 }, async () => {
  const engine = await testEngine(1, { memoryLimit: '1GiB', threads: 1 });
  const [one, other] = [pairs(2_000_000, 1_000_000), pairs(1_500_000, 1_000_000, 2)];
  const seen: number[] = [];
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  await new Promise((resolve) => setTimeout(resolve, 500));
  const idle = delay.percentile(99);
  delay.reset();
  const before = performance.eventLoopUtilization();
  const out = await engine.join(one, other, { on: 'k', how: 'left', onProgress: ({ fraction }) => seen.push(fraction) });
  await engine.sort(one, { by: 'k', onProgress: ({ fraction }) => seen.push(fraction - 1) });
  delay.disable();
  const { utilization } = performance.eventLoopUtilization(before);
  expect(out.numRows).toBeGreaterThanOrEqual(2_000_000);
  const ends = seen.indexOf(1);
  expect(seen.slice(0, ends + 1)).toEqual(seen.slice(0, ends + 1).sort((a, b) => a - b));
  expect(seen.at(-1)).toBe(0);
  // The monitor's own interval counts, and what other processes do shows in an idle loop, too.
  expect(delay.percentile(99) / 1e6).toBeLessThan(Math.max(20 + 5, (2 * idle) / 1e6));
  expect(utilization).toBeLessThan(0.3);
  await engine.dispose();
});

test('small calls one after the other leave the event loop its turns', async () => {
  const engine = await testEngine(1, { memoryLimit: '64MiB', threads: 2 });
  const few = pairs(1000, 1000);
  let turns = 0;
  let done = false;
  const tick = (): void => {
    turns++;
    if (!done) setImmediate(tick);
  };
  setImmediate(tick);
  for (let call = 1; call <= 20; call++) {
    await engine.joinCount(few, few, { on: 'v' });
    expect(turns).toBeGreaterThanOrEqual(call - 1);
  }
  done = true;
  await engine.dispose();
});

test('calls at once on one engine and on several', async () => {
  const one = pairs(20_000, 500);
  const engines = await Promise.all(
    DEVICE_COUNTS.slice(0, 3).map((devices) => testEngine(devices, { memoryLimit: '256MiB', threads: 2 })),
  );
  const counts = await Promise.all(engines.flatMap((engine) => [1, 2, 3].map(() => engine.joinCount(one, one, { on: 'k' }))));
  expect(new Set(counts).size).toBe(1);
  await Promise.all(engines.map((engine) => engine.dispose()));
  expect(await failure(engines[0]!.joinCount(one, one, { on: 'k' }))).toBeInstanceOf(WarpjoinError);
});

testOn(2)('explain with analyze', async () => {
  const engine = await testEngine(2, { memoryLimit: '256MiB', threads: 2 });
  const one = pairs(10_000, 500);
  expect(await engine.explain('sort', one, { by: 'k' })).toMatch(/^sort by "k": (merge|radix|sample)\n/);
  const text = await engine.explain('join', one, one, { on: 'k', algorithm: 'sort-merge', analyze: true });
  const steps = onGpus ? ['sort-merge join'] : ['sort left', 'sort right', 'merge join'];
  for (const part of [...steps, 'measured', 'peak memory']) expect(text).toContain(part);
  const kind = onGpus ? 'gpu' : 'host';
  expect(engine.devices()).toMatchObject([{ kind }, { kind }]);
  await engine.dispose();
});

test("device 'auto' runs small calls on the processor, within the memory of the engine on GPUs", async () => {
  const addon = native();
  const made: NativeEngine[] = [];
  // Host devices stand in for GPUs: what matters is that there are two engines.
  const spy = new Proxy(addon, {
    get(target, name) {
      if (name === 'gpus')
        return () => [{ ...made[0]?.devices()[0], ordinal: 0, memoryBytes: 2 ** 30, architecture: '', failure: null }];
      if (name !== 'Engine') return Reflect.get(target, name);
      return function Spied(config: NativeEngineConfig, beside?: NativeEngine) {
        made.push(beside ? new addon.Engine(config, beside) : new addon.Engine({ ...config, gpus: [], hostDevices: 2 }));
        return made.at(-1);
      };
    },
  });
  const engine = new Engine(parse(engineSchema, 'createEngine', { memoryLimit: '64MiB', threads: 2 }), spy);
  const table = pairs(5000, 100);
  const sorted = await engine.sort(table, { by: 'k' });
  expect(sorted.stats).toMatchObject({ device: 'cpu', devices: [{ name: 'host 0' }] });
  expect(column(sorted, 'k')).toEqual(column(table, 'k').toSorted());
  expect(await engine.joinCount(table, table, { on: 'v' })).toBe(5000);
  const large = pairs(1_000_000, 100);
  expect((await engine.sort(large, { by: 'k', select: ['v'] })).stats.devices).toHaveLength(2);
  const [onGpus, processor] = made as [NativeEngine, NativeEngine];
  expect(made).toHaveLength(2);
  expect(processor.memory()).toEqual(onGpus.memory());
  expect(processor.memory().usedBytes).toBeGreaterThan(0); // the results
  const error = await failure(engine.join(pairs(5000, 1), pairs(5000, 1), { on: 'k' }));
  expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
  await engine.dispose();
});
