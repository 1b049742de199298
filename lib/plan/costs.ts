/**
 * The cost model: what steps should take, to compare algorithms and to weigh progress. The figures are starting values
 * for one thread of a server processor; they decide which algorithm is cheaper, not how long a call may take. Those of
 * gathers were measured by scripts/gpu-bench.sh gather, on one and two H200 beside 32 threads, those of transfers in sorts, joins
 * and gathers, on one and two beside 32 and on four beside 64.
 */
import type { Estimate } from './plan.js';

export const COSTS = {
  /** Checking buffers: bytes a second of one thread. */
  checkBytesPerSecond: 8e9,
  /** Encoding keys: nanoseconds a tuple. */
  encode: 2,
  /** One pass of a radix sort over 8 bits of the key: nanoseconds a tuple. */
  radixPass: 2.5,
  /** One level of merging two sorted sequences: nanoseconds a tuple. */
  mergeLevel: 4,
  /** One partitioning pass: nanoseconds a tuple. */
  partition: 3,
  /** Partitioning by key range, which takes a search: nanoseconds a tuple. */
  partitionRanges: 8,
  /** Inserting into a hash table that fits the cache: nanoseconds a tuple. */
  build: 6,
  /** Looking up in a hash table that fits the cache: nanoseconds a tuple. */
  probe: 8,
  /** Finding match ranges in sorted relations: nanoseconds a tuple. */
  matchRanges: 5,
  /** Writing one row of a join's result: nanoseconds a row. */
  emit: 2,
  /** Reading one value by row number, in any order, from the cache: nanoseconds a value. */
  gather: 7,
  /** Values that all threads read by row number where the column is larger than the last-level cache: a second. */
  gathersFromMemoryPerSecond: 2e9,
  /** The last-level cache. */
  cacheBytes: 2 ** 28,
  /** Gathering on GPUs, whatever the size: milliseconds for the row numbers, and for each column. */
  deviceGather: 1,
  /** What a sort or join takes on GPUs before its first tuple, and for each of them: milliseconds. */
  gpuCall: 1,
  gpuCallEach: 0.5,
  /** Starting one copy to or from a GPU: milliseconds. */
  deviceCopy: 2e-3,
  /** A GPU's link where it has not been measured: bytes a second each way. */
  linkBytesPerSecond: 5e10,
  /** What transfers of ordinary memory reach of a link's measured speed; and of all links together: bytes a second. */
  transferShare: 0.85,
  transferBytesPerSecond: 1.1e11,
  /** What a radix pass reads and writes on a GPU: bytes a second. */
  gpuPassBytesPerSecond: 2.8e12,
  /** Passes of a hash join over both relations on GPUs, from their arrival to its rows. */
  gpuHashJoinPasses: 5,
  /** Passes of a sort-merge join over both relations on GPUs, beside those of a radix sort, one for each byte of the keys. */
  gpuMergeJoinPasses: 3,
  /** Pinned host memory that transfers make do with. */
  leastTransferBytes: 2 ** 20,
  /** Copying or decoding values in order: nanoseconds a value. */
  sequential: 1,
  /** Host memory bandwidth shared by all threads: bytes a second, reads plus writes. */
  hostBytesPerSecond: 2e10,
} as const;

/** Seconds of so many passes over `bytes` that lie spread over GPUs: each reads and writes them. */
export const gpuPassSeconds = (passes: number, bytes: number, gpus: number): number =>
  (passes * 2 * bytes) / COSTS.gpuPassBytesPerSecond / gpus;

/** `nanoseconds` a row of one thread's work that moves `bytes` in all, on all threads: compute or memory, what is slower. */
export function estimate(rows: number, nanoseconds: number, bytes: number, threads: number): Estimate {
  const compute = (rows * nanoseconds) / threads / 1e6;
  const memory = (bytes / COSTS.hostBytesPerSecond) * 1e3;
  return { rows, bytes, milliseconds: Math.max(compute, memory) };
}

/**
 * Gathering `rows` values of `width` bytes from a column of `tableRows` on all threads: each costs a line of memory where the
 * column is not in the cache.
 */
export function gatherEstimate(rows: number, tableRows: number, width: number, threads: number): Estimate {
  const compute = (rows * COSTS.gather) / threads / 1e6;
  const memory = tableRows * width > COSTS.cacheBytes ? (rows / COSTS.gathersFromMemoryPerSecond) * 1e3 : 0;
  return { rows, bytes: 2 * rows * width, milliseconds: Math.max(compute, memory) };
}

export const milliseconds = (steps: readonly { estimate: Estimate }[]): number =>
  steps.reduce((sum, step) => sum + step.estimate.milliseconds, 0);
