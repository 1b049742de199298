// Writes a workload's tables as Arrow and Parquet files: generate.mjs <workload> <rows> <folder>. Prints their sizes as JSON.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeTable } from '../../dist/io/index.js';
import { workloads } from '../workloads/index.mjs';

const [name, rows, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const files = {};
for (const [table, data] of Object.entries(workloads[name].generate(Number(rows)))) {
  const [arrow, parquet] = ['arrow', 'parquet'].map((extension) => join(folder, `${name}-${table}.${extension}`));
  await writeTable(data, arrow);
  await writeTable(data, parquet);
  const bytes = data.batches.reduce((sum, batch) => sum + batch.data.byteLength, 0);
  files[table] = { arrow, parquet, rows: data.numRows, bytes };
}
console.log(JSON.stringify(files));
