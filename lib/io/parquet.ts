/** Parquet through parquet-wasm, one row group in its memory at a time. */
import { openAsBlob } from 'node:fs';
import { stat } from 'node:fs/promises';
import { type RecordBatch, Table, tableToIPC } from 'apache-arrow';
import type { RecordBatch as WasmBatch } from 'parquet-wasm';
import { readIpcBytes } from '../ipc/reader.js';
import { asFileError, asWriteError, fileError, writeWhole } from './files.js';

const rowsPerBatch = 1 << 20;

// 5 MB of WebAssembly: loaded by the first Parquet file only.
const library = () => import('parquet-wasm');

/**
 * parquet-wasm panics at some damage, and where that is in a task of its own, the promise that waits for it never settles:
 * the trap surfaces as an uncaught exception alone. This rejects with it. The module can't be used afterwards.
 */
async function untilTrap<T>(work: () => Promise<T>): Promise<T> {
  let caught!: (error: unknown) => void;
  const trap = new Promise<never>((_, reject) => {
    caught = (error) => {
      if ((error as Error | undefined)?.name !== 'RuntimeError') throw error;
      reject(new Error('the decoder gave up', { cause: error }));
    };
  });
  process.on('uncaughtException', caught);
  try {
    return await Promise.race([work(), trap]);
  } finally {
    process.off('uncaughtException', caught);
  }
}

export interface ParquetOptions {
  maxRows?: number;
  columns?: readonly string[];
}

export async function* scanParquet(
  path: string,
  signal?: AbortSignal,
  options: ParquetOptions = {},
): AsyncGenerator<RecordBatch> {
  yield* (await readParquet(path, signal, undefined, options)).batches;
}

/** Reads a Parquet file; column types come as the file states them. Throws ERR_FILE. */
export async function readParquet(
  path: string,
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
  options: ParquetOptions = {},
): Promise<Table> {
  try {
    const info = await stat(path);
    if (info.isDirectory()) throw fileError(path, 'is a directory');
    if (info.size < 12) throw fileError(path, 'not a Parquet file: shorter than its header and footer');
    return await untilTrap(() => decode(path, signal, onProgress, options));
  } catch (error) {
    throw asFileError(path, 'Parquet', error, signal);
  }
}

async function decode(
  path: string,
  signal: AbortSignal | undefined,
  onProgress: ((fraction: number | undefined) => void) | undefined,
  { maxRows, columns }: ParquetOptions,
): Promise<Table> {
  const { ParquetFile } = await library();
  const file = await ParquetFile.fromFile(await openAsBlob(path));
  try {
    const claimed = Math.min(file.metadata().fileMetadata().numRows(), maxRows ?? Number.POSITIVE_INFINITY);
    if (claimed === 0) {
      const empty = readIpcBytes(file.schema().intoIPCStream());
      return columns ? empty.select([...columns]) : empty;
    }
    const stream = await file.stream({
      batchSize: rowsPerBatch,
      concurrency: 1,
      ...(maxRows !== undefined && { limit: maxRows }),
      ...(columns && { columns: [...columns] }),
    });
    const batches: RecordBatch[] = [];
    let rows = 0;
    for await (const part of stream as unknown as AsyncIterable<WasmBatch>) {
      signal?.throwIfAborted();
      for (const batch of readIpcBytes(part.intoIPCStream()).batches) {
        const kept = batch.numRows > claimed - rows && maxRows !== undefined ? batch.slice(0, claimed - rows) : batch; // the limit is a row group's
        if (kept.numRows === 0) continue;
        batches.push(kept);
        rows += kept.numRows;
      }
      onProgress?.(rows / claimed);
    }
    if (rows !== claimed) throw fileError(path, `damaged: ${claimed} rows announced, ${rows} found`);
    return batches.length > 0 ? new Table(batches) : readIpcBytes(file.schema().intoIPCStream());
  } finally {
    file.free();
  }
}

/** Writes a Parquet file with Snappy compression. Types that Parquet lacks are refused with ERR_FILE. */
export async function writeParquet(table: Table, path: string, signal?: AbortSignal): Promise<void> {
  const {
    Compression,
    Table: WasmTable,
    WriterPropertiesBuilder,
    transformParquetStream,
    writeParquet: encode,
  } = await library();
  const properties = () => new WriterPropertiesBuilder().setCompression(Compression.SNAPPY).setCreatedBy('warpjoin').build();
  await writeWhole(path, signal, async (append) => {
    try {
      if (table.numRows === 0) return await append(encode(WasmTable.fromIPCStream(tableToIPC(table, 'stream')), properties()));
      const parts = (function* () {
        for (let row = 0; row < table.numRows; row += rowsPerBatch) {
          signal?.throwIfAborted();
          yield* WasmTable.fromIPCStream(tableToIPC(table.slice(row, row + rowsPerBatch), 'stream')).recordBatches();
        }
      })();
      const stream = new ReadableStream<WasmBatch>({
        pull(controller) {
          try {
            const { done, value } = parts.next();
            if (done) controller.close();
            else controller.enqueue(value);
          } catch (error) {
            controller.error(error);
          }
        },
      });
      const bytes = await transformParquetStream(stream as never, properties());
      for await (const part of bytes as unknown as AsyncIterable<Uint8Array>) await append(part);
    } catch (error) {
      throw signal?.aborted ? signal.reason : asWriteError(path, error);
    }
  });
}
