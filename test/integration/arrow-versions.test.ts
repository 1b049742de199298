/** Tables of several apache-arrow versions side by side: a result is made of the classes of the caller's table. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as newest from 'apache-arrow';
import * as oldest from 'apache-arrow-15';
import * as middle from 'apache-arrow-18';
import { afterAll, describe, expect, test } from 'vitest';
import { readTable, writeBatches, writeTable } from '../../lib/io/index.js';
import { splittingEngine, testEngine } from '../support/engines.js';
import { plainRows as rows } from '../support/nested.js';
import { failure, unordered } from '../support/tables.js';

type Arrow = typeof newest;
/** Without its names: bundled and minified, like in an application. */
const minified = createRequire(import.meta.url)('apache-arrow/Arrow.es2015.min') as Arrow;
const versions = { '15': oldest as unknown as Arrow, '18': middle as unknown as Arrow, '21': newest, minified };
type Version = keyof typeof versions;
const names = Object.keys(versions) as Version[];

const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
const splitting = splittingEngine(1, 100, { memoryLimit: '256MiB', threads: 2 });
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-versions-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await engine.dispose();
  await splitting.dispose();
});

const length = 60;
const some = <T>(value: (row: number) => T) => Array.from({ length }, (_, row) => (row % 7 === 3 ? null : value(row)));
/** Columns of all types that results can have, by that version's own functions. */
function columnsOf(arrow: Arrow): Record<string, newest.Vector> {
  const vector = arrow.vectorFromArray as (values: unknown[], type: newest.DataType) => newest.Vector;
  const whole = (type: newest.DataType, values: ArrayBufferView) =>
    new arrow.Vector([arrow.makeData({ type, data: values } as never)]);
  const wide = (words: number) => Uint32Array.from({ length: length * words }, (_, at) => (at % words ? 0 : at));
  return {
    id: vector(
      Array.from({ length }, (_, row) => (row * 7) % 20),
      new arrow.Int32(),
    ),
    row: whole(
      new arrow.Int64(),
      BigInt64Array.from({ length }, (_, row) => BigInt(row)),
    ),
    u8: vector(
      some((row) => row),
      new arrow.Uint8(),
    ),
    f16: whole(
      new arrow.Float16(),
      Uint16Array.from({ length }, (_, row) => row * 100),
    ),
    f32: vector(
      some((row) => row / 2),
      new arrow.Float32(),
    ),
    f64: vector(
      some((row) => row / 3),
      new arrow.Float64(),
    ),
    bool: vector(
      some((row) => row % 3 === 0),
      new arrow.Bool(),
    ),
    text: vector(
      some((row) => 'text'.repeat(row % 5)),
      new arrow.Utf8(),
    ),
    large: vector(
      some((row) => `${row}`),
      new arrow.LargeUtf8(),
    ),
    bytes: vector(
      some((row) => Uint8Array.of(row, 1, 2)),
      new arrow.Binary(),
    ),
    day: vector(
      some((row) => new Date(row * 86_400_000)),
      new arrow.DateDay(),
    ),
    instant: vector(
      some((row) => new Date(row * 1000)),
      new arrow.TimestampMillisecond('UTC'),
    ),
    date: vector(
      some((row) => new Date(row * 86_400_000)),
      new arrow.DateMillisecond(),
    ),
    time: vector(
      some((row) => BigInt(row)),
      new arrow.TimeNanosecond(),
    ),
    duration: vector(
      some((row) => BigInt(row)),
      new arrow.DurationMicrosecond(),
    ),
    interval: whole(
      new arrow.IntervalDayTime(),
      Int32Array.from({ length: 2 * length }, (_, at) => at),
    ),
    decimal: whole(new arrow.Decimal(2, 30, 128), wide(4)),
    fixed: vector(
      some((row) => Uint8Array.of(row, 9, 8)),
      new arrow.FixedSizeBinary(3),
    ),
    empty: vector(
      some(() => new Uint8Array(0)),
      new arrow.FixedSizeBinary(0),
    ),
    ...nestedColumnsOf(arrow),
  };
}

