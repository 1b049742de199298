/** Arrow files of record batches that have dictionaries of their own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import polars from 'nodejs-polars';
import { afterAll, describe, expect, test } from 'vitest';
import { toIPC, toRows } from '../../lib/index.js';
import { readTable, scanFiles, writeBatches, writeTable } from '../../lib/io/index.js';
import { printed } from '../support/cli.js';
import { failure } from '../support/tables.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-arrow-dictionaries-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);

type Value = string | number | bigint | boolean | Uint8Array | null;
const bytes = (...of: number[]) => Uint8Array.from(of);

/** A column of indices of these values. */
function column(values: arrow.Vector, indices: readonly (number | null)[], index: arrow.Int = new arrow.Int32(), id = 7) {
  const type = new arrow.Dictionary(values.type, index as arrow.Int32, id, false);
  const nullBitmap = new Uint8Array(Math.ceil(indices.length / 8));
  for (const [row, at] of indices.entries()) if (at !== null) nullBitmap[row >> 3]! |= 1 << (row % 8);
  const data = (index.ArrayType as Int32ArrayConstructor).from(indices, (at) => at ?? 99); // what is null has any index
  const nullCount = indices.filter((at) => at === null).length;
  return arrow.makeData({ type, length: indices.length, nullCount, nullBitmap, data, dictionary: values });
}

function batch(columns: Record<string, arrow.Data>): arrow.RecordBatch {
  const fields = Object.entries(columns).map(([name, { type }]) => new arrow.Field(name, type, true));
  const children = Object.values(columns);
  const { length } = children[0]!;
  return new arrow.RecordBatch(
    new arrow.Schema(fields),
    arrow.makeData({ type: new arrow.Struct(fields), length, nullCount: 0, children }),
  );
}

/** Rows of `d` as they are read: by warpjoin whole and in batches, and by apache-arrow. */
async function read(path: string) {
  const whole = await readTable(path);
  const batches: arrow.RecordBatch[] = [];
  for await (const of of scanFiles(path)) batches.push(of);
  const other = arrow.tableFromIPC(await readFile(path));
  const rows = toRows(whole);
  expect(toRows(new arrow.Table(batches[0]!.schema, batches))).toEqual(rows);
  expect(toRows(other)).toEqual(rows);
  return { rows, values: (whole.batches[0]!.data.children[0] as arrow.Data).dictionary!, file: other };
}

const TYPES: Record<string, [arrow.DataType, Value[]]> = {
  utf8: [new arrow.Utf8(), ['a', 'bc', '', 'd\u00e9', 'e', 'ff']],
  large_utf8: [new arrow.LargeUtf8(), ['a', 'bc', '', 'd\u00e9', 'e', 'ff']],
  binary: [new arrow.Binary(), [bytes(1), bytes(), bytes(1, 255), bytes(0), bytes(0, 0), bytes(9)]],
  fixed_binary: [new arrow.FixedSizeBinary(2), [bytes(1, 2), bytes(1, 3), bytes(0, 0), bytes(255, 1), bytes(2, 1), bytes(7, 7)]],
  int64: [new arrow.Int64(), [1n, -1n, 1n << 40n, 0n, 5n, 6n]],
  float64: [new arrow.Float64(), [0, -0, 1.5, Number.NaN, Number.POSITIVE_INFINITY, -1]],
  timestamp: [new arrow.TimestampMillisecond(), [0, 1000, -5, 86_400_000, 7, 8]],
};

