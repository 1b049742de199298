/** Tables from and to files, for the CLI. The extension says the format. */
import { extname } from 'node:path';
import type { Table } from 'apache-arrow';
import { untilAborted } from '../abort.js';
import { WarpjoinError } from '../errors.js';
import { readArrow, writeArrow } from './arrow.js';
import { type CsvOptions, readCsv, writeCsv } from './csv.js';
import { readParquet, writeParquet } from './parquet.js';

export type { CsvOptions } from './csv.js';
export type FileFormat = 'arrow' | 'parquet' | 'csv';

const formats: Record<string, FileFormat> = {
  '.arrow': 'arrow',
  '.arrows': 'arrow',
  '.feather': 'arrow',
  '.ipc': 'arrow',
  '.parquet': 'parquet',
  '.pq': 'parquet',
  '.csv': 'csv',
  '.tsv': 'csv',
};

export interface FileOptions extends CsvOptions {
  signal?: AbortSignal;
}

/** Throws ERR_FILE for an extension that no format has. */
export function formatOf(path: string): FileFormat {
  const format = formats[extname(path).toLowerCase()];
  if (format) return format;
  throw new WarpjoinError('ERR_FILE', `${path}: expected a file name that ends in ${Object.keys(formats).join(', ')}`);
}

/** Rejects with the signal's reason as soon as it aborts, also while the system does not answer, as for a pipe without a writer. */
export async function readTable(path: string, options: FileOptions = {}): Promise<Table> {
  const { signal } = options;
  signal?.throwIfAborted();
  const reading = readFormat(path, options);
  return signal ? untilAborted(reading, signal) : reading;
}

async function readFormat(path: string, options: FileOptions): Promise<Table> {
  switch (formatOf(path)) {
    case 'arrow':
      return readArrow(path, options.signal);
    case 'parquet':
      return readParquet(path, options.signal);
    case 'csv':
      return readCsv(path, options, options.signal);
  }
}

/** Writes the file whole, or leaves what was there. */
export async function writeTable(table: Table, path: string, options: FileOptions = {}): Promise<void> {
  switch (formatOf(path)) {
    case 'arrow':
      return writeArrow(table, path, options.signal);
    case 'parquet':
      return writeParquet(table, path, options.signal);
    case 'csv':
      return writeCsv(table, path, options, options.signal);
  }
}
