/** joinBatches(): the build side in memory, the probe side as it comes. */
import { setTimeout } from 'node:timers/promises';
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { WarpjoinError } from '../../lib/errors.js';
import { type BatchStream, type JoinKind, joinBatches } from '../../lib/index.js';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { DEVICE_COUNTS, describeDevices, inspectedEngine, onGpus, testEngine } from '../support/engines.js';
import { hold } from '../support/held.js';
import { cut, failure, later, random, rows, unordered, withWideIndices } from '../support/tables.js';

/** Two devices, where there are. */
const SOME = DEVICE_COUNTS[1] ?? 1;

async function read(batches: AsyncIterable<arrow.RecordBatch>): Promise<arrow.Table> {
  const all: arrow.RecordBatch[] = [];
  for await (const batch of batches) all.push(batch);
  for (const { schema } of all) expect(schema.fields.map(String)).toEqual(all[0]!.schema.fields.map(String));
  return new arrow.Table(all);
}

/** Keys with nulls and repetitions, texts of a dictionary, and row numbers. */
function keyed(length: number, distinct: number, seed: number, name: string): arrow.Table {
  const draw = random(seed);
  return arrow.tableFromArrays({
    k: Array.from({ length }, () => (draw(20) ? draw(distinct) : null)),
    t: Array.from({ length }, () => `t${draw(9)}`),
    [name]: Int32Array.from({ length }, (_, row) => row),
  });
}
const KINDS: JoinKind[] = ['inner', 'left', 'right', 'full', 'semi', 'anti', 'cross'];
const [left, right] = [keyed(900, 300, 1, 'l'), keyed(500, 400, 2, 'r')];

describeDevices((devices) => {
  describe.each(['left', 'right'] as const)('with the %s side first', (buildSide) => {
    test.each(KINDS)('%s gives the rows that join() gives', async (how) => {
      await using engine = await testEngine(devices, { memoryLimit: '256MiB' });
      const [one, other] = how === 'cross' ? [left.slice(0, 60), right.slice(0, 40)] : [left, right];
      for (const on of how === 'cross' ? [{}] : [{ on: 'k' }, { on: ['k', 't'], nullsEqual: [true, false] }]) {
        const options = { how, ...on } as never;
        const expected = await engine.join(one, other, options);
        for (const step of [1000, 70, 7]) {
          const joined = engine.joinBatches(later(cut(one, step)), later(cut(other, step)), {
            ...(options as object),
            buildSide,
          } as never);
          const found = await read(joined);
          expect(found.schema.names).toEqual(expected.schema.names);
          expect(unordered(rows(found))).toEqual(unordered(rows(expected)));
          expect(joined.stats).toMatchObject({ inputRows: one.numRows + other.numRows, outputRows: expected.numRows });
        }
      }
    });
  });
});

describe('one side without rows', () => {
  const [noLeft, noRight] = [left.slice(0, 0), right.slice(0, 0)];
  test.each(KINDS)('%s', async (how) => {
    await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
    for (const [one, other] of [
      [noLeft, right],
      [left, noRight],
      [noLeft, noRight],
    ] as const) {
      for (const buildSide of ['left', 'right'] as const) {
        const options = (how === 'cross' ? { how } : { how, on: 'k' }) as never;
        const found = await read(engine.joinBatches([one], [other], { ...(options as object), buildSide } as never));
        const expected = await engine.join(one, other, options);
        expect(unordered(rows(found))).toEqual(unordered(rows(expected)));
        expect(found.schema.names).toEqual(expected.schema.names);
      }
    }
  });
});

describe('one column of keys of two types', () => {
  const keysOf = (length: number, first: number, type: arrow.DataType, of: (key: number) => unknown) => {
    const keys = Array.from({ length }, (_, row) => (row % 11 ? of(first + ((row * 7) % length)) : null));
    return new arrow.Table({
      k: arrow.vectorFromArray(keys, type),
      id: arrow.vectorFromArray(Array.from(keys.keys()), new arrow.Int32()),
    });
  };
  const text = (key: number) => `t${key % 100}`;
  const codes = (indices: arrow.Int) => new arrow.Dictionary(new arrow.Utf8(), indices as never);
  const TYPES = {
    'int32 and int64': [keysOf(3000, 0, new arrow.Int32(), Number), keysOf(3000, 2500, new arrow.Int64(), BigInt)],
    'date and timestamp': [
      keysOf(3000, 0, new arrow.DateDay(), (key) => new Date(key * 86_400_000)),
      keysOf(3000, 2500, new arrow.TimestampMillisecond(), (key) => key * 86_400_000),
    ],
    'dictionary and text': [keysOf(600, 0, codes(new arrow.Int8()), text), keysOf(600, 50, new arrow.Utf8(), text)],
    dictionaries: [keysOf(600, 0, codes(new arrow.Int8()), text), keysOf(600, 50, codes(new arrow.Uint16()), text)],
  } as const;
  test.each(Object.entries(TYPES))('%s', async (_, [one, other]) => {
    await using whole = await testEngine(1, { memoryLimit: '256MiB' });
    for (const memoryLimit of ['256MiB', '1MiB']) {
      await using engine = await testEngine(SOME, { memoryLimit });
      for (const buildSide of ['left', 'right'] as const) {
        const options = { on: 'k', how: 'full', coalesce: true } as const;
        const expected = await whole.join(one, other, options);
        const found = await read(engine.joinBatches(later(cut(one, 100)), later(cut(other, 100)), { ...options, buildSide }));
        expect(found.schema.fields.map(String)).toEqual(expected.schema.fields.map(withWideIndices));
        expect(unordered(rows(found))).toEqual(unordered(rows(expected)));
      }
    }
  });
});

