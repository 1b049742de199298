import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DuckDBInstance } from '@duckdb/node-api';
import { Table, Utf8, vectorFromArray } from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readParquet, scanParquet } from '../../lib/io/parquet.js';
import { writeParquet } from '../../lib/io/parquet-writer.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-parquet-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const path = join(folder, 'groups.parquet');
const flights = fileURLToPath(new URL('../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url));
const rows = 20_000;
const group = 2048; // rows: the least that DuckDB writes

beforeAll(async () => {
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  const query = `SELECT i::BIGINT AS id, i / 4 AS share, 'name ' || i AS name FROM range(${rows}) t(i)`;
  await connection.run(`COPY (${query}) TO '${path}' (FORMAT parquet, ROW_GROUP_SIZE ${group})`);
});

const names = (table: { schema: Table['schema'] }) => table.schema.fields.map(({ name }) => name);

describe('parquet files of several row groups', () => {
  it('are read in order, whichever decoder is faster', async () => {
    const table = await readParquet(path);
    expect(Array.from(table.getChild('id')!.toArray(), Number)).toEqual(Array.from({ length: rows }, (_, i) => i));
    expect([table.getChild('share')!.get(7777), table.getChild('name')!.get(7777)]).toEqual([7777 / 4, 'name 7777']);
  });

  it('are read by several decoders', async () => {
    const fractions: (number | undefined)[] = [];
    const report = (fraction: number | undefined) => fractions.push(fraction);
    const delays = (await readParquet(flights, undefined, report, { columns: ['delay'] })).getChild('delay')!;
    const batches = [];
    for await (const batch of scanParquet(flights)) batches.push(batch);
    expect(delays.length).toBe(3_000_000);
    expect([fractions.length > 1, fractions.at(-1)]).toEqual([true, 1]);
    expect(fractions).toEqual([...fractions].sort((a, b) => a! - b!));
    expect(new Table(batches).getChild('delay')!.get(2_999_999)).toBe(delays.get(2_999_999));
  });

  it('give the columns that are asked for, in the order of the file', async () => {
    const table = await readParquet(path, undefined, undefined, { columns: ['name', 'id'] });
    expect([names(table), table.numRows, table.get(5)!.toArray()]).toEqual([['id', 'name'], rows, [5n, 'name 5']]);
    await expect(readParquet(path, undefined, undefined, { columns: ['nam'] })).rejects.toMatchObject({
      code: 'ERR_COLUMN_NOT_FOUND',
      message: expect.stringMatching(/groups\.parquet.*"nam".*name/),
    });
  });

  it('give no more than maxRows', async () => {
    for (const maxRows of [0, 1, group, group + 1, rows, rows + 1]) {
      const table = await readParquet(path, undefined, undefined, { maxRows });
      expect([table.numRows, names(table)]).toEqual([Math.min(maxRows, rows), ['id', 'share', 'name']]);
      if (maxRows > 0) expect(table.getChild('id')!.get(table.numRows - 1)).toBe(BigInt(table.numRows - 1));
    }
  });

  it('are scanned batch by batch', async () => {
    let seen = 0;
    for await (const batch of scanParquet(path, undefined, undefined, { columns: ['id'] }, { batchRows: group })) {
      expect([batch.numCols, batch.numRows <= group]).toEqual([1, true]);
      seen += batch.numRows;
      if (seen > rows / 2) break;
    }
    expect(seen).toBeGreaterThan(rows / 2);
    const empty = join(folder, 'empty.parquet');
    await writeParquet(new Table({ a: vectorFromArray([], new Utf8()) }), { path: empty });
    const batches = [];
    for await (const batch of scanParquet(empty)) batches.push([batch.numRows, names(batch)]);
    expect(batches).toEqual([[0, ['a']]]);
  });

  it('stop when they are aborted', async () => {
    const abort = new AbortController();
    const reason = new Error('enough');
    await expect(readParquet(path, abort.signal, () => abort.abort(reason))).rejects.toBe(reason);
    await expect(scanParquet(path, abort.signal).next()).rejects.toBe(reason);
  });

  it('are refused where they are damaged, and others are read afterwards', async () => {
    const bytes = readFileSync(path);
    const damaged = join(folder, 'damaged.parquet');
    for (const at of [100, bytes.length >> 1, bytes.length - 300]) {
      writeFileSync(damaged, Uint8Array.from(bytes).fill(0xa5, at, at + 200));
      const outcome = await readParquet(damaged).catch((error) => error);
      if (!(outcome instanceof Table))
        expect(outcome).toMatchObject({ code: 'ERR_FILE', message: expect.stringContaining(damaged) });
    }
    expect((await readParquet(path)).numRows).toBe(rows);
  });

  it('are written without dictionaries where these do not pay', async () => {
    const many = vectorFromArray(
      Array.from({ length: rows }, (_, i) => `${(i * 7919) % rows} of many`),
      new Utf8(),
    );
    const few = vectorFromArray(
      Array.from({ length: rows }, (_, i) => `${i % 10} of few`),
      new Utf8(),
    );
    const out = join(folder, 'written.parquet');
    await writeParquet(new Table({ many, few }), { path: out });
    const instance = await DuckDBInstance.create(':memory:');
    const connection = await instance.connect();
    const found = await connection.runAndReadAll(`SELECT path_in_schema, encodings FROM parquet_metadata('${out}') ORDER BY 1`);
    const encodings = Object.fromEntries(found.getRows() as [string, string][]);
    expect([encodings.few!.includes('DICTIONARY'), encodings.many!.includes('DICTIONARY')]).toEqual([true, false]);
    const back = await readParquet(out);
    expect([...back.getChild('many')!].slice(0, 3)).toEqual([...many].slice(0, 3));
  });
});
