import type { Table } from 'apache-arrow';
import { type Input, infoOf } from '../columns/input.js';
import type { NativeResultColumn } from '../native.js';
import type { ResultTable, Stats } from '../types.js';

/** Bytes a value of the column takes, at least: offsets alone where the width varies. */
export function plannedWidth(input: Input, index: number): number {
  const { kind, width } = infoOf(input, index);
  return kind === 'fixed' ? width : kind === 'boolean' ? 1 / 8 : kind === 'utf8' ? 4 : 8;
}

/** Values that an operator hands over as they are: a carried payload, or keys. */
export function handedOver(values: ArrayBuffer, length: number): NativeResultColumn {
  return { length, nullCount: 0, validity: null, values, offsets: null };
}

export function withStats(table: Table, stats: Stats): ResultTable {
  return Object.defineProperty(table, 'stats', { value: stats }) as ResultTable;
}
