/** Results in several files: `fileRows` and `fileSize` of writeTable() and writeBatches(), --file-rows and --file-size of the command. */
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeVector, type RecordBatch, Table, Utf8, vectorFromArray } from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { fromRows } from '../../lib/index.js';
import { readTable, writeBatches, writeTable } from '../../lib/io/index.js';
import { expectFailure, warpjoin } from '../support/cli.js';
import { foldersOf } from '../support/folders.js';
import { failure, random, rows } from '../support/tables.js';

const { folder, parts, at } = foldersOf('file-rows');

const table = fromRows(Array.from({ length: 1000 }, (_, id) => ({ id, name: id % 9 ? `n${id % 50}` : null })));
async function* inBatches(step: number, fails = false): AsyncGenerator<RecordBatch> {
  for (let row = 0; row < table.numRows; row += step) {
    if (fails && row > 500) throw new Error('the line is dead');
    yield* table.slice(row, row + step).batches;
  }
}
const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
const files = (name: string, count: number) =>
  Array.from({ length: count }, (_, number) => name.replace('*', String(number).padStart(6, '0')));

describe.each(['arrow', 'parquet', 'csv.gz', 'ndjson'])('%s files', (format) => {
  test.each([
    [300, 4],
    [500, 2],
    [1000, 1],
    [5000, 1],
  ])('of %i rows', async (fileRows, count) => {
    await writeTable(table, join(folder, `whole.${format}`));
    const whole = rows(await readTable(join(folder, `whole.${format}`)));
    for (const [name, write] of [
      [`table-*.${format}`, (path: string) => writeTable(table, path, { fileRows })],
      [`batches-*.${format}`, (path: string) => writeBatches(inBatches(70), path, { fileRows })],
      [`large-*.${format}`, (path: string) => writeBatches(inBatches(1000), path, { fileRows })],
    ] as const) {
      await write(at(name));
      const written = readdirSync(parts).sort();
      expect(written).toEqual(files(name, count));
      expect(rows(await readTable(at(name)))).toEqual(whole);
      for (const [number, file] of written.entries()) {
        expect((await readTable(at(file))).numRows).toBe(Math.min(fileRows, 1000 - number * fileRows));
        rmSync(at(file));
      }
    }
  });
});

describe.each(['arrow', 'parquet', 'csv', 'csv.gz', 'ndjson', 'json'])('%s files of some bytes', (format) => {
  const count = 400_000;
  // What compression can't make smaller; texts whose slices share their bytes.
  const draw = random(7);
  const large = new Table({
    id: makeVector(Float64Array.from({ length: count }, () => draw(2 ** 32) / 7)),
    text: vectorFromArray(
      Array.from({ length: count }, (_, row) => `${row % 1000}`),
      new Utf8(),
    ),
  });
  const some = format.endsWith('json') ? large.slice(0, 100_000) : large;
  const most = 1_000_000;

  test('end where they have them', async () => {
    await writeTable(some, join(folder, `whole.${format}`));
    const whole = readFileSync(join(folder, `whole.${format}`)).byteLength;
    for (const [name, write] of [
      [`table-*.${format}`, (path: string) => writeTable(some, path, { fileSize: '1MB' })],
      [`batches-*.${format}`, (path: string) => writeBatches(some.batches, path, { fileSize: most })],
    ] as const) {
      await write(at(name));
      const written = readdirSync(parts).sort();
      expect(written).toEqual(files(name, written.length));
      const sizes = written.map((file) => statSync(at(file)).size);
      expect(Math.min(...sizes.slice(0, -1))).toBeGreaterThanOrEqual(most);
      // Parquet's writer takes a group of rows for each thread before it writes one.
      if (format !== 'parquet') expect(Math.max(...sizes)).toBeLessThan(1.25 * most);
      expect(written.length).toBeGreaterThan(format === 'parquet' ? 1 : whole / most / 1.25);
      const read = await readTable(at(name));
      expect(read.numRows).toBe(some.numRows);
      expect(Buffer.compare(bytesOf(read.getChild('id')!.toArray()), bytesOf(some.getChild('id')!.toArray()))).toBe(0);
      for (const file of written) rmSync(at(file));
    }
  });
});

test('a file has a row at least, and no more than fileRows', async () => {
  await writeTable(table.slice(0, 5), at('one-*.csv'), { fileSize: 1 });
  expect(readdirSync(parts).sort()).toEqual(files('one-*.csv', 5));
  await writeTable(table, at('both-*.ndjson'), { fileSize: '1GiB', fileRows: 300 });
  expect(readdirSync(parts).filter((name) => name.startsWith('both'))).toHaveLength(4);
});

test('there is one file for no rows', async () => {
  await writeTable(table.slice(0, 0), at('none-*.parquet'), { fileRows: 10 });
  expect(readdirSync(parts)).toEqual(files('none-*.parquet', 1));
  const none = await readTable(at('none-000000.parquet'));
  expect([none.numRows, none.schema.names]).toEqual([0, ['id', 'name']]);
});

