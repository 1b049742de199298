/**
 * Joins of two sides that memory has no room for: both are cut into partitions by a hash of their keys, in temporary files, and pairs of
 * partitions are joined one after the other (the GRACE hash join: Kitsuregawa, Tanaka and Moto-oka, Application of Hash to Data Base
 * Machine and Its Architecture, 1983).
 */
import type * as arrow from 'apache-arrow';
import type { Signal } from '../abort.js';
import { Behind } from '../behind.js';
import type { ForeignTable } from '../columns/input.js';
import { libraryOf } from '../columns/library.js';
import { bytesIn, type TemporaryFile } from '../io/temporary.js';
import { type Boxes, behind, END, type Items, itemsOf } from '../items.js';
import { type KeyComparison, SIDES, type Side } from '../native.js';
import { buffersOf, eachPart, halvesOf, nullIfShort, type Part } from './batch-part.js';
import type { BatchSource } from './batch-source.js';
import type { BatchesCore, BatchStats } from './batch-stream.js';
import { type Grouping, groupRows } from './group-rows.js';
import { collectGarbage } from './reclaim.js';
import { Run, type Unit } from './runs.js';

/** Partitions of a side at most. A side of this times what a pair of partitions may take is joined without a further cut. */
const MOST_PARTITIONS = 128;
const LEAST_PARTITIONS = 4;
/** What is written at once of a partition, at least, where there may be fewer of them. */
const LEAST_WRITE_BYTES = 1 << 14;
/** The share of the free memory that a part of a side takes while its rows are cut: beside it lie the cut one, and the one before, which is written. */
const PART_SHARE = 1 / 8;
/** The share of it that the build side's partitions take that are joined at once; as much of each side's next ones is read meanwhile. */
const PAIR_SHARE = 1 / 16;
/** The share of a part that a record batch of a partition takes at most: what is read at once. */
const BATCH_SHARE = 1 / 16;
const READS_AT_ONCE = 8;
/** However many columns there are. */
const LEAST_BUFFER_BYTES = 1 << 10;
/** A partition with more of a side's bytes than this has keys that are there so often that a further cut would not help. */
const CROWDED_SHARE = 1 / 2;

/** What a join of partitions asks of one of record batches. */
export interface PartitionJoin {
  readonly keys: Record<Side, readonly string[]>;
  readonly comparisons: readonly KeyComparison[];
  /** The side that is cut first. */
  readonly buildSide: Side;
  /** The sides that are to have room in memory, partition by partition. */
  readonly wholeSides: readonly Side[];
  /** Tables without rows that have each side's columns. */
  readonly none: Record<Side, arrow.Table>;
  readonly signal: Signal | undefined;
  /** Memory for all of it. */
  readonly freeBytes: number;
  /** The seed of the hash: another one for each further cut. */
  readonly seed: number;
  /** The rows that partitions of each side give. `isCrowded`: a further cut would not help. */
  join(partitions: Record<Side, BatchSource>, isCrowded: boolean): Boxes<arrow.Table>;
}

/** One join of partitioned sides, and what it holds. */
export class PartitionedJoin implements AsyncDisposable {
  readonly #sides: Record<Side, PartitionedSide>;
  readonly #partitions: number;
  readonly #partBytes: number;

