/** Which columns of a Parquet file the addon reads, and as which Arrow types: those that parquet-wasm gives. */
import {
  Binary,
  Bool,
  type DataType,
  DateDay,
  Decimal,
  type Duration,
  Field,
  FixedSizeBinary,
  Float16,
  Float32,
  Float64,
  Int,
  LargeBinary,
  LargeUtf8,
  Schema,
  Time,
  Timestamp,
  TimeUnit,
  Type,
  Utf8,
} from 'apache-arrow';
import { isSameType, typeName } from '../columns/types.js';
import { readIpcBytes } from '../ipc/reader.js';
import type { ParquetColumn, ParquetColumnRequest, ParquetOutline } from './parquet-native.js';

/** As native/parquet/format.h has them. */
const physicalTypes = ['boolean', 'int32', 'int64', 'int96', 'float32', 'float64', 'byte_array', 'fixed_bytes'] as const;
const required = 0;
const repeated = 2;
const logical = { string: 1, decimal: 5, date: 6, time: 7, timestamp: 8, integer: 10, json: 12, float16: 15 } as const;
const converted = {
  utf8: 0,
  decimal: 5,
  date: 6,
  timeMillis: 7,
  timeMicros: 8,
  timestampMillis: 9,
  timestampMicros: 10,
} as const;
const convertedJson = 19;
/** By their ConvertedType. */
const convertedIntegers: Readonly<Record<number, readonly [signed: boolean, bits: number]>> = {
  11: [false, 8],
  12: [false, 16],
  13: [false, 32],
  14: [false, 64],
  15: [true, 8],
  16: [true, 16],
  17: [true, 32],
  18: [true, 64],
};
const units = [undefined, TimeUnit.MILLISECOND, TimeUnit.MICROSECOND, TimeUnit.NANOSECOND] as const;

/** How the addon reads a file. */
export interface NativePlan {
  /** Of the columns that are wanted. */
  readonly schema: Schema;
  readonly columns: ParquetColumnRequest[];
}

/** The plan, or why the file is read in another way. `names`: the columns that are wanted; all where unset. */
export function planNative(outline: ParquetOutline, names?: readonly string[]): NativePlan | { reason: string } {
  const stated = statedSchema(outline);
  if (stated instanceof Error) return { reason: `its Arrow schema is not readable: ${stated.message}` };
  const roots = rootsOf(outline);
  if (stated && stated.fields.length !== roots.length) return { reason: 'its Arrow schema has other columns' };
  const fields: Field[] = [];
  const columns: ParquetColumnRequest[] = [];
  for (const [index, leaf] of roots.entries()) {
    const column = outline.columns[leaf]!;
    const name = column.path[0]!;
    if (names && !names.includes(name)) continue;
    const field = fieldOf(column, stated?.fields[index]);
    if (typeof field === 'string') return { reason: `column "${name}" ${field}` };
    fields.push(field);
    columns.push({ leaf, large: [Type.LargeUtf8, Type.LargeBinary].includes(field.type.typeId) });
  }
  return { schema: new Schema(fields, metadataOf(outline, stated)), columns };
}

/** The names of the columns, nested ones included. */
export const columnNames = (outline: ParquetOutline): string[] => rootsOf(outline).map((leaf) => outline.columns[leaf]!.path[0]!);

/** The first leaf of each column. */
function rootsOf({ columns }: ParquetOutline): number[] {
  // Leaves of one nested column follow each other; flat ones have their own paths.
  const isNext = (leaf: number) => {
    const before = columns[leaf - 1];
    return !before || before.path.length === 1 || before.path[0] !== columns[leaf]!.path[0];
  };
  return columns.flatMap((_, leaf) => (isNext(leaf) ? [leaf] : []));
}

const schemaKey = 'ARROW:schema';

/** The schema that the file was written with. */
function statedSchema({ keyValues }: ParquetOutline): Schema | Error | undefined {
  const text = keyValues.find(([key]) => key === schemaKey)?.[1];
  if (text === undefined) return undefined;
  try {
    return readIpcBytes(Buffer.from(text, 'base64')).schema;
  } catch (error) {
    return error as Error;
  }
}

function metadataOf({ keyValues }: ParquetOutline, stated: Schema | undefined): Map<string, string> {
  const own = new Map(keyValues.filter(([key]) => key !== schemaKey));
  return new Map([...(stated?.metadata ?? []), ...own]);
}

