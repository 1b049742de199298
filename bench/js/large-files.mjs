// node bench/js/large-files.mjs [--commands sort,join,join-both] [--rows 100000000] [--limit 512MiB] [--runs 3] [--json FILE]: the commands
// `sort` and `join` on a Parquet file that is larger than the memory limit, into a Parquet file, beside DuckDB's COPY with the same limit
// and directory.
//
// Rows are of two int64 columns: a key below 10^9 + 7, hash(range) by DuckDB, and a row number. The join is a left join with a table
// of an Arrow file that has every 500th key, for a fiftieth of the rows; `join-both` is an inner join of the file with itself. Each
// run is a process of its own, in turns. Memory is its VmHWM. Progress is what the command shows on a terminal, and how far that was off
// at most, of all of its time. Rows, sums and the order are checked at the last one.
import { spawn } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { environment } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    commands: { type: 'string', default: 'sort,join,join-both' },
    rows: { type: 'string', default: '100000000' },
    limit: { type: 'string', default: '512MiB' },
    runs: { type: 'string', default: '3' },
    json: { type: 'string' },
    one: { type: 'string' }, // SQL that DuckDB runs
    folder: { type: 'string' },
  },
});
const rows = Math.round(Number(given.rows));
const buildRows = Math.floor(rows / 50);
const folder = given.folder ?? (await mkdtemp(join(tmpdir(), 'warpjoin-bench-')));
const at = (name) => join(folder, name);

async function duckdb(sql, memory_limit) {
  const { DuckDBInstance } = await import('@duckdb/node-api');
  const settings = { ...(memory_limit && { memory_limit, temp_directory: folder }), threads: `${availableParallelism()}` };
  const connection = await (await DuckDBInstance.create(':memory:', settings)).connect();
  return (await connection.runAndReadAll(sql)).getRows();
}

/** Makes standard error of a process a terminal. */
const TERMINAL = 'data:text/javascript,process.stderr.isTTY = true';

/** Milliseconds that a process takes, the most memory that it has, and how far the progress was off that it showed, if it did. */
function run(args) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const child = spawn(process.execPath, ['--import', TERMINAL, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let bytes = 0;
    const shown = [];
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      const passed = performance.now() - began;
      for (const [, percent] of text.matchAll(/(\d+) %/g)) shown.push({ passed, share: Number(percent) / 100 });
      said = `${said}${text}`.slice(-1000);
    });
    const sampler = setInterval(() => {
      try {
        const status = readFileSync(`/proc/${child.pid}/status`, 'latin1');
        bytes = 1024 * Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? bytes / 1024);
      } catch {} // the process is gone
    }, 20);
    child.on('close', (code) => {
      clearInterval(sampler);
      const milliseconds = performance.now() - began;
      const errors = shown.map(({ passed, share }) => Math.abs(share - passed / milliseconds));
      if (code === 0) resolve({ milliseconds, bytes, progressError: errors.length > 0 ? Math.max(...errors) : undefined });
      else reject(new Error(`${args.join(' ')} ended with ${code}: ${said}`));
    });
  });
}

const COMMANDS = {
  sort: {
    flags: [at('large.parquet'), '--by', 'key'],
    sql: `SELECT * FROM '${at('large.parquet')}' ORDER BY key`,
  },
  join: {
    flags: [at('large.parquet'), at('small.arrow'), '--on', 'key', '--how', 'left'],
    sql: `SELECT l.*, label FROM '${at('large.parquet')}' l LEFT JOIN '${at('small.parquet')}' s ON l.key = s.key`,
  },
  'join-both': {
    flags: [at('large.parquet'), at('large.parquet'), '--on', 'key'],
    sql: `SELECT l.*, r.value AS value_right FROM '${at('large.parquet')}' l JOIN '${at('large.parquet')}' r ON l.key = r.key`,
  },
};
/** What is summed of a result. */
const SUMS = { sort: 'key, value', join: 'key, value, label', 'join-both': 'key, value, value_right' };

async function check(command) {
  const columns = SUMS[command].split(', ').map((column) => `sum(${column})`);
  const sums = async (name) => String(await duckdb(`SELECT count(*), ${columns} FROM '${at(name)}'`));
  if ((await sums('ours.parquet')) !== (await sums('theirs.parquet'))) throw new Error(`${command}: sums differ`);
  if (command !== 'sort') return;
  const { scanFiles } = await import('../../dist/io/index.js');
  let last = -(2n ** 63n);
  for await (const batch of scanFiles(at('ours.parquet'))) {
    for (const { values } of batch.getChild('key').data) {
      for (const key of values) {
        if (key < last) throw new Error('out of order');
        last = key;
      }
    }
  }
}

if (given.one) {
  await duckdb(given.one, given.limit);
} else {
  const large = `SELECT (hash(i) % 1000000007)::BIGINT AS key, i::BIGINT AS value FROM range(${rows}) t(i)`;
  const small = `SELECT (500 * i)::BIGINT AS key, i::BIGINT AS label FROM range(${buildRows}) t(i)`;
  await duckdb(`COPY (${large}) TO '${at('large.parquet')}' (FORMAT parquet)`);
  await duckdb(`COPY (${small}) TO '${at('small.parquet')}' (FORMAT parquet)`);
  const { readTable, writeTable } = await import('../../dist/io/index.js');
  await writeTable(await readTable(at('small.parquet')), at('small.arrow'));
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
  const limits = ['--memory-limit', given.limit, '--temp-directory', folder, '--device', 'cpu'];
  const cases = [];
  try {
    for (const command of given.commands.split(',')) {
      const { flags, sql } = COMMANDS[command];
      const copy = `COPY (${sql}) TO '${at('theirs.parquet')}' (FORMAT parquet)`;
      const ways = {
        warpjoin: [main, command.split('-')[0], ...flags, ...limits, '-o', at('ours.parquet')],
        duckdb: [fileURLToPath(import.meta.url), '--one', copy, '--limit', given.limit, '--folder', folder],
      };
      const runs = { warpjoin: [], duckdb: [] };
      for (let turn = 0; turn < Number(given.runs); turn++)
        for (const [way, args] of Object.entries(ways)) runs[way].push(await run(args));
      await check(command);
      const timed = Object.entries(runs).map(([way, all]) => [
        way,
        {
          ...summary(all.map(({ milliseconds }) => milliseconds)),
          bytes: Math.max(...all.map(({ bytes }) => bytes)),
          progressError: all.every(({ progressError }) => progressError !== undefined)
            ? Math.max(...all.map((run) => run.progressError))
            : undefined,
        },
      ]);
      const fileBytes = statSync(at('large.parquet')).size;
      cases.push({ command, rows, fileBytes, limit: given.limit, ...Object.fromEntries(timed) });
      const { warpjoin, duckdb } = cases.at(-1);
      console.log(
        `${command}: ${(warpjoin.median / 1000).toFixed(1)} s, DuckDB ${(duckdb.median / 1000).toFixed(1)} s; ` +
          `${(warpjoin.bytes / 2 ** 20).toFixed(0)} and ${(duckdb.bytes / 2 ** 20).toFixed(0)} MiB; ` +
          `progress off by ${warpjoin.progressError === undefined ? 'what is not known' : `${(100 * warpjoin.progressError).toFixed(0)} % at most`}`,
      );
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  if (given.json) writeFileSync(given.json, `${JSON.stringify({ environment: environment(), largeFiles: cases }, null, 1)}\n`);
}
