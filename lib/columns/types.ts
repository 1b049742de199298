/** Arrow types: how the data plane lays them out, which can be keys, and which keys compare. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { ColumnKind, KeyFactor, KeyOrder, Side } from '../native.js';

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
  readonly listSize?: number;
  readonly mode?: number;
  /** Of a union: the type id of each child. */
  readonly typeIds?: ArrayLike<number>;
  readonly children?: readonly ForeignField[] | null;
  /** Of a dictionary: its number, its values, and the indices. */
  readonly id?: number;
  readonly dictionary?: ForeignType;
  readonly indices?: ForeignType;
}

/** A field of any apache-arrow version. */
export interface ForeignField {
  name: string;
  type: ForeignType;
  nullable?: boolean;
  metadata?: Map<string, string>;
}

export interface TypeInfo {
  /** As it came. */
  type: ForeignType;
  kind: ColumnKind;
  order: KeyOrder;
  /** Bytes a value where kind is 'fixed', values of the child for each value where it is 'fixed_list', else 0. */
  width: number;
  /** Two key columns compare where these are the same, or one is 'null'; null: payload only. */
  comparesAs: string | null;
  /** Of nested kinds; none of others. */
  children: readonly TypeInfo[];
  /** Of a union: the type id of each child. */
  typeIds: readonly number[];
  /** Where the values are indices of a dictionary: what its values are. */
  dictionary: TypeInfo | null;
}

/** Levels of types that may lie within each other. */
export const MOST_LEVELS = 60;

const UNITS = ['s', 'ms', 'us', 'ns'];
/** Of a value, by unit: months; days and milliseconds; months, days and nanoseconds. */
const INTERVAL_BYTES = [4, 8, 16];

/**
 * Whether the parameters of a caller's type can be shown: numbers, texts and booleans. Types within it must have them, too, and
 * a field around them; those too deep within it are not looked at, for no type has so many levels.
 */
export function hasPlainParameters(foreign: ForeignType, level = 0): boolean {
  if (level > MOST_LEVELS) return true;
  const { bitWidth, isSigned, precision, scale, unit, timezone, byteWidth, listSize, mode } = foreign;
  const plain = [bitWidth, isSigned, precision, scale, unit, timezone, byteWidth, listSize, mode].every(
    (parameter) => parameter === null || !['object', 'function', 'symbol'].includes(typeof parameter),
  );
  const isType = (type: ForeignType | undefined): boolean =>
    typeof type?.typeId === 'number' && hasPlainParameters(type, level + 1);
  if (foreign.typeId === arrow.Type.Dictionary) return plain && isType(foreign.dictionary) && isType(foreign.indices);
  return plain && fieldsOf(foreign).every((field) => typeof field?.name === 'string' && isType(field.type));
}

/** What types that hold the same values in the same layout have in common. */
const PARAMETERS = [
  'typeId',
  'bitWidth',
  'isSigned',
  'precision',
  'scale',
  'unit',
  'timezone',
  'byteWidth',
  'listSize',
  'mode',
] as const satisfies (keyof ForeignType)[];

/** Whether two types, of any apache-arrow versions, hold the same values in the same layout. Names within structs and unions count. */
export function isSameType(one: ForeignType, other: ForeignType, level = 0): boolean {
  if (one === other) return true;
  if (level > MOST_LEVELS) return false;
  // apache-arrow before 16 gives decimals no width.
  const of = (type: ForeignType, parameter: (typeof PARAMETERS)[number]) =>
    type[parameter] ?? (parameter === 'bitWidth' && type.typeId === arrow.Type.Decimal ? 128 : null);
  if (!PARAMETERS.every((parameter) => of(one, parameter) === of(other, parameter))) return false;
  if (one.typeId === arrow.Type.Dictionary) {
    const parts = ['dictionary', 'indices'] as const;
    return parts.every((part) => isSameType(one[part]!, other[part]!, level + 1));
  }
  if (String(Array.from(one.typeIds ?? [])) !== String(Array.from(other.typeIds ?? []))) return false;
  const [fields, others] = [fieldsOf(one), fieldsOf(other)];
  const hasNames = one.typeId === arrow.Type.Struct || one.typeId === arrow.Type.Union;
  return (
    fields.length === others.length &&
    fields.every(({ name, type }, index) => {
      const field = others[index]!;
      return (!hasNames || name === field.name) && isSameType(type, field.type, level + 1);
    })
  );
}

