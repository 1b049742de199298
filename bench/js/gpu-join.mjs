// node bench/js/gpu-join.mjs [--rows N] [--columns N] [--runs N] [--json FILE]
//
// joinCount() and join() of two Arrow tables in ordinary memory on all GPUs, through the public API, beside DuckDB on all cores
// of the same host; then the same of tables that the engine has loaded, with a result that stays on the GPUs. Both tables have
// as many rows, of an int64 key and int64 payload columns (1: it travels with the keys; more are gathered): the left one each key
// once, in random order, the right one foreign keys, uniform. And of loaded tables of one payload column, whose keys are the same
// as float64, every 16th of each table null: there the devices make the keys. DuckDB makes the tables, and warpjoin joins copies;
// row counts and the sums of all columns have to agree. Both run in this process, one after the other.
import { availableParallelism } from 'node:os';
import { DuckDBInstance } from '@duckdb/node-api';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { column, floatsWithNulls, milliseconds, options, range, showSteps, time, valuesOf, writeReport } from './gpu.mjs';

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

/** As many rows as DuckDB has, with the same sums of `summed`, and at some places pairs of rows with equal keys. */
function check(joined, left, right, expected, summed) {
  const got = [BigInt(joined.numRows), ...summed.map((name) => sum(valuesOf(joined, name)))];
  if (got.some((value, index) => value !== expected[index])) throw new Error(`rows and sums ${got} are not DuckDB's ${expected}`);
  const [keys, ...values] = joined.schema.names.map((name) => valuesOf(joined, name));
  const payloads = values.length / 2;
  const [leftKeys, rightKeys] = [valuesOf(left, 'key'), valuesOf(right, 'key')];
  const step = Math.max(1, Math.floor(joined.numRows / 5e6));
  for (let row = 0; row < joined.numRows; row += step) {
    const [l, r] = [values[0][row], values[payloads][row]];
    if (leftKeys[Number(l)] !== keys[row] || rightKeys[Number(r)] !== keys[row]) throw new Error(`row ${row} joins two keys`);
    for (const [c, of] of values.entries()) {
      if (of[row] !== (c < payloads ? l + BigInt(c) : r + BigInt(c - payloads)))
        throw new Error(`row ${row} has another row's ${joined.schema.names[c + 1]}`);
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
/** Of a join's rows: how many there are, and the sums of columns. */
async function expectedOf(from, summed) {
  const sums = summed.map((name) => `sum(${name})`).join(', ');
  return (await connection.runAndReadAll(`SELECT count(*), ${sums} FROM ${from}`)).getRows()[0];
}
const expected = await expectedOf(joined, names);

/** A table's keys as floats, and its first payload column; the same in DuckDB. */
async function byFloats(side, table) {
  const low = new Uint32Array(valuesOf(table, 'key').buffer);
  const key = new Float64Array(rows).map((_, row) => low[2 * row]);
  const name = `${side}0`;
  await connection.run(
    `CREATE TABLE "${side}f" AS SELECT CASE WHEN ${name} % 16 > 0 THEN key::DOUBLE END AS key, ${name} FROM "${side}"`,
  );
  return new Table({ key: floatsWithNulls(key), [name]: table.getChild(name) });
}
const [floatLeft, floatRight] = [await byFloats('l', left), await byFloats('r', right)];
const joinedByFloats = 'lf JOIN rf USING (key)';
const expectedByFloats = await expectedOf(joinedByFloats, ['l0', 'r0']);

const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB' });
const devices = engine.devices().map(({ name }) => name);
let stats;
let checked = false;
const counts = (one, other, [count]) =>
  time(runs, async () => {
    const got = await engine.joinCount(one, other, { on: 'key' });
    if (BigInt(got) !== count) throw new Error(`${got} rows`);
  });
const own = {
  joinCount: await counts(left, right, expected),
  join: await time(runs, async () => {
    const made = await engine.join(left, right, { on: 'key' });
    stats = made.stats;
    return () => {
      if (!checked) check(made, left, right, expected, names);
      checked = true;
    };
  }),
};
/** Joins tables once they are loaded, with a result that stays. */
async function joinLoaded(one, other, expected, summed) {
  const [loaded, loadedOther] = [await engine.load(one), await engine.load(other)];
  let stats;
  let checked = false;
  const joinCount = await counts(loaded, loadedOther, expected);
  const join = await time(runs, async () => {
    const made = await engine.join(loaded, loadedOther, { on: 'key', resident: true });
    stats = made.stats;
    return async () => {
      if (!checked) check(await made.toArrow(), one, other, expected, summed);
      checked = true;
      await made.dispose();
    };
  });
  if (!stats.resident.length) throw new Error(`not resident: ${stats.residentReason}`);
  await Promise.all([loaded.dispose(), loadedOther.dispose()]);
  return { calls: { joinCount, join }, stats };
}
const { calls: resident, stats: residentStats } = await joinLoaded(left, right, expected, names);
const made = await joinLoaded(floatLeft, floatRight, expectedByFloats, ['l0', 'r0']);
console.log(await engine.explain('join', left, right, { on: 'key' }));
await engine.dispose();
const peerOf = async (from) => ({
  joinCount: await time(runs, async () => {
    await connection.run(`SELECT count(*) FROM ${from}`);
  }),
  join: await time(runs, async () => {
    await connection.run(`CREATE OR REPLACE TEMP TABLE j AS SELECT * FROM ${from}`);
  }),
});
const peer = await peerOf(joined);
const floatPeer = await peerOf(joinedByFloats);
for (const call of ['joinCount', 'join']) {
  const times = (other, one) => `${(other[call].median / one[call].median).toFixed(1)}x`;
  console.log(`${call}: warpjoin ${range(own[call])} on ${devices.length} GPUs`);
  console.log(`${call}: DuckDB ${range(peer[call])} on ${availableParallelism()} threads`);
  console.log(`${call}: warpjoin is ${times(peer, own)}`);
  console.log(`${call} of loaded tables: ${milliseconds(resident[call])}, ${times(peer, resident)}`);
  console.log(`${call} of loaded tables by floats: ${milliseconds(made.calls[call])}, ${times(floatPeer, made.calls)}`);
}
for (const of of [stats, residentStats, made.stats]) showSteps(of);
if (json) {
  const byFloats = { resident: made.calls, duckdb: floatPeer, stats: made.stats };
  writeReport(json, { rows, columns, runs, devices, warpjoin: own, resident, byFloats, duckdb: peer, stats, residentStats });
}
