import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine, SortColumn } from '../../lib/index.js';
import { describeDevices, engineMaker, testOn } from '../support/engines.js';
import { KEY_TYPES } from '../support/keys.js';
import { type ReferenceKey, referenceSort } from '../support/reference.js';
import { chunked, random, rows, table } from '../support/tables.js';

const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });

function input(
  columns: readonly { type: arrow.DataType; values: readonly unknown[] }[],
  length: number,
  nulls = 10,
  seed = 1,
): arrow.Table {
  const draw = random(seed);
  const types: Record<string, arrow.DataType> = {};
  const values: Record<string, unknown[]> = {};
  for (const [index, column] of columns.entries()) {
    types[`k${index}`] = column.type;
    values[`k${index}`] = Array.from({ length }, () =>
      nulls && draw(nulls) === 0 ? null : column.values[draw(column.values.length)],
    );
  }
  types.row = new arrow.Int32();
  values.row = Array.from({ length }, (_, row) => row);
  const cuts = [draw(length + 1), draw(length + 1)].sort((a, b) => a - b);
  return chunked(table(types, values), cuts);
}

async function expectSort(
  engine: Engine,
  of: arrow.Table,
  by: readonly SortColumn[],
  options: { algorithm?: 'merge' | 'radix' | 'sample' } = {},
): Promise<void> {
  const out = await engine.sort(of, { by, ...options });
  expect(rows(out)).toEqual(referenceSort(rows(of), by as readonly ReferenceKey[]));
}

describe.each(KEY_TYPES)('key type $name', ({ type, values }) => {
  const engine = engineOf(1);
  test.each([
    { descending: false, nullsLast: true },
    { descending: true, nullsLast: true },
    { descending: false, nullsLast: false },
    { descending: true, nullsLast: false },
  ])('%j', async (order) => {
    await expectSort(await engine, input([{ type, values }], 150), [{ column: 'k0', ...order }]);
    await expectSort(await engine, input([{ type, values }], 150, 0), [{ column: 'k0', ...order }]);
  });
});

describeDevices((devices) => {
  const engine = engineOf(devices);
  test.each(['merge', 'radix', 'sample'] as const)('%s: all sizes', async (algorithm) => {
    for (const length of [0, 1, 2, 31, 64, 65, 1000, 5000]) {
      const column = {
        type: new arrow.Int32(),
        values: Array.from({ length: Math.max(1, length >> 1) }, (_, index) => ((index * 7919) % 1009) - 500),
      };
      await expectSort(await engine, input([column], length, 10, length), [{ column: 'k0' }], { algorithm });
    }
  });

  test.each(['merge', 'radix', 'sample'] as const)(
    '%s: the same answer for 64-bit keys, skew and payloads',
    async (algorithm) => {
      const draw = random(9);
      const length = 3000;
      const keys = Array.from({ length }, () => (draw(3) ? 7n : BigInt(draw(2 ** 31)) * BigInt(draw(2 ** 31)) - 2n ** 60n));
      const of = table(
        { k: new arrow.Int64(), v: new arrow.Float64() },
        { k: keys, v: Array.from({ length }, (_, row) => row / 3) },
      );
      const out = await (await engine).sort(of, { by: 'k', algorithm });
      expect(rows(out)).toEqual(referenceSort(rows(of), [{ column: 'k' }]));
      expect(out.stats.algorithm).toBe(algorithm);
    },
  );
});

testOn(2)('rows that are in order are copied, with the same answer', async () => {
  const engine = await engineOf(2);
  const byName = Object.fromEntries(KEY_TYPES.map((key) => [key.name, key]));
  for (const name of ['bool', 'float64', 'int32', 'int64', 'uint32']) {
    // Nulls leave 64-bit keys no room in one word.
    for (const nulls of name.endsWith('64') ? [0] : [0, 10]) {
      for (const order of [
        { descending: false, nullsLast: true },
        { descending: true, nullsLast: false },
      ]) {
        const by = [{ column: 'k0', ...order }];
        const sorted = await engine.sort(input([byName[name]!], 700, nulls), { by, algorithm: 'merge' });
        expect(sorted.stats.inOrder).toEqual([]);
        for (const select of [['k0', 'row'], ['row'], ['k0']]) {
          const again = await engine.sort(sorted, { by, select });
          expect(again.stats).toMatchObject({ algorithm: 'none', inOrder: ['input'] });
          expect(rows(again)).toEqual(rows(sorted.select(select)));
        }
      }
    }
  }
});

testOn(2)('several columns of mixed types and directions', async () => {
  const engine = await engineOf(2);
  const byName = Object.fromEntries(KEY_TYPES.map((key) => [key.name, key]));
  const columns = ['bool', 'utf8', 'float64', 'int8'].map((name) => byName[name]!);
  const of = input(columns, 800);
  const by = [
    { column: 'k0', descending: true },
    { column: 'k1', nullsLast: false },
    { column: 'k2', descending: true, nullsLast: false },
    { column: 'k3' },
  ];
  await expectSort(engine, of, by);
  await expectSort(engine, of, by.toReversed());
  await expectSort(engine, of, [{ column: 'k1' }, { column: 'k3', descending: true }]);
});

test('a float key with -0 keeps its sign where one payload could be carried', async () => {
  const engine = await engineOf(1);
  const of = table(
    { k: new arrow.Float64(), v: new arrow.Int32() },
    { k: [1, -0, 0, Number.NaN, -1, -0], v: [0, 1, 2, 3, 4, 5] },
  );
  expect(rows(await engine.sort(of, { by: 'k' }))).toEqual([4, 1, 2, 5, 0, 3].map((row) => rows(of)[row]));
});

