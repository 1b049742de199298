// node bench/js/gpu-join.mjs [--rows N] [--columns N] [--runs N] [--plain] [--json FILE]
//
// joinCount() and join() of two Arrow tables in ordinary memory on all GPUs, through the public API, beside DuckDB on all cores
// of the same host; then the same of tables that the engine has loaded, with a result that stays on the GPUs. Both tables have
// as many rows, of an int64 key and int64 payload columns (1: it travels with the keys; more are gathered): the left one each key
// once, in random order, the right one foreign keys, uniform. Without --plain also in the order of left rows; of loaded tables of
// one payload column, whose keys are the same as float64, every 16th of each table null; and of tables whose keys are two int32
// columns: there the devices make the keys. DuckDB makes the tables, and warpjoin joins copies;
// row counts and the sums of all columns have to agree. Both run in this process, one after the other.
import { availableParallelism } from 'node:os';
import { DuckDBInstance } from '@duckdb/node-api';
import { Int32, makeData, Table, Vector } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { column, floatsWithNulls, milliseconds, options, range, showSteps, sum, time, valuesOf, writeReport } from './gpu.mjs';

const { rows, columns, runs, json, plain } = options({ plain: { type: 'boolean', default: false } });
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

/** The keys of a row by the names of key columns. */
const keysOf = (table, names) => names.map((name) => valuesOf(table, name));

