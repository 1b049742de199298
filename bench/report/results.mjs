// The results of bench/js/run.mjs in bench/results, which the tables of docs/performance.md and the README's chart are made of.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const folder = fileURLToPath(new URL('../results', import.meta.url));

/** Every results file with the name of its file, oldest first: their names begin with the date. */
export const files = (isOne = () => true) =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.json') && isOne(name))
    .sort()
    .map((name) => ({ name, ...JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')) }));

/** The reports of all engines side by side on the processor, oldest first. */
export const reports = files((name) => !name.includes('-gpu-'))
  .filter(({ environment, results }) => environment && results)
  .sort((a, b) => a.environment.date.localeCompare(b.environment.date));

/** The newest report that has warpjoin's figures for a workload and variant, by `workload variant`. */
export const newest = new Map();
for (const report of reports) {
  for (const result of report.results) {
    if (result.engine === 'warpjoin' && !result.failed) newest.set(`${result.workload} ${result.variant}`, report);
  }
}

/** One engine's figures in a report; undefined where it has none. */
export const find = (report, workload, variant, engine) =>
  report.results.find((r) => r.workload === workload && r.variant === variant && r.engine === engine && !r.failed);
