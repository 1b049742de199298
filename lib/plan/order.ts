/** Which rows of a join become its result, and in what order: steps between the join and its columns. */
import type { Side } from '../native.js';
import { COSTS, estimate } from './costs.js';
import type { OrderRowsStep, SliceRowsStep } from './plan.js';

/** What of the rows that a join finds its result has. */
export interface ResultRows {
  /** The side whose order they keep; null: any order. */
  order: Side | null;
  /** How many are left out, and how many are then kept at most. */
  offset: number;
  limit: number;
}

export const ALL_ROWS: ResultRows = { order: null, offset: 0, limit: Number.POSITIVE_INFINITY };

/** Of so many rows that a join finds. */
export function rowsTaken({ offset, limit }: ResultRows, found: number): number {
  return Math.min(limit, Math.max(0, found - offset));
}

/** All of them, in any order: there is nothing to do. */
export function takesAll({ order, offset, limit }: ResultRows): boolean {
  return order === null && offset === 0 && limit === Number.POSITIVE_INFINITY;
}

/** The steps for `found` rows of `rowBytes` bytes. */
export function takingSteps(
  { order, offset, limit }: ResultRows,
  found: number,
  rowBytes: number,
  threads: number,
): (OrderRowsStep | SliceRowsStep)[] {
  const steps: (OrderRowsStep | SliceRowsStep)[] = [];
  if (order) {
    // A partitioning pass, one within the caches, and a look at equal rows.
    const ordered = estimate(found, 2 * COSTS.partition + COSTS.sequential, 5 * found * rowBytes, threads);
    steps.push({ op: 'orderRows', label: `order rows by ${order}`, side: order, estimate: ordered });
  }
  if (offset > 0 || limit < Number.POSITIVE_INFINITY) {
    const rows = rowsTaken({ order, offset, limit }, found);
    const label = limit === Number.POSITIVE_INFINITY ? `rows from ${offset} on` : `${limit} rows from ${offset} on`;
    const moved = offset > 0 ? rows : 0;
    steps.push({
      op: 'sliceRows',
      label,
      offset,
      limit,
      estimate: { ...estimate(moved, COSTS.sequential, 2 * moved * rowBytes, 1), rows },
    });
  }
  return steps;
}
