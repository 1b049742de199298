/** Parquet files as the addon reads them (native/parquet): row groups become record batches, decoded on all cores. */
import { availableParallelism } from 'node:os';
import { RecordBatch, type Schema } from 'apache-arrow';
import { ownLibrary } from '../columns/library.js';
import { buildTable } from '../columns/result.js';
import { rowBytes } from '../columns/row-bytes.js';
import { typeInfo } from '../columns/types.js';
import { noValues } from '../columns/values.js';
import { physicalMemory } from '../machine.js';
import { native } from '../native.js';
import { MAPPED_WHILE_SCANNED } from './file-room.js';
import type { NativeParquetBatch, NativeParquetReader, ParquetBatchRequest, ParquetOutline } from './parquet-native.js';
import type { NativePlan } from './parquet-schema.js';

/** Where tests make what is large small. */
export interface ParquetSizes {
  /** Small row groups become batches of at most so many rows. */
  batchRows?: number;
  /** Bytes of the file that each thread gets in a request. */
  bytesPerThread?: number;
  /** About what the rows take in memory that are read ahead; a row group at least. */
  readAhead?: number | undefined;
  /** Whether batches go while others come. */
  isScanned?: boolean;
  threads?: number;
  /** Whether the addon is left out. */
  withoutAddon?: boolean;
}

const leastRowsPerBatch = 1 << 16;
const mostRowsPerBatch = 1 << 20;
const bytesPerThread = 1 << 23;
const tasksPerThread = 4;
const mostThreads = 16;
const leastBytesPerThread = 1 << 20; // a thread takes as long to start as to read some of them
const requestsAtOnce = 2; // one result is handed over while the next is decoded

/** One file, on threads of its own. */
export class AddonFile {
  private isClosed = false;

  private constructor(
    private readonly reader: NativeParquetReader,
    readonly outline: ParquetOutline,
    private readonly threads: number,
    private readonly sizes: ParquetSizes,
    private readonly end: () => void,
  ) {}

  /** Reads the footer of a file of `bytes` bytes. undefined: this process has no addon. */
  static async open(
    path: string,
    bytes: number,
    signal: AbortSignal | undefined,
    sizes: ParquetSizes,
  ): Promise<AddonFile | undefined> {
    const Reader = sizes.withoutAddon ? undefined : readerClass();
    if (!Reader) return undefined;
    const { threads = Math.min(availableParallelism(), mostThreads, Math.ceil(bytes / leastBytesPerThread)) } = sizes;
    const leastMapped = sizes.isScanned ? MAPPED_WHILE_SCANNED : undefined;
    const reader = new Reader({ path, threads, memoryBytes: physicalMemory(), leastMapped });
    const cancel = () => reader.cancel();
    signal?.addEventListener('abort', cancel);
    const end = () => {
      signal?.removeEventListener('abort', cancel);
      reader.cancel();
      reader.release();
    };
    try {
      return new AddonFile(reader, await reader.open(), threads, sizes, end);
    } catch (error) {
      end();
      throw error;
    }
  }

  /** Frees the memory; what is being read is given up. Safe to call twice. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.end();
  }

  /** The batches of the first `maxRows` rows: for each request those that it gives, and the share of all that was read. */
  async *read({ schema, columns }: NativePlan, maxRows: number): AsyncGenerator<{ batches: RecordBatch[]; fraction: number }> {
    const { readAhead = Number.POSITIVE_INFINITY } = this.sizes;
    const rowsAhead = readAhead / Math.max(1, rowBytes(schema));
    const requests = this.requests(
      columns.map(({ leaf }) => leaf),
      rowsAhead / requestsAtOnce,
      maxRows,
    );
    const isLarge = (request: ParquetBatchRequest[]) => request.reduce((sum, { rows }) => sum + rows, 0) > rowsAhead;
    const atOnce = requests.some(isLarge) ? 1 : requestsAtOnce;
    const reading: Promise<NativeParquetBatch[]>[] = [];
    for (let i = 0; i < requests.length; i++) {
      while (reading.length < Math.min(requests.length, i + atOnce)) {
        const read = this.reader.read({ batches: requests[reading.length]!, columns });
        read.catch(() => {}); // who waits for it may have gone
        reading.push(read);
      }
      const made = await reading[i]!;
      delete reading[i];
      yield { batches: made.flatMap((batch) => arrowBatches(schema, batch)), fraction: (i + 1) / requests.length };
    }
  }

  /** Small row groups together, and as many batches in a request as keep all threads at work, or have `mostRows` rows. */
  private requests(leaves: readonly number[], mostRows: number, maxRows: number): ParquetBatchRequest[][] {
    const { bytesPerThread: share = bytesPerThread } = this.sizes;
    const tasksWanted = tasksPerThread * this.threads;
    const rowsWanted = (Math.min(this.outline.rows, maxRows) * leaves.length) / tasksWanted;
    const rowsPerTask = Math.min(rowsWanted, (mostRows * leaves.length) / tasksWanted);
    const rowsPerBatch = Math.min(Math.max(rowsPerTask, leastRowsPerBatch), mostRowsPerBatch);
    const { batchRows = rowsPerBatch } = this.sizes;
    const batches: (ParquetBatchRequest & { bytes: number })[] = [];
    let left = maxRows;
    for (const [group, { rows: all, bytes }] of this.outline.groups.entries()) {
      const rows = Math.min(all, left);
      left -= rows;
      if (rows === 0) continue;
      const size = leaves.reduce((sum, leaf) => sum + bytes[leaf]!, 0);
      const last = batches.at(-1);
      if (!last || last.rows + rows > batchRows) batches.push({ groups: [group], rows, bytes: size });
      else {
        last.groups.push(group);
        last.rows += rows;
        last.bytes += size;
      }
    }
    const requests: ParquetBatchRequest[][] = [];
    let [bytes, tasks, rows] = [0, 0, 0];
    for (const { bytes: size, ...batch } of batches) {
      const isFull = rows + batch.rows > mostRows || (bytes >= share * this.threads && tasks >= tasksWanted);
      if (requests.length === 0 || isFull) {
        requests.push([]);
        [bytes, tasks, rows] = [0, 0, 0];
      }
      requests.at(-1)!.push(batch);
      bytes += size;
      tasks += leaves.length;
      rows += batch.rows;
    }
    return requests;
  }
}

/** Without an addon files are read all the same. */
function readerClass() {
  try {
    return native().ParquetReader;
  } catch {
    return undefined;
  }
}

/** More than one where a column of text needs several chunks. */
function arrowBatches(schema: Schema, { rows, columns }: NativeParquetBatch): RecordBatch[] {
  const layout = schema.fields.map(({ name, type, nullable, metadata }) => ({
    name,
    type,
    nullable,
    metadata,
    of: noValues(typeInfo(type)),
  }));
  const { batches } = buildTable(layout, columns, rows, { library: ownLibrary, metadata: undefined });
  return batches.map(({ data }) => new RecordBatch(schema, data));
}
