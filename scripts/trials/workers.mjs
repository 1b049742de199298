// Ends worker threads, and processes, in the middle of native calls:
//   node scripts/trials/workers.mjs [--seed N] [--rounds N] [--workers N]
// A round makes workers that call the addon in a loop and, after up to 20 ms, terminates them, has them exit or throw. Every
// twentieth round it is a process that exits or throws so, with workers at work. Fails where a round takes 30 s, a process ends
// otherwise than asked for, or memory grows from round to round.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { loadAddon } from '../../dist/addon.js';
import { random, trialOptions } from './random.mjs';

const script = fileURLToPath(import.meta.url);
const ROUND_MS = 30_000;
const LONGEST_CALLS_MS = 20;
const EXIT_CODE = 7;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const FACTOR = { pow10: 0, times: 1 };
const COMPARISON = { nullsEqual: false, factors: { left: FACTOR, right: FACTOR } };

/** A table of two columns as the addon takes it. */
function columns(rows, draw) {
  const keys = BigInt64Array.from({ length: rows }, () => BigInt(draw.below(rows)));
  const chunk = (values) => ({ length: rows, bitOffset: 0, validity: null, values, offsets: null });
  const fixed = (name, values) => ({ name, kind: 'fixed', order: 'signed', width: 8, chunks: [chunk(values)] });
  return [fixed('k', keys), fixed('v', keys.slice())];
}

/** Calls of the addon, for ever: sorts and joins, several at a time. Rejections are none of the trial's business. */
async function callForEver(seed) {
  const draw = random(seed);
  const { Engine } = loadAddon();
  const hostDevices = draw.pick([1, 1, 2, 3]);
  const config = { threads: 2, hostDevices, gpus: [], memoryLimitBytes: 2 ** 28, deviceMemoryLimitBytes: 0 };
  const engine = new Engine(config);
  const devices = [...Array(hostDevices).keys()];
  const rows = draw.pick([10, 1000, 20_000, 200_000]);
  const input = columns(rows, draw);
  const held = [];
  const sort = async (job) => {
    const relation = await engine.relation(job, input, rows);
    const keys = await engine.sortKeys(job, relation, [{ column: 0, descending: false, nullsLast: true }], null, false);
    const algorithm = draw.pick(['merge', 'radix', 'sample']);
    const [run] = await engine.sortChunksets(job, keys, { algorithm, devices, chunksetEnds: [rows], spill: false });
    held[0] = await engine.gather(job, relation, 1, run, 'left');
    held[1] = engine.takeValues(job, run);
  };
  const join = async (job) => {
    const [left, right] = await Promise.all([engine.relation(job, input, rows), engine.relation(job, input, rows)]);
    const keys = await engine.joinKeys(job, left, [0], null, right, [0], null, [COMPARISON]);
    const wanted = { kind: 'inner', buildLeft: true, countOnly: false, wantKeys: false, wantLeft: true, wantRight: true };
    const plan = { devices, rounds: 1, partitions: 0, eitherSide: false };
    const found = await engine.hashJoin(job, keys, { ...wanted, maxRows: Number.POSITIVE_INFINITY }, plan);
    held[2] = await Promise.all([0, 1].map((column) => engine.gather(job, left, column, found, 'left')));
  };
  parentPort?.postMessage('calling');
  if (draw.chance(0.05)) void engine.dispose();
  for (;;) {
    await Promise.allSettled([sort, join, sort].map(async (call) => call(engine.createJob())));
    await new Promise(setImmediate); // calls of a disposed engine fail at once
  }
}

/** A worker that is ended in the middle of its calls, one of three ways. */
async function endWorker(seed) {
  const draw = random(seed);
  const way = draw.pick(['terminate', 'terminate', 'exit', 'throw']);
  const after = draw.chance(0.2) ? 0 : draw.next() * LONGEST_CALLS_MS;
  const worker = new Worker(script, { workerData: { seed, way, after } });
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  const failed = new Promise((resolve) => worker.once('error', resolve));
  if (way === 'terminate') {
    // Some while they start.
    if (draw.chance(0.9)) await new Promise((resolve) => worker.once('message', resolve));
    await sleep(after);
    await worker.terminate();
    return;
  }
  const error = way === 'throw' ? await failed : null;
  const code = await ended;
  if (way === 'throw' && error.message !== 'in the middle') throw error;
  if (way === 'exit' && code !== EXIT_CODE) throw new Error(`a worker ended with code ${code}`);
}

