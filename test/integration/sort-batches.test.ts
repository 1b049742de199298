/** sortBatches(): record batches as they come, through memory and through temporary files. */
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import * as arrow from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import type { BatchStream, WarpjoinError } from '../../lib/index.js';
import { sort, sortBatches } from '../../lib/index.js';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { DEVICE_COUNTS, describeDevices, inspectedEngine, testEngine } from '../support/engines.js';
import { everyType, plainRows, randomTable } from '../support/nested.js';
import { failure, later, random, withWideIndices } from '../support/tables.js';

/** Two devices, where there are. */
const SOME = DEVICE_COUNTS[1] ?? 1;

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-test-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Keys with repetitions, texts with nulls, and row numbers: in record batches of so many rows. */
function keyed(rows: number, batchRows: number, distinct: number, seed = 7): arrow.Table {
  const draw = random(seed);
  const made = arrow.tableFromArrays({
    k: Int32Array.from({ length: rows }, () => draw(distinct)),
    t: Array.from({ length: rows }, () => (draw(5) ? `text ${draw(100)}`.repeat(1 + draw(3)) : null)),
    at: Int32Array.from({ length: rows }, (_, row) => row),
  });
  const batches: arrow.RecordBatch[] = [];
  for (let row = 0; row < rows; row += batchRows) batches.push(...made.slice(row, row + batchRows).batches);
  return new arrow.Table(made.schema, batches);
}

async function read(batches: AsyncIterable<arrow.RecordBatch>): Promise<arrow.RecordBatch[]> {
  const all: arrow.RecordBatch[] = [];
  for await (const batch of batches) all.push(batch);
  return all;
}
const numbersOf = (batches: readonly arrow.RecordBatch[]) =>
  batches.flatMap((batch) => [...(batch.getChild('at')!.toArray() as Int32Array)]);

/** What a file descriptor of this process stands for. */
function targetOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return ''; // closed meanwhile
  }
}

/** So little that this much of keyed() goes to temporary files. */
const LITTLE = '4MiB';
const large = keyed(200_000, 5000, 1000);

describeDevices((devices) => {
  test.each([
    ['k'],
    [
      [
        { column: 't', nullsLast: false },
        { column: 'k', descending: true },
      ],
    ],
    [[{ column: 'k', descending: true }]],
  ] as const)('gives the rows that sort() gives, by %j', async (by) => {
    await using whole = await testEngine(devices, { memoryLimit: '1GiB' });
    await using engine = await testEngine(devices, { memoryLimit: LITTLE, tempDirectory: folder });
    const expected = numbersOf((await whole.sort(large, { by: by as never })).batches);
    const sorted = engine.sortBatches(later(large.batches), { by: by as never, batchRows: 1000 });
    const found = await read(sorted);
    expect(numbersOf(found)).toEqual(expected);
    expect(Math.max(...found.map(({ numRows }) => numRows))).toBeLessThanOrEqual(1000);
    const { stats } = sorted;
    expect(stats).toMatchObject({ inputRows: 200_000, outputRows: 200_000 });
    expect(stats.runs).toBeGreaterThan(4);
    expect(stats.readBytes).toBe(stats.spilledBytes);
    expect(stats.spilledBytes).toBeGreaterThan(200_000 * 12);
  });
});

describe('values of every type', () => {
  const types = everyType();
  test.each([1, 2])('are those of the input, seed %i', async (seed) => {
    const draw = random(seed);
    const lengths = Array.from({ length: 30 }, () => draw(200));
    const rows = lengths.reduce((a, b) => a + b, 0);
    const made = randomTable(
      types,
      Array.from({ length: rows }, () => draw(40)),
      lengths,
      draw,
    );
    await using whole = await testEngine(1, { memoryLimit: '1GiB' });
    await using engine = await testEngine(1, { memoryLimit: '2MiB', tempDirectory: folder });
    const expected = plainRows(await whole.sort(made, { by: 'id' }));
    const sorted = engine.sortBatches(later(made.batches), { by: 'id' });
    // Only plain values are kept: record batches would be more than the memory limit.
    const found: unknown[] = [];
    for await (const batch of sorted) {
      found.push(...plainRows(new arrow.Table([batch])));
      expect(batch.schema.fields.map(String)).toEqual(made.schema.fields.map(withWideIndices));
    }
    expect(sorted.stats.runs).toBeGreaterThan(1);
    expect(found).toEqual(expected);
  });
});

