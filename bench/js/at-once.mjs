// node bench/js/at-once.mjs [--rows 1000000] [--calls 64] [--runs 5] [--device cpu] [--json FILE]: calls on one engine at the same
// time, beside as many one after the other, and a small call behind a large one.
//
// Joins are those of the workload join-int64, each of so many rows a side; the large call is one of 40 times as many. Times are
// milliseconds, as a caller waits. `first` and `last` say when calls that begin together end: as a share of the time of all.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { createEngine } from '../../dist/index.js';
import { workloads } from '../workloads/index.mjs';
import { environment } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000' },
    calls: { type: 'string', default: '64' },
    runs: { type: 'string', default: '5' },
    device: { type: 'string', default: 'cpu' },
    json: { type: 'string' },
  },
});
const [rows, calls, runs] = [given.rows, given.calls, given.runs].map(Number);
const { left, right } = workloads['join-int64'].generate(rows);
const large = workloads['join-int64'].generate(40 * rows);
const small = workloads['join-int64'].generate(1000);
const engine = await createEngine({ device: given.device });
const join = (tables) => engine.joinCount(tables.left, tables.right, { on: 'key' });
const full = async (tables) => (await engine.join(tables.left, tables.right, { on: 'key' })).numRows;

async function timed(work) {
  const began = performance.now();
  await work(began);
  return performance.now() - began;
}

/** Processor time that the process took meanwhile. */
async function timedWithCores(work) {
  const before = process.cpuUsage();
  const milliseconds = await timed(work);
  const { user, system } = process.cpuUsage(before);
  return { milliseconds, cores: (user + system) / 1000 / milliseconds };
}

const ways = {
  oneByOne: async (call) => {
    for (let i = 0; i < calls; i++) await call();
  },
  atOnce: async (call) => void (await Promise.all(Array.from({ length: calls }, call))),
};

/** Both ways in turns, for the machine may change its speed meanwhile. */
async function compared(call) {
  const took = { oneByOne: [], atOnce: [] };
  const used = { oneByOne: [], atOnce: [] };
  const ends = [];
  for (let run = -1; run < runs; run++) {
    for (const [way, work] of Object.entries(ways)) {
      const ended = [];
      const { milliseconds, cores } = await timedWithCores((began) =>
        work(async () => {
          await call();
          ended.push(performance.now() - began);
        }),
      );
      if (run < 0) continue;
      took[way].push(milliseconds);
      used[way].push(cores);
      if (way === 'atOnce') ends.push({ first: ended[0] / milliseconds, median: ended[calls >> 1] / milliseconds });
    }
  }
  const least = summary(ends.map(({ first }) => first)).median;
  const middle = summary(ends.map(({ median }) => median)).median;
  const cores = { oneByOne: summary(used.oneByOne).median, atOnce: summary(used.atOnce).median };
  return { calls, oneByOne: summary(took.oneByOne), atOnce: summary(took.atOnce), cores, first: least, middle };
}

/** A small call that comes while a large one runs. */
async function behind() {
  const [alone, waited, one, beside] = [[], [], [], []];
  for (let i = 0; i < 20; i++) alone.push(await timed(() => join(small)));
  for (let run = -1; run < runs; run++) {
    const took = { one: await timed(() => full(large)) };
    const running = timed(() => full(large));
    const waits = [];
    for (let i = 0; i < 5; i++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      waits.push(await timed(() => join(small)));
    }
    took.beside = await running;
    if (run < 0) continue;
    one.push(took.one);
    beside.push(took.beside);
    waited.push(...waits);
  }
  return { alone: summary(alone), waited: summary(waited), large: summary(one), largeBeside: summary(beside) };
}

const result = {
  ...environment(),
  atOnce: [
    { name: 'joinCount', rows, ...(await compared(() => join({ left, right }))) },
    { name: 'join', rows, ...(await compared(() => full({ left, right }))) },
  ],
  behind: { rows: 40 * rows, ...(await behind()) },
};
const show = ({ median, min, max }) => `${median.toFixed(1)} (${min.toFixed(1)} to ${max.toFixed(1)})`;
for (const { name, oneByOne, atOnce, cores, first, middle } of result.atOnce) {
  const ratio = (atOnce.median / oneByOne.median).toFixed(2);
  console.log(`${calls} x ${name} of ${rows} rows: one by one ${show(oneByOne)} ms, at once ${show(atOnce)} ms, ${ratio} of it`);
  console.log(`  cores busy: ${cores.oneByOne.toFixed(1)} one by one, ${cores.atOnce.toFixed(1)} at once`);
  console.log(`  the first ended after ${first.toFixed(2)} of that time, half of them after ${middle.toFixed(2)}`);
}
const { alone, waited, large: one, largeBeside } = result.behind;
console.log(`joinCount of 1,000 rows: alone ${show(alone)} ms, behind a join of ${40 * rows} rows ${show(waited)} ms`);
console.log(`  the large one: alone ${show(one)} ms, with small ones beside it ${show(largeBeside)} ms`);
if (given.json) writeFileSync(given.json, `${JSON.stringify(result, null, 2)}\n`);
await engine.dispose();
