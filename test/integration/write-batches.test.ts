/** writeBatches(), and the commands that read, sort, join and write as rows come. */
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import type { Coming } from '../../lib/cli/inputs.js';
import { joinOperation, sortOperation } from '../../lib/cli/operations.js';
import { createEngine, fromRows, sortBatches, toRows } from '../../lib/index.js';
import { readTable, scanFiles, writeBatches, writeTable } from '../../lib/io/index.js';
import { itemsIn, mapped } from '../../lib/items.js';
import { expectFailure, printed, warpjoin, warpjoinWith } from '../support/cli.js';
import { failure, random, rows, unordered } from '../support/tables.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-write-batches-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);
const FORMATS = ['arrow', 'parquet', 'csv', 'tsv.gz', 'ndjson', 'json'];

const draw = random(7);
const table = fromRows(
  Array.from({ length: 5000 }, (_, id) => ({
    id,
    key: draw(900),
    name: draw(9) ? `n${draw(50)}` : null,
    share: draw(1000) / 8,
  })),
  { types: { name: new arrow.Utf8() } },
);

/** The table in batches of `step` rows; counts those that were asked for, and says how it ended. */
class Source implements AsyncIterable<arrow.RecordBatch> {
  asked = 0;
  end: 'read' | 'left' | undefined;

  constructor(
    private readonly of: arrow.Table,
    private readonly step: number,
    private readonly fail?: Error,
  ) {}

  async *[Symbol.asyncIterator]() {
    this.end = 'left';
    for (let row = 0; row < Math.max(1, this.of.numRows); row += this.step) {
      ++this.asked;
      if (this.fail && this.asked > 2) throw this.fail;
      for (const batch of this.of.slice(row, row + this.step).batches) yield batch;
    }
    this.end = 'read';
  }
}

describe.each(FORMATS)('to %s', (format) => {
  test.each([1, 700, 5000])('%i rows at a time give what a table gives', async (step) => {
    const some = table.slice(0, step === 1 ? 50 : 5000);
    await writeTable(some, at(`whole.${format}`));
    const source = new Source(some, step);
    expect(await writeBatches(source, at(`parts.${format}`))).toBe(some.numRows);
    expect(source.end).toBe('read');
    const [whole, parts] = [await readTable(at(`whole.${format}`)), await readTable(at(`parts.${format}`))];
    expect(rows(parts)).toEqual(rows(whole));
    expect(parts.schema.fields.map(String)).toEqual(whole.schema.fields.map(String));
  });

  test('no rows', async () => {
    expect(await writeBatches(new Source(table.slice(0, 0), 10), at(`none.${format}`))).toBe(0);
    if (format === 'json') expect(toRows(await readTable(at(`none.${format}`)))).toEqual([]);
  });

  test('what the batches threw is thrown, and nothing is left', async () => {
    const thrown = Object.assign(new Error('gone'), { code: 'ENOENT' });
    expect(await failure(writeBatches(new Source(table, 100, thrown), at(`failed.${format}`)))).toMatchObject({
      message: expect.stringContaining('gone'),
    });
    expect(readdirSync(folder).filter((name) => name.includes('failed'))).toEqual([]);
  });

  test('a write that fails ends the source', async () => {
    const source = new Source(table, 100);
    const error = await failure(writeBatches(source, at(`no/folder.${format}`)));
    expect(error).toMatchObject({ code: 'ERR_FILE', message: expect.stringContaining('no such file or directory') });
    expect([source.asked, source.end]).toEqual([1, 'left']);
  });

  test('aborts while it waits for batches', async () => {
    const abort = new AbortController();
    async function* stuck() {
      yield table.batches[0]!;
      queueMicrotask(() => abort.abort(new Error('stop')));
      await new Promise(() => {});
    }
    const writing = writeBatches(stuck(), at(`aborted.${format}`), { signal: abort.signal });
    expect((await failure(writing)).message).toBe('stop');
    expect(readdirSync(folder).filter((name) => name.includes('aborted'))).toEqual([]);
  });
});