/** The fields within a type. A dictionary has none: apache-arrow gives those of its values. */
export function fieldsOf({ typeId, children }: ForeignType): readonly ForeignField[] {
  return NESTED.has(typeId) && Array.isArray(children) ? children : [];
}

/** How many fields a type of this number has within; null: any number. */
const NESTED = new Map<number, number | null>([
  [arrow.Type.List, 1],
  [arrow.Type.LargeList, 1],
  [arrow.Type.FixedSizeList, 1],
  [arrow.Type.Map, 1],
  [arrow.Type.Struct, null],
  [arrow.Type.Union, null],
]);

/** Whether Arrow has the type with these parameters: a caller may make any. */
function exists(type: ForeignType): boolean {
  const { typeId, bitWidth, precision, scale, unit, byteWidth, listSize, mode, typeIds } = type;
  const fields = NESTED.get(typeId);
  if (fields !== undefined && fields !== null && fieldsOf(type).length !== fields) return false;
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
    case arrow.Type.FixedSizeList:
      return Number.isInteger(listSize) && listSize! >= 0 && listSize! < 2 ** 31;
    case arrow.Type.Dictionary:
      return type.indices?.typeId === arrow.Type.Int && exists(type.indices);
    case arrow.Type.Union: {
      const ids = Array.from(typeIds ?? []);
      const distinct = new Set(ids).size === ids.length && ids.length === fieldsOf(type).length;
      return (mode === 0 || mode === 1) && distinct && ids.every((id) => Number.isInteger(id) && id >= 0 && id < 128);
    }
    default:
      return true;
  }
}

