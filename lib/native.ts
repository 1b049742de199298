/**
 * The addon, typed. Every method that returns a promise runs on threads of the engine's
 * own, never libuv's pool, and rejects with an error that carries a `code` (see errors.ts). Handles are opaque and free
 * their memory when released or collected. The addon checks all arguments: a value of another type, a handle that was released
 * or is another engine's, a number out of range, or buffers that were taken already throw or reject, and change nothing.
 */
import type { DictionaryClasses } from './columns/dictionary-native.js';
import type { FileClasses } from './io/file-classes.js';
import type { DeviceDescription, GpuDescription, GpuSupport, LinkSpeeds } from './native-devices.js';
import type { NativeJob } from './native-job.js';
import type { SortAlgorithm } from './options.js';

export type { DeviceDescription, GpuDescription, GpuSupport, LinkSet, LinkSpeeds } from './native-devices.js';
export type { EventRecord, NativeJob, PhaseRecord } from './native-job.js';

/** How a column's values lie in memory (native/core/column.h). */
export type ColumnKind =
  | 'boolean'
  | 'fixed'
  | 'utf8'
  | 'large_utf8'
  | 'null'
  | 'view'
  | 'list'
  | 'large_list'
  | 'fixed_list'
  | 'struct'
  | 'sparse_union'
  | 'dense_union';
/** How a key's values compare; 'none' for payload only. */
export type KeyOrder = 'none' | 'boolean' | 'signed' | 'unsigned' | 'floating' | 'bytes';

export interface NativeChunk {
  length: number;
  /** Applies to bitmaps alone: validity, and the values of a boolean chunk. */
  bitOffset: number;
  validity: ArrayBufferView | null;
  values: ArrayBufferView | null;
  offsets: ArrayBufferView | null;
  /** Of views: what they refer to. */
  buffers?: ArrayBufferView[];
  /** Of indices: where this chunk's dictionary begins among the values of the column's dictionary, and how many values it has. */
  dictionaryBase?: number;
  dictionarySize?: number;
}

export interface NativeColumn {
  name: string;
  kind: ColumnKind;
  order: KeyOrder;
  /** Where kind is 'fixed' bytes a value, where it is 'fixed_list' values of the child for each value, else 0. */
  width: number;
  chunks: NativeChunk[];
  /** Of nested kinds: chunk c of each belongs to chunk c of this column. */
  children?: NativeColumn[];
  /** Of unions: the type id of each child. */
  typeIds?: number[];
  /** Values that this column, of integers, has indices of: the dictionaries of all chunks one after the other. */
  dictionary?: NativeColumn;
  /** Where there is a dictionary: bytes that an index gets. */
  indexWidth?: number;
  /**
   * Where there is a dictionary: whether chunks have ones of their own. These become one, of distinct values as far as their type can be compared. Otherwise
   * all chunks' dictionaries begin at 0.
   */
  isUnified?: boolean;
}

/** What a key column's values are multiplied by, to compare with another's: 10 ** pow10 * times. */
export interface KeyFactor {
  pow10: number;
  times: number;
}

/** How the columns of a pair of a join's keys compare. */
export interface KeyComparison {
  nullsEqual: boolean;
  factors: Record<Side, KeyFactor>;
}

/** Another type that a column becomes, with the same values. */
export interface ColumnConversion {
  kind: ColumnKind;
  order: KeyOrder;
  width: number;
  /** What integers and decimals are multiplied by. */
  factor: KeyFactor;
  /** What messages call the column, at their beginning, and the type. */
  column: string;
  target: string;
}

declare const brand: unique symbol;
interface Handle<Name extends string> {
  readonly [brand]: Name;
  /** Frees the memory now. Safe to call twice. Using the handle afterwards rejects. */
  release(): void;
}

