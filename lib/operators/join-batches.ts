/**
 * Joins of record batches as they come: the build side is read first and stays in memory; parts of the probe side are joined with it
 * one after the other, as tables are. Where the build side has no room there, both are cut into partitions that have
 * (partitioned-join.ts); where a few keys have most of the rows, both are sorted instead (sorted-join.ts).
 */
import type * as arrow from 'apache-arrow';
import { checkSameTypes } from '../columns/batches.js';
import type { ForeignTable, Input } from '../columns/input.js';
import { joinKeyColumns } from '../columns/layout.js';
import { batchOver, libraryOf } from '../columns/library.js';
import { withoutRows } from '../columns/tables.js';
import { isMemoryLimit, WarpjoinError } from '../errors.js';
import { type Box, type Boxes, behind, boxed, END, type Items, itemsOf, mapped, nextOf, unboxed } from '../items.js';
import { SIDES, type Side } from '../native.js';
import { tooManyRows, translated } from '../native-errors.js';
import {
  type JoinBatchesSettings,
  type JoinKind,
  joinBatchesSettings,
  type NamedKeyPair,
  sortBatchesSchema,
  sortSettings,
} from '../options.js';
import { Arriving } from './arriving.js';
import { buffersOf, halvesOf, nullIfShort, orShort, Part, rowsBetween } from './batch-part.js';
import { type BatchMemory, type BatchSource, batchSource, counted } from './batch-source.js';
import { type BatchesCore, type BatchStats, BatchStream, cut, rowsOf } from './batch-stream.js';
import { joinTables } from './join.js';
import { readInput } from './load.js';
import { neededColumns } from './needed-columns.js';
import { PartitionedJoin, type PartitionJoin } from './partitioned-join.js';
import { RowNumbers } from './row-numbers.js';
import { Sorting } from './sort-batches.js';
import { checkSortAlike, SortedJoin, type StretchJoin } from './sorted-join.js';
import { checkUniqueRows, uniqueSides } from './validate.js';

/** The share of the memory that is free beside the build side that a part of the probe side takes at most: beside it lie its rows. */
const PART_SHARE = 1 / 8;
/** The same of a partition, beside which less may be free: pairs of partitions come one after the other, and their rows. */
const PAIR_PART_SHARE = 1 / 16;
/**
 * The share of the free memory that the build side takes at most: its keys, and the table that they are looked up in, take as much and
 * more. Those of its rows that were not matched take as much again.
 */
const BUILD_SHARE = 1 / 4;
/** The share of it that a part of the rows takes at most that are brought into the order of a side. */
const ORDER_SHARE = 1 / 8;
/**
 * How long more rows of the probe side are waited for, behind the first ones of all: at least, and for so many bytes of the build side,
 * which the table is made of that they go through; and how long for some of them.
 */
const FIRST_MILLISECONDS = 20;
const FIRST_BYTES_PER_MILLISECOND = 2 << 20;
const FIRST_PAUSE_MILLISECONDS = 4;
/** Where none come for that long, so many of those that are there are joined: the table that they make is small enough for a cache. */
const FIRST_ROWS = 1 << 16;
/** How often partitions are cut into further ones. */
const MOST_CUTS = 3;

type Rows = readonly (arrow.RecordBatch | arrow.Table)[];

export function joinBatches(
  core: BatchesCore | Promise<BatchesCore>,
  left: unknown,
  right: unknown,
  options: unknown,
): BatchStream {
  const settings = joinBatchesSettings(options);
  const { signal, trace, batchRows, limit, offset, maxOutputRows } = settings;
  const sources = { left: batchSource(left, 'left', signal), right: batchSource(right, 'right', signal) };
  return new BatchStream(core, { signal, trace }, (core, stats, hold) => {
    const joining = hold(new Joining(core, settings, stats));
    const rows = joining.rows({ left: counted(sources.left, stats), right: counted(sources.right, stats) });
    return cut(rowsOf(atMost(unboxed(rows), maxOutputRows), offset, offset + limit), batchRows, stats);
  });
}

