/** Limits of host memory: what doesn't fit is refused before the work, and what fits in some way runs. */
import { totalmem } from 'node:os';
import { Float64, Int32, Int64, makeData, makeVector, Table, Utf8, Vector } from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { WarpjoinError } from '../../lib/index.js';
import { describeHost, inspectedEngine, testEngine } from '../support/engines.js';

const rows = 300_000;
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state;
  };
}
const next = random(1);
const int64 = (of: (row: number) => number): Vector =>
  new Vector([makeData({ type: new Int64(), data: BigInt64Array.from({ length: rows }, (_, row) => BigInt(of(row)) * 7919n) })]);
const float64 = (): Vector =>
  new Vector([makeData({ type: new Float64(), data: Float64Array.from({ length: rows }, () => next() / 3) })]);
const int32 = (): Vector =>
  new Vector([makeData({ type: new Int32(), data: Int32Array.from({ length: rows }, () => next() | 0) })]);

const bytesOf = (table: Table): number =>
  table.batches.reduce(
    (sum, { data }) => sum + data.children.reduce((bytes, child) => bytes + (child.values as ArrayBufferView).byteLength, 0),
    0,
  );

/** What a call gives: its algorithm, or its error. */
const outcome = (call: Promise<{ stats: { algorithm: string } }>): Promise<string> =>
  call.then(
    ({ stats }) => stats.algorithm,
    (error: WarpjoinError) => `${error.code}: ${error.message}`,
  );
const REFUSED = /^ERR_MEMORY_LIMIT: .* takes at least /;

describeHost('host memory', 'host devices share it', () => {
  const sorts: [string, Table, string[]][] = [
    ['an integer with a payload', new Table({ k: int64(next), v: int64(next) }), ['k']],
    ['a float with a payload', new Table({ k: float64(), v: int64(next) }), ['k']],
    ['an integer with three columns', new Table({ k: int64(next), a: int64(next), b: float64(), c: int32() }), ['k']],
    ['three columns', new Table({ a: int32(), b: int32(), c: float64(), v: int64(next) }), ['a', 'b', 'c']],
  ];
  test.each(sorts)('sorts by %s run or are refused before they begin, and auto takes what fits', async (_, table, by) => {
    let ran = 0;
    for (const hostDevices of [1, 8]) {
      for (const share of [0.25, 0.4, 0.5, 0.6, 0.7, 0.85]) {
        const memoryLimit = Math.floor(bytesOf(table) / share);
        const of = async (algorithm: 'auto' | 'merge' | 'radix' | 'sample'): Promise<string> => {
          await using engine = await testEngine(hostDevices, { memoryLimit, threads: 2 });
          return outcome(engine.sort(table, { by, algorithm }));
        };
        const [auto, ...asked] = [await of('auto'), await of('merge'), await of('radix'), await of('sample')];
        const fitting = asked.filter((one) => !one.startsWith('ERR'));
        ran += fitting.length;
        for (const one of [auto!, ...asked]) if (one.startsWith('ERR')) expect(one).toMatch(REFUSED);
        if (fitting.length > 0) expect(auto).not.toMatch(/^ERR/);
      }
    }
    expect(ran).toBeGreaterThan(0);
  });

  test('joins leave host devices only what their rows leave', async () => {
    const order = Array.from({ length: rows }, (_, row) => (row * 7919) % rows);
    const left = new Table({ k: int64((row) => order[row]!), a: float64() });
    const right = new Table({ k: int64(() => next() % rows), b: float64() });
    for (const how of ['inner', 'left', 'semi', 'full'] as const) {
      for (const share of [0.2, 0.4, 0.6, 0.8]) {
        const memoryLimit = Math.floor((bytesOf(left) + bytesOf(right)) / share);
        await using engine = await testEngine(8, { memoryLimit, threads: 2 });
        const joined = await outcome(engine.join(left, right, { on: 'k', how }));
        // The number of rows is known only once they are matched.
        if (joined.startsWith('ERR')) expect(joined).toMatch(/takes at least|(left|right) rows of a join|keys of a join/);
        if (share === 0.2) expect(joined).not.toMatch(/^ERR/);
      }
    }
  });
});