/** Columns of one table, checked: no read of them leaves its buffer. Keeps their ArrayBuffers alive. */
export interface RelationHandle extends Handle<'relation'> {
  readonly rows: number;
  /** Dictionaries that were made for columns that are `isUnified`: in the order of the columns, those of children and within dictionaries first. */
  readonly dictionaries: readonly NativeResultColumn[];
}
export interface SortKeysHandle extends Handle<'sortKeys'> {
  readonly rows: number;
  readonly keyBytes: 4 | 8;
  readonly valueBytes: 4 | 8;
  /** True where the payload is carried as the tuples' value; false: row numbers. */
  readonly carriesPayload: boolean;
  /** True where the first key word decides the order. */
  readonly complete: boolean;
  /** True where the keys are the values of the one sort column: a run's keys are the column as sorted. */
  readonly areValues: boolean;
  /** True where the rows are in order already: known of complete keys alone. */
  readonly sorted: boolean;
}
export interface JoinKeysHandle extends Handle<'joinKeys'> {
  readonly keyBytes: 4 | 8;
  /** The side whose keys are its row numbers, which lookupJoin looks up; null: neither. */
  readonly rowsAreKeysOf: Side | null;
  /** What a key is: a value, fields side by side, or a number that stands for a text or for fields that need more than 64 bits. */
  readonly made: 'value' | 'packed' | 'code';
  /** That the fields need together; 0 where there is one column, which is the key or has a code. */
  readonly bits: number;
  /** Of each pair, whether the keys of an inner join's rows give back the left column: as they are, or decoded if `made` is packed. */
  readonly givesLeft: readonly boolean[];
  readonly left: JoinSideInfo;
  readonly right: JoinSideInfo;
}
/** The column that is to travel with a side's keys, null for row numbers; it may depend on whether keys give pairs' left columns. */
export type NativePayload =
  | number
  | null
  | { readonly pairs: readonly number[]; readonly given: number | null; readonly otherwise: number | null };
export interface JoinSideInfo {
  readonly rows: number;
  readonly tuples: number;
  readonly valueBytes: 4 | 8;
  readonly carriesPayload: boolean;
  /** Whether the keys ascend, as far as a sample says. */
  readonly seemsSorted: boolean;
}
/** Columns of one table in the memory of devices, a stretch on each. */
export interface ResidentHandle extends Handle<'resident'> {
  readonly rows: number;
  /** Whether its rows are spread as loadTable does it, so that they can be gathered from. */
  readonly spreadEvenly: boolean;
  /** Of each column: whether values may be null. */
  readonly nullable: readonly boolean[];
  /** Of the join that made it: as of RowsHandle. */
  readonly skew: number;
  readonly splitRows: number;
}
/** Columns that a table on devices is joined by there, by their positions among those on the devices. */
export interface TableKeys {
  table: ResidentHandle;
  keys: readonly number[];
}
/** The keys of a join of two tables on devices. */
export interface TableJoinKeysHandle extends Handle<'tableJoinKeys'> {
  /** Of a key; tables are joined by up to `mostBits` of them. */
  readonly bits: number;
  readonly mostBits: number;
  /** Whether keys are the columns as they are; otherwise they are made of them, and only the devices can decode them. */
  readonly areColumns: boolean;
  /** Of each pair of columns: whether keys give back the left one. */
  readonly giveLeft: readonly boolean[];
}
/** Tables on devices to join there. */
export interface KeyedTables {
  keys: TableJoinKeysHandle;
  /** Columns of 4 or 8 bytes without nulls, carried along; null: row numbers are. */
  payload: Record<Side, number | null>;
}
/** What a table on devices is sorted by there. */
export interface TableSortKeysHandle extends Handle<'tableSortKeys'> {
  /** Of a key; tables are sorted by up to `mostBits` of them. */
  readonly bits: number;
  readonly mostBits: number;
  readonly keyBytes: 4 | 8;
  /** Whether sorted keys give back the columns that they are made of. */
  readonly giveColumns: boolean;
  /** Whether the payload is carried along, as it is where they do; false: row numbers are. */
  readonly carriesPayload: boolean;
}
/** Where a column of a result that stays comes from: keys, as a pair's left column; or a side, gathered there or carried. */
export type ResidentOrigin = { from: 'keys'; pair: number } | { from: Side; column: number | null };
/** Rows of an order, as far as there are so many. */
export interface RowWindow {
  first: number;
  rows: number;
}
/** The order of a join's rows: that of the rows of a side, and of the other's among equal ones; and which of them are wanted. */
export interface TableRowOrder {
  side: Side;
  window: RowWindow;
}
/** Bytes that count towards the memory limit. */
export interface ReservationHandle extends Handle<'reservation'> {}

