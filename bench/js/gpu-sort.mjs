// node bench/js/gpu-sort.mjs [--rows N] [--columns N] [--runs N] [--json FILE]
//
// sort() of an Arrow table in ordinary memory on all GPUs, through the public API, beside DuckDB on all cores of the same
// host: rows of an int64 key, random, and int64 payload columns (1: it travels with the keys; more are gathered). DuckDB
// makes its own table of the same shape, in memory, and sorts it into another one. Both run in this process, one after the
// other.
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { DuckDBInstance } from '@duckdb/node-api';
import { Int64, makeData, Table, Vector } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { int64, random } from '../workloads/random.mjs';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    rows: { type: 'string', default: '200000000' },
    columns: { type: 'string', default: '1' },
    runs: { type: 'string', default: '5' },
    json: { type: 'string' },
  },
});
const rows = Math.round(Number(given.rows));
const payloads = Array.from({ length: Number(given.columns) }, (_, index) => `value${index}`);
const runs = Number(given.runs);

function randomKeys(length) {
  const { uint32 } = random(1);
  const words = new Uint32Array(2 * length);
  for (let i = 0; i < words.length; i++) words[i] = uint32();
  return new BigInt64Array(words.buffer);
}

const column = (data) => new Vector([makeData({ type: new Int64(), length: data.length, nullCount: 0, data })]);

/** In order, stable, and made of the table's rows: payload column c of row r is r + c. */
function check(sorted, keys) {
  const [gotKeys, gotValues, ...more] = ['key', ...payloads].map((name) => sorted.getChild(name).data[0].values);
  if (sorted.numRows !== keys.length) throw new Error(`${sorted.numRows} rows`);
  const step = Math.max(1, Math.floor(keys.length / 5e6));
  for (let i = step; i < keys.length; i += step) {
    for (const at of [i, i - step + 1]) {
      const [before, here] = [gotKeys[at - 1], gotKeys[at]];
      if (before > here || (before === here && gotValues[at - 1] >= gotValues[at])) throw new Error(`row ${at} is out of order`);
      if (keys[Number(gotValues[at])] !== here) throw new Error(`row ${at} has another row's key`);
      for (const [c, values] of more.entries()) {
        if (values[at] !== gotValues[at] + BigInt(c + 1)) throw new Error(`row ${at} has another row's ${payloads[c + 1]}`);
      }
    }
  }
}

async function time(work) {
  const milliseconds = [];
  for (let run = 0; run <= runs; run++) {
    const start = performance.now();
    const done = await work();
    if (run > 0) milliseconds.push(performance.now() - start);
    await done?.();
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 50)); // freed buffers return in turns of the event loop
  }
  return summary(milliseconds);
}

const keys = randomKeys(rows);
const values = payloads.map((name, c) => [name, column(int64(rows, (row) => row + c))]);
const table = new Table({ key: column(keys), ...Object.fromEntries(values) });
const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB' });
let stats;
let checked = false;
const own = await time(async () => {
  const sorted = await engine.sort(table, { by: 'key' });
  stats = sorted.stats;
  return () => {
    if (!checked) check(sorted, keys);
    checked = true;
  };
});
const devices = engine.devices().map(({ name }) => name);
await engine.dispose();
console.log(`warpjoin  ${own.median.toFixed(0)} ms (${own.min.toFixed(0)} to ${own.max.toFixed(0)}) on ${devices.length} GPUs`);
for (const { name, milliseconds } of stats.steps) console.log(`  ${name}: ${milliseconds.toFixed(1)} ms`);
for (const { name, milliseconds } of stats.phases) console.log(`    ${name}: ${milliseconds.toFixed(1)} ms`);

const connection = await (await DuckDBInstance.create(':memory:')).connect();
const selected = ['(hash(range) >> 1)::BIGINT AS key', ...payloads.map((name, c) => `range + ${c} AS ${name}`)];
await connection.run(`CREATE TABLE t AS SELECT ${selected.join(', ')} FROM range(${rows})`);
const peer = await time(async () => {
  await connection.run('CREATE OR REPLACE TEMP TABLE s AS SELECT * FROM t ORDER BY key');
});
console.log(
  `DuckDB    ${peer.median.toFixed(0)} ms (${peer.min.toFixed(0)} to ${peer.max.toFixed(0)}) on ${availableParallelism()} threads`,
);
console.log(`warpjoin is ${(peer.median / own.median).toFixed(2)}x`);
if (given.json) {
  const report = {
    date: new Date().toISOString(),
    rows,
    columns: payloads.length,
    runs,
    threads: availableParallelism(),
    devices,
    warpjoin: own,
    duckdb: peer,
    stats,
  };
  writeFileSync(given.json, `${JSON.stringify(report, (_, value) => (typeof value === 'bigint' ? Number(value) : value), 1)}\n`);
}
