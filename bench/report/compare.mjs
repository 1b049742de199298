// node bench/report/compare.mjs --old FILE [--old FILE] --new FILE [--new FILE]
//
// Which rows of benchmarks are slower in one build than in another: reports (--json) of both, in turns on the same host, of
// scripts/gpu-bench.sh, bench/js/run.mjs and the benchmarks of calls on GPUs. A row that has the same name in both is compared by
// the mean of its medians. Prints how far rows are apart, and those that are slower by more than 3 %: whether their ranges overlap.
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: { old: { type: 'string', multiple: true, default: [] }, new: { type: 'string', multiple: true, default: [] } },
});
if (values.old.length === 0 || values.new.length === 0) {
  console.error('usage: node bench/report/compare.mjs --old FILE [--old FILE] --new FILE [--new FILE]');
  process.exit(2);
}

/** What was measured of a row: what else it has names it. */
const MEASURED =
  /ms$|milliseconds|time|per|^gb|of[a-z]|ratio|^(min|max|median|least|most)$|quartile|pairs|phases|passes|stats|agrees|right/i;
const nameOf = (row) =>
  Object.entries(row)
    .filter(([key, value]) => !MEASURED.test(key) && (typeof value !== 'object' || value === null))
    .map(([key, value]) => `${key} ${value}`)
    .join(', ');

/** The least, median and most time of a row, or, of one that has a rate, what a byte takes; undefined for what is no row. */
function timeOf(row) {
  const summary = [row.time, row.milliseconds, row].find((of) => typeof of?.median === 'number');
  if (summary) return [summary.min, summary.median, summary.max];
  if (typeof row.medianMs === 'number') return [row.leastMs, row.medianMs, row.mostMs];
  if (typeof row.gbPerSecond === 'number') return [1 / row.most, 1 / row.gbPerSecond, 1 / row.least];
  return undefined;
}

/** All rows of a report with their names; `path` names those of an object. */
function* rowsOf(value, path = []) {
  if (value === null || typeof value !== 'object') return;
  const time = timeOf(value);
  if (time) yield [[...path, nameOf(value)].filter(Boolean).join(' '), time];
  else
    for (const [key, within] of Object.entries(value))
      yield* rowsOf(within, Array.isArray(value) || Array.isArray(within) ? path : [...path, key]);
}

const rows = new Map();
for (const build of ['old', 'new']) {
  for (const file of values[build]) {
    const seen = new Map();
    for (const [name, time] of rowsOf(JSON.parse(readFileSync(file, 'utf8')))) {
      // A row that is there twice in a report is another one each time.
      const number = (seen.get(name) ?? 0) + 1;
      seen.set(name, number);
      const key = number === 1 ? name : `${name} (${number})`;
      if (!rows.has(key)) rows.set(key, { old: [], new: [] });
      rows.get(key)[build].push(time);
    }
  }
}

const mean = (times) => times.reduce((sum, [, median]) => sum + median, 0) / times.length;
const compared = [...rows]
  .filter(([, of]) => of.old.length > 0 && of.new.length > 0)
  .map(([name, of]) => ({ name, ...of, ratio: mean(of.new) / mean(of.old) }))
  .sort((a, b) => b.ratio - a.ratio);
if (compared.length === 0) {
  console.error('compare: the reports have no row in common');
  process.exit(1);
}
const left = rows.size - compared.length;
const range = `${compared.at(-1).ratio.toFixed(3)} to ${compared[0].ratio.toFixed(3)}`;
console.log(`${compared.length} rows: new over old ${range}${left ? `; ${left} are in one of both alone` : ''}`);
const digits = (time) => time.toPrecision(3);
for (const { name, ratio, ...of } of compared.filter(({ ratio }) => ratio > 1.03)) {
  const overlap = Math.min(...of.new.map(([least]) => least)) <= Math.max(...of.old.map(([, , most]) => most));
  const [before, after] = [of.old, of.new].map((times) => times.map(([, median]) => digits(median)).join(', '));
  console.log(`  ${ratio.toFixed(3)} ${overlap ? 'ranges overlap' : 'SLOWER'}: ${name}: ${before} -> ${after}`);
}
