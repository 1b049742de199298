import type { Table, TypeMap } from 'apache-arrow';
import { type Input, infoOf } from '../columns/input.js';
import { type IpcOptions, toIPC } from '../columns/ipc.js';
import { type TypeInfo, valuesOf } from '../columns/types.js';
import type { Values } from '../columns/values.js';
import type { ColumnConversion, NativeChunk } from '../native.js';
import { isDeviceShortage } from '../native-errors.js';
import { hostBlock } from '../plan/memory.js';
import type { Plan } from '../plan/plan.js';
import type { MappedStats, ResidentTable, ResultTable, Stats } from '../types.js';
import { LoadedTable } from './load.js';

/** Bytes a value of the column takes, at least: offsets alone where the width varies. */
export function plannedWidth(input: Input, index: number): number {
  return leastWidth(infoOf(input, index));
}

/** The same of a type. */
export function leastWidth({ kind, width, children }: Pick<TypeInfo, 'kind' | 'width' | 'children'>): number {
  const within = (): number => children.reduce((bytes, child) => bytes + leastWidth(child), 0);
  switch (kind) {
    case 'fixed':
      return width;
    case 'boolean':
      return 1 / 8;
    case 'utf8':
    case 'list':
      return 4;
    case 'large_utf8':
    case 'large_list':
      return 8;
    case 'view':
      return 16;
    case 'fixed_list':
      return width * within();
    case 'struct':
      return within();
    case 'sparse_union':
      return 1 + within();
    case 'dense_union':
      return 1 + 4;
    case 'null':
      return 0;
  }
}

/** Host memory that a column of another type takes, at least; null: it has that type. */
export function conversionBytes(input: Input, index: number, as: ColumnConversion | null): number {
  if (!as) return 0;
  const { rows } = input;
  const info = infoOf(input, index);
  const made = hostBlock(rows * leastWidth({ ...as, children: [] }));
  if (info.dictionary) {
    // Row numbers of values go once those are there; values of another type then become that.
    const { kind, width } = valuesOf(info);
    const isThat = as.order === 'bytes' || (kind === as.kind && width === as.width);
    return made + hostBlock(rows * (isThat ? ROW_NUMBER_BYTES : width));
  }
  // The bytes stay where they are, and values of one size share their offsets.
  return info.kind === 'fixed' && as.kind === 'utf8' ? 0 : made;
}

/**
 * Bytes of a column's texts, and of what its lists hold, at most; 0 where the width does not vary. Lists count with the row
 * numbers that their values are taken by.
 */
export function textBytes(input: Input, index: number): number {
  return variableBytes(infoOf(input, index), input.columns[index]!);
}

function variableBytes({ kind, children }: TypeInfo, values: Values): number {
  const sum = (of: (chunk: NativeChunk) => number): number => values.chunks.reduce((bytes, chunk) => bytes + of(chunk), 0);
  const within = children.reduce((bytes, child, index) => bytes + variableBytes(child, values.children[index]!), 0);
  switch (kind) {
    case 'utf8':
    case 'large_utf8':
      return sum((chunk) => chunk.values?.byteLength ?? 0);
    case 'view':
      return sum(({ buffers = [] }) => buffers.reduce((bytes, { byteLength }) => bytes + byteLength, 0));
    case 'list':
    case 'large_list':
    case 'dense_union': {
      const held = children.map((child, index) => {
        const rows = values.children[index]!.chunks.reduce((count, { length }) => count + length, 0);
        return rows * (leastWidth(child) + ROW_NUMBER_BYTES);
      });
      return held.reduce((bytes, more) => bytes + more, within);
    }
    default:
      return within;
  }
}

const ROW_NUMBER_BYTES = 4;

/** Whether a device's limit turned out to be too low for a step. Where others use the device, `shortageOf` finds another plan. */
export function isOutOfDeviceMemory(error: unknown): boolean {
  return isDeviceShortage(error) && (error as { freeBytes?: unknown }).freeBytes === undefined;
}

/** What a plan says of loaded tables that a call takes from host memory. */
export function fromHostMemory(why: string | null): Plan['loaded'] {
  return why === null ? undefined : { inputs: [], reason: `taken from host memory: ${why}` };
}

/** A call's result: the table, with what was done to make it, and toIPC() unless it stays on the GPUs. */
export function asResult<T extends Table | LoadedTable, S extends Stats | MappedStats>(
  table: T,
  stats: S,
): T extends Table ? ResultTable<TypeMap, S> : ResidentTable {
  if (!(table instanceof LoadedTable)) {
    const bytes = (options?: IpcOptions) => toIPC(table, options);
    Object.defineProperty(table, 'toIPC', { value: bytes });
  }
  return Object.defineProperty(table, 'stats', { value: stats }) as never;
}
