/** Plans of sorts: which algorithm, how many chunksets. */
import type { DeviceDescription } from '../native.js';
import type { SortAlgorithm, SortAlgorithmChoice } from '../options.js';
import { COSTS, estimate, gatherEstimate, gpuPassSeconds, milliseconds } from './costs.js';
import { onBestSet, transferSpeeds } from './device-set.js';
import { type GatherDeviceBytes, gatherStep } from './gather.js';
import { checkHostBytes, columnBlocks, HostUse, hostBlock, hostBlocks, SORT_IN_BATCHES } from './memory.js';
import type { Work } from './placement.js';
import {
  attempt,
  type BringHomeStep,
  type ColumnOrigin,
  type ColumnStep,
  type CopyStep,
  type CutStep,
  chunksetEnds,
  deviceBudget,
  type Estimate,
  evenEnds,
  type GatherStep,
  isHandedOver,
  MAX_CHUNKSETS,
  type MergeStep,
  type Plan,
  type PlannedColumn,
  type RefineStep,
  type ResidentSortStep,
  type Resources,
  type SortStep,
  type TopStep,
} from './plan.js';

/** Tuples to sort, as the data plane describes them. */
export interface Tuples {
  tuples: number;
  keyBytes: number;
  valueBytes: number;
}

/** Device memory that sorting a chunkset takes, on each device. */
export type SortDeviceBytes = (
  shape: Tuples,
  tuples: number,
  devices: number,
  algorithm: SortAlgorithm,
  severalChunksets: boolean,
) => number;

export interface SortRequest extends Tuples {
  /** Whether ties of the first key word need a second look. */
  refine: boolean;
  columns: readonly PlannedColumn[];
  algorithm: SortAlgorithmChoice;
  /** Whether the rows are in order already. */
  sorted: boolean;
  /** Host memory of the keys, which are freed once the run is there and columns have been decoded. */
  encodedBytes: number;
  /** Whether all but sample sorts need a flipped copy of the keys. */
  flips: boolean;
  /** Rows of the order that are kept; left out: all. */
  rows?: RowRange;
}

/** Rows [begin, end) of an order. */
export interface RowRange {
  begin: number;
  end: number;
}

/** The rows that are left of `rows`. */
export function rowRange(rows: number, offset: number, limit: number): RowRange {
  const begin = Math.min(rows, offset);
  return { begin, end: begin + Math.min(limit, rows - begin) };
}

const tupleBytes = ({ keyBytes, valueBytes }: Tuples): number => keyBytes + valueBytes;

/** What each algorithm should take: all sort; then a merge sort merges between devices, the others partition first. */
export function sortNanoseconds(keyBytes: number, devices: number, algorithm: SortAlgorithm): number {
  if (algorithm === 'sample') return COSTS.radixPass * keyBytes + COSTS.partitionRanges + COSTS.sequential;
  const between = algorithm === 'merge' ? COSTS.mergeLevel * Math.ceil(Math.log2(devices)) : COSTS.partition;
  return COSTS.radixPass * keyBytes + (devices > 1 ? between : 0);
}

/** What is to come into order, and what with. */
interface Sorting {
  relation: Tuples;
  side: SortStep['side'];
  /** Host memory that is in use meanwhile. */
  heldBytes: number;
  /** Whether all but sample sorts need a flipped copy of the keys. */
  flips: boolean;
  deviceBytes: SortDeviceBytes;
  resources: Resources;
}

/** How one relation's tuples come into order. */
interface SortSteps {
  steps: (SortStep | MergeStep)[];
  algorithm: SortAlgorithm;
  /** Why this algorithm. */
  reason: string;
  chunksets: number;
  /** Host memory, with the run. */
  hostBytes: number;
  /** Memory on each device. */
  deviceBytes: number;
}

/** Whether a sample sort is what runs, if it fits: where tuples cross a link, only it works on them meanwhile. */
export function prefersSample(choice: SortAlgorithmChoice, devices: readonly DeviceDescription[]): boolean {
  return choice === 'sample' || (choice === 'auto' && devices.every(({ kind }) => kind === 'gpu'));
}

