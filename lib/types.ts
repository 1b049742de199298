/** Types of results, computed from the inputs' column types and the options as far as both are known to the compiler. */
import type { DataType, RecordBatch, Table, TypeMap } from 'apache-arrow';
import type { BatchedColumns } from './batched-type.js';
import type { CoalescedType } from './coalesced-type.js';
import type { IpcOptions } from './columns/ipc.js';
import type { RowNumbers } from './columns/result.js';
import type { PhaseRecord } from './native.js';
import type { BatchStats, BatchStream } from './operators/batch-stream.js';
import type { LoadedTable } from './operators/load.js';
import type {
  explainJoinSchema,
  explainSortSchema,
  explainUniqueSchema,
  isSortedSchema,
  JoinKind,
  joinBatchesSchema,
  joinCountSchema,
  joinIndicesSchema,
  joinSchema,
  SortColumn,
  searchSortedSchema,
  sortBatchesSchema,
  sortIndicesSchema,
  sortSchema,
  uniqueSchema,
} from './options.js';
import type { DeviceChoice, Ordered } from './plan/plan.js';
import type { InputOf } from './schema.js';

/** What a call took of a device. */
export interface DeviceStats {
  name: string;
  kind: 'host' | 'gpu';
  /** Most bytes of its memory in use at once. */
  peakBytes: number;
  /** Bytes of columns, keys and rows that came over its link from host memory, and that went there; 0 for host devices. */
  bytesToDevice: number;
  bytesToHost: number;
}

/** What a call did, and where. */
export interface Stats {
  /** What really ran it. */
  device: 'cpu' | 'gpu';
  /** Why that. */
  deviceReason: string;
  devices: DeviceStats[];
  /** Steps for which some of the devices, or all, were chosen by the speeds of their links, or because those are not known. */
  deviceChoices: DeviceChoice[];
  algorithm: string;
  algorithmReason: string;
  /** From the first step to the last; waiting for earlier calls of the engine is not in it. */
  milliseconds: number;
  /** Rows of each input. */
  inputRows: number[];
  outputRows: number;
  /** The steps of the plan as they ran. */
  steps: { name: string; milliseconds: number }[];
  /** What the steps did inside; phases of parallel threads overlap. */
  phases: PhaseRecord[];
  /** Most host memory in use at once, of everything that the engine held. */
  peakMemoryBytes: number;
  /** Largest over mean number of tuples that a device joined; 1 for sorts. */
  skew: number;
  /** Tuples of a hash join, with keys so heavy that one GPU would have had too many, that were split over all GPUs; 0 for sorts. */
  splitRows: number;
  /** Tuples of both sides of a hash join that the GPUs had no room for: they waited in host memory; 0 for sorts. */
  spilledRows: number;
  chunksets: number;
  rounds: number;
  /** Inputs that were in order already and so were not sorted: 'input' of a sort, 'left' or 'right' of a join. */
  inOrder: readonly Ordered[];
  /** Inputs that were read where they lay on the devices, as loaded tables: 'left', 'right', 'input'. */
  resident: readonly string[];
  /** Why these, where one is loaded; else null. */
  residentReason: string | null;
  /** The device memory that was missing where the call had to be planned anew, for what was left; null: it had not. */
  replanned: string | null;
}

/** An Arrow table with what was done to make it. Neither property is enumerable. */
export type ResultTable<Columns extends TypeMap = TypeMap, S = Stats> = Table<Columns> & {
  readonly stats: S;
  /** The table as Arrow IPC bytes: see toIPC(). */
  toIPC(options?: IpcOptions): Uint8Array;
};

/** A table of another apache-arrow version: what is read of it. */
export interface TableLike {
  readonly schema: { readonly fields: readonly { readonly name: string; readonly type: object }[] };
  readonly batches: readonly { readonly data: object }[];
}
/** A record batch of another apache-arrow version: what is read of it. */
export interface BatchLike {
  readonly schema: TableLike['schema'];
  readonly data: object;
}
// biome-ignore lint/suspicious/noExplicitAny: tables of all column types
type Whole = Table<any> | TableLike | RecordBatch<any> | BatchLike;
/**
 * A table of any apache-arrow version; a record batch; record batches of one schema, at least one, in an array or another iterable,
 * such as a RecordBatchReader; or Arrow IPC bytes (stream or file, compressed or not).
 */
