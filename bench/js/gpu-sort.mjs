// node bench/js/gpu-sort.mjs [--rows N] [--columns N] [--runs N] [--json FILE]
//
// sort() of an Arrow table in ordinary memory on all GPUs, through the public API, and of the same table loaded, with a result
// that stays, beside DuckDB on all cores of the same host: rows of an int64 key, random, and int64 payload columns (1: it travels
// with the keys; more are gathered). DuckDB makes its own table of the same shape, in memory, and sorts it into another one. Both
// run in this process, one after the other.
import { availableParallelism } from 'node:os';
import { DuckDBInstance } from '@duckdb/node-api';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { int64, random } from '../workloads/random.mjs';
import { column, options, range, showSteps, time, writeReport } from './gpu.mjs';

const { rows, columns, runs, json } = options();
const payloads = Array.from({ length: columns }, (_, index) => `value${index}`);

function randomKeys(length) {
  const { uint32 } = random(1);
  const words = new Uint32Array(2 * length);
  for (let i = 0; i < words.length; i++) words[i] = uint32();
  return new BigInt64Array(words.buffer);
}

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

const keys = randomKeys(rows);
const values = payloads.map((name, c) => [name, column(int64(rows, (row) => row + c))]);
const table = new Table({ key: column(keys), ...Object.fromEntries(values) });
const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB' });
let stats;
let checked = false;
const own = await time(runs, async () => {
  const sorted = await engine.sort(table, { by: 'key' });
  stats = sorted.stats;
  return () => {
    if (!checked) check(sorted, keys);
    checked = true;
  };
});
checked = false;
const loaded = await engine.load(table);
let residentStats;
const resident = await time(runs, async () => {
  const sorted = await engine.sort(loaded, { by: 'key', resident: true });
  residentStats = sorted.stats;
  return async () => {
    if (!checked) check(await sorted.toArrow(), keys);
    checked = true;
    await sorted.dispose();
  };
});
if (!residentStats.resident.length) throw new Error(`not resident: ${residentStats.residentReason}`);
const devices = engine.devices().map(({ name }) => name);
await engine.dispose();
console.log(`warpjoin  ${range(own)} on ${devices.length} GPUs`);
showSteps(stats);
console.log(`loaded    ${resident.median.toFixed(1)} ms (${resident.min.toFixed(1)} to ${resident.max.toFixed(1)})`);
showSteps(residentStats);

const connection = await (await DuckDBInstance.create(':memory:')).connect();
const selected = ['(hash(range) >> 1)::BIGINT AS key', ...payloads.map((name, c) => `range + ${c} AS ${name}`)];
await connection.run(`CREATE TABLE t AS SELECT ${selected.join(', ')} FROM range(${rows})`);
const peer = await time(runs, async () => {
  await connection.run('CREATE OR REPLACE TEMP TABLE s AS SELECT * FROM t ORDER BY key');
});
console.log(`DuckDB    ${range(peer)} on ${availableParallelism()} threads`);
console.log(`warpjoin is ${(peer.median / own.median).toFixed(2)}x, loaded ${(peer.median / resident.median).toFixed(1)}x`);
if (json) writeReport(json, { rows, columns, runs, devices, warpjoin: own, resident, duckdb: peer, stats, residentStats });
