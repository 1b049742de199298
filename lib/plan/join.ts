/** Plans of joins: which algorithm, which side builds, how many rounds, chunksets and subpartitions. */
import { type HashJoinSpill, SIDES, type Side } from '../native.js';
import type { JoinKind, JoinSettings } from '../options.js';
import { COSTS, estimate, gpuPassSeconds, milliseconds } from './costs.js';
import { onBestSet, transferSpeeds } from './device-set.js';
import { gatherStep } from './gather.js';
import { checkHostBytes, hostBlock, hostBlocks, JOIN_IN_BATCHES, joinRowsBytes } from './memory.js';
import { type ResultRows, rowsTaken, takingSteps } from './order.js';
import type { Work } from './placement.js';
import {
  attempt,
  type CrossJoinStep,
  deviceBudget,
  deviceLimitError,
  type Estimate,
  type HashJoinStep,
  type LookupJoinStep,
  type MergeJoinStep,
  type Plan,
  type PlannedColumn,
  type RefineStep,
  type Resources,
  readEachOther,
  resultBytes,
  type SortMergeJoinStep,
  type Step,
  type Traffic,
} from './plan.js';
import { columnStep, prefersSample, type SortDeviceBytes, sortSteps, type Tuples } from './sort.js';

/** Rounds of a hash join at most: those behind the first read what was spilled. */
export const MAX_ROUNDS = 64;
/** Subpartitions a device at least, one a stream (multi-gpu-sort-merge-join 3.3.1), and at most. */
export const MIN_SUBPARTITIONS = 3;
const MAX_SUBPARTITIONS = 3 * 2 ** 16;
/** Bytes of a match range on its way home: four row numbers within a part. */
const MATCH_RANGE_BYTES = 16;

/** One side of a join. */
export interface JoinSideShape extends Tuples {
  /** Rows of the relation; those past `tuples` match nothing. */
  rows: number;
  /** Whether the keys ascend already. */
  sorted: boolean;
  /** Bytes of a tuple that a hash join sends to devices that address no host memory. */
  sentBytes: number;
  /** Bytes of a tuple that the rows of a join are made of, once it is sorted. */
  homeBytes: number;
}

export interface JoinRequestShape extends Pick<JoinSettings, 'algorithm' | 'sortAlgorithm' | 'buildSide'> {
  how: Exclude<JoinKind, 'cross'>;
  countOnly: boolean;
  /** The side whose keys are its row numbers; null: neither. */
  rowsAreKeysOf: Side | null;
  left: JoinSideShape;
  right: JoinSideShape;
  columns: readonly PlannedColumn[];
  result: ResultRows;
  /** Bytes of one row of the join before its columns: row numbers, carried payloads and keys. */
  rowBytes: number;
  /** Host memory of the encoded keys, which are freed before the columns are made. */
  encodedBytes: number;
}

/** The data plane's figures: memory on each device. */
export interface JoinDeviceBytes {
  sort: SortDeviceBytes;
  hash(devices: number, buildLeft: boolean, rounds: number): number;
  spill(devices: number, buildLeft: boolean, rounds: number): HashJoinSpill;
  mergeJoin(devices: number, subpartitions: number): number;
  sortMergeJoin(devices: number): number;
  /** Host memory of ordering so many rows, beside them. */
  order(rows: number): number;
  /** Of gathering these of the result's columns by a side's row numbers in `rows` rows. */
  gather(side: Side, columns: readonly number[], rows: number, devices: number): number;
}

export type JoinStep = Exclude<Step, RefineStep>;
export type JoinPlan = Plan<JoinStep>;

/** Rows that a join surely gives. */
export function leastRows(how: JoinKind, left: number, right: number): number {
  switch (how) {
    case 'left':
      return left;
    case 'right':
      return right;
    case 'full':
      return Math.max(left, right);
    case 'cross':
      return left * right;
    default:
      return 0;
  }
}

