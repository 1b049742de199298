/** Whatever holds a table is taken by every call, of any apache-arrow version: the same rows come out of all. */
import { createRequire } from 'node:module';
import * as newest from 'apache-arrow';
import * as oldest from 'apache-arrow-15';
import * as middle from 'apache-arrow-18';
import pl from 'nodejs-polars';
import { afterAll, describe, expect, test } from 'vitest';
import { toIPC, toRows, type WarpjoinError } from '../../lib/index.js';
import type { TableInput } from '../../lib/types.js';
import { testEngine } from '../support/engines.js';
import { hold } from '../support/held.js';
import { failure } from '../support/tables.js';

type Arrow = typeof newest;
const minified = createRequire(import.meta.url)('apache-arrow/Arrow.es2015.min') as Arrow;
const versions = { '15': oldest as unknown as Arrow, '18': middle as unknown as Arrow, '21': newest, minified };

const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
afterAll(() => engine.dispose());

/** Three record batches of one schema. */
function tableOf(arrow: Arrow, offset = 0): newest.Table {
  const numbers = [3, 1, null, 2, 5, 1].map((value) => value && value + offset);
  const columns = {
    k: arrow.vectorFromArray(numbers, new arrow.Int32()),
    name: arrow.vectorFromArray([...'abcdef'], new arrow.Utf8()),
  };
  const whole = new arrow.Table(columns);
  const [one, two, three] = [whole.slice(0, 2), whole.slice(2, 5), whole.slice(5)] as const;
  return new arrow.Table(
    whole.schema,
    [one, two, three].flatMap(({ batches }) => batches),
  );
}

async function* later<T>(items: Iterable<T>): AsyncGenerator<T> {
  for (const item of items) {
    await new Promise((resolve) => setImmediate(resolve));
    yield item;
  }
}

const bytesOf = (arrow: Arrow, format: 'file' | 'stream', offset = 0) => arrow.tableToIPC(tableOf(arrow, offset), format);
/** Readers that are used up by a call: each is made anew. */
const kinds: Record<string, (arrow: Arrow) => TableInput | Promise<TableInput>> = {
  'a table': (arrow) => tableOf(arrow),
  'an array of record batches': (arrow) => tableOf(arrow).batches,
  'a set of record batches': (arrow) => new Set(tableOf(arrow).batches),
  'a generator of record batches': (arrow) => tableOf(arrow).batches.values(),
  'an array of tables': (arrow) => [tableOf(arrow).slice(0, 3), tableOf(arrow).slice(3)],
  'a table and record batches': (arrow) => [tableOf(arrow).slice(0, 2), ...tableOf(arrow).slice(2).batches],
  'a reader of a stream': (arrow) => arrow.RecordBatchReader.from(bytesOf(arrow, 'stream')),
  'a reader of a file': (arrow) => arrow.RecordBatchReader.from(bytesOf(arrow, 'file')),
  'an open reader': (arrow) => arrow.RecordBatchReader.from(bytesOf(arrow, 'stream')).open(),
  'a reader of an asynchronous stream': (arrow) => arrow.RecordBatchReader.from(later([bytesOf(arrow, 'stream')])),
  'an open reader of an asynchronous stream': async (arrow) =>
    (await arrow.RecordBatchReader.from(later([bytesOf(arrow, 'stream')]))).open(),
  'an asynchronous generator of record batches': (arrow) => later(tableOf(arrow).batches),
  'an asynchronous generator of tables': (arrow) => later([tableOf(arrow).slice(0, 3), tableOf(arrow).slice(3)]),
  'a stream of record batches of the web': (arrow) =>
    (ReadableStream as unknown as { from(of: object): ReadableStream }).from(tableOf(arrow).batches) as unknown as TableInput,
  'bytes of a stream': (arrow) => bytesOf(arrow, 'stream'),
  'bytes of a file': (arrow) => bytesOf(arrow, 'file').slice().buffer,
};

