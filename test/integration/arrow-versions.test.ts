/** Tables of several apache-arrow versions side by side: a result is made of the classes of the caller's table. */
import { createRequire } from 'node:module';
import * as newest from 'apache-arrow';
import * as oldest from 'apache-arrow-15';
import * as middle from 'apache-arrow-18';
import { afterAll, describe, expect, test } from 'vitest';
import { splittingEngine, testEngine } from '../support/engines.js';
import { failure, rows, unordered } from '../support/tables.js';

type Arrow = typeof newest;
/** Without its names: bundled and minified, like in an application. */
const minified = createRequire(import.meta.url)('apache-arrow/Arrow.es2015.min') as Arrow;
const versions = { '15': oldest as unknown as Arrow, '18': middle as unknown as Arrow, '21': newest, minified };
type Version = keyof typeof versions;
const names = Object.keys(versions) as Version[];

const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
const splitting = splittingEngine(1, 100, { memoryLimit: '256MiB', threads: 2 });
afterAll(async () => {
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
  for (const { type } of made.schema.fields) is(type, arrow.DataType);
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
    expect(column.nullCount).toBe(expected.filter((row) => row[name] === null).length);
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
    const inOrder = rows(input).sort((a, b) => Number(a.id) - Number(b.id) || Number(b.row) - Number(a.row));
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

  test('IPC bytes become tables of warpjoin’s own', async () => {
    for (const name of names)
      checkTable(await engine.sort(versions[name].tableToIPC(tableOf(versions[name])), { by: 'id' }), newest);
  });

  test('and so do objects that no class of tables made', async () => {
    const { schema, batches } = tableOf(versions['18']);
    checkTable(await engine.sort({ schema, batches }, { by: 'id' }), newest);
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