export type ArrowInput = Whole | Iterable<Whole> | Uint8Array | ArrayBuffer;
/**
 * The same, record batches that come one after the other from an asynchronous iterable or reader, or a table that the engine has
 * loaded. Asynchronous batches are read to their end before the call takes its turn.
 */
export type TableInput = ArrowInput | AsyncIterable<Whole> | LoadedTable;

/** The same, or the bytes of an Arrow IPC stream in pieces, as streams of Node.js and the web give them. */
export type BatchesInput = TableInput | AsyncIterable<Uint8Array>;

type IsAny<T> = 0 extends 1 & T ? true : false;
/** The column types of an input; TypeMap where the compiler doesn't know them. */
export type ColumnsOf<T> = T extends Columnar<infer C> | Iterable<Columnar<infer C>> | AsyncIterable<Columnar<infer C>>
  ? IsAny<C> extends true
    ? TypeMap
    : C
  : TypeMap;
type Columnar<C extends TypeMap> = Table<C> | RecordBatch<C> | LoadedTable<C>;
/** The column names of an input. */
export type NamesOf<T> = keyof ColumnsOf<T> & string;
/** Whether the names in a type map are literals. */
type IsKnown<C> = string extends keyof C ? false : true;

export type OneOrMore<T> = T | readonly T[];

/** The names that both tables have. Messages of the compiler show the text where there are none. */
export type SharedNames<L, R> = [NamesOf<L> & NamesOf<R>] extends [never]
  ? 'the tables share no column name: expected leftOn and rightOn'
  : NamesOf<L> & NamesOf<R>;
type NotCross = Exclude<JoinKind, 'cross'>;
type KeyOptions = Pick<InputOf<typeof joinSchema>, 'on' | 'leftOn' | 'rightOn' | 'how'>;

// Interfaces have names, which the compiler's messages show; what stands here in place of an option of the schema inherits its
// documentation.

/** Keys of the same name in both tables. */
export interface SharedKeys<On extends KeyOptions['on'], How extends NotCross = NotCross> extends KeyOptions {
  on: On;
  leftOn?: undefined;
  rightOn?: undefined;
  how?: How | undefined;
}
/** Keys of different names. */
export interface KeysOfEach<LeftOn extends KeyOptions['on'], RightOn extends KeyOptions['on'], How extends NotCross = NotCross>
  extends KeyOptions {
  on?: undefined;
  leftOn: LeftOn;
  rightOn: RightOn;
  how?: How | undefined;
}
/** No keys: every left row with every right row. */
export interface CrossJoin extends KeyOptions {
  on?: undefined;
  leftOn?: undefined;
  rightOn?: undefined;
  how: 'cross';
}
type JoinKeysOf<L, R> =
  | SharedKeys<OneOrMore<SharedNames<L, R>>>
  | KeysOfEach<OneOrMore<keyof ColumnsOf<L> & string>, OneOrMore<keyof ColumnsOf<R> & string>>
  | CrossJoin;

/** What join() takes in addition to its keys. */
export interface JoinedAs<
  Coalesce extends boolean | undefined = boolean,
  Suffix extends string = string,
  Name extends string = string,
  Resident extends boolean = boolean,
  Place extends ResultPlace = ResultPlace,
> extends Omit<InputOf<typeof joinSchema>, keyof KeyOptions> {
  coalesce?: Coalesce | undefined;
  suffix?: Suffix | undefined;
  select?: readonly Name[] | undefined;
  resident?: Resident | undefined;
  result?: Place | undefined;
}
/** What joinBatches() takes in addition to its keys. */
export interface BatchesJoinedAs<
  Coalesce extends boolean | undefined = boolean,
  Suffix extends string = string,
  Name extends string = string,
