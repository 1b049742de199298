/** Results in folders by the values of columns: `partitionBy` of writeTable() and writeBatches(), --partition-by of the command. */
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { createEngine, fromColumns, fromRows } from '../../lib/index.js';
import { readTable, writeBatches, writeTable } from '../../lib/io/index.js';
import { expectFailure, warpjoin } from '../support/cli.js';
import { foldersOf } from '../support/folders.js';
import { cut, failure, later, random, rows, unordered } from '../support/tables.js';

const { folder, parts, at } = foldersOf('partitions');
const filesIn = () =>
  readdirSync(parts, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(parts.length + 1))
    .sort();

const COUNTRIES = ['DE', 'a/b', '..', '*', '', '__HIVE_DEFAULT_PARTITION__', 'Zürich & Söhne', null];
const draw = random(1);
const table = fromRows(
  Array.from({ length: 3000 }, (_, id) => ({ id, country: COUNTRIES[draw(8)] ?? null, year: draw(3) ? 2020 + draw(3) : null })),
);
const by = ['country', 'year'] as const;

/** What the folders of a table's rows are called. */
const NAMES = COUNTRIES.map((country) => {
  if (country === null) return 'country=__HIVE_DEFAULT_PARTITION__';
  if (country.startsWith('__HIVE')) return 'country=%5F%5FHIVE%5FDEFAULT%5FPARTITION%5F%5F';
  return `country=${encodeURIComponent(country).replace('*', '%2A')}`;
});
const YEARS = ['year=2020', 'year=2021', 'year=2022', 'year=__HIVE_DEFAULT_PARTITION__'];

describe.each(['arrow', 'parquet', 'csv.gz', 'ndjson'])('%s files', (format) => {
  test('have the rows of a value each, in their order', async () => {
    await using engine = await createEngine({ device: 'cpu' });
    const sorted = engine.sortBatches(later(cut(table, 500)), { by, batchRows: 70 });
    expect(await writeBatches(sorted, at(`*.${format}`), { partitionBy: by })).toBe(3000);
    expect(filesIn()).toEqual(NAMES.flatMap((name) => YEARS.map((year) => `${name}/${year}/000000.${format}`)).sort());
    // Types of text are those of a file's values: folders of null have others.
    if (format === 'arrow' || format === 'parquet')
      expect(unordered(rows(await readTable(at(`**/*.${format}`))))).toEqual(unordered(rows(table)));
    for (const [index, country] of COUNTRIES.entries()) {
      const some = await readTable(at(`${NAMES[index]}/year=2021/*.${format}`));
      const wanted = rows(table).filter((row) => row.country === country && row.year === 2021);
      expect([...some.getChild('id')!].map(Number)).toEqual(wanted.map(({ id }) => id));
    }
  });
});

