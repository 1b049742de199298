// Calls the addon's methods in any order with any arguments:
//   node scripts/trials/binding.mjs [--seed N] [--rounds N]
// A round makes two engines, calls methods of both with handles of all kinds (right ones, released ones, those of the other
// engine), numbers from 0 to Infinity and values of wrong types, several calls at a time, and disposes the engines. A call may
// succeed, throw a TypeError or a RangeError, or fail with a code. What is printed at the end says how many calls succeeded.
// Run under scripts/asan-addon.mjs it finds reads out of bounds, too.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Bool, Float64, Int32, Table, tableToIPC, Utf8, vectorFromArray } from 'apache-arrow';
import { loadAddon } from '../../dist/addon.js';
import { parquetLibrary } from '../../dist/io/parquet-decoder.js';
import { requireAll } from './methods.mjs';
import { random, trialOptions } from './random.mjs';

const addon = loadAddon();
const ALL = Number.POSITIVE_INFINITY;
const CALLS = 150;
const CALLS_AT_ONCE = 6;

const { seed, rounds } = trialOptions({ rounds: 500 });
console.log(`binding: --seed ${seed} --rounds ${rounds}, Node.js ${process.version}`);
const draw = random(seed);
const { below, pick, chance } = draw;
const times = (count, make) => Array.from({ length: count }, (_, index) => make(index));

// --- Values -------------------------------------------------------------------------------------------------------

const strange = [
  () => undefined,
  () => null,
  () => -1,
  () => 0.5,
  () => Number.NaN,
  () => ALL,
  () => -ALL,
  () => 2 ** 31,
  () => 2 ** 32,
  () => 2 ** 53 - 1,
  () => 2 ** 53,
  () => 1n,
  () => '',
  () => 'left',
  () => true,
  () => Symbol('s'),
  () => ({}),
  () => [],
  () => [[]],
  () => new Array(5),
  () => new Uint8Array(8),
  () => new ArrayBuffer(8),
  () => () => 0,
  () => new Proxy({}, { get: () => (making ? undefined : pick(strange)()) }),
  () => new Proxy([1, 2], {}),
  () => Object.create(addon.Engine.prototype),
  () => anyHandle(),
  () => Object.setPrototypeOf(anyHandle() ?? {}, addon.Engine.prototype),
  () => Object.create(anyHandle() ?? null),
  () => pick(engines).engine,
  () => ({
    get length() {
      pick(actions)();
      return 3;
    },
    get 0() {
      throw new TypeError('from a getter');
    },
  }),
];
/** What JavaScript does between a method's looks at its arguments. */
const actions = [
  () => anyHandle()?.release?.(),
  () =>
    void pick(engines)
      .engine.dispose()
      .catch(() => 0),
  () => pick(engines).engine.takeValues(anyHandle('job'), anyHandle('run')),
  () => {
    throw new Error('from an action');
  },
];
/** The share of strange values in the call that is made: most calls should get somewhere. */
let strangeness = 0;
/** Mostly what it should be. */
const mostly = (make) => (chance(strangeness) ? pick(strange)() : chance(strangeness / 4) ? acting(make) : make());
/** While arguments are made nothing else happens. */
let making = false;
/** An object that lets something else happen when a property is read. */
function acting(make) {
  const made = make();
  if (typeof made !== 'object' || made === null) return made;
  return new Proxy(made, {
    get(target, name) {
      if (!making && chance(0.1)) pick(actions)();
      return Reflect.get(target, name);
    },
  });
}
const count = (end) =>
  mostly(() => (chance(strangeness) ? pick([0, 1, 3, 64, 4096, 2 ** 20, 2 ** 31, 2 ** 32, 2 ** 40, 2 ** 53 - 1]) : below(end)));
const flag = () => mostly(() => chance(0.5));

// --- Engines and what they have made ------------------------------------------------------------------------------

let engines = [];
let handles = [];
const seen = new Map();
/** How often what has this name was called. */
function countsOf(name) {
  if (!seen.has(name)) seen.set(name, { called: 0, succeeded: 0 });
  return seen.get(name);
}

/** A handle, of this kind if there is one; some are released, and some are another engine's. */
function anyHandle(kind) {
  const fitting = handles.filter((handle) => !kind || handle.kind === kind);
  return (fitting.length && !chance(strangeness) ? pick(fitting) : handles.length ? pick(handles) : undefined)?.value;
}
/** The kind of which this engine has none that fits: the call will hardly get anywhere. */
let lacking = null;
const handle = (kind, engine, fits = () => true) => {
  const own = handles.filter(
    (one) => one.kind === kind && one.engine === engine && !one.released && fits(knownOf(one.value), one.value),
  );
  if (own.length === 0) lacking ??= kind;
  // The latest often: what is made of it fits.
  return mostly(() => (own.length && !chance(strangeness) ? (chance(0.6) ? own.at(-1) : pick(own)).value : anyHandle(kind)));
};
/** What is known of a handle from the call that made it: which arguments fit it. */
const known = new WeakMap();
const knownOf = (value) => (value instanceof Object ? known.get(value) : undefined) ?? {};
/** All that one call has made, or some handles. */
const handlesTogether = (kind, engine) => {
  const own = handles.filter((one) => one.kind === kind && one.engine === engine && !one.released);
  if (own.length === 0) lacking ??= kind;
  const group = own.length ? pick(own).group : null;
  const together = own.filter((one) => one.group === group).map(({ value }) => value);
  return mostly(() => (chance(0.8) ? together : times(below(4), () => handle(kind, engine))));
};
/** Releases a handle, now and then. */
function releaseOne() {
  const one = handles.length ? pick(handles) : null;
  if (!one) return;
  one.released = true;
  one.value.release?.();
}
function keep(kind, engine, value, group = {}) {
  if (value && typeof value === 'object') handles.push({ kind, engine, value, group, released: false });
  return value;
}

const ROWS = [0, 1, 2, 63, 64, 65, 200, 200, 200, 1000, 5000];
const WIDTHS = {
  signed: [1, 2, 4, 8, 16, 32],
  unsigned: [1, 2, 4, 8],
  floating: [2, 4, 8],
  bytes: [1, 3, 8, 16, 40],
  none: [1, 3, 4, 8, 16, 40],
};