> extends Omit<InputOf<typeof joinBatchesSchema>, keyof KeyOptions> {
  coalesce?: Coalesce | undefined;
  suffix?: Suffix | undefined;
  select?: readonly Name[] | undefined;
}
/** What joinCount() takes in addition to its keys. */
export interface CountedAs extends Omit<InputOf<typeof joinCountSchema>, keyof KeyOptions> {}
/** What joinIndices() takes in addition to its keys. */
export interface IndexedAs extends Omit<InputOf<typeof joinIndicesSchema>, keyof KeyOptions> {}
/** What explain() takes of a join in addition to its keys. */
export interface ExplainedAs extends Omit<InputOf<typeof explainJoinSchema>, keyof KeyOptions> {}

/**
 * The options of join() for tables L and R: of any columns if these are left out. Resident is true or boolean for options that may
 * have `resident: true`, and Place is 'mapped' or ResultPlace for those that may have `result: 'mapped'`.
 */
export type JoinOptions<
  L = TableInput,
  R = TableInput,
  Resident extends boolean = false,
  Place extends ResultPlace = 'memory',
> = JoinedAs<boolean, string, string, Resident, Place> & JoinKeysOf<L, R>;
/** The options of joinBatches() for batches like those of L and R. */
export type JoinBatchesOptions<L = BatchesInput, R = BatchesInput> = BatchesJoinedAs & JoinKeysOf<L, R>;
/** The options of joinCount() for tables L and R. */
export type JoinCountOptions<L = TableInput, R = TableInput> = CountedAs & JoinKeysOf<L, R>;
/** The options of joinIndices() for tables L and R. */
export type JoinIndicesOptions<L = TableInput, R = TableInput> = IndexedAs & JoinKeysOf<L, R>;
/** The options of explain() of a join of tables L and R. */
export type ExplainJoinOptions<L = TableInput, R = TableInput> = ExplainedAs & JoinKeysOf<L, R>;

type By<Name extends string> = Name | SortColumn<Name> | readonly (Name | SortColumn<Name>)[];
/** The options of sort() for a table T. Name: the columns that `select` may name; Resident, Place: as in JoinOptions. */
export interface SortOptions<
  T = TableInput,
  Name extends string = NamesOf<T>,
  Resident extends boolean = false,
  Place extends ResultPlace = 'memory',
> extends InputOf<typeof sortSchema> {
  by: By<keyof ColumnsOf<T> & string>;
  select?: readonly Name[] | undefined;
  resident?: Resident | undefined;
  result?: Place | undefined;
}
/** The options of sortBatches() for batches like those of T. Name: the columns that `select` may name. */
export interface SortBatchesOptions<T = BatchesInput, Name extends string = NamesOf<T>>
  extends InputOf<typeof sortBatchesSchema> {
  by: By<keyof ColumnsOf<T> & string>;
  select?: readonly Name[] | undefined;
}
/** The options of explain() of a sort of a table T. */
export interface ExplainSortOptions<T = TableInput> extends InputOf<typeof explainSortSchema> {
  by: By<keyof ColumnsOf<T> & string>;
  select?: readonly (keyof ColumnsOf<T> & string)[] | undefined;
}
/** The options of sortIndices() for a table T. */
export interface SortIndicesOptions<T = TableInput> extends InputOf<typeof sortIndicesSchema> {
  by: By<keyof ColumnsOf<T> & string>;
}
/** The options of isSorted() for a table T. */
export interface IsSortedOptions<T = TableInput> extends InputOf<typeof isSortedSchema> {
  by: By<keyof ColumnsOf<T> & string>;
}
/** The options of searchSorted() in a table T. */
export interface SearchSortedOptions<T = TableInput> extends InputOf<typeof searchSortedSchema> {
  by: By<keyof ColumnsOf<T> & string>;
}
/** The options of unique() for a table T. Name: the columns that `select` may name. */
export interface UniqueOptions<T = TableInput, Name extends string = NamesOf<T>> extends InputOf<typeof uniqueSchema> {
  on?: OneOrMore<keyof ColumnsOf<T> & string> | undefined;
  select?: readonly Name[] | undefined;
}
/** The options of explain() of unique() for a table T. */
export interface ExplainUniqueOptions<T = TableInput> extends InputOf<typeof explainUniqueSchema> {
  on?: OneOrMore<keyof ColumnsOf<T> & string> | undefined;
  select?: readonly (keyof ColumnsOf<T> & string)[] | undefined;
}

