// Lets an allocation of the addon's C++ fail, any one of those that some calls make:
//   node scripts/asan-addon.mjs node scripts/trials/memory.mjs [--seed N] [--rounds N]
// A round makes an engine, calls methods with tables of random columns, and takes what they give; before that it draws which
// allocation fails. Each call has to succeed or to fail with a code, no thread may be left, and the next round runs as if nothing had
// been. 0 rounds: every allocation once.
import { closeSync, mkdtempSync, openSync, readdirSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { loadAddon } from '../../dist/addon.js';
import { requireAll } from './methods.mjs';
import { random, trialOptions } from './random.mjs';

const folder = mkdtempSync(joinPath(tmpdir(), 'warpjoin-memory-'));
const file = openSync(joinPath(folder, 'countdown'), 'w+');
const cell = new BigUint64Array(1);
const setCountdown = (n) => {
  cell[0] = BigInt(n);
  writeSync(file, cell, 0, 8, 0);
};
/** How many allocations are left until one fails. */
const countdown = () => {
  readSync(file, cell, 0, 8, 0);
  return Number(cell[0]);
};
setCountdown(0);
// The addon reads it when it is loaded.
process.env.WARPJOIN_FAIL_NEW = joinPath(folder, 'countdown');
const addon = loadAddon();

const ALL = Number.POSITIVE_INFINITY;
const ROWS = 300;
const { seed, rounds } = trialOptions({ rounds: 0 });
console.log(`memory: --seed ${seed} --rounds ${rounds}, Node.js ${process.version}`);
const draw = random(seed);

const FACTOR = { pow10: 0, times: 1 };
const COMPARISON = { nullsEqual: false, factors: { left: FACTOR, right: FACTOR } };

const chunk = (values, more = {}) => ({ length: ROWS, bitOffset: 0, validity: null, values, offsets: null, ...more });
const column = (name, kind, order, width, ...chunks) => ({ name, kind, order, width, chunks });
const numbers = (Of, make) => Of.from({ length: ROWS }, (_, row) => make(row));
const ends = numbers(Int32Array, (row) => row * 12);
const columns = [
  column('k', 'fixed', 'signed', 8, chunk(numbers(BigInt64Array, () => BigInt(draw.below(ROWS / 2))))),
  column(
    'n',
    'fixed',
    'signed',
    4,
    chunk(
      numbers(Int32Array, () => draw.below(50)),
      { validity: new Uint8Array(64).fill(0x6d) },
    ),
  ),
  column('v', 'fixed', 'floating', 8, chunk(numbers(Float64Array, () => draw.next()))),
  column(
    't',
    'utf8',
    'bytes',
    0,
    chunk(
      new Uint8Array(ROWS * 12).map(() => 97 + draw.below(2)),
      { offsets: new Int32Array([...ends, ROWS * 12]) },
    ),
  ),
];
const digits = Array.from({ length: ROWS }, (_, row) => String(row).padStart(12, '0')).join('');
const distinct = [
  column('u', 'utf8', 'bytes', 0, chunk(new TextEncoder().encode(digits), { offsets: new Int32Array([...ends, ROWS * 12]) })),
];
const sorted = [column('s', 'fixed', 'signed', 8, chunk(numbers(BigInt64Array, (row) => BigInt(row))))];

/** Every method once, each in a call of its own: what needs a result that is not there is not called. */
async function callAll(attempt) {
  const hostDevices = 2;
  const devices = [0, 1];
  const config = { threads: 3, hostDevices, gpus: [], memoryLimitBytes: 2 ** 28, deviceMemoryLimitBytes: 0 };
  const engine = await attempt('new Engine', () => new addon.Engine(config));
  if (!engine) return;
  const job = await attempt('createJob', () => engine.createJob(undefined, true));
  const kept = [];
  const call = async (name, ...args) => {
    if (!job || args.some((arg) => arg === undefined)) return undefined;
    const made = await attempt(name, () => engine[name](...args));
    if (made?.release) kept.push(made);
    return made ?? undefined;
  };
  const by = (...indices) => indices.map((index) => ({ column: index, descending: false, nullsLast: true }));
  const plan = (algorithm, tuples = ROWS, spill = false) => ({ algorithm, devices, chunksetEnds: [tuples >> 1, tuples], spill });
  const request = {
    kind: 'inner',
    buildLeft: true,
    countOnly: false,
    wantKeys: false,
    wantLeft: true,
    wantRight: true,
    maxRows: ALL,
  };
  for (const name of ['devices', 'memory', 'threads', 'resetPeaks', 'failure']) await call(name);
  await call('setMemoryLimit', 2 ** 28);
  await call('reserve', 1000);
  addon.detach([await call('allocate', 1000), await call('allocate', 2 ** 22)].filter((made) => made !== undefined));
  addon.detach((await attempt('mapFile', () => addon.mapFile(file, [3, 8]))) ?? []);
  await attempt('rowRuns', () => addon.rowRuns([columns[0]], ROWS));
  const growing = await attempt('new GrowingDictionary', () => new addon.GrowingDictionary({ threads: 1, memoryBytes: 2 ** 28 }));
  for (const values of [columns[3], distinct[0]]) if (growing) await attempt('place', () => growing.place(values));
  if (growing) await attempt('joined', () => growing.joined());
  growing?.release();
  await attempt('placeIndices', () => addon.placeIndices(columns[1], new ArrayBuffer(4 * 50)));
  await call('failAllocation', 'memory', 0);
  await call('leaveDeviceMemory', ALL);
  await call('measureLinks', job);
  await call('trimMemory', job);
  const relation = await call('relation', job, columns, ROWS);
  const inOrder = await call('relation', job, sorted, ROWS);
  await call('sortDeviceBytes', 8, 4, ROWS, 2, 'sample', true);
  await call('sortSpills', ROWS, ROWS, devices);
  await call('mergeScratchBytes', 8, 4, ROWS, 2);
  for (const algorithm of ['merge', 'radix', 'sample']) {
    const keys = await call('sortKeys', job, relation, by(1, 0), null, true);
    const runs = (await call('sortChunksets', job, keys, plan(algorithm))) ?? [];
    kept.push(...runs);
    const run = await call('mergeRuns', job, runs.length ? runs : undefined);
    await call('decodeKeys', job, keys, 0, run);
    await call('gather', job, relation, 2, run, 'left');
    await call('gather', job, relation, 3, run, 'left');
    await call('gatherOnDevices', job, relation, [0, 1], run, 'left', devices);
    await call('takeValues', job, run);
    await (algorithm === 'merge' ? call('dropKeys', run) : call('takeKeys', job, run));
  }
  const texts = await call('sortKeys', job, relation, by(3, 1), null, false);
  const ties = (await call('sortChunksets', job, texts, { ...plan('merge'), chunksetEnds: [ROWS] })) ?? [];
  await call('refineTies', job, texts, ties[0]);
  const top = await call('topRows', job, relation, by(1, 0), 3, 100);
  await call('topRowsBytes', ROWS, 103);
  await call('rowsAreSorted', job, relation, by(3, 1));
  await call('searchSorted', job, inOrder, by(0), inOrder, [0], 'left');
  await call('cutMerge', job, inOrder, by(0), [5, ROWS], [4, 9]);
  await call('gather', job, relation, 3, top, 'left');
  kept.push(...(top ? [top] : []));
  const copied = await call('copyRun', job, await call('sortKeys', job, inOrder, by(0), null, false));
  const part = await call('cutRun', job, ties[0], 1, 10);
  kept.push(...ties, ...(copied ? [copied] : []), ...(part ? [part] : []));
  for (const [key, kind, type] of [
    [0, 'inner', { kind: 'fixed', order: 'signed', width: 16 }],
    [1, 'full', { kind: 'fixed', order: 'signed', width: 8 }],
    [3, 'left', { kind: 'large_utf8', order: 'bytes', width: 0 }],
  ]) {
    const keys = await call('joinKeys', job, relation, [key], null, relation, [key], null, [COMPARISON]);
    const wanted = { ...request, kind };
    await call('hashJoinDeviceBytes', keys, 2, wanted, 1);
    await call('hashJoinSpill', keys, 2, wanted, 1);
    await call('mergeJoinDeviceBytes', keys, 2, 3);
    const found = await call('hashJoin', job, keys, wanted, { devices, rounds: 1, partitions: 0, eitherSide: false });
    const conversion = { ...type, factor: FACTOR, column: 'c', target: 't' };
    await call('gatherCoalesced', job, relation, key, relation, key, found, { left: conversion, right: conversion });
    await call('gatherCoalesced', job, relation, key, relation, key, found, { left: null, right: null });
    await call('takeJoinValues', job, found, 'left');
    await call('joinSideIsSorted', job, keys, 'left');
    const runs = [];
    for (const side of ['left', 'right']) {
      const ends = keys ? [keys[side].tuples] : undefined;
      const made = ends && (await call('sortJoinSide', job, keys, side, { ...plan('radix'), chunksetEnds: ends }));
      kept.push(...(made ?? []));
      runs.push(made?.[0]);
    }
    await call('mergeJoin', job, keys, ...runs, wanted, { devices, subpartitions: 3 });
    await call('sortMergeJoinDeviceBytes', keys, 2, wanted);
    const merged = await call('sortMergeJoin', job, keys, { ...wanted, wantKeys: kind === 'inner' }, devices);
    await call('gatherDeviceBytes', relation, [0, 1], { size: ROWS, rowBytes: 4, mayBeMissing: false }, 2);
    if (kind === 'inner') await call('takeJoinKeys', job, merged);
  }
  const two = await call('joinKeys', job, inOrder, [0, 0], null, inOrder, [0, 0], null, [COMPARISON, COMPARISON]);
  const packed = await call(
    'hashJoin',
    job,
    two,
    { ...request, wantKeys: true },
    { devices, rounds: 1, partitions: 0, eitherSide: false },
  );
  await call('decodeJoinKeys', job, packed, 1);
  const unique = await call('relation', job, distinct, ROWS);
  const looked = await call('joinKeys', job, unique, [0], null, unique, [0], null, [COMPARISON]);
  await call('lookupJoin', job, looked, request);
  await call('crossJoin', job, 20, 30, ALL, 'right', 3, 500);
  const rows = await call('lookupJoin', job, looked, { ...request, wantKeys: false });
  await call('orderRowsBytes', ROWS, 4, 4);
  await call('orderRows', job, rows, 'right');
  await call('sliceRows', job, rows, 3, 5);
  const own = await call('joinKeys', job, relation, [1], null, relation, [1], null, [COMPARISON]);
  await call('uniqueRowsBytes', own);
  for (const keep of ['first', 'last', 'none']) await call('uniqueRows', job, own, keep);
  await call('repeatedKey', job, own);
  const grouped = await call('groupRows', job, relation, [1], [COMPARISON], 'left', 16, 7);
  await call('gather', job, relation, 0, grouped, 'left');
  await call('residentBytes', relation, [0, 1, 2], devices);
  const table = await call('loadTable', job, relation, [0, 1, 2], devices);
  await call('bringHome', job, table, [0, 1, 2]);
  const tableKeys = table && (await call('tableJoinKeys', job, { table, keys: [1] }, { table, keys: [0] }, [false]));
  const tables = tableKeys && { keys: tableKeys, payload: { left: null, right: null } };
  await call('joinTablesDeviceBytes', tables, request);
  await call('joinTablesHome', job, tables, request);
  await call('joinTables', job, tables, request, [{ from: 'left', column: 2 }], null);
  const rowOrder = { side: 'left', window: { first: 0, rows: ROWS } };
  await call('joinTables', job, tables, request, [{ from: 'left', column: 2 }], rowOrder);
  const order = await call('tableSortKeys', job, table, by(1), null);
  await call('sortTableDeviceBytes', order, [1, 2], { first: 0, rows: ROWS });
  await call('sortTable', job, order, [1, 2], { first: 0, rows: ROWS });
  await call('sortTable', job, order, [1, 2], { first: 2, rows: 10 });
  await attempt('progress', () => [job?.progress(), job?.phases(), job?.events()]);
  for (const handle of kept) handle.release();
  await attempt('dispose', () => engine.dispose());
}

let round = 0;
let n = 0;
const fail = (why) => {
  console.error(`memory: round ${round} of --seed ${seed}, allocation ${n}: ${why}`);
  process.exit(1);
};
let failures = 0;
const tried = new Set();
async function attempt(name, call) {
  tried.add(name);
  try {
    return await call();
  } catch (error) {
    failures++;
    if (typeof error?.code !== 'string' || error.code === 'ERR_INTERNAL') fail(`${name} failed with ${error?.stack ?? error}`);
    return undefined;
  }
}
const threads = () => readdirSync('/proc/self/task').length;

setCountdown(2 ** 52);
await callAll(attempt);
const allocations = 2 ** 52 - countdown();
if (allocations === 0) throw new Error('Expected an addon whose allocations can fail: that of scripts/asan-addon.mjs');
setCountdown(0);
if (failures) fail('a call failed for which no allocation did');
requireAll(addon.Engine, tried);
const before = threads();
const last = rounds || allocations;
for (; round < last; round++) {
  n = rounds ? 1 + draw.below(allocations) : round + 1;
  setCountdown(n);
  await callAll(attempt);
  setCountdown(0);
  // An engine that a failure has left is collected some time.
  if (threads() > before + 100) fail(`${threads()} threads are left`);
}
await callAll((name, call) => Promise.resolve(call()).catch((error) => fail(`${name} failed afterwards: ${error.stack}`)));
console.log(`memory: ${last} of ${allocations} allocations failed, and ${failures} calls with them`);
closeSync(file);
rmSync(folder, { recursive: true });
