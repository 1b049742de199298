/** Rows in temporary files, as sorted runs and as partitions: record batches as their buffers lie in memory. What describes them stays in memory. */
import type * as arrow from 'apache-arrow';
import { checkSameTypes } from '../columns/batches.js';
import { ByStretch, type Outline, Outlines } from '../columns/buffers.js';
import type { ForeignTable } from '../columns/input.js';
import { type Library, libraryOf } from '../columns/library.js';
import type { TemporaryFile } from '../io/temporary.js';
import { eachIn, type Items, itemsIn } from '../items.js';
import type { NativeAddon, NativeEngine } from '../native.js';
import { translated } from '../native-errors.js';
import type { BatchesCore, BatchStats } from './batch-stream.js';

/** Where buffers begin, as in Arrow's own files. */
const ALIGNMENT = 64;
const PADDING = new Uint8Array(ALIGNMENT);
/** Of a mapped file in one buffer, unless a unit has more. */
const MOST_MAPPED_BYTES = 2 ** 30;

/** Consecutive record batches of a run, which are read at once. */
export interface Unit {
  readonly position: number;
  readonly bytes: number;
  readonly rows: number;
  readonly batches: readonly Outline[];
}

/** A unit in the engine's memory. */
export interface ReadUnit {
  readonly buffer: ArrayBuffer;
  readonly rows: number;
  readonly batches: readonly arrow.RecordBatch[];
}

/** Rows in order, in a file of the run's, or of several. Dictionaries stay in memory. */
export class Run implements AsyncDisposable {
  readonly units: Unit[] = [];
  /** The most bytes of a unit. */
  largestUnit = 0;
  rows = 0;
  bytes = 0;
  readonly #outlines = new Outlines();

  /** `unitBytes`: bytes of a unit, but for one that a record batch alone takes. `level`: how many merges it has gone through. */
  constructor(
    private readonly file: TemporaryFile,
    private readonly library: Library,
    private readonly schema: arrow.Schema,
    private readonly unitBytes: number,
    readonly level: number,
    private readonly stats: BatchStats,
  ) {
    stats.runs++;
  }

  /** Writes the rows of a table behind those that are there. Throws ERR_SPILL, and ERR_NOT_SUPPORTED for other types. */
  append(table: arrow.Table): Promise<void> {
    return this.file.append(this.place(table, this.file.size));
  }