type AsList<K> = K extends readonly unknown[] ? K : readonly [K];
/** The keys of a side; readonly string[] where the compiler doesn't know them. */
type KeysIn<O, Side extends 'leftOn' | 'rightOn'> = O extends { how: 'cross' }
  ? readonly []
  : O extends { on: infer K extends string | readonly string[] }
    ? AsList<K>
    : O extends { [S in Side]: infer K extends string | readonly string[] }
      ? AsList<K>
      : readonly string[];
type LeftKeys<O> = KeysIn<O, 'leftOn'>;
type RightKeys<O> = KeysIn<O, 'rightOn'>;
type LeftKey<O> = LeftKeys<O>[number];
type RightKey<O> = RightKeys<O>[number];
/** The right key that is to equal the left one named K. */
type RightOf<K, Left, Right> = Left extends readonly [infer L, ...infer Ls]
  ? Right extends readonly [infer R, ...infer Rs]
    ? K extends L
      ? R
      : RightOf<K, Ls, Rs>
    : never
  : never;
type How<O> = O extends { how: infer H extends JoinKind } ? H : 'inner';
type Suffix<O> = O extends { suffix: infer S extends string } ? S : '_right';
/** Whether the key columns become one; boolean where that is not known. */
type Coalesced<O> =
  How<O> extends 'cross' ? false : O extends { coalesce: infer C extends boolean } ? C : How<O> extends 'full' ? false : true;

type LeftColumns<L, R, O> =
  Coalesced<O> extends true
    ? {
        [K in keyof L]: K extends LeftKey<O>
          ? How<O> extends 'right'
            ? R[RightOf<K, LeftKeys<O>, RightKeys<O>> & keyof R]
            : How<O> extends 'full'
              ? CommonType<L[K], R[RightOf<K, LeftKeys<O>, RightKeys<O>> & keyof R]>
              : L[K]
          : L[K];
      }
    : L;
type CommonType<L, R> = L extends DataType ? (R extends DataType ? CoalescedType<L, R> : never) : never;
type RightColumns<L, R, O> = {
  [K in Uncoalesced<R, O> as K extends keyof L ? Free<`${K & string}${Suffix<O>}`, keyof L | Uncoalesced<R, O>, O> : K]: R[K];
};
type Uncoalesced<R, O> = Coalesced<O> extends true ? Exclude<keyof R, RightKey<O>> : keyof R;
/** A name with the suffix as often as it takes to be none of those that are taken. */
type Free<Name extends string, Taken, O> = Name extends Taken ? Free<`${Name}${Suffix<O>}`, Taken, O> : Name;

type All<L, R, O> = How<O> extends 'semi' | 'anti' ? L : Flat<LeftColumns<L, R, O> & RightColumns<L, R, O>>;
type Flat<T> = { [K in keyof T]: T[K] extends DataType ? T[K] : never };
/** Some of the columns, by name: all of them where no names are inferred. */
type Selected<C, Name> = [Name] extends [never] ? C : string extends Name ? TypeMap : Flat<Pick<C, Name & keyof C>>;

/** Whether everything that decides the result's columns is a literal. */
type Decided<L, R, O> =
  IsKnown<L> extends false
    ? false
    : How<O> extends 'semi' | 'anti'
      ? true
      : IsKnown<R> extends false
        ? false
        : string extends LeftKey<O> | RightKey<O> | Suffix<O>
          ? false
          : number extends LeftKeys<O>['length'] | RightKeys<O>['length']
            ? false
            : boolean extends Coalesced<O>
              ? false
              : IsUnion<How<O>> extends true
                ? false
                : true;
