/**
 * Sorts of record batches as they come: parts that fit the memory limit are sorted as tables are. One part is the result; several are
 * runs in temporary files, which are merged in windows.
 */
import type * as arrow from 'apache-arrow';
import { Behind } from '../behind.js';
import { opened } from '../columns/tables.js';
import { type Box, type Boxes, boxed, boxesOf, unboxed } from '../items.js';
import { sortBatchesSchema, sortSettings } from '../options.js';
import { buffersOf, eachPart, halvesOf, nullIfShort, Part } from './batch-part.js';
import { type BatchMemory, type BatchSource, batchSource, counted } from './batch-source.js';
import { type BatchesCore, type BatchStats, BatchStream, cut, rowsOf } from './batch-stream.js';
import type { EngineCore } from './call.js';
import { type Merging, merge } from './merge.js';
import { RunStack } from './runs.js';
import { cutMerge } from './search.js';
import { sortTable } from './sort.js';

type Settings = ReturnType<typeof sortSettings<typeof sortBatchesSchema>>;

/**
 * The share of the free memory that a part of the input takes, and so do the windows of a merge: beside it lie keys, room to sort them
 * in, the sorted rows, and what is read or written meanwhile.
 */
const PART_SHARE = 1 / 8;

export function sortBatches(core: BatchesCore | Promise<BatchesCore>, input: unknown, options: unknown): BatchStream {
  const settings = sortSettings(sortBatchesSchema, 'sortBatches', options);
  const source = batchSource(input, 'input', settings.signal);
  return new BatchStream(core, settings, (core, stats, hold) => {
    const sorting = hold(new Sorting(core, settings, stats));
    return cut(unboxed(sorting.rows(counted(source, stats))), settings.batchRows, stats);
  });
}

/** One sort of batches, and what it holds. `share`: of the free memory, for a part of the input, and for the windows of a merge. */
export class Sorting implements AsyncDisposable {
  #part = new Part();
  #partBytes = 0;
  #columns = 1;
  #hasSpilled = false;
  #memory: BatchMemory = 'stream';
  #runs!: RunStack;
  readonly #sorts = new Behind();
  readonly #writes = new Behind();

  constructor(
    private readonly core: BatchesCore,
    private readonly settings: Settings,
    private readonly stats: BatchStats,
    private readonly share = PART_SHARE,
  ) {}

  /** Bytes of a part, once the first rows were asked for. */
  get partBytes(): number {
    return this.#partBytes;
  }

  /** Whether the rows come from temporary files. */
  get hasSpilled(): boolean {
    return this.#hasSpilled;
  }