describe.each(Object.entries(TYPES))('dictionaries of %s', (name, [type, all]) => {
  const values = (...positions: number[]) =>
    arrow.vectorFromArray(
      positions.map((at) => all[at]!),
      type,
    ) as arrow.Vector;
  const dictionaries = [values(0, 1, 2), values(2, 3, 0), values(5, 4, 3), values(0, 1, 2), values(4, 1)];
  const batches = dictionaries.map((of) => batch({ d: column(of, [1, null, 0, of.length - 1, 1]) }));

  test('are one that has each value once, in the order in which they come', async () => {
    const path = at(`${name}.arrow`);
    expect(await writeBatches(batches, path)).toBe(25);
    const { rows, values, file } = await read(path);
    expect(rows).toEqual(batches.flatMap((of) => toRows(new arrow.Table(of.schema, [of]))));
    const plain = arrow.vectorFromArray(
      [0, 1, 2, 3, 5, 4].map((at) => all[at]!),
      type,
    ) as arrow.Vector;
    expect([...values]).toEqual([...plain]);
    expect([...file.getChild('d')!.data[0]!.dictionary!]).toEqual([...plain]);
  });

  test('likewise of a table, as bytes of a file', () => {
    const table = new arrow.Table(batches[0]!.schema, batches);
    const read = arrow.tableFromIPC(toIPC(table, { format: 'file' }));
    expect(toRows(read)).toEqual(toRows(table));
    expect((read.batches[0]!.data.children[0] as arrow.Data).dictionary!.data.map(({ length }) => length)).toEqual([6]);
  });
});

const UTF8 = new arrow.Utf8();
const texts = (...of: (string | null)[]) => arrow.vectorFromArray(of, UTF8) as arrow.Vector;
const rowsOf = (batches: readonly arrow.RecordBatch[]) => batches.flatMap((of) => toRows(new arrow.Table(of.schema, [of])));
async function check(name: string, batches: arrow.RecordBatch[], size: number) {
  const path = at(`${name}.arrow`);
  await writeBatches(batches, path);
  const { rows, values } = await read(path);
  expect(rows).toEqual(rowsOf(batches));
  expect(values.length).toBe(size);
}

test('the batches of tables that apache-arrow makes', async () => {
  const batches = [0, 1, 2].flatMap((i) => arrow.tableFromArrays({ d: [`a${i}`, 'c', `b${i}`] }).batches);
  await check('tables', batches, 7);
});

test('Polars reads the file of a table', async () => {
  const batches = ['a', 'b', 'c'].map((text) => batch({ d: column(texts(text, 'c', `${text}${text}`), [0, 1, 2]) }));
  const table = new arrow.Table(batches[0]!.schema, batches);
  await writeTable(table, at('one.arrow'));
  const values = [...table.getChild('d')!];
  expect([...(await readTable(at('one.arrow'))).getChild('d')!]).toEqual(values);
  for (const bytes of [await readFile(at('one.arrow')), Buffer.from(toIPC(table, { format: 'file' }))])
    expect(polars.readIPC(bytes).getColumn('d').toArray()).toEqual(values);
});

test('a dictionary stays where it is the same, or has more values, or fewer of them', async () => {
  const [a, b] = [texts('a', 'b'), texts('c')];
  const longer = new arrow.Vector([...a.data, ...b.data]);
  const of = (values: arrow.Vector) => batch({ d: column(values, [0, 1]) });
  await check('longer', [of(a), of(longer), of(a), of(longer)], 3);
});

test('two dictionaries in turn are there once each, also where types have no bytes or values are null', async () => {
  for (const [name, one, other, size] of [
    ['texts', texts('a', 'b'), texts('b', 'c'), 3],
    ['nulls', texts('a', null), texts(null, 'a'), 2],
    [
      'booleans',
      arrow.vectorFromArray([true, false], new arrow.Bool()),
      arrow.vectorFromArray([false, true], new arrow.Bool()),
      4,
    ],
  ] as const) {
    const of = (values: arrow.Vector) => batch({ d: column(values, [0, 1, null]) });
    await check(`turns-${name}`, [of(one), of(other), of(one), of(other)], size);
  }
});

test('a value that is twice in the first dictionary', async () => {
  await check('twice', [batch({ d: column(texts('a', 'b', 'a'), [2, 1, 0]) }), batch({ d: column(texts('c', 'a'), [0, 1]) })], 4);
});

test('a first batch of no rows, and no values', async () => {
  await check('none', [batch({ d: column(texts(), []) }), batch({ d: column(texts('a'), [0]) })], 1);
});