function chunk(kind, width, rows) {
  const bitOffset = kind === 'boolean' || chance(0.2) ? below(9) : 0;
  const bitmap = () => new Uint8Array(Math.ceil((bitOffset + rows) / 8) + below(3)).map(() => below(256));
  const short = chance(strangeness / 4) ? 1 + below(9) : 0;
  let values;
  let offsets = null;
  if (kind === 'boolean') values = bitmap();
  else if (kind === 'fixed') values = new Uint8Array(Math.max(0, rows * width - short)).map(() => (chance(0.7) ? 0 : below(256)));
  else {
    const Offsets = kind === 'utf8' ? Int32Array : BigInt64Array;
    const ends = times(rows + 1, () => 0);
    for (let row = 0; row < rows; row++) ends[row + 1] = ends[row] + (chance(0.3) ? 0 : below(14));
    values = new Uint8Array(Math.max(0, ends.at(-1) - short)).map(() => 97 + below(3));
    if (chance(strangeness / 4)) ends[below(rows + 1)] = pick([-1, 2 ** 31 - 1, 5]);
    offsets = Offsets.from(ends.map((end) => (kind === 'utf8' ? end : BigInt(end))));
  }
  return {
    length: mostly(() => rows),
    bitOffset: mostly(() => bitOffset),
    validity: mostly(() => (chance(0.4) ? bitmap() : null)),
    values: mostly(() => values),
    offsets: mostly(() => offsets),
  };
}

/** What most first columns of a round are: keys that fit each other. */
let firstKind = 'fixed';
function column(rows, index) {
  const kind = index === 0 && chance(0.8) ? firstKind : pick(['fixed', 'fixed', 'fixed', 'boolean', 'utf8', 'large_utf8']);
  const order =
    kind === 'fixed'
      ? pick(['signed', 'signed', 'unsigned', 'floating', 'bytes', 'none'])
      : kind === 'boolean'
        ? 'boolean'
        : 'bytes';
  const width = kind !== 'fixed' ? 0 : index === 0 && order !== 'none' && chance(0.8) ? pick([4, 8]) : pick(WIDTHS[order]);
  const first = chance(0.3) ? below(rows + 1) : rows;
  const parts = first === rows ? [rows] : [first, rows - first];
  return {
    name: mostly(() => `c${index}`),
    kind: mostly(() => kind),
    order: mostly(() => order),
    width: mostly(() => width),
    chunks: mostly(() => parts.map((part) => chunk(kind, width, part))),
  };
}

const columnIndex = () => count(pick([1, 1, 2, 4]));
const side = () => mostly(() => pick(['left', 'right']));
const devices = ({ hostDevices }) =>
  mostly(() => times(hostDevices, (index) => index).filter((index) => index === 0 || chance(0.7)));
const algorithm = () => mostly(() => pick(['merge', 'radix', 'sample']));
/** Columns of a relation, or any numbers. */
const columnOf = (relation, passes) => {
  const indices = indicesOf(knownOf(relation).columns, passes);
  return mostly(() => (indices.length > 0 && chance(0.9) ? pick(indices) : columnIndex()));
};
const by = (relation) =>
  mostly(() =>
    times(1 + below(2), () => ({
      column: columnOf(relation, ({ order }) => order !== 'none'),
      descending: flag(),
      nullsLast: flag(),
    })),
  );
/** A column that a relation's tuples can carry along, or any number, or null. */
const payload = (relation) =>
  mostly(() => {
    if (chance(0.7)) return null;
    const fitting = indicesOf(knownOf(relation).columns, ({ kind, width }) => kind === 'fixed' && (width === 4 || width === 8));
    return fitting.length > 0 && chance(0.9) ? pick(fitting) : below(4);
  });
const factor = (one) =>
  mostly(() => (one ? { pow10: 0, times: 1 } : { pow10: pick([0, 3, count(400)]), times: pick([1, 1, 86_400, count(1e6)]) }));
const comparison = (one) =>
  mostly(() => ({
    nullsEqual: mostly(() => chance(0.2)),
    factors: mostly(() => ({ left: factor(one), right: factor(one) })),
  }));
const conversion = () =>
  mostly(() => {
    if (chance(0.4)) return null;
    const order = pick(['signed', 'signed', 'floating', 'bytes']);
    const kind = order === 'bytes' ? pick(['utf8', 'large_utf8']) : 'fixed';
    const width = kind === 'fixed' ? pick([8, 16, 32]) : 0;
    return { kind: mostly(() => kind), order, width: mostly(() => width), factor: factor(chance(0.6)), column: 'c', target: 't' };
  });
const request = () =>
  mostly(() => {
    const kind = pick(['inner', 'inner', 'inner', 'left', 'right', 'full', 'semi', 'anti']);
    return {
      kind: mostly(() => kind),
      buildLeft: flag(),
      countOnly: mostly(() => chance(0.1)),
      wantKeys: mostly(() => chance(kind === 'inner' ? 0.8 : 0.05)),
      wantLeft: mostly(() => chance(0.9)),
      wantRight: mostly(() => chance(0.9)),
      maxRows: mostly(() => pick([ALL, ALL, 100_000])),
    };
  });
const sortPlan = (of, tuples) =>
  mostly(() => ({
    algorithm: algorithm(),
    devices: devices(of),
    chunksetEnds: mostly(() => (chance(0.3) ? [below(tuples + 1), tuples] : [mostly(() => tuples)])),
    spill: flag(),
  }));

// --- Tables on devices: arguments that fit each other, so that calls get to what is made there ------------------------

/** The indices that pass. */
const indicesOf = (columns = [], passes = () => true) => columns.flatMap((column, index) => (passes(column) ? [index] : []));
/** Some of them, in any order; hardly ever none. */
const some = (list, most = list.length) => {
  if (list.length === 0 || chance(0.02)) return [];
  const picked = times(1 + below(Math.min(most, list.length)), () => pick(list));
  return [...new Set(picked)];
};
const stays = ({ kind, width }) => kind === 'boolean' || (kind === 'fixed' && [1, 2, 4, 8, 16].includes(width));
const isOrdered = ({ order, width }) =>
  !['none', 'bytes'].includes(order) && width <= 8 && !(order === 'floating' && width === 2);
const isInteger = ({ order }) => order === 'signed' || order === 'unsigned';
const comparable = (one, other) =>
  isOrdered(one) &&
  isOrdered(other) &&
  ((isInteger(one) && isInteger(other)) || (one.order === other.order && one.width === other.width));
