/** Tables and batches of files of any format. */
import { RecordBatch, type Schema, Table, Schema as TableSchema } from 'apache-arrow';
import { untilAborted } from '../abort.js';
import { batchOver } from '../columns/library.js';
import { type ForeignType, typeName } from '../columns/types.js';
import { WarpjoinError } from '../errors.js';
import { parse } from '../schema.js';
import { didYouMean, list, quote } from '../suggest.js';
import { readArrow, scanArrow } from './arrow.js';
import { type CsvOptions, readCsv, scanCsv } from './csv.js';
import { fileError } from './file-errors.js';
import { HiveColumns } from './hive-columns.js';
import { expandInputs, type OpenInput, openInput } from './inputs.js';
import { readJson, readNdjson, scanNdjson } from './json.js';
import {
  inputsOf,
  type ReadOptions,
  type ReadSettings,
  readSchema,
  type ScanOptions,
  type ScanSettings,
  scanSchema,
} from './options.js';
import { readParquet, scanParquet } from './parquet.js';
import { statInput } from './sources.js';
import { spooled } from './spool.js';
import { stated } from './stated.js';

const ndjsonBatchRows = 1 << 16;

/**
 * Reads a table from a file: Arrow IPC (file or stream), Parquet, CSV, TSV, NDJSON or JSON (an array of objects), compressed with
 * gzip (.gz) or Zstandard (.zst) or not.
 *
 *     const orders = await readTable('orders/*.parquet', { columns: ['id', 'total'] });
 *
 * `input` is a path, a pattern (* ? [a-z] {a,b} **), "-" for standard input, or an array of these. The rows of several files come one
 * file after the other, those of a pattern in the order of their names; the files must have the same columns. Folders named as Hive
 * names them, country=DE, give columns that the files lack. Rejects with ERR_FILE, whose message names the file (and the line) and what
 * is wrong; with ERR_COLUMN_NOT_FOUND for a column of `columns` that is not in a file; with the signal's reason as soon as it aborts,
 * also while the system does not answer, as for a pipe without a writer.
 */
export async function readTable(input: string | readonly string[], options: ReadOptions = {}): Promise<Table> {
  const settings = parse(readSchema, 'readTable', options);
  const inputs = inputsOf(input, 'readTable');
  const { signal } = options; // readers listen to the signal itself
  signal?.throwIfAborted();
  const reading = readAll(inputs, settings, signal);
  return signal ? untilAborted(reading, settings.signal!) : reading;
}

async function readAll(inputs: readonly string[], settings: ReadSettings, signal: AbortSignal | undefined): Promise<Table> {
  const tables: Table[] = [];
  let first: OpenInput | undefined;
  let left = settings.maxRows;
  const paths = await expandInputs(inputs);
  const folders = await HiveColumns.of(paths, settings);
  for (const path of paths) {
    if (left === 0 && first) break;
    const opened = await openInput(path, settings.format, signal);
    const table = await readOne(opened, { ...settings, maxRows: left }, signal, folders);
    first ??= opened;
    if (tables[0]) checkSame(tables[0].schema, first.name, table.schema, opened.name);
    if (left !== undefined) left -= table.numRows;
    tables.push(table);
  }
  const [{ schema }] = tables as [Table];
  return tables.length === 1
    ? tables[0]!
    : new Table(
        schema,
        tables.flatMap(({ batches }) => batches.map((batch) => new RecordBatch(schema, batch.data))),
      );
}

/** What readers are told of their progress. */
const progressOf = ({ onProgress }: ReadSettings, file: string) =>
  onProgress && ((fraction: number | undefined) => onProgress({ file, fraction }));

/** The options of the CSV reader. */
export function csvOptions(format: 'csv' | 'tsv', settings: ReadSettings): CsvOptions {
  const { delimiter = format === 'tsv' ? '\t' : ',', header, nullValues, types, maxRows } = settings;
  return { delimiter, header, nullValues: [...nullValues], types, ...(maxRows !== undefined && { maxRows }) };
}

const parquetOptions = ({ maxRows, columns }: ReadSettings) => ({
  ...(maxRows !== undefined && { maxRows }),
  ...(columns && { columns }),
});