async function runWorker({ seed, way, after }) {
  if (way === 'exit') setTimeout(() => process.exit(EXIT_CODE), after);
  if (way === 'throw') {
    setTimeout(() => {
      throw new Error('in the middle');
    }, after);
  }
  await callForEver(seed);
}

/** A process that ends while it and workers of its own call the addon. */
async function runProcess([seed, workers, way]) {
  const draw = random(Number(seed));
  const calling = Array.from({ length: Number(workers) }, () => {
    const worker = new Worker(script, { workerData: { seed: draw.below(2 ** 32), way: 'none', after: 0 } });
    return new Promise((resolve) => worker.once('message', resolve));
  });
  void callForEver(draw.below(2 ** 32));
  if (draw.chance(0.8)) await Promise.all(calling);
  await sleep(draw.next() * LONGEST_CALLS_MS);
  if (way === 'exit') process.exit(EXIT_CODE);
  setTimeout(() => {
    throw new Error('in the middle');
  });
}

async function endProcess(seed, workers) {
  const way = random(seed).pick(['exit', 'throw']);
  const child = spawn(process.execPath, [script, 'process', seed, workers, way], { stdio: ['ignore', 'ignore', 'pipe'] });
  let printed = '';
  child.stderr.on('data', (text) => {
    printed += text;
  });
  const killed = setTimeout(() => child.kill('SIGKILL'), ROUND_MS - 1000);
  const [code, signal] = await new Promise((resolve) => child.once('close', (...end) => resolve(end)));
  clearTimeout(killed);
  if (code === (way === 'exit' ? EXIT_CODE : 1) && (way === 'exit' || printed.includes('in the middle'))) return;
  throw new Error(`a process that was to ${way} ended with code ${code}, signal ${signal}\n${printed}`);
}

async function main() {
  const { seed, rounds, workers } = trialOptions({ rounds: 200, workers: 2 });
  console.log(`workers: --seed ${seed} --rounds ${rounds} --workers ${workers}, Node.js ${process.version}`);
  const draw = random(seed);
  let round = 0;
  const fail = (error) => {
    console.error(`workers: round ${round} of --seed ${seed} --workers ${workers}: ${error.stack ?? error}`);
    process.kill(process.pid, 'SIGKILL'); // an exit would wait for a worker that hangs
  };
  // A hang is one of a thread that waits for a worker, so this one can still tell.
  const watchdog = setInterval(() => {
    if (performance.now() - began > ROUND_MS) fail(new Error(`takes longer than ${ROUND_MS / 1000} s`));
  }, 1000);
  let began = performance.now();
  const memory = [];
  for (; round < rounds; round++) {
    began = performance.now();
    const seeds = Array.from({ length: workers }, () => draw.below(2 ** 32));
    const ends = round % 20 === 19 ? [endProcess(seeds[0], workers)] : seeds.map(endWorker);
    await Promise.all(ends).catch(fail);
    memory.push(process.memoryUsage.rss() / 2 ** 20);
  }
  clearInterval(watchdog);
  // The first rounds fill the allocators' arenas, one for each thread at a time.
  const quarter = Math.floor(rounds / 4);
  const most = (from, to) => Math.max(0, ...memory.slice(from, to));
  const [early, late] = [most(quarter, 2 * quarter), most(3 * quarter, rounds)];
  console.log(`workers: memory up to ${early.toFixed(0)} MiB in the second quarter, ${late.toFixed(0)} MiB in the last`);
  // ASan keeps freed memory.
  if (!process.env.WARPJOIN_ADDON && rounds >= 40 && late > 1.5 * early + 64) fail(new Error('memory grows'));
}

if (!isMainThread) await runWorker(workerData);
else if (process.argv[2] === 'process') await runProcess(process.argv.slice(3));
else await main();
