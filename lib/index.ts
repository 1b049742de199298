/**
 * Joins and sorts on Arrow columns.
 *
 *     const out = await join(left, right, { on: 'id', how: 'left' });
 *     const sorted = await sort(table, { by: ['country', { column: 'ts', descending: true }] });
 *
 * These functions share one engine with default options; createEngine() makes others. Inputs are never changed.
 */
import type { KeyArray } from './columns/input.js';
import { defaultEngine } from './engine.js';
import type { JoinKeysOptions, SortPairsOptions } from './options.js';
import type {
  JoinCountOptions,
  JoinedPairs,
  JoinIndices,
  JoinIndicesOptions,
  JoinOptions,
  JoinResult,
  Only,
  Pairs,
  SortedPairs,
  SortOptions,
  SortResult,
  TableInput,
} from './types.js';

export type { KeyArray } from './columns/input.js';
export type { RowNumbers } from './columns/result.js';
export { createEngine, type DeviceInfo, type Engine } from './engine.js';
export { type ErrorCode, WarpjoinError } from './errors.js';
export type { EngineOptions, JoinKeysOptions, JoinKind, Progress, SortColumn, SortPairsOptions } from './options.js';
export type {
  JoinCountOptions,
  JoinedPairs,
  JoinIndices,
  JoinIndicesOptions,
  JoinOptions,
  JoinResult,
  Pairs,
  ResultTable,
  SortedPairs,
  SortOptions,
  SortResult,
  Stats,
  TableInput,
} from './types.js';

/** Joins two tables: see Engine.join. */
export async function join<L extends TableInput, R extends TableInput, const O extends JoinOptions<L, R>>(
  left: L,
  right: R,
  options: Only<O, keyof JoinOptions | 'on' | 'leftOn' | 'rightOn'>,
): Promise<JoinResult<L, R, O>> {
  return defaultEngine().join<L, R, O>(left, right, options);
}

/** The number of rows of a join: see Engine.joinCount. */
export async function joinCount<L extends TableInput, R extends TableInput>(
  left: L,
  right: R,
  options: JoinCountOptions<L, R>,
): Promise<number> {
  return defaultEngine().joinCount(left, right, options);
}

/** The row numbers of a join: see Engine.joinIndices. */
export async function joinIndices<L extends TableInput, R extends TableInput>(
  left: L,
  right: R,
  options: JoinIndicesOptions<L, R>,
): Promise<JoinIndices> {
  return defaultEngine().joinIndices(left, right, options);
}

/** Joins typed arrays on equal keys: see Engine.joinKeys. */
export async function joinKeys<K extends KeyArray, R extends KeyArray, S extends KeyArray>(
  r: Pairs<K, R>,
  s: Pairs<KeyArray, S>,
  options: JoinKeysOptions = {},
): Promise<JoinedPairs<K, R, S>> {
  return defaultEngine().joinKeys(r, s, options);
}

/** Sorts a table: see Engine.sort. */
export async function sort<T extends TableInput, const O extends SortOptions<T>>(
  table: T,
  options: Only<O, keyof SortOptions>,
): Promise<SortResult<T, O>> {
  return defaultEngine().sort<T, O>(table, options);
}

/** Sorts typed arrays by key: see Engine.sortPairs. */
export async function sortPairs<K extends KeyArray, V extends KeyArray>(
  keys: K,
  values: V,
  options: SortPairsOptions = {},
): Promise<SortedPairs<K, V>> {
  return defaultEngine().sortPairs(keys, values, options);
}
