/** A join on its way: what it works on, and what it has made. */
import type { Input } from '../columns/input.js';
import type { KeyPair, ResultColumn } from '../columns/layout.js';
import type { NativeResultColumn } from '../native.js';
import type { JoinSettings } from '../options.js';
import type { PlannedColumn } from '../plan/plan.js';
import type { Stats } from '../types.js';
import type { LoadedTable } from './load.js';
import { conversionBytes, leastWidth, plannedWidth } from './shared.js';

/** What a join works on, and what it is to give: columns, row numbers or the number of rows. */
export interface JoinTask {
  left: Input;
  right: Input;
  keys: readonly KeyPair[] | null;
  settings: JoinSettings;
  want: { columns: ResultColumn[] } | 'indices' | 'count';
}

export interface Joined {
  columns: NativeResultColumn[];
  /** Row numbers, where these are asked for. */
  left: NativeResultColumn | null;
  right: NativeResultColumn | null;
  /** A result that stays on the devices, in place of the columns. */
  table: LoadedTable | null;
  rows: number;
  stats: Stats;
}

/** The right column that a left key column is equal to. */
export const rightOf = (keys: JoinTask['keys'], left: number): number => keys!.find((key) => key.left === left)!.right;

/** A full join's coalesced key, with the host memory that making both columns one type takes meanwhile. */
export function plannedCoalesced({ left, right, keys }: JoinTask, { name, column, common }: ResultColumn): PlannedColumn {
  const planned: PlannedColumn = { name, from: 'coalesced', width: plannedWidth(left, column), stretches: null, side: null };
  if (!common) return planned;
  const { info, as } = common;
  const scratchBytes = conversionBytes(left, column, as.left) + conversionBytes(right, rightOf(keys, column), as.right);
  return { ...planned, width: leastWidth(info), scratchBytes };
}