test.each(['inner', 'left', 'full'] as const)('%s: some rows of a batch come first where others are late', async (how) => {
  await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
  const length = 200_000;
  const many = new arrow.Table({ k: arrow.vectorFromArray(Int32Array.from({ length }, (_, row) => row % 1000)) });
  const few = new arrow.Table({ k: arrow.vectorFromArray(Int32Array.from({ length: 900 }, (_, row) => row + 200)) });
  async function* slow(): AsyncGenerator<arrow.Table> {
    for (const part of cut(many, length / 2)) {
      yield part;
      await setTimeout(50);
    }
  }
  const sizes: number[] = [];
  const counts = new Int32Array(1100);
  for await (const batch of engine.joinBatches(slow(), [few], { on: 'k', how, buildSide: 'right', coalesce: true })) {
    if (batch.numRows > 0) sizes.push(batch.numRows);
    for (const key of batch.getChildAt(0)!.toArray() as Int32Array) counts[key]!++;
  }
  const first = how === 'inner' ? 0.8 * 65_500 : 65_500;
  expect(sizes[0]).toBeGreaterThan(first - 1000);
  expect(sizes[0]).toBeLessThan(first + 1000);
  const expected = (key: number) => (key < 1000 ? (key >= 200 || how !== 'inner' ? length / 1000 : 0) : how === 'full' ? 1 : 0);
  expect([...counts]).toEqual(Array.from({ length: 1100 }, (_, key) => expected(key)));
});

test('gives some of the rows, and asks for no more than those need', async () => {
  await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
  const options = { on: 'k', how: 'left', maintainOrder: 'left' } as const;
  const all = rows(await engine.join(left, right, options));
  let asked = 0;
  async function* parts() {
    for (const part of cut(left, 50)) {
      asked++;
      yield part;
    }
  }
  for (const [offset, limit] of [
    [0, 0],
    [0, 1],
    [70, 130],
    [all.length - 3, 10],
    [all.length + 1, 10],
  ] as const) {
    asked = 0;
    const joined = engine.joinBatches(parts(), right, { ...options, offset, limit, batchRows: 40 });
    const found = await read(joined);
    expect(rows(found)).toEqual(all.slice(offset, offset + limit));
    expect(found.schema.names).toEqual(['k', 't', 'l', 't_right', 'r']);
    expect(joined.stats.outputRows).toBe(found.numRows);
    if (offset + limit < 300) expect(asked).toBeLessThan(cut(left, 50).length);
  }
});

test('ends while a batch of the probe side never comes', async () => {
  await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
  let ended = 0;
  async function* stuck() {
    yield left;
    await new Promise(() => {});
  }
  const source = {
    [Symbol.asyncIterator]: () => ({ ...iteratorOf(stuck()), return: async () => ({ done: true, value: ended++ }) }),
  };
  for await (const { numRows } of engine.joinBatches(source as AsyncIterable<arrow.Table>, right, { on: 'k' })) {
    if (numRows > 0) break;
  }
  expect(ended).toBe(1);
  expect((await engine.join(left, right, { on: 'k' })).numRows).toBeGreaterThan(0);
});

const iteratorOf = <T>(items: AsyncGenerator<T>) => ({ next: () => items.next() });

