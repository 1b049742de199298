// Joins 3 million flights with their airports and sorts them by delay: the tour of warpjoin on real data.
import { mkdirSync, statSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { renderTable, withSeparators } from '../dist/cli/table.js';
import { createEngine } from '../dist/index.js';
import { readTable, writeTable } from '../dist/io/index.js';

const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const datasets = 'node_modules/vega-datasets/data';
const output = 'build/demo';

const color = process.stdout.isTTY && !process.env.NO_COLOR;
const bold = (text) => (color ? `\x1b[1m${text}\x1b[22m` : text);
const dim = (text) => (color ? `\x1b[2m${text}\x1b[22m` : text);
const say = (text = '') => console.log(text);
const indent = (text) => text.replace(/^/gm, '  ');

const timings = [];
/** Runs a phase, and notes its time and the rows that went into it. */
async function phase(name, rows, work) {
  const start = performance.now();
  const result = await work();
  const milliseconds = performance.now() - start;
  timings.push({ name, rows: typeof rows === 'function' ? rows(result) : rows, milliseconds });
  return result;
}
const rowsOf = (table) => table.numRows;

const engine = await createEngine();
try {
  say(bold('warpjoin demo: which flights were delayed most, and between which cities?'));
  say();
  for (const { kind, name } of engine.devices()) say(`Runs on: ${name} (${kind})`);
  say();

  const flights = await phase('read flights-3m.parquet', rowsOf, () => readTable(path(`${datasets}/flights-3m.parquet`)));
  const airports = await phase('read airports.csv', rowsOf, () => readTable(path(`${datasets}/airports.csv`)));
  say(
    `${bold('1. Two files.')} ${withSeparators(flights.numRows)} flights within the USA in 2001, with airports as three-letter codes:`,
  );
  say(indent(dim(renderTable(flights, 3))));
  say(`   and the ${withSeparators(airports.numRows)} airports that the codes stand for:`);
  say(indent(dim(renderTable(airports, 3))));
  say();

  say(`${bold('2. Two joins.')} Each flight gets the city of its origin, then of its destination.`);
  const withOrigin = await phase('join with origin airports', flights.numRows + airports.numRows, () =>
    engine.join(flights, airports, {
      leftOn: 'origin',
      rightOn: 'iata',
      select: ['date', 'delay', 'distance', 'origin', 'destination', 'city', 'state'],
    }),
  );
  const withBoth = await phase('join with destination airports', withOrigin.numRows + airports.numRows, () =>
    engine.join(withOrigin, airports, {
      leftOn: 'destination',
      rightOn: 'iata',
      suffix: '_to',
      select: ['date', 'delay', 'distance', 'origin', 'city', 'state', 'destination', 'city_to', 'state_to'],
    }),
  );
  for (const [name, { stats }] of Object.entries({ origin: withOrigin, destination: withBoth })) {
    say(
      `   ${name}: ${stats.algorithm} on ${stats.device}, ${withSeparators(stats.outputRows)} rows, because ${stats.algorithmReason}`,
    );
  }
  const lost = flights.numRows - withBoth.numRows;
  say(
    lost === 0
      ? '   Every code was found.'
      : `   ${withSeparators(lost)} flights have a code that airports.csv lacks: an inner join leaves them out.`,
  );
  say();

  say(`${bold('3. A sort.')} By delay, longest first; flights with the same delay by date.`);
  const sorted = await phase('sort by delay and date', withBoth.numRows, () =>
    engine.sort(withBoth, { by: [{ column: 'delay', descending: true }, 'date'] }),
  );
  say(`   ${sorted.stats.algorithm} on ${sorted.stats.device}, because ${sorted.stats.algorithmReason}`);
  say();
  say(`${bold('The most delayed flights')} (delay in minutes, distance in miles)`);
  say(indent(renderTable(sorted, 10)));
  say();

  mkdirSync(path(output), { recursive: true });
  const files = [`${output}/delays.arrow`, `${output}/delays.parquet`];
  for (const file of files) await phase(`write ${file}`, sorted.numRows, () => writeTable(sorted, path(file)));

  say(bold('Times'));
  const width = Math.max(...timings.map(({ name }) => name.length));
  for (const { name, rows, milliseconds } of timings) {
    const rate = rows / milliseconds / 1000;
    say(
      `  ${name.padEnd(width)}  ${milliseconds.toFixed(0).padStart(6)} ms  ${withSeparators(rows).padStart(9)} rows  ${rate.toFixed(rate < 1 ? 2 : 1).padStart(6)} million rows/s`,
    );
  }
  say();
  say(bold('Written'));
  for (const file of files)
    say(`  ${relative(process.cwd(), path(file))}  ${(statSync(path(file)).size / 2 ** 20).toFixed(1)} MiB`);
  say(dim(`  Try: npx warpjoin sort ${files[1]} --by distance:desc,date`));
} finally {
  await engine.dispose();
}
