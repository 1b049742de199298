import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { JoinKind } from '../../lib/index.js';
import { describeDevices, engineMaker, onGpus, testEngine } from '../support/engines.js';
import { KEY_TYPES } from '../support/keys.js';
import { referenceJoin } from '../support/reference.js';
import { chunked, type Row, random, rows, table, unordered } from '../support/tables.js';

const HOWS = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const satisfies JoinKind[];
const ALGORITHMS = ['radix-hash', 'sort-merge'] as const;
const names = (of: arrow.Table): string[] => of.schema.fields.map((field) => field.name);

const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });

/** Two tables with keys drawn from `values`, a tenth of them null, in chunks; payloads tell rows apart. */
function inputs(
  type: arrow.DataType,
  values: readonly unknown[],
  leftRows: number,
  rightRows: number,
  seed = 1,
): [arrow.Table, arrow.Table] {
  const draw = random(seed);
  const key = (): unknown => (draw(10) === 0 ? null : values[draw(values.length)]);
  const cuts = (length: number): number[] => [draw(length + 1), draw(length + 1)].sort((a, b) => a - b);
  const left = table(
    { key: type, i: new arrow.Int32(), s: new arrow.Utf8() },
    {
      key: Array.from({ length: leftRows }, key),
      i: Array.from({ length: leftRows }, (_, row) => row),
      s: Array.from({ length: leftRows }, (_, row) => (draw(5) === 0 ? null : `left ${row}`)),
    },
  );
  const right = table(
    { key: type, i: new arrow.Float64(), b: new arrow.Bool() },
    {
      key: Array.from({ length: rightRows }, key),
      i: Array.from({ length: rightRows }, (_, row) => row + 0.5),
      b: Array.from({ length: rightRows }, () => [true, false, null][draw(3)]),
    },
  );
  return [chunked(left, cuts(leftRows)), chunked(right, cuts(rightRows))];
}

function expectJoin(
  out: arrow.Table,
  left: arrow.Table,
  right: arrow.Table,
  options: { how: (typeof HOWS)[number]; coalesce?: boolean; suffix?: string },
): void {
  const expected = referenceJoin(rows(left), rows(right), names(left), names(right), { left: 'key', right: 'key', ...options });
  expect(out.numRows).toBe(expected.length);
  expect(unordered(rows(out))).toEqual(unordered(expected));
}

