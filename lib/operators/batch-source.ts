/** Record batches as they come: of tables, iterables, readers, streams of batches, and streams of Arrow IPC bytes. */
import { types } from 'node:util';
import type * as arrow from 'apache-arrow';
import { OwnSignal, type Signal } from '../abort.js';
import { eachOf, isAsyncSource, isBatch, isTable, noTable, readable, unreadable } from '../columns/batches.js';
import { tablesOfBatches } from '../columns/tables.js';
import { invalid } from '../columns/values.js';
import { WarpjoinError } from '../errors.js';
import { scanArrow } from '../io/arrow.js';
import { behind, END, type Items, itemsIn, itemsLater, itemsOf, mapped, nextOf, rethrown } from '../items.js';
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
  readonly tables: Items<arrow.Table>;
  readonly memory: BatchMemory;
  /** Gives up what is waited for: a source may never give it. Then the tables end. */
  readonly giveUp?: () => void;
}

/** Throws ERR_INVALID_TABLE for what can't be a source. */
export function batchSource(value: unknown, argument: string, signal: Signal | undefined): BatchSource {
  const isWhole = readable(
    argument,
    () => isTable(value) || isBatch(value) || ArrayBuffer.isView(value) || types.isArrayBuffer(value),
  );
  if (isWhole || value instanceof LoadedTable) return { tables: tablesOf(itemsIn([value]), argument), memory: 'caller' };
  if (readable(argument, () => isAsyncSource(value))) {
    const own = new OwnSignal(signal);
    const items = eachOf(value as AsyncIterable<unknown>, argument, own);
    return { tables: tablesOf(unpacked(items, argument), argument), memory: 'stream', giveUp: () => own.abort() };
  }
  const isIterable =
    typeof value === 'object' && value !== null && typeof (value as Iterable<unknown>)[Symbol.iterator] === 'function';
  if (!isIterable) throw noTable(value, argument);
  const items = rethrown(itemsIn(value as Iterable<unknown>), (error) => unreadable(argument, error));
  if (Array.isArray(value)) return { tables: tablesOf(items, argument), memory: 'caller' };
  return { tables: tablesOf(unpacked(items, argument), argument), memory: 'stream' };
}

/** A source whose rows are counted as they are read. */
export function counted({ tables, ...source }: BatchSource, stats: BatchStats): BatchSource {
  const count = (table: arrow.Table) => {
    stats.inputRows += table.numRows;
    return table;
  };
  return { ...source, tables: mapped(tables, count) };
}

function tablesOf(items: Items<unknown>, argument: string): Items<arrow.Table> {
  const inHostMemory = (item: unknown) => (item instanceof LoadedTable ? item.toArrow() : item);
  return tablesOfBatches(mapped(items, inHostMemory), argument);
}

/** The items, or, where they are pieces of an Arrow IPC stream, its record batches. */
const unpacked = (items: Items<unknown>, argument: string): Items<unknown> =>
  itemsLater(async () => {
    const first = await nextOf(items);
    if (first === END) return items;
    const all = behind(first, items);
    return types.isUint8Array(first) ? ipcBatches(all, argument) : all;
  });

function ipcBatches(pieces: Items<unknown>, argument: string): Items<arrow.RecordBatch> {
  const bytes = () =>
    mapped(pieces, (piece) => {
      if (types.isUint8Array(piece)) return piece;
      throw invalid(argument, 'is a stream of bytes with something else in it');
    });
  const name = `the ${argument} stream`;
  const told = (error: unknown) => {
    if (!(error instanceof WarpjoinError) || error.code !== 'ERR_FILE') return error;
    const problem = error.message.slice(name.length + 2).replace(/\.$/, '');
    return invalid(argument, `is a stream of bytes that is ${problem}`, { cause: error });
  };
  const batches = rethrown(scanArrow({ name, progress: () => undefined, bytes }), told);
  return itemsOf(
    () => nextOf(batches),
    async () => {
      await batches.return();
      await pieces.return();
    },
  );
}
