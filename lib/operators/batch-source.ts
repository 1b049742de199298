/** Record batches as they come: of tables, iterables, readers, streams of batches, and streams of Arrow IPC bytes. */
import { types } from 'node:util';
import type * as arrow from 'apache-arrow';
import type { Signal } from '../abort.js';
import { eachOf, isAsyncSource, isBatch, isTable, noTable, readable } from '../columns/batches.js';
import { tablesOfBatches } from '../columns/tables.js';
import { invalid } from '../columns/values.js';
import { WarpjoinError } from '../errors.js';
import { scanArrow } from '../io/arrow.js';
import type { BatchStats } from './batch-stream.js';
import { LoadedTable } from './load.js';

/**
 * Whose memory record batches are in. The caller's, who holds them anyway: what is read of a table, or of an array, takes no more
 * memory. A stream's: they count from when they come to when they were read. The engine's, where they count already; whoever has read
 * them frees them, and no two share a buffer.
 */
export type BatchMemory = 'caller' | 'stream' | 'engine';

export interface BatchSource {
  /** Tables of one schema, one at least. Throws ERR_INVALID_TABLE. */
  readonly tables: AsyncGenerator<arrow.Table>;
  readonly memory: BatchMemory;
}

/** Throws ERR_INVALID_TABLE for what can't be a source. */
export function batchSource(value: unknown, argument: string, signal: Signal | undefined): BatchSource {
  const isWhole = readable(
    argument,
    () => isTable(value) || isBatch(value) || ArrayBuffer.isView(value) || types.isArrayBuffer(value),
  );
  if (isWhole || value instanceof LoadedTable) return { tables: tablesOf([value], argument), memory: 'caller' };
  if (readable(argument, () => isAsyncSource(value))) {
    return { tables: tablesOf(eachOf(value as AsyncIterable<unknown>, argument, signal), argument), memory: 'stream' };
  }
  const isIterable =
    typeof value === 'object' && value !== null && typeof (value as Iterable<unknown>)[Symbol.iterator] === 'function';
  if (!isIterable) throw noTable(value, argument);
  if (Array.isArray(value)) return { tables: tablesOf(value, argument), memory: 'caller' };
  return { tables: tablesOf(iterated(value as Iterable<unknown>, argument), argument), memory: 'stream' };
}

/** The items of a caller's iterable. Throws ERR_INVALID_TABLE in place of what it throws. */
function* iterated(items: Iterable<unknown>, argument: string): Generator<unknown> {
  try {
    yield* items;
  } catch (error) {
    readable(argument, () => {
      throw error;
    });
  }
}

/** A table that was read of some, and those behind it. */
export async function* behind(first: arrow.Table, rest: AsyncGenerator<arrow.Table>): AsyncGenerator<arrow.Table> {
  yield first;
  yield* rest;
}

/** A source whose rows are counted as they are read. */
export function counted({ tables, memory }: BatchSource, stats: BatchStats): BatchSource {
  async function* each(): AsyncGenerator<arrow.Table> {
    for await (const table of tables) {
      stats.inputRows += table.numRows;
      yield table;
    }
  }
  return { tables: each(), memory };
}

async function* tablesOf(items: Iterable<unknown> | AsyncIterable<unknown>, argument: string): AsyncGenerator<arrow.Table> {
  async function* arrowItems(): AsyncGenerator<unknown> {
    for await (const item of wholeItems(items, argument)) yield item instanceof LoadedTable ? await item.toArrow() : item;
  }
  yield* tablesOfBatches(arrowItems(), argument);
}

/** The items, or, where they are pieces of an Arrow IPC stream, its record batches. */
async function* wholeItems(items: Iterable<unknown> | AsyncIterable<unknown>, argument: string): AsyncGenerator<unknown> {
  if (Array.isArray(items)) return yield* iterated(items, argument);
  // A generator: ending it once more does nothing.
  const each = (async function* () {
    yield* items;
  })();
  try {
    const { done, value } = await each.next();
    if (done) return;
    if (types.isUint8Array(value)) return yield* ipcBatches(value, each, argument);
    yield value;
    yield* each;
  } finally {
    await each.return();
  }
}

async function* ipcBatches(first: Uint8Array, rest: AsyncIterable<unknown>, argument: string): AsyncGenerator<arrow.RecordBatch> {
  async function* bytes(): AsyncGenerator<Uint8Array> {
    yield first;
    for await (const piece of rest) {
      if (!types.isUint8Array(piece)) throw invalid(argument, 'is a stream of bytes with something else in it');
      yield piece;
    }
  }
  const name = `the ${argument} stream`;
  try {
    yield* scanArrow({ name, progress: () => undefined, bytes });
  } catch (error) {
    if (!(error instanceof WarpjoinError) || error.code !== 'ERR_FILE') throw error;
    throw invalid(argument, `is a stream of bytes that is ${error.message.slice(name.length + 2).replace(/\.$/, '')}`, {
      cause: error,
    });
  }
}
