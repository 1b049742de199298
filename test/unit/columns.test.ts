import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { canBeCarried, findColumn, infoOf, nativeColumns, readArrays, readTable } from '../../lib/columns/input.js';
import { joinLayout, sortLayout } from '../../lib/columns/layout.js';
import { ownLibrary, typeIn } from '../../lib/columns/library.js';
import { buildTable, checkArrayRows, checkTableRows, rowNumbers } from '../../lib/columns/result.js';
import { checkComparable, type ForeignType, typeInfo, typeName } from '../../lib/columns/types.js';
import { noValues, shareDictionary } from '../../lib/columns/values.js';
import type { NativeResultChunk, NativeResultColumn } from '../../lib/native.js';
import { type JoinSettings, joinSchema, joinSettings } from '../../lib/options.js';
import { chunked, rows, table } from '../support/tables.js';

const settings = (options: object): JoinSettings => joinSettings(joinSchema, 'join', options);
const refusal = (run: () => unknown): { code: string; message: string } => {
  try {
    run();
  } catch (error) {
    return error as never;
  }
  throw new Error('Expected a refusal');
};

describe('reading tables', () => {
  const one = table(
    { i: new arrow.Int32(), b: new arrow.Bool(), s: new arrow.Utf8() },
    { i: [1, null, 3, 4, 5], b: [true, false, null, true, true], s: ['a', 'bc', null, '', 'def'] },
  );

  test('whole', () => {
    const input = readTable(one, 'left');
    expect(input.rows).toBe(5);
    expect(input.columns.map((column) => [column.name, column.withoutNulls])).toEqual([
      ['i', false],
      ['b', false],
      ['s', false],
    ]);
    const [i, , s] = nativeColumns(input, [0, 1, 2]);
    expect(i).toMatchObject({
      name: 'i',
      kind: 'fixed',
      order: 'signed',
      width: 4,
      chunks: [{ length: 5, bitOffset: 0, offsets: null }],
    });
    expect(s).toMatchObject({ kind: 'utf8', order: 'bytes', width: 0 });
  });

  test('in slices: values and offsets are trimmed, bitmaps are not', () => {
    const input = readTable(chunked(one, [2, 3]), 'left');
    expect(input.rows).toBe(5);
    for (const column of input.columns)
      expect(column.chunks.map((chunk) => [chunk.length, chunk.bitOffset])).toEqual([
        [2, 0],
        [1, 2],
        [2, 3],
      ]);
    const [i, b, s] = nativeColumns(input, [0, 1, 2]);
    expect(i!.chunks[2]!.values).toEqual(Int32Array.of(4, 5));
    expect((b!.chunks[2]!.values as Uint8Array)[0]! >> 3).toBe(0b11);
    expect((s!.chunks[2]!.offsets as Int32Array).length).toBe(3);
    expect(s!.chunks[2]!.offsets).toEqual(Int32Array.of(3, 3, 6));
  });

  test('a slice of a column without nulls is known to have none only if that was counted', () => {
    const whole = new arrow.Table({ v: arrow.vectorFromArray([1, 2, 3], new arrow.Int32()) });
    expect(readTable(whole, 'left').columns[0]!.withoutNulls).toBe(true);
    expect(readTable(whole.slice(1), 'left').columns[0]!.withoutNulls).toBe(true);
    expect(readTable(one.slice(3), 'left').columns[0]!.withoutNulls).toBe(false);
  });

  test('nulls are never counted here', () => {
    const data = one.batches[0]!.data.children[0]!;
    const spied = new Proxy(data, {
      get(target, name) {
        if (name === 'nullCount') throw new Error('counted');
        return Reflect.get(target, name, target);
      },
    });
    const batch = { data: { length: 5, children: [spied, ...one.batches[0]!.data.children.slice(1)] } };
    expect(readTable({ schema: one.schema, batches: [batch] }, 'left').rows).toBe(5);
  });

  test('empty batches, no batches, IPC bytes', () => {
    const empty = one.slice(2, 2);
    expect(readTable(empty, 'left')).toMatchObject({ rows: 0 });
    expect(readTable(new arrow.Table(one.schema, []), 'left').columns).toHaveLength(3);
    for (const format of ['stream', 'file'] as const) {
      const bytes = arrow.tableToIPC(chunked(one, [1, 4]), format);
      expect(readTable(bytes, 'left').rows).toBe(5);
      expect(readTable(bytes.slice().buffer, 'left').columns[2]!.chunks).toHaveLength(3);
      expect(readTable(Buffer.concat([Buffer.from('x'), bytes]).subarray(1), 'left').rows).toBe(5);
    }
  });

  test.each([
    [
      null,
      'Expected an apache-arrow Table, record batches (one, an array or a reader), or Arrow IPC bytes (a Uint8Array or ArrayBuffer), for the left table but received null.',
    ],
    [[{ id: 1 }], /for the left table but received \[an object of type Object\]. fromRows\(\) makes a table of objects.$/],
    [{ schema: {}, batches: [] }, /for the left table but received an object/],
    ['id,name', /received "id,name"/],
    [new Float64Array(3), /received an object of type Float64Array/],
    [new Uint8Array(0), 'The left table has no bytes: its buffer is empty or detached.'],
    [Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9), /^The left table is not readable as Arrow IPC bytes/],
    [new TextEncoder().encode('id,name\n1,x\n'), /^The left table is not readable as Arrow IPC bytes/],
  ])('%j is no table', (value, message) => {
    const error = refusal(() => readTable(value, 'left'));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(message);
  });

  test('tables that contradict themselves', () => {
    const { schema, batches } = one;
    const children = batches[0]!.data.children;
    const broken = (change: object): string => refusal(() => readTable({ schema, batches, ...change }, 'right')).message;
    expect(broken({ batches: [{ data: { length: 5, children: children.slice(1) } }] })).toContain(
      "record batch (0) that doesn't fit its schema",
    );
    expect(broken({ batches: [{ data: { length: 4, children } }] })).toContain(
      'a column "i" of 5 rows in record batch 0, which has 4',
    );
    expect(broken({ batches: [{}] })).toContain("doesn't fit");
    expect(broken({ schema: { fields: [schema.fields[0], schema.fields[0]] } })).toContain('two columns named "i"');
    expect(broken({ schema: { fields: [{ name: 'i' }] } })).toContain('a field without a name or type');
    const odd = { ...children[0], type: children[0]!.type, length: 5, values: [1, 2, 3, 4, 5] };
    expect(broken({ batches: [{ data: { length: 5, children: [odd, ...children.slice(1)] } }] })).toContain(
      'whose values are not a typed array',
    );
  });

  test('nulls that were counted but whose bits are gone are not forgotten', () => {
    const gone = {
      type: new arrow.Int32(),
      length: 2,
      offset: 0,
      _nullCount: 1,
      values: Int32Array.of(1, 2),
      nullBitmap: undefined,
    };
    const input = readTable(
      { schema: { fields: [{ name: 'i', type: new arrow.Int32() }] }, batches: [{ data: { length: 2, children: [gone] } }] },
      'left',
    );
    expect(input.columns[0]!.chunks[0]!.validity).toEqual(new Uint8Array(0));
    const bits = new Uint8Array(8);
    structuredClone(bits.buffer, { transfer: [bits.buffer] });
    const detached = { ...gone, _nullCount: -1, nullBitmap: bits };
    const other = readTable(
      { schema: { fields: [{ name: 'i', type: new arrow.Int32() }] }, batches: [{ data: { length: 2, children: [detached] } }] },
      'left',
    );
    expect(other.columns[0]!.chunks[0]!.validity).not.toBeNull();
  });

  test('unknown columns get the nearest name', () => {
    const error = refusal(() =>
      findColumn(readTable(table({ customer: new arrow.Int8() }, { customer: [1] }), 'left'), 'custmer', 'on'),
    );
    expect(error).toMatchObject({
      code: 'ERR_COLUMN_NOT_FOUND',
      message: 'Expected a column of the left table for on but received "custmer". It has "customer". Did you mean "customer"?',
    });
  });
});