/** As many rows as DuckDB has, with the same sums of `summed`, and at some places pairs of rows with equal keys. */
function check(joined, left, right, expected, summed, on) {
  const got = [BigInt(joined.numRows), ...summed.map((name) => sum(valuesOf(joined, name)))];
  if (got.some((value, index) => value !== expected[index])) throw new Error(`rows and sums ${got} are not DuckDB's ${expected}`);
  const keys = keysOf(joined, on);
  const values = joined.schema.names.filter((name) => !on.includes(name)).map((name) => valuesOf(joined, name));
  const payloads = values.length / 2;
  const [leftKeys, rightKeys] = [keysOf(left, on), keysOf(right, on)];
  const step = Math.max(1, Math.floor(joined.numRows / 5e6));
  for (let row = 0; row < joined.numRows; row += step) {
    const [l, r] = [values[0][row], values[payloads][row]];
    for (const [k, key] of keys.entries()) {
      if (leftKeys[k][Number(l)] !== key[row] || rightKeys[k][Number(r)] !== key[row])
        throw new Error(`row ${row} joins two keys`);
    }
    for (const [c, of] of values.entries()) {
      if (of[row] !== (c < payloads ? l + BigInt(c) : r + BigInt(c - payloads)))
        throw new Error(`row ${row} has another row's payload ${c}`);
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

/** A table's keys as two int32 columns of scattered values, and its first payload column; the same in DuckDB. */
async function byTwo(side, table) {
  const low = new Uint32Array(valuesOf(table, 'key').buffer);
  const scattered = (factor) => new Int32Array(rows).map((_, row) => Math.imul(low[2 * row], factor));
  const column = (data) => new Vector([makeData({ type: new Int32(), length: rows, nullCount: 0, data })]);
  const name = `${side}0`;
  await connection.run(`CREATE TABLE "${side}t" AS SELECT key::INTEGER AS a, key::INTEGER AS b, ${name} FROM "${side}"`);
  return new Table({ a: column(scattered(0x9e3779b1)), b: column(scattered(0x85ebca6b)), [name]: table.getChild(name) });
}
/** Both tables, of keys that `make` gives them, and what DuckDB joins of them. */
async function variantOf(make, from) {
  return { one: await make('l', left), other: await make('r', right), from, expected: await expectedOf(from, ['l0', 'r0']) };
}
const floats = plain ? undefined : await variantOf(byFloats, 'lf JOIN rf USING (key)');
const twos = plain ? undefined : await variantOf(byTwo, 'lt JOIN rt USING (a, b)');

const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB' });
const devices = engine.devices().map(({ name }) => name);
const counts = (one, other, [count], on) =>
  time(runs, async () => {
    const got = await engine.joinCount(one, other, { on });
    if (BigInt(got) !== count) throw new Error(`${got} rows`);
  });
/** Joins tables in ordinary memory. `checkOrder` looks at a result, too. */
async function joinTables(one, other, expected, summed, on, options, checkOrder) {
  let stats;
  let checked = false;
  const joinCount = await counts(one, other, expected, on);
  const join = await time(runs, async () => {
    const made = await engine.join(one, other, { on, ...options });
    stats = made.stats;
    return () => {
      if (!checked) check(made, one, other, expected, summed, on);
      if (!checked) checkOrder?.(made);
      checked = true;
    };
  });
  return { calls: { joinCount, join }, stats };
}
/** Payloads are row numbers. */
function checkOrdered(made) {
  const [l, r] = [valuesOf(made, 'l0'), valuesOf(made, 'r0')];
  for (let row = 1; row < made.numRows; row++) {
    if (l[row] < l[row - 1] || (l[row] === l[row - 1] && r[row] < r[row - 1])) throw new Error(`row ${row} is out of order`);
  }
}
const own = await joinTables(left, right, expected, names, ['key']);
const ordered = plain
  ? undefined
  : await joinTables(left, right, expected, names, ['key'], { maintainOrder: 'left' }, checkOrdered);
const ownByTwo = twos && (await joinTables(twos.one, twos.other, twos.expected, ['l0', 'r0'], ['a', 'b']));
/** Joins tables once they are loaded, with a result that stays. */
async function joinLoaded(one, other, expected, summed, on = ['key']) {
  const [loaded, loadedOther] = [await engine.load(one), await engine.load(other)];
  let stats;
  let checked = false;
  const joinCount = await counts(loaded, loadedOther, expected, on);
  const join = await time(runs, async () => {
    const made = await engine.join(loaded, loadedOther, { on, resident: true });
    stats = made.stats;
    return async () => {
      if (!checked) check(await made.toArrow(), one, other, expected, summed, on);
      checked = true;
      await made.dispose();
    };
  });
  if (!stats.resident.length) throw new Error(`not resident: ${stats.residentReason}`);
  await Promise.all([loaded.dispose(), loadedOther.dispose()]);
  return { calls: { joinCount, join }, stats };
}
const { calls: resident, stats: residentStats } = await joinLoaded(left, right, expected, names);
const made = floats && (await joinLoaded(floats.one, floats.other, floats.expected, ['l0', 'r0']));
const twoKeys = twos && (await joinLoaded(twos.one, twos.other, twos.expected, ['l0', 'r0'], ['a', 'b']));
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
const floatPeer = floats && (await peerOf(floats.from));
const twoPeer = twos && (await peerOf(twos.from));
for (const call of ['joinCount', 'join']) {
  const ofOne = (those, one) => (those[call].median / one[call].median).toFixed(2);
  const times = (other, one) => `${(other[call].median / one[call].median).toFixed(1)}x`;
  console.log(`${call}: warpjoin ${range(own.calls[call])} on ${devices.length} GPUs`);
  console.log(`${call}: DuckDB ${range(peer[call])} on ${availableParallelism()} threads`);
  console.log(`${call}: warpjoin is ${times(peer, own.calls)}`);
  console.log(`${call} of loaded tables: ${milliseconds(resident[call])}, ${times(peer, resident)}`);
  if (plain) continue;
  console.log(`${call} by two keys: ${milliseconds(ownByTwo.calls[call])}, ${ofOne(ownByTwo.calls, own.calls)} of one key`);
  if (call === 'join')
    console.log(`join in order: ${milliseconds(ordered.calls.join)}, ${ofOne(ordered.calls, own.calls)} of any order`);
  console.log(`${call} of loaded tables by floats: ${milliseconds(made.calls[call])}, ${times(floatPeer, made.calls)}`);
  console.log(
    `${call} of loaded tables by two keys: ${milliseconds(twoKeys.calls[call])}, ${times(twoPeer, twoKeys.calls)}, ${ofOne(twoKeys.calls, resident)} of one key`,
  );
}
for (const of of [own, ordered, ownByTwo, { stats: residentStats }, made, twoKeys]) if (of) showSteps(of.stats);
if (json) {
  const byFloats = made && { resident: made.calls, duckdb: floatPeer, stats: made.stats };
  const byTwo = twos && {
    warpjoin: ownByTwo.calls,
    resident: twoKeys.calls,
    duckdb: twoPeer,
    stats: twoKeys.stats,
    ownStats: ownByTwo.stats,
  };
  const inOrder = ordered && { warpjoin: { join: ordered.calls.join }, stats: ordered.stats };
  const calls = { warpjoin: own.calls, inOrder, resident, byFloats, byTwo };
  writeReport(json, { rows, columns, runs, devices, ...calls, duckdb: peer, stats: own.stats, residentStats });
}
