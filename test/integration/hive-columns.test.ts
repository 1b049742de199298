/** Columns that the names of folders give: country=DE/year=2024/part.parquet. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { Float64, Table, Utf8, vectorFromArray } from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { createEngine, fromColumns } from '../../lib/index.js';
import { type ReadOptions, readTable, scanFiles, writeTable } from '../../lib/io/index.js';
import { expectFailure, printed, warpjoin } from '../support/cli.js';
import { foldersOf } from '../support/folders.js';
import { failure, random, rows, unordered } from '../support/tables.js';

const { parts, at } = foldersOf('hive-columns');

const COUNTRIES = ['DE', 'a/b', '..', '*', '', '__HIVE_DEFAULT_PARTITION__', 'Zürich & Söhne', '100%', null];
const draw = random(1);
const all = Array.from({ length: 3000 }, (_, id) => ({
  id,
  country: COUNTRIES[draw(9)] ?? null,
  year: draw(3) ? 2020 + draw(3) : null,
}));

/** Writes files whose rows have an `id` alone. */
async function writeIds(files: Record<string, number[]>): Promise<void> {
  for (const [file, ids] of Object.entries(files)) {
    mkdirSync(dirname(at(file)), { recursive: true });
    await writeTable(fromColumns({ id: Int32Array.from(ids) }), at(file));
  }
}

/** The rows of a scan, whose batches have one schema. */
async function scanned(pattern: string, options: ReadOptions = {}): Promise<Table> {
  const batches = [];
  for await (const batch of scanFiles(at(pattern), options)) batches.push(batch);
  return new Table(batches);
}

describe.each(['arrow', 'parquet', 'csv', 'csv.gz', 'ndjson'])('%s files', (format) => {
  const pattern = `**/*.${format}`;

  test('have the rows that were written without these columns', async () => {
    const groups = new Map<string, typeof all>();
    for (const row of all) {
      const name = row.country === null ? '__HIVE_DEFAULT_PARTITION__' : encodeURIComponent(row.country).replaceAll('_', '%5F');
      const file = `country=${name}/year=${row.year ?? '__HIVE_DEFAULT_PARTITION__'}/part.${format}`;
      groups.set(file, [...(groups.get(file) ?? []), row]);
    }
    await writeIds(Object.fromEntries([...groups].map(([file, of]) => [file, of.map(({ id }) => id)])));
    for (const read of [await readTable(at(pattern)), await scanned(pattern)]) {
      expect(read.schema.names).toEqual(['id', 'country', 'year']);
      const plain = rows(read).map((row) => ({ ...row, id: Number(row.id), year: row.year === null ? null : Number(row.year) }));
      expect(unordered(plain)).toEqual(unordered(all));
    }
  });

  test('some columns, in any order, and some rows', async () => {
    await writeIds({ [`year=2023/a.${format}`]: [1, 2], [`year=2024/a.${format}`]: [3, 4] });
    for (const read of [readTable, (input: string, options: ReadOptions) => scanned(input.slice(parts.length + 1), options)]) {
      expect(rows(await read(at(pattern), { columns: ['year'] }))).toEqual(
        [2023n, 2023n, 2024n, 2024n].map((year) => ({ year })),
      );
      const some = await read(at(pattern), { columns: ['year', 'id'], maxRows: 3, types: { year: 'utf8' } });
      expect(some.schema.names).toEqual(['year', 'id']);
      expect([...some.getChild('year')!]).toEqual(['2023', '2023', '2024']);
      expect((await read(at(pattern), { columns: ['id'] })).schema.names).toEqual(['id']);
      expect((await read(at(pattern), { hivePartitioning: false })).schema.names).toEqual(['id']);
    }
  });

  test('columns of a file come before those of its folders, and types go to them', async () => {
    mkdirSync(at('id=7/x=1'), { recursive: true });
    await writeTable(fromColumns({ id: Int32Array.of(1), text: ['5'] }), at(`id=7/x=1/a.${format}`));
    const found = await readTable(at(pattern), { types: { x: 'float64', id: 'float64' }, columns: ['x', 'id'] });
    expect(rows(found).map(({ x, id }) => [x, Number(id)])).toEqual([[1, 1]]);
    expect(found.schema.fields[0]!.type).toEqual(new Float64());
  });
});

test('DuckDB’s partitions', async () => {
  const connection = await (await DuckDBInstance.create()).connect();
  await connection.run(`COPY (SELECT range AS id, range % 7 AS seven, ['Ä/b', 'c=d', NULL, 'e f'][1 + range % 4] AS name,
    DATE '2024-01-30' + (range % 5)::INT AS day FROM range(1000))
    TO '${at('made')}' (FORMAT parquet, PARTITION_BY (seven, name, day))`);
  connection.closeSync();
  const found = await readTable(at('made/**/*.parquet'));
  expect(found.schema.fields.map(({ name, type }) => `${name}: ${type}`)).toEqual([
    'id: Int64',
    'seven: Int64',
    'name: Dictionary<Int32, Utf8>',
    'day: Date32<DAY>',
  ]);
  const wanted = Array.from({ length: 1000 }, (_, id) => ({
    id: BigInt(id),
    seven: BigInt(id % 7),
    name: ['Ä/b', 'c=d', null, 'e f'][id % 4],
    day: Date.UTC(2024, 0, 30 + (id % 5)),
  }));
  expect(rows(found).sort((a, b) => Number(a.id) - Number(b.id))).toEqual(wanted);
});