describe('types', () => {
  const info = (type: arrow.DataType) => typeInfo(type as unknown as ForeignType);

  test.each<[arrow.DataType, string, number, string, string | null]>([
    [new arrow.Int8(), 'fixed', 1, 'signed', 'number'],
    [new arrow.Uint64(), 'fixed', 8, 'unsigned', 'number'],
    [new arrow.Float16(), 'fixed', 2, 'floating', 'float'],
    [new arrow.Float32(), 'fixed', 4, 'floating', 'float'],
    [new arrow.Decimal(2, 30), 'fixed', 16, 'signed', 'number'],
    [new arrow.Decimal(2, 60, 256), 'fixed', 32, 'signed', 'number'],
    [new arrow.DateDay(), 'fixed', 4, 'signed', 'time point'],
    [new arrow.DateMillisecond(), 'fixed', 8, 'signed', 'time point'],
    [new arrow.TimeSecond(), 'fixed', 4, 'signed', 'time of day'],
    [new arrow.TimeNanosecond(), 'fixed', 8, 'signed', 'time of day'],
    [new arrow.TimestampMillisecond(), 'fixed', 8, 'signed', 'time point'],
    [new arrow.TimestampMicrosecond('UTC'), 'fixed', 8, 'signed', 'zoned time point'],
    [new arrow.DurationSecond(), 'fixed', 8, 'signed', 'duration'],
    [new arrow.IntervalYearMonth(), 'fixed', 4, 'none', null],
    [new arrow.IntervalDayTime(), 'fixed', 8, 'none', null],
    [new arrow.IntervalMonthDayNano(), 'fixed', 16, 'none', null],
    [new arrow.FixedSizeBinary(5), 'fixed', 5, 'bytes', 'binary'],
    [new arrow.FixedSizeBinary(0), 'fixed', 0, 'bytes', 'binary'],
    [new arrow.Bool(), 'boolean', 0, 'boolean', 'bool'],
    [new arrow.Utf8(), 'utf8', 0, 'bytes', 'utf8'],
    [new arrow.LargeUtf8(), 'large_utf8', 0, 'bytes', 'utf8'],
    [new arrow.Binary(), 'utf8', 0, 'bytes', 'binary'],
    [new arrow.LargeBinary(), 'large_utf8', 0, 'bytes', 'binary'],
  ])('%s', (type, kind, width, order, comparesAs) => {
    expect(info(type)).toMatchObject({ kind, width, order, comparesAs });
    expect(typeIn(ownLibrary, info(type)!, 'c')).toBe(type);
    // A type of another apache-arrow: the same fields, another class.
    const foreign = { ...type, typeId: type.typeId } as unknown as ForeignType;
    const made = typeIn(ownLibrary, typeInfo(foreign)!, 'c');
    expect(made).not.toBe(foreign);
    expect(arrow.util.compareTypes(made, type)).toBe(true);
  });

  test.each([
    [new arrow.List(new arrow.Field('x', new arrow.Int(true, 24 as never))), 'list<int24>'],
    [new arrow.FixedSizeList(-2, new arrow.Field('x', new arrow.Int8())), 'fixed_size_list<int8>[-2]'],
    [new arrow.Struct([new arrow.Field('a', new arrow.FixedSizeBinary(-1))]), 'struct<a: fixed_size_binary(-1)>'],
    [new arrow.Dictionary(new arrow.Utf8(), new arrow.Int(true, 24 as never) as never), 'dictionary<utf8>'],
    [
      new arrow.SparseUnion([3, 3], [new arrow.Field('a', new arrow.Int8()), new arrow.Field('b', new arrow.Utf8())]),
      'sparse_union<a: int8, b: utf8>',
    ],
    [new arrow.DenseUnion([200], [new arrow.Field('a', new arrow.Int8())]), 'dense_union<a: int8>'],
    [new arrow.Int(true, 24 as never), 'int24'],
    [new arrow.Decimal(0, 5, 24), 'decimal24(5, 0)'],
    [new arrow.Interval(7 as never), 'interval'],
  ])('%s is not supported', (type, name) => {
    expect(info(type)).toBeNull();
    expect(typeName(type as unknown as ForeignType)).toBe(name);
    const schema = new arrow.Schema([new arrow.Field('x', new arrow.Int8()), new arrow.Field('odd', type)]);
    const input = readTable(new arrow.Table(schema, []), 'left');
    expect(refusal(() => infoOf(input, 1))).toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
      message: `Column "odd" of the left table has type ${name}, which is not supported yet. Leave it out with select.`,
    });
    expect(sortLayout(input, ['x'])).toHaveLength(1);
    expect(refusal(() => sortLayout(input, undefined)).code).toBe('ERR_NOT_SUPPORTED');
  });

  test.each<[arrow.DataType, arrow.DataType, string | null]>([
    [new arrow.Int8(), new arrow.Uint64(), null],
    [new arrow.Float32(), new arrow.Float64(), null],
    [new arrow.Utf8(), new arrow.LargeUtf8(), null],
    [new arrow.TimestampSecond('UTC'), new arrow.TimestampSecond('Europe/Berlin'), null],
    [new arrow.TimestampSecond('UTC'), new arrow.TimestampSecond(), 'ERR_KEY_TYPE'],
    [new arrow.TimestampSecond(), new arrow.TimestampMillisecond(), null],
    [new arrow.Int32(), new arrow.Float64(), 'ERR_KEY_TYPE'],
    [new arrow.Int32(), new arrow.DateDay(), 'ERR_KEY_TYPE'],
    [new arrow.Utf8(), new arrow.Binary(), 'ERR_KEY_TYPE'],
    [new arrow.DateDay(), new arrow.DateMillisecond(), null],
    [new arrow.Bool(), new arrow.Uint8(), 'ERR_KEY_TYPE'],
    [new arrow.Decimal(1, 10), new arrow.Int16(), null],
    [new arrow.Float16(), new arrow.Float64(), null],
    [new arrow.Null(), new arrow.Utf8(), null],
    [new arrow.IntervalDayTime(), new arrow.IntervalDayTime(), 'ERR_NOT_SUPPORTED'],
  ])('%s and %s as keys: %s', (a, b, code) => {
    const check = () => checkComparable({ label: 'left', info: info(a)! }, { label: 'right', info: info(b)! });
    if (code === null) expect(check).not.toThrow();
    else expect(refusal(check).code).toBe(code);
  });

  test.each<[arrow.DataType, arrow.DataType, [number, number], [number, number]]>([
    [new arrow.Int8(), new arrow.Int64(), [0, 1], [0, 1]],
    [new arrow.Decimal(2, 10), new arrow.Int32(), [0, 1], [2, 1]],
    [new arrow.Decimal(-3, 10), new arrow.Decimal(1, 30, 256), [4, 1], [0, 1]],
    [new arrow.DateDay(), new arrow.DateDay(), [0, 1], [0, 1]],
    [new arrow.DateDay(), new arrow.DateMillisecond(), [3, 86400], [0, 1]],
    [new arrow.TimestampNanosecond(), new arrow.DateDay(), [0, 1], [9, 86400]],
    [new arrow.TimeSecond(), new arrow.TimeMicrosecond(), [6, 1], [0, 1]],
    [new arrow.DurationNanosecond(), new arrow.DurationMillisecond(), [0, 1], [6, 1]],
    [new arrow.Dictionary(new arrow.DateDay(), new arrow.Int8()), new arrow.TimestampSecond(), [0, 86400], [0, 1]],
    [new arrow.Decimal(2, 10), new arrow.Null(), [0, 1], [0, 1]],
  ])('%s and %s are brought to one unit', (a, b, left, right) => {
    const factors = checkComparable({ label: 'left', info: info(a)! }, { label: 'right', info: info(b)! });
    expect([factors.left, factors.right].map(({ pow10, times }) => [pow10, times])).toEqual([left, right]);
  });
});