export interface RunHandle extends Handle<'run'> {
  readonly size: number;
}
export interface RowsHandle extends Handle<'rows'> {
  /** Rows of the join's result. */
  readonly size: number;
  /** Largest over mean number of tuples a device joined. */
  readonly skew: number;
  /** Tuples of heavy keys that were split over the devices. */
  readonly splitRows: number;
  /** Tuples that left the device for host memory, and came back. */
  readonly spilledRows: number;
  /** Whether a row may lack its left (right) side. */
  readonly leftMayBeMissing: boolean;
  readonly rightMayBeMissing: boolean;
  /** Where each group of rows ends; none but of groupRows. */
  readonly groupEnds: readonly number[];
}

/** A column that the addon made: buffers to build Arrow Data from. */
export interface NativeResultColumn {
  length: number;
  nullCount: number;
  /** Of all rows; null where nullCount is 0, and where chunks have their own. */
  validity: ArrayBuffer | null;
  /** At least one; more where one would have too large a buffer. */
  chunks: NativeResultChunk[];
}
export interface NativeResultChunk {
  length: number;
  /** Of views the views, of unions type ids; empty where the kind has none. */
  values: ArrayBuffer;
  /** Where the width varies: length + 1, which begin at 0. Of a dense union length. */
  offsets: ArrayBuffer | null;
  /** A chunk of nested values, and those within it, have nulls of their own; absent in others. */
  nested?: {
    nullCount: number;
    validity: ArrayBuffer | null;
    /** Of views: what they refer to. */
    buffers: ArrayBuffer[];
    children: NativeResultChunk[];
  };
}

/** What a hash join sends home of its inputs, and takes back. */
export interface HashJoinSpill {
  /** Tuples of both sides. */
  rows: number;
  /** Bytes of these: they cross the links once in each direction. */
  bytes: number;
  /** Host memory that is taken for them. */
  hostBytes: number;
}

/** A row of one of several sorted runs, and how many rows of each run a stable merge of them has before it. */
export interface MergeCut {
  run: number;
  rows: number[];
}

export interface SortColumnSpec {
  column: number;
  descending: boolean;
  nullsLast: boolean;
}

export type NativeJoinKind = 'inner' | 'left' | 'right' | 'full' | 'semi' | 'anti';

export interface NativeJoinRequest {
  kind: NativeJoinKind;
  buildLeft: boolean;
  countOnly: boolean;
  wantKeys: boolean;
  wantLeft: boolean;
  wantRight: boolean;
  /** Infinity: no bound. */
  maxRows: number;
}

/** Which side of a join's rows to take row numbers from. */
export type Side = (typeof SIDES)[number];
export const SIDES = ['left', 'right'] as const;

/** How a relation is sorted. `spill`: a sample sort of several chunksets makes one run of them. */
export interface NativeSortPlan {
  algorithm: SortAlgorithm;
  devices: number[];
  chunksetEnds: number[];
  spill: boolean;
}

