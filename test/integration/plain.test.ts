/** Tables from plain values and back: fromColumns, fromRows, toRows; and as IPC bytes: toIPC. */
import * as arrow from 'apache-arrow';
import * as oldest from 'apache-arrow-15';
import { describe, expect, test } from 'vitest';
import { fromColumns, fromRows, join, sort, toIPC, toRows, unique, WarpjoinError } from '../../lib/index.js';
import { everyType, plainRows, randomTable } from '../support/nested.js';
import { random } from '../support/tables.js';

const typesOf = (of: arrow.Table) => Object.fromEntries(of.schema.fields.map(({ name, type }) => [name, String(type)]));

function failure(call: () => unknown): WarpjoinError {
  try {
    call();
  } catch (error) {
    expect(error).toBeInstanceOf(WarpjoinError);
    return error as WarpjoinError;
  }
  throw new Error('it did not throw');
}

describe('fromColumns', () => {
  test('finds the types of values', () => {
    const made = fromColumns({
      int: [1, null, -(2 ** 31)],
      wide: [1, 2 ** 31, undefined],
      big: [1n, 2, -(2n ** 63n)],
      unsigned: [1, 2n ** 64n - 1n, null],
      float: [1, 0.5, Number.NaN],
      beyond: [2 ** 60, 1, 2],
      minus: [-0, 1, 2],
      bool: [true, null, false],
      text: ['a', null, ''],
      time: [new Date(5), null, new Date(-1)],
      bytes: [Uint8Array.of(1, 2), Buffer.from('x'), null],
      list: [[1, null], [], null],
      struct: [{ a: 1 }, { b: 'x', c: [1.5] }, null],
      nothing: [null, undefined, null],
      array: Float32Array.of(1.5, 2.5, 3.5),
      vector: arrow.vectorFromArray(['x', 'y', 'x']),
    });
    expect(typesOf(made)).toEqual({
      int: 'Int32',
      wide: 'Int64',
      big: 'Int64',
      unsigned: 'Uint64',
      float: 'Float64',
      beyond: 'Float64',
      minus: 'Float64',
      bool: 'Bool',
      text: 'Utf8',
      time: 'Timestamp<MILLISECOND, UTC>',
      bytes: 'Binary',
      list: 'List<Int32>',
      struct: 'Struct<{a:Int32, b:Utf8, c:List<Float64>}>',
      nothing: 'Null',
      array: 'Float32',
      vector: 'Dictionary<Int32, Utf8>',
    });
    expect(toRows(made)).toEqual([
      {
        int: 1,
        wide: 1,
        big: 1,
        unsigned: 1,
        float: 1,
        beyond: 2 ** 60,
        minus: -0,
        bool: true,
        text: 'a',
        time: '1970-01-01T00:00:00.005Z',
        bytes: '0102',
        list: [1, null],
        struct: { a: 1, b: null, c: null },
        nothing: null,
        array: 1.5,
        vector: 'x',
      },
      {
        int: null,
        wide: 2 ** 31,
        big: 2,
        unsigned: '18446744073709551615',
        float: 0.5,
        beyond: 1,
        minus: 1,
        bool: null,
        text: null,
        time: null,
        bytes: '78',
        list: [],
        struct: { a: null, b: 'x', c: [1.5] },
        nothing: null,
        array: 2.5,
        vector: 'y',
      },
      {
        int: -(2 ** 31),
        wide: null,
        big: '-9223372036854775808',
        unsigned: null,
        float: Number.NaN,
        beyond: 2,
        minus: 2,
        bool: false,
        text: '',
        time: '1969-12-31T23:59:59.999Z',
        bytes: null,
        list: null,
        struct: null,
        nothing: null,
        array: 3.5,
        vector: 'x',
      },
    ]);
  });

  test('texts of any length and alphabet', () => {
    const texts = ['', 'ünï', null, '𝒳'.repeat(1000), 'a', undefined, 'a lone \ud800', 'x'.repeat(70_000), ''];
    const read = fromColumns({ text: texts }).getChild('text')!;
    const expected = texts.map((text) => text?.replace('\ud800', '\ufffd') ?? null);
    expect([[...read], read.nullCount]).toEqual([expected, 2]);
    expect([...fromColumns({ text: [] }, { types: { text: new arrow.Utf8() } }).getChild('text')!]).toEqual([]);
  });

  test('takes typed arrays as they are', () => {
    const ids = Int32Array.of(3, 1, 2);
    expect(fromColumns({ ids }).getChild('ids')!.data[0]!.values).toBe(ids);
  });

  test('makes the types that are asked for', () => {
    const types = {
      id: new arrow.Int64(),
      small: new arrow.Uint8(),
      price: new arrow.Decimal(2, 10, 128),
      hundreds: new arrow.Decimal(-2, 10, 128),
      day: new arrow.DateDay(),
      code: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int16()),
      lists: new arrow.List(new arrow.Field('item', new arrow.Int64(), true)),
      typed: new arrow.Float64(),
      empty: new arrow.Utf8(),
    };
    const made = fromColumns(
      {
        id: [1, 2n, null],
        small: [0, 255, null],
        price: ['12.5', -3, '-0.05'],
        hundreds: ['1200', 300, null],
        day: [new Date('2024-02-29'), null, new Date('1969-12-31')],
        code: ['a', 'b', 'a'],
        lists: [[1, null], null, [2n]],
        typed: Int8Array.of(1, 2, 3),
        empty: [null, null, null],
      },
      { types },
    );
    expect(typesOf(made)).toEqual(Object.fromEntries(Object.entries(types).map(([name, type]) => [name, String(type)])));
    expect(toRows(made)).toEqual([
      {
        id: 1,
        small: 0,
        price: '12.50',
        hundreds: '1200',
        day: '2024-02-29',
        code: 'a',
        lists: [1, null],
        typed: 1,
        empty: null,
      },
      { id: 2, small: 255, price: '-3.00', hundreds: '300', day: null, code: 'b', lists: null, typed: 2, empty: null },
      { id: null, small: null, price: '-0.05', hundreds: null, day: '1969-12-31', code: 'a', lists: [2], typed: 3, empty: null },
    ]);
  });

  const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)]);
  const circle: unknown[] = [];
  circle.push(circle, circle);
  test.each([
    ['mixed values', { c: [1, null, 'a'] }, /"c" has whole numbers \(row 0\) and strings \(row 2\).*types/],
    ['bigints and fractions', { c: [1, 2n, 0.5] }, /"c" has bigints \(row 1\) and numbers \(row 2\)/],
    ['bigints of more than 64 bits', { c: [2n ** 64n] }, /"c" has bigints from 0 to 18446744073709551616/],
    ['bigints that need a sign and 64 bits', { c: [2n ** 63n, -1] }, /"c" has bigints from -1 to/],
    ['values that are none', { c: [1, () => 1] }, /"c" has a function in row 1/],
    ['mixed elements', { c: [[1], ['a']] }, /"c"\[\] has whole numbers \(row 0\) and strings/],
    ['mixed properties', { c: [{ a: 1 }, { a: true }] }, /"c"\.a has whole numbers \(row 0\) and booleans/],
    ['columns of different lengths', { a: [1], b: [1, 2] }, /"a" has 1 values and "b" 2/],
    ['a column that is none', { c: 5 }, /column "c" but received 5/],
    ['too many levels', { c: [deep(100)] }, /"c" has .* of more than 60 levels/],
    ['a circle', { c: circle }, /of more than 60 levels/],
    ['a detached array', { c: detached() }, /"c".* detached/],
  ])('refuses %s', (_, columns, message) => {
    const error = failure(() => fromColumns(columns));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(message);
  });

  function detached(): Int32Array {
    const array = Int32Array.of(1);
    structuredClone(array.buffer, { transfer: [array.buffer] });
    return array;
  }

  test.each<[string, unknown[], arrow.DataType]>([
    ['a fraction', [1.5], new arrow.Int32()],
    ['too large a number', [1, 128], new arrow.Int8()],
    ['a negative number', [-1], new arrow.Uint64()],
    ['a string', ['1'], new arrow.Int64()],
    ['a number', [1], new arrow.Utf8()],
    ['a text that is no decimal', ['1e3'], new arrow.Decimal(2, 10, 128)],
    ['an empty text', [''], new arrow.Decimal(2, 10, 128)],
    ['too many digits after the point', ['1.005'], new arrow.Decimal(2, 10, 128)],
    ['too many digits', ['12345678901'], new arrow.Decimal(0, 10, 128)],
    ['less than a hundred', ['150'], new arrow.Decimal(-2, 10, 128)],
    ['no date', [new Date(Number.NaN)], new arrow.TimestampMillisecond()],
    ['a number for a date', [5], new arrow.DateDay()],
    ['an array for an object', [[1]], new arrow.Struct([new arrow.Field('a', new arrow.Int32())])],
    ['an element', [['a']], new arrow.List(new arrow.Field('item', new arrow.Int32()))],
  ])('refuses %s for a type that was said', (_, values, type) => {
    const error = failure(() => fromColumns({ c: values }, { types: { c: type } }));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(new RegExp(`"c".* in row ${values.length - 1}`));
  });

  test('refuses options that make no sense', () => {
    for (const [options, message] of [
      [{ type: {} }, /received "type"\. Did you mean "types"/],
      [{ types: { d: new arrow.Int32() } }, /one of the columns "c" for types but received "d"/],
      [{ types: { c: 'int32' } }, /such as new Int64\(\), for types\.c but received "int32"/],
      [{ types: 5 }, /types but received 5/],
    ] as const) {
      const error = failure(() => fromColumns({ c: [1] }, options as never));
      expect(error.code).toBe('ERR_OPTION');
      expect(error.message).toMatch(message);
    }
    expect(failure(() => fromColumns([{ a: 1 }] as never)).code).toBe('ERR_OPTION');
    expect(failure(() => fromRows({ a: [1] } as never)).message).toMatch(/fromColumns/);
  });
});

