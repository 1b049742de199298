/** The addon's ParquetWriter, typed (native/binding/parquet_writer.h), and Arrow's types as Parquet's. */
import * as arrow from 'apache-arrow';
import type { ForeignType } from '../columns/types.js';
import type { NativeColumn } from '../native.js';
import type { FileRoom } from './file-room.js';

export type ParquetPhysicalType = 'boolean' | 'int32' | 'int64' | 'float32' | 'float64' | 'byte_array' | 'fixed_bytes';

type Unit = 'ms' | 'us' | 'ns';

/** What values mean. */
export type ParquetLogical =
  | { type: 'string' | 'date' | 'null' | 'float16' }
  | { type: 'time' | 'timestamp'; unit: Unit; utc: boolean }
  | { type: 'integer'; bits: number; signed: boolean }
  | { type: 'decimal'; precision: number; scale: number };

/** How a type's values are stored. */
export interface ParquetType {
  type: ParquetPhysicalType;
  /** Bytes of fixed_bytes; 0 of others. */
  width: number;
  /** The number of the older logical type; null: none. */
  converted: number | null;
  logical: ParquetLogical | null;
}

export interface ParquetField extends ParquetType {
  name: string;
  nullable: boolean;
}

export interface ParquetWriterOptions extends FileRoom {
  fields: readonly ParquetField[];
  metadata: readonly (readonly [key: string, value: string])[];
  /** The most rows of a row group, and about the most bytes of its values. */
  groupRows: number;
  groupBytes: number;
  /** About the most bytes of a page's values, before compression. */
  pageBytes: number;
}

export interface ParquetProgress {
  /** Bytes that follow in the file. */
  buffers: ArrayBuffer[];
  /** Rows that are not yet written. */
  rowsLeft: number;
}

/** Makes one file, on threads of its own. Promises reject once it was cancelled, or a call has failed. */
export interface NativeParquetWriter {
  /** Rows to write behind those before, a column for each field. The columns are checked, and read until all rows are written. */
  begin(columns: NativeColumn[], rows: number): Promise<ParquetProgress>;
  /** The next row groups. */
  write(): Promise<ParquetProgress>;
  /** The footer. */
  finish(): Promise<ParquetProgress>;
  /** Takes the memory of the oldest buffers back: of one call's, which are empty then. */
  reclaim(): void;
  cancel(): void;
  /** Frees the memory, once the calls have ended. */
  release(): void;
}

export type NativeParquetWriterClass = new (options: ParquetWriterOptions) => NativeParquetWriter;

/** Numbers of ConvertedType (parquet.thrift). */
const CONVERTED = {
  utf8: 0,
  decimal: 5,
  date: 6,
  time: { ms: 7, us: 8, ns: null },
  timestamp: { ms: 9, us: 10, ns: null },
  unsigned: new Map([
    [8, 11],
    [16, 12],
    [32, 13],
    [64, 14],
  ]),
  signed: new Map([
    [8, 15],
    [16, 16],
  ]),
};
const UNITS: readonly (Unit | null)[] = [null, 'ms', 'us', 'ns']; // Parquet has no seconds

/**
 * How Parquet stores values of an Arrow type, as Arrow's Rust implementation does it: what Parquet can't tell is in the Arrow schema
 * beside it. Undefined for nested types, and others that the addon doesn't write.
 */
export function parquetType(type: ForeignType): ParquetType | undefined {
  const { typeId, bitWidth = 0, precision = 0, scale = 0, unit = 0, byteWidth = 0 } = type;
  const plain = (
    physical: ParquetPhysicalType,
    converted: number | null = null,
    logical: ParquetLogical | null = null,
  ): ParquetType => ({ type: physical, width: 0, converted, logical });
  const timed = (type: 'time' | 'timestamp', physical: ParquetPhysicalType, utc: boolean) => {
    const named = UNITS[unit];
    return named ? plain(physical, CONVERTED[type][named], { type, unit: named, utc }) : plain(physical);
  };
  switch (typeId) {
    case arrow.Type.Bool:
      return plain('boolean');
    case arrow.Type.Int: {
      const signed = type.isSigned === true;
      const converted = CONVERTED[signed ? 'signed' : 'unsigned'].get(bitWidth);
      const physical = bitWidth === 64 ? 'int64' : 'int32';
      return converted === undefined ? plain(physical) : plain(physical, converted, { type: 'integer', bits: bitWidth, signed });
    }
    case arrow.Type.Float:
      if (precision === arrow.Precision.HALF) return { ...plain('fixed_bytes', null, { type: 'float16' }), width: 2 };
      return plain(precision === arrow.Precision.SINGLE ? 'float32' : 'float64');
    case arrow.Type.Utf8:
    case arrow.Type.LargeUtf8:
    case arrow.Type.Utf8View:
      return plain('byte_array', CONVERTED.utf8, { type: 'string' });
    case arrow.Type.Binary:
    case arrow.Type.LargeBinary:
    case arrow.Type.BinaryView:
      return plain('byte_array');
    case arrow.Type.FixedSizeBinary:
      return byteWidth > 0 && byteWidth <= 1 << 20 ? { ...plain('fixed_bytes'), width: byteWidth } : undefined;
    case arrow.Type.Date:
      return unit === arrow.DateUnit.DAY ? plain('int32', CONVERTED.date, { type: 'date' }) : plain('int64');
    case arrow.Type.Time:
      return timed('time', bitWidth === 64 ? 'int64' : 'int32', false);
    case arrow.Type.Timestamp:
      return timed('timestamp', 'int64', Boolean(type.timezone));
    case arrow.Type.Duration:
      return plain('int64');
    case arrow.Type.Decimal: {
      const bits = type.bitWidth ?? 128;
      const most = { 32: 9, 64: 18, 128: 38, 256: 76 }[bits] ?? 0;
      if (precision < 1 || precision > most || scale < 0 || scale > precision) return undefined;
      const converted = plain('fixed_bytes', CONVERTED.decimal, { type: 'decimal', precision, scale });
      if (precision <= 9) return { ...converted, type: 'int32' };
      if (precision <= 18) return { ...converted, type: 'int64' };
      return { ...converted, width: decimalBytes(precision) };
    }
    case arrow.Type.Null:
      return plain('int32', null, { type: 'null' });
    case arrow.Type.Dictionary: {
      const of = type.dictionary!;
      const isPlain = of.typeId !== arrow.Type.Dictionary && of.typeId !== arrow.Type.Null;
      return isPlain ? parquetType(of) : undefined;
    }
    default:
      return undefined;
  }
}

/** The fewest bytes of a two's complement number that hold so many digits. */
function decimalBytes(precision: number): number {
  const largest = 10n ** BigInt(precision) - 1n;
  return Math.ceil((largest.toString(2).length + 1) / 8);
}