describe.each(ALGORITHMS)('%s', (algorithm) => {
  const engine = engineOf(1);

  describe.each(KEY_TYPES)('key type $name', ({ type, values }) => {
    test.each(HOWS)('%s', async (how) => {
      const [left, right] = inputs(type, values, 70, 50);
      // The left table's own zeros stay as they are: -0 is told from 0 in the result.
      expectJoin(await (await engine).join(left, right, { on: 'key', how, algorithm }), left, right, { how });
    });
  });

  describeDevices((devices) => {
    const own = engineOf(devices);
    test.each(HOWS)('%s: all sizes and multiplicities', async (how) => {
      for (const [leftRows, rightRows, distinct] of [
        [0, 0, 1],
        [0, 9, 3],
        [9, 0, 3],
        [1, 1, 1],
        [33, 1, 1],
        [65, 64, 1],
        [300, 700, 50],
        [2000, 1000, 100_000],
      ] as const) {
        const values = Array.from({ length: distinct }, (_, index) => index * 7 - 3);
        const [left, right] = inputs(new arrow.Int32(), values, leftRows, rightRows, leftRows);
        expectJoin(await (await own).join(left, right, { on: 'key', how, algorithm }), left, right, { how });
      }
    });

    test('skew: most rows have one key', async () => {
      const values = [...Array(50).fill(42), ...Array.from({ length: 20 }, (_, index) => index * 1000)];
      const [left, right] = inputs(new arrow.Int64(), values.map(BigInt), 400, 300);
      expectJoin(await (await own).join(left, right, { on: 'key', algorithm }), left, right, { how: 'inner' });
    });
  });

  test.each(['left', 'right'] as const)('builds the %s side when told to', async (buildSide) => {
    const [left, right] = inputs(new arrow.Int32(), [1, 2, 3, 4, 5, 6, 7, 8], 60, 90);
    for (const how of HOWS)
      expectJoin(await (await engine).join(left, right, { on: 'key', how, algorithm, buildSide }), left, right, { how });
  });

  test.each([true, false])('coalesce: %s', async (coalesce) => {
    const [left, right] = inputs(new arrow.Utf8(), ['x', 'y', 'long enough to leave eight bytes', 'z'], 60, 40);
    for (const how of ['inner', 'left', 'right', 'full'] as const) {
      const out = await (await engine).join(left, right, { on: 'key', how, coalesce, suffix: '_r', algorithm });
      expectJoin(out, left, right, { how, coalesce, suffix: '_r' });
    }
  });

  test('integers of different widths and signs', async () => {
    const left = table({ key: new arrow.Int8(), i: new arrow.Int32() }, { key: [-1, 0, 127, null, 5], i: [0, 1, 2, 3, 4] });
    const right = table(
      { key: new arrow.Uint64(), j: new arrow.Int32() },
      { key: [2n ** 64n - 1n, 0n, 127n, 255n, 5n, null], j: [0, 1, 2, 3, 4, 5] },
    );
    for (const how of HOWS) {
      const out = await (await engine).join(left, right, { on: 'key', how, algorithm });
      expectJoin(out, left, right, { how });
      const back = await (await engine).join(right, left, { on: 'key', how, algorithm });
      expectJoin(back, right, left, { how });
    }
  });

  test('floats of different widths', async () => {
    const left = table(
      { key: new arrow.Float32(), i: new arrow.Int32() },
      { key: [0.5, -0, Number.NaN, 0.1, null], i: [0, 1, 2, 3, 4] },
    );
    const right = table(
      { key: new arrow.Float64(), j: new arrow.Int32() },
      { key: [0.5, 0, Number.NaN, 0.1, Math.fround(0.1)], j: [0, 1, 2, 3, 4] },
    );
    for (const how of HOWS)
      expectJoin(await (await engine).join(left, right, { on: 'key', how, algorithm }), left, right, { how });
  });
});

describeDevices((devices) => {
  const engine = engineOf(devices);
  test.each(HOWS)('%s: sides in order are not sorted', async (how) => {
    const values = Array.from({ length: 300 }, (_, index) => index * 5);
    const [left, right] = inputs(new arrow.Int32(), values, 500, 700);
    const sort = async (of: arrow.Table) => (await engine).sort(of, { by: 'key' });
    const inOrder = { left: await sort(left), right: await sort(right) };
    for (const [one, other, expected] of [
      [inOrder.left, inOrder.right, ['left', 'right']],
      [inOrder.left, right, ['left']],
      [left, inOrder.right, ['right']],
    ] as const) {
      const out = await (await engine).join(one, other, { on: 'key', how, algorithm: 'sort-merge' });
      expectJoin(out, one, other, { how });
      // GPUs may sort both sides on the way to their joint memory, where order is no help.
      if (!onGpus) expect(out.stats.inOrder).toEqual(expected);
    }
    const asked = { on: 'key', how, algorithm: 'sort-merge', sortAlgorithm: 'merge' } as const;
    expect((await (await engine).join(inOrder.left, inOrder.right, asked)).stats.inOrder).toEqual([]);
  });
});