/** Rows to expect where nothing is known of the keys: every row of the larger side finds one. */
export function expectedRows(how: JoinKind, left: number, right: number): number {
  if (how === 'semi' || how === 'anti') return left / 2;
  if (how === 'inner' && (left === 0 || right === 0)) return 0;
  return Math.max(leastRows(how, left, right), how === 'cross' ? 0 : Math.max(left, right));
}

/** Plans a join. Throws ERR_MEMORY_LIMIT, naming the limit, where it can't fit. */
export function planJoin(request: JoinRequestShape, deviceBytes: JoinDeviceBytes, resources: Resources): JoinPlan {
  const { left, right, how, columns, countOnly, rowBytes } = request;
  const rows = leastRows(how, left.rows, right.rows);
  const leastRowsBytes = rows === 0 ? 0 : hostBlocks(rows, left.homeBytes, right.homeBytes);
  const ordering = request.result.order && !countOnly ? deviceBytes.order(rows) : 0;
  const made = countOnly ? 0 : resultBytes(rowsTaken(request.result, rows), columns);
  const leastResult = rows * rowBytes + Math.max(ordering, made);
  const freeBytes = resources.freeBytes + request.encodedBytes;
  const remedy = countOnly ? undefined : JOIN_IN_BATCHES;
  checkHostBytes(`A ${how} join of ${left.rows} and ${right.rows} rows`, leastResult, { ...resources, freeBytes }, remedy);

  const buildLeft = request.buildSide === 'auto' ? left.tuples <= right.tuples : request.buildSide === 'left';
  const rowsBytes = countOnly ? 0 : joinRowsBytes(expectedRows(how, left.rows, right.rows), rowBytes);
  const context: Context = { request, buildLeft, leastRowsBytes, rowsBytes, deviceBytes, resources };
  const plan = choose(context);
  if (!countOnly) planColumns(plan, expectedRows(how, left.rows, right.rows), request, deviceBytes, resources);
  plan.hostBytes = Math.max(plan.hostBytes, leastResult);
  return plan;
}

/** Plans the result of a join that finds `found` rows, in place of what was planned for another number. */
export function planColumns(
  plan: JoinPlan,
  found: number,
  request: JoinRequestShape,
  deviceBytes: JoinDeviceBytes,
  resources: Resources,
): void {
  const { columns, rowBytes, result } = request;
  const rows = rowsTaken(result, found);
  const tableRows = (side: Side | null | undefined): number => (side ? request[side].rows : rows);
  const made = columns.map((column, index) => columnStep(column, index, rows, resources.threads, tableRows(column.side)));
  const joins = plan.steps.filter(({ op }) => !AFTER_JOIN.includes(op));
  const join = joins.at(-1) as HashJoinStep | MergeJoinStep | SortMergeJoinStep | LookupJoinStep;
  const devices = join.op === 'lookupJoin' ? resources.devices.map(({ ordinal }) => ordinal) : join.devices;
  const gathers = SIDES.flatMap((side) => {
    const gathering = {
      side,
      rows,
      tableRows: request[side].rows,
      rowBytes: request[side].valueBytes,
      heldBytes: rows * rowBytes,
      columns,
    };
    const steps = made.filter(({ column }) => columns[column]!.side === side);
    const bytes = (of: readonly number[], devices: number): number => deviceBytes.gather(side, of, rows, devices);
    return gatherStep(gathering, steps, devices, bytes, resources) ?? [];
  });
  const gathered = new Set(gathers.flatMap(({ step }) => step.columns));
  const taking = takingSteps(result, found, rowBytes, resources.threads);
  plan.steps = [...joins, ...taking, ...gathers.map(({ step }) => step), ...made.filter(({ column }) => !gathered.has(column))];
  plan.deviceBytes = Math.max(plan.deviceBytes, ...gathers.map(({ deviceBytes }) => deviceBytes));
}

const AFTER_JOIN: readonly Step['op'][] = ['orderRows', 'sliceRows', 'column', 'gather'];

