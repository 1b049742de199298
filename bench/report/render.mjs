// Puts the numbers of bench/results/*.json into docs/performance.md, between its marker comments:
// <!-- bench:NAME --> ... <!-- /bench:NAME -->. A workload's newest result counts. With --check it changes nothing
// and fails where the page is out of date.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gpuSections } from './gpus.mjs';
import { files, find, folder, newest } from './results.mjs';

const page = fileURLToPath(new URL('../../docs/performance.md', import.meta.url));

const million = (n) => (n / 1e6).toFixed(n < 1e7 ? 1 : 0);
const gib = (bytes) => (bytes / 2 ** 30).toFixed(2);
const table = (head, rows) => [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
const milliseconds = ({ time }) => `${time.median.toFixed(0)} (${time.min.toFixed(0)} to ${time.max.toFixed(0)})`;

function speed(kinds) {
  const rows = [];
  for (const [key, report] of newest) {
    const [workload, variant] = key.split(' ');
    if (!kinds.includes(variant)) continue;
    const own = find(report, workload, variant, 'warpjoin');
    const peer = (name) => {
      const result = find(report, workload, variant, name);
      return result ? [milliseconds(result), `${(result.time.median / own.time.median).toFixed(2)}x`] : ['', ''];
    };
    rows.push([
      workload,
      variant,
      million(own.inputRows),
      milliseconds(own),
      million(own.rowsPerSecond),
      ...peer('duckdb'),
      ...peer('polars'),
    ]);
  }
  return table(
    [
      'workload',
      'variant',
      'million rows in',
      'warpjoin, ms',
      'million rows/s',
      'DuckDB, ms',
      'warpjoin is',
      'Polars, ms',
      'warpjoin is',
    ],
    rows,
  );
}

function memory() {
  const rows = [];
  for (const [key, report] of newest) {
    const [workload, variant] = key.split(' ');
    const own = find(report, workload, variant, 'warpjoin');
    const extra = (engine) => {
      const result = find(report, workload, variant, engine);
      return result ? gib(result.memory.peakBytes - result.memory.loadedBytes) : '';
    };
    const moved = own.inputBytes + (own.outputBytes ?? 0);
    rows.push([
      workload,
      variant,
      gib(own.inputBytes),
      own.outputBytes === undefined ? '' : gib(own.outputBytes),
      extra('warpjoin'),
      extra('duckdb'),
      extra('polars'),
      `${((moved / own.time.median / 1e6 / report.environment.memcpyGBps.allThreads) * 100).toFixed(0)} %`,
      own.heartbeatGapMs.toFixed(1),
      own.heartbeatGapWithStolenTimeMs.toFixed(1),
    ]);
  }
  return table(
    [
      'workload',
      'variant',
      'input, GiB',
      'output, GiB',
      'warpjoin, GiB more',
      'DuckDB, GiB more',
      'Polars, GiB more',
      'of memcpy',
      'event loop, ms',
      'with stolen time, ms',
    ],
    rows,
  );
}

function environments() {
  return [...new Set(newest.values())]
    .map(({ name, environment: e, runs, threads }) => {
      const { node, duckdb, polars } = e.versions;
      return (
        `- \`${name}\`: ${e.date.slice(0, 10)}, commit ${e.commit}, ${e.processor}, ${threads} threads, ${gib(e.memoryBytes)} GiB, ` +
        `memcpy ${e.memcpyGBps.allThreads.toFixed(1)} GB/s (one thread ${e.memcpyGBps.oneThread.toFixed(1)}), load ${e.loadAverage.toFixed(1)} at the start; ` +
        `Node.js ${node}, DuckDB ${duckdb}, Polars ${polars}; ${runs} runs.`
      );
    })
    .join('\n');
}

/** The newest figures of each case of bench/js/files.mjs. */
function filesSection() {
  const newestOf = new Map();
  for (const { name, files: cases = [] } of files((name) => name.includes('-files'))) {
    for (const one of cases) newestOf.set(one.name, { file: name, ...one });
  }
  const seconds = ({ median, min, max }) => `${median.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`;
  const rows = [...newestOf.values()].map(({ name, file, rows, bytes, seconds: { warpjoin, duckdb } }) => [
    name,
    million(rows),
    (bytes / 1e6).toFixed(0),
    seconds(warpjoin),
    (bytes / 1e6 / warpjoin.median).toFixed(0),
    seconds(duckdb),
    `${(duckdb.median / warpjoin.median).toFixed(2)}x`,
    `\`${file}\``,
  ]);
  return table(['case', 'million rows', 'MB', 'warpjoin, s', 'MB/s', 'DuckDB, s', 'warpjoin is', 'results'], rows);
}

/** Median, least and most of milliseconds, in seconds. */
const secondsOf = ({ median, min, max }) =>
  `${(median / 1000).toFixed(1)} (${(min / 1000).toFixed(1)} to ${(max / 1000).toFixed(1)})`;

/** The newest figures of each case of bench/js/large-files.mjs. */
function largeFilesSection() {
  const newestOf = new Map();
  for (const { name, largeFiles = [] } of files((name) => name.includes('-large-files'))) {
    for (const one of largeFiles) newestOf.set(`${one.command} ${one.limit} ${one.rows}`, { file: name, ...one });
  }
  const gigabytes = (bytes) => (bytes / 1e9).toFixed(2);
  const rows = [...newestOf.values()].map(({ command, rows, fileBytes, limit, warpjoin, duckdb, file }) => [
    command,
    million(rows),
    gigabytes(fileBytes),
    limit,
    secondsOf(warpjoin),
    secondsOf(duckdb),
    `${(duckdb.median / warpjoin.median).toFixed(2)}x`,
    gigabytes(warpjoin.bytes),
    gigabytes(duckdb.bytes),
    warpjoin.progressError === undefined ? '' : `${Math.round(100 * warpjoin.progressError)} %`,
    `\`${file}\``,
  ]);
  const heads = ['command', 'million rows', 'file, GB', 'memory limit', 'warpjoin, s', 'DuckDB, s', 'warpjoin is'];
  return table([...heads, 'memory, GB', "DuckDB's, GB", 'progress off by', 'results'], rows);
}

/** The newest figures of each case of bench/js/batches.mjs. */
function batchesSection() {
  const newestOf = new Map();
  for (const { name, batches = [] } of files((name) => name.includes('-batches'))) {
    for (const one of batches.map((one) => ({ call: 'sort', ...one })))
      newestOf.set(`${one.call} ${one.limit} ${one.times}`, { file: name, ...one });
  }
  const rows = [...newestOf.values()].map(({ call, limit, limitBytes, times, rows, generator, warpjoin, duckdb, disk, file }) => [
    call,
    limit,
    `${times}`,
    million(rows),
    `${warpjoin.runs}`,
    secondsOf(warpjoin),
    `${((rows * 16) / 1e3 / warpjoin.median).toFixed(0)}`,
    duckdb.failed ?? secondsOf(duckdb),
    duckdb.failed ? '' : `${(duckdb.median / warpjoin.median).toFixed(1)}x`,
    (disk.median / 1000).toFixed(1),
    (generator.median / 1000).toFixed(1),
    (warpjoin.bytes / limitBytes).toFixed(2),
    (duckdb.bytes / limitBytes).toFixed(2),
    `\`${file}\``,
  ]);
  const heads = [
    'call',
    'memory limit',
    'times that',
    'million rows',
    'runs',
    'warpjoin, s',
    'MB/s',
    'DuckDB, s',
    'warpjoin is',
    'disk, s',
  ];
  return table([...heads, 'generator, s', 'memory, limits', "DuckDB's, limits", 'results'], rows);
}

/** The newest figures of bench/js/through-batches.mjs. */
function throughBatchesSection() {
  const newestOf = new Map();
  for (const { name, throughBatches = [] } of files((name) => name.includes('-through-batches'))) {
    for (const one of throughBatches) newestOf.set(`${one.call} ${one.rows}`, { file: name, ...one });
  }
  const shown = ({ median, min, max }) => `${median.toFixed(0)} (${min.toFixed(0)} to ${max.toFixed(0)})`;
  const rows = [...newestOf.values()].map(({ call, rows, tables, array, stream, firstRow, file }) => [
    call,
    million(rows),
    shown(tables),
    shown(array),
    (array.median / tables.median).toFixed(2),
    shown(stream),
    (stream.median / tables.median).toFixed(2),
    firstRow ? shown(firstRow) : '',
    `\`${file}\``,
  ]);
  const heads = [
    'call',
    'million rows a side',
    'tables, ms',
    'arrays of batches, ms',
    'times that',
    'generators, ms',
    'times that',
  ];
  return table([...heads, 'first row, ms', 'results'], rows);
}

/** The newest figures of bench/js/at-once.mjs, for each number of cores and rows. */
function atOnceSection() {
  const newestOf = new Map();
  for (const { name, cores, processor, atOnce = [] } of files((name) => name.includes('-at-once'))) {
    for (const one of atOnce) newestOf.set(`${cores} ${one.name} ${one.rows}`, { file: name, machine: cores, processor, ...one });
  }
  const shown = ({ median, min, max }) => `${median.toFixed(0)} (${min.toFixed(0)} to ${max.toFixed(0)})`;
  const rows = [...newestOf.values()].map(({ machine, calls, name, rows, oneByOne, atOnce, cores, first, middle, file }) => [
    `${machine}`,
    `${calls} of \`${name}\``,
    million(rows),
    shown(oneByOne),
    cores.oneByOne.toFixed(1),
    shown(atOnce),
    cores.atOnce.toFixed(1),
    (atOnce.median / oneByOne.median).toFixed(2),
    `${first.toFixed(2)}, ${middle.toFixed(2)}`,
    `\`${file}\``,
  ]);
  const heads = ['cores', 'calls', 'million rows', 'one by one, ms', 'cores busy', 'at once, ms', 'cores busy', 'times that'];
  return table([...heads, 'first and half of them ended, of 1', 'results'], rows);
}

/** Small calls beside a large one, from the same files. */
function behindSection() {
  const newestOf = new Map();
  for (const { name, cores, behind } of files((name) => name.includes('-at-once'))) {
    if (behind) newestOf.set(`${cores} ${behind.rows}`, { file: name, cores, ...behind });
  }
  const shown = ({ median, min, max }) => `${median.toFixed(1)} (${min.toFixed(1)} to ${max.toFixed(1)})`;
  const rows = [...newestOf.values()].map(({ cores, rows, alone, waited, large, largeBeside, file }) => [
    `${cores}`,
    shown(alone),
    million(rows),
    shown(waited),
    shown(large),
    shown(largeBeside),
    `\`${file}\``,
  ]);
  const heads = ['cores', 'small, alone, ms', 'large, million rows', 'small, beside it, ms', 'large, alone, ms'];
  return table([...heads, 'large, with small ones beside it, ms', 'results'], rows);
}

const sections = {
  'at-once': atOnceSection,
  behind: behindSection,
  batches: batchesSection,
  'through-batches': throughBatchesSection,
  'large-files': largeFilesSection,
  files: filesSection,
  joins: () => speed(['count', 'materialize']),
  sorts: () => speed(['sort']),
  unique: () => speed(['unique']),
  memory,
  environments,
};
const gpus = gpuSections(folder, table);

const before = readFileSync(page, 'utf8');
let text = before;
for (const [name, render] of Object.entries({ ...sections, ...gpus })) {
  const marked = new RegExp(`(<!-- bench:${name} -->\n)[^]*?(<!-- /bench:${name} -->)`);
  if (!marked.test(text)) throw new Error(`${page} has no markers for ${name}`);
  const content = newest.size > 0 || name in gpus ? render() : 'No results yet.';
  text = text.replace(marked, (_, start, end) => `${start}${content}\n${end}`);
}
if (!process.argv.includes('--check')) writeFileSync(page, text);
else if (text !== before) {
  console.error('docs/performance.md is older than bench/results: run "node bench/report/render.mjs"');
  process.exit(1);
}