/**
 * The steps that bring one relation's tuples into order: sort chunksets, then merge the runs if there are several. For
 * 'auto' the cheapest of the algorithms that fit. `heldBytes` of host memory are in use meanwhile. Throws ERR_MEMORY_LIMIT,
 * naming the limit, where none fits.
 */
export function sortSteps(
  relation: Tuples,
  side: SortStep['side'],
  choice: SortAlgorithmChoice,
  heldBytes: number,
  deviceBytes: SortDeviceBytes,
  resources: Resources,
  flips = false,
): SortSteps {
  const sorting = { relation, side, heldBytes, flips, deviceBytes, resources };
  const steps = (algorithm: SortAlgorithm) => stepsOnBestSet(sorting, algorithm);
  if (choice !== 'auto') return { ...steps(choice), reason: 'asked for' };
  if (prefersSample(choice, resources.devices)) {
    // It takes the least memory, too.
    const [sample] = attempt(() => steps('sample'));
    if (sample) return { ...sample, reason: 'GPUs: partitions what arrives, sends home what is sorted' };
  }
  const tried = (['merge', 'radix'] as const).map((algorithm) => attempt(() => steps(algorithm)));
  const [merge, radix] = [tried[0]![0], tried[1]![0]];
  // One device has nothing to exchange; and a partition needs working memory that a tight limit may not leave.
  if (merge && resources.devices.length === 1) return { ...merge, reason: 'one device: nothing to exchange' };
  if (merge && radix) {
    const [mergeMs, radixMs] = [milliseconds(merge.steps), milliseconds(radix.steps)];
    const reason = `cheapest: merge ${mergeMs.toFixed(1)} ms, radix ${radixMs.toFixed(1)} ms`;
    return { ...(radixMs < mergeMs ? radix : merge), reason };
  }
  const fitting = merge ?? radix ?? attempt(() => steps('sample'))[0];
  if (!fitting) throw tried[0]![1];
  return { ...fitting, reason: 'the only one that fits the memory limits' };
}

/** What sorting so many rows takes, keys and row numbers. */
export function sortWork(rows: number, threads: number): Work {
  const bytes = rows * 12;
  const { milliseconds } = estimate(rows, sortNanoseconds(8, 1, 'merge'), 2 * bytes * 8, threads);
  return { milliseconds, there: bytes, home: bytes };
}

function stepsOnBestSet(sorting: Sorting, algorithm: SortAlgorithm): Omit<SortSteps, 'reason'> {
  const bytes = sorting.relation.tuples * tupleBytes(sorting.relation);
  return onBestSet(
    { there: bytes, home: bytes },
    sorting.resources,
    (on, why) => stepsOf({ ...sorting, resources: on }, algorithm, why),
    ({ chunksets }) => chunksets,
  );
}

/**
 * What sorting `chunksets` on GPUs should take. A sample sort hides all but the way there and back; where it spills, all bytes
 * go both ways twice, at the same time. The others sort on their own, while nothing crosses a link.
 */
function gpuEstimate(
  relation: Tuples,
  algorithm: SortAlgorithm,
  chunksets: number,
  spill: boolean,
  { devices, links }: Resources,
): Estimate {
  const rows = relation.tuples;
  const bytes = rows * tupleBytes(relation);
  const { h2d, d2h, both } = transferSpeeds(devices, links);
  const of = (seconds: number): Estimate => ({ rows, bytes: 2 * bytes * (spill ? 2 : 1), milliseconds: seconds * 1e3 });
  if (spill) return of((2 * 2 * bytes) / both);
  if (algorithm === 'sample') return of(bytes / h2d + bytes / d2h);
  const overlapped = (2 * bytes * (1 - 1 / chunksets)) / both;
  const passes = relation.keyBytes + (devices.length > 1 ? 1 : 0);
  const sorting = gpuPassSeconds(passes, bytes, devices.length);
  return of(bytes / chunksets / h2d + overlapped + bytes / chunksets / d2h + sorting);
}

