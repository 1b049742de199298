import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { readTable } from '../../lib/columns/input.js';
import { plannedWidth, textBytes } from '../../lib/operators/shared.js';

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