/** Throws ERR_MEMORY_LIMIT where tables have more rows. */
function atMost(tables: Items<arrow.Table>, maxOutputRows: number): Items<arrow.Table> {
  let rows = 0;
  return mapped(tables, (table) => {
    rows += table.numRows;
    if (rows > maxOutputRows) throw tooManyRows(`The join gives more rows than the ${maxOutputRows} allowed.`);
    return table;
  });
}

type ProbeSource = BatchSource & { readonly arriving: Arriving<arrow.Table> };

function arrivingOf(source: BatchSource): ProbeSource {
  const arriving = new Arriving(source.tables);
  return { ...source, tables: arriving.items, arriving };
}

/** How parts of the probe side are joined, and what of the build side's rows without a match is needed. */
interface Strategy {
  /** null: parts give no rows. */
  part: JoinKind | null;
  /** Whether the rows that parts match are those that no part before has matched. */
  ofUnmatched: boolean;
  /** Whether rows that no part has matched come at the end. */
  unmatched: boolean;
}

function strategyOf({ how, buildSide, probeSide }: JoinBatchesSettings): Strategy {
  if (how === 'full') return { part: probeSide, ofUnmatched: false, unmatched: true };
  if (how === buildSide) return { part: 'inner', ofUnmatched: false, unmatched: true };
  const givesBuild = (how === 'semi' || how === 'anti') && buildSide === 'left';
  if (givesBuild) return { part: how === 'semi' ? 'semi' : null, ofUnmatched: true, unmatched: how === 'anti' };
  return { part: how, ofUnmatched: false, unmatched: false };
}

/** Why a part of the probe side has no more rows. */
type PartEnd = 'full' | 'late' | 'end';

/** What a join of partitions, or of sides whose rows are then sorted, has of the one that makes it. */
interface Outer {
  /** How often sides were cut into partitions; MOST_CUTS, too, where a further cut would not help. */
  readonly times: number;
  readonly freeBytes: number;
  /** null: the result has other columns. */
  readonly schema: arrow.Schema | null;
}

/** One join of batches, or of partitions, and what it holds. */
class Joining implements AsyncDisposable {
  readonly #build = new Part();
  readonly #strategy: Strategy;
  /** The sides of which each key is to be there once. */
  readonly #unique: readonly Side[];
  #probe = new Part();
  /** Rows of the build side without a match up to now. */
  #unmatched: readonly arrow.RecordBatch[] = [];
  /** Each side without its rows. */
  readonly #none = {} as Record<Side, arrow.Table>;
  /** Whether some of the probe side has been joined. */
  #hasJoined = false;
  /** What the last part took, and its bytes. */
  #partMilliseconds = 0;
  #partBytes = 0;
  /** Whether the build side has found no room. */
  #isFull = false;
  #freeBytes = 0;
  #schema!: arrow.Schema;

  constructor(
    private readonly core: BatchesCore,
    private readonly settings: JoinBatchesSettings,
    private readonly stats: BatchStats,
    private readonly outer: Outer | null = null,
  ) {
    this.#strategy = strategyOf(settings);
    this.#unique = uniqueSides(settings.validate);
  }