export interface NativeEngine {
  devices(): DeviceDescription[];
  /** Threads of the processor that share loops: fewer than were asked for where the system refused some. */
  threads(): number;
  /** `usedBytes` are without what is given back where it is needed. */
  memory(): { usedBytes: number; peakBytes: number; limitBytes: number };
  /** Sets another limit of host memory, for what is allocated from now on. */
  setMemoryLimit(bytes: number): void;
  /** Counts bytes that JavaScript holds towards the limit, until the handle is released. Throws ERR_MEMORY_LIMIT. */
  reserve(bytes: number): ReservationHandle;
  /** Memory of the engine, uninitialised, 1 GiB at most, until nobody holds it or it is detached. Throws ERR_MEMORY_LIMIT. */
  allocate(bytes: number): ArrayBuffer;
  /** Gives back to the system what malloc keeps of blocks that were freed. */
  trimMemory(job: NativeJob): Promise<void>;
  /** Restarts the peaks of memory() and devices(), and what devices() say of bytes moved. */
  resetPeaks(): void;
  /**
   * No buffer of a column that steps make has more than `maxBufferBytes` (1 GiB if not given), but for a longer single value. `traced`
   * (false if not given): it keeps events.
   */
  createJob(maxBufferBytes?: number, traced?: boolean): NativeJob;
  /** Why every step rejects: a device has failed for good. null while all of them work. */
  failure(): string | null;
  /** Waits for running steps, then frees all memory. Later calls throw. */
  dispose(): Promise<void>;

  /** Takes a second or two, and memory within the limits; rejects where these leave too little. */
  measureLinks(job: NativeJob): Promise<LinkSpeeds>;

  /** Checks the buffers of the columns (all of them against their claims, offsets in full). */
  relation(job: NativeJob, columns: NativeColumn[], rows: number): Promise<RelationHandle>;

  /** With `allowFlip` integers serve as they are, in an order that only sample sorts take at no cost. */
  sortKeys(
    job: NativeJob,
    relation: RelationHandle,
    by: SortColumnSpec[],
    payload: number | null,
    allowFlip: boolean,
  ): Promise<SortKeysHandle>;
  /** Device memory that sorting a chunkset of so many tuples takes, on each device. */
  sortDeviceBytes(
    keyBytes: number,
    valueBytes: number,
    tuples: number,
    devices: number,
    algorithm: SortAlgorithm,
    severalChunksets: boolean,
  ): number;
  /** Whether a sample sort on these devices can make one run of several chunksets. */
  sortSpills(tuples: number, largestChunkset: number, devices: number[]): boolean;
  /** Sorts tuples [ends[i-1], ends[i]) into run i. */
  sortChunksets(job: NativeJob, keys: SortKeysHandle, plan: NativeSortPlan): Promise<RunHandle[]>;
  /** The run of keys that are sorted already. */
  copyRun(job: NativeJob, keys: SortKeysHandle): Promise<RunHandle>;
  /** Tuples [begin, end) of a run, which is released. */
  cutRun(job: NativeJob, run: RunHandle, begin: number, end: number): Promise<RunHandle>;
  /** Rows [skip, skip + count) of a stable sort, without a sort of all rows: a run of row numbers, without keys. */
  topRows(job: NativeJob, relation: RelationHandle, by: SortColumnSpec[], skip: number, count: number): Promise<RunHandle>;
  /** Whether the rows are in the order of a sort. */
  rowsAreSorted(job: NativeJob, relation: RelationHandle, by: SortColumnSpec[]): Promise<boolean>;
  /**
   * Where each row of `values` would go among the rows of a table that is in the order of `by`: 'left' before rows that are equal,
   * 'right' behind them. `columns` of `values` are those of `by`. Row numbers of 4 or 8 bytes, from 0 to the table's rows.
   */
  searchSorted(
    job: NativeJob,
    table: RelationHandle,
    by: SortColumnSpec[],
    values: RelationHandle,
    columns: number[],
    side: Side,
  ): Promise<NativeResultColumn>;
  /**
   * Cuts a stable merge of runs, each in the order of `by`, at the least of `rows`, which are some of the table's. Run i of the table
   * ends before row ends[i].
   */
  cutMerge(job: NativeJob, table: RelationHandle, by: SortColumnSpec[], ends: number[], rows: number[]): Promise<MergeCut>;
  /** Host memory of topRows with its run, where `kept` = skip + count: beside what keys of other than plain types take. */
  topRowsBytes(rows: number, kept: number): number;
  /** Host memory of mergeRuns beside the runs and the merged one. */
  mergeScratchBytes(keyBytes: number, valueBytes: number, tuples: number, runs: number): number;
  /** Merges the runs into one; they are released. */
  mergeRuns(job: NativeJob, runs: RunHandle[]): Promise<RunHandle>;
  /** Orders ties of word 0 by the remaining words. No-op where keys.complete. */
  refineTies(job: NativeJob, keys: SortKeysHandle, run: RunHandle): Promise<void>;
  /** The sort column computed from the run's keys, or null where that is not exact. */
  decodeKeys(job: NativeJob, keys: SortKeysHandle, sortColumn: number, run: RunHandle): Promise<NativeResultColumn | null>;
  /** Hands the run's values over (row numbers, or the carried payload), zero-copy. */
  takeValues(job: NativeJob, run: RunHandle): NativeResultColumn;
  /** Frees the run's keys: they are needed no more. */
  dropKeys(run: RunHandle): void;
  /** Hands the run's keys over, zero-copy. */
  takeKeys(job: NativeJob, run: RunHandle): NativeResultColumn;