test('select keeps what is asked for, in its order', async () => {
  const engine = await engineOf(1);
  const of = input([{ type: new arrow.Int16(), values: [3, 1, 2] }], 100);
  const expected = referenceSort(rows(of), [{ column: 'k0' }]);
  const out = await engine.sort(of, { by: 'k0', select: ['row'] });
  expect(rows(out)).toEqual(expected.map(({ row }) => ({ row })));
  expect(rows(await engine.sort(of, { by: 'k0', select: ['k0'] }))).toEqual(expected.map(({ k0 }) => ({ k0 })));
});

test('every payload type comes out as it went in', async () => {
  const engine = await engineOf(1);
  const length = 50;
  const bytes = (width: number): Uint8Array => Uint8Array.from({ length: length * width }, (_, index) => (index * 37) % 251);
  const fixed = (type: arrow.DataType, width: number): arrow.Data => {
    const Elements = type.ArrayType as Uint8ArrayConstructor;
    const bitmap = Uint8Array.from({ length: 8 }, (_, index) => (width % 2 ? 0xff : 0b10110111 + index));
    return arrow.makeData({ type, length, nullCount: -1, nullBitmap: bitmap, data: new Elements(bytes(width).buffer) } as never);
  };
  const columns: Record<string, arrow.Data> = {
    key: arrow.makeData({ type: new arrow.Int32(), data: Int32Array.from({ length }, (_, row) => (row * 31) % length) }),
    float16: fixed(new arrow.Float16(), 2),
    decimal128: fixed(new arrow.Decimal(2, 20), 16),
    decimal256: fixed(new arrow.Decimal(2, 60, 256), 32),
    yearMonth: fixed(new arrow.IntervalYearMonth(), 4),
    dayTime: fixed(new arrow.IntervalDayTime(), 8),
    monthDayNano: fixed(new arrow.IntervalMonthDayNano(), 16),
    binary3: fixed(new arrow.FixedSizeBinary(3), 3),
    binary16: fixed(new arrow.FixedSizeBinary(16), 16),
    bool: fixed(new arrow.Bool(), 1),
    uint8: fixed(new arrow.Uint8(), 1),
    binary: arrow.vectorFromArray(
      Array.from({ length }, (_, row) => (row % 7 ? bytes(2).subarray(row, row + (row % 5)) : null)),
      new arrow.Binary(),
    ).data[0]!,
    largeBinary: arrow.vectorFromArray(
      Array.from({ length }, (_, row) => bytes(1).subarray(0, row)),
      new arrow.LargeBinary(),
    ).data[0]!,
    largeUtf8: arrow.vectorFromArray(
      Array.from({ length }, (_, row) => (row % 3 ? `ß${row}` : null)),
      new arrow.LargeUtf8(),
    ).data[0]!,
  };
  const whole = new arrow.Table(new arrow.Table(columns as never).schema, new arrow.RecordBatch(columns as never));
  for (const of of [whole, chunked(whole, [3, 20, 37]), whole.slice(5, 41)]) {
    const out = await engine.sort(of, { by: 'key' });
    expect(out.schema.fields.map((field) => String(field.type))).toEqual(whole.schema.fields.map((field) => String(field.type)));
    expect(rows(out)).toEqual(referenceSort(rows(of), [{ column: 'key' }]));
  }
});

test('IPC bytes and tables of another apache-arrow', async () => {
  const engine = await engineOf(1);
  const of = input([{ type: new arrow.Utf8(), values: ['b', 'a', 'ccc'] }], 90);
  const expected = referenceSort(rows(of), [{ column: 'k0' }]);
  expect(rows(await engine.sort(arrow.tableToIPC(of), { by: 'k0' }))).toEqual(expected);
  expect(rows(await engine.sort(arrow.tableToIPC(of, 'file').slice().buffer, { by: 'k0' }))).toEqual(expected);
  const foreign = {
    schema: {
      fields: of.schema.fields.map(({ name, type, nullable }) => ({ name, nullable, type: { ...type, typeId: type.typeId } })),
    },
    batches: of.batches.map(({ data }) => ({ data: { length: data.length, children: data.children } })),
  };
  expect(rows(await engine.sort(foreign, { by: 'k0' }))).toEqual(expected);
});

testOn(3)('typed arrays', async () => {
  const engine = await engineOf(3);
  const draw = random(4);
  for (const [keys, values] of [
    [
      Float32Array.from({ length: 2000 }, () => (draw(50) ? draw(1000) - 500 : Number.NaN)),
      Uint32Array.from({ length: 2000 }, (_, row) => row),
    ],
    [
      BigUint64Array.from({ length: 777 }, () => BigInt(draw(300)) << 55n),
      Uint8Array.from({ length: 777 }, (_, row) => row % 256),
    ],
    [
      BigInt64Array.from({ length: 1500 }, () => BigInt(draw(400) - 200) << 54n),
      Float64Array.from({ length: 1500 }, (_, row) => row / 2),
    ],
    [Int16Array.of(), BigInt64Array.of()],
  ] as const) {
    const expected = [...keys].map((key, row) => ({ key, value: values[row]! }));
    for (const descending of [false, true]) {
      for (const algorithm of ['auto', 'sample'] as const) {
        const sorted = await engine.sortPairs(keys, values, { descending, algorithm });
        expect([...sorted.keys].map((key, row) => ({ key, value: sorted.values[row] }))).toEqual(
          referenceSort(expected, [{ column: 'key', descending }]),
        );
        expect(sorted.keys.constructor).toBe(keys.constructor);
        expect(sorted.values.constructor).toBe(values.constructor);
      }
    }
  }
});
