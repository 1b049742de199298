/** A plan is plain data: what an operator will do, in order, and what that should take. */
import { WarpjoinError } from '../errors.js';
import type { DeviceDescription, LinkSpeeds, Side } from '../native.js';
import type { SortAlgorithm } from '../options.js';
import { formatBytes } from '../sizes.js';
import { madeBytes, wholeBlocks } from './memory.js';

export interface Estimate {
  rows: number;
  /** Bytes read plus bytes written. */
  bytes: number;
  milliseconds: number;
}

/** Bytes that cross the links: to the devices, and home. */
export interface Traffic {
  there: number;
  home: number;
}

interface StepOf<Op extends string> {
  op: Op;
  /** What it moves, of steps on GPUs that know it. */
  traffic?: Traffic;
  /** Names the step in explain(), progress and stats; distinct within a plan. */
  label: string;
  estimate: Estimate;
}

/** Sorts tuples [chunksetEnds[i-1], chunksetEnds[i]) into run i. `side` is null in a sort. */
export interface SortStep extends StepOf<'sort'> {
  side: Side | null;
  algorithm: SortAlgorithm;
  devices: number[];
  /** Why these of the engine's devices; null: there was nothing to choose. */
  devicesReason: string | null;
  chunksetEnds: number[];
  /** Sample sorts: whether several chunksets become one run, by way of host memory. */
  spill: boolean;
}
/** Makes the run of an input that is in order already. */
export interface CopyStep extends StepOf<'copy'> {}
/** Merges the runs of a side into one. */
export interface MergeStep extends StepOf<'merge'> {
  side: Side | null;
}
/** Finds rows [skip, skip + count) of the order, without a sort of all rows. */
export interface TopStep extends StepOf<'top'> {
  skip: number;
  count: number;
}
/** Keeps rows [begin, end) of a sorted run. */
export interface CutStep extends StepOf<'cut'> {
  begin: number;
  end: number;
}
/** Orders ties of the first key word. */
export interface RefineStep extends StepOf<'refine'> {}
export interface HashJoinStep extends StepOf<'hashJoin'> {
  buildLeft: boolean;
  /** With several rounds the other side may be the build side, where a sample says that keys of this one repeat. */
  eitherSide: boolean;
  devices: number[];
  /** As of a SortStep. */
  devicesReason: string | null;
  rounds: number;
  /** 0: by size. */
  partitions: number;
}
export interface MergeJoinStep extends StepOf<'mergeJoin'> {
  buildLeft: boolean;
  devices: number[];
  devicesReason: string | null;
  subpartitions: number;
}
/** Sorts both sides and merges them in the joint memory of the devices. */
export interface SortMergeJoinStep extends StepOf<'sortMergeJoin'> {
  buildLeft: boolean;
  devices: number[];
  devicesReason: string | null;
}
/** Joins by keys that are the row numbers of one side: each row of the other says which row it matches. */
export interface LookupJoinStep extends StepOf<'lookupJoin'> {}
export interface CrossJoinStep extends StepOf<'crossJoin'> {}
/** Orders the rows of a join by those of one side. */
export interface OrderRowsStep extends StepOf<'orderRows'> {
  side: Side;
}
/** Keeps some of the rows of a join. */
export interface SliceRowsStep extends StepOf<'sliceRows'> {
  offset: number;
  limit: number;
}
/** Finds the rows that are kept, one of each key. */
export interface UniqueRowsStep extends StepOf<'uniqueRows'> {
  keep: 'first' | 'last' | 'none';
}
/** Makes one result column. */
export interface ColumnStep extends StepOf<'column'> {
  /** Index among the result's columns. */
  column: number;
  from: ColumnOrigin;
}
/** Makes several columns of one table at a time by row number, in the joint memory of devices. */
export interface GatherStep extends StepOf<'gather'> {
  /** Of a join, whose rows these are; null in a sort. */
  side: Side | null;
  /** Indices among the result's columns. */
  columns: number[];
  devices: number[];
}
/** Joins loaded tables where they lie on the devices. */
export interface ResidentJoinStep extends StepOf<'residentJoin'> {}
/** Sorts a loaded table where it lies on the devices. */
export interface ResidentSortStep extends StepOf<'residentSort'> {}
/** Brings all columns of a result home from the devices. */
export interface BringHomeStep extends StepOf<'bringHome'> {}
/**
 * How a column is made: handed over with the rows, as their keys or as the payload that they carry; decoded from sorted
 * keys, or gathered where that is not exact; gathered by row number from one side, or from both.
 */
