/** Batches whose dictionaries need more bits for their indices together than each of them does: the rows, or a clear refusal. */
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
  vectorFromArray,
} from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { type BatchStream, createEngine, type Engine } from '../../lib/index.js';
import { later } from '../support/tables.js';

const VALUES = 100;
const dictionary = new Dictionary(new Utf8(), new Int8(), 5, false);
const schema = new Schema([new Field('k', new Int32(), false), new Field('d', dictionary, false)]);
const PRIME = 1_000_003;

/** Batches of so many rows; each has texts of its own, 100 of 3000. Values of `k` are distinct. */
function batches(lengths: readonly number[]): RecordBatch[] {
  let row = 0;
  return lengths.map((length, number) => {
    const texts = Array.from({ length: VALUES }, (_, i) => `t${(number % 30) * VALUES + i}`);
    const data = Int32Array.from({ length }, () => (row++ * 7919) % PRIME);
    const indices = Int8Array.from({ length }, (_, i) => i % VALUES);
    const values = vectorFromArray(texts, new Utf8());
    const children = [
      makeData({ type: new Int32(), length, nullCount: 0, data }),
      makeData({ type: dictionary, length, nullCount: 0, data: indices, dictionary: values }),
    ];
    return new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length, nullCount: 0, children }));
  });
}

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
  join: (engine, input) => engine.joinBatches(later(input), later([texts]), { on: 'd', select: ['k', 'id'], buildSide: 'left' }),
  'join in order': (engine, input) =>
    engine.joinBatches(later(input), later([texts]), { on: 'd', select: ['k', 'id'], buildSide: 'right', maintainOrder: 'left' }),
};

describe.each(Object.entries(ORDERS))('%s', (_, lengths) => {
  const input = batches(lengths);
  const textOf = new Map<number, string>();
  for (const batch of input) for (const { k, d } of batch) textOf.set(k, d);

  test.each(Object.entries(CALLS))('%s', async (name, call) => {
    for (const memoryLimit of ['256MiB', '2MiB', '1MiB']) {
      await using engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit });
      let [rows, wrong, last] = [0, 0, ''];
      try {
        for await (const batch of call(engine, input)) {
          for (const { k, d, id } of batch) {
            const text = textOf.get(k)!;
            if (id !== undefined && text !== `t${id}`) wrong++;
            if (d !== undefined && text !== d) wrong++;
            if (name === 'sort by text' && text < last) wrong++;
            last = text;
            rows++;
          }
        }
        expect([memoryLimit, wrong, rows]).toEqual([memoryLimit, 0, textOf.size]);
      } catch (error) {
        expect(error).toMatchObject({
          code: 'ERR_NOT_SUPPORTED',
          message: expect.stringMatching(/^Column "d" is Dictionary<Int(8|16), Utf8> in some batches and .* in others/),
        });
        expect(memoryLimit).not.toBe('256MiB');
      }
    }
  });
});