  /** The rows in order, behind a table without rows that has their columns. */
  async *rows({ tables, memory }: BatchSource): Boxes<arrow.Table> {
    const { select, limit, offset } = this.settings;
    try {
      await this.core.temporary.check();
      const { core, settings } = this;
      // As the first call of an engine, this sets its limit.
      const freeBytes = await core.enqueue('beside others', settings.signal, () => core.freeMemory.bytes());
      this.#partBytes = Math.max(1, Math.floor(this.share * freeBytes));
      this.#runs = new RunStack(this.core, this.#partBytes, this.stats);
      const { none, all } = await opened(tables);
      yield await boxed(() => this.#sort(none.batches, { select }));
      if (limit === 0) return;
      this.#memory = memory;
      const source = { tables: all, memory };
      await eachPart(
        core,
        source,
        this.#partBytes,
        () => this.#allSpilled(),
        async (part, isLast) => {
          this.#part = part;
          if (!isLast) await this.#spillPart();
        },
      );
      const whole = await this.#whole();
      if (whole) {
        this.#part.release();
        return yield whole;
      }
      await this.#spillPart();
      await this.#allSpilled();
      await core.freeMemory.trim(this.#runs.bytes, memory === 'stream');
      yield* boxesOf(rowsOf(merge(this.#runs.runs, this.#merging(select)), offset, offset + limit));
    } finally {
      await tables.return();
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#allSpilled().catch(() => {}); // whoever waits for it is told
    await this.#writes.end().catch(() => {});
    this.#part.release();
    await this.#runs?.[Symbol.asyncDispose]();
  }

  /** All rows, where they had room in memory: null where they are in runs, or in a part that is to be one. */
  async #whole(): Promise<Box<arrow.Table> | null> {
    const { select, limit, offset } = this.settings;
    const { batches } = this.#part;
    if (this.#hasSpilled || batches.length === 0) return null;
    return boxed(() => this.#sort(batches, { select, limit, offset })).catch(nullIfShort);
  }

  /**
   * Makes a run of the part, while the next one is read: this waits for the one before to be sorted, and that has waited until the one
   * before it was written.
   */
  async #spillPart(): Promise<void> {
    const part = this.#part;
    this.#part = new Part();
    this.#hasSpilled = true;
    await this.#sorts.start(async () => {
      const read = this.#memory === 'engine' ? buffersOf(part.batches) : [];
      try {
        await this.#spillAll(part.batches, () => this.core.free(read));
      } finally {
        part.release();
      }
    });
  }

  async #allSpilled(): Promise<void> {
    await this.#sorts.end();
    await this.#writes.end();
  }

  /** Sorts batches, and has them written as a run, and then `written` called; as several, one after the other, where memory is short. */
  async #spillAll(batches: readonly arrow.RecordBatch[], written: () => Promise<void>): Promise<void> {
    if (batches.length === 0) return written();
    const { limit, offset } = this.settings;
    const rows = { select: this.#runColumns, limit: limit + offset };
    this.#columns = batches[0]!.data.children.length;
    const sorted = await this.#sort(batches, rows, this.#forRuns).catch((error: unknown) => {
      if (batches.length === 1 && batches[0]!.numRows === 1) throw error;
      return nullIfShort(error);
    });
    if (!sorted) {
      const [first, last] = halvesOf(batches);
      await this.#spillAll(first, async () => {});
      return this.#spillAll(last, written);
    }
    const read = new Set(buffersOf(batches));
    await this.#writes.start(async () => {
      await this.#runs.push(sorted);
      await this.core.free(buffersOf(sorted.batches).filter((buffer) => !read.has(buffer)));
      await written();
      await this.#runs.mergeWhile((runs) => merge(runs, this.#merging(this.#runColumns, this.#forRuns)));
    });
  }

  /** What runs have: the columns of the result, and those that they are merged by. */
  get #runColumns(): readonly string[] | undefined {
    const { select, by } = this.settings;
    return select && [...new Set([...select, ...by.map(({ column }) => column)])];
  }

  /** An engine whose results come in record batches of about a unit. */
  get #forRuns(): EngineCore {
    return { ...this.core, maxBufferBytes: this.#runs.bufferBytes(this.#columns) };
  }

  #sort(
    batches: readonly (arrow.RecordBatch | arrow.Table)[],
    { limit = Number.POSITIVE_INFINITY, ...rows }: { select: readonly string[] | undefined; limit?: number; offset?: number },
    core: EngineCore = this.core,
  ): Promise<arrow.Table> {
    const { by, algorithm, signal } = this.settings;
    const options = { by, algorithm, signal, ...rows, limit: Number.isSafeInteger(limit) ? limit : undefined };
    return sortTable(core, batches, options) as Promise<arrow.Table>;
  }

  #merging(select: readonly string[] | undefined, core: EngineCore = this.core): Merging {
    const { by, signal } = this.settings;
    return {
      native: this.core.native,
      windowBytes: this.#partBytes,
      sort: (tables) => this.#sort(tables, { select }, core),
      cut: (tables, rows) => cutMerge(this.core, tables, rows, by, { signal, onProgress: undefined, trace: undefined }),
      free: (buffers) => this.core.free(buffers),
    };
  }
}