interface Context {
  request: JoinRequestShape;
  buildLeft: boolean;
  /** Host memory of the rows that there surely are, and of those to expect. */
  leastRowsBytes: number;
  rowsBytes: number;
  deviceBytes: JoinDeviceBytes;
  resources: Resources;
}

function choose(context: Context): JoinPlan {
  const { algorithm } = context.request;
  if (algorithm === 'sort-merge') return { ...mergeJoin(context), reason: 'asked for' };
  if (algorithm !== 'auto') {
    const nothingSpills = algorithm === 'triton' && !onGpus(context.resources);
    return { ...hashJoin(context), reason: nothingSpills ? 'host devices have nothing to spill' : 'asked for' };
  }
  if (context.request.rowsAreKeysOf) return lookupJoin(context, context.request.rowsAreKeysOf);
  const [hash, noHash] = attempt(() => hashJoin(context));
  const [merge, noMerge] = attempt(() => mergeJoin(context));
  if (!hash) {
    if (!merge) throw noHash;
    return { ...merge, reason: `${hashName(context)} doesn't fit: ${noHash!.message}` };
  }
  if (!merge) return { ...hash, reason: `sort-merge doesn't fit: ${noMerge!.message}` };
  const [hashTime, mergeTime] = [milliseconds(hash.steps), milliseconds(merge.steps)];
  const reason = `cheapest: ${hash.algorithm} ${hashTime.toFixed(1)} ms, sort-merge ${mergeTime.toFixed(1)} ms`;
  return { ...(hashTime <= mergeTime ? hash : merge), reason };
}

/** The sides that a merge join takes as they are. An algorithm that was asked for sorts whatever it is given. */
const sidesInOrder = (request: JoinRequestShape): Side[] =>
  SIDES.filter((side) => request[side].sorted && request.sortAlgorithm === 'auto');
/** Host memory of the runs that a merge join needs. */
const runBytes = (request: JoinRequestShape): number =>
  SIDES.filter((side) => !sidesInOrder(request).includes(side)).reduce(
    (bytes, side) => bytes + hostBlocks(request[side].tuples, request[side].keyBytes, request[side].valueBytes),
    0,
  );
const bytesOf = ({ tuples, keyBytes, valueBytes }: Tuples): number => tuples * (keyBytes + valueBytes);
const sentBytes = ({ tuples, sentBytes }: JoinSideShape): number => tuples * sentBytes;
const onGpus = ({ devices }: Resources): boolean => devices.every(({ kind }) => kind === 'gpu');

/** Nothing else takes less: every row of the other side is read once, whatever the devices. */
function lookupJoin({ request, leastRowsBytes, resources }: Context, side: Side): JoinPlan {
  const { left, right, how, rowBytes, countOnly } = request;
  const probe = side === 'left' ? right : left;
  const out = countOnly ? 0 : expectedRows(how, left.rows, right.rows);
  const bytes = probe.tuples * probe.keyBytes + out * rowBytes;
  const step: LookupJoinStep = {
    op: 'lookupJoin',
    label: `look up rows of ${side}`,
    estimate: {
      ...estimate(1, COSTS.sequential * probe.tuples + COSTS.emit * out, bytes, resources.threads),
      rows: probe.tuples,
    },
  };
  return {
    algorithm: 'lookup',
    reason: `the keys of ${side} are its row numbers`,
    chunksets: 1,
    rounds: 1,
    inOrder: [],
    hostBytes: leastRowsBytes,
    deviceBytes: 0,
    steps: [step],
  };
}

/** What a hash join is called: it spills on GPUs, unless it was asked for by the name of the one that does not. */
const hashName = ({ request, resources }: Context): 'radix-hash' | 'triton' =>
  onGpus(resources) && request.algorithm !== 'radix-hash' ? 'triton' : 'radix-hash';

function hashJoin(context: Context): JoinPlan {
  const { left, right, how, rowBytes } = context.request;
  const home = expectedRows(how, left.rows, right.rows) * rowBytes;
  const traffic = { there: sentBytes(left) + sentBytes(right), home };
  const plan = (on: Resources, why: string | null) => hashJoinOn({ ...context, resources: on }, traffic, why);
  return onBestSet(traffic, context.resources, plan, ({ rounds }) => rounds);
}

