// Calls of all kinds on one engine at once, some of which are aborted or fail: each ends as it does alone, no limit is exceeded, and
// neither memory nor files are left of any.
// node scripts/trials/at-once.mjs [--seed N] [--rounds N] [--calls N] [--rows N] [--megabytes N]
//
// So many rounds of so many calls, of tables of at most so many rows. An engine's memory limit is so many MiB.
import { mkdtempSync, readdirSync, readlinkSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { makeVector, Table } from 'apache-arrow';
import { Engine } from '../../dist/engine.js';
import { native } from '../../dist/native.js';
import { collectGarbage } from '../../dist/operators/reclaim.js';
import { engineSchema } from '../../dist/options.js';
import { parse } from '../../dist/schema.js';
import { random, trialOptions } from './random.mjs';

const { seed, rounds, calls, rows, megabytes } = trialOptions({ rounds: 3, calls: 1000, rows: 200_000, megabytes: 64 });
const { below, pick, chance } = random(seed);
/** Growth of the process that is no leak: pages that malloc and V8 keep. */
const MOST_GROWTH = 64 << 20;
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-trial-'));

const addon = native();
let inner;
const spied = new Proxy(addon, {
  get: (target, name) =>
    name !== 'Engine'
      ? target[name]
      : function Spied(config, beside) {
          const made = new target.Engine(config, beside);
          inner ??= made;
          return made;
        },
});
const options = { memoryLimit: `${megabytes}MiB`, tempDirectory: folder, device: 'cpu' };
const engine = new Engine(parse(engineSchema, 'createEngine', options), spied);

function table(length, distinct) {
  const k = Int32Array.from({ length }, () => below(distinct));
  return new Table({ k: makeVector(k), v: makeVector(Float64Array.from(k, (_, row) => row)) });
}
async function* partsOf(whole) {
  for (let row = 0; row < whole.numRows; row += 5000) yield* whole.slice(row, row + 5000).batches;
}

/** What does not depend on the order of rows. */
function sumsOf(batches) {
  const sums = [0];
  for (const { numRows, schema, data } of batches) {
    sums[0] += numRows;
    for (let column = 0; column < schema.fields.length; column++) {
      const { values, nullCount } = data.children[column];
      let sum = 1e9 * nullCount;
      if (nullCount === 0) for (let row = 0; row < numRows; row++) sum += values[row];
      sums[column + 1] = (sums[column + 1] ?? 0) + sum;
    }
  }
  return sums.join();
}
async function read(stream) {
  const batches = [];
  for await (const batch of stream) batches.push(batch);
  return sumsOf(batches);
}

/** A call, which is given a signal. */
function draw() {
  // Most are small.
  const size = Math.floor(rows ** (chance(0.7) ? 0.5 : chance(0.7) ? 0.8 : 1));
  const [left, right] = [table(1 + below(size), 1 + below(2 * size)), table(1 + below(size), 1 + below(2 * size))];
  const on = { on: 'k', how: pick(['inner', 'left', 'right', 'full', 'semi', 'anti']), maxOutputRows: 4 * size };
  const validate = pick(['m:m', '1:m', 'm:1']);
  return pick([
    async (signal) => sumsOf((await engine.join(left, right, { ...on, validate, signal })).batches),
    async (signal) => sumsOf((await engine.join(left, right, { ...on, result: 'mapped', signal })).batches),
    (signal) => read(engine.joinBatches(partsOf(left), partsOf(right), { ...on, validate, signal })),
    async (signal) => `${await engine.joinCount(left, right, { ...on, signal })}`,
    async (signal) => sumsOf((await engine.sort(left, { by: ['k', 'v'], signal })).batches),
    async (signal) => sumsOf((await engine.sort(left, { by: 'v', result: 'mapped', signal })).batches),
    (signal) => read(engine.sortBatches(partsOf(left), { by: 'k', signal })),
    async (signal) => `${(await engine.sortIndices(right, { by: 'v', limit: 10, signal })).rows}`,
    async (signal) => sumsOf((await engine.unique(left, { on: 'k', signal })).batches),
    (signal) => engine.sort(right, { by: 'no', signal }),
  ]);
}

/** What a call gives, or the code of its error. Messages name rows, and which ones depends on what is looked at first. */
const endOf = (promise) => promise.catch((error) => (error === 'enough' ? error : (error.code ?? String(error))));

const cases = [];
for (let i = 0; i < 100; i++) {
  const call = draw();
  cases.push({ call, expected: await endOf(call()) });
}
const counted = {};
const count = (what) => {
  counted[what] = (counted[what] ?? 0) + 1;
};

async function run({ call, expected }) {
  const controller = chance(0.1) ? new AbortController() : null;
  const ended = endOf(call(controller?.signal));
  if (controller) void setTimeout(below(200)).then(() => controller.abort('enough'));
  const end = await ended;
  if (end !== expected && !(controller && end === 'enough'))
    throw new Error(`a call gives ${end} where it gives ${expected} alone`);
  count(end === 'enough' ? 'aborted' : /^ERR_/.test(end) ? end : 'given');
}

const filesOpen = () =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(folder);
    } catch {
      return false;
    }
  });

let least = Number.POSITIVE_INFINITY;
for (let round = 0; round < rounds; round++) {
  const where = `seed ${seed}, round ${round}`;
  const ends = await Promise.allSettled(Array.from({ length: calls }, () => run(pick(cases))));
  const failed = ends.find(({ status }) => status === 'rejected');
  if (failed) throw new Error(where, { cause: failed.reason });
  let left = await collectGarbage(() => inner.memory().usedBytes);
  // What calls that were aborted have begun ends a little later.
  for (let more = 0; left > 0 && more < 20; more++) {
    await setTimeout(100);
    left = await collectGarbage(() => inner.memory().usedBytes);
  }
  const { peakBytes, limitBytes } = inner.memory();
  const resident = process.memoryUsage.rss();
  least = Math.min(least, resident);
  if (left > 0) throw new Error(`${where}: ${left} bytes of the engine's memory are left`);
  if (peakBytes > limitBytes) throw new Error(`${where}: ${peakBytes} bytes where the limit is ${limitBytes}`);
  if (filesOpen().length > 0) throw new Error(`${where}: files are left`);
  if (resident - least > MOST_GROWTH) throw new Error(`${where}: the process has grown by ${resident - least} bytes`);
}
await engine.dispose();
rmdirSync(folder);
const all = Object.entries(counted).map(([what, times]) => `${what}: ${times}`);
console.log(`${rounds} rounds of ${calls} calls (seed ${seed}): ${all.join(', ')}; memory up to ${megabytes} MiB, left 0`);