  constructor(
    private readonly core: BatchesCore,
    private readonly by: PartitionJoin,
    private readonly sources: Record<Side, BatchSource>,
    stats: BatchStats,
  ) {
    const { keys, comparisons, signal, freeBytes, seed } = by;
    this.#partBytes = Math.max(1, Math.floor(PART_SHARE * freeBytes));
    const writes = 2 ** Math.floor(Math.log2(Math.max(1, this.#partBytes / LEAST_WRITE_BYTES)));
    const groups = Math.min(MOST_PARTITIONS, Math.max(LEAST_PARTITIONS, writes));
    this.#partitions = groups;
    const partitioned = (side: Side) =>
      new PartitionedSide(core, { side, keys: keys[side], comparisons, groups, seed }, signal, stats);
    this.#sides = { left: partitioned('left'), right: partitioned('right') };
  }

  /** Tables of the rows, in no order. */
  async *rows(): Boxes<arrow.Table> {
    const { core, by, sources } = this;
    try {
      await core.temporary.check();
      for (const side of [by.buildSide, by.buildSide === 'left' ? 'right' : 'left'] as const) {
        await this.#sides[side].fill(sources[side], this.#partBytes);
      }
      const bytes = SIDES.reduce((sum, side) => sum + this.#sides[side].bytesOf(0, this.#partitions), 0);
      await core.freeMemory.trim(
        bytes,
        SIDES.some((side) => sources[side].memory === 'stream'),
      );
      for (let next = this.#pairFrom(0); next; ) {
        const pair = next;
        await core.freeMemory.bytes(); // results that nobody holds make room: a join that fails for want of it begins again
        next = this.#pairFrom(pair.end);
        yield* by.join(pair.sources, pair.isCrowded);
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  /** The partitions of both sides that are joined together, from one on. null behind the last. They are on their way from now on. */
  #pairFrom(begin: number): Pair | null {
    if (begin === this.#partitions) return null;
    const { wholeSides, none, freeBytes } = this.by;
    const most = PAIR_SHARE * freeBytes;
    let end = begin + 1;
    const hasRoom = (side: Side) => this.#sides[side].bytesOf(begin, end + 1) <= most;
    while (end < this.#partitions && wholeSides.every(hasRoom)) end++;
    const source = (side: Side) => this.#sides[side].source(begin, end, none[side], most);
    return {
      end,
      sources: { left: source('left'), right: source('right') },
      isCrowded: SIDES.some((side) => this.#sides[side].isCrowded(begin, end)),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const side of SIDES) await this.#sides[side][Symbol.asyncDispose]();
  }
}

/** Partitions of both sides that are joined together: those before `end` that no pair before has. */
interface Pair {
  readonly end: number;
  readonly sources: Record<Side, BatchSource>;
  readonly isCrowded: boolean;
}

interface PlacedUnit {
  readonly run: Run;
  readonly unit: Unit;
}

/** A side's rows in a temporary file, by partitions. */
class PartitionedSide implements AsyncDisposable {
  /** null: without rows. */
  readonly #partitions: (Run | null)[];
  readonly #cuts = new Behind();
  readonly #writes = new Behind();
  #file: TemporaryFile | undefined;
  /** Of the first table, and so of all partitions. */
  #schema: arrow.Schema | undefined;
  #batchBytes = 0;
  #columns = 1;

  constructor(
    private readonly core: BatchesCore,
    private readonly grouping: Grouping,
    private readonly signal: Signal | undefined,
    private readonly stats: BatchStats,
  ) {
    this.#partitions = Array(grouping.groups).fill(null);
  }

  /** Cuts all rows of a source, so many bytes at a time. */
  async fill(source: BatchSource, partBytes: number): Promise<void> {
    const { core } = this;
    this.#file = await core.temporary.open(core.keep);
    this.#batchBytes = Math.max(1, Math.floor(BATCH_SHARE * partBytes));
    const cut = async (part: Part) => {
      try {
        await this.#cut(part.batches);
      } finally {
        await part.free(core, source.memory);
      }
    };
    await eachPart(
      core,
      source,
      partBytes,
      () => this.#allWritten(),
      (part) => this.#cuts.start(() => cut(part)),
    );
    await this.#allWritten();
  }

  /** Bytes of partitions [begin, end). */
  bytesOf(begin: number, end: number): number {
    return this.#partitions.slice(begin, end).reduce((bytes, run) => bytes + (run?.bytes ?? 0), 0);
  }

  /** Whether partitions [begin, end), few as they are, have much of the side. */
  isCrowded(begin: number, end: number): boolean {
    return end - begin === 1 && this.bytesOf(begin, end) > CROWDED_SHARE * this.bytesOf(0, this.#partitions.length);
  }

  /** The rows of partitions [begin, end), behind a table without rows. Some of them, up to so many bytes, are on their way from now on. */
  source(begin: number, end: number, none: arrow.Table, aheadBytes: number): BatchSource {
    return { tables: behind(none, this.#tables(begin, end, aheadBytes)), memory: 'engine' };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#allWritten().catch(() => {}); // whoever waits for it is told
    await this.#writes.end().catch(() => {});
    await this.#file?.[Symbol.asyncDispose]();
    this.#file = undefined;
  }

  async #allWritten(): Promise<void> {
    await this.#cuts.end();
    await this.#writes.end();
  }

  /** Cuts batches, and has the partitions written; in several parts, one after the other, where memory is short. */
  async #cut(batches: readonly arrow.RecordBatch[]): Promise<void> {
    const { core, signal } = this;
    this.#columns = batches[0]!.data.children.length;
    const running = { signal, onProgress: undefined, trace: undefined };
    const maxBufferBytes = Math.max(LEAST_BUFFER_BYTES, Math.ceil(this.#batchBytes / this.#columns));
    const tables = await groupRows({ ...core, maxBufferBytes }, batches, this.grouping, running).catch((error: unknown) => {
      if (batches.length === 1 && batches[0]!.numRows === 1) throw error;
      return nullIfShort(error);
    });
    if (!tables) {
      for (const half of halvesOf(batches)) await this.#cut(half);
      return;
    }
    await this.#writes.start(async () => {
      await this.#write(tables);
      await core.free(buffersOf(tables.flatMap((table) => table?.batches ?? [])));
    });
  }

  /** Writes a table of each partition at once. */
  async #write(tables: readonly (arrow.Table | null)[]): Promise<void> {
    const file = this.#file!;
    let end = file.size;
    const parts = tables.flatMap((table, index) => {
      if (!table) return [];
      const library = libraryOf(table as unknown as ForeignTable);
      // Each record batch is read by itself, into memory that is freed with it.
      this.#schema ??= table.schema;
      this.#partitions[index] ??= new Run(file, library, this.#schema, 0, 0, this.stats);
      const placed = this.#partitions[index].place(table, end);
      end += bytesIn(placed);
      return placed;
    });
    await file.append(parts);
  }

  /** A table of each unit of partitions [begin, end). The first of them, up to so many bytes, are read before they are asked for. */
  #tables(begin: number, end: number, aheadBytes: number): Items<arrow.Table> {
    const units = this.#partitions.slice(begin, end).flatMap((run) => (run ? run.units.map((unit) => ({ run, unit })) : []));
    let later = 0;
    for (let bytes = 0; later < units.length; later++) {
      bytes += units[later]!.unit.bytes;
      if (bytes > aheadBytes) break;
    }
    const first = units.splice(0, later);
    let ahead: Promise<arrow.Table[] | null> | null = this.#readNow(first);
    ahead.catch(() => {}); // whoever asks for them is told
    const ready: arrow.Table[] = [];
    return itemsOf(async () => {
      if (ahead) {
        ready.push(...((await ahead) ?? (await this.#read(first))));
        ahead = null;
      }
      if (ready.length === 0) ready.push(...(await this.#read(units.splice(0, READS_AT_ONCE))));
      return ready.shift() ?? END;
    });
  }

  async #read(units: readonly PlacedUnit[]): Promise<arrow.Table[]> {
    const tables = await this.#readNow(units);
    if (tables) return tables;
    await collectGarbage(() => this.core.native.memory().usedBytes);
    return this.#readWhole(units);
  }

  /** null where memory is short. */
  #readNow(units: readonly PlacedUnit[]): Promise<arrow.Table[] | null> {
    return this.#readWhole(units).catch(nullIfShort);
  }

  #readWhole(units: readonly PlacedUnit[]): Promise<arrow.Table[]> {
    const { native } = this.core;
    return Promise.all(units.map(async ({ run, unit }) => run.tableOf((await run.read(native, [unit]))[0]!.batches)));
  }
}