describe('layout of a join', () => {
  const left = readTable(table({ id: new arrow.Int32(), x: new arrow.Int8() }, { id: [1], x: [1] }), 'left');
  const right = readTable(
    table({ id: new arrow.Int64(), x: new arrow.Utf8(), y: new arrow.Bool() }, { id: [1n], x: ['a'], y: [true] }),
    'right',
  );
  const layout = (options: object) =>
    joinLayout(left, right, settings({ on: 'id', ...options })).columns.map(
      ({ name, source, column }) => `${name}=${source[0]}${column}`,
    );

  test.each([
    [{}, ['id=l0', 'x=l1', 'x_right=r1', 'y=r2']],
    [{ coalesce: false }, ['id=l0', 'x=l1', 'id_right=r0', 'x_right=r1', 'y=r2']],
    [{ how: 'right' }, ['id=r0', 'x=l1', 'x_right=r1', 'y=r2']],
    [{ how: 'full', suffix: '2' }, ['id=l0', 'x=l1', 'id2=r0', 'x2=r1', 'y=r2']],
    [{ how: 'semi' }, ['id=l0', 'x=l1']],
    [{ how: 'anti', select: ['x'] }, ['x=l1']],
    [{ select: ['y', 'id', 'x_right'] }, ['y=r2', 'id=l0', 'x_right=r1']],
    [{ on: undefined, how: 'cross' }, ['id=l0', 'x=l1', 'id_right=r0', 'x_right=r1', 'y=r2']],
    [{ on: undefined, leftOn: 'x', rightOn: 'id' }, ['id=l0', 'x=l1', 'x_right=r1', 'y=r2']],
  ])('%j', (options, columns) => {
    expect(layout(options)).toEqual(columns);
  });

  test.each([
    [2, 3, 'utf8', 'right'],
    [3, 3, 'utf8', 'right'],
    [3, 2, 'utf8', 'left'],
    [2, 3, 'int32', 'left'],
  ])('a key of %i and %i rows of %s comes from the %s side', (leftRows, rightRows, type, side) => {
    const of = (rows: number) =>
      readTable(
        type === 'utf8'
          ? table({ k: new arrow.Utf8() }, { k: Array(rows).fill('a') })
          : table({ k: new arrow.Int32() }, { k: Array(rows).fill(1) }),
        'left',
      );
    const key = (how: string) => joinLayout(of(leftRows), of(rightRows), settings({ on: 'k', how })).columns[0];
    expect(key('inner')).toMatchObject({ name: 'k', source: side, column: 0 });
    expect(key('left')).toMatchObject({ source: 'left' });
  });

  test('a coalesced key of a full join has a type that both columns can become', () => {
    const [common] = joinLayout(left, right, settings({ on: 'id', how: 'full', coalesce: true })).columns;
    const factor = { pow10: 0, times: 1 };
    const as = {
      kind: 'fixed',
      order: 'signed',
      width: 8,
      factor,
      column: 'Column "id" of the left table (int32)',
      target: 'int64',
    };
    expect(common).toMatchObject({ source: 'coalesced', type: new arrow.Int64(), common: { as: { left: as, right: null } } });
    const same = joinLayout(left, left, settings({ on: 'id', how: 'full', coalesce: true }));
    expect(same.columns.map((column) => column.source)).toEqual(['coalesced', 'left', 'right']);
  });

  test('names that clash in spite of the suffix', () => {
    const clashing = readTable(
      table({ id: new arrow.Int32(), x: new arrow.Int8(), x_right: new arrow.Int8() }, { id: [1], x: [1], x_right: [1] }),
      'right',
    );
    expect(joinLayout(left, clashing, settings({ on: 'id' })).columns.map((column) => column.name)).toEqual([
      'id',
      'x',
      'x_right_right',
      'x_right',
    ]);
    expect(joinLayout(left, clashing, settings({ on: 'id', suffix: '_r' })).columns.map((column) => column.name)).toEqual([
      'id',
      'x',
      'x_r',
      'x_right',
    ]);
  });

  test('select', () => {
    expect(refusal(() => layout({ select: ['z'] }))).toMatchObject({ code: 'ERR_COLUMN_NOT_FOUND' });
    expect(refusal(() => layout({ select: ['x_rihgt'] })).message).toContain('Did you mean "x_right"?');
    expect(refusal(() => layout({ select: ['x', 'x'] })).message).toBe(
      'Expected each column once for select but received "x" twice.',
    );
    expect(refusal(() => layout({ how: 'semi', select: ['y'] })).code).toBe('ERR_COLUMN_NOT_FOUND');
  });

  test('nullability', () => {
    const strict = { ...left, columns: left.columns.map((column) => ({ ...column, nullable: false })) };
    const nullable = (how: string) =>
      joinLayout(strict, strict, settings({ on: 'id', how })).columns.map((column) => column.nullable);
    expect(nullable('inner')).toEqual([false, false, false]);
    expect(nullable('left')).toEqual([false, false, true]);
    expect(nullable('right')).toEqual([false, true, false]);
    expect(nullable('full')).toEqual([true, true, true, true]);
  });
});