/**
 * What a hash join on GPUs should take: its links, and the passes over what they bring. Rows go home while the probe side comes and
 * what the GPUs can't keep leaves.
 */
function gpuHashEstimate(
  { left, right }: JoinRequestShape,
  { there, home }: Traffic,
  spill: HashJoinSpill,
  { devices, links }: Resources,
): Estimate {
  const { h2d, d2h, both } = transferSpeeds(devices, links);
  const rows = left.tuples + right.tuples;
  const passes = gpuPassSeconds(COSTS.gpuHashJoinPasses, there, devices.length);
  const overlapped = (to: number, from: number): number => Math.max(to / h2d, from / d2h, (to + from) / both);
  const spilledHome = rows > 0 ? (home * spill.rows) / rows : 0;
  const seconds = overlapped(there, spill.bytes + home - spilledHome) + overlapped(spill.bytes, spilledHome);
  return { rows, bytes: there + 2 * spill.bytes + home, milliseconds: (seconds + passes) * 1e3 };
}

/** What a hash join that gives `out` rows should take on host devices. */
function hostHashEstimate(
  left: Tuples,
  right: Tuples,
  buildLeft: boolean,
  out: number,
  rowBytes: number,
  threads: number,
): Estimate {
  const build = buildLeft ? left : right;
  const probe = buildLeft ? right : left;
  const tuples = left.tuples + right.tuples;
  // Two partitioning passes: over the devices, then into partitions of the size of the cache.
  const passes = 2;
  const nanoseconds =
    COSTS.partition * passes * tuples + COSTS.build * build.tuples + COSTS.probe * probe.tuples + COSTS.emit * out;
  const bytes = (2 * passes + 1) * (bytesOf(left) + bytesOf(right)) + out * rowBytes;
  return { ...estimate(1, nanoseconds, bytes, threads), rows: tuples };
}

/** What joining so many rows takes: keys go there, and two row numbers of each row come home. */
export function joinWork(how: JoinKind, leftRows: number, rightRows: number, countOnly: boolean, threads: number): Work {
  const [left, right] = [leftRows, rightRows].map((tuples): Tuples => ({ tuples, keyBytes: 8, valueBytes: 4 })) as [
    Tuples,
    Tuples,
  ];
  const out = countOnly ? 0 : expectedRows(how, leftRows, rightRows);
  const { milliseconds } = hostHashEstimate(left, right, leftRows <= rightRows, out, 8, threads);
  return { milliseconds, there: (leftRows + rightRows) * 8, home: out * 8 };
}