describe('columns', () => {
  const engine = engineOf(1);
  const [left, right] = inputs(new arrow.Int32(), [1, 2, 3, 4, 5, 6, 7, 8, 9], 80, 90);
  const project = (of: readonly Row[], select: readonly string[]): Row[] =>
    of.map((row) => Object.fromEntries(select.map((name) => [name, row[name]])));

  test.each([
    [['key']],
    [['i']],
    [['i_right']],
    [['b']],
    [['i_right', 'key']],
    [['key', 'i']],
    [['i', 'i_right']],
    [['b', 's', 'i_right', 'i', 'key']],
  ])('select %j', async (select) => {
    for (const how of ['inner', 'left', 'right', 'full'] as const) {
      for (const algorithm of ALGORITHMS) {
        const out = await (await engine).join(left, right, { on: 'key', how, coalesce: true, select, algorithm });
        const all = referenceJoin(rows(left), rows(right), names(left), names(right), {
          left: 'key',
          right: 'key',
          how,
          coalesce: true,
        });
        expect(names(out)).toEqual(select);
        expect(unordered(rows(out))).toEqual(unordered(project(all, select)));
      }
    }
  });

  test('payloads without nulls travel with the keys', async () => {
    const draw = random(3);
    const one = table(
      { key: new arrow.Int64(), v: new arrow.Float64() },
      { key: Array.from({ length: 500 }, () => BigInt(draw(200))), v: Array.from({ length: 500 }, () => draw(1e6) / 3) },
    );
    const other = table(
      { key: new arrow.Int64(), w: new arrow.Int32() },
      { key: Array.from({ length: 400 }, () => BigInt(draw(200))), w: Array.from({ length: 400 }, () => draw(1e9)) },
    );
    for (const algorithm of ALGORITHMS) {
      const out = await (await engine).join(one, other, { on: 'key', algorithm });
      expect(unordered(rows(out))).toEqual(
        unordered(referenceJoin(rows(one), rows(other), ['key', 'v'], ['key', 'w'], { left: 'key', right: 'key', how: 'inner' })),
      );
      expect(out.stats.phases.map((phase) => phase.name)).not.toContain('gather');
    }
  });

  test('a float key with -0 keeps its sign, although its pairs could carry the keys', async () => {
    const one = table({ key: new arrow.Float64(), v: new arrow.Int32() }, { key: [-0, 1, 0], v: [1, 2, 3] });
    const other = table({ key: new arrow.Float64(), w: new arrow.Int32() }, { key: [0, 1], w: [4, 5] });
    const out = await (await engine).join(one, other, { on: 'key' });
    expect(unordered(rows(out))).toEqual(
      unordered([
        { key: -0, v: 1, w: 4 },
        { key: 1, v: 2, w: 5 },
        { key: 0, v: 3, w: 4 },
      ]),
    );
  });

  test('fields keep their types, metadata and nullability', async () => {
    const fields = [
      new arrow.Field('key', new arrow.Int32(), false, new Map([['unit', 'm']])),
      new arrow.Field('v', new arrow.Decimal(2, 20), true),
    ];
    const data = (keys: number[]): arrow.Table => {
      const schema = new arrow.Schema(fields, new Map([['source', 'test']]));
      const children = [
        arrow.makeData({ type: new arrow.Int32(), data: Int32Array.from(keys) }),
        arrow.makeData({
          type: new arrow.Decimal(2, 20),
          data: Uint32Array.from(keys.flatMap((key) => [key, 1, 2, 3])),
          length: keys.length,
        }),
      ];
      return new arrow.Table(
        schema,
        new arrow.RecordBatch(
          schema,
          arrow.makeData({ type: new arrow.Struct(fields), length: keys.length, nullCount: 0, children }),
        ),
      );
    };
    const out = await (await engine).join(data([1, 2, 3]), data([2, 3, 4]), { on: 'key', how: 'left' });
    expect(out.schema.fields.map((field) => [field.name, String(field.type), field.nullable])).toEqual([
      ['key', 'Int32', false],
      ['v', 'Decimal[20e+2]', true],
      ['v_right', 'Decimal[20e+2]', true],
    ]);
    expect(out.schema.fields[0]!.metadata.get('unit')).toBe('m');
    expect(out.schema.metadata.get('source')).toBe('test');
    expect(unordered(rows(out))).toEqual(
      unordered(
        referenceJoin(rows(data([1, 2, 3])), rows(data([2, 3, 4])), ['key', 'v'], ['key', 'v'], {
          left: 'key',
          right: 'key',
          how: 'left',
        }),
      ),
    );
  });

  test('keys of different names', async () => {
    const renamed = (of: arrow.Table): arrow.Table =>
      new arrow.Table(Object.fromEntries(names(of).map((name) => [`r_${name}`, of.getChild(name)!])));
    const out = await (await engine).join(left, renamed(right), { leftOn: 'key', rightOn: 'r_key', how: 'right' });
    expect(names(out)).toEqual(['key', 'i', 's', 'r_i', 'r_b']);
    expect(unordered(rows(out).map((row) => ({ i: row.r_i, key: row.key })))).toEqual(
      unordered(
        referenceJoin(rows(left), rows(right), names(left), names(right), { left: 'key', right: 'key', how: 'right' }).map(
          (row) => ({ i: row.i_right, key: row.key }),
        ),
      ),
    );
  });

  test('cross', async () => {
    const out = await (await engine).join(left.slice(0, 7), right.slice(0, 5), { how: 'cross' });
    expect(names(out)).toEqual(['key', 'i', 's', 'key_right', 'i_right', 'b']);
    const expected = rows(left.slice(0, 7)).flatMap((one) =>
      rows(right.slice(0, 5)).map(({ key, i, b }) => ({ ...one, key_right: key, i_right: i, b })),
    );
    expect(unordered(rows(out))).toEqual(unordered(expected));
    expect((await (await engine).join(left, right.slice(0, 0), { how: 'cross' })).numRows).toBe(0);
  });

  test('a table with itself', async () => {
    const out = await (await engine).join(left, left, { on: 'key' });
    expect(out.numRows).toBe(
      referenceJoin(rows(left), rows(left), names(left), names(left), { left: 'key', right: 'key', how: 'inner' }).length,
    );
  });

  test('inputs are not changed, and results outlive their engine', async () => {
    const before = rows(left);
    const own = await testEngine(1, { memoryLimit: '256MiB' });
    const out = await own.join(left, right, { on: 'key' });
    const seen = rows(out);
    await own.dispose();
    expect(rows(out)).toEqual(seen);
    expect(rows(left)).toEqual(before);
  });
});

