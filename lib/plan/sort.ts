/** Plans of sorts: which algorithm, how many chunksets. */
import type { DeviceDescription } from '../native.js';
import type { SortAlgorithm, SortAlgorithmChoice } from '../options.js';
import { COSTS, estimate, gatherEstimate, gpuPassSeconds, milliseconds } from './costs.js';
import { onBestSet, transferSpeeds } from './device-set.js';
import { type GatherDeviceBytes, gatherStep } from './gather.js';
import type { Work } from './placement.js';
import {
  attempt,
  type BringHomeStep,
  type ColumnOrigin,
  type ColumnStep,
  type CopyStep,
  checkHostBytes,
  chunksetEnds,
  deviceBudget,
  type Estimate,
  type GatherStep,
  isHandedOver,
  type MergeStep,
  type Plan,
  type PlannedColumn,
  type RefineStep,
  type ResidentSortStep,
  type Resources,
  resultBytes,
  type SortStep,
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
  /** Device memory that there is for it. */
  budget: number;
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
  /** Memory on each device. */
  deviceBytes: number;
}

/** Whether a sample sort is what runs, if it fits: where tuples cross a link, only it works on them meanwhile. */
export function prefersSample(choice: SortAlgorithmChoice, devices: readonly DeviceDescription[]): boolean {
  return choice === 'sample' || (choice === 'auto' && devices.every(({ kind }) => kind === 'gpu'));
}

/**
 * The steps that bring one relation's tuples into order: sort chunksets, then merge the runs if there are several. For
 * 'auto' the cheaper of the algorithms that fit. Host memory: the runs, and while merging the merged run. `heldBytes` of
 * host memory are in use meanwhile.
 */
export function sortSteps(
  relation: Tuples,
  side: SortStep['side'],
  choice: SortAlgorithmChoice,
  heldBytes: number,
  deviceBytes: SortDeviceBytes,
  resources: Resources,
): SortSteps {
  const budget = deviceBudget(resources, heldBytes + relation.tuples * tupleBytes(relation));
  const sorting = { relation, side, budget, deviceBytes, resources };
  const steps = (algorithm: SortAlgorithm) => stepsOnBestSet(sorting, algorithm);
  if (choice !== 'auto') return { ...steps(choice), reason: 'asked for' };
  // It takes the least memory, too.
  const sample = prefersSample(choice, resources.devices) && attempt(() => steps('sample'))[0];
  if (sample) return { ...sample, reason: 'GPUs: partitions what arrives, sends home what is sorted' };
  const merge = steps('merge');
  // One device has nothing to exchange; and a partition needs working memory that a tight limit may not leave.
  if (resources.devices.length === 1) return { ...merge, reason: 'one device: nothing to exchange' };
  const [radix] = attempt(() => steps('radix'));
  if (!radix) return { ...merge, reason: 'the only one that fits the device memory limit' };
  const [mergeMs, radixMs] = [milliseconds(merge.steps), milliseconds(radix.steps)];
  const reason = `cheapest: merge ${mergeMs.toFixed(1)} ms, radix ${radixMs.toFixed(1)} ms`;
  return { ...(radixMs < mergeMs ? radix : merge), reason };
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
  const { relation, side, budget, deviceBytes, resources } = sorting;
  const { tuples, keyBytes } = relation;
  const count = resources.devices.length;
  const ordinals = resources.devices.map((device) => device.ordinal);
  const onGpus = resources.devices.every(({ kind }) => kind === 'gpu');
  const runBytes = tuples * tupleBytes(relation);
  const bytesOf = (size: number, several: boolean): number => deviceBytes(relation, size, count, algorithm, several);
  const ends = chunksetEnds(tuples, budget, bytesOf, resources);
  const largest = Math.max(...ends.map((end, index) => end - (ends[index - 1] ?? 0)));
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
      : estimate(tuples, sortNanoseconds(keyBytes, count, algorithm), 2 * runBytes * keyBytes, resources.threads),
  });
  const levels = Math.ceil(Math.log2(ends.length));
  const merge: MergeStep = {
    op: 'merge',
    label: `merge runs${of}`,
    side,
    estimate: estimate(tuples, COSTS.mergeLevel * levels, 2 * runBytes, resources.threads),
  };
  const spills = algorithm === 'sample' && ends.length > 1 && resources.sortSpills(tuples, largest, ordinals);
  const ways: SortSteps['steps'][] = [ends.length > 1 ? [sort(false), merge] : [sort(false)], ...(spills ? [[sort(true)]] : [])];
  const steps = ways.reduce((best, way) => (milliseconds(way) < milliseconds(best) ? way : best));
  return { steps, algorithm, chunksets: ends.length, deviceBytes: bytesOf(largest, ends.length > 1) };
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
  const { name, from, width } = column;
  const made = (): Estimate => {
    if (isHandedOver(column)) return estimate(rows, 0, 0, threads);
    if (from === 'decoded') return estimate(rows, COSTS.sequential, 2 * rows * width, threads);
    return gatherEstimate(rows, tableRows, width, threads);
  };
  return { op: 'column', label: `column ${name} (${HOW[from]})`, column: index, from, estimate: made() };
}

export type SortPlan = Plan<
  SortStep | CopyStep | MergeStep | RefineStep | ColumnStep | GatherStep | ResidentSortStep | BringHomeStep
>;

/** In place of sorting: a copy of tuples that are in order already. */
function copySteps(relation: Tuples, { threads }: Resources) {
  const { tuples } = relation;
  const copied = estimate(tuples, COSTS.sequential, 2 * tuples * tupleBytes(relation), threads);
  const steps: (SortStep | CopyStep | MergeStep)[] = [{ op: 'copy', label: 'copy', estimate: copied }];
  return { steps, algorithm: 'none', reason: 'the rows are in order already', chunksets: 1, deviceBytes: 0 };
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
  const runBytes = tuples * tupleBytes(request);
  const keptBytes = columns.some(({ from }) => from === 'keys') ? runBytes : tuples * request.valueBytes;
  const hostBytes = Math.max(runBytes, keptBytes + resultBytes(tuples, columns));
  checkHostBytes(`Sorting ${tuples} rows`, hostBytes, resources);
  // An algorithm that was asked for sorts whatever it is given.
  const inOrder = request.sorted && request.algorithm === 'auto';
  const sorted = inOrder ? copySteps(request, resources) : sortSteps(request, null, request.algorithm, 0, deviceBytes, resources);
  const steps: SortPlan['steps'] = [...sorted.steps];
  if (request.refine) {
    steps.push({
      op: 'refine',
      label: 'refine ties',
      estimate: estimate(tuples, COSTS.gather, 2 * runBytes, resources.threads),
    });
  }
  // Once the keys are decoded they can go, before the other columns take memory.
  const made = columns.map((column, index) => columnStep(column, index, tuples, resources.threads));
  const ordinals = sorted.steps.flatMap((step) => (step.op === 'sort' ? step.devices : []));
  const gathering = { side: null, rows: tuples, tableRows: tuples, rowBytes: request.valueBytes, heldBytes: runBytes, columns };
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
