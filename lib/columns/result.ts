/** Results: Arrow tables and typed arrays over the buffers that the data plane made, without a copy. */
import { constants } from 'node:buffer';
import type * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { NativeResultColumn } from '../native.js';
import { formatBytes } from '../sizes.js';
import { buffersOf, chunkReader } from './data.js';
import type { Input } from './input.js';
import type { ResultColumn } from './layout.js';
import { batchOver } from './library.js';

/** apache-arrow numbers a table's rows with 32 bits. */
export const MAX_TABLE_ROWS = 2 ** 32 - 1;

/** Bytes that a typed array of this Node.js holds: 4 GiB before Node.js 22. */
export const MAX_ARRAY_BYTES = constants.MAX_LENGTH;

/** Throws ERR_NOT_SUPPORTED where no Arrow table can hold the rows. `instead`: what would do, as a sentence. */
export function checkTableRows(rows: number, instead: string): void {
  if (rows > MAX_TABLE_ROWS) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The result has ${rows} rows; an apache-arrow table holds at most ${MAX_TABLE_ROWS}. ${instead}`,
    );
  }
}

/** Throws ERR_NOT_SUPPORTED where no typed array of `most` bytes can hold the rows. `instead`: what would do, as a sentence. */
export function checkArrayRows(rows: number, width: number, instead: string, most = MAX_ARRAY_BYTES): void {
  if (rows * width > most) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The result has ${rows} rows, ${formatBytes(rows * width)} in one typed array; this Node.js holds at most ${formatBytes(most)} in one. ${instead}`,
    );
  }
}

/** What a table's schema says of a column. */
export type FieldShape = Pick<ResultColumn, 'name' | 'type' | 'nullable' | 'metadata' | 'of'>;

/** What a result has of an input: the classes that it is made of, and the metadata of the schema. */
export type Origin = Pick<Input, 'library' | 'metadata'>;

export function schemaOf(layout: readonly Omit<FieldShape, 'of'>[], { library, metadata }: Origin): arrow.Schema {
  const fields = layout.map(
    ({ name, type, nullable, metadata }) => new library.Field(name, type, nullable, metadata ? new Map(metadata) : null),
  );
  return new library.Schema(fields, metadata ? new Map(metadata) : null);
}

/**
 * A table of these columns, each of `rows` rows. A record batch ends with each chunk of each column: mostly there is one; and at each
 * of the rows `ends`.
 */
export function buildTable(
  layout: readonly FieldShape[],
  columns: readonly NativeResultColumn[],
  rows: number,
  origin: Origin,
  ends: readonly number[] = [],
): arrow.Table {
  const { library } = origin;
  const shapes = layout.map((column, index) => ({ ...column, nullable: column.nullable || columns[index]!.nullCount > 0 }));
  const schema = schemaOf(shapes, origin);
  const readers = columns.map((column, index) => chunkReader(library, layout[index]!.type, column, layout[index]!.of));
  let begin = 0;
  const batches = batchEnds(columns, rows, ends).map((end) => {
    const made = readers.map((read) => read(begin, end));
    const rows = end - begin;
    begin = end;
    return batchOver(schema, rows, made, library);
  });
  return new library.Table(schema, batches);
}

function batchEnds(columns: readonly NativeResultColumn[], rows: number, given: readonly number[]): number[] {
  const ends = new Set([...given.filter((end) => end > 0), rows]);
  for (const { chunks } of columns) {
    let end = 0;
    for (const { length } of chunks) {
      end += length;
      ends.add(end);
    }
  }
  return [...ends].sort((a, b) => a - b);
}

/** The values of a column of fixed width that is one chunk, as its type's typed array. */
export function valuesOf(type: arrow.DataType, { chunks, length }: NativeResultColumn): ArrayBufferView {
  return buffersOf(type, chunks[0]!, 0, length)[1]!;
}

/** Row numbers: all-ones where a row has no such side. */
export type RowNumbers = Uint32Array | BigUint64Array;

/** Row numbers of 4 or 8 bytes each, in one chunk: which, the size tells. */
export function rowNumbers({ chunks, length }: NativeResultColumn): RowNumbers {
  const { values } = chunks[0]!;
  return length > 0 && values.byteLength === length * 8 ? new BigUint64Array(values) : new Uint32Array(values);
}