function stepsOf(sorting: Sorting, algorithm: SortAlgorithm, devicesReason: string | null): Omit<SortSteps, 'reason'> {
  const { relation, side, resources } = sorting;
  const { tuples, keyBytes } = relation;
  const ordinals = resources.devices.map((device) => device.ordinal);
  const onGpus = resources.devices.every(({ kind }) => kind === 'gpu');
  const runBytes = tuples * tupleBytes(relation);
  const { ends, largest, deviceBytes, merging, spilling } = chunksetsThatFit(sorting, algorithm);
  const of = side ? ` ${side}` : '';
  const sort = (spill: boolean): SortStep => ({
    op: 'sort',
    label: `sort${of}`,
    side,
    algorithm,
    devices: ordinals,
    devicesReason,
    chunksetEnds: ends,
    spill,
    estimate: onGpus
      ? gpuEstimate(relation, algorithm, ends.length, spill, resources)
      : estimate(
          tuples,
          sortNanoseconds(keyBytes, resources.devices.length, algorithm),
          2 * runBytes * keyBytes,
          resources.threads,
        ),
  });
  const levels = Math.ceil(Math.log2(ends.length));
  const merge: MergeStep = {
    op: 'merge',
    label: `merge runs${of}`,
    side,
    estimate: estimate(tuples, COSTS.mergeLevel * levels, 2 * runBytes, resources.threads),
  };
  interface Way {
    steps: SortSteps['steps'];
    hostBytes: number;
  }
  const merged: Way = { steps: ends.length > 1 ? [sort(false), merge] : [sort(false)], hostBytes: merging };
  const spills = algorithm === 'sample' && ends.length > 1 && resources.sortSpills(tuples, largest, ordinals);
  const ways = [merged, ...(spills ? [{ steps: [sort(true)], hostBytes: spilling }] : [])];
  const fitting = ways.filter(({ hostBytes }) => hostBytes <= resources.freeBytes);
  if (fitting.length === 0)
    checkHostBytes(`Sorting ${tuples} tuples`, Math.min(...ways.map((way) => way.hostBytes)), resources, SORT_IN_BATCHES);
  const best = fitting.reduce((best, way) => (milliseconds(way.steps) < milliseconds(best.steps) ? way : best));
  return { steps: best.steps, algorithm, chunksets: ends.length, hostBytes: best.hostBytes, deviceBytes };
}

/** How a relation is cut for the devices, and the host memory that it takes to bring it into order. */
interface Chunksets {
  ends: number[];
  largest: number;
  deviceBytes: number;
  /** Of runs that are merged if there are several, and of one that is spilled. */
  merging: number;
  spilling: number;
}

/** The fewest chunksets that fit the devices, and the host where its memory is the devices'. */
function chunksetsThatFit(sorting: Sorting, algorithm: SortAlgorithm): Chunksets {
  const { relation, heldBytes, flips, deviceBytes, resources } = sorting;
  const { tuples, keyBytes, valueBytes } = relation;
  const count = resources.devices.length;
  const hosts = resources.devices.filter(({ kind }) => kind === 'host').length;
  const bytesOf = (size: number, several: boolean): number => deviceBytes(relation, size, count, algorithm, several);
  const flipped = flips && algorithm !== 'sample' ? hostBlock(tuples * keyBytes) : 0;
  const run = hostBlocks(tuples, keyBytes, valueBytes);
  const cut = (ends: number[]): Chunksets & { sorting: number } => {
    const sizes = ends.map((end, index) => end - (ends[index - 1] ?? 0));
    const several = ends.length > 1;
    const largest = Math.max(...sizes);
    const onDevice = bytesOf(largest, several);
    const runs = sizes.reduce((bytes, size) => bytes + hostBlocks(size, keyBytes, valueBytes), 0);
    const sorted = heldBytes + flipped + runs + hosts * hostBlock(onDevice);
    const scratch = several ? run + hostBlock(resources.mergeScratchBytes(keyBytes, valueBytes, tuples, ends.length)) : 0;
    const merging = Math.max(sorted, heldBytes + runs + scratch);
    return { ends, largest, deviceBytes: onDevice, sorting: sorted, merging, spilling: heldBytes + 2 * run };
  };
  checkHostBytes(`Sorting ${tuples} tuples`, heldBytes + flipped + run, resources, SORT_IN_BATCHES);
  const budget = deviceBudget(resources, heldBytes + flipped + run);
  let chunksets = cut(chunksetEnds(tuples, budget, bytesOf, resources));
  // Blocks are rounded up: one chunkset more may be what lets them fit.
  for (let more = chunksets.ends.length + 1; hosts > 0 && chunksets.sorting > resources.freeBytes; more++) {
    if (more > Math.min(MAX_CHUNKSETS, tuples, chunksets.ends.length + 16)) break;
    const next = cut(evenEnds(tuples, more));
    if (next.sorting <= resources.freeBytes) chunksets = next;
  }
  return chunksets;
}

