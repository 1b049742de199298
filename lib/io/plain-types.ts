/** Arrow types of plain JavaScript values, and the values as apache-arrow's builders take them. */
import * as arrow from 'apache-arrow';
import { type ForeignType, MOST_LEVELS, typeName } from '../columns/types.js';
import { WarpjoinError } from '../errors.js';
import { show } from '../suggest.js';

/** Kinds of values: a column has one, or several of numbers. */
const numberKinds = { int32: 'whole numbers', int53: 'whole numbers', float: 'numbers', bigint: 'bigints' } as const;
const kinds = {
  ...numberKinds,
  bool: 'booleans',
  text: 'strings',
  time: 'Dates',
  bytes: 'Uint8Arrays',
  list: 'arrays',
  struct: 'objects',
} as const;
type Kind = keyof typeof kinds;

const invalid = (path: string, problem: string) => new WarpjoinError('ERR_INVALID_TABLE', `The column ${path} ${problem}`);
const isNull = (value: unknown): value is null | undefined => value === null || value === undefined;

function kindOf(value: unknown): Kind | null {
  switch (typeof value) {
    case 'boolean':
      return 'bool';
    case 'number':
      if (!Number.isSafeInteger(value) || Object.is(value, -0)) return 'float';
      return value === (value | 0) ? 'int32' : 'int53';
    case 'bigint':
      return 'bigint';
    case 'string':
      return 'text';
    case 'object':
      if (value === null) return null;
      if (value instanceof Date) return 'time';
      if (value instanceof Uint8Array) return 'bytes';
      return Array.isArray(value) ? 'list' : 'struct';
    default:
      return null;
  }
}

type Values<T = unknown> = () => Iterable<T>;

/** The type of a column of such values, as fromColumns() says. `path` is what messages call the column. */
export function inferType(values: Values, path: string): arrow.DataType {
  for (const value of values()) {
    if (hasMoreLevels(value, MOST_LEVELS)) throw invalid(path, `has arrays or objects of more than ${MOST_LEVELS} levels.`);
  }
  return typeOf(values, path);
}

/** Depth first, so that a value that holds itself, twice even, ends it soon. */
function hasMoreLevels(value: unknown, levels: number): boolean {
  const kind = kindOf(value);
  if (kind !== 'list' && kind !== 'struct') return false;
  return levels === 0 || Object.values(value as object).some((part) => hasMoreLevels(part, levels - 1));
}

function typeOf(values: Values, path: string): arrow.DataType {
  const firstRows = new Map<Kind, number>();
  let row = 0;
  for (const value of values()) {
    if (!isNull(value)) {
      const kind = kindOf(value);
      if (!kind) throw invalid(path, `has ${show(value)} in row ${row}; no Arrow type holds that.`);
      if (!firstRows.has(kind)) firstRows.set(kind, row);
    }
    row++;
  }
  const [first, ...others] = firstRows.keys();
  if (!first) return new arrow.Null();
  const has = (kind: Kind) => firstRows.has(kind);
  const mixes = (a: Kind, b: Kind) => {
    const found = [a, b].map((kind) => `${kinds[kind]} (row ${firstRows.get(kind)})`);
    return invalid(path, `has ${found.join(' and ')}, and no one type for both. Convert them, or say the type with types.`);
  };
  const other = others.find((kind) => !(kind in numberKinds && first in numberKinds));
  if (other) throw mixes(first, other);
  if (has('bigint') && has('float')) throw mixes('bigint', 'float');
  if (has('bigint')) return bigintType(values, path);
  if (has('float')) return new arrow.Float64();
  if (has('int53')) return new arrow.Int64();
  switch (first) {
    case 'bool':
      return new arrow.Bool();
    case 'text':
      return new arrow.Utf8();
    case 'time':
      return new arrow.TimestampMillisecond('UTC');
    case 'bytes':
      return new arrow.Binary();
    case 'list':
      return new arrow.List(fieldOf('item', elementsOf(values as Values<readonly unknown[] | null>), `${path}[]`));
    case 'struct':
      return structType(values as Values<Readonly<Record<string, unknown>> | null>, path);
    default:
      return new arrow.Int32();
  }
}

function bigintType(values: Values, path: string): arrow.DataType {
  let [least, most] = [0n, 0n];
  for (const value of values()) {
    if (isNull(value)) continue;
    const number = BigInt(value as number | bigint);
    if (number < least) least = number;
    if (number > most) most = number;
  }
  if (least >= -(2n ** 63n) && most < 2n ** 63n) return new arrow.Int64();
  if (least === 0n && most < 2n ** 64n) return new arrow.Uint64();
  throw invalid(path, `has bigints from ${least} to ${most}, more than 64 bits hold. A decimal may: say it with types.`);
}

const fieldOf = (name: string, values: Values, path: string) => new arrow.Field(name, typeOf(values, path), true);

const elementsOf = (lists: Values<readonly unknown[] | null | undefined>): Values =>
  function* () {
    for (const list of lists()) if (!isNull(list)) yield* list;
  };