const other = new newest.Table({
  k: newest.vectorFromArray([1, 5, 9], new newest.Int32()),
  v: newest.vectorFromArray([10, 50, 90], new newest.Int32()),
});
const sorted = (rows: { name?: unknown }[]) => rows.sort((a, b) => String(a.name).localeCompare(String(b.name)));
const joined = [
  { k: 1, name: 'b', v: 10 },
  { k: 5, name: 'e', v: 50 },
  { k: 1, name: 'f', v: 10 },
];
/** Calls with an input as one of their tables, and what each gives. */
const calls: Record<string, [(input: TableInput) => Promise<unknown>, unknown]> = {
  'join, left': [async (input) => sorted(toRows(await engine.join(input, other, { on: 'k' }))), joined],
  'join, right': [
    async (input) => sorted(toRows(await engine.join(other, input, { on: 'k', select: ['k', 'name', 'v'] }))),
    joined,
  ],
  joinCount: [(input) => engine.joinCount(other, input, { on: 'k' }), 3],
  joinIndices: [
    async (input) => [...(await engine.joinIndices(input, other, { on: 'k', maintainOrder: 'left' })).left],
    [1, 4, 5],
  ],
  sort: [async (input) => toRows(await engine.sort(input, { by: 'k' })).map(({ name }) => name), ['b', 'f', 'd', 'a', 'e', 'c']],
  sortIndices: [async (input) => [...(await engine.sortIndices(input, { by: 'k' })).rows], [1, 5, 3, 0, 4, 2]],
  isSorted: [(input) => engine.isSorted(input, { by: 'name' }), true],
  searchSorted: [async (input) => [...(await engine.searchSorted(input, table('bcg'), { by: 'name' }))], [1, 2, 6]],
  unique: [
    async (input) => toRows(await engine.unique(input, { on: 'k', maintainOrder: true })).map(({ name }) => name),
    ['a', 'b', 'c', 'd', 'e'],
  ],
  explain: [async (input) => (await engine.explain('sort', input, { by: 'k' })).startsWith('sort by "k"'), true],
  load: [
    async (input) => {
      const loaded = await engine.load(input as newest.Table);
      const back = await loaded.toArrow();
      expect(await loaded.toArrow()).toBe(back);
      return toRows(await engine.sort(loaded, { by: 'k' })).map(({ name }) => name) && [back.numRows, back.schema.names];
    },
    [6, ['k', 'name']],
  ],
};
const table = (names: string) => new newest.Table({ name: newest.vectorFromArray([...names], new newest.Utf8()) });

for (const [version, arrow] of Object.entries(versions)) {
  describe(`apache-arrow ${version}`, () => {
    test.each(Object.keys(kinds))('%s', async (kind) => {
      for (const [name, [call, expected]] of Object.entries(calls)) {
        expect(await call(await kinds[kind]!(arrow)), name).toEqual(expected);
      }
    });
    test('results have the classes of the batches', async () => {
      for (const kind of ['an array of record batches', 'a reader of a stream', 'an asynchronous generator of record batches']) {
        const result = await engine.sort(await kinds[kind]!(arrow), { by: 'k' });
        expect(Object.prototype.isPrototypeOf.call(arrow.Table.prototype, result), kind).toBe(true);
        const loaded = await (await engine.load((await kinds[kind]!(arrow)) as newest.Table)).toArrow();
        expect(Object.prototype.isPrototypeOf.call(arrow.Table.prototype, loaded), kind).toBe(true);
      }
    });
  });
}

test('a record batch', async () => {
  for (const arrow of Object.values(versions)) {
    const result = await engine.sort(tableOf(arrow).batches[1]!, { by: 'k' });
    expect(toRows(result).map(({ name }) => name)).toEqual(['d', 'e', 'c']);
  }
});

test('record batches of several versions, in one array and on two sides', async () => {
  const batches = Object.values(versions).flatMap((arrow) => tableOf(arrow).batches);
  const result = await engine.sort(batches, { by: 'k' });
  expect([result.numRows, Object.prototype.isPrototypeOf.call(oldest.Table.prototype, result)]).toEqual([24, true]);
  expect(await engine.joinCount(tableOf(newest).batches, later(tableOf(versions['15']).batches), { on: 'k' })).toBe(7);
});

test('what is synchronous takes all but asynchronous batches', () => {
  const batches = tableOf(newest).batches;
  expect(toRows(batches)).toHaveLength(6);
  expect(toRows(newest.RecordBatchReader.from(bytesOf(newest, 'file')))).toHaveLength(6);
  expect(toRows(toIPC(batches))).toEqual(toRows(tableOf(newest)));
  const refusal = (): WarpjoinError => {
    try {
      toRows(later(batches) as never);
    } catch (error) {
      return error as WarpjoinError;
    }
    throw new Error('Expected a refusal');
  };
  expect(refusal()).toMatchObject({ code: 'ERR_INVALID_TABLE' });
  expect(refusal().message).toMatch(/ This call is synchronous: read the batches first, and give an array of them\.$/);
});