const HOW: Record<ColumnOrigin, string> = {
  keys: 'the keys',
  payload: 'carried along',
  decoded: 'decode keys',
  gathered: 'gather',
  coalesced: 'gather both keys',
};

/** The step that makes one result column of `rows` rows, of a table of `tableRows`. */
export function columnStep(
  column: PlannedColumn,
  index: number,
  rows: number,
  threads: number,
  tableRows: number = rows,
): ColumnStep {
  const { name, from, width, scratchBytes } = column;
  const made = (): Estimate => {
    if (isHandedOver(column)) return estimate(rows, 0, 0, threads);
    if (from === 'decoded') return estimate(rows, COSTS.sequential, 2 * rows * width, threads);
    const gathered = gatherEstimate(rows, tableRows, width, threads);
    if (!scratchBytes) return gathered;
    const { milliseconds } = estimate(rows, 0, 2 * scratchBytes, threads);
    return { ...gathered, milliseconds: gathered.milliseconds + milliseconds };
  };
  const how = scratchBytes ? `${HOW[from]} in one type` : HOW[from];
  return { op: 'column', label: `column ${name} (${how})`, column: index, from, estimate: made() };
}

export type SortPlanStep =
  | SortStep
  | CopyStep
  | TopStep
  | CutStep
  | MergeStep
  | RefineStep
  | ColumnStep
  | GatherStep
  | ResidentSortStep
  | BringHomeStep;
export type SortPlan = Plan<SortPlanStep>;

/** In place of sorting: a copy of tuples that are in order already. */
function copySteps(relation: Tuples, { threads }: Resources) {
  const { tuples } = relation;
  const copied = estimate(tuples, COSTS.sequential, 2 * tuples * tupleBytes(relation), threads);
  const steps: (SortStep | CopyStep | MergeStep)[] = [{ op: 'copy', label: 'copy', estimate: copied }];
  const hostBytes = hostBlocks(tuples, relation.keyBytes, relation.valueBytes);
  return { steps, algorithm: 'none', reason: 'the rows are in order already', chunksets: 1, hostBytes, deviceBytes: 0 };
}

/** Host memory of making the columns of `rows` sorted rows: decoded ones first; then keys go, and the others are made. */
function columnsHostBytes({ keyBytes, valueBytes, columns, encodedBytes }: SortRequest, rows: number): number {
  const use = new HostUse().add(hostBlocks(rows, keyBytes, valueBytes));
  for (const column of columns) if (column.from === 'decoded') use.add(columnBlocks(rows, column));
  use.add(-encodedBytes);
  if (columns.every(({ from }) => from !== 'keys')) use.add(-hostBlocks(rows, keyBytes));
  for (const column of columns) if (column.from === 'gathered') use.add(columnBlocks(rows, column));
  return use.most;
}

/** Whether some rows are few enough among all to be found without a sort of all. */
export function prefersTop(rows: number, { begin, end }: RowRange, choice: SortAlgorithmChoice): boolean {
  const FEW = 4096;
  const SHARE = 8;
  if (choice !== 'auto' || end - begin === rows) return false;
  return begin === end || (end < rows && (end <= FEW || end * SHARE <= rows));
}

/** A sort of which few rows are kept. */
export interface TopRequest {
  /** Of the table. */
  tuples: number;
  rows: RowRange;
  columns: readonly PlannedColumn[];
  /** Host memory of finding the rows. */
  topBytes: number;
}