test('one side has no rows, and columns of lists', async () => {
  await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
  const type = new arrow.List(new arrow.Field('item', new arrow.Int32(), true));
  const nested = (rows: number) => {
    const lists = arrow.makeBuilder({ type });
    for (let row = 0; row < rows; row++) lists.append([row]);
    return new arrow.Table({
      k: arrow.vectorFromArray(
        Array.from({ length: rows }, (_, row) => row),
        new arrow.Int32(),
      ),
      lists: lists.toVector(),
    });
  };
  for (const [rows, others] of [
    [3, 0],
    [0, 3],
  ] as const) {
    const joined = engine.joinBatches([nested(rows).slice(0, rows)], [nested(others).slice(0, others)], { on: 'k', how: 'left' });
    const found = await read(joined);
    expect([found.numRows, found.schema.names]).toEqual([rows, ['k', 'lists', 'lists_right']]);
  }
});

test('maxOutputRows bounds what the join finds', async () => {
  await using engine = await testEngine(SOME, { memoryLimit: '256MiB' });
  const { numRows } = await engine.join(left, right, { on: 'k' });
  const joined = (maxOutputRows: number) =>
    read(engine.joinBatches(later(cut(left, 50)), right, { on: 'k', maxOutputRows, limit: numRows }));
  expect((await joined(numRows)).numRows).toBe(numRows);
  expect(await failure(joined(numRows - 1))).toMatchObject({
    code: 'ERR_MEMORY_LIMIT',
    message: `The join gives more rows than the ${numRows - 1} allowed.`,
  });
});

test('keeps the order of the side that comes, and has columns as join() has', async () => {
  await using engine = await testEngine(1, { memoryLimit: '256MiB' });
  const options = { on: 'k', how: 'left', maintainOrder: 'left', select: ['r', 'l', 't_2'], suffix: '_2' } as const;
  const expected = await engine.join(left, right, options as never);
  const found = await read(engine.joinBatches(later(cut(left, 50)), right, options as never));
  expect(rows(found)).toEqual(rows(expected));
  expect(found.schema.names).toEqual(['r', 'l', 't_2']);
});

test('a result of 100 times its input goes through little memory', async () => {
  const { engine, inner } = inspectedEngine(SOME, { memoryLimit: '4MiB', threads: 2 });
  const same = (length: number, name: string) =>
    arrow.tableFromArrays({ k: new Int32Array(length), [name]: new Int32Array(length).fill(1) });
  const joined = engine.joinBatches(later(cut(same(5000, 'l'), 500)), later([same(300, 'r')]), { on: 'k' } as never);
  let sum = 0;
  for await (const batch of joined) sum += batch.numRows;
  expect(sum).toBe(1_500_000);
  expect(inner.memory().peakBytes).toBeLessThanOrEqual(2 ** 22);
  await engine.dispose();
});

describe('bad input', () => {
  test.each([
    [{ on: 'kk' }, 'ERR_COLUMN_NOT_FOUND', /"kk"/],
    [{ on: 'k', how: 'outer' }, 'ERR_OPTION', /Did you mean "full"/],
    [{ on: 'k', maintainOrder: 'right' }, 'ERR_OPTION', /Expected "none" or "left" for .* The build side is right/],
    [
      { on: 'k', how: 'semi', buildSide: 'left', maintainOrder: 'right' },
      'ERR_OPTION',
      /Expected "none" for maintainOrder but received "right"\. The build side is left/,
    ],
    [{ on: 'k', validate: '1:2' }, 'ERR_OPTION', /validate/],
    [{ how: 'cross', validate: '1:1' }, 'ERR_OPTION', /Expected no validate/],
    [{ on: 'k', limit: -1 }, 'ERR_OPTION', /limit/],
    [{ how: 'cross', on: 'k' }, 'ERR_OPTION', /cross/],
  ])('%j', async (options, code, message) => {
    const error = await failure((async () => read(joinBatches(left, right, options as never)))());
    expect(error.message).toMatch(message);
    expect(error).toMatchObject({ code });
  });
});