/** Types within types, and dictionaries: those that all versions have. */
function nestedColumnsOf(arrow: Arrow): Record<string, newest.Vector> {
  const field = (name: string, type: newest.DataType) => new arrow.Field(name, type, true, new Map([['of', name]]));
  const make = (parts: object) => new arrow.Vector([arrow.makeData({ length, ...parts } as never)]);
  const numbers = (count: number) =>
    arrow.makeData({ type: new arrow.Int32(), length: count, data: Int32Array.from({ length: count }, (_, at) => at) } as never);
  const instants = (count: number) => {
    const type = new arrow.TimestampMillisecond('UTC');
    return (arrow.vectorFromArray as (values: unknown[], type: newest.DataType) => newest.Vector)(
      Array.from({ length: count }, (_, at) => new Date(at * 1000)),
      type,
    ).data[0]!;
  };
  const texts = (count: number) =>
    arrow.vectorFromArray(
      Array.from({ length: count }, (_, at) => `t${at}`),
      new arrow.Utf8(),
    );
  const nullBitmap = Uint8Array.from({ length: 8 }, (_, at) => 0b01110111 ^ at);
  const valueOffsets = Int32Array.from({ length: length + 1 }, (_, row) => Math.floor(row / 2));
  const [text, number, instant] = [new arrow.Utf8(), new arrow.Int32(), new arrow.TimestampMillisecond('UTC')];
  const coded = new arrow.Dictionary(text, new arrow.Int8());
  const dictionary = texts(5);
  const codes = (count: number) =>
    arrow.makeData({
      type: coded,
      length: count,
      data: Int8Array.from({ length: count }, (_, at) => at % 5),
      dictionary,
    } as never);
  const struct = new arrow.Struct([field('n', number), field('t', text), field('i', instant), field('c', coded)] as never);
  const structs = (count: number) =>
    arrow.makeData({
      type: struct,
      length: count,
      nullBitmap,
      children: [numbers(count), texts(count).data[0], instants(count), codes(count)],
    } as never);
  const entries = new arrow.Struct([new arrow.Field('key', text, false), field('value', number)] as never);
  const map = new arrow.Map_(new arrow.Field('entries', entries, false) as never);
  const pairs = arrow.makeData({ type: entries, length: 30, nullCount: 0, children: [texts(30).data[0], numbers(30)] } as never);
  const either = [field('n', number), field('t', text)];
  const typeIds = Int8Array.from({ length }, (_, row) => (row % 3 ? 4 : 1));
  const children = [numbers(length), texts(length).data[0]];
  return {
    code: new arrow.Vector([codes(length)]),
    list: make({ type: new arrow.List(field('item', struct)), nullBitmap, valueOffsets, child: structs(30) }),
    pair: make({ type: new arrow.FixedSizeList(2, field('item', instant)), nullBitmap, child: instants(2 * length) }),
    struct: new arrow.Vector([structs(length)]),
    map: make({ type: map, nullBitmap, valueOffsets, child: pairs }),
    sparse: make({ type: new arrow.SparseUnion([1, 4], either as never), typeIds, children }),
    dense: make({
      type: new arrow.DenseUnion([1, 4], either as never),
      typeIds,
      valueOffsets: Int32Array.from({ length }, (_, row) => row),
      children,
    }),
    nothing: make({ type: new arrow.Null() }),
  };
}
const tableOf = (arrow: Arrow): newest.Table => new arrow.Table(columnsOf(arrow));

/** Checks that the table consists of this copy's classes, down to the types of its columns, and that they work on it. */
function checkTable(made: newest.Table, arrow: Arrow): void {
  const is = (value: object, Class: { prototype: object }) =>
    expect(Object.prototype.isPrototypeOf.call(Class.prototype, value)).toBe(true);
  is(made, arrow.Table);
  is(made.schema, arrow.Schema);
  for (const field of made.schema.fields) is(field, arrow.Field);
  for (const batch of made.batches) {
    is(batch, arrow.RecordBatch);
    is(batch.schema, arrow.Schema);
    is(batch.data, arrow.Data);
    is(batch.data.type, arrow.Struct);
    for (const child of batch.data.children) is(child, arrow.Data);
  }
  const checkType = (type: newest.DataType): void => {
    is(type, arrow.DataType);
    for (const field of (type.children ?? []) as newest.Field[]) {
      is(field, arrow.Field);
      checkType(field.type);
    }
    if (newest.DataType.isDictionary(type)) [type.indices, type.dictionary].forEach(checkType);
  };
  for (const { type } of made.schema.fields) checkType(type);
  const expected = rows(made);
  // Before 21.2 the library writes no IPC of slices of large_utf8 columns, whoever makes them.
  const slices = made.batches.length > 1 && (arrow === versions['15'] || arrow === versions['18']);
  const written = slices
    ? made.select(made.schema.fields.map(({ name }) => name).filter((name) => !name.startsWith('large')))
    : made;
  const bytes = arrow.tableToIPC(written);
  expect(rows(arrow.tableFromIPC(bytes))).toEqual(rows(written));
  expect(newest.tableFromIPC(bytes).numRows).toBe(made.numRows);
  expect(rows(new arrow.Table(made.batches))).toEqual(expected);
  expect(made.toArray()).toHaveLength(made.numRows);
  expect(made.slice(1, 9).numRows).toBe(Math.min(8, Math.max(0, made.numRows - 1)));
  for (const { name } of made.schema.fields) {
    const column = made.getChild(name)!;
    is(column, arrow.Vector);
    expect(column.toArray()).toBeDefined();
    // A union has no nulls, its children do.
    if (!newest.DataType.isUnion(column.type))
      expect([name, column.nullCount]).toEqual([name, expected.filter((row) => row[name] === null).length]);
  }
}