export type ColumnOrigin = 'keys' | 'payload' | 'decoded' | 'gathered' | 'coalesced';
export type Step =
  | SortStep
  | CopyStep
  | TopStep
  | CutStep
  | MergeStep
  | RefineStep
  | HashJoinStep
  | MergeJoinStep
  | SortMergeJoinStep
  | LookupJoinStep
  | CrossJoinStep
  | OrderRowsStep
  | SliceRowsStep
  | UniqueRowsStep
  | ColumnStep
  | GatherStep
  | ResidentJoinStep
  | ResidentSortStep
  | BringHomeStep;

/** An input as an order can be known of it: of a sort, or a side of a join. */
export type Ordered = 'input' | Side;

export interface Plan<S extends Step = Step> {
  algorithm: string;
  /** Why this algorithm. */
  reason: string;
  /** The most parts that an input goes through the devices in. */
  chunksets: number;
  rounds: number;
  /** Inputs that are in order already and need not be sorted. */
  inOrder: readonly Ordered[];
  /** Host memory that the plan takes at least, results included. */
  hostBytes: number;
  /** Memory that it takes on each device. */
  deviceBytes: number;
  steps: S[];
  /** Where one of the inputs is loaded: which are read where they lie on the devices, and why, or why not. */
  loaded?: { inputs: readonly string[]; reason: string } | undefined;
}

/** What there is to plan with. */
export interface Resources {
  devices: readonly DeviceDescription[];
  threads: number;
  memoryLimitBytes: number;
  /** What of the memory limit is not in use. */
  freeBytes: number;
  /** Speeds of the links, to choose devices by; or why they are not known; null where there is nothing to choose. */
  links: LinkSpeeds | string | null;
  /** Whether a sample sort on these devices can make one run of several chunksets. */
  sortSpills: (tuples: number, largestChunkset: number, devices: number[]) => boolean;
  /** Host memory of merging runs, beside them and the merged one. */
  mergeScratchBytes: (keyBytes: number, valueBytes: number, tuples: number, runs: number) => number;
}

/** A column of the result, as far as plans care. */
export interface PlannedColumn {
  name: string;
  from: ColumnOrigin;
  /** Bytes a value, at least: variable-width values count with their offsets. */
  width: number;
  /** Whether the result has validity bits. */
  nullable?: boolean;
  /** Bytes of all texts, where the result has each once. */
  textBytes?: number;
  /** Host memory that it takes while it is made, at least: columns that become another type first. */
  scratchBytes?: number;
  /** In how many stretches of memory it comes in, if devices can gather it. */
  stretches?: number | null;
  /** The side of a join that it is gathered from; null for both. */
  side?: Side | null;
}

/** The devices that a step runs on, where there was a choice. */
export interface DeviceChoice {
  /** The step's label. */
  step: string;
  /** Ordinals. */
  devices: number[];
  /** Why these. */
  reason: string;
}

export function deviceChoices(plan: Plan): DeviceChoice[] {
  return plan.steps.flatMap((step) =>
    'devicesReason' in step && step.devicesReason !== null
      ? [{ step: step.label, devices: step.devices, reason: step.devicesReason }]
      : [],
  );
}

/** More chunksets than this mean a limit far from what the data needs: the merge would read and write by the cache line. */
export const MAX_CHUNKSETS = 1024;

/**
 * Memory that a plan may take on each device. Host devices share the host's memory: what `reservedBytes` leaves of it.
 */
