/** Results of several record batches: those of engines whose buffers are small, for columns above 1 GiB take too long. */
import { constants } from 'node:buffer';
import * as arrow from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import type { Engine } from '../../lib/engine.js';
import { WarpjoinError } from '../../lib/index.js';
import { DEVICE_COUNTS, splittingEngine, testEngine } from '../support/engines.js';
import { chunked, failure, random, rows, table, unordered } from '../support/tables.js';

const MAX_BYTES = 200;

const draw = random(11);
const some = <T>(length: number, value: (row: number) => T): (T | null)[] =>
  Array.from({ length }, (_, row) => (draw(7) ? value(row) : null));
const types = {
  k: new arrow.Int32(),
  big: new arrow.Int64(),
  small: new arrow.Int8(),
  flag: new arrow.Bool(),
  all: new arrow.Bool(),
  text: new arrow.Utf8(),
  large: new arrow.LargeUtf8(),
  odd: new arrow.FixedSizeBinary(3),
  wide: new arrow.Decimal(2, 30),
};
const tableOf = (length: number, distinct: number) =>
  chunked(
    table(types, {
      k: Array.from({ length }, () => draw(distinct)),
      big: Array.from({ length }, (_, row) => BigInt(row) << 33n),
      small: some(length, (row) => row % 100),
      flag: some(length, (row) => row % 3 === 0),
      all: Array.from({ length }, (_, row) => row % 5 === 0),
      text: some(length, (row) => 'text'.repeat(draw(9)) + row),
      large: Array.from({ length }, (_, row) => (row % 4 ? `${row}` : '')),
      odd: some(length, (row) => Uint8Array.of(row, row >> 8, 7)),
      wide: some(length, (row) => Uint32Array.of(row, 0, row, 0)),
    }),
    [Math.floor(length / 3), Math.floor(length / 2)],
  );
const [left, right] = [tableOf(300, 130), tableOf(200, 130)];

/** Checks that no buffer is too large, and that the table can be read whole as IPC. */
function checkBuffers(of: arrow.Table): void {
  for (const batch of of.batches) {
    for (const { nullBitmap, valueOffsets, values } of batch.data.children as (arrow.Data & { nullBitmap?: Uint8Array })[]) {
      for (const buffer of [nullBitmap, valueOffsets, values] as (ArrayBufferView | undefined)[]) {
        expect(buffer?.byteLength ?? 0).toBeLessThanOrEqual(MAX_BYTES);
      }
    }
  }
  expect(rows(arrow.tableFromIPC(arrow.tableToIPC(of)))).toEqual(rows(of));
}

