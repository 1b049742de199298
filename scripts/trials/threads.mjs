// Makes engines, and joins and sorts, where the system gives few threads:
//   node scripts/trials/threads.mjs [--seed N] [--rounds N] [--least N] [--most N]
// A round runs a process under each limit of threads (RLIMIT_NPROC) from --least to --most, as a user of its own: root, whom no
// such limit holds, has to start it. Fails where one hangs, ends by a signal, or gets another error than a WarpjoinError that
// names threads.
import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { random, trialOptions } from './random.mjs';

const script = fileURLToPath(import.meta.url);
const TIMEOUT_MS = 30_000;

/** What a process under a limit does. */
async function callWithFewThreads([hostDevices, threads]) {
  const { makeVector, Table } = await import('apache-arrow');
  const { createEngine } = await import('../../dist/index.js');
  await readFile(script); // Node.js starts the threads that it reads files with, and ends the process where it gets none
  const rows = 3000;
  const table = new Table({ k: makeVector(Int32Array.from({ length: rows }, (_, row) => (row * 7919) % rows)) });
  console.log('started');
  const attempt = async (name, call) => {
    try {
      const value = await call();
      console.log(name, 'done');
      return value;
    } catch (error) {
      console.log(name, error.name, error.code, error.message);
      if (error.name !== 'WarpjoinError' || !error.message.includes('thread')) process.exitCode = 1;
      return null;
    }
  };
  const options = { device: 'cpu', hostDevices: Number(hostDevices), threads: Number(threads), memoryLimit: '256MiB' };
  const engine = await attempt('createEngine', () => createEngine(options));
  if (!engine) return;
  await attempt('sort', () => engine.sort(table, { by: 'k' }));
  await attempt('join', () => engine.join(table, table, { on: 'k' }));
  await attempt('merge join', () => engine.join(table, table, { on: 'k', algorithm: 'sort-merge', sortAlgorithm: 'radix' }));
  await engine.dispose();
}

function main() {
  const { seed, rounds, least, most } = trialOptions({ rounds: 1, least: 12, most: 40 });
  console.log(`threads: --seed ${seed} --rounds ${rounds} --least ${least} --most ${most}, Node.js ${process.version}`);
  if (process.getuid() !== 0) throw new Error('Expected to be run by root, to start processes of another user');
  const draw = random(seed);
  const ended = { started: 0, engines: 0, calls: 0 };
  for (let round = 0; round < rounds; round++) {
    for (let limit = least; limit <= most; limit++) {
      // Nobody else has processes of this user.
      const user = 100_000 + draw.below(2 ** 20);
      const [devices, threads] = [draw.pick([1, 2, 3, 8]), draw.pick([1, 2, 8, 64])];
      const own = [process.execPath, script, 'call', devices, threads].map(String);
      const args = [`--reuid=${user}`, '--clear-groups', 'prlimit', `--nproc=${limit}:${limit}`, ...own];
      const { stdout, stderr, status, signal, error } = spawnSync('setpriv', args, { encoding: 'utf8', timeout: TIMEOUT_MS });
      // Before that it is Node.js that got too few.
      if (!stdout?.startsWith('started')) {
        if (error?.code === 'ENOENT') throw error;
        continue;
      }
      ended.started++;
      ended.engines += stdout.includes('createEngine done');
      ended.calls += stdout.match(/(sort|join) done/g)?.length ?? 0;
      if (status === 0) continue;
      console.error(`threads: round ${round} of --seed ${seed}: limit ${limit}, ${devices} devices, ${threads} threads:`);
      console.error(`ended with code ${status}, signal ${signal}\n${stdout}${stderr}`);
      process.exit(1);
    }
  }
  console.log(`threads: ${ended.started} processes, ${ended.engines} engines, ${ended.calls} calls done`);
}

if (process.argv[2] === 'call') await callWithFewThreads(process.argv.slice(3));
else main();