describe('fromRows', () => {
  test('has the columns of all rows, in the order in which they appear', () => {
    const made = fromRows([{ b: 1 }, { a: 'x', b: 2 }, {}]);
    expect(made.schema.names).toEqual(['b', 'a']);
    expect(toRows(made)).toEqual([
      { b: 1, a: null },
      { b: 2, a: 'x' },
      { b: null, a: null },
    ]);
  });

  test('no rows, and columns that no row has', () => {
    expect(fromRows([]).numRows).toBe(0);
    const made = fromRows([], { types: { id: new arrow.Int32() } });
    expect(typesOf(made)).toEqual({ id: 'Int32' });
    expect(toRows(made)).toEqual([]);
    expect(toRows(fromRows([{ a: 1 }], { types: { b: new arrow.Utf8() } }))).toEqual([{ a: 1, b: null }]);
  });

  test('a property named __proto__ is a column', () => {
    const row = JSON.parse('{"__proto__": 1}');
    expect(JSON.stringify(toRows(fromRows([row])))).toBe('[{"__proto__":1}]');
  });

  test.each([[null], [5], [[1]]])('refuses the row %j', (row) => {
    expect(failure(() => fromRows([{ a: 1 }, row as never])).message).toMatch(/for row 1/);
  });

  test('says what a getter threw', () => {
    const row = Object.defineProperty({}, 'a', {
      enumerable: true,
      get() {
        throw new Error('no such thing');
      },
    });
    expect(failure(() => fromRows([row]))).toMatchObject({
      code: 'ERR_INVALID_TABLE',
      message: expect.stringMatching(/no such thing/),
    });
  });

  test('goes into calls', async () => {
    const orders = fromRows([
      { customer: 2, total: 20 },
      { customer: 1, total: 7.5 },
    ]);
    const customers = fromRows([
      { id: 1, name: 'Ada' },
      { id: 2, name: 'Grace' },
    ]);
    const joined = await join(orders, customers, { leftOn: 'customer', rightOn: 'id', maintainOrder: 'left' });
    expect(toRows(joined)).toEqual([
      { customer: 2, total: 20, name: 'Grace' },
      { customer: 1, total: 7.5, name: 'Ada' },
    ]);
  });
});