/** How columns of this type are handled, or null for a type that is not supported even as payload, or that Arrow doesn't have. */
export function typeInfo(type: ForeignType, level = 0): TypeInfo | null {
  if (level > MOST_LEVELS || !exists(type)) return null;
  const info = (kind: ColumnKind, order: KeyOrder, width: number, comparesAs: string | null): TypeInfo => {
    return { type, kind, order, width, comparesAs, children: [], typeIds: [], dictionary: null };
  };
  const fixed = (width: number, order: KeyOrder = 'none', comparesAs: string | null = null) =>
    info('fixed', order, width, comparesAs);
  const bytes = (kind: ColumnKind, comparesAs: string) => info(kind, 'bytes', 0, comparesAs);
  const nested = (kind: ColumnKind, width = 0): TypeInfo | null => {
    const children = fieldsOf(type).map((field) => typeInfo(field.type, level + 1));
    if (children.includes(null)) return null;
    const typeIds = type.typeId === arrow.Type.Union ? Array.from(type.typeIds!) : [];
    return { ...info(kind, 'none', width, null), children: children as TypeInfo[], typeIds };
  };
  const { typeId, bitWidth = 0, unit = 0 } = type;
  switch (typeId) {
    case arrow.Type.Int:
      return fixed(bitWidth / 8, type.isSigned === true ? 'signed' : 'unsigned', 'number');
    case arrow.Type.Float:
      if (type.precision === arrow.Precision.HALF) return fixed(2, 'floating', 'float');
      return fixed(type.precision === arrow.Precision.SINGLE ? 4 : 8, 'floating', 'float');
    case arrow.Type.Bool:
      return info('boolean', 'boolean', 0, 'bool');
    case arrow.Type.Utf8:
      return bytes('utf8', 'utf8');
    case arrow.Type.LargeUtf8:
      return bytes('large_utf8', 'utf8');
    case arrow.Type.Binary:
      return bytes('utf8', 'binary');
    case arrow.Type.LargeBinary:
      return bytes('large_utf8', 'binary');
    case arrow.Type.Decimal:
      return fixed((type.bitWidth ?? 128) / 8, 'signed', 'number');
    case arrow.Type.Date:
      return unit === arrow.DateUnit.DAY ? fixed(4, 'signed', 'time point') : fixed(8, 'signed', 'time point');
    case arrow.Type.Time:
      return fixed(bitWidth / 8, 'signed', 'time of day');
    case arrow.Type.Timestamp:
      return fixed(8, 'signed', type.timezone ? 'zoned time point' : 'time point');
    case arrow.Type.Duration:
      return fixed(8, 'signed', 'duration');
    case arrow.Type.Interval:
      return fixed(INTERVAL_BYTES[unit]!);
    case arrow.Type.FixedSizeBinary:
      return fixed(type.byteWidth!, 'bytes', 'binary');
    case arrow.Type.Null:
      return info('null', 'none', 0, 'null');
    case arrow.Type.Utf8View:
      return bytes('view', 'utf8');
    case arrow.Type.BinaryView:
      return bytes('view', 'binary');
    case arrow.Type.List:
    case arrow.Type.Map:
      return nested('list');
    case arrow.Type.LargeList:
      return nested('large_list');
    case arrow.Type.FixedSizeList:
      return nested('fixed_list', type.listSize);
    case arrow.Type.Struct:
      return nested('struct');
    case arrow.Type.Union:
      return nested(type.mode === arrow.UnionMode.Sparse ? 'sparse_union' : 'dense_union');
    case arrow.Type.Dictionary: {
      const dictionary = typeInfo(type.dictionary!, level + 1);
      const { bitWidth = 0, isSigned } = type.indices!;
      if (!dictionary) return null;
      return { ...fixed(bitWidth / 8, isSigned === true ? 'signed' : 'unsigned', dictionary.comparesAs), dictionary };
    }
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
    case arrow.Type.Null:
      return new arrow.Null();
    case arrow.Type.Utf8View:
      return new arrow.Utf8View();
    case arrow.Type.BinaryView:
      return new arrow.BinaryView();
    case arrow.Type.List:
      return new arrow.List(ownFields(type)[0]!);
    case arrow.Type.LargeList:
      return new arrow.LargeList(ownFields(type)[0]!);
    case arrow.Type.FixedSizeList:
      return new arrow.FixedSizeList(type.listSize!, ownFields(type)[0]!);
    case arrow.Type.Map:
      return new arrow.Map_(ownFields(type)[0] as never, (type as { keysSorted?: boolean }).keysSorted === true);
    case arrow.Type.Struct:
      return new arrow.Struct(ownFields(type));
    case arrow.Type.Union:
      return new arrow.Union(type.mode as never, Int32Array.from(type.typeIds!), ownFields(type));
    case arrow.Type.Dictionary: {
      const { id, isOrdered } = type as { id?: number; isOrdered?: boolean };
      return new arrow.Dictionary(ownType(type.dictionary!), ownType(type.indices!) as never, id, isOrdered === true);
    }
    default:
      throw new WarpjoinError('ERR_INTERNAL', `Expected a supported type but received ${typeName(type)}.`);
  }
}

const ownFields = (type: ForeignType): arrow.Field[] =>
  type.children!.map(({ name, type, nullable, metadata }) => {
    return new arrow.Field(name, ownType(type), nullable !== false, metadata && new Map(metadata));
  });

function integerType(signed: boolean, bits: number): arrow.DataType {
  const types = signed
    ? { 8: arrow.Int8, 16: arrow.Int16, 32: arrow.Int32, 64: arrow.Int64 }
    : { 8: arrow.Uint8, 16: arrow.Uint16, 32: arrow.Uint32, 64: arrow.Uint64 };
  return new types[bits as 8 | 16 | 32 | 64]();
}

