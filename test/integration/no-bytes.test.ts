/** Fixed-size binary of 0 bytes: every value equals every other, and a null stays a null. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { describeDevices, engineMaker } from '../support/engines.js';
import { chunked, failure, unordered } from '../support/tables.js';

const type = new arrow.FixedSizeBinary(0);
/** A column of such values, null where `nulls` says so. */
function column(nulls: readonly boolean[]): arrow.Vector {
  const nullBitmap = new Uint8Array(Math.ceil(nulls.length / 8));
  for (const [row, isNull] of nulls.entries()) if (!isNull) nullBitmap[row >> 3]! |= 1 << (row & 7);
  const nullCount = nulls.filter(Boolean).length;
  const data = { type, length: nulls.length, nullCount, nullBitmap, data: new Uint8Array(0) };
  return new arrow.Vector([arrow.makeData(data as never)]);
}
const isNull = (at: (row: number) => boolean, length: number) => Array.from({ length }, (_, row) => at(row));
const table = (nulls: readonly boolean[]): arrow.Table =>
  new arrow.Table({ k: column(nulls), row: arrow.makeVector(Int32Array.from(nulls.keys())) });
/** Each value as true, nulls as null. */
const plain = (of: arrow.Table) =>
  Array.from({ length: of.numRows }, (_, row) => {
    const value = of.getChild('k')!.get(row);
    if (value !== null) expect(value).toEqual(new Uint8Array(0));
    return { k: value && true, row: of.getChild('row')!.get(row) };
  });

describeDevices((devices) => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  const nulls = isNull((row) => row % 3 === 1, 40);
  const given = chunked(table(nulls), [7, 20]);

  test.each(['radix-hash', 'sort-merge'] as const)('joins by it: %s', async (algorithm) => {
    const engine = await engineFor(devices);
    const few = table(isNull((row) => row === 1, 3));
    const pairs = await engine.join(given, few, { on: 'k', algorithm });
    const values = nulls.filter((is) => !is).length;
    expect(pairs.numRows).toBe(2 * values);
    expect(plain(pairs).every(({ k }) => k === true)).toBe(true);
    expect(await engine.joinCount(given, few, { on: 'k', nullsEqual: true, algorithm })).toBe(2 * values + nulls.length - values);
    const full = await engine.join(given, few, { on: 'k', how: 'full', coalesce: true, algorithm });
    expect(full.numRows).toBe(2 * values + nulls.length - values + 1);
    expect(full.getChild('k')!.type).toBe(type);
    const both = { on: ['k', 'row'], algorithm } as const;
    expect(unordered(plain(await engine.join(given, few, both)))).toEqual(unordered([0, 2].map((row) => ({ k: true, row }))));
  });

  test('sorts by it, and finds the first rows', async () => {
    const engine = await engineFor(devices);
    const rows = [...nulls.keys()];
    const expected = [...rows.filter((row) => nulls[row]), ...rows.filter((row) => !nulls[row])];
    const by = { column: 'k', nullsLast: false };
    const sorted = await engine.sort(given, { by });
    expect(plain(sorted)).toEqual(expected.map((row) => ({ k: nulls[row] ? null : true, row })));
    expect([...(await engine.sortIndices(given, { by: [by, { column: 'row', descending: true }], limit: 3 })).rows]).toEqual([
      37, 34, 31,
    ]);
    expect(await engine.isSorted(sorted, { by })).toBe(true);
    expect(await engine.isSorted(given, { by })).toBe(false);
    expect([...(await engine.searchSorted(sorted, table([false, true]), { by, side: 'right' }))]).toEqual([40, 13]);
  });

  test('is unique once', async () => {
    const engine = await engineFor(devices);
    expect(plain(await engine.unique(given, { on: 'k', keep: 'last', maintainOrder: true }))).toEqual([
      { k: null, row: 37 },
      { k: true, row: 39 },
    ]);
    const error = await failure(engine.join(given, table([false]), { on: 'k', validate: '1:m' }));
    expect(error.message).toContain('rows 0 and 2');
  });
});

describe('input and output', () => {
  const engineFor = engineMaker({ memoryLimit: '512MiB', threads: 2 });
  test.each(['stream', 'file'] as const)('as an Arrow IPC %s', async (format) => {
    const engine = await engineFor(1);
    const given = table(isNull((row) => row % 3 === 1, 40));
    const sorted = await engine.sort(arrow.tableToIPC(given, format), { by: { column: 'row', descending: true } });
    const again = arrow.tableFromIPC(arrow.tableToIPC(sorted, format));
    expect(plain(again)).toEqual(plain(given).reverse());
    expect(`${again.schema.fields[0]!.type}`).toBe('FixedSizeBinary[0]');
  });

  test('without rows, and loaded', async () => {
    const engine = await engineFor(1);
    const none = table([]);
    expect((await engine.join(none, none, { on: 'k', how: 'full' })).numRows).toBe(0);
    expect((await engine.sort(none, { by: 'k' })).numRows).toBe(0);
    const given = table([false, true, false]);
    await using loaded = await engine.load(given);
    expect(await engine.joinCount(loaded, loaded, { on: 'k' })).toBe(4);
    expect(plain(await engine.sort(loaded, { by: 'row' }))).toEqual(plain(given));
  });
});
