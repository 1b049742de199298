/** Tables from plain JavaScript values, and back: arrays by column, objects by row. Unlike the calls, these functions read each row. */
import * as arrow from 'apache-arrow';
import { tableOf, typeOfArray } from '../columns/input.js';
import { ownLibrary, tableIn } from '../columns/library.js';
import { isDetached } from '../columns/values.js';
import { readingFor, WarpjoinError } from '../errors.js';
import { choice, count, expected, type InputOf, type Option, parse } from '../schema.js';
import { didYouMean, list, quote, show } from '../suggest.js';
import type { ArrowInput } from '../types.js';
import { converterTo, inferType } from './plain-types.js';
import { type Int64As, objectOf, valueReader } from './plain-values.js';

/** Types of columns, by name. */
export type ColumnTypes = Readonly<Record<string, arrow.DataType>>;

const types: Option<ColumnTypes> = {
  expected: 'an object of types by column name',
  description: 'Types of columns, by name, in place of those that their values have.',
  fallback: {},
  parse(value) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    for (const [name, type] of Object.entries(value)) {
      if (!(type instanceof arrow.DataType))
        throw expected('a type of apache-arrow, such as new Int64(),', `types.${name}`, type);
    }
    return { ...value };
  },
};
export const fromSchema = { types };
/** The options of fromColumns() and fromRows(). */
export type FromOptions = InputOf<typeof fromSchema>;
/** A table whose columns have the names of these properties: the compiler refuses others. Names that it does not know: any. */
export type TableOf<Values> = [keyof Values] extends [never]
  ? arrow.Table
  : arrow.Table<{ [Name in keyof Values & string]: arrow.DataType }>;

const readable = <T>(what: string, read: () => T): T => readingFor('ERR_INVALID_TABLE', `${what} can't be read`, read);

/**
 * A table of named columns: typed arrays, which are taken as they are, Arrow vectors, and arrays of plain values.
 *
 *     fromColumns({ id: Int32Array.of(1, 2), name: ['Ada', null], paid: [true, false] })
 *
 * | values | type |
 * | --- | --- |
 * | whole numbers of 32 bits | Int32 |
 * | whole numbers beyond, bigints | Int64, or Uint64 where they need it |
 * | other numbers | Float64 |
 * | booleans, strings, Uint8Arrays | Bool, Utf8, Binary |
 * | Dates | Timestamp of milliseconds, UTC |
 * | arrays, objects | List, Struct of what is in them |
 * | null and undefined alone | Null |
 *
 * null and undefined are null. With `types` a column is of any other type that holds its values; decimals are made of texts
 * ("12.50"), whole numbers and bigints, timestamps and dates of Dates. Throws ERR_INVALID_TABLE for columns of different lengths,
 * for values that no one type holds, or not the one that was said, naming the column and the row; ERR_OPTION for the rest.
 */
export function fromColumns<Columns extends Readonly<Record<string, unknown>>>(
  columns: Columns,
  options?: FromOptions,
): TableOf<Columns> {
  if (typeof columns !== 'object' || columns === null || Array.isArray(columns)) {
    throw expected('an object of columns by name', 'fromColumns', columns);
  }
  return readable('The columns', () => {
    const entries = Object.entries(columns);
    const { types } = parse(fromSchema, 'fromColumns', options);
    const names = Object.keys(columns);
    const unknown = Object.keys(types).find((name) => !names.includes(name));
    if (unknown !== undefined) {
      throw expected(`one of the columns ${list(names)}`, 'types', unknown, didYouMean(unknown, names));
    }
    return tableFrom(entries, types) as TableOf<Columns>;
  });
}

/**
 * A table of rows: objects with a property for each column. The columns are those of all rows, in the order in which they first
 * appear; a row without one has null there. Values are as in fromColumns(), and so are `types`; a type of a column that no row has makes
 * one of nulls. Throws like fromColumns(), and ERR_INVALID_TABLE for a row that is no object.
 */
export function fromRows<Row extends object, Types extends ColumnTypes = Record<never, never>>(
  rows: readonly Row[],
  options?: FromOptions & { types?: Types },
): TableOf<Row & Types> {
  if (!Array.isArray(rows)) throw expected('an array of objects', 'fromRows', rows, ' fromColumns takes columns.');
  return readable('The rows', () => {
    const { types } = parse(fromSchema, 'fromRows', options);
    const columns = new Map<string, unknown[]>();
    for (const [row, object] of rows.entries()) {
      if (typeof object !== 'object' || object === null || Array.isArray(object)) {
        throw new WarpjoinError('ERR_INVALID_TABLE', `Expected an object for row ${row} but received ${show(object)}.`);
      }
      for (const name of Object.keys(object)) {
        let column = columns.get(name);
        if (!column) {
          column = new Array(rows.length).fill(null);
          columns.set(name, column);
        }
        column[row] = (object as Record<string, unknown>)[name];
      }
    }
    for (const name of Object.keys(types)) if (!columns.has(name)) columns.set(name, new Array(rows.length).fill(null));
    return tableFrom([...columns], types) as TableOf<Row & Types>;
  });
}

