// Measures one engine on one workload, in a process of its own: measure.mjs <JSON>. Prints one line of JSON.
//
// An own loop instead of the benchmark package's: results have to be dropped between runs by calls that are themselves
// asynchronous and must not be timed, and one run takes seconds. small-calls.mjs, with its many short calls, uses it.
import { readFileSync, writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { workloads } from '../workloads/index.mjs';

const { engine: engineName, workload: workloadName, files, runs, settings } = JSON.parse(process.argv[2]);

const status = (field) =>
  1024 * Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync('/proc/self/status', 'utf8'))[1]);

/** Time that the hypervisor gave to others, of all cores, in ticks. */
const stolenTicks = () => Number(readFileSync('/proc/stat', 'utf8').split('\n', 1)[0].split(/\s+/)[8] ?? 0);

/** Longest time that the event loop did nothing else, while `work` ran: `own` where all of it is the process's doing. */
async function watched(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const heartbeatMs = 5;
  const gaps = { own: 0, all: 0 };
  let last = performance.now();
  let stolen = stolenTicks();
  const beat = () => {
    const [now, stolenNow] = [performance.now(), stolenTicks()];
    const gap = now - last - heartbeatMs;
    gaps.all = Math.max(gaps.all, gap);
    if (stolenNow === stolen) gaps.own = Math.max(gaps.own, gap);
    [last, stolen] = [now, stolenNow];
  };
  const heartbeat = setInterval(beat, heartbeatMs);
  delay.enable();
  await new Promise((resolve) => setTimeout(resolve, 20)); // both have started before the work does
  beat();
  Object.assign(gaps, { own: 0, all: 0 });
  delay.reset();
  const start = performance.now();
  await work();
  const milliseconds = performance.now() - start;
  beat(); // a call that never yields is one long gap
  clearInterval(heartbeat);
  delay.disable();
  return { milliseconds, loopDelayMs: delay.max / 1e6, gaps };
}

const { open } = await import(`./engines/${engineName}.mjs`);
const engine = await open(workloads[workloadName], files, settings);
globalThis.gc?.();
// Before the warm-up: what an engine keeps reserved between runs counts as its own.
const loadedBytes = status('VmRSS');

const variants = {};
for (const [name, work] of Object.entries(engine.variants)) {
  await engine.prepare();
  await work(); // warm-up, whose result is checked
  const check = await engine.check(name);
  await engine.prepare();
  globalThis.gc?.();
  writeFileSync('/proc/self/clear_refs', '5'); // restarts the peak, VmHWM
  const measured = [];
  for (let run = 0; run < runs; run++) {
    await engine.prepare();
    globalThis.gc?.();
    measured.push(await watched(work));
  }
  variants[name] = {
    check,
    peakBytes: status('VmHWM'),
    milliseconds: measured.map(({ milliseconds }) => milliseconds),
    loopDelayMs: Math.max(...measured.map(({ loopDelayMs }) => loopDelayMs)),
    heartbeatGapMs: Math.max(...measured.map(({ gaps }) => gaps.own)),
    heartbeatGapWithStolenTimeMs: Math.max(...measured.map(({ gaps }) => gaps.all)),
    stats: engine.stats?.(),
    outputBytes: engine.outputBytes?.(),
  };
}
await engine.prepare();
await engine.close();
console.log(
  JSON.stringify({ form: engine.form, loadedBytes, variants }, (_, value) => (typeof value === 'bigint' ? Number(value) : value)),
);
