import type { Table } from 'apache-arrow';
import { type Input, infoOf } from '../columns/input.js';
import type { Plan } from '../plan/plan.js';
import type { Stats } from '../types.js';
import { isDeviceShortage } from './call.js';
import type { LoadedTable } from './load.js';

/** Bytes a value of the column takes, at least: offsets alone where the width varies. */
export function plannedWidth(input: Input, index: number): number {
  const { kind, width } = infoOf(input, index);
  return kind === 'fixed' ? width : kind === 'boolean' ? 1 / 8 : kind === 'utf8' ? 4 : 8;
}

/** Bytes of a column's texts, at most; 0 where the width does not vary. */
export function textBytes(input: Input, index: number): number {
  const { kind } = infoOf(input, index);
  if (kind !== 'utf8' && kind !== 'large_utf8') return 0;
  return input.columns[index]!.chunks.reduce((bytes, { values }) => bytes + (values?.byteLength ?? 0), 0);
}

/** Whether a device's limit turned out to be too low for a step. Where others use the device, `shortageOf` finds another plan. */
export function isOutOfDeviceMemory(error: unknown): boolean {
  return isDeviceShortage(error) && (error as { freeBytes?: unknown }).freeBytes === undefined;
}

/** What a plan says of loaded tables that a call takes from host memory. */
export function fromHostMemory(why: string | null): Plan['loaded'] {
  return why === null ? undefined : { inputs: [], reason: `taken from host memory: ${why}` };
}

export function withStats<T extends Table | LoadedTable>(table: T, stats: Stats): T & { readonly stats: Stats } {
  return Object.defineProperty(table, 'stats', { value: stats }) as T & { readonly stats: Stats };
}