describe('takes', () => {
  const some = keyed(3000, 400, 50);
  const bytes = arrow.tableToIPC(some, 'stream');
  const pieces = () =>
    Array.from({ length: Math.ceil(bytes.byteLength / 1000) }, (_, at) => bytes.slice(at * 1000, (at + 1) * 1000));
  const sources: Record<string, () => unknown> = {
    'a table': () => some,
    'a record batch': () => some.batches[0],
    'an array of record batches': () => some.batches,
    'a generator of record batches': () => some.batches[Symbol.iterator](),
    'tables that come over time': () => later([some.slice(0, 700), some.slice(700)]),
    'a reader': () => arrow.RecordBatchReader.from(bytes),
    'a reader of a stream': () => arrow.RecordBatchReader.from(later(pieces())),
    'IPC bytes': () => bytes,
    'a stream of Node.js of IPC bytes': () => Readable.from(pieces()),
    'a stream of the web of IPC bytes': () => ReadableStream.from(pieces()),
    'a stream of the web of record batches': () => ReadableStream.from(some.batches),
  };
  test.each(Object.keys(sources))('%s', async (name) => {
    const source = sources[name]!();
    const rows = name === 'a record batch' ? 400 : 3000;
    const found = numbersOf(await read(sortBatches((await source) as never, { by: 'at', batchRows: 100 } as never)));
    expect(found).toEqual([...Array(rows).keys()]);
  });

  test('a table that the engine has loaded', async () => {
    await using engine = await testEngine(1, { memoryLimit: '256MiB' });
    await using loaded = await engine.load(some);
    expect(numbersOf(await read(engine.sortBatches(loaded, { by: 'at' })))).toEqual([...Array(3000).keys()]);
  });

  test('no rows: a batch without rows has the schema', async () => {
    const found = await read(sortBatches([some.slice(0, 0)], { by: 'k', select: ['t', 'k'] }));
    expect(found.map(({ numRows, schema }) => [numRows, schema.fields.map(({ name }) => name)])).toEqual([[0, ['t', 'k']]]);
  });
});

describe('some of the rows, and some of the columns', () => {
  test.each([
    [{ limit: 10 }, 0, 10],
    [{ limit: 5000, offset: 190_000 }, 190_000, 195_000],
    [{ offset: 199_990 }, 199_990, 200_000],
    [{ limit: 0 }, 0, 0],
  ] as const)('%j', async (range, begin, end) => {
    await using engine = await testEngine(SOME, { memoryLimit: LITTLE, tempDirectory: folder });
    const sorted = engine.sortBatches(later(large.batches), {
      by: { column: 'at', descending: true },
      select: ['t', 'at'],
      ...range,
    });
    const found = await read(sorted);
    expect(numbersOf(found)).toEqual(Array.from({ length: end - begin }, (_, row) => 199_999 - begin - row));
    expect(found.every(({ schema }) => schema.fields.map(({ name }) => name).join() === 't,at')).toBe(true);
    expect(sorted.stats.runs > 1).toBe(end > begin);
  });

  test('the columns that it is sorted by need not be selected', async () => {
    await using engine = await testEngine(1, { memoryLimit: LITTLE, tempDirectory: folder });
    const expected = numbersOf((await sort(large.select(['k', 'at']), { by: 'k', select: ['at'] })).batches);
    const found = await read(engine.sortBatches(later(large.select(['k', 'at']).batches), { by: 'k', select: ['at'] }));
    expect(numbersOf(found)).toEqual(expected);
    expect(found[0]!.schema.fields.map(({ name }) => name)).toEqual(['at']);
  });
});