  /** The bytes of a table's rows, which whoever has the file writes at `position`. Throws ERR_NOT_SUPPORTED for other types. */
  place({ batches, schema }: arrow.Table, position: number): Uint8Array[] {
    checkSameTypes(this.schema, schema);
    const parts: Uint8Array[] = [];
    let end = position;
    for (let index = 0; index < batches.length; ) {
      const unit = new Writing(end, this.#outlines);
      do unit.add(batches[index++]!.data);
      while (index < batches.length && unit.bytes < this.unitBytes);
      const { bytes, rows } = unit;
      this.units.push({ position: end, bytes, rows, batches: unit.batches });
      this.largestUnit = Math.max(this.largestUnit, bytes);
      this.rows += rows;
      this.bytes += bytes;
      end += bytes;
      parts.push(...unit.parts);
    }
    this.stats.spilledBytes += end - position;
    return parts;
  }

  /** A table of record batches of the run. */
  tableOf(batches: readonly arrow.RecordBatch[]): arrow.Table {
    return new this.library.Table(this.schema, batches as arrow.RecordBatch[]);
  }

  /** What consecutive units have. Throws ERR_SPILL and ERR_MEMORY_LIMIT. */
  async read(native: NativeEngine, units: readonly Unit[]): Promise<ReadUnit[]> {
    const buffers = units.map(({ bytes }) => translated(() => native.allocate(bytes)));
    await this.file.read(
      buffers.map((buffer) => new Uint8Array(buffer)),
      units[0]!.position,
    );
    return units.map((unit, index) => {
      this.stats.readBytes += unit.bytes;
      const buffer = buffers[index]!;
      return { buffer, rows: unit.rows, batches: this.#batchesOver(unit, buffer, unit.position) };
    });
  }

  /** All rows as a table over the file, which is closed, and gone once the table is garbage collected. Throws ERR_SPILL. */
  async mapped(addon: Pick<NativeAddon, 'mapFile'>): Promise<arrow.Table> {
    // Buffers of many units, as long as they are no longer than any library takes.
    const begins: number[] = [];
    for (const { position, bytes } of this.units) {
      if (begins.length === 0 || position + bytes > begins.at(-1)! + MOST_MAPPED_BYTES) begins.push(position);
    }
    const buffers = await this.file.map(addon, [...begins.slice(1), this.bytes]);
    let at = 0;
    const batches = this.units.flatMap((unit) => {
      while (at + 1 < begins.length && unit.position >= begins[at + 1]!) at++;
      return this.#batchesOver(unit, buffers[at]!, begins[at]!);
    });
    return this.tableOf(batches);
  }

  /** The batches of a unit over a buffer that has what the file has from byte `base` on. */
  #batchesOver({ batches }: Unit, buffer: ArrayBuffer, base: number): arrow.RecordBatch[] {
    const { library, schema } = this;
    const struct = new library.Struct(schema.fields);
    return batches.map((outline) => {
      const data = this.#outlines.dataOver(library, struct, outline, buffer, base);
      return new library.RecordBatch(schema, data as arrow.Data<arrow.Struct>);
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.file[Symbol.asyncDispose]();
  }
}

/** A unit that is being put together. Memory that several record batches share is written once. */
class Writing {
  readonly parts: Uint8Array[] = [];
  readonly batches: Outline[] = [];
  readonly #places = new ByStretch<number>();
  bytes = 0;
  rows = 0;

  constructor(
    readonly position: number,
    private readonly outlines: Outlines,
  ) {}

  add(data: arrow.Data): void {
    this.rows += data.length;
    this.batches.push(this.outlines.add(data, (view) => this.#places.get(view, () => this.#write(view))));
  }

  #write({ buffer, byteOffset, byteLength }: ArrayBufferView): number {
    const at = this.position + this.bytes;
    const padding = (ALIGNMENT - (byteLength % ALIGNMENT)) % ALIGNMENT;
    this.parts.push(new Uint8Array(buffer, byteOffset, byteLength), PADDING.subarray(0, padding));
    this.bytes += byteLength + padding;
    return at;
  }
}

/** Of what is in memory of all runs while they are merged, what is read at once. */
const UNIT_SHARE = 1 / 256;
const LEAST_UNIT_BYTES = 1 << 12;
const MOST_UNIT_BYTES = 1 << 22;
/** However many columns there are. */
const LEAST_BUFFER_BYTES = 1 << 10;
/** What a buffer has where that leaves room for two units of 32 runs: V8 has as much to do for a batch of few rows as for one of many. */
const GOOD_BUFFER_BYTES = 1 << 13;
const GOOD_UNIT_SHARE = 1 / 64;

/** The runs of a sort, in the order of their rows that are equal. */
export class RunStack implements AsyncDisposable {
  readonly runs: Run[] = [];
  /** Bytes of a unit, but for one that a record batch alone takes. */
  readonly unitBytes: number;
  /** Of the first table, and so of all runs. */
  #schema: arrow.Schema | undefined;

  constructor(
    private readonly core: BatchesCore,
    private readonly windowBytes: number,
    private readonly stats: BatchStats,
  ) {
    this.unitBytes = Math.min(MOST_UNIT_BYTES, Math.max(LEAST_UNIT_BYTES, Math.floor(UNIT_SHARE * windowBytes)));
  }

  /** The most bytes of a buffer in record batches of so many columns, which take a unit together; more where rows are wide. */
  bufferBytes(columns: number): number {
    const good = Math.min(GOOD_BUFFER_BYTES, Math.floor((GOOD_UNIT_SHARE * this.windowBytes) / columns));
    return Math.max(LEAST_BUFFER_BYTES, good, Math.ceil(this.unitBytes / columns));
  }

  /** Of all runs. */
  get bytes(): number {
    return this.runs.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Writes a table's rows as a run behind the others. */
  async push(table: arrow.Table): Promise<void> {
    this.runs.push(await this.#written(itemsIn([table]), 0));
  }

  /**
   * Merges the last runs to one until two units of each have room in memory: those of the fewest merges, so that a row goes through
   * few.
   */
  async mergeWhile(merged: (runs: readonly Run[]) => Items<arrow.Table>): Promise<void> {
    const { runs } = this;
    while (runs.length > 2 && runs.reduce((bytes, { largestUnit }) => bytes + 2 * largestUnit, 0) > this.windowBytes) {
      const level = runs.at(-2)!.level;
      const first = runs.findIndex((run) => run.level <= level);
      const one = await this.#written(merged(runs.slice(first)), level + 1);
      for (const run of runs.splice(first, Number.POSITIVE_INFINITY, one)) await run[Symbol.asyncDispose]();
    }
  }

  async #written(tables: Items<arrow.Table>, level: number): Promise<Run> {
    const file = await this.core.temporary.open(this.core.keep);
    try {
      let run = undefined as Run | undefined;
      await eachIn(tables, (table) => {
        this.#schema ??= table.schema;
        run ??= new Run(file, libraryOf(table as unknown as ForeignTable), this.#schema, this.unitBytes, level, this.stats);
        return run.append(table);
      });
      return run!;
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const run of this.runs.splice(0)) await run[Symbol.asyncDispose]();
  }
}