test('batches of no rows, and tables of no batches', async () => {
  const d = column(texts('a', 'b'), [0, 1]);
  const none = arrow.makeData({ type: d.type, length: 0, nullCount: 0 } as never) as arrow.Data;
  await check('no-rows', [batch({ d }), batch({ d: none }), batch({ d })], 2);
  const list = new arrow.List(new arrow.Field('item', d.type, true));
  const schema = new arrow.Schema([new arrow.Field('d', d.type), new arrow.Field('l', list)]);
  await writeTable(new arrow.Table(schema), at('no-batches.arrow'));
  const { numRows, schema: read } = await readTable(at('no-batches.arrow'));
  expect([numRows, String(read)]).toEqual([0, String(schema)]);
});

test('slices, and dictionaries within other types', async () => {
  const of = (...values: string[]) => {
    const d = column(texts(...values), [0, 1, null, 1, 0], new arrow.Int8());
    const struct = new arrow.Struct([new arrow.Field('d', d.type, true)]);
    const list = new arrow.List(new arrow.Field('item', d.type, true));
    const valueOffsets = Int32Array.of(0, 2, 2, 3, 4, 5);
    return batch({
      d,
      s: arrow.makeData({ type: struct, length: 5, nullCount: 0, children: [d] }),
      l: arrow.makeData({ type: list, length: 5, nullCount: 0, valueOffsets, child: d }),
    });
  };
  const batches = [of('a', 'b'), of('b', 'c'), of('d', 'a')];
  await check('nested', [...batches, ...batches.map((all) => all.slice(1, 4))], 4);
});

test('columns with dictionaries of one number', async () => {
  const batches = [
    batch({ d: column(texts('a', 'b'), [0, 1]), e: column(texts('b', 'c'), [0, 1]) }),
    batch({ d: column(texts('x'), [0, 0]), e: column(texts('c', 'a'), [0, 1]) }),
  ];
  await check('shared', batches, 4);
});

describe('what no file holds', () => {
  const write = (batches: arrow.RecordBatch[]) => failure(writeBatches(batches, at('refused.arrow')));

  test('more values than indices number', async () => {
    const of = (from: number) =>
      batch({ d: column(texts(...Array.from({ length: 100 }, (_, i) => `t${from + i}`)), [0, 99], new arrow.Int8()) });
    await check('most', [of(0), of(28)], 128);
    const error = await write([of(0), of(29)]);
    expect(error).toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    expect(error.message).toContain('The dictionaries of column "d" have more values together than Int8 indices number');
    const table = new arrow.Table(of(0).schema, [of(0), of(29)]);
    expect(() => toIPC(table, { format: 'file' })).toThrow(expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }));
    expect(toRows(arrow.tableFromIPC(toIPC(table)))).toEqual(toRows(table));
  });

  test('other dictionaries with dictionaries within', async () => {
    const of = (text: string) => batch({ d: column(new arrow.Vector([column(texts(text), [0])]), [0], new arrow.Int32(), 8) });
    const error = await write([of('a'), of('b')]);
    expect(error).toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    expect(error.message).toContain('column "d" differ, and have dictionaries within');
  });

  test('indices that stand for no value', async () => {
    const error = await write([batch({ d: column(texts('a'), [0]) }), batch({ d: column(texts('b'), [0, 1]) })]);
    expect(error).toMatchObject({ code: 'ERR_INVALID_TABLE' });
    expect(error.message).toContain("Column 'd' has an index in row 1 that stands for none of the 1 values of its dictionary");
  });
});

test('a Parquet file whose row groups have dictionaries, sorted into an Arrow file within a limit', async () => {
  const rows = 1_500_000;
  const d = texts(...Array.from({ length: 5000 }, (_, i) => `text ${i}`));
  const indices = Array.from({ length: rows }, (_, row) => (row * 7919) % 5000);
  const table = new arrow.Table({ d: new arrow.Vector([column(d, indices)]) });
  await writeTable(table, at('in.parquet'));
  await printed('sort', at('in.parquet'), '--by', 'd', '-o', at('sorted.arrow'), '--memory-limit', '12MiB');
  const sorted = (await readTable(at('sorted.arrow'))).getChild('d')!;
  expect(sorted.length).toBe(rows);
  expect(sorted.get(0)).toBe('text 0');
  expect(sorted.get(rows - 1)).toBe('text 999');
});