test('DuckDB finds the values in the names of the folders', async () => {
  await using engine = await createEngine({ device: 'cpu' });
  await writeTable(await engine.sort(table, { by, select: ['id', 'country', 'year'] }), at('*.parquet'), { partitionBy: by });
  const connection = await (await DuckDBInstance.create()).connect();
  const query = `SELECT country, year, count(*)::INT AS n FROM read_parquet('${at('**/*.parquet')}', hive_partitioning = true) GROUP BY ALL`;
  const found = (await connection.runAndReadAll(query)).getRowObjectsJson();
  const counts = new Map<string, number>();
  for (const { country, year } of rows(table)) {
    const key = `${country} ${year}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  expect(new Map(found.map(({ country, year, n }) => [`${country} ${year}`, Number(n)]))).toEqual(counts);
  connection.closeSync();
});

test('several files of a value, and values of every type', async () => {
  const of = (type: arrow.DataType, values: readonly unknown[]) => arrow.vectorFromArray(values, type);
  const columns = {
    flag: of(new arrow.Bool(), [false, false, true, null]),
    code: of(new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8()), ['x', 'x', 'y', 'y']),
    day: of(new arrow.DateDay(), [new Date(0), new Date(0), new Date(86_400_000), new Date(86_400_000)]),
    price: of(new arrow.Float64(), [1.5, 1.5, -0, Number.NaN]),
    text: of(new arrow.Utf8(), ['x', 'x', '-0', 'z']),
    id: of(new arrow.Int32(), [1, 2, 3, 4]),
  };
  const partitionBy = ['flag', 'code', 'day', 'price', 'text'];
  await writeTable(new arrow.Table(columns), at('*.arrow'), { partitionBy, fileRows: 1 });
  expect(filesIn()).toEqual([
    'flag=__HIVE_DEFAULT_PARTITION__/code=y/day=1970-01-02/price=NaN/text=z/000000.arrow',
    'flag=false/code=x/day=1970-01-01/price=1.5/text=x/000000.arrow',
    'flag=false/code=x/day=1970-01-01/price=1.5/text=x/000001.arrow',
    'flag=true/code=y/day=1970-01-02/price=0/text=-0/000000.arrow',
  ]);
  await writeTable(new arrow.Table(columns).slice(0, 0), at('none-*.arrow'), { partitionBy: 'id' });
  expect(readdirSync(parts)).toHaveLength(3);
});

test('values that sort alike are in one folder', async () => {
  const zeros = fromColumns({ x: Float64Array.of(0, 1, -0, 0), id: Int32Array.of(1, 2, 3, 4) });
  await using engine = await createEngine({ device: 'cpu' });
  await writeBatches(engine.sortBatches(zeros, { by: 'x' }), at('*.arrow'), { partitionBy: 'x' });
  expect(filesIn()).toEqual(['x=0/000000.arrow', 'x=1/000000.arrow']);
  expect(rows(await readTable(at('x=0/*.arrow')))).toEqual([
    { x: 0, id: 1 },
    { x: -0, id: 3 },
    { x: 0, id: 4 },
  ]);
});

describe('leaves nothing', () => {
  test('where rows of a value come again', async () => {
    const error = await failure(writeBatches(later(cut(table, 100)), at('*.parquet'), { partitionBy: 'country' }));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(/rows of country=\S+ behind those of other partitions: sort it by "country" first/);
    expect(readdirSync(parts)).toEqual([]);
  });

  test('where the batches fail', async () => {
    await using engine = await createEngine({ device: 'cpu' });
    const sorted = await engine.sort(table, { by });
    async function* broken() {
      for (const [number, piece] of cut(sorted, 100).entries()) {
        if (number === 20) throw new Error('the line is dead');
        yield* piece.batches;
      }
    }
    for (const path of [at('*.csv'), relative('.', at('*.csv'))]) {
      await expect(writeBatches(broken(), path, { partitionBy: by, fileRows: 10 })).rejects.toThrow('the line is dead');
      expect(readdirSync(parts)).toEqual([]);
    }
  });
});

describe('refuses', () => {
  const nested = new arrow.Table({
    tags: arrow.vectorFromArray([['x']], new arrow.List(new arrow.Field('item', new arrow.Utf8()))),
  });
  test.each([
    [table, '*.arrow', { partitionBy: 'land' }, 'ERR_COLUMN_NOT_FOUND', /"land"/],
    [table, '*.arrow', { partitionBy: ['year', 'year'] }, 'ERR_OPTION', /each column once for partitionBy/],
    [table, '*.arrow', { partitionBy: [] }, 'ERR_OPTION', /partitionBy/],
    [table, 'one.arrow', { partitionBy: 'year' }, 'ERR_OPTION', /a name with one "\*" in it/],
    [
      nested,
      '*.arrow',
      { partitionBy: 'tags' },
      'ERR_NOT_SUPPORTED',
      /"tags" of type List<Utf8> has no values that folders are named by/,
    ],
  ] as const)('%#', async (of, name, options, code, message) => {
    const error = await failure(writeTable(of, at(name), options as object));
    expect(error).toMatchObject({ code });
    expect(error.message).toMatch(message);
    expect(readdirSync(parts)).toEqual([]);
  });

  test('folders of another result', async () => {
    mkdirSync(at('year=1999'));
    const error = await failure(writeTable(table, at('*.arrow'), { partitionBy: 'year' }));
    expect(error).toMatchObject({ code: 'ERR_FILE', message: expect.stringContaining('year=1999 is there already') });
    expect(existsSync(at('year=1999'))).toBe(true);
  });
});

describe('--partition-by', () => {
  test.each([[[]], [['--memory-limit', '4MiB']]])('sorts and joins %j', async (more) => {
    const input = join(folder, 'in.parquet');
    const length = 60_000;
    const many = fromRows(Array.from({ length }, (_, id) => ({ id, country: COUNTRIES[(id * 7) % 5]!, year: 2020 + (id % 3) })));
    await writeTable(many, input);
    const sort = ['sort', input, '--by', 'id:desc', '--partition-by', 'country,year', '-o', at('*.parquet'), ...more];
    const { code, err } = await warpjoin(...sort);
    expect(err).toMatch(/60,000 rows/);
    expect(code).toBe(0);
    expect(filesIn()).toHaveLength(15);
    const germany = await readTable(at('country=DE/year=2021/*.parquet'));
    const wanted = rows(many).filter(({ country, year }) => country === 'DE' && year === 2021);
    expect([...germany.getChild('id')!].map(Number)).toEqual(wanted.map(({ id }) => id as number).toReversed());
    expectFailure(await warpjoin(...sort), 1, /country=.* is there already/);
    const joins = ['join', input, input, '--on', 'id', '--select', 'id,year_right', '--rename', 'year_right=y', ...more];
    expect((await warpjoin(...joins, '--partition-by', 'y', '-o', at('j-*.arrow'))).code).toBe(0);
    expect((await readTable(at('y=2022/j-*.arrow'))).numRows).toBe(length / 3);
  });

  test.each([
    [['--partition-by', 'id', '-o', 'x.csv'], /--partition-by: --output x.csv has no "\*" in its name/],
    [['--partition-by', 'id'], /--partition-by goes with formats of files, and - is table/],
    [['--partition-by', 'land', '-o', 'x-*.csv'], /--partition-by: the result has no column "land"/],
  ])('refuses %j', async (args, message) => {
    expectFailure(await warpjoin('sort', join(folder, 'in.parquet'), '--by', 'id', ...args), 2, message);
  });
});
