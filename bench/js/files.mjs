// node bench/js/files.mjs [names...] [--rows 3e7] [--runs 5] [--json FILE]: files into tables and back, and the command line from
// files to files, beside DuckDB's Node.js package, in turns.
//
// read-*: readTable() and CREATE TABLE AS FROM read_csv or read_parquet. write-parquet: writeTable() and COPY TO.
// cli-sort, cli-join: whole processes that read Parquet files of a third of the rows and write one.
// Each pair is checked once: the same rows, and the same sums of all columns. Files are made once, in build/bench.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { DuckDBInstance } from '@duckdb/node-api';
import { readTable, writeTable } from '../../dist/io/index.js';
import { environment } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: { rows: { type: 'string', default: '3e7' }, runs: { type: 'string', default: '5' }, json: { type: 'string' } },
});
const rows = Number(given.rows);
const part = Math.floor(rows / 3); // what the command line joins and sorts
const runs = Number(given.runs);
const folder = new URL('../../build/bench/', import.meta.url);
mkdirSync(folder, { recursive: true });
const cli = new URL('../../dist/cli/main.js', import.meta.url).pathname;
const duckdb = new URL('duckdb-query.mjs', import.meta.url).pathname;
const pathOf = (name) => new URL(name, folder).pathname;

const threads = availableParallelism();
const connection = await (await DuckDBInstance.create(':memory:', { threads: String(threads) })).connect();

const mixed = (count, seed = 0) => `SELECT (hash(i + ${seed}) % ${count})::BIGINT AS id,
  (hash(i + ${seed + 1}) % 10000000)::BIGINT / 1000 AS value, 'name-' || (hash(i + ${seed + 2}) % 100000) AS name,
  DATE '1990-01-01' + (hash(i + ${seed + 3}) % 10000)::INTEGER AS day FROM range(${count}) t(i)`;
const quoted = `SELECT i AS id, 'she said "' || (hash(i) % 1000) || '", twice' AS quote,
  CASE WHEN i % 3 = 0 THEN 'two' || chr(10) || 'lines' ELSE 'one line' END AS lines FROM range(${rows}) t(i)`;

/** A file that DuckDB makes of a query, once. */
async function made(name, query, options) {
  const path = pathOf(name);
  if (!existsSync(path)) {
    await connection.run(`COPY (${query}) TO '${path}.partial' (${options})`);
    renameSync(`${path}.partial`, path);
  }
  return path;
}
const csv = (name, query) => made(`${name}-${rows}.csv`, query, 'FORMAT csv, HEADER');
const parquet = (name, query, count = rows) => made(`${name}-${count}.parquet`, query, 'FORMAT parquet');

/** The columns' sums of a relation, as SQL: numbers and days their values, texts their bytes. */
async function sumsOf(relation) {
  const described = await connection.runAndReadAll(`DESCRIBE SELECT * FROM ${relation}`);
  const sums = described.getRows().map(([name, type]) => {
    if (type === 'VARCHAR') return `sum(strlen("${name}"))`;
    return type === 'DATE' ? `sum("${name}" - DATE '1970-01-01')` : `sum("${name}")`;
  });
  return (await connection.runAndReadAll(`SELECT count(*), ${sums.join(', ')} FROM ${relation}`)).getRows()[0].map(Number);
}
/** The same of a table. */
function sumsIn(table) {
  const sumOf = (vector) => {
    let sum = 0;
    for (const { typeId, values, valueOffsets, length } of vector.data) {
      if (valueOffsets) sum += Number(valueOffsets[length]) - Number(valueOffsets[0]);
      else if (typeId === 8 || values instanceof Float64Array || values instanceof Int32Array)
        for (let i = 0; i < length; i++) sum += values[i];
      else for (let i = 0; i < length; i++) sum += Number(values[i]);
    }
    return sum;
  };
  return [table.numRows, ...table.schema.fields.map((field) => sumOf(table.getChild(field.name)))];
}