/** Plans a sort of which few rows are kept. Throws ERR_MEMORY_LIMIT, naming the limit, where it can't fit. */
export function planTop({ tuples, rows: { begin, end }, columns, topBytes }: TopRequest, resources: Resources): SortPlan {
  const rows = end - begin;
  const rowBytes = tuples < 2 ** 32 - 1 ? 4 : 8;
  const made = columns.map((column) => columnBlocks(rows, column));
  const hostBytes = Math.max(topBytes, hostBlocks(rows, rowBytes) + made.reduce((sum, bytes) => sum + bytes, 0));
  checkHostBytes(`The first ${end} of ${tuples} rows`, hostBytes, resources);
  const top: TopStep = {
    op: 'top',
    label: 'first rows',
    skip: begin,
    count: rows,
    estimate: estimate(tuples, COSTS.encode, 2 * tuples * 8, resources.threads),
  };
  return {
    algorithm: 'top',
    reason: `${end} of ${tuples} rows are found in one pass`,
    chunksets: 1,
    rounds: 1,
    inOrder: [],
    hostBytes,
    deviceBytes: 0,
    steps: [top, ...columns.map((column, index) => columnStep(column, index, rows, resources.threads, tuples))],
  };
}

/**
 * Plans a sort; without `gatherBytes` the host gathers all columns. Throws ERR_MEMORY_LIMIT, naming the limit, where it can't
 * fit.
 */
export function planSort(
  request: SortRequest,
  deviceBytes: SortDeviceBytes,
  resources: Resources,
  gatherBytes: GatherDeviceBytes | null = null,
): SortPlan {
  const { tuples, columns } = request;
  const range = request.rows ?? { begin: 0, end: tuples };
  const rows = range.end - range.begin;
  const runBytes = tuples * tupleBytes(request);
  // An algorithm that was asked for sorts whatever it is given.
  const inOrder = request.sorted && request.algorithm === 'auto';
  const sorted = inOrder
    ? copySteps(request, resources)
    : sortSteps(request, null, request.algorithm, 0, deviceBytes, resources, request.flips);
  const hostBytes = Math.max(sorted.hostBytes, columnsHostBytes(request, rows));
  checkHostBytes(`Sorting ${tuples} rows`, hostBytes, resources, SORT_IN_BATCHES);
  const steps: SortPlan['steps'] = [...sorted.steps];
  if (request.refine) {
    steps.push({
      op: 'refine',
      label: 'refine ties',
      estimate: estimate(tuples, COSTS.gather, 2 * runBytes, resources.threads),
    });
  }
  if (rows < tuples) {
    const bytes = range.begin > 0 ? 2 * rows * tupleBytes(request) : 0;
    steps.push({ op: 'cut', label: 'cut', ...range, estimate: estimate(rows, 0, bytes, resources.threads) });
  }
  // Once the keys are decoded they can go, before the other columns take memory.
  const made = columns.map((column, index) => columnStep(column, index, rows, resources.threads, tuples));
  const ordinals = sorted.steps.flatMap((step) => (step.op === 'sort' ? step.devices : []));
  const heldBytes = rows * tupleBytes(request);
  const gathering = { side: null, rows, tableRows: tuples, rowBytes: request.valueBytes, heldBytes, columns };
  // Rows in order are read in order: the host's threads need no help.
  const gather = gatherBytes && !inOrder ? gatherStep(gathering, made, ordinals, gatherBytes, resources) : null;
  steps.push(...made.filter((step) => step.from === 'decoded'), ...(gather ? [gather.step] : []));
  steps.push(...made.filter((step) => step.from !== 'decoded' && !gather?.step.columns.includes(step.column)));
  return {
    algorithm: sorted.algorithm,
    reason: sorted.reason,
    chunksets: sorted.chunksets,
    rounds: 1,
    inOrder: inOrder ? ['input'] : [],
    hostBytes,
    deviceBytes: Math.max(sorted.deviceBytes, gather?.deviceBytes ?? 0),
    steps,
  };
}
