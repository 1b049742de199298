// Tables of the GPU programs' results: bench/results/DATE[THHMM]-COMMIT-gpu-{sort,transfer,primitives,table-sort,table-join,memory,gather,join,join_scaling}.json,
// the newest of each on the fewest GPUs that has rows for a table, below it the newest of those that used more, and so on. Made by
// scripts/gpu-bench.sh and bench/js/gpu-{sort,join,memory}.mjs on a GPU host, which knows neither date nor commit.
import { readdirSync, readFileSync } from 'node:fs';
import { goalsTable, timesEven, timesLinks } from './goals.mjs';

const range = ({ median, min, max }, digits) => `${median.toFixed(digits)} (${min.toFixed(digits)} to ${max.toFixed(digits)})`;
const phasesOf = ({ phases }) =>
  Object.entries(phases)
    .filter(([, milliseconds]) => milliseconds >= 0.05)
    .map(([name, milliseconds]) => `${name} ${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)}`)
    .join(', ');
/** Of a join in rounds: kRoundBits in native/join/streamed_shape.cc. */
const PARTITIONS_A_ROUND = 32;
const timesOf = (one, other) => (one.median / other.median).toFixed(3);
const billions = (n) => (n / 1e9).toFixed(2);

/** The most GPUs that a report has used. */
const gpusOf = ({ devices = [], results = [] }) =>
  Math.max(devices.length, ...results.map(({ gpus, how }) => gpus ?? (Number.parseInt(how, 10) || 1)));

/** Columns of joins: their heads, and what is in them of a result. */
const JOINED = [
  ['build, 10^9', (r) => billions(r.build)],
  ['probe, 10^9', (r) => billions(r.probe)],
];
const BESIDE_FLOOR = [
  ['ms', (r) => range(r.milliseconds, 0)],
  ['10^9 tuples/s', (r) => billions(((r.build + r.probe) / r.milliseconds.median) * 1000)],
  ['floor, ms', (r) => r.floorMilliseconds.toFixed(0)],
  ['times the floor', (r) => r.ratioToFloor.toFixed(3)],
  ['phases, ms', phasesOf],
];