describe('results', () => {
  const native = (values: ArrayBuffer, length: number, more: object = {}): NativeResultColumn => ({
    length,
    nullCount: 0,
    validity: null,
    chunks: [{ length, values, offsets: null }],
    ...more,
  });
  const origin = { library: ownLibrary, metadata: undefined };
  const column = (name: string, type: arrow.DataType, nullable = false) => ({
    name,
    type,
    nullable,
    metadata: new Map([['unit', name]]),
    source: 'left' as const,
    column: 0,
    of: noValues(null),
  });

  test('share the buffers they are made of', () => {
    const values = Int32Array.of(1, 2, 3).buffer;
    const letters = new TextEncoder().encode('abc').buffer as ArrayBuffer;
    const text = native(letters, 3, {
      nullCount: 1,
      validity: Uint8Array.of(0b101).buffer,
      chunks: [{ length: 3, values: letters, offsets: Int32Array.of(0, 1, 1, 3).buffer }],
    });
    const layout = [column('i', new arrow.Int32()), column('s', new arrow.Utf8()), column('b', new arrow.Bool())];
    const out = buildTable(layout, [native(values, 3), text, native(Uint8Array.of(0b110).buffer, 3)], 3, {
      library: ownLibrary,
      metadata: new Map([['who', 'me']]),
    });
    expect(out.batches).toHaveLength(1);
    expect(rows(out)).toEqual([
      { i: 1, s: 'a', b: false },
      { i: 2, s: null, b: true },
      { i: 3, s: 'bc', b: true },
    ]);
    expect(out.batches[0]!.data.children[0]!.values.buffer).toBe(values);
    expect(out.schema.fields.map((field) => [field.nullable, field.metadata.get('unit')])).toEqual([
      [false, 'i'],
      [true, 's'],
      [false, 'b'],
    ]);
    expect(out.schema.metadata.get('who')).toBe('me');
    expect(rows(arrow.tableFromIPC(arrow.tableToIPC(out)))).toEqual(rows(out));
  });

  test('of no rows', () => {
    const nothing = new ArrayBuffer(0);
    const types = [
      new arrow.Int64(),
      new arrow.Utf8(),
      new arrow.LargeUtf8(),
      new arrow.Bool(),
      new arrow.Decimal(1, 9),
      new arrow.FixedSizeBinary(3),
    ];
    const out = buildTable(
      types.map((type, index) => column(`c${index}`, type)),
      types.map(() => native(nothing, 0, { chunks: [{ length: 0, values: nothing, offsets: new ArrayBuffer(8) }] })),
      0,
      origin,
    );
    expect(out.numRows).toBe(0);
    expect(out.toArray()).toEqual([]);
    expect(arrow.tableFromIPC(arrow.tableToIPC(out)).numCols).toBe(6);
  });

  test('have a record batch for each part without a cut in any column', () => {
    // Rows 0 to 20, cut at 8 and 16; at 3, 11 and 12; not at all; at 16.
    const expected = Array.from({ length: 20 }, (_, row) => ({
      i: row % 5 === 2 ? null : row * 10,
      s: 'x'.repeat(row % 4),
      b: row % 5 === 2 ? null : row % 3 === 0,
      w: row % 3 === 1,
    }));
    const bits = (of: (row: number) => boolean, begin = 0, end = 20): ArrayBuffer => {
      const bytes = new Uint8Array(Math.ceil((end - begin) / 8));
      for (let row = begin; row < end; row++) if (of(row)) bytes[(row - begin) >> 3]! |= 1 << ((row - begin) & 7);
      return bytes.buffer;
    };
    const column = (
      nullable: boolean,
      ends: number[],
      chunk: (begin: number, end: number) => Omit<NativeResultChunk, 'length'>,
    ) => ({
      length: 20,
      nullCount: nullable ? 4 : 0,
      validity: nullable ? bits((row) => row % 5 !== 2) : null,
      chunks: ends.map((end, index) => ({ length: end - (ends[index - 1] ?? 0), ...chunk(ends[index - 1] ?? 0, end) })),
    });
    const integers = column(true, [8, 16, 20], (begin, end) => ({
      values: BigInt64Array.from({ length: end - begin }, (_, at) => BigInt((begin + at) * 10)).buffer,
      offsets: null,
    }));
    const texts = column(false, [3, 11, 12, 20], (begin, end) => {
      const offsets = [0];
      for (let row = begin; row < end; row++) offsets.push(offsets.at(-1)! + (row % 4));
      return { values: new Uint8Array(offsets.at(-1)!).fill(120).buffer, offsets: Int32Array.from(offsets).buffer };
    });
    const booleans = column(true, [20], (begin, end) => ({ values: bits((row) => row % 3 === 0, begin, end), offsets: null }));
    const others = column(false, [16, 20], (begin, end) => ({ values: bits((row) => row % 3 === 1, begin, end), offsets: null }));
    const types = { i: new arrow.Int64(), s: new arrow.Utf8(), b: new arrow.Bool(), w: new arrow.Bool() };
    const layout = Object.entries(types).map(([name, type]) => ({
      name,
      type,
      nullable: false,
      metadata: undefined,
      of: noValues(null),
    }));
    const out = buildTable(layout, [integers, texts, booleans, others], 20, origin);
    expect(out.batches.map((batch) => batch.numRows)).toEqual([3, 5, 3, 1, 4, 4]);
    const plain = (of: arrow.Table) => rows(of).map((row) => ({ ...row, i: row.i === null ? null : Number(row.i) }));
    expect(plain(out)).toEqual(expected);
    expect(out.getChild('i')!.nullCount).toBe(4);
    expect(plain(arrow.tableFromIPC(arrow.tableToIPC(out)))).toEqual(expected);
    expect(plain(out.slice(2, 13))).toEqual(expected.slice(2, 13));
    expect(plain(buildTable(layout.slice(0, 1), [integers], 20, origin))).toEqual(expected.map(({ i }) => ({ i })));
    expect(out.getChild('s')!.toArray()).toEqual(expected.map(({ s }) => s));
  });

  test('of more rows than a table holds are refused', () => {
    expect(() => checkTableRows(2 ** 32 - 1, 'Do less.')).not.toThrow();
    expect(refusal(() => checkTableRows(2 ** 32, 'Do less.'))).toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
      message: 'The result has 4294967296 rows; an apache-arrow table holds at most 4294967295. Do less.',
    });
  });

  test('of more rows than a typed array holds are refused', () => {
    expect(() => checkArrayRows(2 ** 29, 8, 'Do less.', 2 ** 32)).not.toThrow();
    expect(refusal(() => checkArrayRows(2 ** 29 + 1, 8, 'Do less.', 2 ** 32))).toMatchObject({
      code: 'ERR_NOT_SUPPORTED',
      message: expect.stringMatching(
        /^The result has 536870913 rows, 4.* in one typed array; .* holds at most 4 GiB in one. Do less.$/,
      ),
    });
  });

  test('row numbers tell their width by their size', () => {
    expect(rowNumbers(native(Uint32Array.of(1, 2).buffer, 2))).toEqual(Uint32Array.of(1, 2));
    expect(rowNumbers(native(BigUint64Array.of(1n, 2n).buffer, 2))).toEqual(BigUint64Array.of(1n, 2n));
    expect(rowNumbers(native(new ArrayBuffer(0), 0))).toEqual(new Uint32Array(0));
  });
});

