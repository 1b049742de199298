// What the benchmarks of calls on GPUs share: options, columns, timing and reports.
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Float64, Int64, makeData, Vector } from 'apache-arrow';
import { summary } from './statistics.mjs';

/** --rows N, --columns N, --runs N and --json FILE, or what they are without, and options that a benchmark alone has. */
export function options(more = {}) {
  const { values } = parseArgs({
    options: {
      rows: { type: 'string', default: '200000000' },
      columns: { type: 'string', default: '1' },
      runs: { type: 'string', default: '5' },
      json: { type: 'string' },
      ...more,
    },
  });
  const { rows, columns, runs, ...others } = values;
  return { rows: Math.round(Number(rows)), columns: Number(columns), runs: Number(runs), ...others };
}

export const column = (data) => new Vector([makeData({ type: new Int64(), length: data.length, nullCount: 0, data })]);

/** All values of a column without nulls, which may be in several batches. */
export const valuesOf = (table, name) => table.getChild(name).toArray();

/** The sum of 64-bit integers: exact for values from 0 to 2^32 - 1. */
export function sum(values) {
  const words = new Uint32Array(values.buffer, values.byteOffset, 2 * values.length);
  let total = 0n;
  for (let begin = 0; begin < words.length; begin += 2 ** 21) {
    let part = 0;
    for (let i = begin; i < Math.min(words.length, begin + 2 ** 21); i += 2) part += words[i];
    total += BigInt(part);
  }
  return total;
}

/** Floats that are null in every 16th row. */
export function floatsWithNulls(data) {
  const { length } = data;
  const nullBitmap = new Uint8Array(Math.ceil(length / 8)).map((_, byte) => (byte % 2 ? 0xff : 0xfe));
  return new Vector([makeData({ type: new Float64(), length, nullCount: Math.ceil(length / 16), data, nullBitmap })]);
}

export const milliseconds = ({ median, min, max }) => `${median.toFixed(1)} ms (${min.toFixed(1)} to ${max.toFixed(1)})`;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');

/**
 * Milliseconds of `runs` calls of `work`, after one that is not counted. What it gives is called once the clock has stopped.
 * Results are collected between calls, as those of the peers are freed: the next call has their memory.
 */
export async function time(runs, work) {
  const milliseconds = [];
  for (let run = 0; run <= runs; run++) {
    const start = performance.now();
    const done = await work();
    if (run > 0) milliseconds.push(performance.now() - start);
    await done?.();
    collectGarbage();
    await new Promise((resolve) => setTimeout(resolve, 50)); // freed buffers return in turns of the event loop
  }
  return summary(milliseconds);
}

export const range = ({ median, min, max }) => `${median.toFixed(0)} ms (${min.toFixed(0)} to ${max.toFixed(0)})`;

/** Prints what the steps and phases of a call took. */
export function showSteps({ steps, phases }) {
  for (const { name, milliseconds } of steps) console.log(`  ${name}: ${milliseconds.toFixed(1)} ms`);
  for (const { name, milliseconds } of phases) console.log(`    ${name}: ${milliseconds.toFixed(1)} ms`);
}

export function writeReport(file, report) {
  const whole = { date: new Date().toISOString(), threads: availableParallelism(), ...report };
  writeFileSync(file, `${JSON.stringify(whole, (_, value) => (typeof value === 'bigint' ? Number(value) : value), 1)}\n`);
}