/** Sections by name, those that have results; `table` makes Markdown of a head and rows. */
export function gpuSections(folder, table) {
  const read = (name) => ({
    name,
    commit: name.match(/^\d+-\d+-\d+(?:T\d+)?-(\w+)-gpu-/)[1],
    ...JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')),
  });
  const reports = (kind) =>
    readdirSync(folder)
      .filter((file) => file.endsWith(`-gpu-${kind}.json`))
      .sort()
      .map(read);
  const from = (kind, render, isRow = () => true) => {
    const found = reports(kind)
      .map((report) => ({ ...report, results: report.results?.filter(isRow) }))
      .filter(({ results }) => !results || results.length > 0);
    if (found.length === 0) return undefined;
    const shown = [];
    const fewest = Math.min(...found.map(gpusOf));
    let next = found.findLast((report) => gpusOf(report) === fewest);
    while (next) {
      shown.push(next);
      next = found.findLast((report) => gpusOf(report) > gpusOf(shown.at(-1)));
    }
    return () => shown.map((report) => `${render(report)}\n\nFrom \`${report.name}\`, commit ${report.commit}.`).join('\n\n');
  };
  const joins = (name, own) => {
    const columns = [...own, ...BESIDE_FLOOR];
    const render = ({ results }) =>
      table(
        columns.map(([head]) => head),
        results.map((r) => columns.map(([, cell]) => cell(r, results))),
      );
    return from('join_scaling', render, ({ join }) => join === name);
  };
  /** Times the floor on the most GPUs of each run that is kept beside the newest: DATE-COMMIT-...`what`-....json. */
  const otherRuns = (what, figures) => () =>
    table(
      ['run', 'GPUs', ...figures.map(([head]) => head)],
      readdirSync(folder)
        .filter((file) => file.includes(`${what}-`) && !file.includes('-gpu-'))
        .sort()
        .map((file) => {
          const { results } = JSON.parse(readFileSync(`${folder}/${file}`, 'utf8'));
          const gpus = gpusOf({ results });
          const cell = (isFigure) => results.find((r) => r.gpus === gpus && isFigure(r))?.ratioToFloor.toFixed(3) ?? '';
          return [`\`${file}\``, gpus, ...figures.map(([, isFigure]) => cell(isFigure))];
        }),
    );
  const sections = {
    'gpu-goals': () => goalsTable(reports, table),
    'gpu-links': from(
      'sort',
      ({ gpu, hostThreads, links }) =>
        [
          `${gpu.replace(/ \d+$/, '')}, ${hostThreads} host threads; pinned memory, GB/s, all GPUs of the row at once:`,
          '',
          table(
            ['GPUs', 'to the devices', 'to the host', 'both at once'],
            links.map((l) => [l.gpus, ...[l.h2dGBps, l.d2hGBps, l.bothGBps].map((speed) => speed.toFixed(1))]),
          ),
        ].join('\n'),
      ({ floorMilliseconds }) => floorMilliseconds,
    ),
    'gpu-host-sorts': from(
      'sort',
      ({ results }) =>
        table(
          [
            'sort',
            'tuples, 10^9',
            'key + value bytes',
            'GPUs',
            'ms',
            '10^9 tuples/s',
            'floor, ms',
            'times the floor',
            'phases, ms',
          ],
          results
            .filter(({ floorMilliseconds }) => floorMilliseconds)
            .map((r) => [
              r.sort,
              billions(r.tuples),
              `${r.keyBytes} + ${r.valueBytes}`,
              r.gpus,
              range(r.milliseconds, 0),
              billions((r.tuples / r.milliseconds.median) * 1000),
              r.floorMilliseconds.toFixed(0),
              r.ratioToFloor.toFixed(3),
              phasesOf(r),
            ]),
        ),
      ({ floorMilliseconds }) => floorMilliseconds,
    ),
    'gpu-sorts-in-other-runs': otherRuns('sorts', [
      ['keys', (r) => r.sort === 'host to host' && r.valueBytes === 0],
      ['pairs', (r) => r.sort === 'host to host' && r.valueBytes > 0],
      ['out of core', (r) => r.sort === 'out of core'],
    ]),
    'gpu-joins-in-other-runs': otherRuns(
      'joins',
      ['B', 'A', 'out of core'].flatMap((where) =>
        ['payloads', 'count'].map((what) => [
          `${where}, ${what}`,
          (r) => (r.workload ?? r.join) === where && r.algorithm === `hash, ${what}` && r.memory !== 'ordinary',
        ]),
      ),
    ),
    'gpu-resident-sorts': from(
      'sort',
      ({ results }) =>
        table(
          ['GPUs', 'tuples, 10^9', "CUB's radix sort, ms", 'ms', '10^9 tuples/s', 'of as many single GPUs'],
          results
            .filter(({ sort }) => sort === 'resident')
            .map((r) => [
              r.gpus,
              billions(r.tuples),
              r.libraryMilliseconds ? range(r.libraryMilliseconds, 1) : '',
              range(r.milliseconds, 1),
              billions((r.tuples / r.milliseconds.median) * 1000),
              `${(100 * r.shareOfSingleRate).toFixed(0)} %`,
            ]),
        ),
      ({ sort }) => sort === 'resident',
    ),
    'gpu-top-rows': from(
      'sort',
      ({ results }) =>
        table(
          ['keys', 'rows, 10^6', 'first', 'GPUs', 'ms', 'a pass over the keys, ms', 'times the pass', 'phases, ms'],
          results.map((r) => [
            r.data,
            (r.tuples / 1e6).toFixed(0),
            r.first,
            r.gpus,
            range(r.milliseconds, 2),
            range(r.readMilliseconds, 2),
            r.ratioToRead.toFixed(2),
            phasesOf(r),
          ]),
        ),
      ({ sort }) => sort === 'topk',
    ),
    'gpu-transfers': from('transfer', ({ results }) =>
      table(
        ['GPUs', 'direction', 'memory', 'block to the host, KiB', 'GB/s', 'of the pinned ceiling'],
        results.map((r) => [
          r.gpus,
          r.direction.replace('_', ' '),
          r.what,
          r.blockBytes ? `${r.blockBytes / 1024}${r.usual ? ' (usual)' : ''}` : '',
          `${r.gbPerSecond.toFixed(1)} (${r.least.toFixed(1)} to ${r.most.toFixed(1)})`,
          `${(100 * r.ofCeiling).toFixed(0)} %`,
        ]),
      ),
    ),
    'gpu-gathers': from('gather', ({ threads, results }) =>
      table(
        ['rows, 10^6', 'columns', 'through', 'ms', 'ns a value'],
        results.map(({ rows, columns, how, medianMs, leastMs, mostMs }) => [
          rows / 1e6,
          columns,
          how === 'host threads' ? `${threads} host threads` : how,
          range({ median: medianMs, min: leastMs, max: mostMs }, 1),
          ((medianMs * 1e6) / (rows * columns)).toFixed(2),
        ]),
      ),
    ),
    'gpu-table-sort': from('table-sort', ({ rows, threads, devices, warpjoin, resident, byFloats, duckdb }) =>
      table(
        ['sort of', 'rows, 10^6', 'GPUs', 'host threads', 'warpjoin, ms', 'DuckDB, ms', 'warpjoin is'],
        [
          ['an Arrow table', warpjoin, duckdb, 0],
          ['a loaded table', resident, duckdb, 1],
          ['a loaded table, by floats and nulls', byFloats?.resident, byFloats?.duckdb, 1],
        ]
          .filter(([, own]) => own)
          .map(([what, own, peer, digits]) => [
            what,
            rows / 1e6,
            devices.length,
            threads,
            range(own, digits),
            range(peer, 0),
            `${(peer.median / own.median).toFixed(2)}x`,
          ]),
      ),
    ),
    'gpu-table-join': from(
      'table-join',
      ({ rows, columns, threads, devices, warpjoin, inOrder, resident, byFloats, byTwo, duckdb }) =>
        table(
          [
            'call',
            'rows a side, 10^6',
            'payload columns a side',
            'GPUs',
            'host threads',
            'warpjoin, ms',
            'DuckDB, ms',
            'warpjoin is',
          ],
          [
            ['of Arrow tables', columns, warpjoin, duckdb],
            ...(inOrder
              ? [['of Arrow tables, in the order of left rows (DuckDB: in any)', columns, inOrder.warpjoin, duckdb]]
              : []),
            ...(byTwo?.warpjoin ? [['of Arrow tables, by two int32 keys', 1, byTwo.warpjoin, byTwo.duckdb]] : []),
            ['of loaded tables', columns, resident, duckdb],
            ...(byFloats ? [['of loaded tables, by floats and nulls', 1, byFloats.resident, byFloats.duckdb]] : []),
            ...(byTwo ? [['of loaded tables, by two int32 keys', 1, byTwo.resident, byTwo.duckdb]] : []),
          ].flatMap(([what, payloads, calls, peer]) =>
            Object.keys(calls).map((call) => [
              `${call} ${what}`,
              rows / 1e6,
              payloads,
              devices.length,
              threads,
              range(calls[call], calls[call].median < 20 ? 1 : 0),
              range(peer[call], 0),
              `${(peer[call].median / calls[call].median).toFixed(2)}x`,
            ]),
          ),
        ),
    ),
    'gpu-resident-joins': from(
      'join_scaling',
      ({ gpu, results }) =>
        [
          `${gpu.replace(/ \d+$/, '')}:`,
          '',
          table(
            ['GPUs', 'tuples, 10^9', 'ms', '10^9 tuples/s', 'of as many single GPUs', 'floor of the exchange, ms', 'phases, ms'],
            results.map((r) => [
              r.gpus,
              billions(r.tuples),
              range(r.milliseconds, 1),
              billions((r.tuples / r.milliseconds.median) * 1000),
              `${(100 * r.shareOfSingleRate).toFixed(0)} %`,
              r.gpus > 1 ? r.exchangeFloorMilliseconds.toFixed(1) : '',
              phasesOf(r),
            ]),
          ),
        ].join('\n'),
      ({ join }) => join === 'resident',
    ),
    'gpu-pinned-joins': joins('pinned', [
      ['workload', (r) => r.workload],
      ['join', (r) => r.algorithm],
      ...JOINED,
      ['key + value bytes', (r) => `${r.keyBytes} + ${r.valueBytes}`],
      ['GPUs', (r) => r.gpus],
    ]),
    'gpu-home-joins': joins('home', [
      ['join', (r) => r.algorithm],
      ['input and result in', (r) => `${r.memory} memory`],
      ...JOINED,
      ['GPUs', (r) => r.gpus],
    ]),
    'gpu-out-of-core-joins': joins('out of core', [
      ['join', (r) => r.algorithm],
      ['rounds and result in', (r) => `${r.memory} memory`],
      ...JOINED,
      ['GPUs', (r) => r.gpus],
      ['rounds', (r) => r.rounds],
      ['device memory, GB', (r) => (r.deviceLimitBytes / 1e9).toFixed(2)],
    ]),
    'gpu-skewed-joins': joins('skewed', [
      ['keys that are drawn', (r) => r.keys],
      ...JOINED,
      ['GPUs', (r) => r.gpus],
      ['device memory, GB', (r) => (r.deviceLimitBytes / 1e9).toFixed(2)],
      ['times even keys', (r, all) => timesEven(r, all).toFixed(3)],
    ]),
    'gpu-spilling': from(
      'join_scaling',
      ({ results }) =>
        table(
          ['partitions', 'spilled', 'GPUs', 'build side, ms', 'its bytes over the links, ms', 'times that', 'phases, ms'],
          results.map((r) => [
            PARTITIONS_A_ROUND * r.rounds,
            `${((100 * r.passes[0].bytesHome) / r.passes[0].bytesThere).toFixed(0)} %`,
            r.gpus,
            r.phases['build side'].toFixed(1),
            r.passes[0].floorMilliseconds.toFixed(1),
            timesLinks(r).toFixed(3),
            phasesOf(r),
          ]),
        ),
      ({ join }) => join === 'spilling',
    ),
    'gpu-memory': from('memory', ({ rows, all, limit, limited, firstRows, fresh }) =>
      table(
        ['`join()`', 'rows a side, 10^6', 'GPUs', 'ms', 'beside'],
        [
          ['with all device memory', rows, range(all.milliseconds, 0), ''],
          [
            `with ${limit.replace('GiB', ' GiB')}`,
            rows,
            range(limited.milliseconds, 0),
            timesOf(limited.milliseconds, all.milliseconds),
          ],
          ...fresh.map(({ first, milliseconds }) => [
            'first of a process; later ones',
            firstRows,
            `${first.toFixed(0)}; ${range(milliseconds, 0)}`,
            (first / milliseconds.median).toFixed(2),
          ]),
        ].map(([what, of, took, beside]) => [what, of / 1e6, all.devices.length, took, beside]),
      ),
    ),
    'gpu-joins': from('join', ({ device, copyGbPerS, results }) =>
      [
        `${device.replace(/ \d+$/, '')}, whose memory copies ${copyGbPerS.toFixed(0)} GB/s:`,
        '',
        table(
          [
            'join',
            'key + value bytes',
            'build, 10^6',
            'probe, 10^6',
            'matching',
            'Zipf',
            'count, ms',
            'at once, ms',
            'in two, ms',
            '10^9 tuples/s',
          ],
          results.map((r) => [
            r.name,
            `${r.keyBytes} + ${r.valueBytes}`,
            (r.build / 1e6).toFixed(1),
            (r.probe / 1e6).toFixed(1),
            `${(100 * r.selectivity).toFixed(0)} %`,
            r.zipf.toFixed(1),
            r.countMs.toFixed(2),
            range({ median: r.medianMs, min: r.leastMs, max: r.mostMs }, 2),
            r.inTwoMs.toFixed(2),
            r.gTuplesPerS.toFixed(1),
          ]),
        ),
      ].join('\n'),
    ),
    'gpu-joins-by-several-keys': reports('join').some(({ tables }) => tables)
      ? () => {
          const { name, commit, tables } = reports('join').findLast((report) => report.tables);
          return [
            table(
              ['keys', 'bits of a key', 'rows a side, 10^6', 'count, ms', 'join, ms', 'times one int64'],
              tables.map((r) => [
                r.keys,
                r.keyBits,
                r.rows / 1e6,
                r.countMs.toFixed(2),
                range({ median: r.medianMs, min: r.leastMs, max: r.mostMs }, 2),
                r.ofOneInt64.toFixed(3),
              ]),
            ),
            `From \`${name}\`, commit ${commit}.`,
          ].join('\n\n');
        }
      : undefined,
    'gpu-primitives': from('primitives', ({ results }) =>
      table(
        ['primitive', 'ms', 'GB/s', 'of a copy', 'with all it moves'],
        results.map((r) => [
          r.name,
          range({ median: r.medianMs, min: r.leastMs, max: r.mostMs }, 3),
          r.gbPerS.toFixed(0),
          `${(100 * r.ofCopy).toFixed(0)} %`,
          r.movedOfCopy ? `${(100 * r.movedOfCopy).toFixed(0)} %` : '',
        ]),
      ),
    ),
  };
  return Object.fromEntries(Object.entries(sections).filter(([, render]) => render));
}
