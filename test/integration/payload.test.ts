/** Columns of every Arrow type as the payload of joins and sorts. */
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { engineMaker, splittingEngine } from '../support/engines.js';
import { everyType, plainRows, randomTable } from '../support/nested.js';
import { referenceJoin, referenceSort } from '../support/reference.js';
import { chunked, random, unordered } from '../support/tables.js';

const engine = engineMaker({ memoryLimit: '512MiB', threads: 2 });
const types = everyType();
const names = ['id', ...Object.keys(types)];

/** Each row number once, in random order, or keys with repetitions. */
const numbers = (length: number, below: number, draw: (below: number) => number) => Array.from({ length }, () => draw(below));

describe.each([1, 3])('on %i devices', (devices) => {
  test.each([1, 2, 3, 4, 5, 6])('sorts keep every value, seed %i', async (seed) => {
    const draw = random(seed * 1000 + devices);
    const lengths = [draw(200), draw(3), 1 + draw(100), draw(150)].slice(0, 1 + draw(4));
    const rows = lengths.reduce((a, b) => a + b, 0);
    const made = randomTable(types, numbers(rows, 50, draw), lengths, draw);
    for (const input of [made, chunked(made, [Math.floor(rows / 3), Math.floor(rows / 2)]), made.slice(3, 40)]) {
      const sorted = await (await engine(devices)).sort(input, { by: 'id' });
      const expected = referenceSort(plainRows(input), [{ column: 'id' }]);
      expect(plainRows(sorted)).toEqual(expected);
      expect([...sorted.schema.metadata]).toEqual([['table', 'random']]);
      for (const [index, { type, metadata, nullable }] of sorted.schema.fields.entries()) {
        const given = made.schema.fields[index]!;
        expect([type.toString(), [...metadata], nullable]).toEqual([given.type.toString(), [...given.metadata], true]);
        expect(metadataWithin(type)).toEqual(metadataWithin(given.type));
      }
    }
  });

  test.each([1, 2, 3, 4, 5, 6])('joins keep every value, seed %i', async (seed) => {
    const draw = random(seed * 1000 + 500 + devices);
    const [leftRows, rightRows] = [20 + draw(60), 20 + draw(60)];
    const left = randomTable(types, numbers(leftRows, 40, draw), [10, leftRows - 10], draw);
    const right = chunked(randomTable(types, numbers(rightRows, 40, draw), [12, 0, rightRows - 12], draw), [5]);
    const [one, other] = [plainRows(left), plainRows(right)];
    for (const how of ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const) {
      const joined = await (await engine(devices)).join(left, right, { on: 'id', how });
      const expected = referenceJoin(one, other, names, names, { left: 'id', right: 'id', how });
      // Where there is no row a union has a null of its first child, which reads as null.
      expect(unordered(plainRows(joined))).toEqual(unordered(expected));
    }
    const few = left.slice(0, 7);
    const crossed = await (await engine(devices)).join(few, right.slice(2, 9), { how: 'cross' });
    expect(crossed.numRows).toBe(49);
    const pairs = plainRows(few).flatMap((row) =>
      plainRows(right.slice(2, 9)).map((match) => ({
        ...row,
        ...Object.fromEntries(Object.entries(match).map(([name, value]) => [`${name}_right`, value])),
      })),
    );
    expect(unordered(plainRows(crossed))).toEqual(unordered(pairs));
  });
});

/** Metadata of all fields within a type. */
function metadataWithin(type: arrow.DataType): unknown[] {
  return (type.children ?? []).map((child: arrow.Field) => [child.name, [...child.metadata], metadataWithin(child.type)]);
}

test('tables without rows, and without batches', async () => {
  const draw = random(9);
  const none = randomTable(types, [], [0], draw);
  const some = randomTable(types, numbers(20, 9, draw), [20], draw);
  for (const empty of [none, new arrow.Table(none.schema), some.slice(0, 0)]) {
    const sorted = await (await engine(1)).sort(empty, { by: 'id' });
    expect([sorted.numRows, sorted.numCols]).toEqual([0, names.length]);
    expect(arrow.tableFromIPC(arrow.tableToIPC(sorted)).numRows).toBe(0);
    const joined = await (await engine(1)).join(some, empty, { on: 'id', how: 'left' });
    expect(joined.numRows).toBe(20);
    const rights = plainRows(joined.select(joined.schema.fields.slice(names.length).map(({ name }) => name)));
    expect(rights.every((row) => Object.values(row).every((value) => value === null))).toBe(true);
    const inner = await (await engine(1)).join(empty, some, { on: 'id' });
    expect(inner.numRows).toBe(0);
    expect(plainRows(await (await engine(1)).join(empty, some, { on: 'id', how: 'right' }))).toHaveLength(20);
  }
});