/** What toRows gives for a value as plainRows shows it. */
function jsonOf(value: unknown): unknown {
  if (typeof value === 'string' && /^-?\d+n$/.test(value)) {
    const number = Number(value.slice(0, -1));
    return Number.isSafeInteger(number) ? number : value.slice(0, -1);
  }
  if (Array.isArray(value)) return value.map(jsonOf);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, jsonOf(part)]));
}
const finite = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, part) => (typeof part === 'number' && !Number.isFinite(part) ? `${part}` : part)));

describe('toRows', () => {
  test('reads every type', () => {
    for (let seed = 0; seed < 8; seed++) {
      const types = Object.fromEntries(Object.entries(everyType()).filter(([name]) => !/decimal|interval/.test(name)));
      const of = randomTable(
        types,
        Array.from({ length: 30 }, (_, row) => row),
        [11, 0, 19],
        random(seed),
      );
      expect(finite(toRows(of))).toEqual(jsonOf(plainRows(of)));
    }
  });

  test('shows times exactly', () => {
    const vector = (type: arrow.DataType, data: ArrayBufferView) => new arrow.Vector([arrow.makeData({ type, data } as never)]);
    const of = fromColumns({
      t: vector(new arrow.TimestampNanosecond(), BigInt64Array.of(1_500_000_001n)),
      z: vector(new arrow.TimestampSecond('Europe/Paris'), BigInt64Array.of(0n)),
      c: vector(new arrow.TimeMillisecond(), Int32Array.of(3_661_250)),
      d: vector(new arrow.DurationSecond(), BigInt64Array.of(90n)),
    });
    expect(toRows(of)).toEqual([{ t: '1970-01-01T00:00:01.500000001', z: '1970-01-01T00:00:00Z', c: '01:01:01.25', d: 90 }]);
  });

  test('64-bit integers as asked for', () => {
    const of = fromColumns({ id: BigInt64Array.of(1n, 2n ** 60n) });
    const ids = (int64?: 'auto' | 'bigint' | 'text') => toRows(of, { int64 }).map(({ id }) => id);
    expect(ids()).toEqual([1, '1152921504606846976']);
    expect(ids('bigint')).toEqual([1n, 2n ** 60n]);
    expect(ids('text')).toEqual(['1', '1152921504606846976']);
  });

  test('what JSON does not hold is a number in the rows, and null in JSON', () => {
    const numbers = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5];
    const rows = toRows(fromColumns({ f: Float64Array.from(numbers) }));
    expect(rows.map(({ f }) => f)).toEqual(numbers);
    expect(JSON.stringify(rows)).toBe('[{"f":null},{"f":null},{"f":null},{"f":0.5}]');
  });

  test('a part of the rows, through several batches', () => {
    const of = randomTable({}, [0, 1, 2, 3, 4, 5, 6], [3, 0, 2, 2], random(1));
    const ids = (options: object) => toRows(of, options).map(({ id }) => id);
    for (let offset = 0; offset < 9; offset++) {
      for (let limit = 0; limit < 9; limit++)
        expect(ids({ offset, limit })).toEqual([0, 1, 2, 3, 4, 5, 6].slice(offset, offset + limit));
    }
  });

  test('refuses what is no table', () => {
    expect(failure(() => toRows(5 as never)).code).toBe('ERR_INVALID_TABLE');
    expect(failure(() => toRows(fromRows([]), { int64: 'number' as never })).code).toBe('ERR_OPTION');
    expect(failure(() => toRows({ schema: { fields: [{ name: 'a', type: { typeId: 99 } }] }, batches: [] })).code).toBe(
      'ERR_NOT_SUPPORTED',
    );
  });
});

