import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { readTable } from '../../lib/columns/input.js';
import type { ColumnConversion } from '../../lib/native.js';
import { conversionBytes, plannedWidth, textBytes } from '../../lib/operators/shared.js';
import { madeBytes } from '../../lib/plan/memory.js';
import type { PlannedColumn } from '../../lib/plan/plan.js';

const field = (type: arrow.DataType) => new arrow.Field('item', type, true);
const point = new arrow.Struct([field(new arrow.Int64()), field(new arrow.Bool())]);

test.each<[arrow.DataType, number]>([
  [new arrow.Dictionary(new arrow.Utf8(), new arrow.Int16()), 2],
  [new arrow.Null(), 0],
  [new arrow.Utf8View(), 16],
  [new arrow.List(field(point)), 4],
  [new arrow.LargeList(field(point)), 8],
  [new arrow.FixedSizeList(3, field(new arrow.Int16())), 6],
  [point, 8 + 1 / 8],
  [new arrow.SparseUnion([0, 1], [field(new arrow.Int32()), field(new arrow.Int8())]), 1 + 4 + 1],
  [new arrow.DenseUnion([0, 1], [field(new arrow.Int32()), field(new arrow.Int8())]), 1 + 4],
  [new arrow.Decimal(2, 50, 256), 32],
])('%s takes so many bytes a value at least: %d', (type, bytes) => {
  const input = readTable(new arrow.Table(new arrow.Schema([new arrow.Field('c', type)]), []), 'left');
  expect([plannedWidth(input, 0), textBytes(input, 0)]).toEqual([bytes, 0]);
});

test('what lists hold counts with the row numbers that it is taken by', () => {
  const texts = arrow.vectorFromArray(['abc', 'de', 'fgh', 'i'], new arrow.Utf8()).data[0]!;
  const list = (child: arrow.Data) =>
    arrow.makeData({ type: new arrow.List(field(child.type)), length: 2, valueOffsets: Int32Array.of(0, 2, 4), child } as never);
  const bytesOf = (...data: arrow.Data[]) => {
    const columns = Object.fromEntries(data.map((chunk, index) => [`c${index}`, new arrow.Vector([chunk])]));
    const input = readTable(new arrow.Table(columns), 'left');
    return data.map((_, index) => textBytes(input, index));
  };
  // 4 texts of 9 bytes together, with an offset and a row number each; then as a list of two lists.
  const held = 9 + 4 * (4 + 4);
  const nested = arrow.makeData({
    type: new arrow.List(field(list(texts).type)),
    length: 1,
    valueOffsets: Int32Array.of(0, 2),
    child: list(texts),
  } as never);
  expect(bytesOf(list(texts))).toEqual([texts.values.byteLength - 9 + held]);
  expect(bytesOf(nested)).toEqual([texts.values.byteLength - 9 + held + 2 * (4 + 4)]);
});

test('columns that become another type count while they are made', () => {
  const column = (name: string, width: number, scratchBytes?: number): PlannedColumn => ({
    name,
    from: scratchBytes ? 'coalesced' : 'gathered',
    width,
    ...(scratchBytes ? { scratchBytes } : {}),
  });
  const most = (...columns: PlannedColumn[]) => madeBytes(columns, ({ width }) => 100 * width);
  expect(most()).toBe(0);
  expect(most(column('a', 4), column('b', 8))).toBe(1200);
  expect(most(column('a', 4, 5000), column('b', 8))).toBe(5400);
  expect(most(column('a', 4, 500), column('b', 8, 1000))).toBe(2200);
});

test.each([
  [new arrow.Int32(), null, 0],
  [new arrow.Int32(), { kind: 'fixed', width: 16 }, 1600],
  [new arrow.FixedSizeBinary(3), { kind: 'utf8', width: 0 }, 0],
  [new arrow.FixedSizeBinary(3), { kind: 'large_utf8', width: 0 }, 800],
  [new arrow.Utf8(), { kind: 'large_utf8', width: 0 }, 800],
  [new arrow.Dictionary(new arrow.Int32(), new arrow.Int8()), { kind: 'fixed', width: 4 }, 400 + 400],
  [new arrow.Dictionary(new arrow.Int16(), new arrow.Int8()), { kind: 'fixed', width: 8 }, 800 + 200],
] as const)('100 rows of %s become %j', (type, to, bytes) => {
  const schema = new arrow.Schema([new arrow.Field('c', type)]);
  const input = { ...readTable(new arrow.Table(schema, []), 'left'), rows: 100 };
  const factor = { pow10: 0, times: 1 };
  const as: ColumnConversion | null = to && { order: 'none', factor, column: '', target: '', ...to };
  const blocks = Math.ceil(conversionBytes(input, 0, as) / 64);
  expect(blocks).toBeGreaterThanOrEqual(Math.ceil(bytes / 64));
  expect(blocks).toBeLessThanOrEqual(Math.ceil(bytes / 64) + 1);
});
