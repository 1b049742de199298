/** Types of results, computed from the inputs' column types and the options as far as both are known to the compiler. */
import type { DataType, RecordBatch, Table, TypeMap } from 'apache-arrow';
import type { CoalescedType } from './coalesced-type.js';
import type { IpcOptions } from './columns/ipc.js';
import type { RowNumbers } from './columns/result.js';
import type { PhaseRecord } from './native.js';
import type { LoadedTable } from './operators/load.js';
import type {
  explainJoinSchema,
  explainSortSchema,
  explainUniqueSchema,
  isSortedSchema,
  JoinKind,
  joinCountSchema,
  joinIndicesSchema,
  joinSchema,
  SortColumn,
  searchSortedSchema,
  sortIndicesSchema,
  sortSchema,
  uniqueSchema,
} from './options.js';
import type { DeviceChoice, Ordered } from './plan/plan.js';
import type { InputOf, Schema } from './schema.js';

/** What a call did, and where. */
export interface Stats {
  /** What really ran it. */
  device: 'cpu' | 'gpu';
  /** Why that. */
  deviceReason: string;
  devices: { name: string; kind: 'host' | 'gpu'; peakBytes: number }[];
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
export type ResultTable<Columns extends TypeMap = TypeMap> = Table<Columns> & {
  readonly stats: Stats;
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

type OneOrMore<T> = T | readonly T[];
type Without<Names extends string> = { [Name in Names]?: undefined };

type KeysOf<L, R> =
  | ({ on: OneOrMore<NamesOf<L> & NamesOf<R>>; how?: Exclude<JoinKind, 'cross'> | undefined } & Without<'leftOn' | 'rightOn'>)
  | ({
      leftOn: OneOrMore<NamesOf<L>>;
      rightOn: OneOrMore<NamesOf<R>>;
      how?: Exclude<JoinKind, 'cross'> | undefined;
    } & Without<'on'>)
  | ({ how: 'cross' } & Without<'on' | 'leftOn' | 'rightOn'>);

type JoinOptionsOf<S extends Schema, L, R> = Omit<InputOf<S>, 'on' | 'leftOn' | 'rightOn' | 'how'> & KeysOf<L, R>;

export type JoinOptions<L = TableInput, R = TableInput> = JoinOptionsOf<typeof joinSchema, L, R>;
export type JoinCountOptions<L = TableInput, R = TableInput> = JoinOptionsOf<typeof joinCountSchema, L, R>;
export type JoinIndicesOptions<L = TableInput, R = TableInput> = JoinOptionsOf<typeof joinIndicesSchema, L, R>;
export type ExplainJoinOptions<L = TableInput, R = TableInput> = JoinOptionsOf<typeof explainJoinSchema, L, R>;

type SortOptionsOf<S extends Schema, T> = Omit<InputOf<S>, 'by' | 'select'> & {
  by: OneOrMore<NamesOf<T> | SortColumn<NamesOf<T>>>;
  select?: readonly NamesOf<T>[] | undefined;
};
export type SortOptions<T = TableInput> = SortOptionsOf<typeof sortSchema, T>;
export type ExplainSortOptions<T = TableInput> = SortOptionsOf<typeof explainSortSchema, T>;

type ByOf<S extends Schema, T> = Omit<InputOf<S>, 'by'> & { by: OneOrMore<NamesOf<T> | SortColumn<NamesOf<T>>> };
export type SortIndicesOptions<T = TableInput> = ByOf<typeof sortIndicesSchema, T>;
export type IsSortedOptions<T = TableInput> = ByOf<typeof isSortedSchema, T>;
export type SearchSortedOptions<T = TableInput> = ByOf<typeof searchSortedSchema, T>;
type UniqueOptionsOf<S extends Schema, T> = Omit<InputOf<S>, 'on' | 'select'> & {
  on?: OneOrMore<NamesOf<T>> | undefined;
  select?: readonly NamesOf<T>[] | undefined;
};
export type UniqueOptions<T = TableInput> = UniqueOptionsOf<typeof uniqueSchema, T>;
export type ExplainUniqueOptions<T = TableInput> = UniqueOptionsOf<typeof explainUniqueSchema, T>;

/** Refuses options that the schema doesn't have: a generic parameter alone would let them pass. */
export type Only<O, Known> = O & { [K in Exclude<keyof O, Known>]: never };

type AsList<K> = K extends readonly unknown[] ? K : readonly [K];
type LeftKeys<O> = O extends { on: infer K } ? AsList<K> : O extends { leftOn: infer K } ? AsList<K> : readonly [];
type RightKeys<O> = O extends { on: infer K } ? AsList<K> : O extends { rightOn: infer K } ? AsList<K> : readonly [];
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
type Selected<C, O> = O extends { select: readonly (infer Name)[] }
  ? string extends Name
    ? TypeMap
    : Flat<Pick<C, Name & keyof C>>
  : C;

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

/** The column types of a join's result. */
export type JoinColumns<L, R, O> =
  Decided<ColumnsOf<L>, ColumnsOf<R>, O> extends true ? Selected<All<ColumnsOf<L>, ColumnsOf<R>, O>, O> : TypeMap;
/** The column types of a sort's result. */
export type SortColumns<T, O> = IsKnown<ColumnsOf<T>> extends true ? Selected<ColumnsOf<T>, O> : TypeMap;

/** What unique gives: columns as a sort's. */
export type UniqueResult<T, O> = SortColumns<T, O> extends infer C extends TypeMap ? ResultTable<C> : ResultTable<TypeMap>;

/** A result that stays on the GPUs. */
export type ResidentTable<Columns extends TypeMap = TypeMap> = LoadedTable<Columns> & { readonly stats: Stats };

/** A table, or with `resident: true` one that stays on the GPUs. */
export type JoinResult<L, R, O> = JoinColumns<L, R, O> extends infer C extends TypeMap ? Placed<C, O> : Placed<TypeMap, O>;
type Placed<C extends TypeMap, O> = O extends { resident: infer B }
  ? B extends true
    ? ResidentTable<C>
    : ResultTable<C>
  : ResultTable<C>;
export type SortResult<T, O> = SortColumns<T, O> extends infer C extends TypeMap ? Placed<C, O> : Placed<TypeMap, O>;

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

export interface Pairs<K, V> {
  keys: K;
  values: V;
}
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