describe('bad input', () => {
  const bad = (input: unknown, options: unknown = { by: 'k' }) => read(sortBatches(input as never, options as never));
  const batches = keyed(10, 5, 3).batches;
  const other = arrow.tableFromArrays({ k: Float64Array.of(1) });

  test.each([
    ['no batches', 5, undefined, 'ERR_INVALID_TABLE', /Expected an apache-arrow Table.* received 5/],
    ['a promise', Promise.resolve(1), undefined, 'ERR_INVALID_TABLE', /Await it first/],
    ['rows of 0', batches, { by: 'k', batchRows: 0 }, 'ERR_OPTION', /batchRows/],
    ['no column', batches, {}, 'ERR_OPTION', /by/],
    ['an option that it does not have', batches, { by: 'k', resident: true }, 'ERR_OPTION', /resident/],
  ] as const)('%s throws at once', (_, input, options, code, message) => {
    const thrown = (() => {
      try {
        return void sortBatches(input as never, (options ?? { by: 'k' }) as never);
      } catch (error) {
        return error as WarpjoinError;
      }
    })();
    expect(thrown).toMatchObject({ code });
    expect(thrown!.message).toMatch(message);
  });

  test.each([
    ['a column that is not there', () => later(batches), { by: 'kk' }, 'ERR_COLUMN_NOT_FOUND', /Did you mean "k"/],
    ['no batches, later', () => later([]), undefined, 'ERR_INVALID_TABLE', /no record batches/],
    ['something else, later', () => later([...batches, 7]), undefined, 'ERR_INVALID_TABLE', /received 7/],
    [
      'another schema, later',
      () => later([batches[0], other.batches[0]]),
      undefined,
      'ERR_INVALID_TABLE',
      /different schemas: column "k"/,
    ],
    [
      'bytes that are no Arrow stream',
      () => later([new Uint8Array(100)]),
      undefined,
      'ERR_INVALID_TABLE',
      /input table is a stream of bytes/,
    ],
    [
      'batches within bytes',
      () => later([arrow.tableToIPC(keyed(9, 9, 2)).slice(0, 100), batches[0]]),
      undefined,
      'ERR_INVALID_TABLE',
      /something else/,
    ],
    [
      'a source that fails',
      async function* () {
        yield batches[0];
        throw new Error('no more');
      },
      undefined,
      'ERR_INVALID_TABLE',
      /no more/,
    ],
  ] as const)('%s', async (_, input, options, code, message) => {
    const error = await failure(bad(input(), options));
    expect(error.message).toMatch(message);
    expect(error).toMatchObject({ code });
  });

  test('reading twice', async () => {
    const sorted = sortBatches(batches, { by: 'k' });
    await read(sorted);
    const error = await failure(read(sorted));
    expect(error).toMatchObject({ code: 'ERR_OPTION', message: /have not been read/ });
  });

  test.each([
    ['no directory', join(folder, 'none'), /Expected a directory for tempDirectory/],
    ['files that are memory', '/dev/shm', /Its files are memory/],
  ])('%s', async (_, tempDirectory, message) => {
    await using engine = await testEngine(1, { tempDirectory });
    const source = later(batches);
    const error = await failure(read(engine.sortBatches(source, { by: 'k' })));
    expect(error).toMatchObject({ code: 'ERR_OPTION' });
    expect(error.message).toMatch(message);
    expect((await source.next()).value).toBe(batches[0]); // nothing was read
  });
});

