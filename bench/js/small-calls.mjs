// node bench/js/small-calls.mjs [--rows 1000] [--device cpu] [--peers duckdb,polars]: what one call on few rows costs, where overheads
// rule: argument checks, planning, threads, promises, and with --device gpu starting work there. The benchmark package counts calls
// per second.

import { mkdirSync, rmSync } from 'node:fs';
import { parseArgs } from 'node:util';
import Benchmark from 'benchmark';
import { createEngine } from '../../dist/index.js';
import { writeTable } from '../../dist/io/index.js';
import { workloads } from '../workloads/index.mjs';

const { values: given } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000' },
    device: { type: 'string', default: 'cpu' },
    peers: { type: 'string', default: 'duckdb,polars' },
  },
});
const rows = Number(given.rows);
const folder = new URL('../../build/bench/', import.meta.url);
mkdirSync(folder, { recursive: true });

const { left, right } = workloads['join-int64'].generate(rows);
const files = { left: new URL('small-left.parquet', folder).pathname, right: new URL('small-right.parquet', folder).pathname };
await writeTable(left, files.left);
await writeTable(right, files.right);

/** Calls the same thing everywhere: the rows themselves, in the engine's own form. */
const engines = {
  async warpjoin() {
    const engine = await createEngine({ device: given.device });
    return {
      join: () => engine.join(left, right, { on: 'key' }),
      sort: () => engine.sort(left, { by: 'key' }),
      close: () => engine.dispose(),
    };
  },
  async duckdb() {
    const { DuckDBInstance } = await import('@duckdb/node-api');
    const instance = await DuckDBInstance.create(':memory:');
    const connection = await instance.connect();
    for (const [name, file] of Object.entries(files))
      await connection.run(`CREATE TABLE "${name}" AS SELECT * FROM read_parquet('${file}')`);
    return {
      join: () => connection.runAndReadAll('SELECT * FROM "left" JOIN "right" USING (key)'),
      sort: () => connection.runAndReadAll('SELECT * FROM "left" ORDER BY key'),
      close() {
        connection.closeSync();
        instance.closeSync();
      },
    };
  },
  async polars() {
    const { default: pl } = await import('nodejs-polars');
    const frames = { left: pl.readParquet(files.left), right: pl.readParquet(files.right) };
    return {
      join: async () => frames.left.join(frames.right, { on: 'key', how: 'inner' }),
      sort: async () => frames.left.sort('key'),
      close() {},
    };
  },
};

console.log(`${rows.toLocaleString('en-US')} rows a table`);
const suite = new Benchmark.Suite();
const opened = {};
for (const name of ['warpjoin', ...given.peers.split(',').filter(Boolean)]) opened[name] = await engines[name]();
for (const call of ['join', 'sort']) {
  for (const [name, engine] of Object.entries(opened)) {
    suite.add(`${call} ${name}`, {
      defer: true,
      fn: (deferred) => {
        engine[call]().then(
          () => deferred.resolve(),
          (error) => {
            console.error(`bench: ${call} ${name}: ${error.message}`);
            process.exit(1);
          },
        );
      },
    });
  }
}
suite.on('cycle', ({ target }) => {
  const { mean, rme } = target.stats;
  console.log(
    `  ${target.name.padEnd(14)} ${(mean * 1e6).toFixed(0).padStart(8)} us a call (+-${rme.toFixed(1)} %, ${target.stats.sample.length} samples)`,
  );
});
await new Promise((resolve) => suite.on('complete', resolve).run({ async: true }));

for (const file of Object.values(files)) rmSync(file);
for (const engine of Object.values(opened)) await engine.close();
