/** Parquet through parquet-wasm: row groups are decoded by worker threads, each one's in its own memory. */
import { stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { type RecordBatch, type Schema, Table } from 'apache-arrow';
import { untilAborted } from '../abort.js';
import { WarpjoinError } from '../errors.js';
import { readIpcBytes } from '../ipc/reader.js';
import { didYouMean } from '../suggest.js';
import { emptyBatch } from './batches.js';
import { asFileError, fileError } from './files.js';
import { ParquetDecoder, type ParquetSummary } from './parquet-decoder.js';

export interface ParquetOptions {
  /** Reads no more rows than these: of the row groups that have them. All rows where unset. */
  maxRows?: number;
  /** Columns to read, in the file's order; others are not decoded. All where unset. */
  columns?: readonly string[];
}

const bytesPerDecoder = 4 << 20;
const mostDecoders = 16;
const rowsPerRequest = 1 << 18; // of small row groups, so that decoders seldom wait for this thread

/** Reads a Parquet file; column types come as the file states them. Throws ERR_FILE, and ERR_COLUMN_NOT_FOUND for `columns`. */
export async function readParquet(
  path: string,
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
  options: ParquetOptions = {},
): Promise<Table> {
  const batches: RecordBatch[] = [];
  for await (const batch of scan(path, signal, options, onProgress)) batches.push(batch);
  return new Table(batches);
}

/** Reads a Parquet file batch by batch, in bounded memory: a few row groups a decoder. A file without rows gives one batch of none. */
export function scanParquet(
  path: string,
  signal?: AbortSignal,
  options: Pick<ParquetOptions, 'columns'> = {},
): AsyncGenerator<RecordBatch> {
  return scan(path, signal, options);
}

async function* scan(
  path: string,
  signal: AbortSignal | undefined,
  { columns, maxRows = Infinity }: ParquetOptions,
  onProgress?: (fraction: number) => void,
): AsyncGenerator<RecordBatch> {
  const decoders: ParquetDecoder[] = [];
  const open = async () => {
    const decoder = await ParquetDecoder.open(path);
    decoders.push(decoder);
    return decoder;
  };
  const unlessAborted = <T>(promise: Promise<T>) => (signal ? untilAborted(promise, signal) : promise);
  try {
    signal?.throwIfAborted();
    const info = await stat(path);
    if (info.isDirectory()) throw fileError(path, 'is a directory');
    if (info.size < 12) throw fileError(path, 'not a Parquet file: shorter than its header and footer');
    const summary = await unlessAborted(open().then((decoder) => decoder.summary));
    const schema = checkedSchema(path, summary, columns);
    const requests = groupRequests(summary, maxRows);
    const threads = Math.min(availableParallelism(), mostDecoders, requests.length, Math.ceil(info.size / bytesPerDecoder));
    await Promise.all(Array.from({ length: threads - 1 }, open));
    const parts: Promise<Uint8Array[]>[] = [];
    let rows = 0;
    for (let i = 0; i < requests.length; i++) {
      // Each decoder has one request in work and one that waits.
      while (parts.length < Math.min(requests.length, i + 2 * decoders.length)) {
        parts.push(decoders[parts.length % decoders.length]!.read({ ...requests[parts.length]!, columns }));
      }
      const streams = await unlessAborted(parts[i]!);
      delete parts[i];
      onProgress?.((i + 1) / requests.length);
      signal?.throwIfAborted();
      for (const stream of streams) {
        for (const batch of readIpcBytes(stream).batches) {
          rows += batch.numRows;
          yield batch;
        }
      }
    }
    const expected = requests.reduce((sum, { rows }) => sum + rows, 0);
    if (rows !== expected) throw fileError(path, `damaged: ${expected} rows announced, ${rows} found`);
    if (requests.length === 0) yield emptyBatch(schema);
  } catch (error) {
    throw asFileError(path, 'Parquet', error, signal);
  } finally {
    for (const decoder of decoders) void decoder.close();
  }
}

/** The schema of the columns that are wanted. */
function checkedSchema(path: string, { rows, groups, schema }: ParquetSummary, columns?: readonly string[]): Schema {
  const inGroups = groups.reduce((sum, count) => sum + count, 0);
  if (inGroups !== rows) throw fileError(path, `damaged: ${rows} rows announced, ${inGroups} found`);
  const whole = readIpcBytes(schema).schema;
  if (!columns) return whole;
  const names = whole.fields.map(({ name }) => name);
  for (const name of columns) {
    if (names.includes(name)) continue;
    throw new WarpjoinError('ERR_COLUMN_NOT_FOUND', `${path}: there is no column "${name}"${didYouMean(name, names)}`);
  }
  return whole.select([...columns]);
}

/** The row groups that hold the first `maxRows` rows, small ones together. */
function groupRequests({ groups }: ParquetSummary, maxRows: number) {
  const requests: { groups: number[]; rows: number }[] = [];
  let left = maxRows;
  groups.forEach((count, group) => {
    const rows = Math.min(count, left);
    left -= rows;
    if (rows === 0) return;
    const last = requests.at(-1);
    // parquet-wasm applies a limit to each group.
    if (!last || rows < count || last.rows + rows > rowsPerRequest) requests.push({ groups: [group], rows });
    else {
      last.groups.push(group);
      last.rows += rows;
    }
  });
  return requests;
}