test('without fileRows a star is a star', async () => {
  await writeTable(table, at('a*.csv'));
  expect(readdirSync(parts)).toEqual(['a*.csv']);
});

test('files of another result are not mixed with, and nothing is asked for before that is known', async () => {
  writeFileSync(at('p-17.csv'), '');
  writeFileSync(at('p-x.csv'), '');
  let asked = 0;
  async function* source() {
    asked++;
    yield* inBatches(10);
  }
  expect(await failure(writeBatches(source(), at('p-*.csv'), { fileRows: 10 }))).toMatchObject({
    code: 'ERR_FILE',
    message: `${at('p-*.csv')}: p-17.csv is there already: remove it, or rows of two results would be mixed`,
  });
  expect(asked).toBe(0);
  rmSync(at('p-17.csv'));
  await writeBatches(source(), at('p-*.csv'), { fileRows: 1000 });
  expect(readdirSync(parts).sort()).toEqual(['p-000000.csv', 'p-x.csv']);
});

test('no file stays where the batches fail, or the call is aborted', async () => {
  expect((await failure(writeBatches(inBatches(70, true), at('f-*.parquet'), { fileRows: 100 }))).message).toMatch(
    /the line is dead/,
  );
  expect(readdirSync(parts)).toEqual([]);
  const controller = new AbortController();
  async function* aborting() {
    yield* inBatches(100);
    controller.abort(new Error('enough'));
    yield* inBatches(100);
  }
  const { signal } = controller;
  expect(await failure(writeBatches(aborting(), at('f-*.csv'), { fileRows: 150, signal }))).toMatchObject({ message: 'enough' });
  expect(readdirSync(parts)).toEqual([]);
});

test.each([
  ['p.csv', 10, /one "\*" in it.*for the output with fileRows/],
  ['*-*.csv', 10, /one "\*" in it/],
  ['*/a.csv', 10, /one "\*" in it/],
  ['-', 10, /one "\*" in it/],
  ['p-*.csv', 0, /fileRows/],
  ['p-*.csv', 1.5, /fileRows/],
  ['p-*.csv', '10%', /a number of bytes, or a string like '1GiB' or '500 MB' for fileSize but received "10%"/],
  ['p-*.csv', '0MB', /fileSize/],
  ['p.csv', '1MB', /one "\*" in it.*for the output with fileRows, fileSize or partitionBy/],
])('%s with %s a file is refused', async (name, most, message) => {
  const output = name === '-' ? name : at(name);
  const options = typeof most === 'string' ? { fileSize: most } : { fileRows: most };
  const error = await failure(writeTable(table, output, { ...options, format: 'csv' }));
  expect(error).toMatchObject({ code: 'ERR_OPTION', message: expect.stringMatching(message) });
});

describe('the command', () => {
  test('writes several files, whole inputs or as they come', async () => {
    await writeTable(table, join(folder, 'in.parquet'));
    for (const more of [[], ['--memory-limit', '50KiB']]) {
      const sort = ['sort', join(folder, 'in.parquet'), '--by', 'id:desc', '--file-rows', '400', '-o', at('s-*.parquet')];
      const { code, err } = await warpjoin(...sort, ...more);
      expect(err).toMatch(/1,000 rows/);
      expect(code).toBe(0);
      expect(readdirSync(parts).sort()).toEqual(files('s-*.parquet', 3));
      expect(rows(await readTable(at('s-*.parquet')))).toEqual(rows(table).toReversed());
      expectFailure(await warpjoin(...sort), 1, /s-000000.parquet is there already/);
      for (const file of readdirSync(parts)) rmSync(at(file));
    }
    const head = ['head', join(folder, 'in.parquet'), '-n', '1000', '--file-size', '2KB', '-o', at('h-*.arrow')];
    expect((await warpjoin(...head)).code).toBe(0);
    expect(readdirSync(parts).length).toBeGreaterThan(3);
    expect(rows(await readTable(at('h-*.arrow')))).toEqual(rows(table));
  });

  test.each([
    [['--file-rows', '10', '-o', 'x.csv'], /--file-rows: --output x.csv has no "\*" in its name/],
    [['--file-rows', '10'], /--file-rows goes with formats of files, and - is table/],
    [['--file-rows', '0', '-o', 'x-*.csv'], /--file-rows needs a whole number of at least 1 but received "0"/],
    [['--file-size', '1MB', '-o', 'x.csv'], /--file-size: --output x.csv has no "\*" in its name/],
    [['--file-size', '1MB'], /--file-size goes with formats of files, and - is table/],
    [['--file-size', '5%', '-o', 'x-*.csv'], /--file-size needs a size, such as 64GiB or 500MB, but received "5%"/],
  ])('refuses %j', async (args, message) => {
    expectFailure(await warpjoin('head', join(folder, 'in.parquet'), ...args), 2, message);
  });
});
