/** Arrow types: how the data plane lays them out, which can be keys, and which keys compare. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { ColumnKind, KeyOrder } from '../native.js';

/** A type of any apache-arrow version: what is read of it. */
export interface ForeignType {
  readonly typeId: number;
  readonly bitWidth?: number;
  readonly isSigned?: boolean;
  readonly precision?: number;
  readonly scale?: number;
  readonly unit?: number;
  readonly timezone?: string | null;
  readonly byteWidth?: number;
}

export interface TypeInfo {
  /** As it came. */
  type: ForeignType;
  kind: ColumnKind;
  order: KeyOrder;
  /** Bytes a value where kind is 'fixed', else 0. */
  width: number;
  /** Two key columns compare where these are the same; null: payload only. */
  comparesAs: string | null;
}

const UNITS = ['s', 'ms', 'us', 'ns'];
/** Of a value, by unit: months; days and milliseconds; months, days and nanoseconds. */
const INTERVAL_BYTES = [4, 8, 16];

/** Whether the parameters of a caller's type can be shown: numbers, texts and booleans. */
export function hasPlainParameters(foreign: ForeignType): boolean {
  const { bitWidth, isSigned, precision, scale, unit, timezone, byteWidth } = foreign;
  return [bitWidth, isSigned, precision, scale, unit, timezone, byteWidth].every(
    (parameter) => parameter === null || !['object', 'function', 'symbol'].includes(typeof parameter),
  );
}

/** Whether Arrow has the type with these parameters: a caller may make any. */
function exists({ typeId, bitWidth, precision, scale, unit, byteWidth }: ForeignType): boolean {
  const unitBelow = (units: number) => unit !== undefined && unit >= 0 && unit < units && Number.isInteger(unit);
  switch (typeId) {
    case arrow.Type.Int:
      return [8, 16, 32, 64].includes(bitWidth!);
    case arrow.Type.Float:
      return [0, 1, 2].includes(precision!);
    case arrow.Type.Decimal:
      return [32, 64, 128, 256].includes(bitWidth ?? 128) && Number.isInteger(precision) && Number.isInteger(scale);
    case arrow.Type.Date:
      return unitBelow(2);
    case arrow.Type.Time:
      return unitBelow(4) && bitWidth === (unit! < 2 ? 32 : 64);
    case arrow.Type.Timestamp:
    case arrow.Type.Duration:
      return unitBelow(4);
    case arrow.Type.Interval:
      return unitBelow(3);
    case arrow.Type.FixedSizeBinary:
      return Number.isSafeInteger(byteWidth) && byteWidth! >= 0;
    default:
      return true;
  }
}

/** How columns of this type are handled, or null for a type that is not supported even as payload, or that Arrow doesn't have. */
export function typeInfo(type: ForeignType): TypeInfo | null {
  if (!exists(type)) return null;
  const fixed = (width: number, order: KeyOrder = 'none', comparesAs: string | null = null): TypeInfo => ({
    type,
    kind: 'fixed',
    order,
    width,
    comparesAs,
  });
  const bytes = (kind: ColumnKind, comparesAs: string): TypeInfo => ({ type, kind, order: 'bytes', width: 0, comparesAs });
  const { typeId, bitWidth = 0, unit = 0 } = type;
  switch (typeId) {
    case arrow.Type.Int:
      return fixed(bitWidth / 8, type.isSigned === true ? 'signed' : 'unsigned', 'integer');
    case arrow.Type.Float:
      if (type.precision === arrow.Precision.HALF) return fixed(2);
      return fixed(type.precision === arrow.Precision.SINGLE ? 4 : 8, 'floating', 'float');
    case arrow.Type.Bool:
      return { type, kind: 'boolean', order: 'boolean', width: 0, comparesAs: 'bool' };
    case arrow.Type.Utf8:
      return bytes('utf8', 'utf8');
    case arrow.Type.LargeUtf8:
      return bytes('large_utf8', 'utf8');
    case arrow.Type.Binary:
      return bytes('utf8', 'binary');
    case arrow.Type.LargeBinary:
      return bytes('large_utf8', 'binary');
    case arrow.Type.Decimal:
      return fixed((type.bitWidth ?? 128) / 8);
    case arrow.Type.Date:
      return unit === arrow.DateUnit.DAY ? fixed(4, 'signed', 'date32') : fixed(8, 'signed', 'date64');
    case arrow.Type.Time:
      return fixed(bitWidth / 8, 'signed', `time[${UNITS[unit]}]`);
    case arrow.Type.Timestamp:
      return fixed(8, 'signed', `timestamp[${UNITS[unit]}${type.timezone ? ', zoned' : ''}]`);
    case arrow.Type.Duration:
      return fixed(8, 'signed', `duration[${UNITS[unit]}]`);
    case arrow.Type.Interval:
      return fixed(INTERVAL_BYTES[unit]!);
    case arrow.Type.FixedSizeBinary:
      return type.byteWidth ? fixed(type.byteWidth) : null;
    default:
      return null;
  }
}

