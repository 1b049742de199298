// node bench/js/small-calls.mjs [--rows 1000] [--device cpu]: what one call on few rows costs, where overheads
// rule: argument checks, planning, threads, promises, and with --device gpu starting work there. Here the benchmark package counts calls per second.

import { mkdirSync, rmSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { DuckDBInstance } from '@duckdb/node-api';
import Benchmark from 'benchmark';
import pl from 'nodejs-polars';
import { createEngine } from '../../dist/index.js';
import { writeTable } from '../../dist/io/index.js';
import { workloads } from '../workloads/index.mjs';

const { values: given } = parseArgs({
  options: { rows: { type: 'string', default: '1000' }, device: { type: 'string', default: 'cpu' } },
});
const rows = Number(given.rows);
const folder = new URL('../../build/bench/', import.meta.url);
mkdirSync(folder, { recursive: true });

const { left, right } = workloads['join-int64'].generate(rows);
const files = { left: new URL('small-left.parquet', folder).pathname, right: new URL('small-right.parquet', folder).pathname };
await writeTable(left, files.left);
await writeTable(right, files.right);

const engine = await createEngine({ device: given.device });
const instance = await DuckDBInstance.create(':memory:');
const connection = await instance.connect();
for (const [name, file] of Object.entries(files))
  await connection.run(`CREATE TABLE "${name}" AS SELECT * FROM read_parquet('${file}')`);
const frames = { left: pl.readParquet(files.left), right: pl.readParquet(files.right) };

/** Calls the same thing everywhere: the rows themselves, in the engine's own form. */
const calls = {
  'join warpjoin': () => engine.join(left, right, { on: 'key' }),
  'join duckdb': () => connection.runAndReadAll('SELECT * FROM "left" JOIN "right" USING (key)'),
  'join polars': async () => frames.left.join(frames.right, { on: 'key', how: 'inner' }),
  'sort warpjoin': () => engine.sort(left, { by: 'key' }),
  'sort duckdb': () => connection.runAndReadAll('SELECT * FROM "left" ORDER BY key'),
  'sort polars': async () => frames.left.sort('key'),
};

console.log(`${rows.toLocaleString('en-US')} rows a table`);
const suite = new Benchmark.Suite();
for (const [name, call] of Object.entries(calls)) {
  suite.add(name, {
    defer: true,
    fn: (deferred) => {
      call().then(
        () => deferred.resolve(),
        (error) => {
          console.error(`bench: ${name}: ${error.message}`);
          process.exit(1);
        },
      );
    },
  });
}
suite.on('cycle', ({ target }) => {
  const { mean, rme } = target.stats;
  console.log(
    `  ${target.name.padEnd(14)} ${(mean * 1e6).toFixed(0).padStart(8)} us a call (+-${rme.toFixed(1)} %, ${target.stats.sample.length} samples)`,
  );
});
await new Promise((resolve) => suite.on('complete', resolve).run({ async: true }));

for (const file of Object.values(files)) rmSync(file);
connection.closeSync();
instance.closeSync();
await engine.dispose();
