/** Columns as columns of another type, exactly: a value that the type does not hold is an error. */
import * as arrow from 'apache-arrow';
import { batchOver } from '../columns/library.js';
import { type ForeignType, typeName } from '../columns/types.js';
import { list, quote, show } from '../suggest.js';
import { fileError } from './file-errors.js';
import { textOf } from './text.js';

/** Names of types that columns are cast to; decimals are named with their digits, "decimal(10,2)". */
export const CAST_TYPES = ['int32', 'int64', 'float32', 'float64', 'bool', 'utf8', 'date', 'timestamp'] as const;
export type CastType = (typeof CAST_TYPES)[number] | `decimal(${number},${number})`;
/** Types by the names of the columns. */
export type ColumnCasts = Readonly<Record<string, CastType>>;

const mostDigits = 38; // of a decimal of 128 bits

const decimalParts = (text: string) =>
  /^decimal\((\d{1,2}),(\d{1,2})\)$/.exec(text)?.slice(1).map(Number) as [number, number] | undefined;

/** The type that a text names, if it names one: `decimal(10, 2)` may have a space. */
export function castTypeOf(text: string): CastType | undefined {
  const name = text.trim().toLowerCase().replace(/\s+/g, '');
  const decimal = decimalParts(name);
  if (decimal) return decimal[0] >= 1 && decimal[0] <= mostDigits && decimal[1] <= decimal[0] ? (name as CastType) : undefined;
  return CAST_TYPES.find((type) => type === name);
}

/** Takes the text of a value; false where the type does not hold it. */
interface Builder {
  put(row: number, text: string): boolean;
  finish(common: { length: number; nullCount: number; nullBitmap: Uint8Array | null }): arrow.Data;
}

const rowsPerBatch = 1 << 20; // the text of a column stays below 2^31 bytes for values of up to 2 KB

/** A table with some columns of other types. `name` is what messages call it. Throws ERR_FILE with column, row and value. */
export function castColumns(table: arrow.Table, casts: ColumnCasts, name: string): arrow.Table {
  const entries = Object.entries(casts).filter(([column]) => table.schema.fields.some((field) => field.name === column));
  if (entries.length === 0) return table;
  const batches = table.batches.flatMap((batch) => {
    const parts: arrow.RecordBatch[] = [];
    for (let row = 0; row < batch.numRows; row += rowsPerBatch) parts.push(batch.slice(row, row + rowsPerBatch));
    return parts;
  });
  const children = batches.map((batch) => [...(batch.data.children as arrow.Data[])]);
  const fields = [...table.schema.fields];
  for (const [column, type] of entries) {
    const index = fields.findIndex((field) => field.name === column);
    if (isAlready(fields[index]!.type, type)) continue;
    const builders = builderFactory(type);
    let row = 0;
    for (const chunks of children) {
      chunks[index] = castChunk(chunks[index]!, builders, (value, at) => {
        throw fileError(name, `column ${quote(column)}, row ${row + at}: ${show(value)} is no ${type}`);
      });
      row += chunks[index]!.length;
    }
    const made = children[0]?.[index]?.type ?? builders().finish({ length: 0, nullCount: 0, nullBitmap: null }).type;
    fields[index] = new arrow.Field(column, made, fields[index]!.nullable, fields[index]!.metadata);
  }
  const schema = new arrow.Schema(fields, table.schema.metadata);
  return new arrow.Table(
    schema,
    children.map((columns, at) => batchOver(schema, batches[at]!.numRows, columns)),
  );
}

/** Whether a column has the type already; timestamps of microseconds keep their time zone. */
function isAlready(type: arrow.DataType, name: CastType): boolean {
  const { type: wanted } = builderFactory(name)().finish({ length: 0, nullCount: 0, nullBitmap: null });
  const isMicros = arrow.DataType.isTimestamp(type) && type.unit === arrow.TimeUnit.MICROSECOND;
  return name === 'timestamp' ? isMicros : String(type) === String(wanted);
}