describeDevices((devices) => {
  const engine = engineOf(devices);
  const [left, right] = inputs(new arrow.Utf8(), ['', 'a', 'b', 'a long one', 'a long one too'], 120, 90, 5);

  test.each(HOWS)('counts and row numbers, %s', async (how) => {
    const expected = referenceJoin(rows(left), rows(right), names(left), names(right), {
      left: 'key',
      right: 'key',
      how,
      coalesce: false,
    });
    for (const algorithm of ALGORITHMS) {
      expect(await (await engine).joinCount(left, right, { on: 'key', how, algorithm })).toBe(expected.length);
      const indices = await (await engine).joinIndices(left, right, { on: 'key', how, algorithm });
      expect(indices.left).toBeInstanceOf(Uint32Array);
      expect(indices.stats.outputRows).toBe(expected.length);
      const number = (row: number | bigint): number | null => (row === 2 ** 32 - 1 ? null : Number(row));
      const pairs = [...indices.left].map((row, index) => ({
        i: number(row),
        j: indices.right ? number(indices.right[index]!) : null,
      }));
      expect(unordered(pairs)).toEqual(
        unordered(expected.map((row) => ({ i: row.i, j: typeof row.i_right === 'number' ? row.i_right - 0.5 : null }))),
      );
    }
  });

  test('counts and row numbers, cross', async () => {
    expect(await (await engine).joinCount(left, right, { how: 'cross' })).toBe(120 * 90);
    const indices = await (await engine).joinIndices(left, right, { how: 'cross' });
    expect(new Set([...indices.left].map((row, index) => Number(row) * 1000 + Number(indices.right![index]))).size).toBe(
      120 * 90,
    );
  });
});
