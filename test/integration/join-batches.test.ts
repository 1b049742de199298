/** joinBatches(): the build side in memory, the probe side as it comes. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { type JoinKind, joinBatches } from '../../lib/index.js';
import { DEVICE_COUNTS, describeDevices, inspectedEngine, testEngine } from '../support/engines.js';
import { failure, random, rows, unordered } from '../support/tables.js';

/** Two devices, where there are. */
const SOME = DEVICE_COUNTS[1] ?? 1;

async function* later<T>(items: Iterable<T>): AsyncGenerator<T> {
  for (const item of items) yield item;
}

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
const cut = (of: arrow.Table, step: number) =>
  Array.from({ length: Math.ceil(of.numRows / step) }, (_, part) => of.slice(part * step, (part + 1) * step));

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
  test('a build side that does not fit', async () => {
    await using engine = await testEngine(1, { memoryLimit: '100KiB' });
    const error = await failure(
      read(engine.joinBatches(later(cut(left, 100)), later(cut(keyed(30_000, 9, 3, 'r'), 100)), { on: 'k' })),
    );
    expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: /The right side stays in memory, and does not fit/ });
  });

  test.each([
    [{ on: 'kk' }, 'ERR_COLUMN_NOT_FOUND', /"kk"/],
    [{ on: 'k', how: 'outer' }, 'ERR_OPTION', /Did you mean "full"/],
    [{ on: 'k', maintainOrder: 'right' }, 'ERR_OPTION', /The build side is right/],
    [{ on: 'k', limit: 3 }, 'ERR_OPTION', /limit/],
    [{ how: 'cross', on: 'k' }, 'ERR_OPTION', /cross/],
  ])('%j', async (options, code, message) => {
    const error = await failure((async () => read(joinBatches(left, right, options as never)))());
    expect(error.message).toMatch(message);
    expect(error).toMatchObject({ code });
  });
});
