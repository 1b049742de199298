/**
 * Joins of two sides that memory has no room for: both are sorted by their keys, through temporary files, and joined a stretch of keys
 * at a time (a sort-merge join whose rows only the engine touches; Graefe, Query Evaluation Techniques for Large Databases, 5.2).
 */
import type * as arrow from 'apache-arrow';
import type { Signal } from '../abort.js';
import type { ForeignTable } from '../columns/input.js';
import { libraryOf } from '../columns/library.js';
import { WarpjoinError } from '../errors.js';
import { type Boxes, boxed, END, type Items, nextOf, unboxed } from '../items.js';
import { SIDES, type Side } from '../native.js';
import { sortBatchesSchema, sortSettings } from '../options.js';
import { buffersOf, bytesOf, orShort } from './batch-part.js';
import type { BatchSource } from './batch-source.js';
import type { BatchesCore, BatchStats } from './batch-stream.js';
import { Run } from './runs.js';
import { searchSorted } from './search.js';
import { sortTable } from './sort.js';
import { Sorting } from './sort-batches.js';

const otherOf = (side: Side): Side => (side === 'left' ? 'right' : 'left');

/** The share of the free memory that a part of a side takes while it is sorted, and what has come of it while it is joined. */
const SIDE_SHARE = 1 / 16;

/** What a join of sorted sides asks of one of tables. */
export interface StretchJoin {
  readonly keys: Record<Side, readonly string[]>;
  readonly nullsEqual: readonly boolean[];
  /** Whether rows are left ones, each once at most: all that counts of the right side is whether there is a row. */
  readonly givesLeftAlone: boolean;
  readonly signal: Signal | undefined;
  /** The sides of which each key is to be there once. */
  readonly unique: readonly Side[];
  /** Rejects where it is not, of some of each side. */
  checkUnique(rows: Partial<Record<Side, arrow.Table | null>>): Promise<void>;
  /** The rows that some of each side give, of which all have keys that no others have; null: none of the side. */
  join(rows: Record<Side, arrow.Table | null>): Promise<arrow.Table>;
}

/** A side's rows in the order of its keys. */
class SortedSide implements AsyncDisposable {
  /** What has come and was not taken; null: nothing. */
  table: arrow.Table | null = null;
  /** Whether no more comes. */
  ended = false;
  #bytesOfRow = 0;
  readonly #sorting: Sorting;
  readonly #tables: Items<arrow.Table>;
  /** Record batches of `table`, the next ones first, as they came, and how many rows of the first one were taken. */
  readonly #batches: arrow.RecordBatch[] = [];
  #taken = 0;

  constructor(
    private readonly core: BatchesCore,
    private readonly keys: readonly string[],
    source: BatchSource,
    signal: Signal | undefined,
    stats: BatchStats,
  ) {
    const settings = { ...sortSettings(sortBatchesSchema, 'joinBatches', { by: [...keys] }), signal };
    this.#sorting = new Sorting(core, settings, stats, SIDE_SHARE);
    this.#tables = unboxed(this.#sorting.rows(source));
  }

  /** Bytes of the rows that have come, about. */
  get bytes(): number {
    return this.#bytesOfRow * (this.table?.numRows ?? 0);
  }

  /** The bytes that a stretch of it may take. */
  get stretchBytes(): number {
    return this.#sorting.partBytes;
  }

