/** Nested columns and dictionaries whose buffers lie: refused by name before anything is read. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { engineMaker } from '../support/engines.js';
import { failure } from '../support/tables.js';

const engine = engineMaker({ memoryLimit: '64MiB', threads: 2 });
const item = new arrow.Field('item', new arrow.Int32(), true);
const numbers = (length: number) => arrow.makeData({ type: new arrow.Int32(), data: new Int32Array(length) });
const tableOf = (data: arrow.Data): arrow.Table => {
  const id = arrow.makeData({ type: new arrow.Int32(), data: new Int32Array(data.length) });
  const type = new arrow.Struct([new arrow.Field('id', id.type), new arrow.Field('c', data.type, true)]);
  const whole = arrow.makeData({ type, length: data.length, nullCount: 0, children: [id, data] });
  return new arrow.Table(new arrow.Schema(type.children), [new arrow.RecordBatch(new arrow.Schema(type.children), whole)]);
};
const make = (parts: object): arrow.Data => arrow.makeData({ length: 3, ...parts } as never);
const list = (valueOffsets: number[], child = numbers(4)) =>
  make({ type: new arrow.List(item), valueOffsets: Int32Array.from(valueOffsets), child });
const struct = new arrow.Struct([new arrow.Field('a', new arrow.Int32(), true)]);
const union = (mode: arrow.UnionMode, typeIds: number[], valueOffsets?: number[]) =>
  make({
    type: new arrow.Union(mode, [4, 7], [new arrow.Field('a', new arrow.Int32()), new arrow.Field('b', new arrow.Int32())]),
    typeIds: Int8Array.from(typeIds),
    ...(valueOffsets && { valueOffsets: Int32Array.from(valueOffsets) }),
    children: [numbers(3), numbers(3)],
  });
const view = (...words: number[]) => {
  const views = new Int32Array(12);
  views.set(words, 4);
  return make({ type: new arrow.Utf8View(), views: new Uint8Array(views.buffer), variadicBuffers: [new Uint8Array(20)] });
};
const indices = (data: Int8Array, dictionary: arrow.Vector) =>
  make({ type: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8()), data, dictionary });
const words = arrow.vectorFromArray(['x', 'y'], new arrow.Utf8());
const { Sparse, Dense } = arrow.UnionMode;

test.each<[string, arrow.Data, string]>([
  ['offsets that fall', list([0, 3, 2, 4]), "Column 'c', chunk 0: its offsets descend at row 1, from 3 to 2"],
  ['offsets past the child', list([0, 1, 2, 5]), "Column 'c', chunk 0: its child has 4 values, but its last offset is 5"],
  ['a negative offset', list([-1, 1, 2, 4]), "Column 'c', chunk 0: its first offset is -1"],
  [
    'a child of a struct that is short',
    make({ type: struct, children: [numbers(2)] }),
    "Column 'c', chunk 0: its child 'c.a' has 2 values, but its 3 rows need 3",
  ],
  [
    'a child of a fixed-size list that is short',
    make({ type: new arrow.FixedSizeList(2, item), child: numbers(5) }),
    "Column 'c', chunk 0: its child 'c.item' has 5 values, but its 3 rows need 6",
  ],
  [
    'values within that are short',
    list([0, 1, 2, 4], arrow.makeData({ type: new arrow.Int32(), length: 4, data: new Int32Array(3) })),
    "Column 'c.item', chunk 0: its values buffer has 12 bytes, but 4 rows at bit offset 0 need 16",
  ],
  [
    'validity within that is short',
    make({
      type: struct,
      children: [
        arrow.makeData({
          type: new arrow.Int32(),
          length: 3,
          offset: 6,
          nullCount: 1,
          data: new Int32Array(3),
          nullBitmap: new Uint8Array(1),
        }),
      ],
    }),
    "Column 'c.a', chunk 0: its validity buffer has 1 bytes, but 3 rows at bit offset 6 need 2",
  ],
  ['a type id of no child', union(Sparse, [4, 5, 7]), "Column 'c', chunk 0: its type id at row 1 is 5, which no child has"],
  [
    'type ids that are short',
    union(Sparse, [4, 7]),
    "Column 'c', chunk 0: its type ids buffer has 2 bytes, but 3 rows at bit offset 0 need 3",
  ],
  [
    'a dense offset past the child',
    union(Dense, [4, 7, 4], [0, 3, 1]),
    "Column 'c', chunk 0: its offset at row 1 is 3, but its child 'c.b' has 3 values",
  ],
  [
    'a view past its buffer',
    view(13, 0, 0, 8),
    "Column 'c', chunk 0: its view at row 1 has 13 bytes at byte 8 of buffer 0, which has 20",
  ],
  ['a view of no buffer', view(13, 0, 1, 0), "Column 'c', chunk 0: its view at row 1 is in buffer 1, but there are 1"],
  ['a view of negative length', view(-5), "Column 'c', chunk 0: its view at row 1 has the length -5"],
  [
    'an index past the dictionary',
    indices(Int8Array.of(0, 1, 2), words),
    "Column 'c', chunk 0: its index at row 2 is 2, but its dictionary has 2 values",
  ],
  [
    'a negative index',
    indices(Int8Array.of(0, -1, 1), words),
    "Column 'c', chunk 0: its index at row 1 is -1, but its dictionary has 2 values",
  ],
  [
    'a dictionary that lies',
    indices(
      Int8Array.of(0, 1, 0),
      new arrow.Vector([
        arrow.makeData({ type: new arrow.Utf8(), length: 2, valueOffsets: Int32Array.of(0, 1, 9), data: new Uint8Array(2) }),
      ]),
    ),
    "Column 'c (dictionary)', chunk 0: its values buffer has 2 bytes, but its last offset is 9",
  ],
])('%s', async (_, data, message) => {
  const input = tableOf(data);
  const own = await engine(1);
  for (const call of [() => own.sort(input, { by: 'id' }), () => own.join(input, input, { on: 'id' })]) {
    const error = await failure(call());
    expect([error.code, error.message]).toEqual(['ERR_INVALID_TABLE', message]);
  }
  // Nothing is read of what is left out.
  expect((await own.sort(input, { by: 'id', select: ['id'] })).numRows).toBe(3);
});

test('children and dictionaries that are none are refused', async () => {
  const own = await engine(1);
  const lacking = make({ type: struct, children: [numbers(3)] });
  Object.defineProperty(lacking, 'children', { value: [] });
  expect((await failure(own.sort(tableOf(lacking), { by: 'id' }))).message).toBe(
    'The input table has a column "c" of 1 children, but a batch of it has 0.',
  );
  const odd = indices(Int8Array.of(0, 1, 0), words);
  Object.defineProperty(odd, 'dictionary', { value: {} });
  expect((await failure(own.sort(tableOf(odd), { by: 'id' }))).message).toBe(
    'The input table has a column "c" whose dictionary is not a vector.',
  );
});

test('values that no buffer holds are refused', async () => {
  const own = await engine(1);
  const nulls = (length: number) => arrow.makeData({ type: new arrow.Null(), length });
  const many = 2 ** 31 - 1;
  const wide = new arrow.FixedSizeList(many, new arrow.Field('item', new arrow.Null(), true));
  // Row numbers of all of them.
  const flat = make({ type: wide, child: nulls(3 * many) });
  const short = await failure(own.sort(tableOf(flat), { by: 'id' }));
  expect([short.code, short.message]).toEqual(['ERR_MEMORY_LIMIT', expect.stringContaining('row numbers of nested values')]);
  const deep = new arrow.FixedSizeList(2 ** 20, new arrow.Field('item', wide, true));
  const middle = arrow.makeData({ type: wide, length: 3 * 2 ** 20, child: nulls(3 * 2 ** 20 * many) } as never);
  const error = await failure(own.sort(tableOf(make({ type: deep, child: middle })), { by: 'id' }));
  expect([error.code, error.message]).toEqual([
    'ERR_NOT_SUPPORTED',
    `Column 'c.item' has more than ${2 ** 44} values or bytes within one row, which is not supported`,
  ]);
});
