// node bench/js/csv.mjs [--rows 3e7] [--runs 3] [--files mixed,quoted,parquet] [--threads 2]: files into tables, warpjoin's readTable()
// and DuckDB's read_csv or read_parquet (CREATE TABLE) in turns. Processor time
// compares where a machine has other work, too. The files are made once; both must find the same rows and sums.
import { existsSync, mkdirSync, renameSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { DuckDBInstance } from '@duckdb/node-api';
import { readTable } from '../../dist/io/index.js';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    rows: { type: 'string', default: '3e7' },
    runs: { type: 'string', default: '3' },
    files: { type: 'string', default: 'mixed,quoted,parquet' },
    threads: { type: 'string', default: String(availableParallelism()) },
  },
});
const rows = Number(given.rows);
const folder = new URL('../../build/bench/', import.meta.url);
mkdirSync(folder, { recursive: true });

const instance = await DuckDBInstance.create(':memory:', { threads: given.threads });
const connection = await instance.connect();

const mixed = `SELECT (hash(i) % 100000000)::BIGINT AS id, (hash(i + 1) % 10000000)::BIGINT / 1000 AS value,
  'name-' || (hash(i + 2) % 100000) AS name, DATE '1990-01-01' + (hash(i + 3) % 10000)::INTEGER AS day FROM range(${rows}) t(i)`;
const kinds = {
  mixed: { query: mixed, end: '.csv', options: 'FORMAT csv, HEADER', read: 'read_csv' },
  quoted: {
    query: `SELECT i AS id, 'she said "' || (hash(i) % 1000) || '", twice' AS quote,
      CASE WHEN i % 3 = 0 THEN 'two' || chr(10) || 'lines' ELSE 'one line' END AS lines FROM range(${rows}) t(i)`,
    end: '.csv',
    options: 'FORMAT csv, HEADER',
    read: 'read_csv',
  },
  parquet: { query: mixed, end: '.parquet', options: 'FORMAT parquet', read: 'read_parquet' },
};

/** What a column adds up to: numbers and days their values, texts their bytes. */
function sumOf(vector) {
  let sum = 0;
  for (const { typeId, values, valueOffsets, length } of vector.data) {
    if (valueOffsets) sum += Number(valueOffsets[length]) - Number(valueOffsets[0]);
    else if (typeId === 8 || values instanceof Float64Array || values instanceof Int32Array)
      for (let i = 0; i < length; i++) sum += values[i];
    else for (let i = 0; i < length; i++) sum += Number(values[i]);
  }
  return sum;
}
const sumsInDuckdb = (table) =>
  table.schema.fields.map(({ name, type }) => {
    if (String(type).endsWith('Utf8')) return `sum(strlen("${name}"))`;
    return String(type).startsWith('Date') ? `sum("${name}" - DATE '1970-01-01')` : `sum("${name}")`;
  });

async function timed(work) {
  const start = performance.now();
  const before = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(before);
  return { result, seconds: (performance.now() - start) / 1000, processor: (user + system) / 1e6 };
}

for (const name of given.files.split(',')) {
  const { query, end, options, read } = kinds[name];
  const path = new URL(`${name}-${rows}${end}`, folder).pathname;
  if (!existsSync(path)) {
    await connection.run(`COPY (${query}) TO '${path}.partial' (${options})`);
    renameSync(`${path}.partial`, path);
  }
  const bytes = statSync(path).size;
  const runs = { warpjoin: [], duckdb: [] };
  for (let run = 0; run < Number(given.runs); run++) {
    const ours = await timed(() => readTable(path));
    runs.warpjoin.push(ours);
    const theirs = await timed(() => connection.run(`CREATE OR REPLACE TABLE t AS SELECT * FROM ${read}('${path}')`));
    runs.duckdb.push(theirs);
    if (run > 0) continue;
    const table = ours.result;
    const found = await connection.runAndReadAll(`SELECT count(*), ${sumsInDuckdb(table).join(', ')} FROM t`);
    const expected = found.getRows()[0].map(Number);
    const sums = [table.numRows, ...table.schema.fields.map((field) => sumOf(table.getChild(field.name)))];
    const agree = sums.every((sum, i) => Math.abs(sum - expected[i]) <= 1e-9 * Math.abs(expected[i]));
    if (!agree) throw new Error(`${name}: warpjoin finds ${sums.join(', ')} where DuckDB has ${expected.join(', ')}`);
  }
  console.log(`${name}: ${rows.toLocaleString('en-US')} rows, ${(bytes / 1e6).toFixed(0)} MB, ${given.threads} threads`);
  const medians = Object.entries(runs).map(([engine, calls]) => {
    const { median } = summary(calls.map(({ seconds }) => seconds));
    const processor = summary(calls.map((call) => call.processor)).median;
    const speed = `${(rows / median / 1e6).toFixed(1)} million rows/s, ${(bytes / median / 1e6).toFixed(0)} MB/s`;
    console.log(
      `  ${engine.padEnd(8)} ${median.toFixed(2).padStart(7)} s, ${processor.toFixed(2)} s of processor time  ${speed}`,
    );
    return median;
  });
  console.log(`  warpjoin reads at ${(medians[1] / medians[0]).toFixed(2)} times DuckDB's rate`);
}