function hashJoinOn(context: Context, traffic: Traffic, devicesReason: string | null): JoinPlan {
  const { request, buildLeft, deviceBytes, resources } = context;
  const { left, right, how, rowBytes } = request;
  const count = resources.devices.length;
  const inputBytes =
    hostBlocks(left.tuples, left.keyBytes, left.valueBytes) + hostBlocks(right.tuples, right.keyBytes, right.valueBytes);
  const algorithm = hashName(context);
  const gpus = onGpus(resources);
  const mostRounds = algorithm === 'triton' ? MAX_ROUNDS : 1;
  // The rows to expect may be more than there are: they leave room for themselves if they can.
  const fewest = (rowsBytes: number) => fewestRounds(context, rowsBytes, inputBytes, mostRounds);
  const rounds = fewest(context.rowsBytes) ?? fewest(context.leastRowsBytes);
  if (rounds === null) {
    const hostBytes = context.leastRowsBytes + (mostRounds > 1 ? inputBytes : 0);
    const needed = deviceBytes.hash(count, buildLeft, mostRounds);
    const budget = deviceBudget(resources, hostBytes);
    if (mostRounds > 1) throw deviceLimitError(`A hash join in ${mostRounds} rounds`, needed, budget, resources);
    const remedy = gpus
      ? 'algorithm "triton" spills what the devices do not hold.'
      : 'algorithm "sort-merge" takes less at a time.';
    const name = request.algorithm === 'triton' ? 'A Triton join' : 'A radix-hash join';
    throw deviceLimitError(name, needed, budget, resources, request.algorithm === 'auto' ? '' : remedy);
  }
  const spill = deviceBytes.spill(count, buildLeft, rounds);
  const hostBytes = context.leastRowsBytes + spill.hostBytes;
  if (rounds > 1) checkHostBytes('A hash join that spills', hostBytes, resources);
  const join: HashJoinStep = {
    op: 'hashJoin',
    label: `hash join, build ${buildLeft ? 'left' : 'right'}`,
    buildLeft,
    eitherSide: request.buildSide === 'auto',
    devices: resources.devices.map((device) => device.ordinal),
    devicesReason,
    rounds,
    partitions: 0,
    ...(gpus && { traffic: { there: traffic.there + spill.bytes, home: traffic.home + spill.bytes } }),
    estimate: gpus
      ? gpuHashEstimate(request, traffic, spill, resources)
      : hostHashEstimate(left, right, buildLeft, expectedRows(how, left.rows, right.rows), rowBytes, resources.threads),
  };
  return {
    algorithm,
    reason: '',
    chunksets: rounds,
    rounds,
    inOrder: [],
    hostBytes,
    deviceBytes: deviceBytes.hash(count, buildLeft, rounds),
    steps: [join],
  };
}

/** The fewest rounds of a hash join that fit the devices, with so many bytes of rows on the host; null where no number up to `most` does. */
function fewestRounds(
  { buildLeft, deviceBytes, resources }: Context,
  rowsBytes: number,
  inputBytes: number,
  most: number,
): number | null {
  for (let rounds = 1; rounds <= most; rounds *= 2) {
    const budget = deviceBudget(resources, rowsBytes + (rounds > 1 ? inputBytes : 0));
    if (deviceBytes.hash(resources.devices.length, buildLeft, rounds) <= budget) return rounds;
  }
  return null;
}

/** In the joint memory of the devices where that is possible and sooner. */
function mergeJoin(context: Context): JoinPlan {
  const [joint] = attempt(() => sortMergeJoin(context));
  if (!joint) return sortedRuns(context);
  const [runs] = attempt(() => sortedRuns(context));
  return runs && milliseconds(runs.steps) < milliseconds(joint.steps) ? runs : joint;
}

/** Null where devices don't read each other's memory, or an algorithm is asked for that sorts runs. */
function sortMergeJoin(context: Context): JoinPlan | null {
  const { request, resources } = context;
  const { left, right, sortAlgorithm } = request;
  if (!prefersSample(sortAlgorithm, resources.devices) || !readEachOther(resources.devices)) return null;
  const homeBytes = left.tuples * left.homeBytes + right.tuples * right.homeBytes;
  checkHostBytes('The sides of a sort-merge join', homeBytes, resources);
  const traffic = { there: sentBytes(left) + sentBytes(right), home: homeBytes + rangeBytes(request) };
  const join = (on: Resources, why: string | null) => sortMergeJoinOn({ ...context, resources: on }, traffic, why);
  const { step, deviceBytes } = onBestSet(traffic, resources, join, () => 1);
  return {
    algorithm: 'sort-merge',
    reason: '',
    chunksets: 1,
    rounds: 1,
    inOrder: [],
    hostBytes: homeBytes,
    deviceBytes,
    steps: [step],
  };
}