  /** More rows, or its end. */
  async pull(): Promise<void> {
    const more = await nextOf(this.#tables);
    if (more === END) {
      this.ended = true;
      return;
    }
    if (more.numRows === 0) return;
    this.#bytesOfRow = bytesOf(more.batches) / more.numRows;
    const { batches } = more;
    this.#batches.push(...batches.filter(({ numRows }) => numRows > 0));
    const { Table } = libraryOf(more as unknown as ForeignTable);
    this.table = new Table(more.schema, [...(this.table?.batches ?? []), ...batches]);
  }

  /** The first rows, which it then has no more, and the buffers that have no others. */
  take(rows: number): { table: arrow.Table; buffers: ArrayBuffer[] } {
    const table = this.table!;
    this.table = rows < table.numRows ? table.slice(rows) : null;
    const read: arrow.RecordBatch[] = [];
    this.#taken += rows;
    while (this.#batches.length > 0 && this.#taken >= this.#batches[0]!.numRows) {
      const batch = this.#batches.shift()!;
      this.#taken -= batch.numRows;
      read.push(batch);
    }
    // Rows that never were in a file may be in the caller's memory.
    const buffers = this.#sorting.hasSpilled ? buffersOf(read) : [];
    return { table: rows < table.numRows ? table.slice(0, rows) : table, buffers };
  }

  /** How many of a table's rows, which are of this side, have a key that is less than one of either side, or less or equal. */
  async rowsBefore(table: arrow.Table, key: Key, orEqual: boolean, signal: Signal | undefined): Promise<number> {
    const options = { by: [...this.keys], side: orEqual ? 'right' : 'left', signal };
    const rows = await searchSorted(this.core, table, key.as(this.keys), options);
    return Number(rows[0]);
  }

  /** A key in memory of its own. */
  async copyOf(key: Key): Promise<Key> {
    const row = (await sortTable(this.core, key.as(this.keys), { by: [...this.keys] })) as arrow.Table;
    return new Key(row, this.keys);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tables.return();
    await this.#sorting[Symbol.asyncDispose]();
    this.table = null;
    this.#batches.length = 0;
  }
}

/** The key of a row. */
class Key {
  constructor(
    private readonly row: arrow.Table,
    private readonly columns: readonly string[],
  ) {}

  /** As a table of one row whose columns have these names. */
  as(names: readonly string[]): arrow.Table {
    const { Table } = libraryOf(this.row as unknown as ForeignTable);
    return new Table(Object.fromEntries(names.map((name, index) => [name, this.row.getChild(this.columns[index]!)!])));
  }

  /** Whether it equals nothing, as it has a null. */
  isNull(nullsEqual: readonly boolean[]): boolean {
    return this.columns.some((column, index) => !nullsEqual[index] && this.row.getChild(column)!.get(0) === null);
  }
}

/** One join of sorted sides, and what it holds. */
export class SortedJoin implements AsyncDisposable {
  readonly #sides: Record<Side, SortedSide>;

  /** Throws ERR_OPTION where a key column is there twice. */
  constructor(
    private readonly core: BatchesCore,
    private readonly by: StretchJoin,
    sources: Record<Side, BatchSource>,
    private readonly stats: BatchStats,
  ) {
    const sorted = (side: Side) => new SortedSide(core, by.keys[side], sources[side], by.signal, stats);
    this.#sides = { left: sorted('left'), right: sorted('right') };
  }

  /** Tables of the rows, in the order of the keys. */
  async *rows(): Boxes<arrow.Table> {
    const { left, right } = this.#sides;
    try {
      for (;;) {
        for (const side of SIDES) await this.#fill(this.#sides[side]);
        if (!left.table && !right.table) return;
        const bound = await this.#bound();
        const rows = bound && (await this.#rowsBefore(bound.key));
        if (!rows) yield* this.#taken(left.table?.numRows ?? 0, right.table?.numRows ?? 0);
        else if (rows.left + rows.right > 0) yield* this.#taken(rows.left, rows.right);
        // All that has come of one side has one key.
        else if (this.#sides[bound.side].bytes < this.#sides[bound.side].stretchBytes) await this.#sides[bound.side].pull();
        else yield* this.#ofKey(bound.key, bound.side);
      }
    } finally {
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const side of SIDES) await this.#sides[side][Symbol.asyncDispose]();
  }

  async #fill(side: SortedSide): Promise<void> {
    while (!side.ended && (!side.table || side.bytes < side.stretchBytes / 2)) await side.pull();
  }

  #lastKey(side: Side): Key | null {
    const { table, ended } = this.#sides[side];
    return ended || !table ? null : new Key(table.slice(table.numRows - 1), this.by.keys[side]);
  }