/** The table of one file, with the columns that its folders give. */
export async function readOne(
  opened: OpenInput,
  settings: ReadSettings,
  signal: AbortSignal | undefined,
  folders: HiveColumns,
): Promise<Table> {
  const { name } = opened;
  const table = await tableOf(opened, await ownSettings(opened, settings, signal, folders), signal);
  return project(folders.beside(name, table), settings.columns, name);
}

/** What the reader of a file is asked for: columns of its folders that it lacks are none of its own. */
async function ownSettings(
  opened: OpenInput,
  settings: ReadSettings,
  signal: AbortSignal | undefined,
  folders: HiveColumns,
): Promise<ReadSettings> {
  const { columns, types } = settings;
  const asked = folders.namesOf(opened.name).filter((name) => columns?.includes(name) || Object.hasOwn(types, name));
  if (asked.length === 0) return settings;
  const names = await namesIn(opened, settings, signal);
  const isOwn = (name: string) => !asked.includes(name) || names.includes(name);
  const own = columns?.filter(isOwn);
  const any = names.length > 0 ? names.slice(0, 1) : undefined; // which says how many rows there are
  return {
    ...settings,
    columns: own?.length === 0 ? any : own,
    types: Object.fromEntries(Object.entries(types).filter(([name]) => isOwn(name))),
  };
}

/** The columns of a file itself; none are known of a pipe, which is read once. */
async function namesIn(opened: OpenInput, settings: ReadSettings, signal: AbortSignal | undefined): Promise<string[]> {
  const known = await stated(opened, signal);
  if (known) return known.schema.names as string[];
  if (!(await statInput(opened.name)).isFile()) return [];
  const again = await openInput(opened.name, settings.format, signal);
  const first = { ...settings, columns: undefined, types: {}, maxRows: 1, onProgress: undefined };
  return (await tableOf(again, first, signal)).schema.names as string[];
}

/** The table of one file; a reader may know no way to read `columns` alone. */
async function tableOf(opened: OpenInput, settings: ReadSettings, signal: AbortSignal | undefined): Promise<Table> {
  const { name, format, path, source } = opened;
  const onProgress = progressOf(settings, name);
  const more = { maxRows: settings.maxRows, types: settings.types, onProgress };
  switch (format) {
    case 'arrow':
      return readArrow(path ?? source, more, signal);
    case 'parquet': {
      if (path) return readParquet(path, signal, onProgress, parquetOptions(settings));
      await using file = await spooled(source);
      return await readParquet(file.path, signal, undefined, parquetOptions(settings)).catch((error) => {
        throw file.renamed(error);
      });
    }
    case 'csv':
    case 'tsv':
      return readCsv(source, csvOptions(format, settings), signal, onProgress);
    case 'ndjson':
      return readNdjson(source, more, signal);
    case 'json':
      return readJson(source, more, signal);
  }
}

/**
 * Reads the batches of files in order, with memory for a few of them at a time; JSON alone, and Arrow files and Parquet from a pipe,
 * are read whole. Takes the inputs of readTable(). The types of CSV and NDJSON are those of the rows at the start of the file, or those
 * of `types`; a later value that has no room in them is ERR_FILE, where readTable() would have found a wider type. Ends early with
 * `break`. A batch has at most `batchRows` rows; one without rows comes alone, where files have none. Throws like readTable().
 */
export async function* scanFiles(input: string | readonly string[], options: ScanOptions = {}): AsyncGenerator<RecordBatch> {
  const settings = parse(scanSchema, 'scanFiles', options);
  const { signal } = options;
  let first: { name: string; schema: Schema } | undefined;
  let hasRows = false;
  let empty: RecordBatch | undefined;
  let left = settings.maxRows ?? Number.POSITIVE_INFINITY;
  const paths = await expandInputs(inputsOf(input, 'scanFiles'));
  const folders = await HiveColumns.of(paths, settings);
  for (const path of paths) {
    if (left === 0) return;
    const opened = await openInput(path, settings.format, signal);
    for await (const batch of scanOne(opened, settings, signal, folders)) {
      signal?.throwIfAborted();
      first ??= { name: opened.name, schema: batch.schema };
      checkSame(first.schema, first.name, batch.schema, opened.name);
      const rows = Math.min(left, batch.numRows);
      const step = settings.batchRows ?? Math.max(1, rows);
      for (let row = 0; row < rows; row += step) yield batch.slice(row, Math.min(rows, row + step));
      left -= rows;
      if (rows > 0) hasRows = true;
      else empty ??= batch;
      if (left === 0) return;
    }
  }
  if (empty && !hasRows) yield empty;
}