const isCarried = ({ kind, width, nullable }) => kind === 'fixed' && (width === 4 || width === 8) && !nullable;
/** A column that rows can carry along, by its index, or null. */
const carried = (columns) => mostly(() => (chance(0.5) ? (pick(indicesOf(columns, isCarried)) ?? null) : null));
const pairsOf = (left = [], right = []) =>
  left.flatMap((one, index) => indicesOf(right, (other) => comparable(one, other)).map((other) => [index, other]));

const orderedTable = (of, fits = () => true) =>
  handle('resident', of, ({ columns, ...table }) => columns?.some(isOrdered) && fits({ columns, ...table }));
/** What is known of columns of a table that a call has made. */
const madeColumns = (columns, { nullable, spreadEvenly }, devices) => ({
  columns: columns.map((column, index) => ({ ...column, nullable: nullable[index] })),
  spreadEvenly,
  devices,
});
const fitsKeys = ({ fits }) => fits;

/** An order of a join's rows, which have columns that are gathered; or none. */
function rowOrder(request, origins) {
  if (!origins.every(({ column }) => Number.isInteger(column)) || chance(0.5)) return null;
  const leftOnly = ['semi', 'anti'].includes(request?.kind);
  return { side: mostly(() => (leftOnly ? 'left' : pick(['left', 'right']))), window: window() };
}

/** Two tables to join by keys that fit the devices, what rows carry, and the request. */
function tablesToJoin(of, stay) {
  const keys = handle('tableJoinKeys', of, fitsKeys);
  const { left, right, pairs = [], giveLeft = [] } = knownOf(keys);
  const kind = pick(['inner', 'inner', 'inner', 'left', 'right', 'full', 'semi', 'anti']);
  const inner = kind === 'inner';
  const leftOnly = kind === 'semi' || kind === 'anti';
  const payload = { left: inner ? carried(left?.columns) : null, right: inner ? carried(right?.columns) : null };
  const wantKeys = inner && chance(0.5);
  const request = {
    kind,
    buildLeft: flag(),
    countOnly: mostly(() => !stay && chance(0.1)),
    wantKeys: mostly(() => wantKeys),
    wantLeft: mostly(() => true),
    wantRight: mostly(() => !leftOnly),
    maxRows: mostly(() => pick([ALL, ALL, ALL, 100_000])),
  };
  const ofSide = (from, table) =>
    payload[from] !== null
      ? [{ from, column: null }]
      : table?.spreadEvenly
        ? table.columns.map((_, column) => ({ from, column }))
        : [];
  const origins = [
    ...(wantKeys ? indicesOf(pairs, (pair) => giveLeft[pairs.indexOf(pair)]).map((pair) => ({ from: 'keys', pair })) : []),
    ...ofSide('left', left),
    ...(leftOnly ? [] : ofSide('right', right)),
  ];
  return { tables: mostly(() => ({ keys, payload: mostly(() => payload) })), request: mostly(() => request), origins };
}
/** What is known of a column that a join has made. */
function originOf({ from, pair, column }, { keys, payload }) {
  const { left, right, pairs } = knownOf(keys);
  if (from === 'keys') return left.columns[pairs[pair][0]];
  const table = from === 'left' ? left : right;
  return table.columns[column ?? payload[from]];
}
/** The columns that a sort on devices can make. */
function columnsToSort(keys) {
  const { table, by = [], payload, carries, gives } = knownOf(keys);
  const ofKeys = gives ? by : [];
  const all = carries ? [payload, ...ofKeys] : table?.spreadEvenly ? indicesOf(table.columns) : ofKeys;
  return mostly(() => some(all, 3));
}
const sortableKeys = (of) =>
  handle('tableSortKeys', of, ({ fits, carries, gives, table }) => fits && (carries || gives || table.spreadEvenly));
const window = () =>
  mostly(() => ({ first: pick([0, 0, below(100), count(1e9)]), rows: pick([below(100), pick(ROWS), count(1e9)]) }));

/** What is known of a join's rows: whether they have keys, and what these give. */
const madeRows = ({ givesLeft }, { wantKeys }) => ({ keys: wantKeys, givesLeft });

/**
 * What may be called: how often, how the arguments are made, what kind of handle the result is, and what is known of that, by the
 * arguments and the handle.
 */
