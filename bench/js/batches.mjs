// node bench/js/batches.mjs [--calls sort,join] [--limit 1GiB] [--times 1,4,16] [--runs 3] [--json FILE]: sorts and joins of record
// batches that come over time, of so many times the memory limit, beside DuckDB with the same limit and directory, and beside the disk:
// as many bytes written to a temporary file, and read, 8 MiB at a time.
//
// Rows are of two int64 columns, a key and a row number, which a generator makes. Those to sort have random keys; DuckDB makes its own
// by hash(range). Those to join are half on either side, with the same keys, each there once, in other orders. Each figure is of a
// process of its own: `--one` is what that runs. Memory is its VmHWM beyond what it had as it began, its JavaScript and the
// generator's batches with it.
import { execFileSync } from 'node:child_process';
import { readFileSync, statfsSync, writeFileSync } from 'node:fs';
import { mkdtemp, open, rm, unlink } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Field, Int64, makeData, RecordBatch, Schema, Struct } from 'apache-arrow';
import { environment } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    calls: { type: 'string', default: 'sort,join' },
    limit: { type: 'string', default: '1GiB' },
    times: { type: 'string', default: '1,4,16' },
    runs: { type: 'string', default: '3' },
    json: { type: 'string' },
    one: { type: 'string' },
    rows: { type: 'string' },
  },
});
const { limit } = given;
const ROW_BYTES = 16;
const BATCH_ROWS = 1 << 17;
const [, number, unit] = /^(\d+)(MiB|GiB)$/.exec(limit);
const limitBytes = Number(number) * (unit === 'GiB' ? 2 ** 30 : 2 ** 20);
const temporary = () => mkdtemp(join(tmpdir(), 'warpjoin-bench-'));
const highWater = () => 1024 * Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'latin1'))[1]);

/** Batches of two columns of 64 bits, whose words `fill` sets, but for the rows' numbers. */
async function* batchesOf([key, value], rows, fill) {
  const schema = new Schema([new Field(key, new Int64(), false), new Field(value, new Int64(), false)]);
  for (let begin = 0; begin < rows; begin += BATCH_ROWS) {
    const length = Math.min(BATCH_ROWS, rows - begin);
    const [k, v] = [fill(begin, length), new Uint32Array(2 * length)];
    for (let i = 0; i < length; i++) v[2 * i] = begin + i;
    const column = (words) => makeData({ type: new Int64(), length, nullCount: 0, data: new BigInt64Array(words.buffer) });
    const children = [column(k), column(v)];
    yield new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length, nullCount: 0, children }));
  }
}

/** Keys that are random numbers: those of the first batch, with other upper halves. */
function batches(rows) {
  const first = new Uint32Array(2 * BATCH_ROWS);
  for (let i = 0, x = 1; i < first.length; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    first[i] = x;
  }
  return batchesOf(['k', 'v'], rows, (begin, length) => {
    const words = first.slice(0, 2 * length);
    const salt = Math.imul(begin + 1, 0x9e3779b1);
    for (let i = 0; i < length; i++) words[2 * i + 1] ^= salt;
    return words;
  });
}

const FACTOR = 2_654_435_761;
/** Each of the numbers below `rows` times a factor, modulo 2^32. */
const side = (columns, rows, numberOf) =>
  batchesOf(columns, rows, (begin, length) => {
    const words = new Uint32Array(2 * length);
    for (let i = 0; i < length; i++) words[2 * i] = Math.imul(numberOf(begin + i), FACTOR);
    return words;
  });
const sides = (rows) => [side(['k', 'v'], rows / 2, (row) => row), side(['k', 'w'], rows / 2, (row) => rows / 2 - 1 - row)];