async function* scanOne(
  opened: OpenInput,
  settings: ScanSettings,
  signal: AbortSignal | undefined,
  folders: HiveColumns,
): AsyncGenerator<RecordBatch> {
  const { name: file, source } = opened;
  const own = { ...settings, ...(await ownSettings(opened, settings, signal, folders)) };
  const isWhole = !settings.columns && folders.namesOf(file).length === 0;
  // Of files that are read at any place, the reader says it.
  let placed: number | undefined;
  const onPlaced = (fraction: number | undefined) => {
    placed = fraction;
  };
  for await (const batch of batchesOf(opened, own, onPlaced, signal)) {
    settings.onProgress?.({ file, fraction: placed ?? source.progress() });
    yield isWhole ? batch : project(folders.beside(file, new Table([batch])), settings.columns, file).batches[0]!;
  }
}

async function* batchesOf(
  { name, format, path, source }: OpenInput,
  settings: ScanSettings,
  onProgress: (fraction: number | undefined) => void,
  signal: AbortSignal | undefined,
): AsyncGenerator<RecordBatch> {
  const { types, maxRows, batchRows, readAhead } = settings;
  switch (format) {
    case 'arrow':
      return yield* scanArrow(path ?? source, { maxRows, onProgress }, signal);
    case 'parquet': {
      if (path) return yield* scanParquet(path, signal, onProgress, parquetOptions(settings), { readAhead });
      await using file = await spooled(source);
      try {
        yield* scanParquet(file.path, signal, onProgress, parquetOptions(settings), { readAhead });
      } catch (error) {
        throw file.renamed(error);
      }
      return;
    }
    case 'csv':
    case 'tsv':
      return yield* scanCsv(source, csvOptions(format, settings), signal, { readAhead });
    case 'ndjson':
      return yield* scanNdjson(source, { types, maxRows, batchRows: batchRows ?? ndjsonBatchRows }, signal);
    case 'json':
      return yield* (await readJson(source, { types, maxRows }, signal)).batches;
  }
  throw new WarpjoinError('ERR_INTERNAL', `${name}: no reader for ${format}`);
}

/** The columns that were asked for, in their order. Throws ERR_COLUMN_NOT_FOUND. */
function project(table: Table, columns: readonly string[] | undefined, name: string): Table {
  if (!columns) return table;
  const names = table.schema.fields.map((field) => field.name);
  const indices = columns.map((column) => {
    const index = names.indexOf(column);
    if (index >= 0) return index;
    const found = `It has ${list(names)}.`;
    throw new WarpjoinError(
      'ERR_COLUMN_NOT_FOUND',
      `${name}: there is no column ${quote(column)}.${didYouMean(column, names)} ${found}`,
    );
  });
  const schema = new TableSchema(
    indices.map((index) => table.schema.fields[index]!),
    table.schema.metadata,
  );
  const columnsOf = (batch: RecordBatch) => indices.map((index) => batch.data.children[index]!);
  const batches = table.batches.map((batch) => batchOver(schema, batch.numRows, columnsOf(batch)));
  return new Table(schema, batches);
}

/** Throws ERR_FILE where the columns of a file are not those of the first one. */
function checkSame(wanted: Schema, first: string, found: Schema, name: string): void {
  if (wanted === found) return;
  const shown = ({ fields }: Schema) => fields.map((field) => `${field.name}: ${typeName(field.type as unknown as ForeignType)}`);
  const [a, b] = [shown(wanted), shown(found)];
  const index =
    Math.max(a.length, b.length) === 0
      ? -1
      : Array.from({ length: Math.max(a.length, b.length) }, (_, i) => a[i] === b[i]).indexOf(false);
  if (index < 0) return;
  const [was, is] = [a[index] ?? 'no more columns', b[index] ?? 'no more columns'];
  throw fileError(name, `its columns are not those of ${first}: column ${index + 1} is ${is}, not ${was}`);
}