const methods = {
  devices: [1, () => []],
  threads: [1, () => []],
  memory: [1, () => []],
  resetPeaks: [1, () => []],
  failure: [1, () => []],
  setMemoryLimit: [1, () => [pick([2 ** 22, 2 ** 24, 2 ** 26, count(1e9)])]],
  reserve: [1, () => [mostly(() => pick([0, 1, below(2 ** 22), 2 ** 40]))], 'reservation'],
  allocate: [1, () => [mostly(() => pick([0, 1, below(2 ** 22), 2 ** 30]))]],
  trimMemory: [1, (of) => [handle('job', of)]],
  createJob: [3, () => pick([[], [undefined, true]]), 'job'],
  measureLinks: [1, (of) => [handle('job', of)]],
  relation: [
    10,
    (of) => {
      const rows = pick(ROWS);
      return [handle('job', of), mostly(() => times(1 + below(4), (index) => column(rows, index))), mostly(() => rows)];
    },
    'relation',
    ([, columns, rows]) => ({ rows, columns: columns.map(({ kind, order, width }) => ({ kind, order, width })) }),
  ],
  sortKeys: [
    8,
    (of) => {
      const relation = handle('relation', of);
      return [handle('job', of), relation, by(relation), payload(relation), flag()];
    },
    'sortKeys',
  ],
  sortDeviceBytes: [2, () => [pick([4, 8, count(20)]), pick([0, 4, 8, count(20)]), count(10_000), count(4), algorithm(), flag()]],
  sortSpills: [2, (of) => [count(10_000), count(1000), devices(of)]],
  sortChunksets: [
    8,
    (of) => {
      const keys = handle('sortKeys', of);
      return [handle('job', of), keys, sortPlan(of, sizeOf(keys))];
    },
    'run',
  ],
  copyRun: [2, (of) => [handle('job', of), handle('sortKeys', of)], 'run'],
  cutRun: [3, (of) => [handle('job', of), handle('run', of), pick([0, 0, 1, count(9)]), pick([1, 2, count(60)])], 'run'],
  topRows: [
    2,
    (of) => {
      const relation = handle('relation', of);
      return [handle('job', of), relation, by(relation), pick([0, count(2000)]), count(2000)];
    },
    'run',
  ],
  rowsAreSorted: [
    2,
    (of) => {
      const relation = handle('relation', of);
      return [handle('job', of), relation, by(relation)];
    },
  ],
  cutMerge: [
    4,
    (of) => {
      const relation = handle('relation', of);
      const rows = knownOf(relation).rows ?? 10;
      const ends = () => [below(rows + 1), mostly(() => rows)];
      return [handle('job', of), relation, by(relation), mostly(ends), mostly(() => times(below(4), () => below(rows + 1)))];
    },
  ],
  searchSorted: [
    4,
    (of) => {
      const relation = handle('relation', of);
      const columns = by(relation);
      const others = mostly(() => (Array.isArray(columns) ? columns.map((one) => one?.column ?? 0) : [0]));
      return [handle('job', of), relation, columns, chance(0.6) ? relation : handle('relation', of), others, side()];
    },
  ],
  topRowsBytes: [1, () => [count(1e9), count(1e9)]],
  mergeScratchBytes: [2, () => [pick([4, 8, count(9)]), pick([0, 4, 8, count(9)]), count(10_000), count(9)]],
  mergeRuns: [4, (of) => [handle('job', of), handlesTogether('run', of)], 'run'],
  refineTies: [4, (of) => [handle('job', of), handle('sortKeys', of), handle('run', of)]],
  decodeKeys: [4, (of) => [handle('job', of), handle('sortKeys', of), count(2), handle('run', of)]],
  dropKeys: [1, (of) => [handle('run', of)]],
  takeValues: [2, (of) => [handle('job', of), handle('run', of)]],
  takeKeys: [2, (of) => [handle('job', of), handle('run', of)]],
  joinKeys: [
    8,
    (of) => {
      const pairs = pick([1, 2, 2, 3]);
      const length = () => (chance(strangeness) ? pick([0, 1, 2, 3]) : pairs);
      // One column several times, or any.
      const columns = (relation) =>
        mostly(() =>
          chance(0.5)
            ? new Array(length()).fill(mostly(() => pick([0, 0, 1])))
            : Array.from({ length: length() }, () => columnOf(relation, ({ order }) => order !== 'none')),
        );
      const one = chance(0.7);
      const comparisons = mostly(() => Array.from({ length: length() }, () => comparison(one)));
      const relation = handle('relation', of);
      const own = columns(relation);
      // Columns of two tables seldom compare.
      const another = handle('relation', of);
      const [other, others] = chance(0.6) ? [relation, own] : [another, columns(another)];
      return [handle('job', of), relation, own, payload(relation), other, others, payload(other), comparisons];
    },
    'joinKeys',
  ],
  hashJoinDeviceBytes: [2, (of) => [handle('joinKeys', of), count(4), request(), pick([1, 2, count(9)])]],
  hashJoinSpill: [2, (of) => [handle('joinKeys', of), count(4), request(), pick([1, 2, count(9)])]],
  mergeJoinDeviceBytes: [2, (of) => [handle('joinKeys', of), count(4), count(9)]],
  hashJoin: [
    6,
    (of) => [
      handle('job', of),
      handle('joinKeys', of),
      request(),
      mostly(() => ({ devices: devices(of), rounds: pick([1, 1, 2, 4, count(9)]), partitions: pick([0, 0, 4, 64, count(9)]) })),
    ],
    'rows',
    ([, keys, request]) => madeRows(keys, request),
  ],
  joinSideIsSorted: [2, (of) => [handle('job', of), handle('joinKeys', of), side()]],
  sortJoinSide: [
    6,
    (of) => {
      const keys = handle('joinKeys', of);
      const which = side();
      return [handle('job', of), keys, which, sortPlan(of, sizeOf(keys, which))];
    },
    'run',
    ([, keys, which]) => ({ keys, which }),
  ],
  mergeJoin: [
    6,
    (of) => {
      const sides = ['left', 'right'];
      const sorted = (keys) => sides.map((which) => (made) => made.keys === keys && made.which === which);
      const keys = handle('joinKeys', of, (_, keys) =>
        sorted(keys).every((fits) => handles.some(({ value }) => fits(knownOf(value)))),
      );
      const [left, right] = sorted(keys).map((fits) => (chance(0.1) ? null : handle('run', of, fits)));
      const plan = mostly(() => ({ devices: devices(of), subpartitions: pick([3, 3, 6, count(9)]) }));
      return [handle('job', of), keys, left, right, request(), plan];
    },
    'rows',
    ([, keys, , , request]) => madeRows(keys, request),
  ],
  sortMergeJoinDeviceBytes: [2, (of) => [handle('joinKeys', of), count(4), request()]],
  sortMergeJoin: [
    3,
    (of) => [handle('job', of), handle('joinKeys', of), request(), devices(of)],
    'rows',
    ([, keys, request]) => madeRows(keys, request),
  ],
  lookupJoin: [
    4,
    (of) => [handle('job', of), handle('joinKeys', of, (_, { rowsAreKeysOf }) => rowsAreKeysOf), request()],
    'rows',
  ],
  crossJoin: [
    2,
    (of) => [
      handle('job', of),
      count(100),
      count(100),
      pick([ALL, 10_000]),
      side(),
      pick([0, count(2000)]),
      pick([ALL, count(2000)]),
    ],
    'rows',
  ],
  orderRows: [4, (of) => [handle('job', of), handle('rows', of), side()]],
  orderRowsBytes: [2, () => [count(100_000), pick([4, 8, count(9)]), pick([0, 4, 8, count(9)])]],
  uniqueRows: [4, (of) => [handle('job', of), handle('joinKeys', of), mostly(() => pick(['first', 'last', 'none']))], 'rows'],
  uniqueRowsBytes: [1, (of) => [handle('joinKeys', of)]],
  groupRows: [
    4,
    (of) => {
      const relation = handle('relation', of);
      const columns = mostly(() => times(1 + below(2), () => columnOf(relation, ({ order }) => order !== 'none')));
      const comparisons = mostly(() => (Array.isArray(columns) ? columns.map(() => comparison(chance(0.5))) : []));
      return [handle('job', of), relation, columns, comparisons, side(), pick([1, 2, 64, 256, count(300)]), count(2 ** 40)];
    },
    'rows',
  ],
  repeatedKey: [2, (of) => [handle('job', of), handle('joinKeys', of)]],
  sliceRows: [2, (of) => [handle('job', of), handle('rows', of), pick([0, count(200)]), pick([ALL, count(200)])]],
  takeJoinKeys: [2, (of) => [handle('job', of), handle('rows', of, ({ keys }) => keys)]],
  decodeJoinKeys: [
    4,
    (of) => {
      const rows = handle('rows', of, ({ keys, givesLeft }) => keys && givesLeft?.includes(true));
      const pairs = indicesOf(knownOf(rows).givesLeft, (gives) => gives);
      return [handle('job', of), rows, pairs.length > 0 ? mostly(() => pick(pairs)) : count(2)];
    },
  ],
  takeJoinValues: [2, (of) => [handle('job', of), handle('rows', of), side()]],
  gather: [10, (of) => [handle('job', of), handle('relation', of), columnIndex(), handle(pick(['run', 'rows']), of), side()]],
  gatherCoalesced: [
    4,
    (of) => {
      const as = mostly(() => ({ left: conversion(), right: conversion() }));
      const one = [handle('relation', of), columnIndex()];
      return [handle('job', of), ...one, handle('relation', of), columnIndex(), handle('rows', of), as];
    },
  ],
  gatherDeviceBytes: [
    2,
    (of) => [
      handle('relation', of),
      mostly(() => times(below(3), columnIndex)),
      mostly(() => ({ size: count(10_000), rowBytes: pick([4, 8, count(9)]), mayBeMissing: flag() })),
      count(4),
    ],
  ],
  gatherOnDevices: [
    4,
    (of) => [
      handle('job', of),
      handle('relation', of),
      mostly(() => times(below(3), columnIndex)),
      handle(pick(['run', 'rows']), of),
      side(),
      devices(of),
    ],
  ],
  residentBytes: [2, (of) => [handle('relation', of), mostly(() => times(below(4), columnIndex)), devices(of)]],
  loadTable: [
    8,
    (of) => {
      const relation = handle('relation', of, ({ columns }) => columns?.some(stays));
      return [handle('job', of), relation, mostly(() => some(indicesOf(knownOf(relation).columns, stays), 4)), devices(of)];
    },
    'resident',
    ([, relation, columns, devices], made) =>
      madeColumns(
        columns.map((column) => knownOf(relation).columns[column]),
        made,
        String(devices),
      ),
  ],
  bringHome: [
    3,
    (of) => {
      const table = handle('resident', of);
      return [handle('job', of), table, mostly(() => some(indicesOf(knownOf(table).columns), 3))];
    },
  ],
  tableJoinKeys: [
    8,
    (of) => {
      const left = orderedTable(of);
      const { columns, devices } = knownOf(left);
      const right = orderedTable(of, (other) => other.devices === devices && pairsOf(columns, other.columns).length > 0);
      const pairs = some(pairsOf(columns, knownOf(right).columns), 2);
      const keys = (table, side) => mostly(() => ({ table, keys: mostly(() => pairs.map((pair) => pair[side])) }));
      return [handle('job', of), keys(left, 0), keys(right, 1), mostly(() => pairs.map(() => chance(0.3)))];
    },
    'tableJoinKeys',
    ([, left, right], { bits, mostBits, giveLeft }) => ({
      left: knownOf(left.table),
      right: knownOf(right.table),
      pairs: left.keys.map((key, pair) => [key, right.keys[pair]]),
      fits: bits <= mostBits,
      giveLeft,
    }),
  ],
  joinTables: [
    8,
    (of) => {
      const { tables, request, origins } = tablesToJoin(of, true);
      return [handle('job', of), tables, request, mostly(() => some(origins, 4)), mostly(() => rowOrder(request, origins))];
    },
    'resident',
    ([, tables, , origins], made) =>
      madeColumns(
        origins.map((origin) => originOf(origin, tables)),
        made,
        knownOf(tables.keys).left.devices,
      ),
  ],
  joinTablesHome: [
    6,
    (of) => {
      const { tables, request } = tablesToJoin(of, false);
      return [handle('job', of), tables, request];
    },
    'rows',
  ],
  joinTablesDeviceBytes: [
    2,
    (of) => {
      const { tables, request } = tablesToJoin(of, false);
      return [tables, request];
    },
  ],
  tableSortKeys: [
    8,
    (of) => {
      const table = orderedTable(of);
      const { columns } = knownOf(table);
      const spec = (column) => mostly(() => ({ column: mostly(() => column), descending: flag(), nullsLast: flag() }));
      return [handle('job', of), table, mostly(() => some(indicesOf(columns, isOrdered), 2).map(spec)), carried(columns)];
    },
    'tableSortKeys',
    ([, table, by, payload], { bits, mostBits, giveColumns, carriesPayload }) => ({
      table: knownOf(table),
      by: by.map(({ column }) => column),
      payload,
      carries: carriesPayload,
      gives: giveColumns,
      fits: bits <= mostBits,
    }),
  ],
  sortTable: [
    8,
    (of) => {
      const keys = sortableKeys(of);
      return [handle('job', of), keys, columnsToSort(keys), window()];
    },
    'resident',
    ([, keys, columns], made) =>
      madeColumns(
        columns.map((column) => knownOf(keys).table.columns[column]),
        made,
        knownOf(keys).table.devices,
      ),
  ],
  sortTableDeviceBytes: [
    2,
    (of) => {
      const keys = sortableKeys(of);
      return [keys, columnsToSort(keys), window()];
    },
  ],
  failAllocation: [1, () => [mostly(() => pick(['memory', 'devices'])), pick([0, 1, 2, 5, count(9)])]],
  leaveDeviceMemory: [1, () => [pick([ALL, ALL, ALL, 2 ** 20, count(9)])]],
};
requireAll(addon.Engine, new Set([...Object.keys(methods), 'dispose']));
/** What makes handles of a kind on devices. */
const MAKERS = { resident: 'loadTable', tableJoinKeys: 'tableJoinKeys', tableSortKeys: 'tableSortKeys' };
const names = Object.entries(methods).flatMap(([name, [often]]) => times(often, () => name));

