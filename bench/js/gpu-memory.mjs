// node bench/js/gpu-memory.mjs [--rows N] [--first N] [--limit SIZE] [--runs N] [--json FILE]
//
// What memory costs a join() of two Arrow tables in ordinary memory, on all GPUs: with all of their memory, and with no more than
// --limit on each; and the first join of a process, of fewer rows (--first), which finds no page that it knows, beside the
// later ones. Both tables have as many rows, of an int64 key and an int64 payload column. The left one has each key once, the
// right one foreign keys. Row counts and the sums of the payloads have to be right. The memory of calls that went before is free.
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { column, milliseconds, sum, time, valuesOf, writeReport } from './gpu.mjs';

const { values } = parseArgs({
  options: {
    rows: { type: 'string', default: '200000000' },
    first: { type: 'string', default: '50000000' },
    limit: { type: 'string', default: '16GiB' },
    runs: { type: 'string', default: '5' },
    json: { type: 'string' },
    process: { type: 'string' }, // a fresh one, of --rows rows
  },
});
const [rows, first, runs] = [values.rows, values.first, values.runs].map((value) => Math.round(Number(value)));

/** A column of 64-bit integers below 2^32. */
function integers(next) {
  const words = new Uint32Array(2 * rows);
  for (let row = 0; row < rows; row++) words[2 * row] = next(row);
  return column(new BigInt64Array(words.buffer));
}

const gcd = (a, b) => (b === 0 ? a : gcd(b, a % b));

/** Keys that are scattered, and the sum of the left rows' numbers that the right rows meet. */
function makeTables() {
  let step = Math.floor(rows * 0.6180339887) | 1;
  while (gcd(step, rows) !== 1) step += 2;
  let key = 0;
  const rowOf = new Uint32Array(rows);
  const keys = integers((row) => {
    key = (key + step) % rows;
    rowOf[key] = row;
    return key;
  });
  let drawn = 1;
  let met = 0n;
  let some = 0; // of them, as far as a number is exact
  const foreign = integers(() => {
    drawn ^= drawn << 13;
    drawn ^= drawn >>> 17;
    drawn ^= drawn << 5;
    const of = (drawn >>> 0) % rows;
    some += rowOf[of];
    if (some > 2 ** 52) {
      met += BigInt(some);
      some = 0;
    }
    return of;
  });
  const numbers = integers((row) => row);
  return { left: new Table({ key: keys, l: numbers }), right: new Table({ key: foreign, r: numbers }), met: met + BigInt(some) };
}

const { left, right, met } = makeTables();

/** Milliseconds of joins, after one that is not counted unless it is `alone`. */
async function measure(limits, alone = false) {
  const engine = await createEngine({ device: 'gpu', memoryLimit: '64GiB', ...limits });
  let stats;
  let checked = false;
  const join = async () => {
    const made = await engine.join(left, right, { on: 'key' });
    stats = made.stats;
    return () => {
      if (checked) return;
      const sums = ['l', 'r'].map((name) => sum(valuesOf(made, name)));
      if (made.numRows !== rows || sums[0] !== met || sums[1] !== (BigInt(rows) * BigInt(rows - 1)) / 2n)
        throw new Error(`${made.numRows} rows, and sums ${sums}`);
      checked = true;
    };
  };
  let took;
  if (alone) {
    const start = performance.now();
    const check = await join();
    took = performance.now() - start;
    check();
  }
  const later = await time(runs, join);
  const devices = engine.devices().map(({ name }) => name);
  await engine.dispose();
  return { first: took, milliseconds: later, devices, stats };
}

if (values.process) {
  console.log(JSON.stringify(await measure({}, true), (_, value) => (typeof value === 'bigint' ? Number(value) : value)));
} else {
  const all = await measure({});
  const limited = await measure({ deviceMemoryLimit: values.limit });
  const ratio = limited.milliseconds.median / all.milliseconds.median;
  console.log(`join() of ${rows / 1e6} million rows a side: ${milliseconds(all.milliseconds)}`);
  console.log(
    `with ${values.limit} of device memory: ${milliseconds(limited.milliseconds)}, ${ratio.toFixed(3)} of that; ${limited.stats.spilledRows} tuples spilled`,
  );
  const fresh = [];
  for (let turn = 0; turn < 3; turn++) {
    const arguments_ = ['--process', 'fresh', '--rows', String(first), '--runs', String(runs)];
    const { stdout, stderr, status } = spawnSync(process.execPath, [process.argv[1], ...arguments_], { encoding: 'utf8' });
    if (status !== 0) throw new Error(`a fresh process ended with ${status}: ${stderr}`);
    fresh.push(JSON.parse(stdout));
    const last = fresh.at(-1);
    console.log(
      `first join() of a process, ${first / 1e6} million rows a side: ${last.first.toFixed(1)} ms; later ones ${milliseconds(last.milliseconds)}`,
    );
  }
  const { devices } = all;
  if (values.json) writeReport(values.json, { rows, runs, devices, all, limit: values.limit, limited, firstRows: first, fresh });
}