describe('results in several record batches', () => {
  test.each([100, 64, 47])('of buffers of at most %i bytes', async (most) => {
    const draw = random(most);
    const splitting = splittingEngine(1, most, { memoryLimit: '512MiB', threads: 2 });
    const input = randomTable(types, numbers(150, 60, draw), [100, 50], draw);
    const sorted = await splitting.sort(input, { by: 'id' });
    expect(sorted.batches.length).toBeGreaterThan(5);
    expect(plainRows(sorted)).toEqual(referenceSort(plainRows(input), [{ column: 'id' }]));
    for (const [name, type] of Object.entries(types)) {
      const alone = await splitting.sort(input, { by: 'id', select: [name] });
      for (const { data } of alone.batches)
        if (data.length > 1) expect([name, largest(data.children[0]!, type)]).toEqual([name, true]);
    }
    const joined = await splitting.join(input, input.slice(50, 90), { on: 'id', how: 'full' });
    const rows = [plainRows(input), plainRows(input.slice(50, 90))] as const;
    expect(unordered(plainRows(joined))).toEqual(
      unordered(referenceJoin(...rows, names, names, { left: 'id', right: 'id', how: 'full' })),
    );
    await splitting.dispose();

    function largest(data: arrow.Data, of: arrow.DataType): boolean {
      const { values, valueOffsets, typeIds, nullBitmap, children, variadicBuffers } = data;
      const views = [values, valueOffsets, typeIds, nullBitmap, ...variadicBuffers] as (ArrayBufferView | undefined)[];
      return views.every((view) => (view?.byteLength ?? 0) <= most) && children.every((child) => largest(child, of));
    }
  });
});

describe.each(Object.entries(types))('%s', (name, type) => {
  test.each(['stream', 'file'] as const)('as an Arrow IPC %s', async (format) => {
    const draw = random(name.length);
    const input = randomTable({ [name]: type }, numbers(60, 20, draw), [30, 30], draw);
    const sorted = await (await engine(1)).sort(input, { by: 'id' });
    const expected = plainRows(sorted);
    const bytes = arrow.tableToIPC(sorted, format);
    expect(plainRows(arrow.tableFromIPC(bytes))).toEqual(expected);
    expect(plainRows(await (await engine(1)).sort(bytes, { by: 'id' }))).toEqual(expected);
    const joined = await (await engine(1)).join(bytes, bytes, { on: 'id' });
    const again = arrow.tableFromIPC(arrow.tableToIPC(joined, format));
    expect(plainRows(again)).toEqual(plainRows(joined));
    const of = { left: 'id', right: 'id', how: 'inner' } as const;
    expect(unordered(plainRows(joined))).toEqual(unordered(referenceJoin(expected, expected, ['id', name], ['id', name], of)));
  });
});