function sizeOf(keys, which) {
  const { rows, left, right } = keys instanceof Object ? keys : {};
  const size = which === undefined ? rows : (which === 'left' ? left : right)?.tuples;
  return Number.isInteger(size) ? size : 10;
}

// --- Calls --------------------------------------------------------------------------------------------------------

/** What a call may fail with. */
function check(name, error) {
  if (error instanceof TypeError || error instanceof RangeError) return;
  if (typeof error?.code === 'string' && error.code.startsWith('ERR_') && error.code !== 'ERR_INTERNAL') return;
  if (/from a|Illegal invocation|Cannot convert/.test(error?.message)) return;
  throw new Error(`${name} failed with ${error?.stack ?? error} (${error?.code})`);
}

/** Reads what a call has given: under ASan this finds memory that is gone. */
function touch(value) {
  if (value instanceof ArrayBuffer)
    return new Uint8Array(value, 0, Math.min(value.byteLength, 1 << 16)).reduce((sum, byte) => sum + byte, 0);
  if (Array.isArray(value)) for (const one of value) touch(one);
  else if (value && typeof value === 'object' && 'nullCount' in value) touch(Object.values(value));
  return 0;
}

async function call(wanted) {
  const of = pick(engines);
  strangeness = pick([0, 0, 0, 0, 0.02, 0.1]);
  let name = wanted ?? pick(names);
  let args = [];
  for (let tries = 0; tries < 6; tries++) {
    lacking = null;
    making = true;
    args = methods[name][1](of);
    making = false;
    if (!lacking || wanted) break;
    // Mostly what makes it: sequences of calls get further.
    name = chance(0.7) ? (MAKERS[lacking] ?? pick(names)) : pick(names);
  }
  strangeness = 0;
  const kind = methods[name][2];
  const count = countsOf(name);
  count.called++;
  try {
    const receiver = chance(0.01) ? pick(strange)() : of.engine;
    const method = chance(0.002) ? addon.Engine : of.engine[name];
    const made = await Reflect.apply(method, receiver, args);
    count.succeeded++;
    touch(made);
    const group = {};
    if (kind) {
      for (const one of Array.isArray(made) ? made : [made]) {
        keep(kind, of, one, group);
        learn(name, args, one);
      }
    }
    if (name === 'hashJoin' && args[1].givesLeft?.[0] && args[2].wantKeys === true) await decode(of, made);
    if (name === 'sortJoinSide' && chance(0.2)) await merge(of, args[1]);
    if (kind === 'job') for (const what of ['progress', 'phases', 'events', chance(0.1) ? 'cancel' : 'progress']) made[what]();
  } catch (error) {
    check(name, error);
  }
  if (chance(0.04)) releaseOne();
}