function structType(values: Values<Readonly<Record<string, unknown>> | null | undefined>, path: string): arrow.DataType {
  const names = new Set<string>();
  for (const value of values()) if (!isNull(value)) for (const name of Object.keys(value)) names.add(name);
  const valuesAt = (name: string): Values =>
    function* () {
      for (const value of values()) if (!isNull(value)) yield value[name];
    };
  return new arrow.Struct([...names].map((name) => fieldOf(name, valuesAt(name), `${path}.${name}`)));
}

/** A value as the builder of a column takes it; `row` is for messages. */
type Converter = (value: unknown, row: number) => unknown;

/**
 * Checks values against a type and makes them what its builder takes; null and undefined become null. Throws ERR_INVALID_TABLE for
 * a value that the type does not hold. Values of types that plain JavaScript has no values of go to the builder as they are.
 */
export function converterTo(type: arrow.DataType, path: string): Converter {
  const convert = valueConverter(type, path);
  return (value, row) => (isNull(value) ? null : convert(value, row));
}

function valueConverter(type: arrow.DataType, path: string): Converter {
  const refuse = (value: unknown, row: number) =>
    invalid(path, `has ${show(value)} in row ${row}, which its type ${typeName(type as unknown as ForeignType)} does not hold.`);
  const only =
    (fits: (value: unknown) => boolean): Converter =>
    (value, row) => {
      if (!fits(value)) throw refuse(value, row);
      return value;
    };
  if (arrow.DataType.isDictionary(type)) return valueConverter(type.dictionary, path);
  if (arrow.DataType.isInt(type)) return integerConverter(type, refuse);
  if (arrow.DataType.isFloat(type)) return only((value) => typeof value === 'number');
  if (arrow.DataType.isBool(type)) return only((value) => typeof value === 'boolean');
  if (arrow.DataType.isUtf8(type) || arrow.DataType.isLargeUtf8(type)) return only((value) => typeof value === 'string');
  if (arrow.DataType.isBinary(type) || arrow.DataType.isLargeBinary(type)) return only((value) => value instanceof Uint8Array);
  if (arrow.DataType.isDecimal(type)) return decimalConverter(type, refuse);
  if (arrow.DataType.isTimestamp(type) || arrow.DataType.isDate(type)) {
    return only((value) => value instanceof Date && !Number.isNaN(value.getTime()));
  }
  if (arrow.DataType.isList(type)) {
    const convert = converterTo(type.children[0]!.type, `${path}[]`);
    return (value, row) => {
      if (!Array.isArray(value)) throw refuse(value, row);
      return value.map((element) => convert(element, row));
    };
  }
  if (arrow.DataType.isStruct(type)) {
    const fields = type.children.map(({ name, type }) => ({ name, convert: converterTo(type, `${path}.${name}`) }));
    return (value, row) => {
      if (kindOf(value) !== 'struct') throw refuse(value, row);
      const of = value as Readonly<Record<string, unknown>>;
      return Object.fromEntries(fields.map(({ name, convert }) => [name, convert(of[name], row)]));
    };
  }
  return (value) => value;
}

type Refusal = (value: unknown, row: number) => WarpjoinError;

function integerConverter({ bitWidth, isSigned }: arrow.Int, refuse: Refusal): Converter {
  const isWide = bitWidth === 64;
  const fits = isSigned ? BigInt.asIntN : BigInt.asUintN;
  return (value, row) => {
    if (typeof value !== 'bigint' && !Number.isSafeInteger(value)) throw refuse(value, row);
    const number = BigInt(value as number | bigint);
    if (fits(bitWidth, number) !== number) throw refuse(value, row);
    return isWide ? number : Number(number);
  };
}

const decimal = /^([+-]?)(\d*)(?:\.(\d*))?$/;

/** Decimals from texts, such as "12.50", from whole numbers and bigints. */
function decimalConverter({ bitWidth, precision, scale }: arrow.Decimal, refuse: Refusal): Converter {
  return (value, row) => {
    const isExact = typeof value === 'string' || typeof value === 'bigint' || Number.isSafeInteger(value);
    const [, sign, whole = '', fraction = ''] = (isExact && decimal.exec(String(value))) || [];
    if (whole + fraction === '') throw refuse(value, row);
    const digits = BigInt(whole + fraction);
    const shift = scale - fraction.length;
    const factor = 10n ** BigInt(Math.abs(shift));
    const unscaled = shift >= 0 ? digits * factor : digits / factor;
    if ((shift < 0 && unscaled * factor !== digits) || unscaled >= 10n ** BigInt(precision)) throw refuse(value, row);
    let rest = BigInt.asUintN(bitWidth, sign === '-' ? -unscaled : unscaled);
    return Uint32Array.from({ length: bitWidth / 32 }, () => {
      const word = Number(rest & 0xffffffffn);
      rest >>= 32n;
      return word;
    });
  };
}