  joinKeys(
    job: NativeJob,
    left: RelationHandle,
    leftColumns: readonly number[],
    leftPayload: NativePayload,
    right: RelationHandle,
    rightColumns: readonly number[],
    rightPayload: NativePayload,
    /** Of each pair of columns. */
    comparisons: readonly KeyComparison[],
  ): Promise<JoinKeysHandle>;
  /** Device memory of a hash join in so many rounds, on each device, where keys spread evenly. */
  hashJoinDeviceBytes(keys: JoinKeysHandle, devices: number, request: NativeJoinRequest, rounds: number): number;
  /** What a hash join in so many rounds spills, with what the devices have free now, where hashing spreads its keys evenly. */
  hashJoinSpill(keys: JoinKeysHandle, devices: number, request: NativeJoinRequest, rounds: number): HashJoinSpill;
  mergeJoinDeviceBytes(keys: JoinKeysHandle, devices: number, subpartitions: number): number;
  hashJoin(
    job: NativeJob,
    keys: JoinKeysHandle,
    request: NativeJoinRequest,
    plan: { devices: number[]; rounds: number; partitions: number; eitherSide: boolean },
  ): Promise<RowsHandle>;
  /** Whether a side's keys ascend: a look at all of them where they seem to. */
  joinSideIsSorted(job: NativeJob, keys: JoinKeysHandle, side: Side): Promise<boolean>;
  /** Sorts one side's tuples by key for mergeJoin: like sortChunksets. */
  sortJoinSide(job: NativeJob, keys: JoinKeysHandle, side: Side, plan: NativeSortPlan): Promise<RunHandle[]>;
  /** Null in place of a run: the side is sorted as it is. */
  mergeJoin(
    job: NativeJob,
    keys: JoinKeysHandle,
    left: RunHandle | null,
    right: RunHandle | null,
    request: NativeJoinRequest,
    plan: { devices: number[]; subpartitions: number },
  ): Promise<RowsHandle>;
  /** Device memory of sortMergeJoin, on each device. */
  sortMergeJoinDeviceBytes(keys: JoinKeysHandle, devices: number, request: NativeJoinRequest): number;
  /** Sorts both sides and merges them in the joint memory of devices that read each other's. */
  sortMergeJoin(job: NativeJob, keys: JoinKeysHandle, request: NativeJoinRequest, devices: number[]): Promise<RowsHandle>;
  /** Joins by keys that are the row numbers of one side. */
  lookupJoin(job: NativeJob, keys: JoinKeysHandle, request: NativeJoinRequest): Promise<RowsHandle>;
  /** Rows [offset, offset + limit) of all pairs, which come by the rows of `first` and then by those of the other side. */
  crossJoin(
    job: NativeJob,
    leftRows: number,
    rightRows: number,
    maxRows: number,
    first: Side,
    offset: number,
    limit: number,
  ): Promise<RowsHandle>;
  /** Orders rows by the row numbers of one side, and equal ones by those of the other if they are there; missing rows last. */
  orderRows(job: NativeJob, rows: RowsHandle, by: Side): Promise<void>;
  /** Host memory of orderRows beside the rows: their number, and the bytes of a row number of either side; 0 for one that is not there. */
  orderRowsBytes(rows: number, rowBytes: number, otherBytes: number): number;
  /** Keeps `limit` rows from `offset` on, or those that there are: how many. The handle's size stays what it was. */
  sliceRows(job: NativeJob, rows: RowsHandle, offset: number, limit: number): Promise<number>;
  /**
   * The rows that are kept of a table, ascending, as the left rows of a join: one of each key of the left side, the first or the
   * last, or with 'none' those whose key is there once. Both sides of the keys are the same columns of one relation; rows that are
   * excluded, as nulls are where they do not equal each other, count as one key.
   */
  uniqueRows(job: NativeJob, keys: JoinKeysHandle, keep: 'first' | 'last' | 'none'): Promise<RowsHandle>;
  /** Host memory of uniqueRows, beside its result. */
  uniqueRowsBytes(keys: JoinKeysHandle): number;
  /**
   * A relation's rows in `groups` groups, a power of two up to 256, as the left rows of a join: rows with equal keys are in one, also
   * those of the other side of the comparisons with the same seed. A row with a null that equals nothing is in any.
   */
  groupRows(
    job: NativeJob,
    relation: RelationHandle,
    columns: readonly number[],
    comparisons: readonly KeyComparison[],
    side: Side,
    groups: number,
    seed: number,
  ): Promise<RowsHandle>;
  /** The least row of the left side whose key an earlier row has, and the first such row; null where no key is there twice. */
  repeatedKey(job: NativeJob, keys: JoinKeysHandle): Promise<{ first: number; row: number } | null>;
  /** Hands over the rows' keys (the key column's values) or one side's values, zero-copy. */
  takeJoinKeys(job: NativeJob, rows: RowsHandle): NativeResultColumn;
  /** The left column of a pair, computed from the packed keys of an inner join's rows: where the join's keys give it. */
  decodeJoinKeys(job: NativeJob, rows: RowsHandle, pair: number): Promise<NativeResultColumn>;
  takeJoinValues(job: NativeJob, rows: RowsHandle, side: Side): NativeResultColumn;

