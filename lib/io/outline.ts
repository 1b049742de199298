/** What is known about a file before it is read: its columns, and its rows where the format states them. */
import type { Schema } from 'apache-arrow';
import type { HiveColumns } from './hive-columns.js';
import { openInput } from './inputs.js';
import type { ReadSettings } from './options.js';
import { readOne } from './read.js';
import { stated } from './stated.js';

export interface Outline {
  /** What messages call the file. */
  readonly name: string;
  readonly schema: Schema;
  /** Unset where it takes reading the file. */
  readonly rows: number | undefined;
  /** Set where the types are those of so many rows at the start of the file; rows behind them may need wider ones. */
  readonly sampledRows: number | undefined;
}

/** Rows that the types of a text file are taken from. */
const sampleRows = 1000;

/**
 * The columns of a file and its folders: of Arrow and Parquet files without their rows, of others with the first ones. Throws like
 * readTable().
 */
export async function outlineOf(
  path: string,
  settings: ReadSettings,
  signal: AbortSignal | undefined,
  folders: HiveColumns,
): Promise<Outline> {
  const opened = await openInput(path, settings.format, signal);
  const { name, format } = opened;
  const known = await stated(opened, signal);
  if (known) return { ...known, name, schema: folders.besideSchema(name, known.schema), sampledRows: undefined };
  const { schema, numRows } = await readOne(opened, { ...settings, maxRows: sampleRows }, signal, folders);
  const isWhole = numRows < sampleRows;
  const isTyped = format === 'arrow' || format === 'parquet';
  return { name, schema, rows: isWhole ? numRows : undefined, sampledRows: isWhole || isTyped ? undefined : numRows };
}