function sortMergeJoinOn(
  { request, buildLeft, deviceBytes, resources }: Context,
  traffic: Traffic,
  devicesReason: string | null,
): { step: SortMergeJoinStep; deviceBytes: number } {
  const bytes = deviceBytes.sortMergeJoin(resources.devices.length);
  const budget = deviceBudget(resources, 0);
  if (bytes > budget) throw deviceLimitError('A sort-merge join in joint memory', bytes, budget, resources);
  const { there, home } = traffic;
  const { h2d, d2h } = transferSpeeds(resources.devices, resources.links);
  const written = writtenRows(request, resources.threads);
  // While one range is sorted and matched, another goes home.
  const sorted = gpuPassSeconds(request.left.keyBytes + COSTS.gpuMergeJoinPasses, there, resources.devices.length);
  const estimate = {
    rows: request.left.tuples + request.right.tuples,
    bytes: there + home + written.bytes,
    milliseconds: (there / h2d + Math.max(sorted, home / d2h)) * 1e3 + written.milliseconds,
  };
  const devices = resources.devices.map((device) => device.ordinal);
  const what = { op: 'sortMergeJoin', label: 'sort-merge join', traffic } as const;
  return { step: { ...what, buildLeft, devices, devicesReason, estimate }, deviceBytes: bytes };
}

/** Of match ranges on their way home, where every key is there once. Those that are only counted stay on the GPUs. */
const rangeBytes = ({ left, right, countOnly }: JoinRequestShape): number =>
  countOnly ? 0 : Math.min(left.tuples, right.tuples) * MATCH_RANGE_BYTES;

/** Host memory of the match ranges: a block for each part. Host devices keep those that are only counted, too. */
function rangeBlocks(request: JoinRequestShape, { devices }: Resources, subpartitions: number): number {
  const hosts = devices.filter(({ kind }) => kind === 'host').length;
  if (hosts === 0) return hostBlock(rangeBytes(request));
  const parts = hosts * subpartitions;
  return parts * hostBlock(Math.ceil(rangeBytes({ ...request, countOnly: false }) / parts));
}

/** The host's threads write the rows of a merge join, from its match ranges. */
function writtenRows(request: JoinRequestShape, threads: number): Estimate {
  const { left, right, how, rowBytes, countOnly } = request;
  const out = countOnly ? 0 : expectedRows(how, left.rows, right.rows);
  return estimate(out, COSTS.emit, rangeBytes(request) + out * rowBytes, threads);
}

/** Sorts the sides into runs, unless they are in order, and merges these. */
function sortedRuns(context: Context): JoinPlan {
  const { request, leastRowsBytes, deviceBytes, resources } = context;
  const { left, right } = request;
  const inOrder = sidesInOrder(request);
  const runs = runBytes(request);
  let heldBytes = 0;
  const sorts = SIDES.filter((side) => !inOrder.includes(side)).map((side) => {
    const sorted = sortSteps(request[side], side, request.sortAlgorithm, heldBytes, deviceBytes.sort, resources);
    heldBytes += hostBlocks(request[side].tuples, request[side].keyBytes, request[side].valueBytes);
    return sorted;
  });
  const hostBytesOf = (subpartitions: number): number => runs + rangeBlocks(request, resources, subpartitions) + leastRowsBytes;
  const check = (subpartitions: number): void =>
    checkHostBytes('Sorting and merging the sides of a join', hostBytesOf(subpartitions), resources);
  check(MIN_SUBPARTITIONS);
  const keyBytes = left.tuples * left.keyBytes + right.tuples * right.keyBytes;
  const traffic = { there: keyBytes, home: rangeBytes(request) };
  const match = (on: Resources, why: string | null) => matchSorted({ ...context, resources: on }, traffic, why);
  const matched = onBestSet(traffic, resources, match, () => 1);
  const { subpartitions } = matched.step;
  check(subpartitions);
  return {
    algorithm: 'sort-merge',
    reason: '',
    chunksets: Math.max(1, ...sorts.map(({ chunksets }) => chunksets)),
    rounds: 1,
    inOrder,
    hostBytes: Math.max(hostBytesOf(subpartitions), ...sorts.map((sorted) => sorted.hostBytes)),
    deviceBytes: Math.max(matched.deviceBytes, ...sorts.map(({ deviceBytes }) => deviceBytes)),
    steps: [...sorts.flatMap(({ steps }) => steps), matched.step],
  };
}