  /** The rows; those of batches behind a table without rows that has their columns. */
  async *rows(sources: Record<Side, BatchSource>): Boxes<arrow.Table> {
    const { core, settings } = this;
    const { buildSide, probeSide } = settings;
    const build = sources[buildSide];
    let probe = arrivingOf(sources[probeSide]);
    try {
      // As the first call of an engine, this sets its limit.
      const measure = () => core.freeMemory.bytes();
      this.#freeBytes = this.outer?.freeBytes ?? (await core.enqueue('beside others', settings.signal, measure));
      const share = this.#followsMatches ? BUILD_SHARE / 2 : BUILD_SHARE;
      const isComplete = await this.#readBuild(build, share * this.#freeBytes);
      await this.#pull(probeSide, probe, this.#probe);
      if (this.outer?.schema) this.#schema = this.outer.schema;
      else yield await boxed(() => this.#joinNone());
      if (isComplete && (await this.#isUnique(buildSide, this.#build))) {
        const unique = await this.#uniqueProbe(probe);
        probe = unique ?? probe;
        if (unique && (yield* this.#probed(unique))) return;
      }
      const needed = neededColumns(this.#inputs, { ...settings, keys: this.#keyPairs });
      const rest = {
        [buildSide]: this.#restOf(buildSide, this.#build, build, needed[buildSide]),
        [probeSide]: this.#restOf(probeSide, this.#probe, probe, needed[probeSide]),
      } as Record<Side, BatchSource>;
      if (settings.maintainOrder !== 'none') return yield* this.#inOrder(rest);
      await using spilled = await this.#spilled(rest);
      for await (const box of spilled.rows()) yield this.#asOne(box);
    } finally {
      await this.#build.free(core, build.memory);
      await this[Symbol.asyncDispose]();
      for (const source of [build, probe]) {
        source.giveUp?.();
        await source.tables.return();
      }
    }
  }

  /** The columns of the result. */
  async #joinNone(): Promise<arrow.Table> {
    const made = await this.#join(this.settings.how, [], []);
    this.#schema = made.schema;
    return made;
  }

  /** A table of the result under the schema of all of them. */
  #asOne(box: Box<arrow.Table>): Box<arrow.Table> {
    return box.change((table) => withSchema(this.#schema, table));
  }

  /** The rows that are left, joined in any order and then sorted by their numbers on the side whose order is kept, and on the other one. */
  async *#inOrder(rest: Record<Side, BatchSource>): Boxes<arrow.Table> {
    const { core, settings, stats } = this;
    const { how, probeSide, buildSide, signal } = settings;
    const select = this.#schema.names as string[];
    const taken = new Set([...SIDES.flatMap((side) => this.#none[side].schema.names as string[]), ...select]);
    const numbers = { left: new RowNumbers('left', taken), right: new RowNumbers('right', taken) };
    const sides = how === 'semi' || how === 'anti' ? (['left'] as const) : [probeSide, buildSide];
    const by = sides.flatMap((side) => numbers[side].columns);
    const anyOrder = { ...settings, maintainOrder: 'none', select: [...select, ...by] } as const;
    const outer = { times: 0, freeBytes: this.#freeBytes * (1 - 4 * ORDER_SHARE), schema: null };
    await using joining = new Joining(core, anyOrder, stats, outer);
    const rows = joining.rows({ left: numbers.left.beside(rest.left), right: numbers.right.beside(rest.right) });
    const sort = { ...sortSettings(sortBatchesSchema, 'joinBatches', { by, select }), signal };
    await using sorting = new Sorting(core, sort, stats, ORDER_SHARE);
    for await (const box of sorting.rows({ tables: unboxed(rows), memory: 'engine' })) yield this.#asOne(box);
  }

  /** How the rows of both sides are joined that memory has no room for. */
  async #spilled(rest: Record<Side, BatchSource>): Promise<PartitionedJoin | SortedJoin> {
    const { core, stats } = this;
    if ((this.outer?.times ?? 0) < MOST_CUTS) return new PartitionedJoin(core, this.#partitions, rest, stats);
    await checkSortAlike(core, this.#stretches, this.#none);
    return new SortedJoin(core, this.#stretches, rest, stats);
  }

  /** Puts the next table of a side into a part. False where there is none. */
  async #pull(side: Side, { tables, memory }: BatchSource, part: Part): Promise<boolean> {
    const table = await nextOf(tables);
    if (table === END) return false;
    this.#none[side] ??= withoutRows(table);
    this.#addAll(part, table, memory);
    return true;
  }

  #addAll(part: Part, { batches }: arrow.Table, memory: BatchMemory): void {
    for (const batch of batches) this.#add(part, batch, memory);
  }

  /** Reads the build side. False where it has no room, so that a part of it is still to come. */
  async #readBuild(source: BatchSource, mostBytes: number): Promise<boolean> {
    const { buildSide } = this.settings;
    for (;;) {
      const isMore = await this.#pull(buildSide, source, this.#build);
      this.#unmatched = this.#build.batches;
      if (!isMore) return true;
      if (!this.#isFull && (source.memory === 'caller' || this.#build.bytes <= mostBytes)) continue;
      this.#checkSpills();
      return false;
    }
  }

  /** Rejects where a part that has all rows of a side has a key twice that is to be there once. False where memory is short for a look. */
  async #isUnique(side: Side, { batches }: Part): Promise<boolean> {
    if (!this.#unique.includes(side) || batches.length === 0) return true;
    const looked = checkUniqueRows(this.core, side, batches, this.settings, this.outer === null).then(() => true);
    return (await looked.catch(nullIfShort)) ?? false;
  }

  /** The probe side to be joined, whose keys are unique if they have to be. null where that takes all of its rows, and memory has no room. */
  async #uniqueProbe(probe: ProbeSource): Promise<ProbeSource | null> {
    const { probeSide } = this.settings;
    const { arriving, memory } = probe;
    if (!this.#unique.includes(probeSide)) return probe;
    const free = await this.core.freeMemory.bytes();
    // The bytes of partitions are those of their files, about.
    const most = this.outer ? 2 * PAIR_PART_SHARE * this.outer.freeBytes : PART_SHARE * free;
    for (;;) {
      if (memory !== 'caller' && this.#probe.bytes > most) return null;
      const table = await nextOf(arriving.items);
      if (table === END) break;
      this.#addAll(this.#probe, table, memory);
    }
    if (!(await this.#isUnique(probeSide, this.#probe))) return null;
    const whole = this.#probe;
    this.#probe = new Part();
    return arrivingOf({ ...probe, tables: this.#itemsOf(probeSide, whole, probe.tables) });
  }

  /** Whether it is followed which rows of the build side were matched. */
  get #followsMatches(): boolean {
    return this.#strategy.ofUnmatched || this.#strategy.unmatched;
  }

  /**
   * The rows that the probe side gives, part by part, and then those of the build side that none has matched. False where memory has no
   * room for that: what was not joined is in the part, or still to come.
   */
  async *#probed(source: ProbeSource): Boxes<arrow.Table, boolean> {
    // Where some rows are wanted, no more is read than they may need.
    const isBounded = Number.isFinite(this.settings.limit);
    this.#partMilliseconds = Math.max(FIRST_MILLISECONDS, this.#build.bytes / FIRST_BYTES_PER_MILLISECOND);
    for (let end: PartEnd = 'full'; end !== 'end'; ) {
      const most = this.outer ? PAIR_PART_SHARE * this.outer.freeBytes : PART_SHARE * (await this.core.freeMemory.bytes());
      end = await this.#gather(source, isBounded && !this.outer ? Math.min(most, 2 * this.#partBytes) : most);
      const later = end === 'late' && !this.#hasJoined && source.memory !== 'engine' ? this.#probe.splitAt(FIRST_ROWS) : null;
      this.#partBytes = this.#probe.bytes;
      try {
        if (!(yield* this.#joined(source.memory))) return false;
      } finally {
        if (later) this.#probe = this.#probe.before(later);
      }
    }
    if (this.#strategy.unmatched && this.#unmatched.length > 0) {
      yield this.#asOne(await boxed(() => this.#join(this.settings.how, this.#unmatched, [])));
    }
    return true;
  }

  /**
   * Makes a part of what comes: so many bytes, or what has come when that took as long as joining the part before, so that rows are
   * given soon and the build side is not gone through for few of them.
   */
  async #gather({ arriving, memory }: ProbeSource, mostBytes: number): Promise<PartEnd> {
    // What the caller has is there.
    const isThere = this.outer !== null || memory === 'caller';
    const end = isThere ? Number.POSITIVE_INFINITY : performance.now() + this.#partMilliseconds;
    while (this.#probe.bytes < mostBytes) {
      const left = this.#probe.batches.length > 0 ? end - performance.now() : Number.POSITIVE_INFINITY;
      if (left <= 0) return 'full';
      const isFirst = !this.#hasJoined && Number.isFinite(left);
      const table = await arriving.within(isFirst ? Math.min(left, FIRST_PAUSE_MILLISECONDS) : left);
      if (table === null) return 'late';
      if (table === END) return 'end';
      this.#addAll(this.#probe, table, memory);
    }
    return 'full';
  }

  /** Throws ERR_MEMORY_LIMIT where the sides of a join that has no room can't go through temporary files. */
  #checkSpills(cause?: Error): void {
    const { how, buildSide } = this.settings;
    if (how !== 'cross') return;
    const message = `The ${buildSide} side does not fit the memory limit. A cross join has no keys to cut its sides by.`;
    throw new WarpjoinError('ERR_MEMORY_LIMIT', `${message} buildSide names the side that stays in memory.`, { cause });
  }

  /** What has come of a side and what is still to come, with the columns that are needed; from now on it has no others. */
  #restOf(side: Side, part: Part, { tables, memory }: BatchSource, needed: readonly number[]): BatchSource {
    const all = this.#itemsOf(side, part, tables);
    const none = this.#none[side].selectAt([...needed]);
    this.#none[side] = none;
    const rest = mapped(all, (table) => table.selectAt([...needed]));
    return { tables: behind(none, rest), memory };
  }

  /** Tables of the batches of a part, each of which then counts no longer, and those to come. */
  #itemsOf(side: Side, part: Part, rest: Items<arrow.Table>): Items<arrow.Table> {
    const { Table } = libraryOf(this.#none[side] as unknown as ForeignTable);
    const next = () => {
      const batch = part.shift();
      return batch ? new Table(batch.schema, [batch]) : nextOf(rest);
    };
    const end = () => {
      part.release();
      return rest.return();
    };
    return itemsOf(next, end);
  }

  /** The sides without their rows. */
  get #inputs(): Record<Side, Input> {
    const input = (side: Side) => readInput(this.core, this.#none[side], side);
    return { left: input('left'), right: input('right') };
  }

  /** The keys of a join that has some. */
  get #keyPairs(): NamedKeyPair[] {
    const { keys, nullsEqual } = this.settings;
    return keys!.left.map((left, index) => ({ left, right: keys!.right[index]!, nullsEqual: nullsEqual[index]! }));
  }

  get #partitions(): PartitionJoin {
    const { core, settings, stats } = this;
    const [freeBytes, schema, cuts] = [this.#freeBytes, this.#schema, this.outer?.times ?? 0];
    const { keys, signal, buildSide } = settings;
    const { left, right } = this.#inputs;
    return {
      keys: keys!,
      comparisons: joinKeyColumns(left, right, this.#keyPairs),
      buildSide,
      wholeSides: [buildSide, ...this.#unique],
      none: this.#none,
      signal,
      freeBytes,
      seed: cuts,
      join: (partitions, isCrowded) =>
        new Joining(core, settings, stats, { times: isCrowded ? MOST_CUTS : cuts + 1, freeBytes, schema }).rows(partitions),
    };
  }

  get #stretches(): StretchJoin {
    const { how, keys, nullsEqual, signal, buildSide, probeSide } = this.settings;
    const given = (table: arrow.Table | null): Rows => (table ? [table] : []);
    const checkUnique: StretchJoin['checkUnique'] = async (rows) => {
      for (const side of this.#unique) {
        if (rows[side]) await checkUniqueRows(this.core, side, [rows[side]], this.settings, false);
      }
    };
    return {
      keys: keys!,
      nullsEqual,
      givesLeftAlone: how === 'semi' || how === 'anti',
      signal,
      unique: this.#unique,
      checkUnique,
      join: (rows) => this.#join(how, given(rows[buildSide]), given(rows[probeSide])),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#probe.release();
    this.#build.release();
    this.#unmatched = [];
  }

  #add(part: Part, batch: arrow.RecordBatch, memory: BatchMemory): void {
    if (batch.numRows === 0) return;
    const bytes = part.count(batch);
    const reserve = () => translated(() => this.core.native.reserve(bytes));
    try {
      part.add(batch, bytes, memory !== 'stream' || this.#isFull ? null : reserve());
    } catch (error) {
      if (part !== this.#build || !isMemoryLimit(error)) throw error;
      this.#checkSpills(error as Error);
      // It is there all the same, and goes to be sorted next.
      part.add(batch, bytes, null);
      this.#isFull = true;
    }
  }

  /**
   * The rows that the part gives: those of halves of it, where memory is short. False where it is short for a row alone: the part then has
   * what was not joined. Throws where the sides can't be sorted instead, or where matches of rows that were given would be lost.
   */
  async *#joined(memory: BatchMemory): Boxes<arrow.Table, boolean> {
    const part = this.#probe;
    this.#probe = new Part();
    const pieces = [part.batches.slice()];
    let rows = 0;
    try {
      for (let piece = pieces.shift(); piece && piece.length > 0; piece = pieces.shift()) {
        const made = await this.#joinPart(piece).catch(orShort);
        if (made instanceof Error) {
          const isRow = piece.length === 1 && piece[0]!.numRows === 1;
          if (!isRow) {
            pieces.unshift(...halvesOf(piece));
            continue;
          }
          if (this.#followsMatches && this.#hasJoined) throw made;
          this.#checkSpills(made);
          // Not the pieces: two of a batch would share its buffers.
          const rest = rowsBetween(part.batches, rows);
          part.release();
          for (const batch of rest) this.#probe.add(batch, 0, null);
          return false;
        }
        this.#hasJoined = true;
        for (const { numRows } of piece.splice(0)) rows += numRows;
        if (pieces.length === 0) await part.free(this.core, memory);
        if (made) yield this.#asOne(made);
      }
      return true;
    } finally {
      await part.free(this.core, memory);
    }
  }

  /** The rows that some of the probe side give; takes the build side's rows that they match off those without a match. */
  async #joinPart(probe: readonly arrow.RecordBatch[]): Promise<Box<arrow.Table> | null> {
    const { part, ofUnmatched, unmatched } = this.#strategy;
    const build = ofUnmatched ? this.#unmatched : this.#build.batches;
    const began = performance.now();
    const rows = part && (await boxed(() => this.#join(part, build, probe)));
    if ((ofUnmatched || unmatched) && this.#unmatched.length > 0) await this.#leaveOut(probe);
    this.#partMilliseconds = performance.now() - began;
    return rows;
  }

  async #leaveOut(probe: readonly arrow.RecordBatch[]): Promise<void> {
    const { keys, nullsEqual, buildSide, probeSide, maintainOrder } = this.settings;
    const options = {
      leftOn: keys![buildSide],
      rightOn: keys![probeSide],
      nullsEqual,
      how: 'anti',
      maintainOrder: maintainOrder === 'none' ? 'none' : 'left',
      signal: this.settings.signal,
    };
    const { batches } = (await joinTables(this.core, this.#unmatched, probe, options)) as arrow.Table;
    const before = this.#unmatched;
    this.#unmatched = batches.filter(({ numRows }) => numRows > 0);
    if (before !== this.#build.batches) await this.core.free(buffersOf(before));
  }

  #join(how: JoinKind, build: Rows, probe: Rows): Promise<arrow.Table> {
    const { keys, nullsEqual, buildSide, probeSide, ...settings } = this.settings;
    const { coalesce, suffix, select, maintainOrder, algorithm, sortAlgorithm, signal } = settings;
    const on = keys && { leftOn: keys.left, rightOn: keys.right, nullsEqual, coalesce };
    const built = build.length > 0 ? build : [this.#none[buildSide]];
    const probed = probe.length > 0 ? probe : [this.#none[probeSide]];
    const [left, right] = buildSide === 'left' ? [built, probed] : [probed, built];
    const options = { ...on, how, suffix, select, maintainOrder, algorithm, sortAlgorithm, signal };
    return joinTables(this.core, left, right, options, this.settings.how) as Promise<arrow.Table>;
  }
}

/** The rows of a table under a schema whose fields differ in where nulls may be. Throws ERR_NOT_SUPPORTED for another. */
function withSchema(schema: arrow.Schema, table: arrow.Table): arrow.Table {
  checkSameTypes(schema, table.schema);
  const library = libraryOf(table as unknown as ForeignTable);
  const batches = table.batches.map(({ data }) => batchOver(schema, data.length, data.children, library));
  return new library.Table(schema, batches);
}