describe.each(names)('version %s', (name) => {
  const arrow = versions[name];
  const input = tableOf(arrow);

  test.each([
    ['in one record batch', engine],
    ['in several', splitting],
  ] as const)('results %s consist of its classes', async (_, engine) => {
    const sorted = await engine.sort(input, { by: ['id', { column: 'row', descending: true }] });
    checkTable(sorted, arrow);
    expect(sorted).toBeInstanceOf(arrow.Table);
    expect(sorted.batches.length > 1).toBe(engine === splitting);
    const inOrder = rows(input).sort(
      (a, b) => Number(a.id) - Number(b.id) || Number.parseInt(String(b.row), 10) - Number.parseInt(String(a.row), 10),
    );
    expect(rows(sorted)).toEqual(inOrder);
    expect(sorted.schema.fields.map(({ type }) => type)).toEqual(input.schema.fields.map(({ type }) => type));
    for (const [index, { type }] of sorted.schema.fields.entries()) expect(type).toBe(input.schema.fields[index]!.type);
    expect(rows(input.concat(sorted))).toEqual([...rows(input), ...inOrder]);

    for (const how of ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const) {
      const joined = await engine.join(input, input.slice(10, 40), { on: 'id', how });
      checkTable(joined, arrow);
      expect(joined.numRows).toBe(await engine.joinCount(input, input.slice(10, 40), { on: 'id', how }));
      expect(input.concat(joined.select(input.schema.fields.map((field) => field.name))).numRows).toBe(length + joined.numRows);
    }
    checkTable(await engine.join(input.slice(0, 5), input.slice(5, 9), { how: 'cross' }), arrow);
  });

  test('and so do results of results, loaded tables and tables without rows', async () => {
    await using loaded = await engine.load(input);
    expect(await loaded.toArrow()).toBe(input);
    expect(loaded.schema).toBe(input.schema);
    await using stays = await engine.sort(loaded, { by: 'row', resident: true });
    checkTable(await stays.toArrow(), arrow);
    checkTable(await engine.join(await engine.sort(input, { by: 'id' }), stays, { on: 'row' }), arrow);
    for (const empty of [new arrow.Table(input.schema), new arrow.Table(input.schema, []), input.slice(0, 0)]) {
      const sorted = await engine.sort(empty, { by: 'id' });
      checkTable(sorted, arrow);
      expect([sorted.numRows, sorted.numCols]).toEqual([0, input.numCols]);
      checkTable(await engine.join(empty, input, { on: 'id', how: 'right' }), arrow);
    }
    const without = new arrow.Table(new arrow.Schema([]));
    checkTable(await engine.join(without, input, { how: 'cross' }), arrow);
  });

  test('a class that extends its tables counts as it', async () => {
    class Named extends arrow.Table {
      constructor(readonly title: string) {
        super(input.schema, input.batches);
      }
    }
    checkTable(await engine.sort(new Named('flights'), { by: 'id' }), arrow);
  });

  test.each(['arrow', 'parquet', 'csv', 'ndjson'] as const)('files of its tables and batches: %s', async (format) => {
    const chosen = format === 'arrow' ? input.schema.names : ['id', 'row', 'text', 'bool', 'day', 'instant', 'decimal', 'code'];
    const path = (of: string) => join(folder, `${name}-${of}.${format}`);
    const same = tableOf(newest).select(chosen);
    await writeTable(same, path('newest'));
    const table = input.select(chosen);
    await writeTable(table, path('table'));
    expect(await writeBatches(table.batches, path('batches'))).toBe(length);
    const expected = rows(await readTable(path('newest')));
    if (format === 'arrow') expect(expected).toEqual(rows(same));
    for (const of of ['table', 'batches']) expect(rows(await readTable(path(of)))).toEqual(expected);
  });

  test('metadata stays', async () => {
    const { schema, batches } = input.select(['id', 'text']);
    const fields = schema.fields.map(({ name, type }) => new arrow.Field(name, type, true, new Map([['of', name]])));
    const described = new arrow.Schema(fields as never, new Map([['by', 'me']]));
    const table = new arrow.Table(
      described,
      batches.map((batch) => new arrow.RecordBatch(described, batch.data as never)),
    );
    const sorted = await engine.sort(table, { by: 'id' });
    expect([...sorted.schema.metadata]).toEqual([['by', 'me']]);
    expect(sorted.schema.fields.map((field) => [...field.metadata])).toEqual([[['of', 'id']], [['of', 'text']]]);
  });
});

