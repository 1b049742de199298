/** Plans of unique: the rows that are kept, then their columns. */
import { COSTS, estimate } from './costs.js';
import { checkHostBytes } from './memory.js';
import type { ColumnStep, Plan, PlannedColumn, Resources, UniqueRowsStep } from './plan.js';
import { columnStep } from './sort.js';

export interface UniqueRequest {
  rows: number;
  keyBytes: number;
  keep: UniqueRowsStep['keep'];
  /** Of the result. */
  columns: readonly PlannedColumn[];
  /** Host memory of finding the rows. */
  groupBytes: number;
}

export type UniquePlan = Plan<UniqueRowsStep | ColumnStep>;

/** Plans for as many rows as there may be. Throws ERR_MEMORY_LIMIT, naming the limit, where the rows can't be found. */
export function planUnique(request: UniqueRequest, resources: Resources): UniquePlan {
  const { rows, keyBytes, keep, columns, groupBytes } = request;
  checkHostBytes(`Finding the unique rows of ${rows}`, groupBytes, resources);
  const bytes = rows * (3 * keyBytes + 3 * 4);
  const step: UniqueRowsStep = {
    op: 'uniqueRows',
    label: 'find unique rows',
    keep,
    estimate: estimate(rows, COSTS.partition + COSTS.build, bytes, resources.threads),
  };
  return {
    algorithm: 'hash',
    reason: 'there is no other: the host groups the keys',
    chunksets: 1,
    rounds: 1,
    inOrder: [],
    hostBytes: groupBytes,
    deviceBytes: 0,
    steps: [step, ...columns.map((column, index) => columnStep(column, index, rows, resources.threads))],
  };
}