  /** Gathers a column by the row numbers of a run, or of one side of a join's rows: texts and nested values of a group in chunks of its own. */
  gather(
    job: NativeJob,
    relation: RelationHandle,
    column: number,
    rows: RunHandle | RowsHandle,
    side: Side,
  ): Promise<NativeResultColumn>;
  /**
   * A full join's coalesced key: the left row's value, else the right row's. `as`: what the column of each side becomes first, so
   * that both have one type; null: nothing else.
   */
  gatherCoalesced(
    job: NativeJob,
    left: RelationHandle,
    leftColumn: number,
    right: RelationHandle,
    rightColumn: number,
    rows: RowsHandle,
    as: Readonly<Record<Side, ColumnConversion | null>>,
  ): Promise<NativeResultColumn>;

  /** Device memory that gatherOnDevices takes for such row numbers, on each device. */
  gatherDeviceBytes(
    relation: RelationHandle,
    columns: number[],
    rows: { size: number; rowBytes: number; mayBeMissing: boolean },
    devices: number,
  ): number;
  /** gather() of several columns in the joint memory of devices that read each other's: booleans, values of 1 to 16 bytes. */
  gatherOnDevices(
    job: NativeJob,
    relation: RelationHandle,
    columns: number[],
    rows: RunHandle | RowsHandle,
    side: Side,
    devices: number[],
  ): Promise<NativeResultColumn[]>;

  /** Memory that loadTable takes on each device. */
  residentBytes(relation: RelationHandle, columns: number[], devices: number[]): number;
  /** Copies columns to the devices, an equal part to each: booleans, and values of 1, 2, 4, 8 or 16 bytes. */
  loadTable(job: NativeJob, relation: RelationHandle, columns: number[], devices: number[]): Promise<ResidentHandle>;
  /** Copies columns of a table on devices, by their positions there, to host memory. */
  bringHome(job: NativeJob, table: ResidentHandle, columns: number[]): Promise<NativeResultColumn[]>;