/** What is known of a handle that was made of arguments; nothing where these are strange. */
function learn(name, args, made) {
  making = true;
  try {
    known.set(made, methods[name][3]?.(args, made) ?? {});
  } catch {
    known.set(made, {});
  }
  making = false;
}

/** What one call's result makes possible, and hardly any other's: it is tried at once. */
async function follow(name, attempt) {
  const count = countsOf(name);
  count.called++;
  try {
    touch(await attempt());
    count.succeeded++;
  } catch (error) {
    check(name, error);
  }
}

/** Few rows have packed keys. */
const decode = (of, rows) => follow('decodeJoinKeys', () => of.engine.decodeJoinKeys(of.engine.createJob(), rows, 0));

/** Runs fit the keys that they were made of alone, and are gone once they are merged. */
const merge = (of, keys) =>
  follow('mergeJoin', async () => {
    const job = of.engine.createJob();
    const sorted = async (which) => {
      const plan = { algorithm: 'merge', devices: [0], chunksetEnds: [keys[which].tuples], spill: false };
      return (await of.engine.sortJoinSide(job, keys, which, plan))[0];
    };
    const plan = { devices: devices(of), subpartitions: pick([3, 6]) };
    keep('rows', of, await of.engine.mergeJoin(job, keys, await sorted('left'), await sorted('right'), request(), plan));
  });

function makeEngine() {
  const hostDevices = pick([1, 2, 3]);
  const config = {
    threads: 1 + below(3),
    hostDevices,
    gpus: [],
    memoryLimitBytes: pick([2 ** 22, 2 ** 24, 2 ** 26]),
    deviceMemoryLimitBytes: pick([0, 0, 2 ** 22]),
  };
  const others = engines.length && chance(0.3) ? [engines[0].engine] : [];
  return { engine: new addon.Engine(config, ...others), hostDevices };
}

/** Constructors refuse what is no configuration. */
function misconstruct() {
  strangeness = 0.1;
  const config = {
    threads: count(4),
    hostDevices: count(3),
    gpus: mostly(() => []),
    memoryLimitBytes: count(1e9),
    deviceMemoryLimitBytes: count(1e9),
  };
  try {
    const made = chance(0.2)
      ? Reflect.apply(addon.Engine, pick(strange)(), [config])
      : new addon.Engine(
          mostly(() => config),
          ...(chance(0.5) ? [mostly(() => pick(engines).engine)] : []),
        );
    void made.dispose().catch(() => 0);
  } catch (error) {
    check('new Engine', error);
  }
}

const CSV_PIECES = ['1', '0.5', 'x', '"', '""', ',', ',', '\n', '\n', '\r\n', 'true', '2024-01-01', '\0', '\u20ac', '-'];
const csvBytes = () => Buffer.from(times(below(200), () => pick(CSV_PIECES)).join(''));
const CSV_TYPES = ['bool', 'int64', 'float64', 'date', 'timestamp', 'timestamptz', 'utf8', 'empty', 'int'];
const csvOptions = () => ({
  threads: mostly(() => 1 + below(3)),
  memoryBytes: mostly(() => pick([2 ** 30, 2 ** 30, 2 ** 30, count(10_000)])),
  leastMapped: mostly(() => pick([undefined, 0, 2 ** 12, 2 ** 18])),
  delimiter: mostly(() => pick([44, 44, 44, 59, 34, 10, 200])),
  header: flag(),
  nullValues: mostly(() => times(below(2), () => mostly(() => pick(['x', '-'])))),
  given: mostly(() =>
    times(below(8) ? 0 : 1, () => mostly(() => ({ name: pick(['x', 'column1']), type: mostly(() => pick(CSV_TYPES)) }))),
  ),
  known: mostly(() => times(below(8) ? 0 : below(4), () => mostly(() => pick(CSV_TYPES)))),
  streaming: flag(),
  maxRows: pick([ALL, ALL, count(20)]),
  batchRows: mostly(() => 1 + below(20)),
  partBytes: mostly(() => 1 + below(100)),
  maxRecordBytes: mostly(() => pick([50, 2 ** 30])),
});
const CSV_METHODS = ['push', 'push', 'push', 'push', 'finish', 'cancel', 'release'];
requireAll(addon.CsvReader, new Set(CSV_METHODS));