describe('whatever ends it', () => {
  const ways: Record<string, (sorted: BatchStream, controller: AbortController) => Promise<void>> = {
    'its end': async (sorted) => void (await read(sorted)),
    'a break': async (sorted) => {
      for await (const _ of sorted) break;
    },
    'disposal before it is read': (sorted) => sorted[Symbol.asyncDispose](),
    'disposal in the middle': async (sorted) => {
      await sorted[Symbol.asyncIterator]().next();
      await sorted[Symbol.asyncDispose]();
    },
    'an abort in the middle': async (sorted, controller) => {
      const iterator = sorted[Symbol.asyncIterator]();
      await iterator.next();
      controller.abort(new Error('enough'));
      await expect(iterator.next()).rejects.toThrow('enough');
    },
    'an abort at the start': async (sorted, controller) => {
      const next = sorted[Symbol.asyncIterator]().next();
      controller.abort(new Error('enough'));
      await expect(next).rejects.toThrow('enough');
    },
    'an abort while runs are written': async (sorted, controller) => {
      const next = sorted[Symbol.asyncIterator]().next();
      await expect.poll(() => sorted.stats.runs, { interval: 1 }).toBeGreaterThan(1);
      controller.abort(new Error('enough'));
      await expect(next).rejects.toThrow('enough');
    },
    'too little room for temporary files': async (sorted) => {
      expect(await failure(read(sorted))).toMatchObject({ code: 'ERR_SPILL', message: /maxTempDirectorySize of 1000 KiB/ });
    },
    'too little memory for a row': async (sorted) => {
      expect(await failure(read(sorted))).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
    },
  };

  test.each(Object.keys(ways))('%s leaves nothing', async (way) => {
    const maxTempDirectorySize = way.includes('room') ? '1000KiB' : '100MB';
    const isShort = way.includes('memory');
    const memoryLimit = isShort ? '8KiB' : LITTLE;
    const input = isShort ? large.slice(0, 2000) : large; // each piece that finds no room takes a collection of garbage
    const { engine, inner } = inspectedEngine(SOME, { memoryLimit, tempDirectory: folder, maxTempDirectorySize });
    const controller = new AbortController();
    await ways[way]!(engine.sortBatches(later(input.batches), { by: 'k', signal: controller.signal }), controller);
    const leftBytes = async () => collectGarbage(() => inner.memory().usedBytes);
    await expect.poll(leftBytes).toBe(0);
    expect(readdirSync('/proc/self/fd').filter((fd) => targetOf(fd).startsWith(folder))).toEqual([]);
    const few = await read(engine.sortBatches(later(large.slice(0, 50).batches), { by: 'at', select: ['at'] }));
    expect(numbersOf(few)).toEqual([...Array(50).keys()]);
    await engine.dispose();
  });

  test('the n-th allocation fails, for each n', async () => {
    const { engine, inner } = inspectedEngine(SOME, { memoryLimit: LITTLE, threads: 2, tempDirectory: folder });
    const input = large.slice(0, 60_000);
    const expected = numbersOf((await sort(input, { by: 'k' })).batches);
    let failures = 0;
    const fail = async (n: number) => {
      inner.failAllocation('memory', n);
      const found = await read(engine.sortBatches(later(input.batches), { by: 'k' })).catch(
        (error: unknown) => error as WarpjoinError,
      );
      inner.failAllocation('memory', 0);
      // A part that fails is sorted in halves, and a window that fails is read once more.
      if (Array.isArray(found)) expect(numbersOf(found)).toEqual(expected);
      else expect(found).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
      failures += Array.isArray(found) ? 0 : 1;
    };
    for (let n = 1; n < 200; n += n < 30 ? 1 : 11) await fail(n);
    expect(failures).toBeGreaterThan(0);
    expect(failures).toBeLessThan(10);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });

  test('an engine that is disposed', async () => {
    const engine = await testEngine(1, { memoryLimit: LITTLE, tempDirectory: folder });
    const iterator = engine.sortBatches(later(large.batches), { by: 'k' })[Symbol.asyncIterator]();
    await iterator.next();
    await engine.dispose();
    const rest = async () => {
      while (!(await iterator.next()).done);
    };
    expect(await failure(rest())).toMatchObject({ code: 'ERR_OPTION', message: /disposed/ });
  });
});