describe.each(DEVICE_COUNTS.filter((count) => count === 1 || count === 3))('on %d devices', (devices) => {
  const options = { memoryLimit: '256MiB', threads: 2 } as const;
  const splitting = splittingEngine(devices, MAX_BYTES, options);
  const whole = testEngine(devices, options);
  afterAll(async () => {
    await splitting.dispose();
    await (await whole).dispose();
  });

  /** What both engines give: the same rows, in one batch and in several. */
  async function both(call: (engine: Engine) => Promise<arrow.Table>): Promise<[arrow.Table, arrow.Table]> {
    const [one, several] = [await call(await whole), await call(splitting)];
    expect(one.batches).toHaveLength(1);
    expect(several.batches.length).toBeGreaterThan(1);
    checkBuffers(several);
    return [one, several];
  }

  test.each([['text', 'k'], ['k', 'text', 'small'], ['big'], ['flag', 'k'], ['large']] as const)(
    'a sort by %s',
    async (...by) => {
      const [one, several] = await both((engine) => engine.sort(left, { by }));
      expect(rows(several)).toEqual(rows(one));
    },
  );

  test.each(['merge', 'radix', 'sample'] as const)('a %s sort with one column carried along', async (algorithm) => {
    const [one, several] = await both((engine) => engine.sort(left, { by: 'k', select: ['k', 'big'], algorithm }));
    expect(rows(several)).toEqual(rows(one));
  });

  test.each(['inner', 'left', 'right', 'full', 'semi', 'anti'] as const)('a %s join', async (how) => {
    for (const algorithm of ['radix-hash', 'sort-merge'] as const) {
      for (const on of ['k', 'text'] as const) {
        const [one, several] = await both((engine) => engine.join(left, right, { on, how, algorithm }));
        expect(unordered(rows(several))).toEqual(unordered(rows(one)));
      }
    }
  });

  test.each(['text', 'large', 'flag', 'wide'] as const)('a full join with %s coalesced or gathered', async (name) => {
    const on = name === 'wide' || name === 'flag' ? 'k' : name;
    const [one, several] = await both((engine) =>
      engine.join(left, right.slice(0, 100), { on, how: 'full', coalesce: true, select: name === on ? [name] : [on, name] }),
    );
    expect(unordered(rows(several))).toEqual(unordered(rows(one)));
  });

  test('a join of keys and what is carried along, and a cross join', async () => {
    const [one, several] = await both((engine) => engine.join(left, right, { on: 'k', select: ['k', 'big', 'big_right'] }));
    expect(unordered(rows(several))).toEqual(unordered(rows(one)));
    const [all, parts] = await both((engine) => engine.join(left.slice(0, 30), right.slice(0, 20), { how: 'cross' }));
    expect(unordered(rows(parts))).toEqual(unordered(rows(all)));
  });

  test('results are inputs: sorted, joined and loaded again', async () => {
    const joined = await splitting.join(left, right, { on: 'k', how: 'left' });
    expect(joined.batches.length).toBeGreaterThan(20);
    const by = ['big', 'text_right', 'big_right'] as const;
    const sorted = await splitting.sort(joined, { by });
    checkBuffers(sorted);
    const expected = rows(await (await whole).sort(await (await whole).join(left, right, { on: 'k', how: 'left' }), { by }));
    expect(rows(sorted)).toEqual(expected);
    expect(rows(await (await whole).sort(joined, { by }))).toEqual(expected);
    expect(rows(await (await whole).sort(arrow.tableToIPC(joined), { by }))).toEqual(expected);
    await using loaded = await splitting.load(sorted);
    expect(rows(await loaded.toArrow())).toEqual(expected);
    await using again = await splitting.sort(loaded, { by, resident: true });
    expect(rows(await again.toArrow())).toEqual(expected);
    expect(await splitting.joinCount(sorted, loaded, { on: 'big' })).toBe(
      await (await whole).joinCount(joined, joined, { on: 'big' }),
    );
  });

  test('typed arrays are whole', async () => {
    const keys = Int32Array.from({ length: 1000 }, () => draw(500));
    const values = Float64Array.from(keys, (key) => key / 2);
    for (const engine of [await whole, splitting]) {
      const sorted = await engine.sortPairs(keys, values);
      expect(sorted.keys).toEqual(keys.slice().sort());
      expect(sorted.values).toEqual(values.slice().sort());
      const small = await engine.joinKeys(
        { keys: keys.map((key) => key % 9), values },
        { keys: Int32Array.of(1, 2), values: Int8Array.of(1, 2) },
      );
      expect(small.s).toBeInstanceOf(Int8Array);
      expect(small.s).toEqual(Int8Array.from(small.keys));
      const { left: rowNumbers } = await engine.joinIndices(left, right, { on: 'k' });
      expect(rowNumbers).toHaveLength(await engine.joinCount(left, right, { on: 'k' }));
    }
  });
});

describe('rows that nothing holds are refused before they are made', () => {
  const column = (length: number) => new arrow.Table({ a: arrow.makeVector(new Int8Array(length)) });

  test('in a table', async () => {
    const engine = await testEngine(1, { memoryLimit: '64TiB', threads: 2 });
    const error = await failure(engine.join(column(70_000), column(70_000), { how: 'cross', select: ['a'] }));
    expect(error).toBeInstanceOf(WarpjoinError);
    expect(error).toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
      message:
        'The result has 4900000000 rows; an apache-arrow table holds at most 4294967295. Join the left table in parts, or use joinIndices.',
    });
    await engine.dispose();
  });

  test.runIf(constants.MAX_LENGTH === 2 ** 32)('in typed arrays of 4 GiB, as before Node.js 22', async () => {
    const engine = await testEngine(1, { memoryLimit: '64TiB', threads: 2 });
    const error = await failure(engine.joinIndices(column(40_000), column(40_000), { how: 'cross' }));
    expect(error).toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
      message:
        'The result has 1600000000 rows, 6 GiB in one typed array; this Node.js holds at most 4 GiB in one. ' +
        'Join the left side in parts, or use join(), whose tables have several record batches.',
    });
    await engine.dispose();
  });
});
