/** Engines: devices, memory limits and the calls that share them. */
import { statfsSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import type { KeyArray } from './columns/input.js';
import type { RowNumbers } from './columns/result.js';
import { WarpjoinError } from './errors.js';
import { describeProblem, type Gpus, gpusOf } from './gpus.js';
import { TemporaryPlace } from './io/temporary.js';
import { Links, type MeasuredLinks } from './links.js';
import { physicalMemory } from './machine.js';
import { type DeviceDescription, type NativeAddon, type NativeEngine, type NativeEngineConfig, native } from './native.js';
import { translated } from './native-errors.js';
import type { BatchesCore } from './operators/batch-stream.js';
import { type EngineCore, runCall } from './operators/call.js';
import { explainJoin, joinCount, joinIndices, joinTables } from './operators/join.js';
import { joinBatches } from './operators/join-batches.js';
import { type LoadedTable, loadTable, Tables } from './operators/load.js';
import { isMapped, joinMapped, sortMapped } from './operators/mapped.js';
import { joinKeys, sortPairs } from './operators/pairs.js';
import { FreeMemory } from './operators/reclaim.js';
import { isSorted, searchSorted } from './operators/search.js';
import { explainSort, sortIndices, sortTable } from './operators/sort.js';
import { sortBatches } from './operators/sort-batches.js';
import { explainUnique, uniqueTable } from './operators/unique.js';
import { WorkingStreams } from './operators/working-streams.js';
import {
  type EngineOptions,
  type EngineSettings,
  engineSchema,
  type JoinKeysOptions,
  type JoinKind,
  type LinkSpeedsOptions,
  type LoadOptions,
  linkSpeedsSchema,
  type SortPairsOptions,
} from './options.js';
import { expected, parse } from './schema.js';
import { resolveSize } from './sizes.js';
import { Lanes, Turns } from './turns.js';
import type {
  BatchesInput,
  BatchesJoinedAs,
  Chosen,
  ColumnsOf,
  CrossJoin,
  ExplainJoinOptions,
  ExplainSortOptions,
  ExplainUniqueOptions,
  IsSortedOptions,
  JoinCountOptions,
  JoinedAs,
  JoinedBatches,
  JoinedColumns,
  JoinedPairs,
  JoinIndices,
  JoinIndicesOptions,
  JoinResult,
  KeysOfEach,
  OneOrMore,
  Pairs,
  ResultPlace,
  SearchSortedOptions,
  SharedKeys,
  SharedNames,
  SortBatchesOptions,
  SortedBatches,
  SortedPairs,
  SortIndices,
  SortIndicesOptions,
  SortOptions,
  SortResult,
  TableInput,
  UniqueOptions,
  UniqueResult,
} from './types.js';

/** What a device is shown as to users. */
export type DeviceInfo = Readonly<DeviceDescription>;

/** The share of the memory beside what the process holds that an engine uses where no limit is asked for. */
const DEFAULT_SHARE = 0.8;

/** The limit, in bytes, where none is asked for. The process holds the tables that calls are given, among other things. */
export function defaultMemoryLimit(): number {
  return Math.max(1, Math.floor(DEFAULT_SHARE * (physicalMemory() - process.memoryUsage.rss())));
}

function temporaryPlace({ tempDirectory, maxTempDirectorySize }: EngineSettings): TemporaryPlace {
  if (!maxTempDirectorySize) return new TemporaryPlace(tempDirectory);
  const free = () => {
    const { bavail, bsize } = statfsSync(tempDirectory ?? tmpdir());
    return bavail * bsize;
  };
  return new TemporaryPlace(tempDirectory, resolveSize(maxTempDirectorySize, 'share' in maxTempDirectorySize ? free() : 0));
}

/** Calls that run at once on the processor: at least, so that small ones don't wait behind a large one, and at most. */
const LEAST_LANES = 4;
const MOST_LANES = 16;

/**
 * Devices and memory that joins and sorts run on. Calls on one engine share them: on the processor several run at once, on GPUs one
 * after the other. Results stay valid after the engine is gone. Make one with createEngine().
 */
export class Engine implements AsyncDisposable {
  readonly #core: BatchesCore;
  readonly #native: NativeEngine;
  readonly #lanes: Lanes;
  /** Of the processor, where the lanes have GPUs. */
  readonly #processorLanes: Lanes | undefined;
  readonly #turns = new Turns();
  /** Whether the memory limit is still to be set at the first call, by what the process holds then. */
  #hasDefaultLimit: boolean;
  #disposal: Promise<void> | undefined;

  /** @internal createEngine() is the public way. */
  constructor(settings: EngineSettings, addon: NativeAddon) {
    const { gpus, reason, auto } = chooseDevices(settings, addon);
    const threads = settings.threads ?? availableParallelism();
    this.#hasDefaultLimit = settings.memoryLimit === undefined;
    const memoryLimitBytes = settings.memoryLimit ? resolveSize(settings.memoryLimit, physicalMemory()) : defaultMemoryLimit();
    const config = (gpus: DeviceDescription[]): NativeEngineConfig => {
      const deviceBytes = gpus.length > 0 ? Math.min(...gpus.map((gpu) => gpu.memoryBytes)) : memoryLimitBytes;
      return {
        threads,
        hostDevices: gpus.length > 0 ? 0 : settings.hostDevices,
        gpus: gpus.map((gpu) => gpu.ordinal),
        memoryLimitBytes,
        deviceMemoryLimitBytes: settings.deviceMemoryLimit ? resolveSize(settings.deviceMemoryLimit, deviceBytes) : 0,
      };
    };
    let first: NativeEngine | undefined;
    const lanesOf = (gpus: DeviceDescription[], most: number): Lanes =>
      new Lanes(() => {
        const made = translated(() => (first ? new addon.Engine(config(gpus), first) : new addon.Engine(config(gpus))));
        first ??= made;
        return made;
      }, most);
    const onHost = Math.min(Math.max(threads, LEAST_LANES), MOST_LANES);
    this.#lanes = lanesOf(gpus, gpus.length > 0 ? 1 : onHost);
    this.#native = this.#lanes.first;
    const processorLanes = auto && gpus.length > 0 ? lanesOf([], onHost) : undefined;
    this.#processorLanes = processorLanes;
    const processor = (lanes: Lanes, deviceReason: string): EngineCore => {
      const own = { native: lanes.first, tables: new Tables(), deviceReason, processor: null };
      return { ...this.#core, ...this.#entering(lanes), ...own };
    };
    this.#core = {
      ...this.#entering(this.#lanes),
      native: this.#native,
      threads: this.#native.threads(),
      deviceReason: reason,
      processor: processorLanes ? (why) => processor(processorLanes, why) : null,
      links: new Links(this.#native, addon.backend),
      givesArrays: false,
      tables: new Tables(),
      temporary: temporaryPlace(settings),
      streams: new WorkingStreams(),
      freeMemory: new FreeMemory(this.#native),
      async free(buffers) {
        addon.detach([...buffers]);
        await setImmediate(); // then what is no longer shared has been freed
      },
    };
  }

  #entering(lanes: Lanes): Pick<EngineCore, 'enqueue' | 'after'> {
    return {
      enqueue: async (when, signal, task) => {
        if (this.#disposal)
          throw new WarpjoinError('ERR_OPTION', 'Expected an engine in use but received one that was disposed.');
        if (this.#hasDefaultLimit) this.#native.setMemoryLimit(defaultMemoryLimit());
        this.#hasDefaultLimit = false;
        return this.#turns.run(lanes, when, signal, task);
      },
      after: (task) => this.#turns.run(lanes, 'alone, last', undefined, task),
    };
  }

  /**
   * Keeps a table on the engine's GPUs, an equal part of its rows on each, so that calls that are given what this gives need
   * not bring it there again: joins of two loaded tables by columns that are there run where the tables are, and so do sorts of
   * one by such columns, of at most 64 bits together, into such columns. Other calls, and joins by floats of two widths, take it
   * from host memory: `explain` and `stats` say which. The table must stay as it is as long as it is loaded. Its columns of text, and
   * other widths than 1, 2, 4, 8 and 16 bytes, stay in host memory.
   *
   * Memory is freed by dispose() (`await using orders = await engine.load(table)`), or when nobody holds the table any more and
   * it is garbage collected. Where a call finds too little device memory beside loaded tables, those that were not used for the
   * longest time are evicted: they go on from host memory, and come back with a later call that has room for them. Rejects with
   * ERR_MEMORY_LIMIT where the devices' limit has no room for the table.
   */
  load<T extends Exclude<TableInput, LoadedTable>>(table: T, options: LoadOptions = {}): Promise<LoadedTable<ColumnsOf<T>>> {
    return loadTable(this.#core, table, options) as Promise<LoadedTable<ColumnsOf<T>>>;
  }

  /**
   * Joins two tables. Row order is unspecified unless `maintainOrder` asks for one. Rejects with a WarpjoinError, or with the signal's reason. The tables must stay
   * as they are until the promise settles. The result has the classes of the left table's apache-arrow, and several record batches
   * where a buffer would exceed 1 GiB.
   *
   * | how | rows |
   * | --- | --- |
   * | inner | pairs of rows with equal keys |
   * | left, right, full | these, and the rows of the left, the right, both tables without a match, with nulls for the other side |
   * | semi, anti | left rows with, without a match; left columns only |
   * | cross | every left row with every right row |
   *
   * Rows match where all key columns are equal: `on: ['store', 'day']`. Values compare, whatever the types that hold them: integers
   * with decimals of any scale; floats of any width; text and binary in any layout; times of day, durations, dates and timestamps
   * in any unit. A date is its midnight. Timestamps with a time zone compare with each other, as instants, and with nothing else. A
   * dictionary compares as its values do. NaN equals NaN, and -0.0 equals 0.0. A null equals nothing, unless `nullsEqual` is true
   * or, in an array with one entry for each key, is for this key. Rejects with ERR_KEY_TYPE where two columns do not compare.
   *
   * `limit` and `offset` choose rows of that order; columns are made for these rows alone. `validate` says which keys have to be
   * there once: otherwise the call rejects with ERR_DUPLICATE_KEY.
   *
   * With `resident: true` the result stays on the GPUs, to go into further calls: a LoadedTable with `stats`. With `maintainOrder`,
   * `limit` or `offset` it is made in host memory and loaded from there.
   *
   * With `result: 'mapped'` the result lies in a temporary file in `tempDirectory`, so that it may be larger than memory: a table that
   * reads the file as memory. The file has no name, counts towards `maxTempDirectorySize`, and is gone once the table is garbage
   * collected, or the process ends. The rows are made by joinBatches(), whose `stats` the table has, and asynchronous batches are joined
   * as they come; of tables, the one with fewer rows is the build side where `buildSide` and `maintainOrder` name none. How many rows
   * asynchronous batches are to have is not known, so that `onProgress` gets a fraction of 0 until they have ended. Rejects with
   * ERR_SPILL where the file can't be written.
   */
  join<
    L extends TableInput,
    R extends TableInput,
    const On extends OneOrMore<SharedNames<L, R>> | undefined = undefined,
    const LeftOn extends OneOrMore<keyof ColumnsOf<L> & string> | undefined = undefined,
    const RightOn extends OneOrMore<keyof ColumnsOf<R> & string> | undefined = undefined,
    How extends Exclude<JoinKind, 'cross'> = 'inner',
    Coalesce extends boolean | undefined = undefined,
    Suffix extends string = '_right',
    Name extends keyof JoinedColumns<L, R, Chosen<On, LeftOn, RightOn, How, Coalesce, Suffix>> & string = never,
    Resident extends boolean = false,
    Place extends ResultPlace = 'memory',
  >(
    left: L,
    right: R,
    options: JoinedAs<Coalesce, Suffix, Name, Resident, Place> &
      (SharedKeys<On, How> | KeysOfEach<LeftOn, RightOn, How> | CrossJoin),
  ): Promise<JoinResult<L, R, Chosen<On, LeftOn, RightOn, How, Coalesce, Suffix>, Name, Resident, Place>> {
    const join = isMapped(options) ? joinMapped : joinTables;
    // Only the types know the columns.
    return join(this.#core, left, right, options) as Promise<never>;
  }

  /**
   * Joins record batches as they come, with the rows that join() gives. The build side, `buildSide`, is read first. Where it has room in
   * memory it stays there, and the other one comes and goes: its rows are joined as they arrive, in larger and larger parts, up to an
   * eighth of the free memory. Else both are cut into partitions by a hash of their keys, in temporary files, and joined a partition at
   * a time. Inputs are those of sortBatches(), and so is what the result is.
   *
   * Rows come in any order. `maintainOrder` names the other side where its order is to be kept: rows that went through temporary files
   * are sorted by where they were, and are all there before the first one comes. `validate` looks at a side once all of it is there:
   * before the first row where it has room in memory, and partition by partition where not. Reading rejects with ERR_DUPLICATE_KEY then.
   * The build side of a cross join has to fit, or reading rejects with ERR_MEMORY_LIMIT. It rejects with ERR_KEY_TYPE where a few keys
   * have more rows of the build side than fit, and keys compare but do not sort alike, such as dates and timestamps; and with ERR_SPILL
   * as sortBatches() does.
   */
  joinBatches<
    L extends BatchesInput,
    R extends BatchesInput,
    const On extends OneOrMore<SharedNames<L, R>> | undefined = undefined,
    const LeftOn extends OneOrMore<keyof ColumnsOf<L> & string> | undefined = undefined,
    const RightOn extends OneOrMore<keyof ColumnsOf<R> & string> | undefined = undefined,
    How extends Exclude<JoinKind, 'cross'> = 'inner',
    Coalesce extends boolean | undefined = undefined,
    Suffix extends string = '_right',
    Name extends keyof JoinedColumns<L, R, Chosen<On, LeftOn, RightOn, How, Coalesce, Suffix>> & string = never,
  >(
    left: L,
    right: R,
    options: BatchesJoinedAs<Coalesce, Suffix, Name> & (SharedKeys<On, How> | KeysOfEach<LeftOn, RightOn, How> | CrossJoin),
  ): JoinedBatches<L, R, Chosen<On, LeftOn, RightOn, How, Coalesce, Suffix>, Name> {
    return joinBatches(this.#core, left, right, options) as never;
  }

  /**
   * The number of rows that join() would give, without making them: `limit` and `offset` count, and `maintainOrder` changes nothing.
   * The tables must stay as they are until the promise settles.
   */
  joinCount<L extends TableInput, R extends TableInput>(left: L, right: R, options: JoinCountOptions<L, R>): Promise<number> {
    return joinCount(this.#core, left, right, options);
  }

  /**
   * The row numbers of a join: row i joins row left[i] with row right[i]. Uint32Array for a side of fewer than 2^32 - 1
   * rows, else BigUint64Array; a row that is not there (outer joins) has all bits set. Rejects with
   * ERR_NOT_SUPPORTED where a typed array of this Node.js can't hold them: before Node.js 22 it has at most 4 GiB. The tables must
   * stay as they are until the promise settles.
   */
  joinIndices<L extends TableInput, R extends TableInput>(
    left: L,
    right: R,
    options: JoinIndicesOptions<L, R>,
  ): Promise<JoinIndices> {
    return joinIndices(this.#core, left, right, options);
  }

  /**
   * Joins typed arrays on equal keys: pairs (r.values[i], s.values[j]) for all i and j with r.keys[i] equal to s.keys[j]. The arrays
   * must stay as they are until the promise settles.
   */
  joinKeys<K extends KeyArray, RV extends KeyArray, SV extends KeyArray>(
    r: Pairs<K, RV>,
    s: Pairs<KeyArray, SV>,
    options: JoinKeysOptions = {},
  ): Promise<JoinedPairs<K, RV, SV>> {
    return joinKeys(this.#core, r, s, options);
  }

  /**
   * Sorts a table, stable. NaN is the greatest value, -0.0 equals 0.0, and text compares by its UTF-8 bytes: docs/text-order.md says
   * what to do for orders without regard to case, and for those of languages. Fixed-size binary compares by its bytes, decimals by
   * value. With `limit` or `offset` the result has some rows of the order alone; few of them are found without a sort of all.
   * The table must stay as it is until the promise settles. The result has the classes of the table's apache-arrow, and several record batches where a
   * buffer would exceed 1 GiB.
   *
   * With `resident: true` the result stays on the GPUs, to go into further calls: a LoadedTable with `stats`.
   *
   * With `result: 'mapped'` the result lies in a temporary file, as that of join() does: asynchronous batches are sorted as they come, by
   * sortBatches(), in bounded memory. Rejects with ERR_SPILL.
   */
  sort<
    T extends TableInput,
    Name extends keyof ColumnsOf<T> & string = never,
    Resident extends boolean = false,
    Place extends ResultPlace = 'memory',
  >(table: T, options: SortOptions<T, Name, Resident, Place>): Promise<SortResult<T, Name, Resident, Place>> {
    const sort = isMapped(options) ? sortMapped : sortTable;
    return sort(this.#core, table, options) as Promise<never>;
  }

  /**
   * Sorts record batches as they come, in bounded memory: as sort() orders rows, and equal rows as they came. `input` is what sort()
   * takes, or an asynchronous iterable or stream, of Node.js or the web, of record batches or of the bytes of an Arrow IPC stream.
   *
   *     for await (const batch of engine.sortBatches(scanFiles('events/*.parquet'), { by: 'ts' })) response.write(toIPC(batch));
   *
   * An eighth of the free memory limit is read and sorted at a time. Where the input has no more, nothing is written; else these
   * runs go to temporary files in `tempDirectory`, which have no names and are gone with the process, and are merged once the input has
   * ended. Batches count towards the memory limit from when they are read until they are written, and those of the result until they
   * are garbage collected; dictionaries stay in memory. Options that are not right throw here. Reading rejects with ERR_INVALID_TABLE
   * for what are no record batches of one schema, with ERR_MEMORY_LIMIT, with ERR_SPILL where a temporary file can't be written or
   * would exceed `maxTempDirectorySize`, and with the signal's reason. Where there are no rows, one batch without rows is given. Indices
   * of dictionaries have 32 bits at least, in all batches: later ones may bring values that fewer can't number.
   */
  sortBatches<T extends BatchesInput, Name extends keyof ColumnsOf<T> & string = never>(
    input: T,
    options: SortBatchesOptions<T, Name>,
  ): SortedBatches<T, Name> {
    return sortBatches(this.#core, input, options) as never;
  }

  /** @internal What calls on an engine work with, which may still be to come. */
  static coreOf(engine: Engine | Promise<Engine>): BatchesCore | Promise<BatchesCore> {
    return engine instanceof Promise ? engine.then((made) => made.#core) : engine.#core;
  }

  /**
   * The row numbers of a sort, stable: row i of it would be row rows[i] of the table. Uint32Array for a table of fewer than 2^32 - 1
   * rows, else BigUint64Array. Rejects with ERR_NOT_SUPPORTED where a typed array of this Node.js can't hold them: before Node.js 22
   * it has at most 4 GiB. The table must stay as it is until the promise settles.
   */
  sortIndices<T extends TableInput>(table: T, options: SortIndicesOptions<T>): Promise<SortIndices> {
    return sortIndices(this.#core, table, options);
  }

  /**
   * Whether a table's rows are in the order that sort() would give them. A table of no rows or of one is. The table must stay as it
   * is until the promise settles.
   */
  isSorted<T extends TableInput>(table: T, options: IsSortedOptions<T>): Promise<boolean> {
    return isSorted(this.#core, table, options);
  }

  /**
   * For each row of `values`, where it would go in a table that is sorted by `by`: the number of rows before it, with side 'left'
   * those that are less, with 'right' those that are less or equal. `values` has the columns of `by`, of the same types but for
   * the widths of integers and floats. Uint32Array for a table of fewer than 2^32 - 1 rows, else BigUint64Array.
   *
   * The table must be sorted, with the same directions and places of nulls: isSorted() tells. Rejects with ERR_OPTION where a
   * sample of its rows, one in 64, is not in order; a table that is out of order elsewhere gives any positions. Both tables must
   * stay as they are until the promise settles.
   */
  searchSorted<T extends TableInput>(table: T, values: TableInput, options: SearchSortedOptions<T>): Promise<RowNumbers> {
    return searchSorted(this.#core, table, values, options);
  }

  /**
   * Sorts typed arrays by key, stable: values[i] stays with keys[i]. The inputs are not changed, and must stay as they are until the
   * promise settles.
   */
  sortPairs<K extends KeyArray, V extends KeyArray>(
    keys: K,
    values: V,
    options: SortPairsOptions = {},
  ): Promise<SortedPairs<K, V>> {
    return sortPairs(this.#core, keys, values, options);
  }

  /**
   * One row of each key of a table: the first one, the last one or any, or with `keep: 'none'` the rows whose key no other row has.
   * Rows are told apart by the columns `on`, by all columns where it is unset: nulls equal each other, NaN equals NaN, -0.0 equals
   * 0.0, text is equal by its bytes. With `maintainOrder: true` the rows keep their order; otherwise they come in any. The table must
   * stay as it is until the promise settles. The result has the classes of the table's apache-arrow. It is made by the host's
   * threads, from host memory, whatever the engine's devices are.
   *
   *     unique({ k: [1, 2, 1], v: ['a', 'b', 'c'] }, { on: 'k', keep: 'last', maintainOrder: true }): { k: [2, 1], v: ['b', 'c'] }
   */
  unique<T extends TableInput, Name extends keyof ColumnsOf<T> & string = never>(
    table: T,
    options: UniqueOptions<T, Name> = {},
  ): Promise<UniqueResult<T, Name>> {
    return uniqueTable(this.#core, table, options) as Promise<never>;
  }

  /**
   * The plan of a join as text; with `analyze: true` it runs, too, and shows what the steps took. The tables must stay as they are
   * until the promise settles.
   */
  explain<L extends TableInput, R extends TableInput>(
    operator: 'join',
    left: L,
    right: R,
    options: ExplainJoinOptions<L, R>,
  ): Promise<string>;
  /** The plan of a sort as text, likewise. */
  explain<T extends TableInput>(operator: 'sort', table: T, options: ExplainSortOptions<T>): Promise<string>;
  /** The plan of unique as text, likewise. */
  explain<T extends TableInput>(operator: 'unique', table: T, options?: ExplainUniqueOptions<T>): Promise<string>;
  async explain(operator: string, ...rest: unknown[]): Promise<string> {
    if (operator === 'join') return explainJoin(this.#core, rest[0], rest[1], rest[2]);
    if (operator === 'sort') return explainSort(this.#core, rest[0], rest[1]);
    if (operator === 'unique') return explainUnique(this.#core, rest[0], rest[1] ?? {});
    throw expected('one of "join", "sort", "unique"', 'the operator to explain', operator);
  }

  /** The GPUs, or the processor where there are none: with device 'auto', small calls run on the processor all the same. */
  devices(): DeviceInfo[] {
    return this.#native.devices();
  }

  /**
   * How fast the links of the GPUs are, in bytes a second: alone, together, and to each other. Measured once a host, in
   * a second or two, and kept in a file in WARPJOIN_CACHE_DIR, else in the user's cache directory. null without GPUs.
   */
  async linkSpeeds(options: LinkSpeedsOptions = {}): Promise<MeasuredLinks | null> {
    const { measure, signal } = parse(linkSpeedsSchema, 'linkSpeeds', options);
    return runCall(this.#core, { signal, onProgress: undefined, trace: undefined }, (call) => call.linkSpeeds(measure));
  }

  /** @internal Why its calls reject: a device has failed for good. null while all of them work. */
  get failure(): string | null {
    return this.#native.failure();
  }

  /**
   * Waits for the calls made so far, then frees all memory. Later calls reject. What is on a GPU that has failed is freed when
   * the process ends.
   */
  dispose(): Promise<void> {
    this.#disposal ??= this.#core.after(async () => {
      this.#core.tables.close();
      await this.#processorLanes?.dispose();
      await this.#lanes.dispose();
    });
    return this.#disposal;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

interface ChosenDevices {
  /** None: the processor. */
  gpus: DeviceDescription[];
  /** Why these. */
  reason: string;
  /** Whether each call may choose between them and the processor. */
  auto: boolean;
}

/** A GPU that was asked for by its number; throws ERR_DEVICE where the addon can't use it, ERR_OPTION where there is none. */
function gpuOf(ordinal: number, asked: readonly number[], { usable, refused }: Gpus): DeviceDescription {
  const gpu = usable.find((one) => one.ordinal === ordinal);
  if (gpu) return gpu;
  const known = refused.find((one) => one.gpu.ordinal === ordinal);
  if (!known) throw expected(`numbers of the ${usable.length + refused.length} GPUs that the process may use`, 'devices', asked);
  throw new WarpjoinError(
    'ERR_DEVICE',
    known.gpu.failure ?? `GPU ${ordinal} was asked for but ${describeProblem(known.problem)}.`,
  );
}

function chooseDevices(settings: EngineSettings, addon: NativeAddon): ChosenDevices {
  const { device, devices, fallback } = settings;
  if (device === 'cpu') {
    if (devices) throw expected('no devices', 'an engine with device "cpu"', devices);
    return { gpus: [], reason: "device 'cpu' was asked for", auto: false };
  }
  const auto = device === 'auto' && !devices;
  const found = gpusOf(addon);
  if (devices && found.usable.length + found.refused.length > 0) {
    const gpus = devices.map((ordinal) => gpuOf(ordinal, devices, found));
    return { gpus, reason: `GPUs ${devices.join(', ')} were asked for`, auto };
  }
  const { usable, problem } = found;
  if (!problem) {
    const reason = auto ? `device 'auto': all GPUs that the process can use, ${usable.length}` : "device 'gpu' was asked for";
    return { gpus: usable, reason, auto };
  }
  if (auto) return { gpus: [], reason: `device 'auto': the processor, without GPUs: ${problem.why}`, auto };
  if (fallback === 'raise') {
    throw new WarpjoinError(
      'ERR_DEVICE',
      `GPUs were asked for but ${describeProblem(problem)}. Device "auto" takes them where there are some, and "cpu" never.`,
    );
  }
  const reason = `GPUs were asked for but ${problem.why}: running on the processor`;
  if (fallback === 'warn') process.emitWarning(reason, { type: 'WarpjoinWarning', code: 'ERR_DEVICE' });
  return { gpus: [], reason, auto };
}

/**
 * Makes an engine. `await using engine = await createEngine({ memoryLimit: '64GiB' })` disposes it at the end of the scope.
 * Rejects with ERR_OPTION for options that are not right, ERR_DEVICE for device 'gpu' where there is none, unless
 * `fallback` allows another, where a GPU has failed or where the system gives no thread for the engine's calls, and ERR_NATIVE_MISSING where the addon
 * can't be loaded. An engine that gets fewer than `threads` threads works with those.
 */
export async function createEngine(options: EngineOptions = {}): Promise<Engine> {
  return new Engine(parse(engineSchema, 'createEngine', options), native());
}

let shared: Engine | undefined;
/** A shared engine that has failed, on its way out. */
let ending: Promise<void> | undefined;

/**
 * The engine of the module's own functions: made at the first use. Where a GPU has failed it is made anew, of the processor, once
 * the one before is gone.
 */
export function defaultEngine(): Engine | Promise<Engine> {
  if (shared?.failure) {
    ending = shared.dispose();
    shared = undefined;
  }
  if (ending) {
    const awaited = ending;
    const goOn = (): Engine | Promise<Engine> => {
      if (ending === awaited) ending = undefined;
      return defaultEngine();
    };
    return awaited.then(goOn, goOn);
  }
  shared ??= new Engine(parse(engineSchema, 'createEngine', {}), native());
  return shared;
}