const ways = {
  /** The generator alone. */
  async generator(rows, _, call) {
    for (const input of call === 'sort' ? [batches(rows)] : sides(rows)) for await (const _ of input);
  },
  warpjoin: (rows, folder, call) => (call === 'sort' ? sorts : joins)(rows, folder),
  async duckdb(rows, folder, call) {
    const { DuckDBInstance } = await import('@duckdb/node-api');
    // A join's rows have no order here either.
    const settings = {
      memory_limit: limit,
      temp_directory: folder,
      threads: `${availableParallelism()}`,
      preserve_insertion_order: `${call === 'sort'}`,
    };
    const connection = await (await DuckDBInstance.create(':memory:', settings)).connect();
    const began = performance.now();
    const keyed = `SELECT (hash(range) >> 1)::BIGINT AS k, range AS v FROM range(${rows})`;
    const of = (number, value) =>
      `(SELECT ((${number}) * ${FACTOR} % ${2 ** 32})::BIGINT AS k, range AS ${value} FROM range(${rows / 2}))`;
    const joined = `SELECT k, v, w FROM ${of('range', 'v')} JOIN ${of(`${rows / 2 - 1} - range`, 'w')} USING (k)`;
    let first;
    let read = 0;
    try {
      const result = await connection.stream(call === 'sort' ? `SELECT * FROM (${keyed}) ORDER BY k` : joined);
      for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
        first ??= performance.now() - began;
        read += chunk.rowCount;
      }
    } catch (error) {
      if (!/^Out of Memory/.test(error.message)) throw error;
      return { failed: 'out of memory' };
    }
    if (read !== (call === 'sort' ? rows : rows / 2)) throw new Error(`${read} rows`);
    return { first };
  },
  async disk(rows, folder) {
    const path = join(folder, 'file');
    const file = await open(path, 'wx+');
    await unlink(path);
    const part = new Uint8Array(8 << 20).fill(7);
    const parts = Math.ceil((rows * ROW_BYTES) / part.byteLength);
    for (let at = 0; at < parts; at++) await file.write(part, 0, part.byteLength, at * part.byteLength);
    for (let at = 0; at < parts; at++) await file.read(part, 0, part.byteLength, at * part.byteLength);
    await file.close();
  },
};

async function sorts(rows, folder) {
  const { createEngine } = await import('../../dist/index.js');
  const engine = await createEngine({ device: 'cpu', memoryLimit: limit, tempDirectory: folder });
  const began = performance.now();
  const sorted = engine.sortBatches(batches(rows), { by: 'k' });
  let first;
  let [read, last] = [0, -(2n ** 63n)];
  for await (const batch of sorted) {
    first ??= performance.now() - began;
    const keys = batch.getChildAt(0).data[0].values;
    if (keys[0] < last) throw new Error('out of order');
    last = keys.at(-1);
    read += batch.numRows;
  }
  if (read !== rows) throw new Error(`${read} rows`);
  await engine.dispose();
  return { first, ...sorted.stats };
}

async function joins(rows, folder) {
  const { createEngine } = await import('../../dist/index.js');
  const engine = await createEngine({ device: 'cpu', memoryLimit: limit, tempDirectory: folder });
  const began = performance.now();
  const joined = engine.joinBatches(...sides(rows), { on: 'k' });
  let first;
  let read = 0;
  for await (const { numRows } of joined) {
    if (numRows > 0) first ??= performance.now() - began;
    read += numRows;
  }
  if (read !== rows / 2) throw new Error(`${read} rows`);
  await engine.dispose();
  return { first, ...joined.stats };
}

if (given.one) {
  const folder = await temporary();
  try {
    const before = highWater();
    const began = performance.now();
    const more = await ways[given.one](Number(given.rows), folder, given.calls);
    console.log(JSON.stringify({ milliseconds: performance.now() - began, bytes: highWater() - before, ...more }));
  } finally {
    await rm(folder, { recursive: true });
  }
} else {
  const run = (way, rows, call) => {
    const flags = ['--one', way, '--rows', `${rows}`, '--limit', limit, '--calls', call];
    return JSON.parse(execFileSync(process.execPath, [new URL(import.meta.url).pathname, ...flags], { encoding: 'utf8' }));
  };
  const cases = [];
  const wanted = given.calls.split(',').flatMap((call) => given.times.split(',').map((times) => [call, Number(times)]));
  for (const [call, times] of wanted) {
    const rows = Math.floor((times * limitBytes) / ROW_BYTES);
    const runs = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
    // In turns, so that what the host does meanwhile is shared.
    for (let turn = 0; turn < Number(given.runs); turn++)
      for (const way of Object.keys(ways)) runs[way].push(run(way, rows, call));
    const timed = Object.fromEntries(
      Object.entries(runs).map(([way, all]) => {
        const most = Math.max(...all.map(({ bytes }) => bytes));
        const { first, failed, runs, spilledBytes, readBytes } = all.at(-1);
        return [
          way,
          { ...summary(all.map(({ milliseconds }) => milliseconds)), bytes: most, first, failed, runs, spilledBytes, readBytes },
        ];
      }),
    );
    cases.push({ call, limit, limitBytes, times, rows, ...timed });
    const { warpjoin, duckdb, disk } = timed;
    const shown = [warpjoin, duckdb, disk].map(({ median }) => `${(median / 1000).toFixed(1)} s`).join(', ');
    console.log(
      `${call} of ${times} times ${limit}: warpjoin, DuckDB, disk ${shown}; ${(warpjoin.bytes / limitBytes).toFixed(2)} limits`,
    );
  }
  if (given.json) {
    const { type } = statfsSync(tmpdir());
    const report = { environment: environment(), fileSystem: `0x${type.toString(16)}`, batches: cases };
    writeFileSync(given.json, `${JSON.stringify(report, null, 1)}\n`);
  }
}
