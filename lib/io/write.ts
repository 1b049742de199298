/** Tables to files of any format. */
import type { Table } from 'apache-arrow';
import { parse } from '../schema.js';
import { writeArrow } from './arrow-writer.js';
import { type CsvOptions, writeCsv } from './csv.js';
import { checkCompression } from './files.js';
import { outputFormat } from './formats.js';
import { writeJson, writeNdjson } from './json.js';
import { outputOf, type WriteOptions, writeSchema } from './options.js';
import { writeParquet } from './parquet-writer.js';

/**
 * Writes a table to a file in the format that its name or `format` states, compressed where the name ends in .gz or .zst; "-" is
 * standard output. The file appears whole, or what was there stays. Null is an empty field in CSV and null in JSON, whose values are
 * those of toRows(). Rejects with ERR_FILE, with ERR_NOT_SUPPORTED for nested columns in CSV and where this Node.js has no Zstandard,
 * and with the signal's reason.
 */
export async function writeTable(table: Table, output: string, options: WriteOptions = {}): Promise<void> {
  const { format, delimiter, header } = parse(writeSchema, 'writeTable', options);
  const path = outputOf(output);
  const chosen = outputFormat(path, format);
  checkCompression(path);
  const { signal } = options;
  switch (chosen) {
    case 'arrow':
      return writeArrow(table, path, signal);
    case 'parquet':
      return writeParquet(table, path, signal);
    case 'csv':
    case 'tsv': {
      const csv: CsvOptions = { header, delimiter: delimiter ?? (chosen === 'tsv' ? '\t' : ',') };
      return writeCsv(table, path, csv, signal);
    }
    case 'ndjson':
      return writeNdjson(table, path, signal);
    case 'json':
      return writeJson(table, path, signal);
  }
}
