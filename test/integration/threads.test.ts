/** Engines and calls where the system refuses threads: any one of those that they start, or all from one on. */
import { readdirSync } from 'node:fs';
import * as arrow from 'apache-arrow';
import { afterEach, describe, expect, test } from 'vitest';
import { createEngine, type Engine, WarpjoinError } from '../../lib/index.js';
import { native } from '../../lib/native.js';

const addon = native();
const rows = 2000;
const keys = Int32Array.from({ length: rows }, (_, row) => (row * 7919) % rows);
const table = new arrow.Table({ k: arrow.makeVector(keys), v: arrow.makeVector(keys.slice()) });
const texts = new arrow.Table({
  t: arrow.vectorFromArray(
    [...keys].map((key) => `a long text ${key % 100}`),
    new arrow.Utf8(),
  ),
});

const threads = (): number => readdirSync('/proc/self/task').length;

/** Calls of an engine, which start no threads: the engine has them all. */
const calls: ((engine: Engine) => Promise<{ numRows: number }>)[] = [
  (engine) => engine.sort(table, { by: 'k' }),
  (engine) => engine.sort(table, { by: ['v', 'k'], algorithm: 'radix' }),
  (engine) => engine.sort(table, { by: 'k', algorithm: 'sample' }),
  (engine) => engine.sort(texts, { by: 't' }),
  (engine) => engine.join(table, table, { on: 'k' }),
  (engine) => engine.join(table, table, { on: 'k', how: 'full', algorithm: 'sort-merge' }),
];

afterEach(() => addon.failThreads(0, 0));

describe.each([1, 2, 3, 8])('on %d host devices', (hostDevices) => {
  const options = { device: 'cpu', hostDevices, threads: 4, memoryLimit: '128MiB' } as const;

  /** Runs all with threads n to n + count - 1 refused; what went wrong, and how often. */
  async function withRefused(n: number, count: number): Promise<number> {
    let failures = 0;
    const attempt = async <T>(call: () => Promise<T>): Promise<T | null> => {
      try {
        return await call();
      } catch (error) {
        failures++;
        expect(error).toBeInstanceOf(WarpjoinError);
        expect(error).toMatchObject({ code: 'ERR_DEVICE', message: expect.stringContaining('thread') });
        return null;
      }
    };
    addon.failThreads(n, count);
    const engine = await attempt(() => createEngine(options));
    if (engine) for (const call of calls) await attempt(() => call(engine));
    addon.failThreads(0, 0);
    // The same engine goes on, and so does another one.
    if (engine) {
      for (const call of calls) expect((await call(engine)).numRows).toBe(rows);
      await engine.dispose();
    }
    return failures;
  }

  test('any one thread is refused', async () => {
    const engine = await createEngine(options);
    const most = threads();
    for (const call of calls) await call(engine);
    expect(threads()).toBe(most);
    await engine.dispose();
    const before = threads();
    let failures = 0;
    for (let n = 1; n <= most - before; n++) failures += await withRefused(n, 1);
    expect(failures).toBe(1); // the queue's
    expect(threads()).toBe(before);
  });

  test('all threads from one on are refused', async () => {
    await (await createEngine(options)).dispose();
    const before = threads();
    const without = await withRefused(1, Number.POSITIVE_INFINITY);
    expect(without).toBe(1); // no engine without one
    for (let n = 2; n <= 6; n++) expect(await withRefused(n, Number.POSITIVE_INFINITY)).toBe(0);
    expect(threads()).toBe(before);
  });

  test('an engine works with the threads of the pool that it got', async () => {
    addon.failThreads(4, Number.POSITIVE_INFINITY); // after the queue's and two of the pool's
    const config = { threads: 8, hostDevices, gpus: [], memoryLimitBytes: 2 ** 27, deviceMemoryLimitBytes: 0 };
    const inner = new addon.Engine(config);
    addon.failThreads(0, 0);
    expect(inner.threads()).toBe(2); // half of those, and the one that calls
    await inner.measureLinks(inner.createJob());
    await inner.dispose();
  });
});
