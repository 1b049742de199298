/** Where a result goes and how it looks there: decided, and checked, before anything is read. */
import { accessSync, constants, type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { Field, type RecordBatch, Schema, Table } from 'apache-arrow';
import { batchOver } from '../columns/library.js';
import { checkCompression, writeWhole } from '../io/files.js';
import { compressionOf, ENDINGS, endingOf, type Format, namedFormat, STANDARD } from '../io/formats.js';
import { type WriteOptions, writeBatches, writeTable } from '../io/index.js';
import { PartitionFolders } from '../io/partitions.js';
import { PartFiles } from '../io/parts.js';
import { didYouMean, list, quote } from '../suggest.js';
import type { Options } from './arguments.js';
import { SHOWN_FORMATS } from './spec.js';
import { renderMarkdown, renderTable, rowsOf, withSeparators } from './table.js';
import { UsageError } from './usage.js';
import { parseRenames } from './values.js';

type ShownFormat = (typeof SHOWN_FORMATS)[number];

export interface Target {
  /** The file, or "-" for standard output. */
  readonly path: string;
  readonly format: Format | ShownFormat;
  /** Rows that are shown; all others need not be made. Infinite for formats of files. */
  readonly shownRows: number;
  /** How the file is written, if it is one. */
  readonly options: Pick<WriteOptions, 'delimiter' | 'fileRows' | 'fileSize' | 'rowGroupBytes'> & {
    readonly partitionBy?: readonly string[];
  };
}

const isShown = (format: Format | ShownFormat): format is ShownFormat => (SHOWN_FORMATS as readonly string[]).includes(format);

/** Rows that are shown on standard output where nothing says how many. */
export const DEFAULT_ROWS = 10;

/** Throws UsageError for an output that can't be written, and ERR_FILE where files are in its way. */
export function targetOf(options: Options): Target {
  const path = options.text('output') ?? STANDARD;
  const given = options.text('format') as Target['format'] | undefined;
  const format = given ?? (path === STANDARD ? 'table' : formatNamed(path));
  const maxRows = options.count('max-rows');
  if (maxRows !== undefined && !isShown(format)) {
    throw new UsageError(
      `--max-rows goes with a table or markdown, and ${path} is ${format}: --limit leaves rows out of the result`,
    );
  }
  const fileRows = options.count('file-rows');
  const fileSize = options.text('file-size');
  const partitionBy = partitionColumns(options);
  if (partitionBy.length > 0) checkParts('--partition-by', path, format, () => new PartitionFolders(path, partitionBy));
  else {
    if (fileRows !== undefined) checkParts('--file-rows', path, format, () => new PartFiles(path));
    if (fileSize !== undefined) checkParts('--file-size', path, format, () => new PartFiles(path));
  }
  if (path === STANDARD) checkTerminal(format);
  else checkWritable(path);
  const shownRows = maxRows ?? (isShown(format) && path === STANDARD ? DEFAULT_ROWS : Number.POSITIVE_INFINITY);
  const delimiter = options.text('delimiter');
  const written = {
    ...(delimiter !== undefined && { delimiter }),
    ...(fileRows !== undefined && { fileRows }),
    ...(fileSize !== undefined && { fileSize }),
    ...(partitionBy.length > 0 && { partitionBy }),
  };
  return { path, format, shownRows, options: written };
}

/** The columns whose values folders are named by. */
export const partitionColumns = (options: Options): string[] => [...new Set(options.names('partition-by') ?? [])];

function checkParts(option: string, path: string, format: Target['format'], of: () => { check(): void }): void {
  if (isShown(format)) throw new UsageError(`${option} goes with formats of files, and ${path} is ${format}`);
  let files: { check(): void };
  try {
    files = of();
  } catch {
    throw new UsageError(`${option}: --output ${path} has no "*" in its name, or several: part-*.parquet has one`);
  }
  files.check();
}

function formatNamed(path: string): Target['format'] {
  const format = namedFormat(path) ?? (endingOf(compressionOf(path).inner) === '.md' ? 'markdown' : undefined);
  if (format) return format;
  throw new UsageError(`--output ${path}: its name ends in none of ${ENDINGS}; --format says what it is to be`);
}

function checkTerminal(format: Target['format']): void {
  if (!process.stdout.isTTY || (format !== 'arrow' && format !== 'parquet')) return;
  throw new UsageError(`--format ${format} is not text, and standard output is a terminal: -o FILE writes it to a file`);
}

const statOf = (path: string): Stats | undefined => {
  try {
    return statSync(path);
  } catch {
    return undefined; // writing says more
  }
};

function checkWritable(path: string): void {
  if (statOf(path)?.isDirectory()) throw new UsageError(`--output ${path} is a directory: name a file in it`);
  const folder = dirname(path);
  if (!statOf(folder)?.isDirectory()) throw new UsageError(`--output ${path}: there is no folder ${folder}`);
  if (!statOf(path) || statOf(path)!.isFile()) {
    try {
      accessSync(folder, constants.W_OK);
    } catch {
      throw new UsageError(`--output ${path}: files can't be written to the folder ${folder}`);
    }
  }
  try {
    checkCompression(path);
  } catch (error) {
    throw new UsageError(`--output ${(error as Error).message}`);
  }
}

/** Rows of a result: `more` where there are more than `rows`, and nobody has counted them. */
export interface RowCount {
  readonly rows: number;
  readonly more?: boolean;
}

/** `3 rows`, `first 10 of 1,234 rows` or `first 10 rows; there are more`. */
export function describeRows(shown: number, { rows, more }: RowCount): string {
  if (more) return `first ${rowsOf(Math.min(shown, rows))}; there are more`;
  return shown < rows ? `first ${withSeparators(shown)} of ${rowsOf(rows)}` : rowsOf(rows);
}

/** The same of a result as it comes. */
export async function writeComing(
  batches: AsyncIterable<RecordBatch>,
  count: () => RowCount,
  target: Target,
  signal: AbortSignal,
): Promise<void> {
  const { path, format, options } = target;
  if (!isShown(format)) {
    await writeBatches(batches, path, { format, signal, ...options });
    return;
  }
  const shown: RecordBatch[] = [];
  for await (const batch of batches) shown.push(batch);
  await writeResult(new Table(shown), count(), target, signal);
}

/** Writes a result, or its first rows where its format shows them. Throws ERR_FILE. */
export async function writeResult(table: Table, count: RowCount, target: Target, signal: AbortSignal): Promise<void> {
  const { path, format, shownRows, options } = target;
  if (!isShown(format)) {
    await writeTable(table, path, { format, signal, ...options });
    return;
  }
  const toTerminal = path === STANDARD && process.stdout.isTTY;
  const text =
    format === 'markdown'
      ? renderMarkdown(table, shownRows)
      : `${renderTable(table, shownRows, toTerminal ? process.stdout.columns : undefined)}\n${describeRows(shownRows, count)}`;
  await writeWhole({ path, signal }, (append) => append(new TextEncoder().encode(`${text}\n`)));
}

/** The names that `--rename` gives to columns. Throws UsageError for one that is not there, and for a name that two columns would have. */
export function renamedColumns(names: readonly string[], options: Options): string[] {
  const text = options.text('rename');
  if (text === undefined) return [...names];
  const renames = parseRenames(text);
  for (const name of renames.keys()) {
    if (names.includes(name)) continue;
    throw new UsageError(`--rename: the result has no column ${quote(name)}.${didYouMean(name, names)} It has ${list(names)}`);
  }
  const renamed = names.map((name) => renames.get(name) ?? name);
  const twice = renamed.find((name, index) => renamed.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`--rename: two columns would have the name ${quote(twice)}`);
  return renamed;
}

/** A table whose columns have the names that `--rename` gives them. */
export function renamed(table: Table, options: Options): Table {
  if (!options.has('rename')) return table;
  const { fields, metadata } = table.schema;
  const names = renamedColumns(
    fields.map(({ name }) => name),
    options,
  );
  const schema = new Schema(
    fields.map((field, index) => new Field(names[index]!, field.type, field.nullable, field.metadata)),
    metadata,
  );
  const batches = table.batches.map(({ numRows, data }) => batchOver(schema, numRows, data.children));
  return new Table(schema, batches);
}