describeHost('host memory of a few blocks more or less', 'host devices share it', () => {
  const mebibytes = 2 ** 20;

  test.each(['join', 'joinIndices', 'joinCount'] as const)(
    '%s by sort-merge fits, or is refused before it begins',
    async (call) => {
      let ran = 0;
      for (const share of [0.5, 0.53, 0.56, 0.59, 0.62]) {
        const size = Math.floor((64 * mebibytes * share) / 32);
        const side = (factor: number): Table => {
          const k = BigInt64Array.from({ length: size }, (_, row) => BigInt(((row * factor) % size) * 3));
          return new Table({ k: makeVector(k), v: makeVector(new Float64Array(size)) });
        };
        await using engine = await testEngine(1, { memoryLimit: 64 * mebibytes, threads: 2 });
        const join = engine[call].bind(engine) as (left: Table, right: Table, options: object) => Promise<unknown>;
        const error = await join(side(7919), side(104729), { on: 'k', how: 'left', algorithm: 'sort-merge' }).then(
          () => null,
          (reason: WarpjoinError) => `${reason.code}: ${reason.message}`,
        );
        if (error === null) ran++;
        else expect(error).toMatch(REFUSED);
      }
      expect(ran).toBeGreaterThan(0);
    },
  );

  test('a sort that fits keeps no more for its texts than the limit leaves', async () => {
    const size = 3_775_646;
    const random32 = (array: ArrayBufferView): void => {
      const words = new Uint32Array(array.buffer);
      for (let i = 0; i < words.length; i++) words[i] = next();
    };
    const k = new BigInt64Array(size);
    const i = new Int32Array(size);
    for (const array of [k, i]) random32(array);
    const valueOffsets = Int32Array.from({ length: size + 1 }, (_, row) => 9 * row);
    const text = makeData({
      type: new Utf8(),
      length: size,
      nullCount: 0,
      valueOffsets,
      data: new Uint8Array(9 * size).fill(97),
    });
    const nullBitmap = new Uint8Array((size + 7) >> 3).fill(0xf7);
    const key = makeData({ type: new Int64(), length: size, nullCount: -1, data: k, nullBitmap });
    const table = new Table({ k: new Vector([key]), i: makeVector(i), t: new Vector([text]) });
    for (const hostDevices of [1, 3]) {
      await using engine = await testEngine(hostDevices, { memoryLimit: 128 * mebibytes, threads: 2 });
      const options = { by: { column: 'k', descending: true } } as const;
      const sorted = await outcome(engine.sort(table, options));
      if (sorted.startsWith('ERR')) expect(sorted).toMatch(REFUSED);
      expect(sorted).not.toMatch(/still referenced/);
    }
  });
});

describe('limits', () => {
  test('without one an engine takes what the process leaves at its first call', async () => {
    const { engine, inner } = inspectedEngine(1, { threads: 1 });
    const atFirst = inner.memory().limitBytes;
    expect(atFirst).toBeLessThan(0.8 * totalmem());
    const held = new Uint8Array(2 ** 28).fill(1);
    const table = new Table({ k: int64(next) });
    await engine.joinCount(table, table, { on: 'k' });
    const { limitBytes } = inner.memory();
    expect(limitBytes).toBeLessThan(atFirst - 0.8 * 2 ** 27);
    expect(held.length).toBe(2 ** 28);
    await engine.joinCount(table, table, { on: 'k' });
    expect(inner.memory().limitBytes).toBe(limitBytes);
    await engine.dispose();
  });

  test('errors name what results of earlier calls hold', async () => {
    const table = new Table({ k: int64(next), v: int64(next) });
    await using engine = await testEngine(1, { memoryLimit: '40MiB', threads: 2 });
    const results: Table[] = [];
    let error: WarpjoinError | undefined;
    while (!error && results.length < 100) {
      error = await engine.sort(table, { by: 'k' }).then(
        (result) => void results.push(result),
        (reason: WarpjoinError) => reason,
      );
    }
    expect(results.length).toBeGreaterThan(1);
    expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
    expect(error!.message).toMatch(/Results of earlier calls that are still referenced hold [\d.]+ MiB of the limit\.$/);
    expect(results.every((result) => result.numRows === rows)).toBe(true);
  });
});