describe('whatever ends it', () => {
  const [many, build] = [keyed(40_000, 3000, 5, 'l'), keyed(2000, 3000, 6, 'r')];

  /** A source that says whether it was ended. */
  class Watched implements AsyncIterable<arrow.RecordBatch> {
    ended = false;

    constructor(
      private readonly of: arrow.Table,
      private readonly then?: () => Promise<never>,
    ) {}

    async *[Symbol.asyncIterator]() {
      try {
        for (const part of cut(this.of, 500)) yield* part.batches;
        await this.then?.();
      } finally {
        this.ended = true;
      }
    }
  }

  const enough = new Error('enough');
  const ways: Record<string, (joined: BatchStream, controller: AbortController) => Promise<void>> = {
    'its end': async (joined) => void (await read(joined)),
    'a break': async (joined) => {
      for await (const _ of joined) break;
    },
    'disposal before it is read': (joined) => joined[Symbol.asyncDispose](),
    'disposal in the middle': async (joined) => {
      await joined[Symbol.asyncIterator]().next();
      await joined[Symbol.asyncDispose]();
    },
    'an abort while the build side is read': async (joined, controller) => {
      const next = joined[Symbol.asyncIterator]().next();
      await expect.poll(() => joined.stats.inputRows, { interval: 1 }).toBeGreaterThan(0);
      controller.abort(enough);
      await expect(next).rejects.toBe(enough);
    },
    'an abort while the probe side comes': async (joined, controller) => {
      const iterator = joined[Symbol.asyncIterator]();
      for (let batch = 0; batch < 5; batch++) await iterator.next();
      const next = iterator.next();
      controller.abort(enough);
      await expect(next).rejects.toBe(enough);
    },
    'too little memory': async (joined) => {
      expect(await failure(read(joined))).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
    },
  };

  test.each(Object.keys(ways).flatMap((way) => (['full', 'anti'] as const).map((how) => [way, how] as const)))(
    '%s leaves nothing of a %s join',
    async (way, how) => {
      const { engine, inner } = inspectedEngine(SOME, { memoryLimit: way.includes('memory') ? '40KiB' : '64MiB', threads: 2 });
      const [probe, first] = [new Watched(many), new Watched(build)];
      // What a running function holds would not be collected.
      const end = async () => {
        const controller = new AbortController();
        const joined = engine.joinBatches(probe, first, { on: 'k', how, batchRows: 100, signal: controller.signal });
        await ways[way]!(joined, controller);
      };
      await end();
      await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
      if (!way.includes('before')) await expect.poll(() => first.ended).toBe(true);
      if (way.includes('probe') || way.includes('middle') || way === 'a break') await expect.poll(() => probe.ended).toBe(true);
      // Transfers to GPUs alone need more than that little memory.
      if (!onGpus || !way.includes('memory')) {
        const few = await read(engine.joinBatches([left.slice(0, 50)], [right.slice(0, 9)], { on: 'k', how: 'semi' }));
        expect(few.numRows).toBe((await engine.join(left.slice(0, 50), right.slice(0, 9), { on: 'k', how: 'semi' })).numRows);
      }
      await engine.dispose();
    },
  );

  test.each(['left', 'right'] as const)('a %s side that fails ends the other one', async (side) => {
    const failing = new Watched(build, () => Promise.reject(new Error('no more')));
    const other = new Watched(many);
    const [one, two] = side === 'left' ? [failing, other] : [other, failing];
    const error = await failure(read(joinBatches(one, two, { on: 'k' })));
    expect(error).toMatchObject({ code: 'ERR_INVALID_TABLE', message: expect.stringMatching(/no more/) });
    expect(failing.ended).toBe(true);
    expect(other.ended).toBe(side === 'left'); // the right side is read first
  });

  test('the n-th allocation fails, for each n', async () => {
    const { engine, inner } = inspectedEngine(SOME, { memoryLimit: '64MiB', threads: 2 });
    const [one, other] = [many.slice(0, 3000), build.slice(0, 1000)];
    const options = { on: 'k', how: 'full' } as const;
    const expected = unordered(rows(await engine.join(one, other, options)));
    let failures = 0;
    const fail = async (n: number) => {
      inner.failAllocation('memory', n);
      const found = await read(engine.joinBatches(later(cut(one, 500)), later(cut(other, 500)), options)).catch(
        (error: unknown) => error as WarpjoinError,
      );
      inner.failAllocation('memory', 0);
      // A part that fails is joined in halves.
      if (found instanceof arrow.Table) expect(unordered(rows(found))).toEqual(expected);
      else expect(found).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
      failures += found instanceof arrow.Table ? 0 : 1;
    };
    for (let n = 1; n < 150; n += n < 40 ? 1 : 11) await fail(n);
    expect(failures).toBeGreaterThan(0);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });

  test('reading twice, and an engine that is disposed', async () => {
    const engine = await testEngine(1, { memoryLimit: '64MiB' });
    const joined = engine.joinBatches([left], [right], { on: 'k' });
    await read(joined);
    expect(await failure(read(joined))).toMatchObject({
      code: 'ERR_OPTION',
      message: expect.stringMatching(/have not been read/),
    });
    const { held, letGo } = hold();
    async function* parts() {
      yield left;
      await held;
      yield left;
    }
    const iterator = engine.joinBatches(parts(), [right], { on: 'k' })[Symbol.asyncIterator]();
    expect((await iterator.next()).value!.numRows).toBeGreaterThan(0);
    await engine.dispose();
    letGo();
    const rest = async () => {
      while (!(await iterator.next()).done);
    };
    expect(await failure(rest())).toMatchObject({ code: 'ERR_OPTION', message: expect.stringMatching(/disposed/) });
  });
});