describe('values have one type in all files', () => {
  test.each([
    [['1', '02'], 'Dictionary<Int32, Utf8>', ['1', '02']],
    [['1', 'x'], 'Dictionary<Int32, Utf8>', ['1', 'x']],
    [['1', ''], 'Dictionary<Int32, Utf8>', ['1', '']],
    [['__HIVE_DEFAULT_PARTITION__', '-3'], 'Int64', [null, -3n]],
    [['__HIVE_DEFAULT_PARTITION__'], 'Dictionary<Int32, Utf8>', [null]],
    [['1.5', '2'], 'Float64', [1.5, 2]],
    [['true', 'false'], 'Bool', [true, false]],
    [['2024-05-01 10%3A00%3A00', '2024-05-02'], 'Timestamp<MICROSECOND>', [Date.UTC(2024, 4, 1, 10), Date.UTC(2024, 4, 2)]],
    [['"', 'a%0Ab', '%', '50%25'], 'Dictionary<Int32, Utf8>', ['"', 'a\nb', '%', '50%']],
  ])('%j', async (values, type, wanted) => {
    const files = values.map((value, n) => `n=${n}/v=${value}/a.arrow`);
    await writeIds(Object.fromEntries(files.map((file) => [file, Array.from({ length: 11 }, (_, i) => i)])));
    const found = await readTable(files.map(at), { columns: ['v'] });
    expect(`${found.schema.fields[0]!.type}`).toBe(type);
    expect([...found.getChild('v')!]).toEqual(wanted.flatMap((value) => new Array(11).fill(value)));
  });

  test('that of types, or the file is refused', async () => {
    await writeIds({ 'v=1/a.parquet': [1], 'v=x/a.parquet': [2], 'v=/b.csv': [3] });
    const error = await failure(readTable(at('v=[1x]/*'), { types: { v: 'int64' } }));
    expect(error.code).toBe('ERR_FILE');
    expect(error.message).toBe('names of folders: "x" in column "v" is not of type int64');
    expect(rows(await readTable(at('v=/*'), { types: { v: 'int64' } }))).toEqual([{ id: 3n, v: null }]);
  });
});

test('folders of other columns', async () => {
  await writeIds({ 'a=1/x.arrow': [1], 'b=1/x.arrow': [2] });
  const error = await failure(readTable(at('*/x.arrow')));
  expect([error.code, error.message.replaceAll(`${parts}/`, '')]).toEqual([
    'ERR_FILE',
    'b=1/x.arrow: its columns are not those of a=1/x.arrow: column 2 is b: int64, not a: int64',
  ]);
  expect((await failure(readTable(at('a=1/x.arrow'), { hivePartitioning: 1 as never }))).code).toBe('ERR_OPTION');
});

test.each(['csv', 'parquet'])('a pipe of %s is read once', async (format) => {
  const [file, pipe] = [at(`file.${format}`), at(`v=1/pipe.${format}`)];
  await writeIds({ [`file.${format}`]: [7, 8] });
  mkdirSync(at('v=1'));
  execFileSync('mkfifo', [pipe]);
  for (const columns of [['v', 'id'], ['v']]) {
    const reading = readTable(pipe, { columns });
    await writeFile(pipe, readFileSync(file));
    const found = await reading;
    expect(found.schema.names).toEqual(columns);
    expect([...found.getChild('v')!]).toEqual([1n, 1n]);
  }
});

test('results of calls have them', async () => {
  await writeIds({ 'country=DE/a.parquet': [1, 2], 'country=FR/a.parquet': [3] });
  const names = new Table({
    country: vectorFromArray(['FR', 'DE'], new Utf8()),
    name: vectorFromArray(['France', 'Germany'], new Utf8()),
  });
  await using engine = await createEngine({ device: 'cpu' });
  const joined = await engine.join(await readTable(at('**/*.parquet')), names, { on: 'country', maintainOrder: 'left' });
  expect(rows(joined).map(({ id, name }) => [id, name])).toEqual([
    [1, 'Germany'],
    [2, 'Germany'],
    [3, 'France'],
  ]);
  const streamed = [];
  for await (const batch of engine.sortBatches(scanFiles(at('**/*.parquet')), {
    by: ['country', { column: 'id', descending: true }],
  }))
    streamed.push(...rows(new Table([batch])));
  expect(streamed).toEqual([
    { id: 2, country: 'DE' },
    { id: 1, country: 'DE' },
    { id: 3, country: 'FR' },
  ]);
});

describe('the command', () => {
  const files = { 'year=2023/a.csv': [1, 2], 'year=2024/a.csv': [3] };

  test.each([[], ['--memory-limit', '64MiB']])('sorts by them %s', async (...limit) => {
    await writeIds(files);
    const out = await printed('sort', at('**/*.csv'), '--by', 'year:desc,id', '--format', 'csv', '-o', '-', ...limit);
    expect(out).toBe('id,year\n3,2024\n1,2023\n2,2023\n');
  });

  test('casts them, shows them, and leaves them out', async () => {
    await writeIds(files);
    expect((await printed('schema', at('year=*/*.csv'))).match(/year {2}int64/g)).toHaveLength(2);
    const cast = ['--cast', 'year=utf8', '--format', 'csv', '-o', '-'];
    expect(await printed('head', at('**/*.csv'), ...cast)).toBe('id,year\n1,2023\n2,2023\n3,2024\n');
    const refused = await warpjoin('sort', at('**/*.csv'), '--by', 'year', '--no-hive-partitioning');
    expectFailure(refused, 2, /has no column "year"/);
  });
});
