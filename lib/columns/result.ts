/** Results: Arrow tables and typed arrays over the buffers that the data plane made, without a copy. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { NativeResultColumn } from '../native.js';
import { quote } from '../suggest.js';
import type { ResultColumn } from './layout.js';
import { typeInfo } from './types.js';

/** apache-arrow numbers a table's rows with 32 bits. */
export const MAX_TABLE_ROWS = 2 ** 32 - 1;

/** What would do in place of a result that no table can hold. */
const WAYS_OUT = {
  join: 'Expected a smaller join: set maxOutputRows, or use joinIndices.',
  sort: 'Expected a smaller table: sort slices of it, or its keys with row numbers as values through sortPairs, which gives no table.',
  loaded: 'Expected a smaller loaded table: joinCount, and joins and sorts with resident: true, take it as it is.',
};

/** Throws ERR_NOT_SUPPORTED where no Arrow table can hold the rows that `what` gives. */
export function checkTableRows(rows: number, what: keyof typeof WAYS_OUT): void {
  if (rows > MAX_TABLE_ROWS) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The result has ${rows} rows; an apache-arrow table holds at most ${MAX_TABLE_ROWS}. ${WAYS_OUT[what]}`,
    );
  }
}

/** What a table's schema says of a column. */
export type FieldShape = Pick<ResultColumn, 'name' | 'type' | 'nullable' | 'metadata'>;

export function schemaOf(layout: readonly FieldShape[], metadata: Map<string, string> | undefined): arrow.Schema {
  const fields = layout.map(
    ({ name, type, nullable, metadata }) => new arrow.Field(name, type, nullable, metadata ? new Map(metadata) : null),
  );
  return new arrow.Schema(fields, metadata ? new Map(metadata) : null);
}

/** A table of these columns, each of `rows` rows, in one record batch. */
export function buildTable(
  layout: readonly FieldShape[],
  columns: readonly NativeResultColumn[],
  rows: number,
  metadata: Map<string, string> | undefined,
): arrow.Table {
  const shapes = layout.map((column, index) => ({ ...column, nullable: column.nullable || columns[index]!.nullCount > 0 }));
  const schema = schemaOf(shapes, metadata);
  const children = layout.map(({ name, type }, index) => buildData(name, type, columns[index]!));
  const data = arrow.makeData({ type: new arrow.Struct(schema.fields), length: rows, nullCount: 0, children });
  return new arrow.Table(schema, new arrow.RecordBatch(schema, data));
}

function buildData(name: string, type: arrow.DataType, column: NativeResultColumn): arrow.Data {
  const { length, nullCount } = column;
  const nullBitmap = column.validity ? new Uint8Array(column.validity) : null;
  const common = { type, length, nullCount, nullBitmap };
  const { kind } = typeInfo(type)!;
  if (kind === 'utf8' || kind === 'large_utf8') {
    const large = kind === 'large_utf8';
    // Even no values have an offset.
    const offsets = column.offsets?.byteLength ? column.offsets : new ArrayBuffer(large ? 8 : 4);
    const valueOffsets = large ? new BigInt64Array(offsets, 0, length + 1) : new Int32Array(offsets, 0, length + 1);
    return arrow.makeData({ ...common, valueOffsets, data: new Uint8Array(column.values) } as never);
  }
  return arrow.makeData({ ...common, data: valuesOf(name, type, column) } as never);
}

/** The values of a column that is not of variable width as its type's typed array. */
export function valuesOf(name: string, type: arrow.DataType, { values, length }: NativeResultColumn): ArrayBufferView {
  const { kind, width } = typeInfo(type)!;
  const Elements = type.ArrayType as Uint8ArrayConstructor;
  const elements = kind === 'boolean' ? Math.ceil(length / 8) : (length * width) / Elements.BYTES_PER_ELEMENT;
  try {
    return new Elements(values, 0, elements);
  } catch (cause) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The result's column ${quote(name)} has ${elements} values, which a typed array of this Node.js doesn't hold: ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Row numbers: all-ones where a row has no such side. */
export type RowNumbers = Uint32Array | BigUint64Array;

/** `rows` row numbers of 4 or 8 bytes each: which, the size tells. */
export function rowNumbers(values: ArrayBuffer, rows: number): RowNumbers {
  return rows > 0 && values.byteLength >= rows * 8 ? new BigUint64Array(values, 0, rows) : new Uint32Array(values, 0, rows);
}
