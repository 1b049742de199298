/**
 * Parquet: the addon reads flat columns (parquet-addon.ts). Files that it does not know everything of are read by parquet-wasm in
 * worker threads, each one's row groups in its own memory.
 */
import { stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { type RecordBatch, type Schema, Table } from 'apache-arrow';
import { untilAborted } from '../abort.js';
import { batchWithoutRows } from '../columns/library.js';
import { WarpjoinError } from '../errors.js';
import { readIpcBytes } from '../ipc/reader.js';
import { didYouMean } from '../suggest.js';
import { asAddonError } from './addon-errors.js';
import { asFileError, fileError } from './file-errors.js';
import { AddonFile, type ParquetSizes } from './parquet-addon.js';
import { ParquetDecoder, type ParquetSummary } from './parquet-decoder.js';
import { columnNames, planNative } from './parquet-schema.js';

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
  sizes: ParquetSizes = {},
): Promise<Table> {
  const batches: RecordBatch[] = [];
  for await (const batch of scan(path, signal, options, sizes, onProgress)) batches.push(batch);
  return new Table(batches);
}

/** Reads a Parquet file batch by batch, in bounded memory: a few row groups a thread. A file without rows gives one batch of none. */
export function scanParquet(
  path: string,
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
  options: Pick<ParquetOptions, 'columns'> = {},
  sizes: ParquetSizes = {},
): AsyncGenerator<RecordBatch> {
  return scan(path, signal, options, { ...sizes, isScanned: true }, onProgress);
}

/** The rows that a Parquet file states. Throws ERR_FILE. */
export function countParquet(path: string, signal?: AbortSignal, sizes: ParquetSizes = {}): Promise<number> {
  return withFile(path, signal, sizes, async (file) => file?.outline.rows ?? (await decoderSummary(path)).rows);
}

/** The schema and the number of rows that a Parquet file states. Throws ERR_FILE. */
export function outlineParquet(
  path: string,
  signal?: AbortSignal,
  sizes: ParquetSizes = {},
): Promise<{ schema: Schema; rows: number }> {
  return withFile(path, signal, sizes, async (file) => {
    const plan = file && planNative(file.outline);
    if (plan && 'schema' in plan) return { schema: plan.schema, rows: file.outline.rows };
    const { schema, rows } = await decoderSummary(path);
    return { schema: readIpcBytes(schema).schema, rows };
  });
}

async function decoderSummary(path: string): Promise<ParquetSummary> {
  const decoder = await ParquetDecoder.open(path);
  try {
    return await decoder.summary;
  } finally {
    void decoder.close();
  }
}

async function fileBytes(path: string): Promise<number> {
  const info = await stat(path);
  if (info.isDirectory()) throw fileError(path, 'is a directory');
  if (info.size < 12) throw fileError(path, 'not a Parquet file: shorter than its header and footer');
  return info.size;
}

const unlessAborted = <T>(promise: Promise<T>, signal: AbortSignal | undefined) =>
  signal ? untilAborted(promise, signal) : promise;

async function withFile<T>(
  path: string,
  signal: AbortSignal | undefined,
  sizes: ParquetSizes,
  work: (file: AddonFile | undefined) => Promise<T>,
): Promise<T> {
  let file: AddonFile | undefined;
  try {
    signal?.throwIfAborted();
    file = await AddonFile.open(path, await fileBytes(path), signal, sizes);
    return await unlessAborted(work(file), signal);
  } catch (error) {
    throw readError(path, error, signal);
  } finally {
    file?.close();
  }
}

const readError = (path: string, error: unknown, signal: AbortSignal | undefined): unknown =>
  signal?.aborted ? signal.reason : asFileError(path, 'Parquet', asAddonError(path, error), signal);

async function* scan(
  path: string,
  signal: AbortSignal | undefined,
  options: ParquetOptions,
  sizes: ParquetSizes,
  onProgress?: (fraction: number) => void,
): AsyncGenerator<RecordBatch> {
  let file: AddonFile | undefined;
  try {
    signal?.throwIfAborted();
    const bytes = await fileBytes(path);
    file = await AddonFile.open(path, bytes, signal, sizes);
    if (file && options.columns) checkNames(path, columnNames(file.outline), options.columns);
    const plan = file && planNative(file.outline, options.columns);
    if (!file || !plan || 'reason' in plan) {
      file?.close();
      return yield* scanDecoded(path, bytes, signal, options, onProgress);
    }
    let rows = 0;
    const reading = file.read(plan, options.maxRows ?? Infinity);
    for (;;) {
      const { done, value } = await unlessAborted(reading.next(), signal);
      if (done) break;
      onProgress?.(value.fraction);
      signal?.throwIfAborted();
      for (const batch of value.batches) {
        rows += batch.numRows;
        yield batch;
      }
    }
    if (rows === 0) yield batchWithoutRows(plan.schema);
  } catch (error) {
    throw readError(path, error, signal);
  } finally {
    file?.close();
  }
}

/** Reads a file with parquet-wasm. */
async function* scanDecoded(
  path: string,
  bytes: number,
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
  try {
    const summary = await unlessAborted(
      open().then((decoder) => decoder.summary),
      signal,
    );
    const schema = checkedSchema(path, summary, columns);
    const requests = groupRequests(summary, maxRows);
    const threads = Math.min(availableParallelism(), mostDecoders, requests.length, Math.ceil(bytes / bytesPerDecoder));
    await Promise.all(Array.from({ length: threads - 1 }, open));
    const parts: Promise<Uint8Array[]>[] = [];
    let rows = 0;
    for (let i = 0; i < requests.length; i++) {
      // Each decoder has one request in work and one that waits.
      while (parts.length < Math.min(requests.length, i + 2 * decoders.length)) {
        parts.push(decoders[parts.length % decoders.length]!.read({ ...requests[parts.length]!, columns }));
      }
      const streams = await unlessAborted(parts[i]!, signal);
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
    if (requests.length === 0) yield batchWithoutRows(schema);
  } finally {
    for (const decoder of decoders) void decoder.close();
  }
}

function checkNames(path: string, names: readonly string[], wanted: readonly string[]): void {
  for (const name of wanted) {
    if (names.includes(name)) continue;
    throw new WarpjoinError('ERR_COLUMN_NOT_FOUND', `${path}: there is no column "${name}"${didYouMean(name, names)}`);
  }
}

/** The schema of the columns that are wanted. */
function checkedSchema(path: string, { rows, groups, schema }: ParquetSummary, columns?: readonly string[]): Schema {
  const inGroups = groups.reduce((sum, count) => sum + count, 0);
  if (inGroups !== rows) throw fileError(path, `damaged: ${rows} rows announced, ${inGroups} found`);
  const whole = readIpcBytes(schema).schema;
  if (!columns) return whole;
  checkNames(
    path,
    whole.fields.map(({ name }) => name),
    columns,
  );
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