/** The name of a type, for messages. */
export function typeName(foreign: ForeignType, level = 0): string {
  if (level > MOST_LEVELS) return '...';
  const fields = fieldsOf(foreign);
  const within = fields.map((field) => typeName(field.type, level + 1));
  const named = fields.map(({ name }, index) => `${name}: ${within[index]}`).join(', ');
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
    case arrow.Type.List:
    case arrow.Type.LargeList:
      return `${foreign.typeId === arrow.Type.List ? '' : 'large_'}list<${within.join(', ')}>`;
    case arrow.Type.FixedSizeList:
      return `fixed_size_list<${within.join(', ')}>[${foreign.listSize}]`;
    case arrow.Type.Map: {
      const entries = fields[0]?.type;
      return `map<${
        entries
          ? fieldsOf(entries)
              .map((field) => typeName(field.type, level + 2))
              .join(', ')
          : ''
      }>`;
    }
    case arrow.Type.Struct:
      return `struct<${named}>`;
    case arrow.Type.Union:
      return `${foreign.mode === arrow.UnionMode.Sparse ? 'sparse' : 'dense'}_union<${named}>`;
    case arrow.Type.Dictionary:
      return `dictionary<${typeName(foreign.dictionary!, level + 1)}>`;
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

/** What values of a type count: seconds to the power of -unit, days, or numbers with so many decimals. */
function unitOf({ type }: TypeInfo): { decimals: number; days: boolean } {
  const { typeId, unit = 0, scale = 0 } = type;
  switch (typeId) {
    case arrow.Type.Decimal:
      return { decimals: scale, days: false };
    case arrow.Type.Date:
      return unit === arrow.DateUnit.DAY ? { decimals: 0, days: true } : { decimals: 3, days: false };
    case arrow.Type.Time:
    case arrow.Type.Timestamp:
    case arrow.Type.Duration:
      return { decimals: 3 * unit, days: false };
    default:
      return { decimals: 0, days: false };
  }
}

/** What the values of both columns are multiplied by, so that equal ones are equal numbers. */
export type KeyFactors = Record<Side, KeyFactor>;

/**
 * Throws unless both columns can be keys and compare; gives what brings their values to one unit.
 *
 * Compared are, by value: integers and decimals of any width and scale; floats of any width; text in any layout; binary in any
 * layout, and of fixed size; times of day; durations; dates and timestamps without a time zone, where a date is its midnight;
 * timestamps with a time zone, which are instants, whatever the zone; columns of the null type with any other. A dictionary
 * compares as its values do.
 */
export function checkComparable(left: KeyColumn, right: KeyColumn): KeyFactors {
  checkKey(left);
  checkKey(right);
  const [one, other] = [valuesOf(left.info), valuesOf(right.info)];
  if (one.comparesAs !== other.comparesAs && one.comparesAs !== 'null' && other.comparesAs !== 'null') {
    throw new WarpjoinError(
      'ERR_KEY_TYPE',
      `Key columns ${left.label} (${typeName(left.info.type)}) and ${right.label} (${typeName(right.info.type)}) don't compare: ` +
        'expected the same kind of values, such as two numbers that are integers or decimals, two floats, two texts, or two dates ' +
        'or timestamps, of which none or both have a time zone. Cast one of them.',
    );
  }
  const [a, b] = [unitOf(one), unitOf(other)];
  const days = a.days && b.days;
  const factor = (unit: typeof a): KeyFactor => ({
    pow10: Math.max(a.decimals, b.decimals) - unit.decimals,
    times: unit.days && !days ? 86400 : 1,
  });
  if (one.comparesAs === 'null' || other.comparesAs === 'null') return { left: NO_FACTOR, right: NO_FACTOR };
  return { left: factor(a), right: factor(b) };
}

export const NO_FACTOR: KeyFactor = { pow10: 0, times: 1 };

/** The type of a column's values, which a dictionary has. */
export const valuesOf = (info: TypeInfo): TypeInfo => (info.dictionary ? valuesOf(info.dictionary) : info);
