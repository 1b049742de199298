/** Tables, and record batches as they come, to files of any format. */
import { RecordBatch, type Schema, type Table, type TypeMap } from 'apache-arrow';
import { OwnSignal, type Signal } from '../abort.js';
import { eachOf, isAsyncSource, isBatch, isTable, noTable, readable } from '../columns/batches.js';
import { tableOf } from '../columns/input.js';
import { ownLibrary, tableIn } from '../columns/library.js';
import { opened, tablesOfBatches } from '../columns/tables.js';
import { END, type Items, itemsIn, itemsOf, nextOf, type OrEnd } from '../items.js';
import { parse } from '../schema.js';
import { writeArrow } from './arrow-writer.js';
import type { Batches } from './batches.js';
import { type CsvOptions, writeCsv } from './csv.js';
import { checkCompression, type Output } from './files.js';
import { type Format, outputFormat } from './formats.js';
import { writeJson, writeNdjson } from './json.js';
import { outputOf, type WriteOptions, type WriteSettings, writeSchema } from './options.js';
import { writeParquet } from './parquet-writer.js';
import { PartitionFolders, writePartitions } from './partitions.js';
import { PartFiles, Rows } from './parts.js';

/**
 * Writes a table, of any apache-arrow version, to a file in the format that its name or `format` states, compressed where the name ends in .gz or .zst; "-" is
 * standard output. The file appears whole, or what was there stays. With `fileRows` or `fileSize` there are several, in the order of the
 * rows: each appears whole, and none stays where one can't be written. With `partitionBy` there is a folder for each value, and no file
 * where there are no rows. Null is an empty field in CSV and null in JSON, whose values are those of toRows(). Rejects with ERR_FILE, with
 * ERR_NOT_SUPPORTED for nested columns in CSV or `partitionBy` and where this Node.js has no Zstandard, with ERR_INVALID_TABLE for
 * what is no table and where rows of a value come again behind others, with ERR_COLUMN_NOT_FOUND, and with the signal's reason.
 */
export async function writeTable(table: Table, output: string, options: WriteOptions = {}): Promise<void> {
  const write = writer('writeTable', output, options);
  return write(readable('written', () => tableIn(ownLibrary, tableOf(table, 'written'))));
}

/** Record batches that are written: tables of one schema, too. */
export type BatchesToWrite = RecordBatch | Table | Iterable<RecordBatch | Table> | AsyncIterable<RecordBatch | Table>;

/**
 * Writes record batches as writeTable() writes a table, as they come: a few are in memory at a time, and the next ones are asked for once
 * those before are written, or, of Parquet, while they are. Resolves to the number of rows.
 *
 *     await writeBatches(sortBatches(scanFiles('events/*.parquet'), { by: 'at' }), 'sorted.parquet');
 *
 * Ends what gives the batches where writing fails, and rejects with what that threw; with ERR_INVALID_TABLE for what gives no
 * batches, or some of another schema; and like writeTable().
 */
export async function writeBatches(batches: BatchesToWrite, output: string, options: WriteOptions = {}): Promise<number> {
  const write = writer('writeBatches', output, options);
  const own = new OwnSignal(options.signal);
  const { none, all } = await opened(tablesOfBatches(itemsToWrite(batches, own), 'batches', ownLibrary));
  const given = new GivenBatches(none.schema, all);
  try {
    await write({ schema: none.schema, batches: given.batches });
  } catch (error) {
    throw given.thrown ? given.thrown.error : error;
  } finally {
    own.abort(); // a batch that was asked for may never come
    await all.return();
  }
  return given.rows;
}

/** The record batches of tables, under one schema. */
class GivenBatches {
  /** Rows of the tables that have come. */
  rows = 0;
  /** What the tables' source threw. */
  thrown: { readonly error: unknown } | undefined;
  readonly batches: Items<RecordBatch> = itemsOf(() => this.#next());
  readonly #waiting: RecordBatch[] = [];

  constructor(
    private readonly schema: Schema,
    private readonly tables: Items<Table>,
  ) {}

  async #next(): Promise<OrEnd<RecordBatch>> {
    while (this.#waiting.length === 0) {
      const table = await nextOf(this.tables).catch((error: unknown) => {
        this.thrown = { error };
        throw error;
      });
      if (table === END) return END;
      this.rows += table.numRows;
      this.#waiting.push(...table.batches);
    }
    return new RecordBatch<TypeMap>(this.schema, this.#waiting.shift()!.data as never);
  }
}

function itemsToWrite(batches: unknown, signal: Signal): Items<unknown> {
  if (isTable(batches) || isBatch(batches)) return itemsIn([batches]);
  if (readable('batches', () => isAsyncSource(batches))) return eachOf(batches as AsyncIterable<unknown>, 'batches', signal);
  if (typeof (batches as Iterable<unknown> | null)?.[Symbol.iterator] !== 'function') throw noTable(batches, 'batches');
  return itemsIn(batches as Iterable<unknown>);
}

type Write = (source: Batches, output: Output) => Promise<void>;

/** Checks where and how a call writes; gives what does it. */
function writer(call: string, output: string, options: WriteOptions): (source: Batches) => Promise<void> {
  const settings = parse(writeSchema, call, options);
  const { fileRows = Infinity, fileSize = Infinity, partitionBy } = settings;
  const path = outputOf(output, call);
  const write = writerOf(outputFormat(path, settings.format), settings);
  checkCompression(path);
  const { signal } = options;
  const inParts = (source: Batches, files: PartFiles) =>
    writeParts(source, files, { rows: fileRows, bytes: fileSize }, (part, output) => write(part, { ...output, signal }));
  if (partitionBy) {
    const folders = new PartitionFolders(path, partitionBy);
    folders.check();
    return (source) => writePartitions(source, folders, inParts);
  }
  if (fileRows === Infinity && fileSize === Infinity) return (source) => write(source, { path, signal });
  const files = new PartFiles(path);
  files.check();
  return (source) => inParts(source, files);
}

function writerOf(format: Format, { header, delimiter, rowGroupBytes: groupBytes }: WriteSettings): Write {
  switch (format) {
    case 'arrow':
      return writeArrow;
    case 'parquet':
      return (source, output) => writeParquet(source, output, { groupBytes });
    case 'csv':
    case 'tsv': {
      const csv: CsvOptions = { header, delimiter: delimiter ?? (format === 'tsv' ? '\t' : ',') };
      return (source, output) => writeCsv(source, output, csv);
    }
    case 'ndjson':
      return writeNdjson;
    case 'json':
      return writeJson;
  }
}

/** One file at least, for the columns. */
async function writeParts(
  { schema, batches }: Batches,
  files: PartFiles,
  most: { readonly rows: number; readonly bytes: number },
  write: Write,
): Promise<void> {
  const each = itemsIn(batches);
  const rows = new Rows(each, most.bytes);
  try {
    while (await rows.hasMore()) {
      let written = 0;
      const onBytes = (bytes: number) => {
        written += bytes;
      };
      const part = rows.take(most.rows, () => written >= most.bytes);
      await write({ schema, batches: part }, { path: files.next(), onBytes });
    }
  } catch (error) {
    await files.remove();
    throw error;
  } finally {
    await each.return();
  }
}
