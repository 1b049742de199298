// Draws the README's chart, docs/chart.svg, from the newest files in bench/results, and writes what it shows between the README's
// marker comments <!-- bench:chart --> and <!-- /bench:chart -->. With --check it changes nothing and fails where either is out of date.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { files, find, newest, reports } from './results.mjs';

const path = (name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const whole = (number) => Math.round(number).toLocaleString('en-US');
const millions = (rows) => `${whole(rows / 1e6)} million`;

const engines = { duckdb: 'DuckDB', polars: 'Polars', warpjoin: 'warpjoin' };

/** A workload of bench/js/run.mjs on the processor: the newest run of all engines. */
function onProcessor(title, workload, variant) {
  const names = Object.keys(engines);
  const report = reports.findLast((one) => names.every((engine) => find(one, workload, variant, engine)));
  const bars = names.map((engine) => ({
    label: engines[engine],
    own: engine === 'warpjoin',
    milliseconds: find(report, workload, variant, engine).time.median,
  }));
  return {
    title: title(report.rows),
    file: report.name,
    bars,
    machine: `${report.environment.processor}, ${report.threads} threads`,
  };
}

/** The newest run of bench/js/gpu-KIND.mjs on one GPU, beside DuckDB on the same host. */
function onOneGpu(title, kind, timeOf) {
  const report = files((name) => name.endsWith(`-gpu-table-${kind}.json`)).findLast(({ devices }) => devices.length === 1);
  const bars = [
    { label: 'DuckDB', own: false, milliseconds: timeOf(report.duckdb) },
    { label: 'warpjoin', own: true, milliseconds: timeOf(report.warpjoin) },
    { label: 'warpjoin (loaded)', own: true, milliseconds: timeOf(report.resident) },
  ];
  return {
    title: title(report.rows),
    file: report.name,
    bars,
    machine: `one ${report.devices[0].replace(/ \d+$/, '')}, ${report.threads} processor threads`,
  };
}

const joinOf = (rows) => `Join of two tables of ${millions(rows)} rows`;
const sortOf = (rows) => `Sort of a table of ${millions(rows)} rows`;

/** What the chart shows: a column for each kind of machine, a panel for each run, a bar for each engine, in milliseconds. */
export const columns = [
  {
    title: 'On two cores',
    panels: [onProcessor(joinOf, 'join-int64', 'materialize'), onProcessor(sortOf, 'sort-int64', 'sort')],
  },
  {
    title: 'On one GPU',
    panels: [onOneGpu(joinOf, 'join', ({ join }) => join.median), onOneGpu(sortOf, 'sort', (time) => time.median)],
  },
];

/** "1,618 ms", "5.1 ms". */
const time = (ms) => `${ms < 10 ? ms.toFixed(1) : whole(ms)} ms`;
/** How many times as fast as the panel's first bar. */
const factor = (ratio) => `${ratio < 10 ? ratio.toFixed(1) : whole(ratio)}x`;
const labelOf = (panel, bar) =>
  bar.own ? `${time(bar.milliseconds)} (${factor(panel.bars[0].milliseconds / bar.milliseconds)})` : time(bar.milliseconds);

const size = { width: 860, column: 430, head: 62, panel: 118, title: 16, bar: 18, gap: 8, label: 132, longest: 190, foot: 46 };

const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
const textAt = (x, y, kind, text) => `<text x="${x}" y="${y}" class="${kind}">${escaped(text)}</text>`;

function panelAt(panel, x, y) {
  const most = Math.max(...panel.bars.map(({ milliseconds }) => milliseconds));
  const lines = panel.bars.flatMap((bar, index) => {
    const top = y + size.title + size.gap + index * (size.bar + size.gap);
    const width = ((bar.milliseconds / most) * size.longest).toFixed(2);
    const [begin, middle] = [x + size.label, top + size.bar / 2 + 4];
    return [
      textAt(begin - 8, middle, 'label', bar.label),
      `<rect x="${begin}" y="${top}" width="${width}" height="${size.bar}" class="bar${bar.own ? ' own' : ''}"/>`,
      textAt(begin + Number(width) + 6, middle, bar.own ? 'value own' : 'value', labelOf(panel, bar)),
    ];
  });
  return [textAt(x, y + 12, 'panel', panel.title), ...lines];
}

const height = size.head + 2 * size.panel + size.foot;
const notes = [
  'Milliseconds, shorter is better; in parentheses how many times as fast as DuckDB in the same run.',
  'Loaded: the tables were on the GPU before the call, and the result stays there.',
];

/** In words, for those who do not see the chart. */
const described = columns
  .flatMap(({ title, panels }) =>
    panels.map(
      (panel) =>
        `${title}, ${panel.title[0].toLowerCase()}${panel.title.slice(1)}: ${panel.bars.map((bar) => `${bar.label} ${labelOf(panel, bar)}`).join(', ')}.`,
    ),
  )
  .join(' ');

export const svg = `${[
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${height}" width="${size.width}" height="${height}" role="img" aria-labelledby="title desc">`,
  '<title id="title">Joins and sorts in DuckDB, Polars and warpjoin</title>',
  `<desc id="desc">${escaped(described)}</desc>`,
  '<style>',
  'text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f }',
  '.head { font-size: 17px; font-weight: 600 } .panel { font-weight: 600 } .label { text-anchor: end }',
  '.note, .machine { font-size: 12px; fill: #57606a } .value.own { font-weight: 600; fill: #0b5cad }',
  '.card { fill: #ffffff; stroke: #d0d7de } .bar { fill: #8c959f } .bar.own { fill: #1f6feb }',
  '@media (prefers-color-scheme: dark) {',
  'text { fill: #e6edf3 } .note, .machine { fill: #9da7b3 } .value.own { fill: #79c0ff }',
  '.card { fill: #0d1117; stroke: #30363d } .bar { fill: #6e7681 } .bar.own { fill: #388bfd }',
  '}',
  '</style>',
  `<rect x="0.5" y="0.5" width="${size.width - 1}" height="${height - 1}" rx="6" class="card"/>`,
  ...columns.flatMap(({ title, panels }, index) => {
    const x = 20 + index * size.column;
    return [
      textAt(x, 28, 'head', title),
      textAt(x, 46, 'machine', panels[0].machine),
      ...panels.flatMap((panel, row) => panelAt(panel, x, size.head + row * size.panel)),
    ];
  }),
  ...notes.map((note, line) => textAt(20, height - 32 + 18 * line, 'note', note)),
  '</svg>',
].join('\n')}\n`;

/** In how many of the newest results, each beside one peer, warpjoin is faster. */
const ratios = [...newest].flatMap(([key, report]) => {
  const [workload, variant] = key.split(' ');
  const own = find(report, workload, variant, 'warpjoin');
  const peers = ['duckdb', 'polars'].map((engine) => find(report, workload, variant, engine)).filter(Boolean);
  return peers.map(({ time }) => time.median / own.time.median);
});
const [won, measured] = [ratios.filter((ratio) => ratio > 1).length, ratios.length];

const sources = [...new Set(columns.flatMap(({ panels }) => panels.map(({ file }) => file)))];
const [gpu] = columns[1].panels;

/** The README's picture, and where its numbers are from. */
export const markdown = [
  `![${described.replace(/[[\]]/g, '')}](docs/chart.svg)`,
  '',
  `Inputs and results are tables in memory; keys are int64, and a payload column goes with them. On the GPU host (${gpu.machine}) DuckDB runs on ` +
    'all threads, and Polars was not measured. ' +
    `Each panel is one run: ${sources.map((file) => `[${file.replace(/\.json$/, '')}](bench/results/${file})`).join(', ')}. ` +
    `warpjoin is the faster one in ${won} of the ${measured} comparisons with DuckDB and Polars on two cores: [docs/performance.md](docs/performance.md).`,
].join('\n');

/** The files with what they should hold. */
function wanted() {
  const readme = readFileSync(path('README.md'), 'utf8');
  const marked = /(<!-- bench:chart -->\n)[\s\S]*?(<!-- \/bench:chart -->)/;
  if (!marked.test(readme)) throw new Error('README.md has no markers for the chart');
  return { 'docs/chart.svg': svg, 'README.md': readme.replace(marked, (_, start, end) => `${start}${markdown}\n${end}`) };
}

const read = (name) => {
  try {
    return readFileSync(path(name), 'utf8');
  } catch {
    return ''; // it is not there yet
  }
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [name, text] of Object.entries(wanted())) {
    if (!process.argv.includes('--check')) writeFileSync(path(name), text);
    else if (read(name) !== text) {
      console.error(`${name} is older than bench/results: run "node bench/report/chart.mjs"`);
      process.exitCode = 1;
    }
  }
}
