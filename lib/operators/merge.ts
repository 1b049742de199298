/**
 * The merge of sorted runs in windows: an external merge sort (Knuth, The Art of Computer Programming 3, 5.4) whose rows only the
 * engine touches. A window is what is in memory of a run: its next record batches.
 */
import type * as arrow from 'apache-arrow';
import { isMemoryLimit } from '../errors.js';
import { type Boxes, boxed, type Items, unboxed } from '../items.js';
import type { MergeCut, NativeEngine } from '../native.js';
import { orShort } from './batch-part.js';
import type { ReadUnit, Run } from './runs.js';
import type { RowOfTable } from './search.js';

/** What a merge asks of an engine. */
export interface Merging {
  readonly native: NativeEngine;
  /** Bytes that the windows have together; where units are larger, each has one. */
  readonly windowBytes: number;
  /** The rows of all of them. Stable. */
  sort(tables: readonly arrow.Table[]): Promise<arrow.Table>;
  /** Cuts a stable merge of the tables at the least of some of their rows. */
  cut(tables: readonly arrow.Table[], rows: readonly RowOfTable[]): Promise<MergeCut>;
  /** Frees buffers that nobody reads any more. */
  free(buffers: readonly ArrayBuffer[]): Promise<void>;
}

/** The next rows of a run. */
class Window {
  /** What has been read and not been given; null: nothing. */
  table: arrow.Table | null = null;
  /** Units of these rows, the next ones first. */
  readonly #units: ReadUnit[] = [];
  /** Rows of the first one that have been given. */
  #given = 0;
  #next = 0;

  constructor(
    private readonly run: Run,
    private readonly by: Merging,
    private readonly bytes: number,
  ) {}

  /** Whether there is no more to read. */
  get ended(): boolean {
    return this.#next === this.run.units.length;
  }

  /** Reads on until the window is full, to half a unit. */
  async fill(): Promise<void> {
    const { units } = this.run;
    let bytes = this.#units.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
    if (this.#given > 0) bytes -= (this.#units[0]!.buffer.byteLength * this.#given) / this.#units[0]!.rows;
    let end = this.#next;
    while (end < units.length && (bytes === 0 || bytes + units[end]!.bytes / 2 <= this.bytes)) bytes += units[end++]!.bytes;
    if (end === this.#next) return;
    const read = await this.run.read(this.by.native, units.slice(this.#next, end));
    this.#next = end;
    this.#units.push(...read);
    this.table = this.run.tableOf([...(this.table?.batches ?? []), ...read.flatMap(({ batches }) => batches)]);
  }

  /** The first rows, which the window then has no more, and the buffers that have no others. */
  take(rows: number): { table: arrow.Table; buffers: ArrayBuffer[] } {
    const table = this.table!;
    this.table = rows < table.numRows ? table.slice(rows) : null;
    const buffers: ArrayBuffer[] = [];
    this.#given += rows;
    while (this.#units.length > 0 && this.#given >= this.#units[0]!.rows) {
      const { buffer, rows } = this.#units.shift()!;
      this.#given -= rows;
      buffers.push(buffer);
    }
    return { table: rows < table.numRows ? table.slice(0, rows) : table, buffers };
  }

  async free(): Promise<void> {
    this.table = null;
    await this.by.free(this.#units.splice(0).map(({ buffer }) => buffer));
  }
}

/**
 * The rows of runs in order, those that are equal in the order of their runs. All rows up to the least of the windows' last ones are
 * there: they are sorted and given, and the windows are filled again meanwhile.
 */
export const merge = (runs: readonly Run[], by: Merging): Items<arrow.Table> => unboxed(merged(runs, by));

async function* merged(runs: readonly Run[], by: Merging): Boxes<arrow.Table> {
  const windows = runs.map((run) => new Window(run, by, Math.floor(by.windowBytes / runs.length)));
  const fill = () => allOf(windows.map((window) => window.fill()));
  let filled = fill();
  try {
    for (;;) {
      // Beside a sort there may have been too little memory for more rows.
      await filled.catch((error: unknown) => (isMemoryLimit(error) ? fill() : Promise.reject(error)));
      const open = windows.filter(({ table }) => table !== null);
      if (open.length === 0) return;
      const rows = await readyRows(open, by);
      const ready: arrow.Table[] = [];
      const read: ArrayBuffer[] = [];
      for (const [index, window] of open.entries()) {
        if (rows[index] === 0) continue;
        const taken = window.take(rows[index]!);
        ready.push(taken.table);
        read.push(...taken.buffers);
      }
      filled = fill();
      filled.catch(() => {}); // it is awaited, unless something else fails before
      yield* sorted(ready, by);
      await by.free(read);
    }
  } finally {
    await filled.catch(() => {});
    for (const window of windows) await window.free();
  }
}

/** Waits for all of them, then throws what one of them did. */
async function allOf(promises: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(promises);
  await Promise.all(promises);
}

/** The rows of sorted tables in order, as one table, or, where memory is short, as several. */
async function* sorted(tables: readonly arrow.Table[], by: Merging): Boxes<arrow.Table> {
  const made = await boxed(() => by.sort(tables)).catch(orShort);
  if (!(made instanceof Error)) {
    yield made;
    return;
  }
  const most = tables.reduce((most, { numRows }, index) => (numRows > tables[most]!.numRows ? index : most), 0);
  const { rows } = await by.cut(tables, [{ table: most, row: Math.floor(tables[most]!.numRows / 2) }]);
  const before = tables.map((table, index) => table.slice(0, rows[index])).filter(({ numRows }) => numRows > 0);
  const behind = tables.map((table, index) => table.slice(rows[index])).filter(({ numRows }) => numRows > 0);
  if (before.length === 0) throw made;
  yield* sorted(before, by);
  yield* sorted(behind, by);
}

/** How many rows of each window come up to the least of those behind which there is more to read. */
async function readyRows(windows: readonly Window[], by: Merging): Promise<number[]> {
  const tables = windows.map(({ table }) => table!);
  const last = tables.map(({ numRows }, table) => ({ table, row: numRows - 1 })).filter(({ table }) => !windows[table]!.ended);
  if (last.length === 0) return tables.map(({ numRows }) => numRows);
  const { run, rows } = await by.cut(tables, last);
  rows[run]!++;
  return rows;
}