/** The field, or why it is not read. */
function fieldOf(column: ParquetColumn, stated: Field | undefined): Field | string {
  if (column.path.length > 1 || column.repetition === repeated) return 'is nested';
  if (column.elsewhere) return 'is in another file, or encrypted';
  const plain = column.isRead ? plainType(column) : undefined;
  if (!plain) return 'is of a type that is rare';
  if (column.unknownCodec !== null) return `is compressed with ${column.unknownCodec}`;
  if (column.unknownEncoding !== null) return `has the encoding ${column.unknownEncoding}`;
  const [name] = column.path as [string];
  if (stated && stated.name !== name) return 'has another name in the Arrow schema';
  const type = stated ? statedType(plain, stated.type) : plain;
  if (!type) return `was written as ${typeName(stated!.type)}`;
  const id = column.fieldId === null ? new Map() : new Map([['PARQUET:field_id', String(column.fieldId)]]);
  return new Field(name, type, column.repetition !== required, stated ? stated.metadata : id);
}

/** The type that a column has by what Parquet says of it. Its layout was checked by the addon. */
function plainType(column: ParquetColumn): DataType | undefined {
  const { logical: kind, converted: older } = column;
  const has = (one: number, other?: number) => (kind !== null ? kind === one : other !== undefined && older === other);
  switch (physicalTypes[column.physical]) {
    case 'boolean':
      return new Bool();
    case 'float32':
      return new Float32();
    case 'float64':
      return new Float64();
    case 'int96':
      return new Timestamp(TimeUnit.NANOSECOND, null);
    case 'byte_array':
      if (has(logical.decimal, converted.decimal)) return decimalType(column);
      return has(logical.string, converted.utf8) || has(logical.json, convertedJson) ? new Utf8() : new Binary();
    case 'fixed_bytes':
      if (has(logical.decimal, converted.decimal)) return decimalType(column);
      return has(logical.float16) ? new Float16() : new FixedSizeBinary(column.typeLength);
    case 'int32':
      if (has(logical.decimal, converted.decimal)) return decimalType(column);
      if (has(logical.date, converted.date)) return new DateDay();
      if (has(logical.time, converted.timeMillis)) return new Time(TimeUnit.MILLISECOND, 32);
      return integerType(column, 32);
    case 'int64':
      if (has(logical.decimal, converted.decimal)) return decimalType(column);
      if (has(logical.time)) return new Time(units[column.unit]!, 64);
      if (has(logical.timestamp)) return new Timestamp(units[column.unit]!, column.utc ? 'UTC' : null);
      if (kind === null && older === converted.timeMicros) return new Time(TimeUnit.MICROSECOND, 64);
      if (kind === null && older === converted.timestampMillis) return new Timestamp(TimeUnit.MILLISECOND, 'UTC');
      if (kind === null && older === converted.timestampMicros) return new Timestamp(TimeUnit.MICROSECOND, 'UTC');
      return integerType(column, 64);
    default:
      return undefined;
  }
}

/** Precisions and scales that make no sense are left to parquet-wasm, which says so. */
function decimalType({ scale, precision }: ParquetColumn): DataType | undefined {
  if (precision < 1 || precision > 38 || scale < 0 || scale > precision) return undefined;
  return new Decimal(scale, precision, 128);
}

function integerType({ logical: kind, converted: older, bitWidth, signed }: ParquetColumn, width: number): DataType {
  const [isSigned, bits] =
    kind !== null ? [signed, bitWidth] : (older !== null && convertedIntegers[older]) || ([true, width] as const);
  return new Int(isSigned as never, bits as never);
}

/** The type that a column is given where it was written as `stated`; undefined where it takes more than another name. */
function statedType(plain: DataType, stated: DataType): DataType | undefined {
  const [from, to] = [plain.typeId, stated.typeId];
  // parquet-wasm makes plain texts and bytes of views.
  const isView = (from === Type.Utf8 && to === Type.Utf8View) || (from === Type.Binary && to === Type.BinaryView);
  if (isView || isSameType(plain, stated)) return plain;
  if (from === Type.Utf8 && to === Type.LargeUtf8) return new LargeUtf8();
  if (from === Type.Binary && to === Type.LargeBinary) return new LargeBinary();
  if (from === Type.Timestamp && to === Type.Timestamp) {
    const [own, given] = [plain as Timestamp, stated as Timestamp];
    return own.unit === given.unit && given.timezone ? given : undefined;
  }
  const isInt64 = from === Type.Int && (plain as Int).bitWidth === 64 && (plain as Int).isSigned;
  if (isInt64 && (to === Type.Duration || to === Type.Timestamp)) return stated as Duration;
  return undefined;
}
