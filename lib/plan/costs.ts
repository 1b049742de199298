/**
 * The cost model: what steps should take, to compare algorithms and to weigh progress. The figures are starting values
 * for one thread of a server processor; they decide which algorithm is cheaper, not how long a call may take.
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
  /** Reading one value by row number, in any order: nanoseconds a value. */
  gather: 10,
  /** Gathering columns on GPUs, whatever their size: milliseconds. */
  deviceGather: 2,
  /** Starting one copy to or from a GPU: milliseconds. */
  deviceCopy: 2e-3,
  /** A GPU's link where it has not been measured: bytes a second each way. */
  linkBytesPerSecond: 5e10,
  /** Pinned host memory that transfers make do with. */
  leastTransferBytes: 2 ** 20,
  /** Copying or decoding values in order: nanoseconds a value. */
  sequential: 1,
  /** Host memory bandwidth shared by all threads: bytes a second, reads plus writes. */
  hostBytesPerSecond: 2e10,
} as const;

/** `nanoseconds` a row of one thread's work that moves `bytes` in all, on all threads: compute or memory, what is slower. */
export function estimate(rows: number, nanoseconds: number, bytes: number, threads: number): Estimate {
  const compute = (rows * nanoseconds) / threads / 1e6;
  const memory = (bytes / COSTS.hostBytesPerSecond) * 1e3;
  return { rows, bytes, milliseconds: Math.max(compute, memory) };
}

export const milliseconds = (steps: readonly { estimate: Estimate }[]): number =>
  steps.reduce((sum, step) => sum + step.estimate.milliseconds, 0);
