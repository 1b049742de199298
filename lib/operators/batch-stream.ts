/** Record batches that are made as they are asked for. */
import type * as arrow from 'apache-arrow';
import type { Signal } from '../abort.js';
import { checkSameTypes } from '../columns/batches.js';
import { rowsOfBatch } from '../columns/library.js';
import { WarpjoinError } from '../errors.js';
import type { TemporaryPlace } from '../io/temporary.js';
import { END, type Items, itemsLater, itemsOf, nextOf } from '../items.js';
import type { Running } from '../options.js';
import { tracedItems } from '../trace.js';
import type { EngineCore } from './call.js';
import type { FreeMemory } from './reclaim.js';
import type { WorkingStreams } from './working-streams.js';

/** What calls with batches need of an engine beside what others do. */
export interface BatchesCore extends EngineCore {
  readonly temporary: TemporaryPlace;
  readonly streams: WorkingStreams;
  readonly freeMemory: FreeMemory;
  /** Frees buffers that nobody reads any more. */
  free(buffers: readonly ArrayBuffer[]): Promise<void>;
}

/** Bytes of a dictionary's indices in all batches, at least: later ones may bring values that fewer can't number. */
const LEAST_INDEX_BYTES = 4;

/** What a call with batches did up to now. */
export interface BatchStats {
  /** Rows that were read, and rows that were given. */
  inputRows: number;
  outputRows: number;
  /** Sorted runs and partitions that were written to temporary files: 0 where the rows had room in memory. */
  runs: number;
  /** Bytes that were written to temporary files, and bytes that were read of them. */
  spilledBytes: number;
  readBytes: number;
}

export const noStats = (): BatchStats => ({ inputRows: 0, outputRows: 0, runs: 0, spilledBytes: 0, readBytes: 0 });

/** Makes the record batches with an engine, and names what it holds outside of JavaScript's memory. */
type Make = (
  core: BatchesCore,
  stats: BatchStats,
  hold: <S extends AsyncDisposable>(scratch: S) => S,
) => Items<arrow.RecordBatch> | Promise<Items<arrow.RecordBatch>>;

/** Frees what readings hold that nobody goes on with, nor ends. */
const unheld = new FinalizationRegistry<AsyncDisposable[]>((held) => {
  for (const scratch of held) void scratch[Symbol.asyncDispose]();
});

/**
 * Record batches of one schema, to be read once: `for await (const batch of batches)`. Nothing happens before the first one is
 * asked for. Ending early (`break`, or disposal) frees what is held, and so does the call's signal, with whose reason the next read
 * rejects.
 */
// biome-ignore lint/suspicious/noExplicitAny: batches of all column types
export class BatchStream<Columns extends arrow.TypeMap = any>
  implements AsyncIterable<arrow.RecordBatch<Columns>>, AsyncDisposable
{
  /** What was done up to now. */
  readonly stats: Readonly<BatchStats> = noStats();
  #reading: Reading | 'disposed' | null = null;

  /** @internal Calls make them. */
  constructor(
    private readonly core: BatchesCore | Promise<BatchesCore>,
    private readonly running: Pick<Running, 'signal' | 'trace'>,
    private readonly make: Make,
  ) {}

  /** Throws ERR_OPTION at the second time. */
  [Symbol.asyncIterator](): AsyncIterator<arrow.RecordBatch<Columns>, undefined> {
    if (this.#reading) {
      throw new WarpjoinError(
        'ERR_OPTION',
        'Expected batches that have not been read but received some that were, or were disposed. Make the call again.',
      );
    }
    const held: AsyncDisposable[] = [];
    const hold = <S extends AsyncDisposable>(scratch: S): S => {
      held.push(scratch);
      return scratch;
    };
    const { signal, trace } = this.running;
    const batches = tracedItems(trace, hold, async (keep) => {
      const core = { ...(await this.core), leastIndexBytes: LEAST_INDEX_BYTES };
      const working = hold(await core.streams.begin(core, signal));
      const made = itemsLater(() => this.make(keep ? { ...core, keep } : core, this.stats, hold));
      const end = async () => {
        try {
          await made.return();
        } finally {
          working.end();
        }
      };
      return itemsOf(() => nextOf(made), end);
    });
    this.#reading = new Reading(batches, signal);
    unheld.register(this.#reading, held);
    return this.#reading as AsyncIterator<arrow.RecordBatch<Columns>, undefined>;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#reading instanceof Reading) await this.#reading.return();
    this.#reading ??= 'disposed';
  }
}

class Reading implements AsyncIterator<arrow.RecordBatch, undefined> {
  constructor(
    private readonly batches: Items<arrow.RecordBatch>,
    private readonly signal: Signal | undefined,
  ) {
    signal?.addEventListener('abort', this.#abort);
  }

  async next(): Promise<IteratorResult<arrow.RecordBatch, undefined>> {
    try {
      this.signal?.throwIfAborted();
      const next = await this.batches.next();
      this.signal?.throwIfAborted();
      if (next.done) this.#end();
      return next;
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  async return(): Promise<IteratorResult<arrow.RecordBatch, undefined>> {
    this.#end();
    await this.batches.return();
    return { done: true, value: undefined };
  }

  #abort = (): void => {
    void this.return().catch(() => {});
  };

  #end(): void {
    this.signal?.removeEventListener('abort', this.#abort);
  }
}

/**
 * The record batches of tables, of `most` rows each at most; where there is no row, one without rows, for its schema. Throws
 * ERR_NOT_SUPPORTED where tables with rows have other types than those before.
 */
export function cut(tables: Items<arrow.Table>, most: number, stats: BatchStats): Items<arrow.RecordBatch> {
  let empty: arrow.RecordBatch | undefined;
  let schema: arrow.Schema | undefined;
  /** What the last table has that was not given, and rows of the first batch that were. */
  const waiting: arrow.RecordBatch[] = [];
  let given = 0;
  const next = (): arrow.RecordBatch => {
    const batch = waiting[0]!;
    const rows = Math.min(most, batch.numRows - given);
    const piece = rows === batch.numRows ? batch : rowsOfBatch(batch, given, given + rows);
    given += rows;
    stats.outputRows += rows;
    if (given === batch.numRows) {
      waiting.shift();
      given = 0;
    }
    return piece;
  };
  return itemsOf(
    async () => {
      while (waiting.length === 0) {
        const table = await nextOf(tables);
        if (table === END) {
          const schemaAlone = empty;
          empty = undefined;
          return schemaAlone && stats.outputRows === 0 ? schemaAlone : END;
        }
        empty ??= table.batches.find(({ numRows }) => numRows === 0);
        if (table.numRows > 0) {
          schema ??= table.schema;
          checkSameTypes(schema, table.schema);
        }
        waiting.push(...table.batches.filter(({ numRows }) => numRows > 0));
      }
      return next();
    },
    () => tables.return(),
  );
}

/** Rows [begin, end) of those that tables have one after the other, and tables without rows. */
export function rowsOf(tables: Items<arrow.Table>, begin: number, end = Number.POSITIVE_INFINITY): Items<arrow.Table> {
  let row = 0;
  let hasAll = false;
  return itemsOf(
    async () => {
      while (!hasAll) {
        const table = await nextOf(tables);
        if (table === END) return END;
        const [first, last] = [Math.max(0, begin - row), Math.min(table.numRows, end - row)];
        row += table.numRows;
        hasAll = row >= end;
        if (table.numRows === 0 || (first === 0 && last === table.numRows)) return table;
        if (first < last) return table.slice(first, last);
      }
      return END;
    },
    () => tables.return(),
  );
}