/** A reader of CSV files whose methods are called in any order, several at a time. */
async function readCsv() {
  strangeness = pick([0, 0, 0.02, 0.1]);
  try {
    const reader = new addon.CsvReader(mostly(csvOptions));
    const last = ['finish', 'finish', 'release'];
    const calls = [...times(below(8), () => (chance(0.9) ? 'push' : pick(CSV_METHODS))), ...last].map(async (name) => {
      const counted = countsOf(`csv.${name}`);
      counted.called++;
      try {
        const receiver = chance(0.01) ? pick(strange)() : reader;
        const made = await Reflect.apply(reader[name], receiver, [mostly(csvBytes)]);
        counted.succeeded++;
        for (const { columns } of made?.batches ?? []) for (const column of columns) touch(column);
      } catch (error) {
        check(`csv.${name}`, error);
      }
    });
    if (chance(0.5)) await Promise.all(calls);
  } catch (error) {
    check('new CsvReader', error);
  }
  strangeness = 0;
}

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-trials-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const parquetFile = join(folder, 'rows.parquet');
{
  const { Table: WasmTable, WriterPropertiesBuilder, writeParquet } = await parquetLibrary();
  const list = (value) => times(300, value);
  const table = new Table({
    id: vectorFromArray(
      list((row) => row),
      new Int32(),
    ),
    share: vectorFromArray(
      list((row) => row / 3),
      new Float64(),
    ),
    name: vectorFromArray(
      list((row) => (row % 3 ? `name ${row % 9}` : null)),
      new Utf8(),
    ),
    even: vectorFromArray(
      list((row) => row % 2 === 0),
      new Bool(),
    ),
  });
  const properties = new WriterPropertiesBuilder().setMaxRowGroupSize(100).setCompression(1).build();
  writeFileSync(parquetFile, writeParquet(WasmTable.fromIPCStream(tableToIPC(table, 'stream')), properties));
}
const parquetRequest = () => ({
  batches: mostly(() =>
    times(below(3), () =>
      mostly(() => ({ groups: mostly(() => times(1 + below(3), () => mostly(() => below(3)))), rows: mostly(() => below(100)) })),
    ),
  ),
  columns: mostly(() => times(below(4), () => mostly(() => ({ leaf: mostly(() => below(4)), large: flag() })))),
});
const PARQUET_READER_METHODS = ['open', 'read', 'read', 'read', 'cancel', 'release'];
requireAll(addon.ParquetReader, new Set(PARQUET_READER_METHODS));

/** A reader of a Parquet file whose methods are called in any order, several at a time. */
async function readParquet() {
  strangeness = pick([0, 0, 0.02, 0.1]);
  try {
    const options = () => ({
      path: mostly(() => pick([parquetFile, parquetFile, parquetFile, '/', '/none', '\0'])),
      threads: mostly(() => 1 + below(3)),
      memoryBytes: mostly(() => pick([2 ** 30, 2 ** 30, 10_000])),
      leastMapped: mostly(() => pick([undefined, 0, 2 ** 12, 2 ** 18])),
    });
    const reader = new addon.ParquetReader(mostly(options));
    const names = ['open', ...times(below(6), () => (chance(0.9) ? 'read' : pick(PARQUET_READER_METHODS))), 'release'];
    const calls = names.map(async (name) => {
      const counted = countsOf(`parquetReader.${name}`);
      counted.called++;
      try {
        const receiver = chance(0.01) ? pick(strange)() : reader;
        const made = await Reflect.apply(reader[name], receiver, [mostly(parquetRequest)]);
        counted.succeeded++;
        if (name === 'read') for (const { columns } of made) for (const column of columns) touch(column);
      } catch (error) {
        check(`parquetReader.${name}`, error);
      }
    });
    if (chance(0.5)) await Promise.all(calls);
  } catch (error) {
    check('new ParquetReader', error);
  }
  strangeness = 0;
}

const PARQUET_TYPES = ['boolean', 'int32', 'int64', 'float32', 'float64', 'byte_array', 'fixed_bytes', 'int96'];
const PARQUET_LOGICAL = ['string', 'decimal', 'date', 'time', 'integer', 'timestamp', 'null', 'float16', 'list'];
/** A field for a column, as its kind and width are stored. */
function parquetField({ kind, order, width }, index) {
  const [type, stored] =
    kind === 'boolean'
      ? ['boolean', 0]
      : kind !== 'fixed'
        ? ['byte_array', 0]
        : order === 'floating' && width > 2
          ? [width === 4 ? 'float32' : 'float64', 0]
          : ['signed', 'unsigned'].includes(order) && width <= 8
            ? [width === 8 ? 'int64' : 'int32', 0]
            : ['fixed_bytes', width];
  const logical = () => ({
    type: mostly(() => pick(PARQUET_LOGICAL)),
    unit: mostly(() => pick(['ms', 'us', 'ns'])),
    utc: flag(),
    bits: mostly(() => pick([8, 64])),
    signed: flag(),
    precision: mostly(() => 1 + below(76)),
    scale: mostly(() => below(4)),
  });
  return {
    name: mostly(() => `c${index}`),
    nullable: mostly(() => chance(0.9)),
    type: mostly(() => (chance(strangeness) ? pick(PARQUET_TYPES) : type)),
    width: mostly(() => stored),
    converted: mostly(() => (chance(0.7) ? null : below(22))),
    logical: mostly(() => (chance(0.7) ? null : logical())),
  };
}
const parquetOptions = (fields) => ({
  threads: mostly(() => 1 + below(3)),
  memoryBytes: mostly(() => pick([2 ** 30, 2 ** 30, 2 ** 30, count(10_000)])),
  leastMapped: mostly(() => pick([undefined, 0, 2 ** 12, 2 ** 18])),
  fields: mostly(() => fields.map((field) => mostly(() => field))),
  metadata: mostly(() => times(below(3), () => mostly(() => ['key', mostly(() => 'value')]))),
  groupRows: mostly(() => 1 + below(500)),
  groupBytes: mostly(() => pick([100, 5000, 2 ** 27])),
  pageBytes: mostly(() => pick([1, 100, 2 ** 20])),
});
const PARQUET_WRITER_METHODS = ['begin', 'write', 'write', 'write', 'finish', 'reclaim', 'cancel', 'release'];
requireAll(addon.ParquetWriter, new Set(PARQUET_WRITER_METHODS));