test('nested columns go to Parquet as they come', async () => {
  const nested = arrow.tableFromArrays({ id: Int32Array.from({ length: 300 }, (_, i) => i) }).assign(
    new arrow.Table({
      tags: arrow.vectorFromArray(
        Array.from({ length: 300 }, (_, i) => [i, i + 1]),
        new arrow.List(new arrow.Field('item', new arrow.Int32(), true)),
      ),
    }),
  );
  await writeBatches(new Source(nested, 70), at('nested.parquet'));
  expect(toRows(await readTable(at('nested.parquet')))).toEqual(toRows(nested));
});

test('the next batch is asked for once those before are written', async () => {
  let written = 0;
  const ahead: number[] = [];
  async function* source() {
    for (let part = 1; part <= 20; part++) {
      yield table.batches[0]!;
      ahead.push(part - written);
    }
  }
  const { stdout } = process;
  const write = stdout.write;
  stdout.write = ((_: Uint8Array, done: () => void) => {
    setTimeout(() => {
      ++written;
      done();
    }, 1);
    return true;
  }) as never;
  try {
    await writeBatches(source(), '-', { format: 'arrow' });
  } finally {
    stdout.write = write;
  }
  expect(Math.max(...ahead)).toBeLessThanOrEqual(1);
});

test('where writing fails, a batch that never comes is not waited for', async () => {
  let ended = false;
  async function* source() {
    try {
      yield table.batches[0]!;
      await new Promise(() => {});
    } finally {
      ended = true;
    }
  }
  const { stdout } = process;
  const write = stdout.write;
  stdout.write = ((_: Uint8Array, done: (error: Error) => void) => {
    setTimeout(() => done(Object.assign(new Error('no space left'), { code: 'ENOSPC' })), 1);
    return true;
  }) as never;
  try {
    const error = await failure(writeBatches(source(), '-', { format: 'parquet', rowGroupBytes: 1 }));
    expect(error).toMatchObject({ code: 'ERR_FILE', message: expect.stringMatching(/^-: cannot write: no space/) });
  } finally {
    stdout.write = write;
  }
  expect(ended).toBe(false);
});

test('what are no batches is refused before a file is there', async () => {
  const to = at('refused.arrow');
  for (const [given, message] of [
    [5, /batches table but received 5/],
    [[], /has no record batches/],
    [[1], /received 1/],
    [[table, table.select(['id'])], /column "key" is missing in record batch 1/],
  ] as const) {
    const error = await failure(writeBatches(given as never, to));
    expect(error).toMatchObject({ code: 'ERR_INVALID_TABLE', message: expect.stringMatching(message) });
  }
  expect(existsSync(to)).toBe(false);
  expect((await failure(writeBatches(table, 5 as never))).message).toContain('the output of writeBatches');
});

test('files are sorted into a file', async () => {
  await writeTable(table, at('events.parquet'));
  await writeBatches(sortBatches(scanFiles(at('events.parquet')), { by: ['key', 'id'] }), at('sorted.parquet'));
  const sorted = rows(await readTable(at('sorted.parquet')));
  expect(sorted).toEqual(rows(table).sort((a, b) => Number(a.key) - Number(b.key) || Number(a.id) - Number(b.id)));
});

describe('files without rows', () => {
  const { Field } = arrow;
  const int = new Field('item', new arrow.Int32(), true);
  const entries = new Field(
    'entries',
    new arrow.Struct([new Field('key', new arrow.Utf8()), new Field('value', int.type, true)]),
  );
  const nested = new arrow.Schema([
    new Field('id', new arrow.Int32(), true),
    new Field('list', new arrow.List(new Field('item', new arrow.List(int), true)), true),
    new Field('pair', new arrow.FixedSizeList(2, int), true),
    new Field(
      'struct',
      new arrow.Struct([int, new Field('d', new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 3))]),
      true,
    ),
    new Field('map', new arrow.Map_(entries), true),
  ]);

  test.each(['arrow', 'parquet'])('%s: a batch without rows says which columns there are', async (format) => {
    const [none, some] = [at(`none.${format}`), at(`some.${format}`)];
    await writeTable(new arrow.Table(nested), none);
    const batches: arrow.RecordBatch[] = [];
    for await (const batch of scanFiles([none, none])) batches.push(batch);
    expect(batches.map(({ numRows, schema }) => [numRows, String(schema)])).toEqual([[0, String(nested)]]);
    expect(await writeBatches(scanFiles(none), at('again.arrow'))).toBe(0);
    expect(String((await readTable(at('again.arrow'))).schema)).toBe(String(nested));
    await writeTable(table, some);
    await writeTable(table.slice(0, 0), none);
    const rows: number[] = [];
    for await (const { numRows } of scanFiles([none, some, none])) rows.push(numRows);
    expect(rows).not.toContain(0);
    expect(rows.reduce((sum, each) => sum + each, 0)).toBe(table.numRows);
  });
});