describe('dictionaries', () => {
  const type = new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8());
  const text = (values: readonly (string | null)[]) => arrow.vectorFromArray(values, new arrow.Utf8());
  const indices = (values: readonly (number | null)[], dictionary: arrow.Vector, of: arrow.Dictionary = type) => {
    const { data } = arrow.vectorFromArray(values, of.indices);
    return arrow.makeData({
      type: of,
      length: values.length,
      data: data[0]!.values,
      nullBitmap: data[0]!.nullBitmap,
      dictionary,
    } as never);
  };
  const tableOf = (...chunks: readonly arrow.Data[]): arrow.Table => {
    const fields = [new arrow.Field('row', new arrow.Int32()), new arrow.Field('d', chunks[0]!.type, true)];
    let row = 0;
    const batches = chunks.map((chunk) => {
      const rows = arrow.makeData({ type: new arrow.Int32(), data: Int32Array.from({ length: chunk.length }, () => -row++) });
      const data = arrow.makeData({
        type: new arrow.Struct(fields),
        length: chunk.length,
        nullCount: 0,
        children: [rows, chunk],
      });
      return new arrow.RecordBatch(new arrow.Schema(fields), data);
    });
    return new arrow.Table(new arrow.Schema(fields), batches);
  };
  const sort = async (input: arrow.Table) => (await engine(1)).sort(input, { by: 'row' });
  const dictionaryOf = (of: arrow.Table, name = 'd') => of.getChild(name)!.data[0]!.dictionary!;

  test('of all batches is that of the result', async () => {
    const shared = text(['x', 'y', 'x', null]);
    const sorted = await sort(tableOf(indices([0, 1, null], shared), indices([2, 3], shared)));
    expect(dictionaryOf(sorted)).toBe(shared);
    expect([...sorted.getChild('d')!]).toEqual([null, 'x', null, 'y', 'x']);
    const joined = await (await engine(1)).join(sorted, sorted, { on: 'row' });
    expect([dictionaryOf(joined), dictionaryOf(joined, 'd_right')]).toEqual([shared, shared]);
    expect(plainRows(arrow.tableFromIPC(arrow.tableToIPC(joined)))).toEqual(plainRows(joined));
  });

  test('that only continue one another are the longest of them', async () => {
    const [one, more] = [text(['x', 'y']), text(['z'])];
    const longest = new arrow.Vector([one.data[0]!, more.data[0]!]);
    const sorted = await sort(tableOf(indices([0, 1], one), indices([2, 0], longest), indices([1], new arrow.Vector(one.data))));
    expect(dictionaryOf(sorted)).toBe(longest);
    expect([...sorted.getChild('d')!]).toEqual(['y', 'x', 'z', 'y', 'x']);
  });

  test('that differ become one of distinct values', async () => {
    const input = tableOf(indices([0, 1, null, 2], text(['x', 'y', null])), indices([1, 0, 2], text(['y', 'z', 'x', 'z', null])));
    const sorted = await sort(input);
    expect([...dictionaryOf(sorted)]).toEqual(['x', 'y', null, 'z']);
    expect([...sorted.getChild('d')!]).toEqual(['x', 'y', 'z', null, null, 'y', 'x']);
    expect(sorted.getChild('d')!.type).toBe(type);
  });

  test('have wider indices where they would not tell all values apart', async () => {
    const parts = [0, 1, 2].map((part) => text(Array.from({ length: 100 }, (_, value) => `${part}-${value}`)));
    const some = Array.from({ length: 100 }, (_, value) => value);
    const sorted = await sort(tableOf(...parts.map((part) => indices(some, part))));
    expect(sorted.getChild('d')!.type.toString()).toBe('Dictionary<Int16, Utf8>');
    expect([...sorted.getChild('d')!].reverse()).toEqual(parts.flatMap((part) => [...part]));
    expect(plainRows(arrow.tableFromIPC(arrow.tableToIPC(sorted)))).toEqual(plainRows(sorted));
    // Within another type, too.
    const list = new arrow.List(new arrow.Field('item', type, true));
    const lists = parts.map((part) => {
      const valueOffsets = Int32Array.from({ length: 51 }, (_, row) => 2 * row);
      return arrow.makeData({ type: list, length: 50, valueOffsets, child: indices(some, part) } as never);
    });
    const nested = await sort(tableOf(...(lists as arrow.Data[])));
    expect(nested.getChild('d')!.type.toString()).toBe('List<Dictionary<Int16, Utf8>>');
    const found = plainRows(nested)
      .reverse()
      .flatMap(({ d }) => d);
    expect(found).toEqual(parts.flatMap((part) => [...part]));
  });

  test('of both sides keep numbers of their own', async () => {
    const [left, right] = [tableOf(indices([0, 1], text(['x', 'y']))), tableOf(indices([1, 0], text(['a', 'b'])))];
    const joined = await (await engine(1)).join(left, right, { on: 'row' });
    const ids = joined.schema.fields.flatMap((field) => (arrow.DataType.isDictionary(field.type) ? [field.type.id] : []));
    expect(new Set(ids).size).toBe(2);
    for (const format of ['stream', 'file'] as const)
      expect(plainRows(arrow.tableFromIPC(arrow.tableToIPC(joined, format)))).toEqual(plainRows(joined));
    expect(unordered(plainRows(joined))).toEqual(
      unordered([
        { row: 0, d: 'x', d_right: 'b' },
        { row: -1, d: 'y', d_right: 'a' },
      ]),
    );
  });

  test('within the values of others keep numbers of their own, too', async () => {
    // Both sides number them alike: the outer one 7, the one within it 8.
    const nested = (values: readonly string[]) => {
      const inner = new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8(), 8);
      const struct = new arrow.Struct([new arrow.Field('x', inner, true)]);
      const children = [indices([0, 1], text(values), inner)];
      const dictionary = new arrow.Vector([arrow.makeData({ type: struct, length: 2, nullCount: 0, children } as never)]);
      return indices([1, 0], dictionary, new arrow.Dictionary(struct, new arrow.Int8(), 7));
    };
    const [left, right] = [tableOf(nested(['x', 'y'])), tableOf(nested(['a', 'b']))];
    const made = await (await engine(1)).join(left, right, { on: 'row' });
    const types = made.schema.fields.slice(1).map(({ type }) => type as arrow.Dictionary<arrow.Struct>);
    const ids = types.flatMap(({ id, dictionary }) => [id, (dictionary.children[0]!.type as arrow.Dictionary).id]);
    expect(new Set(ids).size).toBe(4);
    const expected = unordered([
      { row: 0, d: { x: 'y' }, d_right: { x: 'b' } },
      { row: -1, d: { x: 'x' }, d_right: { x: 'a' } },
    ]);
    for (const joined of [made, await (await engine(1)).join(made, left, { on: 'row', select: ['row', 'd', 'd_right'] })]) {
      expect(unordered(plainRows(joined))).toEqual(expected);
      for (const format of ['stream', 'file'] as const)
        expect(plainRows(arrow.tableFromIPC(arrow.tableToIPC(joined, format)))).toEqual(plainRows(joined));
      for (const column of ['d', 'd_right']) {
        const { type, data } = joined.getChild(column)!;
        expect((data[0]!.dictionary as arrow.Vector).type.children[0]!.type).toBe(
          (type as arrow.Dictionary<arrow.Struct>).dictionary.children[0]!.type,
        );
      }
    }
  });

  test('without a value, and none at all', async () => {
    const nulls = indices([null, null], text([]));
    expect([...(await sort(tableOf(nulls))).getChild('d')!]).toEqual([null, null]);
    const missing = new arrow.Data(type, 0, 2, 2, [undefined, new Int8Array(2), Uint8Array.of(0)] as never);
    const sorted = await sort(tableOf(missing, indices([0], text(['x']))));
    expect([...sorted.getChild('d')!]).toEqual(['x', null, null]);
    expect([...(await sort(tableOf(missing))).getChild('d')!]).toEqual([null, null]);
  });

  test('from deltas and replacements of an IPC stream', async () => {
    const [one, two] = [text(['x', 'y']), text(['z'])];
    const longest = new arrow.Vector([one.data[0]!, two.data[0]!]);
    const deltas = arrow.tableToIPC(tableOf(indices([0, 1], one), indices([2, 0], longest)));
    const sorted = await (await engine(1)).sort(deltas, { by: 'row' });
    expect([...sorted.getChild('d')!]).toEqual(['x', 'z', 'y', 'x']);
    expect([...dictionaryOf(sorted)]).toEqual(['x', 'y', 'z']);
    const replaced = arrow.tableToIPC(tableOf(indices([0, 1], one), indices([0, 1], text(['y', 'w']))));
    const other = await (await engine(1)).sort(replaced, { by: 'row' });
    expect([...other.getChild('d')!]).toEqual(['w', 'y', 'y', 'x']);
    expect([...dictionaryOf(other)]).toEqual(['x', 'y', 'w']);
  });
});

test('loaded tables, and results that stay', async () => {
  const draw = random(11);
  const own = await engine(1);
  const input = randomTable(types, numbers(90, 40, draw), [50, 40], draw);
  const rows = plainRows(input);
  await using loaded = await own.load(input);
  const sorted = referenceSort(rows, [{ column: 'id' }]);
  for (let call = 0; call < 2; call++) expect(plainRows(await own.sort(loaded, { by: 'id' }))).toEqual(sorted);
  await using stays = await own.sort(loaded, { by: 'id', resident: true });
  expect(plainRows(await stays.toArrow())).toEqual(sorted);
  const joined = await own.join(stays, loaded, { on: 'id' });
  const of = { left: 'id', right: 'id', how: 'inner' } as const;
  expect(unordered(plainRows(joined))).toEqual(unordered(referenceJoin(sorted, rows, names, names, of)));
});