describe('refused', () => {
  const vector = (type: newest.DataType, values: unknown[]) => newest.vectorFromArray(values, type);
  const batch = (columns: Record<string, newest.Vector>) => new newest.Table(columns).batches[0]!;
  const [int, text] = [vector(new newest.Int32(), [1]), vector(new newest.Utf8(), ['a'])];
  const many = 'has record batches of different schemas: column';
  const schema = (nullable: boolean) => new newest.Schema([new newest.Field('k', new newest.Int32(), nullable)]);
  const bare = (nullable: boolean) => ({ schema: schema(nullable), data: batch({ k: int }).data });
  function* throwing(): Generator<newest.RecordBatch> {
    yield batch({ k: int });
    throw new Error('connection lost');
  }
  test.each<[string, () => unknown, string | RegExp]>([
    [
      'no batches',
      () => [],
      'The input table has no record batches, and so no columns: expected one at least, or a reader that has not been read to its end.',
    ],
    ['no batches, later', () => later([]), /has no record batches/],
    [
      'a reader at its end',
      () => {
        const reader = newest.RecordBatchReader.from(bytesOf(newest, 'stream'));
        reader.readAll();
        return reader;
      },
      /has no record batches/,
    ],
    [
      'another type',
      () => [batch({ k: int, t: text }), batch({ k: int, t: int })],
      `${many} "t" is utf8 in the first one and int32 in record batch 1.`,
    ],
    ['another name', () => [batch({ k: int }), batch({ k: int }), batch({ l: int })], `${many} "k" is "l" in record batch 2.`],
    ['fewer columns', () => [batch({ k: int, t: text }), batch({ k: int })], `${many} "t" is missing in record batch 1.`],
    [
      'more columns',
      () => later([batch({ k: int }), batch({ k: int, t: text })]),
      `${many} "t" is in record batch 1 but not in the first one.`,
    ],
    ['nulls', () => [bare(false), bare(true)], `${many} "k" may have nulls in record batch 1 but not in the first one.`],
    [
      'other indices',
      () =>
        [8, 16].map((bits) =>
          batch({
            k: vector(new newest.Dictionary(new newest.Utf8(), new newest.Int(true, bits as 32) as newest.Int32, 1), ['a']),
          }),
        ),
      /column "k" is dictionary<utf8> in the first one/,
    ],
    ['objects', () => [{ k: 1 }], /received \[an object of type Object\]\. fromRows\(\) makes a table of objects\.$/],
    [
      'an object among batches',
      () => [batch({ k: int }), { k: 1 }],
      'The input table has an object of type Object after 1 record batches; expected record batches alone.',
    ],
    ['a promise', () => Promise.resolve(batch({ k: int })), /received an object of type Promise\. Await it first\.$/],
    [
      'chunks of bytes',
      () => later([bytesOf(newest, 'stream')]),
      /^Expected an apache-arrow Table, record batches .* received \[an object of type Uint8Array\]\.$/,
    ],
    ['a map', () => new Map([['k', 1]]), /received an object of type Map\.$/],
    [
      'a reader of damaged bytes',
      () => newest.RecordBatchReader.from(bytesOf(newest, 'stream').slice(0, -40)),
      /^The input table can't be read: /,
    ],
    ['batches that throw', () => later(throwing()), "The input table can't be read: connection lost"],
  ])('%s', async (_, make, message) => {
    const error = await failure(engine.sort(make() as newest.Table, { by: 'k' }));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    if (typeof message === 'string') expect(error.message.replace(/^The input table (?=has record)/, '')).toBe(message);
    else expect(error.message).toMatch(message);
  });

  test('options before anything is read', async () => {
    let asked = 0;
    const source = (async function* () {
      asked++;
      yield batch({ k: int });
    })();
    expect((await failure(engine.sort(source, { by: [] as never }))).code).toBe('ERR_OPTION');
    expect(asked).toBe(0);
  });
});