/** The same type, one that typeInfo() handles, of warpjoin's own apache-arrow. */
export function ownType(type: ForeignType): arrow.DataType {
  const { bitWidth = 0, precision = 0, unit = 0 } = type;
  switch (type.typeId) {
    case arrow.Type.Int:
      return integerType(type.isSigned === true, bitWidth);
    case arrow.Type.Float:
      return new arrow.Float(precision);
    case arrow.Type.Bool:
      return new arrow.Bool();
    case arrow.Type.Utf8:
      return new arrow.Utf8();
    case arrow.Type.LargeUtf8:
      return new arrow.LargeUtf8();
    case arrow.Type.Binary:
      return new arrow.Binary();
    case arrow.Type.LargeBinary:
      return new arrow.LargeBinary();
    case arrow.Type.Decimal:
      return new arrow.Decimal(type.scale ?? 0, precision, type.bitWidth ?? 128);
    case arrow.Type.Date:
      return unit === arrow.DateUnit.DAY ? new arrow.DateDay() : new arrow.DateMillisecond();
    case arrow.Type.Time:
      return new arrow.Time(unit as never, bitWidth as never);
    case arrow.Type.Timestamp:
      return new arrow.Timestamp(unit as never, type.timezone);
    case arrow.Type.Duration:
      return new arrow.Duration(unit as never);
    case arrow.Type.Interval:
      return new arrow.Interval(unit as never);
    case arrow.Type.FixedSizeBinary:
      return new arrow.FixedSizeBinary(type.byteWidth!);
    default:
      throw new WarpjoinError('ERR_INTERNAL', `Expected a supported type but received ${typeName(type)}.`);
  }
}

function integerType(signed: boolean, bits: number): arrow.DataType {
  const types = signed
    ? { 8: arrow.Int8, 16: arrow.Int16, 32: arrow.Int32, 64: arrow.Int64 }
    : { 8: arrow.Uint8, 16: arrow.Uint16, 32: arrow.Uint32, 64: arrow.Uint64 };
  return new types[bits as 8 | 16 | 32 | 64]();
}

/** The name of a type, for messages. */
export function typeName(foreign: ForeignType): string {
  switch (foreign.typeId) {
    case arrow.Type.Int:
      return `${foreign.isSigned ? '' : 'u'}int${foreign.bitWidth}`;
    case arrow.Type.Float:
      return ['float16', 'float32', 'float64'][foreign.precision ?? -1] ?? 'float';
    case arrow.Type.Decimal:
      return `decimal${foreign.bitWidth ?? 128}(${foreign.precision}, ${foreign.scale})`;
    case arrow.Type.Date:
      return foreign.unit === arrow.DateUnit.DAY ? 'date32' : 'date64';
    case arrow.Type.Time:
    case arrow.Type.Duration:
      return `${arrow.Type[foreign.typeId]!.toLowerCase()}[${UNITS[foreign.unit ?? -1]}]`;
    case arrow.Type.Timestamp:
      return `timestamp[${UNITS[foreign.unit ?? -1]}${foreign.timezone ? `, ${foreign.timezone}` : ''}]`;
    case arrow.Type.FixedSizeBinary:
      return `fixed_size_binary(${foreign.byteWidth})`;
    default:
      return (arrow.Type[foreign.typeId] ?? `type ${foreign.typeId}`).replace(/(?<=[a-z0-9])(?=[A-Z])/g, '_').toLowerCase();
  }
}

/** A key column, for checks and messages. */
export interface KeyColumn {
  /** 'left "id"': which column, in words. */
  label: string;
  info: TypeInfo;
}

/** Throws unless the column can be a key. */
export function checkKey({ label, info }: KeyColumn): void {
  if (info.comparesAs === null) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `Column ${label} has type ${typeName(info.type)}, which is not supported as a key yet.`,
    );
  }
}

/**
 * Throws unless both columns can be keys and compare: the same logical type, or both integers, or both floats. utf8 and
 * large_utf8 are the same logical type. Timestamps need the same unit, and a time zone on both sides or on none: with one
 * it is an instant, without a reading of some clock.
 */
export function checkComparable(left: KeyColumn, right: KeyColumn): void {
  checkKey(left);
  checkKey(right);
  if (left.info.comparesAs !== right.info.comparesAs) {
    throw new WarpjoinError(
      'ERR_KEY_TYPE',
      `Key columns ${left.label} (${typeName(left.info.type)}) and ${right.label} (${typeName(right.info.type)}) don't compare: ` +
        'expected the same type, two integer types or two float types. Cast one of them.',
    );
  }
}
