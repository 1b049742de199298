/** CSV and TSV: the addon reads them on all cores (native/csv), PapaParse writes them. */
import { type FileHandle, open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import {
  Bool,
  type Data,
  type DataType,
  DateDay,
  Field,
  Float64,
  Int64,
  makeData,
  type RecordBatch,
  Schema,
  Table,
  TimestampMicrosecond,
  Utf8,
} from 'apache-arrow';
import Papa from 'papaparse';
import { untilAborted } from '../abort.js';
import { batchOver, batchWithoutRows } from '../columns/library.js';
import { WarpjoinError } from '../errors.js';
import { eachIn, itemsIn } from '../items.js';
import { physicalMemory } from '../machine.js';
import { type NativeResultColumn, native } from '../native.js';
import { asAddonError } from './addon-errors.js';
import type { Batches } from './batches.js';
import type { CsvProgress, CsvType, NativeCsvBatch, NativeCsvReader } from './csv-native.js';
import { asFileError, fileError } from './file-errors.js';
import { MAPPED_WHILE_SCANNED } from './file-room.js';
import { type Output, writeWhole } from './files.js';
import type { ByteSource } from './source.js';
import { textOf } from './text.js';

/**
 * Types of a CSV column. A bool is true, True, TRUE or false, False, FALSE; a date 2024-02-29; a timestamp 2024-02-29 10:00,
 * with a T or a space, with or without seconds and up to six digits of them; a timestamptz the same with Z or an offset as +02:00.
 */
export type CsvTypeName = 'bool' | 'int64' | 'float64' | 'date' | 'timestamp' | 'timestamptz' | 'utf8';

export interface CsvOptions {
  /** What separates fields, an ASCII character: ',' and in .tsv files a tab where unset. */
  delimiter?: string;
  /** Whether the first row names the columns (as when unset). Otherwise they are column1, column2, ... */
  header?: boolean;
  /** Texts that mean null, in addition to the empty one. */
  nullValues?: string[];
  /** Types of columns by name; those of other columns are inferred. A value of another type is ERR_FILE. */
  types?: Record<string, CsvTypeName>;
  /** Reads no more rows than these, and infers types of them alone. All rows where unset. */
  maxRows?: number;
}

/** Where tests make what is large small. */
export interface CsvSizes {
  /** Bytes that the addon gets at a time. */
  blockBytes?: number;
  /** About the bytes of blocks that are read ahead. */
  readAhead?: number | undefined;
  /** Bytes that one thread parses at a time. */
  partBytes?: number;
  threads?: number;
  memoryBytes?: number;
}

const typeNames: readonly CsvTypeName[] = ['bool', 'int64', 'float64', 'date', 'timestamp', 'timestamptz', 'utf8'];
const mostThreads = 16;
const bytesPerBlock = 1 << 23;
const leastBlockBytes = 1 << 16;
const mostParsing = 2; // blocks
const leastRead = 1 << 16;
const bytesPerPart = 1 << 18;
const bytesPerPreviewRow = 1 << 10;
const rowsPerBatch = 1 << 20;
const rowsPerStreamedBatch = 1 << 16;
const rowsPerWrite = 1 << 14;

/** ',' or, for a name that ends in .tsv (before .gz or .zst), a tab. */
const delimiterOf = (name: string) => (/\.tsv(\.(gz|zst))?$/i.test(name) ? '\t' : ',');

function checkOptions(options: CsvOptions): void {
  const { delimiter, types = {}, maxRows = 0 } = options;
  const isAscii = delimiter === undefined || (delimiter.length === 1 && delimiter > '\0' && delimiter < '\x7f');
  if (!isAscii || Papa.BAD_DELIMITERS.includes(delimiter ?? ',')) {
    throw new WarpjoinError('ERR_OPTION', `Expected one ASCII character for delimiter but received ${JSON.stringify(delimiter)}`);
  }
  for (const [name, type] of Object.entries(types)) {
    if (typeNames.includes(type)) continue;
    throw new WarpjoinError(
      'ERR_OPTION',
      `Expected ${typeNames.join(', ')} for types[${JSON.stringify(name)}] but received ${JSON.stringify(type)}`,
    );
  }
  if (maxRows !== Infinity && !(Number.isSafeInteger(maxRows) && maxRows >= 0)) {
    throw new WarpjoinError('ERR_OPTION', `Expected a number of rows for maxRows but received ${String(maxRows)}`);
  }
}

/** The bytes of a file, in one buffer that each read fills anew. */
class FileSource implements ByteSource {
  private at = 0;
  constructor(
    readonly name: string,
    private readonly file: FileHandle,
    /** undefined: no regular file, which can't be read twice. */
    readonly size: number | undefined,
    private readonly bytesPerRead: number,
  ) {}

  static async open(path: string, bytesPerRead: number): Promise<FileSource> {
    const file = await open(path);
    try {
      const info = await file.stat();
      if (info.isDirectory()) throw fileError(path, 'is a directory');
      return new FileSource(path, file, info.isFile() ? info.size : undefined, bytesPerRead);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  progress(): number | undefined {
    return this.size === undefined ? undefined : this.size === 0 ? 1 : Math.min(this.at / this.size, 1);
  }

  /** From the beginning where the file is a regular one. Each part is there until the next is asked for. */
  async *bytes(): AsyncGenerator<Uint8Array> {
    const buffer = new Uint8Array(Math.min(this.bytesPerRead, Math.max(this.size ?? Infinity, leastRead)));
    this.at = 0;
    for (;;) {
      const { bytesRead } = await this.file.read(buffer, 0, buffer.length, this.size === undefined ? null : this.at);
      if (bytesRead === 0) return;
      this.at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  }

  close(): Promise<void> {
    return this.file.close();
  }
}

/** The same bytes in blocks of about `size` bytes. Each is there until the next is asked for. */
async function* inBlocks(bytes: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Uint8Array> {
  let block: Uint8Array | undefined;
  let used = 0;
  for await (const part of bytes) {
    for (let at = 0; at < part.length; ) {
      if (used === 0 && part.length - at >= size) {
        yield part.subarray(at, at + size);
        at += size;
        continue;
      }
      block ??= new Uint8Array(size);
      const taken = Math.min(part.length - at, size - used);
      block.set(part.subarray(at, at + taken), used);
      at += taken;
      used += taken;
      if (used === size) {
        yield block;
        used = 0;
      }
    }
  }
  if (used > 0) yield block!.subarray(0, used);
}

function arrowType(type: CsvType): DataType {
  switch (type) {
    case 'bool':
      return new Bool();
    case 'int64':
      return new Int64();
    case 'float64':
      return new Float64();
    case 'date':
      return new DateDay();
    case 'timestamp':
    case 'timestamptz':
      return new TimestampMicrosecond(type === 'timestamptz' ? 'UTC' : null);
    default:
      return new Utf8();
  }
}

function arrowData(type: DataType, { length, nullCount, validity, chunks }: NativeResultColumn): Data {
  const { values, offsets } = chunks[0]!;
  const nullBitmap = validity && new Uint8Array(validity);
  const common = { type: type as never, length, nullCount, nullBitmap };
  if (offsets) return makeData({ ...common, valueOffsets: new Int32Array(offsets), data: new Uint8Array(values) } as never);
  const Values = type instanceof Bool ? Uint8Array : (type.ArrayType as Int32ArrayConstructor);
  return makeData({ ...common, data: new Values(values) } as never);
}

const schemaOf = ({ names, types }: CsvProgress) =>
  new Schema(names.map((name, c) => new Field(name, arrowType(types[c]!), true)));

const arrowBatch = (schema: Schema, { rows, columns }: NativeCsvBatch) => {
  const made = columns.map((column, c) => arrowData(schema.fields[c]!.type, column));
  return batchOver(schema, rows, made);
};

/** One pass over a file. */
class Pass {
  private readonly reader: NativeCsvReader;
  private readonly cancel = () => this.reader.cancel();

  constructor(
    private readonly source: ByteSource,
    options: CsvOptions,
    private readonly sizes: CsvSizes,
    private readonly signal: AbortSignal | undefined,
    streaming: boolean,
    known: CsvType[] = [],
  ) {
    signal?.throwIfAborted();
    const {
      threads = Math.min(availableParallelism(), mostThreads),
      partBytes = bytesPerPart,
      memoryBytes = physicalMemory(),
    } = sizes;
    this.reader = new (native().CsvReader)({
      threads,
      memoryBytes,
      leastMapped: streaming ? MAPPED_WHILE_SCANNED : undefined,
      delimiter: (options.delimiter ?? delimiterOf(source.name)).charCodeAt(0),
      header: options.header ?? true,
      nullValues: options.nullValues ?? [],
      given: Object.entries(options.types ?? {}).map(([name, type]) => ({ name, type })),
      known,
      streaming,
      maxRows: options.maxRows ?? Infinity,
      batchRows: streaming ? rowsPerStreamedBatch : rowsPerBatch,
      partBytes,
      maxRecordBytes: 1 << 30,
    });
    signal?.addEventListener('abort', this.cancel);
  }

  /** What is known after each block, and at the end. `keep` gets the blocks. */
  async *run(keep?: (block: Uint8Array) => void): AsyncGenerator<CsvProgress> {
    const { source, sizes } = this;
    try {
      // The addon has the next block when it has parsed one, so that it need not wait for this thread.
      const parsing: Promise<CsvProgress>[] = [];
      for await (const block of inBlocks(source.bytes(), sizes.blockBytes ?? bytesPerBlock)) {
        keep?.(block);
        const parsed = this.reader.push(block);
        parsed.catch(() => {}); // who waits for it may have gone
        parsing.push(parsed);
        if (parsing.length <= mostParsing) continue;
        const progress = this.checked(await parsing.shift()!);
        yield progress;
        if (progress.done) break;
      }
      for (const parsed of parsing) yield this.checked(await parsed);
      yield this.checked(await this.reader.finish());
    } finally {
      this.signal?.removeEventListener('abort', this.cancel);
      this.reader.cancel();
      this.reader.release();
    }
  }

  private checked(progress: CsvProgress): CsvProgress {
    const { fault } = progress;
    if (fault) throw fileError(this.source.name, fault.what, undefined, fault.line || undefined);
    return progress;
  }
}

/** Runs `work` on a source; opens and closes it where it is a path. */
async function* withSource<T>(
  source: ByteSource | string,
  options: CsvOptions,
  sizes: CsvSizes,
  signal: AbortSignal | undefined,
  work: (source: ByteSource, sizes: CsvSizes) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  checkOptions(options);
  // A preview reads little more than it shows.
  const preview = Math.max((options.maxRows ?? Infinity) * bytesPerPreviewRow, 1 << 16);
  const { readAhead = Number.POSITIVE_INFINITY } = sizes;
  const ahead = Math.max(leastBlockBytes, Math.floor(readAhead / (mostParsing + 1)));
  const blockBytes = sizes.blockBytes ?? Math.min(bytesPerBlock, preview, ahead);
  const name = typeof source === 'string' ? source : source.name;
  let file: FileSource | undefined;
  try {
    signal?.throwIfAborted();
    if (typeof source === 'string') file = await FileSource.open(source, blockBytes);
    yield* work(file ?? (source as ByteSource), { ...sizes, blockBytes });
  } catch (error) {
    throw signal?.aborted ? signal.reason : asFileError(name, 'CSV', asAddonError(name, error), signal);
  } finally {
    await file?.close();
  }
}

/**
 * Reads a CSV file (UTF-8, RFC 4180 quoting, lines that end with LF, CRLF or CR) on all cores. A string is a file's path. Column
 * types are those of `types`, otherwise the narrowest that hold every value: bool, int64, float64, date, timestamp (microseconds;
 * UTC where values have an offset) or utf8; a column without values is utf8. A number counts as one only if it is written as
 * numbers are: 007 is text. An empty field is null, quoted or not. In a file of one column a blank line is a null; elsewhere it is
 * skipped. Text that follows numbers is found late: a regular file is then read twice, and what can't be read twice is kept in
 * memory for that. Throws ERR_FILE with the file and line, ERR_MEMORY_LIMIT where the rows take more memory than this
 * process may use, and ERR_OPTION. `onProgress` is called after each block with
 * the fraction that was read; undefined where the size is not known.
 */
export async function readCsv(
  source: ByteSource | string,
  options: CsvOptions = {},
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
  sizes: CsvSizes = {},
): Promise<Table> {
  const reading = (async () => {
    let table: Table | undefined;
    const work = (opened: ByteSource, within: CsvSizes) => readWhole(opened, options, within, signal, onProgress);
    for await (table of withSource(source, options, sizes, signal, work));
    return table!;
  })();
  return signal ? untilAborted(reading, signal) : reading;
}

async function* readWhole(
  source: ByteSource,
  options: CsvOptions,
  sizes: CsvSizes,
  signal: AbortSignal | undefined,
  onProgress: ((fraction: number | undefined) => void) | undefined,
): AsyncGenerator<Table> {
  const twice = source instanceof FileSource && source.size !== undefined;
  const kept: Uint8Array[] = [];
  const pass = async (from: ByteSource, known: CsvType[], keep?: (block: Uint8Array) => void) => {
    let last: CsvProgress | undefined;
    for await (last of new Pass(from, options, sizes, signal, false, known).run(keep)) onProgress?.(from.progress());
    return last!;
  };
  let read = await pass(source, [], twice ? undefined : (block) => kept.push(block.slice()));
  if (read.lost) {
    const again: ByteSource = {
      name: source.name,
      progress: () => undefined,
      async *bytes() {
        yield* kept;
      },
    };
    read = await pass(twice ? source : again, read.types);
    if (read.lost) throw fileError(source.name, 'changed while it was read');
  }
  const schema = schemaOf(read);
  yield new Table(
    schema,
    read.batches.map((batch) => arrowBatch(schema, batch)),
  );
}

/**
 * Reads a CSV file batch by batch, in bounded memory, as readCsv() does; but types are those of `types` or of the first rows (the
 * first 8 MiB): a later value that does not fit is ERR_FILE, which names `types`. A file without rows gives one batch of none.
 */
export async function* scanCsv(
  source: ByteSource | string,
  options: CsvOptions = {},
  signal?: AbortSignal,
  sizes: CsvSizes = {},
): AsyncGenerator<RecordBatch> {
  const scanning = withSource(source, options, sizes, signal, (opened, within) => scanBatches(opened, options, within, signal));
  try {
    for (;;) {
      const next = scanning.next();
      const { done, value } = await (signal ? untilAborted(next, signal) : next);
      if (done) return;
      yield value;
    }
  } finally {
    // Where the source does not answer, as a pipe without a writer, nobody can wait for it.
    const ended = scanning.return(undefined);
    if (!signal?.aborted) await ended;
    else ended.catch(() => {});
  }
}

async function* scanBatches(
  source: ByteSource,
  options: CsvOptions,
  sizes: CsvSizes,
  signal: AbortSignal | undefined,
): AsyncGenerator<RecordBatch> {
  let schema: Schema | undefined;
  let last: CsvProgress | undefined;
  for await (last of new Pass(source, options, sizes, signal, true).run()) {
    if (last.batches.length === 0) continue;
    schema ??= schemaOf(last);
    for (const batch of last.batches) yield arrowBatch(schema, batch);
  }
  if (!schema) yield batchWithoutRows(schemaOf(last!));
}

/** Writes a CSV file with a header. Nulls are empty fields, empty texts "". Throws ERR_FILE, or ERR_NOT_SUPPORTED for nested columns. */
export async function writeCsv({ schema, batches }: Batches, output: Output, options: CsvOptions = {}): Promise<void> {
  const delimiter = options.delimiter ?? delimiterOf(output.path);
  const unparse = { delimiter, newline: '\n', quotes: (value: unknown) => value === '' };
  const utf8 = new TextEncoder();
  await writeWhole(output, async (append) => {
    const line = (rows: (string | null)[][]) => append(utf8.encode(`${Papa.unparse(rows, unparse)}\n`));
    if (options.header ?? true) await line([schema.fields.map(({ name }) => name)]);
    await eachIn(itemsIn(batches), async (batch) => {
      const columns = batch.data.children.map((data, c) => {
        const text = textOf(data as Data);
        const { name, type } = schema.fields[c]!;
        if (!text) throw new WarpjoinError('ERR_NOT_SUPPORTED', `Column "${name}" of type ${type} can't be written as CSV`);
        return text;
      });
      for (let start = 0; start < batch.numRows; start += rowsPerWrite) {
        const rows: (string | null)[][] = [];
        for (let row = start; row < Math.min(start + rowsPerWrite, batch.numRows); row++)
          rows.push(columns.map((text) => text(row)));
        await line(rows);
      }
    });
  });
}
