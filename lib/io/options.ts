/** The options of reading and writing files. */
import {
  abortSignal,
  callback,
  choice,
  count,
  expected,
  type InputOf,
  nameList,
  names,
  type Option,
  type Parsed,
  text,
} from '../schema.js';
import { parseBytes } from '../sizes.js';
import { list, quote } from '../suggest.js';
import { FORMATS, type Format } from './formats.js';

/** Types that columns of text files can be given. */
export const TEXT_TYPES = ['bool', 'int64', 'float64', 'date', 'timestamp', 'utf8'] as const;
export type TextType = (typeof TEXT_TYPES)[number];

/** How far a file is read. */
export interface ReadProgress {
  /** The file's path, or "standard input". */
  file: string;
  /** The share of its bytes that was read, from 0 to 1; undefined where its size is not known. */
  fraction: number | undefined;
}

const format: Option<Format, Format | undefined> = {
  ...choice(FORMATS, 'arrow', 'The format. Unset: the name states it, or the first bytes of Arrow and Parquet.'),
  fallback: undefined,
};
const header: Option<boolean> = {
  expected: 'a boolean',
  description: 'Whether the first row of CSV names the columns; otherwise they are column1, column2, ...',
  fallback: true,
  parse: (value) => (typeof value === 'boolean' ? value : undefined),
};
const delimiter: Option<string, string | undefined> = {
  expected: 'one character that is no quote and no line break',
  description: 'What separates the fields of CSV. Unset: a tab in .tsv, else a comma.',
  fallback: undefined,
  parse: (value) => (typeof value === 'string' && /^[^"\r\n\ufeff]$/u.test(value) && value.length === 1 ? value : undefined),
};
const nullValues: Option<readonly string[]> = {
  expected: 'an array of strings',
  description: 'Texts in CSV that mean null, in addition to the empty one.',
  fallback: [],
  parse: (value) => (Array.isArray(value) && value.every((one) => typeof one === 'string') ? [...value] : undefined),
};
const types: Option<Readonly<Record<string, TextType>>> = {
  expected: 'an object of types by column name',
  description:
    'Types of columns of CSV and JSON, and of those that folders give, by name, in place of those that their values have.',
  fallback: {},
  parse(value) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    for (const [name, type] of Object.entries(value)) {
      if (!TEXT_TYPES.includes(type as TextType)) throw expected(`one of ${list(TEXT_TYPES)}`, `types[${quote(name)}]`, type);
    }
    return { ...value };
  },
};
const bytes = (description: string): Option<number | string, number | undefined> => ({
  expected: "a number of bytes, or a string like '1GiB' or '500 MB'",
  description,
  fallback: undefined,
  parse: parseBytes,
});
const hivePartitioning: Option<boolean> = {
  expected: 'a boolean',
  description:
    'Whether folders named country=DE give a column country to files that have none, behind their own. It has one type for all files, as ' +
    'a column of CSV has it, or that of `types`; text comes as a dictionary. __HIVE_DEFAULT_PARTITION__ is null.',
  fallback: true,
  parse: (value) => (typeof value === 'boolean' ? value : undefined),
};
const signal = abortSignal("Aborts the call: it rejects with the signal's reason.");

/** What the values of a row group of Parquet take in memory at most, where nothing says so. */
export const BYTES_PER_ROW_GROUP = 128 << 20;

export const readSchema = {
  format,
  columns: nameList('Columns to read, in this order. Unset: all.'),
  maxRows: count(undefined, 0, 'Stops after so many rows.'),
  delimiter,
  header,
  nullValues,
  types,
  hivePartitioning,
  onProgress: callback<(progress: ReadProgress) => void>('Called while a file is read.'),
  signal,
};
export const scanSchema = {
  ...readSchema,
  batchRows: count(undefined, 1, 'Most rows of a batch. Unset: as many as the reader takes.'),
  readAhead: bytes(
    'About how much memory the rows take of a Parquet or CSV file that are read ahead; a row group of Parquet at least. Unset: as much as ' +
      'keeps all cores at work, which may be hundreds of megabytes.',
  ),
};
export const writeSchema = {
  format,
  delimiter,
  header,
  fileRows: count(
    undefined,
    1,
    'Writes several files, of so many rows each at most: the output has a "*", which the number of each file is put for. Unset: one file.',
  ),
  fileSize: bytes('Writes several files likewise: each ends once so many bytes of it were written.'),
  rowGroupBytes: bytes(
    'About the most bytes that the values of a row group of Parquet take in memory. The writer holds the rows of two. Unset: 128 MiB; at most 1 GiB.',
  ),
  partitionBy: names(
    'Writes a folder for each value of these columns, as Hive does: sales/*.parquet becomes sales/country=DE/000000.parquet and so on. Rows of ' +
      'equal values have to come one behind the other, as sort() and sortBatches() by these columns give them. Files have all columns.',
  ),
  signal,
};

export type ReadOptions = InputOf<typeof readSchema>;
export type ScanOptions = InputOf<typeof scanSchema>;
export type WriteOptions = InputOf<typeof writeSchema>;
export type ReadSettings = Parsed<typeof readSchema>;
export type ScanSettings = Parsed<typeof scanSchema>;
export type WriteSettings = Parsed<typeof writeSchema>;

const inputNames = names('');
/** The files that were given: a path, a pattern or several. Throws ERR_OPTION. */
export function inputsOf(value: unknown, call: string): readonly string[] {
  const given = inputNames.parse(value, 'input');
  if (!given || given.includes('')) throw expected('a path, a pattern, "-" or an array of these', `the input of ${call}`, value);
  return given;
}
export function outputOf(value: unknown, call: string): string {
  const given = text('', '').parse(value, 'output');
  if (given === undefined) throw expected('a path or "-"', `the output of ${call}`, value);
  return given;
}