/** A writer of Parquet files whose methods are called in any order, several at a time. */
async function writeParquet() {
  strangeness = pick([0, 0, 0.02, 0.1]);
  try {
    making = true;
    const rows = pick(ROWS);
    const columns = times(1 + below(4), (index) => column(rows, index));
    const fields = columns.map((of, index) => parquetField(of, index));
    making = false;
    const writer = new addon.ParquetWriter(mostly(() => parquetOptions(fields)));
    const between = () => (chance(0.9) ? pick(['write', 'write', 'reclaim']) : pick(PARQUET_WRITER_METHODS));
    const calls = ['begin', ...times(below(8), between), 'finish', 'release'].map(async (name) => {
      const counted = countsOf(`parquetWriter.${name}`);
      counted.called++;
      try {
        const receiver = chance(0.01) ? pick(strange)() : writer;
        const given = name === 'begin' ? [mostly(() => columns), mostly(() => rows)] : [];
        const made = await Reflect.apply(writer[name], receiver, given);
        counted.succeeded++;
        touch(made?.buffers);
      } catch (error) {
        check(`parquetWriter.${name}`, error);
      }
    });
    if (chance(0.5)) await Promise.all(calls);
  } catch (error) {
    check('new ParquetWriter', error);
  }
  making = false;
  strangeness = 0;
}

const GROWING_TYPES = [
  ['utf8', 'bytes', 0],
  ['large_utf8', 'bytes', 0],
  ['fixed', 'signed', 8],
  ['fixed', 'none', 16],
  ['boolean', 'boolean', 0],
];
const GROWING_METHODS = ['place', 'place', 'place', 'place', 'joined', 'release'];
requireAll(addon.GrowingDictionary, new Set(GROWING_METHODS));

/** A dictionary that grows by others, mostly of its type, and indices by their positions. */
function growDictionary() {
  strangeness = pick([0, 0, 0.02, 0.1]);
  const attempt = (name, call) => {
    const counted = countsOf(name);
    counted.called++;
    try {
      const made = call();
      counted.succeeded++;
      touch(made?.added);
      touch(made);
      return made;
    } catch (error) {
      check(name, error);
    }
    return undefined;
  };
  making = true;
  const ofType = (kind, order, width) => (rows) => ({
    name: mostly(() => 'c'),
    kind,
    order,
    width,
    chunks: mostly(() => [chunk(kind, width, rows)]),
  });
  const alike = ofType(...pick(GROWING_TYPES));
  const first = alike(pick(ROWS));
  const others = times(3, () => (chance(0.8) ? alike : column)(pick(ROWS), 1));
  const indices = (chance(0.8) ? ofType('fixed', 'signed', 1) : column)(pick(ROWS), 0);
  const options = mostly(() => ({ threads: 1, memoryBytes: pick([2 ** 30, 2 ** 30, count(100_000)]) }));
  making = false;
  const growing = attempt('new GrowingDictionary', () => new addon.GrowingDictionary(options));
  if (!growing) return;
  const placed = [first, ...others].map((values) => attempt('growing.place', () => growing.place(values)));
  for (const name of times(below(4), () => pick(GROWING_METHODS))) {
    const receiver = chance(0.05) ? pick(strange)() : growing;
    attempt(`growing.${name}`, () => Reflect.apply(growing[name], receiver, [pick([first, ...others])]));
  }
  const positions = placed.findLast((of) => of?.positions)?.positions ?? new ArrayBuffer(below(900));
  attempt('placeIndices', () => addon.placeIndices(indices, chance(0.1) ? pick(strange)() : positions));
  strangeness = 0;
}

/** Engines that were not disposed go with their threads when they are collected. */
async function collect() {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc');
  for (let turn = 0; turn < 3; turn++) {
    gc();
    await new Promise(setImmediate);
  }
}
const threads = () => readdirSync('/proc/self/task').length;
const MOST_THREADS = 60; // of Node.js, and of two engines

let round = 0;
for (; round < rounds; round++) {
  try {
    engines = [];
    handles = [];
    firstKind = pick(['fixed', 'fixed', 'fixed', 'utf8']);
    engines.push(makeEngine());
    engines.push(makeEngine());
    for (const of of engines) {
      keep('job', of, of.engine.createJob());
      await call('relation');
      await call('relation');
    }
    for (let done = 0; done < CALLS; done += CALLS_AT_ONCE) {
      await Promise.all(times(1 + below(CALLS_AT_ONCE), () => call()));
    }
    if (chance(0.1)) misconstruct();
    await readCsv();
    await readParquet();
    await writeParquet();
    growDictionary();
    const last = chance(0.3) ? [call(), call()] : [];
    for (const { engine } of engines) if (chance(0.9)) await engine.dispose();
    await Promise.all(last);
    if (round % 20 === 0) {
      engines = [];
      handles = [];
      await collect();
      if (threads() > MOST_THREADS) throw new Error(`${threads()} threads are left`);
    }
  } catch (error) {
    console.error(`binding: round ${round} of --seed ${seed}: ${error.stack}`);
    process.exit(1);
  }
}
const rare = [...seen].map(([name, { called, succeeded }]) => `${name} ${succeeded}/${called}`);
console.log(`binding: succeeded: ${rare.join(', ')}`);
const never = Object.keys(methods).filter((name) => !seen.get(name)?.succeeded);
const seldom = [...Object.values(MAKERS), 'sortTable', 'joinTables', 'joinTablesHome', 'bringHome'].filter((name) => {
  const { called, succeeded } = seen.get(name) ?? { called: 0, succeeded: 0 };
  return succeeded < called / 2;
});
if (rounds >= 600 && seldom.length) {
  console.error(`binding: most calls of these failed, so the trial tries too little: ${seldom.join(', ')}`);
  process.exit(1);
}
if (rounds >= 600 && never.length) {
  console.error(`binding: these never succeeded, so the trial tries too little: ${never.join(', ')}`);
  process.exit(1);
}