describe('abort', () => {
  test('while batches are awaited: at once, and the source is told', async () => {
    let ended = false;
    const endless: AsyncIterable<newest.RecordBatch> = {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise(() => {}),
        return: async () => {
          ended = true;
          return { done: true, value: undefined };
        },
      }),
    };
    const controller = new AbortController();
    const reason = new Error('enough');
    const call = engine.join(tableOf(newest), endless as TableInput, { on: 'k' as never, signal: controller.signal });
    setTimeout(() => controller.abort(reason), 20);
    await expect(call).rejects.toBe(reason);
    expect(ended).toBe(true);
    // The engine's queue has not been entered: other calls run meanwhile and after.
    expect(await engine.joinCount(tableOf(newest), other, { on: 'k' })).toBe(3);
  });

  test('before: nothing is read', async () => {
    const reason = new Error('never mind');
    const batches = later(tableOf(newest).batches);
    await expect(engine.unique(batches, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect((await batches.next()).done).toBe(false);
  });
});

test('a call with a table ends while the batches of an earlier one are still read', async () => {
  const { held, letGo } = hold();
  async function* batches() {
    yield* tableOf(newest).batches;
    await held;
  }
  const slow = engine.sort(batches(), { by: 'k' });
  const quick = await engine.sort(tableOf(newest), { by: 'k' });
  letGo();
  expect((await slow).numRows).toBe(quick.numRows);
});

describe('views', () => {
  const long = 'a text that is longer than twelve bytes';
  const texts = [long, 'b', null, `${long}, and more`, 'b'];
  const bytes = texts.map((text) => text && new TextEncoder().encode(text));
  const made = new newest.Table({
    id: newest.vectorFromArray([0, 1, 2, 3, 4], new newest.Int32()),
    text: newest.vectorFromArray(texts, new newest.Utf8View()),
    bytes: newest.vectorFromArray(bytes, new newest.BinaryView()),
  });
  const plain = new newest.Table({
    text: newest.vectorFromArray(['b', `${long}, and more`], new newest.Utf8()),
    bytes: newest.vectorFromArray([bytes[1], bytes[3]], new newest.Binary()),
    n: newest.vectorFromArray([1, 3], new newest.Int32()),
  });
  const holders: Record<string, () => TableInput> = {
    'a table': () => made,
    'record batches': () => made.batches,
    'a reader': () => newest.RecordBatchReader.from(newest.tableToIPC(made, 'stream')),
    'bytes of a stream': () => newest.tableToIPC(made, 'stream'),
    'bytes of a file': () => newest.tableToIPC(made, 'file'),
    'bytes of a result': () => toIPC(made),
  };
  test.each(Object.keys(holders))('%s: keys and payload', async (holder) => {
    for (const on of ['text', 'bytes'] as const) {
      const options = { on, maintainOrder: 'left', select: ['id', 'text', 'n'] } as const;
      expect(toRows(await engine.join(holders[holder]!(), plain, options))).toEqual([
        { id: 1, text: 'b', n: 1 },
        { id: 3, text: texts[3], n: 3 },
        { id: 4, text: 'b', n: 1 },
      ]);
      const byKey = await engine.sort(holders[holder]!(), { by: on });
      expect(toRows(byKey).map(({ id }) => id)).toEqual([0, 3, 1, 4, 2]);
      expect(byKey.getChild(on)!.type.typeId).toBe(on === 'text' ? newest.Type.Utf8View : newest.Type.BinaryView);
    }
  });

  test('what Polars writes, and reads again', async () => {
    const frame = pl.DataFrame({ id: pl.Series('id', [0, 1, 2, 3, 4], pl.Int32), text: texts });
    const [views, offsets] = [frame.writeIPC(), frame.writeIPCStream()];
    expect(newest.tableFromIPC(views).getChild('text')!.type.typeId).toBe(newest.Type.Utf8View);
    for (const [one, other] of [
      [views, views],
      [views, offsets],
      [offsets, views],
    ] as const) {
      expect(await engine.joinCount(one, other, { on: 'text' })).toBe(6);
      const sorted = await engine.sort(one, { by: 'text' });
      const back = pl.readIPCStream(Buffer.from(sorted.toIPC()));
      expect(back.getColumn('text').toArray()).toEqual([texts[0], texts[3], 'b', 'b', null]);
    }
  });
});
