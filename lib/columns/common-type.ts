/** The type that a full join's coalesced key has, where its two columns have different ones. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { ColumnConversion, Side } from '../native.js';
import { type ForeignType, type KeyColumn, type KeyFactors, type TypeInfo, typeInfo, typeName, valuesOf } from './types.js';

/** What two key columns become one as. */
export interface CommonType {
  info: TypeInfo;
  /** How the column of each side becomes that; null: it is that already. */
  as: Record<Side, ColumnConversion | null>;
}

/** Digits that decimals of so many bits have. */
const DECIMALS = [
  [32, 9],
  [64, 18],
  [128, 38],
  [256, 76],
] as const;

/**
 * The type that holds the values of both columns, which compare and of which none is of the null type, nor share they a dictionary.
 * Throws ERR_KEY_TYPE, naming both, where no decimal does.
 */
export function commonType(left: KeyColumn, right: KeyColumn, factors: KeyFactors): CommonType {
  const [one, other] = [valuesOf(left.info), valuesOf(right.info)];
  const type = typeOf(one, other);
  if (!type) {
    throw new WarpjoinError(
      'ERR_KEY_TYPE',
      `Key columns ${left.label} (${typeName(one.type)}) and ${right.label} (${typeName(other.type)}) can't become one: ` +
        'no decimal of 256 bits has 76 digits or fewer and holds the values of both. Cast one of them, or leave coalesce unset.',
    );
  }
  const info = typeInfo(type)!;
  const conversion = ({ label, info: from }: KeyColumn, side: Side): ColumnConversion | null => {
    const factor = factors[side];
    const same = from.kind === info.kind && from.order === info.order && from.width === info.width;
    if (!from.dictionary && same && factor.pow10 === 0 && factor.times === 1) return null;
    const { kind, order, width } = info;
    return { kind, order, width, factor, column: `Column ${label} (${typeName(from.type)})`, target: typeName(type) };
  };
  return { info, as: { left: conversion(left, 'left'), right: conversion(right, 'right') } };
}

/** The same object where it is the type of one of them; null: there is none. */
function typeOf(one: TypeInfo, other: TypeInfo): ForeignType | null {
  const name = typeName(one.type);
  if (name === typeName(other.type)) return one.type;
  const type = widerType(one, other);
  if (!type) return null;
  const wider = typeName(type);
  return wider === name ? one.type : wider === typeName(other.type) ? other.type : (type as unknown as ForeignType);
}

/** Of two types that differ and compare. */
function widerType(one: TypeInfo, other: TypeInfo): arrow.DataType | null {
  const [a, b] = [one.type, other.type];
  switch (one.comparesAs) {
    case 'number':
      return (isInteger(one) && isInteger(other) ? integerOf(one, other) : null) ?? decimalOf(one, other);
    case 'float':
      return new arrow.Float(Math.max(a.precision!, b.precision!));
    case 'utf8':
      return textOf(one, other, new arrow.Utf8(), new arrow.LargeUtf8());
    case 'binary':
      return textOf(one, other, new arrow.Binary(), new arrow.LargeBinary());
    case 'time of day': {
      const unit = Math.max(a.unit!, b.unit!);
      return new arrow.Time(unit as never, (unit < arrow.TimeUnit.MICROSECOND ? 32 : 64) as never);
    }
    case 'duration':
      return new arrow.Duration(Math.max(a.unit!, b.unit!) as never);
    default: {
      const dates = [a, b].every(({ typeId }) => typeId === arrow.Type.Date);
      if (dates) return new arrow.DateMillisecond();
      const { timezone } = a.typeId === arrow.Type.Timestamp ? a : b;
      return new arrow.Timestamp(Math.max(timeUnit(a), timeUnit(b)) as never, timezone);
    }
  }
}

const isInteger = ({ type }: TypeInfo): boolean => type.typeId === arrow.Type.Int;

/** The unit of a timestamp that holds values of the type: days are whole seconds. */
const timeUnit = ({ typeId, unit }: ForeignType): number => {
  if (typeId !== arrow.Type.Date) return unit!;
  return unit === arrow.DateUnit.DAY ? arrow.TimeUnit.SECOND : arrow.TimeUnit.MILLISECOND;
};

/** The smallest integer type; null where there is none: of uint64 and a signed one. */
function integerOf(one: TypeInfo, other: TypeInfo): arrow.DataType | null {
  const signed = one.type.isSigned || other.type.isSigned;
  // An unsigned integer fits a signed one of more bits.
  const bitsOf = ({ type }: TypeInfo): number => (signed && !type.isSigned ? 2 : 1) * type.bitWidth!;
  const bits = Math.max(bitsOf(one), bitsOf(other));
  const types = signed
    ? { 8: arrow.Int8, 16: arrow.Int16, 32: arrow.Int32, 64: arrow.Int64 }
    : { 8: arrow.Uint8, 16: arrow.Uint16, 32: arrow.Uint32, 64: arrow.Uint64 };
  const Type = types[bits as 8 | 16 | 32 | 64] as (new () => arrow.DataType) | undefined;
  return Type ? new Type() : null;
}

/** With the larger scale and the digits of both; null where these are more than 76. */
function decimalOf(one: TypeInfo, other: TypeInfo): arrow.DataType | null {
  const scaleOf = ({ type }: TypeInfo): number => type.scale ?? 0;
  const digitsOf = ({ type }: TypeInfo): number => {
    if (type.typeId === arrow.Type.Decimal) return type.precision! - type.scale!;
    return { 8: 3, 16: 5, 32: 10, 64: type.isSigned ? 19 : 20 }[type.bitWidth as 8 | 16 | 32 | 64];
  };
  const scale = Math.max(scaleOf(one), scaleOf(other));
  const precision = scale + Math.max(digitsOf(one), digitsOf(other));
  const bitsOf = ({ type }: TypeInfo): number => (type.typeId === arrow.Type.Decimal ? (type.bitWidth ?? 128) : 0);
  const least = Math.max(bitsOf(one), bitsOf(other)) || 128;
  const found = DECIMALS.find(([bits, digits]) => bits >= least && digits >= precision);
  return found ? new arrow.Decimal(scale, precision, found[0]) : null;
}

/** Views where both are, 64-bit offsets where one has them. */
function textOf(one: TypeInfo, other: TypeInfo, text: arrow.DataType, large: arrow.DataType): arrow.DataType {
  return one.kind === 'large_utf8' || other.kind === 'large_utf8' ? large : text;
}