function columnOf(name: string, values: unknown, type: arrow.DataType | undefined): arrow.Vector {
  if (values instanceof arrow.Vector) {
    if (!type) return values;
    throw expected('no type', `types.${name}`, type, ' The column is a vector, and has one.');
  }
  if (ArrayBuffer.isView(values)) {
    const own = typeOfArray(values);
    if (isDetached(values)) {
      throw new WarpjoinError('ERR_INVALID_TABLE', `The buffer of the column ${quote(name)} is detached.`);
    }
    if (own && !type) return new arrow.Vector([arrow.makeData({ type: own, data: values } as never)]);
    if (own) return columnOf(name, Array.from(values as unknown as ArrayLike<unknown>), type);
  }
  if (!Array.isArray(values)) {
    throw new WarpjoinError(
      'ERR_INVALID_TABLE',
      `Expected an array, a typed array of numbers or a vector for the column ${quote(name)} but received ${show(values)}.`,
    );
  }
  const made = type ?? inferType(() => values, quote(name));
  const convert = converterTo(made, quote(name));
  if (arrow.DataType.isUtf8(made)) return textVector(made, Array.from(values, convert) as (string | null)[], quote(name));
  return arrow.vectorFromArray(Array.from(values, convert), made) as arrow.Vector;
}

const MOST_TEXT_BYTES = 2 ** 31 - 1;

/** Texts as a vector, several times faster than by apache-arrow's builder. */
function textVector(type: arrow.Utf8, texts: readonly (string | null)[], column: string): arrow.Vector {
  const valueOffsets = new Int32Array(texts.length + 1);
  const nullBitmap = new Uint8Array(Math.ceil(texts.length / 8));
  let bytes = Buffer.allocUnsafeSlow(16 * texts.length);
  let [end, nullCount] = [0, 0];
  for (const [row, text] of texts.entries()) {
    if (text === null) nullCount++;
    else {
      nullBitmap[row >> 3]! |= 1 << (row & 7);
      // A UTF-16 unit becomes 3 bytes at most.
      if (bytes.length - end < 3 * text.length) {
        const grown = Buffer.allocUnsafeSlow(2 * bytes.length + 3 * text.length);
        bytes.copy(grown, 0, 0, end);
        bytes = grown;
      }
      end += bytes.write(text, end);
      if (end > MOST_TEXT_BYTES) {
        throw new WarpjoinError(
          'ERR_INVALID_TABLE',
          `The column ${column} has more than 2 GiB of text: say LargeUtf8 with types.`,
        );
      }
    }
    valueOffsets[row + 1] = end;
  }
  const data = new Uint8Array(bytes.buffer, 0, end);
  return new arrow.Vector([arrow.makeData({ type, length: texts.length, nullCount, nullBitmap, valueOffsets, data })]);
}

function tableFrom(columns: readonly (readonly [string, unknown])[], types: ColumnTypes): arrow.Table {
  const vectors = columns.map(([name, values]) => columnOf(name, values, Object.hasOwn(types, name) ? types[name] : undefined));
  for (const [index, { length }] of vectors.entries()) {
    if (length === vectors[0]!.length) continue;
    const found = `${quote(columns[0]![0])} has ${vectors[0]!.length} values and ${quote(columns[index]![0])} ${length}`;
    throw new WarpjoinError('ERR_INVALID_TABLE', `Expected columns of the same length but ${found}.`);
  }
  return new arrow.Table(Object.fromEntries(columns.map(([name], index) => [name, vectors[index]!])));
}

export const toRowsSchema = {
  int64: choice<Int64As>(
    ['auto', 'bigint', 'text'],
    'auto',
    'What 64-bit integers become. auto: numbers where those are exact, else text, so that JSON holds them.',
  ),
  limit: count(undefined, 0, 'At most so many rows. Unset: all.'),
  offset: count(0, 0, 'Rows to leave out before the first.'),
};
/** The options of toRows(). */
export type ToRowsOptions = InputOf<typeof toRowsSchema>;

/**
 * The rows of a table as plain objects that JSON holds: `JSON.stringify(toRows(result))`.
 *
 * | type | value |
 * | --- | --- |
 * | integers of up to 32 bits, floats, booleans, text | number, boolean, string |
 * | Int64, Uint64, durations | number where that is exact, else its digits as text; see `int64` |
 * | decimals | text, "12.50" |
 * | dates, times, timestamps | text, "2024-05-01", "17:30:00.25", "2024-05-01T17:30:00.25Z"; Z where the type has a time zone |
 * | binary | hexadecimal digits |
 * | lists, structs, maps | arrays, objects, objects by the text of the key |
 * | dictionaries, unions | what they hold |
 *
 * NaN and the infinities stay numbers; JSON has none, and JSON.stringify() writes null for them. Takes what calls take as a table,
 * except asynchronous record batches and loaded tables. Throws ERR_INVALID_TABLE, ERR_OPTION, and ERR_NOT_SUPPORTED for a
 * type that is not known.
 */
export function toRows(table: ArrowInput, options?: ToRowsOptions): Record<string, unknown>[] {
  const { int64, limit = Number.POSITIVE_INFINITY, offset } = parse(toRowsSchema, 'toRows', options);
  const found = tableOf(table, 'input');
  return readable('The input table', () => {
    const own = tableIn(ownLibrary, found);
    const rows: Record<string, unknown>[] = [];
    let skip = offset;
    for (const { data } of own.batches) {
      const begin = Math.min(skip, data.length);
      const end = Math.min(data.length, begin + limit - rows.length);
      skip -= begin;
      if (begin >= end) continue;
      const fields = own.schema.fields.map(({ name }, index) => ({ name, read: valueReader(data.children[index]!, int64) }));
      for (let row = begin; row < end; row++) rows.push(objectOf(fields, row));
    }
    return rows;
  });
}