  /** The least key of which more rows may come, and the side that they are of; null: all have come. */
  async #bound(): Promise<{ key: Key; side: Side } | null> {
    const [left, right] = [this.#lastKey('left'), this.#lastKey('right')];
    if (!left || !right) return left ? { key: left, side: 'left' } : right && { key: right, side: 'right' };
    const { table } = this.#sides.left;
    const rows = await this.#rowsOf('left', table!.slice(table!.numRows - 1), right, false);
    return rows > 0 ? { key: left, side: 'left' } : { key: right, side: 'right' };
  }

  /** Rows of a side's table with a key that is less, or less or equal. */
  async #rowsOf(side: Side, table: arrow.Table | null, key: Key, orEqual: boolean): Promise<number> {
    return table ? this.#sides[side].rowsBefore(table, key, orEqual, this.by.signal) : 0;
  }

  async #rowsBefore(key: Key): Promise<Record<Side, number>> {
    const { left, right } = this.#sides;
    return {
      left: await this.#rowsOf('left', left.table, key, false),
      right: await this.#rowsOf('right', right.table, key, false),
    };
  }

  /** Joins the first rows of each side. */
  async *#taken(leftRows: number, rightRows: number): Boxes<arrow.Table> {
    const { left, right } = this.#sides;
    const [one, other] = [leftRows > 0 ? left.take(leftRows) : null, rightRows > 0 ? right.take(rightRows) : null];
    yield* this.#joined({ left: one?.table ?? null, right: other?.table ?? null });
    await this.core.free([...(one?.buffers ?? []), ...(other?.buffers ?? [])]);
  }

  /** Joins rows whose keys no others have: where memory is short, those of lesser keys first. */
  async *#joined(rows: Record<Side, arrow.Table | null>): Boxes<arrow.Table> {
    const checked = async () => {
      await this.by.checkUnique(rows);
      return this.by.join(rows);
    };
    const made = await boxed(checked).catch(orShort);
    if (!(made instanceof Error)) return yield made;
    const side = (rows.left?.numRows ?? 0) >= (rows.right?.numRows ?? 0) ? 'left' : 'right';
    const table = rows[side]!;
    const middle = Math.floor(table.numRows / 2);
    const key = new Key(table.slice(middle, middle + 1), this.by.keys[side]);
    for (const orEqual of [false, true]) {
      const before = { left: 0, right: 0 };
      for (const of of SIDES) before[of] = await this.#rowsOf(of, rows[of], key, orEqual);
      const isAll = before.left === (rows.left?.numRows ?? 0) && before.right === (rows.right?.numRows ?? 0);
      if (isAll || before.left + before.right === 0) continue;
      yield* this.#joined({ left: firstOf(rows.left, before.left), right: firstOf(rows.right, before.right) });
      yield* this.#joined({ left: restOf(rows.left, before.left), right: restOf(rows.right, before.right) });
      return;
    }
    for (const side of SIDES) await this.#checkOnce(side, key, rows[side]?.numRows ?? 0);
    if (!rows.left || !rows.right) return yield* this.#inBlocks(rows, made);
    if (!key.isNull(this.by.nullsEqual)) return yield* this.#inBlocks(rows);
    yield* this.#inBlocks({ ...rows, right: null });
    yield* this.#inBlocks({ ...rows, left: null });
  }

  /**
   * Joins rows of one key, of which those of one side match all of the other, or of one side alone: where memory is short, halves of the
   * longer side, one after the other.
   */
  async *#inBlocks({ left, right }: Record<Side, arrow.Table | null>, short?: Error): Boxes<arrow.Table> {
    const rows = { left, right: left && right && this.by.givesLeftAlone ? right.slice(0, 1) : right };
    const made = short ?? (await boxed(() => this.by.join(rows)).catch(orShort));
    if (!(made instanceof Error)) return yield made;
    const side = (rows.left?.numRows ?? 0) >= (rows.right?.numRows ?? 0) ? 'left' : 'right';
    const table = rows[side]!;
    if (table.numRows === 1) throw made;
    const middle = table.numRows >> 1;
    for (const half of [table.slice(0, middle), table.slice(middle)]) yield* this.#inBlocks({ ...rows, [side]: half });
  }

  /** A key with more rows than a stretch has: joined block by block. The other side's are read from a file once for each. */
  async *#ofKey(bound: Key, crowded: Side): Boxes<arrow.Table> {
    // Its row is freed with those around it.
    const key = await this.#sides[crowded].copyOf(bound);
    const other = otherOf(crowded);
    const of = (side: Side, table: arrow.Table, none: arrow.Table | null = null) =>
      ({ [side]: table, [otherOf(side)]: none }) as Record<Side, arrow.Table | null>;
    const first = await this.#rowsOf(other, this.#sides[other].table, key, true);
    if (first === 0 || key.isNull(this.by.nullsEqual)) {
      for (const side of SIDES) for await (const rows of this.#rowsOfKey(side, key)) yield* this.#inBlocks(of(side, rows));
      return;
    }
    if (this.by.givesLeftAlone) {
      const right = this.#sides.right.table;
      for await (const left of this.#rowsOfKey('left', key)) yield* this.#inBlocks({ left, right });
      for await (const _ of this.#rowsOfKey('right', key));
      return;
    }
    await using group = new Group(this.core, this.stats, this.#sides[other].stretchBytes);
    for await (const rows of this.#rowsOfKey(other, key)) await group.add(rows);
    for await (const rows of this.#rowsOfKey(crowded, key)) {
      for await (const others of group.tables()) yield* this.#inBlocks(of(crowded, rows, others));
    }
  }

  /** Rejects where so many rows of a side have a key that is to be there once. */
  async #checkOnce(side: Side, key: Key, rows: number): Promise<void> {
    const { unique, keys, nullsEqual, checkUnique } = this.by;
    if (rows < 2 || !unique.includes(side) || key.isNull(nullsEqual)) return;
    const one = key.as(keys[side]);
    await checkUnique({ [side]: one.concat(one) });
  }

  /** A side's rows with the key, which is the least that is left of it, a table at a time. */
  async *#rowsOfKey(side: Side, key: Key): AsyncGenerator<arrow.Table> {
    const of = this.#sides[side];
    for (let all = 0; ; ) {
      while (!of.ended && !of.table) await of.pull();
      const rows = await this.#rowsOf(side, of.table, key, true);
      if (rows === 0) return;
      all += rows;
      await this.#checkOnce(side, key, all);
      const { table, buffers } = of.take(rows);
      yield table;
      await this.core.free(buffers);
    }
  }
}

/** Rows that are read several times, in a temporary file. */
class Group implements AsyncDisposable {
  #run: Run | undefined;

  constructor(
    private readonly core: BatchesCore,
    private readonly stats: BatchStats,
    private readonly unitBytes: number,
  ) {}

  async add(table: arrow.Table): Promise<void> {
    this.#run ??= new Run(
      await this.core.temporary.open(this.core.keep),
      libraryOf(table as unknown as ForeignTable),
      table.schema,
      this.unitBytes,
      0,
      this.stats,
    );
    await this.#run.append(table);
  }

  async *tables(): AsyncGenerator<arrow.Table> {
    const run = this.#run!;
    for (const unit of run.units) {
      const [read] = await run.read(this.core.native, [unit]);
      yield run.tableOf(read!.batches);
      await this.core.free([read!.buffer]);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#run?.[Symbol.asyncDispose]();
  }
}

const firstOf = (table: arrow.Table | null, rows: number): arrow.Table | null =>
  table && rows > 0 ? table.slice(0, rows) : null;
const restOf = (table: arrow.Table | null, rows: number): arrow.Table | null =>
  table && rows < table.numRows ? table.slice(rows) : null;

/** Throws ERR_KEY_TYPE where the keys of sides, of which this takes no rows, compare but do not sort alike. */
export async function checkSortAlike(core: BatchesCore, { keys }: StretchJoin, none: Record<Side, arrow.Table>): Promise<void> {
  try {
    await searchSorted(core, none.left, new Key(none.right, keys.right).as(keys.left), { by: [...keys.left] });
  } catch (error) {
    if (!(error instanceof WarpjoinError)) throw error;
    const message = `Memory has no room for either side, and they can't be sorted by their keys: ${error.message}`;
    throw new WarpjoinError(error.code, message, { cause: error });
  }
}
