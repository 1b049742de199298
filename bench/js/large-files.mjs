// node bench/js/large-files.mjs [--commands sort,join] [--rows 100000000] [--limit 512MiB] [--runs 3] [--json FILE]: the commands
// `sort` and `join` on a Parquet file that is larger than the memory limit, into a Parquet file, beside DuckDB's COPY with the same limit
// and directory.
//
// Rows are of two int64 columns: a key below 10^9 + 7, hash(range) by DuckDB, and a row number. The join is a left join with a table
// of an Arrow file that has every 500th key, for a fiftieth of the rows. Each run is a process of its own, in turns. Memory is its
// VmHWM. Rows, sums and the order are checked at the last one.
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
    commands: { type: 'string', default: 'sort,join' },
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

/** Milliseconds that a process takes, and the most memory that it has. */
function run(args) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
    let bytes = 0;
    const sampler = setInterval(() => {
      try {
        const status = readFileSync(`/proc/${child.pid}/status`, 'latin1');
        bytes = 1024 * Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? bytes / 1024);
      } catch {} // the process is gone
    }, 20);
    child.on('close', (code) => {
      clearInterval(sampler);
      if (code === 0) resolve({ milliseconds: performance.now() - began, bytes });
      else reject(new Error(`${args.join(' ')} ended with ${code}`));
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
};

async function check(command) {
  const sums = async (name) =>
    String(await duckdb(`SELECT count(*), sum(key), sum(value)${command === 'join' ? ', sum(label)' : ''} FROM '${at(name)}'`));
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
  const limits = ['--memory-limit', given.limit, '--temp-directory', folder, '--device', 'cpu', '-q'];
  const cases = [];
  try {
    for (const command of given.commands.split(',')) {
      const { flags, sql } = COMMANDS[command];
      const copy = `COPY (${sql}) TO '${at('theirs.parquet')}' (FORMAT parquet)`;
      const ways = {
        warpjoin: [main, command, ...flags, ...limits, '-o', at('ours.parquet')],
        duckdb: [fileURLToPath(import.meta.url), '--one', copy, '--limit', given.limit, '--folder', folder],
      };
      const runs = { warpjoin: [], duckdb: [] };
      for (let turn = 0; turn < Number(given.runs); turn++)
        for (const [way, args] of Object.entries(ways)) runs[way].push(await run(args));
      await check(command);
      const timed = Object.entries(runs).map(([way, all]) => [
        way,
        { ...summary(all.map(({ milliseconds }) => milliseconds)), bytes: Math.max(...all.map(({ bytes }) => bytes)) },
      ]);
      const fileBytes = statSync(at('large.parquet')).size;
      cases.push({ command, rows, fileBytes, limit: given.limit, ...Object.fromEntries(timed) });
      const { warpjoin, duckdb } = cases.at(-1);
      console.log(
        `${command}: ${(warpjoin.median / 1000).toFixed(1)} s, DuckDB ${(duckdb.median / 1000).toFixed(1)} s; ` +
          `${(warpjoin.bytes / 2 ** 20).toFixed(0)} and ${(duckdb.bytes / 2 ** 20).toFixed(0)} MiB`,
      );
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  if (given.json) writeFileSync(given.json, `${JSON.stringify({ environment: environment(), largeFiles: cases }, null, 1)}\n`);
}