describe('typed arrays', () => {
  test('become columns', () => {
    const input = readArrays({ keys: Int16Array.of(1, 2), values: new Float64Array([1, 2, 3]).subarray(1) }, 'r');
    expect(input).toMatchObject({
      rows: 2,
      columns: [{ name: 'keys', withoutNulls: true }, { chunks: [{ length: 2, values: Float64Array.of(2, 3) }] }],
    });
    expect([canBeCarried(input, 0), canBeCarried(input, 1)]).toEqual([false, true]);
    expect(readArrays({ keys: new Int8Array(0), values: new Int8Array(0) }, 'r').columns[0]!.chunks).toEqual([]);
  });

  test.each([
    [
      { keys: [1, 2], values: Int8Array.of(1) },
      'Expected a typed array of numbers or bigints for keys of r but received [1, 2].',
    ],
    [{ keys: Int8Array.of(1), values: undefined }, /for values of r but received undefined/],
    [
      { keys: Int8Array.of(1), values: Int8Array.of(1, 2) },
      'Expected arrays of the same length for r but values has 2 values and not 1.',
    ],
    [
      { keys: new DataView(new ArrayBuffer(8)), values: Int8Array.of(1) },
      /for keys of r but received an object of type DataView/,
    ],
  ])('%j is refused', (arrays, message) => {
    const error = refusal(() => readArrays(arrays, 'r'));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(message);
  });

  test('a detached array is refused', () => {
    const keys = Int8Array.of(1, 2);
    structuredClone(keys.buffer, { transfer: [keys.buffer] });
    expect(refusal(() => readArrays({ keys, values: new Int8Array(0) }, 'r'))).toMatchObject({
      code: 'ERR_INVALID_TABLE',
      message: expect.stringContaining('detached'),
    });
  });
});