function castChunk(
  data: arrow.Data,
  builders: (length: number) => Builder,
  refuse: (value: string, row: number) => never,
): arrow.Data {
  const text = textOf(data);
  if (!text) refuse(`a value of type ${typeName(data.type as unknown as ForeignType)}`, 0);
  const { length } = data;
  const builder = builders(length);
  const valid = new Uint8Array((length + 7) >> 3);
  let nullCount = 0;
  for (let row = 0; row < length; row++) {
    const value = text!(row);
    if (value === null) nullCount++;
    else if (builder.put(row, value)) valid[row >> 3]! |= 1 << (row & 7);
    else refuse(value, row);
  }
  return builder.finish({ length, nullCount, nullBitmap: nullCount > 0 ? valid : null });
}

/** Makes the builders of a column's chunks: all of them have one type. */
function builderFactory(name: CastType): (length?: number) => Builder {
  const decimal = decimalParts(name);
  if (decimal) return (length = 0) => decimalBuilder(length, ...decimal);
  switch (name) {
    case 'int32':
      return (length = 0) => integerBuilder(new Int32Array(length), new arrow.Int32(), 32, Number);
    case 'int64':
      return (length = 0) => integerBuilder(new BigInt64Array(length), new arrow.Int64(), 64, (value) => value);
    case 'float32':
      return (length = 0) => floatBuilder(new Float32Array(length), new arrow.Float32(), Math.fround);
    case 'float64':
      return (length = 0) => floatBuilder(new Float64Array(length), new arrow.Float64(), (value) => value);
    case 'bool':
      return (length = 0) => boolBuilder(length);
    case 'date':
      return (length = 0) => dateBuilder(length);
    case 'timestamp': {
      const zone: Zone = { isSet: undefined };
      return (length = 0) => timestampBuilder(length, zone);
    }
    default:
      return (length = 0) => textBuilder(length);
  }
}

const number = /^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?$/;

/** A decimal number as a whole number of units of 10^-scale; undefined where it is none, or needs more digits behind the point. */
function unitsOf(text: string, scale: number): bigint | undefined {
  const match = number.exec(text);
  if (!match || `${match[2]}${match[3] ?? ''}` === '') return undefined;
  const digits = BigInt(`${match[2]}${match[3] ?? ''}`);
  const shift = scale - (match[3]?.length ?? 0) + Number(match[4] ?? 0);
  const factor = 10n ** BigInt(Math.abs(shift));
  if (shift < 0 && digits % factor !== 0n) return undefined;
  const units = shift >= 0 ? digits * factor : digits / factor;
  return match[1] === '-' ? -units : units;
}

function integerBuilder<A extends Int32Array | BigInt64Array>(
  values: A,
  type: arrow.DataType,
  bits: number,
  convert: (value: bigint) => A[number],
): Builder {
  return {
    put(row, text) {
      const value = unitsOf(text, 0);
      if (value === undefined || BigInt.asIntN(bits, value) !== value) return false;
      values[row] = convert(value);
      return true;
    },
    finish: (common) => arrow.makeData({ type, data: values, ...common } as never),
  };
}

/** Whole numbers must be exact; other numbers become the nearest float. */
function floatBuilder(values: Float32Array | Float64Array, type: arrow.DataType, round: (value: number) => number): Builder {
  const words: Readonly<Record<string, number>> = { nan: Number.NaN, inf: Infinity, infinity: Infinity };
  return {
    put(row, text) {
      const [, sign, word] = /^([+-]?)([a-z]+)$/i.exec(text) ?? [];
      if (word !== undefined) {
        const value = words[word.toLowerCase()];
        if (value === undefined) return false;
        values[row] = sign === '-' ? -value : value;
        return true;
      }
      if (unitsOf(text, 400) === undefined) return false; // no number
      const value = round(Number(text));
      if (!Number.isFinite(value)) return false;
      if (/^[+-]?\d+$/.test(text) && BigInt(value) !== BigInt(text.replace('+', ''))) return false;
      values[row] = value;
      return true;
    },
    finish: (common) => arrow.makeData({ type, data: values, ...common } as never),
  };
}

function boolBuilder(length: number): Builder {
  const bits = new Uint8Array((length + 7) >> 3);
  return {
    put(row, text) {
      if (!/^(true|false|1|0)$/i.test(text)) return false;
      if (text === '1' || text[0]!.toLowerCase() === 't') bits[row >> 3]! |= 1 << (row & 7);
      return true;
    },
    finish: (common) => arrow.makeData({ type: new arrow.Bool(), data: bits, ...common }),
  };
}

