// npm run bench -- [names...] [--rows N] [--runs N] [--peers duckdb,polars] [--json FILE]
//
// Runs each workload in warpjoin and its peers, one process an engine, one after the other in the same run.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { workloads } from '../workloads/index.mjs';
import { environment, root } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rows: { type: 'string', default: '20000000' },
    runs: { type: 'string', default: '5' },
    peers: { type: 'string', default: 'duckdb,polars' },
    engines: { type: 'string' },
    json: { type: 'string' },
    threads: { type: 'string', default: String(availableParallelism()) },
  },
});
const rows = Math.round(Number(given.rows));
const runs = Number(given.runs);
const engines = given.engines?.split(',') ?? ['warpjoin', ...given.peers.split(',').filter(Boolean)];
const names = positionals.length > 0 ? positionals : Object.keys(workloads);
const unknown = names.find((name) => !workloads[name]);
if (unknown) fail(`unknown workload "${unknown}"; there are ${Object.keys(workloads).join(', ')}`);
if (!(rows >= 1) || !(runs >= 1)) fail('--rows and --runs need positive numbers');

function fail(message) {
  console.error(`bench: ${message}`);
  process.exit(1);
}

const here = dirname(fileURLToPath(import.meta.url));
const folder = join(root, 'build', 'bench');

/** Runs a script; resolves to the JSON of its last line and to the most memory seen from outside. */
function script(name, args, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--expose-gc', join(here, name), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    let out = '';
    let sampledPeakBytes = 0;
    child.stdout.on('data', (text) => {
      out += text;
    });
    const sampler = setInterval(() => {
      try {
        const rss = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
        if (rss) sampledPeakBytes = Math.max(sampledPeakBytes, 1024 * Number(rss[1]));
      } catch {} // the process is gone
    }, 20);
    child.on('close', (code, signal) => {
      clearInterval(sampler);
      if (code !== 0) return reject(new Error(`${name} ended with ${signal ?? code}`));
      resolve({ ...JSON.parse(out.trim().split('\n').at(-1)), sampledPeakBytes });
    });
  });
}

const threads = Number(given.threads);
const memcpy = await script('memcpy.mjs', []);
const { oneThread, allThreads } = memcpy;
const report = { environment: { ...environment(), memcpyGBps: { oneThread, allThreads } }, rows, runs, threads, results: [] };
console.log(`${report.environment.processor}, ${threads} threads, memcpy ${memcpy.allThreads.toFixed(1)} GB/s`);

let disagreed = false;
for (const name of names) {
  const workload = workloads[name];
  console.log(`\n${name}: ${workload.description}, ${rows.toLocaleString('en-US')} rows`);
  const { sampledPeakBytes: _, ...files } = await script('generate.mjs', [name, String(rows), folder]);
  const inputRows = Object.values(files).reduce((sum, { rows }) => sum + rows, 0);
  const inputBytes = Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0);
  const checks = {};
  for (const engine of engines) {
    const config = { engine, workload: name, files, runs, settings: { threads } };
    let measured;
    try {
      measured = await script('measure.mjs', [JSON.stringify(config)], { POLARS_MAX_THREADS: String(threads) });
    } catch (error) {
      console.log(`  ${engine.padEnd(9)} failed: ${error.message}`);
      report.results.push({ workload: name, engine, failed: error.message });
      disagreed = true;
      continue;
    }
    for (const [variant, result] of Object.entries(measured.variants)) {
      const { check, milliseconds, peakBytes, loopDelayMs, heartbeatGapMs, heartbeatGapWithStolenTimeMs } = result;
      const { stats, outputBytes } = result;
      checks[variant] ??= { engine, text: JSON.stringify(check) };
      const agrees = checks[variant].text === JSON.stringify(check);
      disagreed ||= !agrees;
      const time = summary(milliseconds);
      const rowsPerSecond = (inputRows / time.median) * 1000;
      report.results.push({
        workload: name,
        variant,
        engine,
        form: measured.form,
        inputRows,
        inputBytes,
        outputRows: check.rows,
        outputBytes,
        agreesWith: agrees ? checks[variant].engine : null,
        milliseconds,
        time,
        rowsPerSecond,
        memory: { loadedBytes: measured.loadedBytes, peakBytes, sampledPeakBytes: measured.sampledPeakBytes },
        loopDelayMs,
        heartbeatGapMs,
        heartbeatGapWithStolenTimeMs,
        stats,
      });
      console.log(
        `  ${engine.padEnd(9)} ${variant.padEnd(11)} ${time.median.toFixed(0).padStart(7)} ms (${time.min.toFixed(0)}..${time.max.toFixed(0)})` +
          `  ${(rowsPerSecond / 1e6).toFixed(1).padStart(6)} M rows/s  peak ${(peakBytes / 2 ** 30).toFixed(2)} GiB` +
          `  loop delay ${heartbeatGapMs.toFixed(1)} ms${agrees ? '' : `  DISAGREES with ${checks[variant].engine}`}`,
      );
    }
  }
  for (const variant of Object.keys(checks)) {
    const of = (engine) => report.results.find((r) => r.workload === name && r.variant === variant && r.engine === engine);
    const own = of('warpjoin');
    if (!own) continue;
    const ratios = engines
      .filter((engine) => engine !== 'warpjoin' && of(engine))
      .map((engine) => `${(of(engine).time.median / own.time.median).toFixed(2)}x ${engine}`);
    if (ratios.length > 0) console.log(`  warpjoin is ${ratios.join(', ')} in ${variant}`);
  }
  for (const { arrow, parquet } of Object.values(files)) for (const file of [arrow, parquet]) rmSync(file, { force: true });
}

const file =
  given.json ??
  join(
    root,
    'bench',
    'results',
    `${basename(report.environment.date.slice(0, 10))}-${report.environment.commit.split(' ')[0]}.json`,
  );
mkdirSync(dirname(file), { recursive: true });
writeFileSync(file, `${JSON.stringify(report, null, 1)}\n`);
console.log(`\nwritten to ${file}`);
if (disagreed) fail('an engine failed, or results disagree');