/** What a merge join on GPUs should take: keys go there while ranges come home; then the host's threads write the rows. */
function gpuMergeEstimate(request: JoinRequestShape, traffic: Traffic, resources: Resources): Estimate {
  const { left, right } = request;
  const { there, home } = traffic;
  const { h2d, d2h, both } = transferSpeeds(resources.devices, resources.links);
  const seconds = Math.max(there / h2d, home / d2h, (there + home) / both);
  const written = writtenRows(request, resources.threads);
  const bytes = there + home + written.bytes;
  return { rows: left.tuples + right.tuples, bytes, milliseconds: seconds * 1e3 + written.milliseconds };
}

function matchSorted(
  { request, buildLeft, deviceBytes, resources }: Context,
  traffic: Traffic,
  devicesReason: string | null,
): { step: MergeJoinStep; deviceBytes: number } {
  const { left, right, how, rowBytes } = request;
  const count = resources.devices.length;
  const inputBytes = bytesOf(left) + bytesOf(right);
  const budget = deviceBudget(resources, runBytes(request) + rangeBlocks(request, resources, MIN_SUBPARTITIONS));
  let subpartitions = MIN_SUBPARTITIONS;
  while (deviceBytes.mergeJoin(count, subpartitions) > budget) {
    if (subpartitions >= MAX_SUBPARTITIONS) {
      throw deviceLimitError(
        `A merge join in ${subpartitions} subpartitions`,
        deviceBytes.mergeJoin(count, subpartitions),
        budget,
        resources,
      );
    }
    subpartitions *= 2;
  }
  const out = expectedRows(how, left.rows, right.rows);
  const tuples = left.tuples + right.tuples;
  const nanoseconds = COSTS.matchRanges * tuples + COSTS.emit * out;
  const step: MergeJoinStep = {
    op: 'mergeJoin',
    label: 'merge join',
    buildLeft,
    devices: resources.devices.map((device) => device.ordinal),
    devicesReason,
    subpartitions,
    estimate: onGpus(resources)
      ? gpuMergeEstimate(request, traffic, resources)
      : { ...estimate(1, nanoseconds, inputBytes + out * rowBytes, resources.threads), rows: tuples },
  };
  return { step, deviceBytes: deviceBytes.mergeJoin(count, subpartitions) };
}

/** The plan instead of `hash`, which ran out of device memory: one key has too many tuples, which sort-merge can split. */
export function planWithoutHash(
  request: JoinRequestShape,
  deviceBytes: JoinDeviceBytes,
  resources: Resources,
  hash: JoinPlan,
  why: string,
): JoinPlan {
  return {
    ...planJoin({ ...request, algorithm: 'sort-merge' }, deviceBytes, resources),
    reason: `${hash.algorithm} doesn't fit: ${why}`,
  };
}

/**
 * Plans a cross join of `left` times `right` rows, of which only those of the result are made. Throws ERR_MEMORY_LIMIT, naming the
 * limit, where it can't fit.
 */
export function planCrossJoin(
  left: number,
  right: number,
  columns: readonly PlannedColumn[],
  result: ResultRows,
  resources: Resources,
): JoinPlan {
  const rows = rowsTaken(result, left * right);
  const numberBytes = (count: number): number => (count < 2 ** 32 - 1 ? 4 : 8);
  const rowBytes = numberBytes(left) + numberBytes(right);
  const hostBytes = rows * rowBytes + resultBytes(rows, columns);
  checkHostBytes(
    `${rows < left * right ? `${rows} rows of a` : 'A'} cross join of ${left} and ${right} rows`,
    hostBytes,
    resources,
    JOIN_IN_BATCHES,
  );
  const join: CrossJoinStep = {
    op: 'crossJoin',
    label: 'cross join',
    estimate: estimate(rows, COSTS.emit, rows * rowBytes, resources.threads),
  };
  return {
    algorithm: 'cross',
    reason: 'asked for',
    chunksets: 1,
    rounds: 1,
    inOrder: [],
    hostBytes,
    deviceBytes: 0,
    steps: [join, ...columns.map((column, index) => columnStep(column, index, rows, resources.threads))],
  };
}