describe('commands with inputs that are larger than a quarter of the memory limit', () => {
  const large = fromRows(
    Array.from({ length: 60_000 }, (_, id) => ({ id, key: draw(20_000), name: `name ${draw(5000)} of many`, share: id / 8 })),
    { types: { name: new arrow.Utf8() } },
  );
  const small = fromRows(Array.from({ length: 300 }, (_, key) => ({ key, label: `l${key}` })));
  const little = ['--memory-limit', '4MiB', '--threads', '1', '--temp-directory', folder];
  /** A batch of each side has room. */
  const roomier = ['--memory-limit', '6MiB', ...little.slice(2)];
  const written = (async () => {
    for (const name of ['large.parquet', 'large.csv', 'large.arrow']) await writeTable(large, at(name));
    await writeTable(small, at('small.arrow'));
  })();

  test.each(['large.parquet', 'large.csv', 'large.arrow'])('sort %s', async (name) => {
    await written;
    const sort = ['sort', at(name), '--by', 'key:desc,name', '--stats', 'json'];
    const stats = JSON.parse(await printed(...sort, ...little, '-o', at('little.parquet')));
    expect(stats.stats.runs).toBeGreaterThan(1);
    expect(stats.inputs).toMatchObject([{ rows: 60_000 }]);
    expect(stats.output).toMatchObject({ rows: 60_000 });
    expect(JSON.parse(await printed(...sort, '-o', at('whole.parquet'))).stats.algorithm).toMatch(/^(merge|radix|sample)$/);
    expect(rows(await readTable(at('little.parquet')))).toEqual(rows(await readTable(at('whole.parquet'))));
  });

  test('sort shows the first rows, and how many there are', async () => {
    await written;
    const sort = ['sort', at('large.parquet'), '--by', 'key,id', '--offset', '5', '--max-rows', '3', '--select', 'id,key'];
    const [whole, some] = await Promise.all([warpjoin(...sort), warpjoin(...sort, ...little)]);
    expect(some.out).toBe(whole.out);
    expect(some.out).toContain('first 3 of 59,995 rows');
  });

  test.each([['inner'], ['left'], ['right'], ['full'], ['semi'], ['anti']])('%s join', async (how) => {
    await written;
    const join = ['join', at('large.parquet'), at('small.arrow'), '--on', 'key', '--how', how, '--stats', 'json'];
    const casts = ['--cast', 'id=int32', '--rename', 'id=number'];
    const stats = JSON.parse(await printed(...join, ...casts, ...little, '-o', at(`little-${how}.arrow`)));
    expect(stats.stats.algorithm).toBeUndefined();
    const read = JSON.parse(await printed(...join, ...casts, '-o', at(`whole-${how}.arrow`)));
    expect(read.stats.algorithm).toMatch(/^(radix-hash|sort-merge)$/);
    const [some, whole] = [await readTable(at(`little-${how}.arrow`)), await readTable(at(`whole-${how}.arrow`))];
    expect(some.schema.names).toEqual(whole.schema.names);
    expect(unordered(rows(some))).toEqual(unordered(rows(whole)));
    expect(stats.output.rows).toBe(whole.numRows);
  });

  test('a join has the rows that are asked for, in order', async () => {
    await written;
    const join = ['join', at('small.arrow'), at('large.parquet'), '--on', 'key', '--maintain-order', 'right', '--format', 'csv'];
    const range = ['--offset', '7', '--limit', '20', '-q'];
    expect(await printed(...join, ...range, ...little)).toBe(await printed(...join, ...range));
    const shown = await warpjoin(...join.slice(0, -2), '--max-rows', '2', ...little);
    expect(shown.out).toContain('first 2 rows; there are more');
  });

  test.each(['inner', 'semi'])('%s join through temporary files, in the order of a side', async (how) => {
    await written;
    const inOrder = ['--how', how, '--maintain-order', 'right_left', '--stats', 'json']; // left rows alone keep theirs
    const join = ['join', at('large.csv'), at('large.parquet'), '--on', 'id', ...inOrder];
    const { stats } = JSON.parse(await printed(...join, ...roomier, '-o', at('little-ordered.parquet')));
    expect(stats.runs).toBeGreaterThan(4);
    await printed(...join, '-o', at('whole-ordered.parquet'));
    const [some, whole] = [await readTable(at('little-ordered.parquet')), await readTable(at('whole-ordered.parquet'))];
    expect(rows(some)).toEqual(rows(whole));
  });

  test('a join whose keys have to be unique', async () => {
    await written;
    const join = ['join', at('large.csv'), at('large.parquet'), '--stats', 'json', '-o', at('unique.parquet'), ...roomier];
    const { stats } = JSON.parse(await printed(...join, '--on', 'id', '--validate', '1:1'));
    expect(stats).toMatchObject({ outputRows: 60_000, runs: expect.any(Number) });
    expect(stats.runs).toBeGreaterThan(4);
    rmSync(at('unique.parquet'));
    const failed = await warpjoin(...join, '--on', 'key', '--how', 'semi', '--validate', 'm:1');
    expect(failed).toMatchObject({
      code: 1,
      err: expect.stringMatching(/key of the right table once, .* two rows have the same: "key" \d+\./),
    });
    expect(existsSync(at('unique.parquet'))).toBe(false);
  });

  test.each([
    ['join', joinOperation, ['--on', 'key']],
    ['sort', sortOperation, ['--by', 'key']],
  ] as const)('a %s through temporary files is half done once its inputs were read', async (command, operationOf, flags) => {
    const coming = (): Coming => {
      const parts = Array.from({ length: 60 }, (_, part) => large.slice(1000 * part, 1000 * (part + 1)));
      let read = 0;
      const tables = mapped(itemsIn(parts), (part) => {
        read++;
        return part;
      });
      return { schema: large.schema, tables, read: { path: 'large', rows: 0, milliseconds: 0 }, fraction: () => read / 60 };
    };
    const inputs = command === 'join' ? [coming(), coming()] : [coming()];
    const request = parseCommandLine([command, ...inputs.map(() => 'large'), ...flags]);
    if (request.kind !== 'run') return expect.fail('no command');
    await using engine = await createEngine({ memoryLimit: 4 << 20, threads: 1, tempDirectory: folder, device: 'cpu' });
    const { comes } = operationOf(request.options);
    const made = comes!(engine, inputs, [1, 1], Number.POSITIVE_INFINITY, { signal: new AbortController().signal });
    const shares: number[] = [];
    for await (const _ of made.batches) shares.push(made.fraction());
    expect(made.stats.spilledBytes).toBeGreaterThan(0);
    expect(shares.length).toBeGreaterThan(4);
    expect(shares[0]).toBeGreaterThan(0.4);
    expect(shares[0]).toBeLessThan(0.7);
    expect(shares.at(-1)).toBe(1);
  });

  test('a Parquet file is as large as its rows, however few bytes encode them', async () => {
    const few = (length: number) => arrow.vectorFromArray(Int32Array.from({ length }, (_, row) => row >> 16));
    await writeTable(new arrow.Table({ few: few(400_000) }), at('few.parquet'));
    expect(statSync(at('few.parquet')).size).toBeLessThan(50_000);
    const sort = ['sort', at('few.parquet'), '--by', 'few:desc', '--stats', 'json', '-o', at('few.arrow'), ...little];
    expect(JSON.parse(await printed(...sort)).stats.runs).toBeGreaterThan(1);
    const sorted = (await readTable(at('few.arrow'))).getChild('few')!;
    expect([sorted.length, sorted.get(0), sorted.get(399_999)]).toEqual([400_000, 6, 0]);
  });

  test('the columns of a Parquet file count that are read', async () => {
    const numbers = () => arrow.vectorFromArray(Int32Array.from({ length: 20_000 }, () => draw(1e9)));
    await writeTable(
      new arrow.Table(Object.fromEntries(Array.from({ length: 20 }, (_, c) => [`c${c}`, numbers()]))),
      at('wide.parquet'),
    );
    const sort = ['sort', at('wide.parquet'), '--by', 'c3', '--stats', 'json', '-o', at('narrow.arrow'), ...little];
    expect(JSON.parse(await printed(...sort)).stats.runs).toBeGreaterThan(1);
    expect(JSON.parse(await printed(...sort, '--select', 'c7')).stats.algorithm).toMatch(/^(merge|radix|sample)$/);
  });

  test('a join of small inputs whose rows need more memory than there is', async () => {
    const of = (name: string) => fromRows(Array.from({ length: 2000 }, (_, row) => ({ key: row % 2, [name]: row })));
    await writeTable(of('l'), at('l.arrow'));
    await writeTable(of('r'), at('r.arrow'));
    const join = ['join', at('l.arrow'), at('r.arrow'), '--on', 'key', '--memory-limit', '16MiB'];
    const { stats } = JSON.parse(await printed(...join, '--stats', 'json', '-o', at('many.parquet')));
    expect(stats).toMatchObject({ inputRows: 4000, outputRows: 2_000_000 });
    expect((await readTable(at('many.parquet'))).numRows).toBe(2_000_000);
    const refused = await warpjoin(...join, '--max-output-rows', '1000', '-q');
    expectFailure(refused, 1, /maxOutputRows|--max-output-rows|1000/);
    expect(refused.out).toBe('');
  });

  test('a sort of wide rows into Parquet leaves the row groups room', async () => {
    const of = (column: number, row: number) => (row * (column + 7)) % 30_011; // a prime number
    const inRows = Array.from({ length: 30_000 }, (_, row) => row);
    const numbers = (column: number) => arrow.makeVector(Float64Array.from(inRows, (row) => of(column, row)));
    const columns = Array.from({ length: 60 }, (_, column) => [`c${column}`, numbers(column)]);
    await writeTable(new arrow.Table(Object.fromEntries(columns)), at('columns.parquet'));
    const sort = ['sort', at('columns.parquet'), '--by', 'c0', '--stats', 'json', '-o', at('columns-sorted.parquet')];
    expect(JSON.parse(await printed(...sort, '--memory-limit', '8MiB')).stats.runs).toBeGreaterThan(1);
    const sorted = await readTable(at('columns-sorted.parquet'));
    inRows.sort((a, b) => of(0, a) - of(0, b));
    for (const column of [0, 59]) {
      expect([...sorted.getChild(`c${column}`)!]).toEqual(inRows.map((row) => of(column, row)));
    }
  });

  test('standard input is read whole', async () => {
    await written;
    const join = ['join', at('large.arrow'), '-', '--on', 'key', '--input-format', 'ndjson', '--stats', 'json', '-q'];
    const limit = ['--memory-limit', '8MiB', '-o', at('piped.arrow')]; // the file alone has more than a quarter of it
    const piped = await warpjoinWith('{"key":1}\n{"key":2}\n', ...join, ...limit);
    expect(JSON.parse(piped.out).stats.algorithm).toMatch(/^(radix-hash|sort-merge)$/);
  });

  test('mistakes are told', async () => {
    await written;
    writeFileSync(at('late.csv'), `a\n${'100200300400500600\n'.repeat(600_000)}x\n`); // more than types are taken from
    const late = await warpjoin('sort', at('late.csv'), '--by', 'a', '-q', ...little);
    expectFailure(late, 1, /late.csv:600002: .*--cast/);
    const sort = ['sort', at('large.parquet'), '-q'];
    expectFailure(await warpjoin(...sort, '--by', 'nope', ...little), 2, /no column "nope"/);
    const full = await warpjoin(...sort, '--by', 'key', '--max-temp-size', '100KiB', '-o', at('full.arrow'), ...little);
    expectFailure(full, 1, /100 KiB|102400|maxTempDirectorySize/);
    expect(existsSync(at('full.arrow'))).toBe(false);
    const nowhere = await warpjoin(...sort, '--by', 'key', ...little.slice(0, -1), at('nowhere'));
    expectFailure(nowhere, 2, /nowhere/);
  });
});
