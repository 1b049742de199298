// What warpjoin set out to reach on GPUs, beside what it reached: a row for each goal, a column for each number of GPUs.

const bold = (text, missed) => (missed ? `**${text}**` : text);
const times = (x) => x.toFixed(3);
const percent = (x) => `${(100 * x).toFixed(0)} %`;
const peer = (x) => `${x.toFixed(1)}x`;
const milliseconds = (x) => `${x.toFixed(2)} ms`;
const most = (limit, format) => ({ text: `at most ${format(limit)}`, missed: (x) => x > limit, format });
const least = (limit, format) => ({ text: `at least ${format(limit)}`, missed: (x) => x < limit, format });

/** Values by number of GPUs, of the results that have the given properties. */
const where = (properties, value) => (report) =>
  report.results
    .filter((result) => Object.entries(properties).every(([name, wanted]) => result[name] === wanted))
    .map((result) => [result.gpus ?? 1, value(result)]);
const toFloor = (properties) => where(properties, ({ ratioToFloor }) => ratioToFloor);
const shareOfSingles = (properties) => (report) =>
  where(properties, ({ shareOfSingleRate }) => shareOfSingleRate)(report).filter(([gpus]) => gpus > 1);
const toLibrary = (report) =>
  report.results
    .filter(({ libraryMilliseconds }) => libraryMilliseconds)
    .map((result) => [result.gpus, result.milliseconds.median / result.libraryMilliseconds.median]);
const beside = (own, duckdb) => (report) => [[report.devices.length, duckdb(report).median / own(report).median]];
/** What `other` calls take beside a join of tables. */
const ofOwn = (other) => (report) => {
  const calls = other(report);
  return calls ? [[report.devices.length, calls.join.median / report.warpjoin.join.median]] : [];
};
const pinned = (workload, algorithm) => toFloor({ join: 'pinned', workload, algorithm });
/** The slowest of these, where a report has several. */
const slowest = (values) => (report) => {
  const found = values(report);
  return [...new Set(found.map(([gpus]) => gpus))].map((gpus) => [
    gpus,
    Math.max(...found.filter(([of]) => of === gpus).map(([, value]) => value)),
  ]);
};
const outOfCore = (algorithm) => slowest(toFloor({ join: 'out of core', algorithm, memory: 'pinned' }));
/** A join of skewed keys beside that of even ones, of its run. */
export const timesEven = ({ milliseconds }, all) =>
  milliseconds.median / all.find(({ keys }) => keys?.startsWith('even')).milliseconds.median;
const skewed = (keys, side) =>
  slowest(({ results }) =>
    results
      .filter((r) => r.join === 'skewed' && r.keys.startsWith(keys) && r.keys.endsWith(`${side} side`))
      .map((r) => [r.gpus, timesEven(r, results)]),
  );
/** A build side that is partitioned and spilled, beside its bytes over both directions of the links. */
export const timesLinks = ({ passes, phases }) => phases['build side'] / passes[0].floorMilliseconds;
/** In blocks of the usual size, which was 2 MiB before reports named it. */
const staging = (direction) => (report) =>
  report.results
    .filter((r) => r.direction === direction && (r.usual ?? r.blockBytes === 2 << 20))
    .map(({ gpus, ofCeiling }) => [gpus, ofCeiling]);

/** The slowest of the joins with other selectivities or skew, beside the base case of the same width. */
function robustness({ results }) {
  const base = new Map(results.filter(({ name }) => name === 'square').map((r) => [r.keyBytes, r.medianMs]));
  const ratios = results
    .filter(({ name }) => name === 'selectivity' || name === 'zipf')
    .map(({ keyBytes, medianMs }) => medianMs / base.get(keyBytes));
  return ratios.length > 0 ? [[1, Math.max(...ratios)]] : [];
}

const slowestPartition =
  (width) =>
  ({ results }) => {
    const own = results.filter(({ name }) => name.startsWith('partition') && name.includes(` ${width} `));
    return [[1, Math.min(...own.map(({ movedOfCopy }) => movedOfCopy))]];
  };