describe('toIPC', () => {
  test.each(['stream', 'file'] as const)('results of every type, as a %s', async (format) => {
    const of = randomTable(
      everyType(),
      Array.from({ length: 50 }, (_, row) => (row * 7) % 50),
      [20, 30],
      random(7),
    );
    const results = [
      await sort(of, { by: 'id' }),
      await join(of, of.select(['id']), { on: 'id', maintainOrder: 'left' }),
      await unique(of, { on: 'id', maintainOrder: true }),
    ];
    for (const result of results) {
      const bytes = result.toIPC({ format });
      expect(Buffer.from(bytes.subarray(0, 6)).toString() === 'ARROW1').toBe(format === 'file');
      const back = arrow.tableFromIPC(bytes);
      expect(plainRows(back)).toEqual(plainRows(result));
      expect(back.schema.toString()).toBe(result.schema.toString());
      expect(toRows(bytes)).toEqual(toRows(result));
      expect(plainRows(await sort(bytes, { by: 'id' }))).toEqual(plainRows(await sort(result, { by: 'id' })));
    }
  });

  test('tables of another apache-arrow', async () => {
    const of = oldest.tableFromArrays({
      id: Int32Array.of(3, 1, 2),
      name: ['c', 'a', null],
      at: [new Date(5), null, new Date(7)],
    });
    const sorted = await sort(of, { by: 'id' });
    expect(sorted).toBeInstanceOf(oldest.Table);
    for (const bytes of [sorted.toIPC(), toIPC(sorted)]) {
      expect(
        arrow
          .tableFromIPC(bytes)
          .toArray()
          .map(({ id, name }) => [id, name]),
      ).toEqual([
        [1, 'a'],
        [2, null],
        [3, 'c'],
      ]);
      expect(oldest.tableFromIPC(bytes).numRows).toBe(3);
    }
    expect(toRows(sorted).map(({ at }) => at)).toEqual(toRows(sorted.toIPC()).map(({ at }) => at));
  });

  test('no rows, no columns, and bytes', () => {
    expect(arrow.tableFromIPC(toIPC(fromRows([], { types: { id: new arrow.Int32() } }))).schema.names).toEqual(['id']);
    expect(arrow.tableFromIPC(toIPC(fromRows([]))).schema.names).toEqual([]);
    const of = fromColumns({ id: [1, 2] });
    expect(toRows(toIPC(toIPC(of, { format: 'file' })))).toEqual(toRows(of));
  });

  test('metadata stays', () => {
    const of = randomTable({ list: everyType().list! }, [1], [1], random(3));
    const back = arrow.tableFromIPC(toIPC(of));
    expect([...back.schema.metadata]).toEqual([['table', 'random']]);
    expect([...back.schema.fields[1]!.metadata]).toEqual([['of', 'list']]);
  });

  test('refuses what is no table', () => {
    expect(failure(() => toIPC(5 as never)).code).toBe('ERR_INVALID_TABLE');
    expect(failure(() => toIPC(fromRows([]), { format: 'parquet' as never })).code).toBe('ERR_OPTION');
  });
});