describe('two versions', () => {
  const pairs = names.flatMap((left) => names.filter((right) => right !== left).map((right) => [left, right] as const));
  test.each(pairs)('a join of %s with %s has the classes of the first', async (one, other) => {
    const [left, right] = [tableOf(versions[one]), tableOf(versions[other])];
    const select = ['id', 'row', ...right.schema.fields.map(({ name }) => `${name}_right`).slice(1)];
    for (const on of [engine, splitting]) {
      const joined = await on.join(left, right, { on: 'id', select });
      checkTable(joined, versions[one]);
      const expected = await on.join(left, tableOf(versions[one]), { on: 'id', select });
      expect(unordered(rows(joined))).toEqual(unordered(rows(expected)));
      expect(joined.concat(await on.join(left, right, { on: 'id', select })).numRows).toBe(2 * expected.numRows);
    }
  });

  test.each(pairs)('coalesced keys of %s with %s have classes of the first', async (one, other) => {
    const [left, right] = [tableOf(versions[one]), tableOf(versions[other])];
    for (const [leftOn, rightOn, type] of [
      ['u8', 'id', 'Int32'],
      ['id', 'decimal', 'Decimal[30e2]'],
      ['f16', 'f64', 'Float64'],
      ['day', 'date', 'Date64<MILLISECOND>'],
      ['code', 'large', 'LargeUtf8'],
      ['fixed', 'empty', 'Binary'],
      ['nothing', 'instant', 'Timestamp<MILLISECOND, UTC>'],
    ] as const) {
      const options = { leftOn, rightOn, how: 'full', coalesce: true, select: [leftOn] } as const;
      const joined = await engine.join(left, right, options);
      checkTable(joined, versions[one]);
      expect([leftOn, `${joined.schema.fields[0]!.type}`.replace('+2', '2')]).toEqual([leftOn, type]);
      const expected = await engine.join(left, tableOf(versions[one]), options);
      expect(unordered(rows(joined))).toEqual(unordered(rows(expected)));
    }
  });

  test('a type that the first one does not have is refused', async () => {
    const interval = new newest.IntervalMonthDayNano();
    const values = newest.makeVector(newest.makeData({ type: interval, data: new Int32Array(4 * length) }));
    const right = new newest.Table({ id: newest.makeVector(new Int32Array(length)), span: values });
    expect((await engine.join(tableOf(newest), right, { on: 'id' })).getChild('span')!.type).toBe(interval);
    for (const name of ['15', '18'] as const) {
      const left = tableOf(versions[name]);
      const error = await failure(engine.join(left, right, { on: 'id' }));
      expect(error).toMatchObject({
        code: 'ERR_NOT_SUPPORTED',
        message: expect.stringMatching(/^Column "span" has type interval, which the apache-arrow version of the left table,/),
      });
      expect((await engine.join(left, right, { on: 'id', select: ['id'] })).numCols).toBe(1);
    }
  });

  test.each([
    ['large_list<int32>', new newest.LargeList(new newest.Field('item', new newest.Int32()))],
    ['utf8_view', new newest.Utf8View()],
    ['list<binary_view>', new newest.List(new newest.Field('item', new newest.BinaryView()))],
  ])('%s, which the first one does not have, is refused', async (name, type) => {
    const right = new newest.Table(
      new newest.Schema([new newest.Field('id', new newest.Int32()), new newest.Field('odd', type)]),
      [],
    );
    for (const version of ['15', '18'] as const) {
      expect(await failure(engine.join(tableOf(versions[version]), right, { on: 'id' }))).toMatchObject({
        code: 'ERR_NOT_SUPPORTED',
        message: expect.stringMatching(
          new RegExp(`^Column "odd" has type ${name.replace(/^list<(.*)>$/, '$1')}, which the apache-arrow version of`),
        ),
      });
    }
    expect((await engine.join(tableOf(newest), right, { on: 'id', how: 'left' })).getChild('odd')!.type).toBe(type);
  });

  test('IPC bytes become tables of warpjoin’s own', async () => {
    for (const name of names)
      checkTable(await engine.sort(versions[name].tableToIPC(tableOf(versions[name])), { by: 'id' }), newest);
  });

  test('and so do objects that no class of tables made', async () => {
    const { schema, batches } = tableOf(versions['18']);
    const plain = batches.map(({ data }) => ({ data }));
    checkTable(await engine.sort({ schema, batches: plain }, { by: 'id' }), newest);
    class Other {
      readonly schema = schema;
      readonly batches = batches;
      getChildAt(): never {
        throw new Error('Expected nothing to call this');
      }
    }
    checkTable(await engine.sort(new Other(), { by: 'id' }), newest);
  });
});