const read = (path, reader) => ({
  path,
  rows,
  warpjoin: () => readTable(path),
  duckdb: () => connection.run(`CREATE OR REPLACE TABLE t AS SELECT * FROM ${reader}('${path}')`),
  sums: async (table) => [sumsIn(table), await sumsOf('t')],
});
const processes = (args, query, output, count) => ({
  path: `${output}.warpjoin.parquet`,
  rows: count,
  warpjoin: () => execFileSync(process.execPath, [cli, ...args, '-o', `${output}.warpjoin.parquet`], { stdio: 'ignore' }),
  duckdb: () => execFileSync(process.execPath, [duckdb, `COPY (${query}) TO '${output}.duckdb.parquet' (FORMAT parquet)`]),
  sums: async () => [await sumsOf(`'${output}.warpjoin.parquet'`), await sumsOf(`'${output}.duckdb.parquet'`)],
});
const cases = {
  'read-csv': async () => read(await csv('mixed', mixed(rows)), 'read_csv'),
  'read-csv-quoted': async () => read(await csv('quoted', quoted), 'read_csv'),
  'read-parquet': async () => read(await parquet('mixed', mixed(rows)), 'read_parquet'),
  async 'write-parquet'() {
    const from = await parquet('mixed', mixed(rows));
    const [ours, theirs] = ['warpjoin', 'duckdb'].map((engine) => pathOf(`written.${engine}.parquet`));
    await connection.run(`CREATE OR REPLACE TABLE t AS SELECT * FROM read_parquet('${from}')`);
    const table = await readTable(from);
    return {
      path: ours,
      rows,
      warpjoin: () => writeTable(table, ours),
      duckdb: () => connection.run(`COPY t TO '${theirs}' (FORMAT parquet)`),
      sums: async () => [await sumsOf(`'${ours}'`), await sumsOf(`'${theirs}'`)],
    };
  },
  async 'cli-sort'() {
    const from = await parquet('mixed', mixed(part), part);
    return processes(['sort', from, '--by', 'id'], `SELECT * FROM '${from}' ORDER BY id`, pathOf('sorted'), part);
  },
  async 'cli-join'() {
    const left = await parquet('mixed', mixed(part), part);
    const right = await parquet('prices', `SELECT id, value AS price FROM (${mixed(part, 100)})`, part);
    const query = `SELECT l.*, price FROM '${left}' l JOIN '${right}' r USING (id)`;
    return processes(['join', left, right, '--on', 'id'], query, pathOf('joined'), 2 * part);
  },
};

async function timed(work) {
  const start = performance.now();
  const result = await work();
  return { result, seconds: (performance.now() - start) / 1000 };
}

const report = { environment: environment(), threads, runs, files: [] };
for (const name of positionals.length > 0 ? positionals : Object.keys(cases)) {
  if (!cases[name]) throw new Error(`unknown case "${name}"; there are ${Object.keys(cases).join(', ')}`);
  const one = await cases[name]();
  const seconds = { warpjoin: [], duckdb: [] };
  for (let run = 0; run <= runs; run++) {
    const ours = await timed(one.warpjoin);
    const theirs = await timed(one.duckdb);
    if (run > 0) {
      seconds.warpjoin.push(ours.seconds);
      seconds.duckdb.push(theirs.seconds);
      continue;
    }
    const [sums, expected] = await one.sums(ours.result); // of the warm-up
    const agree = sums.every((sum, i) => Math.abs(sum - expected[i]) <= 1e-9 * Math.abs(expected[i]));
    if (!agree) throw new Error(`${name}: warpjoin has ${sums.join(', ')} where DuckDB has ${expected.join(', ')}`);
  }
  const { size: bytes } = statSync(one.path);
  const [warpjoin, duckdb] = [seconds.warpjoin, seconds.duckdb].map(summary);
  report.files.push({ name, rows: one.rows, bytes, seconds: { warpjoin, duckdb } });
  const shown = ({ median, min, max }) => `${median.toFixed(2)} s (${min.toFixed(2)} to ${max.toFixed(2)})`;
  console.log(
    `${name.padEnd(16)} ${(one.rows / 1e6).toFixed(0)} million rows, ${(bytes / 1e6).toFixed(0)} MB: ` +
      `${shown(warpjoin)}, DuckDB ${shown(duckdb)}: warpjoin is ${(duckdb.median / warpjoin.median).toFixed(2)}x`,
  );
}
if (given.json) writeFileSync(given.json, `${JSON.stringify(report, null, 1)}\n`);
process.exit(0); // DuckDB's threads
