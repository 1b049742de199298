// node bench/js/through-batches.mjs [--rows 1000000,10000000] [--runs 5] [--json FILE]: joins and sorts whose rows come and go in
// record batches, beside the same calls with tables, in turns.
//
// Rows are of the workload join-int64, so many a side, in batches of 2^17 rows: tables of them, arrays of them, and generators that give
// one after the other. The sort is by the left table's key. `firstRow` is the time from the build side's end to the first row of a join
// whose probe side gives a batch each 20 ms.
import { writeFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Table } from 'apache-arrow';
import { createEngine } from '../../dist/index.js';
import { workloads } from '../workloads/index.mjs';
import { environment } from './environment.mjs';
import { summary } from './statistics.mjs';

const { values: given } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000,10000000' },
    runs: { type: 'string', default: '5' },
    json: { type: 'string' },
  },
});
const BATCH_ROWS = 1 << 17;
const PROBE_MILLISECONDS = 20;
const engine = await createEngine({ device: 'cpu' });

function cutIn({ numRows, batches }) {
  const cut = [];
  for (const batch of batches) {
    for (let row = 0; row < batch.numRows; row += BATCH_ROWS)
      cut.push(batch.slice(row, Math.min(batch.numRows, row + BATCH_ROWS)));
  }
  if (cut.reduce((rows, batch) => rows + batch.numRows, 0) !== numRows) throw new Error('rows are missing');
  return cut;
}

async function* coming(batches, { atEnd = () => {}, milliseconds = 0 } = {}) {
  for (const batch of batches) {
    if (milliseconds > 0) await setTimeout(milliseconds);
    yield batch;
  }
  atEnd();
}

async function rowsOf(batches) {
  let rows = 0;
  for await (const batch of batches) rows += batch.numRows;
  return rows;
}

async function firstRow(left, right) {
  let ended;
  const atEnd = () => {
    ended = performance.now();
  };
  const joined = engine.joinBatches(coming(left, { milliseconds: PROBE_MILLISECONDS }), coming(right, { atEnd }), { on: 'key' });
  for await (const { numRows } of joined) if (numRows > 0) return performance.now() - ended;
  throw new Error('no row');
}

const cases = [];
for (const rows of given.rows.split(',').map(Number)) {
  const whole = workloads['join-int64'].generate(rows);
  const [left, right] = [cutIn(whole.left), cutIn(whole.right)];
  const tables = { left: new Table(left), right: new Table(right) };
  const on = { on: 'key' };
  const by = { by: 'key' };
  const ways = {
    join: {
      tables: async () => (await engine.join(tables.left, tables.right, on)).numRows,
      array: () => rowsOf(engine.joinBatches(left, right, on)),
      stream: () => rowsOf(engine.joinBatches(coming(left), coming(right), on)),
    },
    sort: {
      tables: async () => (await engine.sort(tables.left, by)).numRows,
      array: () => rowsOf(engine.sortBatches(left, by)),
      stream: () => rowsOf(engine.sortBatches(coming(left), by)),
    },
  };
  for (const [call, works] of Object.entries(ways)) {
    const took = { tables: [], array: [], stream: [] };
    let expected;
    for (let run = -1; run < Number(given.runs); run++) {
      for (const [way, work] of Object.entries(works)) {
        const began = performance.now();
        const found = await work();
        if (run >= 0) took[way].push(performance.now() - began);
        expected ??= found;
        if (found !== expected) throw new Error(`${call}: ${way} gave ${found} rows, not ${expected}`);
      }
    }
    const one = { call, rows, ...Object.fromEntries(Object.entries(took).map(([way, all]) => [way, summary(all)])) };
    if (call === 'join') {
      const first = [];
      for (let run = -1; run < Number(given.runs); run++) {
        const milliseconds = await firstRow(left, right);
        if (run >= 0) first.push(milliseconds);
      }
      one.firstRow = summary(first);
    }
    cases.push(one);
    const ratio = (way) => (one[way].median / one.tables.median).toFixed(2);
    const first = one.firstRow ? `; first row ${one.firstRow.median.toFixed(0)} ms after the build side` : '';
    console.log(
      `${call} ${rows}: tables ${one.tables.median.toFixed(1)} ms, array ${ratio('array')}x, stream ${ratio('stream')}x${first}`,
    );
  }
}
await engine.dispose();
if (given.json) {
  writeFileSync(given.json, `${JSON.stringify({ environment: environment(), throughBatches: cases }, null, 1)}\n`);
}
