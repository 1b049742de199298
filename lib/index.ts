/**
 * Joins and sorts on Arrow columns.
 *
 *     const out = await join(left, right, { on: 'id', how: 'left' });
 *     const sorted = await sort(table, { by: ['country', { column: 'ts', descending: true }] });
 *
 * These functions share one engine with default options; createEngine() makes others. Inputs are never changed.
 */
import { defaultEngine, Engine } from './engine.js';
import { joinBatches as joinBatchesOn } from './operators/join-batches.js';
import { sortBatches as sortBatchesOn } from './operators/sort-batches.js';

export type { KeyArray } from './columns/input.js';
export { type IpcOptions, toIPC } from './columns/ipc.js';
export type { RowNumbers } from './columns/result.js';
export { type DiagnoseOptions, type Diagnosis, describeDiagnosis, diagnose, type Finding } from './diagnose.js';
export { createEngine, type DeviceInfo, type Engine } from './engine.js';
export { type ErrorCode, WarpjoinError } from './errors.js';
export {
  type ColumnTypes,
  type FromOptions,
  fromColumns,
  fromRows,
  type TableOf,
  type ToRowsOptions,
  toRows,
} from './io/plain.js';
export type { MeasuredLinks } from './links.js';
export type { LinkSet, LinkSpeeds } from './native.js';
export type { BatchStats, BatchStream } from './operators/batch-stream.js';
export type { LoadedTable } from './operators/load.js';
export type {
  EngineOptions,
  JoinKeysOptions,
  JoinKind,
  LinkSpeedsOptions,
  LoadOptions,
  Progress,
  SortColumn,
  SortPairsOptions,
} from './options.js';
export type { DeviceChoice } from './plan/plan.js';
export type {
  ArrowInput,
  BatchesInput,
  DeviceStats,
  IsSortedOptions,
  JoinBatchesOptions,
  JoinCountOptions,
  JoinedBatches,
  JoinedPairs,
  JoinIndices,
  JoinIndicesOptions,
  JoinOptions,
  JoinResult,
  MappedStats,
  MappedTable,
  Pairs,
  ResidentTable,
  ResultPlace,
  ResultTable,
  SearchSortedOptions,
  SortBatchesOptions,
  SortedBatches,
  SortedPairs,
  SortIndices,
  SortIndicesOptions,
  SortOptions,
  SortResult,
  Stats,
  TableInput,
  UniqueOptions,
  UniqueResult,
} from './types.js';

type Call =
  | 'isSorted'
  | 'join'
  | 'joinCount'
  | 'joinIndices'
  | 'joinKeys'
  | 'searchSorted'
  | 'sort'
  | 'sortIndices'
  | 'sortPairs'
  | 'unique';

/** A call of Engine as a function: with its types and comments, on the shared engine. */
function onDefaultEngine<C extends Call>(call: C): Engine[C] {
  const run = async (...args: never[]) => {
    const shared = defaultEngine();
    const engine = shared instanceof Promise ? await shared : shared; // mostly at once: the inputs are read before others change them
    return Reflect.apply(engine[call], engine, args);
  };
  return run as Engine[C];
}

export const join: Engine['join'] = onDefaultEngine('join');

export const joinCount: Engine['joinCount'] = onDefaultEngine('joinCount');

export const joinIndices: Engine['joinIndices'] = onDefaultEngine('joinIndices');

export const joinKeys: Engine['joinKeys'] = onDefaultEngine('joinKeys');

export const sort: Engine['sort'] = onDefaultEngine('sort');

export const sortIndices: Engine['sortIndices'] = onDefaultEngine('sortIndices');

export const isSorted: Engine['isSorted'] = onDefaultEngine('isSorted');

export const searchSorted: Engine['searchSorted'] = onDefaultEngine('searchSorted');

export const joinBatches: Engine['joinBatches'] = (left, right, options) =>
  joinBatchesOn(Engine.coreOf(defaultEngine()), left, right, options) as never;

export const sortBatches: Engine['sortBatches'] = (input, options) =>
  sortBatchesOn(Engine.coreOf(defaultEngine()), input, options) as never;

export const sortPairs: Engine['sortPairs'] = onDefaultEngine('sortPairs');

export const unique: Engine['unique'] = onDefaultEngine('unique');
