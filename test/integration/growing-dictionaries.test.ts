/** Batches whose dictionaries need more bits for their indices together than each of them does. */
import {
  Dictionary,
  Field,
  Int8,
  Int32,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  tableFromArrays,
  Utf8,
  Vector,
  vectorFromArray,
} from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { type BatchStream, createEngine, type Engine } from '../../lib/index.js';
import { native } from '../../lib/native.js';
import { later } from '../support/tables.js';

const VALUES = 100;
const dictionary = new Dictionary(new Utf8(), new Int8(), 5, false);
const struct = new Struct<{ of: typeof dictionary }>([new Field('of', dictionary, false)]);
const schema = new Schema([new Field('k', new Int32(), false), new Field('d', dictionary, false), new Field('s', struct, false)]);
const PRIME = 1_000_003;

/** Batches of so many rows; each has texts of its own, 100 of 3000, in a column and in a struct. Values of `k` are distinct. */
function batches(lengths: readonly number[]): RecordBatch[] {
  let row = 0;
  return lengths.map((length, number) => {
    const texts = Array.from({ length: VALUES }, (_, i) => `t${(number % 30) * VALUES + i}`);
    const data = Int32Array.from({ length }, () => (row++ * 7919) % PRIME);
    const indices = Int8Array.from({ length }, (_, i) => i % VALUES);
    const values = vectorFromArray(texts, new Utf8());
    const d = makeData({ type: dictionary, length, nullCount: 0, data: indices, dictionary: values });
    const children = [
      makeData({ type: new Int32(), length, nullCount: 0, data }),
      d,
      makeData({ type: struct, length, nullCount: 0, children: [d] }),
    ];
    return new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length, nullCount: 0, children }));
  });
}

/** What indices of results are. */
const WIDE = { bitWidth: 32, isSigned: true };

const texts = tableFromArrays({
  d: Array.from({ length: 3000 }, (_, i) => `t${i}`),
  id: Int32Array.from({ length: 3000 }, (_, i) => i),
});

/** One dictionary in the first parts that are read, and several in later ones; and the other way round. */
const ORDERS = {
  'few dictionaries first': [60_000, 60_000, ...Array(60).fill(1000)],
  'many dictionaries first': [...Array(60).fill(1000), 60_000, 60_000],
};

const CALLS: Record<string, (engine: Engine, input: readonly RecordBatch[]) => BatchStream> = {
  sort: (engine, input) => engine.sortBatches(later(input), { by: 'k' }),
  'sort by text': (engine, input) => engine.sortBatches(later(input), { by: ['d', 'k'], select: ['k'] }),
  join: (engine, input) =>
    engine.joinBatches(later(input), later([texts]), { on: 'd', select: ['k', 'd', 'id'], buildSide: 'left' }),
  'join in order': (engine, input) =>
    engine.joinBatches(later(input), later([texts]), {
      on: 'd',
      select: ['k', 'd', 's', 'id'],
      buildSide: 'right',
      maintainOrder: 'left',
    }),
};

describe.each(Object.entries(ORDERS))('%s', (_, lengths) => {
  const input = batches(lengths);
  const textOf = new Map<number, string>();
  for (const batch of input) for (const { k, d } of batch) textOf.set(k, d);

  test.each(Object.entries(CALLS))('%s', async (name, call) => {
    for (const memoryLimit of ['256MiB', '2MiB', '1536KiB']) {
      await using engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit });
      let [rows, wrong, last] = [0, 0, ''];
      for await (const batch of call(engine, input)) {
        for (const { type } of batch.schema.fields) {
          const dictionaries = type instanceof Struct ? type.children.map(({ type }) => type) : [type];
          for (const type of dictionaries) if (type instanceof Dictionary) expect(type.indices).toMatchObject(WIDE);
        }
        for (const { k, d, s, id } of batch) {
          const text = textOf.get(k)!;
          if (id !== undefined && text !== `t${id}`) wrong++;
          if (d !== undefined && text !== d) wrong++;
          if (s !== undefined && text !== s.of) wrong++;
          if (name === 'sort by text' && text < last) wrong++;
          last = text;
          rows++;
        }
      }
      expect([memoryLimit, wrong, rows]).toEqual([memoryLimit, 0, textOf.size]);
    }
  });
});

test('a dictionary that all batches share stays the one of the result', async () => {
  const values = vectorFromArray(['x', 'y'], new Utf8());
  const batch = (...indices: number[]) => {
    const data = { type: dictionary, length: indices.length, nullCount: 0, data: Int8Array.from(indices), dictionary: values };
    return new RecordBatch({ d: makeData(data) });
  };
  await using engine = await createEngine({ device: 'cpu', threads: 1 });
  const joined = engine.joinBatches(later([batch(0, 1), batch(1)]), later([batch(1)]), { on: 'd', batchRows: 1 });
  let rows = 0;
  for await (const { data } of joined) {
    const [d] = data.children;
    expect(d!.type).toMatchObject({ indices: WIDE });
    expect(d!.values).toEqual(Int32Array.of(1));
    expect(d!.dictionary!.data[0]!.values).toBe(values.data[0]!.values);
    rows++;
  }
  expect(rows).toBe(2);
});

test('indices within the values of a dictionary have 32 bits, too', async () => {
  const texts = vectorFromArray(['x', 'y'], new Utf8());
  const values = new Vector([
    makeData({ type: dictionary, length: 2, nullCount: 0, data: Int8Array.of(1, 0), dictionary: texts }),
  ]);
  const type = new Dictionary(dictionary, new Int32(), 7, false);
  const d = makeData({ type, length: 3, nullCount: 0, data: Int32Array.of(0, 1, 0), dictionary: values });
  const k = makeData({ type: new Int32(), length: 3, nullCount: 0, data: Int32Array.of(3, 2, 1) });
  await using engine = await createEngine({ device: 'cpu', threads: 1 });
  for await (const batch of engine.sortBatches(later([new RecordBatch({ k, d })]), { by: 'k' })) {
    expect(batch.schema.fields[1]!.type).toMatchObject({ indices: WIDE, dictionary: { indices: WIDE } });
    const [sorted] = (await engine.sort(batch, { by: 'k' })).batches; // which checks its buffers
    for (const one of [batch, sorted!]) expect(one.getChild('d')!.toJSON()).toEqual(['y', 'x', 'y']);
  }
});

test.each(['bytes', 'none', 'floating'] as const)('the addon places no indices that are values of %s', (order) => {
  const width = order === 'floating' ? 4 : 3;
  const chunk = { length: 1, bitOffset: 0, validity: null, values: new Uint8Array(width), offsets: null, buffers: [] };
  const column = { name: 'column', kind: 'fixed', order, width, children: [], chunks: [chunk] };
  expect(() => native().placeIndices(column as never, new ArrayBuffer(4))).toThrow('Expected a column of integers for indices');
});