type IsUnion<T, U = T> = T extends unknown ? ([U] extends [T] ? false : true) : never;

/** The columns that a join without `select` has. */
export type JoinedColumns<L, R, O> =
  Decided<ColumnsOf<L>, ColumnsOf<R>, O> extends true ? All<ColumnsOf<L>, ColumnsOf<R>, O> : TypeMap;
/** The options of a join that decide the columns of its result, as the compiler infers them of one call. */
export interface Chosen<On, LeftOn, RightOn, How, Coalesce, Suffix> {
  on: On;
  leftOn: LeftOn;
  rightOn: RightOn;
  how: [On, LeftOn] extends [undefined, undefined] ? 'cross' : How;
  coalesce: Coalesce;
  suffix: Suffix;
}

/** A result that stays on the GPUs. */
export type ResidentTable<Columns extends TypeMap = TypeMap> = LoadedTable<Columns> & { readonly stats: Stats };

/** Where a result lies that is no ResidentTable. */
export type ResultPlace = InputOf<typeof sortSchema>['result'] & string;
/** What a call with `result: 'mapped'` did. */
export interface MappedStats extends BatchStats {
  /** Bytes of the file that the result lies in. */
  mappedBytes: number;
}
/** A result that lies in a temporary file: its buffers are the file's bytes. The file is gone once the table is garbage collected. */
export type MappedTable<Columns extends TypeMap = TypeMap> = ResultTable<Columns, MappedStats>;

/** What a join gives: a ResultTable, with `result: 'mapped'` a MappedTable, or with `resident: true` a ResidentTable. */
export type JoinResult<L, R, O, Name, Resident, Place> = Placed<JoinedColumns<L, R, O>, Name, Resident, Place>;
/** What a sort gives: likewise. */
export type SortResult<T, Name, Resident, Place> = Placed<ColumnsOf<T>, Name, Resident, Place>;
/** What joinBatches gives: columns as a join's, but that indices of dictionaries have 32 bits. */
export type JoinedBatches<L, R, O, Name> = BatchStream<BatchedColumns<PlacedColumns<JoinedColumns<L, R, O>, Name>>>;
/** What sortBatches gives: likewise. */
export type SortedBatches<T, Name> = BatchStream<BatchedColumns<PlacedColumns<ColumnsOf<T>, Name>>>;
/** What unique gives: columns as a sort's. */
export type UniqueResult<T, Name> = Placed<ColumnsOf<T>, Name, false, 'memory'>;
type PlacedColumns<C, Name> = IsKnown<C> extends true ? Selected<C, Name> : TypeMap;
type Placed<C, Name, Resident, Place> =
  PlacedColumns<C, Name> extends infer D extends TypeMap
    ? Resident extends true
      ? ResidentTable<D>
      : Place extends 'mapped'
        ? MappedTable<BatchedColumns<D>>
        : ResultTable<D>
    : never;

/** Row numbers of a join: row i of it is row left[i] with row right[i]; all bits set where there is none. */
export interface JoinIndices {
  left: RowNumbers;
  /** null for semi and anti joins, which give left rows alone. */
  right: RowNumbers | null;
  stats: Stats;
}

/** Row numbers of a sort: row i of its result is row rows[i] of the table. */
export interface SortIndices {
  rows: RowNumbers;
  stats: Stats;
}

/** Keys, each with the value at the same place. */
export interface Pairs<K, V> {
  keys: K;
  values: V;
}
/** Pairs in the order of their keys. */
export interface SortedPairs<K, V> extends Pairs<K, V> {
  stats: Stats;
}
/** Pairs that match: keys[i] belongs to left[i] and right[i]. */
export interface JoinedPairs<K, R, S> {
  keys: K;
  r: R;
  s: S;
  stats: Stats;
}