const GOALS = [
  [
    'sort',
    'sort of 4 x 10^9 keys, pinned memory: times the floor',
    most(1.06, times),
    toFloor({ sort: 'host to host', valueBytes: 0 }),
  ],
  [
    'sort',
    'sort of 2 x 10^9 pairs, pinned memory: times the floor',
    most(1.06, times),
    toFloor({ sort: 'host to host', valueBytes: 8 }),
  ],
  ['sort', 'sort out of core: times the floor', most(1.3, times), toFloor({ sort: 'out of core' })],
  ['sort', "resident sort: times CUB's radix sort alone", most(1.03, times), toLibrary],
  ['sort', 'resident sort: of as many single GPUs', least(0.65, percent), shareOfSingles({ sort: 'resident' })],
  [
    'sort',
    'first 8192 of 2^28 rows on each GPU, by int64 with an int32',
    most(1.2, milliseconds),
    where({ sort: 'topk', data: 'random', first: 8192 }, ({ milliseconds: { median } }) => median),
  ],
  [
    'table-sort',
    '`sort()` of a table, beside DuckDB',
    least(10, peer),
    beside(
      ({ warpjoin }) => warpjoin,
      ({ duckdb }) => duckdb,
    ),
  ],
  ['transfer', 'ordinary memory to the devices: of the pinned ceiling', least(0.85, percent), staging('to_device')],
  ['transfer', 'ordinary memory from the devices: of the pinned ceiling', least(0.85, percent), staging('to_host')],
  ...['8+8', '8+0', '4+4', '4+0'].map((width) => [
    'primitives',
    `slowest partition of ${width.replace('+', ' + ')} bytes: of a copy, with all it moves`,
    least(0.7, percent),
    slowestPartition(width),
  ]),
  [
    'join',
    'resident join of 2^27 and 2^27 tuples of 4 + 4 bytes',
    most(5.5, milliseconds),
    where({ name: 'square', keyBytes: 4 }, ({ medianMs }) => medianMs),
  ],
  [
    'join',
    'resident join of 2^27 and 2^27 tuples of 8 + 8 bytes',
    most(8.5, milliseconds),
    where({ name: 'square', keyBytes: 8 }, ({ medianMs }) => medianMs),
  ],
  [
    'join',
    'resident join of 2^20 and 2^28 tuples: 10^9 tuples/s',
    least(60, (x) => x.toFixed(1)),
    where({ name: 'small build side', build: 1 << 20 }, ({ gTuplesPerS }) => gTuplesPerS),
  ],
  ['join', 'other selectivities and skew: times the base case', most(1.3, times), robustness],
  [
    'join',
    'join of loaded tables by two int32 keys: times one by int64',
    most(1.2, times),
    ({ tables = [] }) => tables.filter(({ keys }) => keys === 'two int32 of all values').map((r) => [1, r.ofOneInt64]),
  ],
  ['join_scaling', 'resident join: of as many single GPUs', least(0.5, percent), shareOfSingles({ join: 'resident' })],
  ...['B', 'A'].flatMap((workload) =>
    ['hash, payloads', 'hash, count'].map((algorithm) => [
      'join_scaling',
      `workload ${workload}, ${algorithm}, pinned memory: times the floor`,
      most(1.1, times),
      pinned(workload, algorithm),
    ]),
  ),
  ...['hash, payloads', 'hash, count'].map((algorithm) => [
    'join_scaling',
    `join out of core, ${algorithm}: times the floor`,
    most(1.4, times),
    outOfCore(algorithm),
  ]),
  ...['Zipf 1', 'hot'].flatMap((keys) =>
    ['probe', 'build'].map((side) => [
      'join_scaling',
      `join out of core, ${keys === 'hot' ? 'one hot key' : "keys by Zipf's law"} on the ${side} side: times even keys`,
      most(1.3, times),
      skewed(keys, side),
    ]),
  ),
  [
    'join_scaling',
    'partitioning and spilling a build side: times its bytes over both directions of the links',
    most(1.05, times),
    slowest(where({ join: 'spilling' }, timesLinks)),
  ],
  [
    'memory',
    '`join()` of 2 x 10^8 rows a side',
    most(175, milliseconds),
    ({ devices, all }) => [[devices.length, all.milliseconds.median]],
  ],
  [
    'memory',
    'the same with 16 GiB of device memory: times that',
    most(1.1, times),
    ({ devices, all, limited }) => [[devices.length, limited.milliseconds.median / all.milliseconds.median]],
  ],
  [
    'memory',
    'first `join()` of a process, 5 x 10^7 rows a side: times a later one',
    most(2, times),
    ({ devices, fresh }) => [[devices.length, Math.max(...fresh.map((of) => of.first / of.milliseconds.median))]],
  ],
  ...[
    ['joinCount', 20],
    ['join', 24],
  ].map(([call, limit]) => [
    'table-join',
    `\`${call}()\` of tables, beside DuckDB`,
    least(limit, peer),
    beside(
      ({ warpjoin }) => warpjoin[call],
      ({ duckdb }) => duckdb[call],
    ),
  ]),
  [
    'table-join',
    '`join()` of tables in the order of the left rows: times one in any order',
    most(1.5, times),
    ofOwn(({ inOrder }) => inOrder?.warpjoin),
  ],
  [
    'table-join',
    '`join()` of tables by two int32 keys: times one by int64',
    most(1.2, times),
    ofOwn(({ byTwo }) => byTwo?.warpjoin),
  ],
  ...['joinCount', 'join'].map((call) => [
    'table-join',
    `\`${call}()\` of loaded tables, beside DuckDB`,
    least(50, peer),
    beside(
      ({ resident }) => resident[call],
      ({ duckdb }) => duckdb[call],
    ),
  ]),
];

/** The table of goals; `reports` gives those of a kind, oldest first. The newest one with so many GPUs counts. */
export function goalsTable(reports, table) {
  const rows = GOALS.map(([kind, what, goal, values]) => {
    const newest = new Map();
    for (const report of reports(kind)) {
      for (const [gpus, value] of values(report)) newest.set(gpus, value);
    }
    return { what, goal, newest };
  });
  const counts = [...new Set(rows.flatMap(({ newest }) => [...newest.keys()]))].sort((a, b) => a - b);
  return table(
    ['what', 'goal', ...counts.map((n) => `${n} GPU${n > 1 ? 's' : ''}`)],
    rows.map(({ what, goal, newest }) => [
      what,
      goal.text,
      ...counts.map((n) => (newest.has(n) ? bold(goal.format(newest.get(n)), goal.missed(newest.get(n))) : '')),
    ]),
  );
}