const dateTime = /^(-?\d{4,6})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:?\d\d)?)?$/;
const MICROS_A_DAY = 86_400_000_000n;

/** Microseconds since 1970-01-01, and whether the text has an offset from UTC; undefined where it is no exact time. */
function microsOf(text: string): { micros: bigint; zoned: boolean } | undefined {
  const match = dateTime.exec(text);
  if (!match) return undefined;
  const [year, month, day, hours, minutes, seconds] = match.slice(1, 7).map((part) => Number(part ?? 0)) as number[];
  const date = new Date(0);
  date.setUTCFullYear(year!, month! - 1, day);
  const exists = date.getUTCMonth() === month! - 1 && date.getUTCDate() === day;
  if (!exists || hours! > 23 || minutes! > 59 || seconds! > 59) return undefined;
  const fraction = match[7] ?? '';
  if (/[1-9]/.test(fraction.slice(6))) return undefined;
  const zone = match[8];
  const offset = zone === undefined || zone === 'Z' ? 0 : Number(zone.slice(1, 3)) * 60 + Number(zone.slice(-2));
  const offsetMinutes = zone?.[0] === '-' ? -offset : offset;
  const second = date.getTime() / 1000 + hours! * 3600 + (minutes! - offsetMinutes) * 60 + seconds!;
  return { micros: BigInt(second) * 1_000_000n + BigInt(fraction.slice(0, 6).padEnd(6, '0')), zoned: zone !== undefined };
}

function dateBuilder(length: number): Builder {
  const days = new Int32Array(length);
  return {
    put(row, text) {
      const time = microsOf(text);
      if (!time || time.micros % MICROS_A_DAY !== 0n) return false;
      days[row] = Number(time.micros / MICROS_A_DAY);
      return true;
    },
    finish: (common) => arrow.makeData({ type: new arrow.DateDay(), data: days, ...common }),
  };
}

/** Whether the times of a column have an offset from UTC: all of them, or none. */
interface Zone {
  isSet: boolean | undefined;
}

function timestampBuilder(length: number, zone: Zone): Builder {
  const micros = new BigInt64Array(length);
  return {
    put(row, text) {
      const time = microsOf(text);
      if (!time || (zone.isSet ?? time.zoned) !== time.zoned) return false;
      zone.isSet = time.zoned;
      micros[row] = time.micros;
      return BigInt.asIntN(64, time.micros) === time.micros;
    },
    finish: (common) =>
      arrow.makeData({ type: new arrow.TimestampMicrosecond(zone.isSet ? 'UTC' : null), data: micros, ...common }),
  };
}

function decimalBuilder(length: number, precision: number, scale: number): Builder {
  const words = new BigInt64Array(length * 2);
  const most = 10n ** BigInt(precision);
  return {
    put(row, text) {
      const units = unitsOf(text, scale);
      if (units === undefined || units >= most || units <= -most) return false;
      words[row * 2] = BigInt.asIntN(64, units);
      words[row * 2 + 1] = units >> 64n;
      return true;
    },
    finish(common) {
      return arrow.makeData({ type: new arrow.Decimal(scale, precision), data: new Uint32Array(words.buffer), ...common });
    },
  };
}

function textBuilder(length: number): Builder {
  const utf8 = new TextEncoder();
  const texts: string[] = new Array(length).fill('');
  return {
    put(row, text) {
      texts[row] = text;
      return true;
    },
    finish(common) {
      const parts = texts.map((text) => utf8.encode(text));
      const valueOffsets = new Int32Array(length + 1);
      for (const [row, part] of parts.entries()) valueOffsets[row + 1] = valueOffsets[row]! + part.byteLength;
      const data = new Uint8Array(valueOffsets[length]!);
      for (const [row, part] of parts.entries()) data.set(part, valueOffsets[row]);
      return arrow.makeData({ type: new arrow.Utf8(), valueOffsets, data, ...common });
    },
  };
}

/** What `castTypeOf` takes, for messages. */
export const CAST_WORDS = `one of ${list(CAST_TYPES)}, or "decimal(10,2)" with its digits`;