describe('one dictionary for two columns', () => {
  const column = (values: readonly string[] | arrow.Vector, indices: arrow.Int, rows = 2) => {
    const dictionary = Array.isArray(values) ? arrow.vectorFromArray(values, new arrow.Utf8()) : (values as arrow.Vector);
    const type = new arrow.Dictionary(new arrow.Utf8(), indices as never);
    const data = new (indices.ArrayType as Int8ArrayConstructor)(rows);
    const vector = arrow.makeVector(arrow.makeData({ type, length: rows, data, dictionary } as never));
    return readTable(new arrow.Table({ d: vector }), 'left');
  };
  const share = (left: ReturnType<typeof column>, right: ReturnType<typeof column>) =>
    shareDictionary(left.columns[0]!, infoOf(left, 0), right.columns[0]!, infoOf(right, 0), 'left');

  test('that they have already stays', () => {
    const values = arrow.vectorFromArray(['x', 'y'], new arrow.Utf8());
    const [one, other] = share(column(values, new arrow.Int8()), column(values, new arrow.Int8()));
    expect(one.dictionary).toBe(other.dictionary);
    expect(one.dictionary).toMatchObject({ shared: values, isUnified: false });
    expect([one.info.width, other.info.width]).toEqual([1, 1]);
    expect(other.chunks).toMatchObject([{ dictionaryBase: 0, dictionarySize: 2 }]);
  });

  test('is made of theirs', () => {
    const left = column(['x', 'y'], new arrow.Int8());
    const [one, other] = share(left, column(['z', 'y', 'w'], new arrow.Int32()));
    expect([one.info.width, other.info.width]).toEqual([1, 1]);
    expect(one.dictionary).toMatchObject({ shared: null, isUnified: true });
    expect(other.chunks).toMatchObject([{ dictionaryBase: 2, dictionarySize: 3 }]);
    // The input itself stays as it was.
    expect(left.columns[0]!.dictionary!.isUnified).toBe(false);
    expect(left.columns[0]!.chunks).toMatchObject([{ dictionaryBase: 0, dictionarySize: 2 }]);
  });

  test('is made anew where only their indices differ', () => {
    const values = arrow.vectorFromArray(['x', 'y'], new arrow.Utf8());
    const [one, other] = share(column(values, new arrow.Int16()), column(values, new arrow.Uint16()));
    expect(one.dictionary).toMatchObject({ shared: null, isUnified: true });
    expect([one.info.width, other.info.width]).toEqual([2, 2]);
  });
});
