// node bench/js/gpu-join.mjs [--rows N] [--columns N] [--runs N] [--json FILE]
//
// joinCount() and join() of two Arrow tables in ordinary memory on all GPUs, through the public API, beside DuckDB on all cores
// of the same host; then the same of tables that the engine has loaded, with a result that stays on the GPUs. Both tables have
// as many rows, of an int64 key and int64 payload columns (1: it travels with the keys; more are gathered): the left one each key
// once, in random order, the right one foreign keys, uniform. DuckDB makes them, and warpjoin joins copies; row counts and the
// sums of all columns have to agree. Both run in this process, one after the other.
import { availableParallelism } from 'node:os';
import { DuckDBInstance } from '@duckdb/node-api';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { column, options, range, showSteps, time, writeReport } from './gpu.mjs';

const { rows, columns, runs, json } = options();
const payloads = (side) => Array.from({ length: columns }, (_, index) => `${side}${index}`);
const names = ['key', ...payloads('l'), ...payloads('r')];
const connection = await (await DuckDBInstance.create(':memory:')).connect();

/** Makes a table in DuckDB, whose payload column c of row r is r + c, and copies it. */
async function makeTable(side, keys) {
  const values = payloads(side).map((name, c) => `row + ${c} AS ${name}`);
  await connection.run(`CREATE TABLE "${side}" AS SELECT key, ${values.join(', ')} FROM (${keys})`);
  const data = ['key', ...payloads(side)].map(() => new BigInt64Array(rows));
  const result = await connection.stream(`SELECT * FROM "${side}"`);
  let row = 0;
  for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
    for (const [index, values] of data.entries()) values.set(chunk.getColumnVector(index).items, row);
    row += chunk.rowCount;
  }
  if (row !== rows) throw new Error(`DuckDB gave ${row} of ${rows} rows`);
  return new Table(Object.fromEntries(['key', ...payloads(side)].map((name, index) => [name, column(data[index])])));
}

/** Exact for values from 0 to 2^32 - 1. */
function sum(values) {
  const words = new Uint32Array(values.buffer, values.byteOffset, 2 * values.length);
  let total = 0n;
  for (let begin = 0; begin < words.length; begin += 2 ** 21) {
    let part = 0;
    for (let i = begin; i < Math.min(words.length, begin + 2 ** 21); i += 2) part += words[i];
    total += BigInt(part);
  }
  return total;
}

const valuesOf = (table, name) => table.getChild(name).data[0].values;

/** As many rows as DuckDB has, of the same sums, and at some places pairs of rows with equal keys. */
function check(joined, left, right, expected) {
  const got = [BigInt(joined.numRows), ...names.map((name) => sum(valuesOf(joined, name)))];
  if (got.some((value, index) => value !== expected[index])) throw new Error(`rows and sums ${got} are not DuckDB's ${expected}`);
  const [keys, ...values] = names.map((name) => valuesOf(joined, name));
  const [leftKeys, rightKeys] = [valuesOf(left, 'key'), valuesOf(right, 'key')];
  const step = Math.max(1, Math.floor(joined.numRows / 5e6));
  for (let row = 0; row < joined.numRows; row += step) {
    const [l, r] = [values[0][row], values[columns][row]];
    if (leftKeys[Number(l)] !== keys[row] || rightKeys[Number(r)] !== keys[row]) throw new Error(`row ${row} joins two keys`);
    for (const [c, of] of values.entries()) {
      if (of[row] !== (c < columns ? l + BigInt(c) : r + BigInt(c - columns)))
        throw new Error(`row ${row} has another row's ${names[c + 1]}`);
    }
  }
}

const left = await makeTable(
  'l',
  `SELECT key, row_number() OVER () - 1 AS row FROM (SELECT range AS key FROM range(${rows}) ORDER BY hash(range))`,
);
const right = await makeTable('r', `SELECT (hash(range + ${rows}) % ${rows})::BIGINT AS key, range AS row FROM range(${rows})`);
const joined = 'l JOIN r USING (key)';
await connection.run('SET preserve_insertion_order = false'); // as the order of a join's rows is free, and this is faster
const sums = names.map((name) => `sum(${name})`).join(', ');
const [expected] = (await connection.runAndReadAll(`SELECT count(*), ${sums} FROM ${joined}`)).getRows();

const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB' });
const devices = engine.devices().map(({ name }) => name);
let stats;
let residentStats;
let checked = false;
/** The first result alone, outside of what is timed. */
async function checkFirst(made) {
  if (!checked) check(await made, left, right, expected);
  checked = true;
}
const counts = (one, other) =>
  time(runs, async () => {
    const count = await engine.joinCount(one, other, { on: 'key' });
    if (BigInt(count) !== expected[0]) throw new Error(`${count} rows`);
  });
const own = {
  joinCount: await counts(left, right),
  join: await time(runs, async () => {
    const made = await engine.join(left, right, { on: 'key' });
    stats = made.stats;
    return () => checkFirst(made);
  }),
};
checked = false;
const [loadedLeft, loadedRight] = [await engine.load(left), await engine.load(right)];
const resident = {
  joinCount: await counts(loadedLeft, loadedRight),
  join: await time(runs, async () => {
    const made = await engine.join(loadedLeft, loadedRight, { on: 'key', resident: true });
    residentStats = made.stats;
    return async () => {
      if (!checked) await checkFirst(made.toArrow());
      await made.dispose();
    };
  }),
};
if (!residentStats.resident.length) throw new Error(`not resident: ${residentStats.residentReason}`);
console.log(await engine.explain('join', left, right, { on: 'key' }));
await engine.dispose();
const peer = {
  joinCount: await time(runs, async () => {
    await connection.run(`SELECT count(*) FROM ${joined}`);
  }),
  join: await time(runs, async () => {
    await connection.run(`CREATE OR REPLACE TEMP TABLE j AS SELECT * FROM ${joined}`);
  }),
};
for (const call of ['joinCount', 'join']) {
  console.log(`${call}: warpjoin ${range(own[call])} on ${devices.length} GPUs`);
  console.log(`${call}: DuckDB ${range(peer[call])} on ${availableParallelism()} threads`);
  console.log(`${call}: warpjoin is ${(peer[call].median / own[call].median).toFixed(2)}x`);
  const fine = ({ median, min, max }) => `${median.toFixed(1)} ms (${min.toFixed(1)} to ${max.toFixed(1)})`;
  console.log(`${call} of loaded tables: ${fine(resident[call])}, ${(peer[call].median / resident[call].median).toFixed(1)}x`);
}
showSteps(stats);
showSteps(residentStats);
if (json) writeReport(json, { rows, columns, runs, devices, warpjoin: own, resident, duckdb: peer, stats, residentStats });