export function deviceBudget(resources: Resources, reservedBytes: number): number {
  const { devices, freeBytes } = resources;
  const hosts = devices.filter((device) => device.kind === 'host').length;
  const share =
    hosts === 0 ? Number.POSITIVE_INFINITY : wholeBlocks(Math.max(0, Math.floor((freeBytes - reservedBytes) / hosts)));
  return Math.min(...devices.map((device) => (device.kind === 'host' ? Math.min(device.limitBytes, share) : device.limitBytes)));
}

/** The largest whole number in [0, most] that fits; `fits` holds up to some number and not above it. */
export function largestFitting(most: number, fits: (value: number) => boolean): number {
  let fitting = 0;
  let tooMany = most + 1;
  while (tooMany - fitting > 1) {
    const middle = fitting + Math.floor((tooMany - fitting) / 2);
    if (fits(middle)) fitting = middle;
    else tooMany = middle;
  }
  return fitting;
}

/**
 * Ends of the fewest chunksets, of even size, whose sort fits `budget` bytes on each device. No tuples are one empty
 * chunkset. `deviceBytes` grows with the number of tuples. Throws ERR_MEMORY_LIMIT where no number of chunksets will do.
 */
export function chunksetEnds(
  tuples: number,
  budget: number,
  deviceBytes: (tuples: number, severalChunksets: boolean) => number,
  resources: Resources,
): number[] {
  if (tuples === 0 || deviceBytes(tuples, false) <= budget) return [tuples];
  const most = largestFitting(tuples, (chunkset) => deviceBytes(chunkset, true) <= budget);
  const chunksets = most === 0 ? Number.POSITIVE_INFINITY : Math.ceil(tuples / most);
  if (chunksets > MAX_CHUNKSETS) {
    throw deviceLimitError(`Sorting ${tuples} tuples`, deviceBytes(Math.ceil(tuples / MAX_CHUNKSETS), true), budget, resources);
  }
  return evenEnds(tuples, chunksets);
}

/** Ends of so many chunksets of even size. */
export function evenEnds(tuples: number, chunksets: number): number[] {
  const size = Math.floor(tuples / chunksets);
  const larger = tuples - size * chunksets;
  return Array.from({ length: chunksets }, (_, index) => (index + 1) * size + Math.min(index + 1, larger));
}

/** Whether these are GPUs, for host devices have nothing to win, and each addresses the memory of all others. */
export function readEachOther(devices: readonly DeviceDescription[]): boolean {
  return devices.every(
    ({ kind, ordinal, peers }) =>
      kind === 'gpu' && devices.every((other) => other.ordinal === ordinal || peers.includes(other.ordinal)),
  );
}

/** What a plan can't do for lack of device memory: names the limit that is in the way, and `remedy`, a sentence, what would do. */
export function deviceLimitError(
  what: string,
  needBytes: number,
  budget: number,
  resources: Resources,
  remedy?: string,
): WarpjoinError {
  const own = resources.devices.some((device) => device.limitBytes <= budget);
  const limit = own
    ? `deviceMemoryLimit is ${formatBytes(budget)}`
    : `memoryLimit (${formatBytes(resources.memoryLimitBytes)}) leaves ${formatBytes(budget)} for it`;
  const message = `${what} takes at least ${formatBytes(needBytes)} on each device but ${limit}.`;
  return new WarpjoinError('ERR_MEMORY_LIMIT', remedy ? `${message} ${remedy}` : message);
}

/** What `plan` makes, or the error where it does not fit a limit. */
export function attempt<T>(plan: () => T): [T, undefined] | [undefined, WarpjoinError] {
  try {
    return [plan(), undefined];
  } catch (error) {
    if (error instanceof WarpjoinError && error.code === 'ERR_MEMORY_LIMIT') return [undefined, error];
    throw error;
  }
}

/** Bytes of a result's columns of so many rows, at least; what is handed over with the rows takes nothing more. */
export function resultBytes(rows: number, columns: readonly PlannedColumn[]): number {
  return madeBytes(columns, (column) => (isHandedOver(column) ? 0 : Math.ceil(rows * column.width)));
}

export const isHandedOver = ({ from }: PlannedColumn): boolean => from === 'keys' || from === 'payload';