  /**
   * The keys of a join of two tables on the same devices by pairs of columns: integers, floats of one width, or booleans. They are
   * the columns as they are where one pair's both are of one type, of 4- or 8-byte integers without nulls; otherwise keys are made,
   * and columns read for that. `nullsEqual`: of each pair, whether nulls equal each other.
   */
  tableJoinKeys(job: NativeJob, left: TableKeys, right: TableKeys, nullsEqual: readonly boolean[]): Promise<TableJoinKeysHandle>;
  /** Joins tables on devices into one that stays there: by hash, as joinTablesHome does. Rows in an order have gathered columns. */
  joinTables(
    job: NativeJob,
    tables: KeyedTables,
    request: NativeJoinRequest,
    columns: ResidentOrigin[],
    order: TableRowOrder | null,
  ): Promise<ResidentHandle>;
  /** The same into host memory: what the rows carry. */
  joinTablesHome(job: NativeJob, tables: KeyedTables, request: NativeJoinRequest): Promise<RowsHandle>;
  /** Device memory of either, on each device, beside the tables and a result that stays. */
  joinTablesDeviceBytes(tables: KeyedTables, request: NativeJoinRequest): number;
  /**
   * What a table on devices is sorted by; columns by their positions among those on the devices. The column is the key where it
   * is the only one, of 4- or 8-byte integers without nulls; otherwise keys are made of all columns, which are read for that.
   * `payload`: of 4 or 8 bytes without nulls.
   */
  tableSortKeys(
    job: NativeJob,
    table: ResidentHandle,
    by: SortColumnSpec[],
    payload: number | null,
  ): Promise<TableSortKeysHandle>;
  /**
   * Sorts a table on devices into one of `columns` of it that stays there. With a payload carried along these are it and what
   * keys give; others are gathered by row number. The result has the window's rows.
   */
  sortTable(job: NativeJob, keys: TableSortKeysHandle, columns: number[], window: RowWindow): Promise<ResidentHandle>;
  /** Device memory of the sort and its result, on each device, beside the table. */
  sortTableDeviceBytes(keys: TableSortKeysHandle, columns: number[], window: RowWindow): number;

  /** For tests: lets the n-th allocation from now fail, in host memory or on each device; 0 switches it off. */
  failAllocation(where: 'memory' | 'devices', n: number): void;
  /** For tests: as if others had left only so many bytes of each device's memory; Infinity switches it off. */
  leaveDeviceMemory(bytes: number): void;
  /** For tests: lets a GPU fail, for this process and as long as an engine of it uses the GPU. */
  loseDevice(ordinal: number): void;
}

export interface NativeEngineConfig {
  threads: number;
  hostDevices: number;
  gpus: number[];
  memoryLimitBytes: number;
  /** 0: 80 % of each device's memory. */
  deviceMemoryLimitBytes: number;
  /** For tests: bits of the hashes of texts, 64 where it is not given; with few, different texts have equal ones. */
  hashBits?: number;
}

export interface NativeAddon extends FileClasses, DictionaryClasses {
  /** That of the package it was built for. */
  readonly version: string;
  readonly backend: 'cuda' | 'hip' | 'none';
  gpus(): GpuDescription[];
  gpuSupport(): GpuSupport;
  /** Detaches buffers. The memory of those that the addon made is freed in a turn of the event loop of its own, not when V8 collects them. */
  detach(buffers: ArrayBuffer[]): void;
  /** The bytes of an open file up to each of the ends. It may be closed, and stays until nobody holds any of them. Throws ERR_FILE. */
  mapFile(file: number, ends: readonly number[]): ArrayBuffer[];
  /** For tests: the system refuses threads n to n + count - 1 of those that the addon starts from now on; n = 0 ends that. */
  failThreads(n: number, count: number): void;
  /** `beside`: an engine whose host memory, with its limit, and threads it shares. */
  Engine: new (
    config: NativeEngineConfig,
    beside?: NativeEngine,
  ) => NativeEngine;
}

/** Loads the addon once. Throws ERR_NATIVE_MISSING, with what was tried and what would do, where there is none for this process. */
export { loadAddon as native } from './addon.js';
