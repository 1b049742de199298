// node bench/js/gpu-sort.mjs [--rows N] [--columns N] [--runs N] [--json FILE]
//
// sort() of an Arrow table in ordinary memory on all GPUs, through the public API, and of the same table loaded, with a result
// that stays, beside DuckDB on all cores of the same host: rows of an int64 key, random, and int64 payload columns (1: it travels
// with the keys; more are gathered). And of a loaded table of a float64 key, every 16th of which is null, and such payload: there
// the devices make the keys. DuckDB makes its own tables of the same shape, in memory, and sorts them into others. Both run in this
// process, one after the other.
import { availableParallelism } from 'node:os';
import { DuckDBInstance } from '@duckdb/node-api';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { int64, random } from '../workloads/random.mjs';
import { column, floatsWithNulls, milliseconds, options, range, showSteps, time, valuesOf, writeReport } from './gpu.mjs';

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
  const [gotKeys, gotValues, ...more] = ['key', ...payloads].map((name) => valuesOf(sorted, name));
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

/** Uniform in [0, 1), null in every 16th row. */
function randomFloats(length) {
  const { unit } = random(2);
  const data = Float64Array.from({ length }, unit);
  return { data, vector: floatsWithNulls(data) };
}

/** The same where the keys are those floats: nulls last. */
function checkFloats(sorted, floats) {
  const [gotKeys, gotValues] = [sorted.getChild('key'), valuesOf(sorted, payloads[0])];
  const values = rows - Math.ceil(rows / 16);
  if (sorted.numRows !== rows || gotKeys.nullCount !== rows - values) throw new Error(`${sorted.numRows} rows`);
  const from = (at) => (at < values ? floats[Number(gotValues[at])] : Number.POSITIVE_INFINITY);
  const step = Math.max(1, Math.floor(rows / 5e6));
  for (let at = step; at < rows; at += step) {
    const [before, here] = [from(at - 1), from(at)];
    if (before > here || (before === here && gotValues[at - 1] >= gotValues[at])) throw new Error(`row ${at} is out of order`);
    if (gotKeys.get(at) !== (at < values ? here : null)) throw new Error(`row ${at} has another row's key`);
    if ((Number(gotValues[at]) % 16 === 0) !== at >= values) throw new Error(`row ${at} is null or is not`);
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
/** Sorts a loaded table, with a result that stays. */
async function sortLoaded(of, checkResult) {
  const loaded = await engine.load(of);
  let stats;
  let checked = false;
  const took = await time(runs, async () => {
    const sorted = await engine.sort(loaded, { by: 'key', resident: true });
    stats = sorted.stats;
    return async () => {
      if (!checked) checkResult(await sorted.toArrow());
      checked = true;
      await sorted.dispose();
    };
  });
  if (!stats.resident.length) throw new Error(`not resident: ${stats.residentReason}`);
  await loaded.dispose();
  return { took, stats };
}
const { took: resident, stats: residentStats } = await sortLoaded(table, (sorted) => check(sorted, keys));
const floats = randomFloats(rows);
const floatTable = new Table({ key: floats.vector, [payloads[0]]: values[0][1] });
const made = await sortLoaded(floatTable, (sorted) => checkFloats(sorted, floats.data));
const devices = engine.devices().map(({ name }) => name);
await engine.dispose();
console.log(`warpjoin  ${range(own)} on ${devices.length} GPUs`);
showSteps(stats);
console.log(`loaded    ${milliseconds(resident)}`);
showSteps(residentStats);
console.log(`by floats ${milliseconds(made.took)}`);
showSteps(made.stats);

const connection = await (await DuckDBInstance.create(':memory:')).connect();
const selected = ['(hash(range) >> 1)::BIGINT AS key', ...payloads.map((name, c) => `range + ${c} AS ${name}`)];
await connection.run(`CREATE TABLE t AS SELECT ${selected.join(', ')} FROM range(${rows})`);
const peerSort = () =>
  time(runs, async () => {
    await connection.run('CREATE OR REPLACE TEMP TABLE s AS SELECT * FROM t ORDER BY key');
  });
const peer = await peerSort();
console.log(`DuckDB    ${range(peer)} on ${availableParallelism()} threads`);
await connection.run(
  `CREATE OR REPLACE TABLE t AS SELECT CASE WHEN range % 16 > 0 THEN hash(range)::DOUBLE / 2 ** 64 END AS key, range AS ${payloads[0]} FROM range(${rows})`,
);
const floatPeer = await peerSort();
console.log(`DuckDB    ${range(floatPeer)} by floats`);
console.log(`warpjoin is ${(peer.median / own.median).toFixed(2)}x, loaded ${(peer.median / resident.median).toFixed(1)}x`);
if (json) {
  const byFloats = { resident: made.took, duckdb: floatPeer, stats: made.stats };
  writeReport(json, { rows, columns, runs, devices, warpjoin: own, resident, byFloats, duckdb: peer, stats, residentStats });
}
