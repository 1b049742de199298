/** Arrow IPC files (.arrow, .feather) and streams, read batch by batch. */
import { constants } from 'node:buffer';
import { type FileHandle, open } from 'node:fs/promises';
import { type RecordBatch, type Schema, Table } from 'apache-arrow';
import { batchWithoutRows } from '../columns/library.js';
import { type BatchSink, IpcError, type Range, readIpc } from '../ipc/reader.js';
import { END, type Items, itemsOf } from '../items.js';
import { formatBytes } from '../sizes.js';
import { asFileError, fileError } from './file-errors.js';
import { type RangedBytes, rangedBytes } from './ranged-source.js';
import type { ByteSource } from './source.js';

const largestRead = 1 << 30; // one read(2) moves at most 2^31 - 4096 bytes

export interface ArrowOptions {
  /** Stops after so many rows. */
  maxRows?: number | undefined;
  onProgress?: ((fraction: number | undefined) => void) | undefined;
}

/** Takes batches until there are enough rows. */
class FirstRows implements BatchSink {
  readonly taken: RecordBatch[] = [];
  /** Of the last batch, once there are enough rows: nothing else has to be read. */
  enough: Schema | undefined;
  #rows = 0;

  constructor(private readonly maxRows: number) {}

  wants(): boolean {
    return this.#rows < this.maxRows;
  }
  take(batch: RecordBatch): void {
    const kept = batch.numRows > this.maxRows - this.#rows ? batch.slice(0, this.maxRows - this.#rows) : batch;
    this.#rows += kept.numRows;
    this.taken.push(kept);
    if (!this.wants()) this.enough = batch.schema;
  }
}

/** Counts rows, and reads none. */
class RowCount implements BatchSink {
  rows = 0;

  wants(rows: number): boolean {
    this.rows += rows;
    return false;
  }
  take(): void {}
}

/** Reads an Arrow IPC file or stream; what is in it is read once and not copied. Throws ERR_FILE. */
export async function readArrow(input: string | ByteSource, options: ArrowOptions = {}, signal?: AbortSignal): Promise<Table> {
  if (options.maxRows === undefined) return last(steps(input, options, signal));
  const sink = new FirstRows(options.maxRows);
  const { schema } = await last(steps(input, options, signal, sink));
  return new Table(schema, sink.taken);
}

/** The batches of an Arrow IPC file or stream, one in memory at a time; one of no rows where there is none. Throws ERR_FILE. */
export function scanArrow(input: string | ByteSource, options: ArrowOptions = {}, signal?: AbortSignal): Items<RecordBatch> {
  const sink = new FirstRows(options.maxRows ?? Number.POSITIVE_INFINITY);
  const reading = steps(input, options, signal, sink);
  let hasBatches = false;
  return itemsOf(
    async () => {
      while (sink.taken.length === 0) {
        const { done, value } = await reading.next();
        if (!done) continue;
        if (hasBatches || !value) return END;
        sink.taken.push(batchWithoutRows(value.schema));
      }
      hasBatches = true;
      return sink.taken.shift()!;
    },
    () => reading.return(undefined as never),
  );
}

/** The schema and the number of rows of an Arrow IPC file or stream. Reads no record batch. Throws ERR_FILE. */
export async function outlineArrow(path: string, signal?: AbortSignal): Promise<{ schema: Schema; rows: number }> {
  const sink = new RowCount();
  const { schema } = await last(steps(path, {}, signal, sink));
  return { schema, rows: sink.rows };
}

async function last<T>(generator: AsyncGenerator<unknown, T>): Promise<T> {
  for (;;) {
    const { done, value } = await generator.next();
    if (done) return value;
  }
}

/** Reads from a file at any place, or from a source in order. Yields after each range that was read. */
async function* steps(
  input: string | ByteSource,
  { onProgress }: ArrowOptions,
  signal: AbortSignal | undefined,
  sink?: BatchSink,
): AsyncGenerator<void, Table> {
  const name = typeof input === 'string' ? input : input.name;
  let bytes: RangedBytes | undefined;
  try {
    bytes = typeof input === 'string' ? await fileRanges(input, signal) : await rangedBytes(input);
    const { size } = bytes;
    if (size === 0) throw fileError(name, 'the file is empty');
    const reading = readIpc(size, sink);
    let step = reading.next();
    while (!step.done) {
      const { position, length } = step.value;
      checkLength(name, length);
      step = reading.next(await bytes.at(step.value));
      onProgress?.(typeof input === 'string' ? (position + length) / size : input.progress());
      yield;
      if (sink instanceof FirstRows && sink.enough) return new Table(sink.enough);
    }
    return step.value;
  } catch (error) {
    if (error instanceof IpcError) throw fileError(name, `not readable as Arrow IPC: ${error.message}`, error);
    throw asFileError(name, 'Arrow IPC', error, signal);
  } finally {
    await bytes?.close();
  }
}

async function fileRanges(path: string, signal: AbortSignal | undefined): Promise<RangedBytes> {
  const file = await open(path);
  const at = (range: Range) => bytesAt(path, file, range, signal);
  const { size } = await file.stat();
  return { size, at, close: () => file.close() };
}

function checkLength(name: string, length: number): void {
  if (length <= constants.MAX_LENGTH) return;
  const [found, most] = [formatBytes(length), formatBytes(constants.MAX_LENGTH)];
  throw fileError(name, `a batch in it has ${found}, and this Node.js holds ${most} in one: write it in smaller batches`);
}

async function bytesAt(path: string, file: FileHandle, { position, length }: Range, signal?: AbortSignal): Promise<Uint8Array> {
  const { buffer } = Buffer.allocUnsafeSlow(length);
  const bytes = new Uint8Array(buffer, 0, length);
  for (let at = 0; at < length; ) {
    signal?.throwIfAborted();
    const { bytesRead } = await file.read(bytes, at, Math.min(length - at, largestRead), position + at);
    if (bytesRead === 0) throw fileError(path, 'the file became shorter while it was read');
    at += bytesRead;
  }
  return bytes;
}
