/**
 * What a CSV column holds, and typed builders for it. A value counts as a number only if writing the number gives the
 * text's meaning back: "007" and integers beyond 64 bits stay text.
 */
import { Bool, type Data, DateDay, Float64, Int64, makeData, TimestampMicrosecond, Utf8 } from 'apache-arrow';

export type CsvType = 'empty' | 'bool' | 'int64' | 'float64' | 'date' | 'timestamp' | 'timestamptz' | 'utf8';

const integer = /^[+-]?(0|[1-9]\d{0,18})$/;
const float = /^[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/;
const floatWord = /^([+-]?(inf|Infinity)|NaN|nan)$/;
const bool = /^(true|false|True|False|TRUE|FALSE)$/;
const date = /^\d{4}-\d\d-\d\d$/;
const timestamp = /^(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:?\d\d)?$/;

const daysInMonth = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Days since 1970-01-01, or NaN where there is no such day. `text` starts with dddd-dd-dd. */
function dayOf(text: string): number {
  const year = Number(text.slice(0, 4));
  const month = Number(text.slice(5, 7));
  const day = Number(text.slice(8, 10));
  if (month < 1 || month > 12) return Number.NaN;
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  if (day < 1 || day > daysInMonth[month - 1]! + (month === 2 && leap ? 1 : 0)) return Number.NaN;
  const midnight = new Date(0);
  return midnight.setUTCFullYear(year, month - 1, day) / 86400000; // Date.UTC reads years below 100 as 19xx
}

/** Microseconds since 1970-01-01 (UTC where the text has an offset), or null. */
function microsecondsOf(match: RegExpExecArray): bigint | null {
  const day = dayOf(match[1]!);
  const [hours, minutes, seconds] = [Number(match[2]), Number(match[3]), Number(match[4] ?? 0)];
  if (Number.isNaN(day) || hours > 23 || minutes > 59 || seconds > 59) return null;
  let time = day * 86400 + hours * 3600 + minutes * 60 + seconds;
  const zone = match[6];
  if (zone && zone !== 'Z') {
    const offset = Number(zone.slice(1, 3)) * 3600 + Number(zone.slice(-2)) * 60;
    time -= zone[0] === '-' ? -offset : offset;
  }
  return BigInt(time) * 1_000_000n + BigInt((match[5] ?? '').padEnd(6, '0'));
}

const isInt64 = (text: string) => {
  if (!integer.test(text) || text === '-0') return false;
  if (text.length < 19) return true;
  const value = BigInt(text);
  return value === BigInt.asIntN(64, value);
};

/** The narrowest type that one value fits; never 'empty'. */
export function csvTypeOf(text: string): CsvType {
  const first = text.charCodeAt(0);
  const maybeNumber = (first >= 48 && first <= 57) || first === 43 || first === 45 || first === 46;
  if (maybeNumber) {
    if (isInt64(text)) return 'int64';
    if (float.test(text) && (/[.eE]/.test(text) || text === '-0')) return 'float64';
    if (date.test(text)) return Number.isNaN(dayOf(text)) ? 'utf8' : 'date';
    const match = timestamp.exec(text);
    if (match && microsecondsOf(match) !== null) return match[6] ? 'timestamptz' : 'timestamp';
  }
  if (bool.test(text)) return 'bool';
  return floatWord.test(text) ? 'float64' : 'utf8';
}

/** The type that holds both. */
export function widerCsvType(a: CsvType, b: CsvType): CsvType {
  if (a === b || b === 'empty') return a;
  if (a === 'empty') return b;
  const pair = `${a} ${b}`;
  if (pair === 'int64 float64' || pair === 'float64 int64') return 'float64';
  if (pair === 'date timestamp' || pair === 'timestamp date') return 'timestamp';
  return 'utf8';
}

/** Collects a column's values; `add` answers false where the text does not fit the type. */
export abstract class ColumnBuilder {
  protected length = 0;
  protected capacity = 1024;
  private valid = new Uint8Array(this.capacity / 8);
  private nulls = 0;

  /** A null adds a row with any value. */
  add(text: string | null): boolean {
    if (this.length === this.capacity) {
      this.capacity *= 2;
      this.valid = grown(this.valid, this.capacity / 8);
      this.grow();
    }
    if (text === null) {
      this.nulls++;
      this.putNull();
    } else {
      if (!this.put(text)) return false;
      this.valid[this.length >> 3]! |= 1 << (this.length & 7);
    }
    this.length++;
    return true;
  }

  finish(): Data {
    return this.data({ length: this.length, nullCount: this.nulls, nullBitmap: this.nulls > 0 ? this.valid : null });
  }

  protected putNull(): void {}
  protected abstract put(text: string): boolean;
  protected abstract grow(): void;
  protected abstract data(common: { length: number; nullCount: number; nullBitmap: Uint8Array | null }): Data;
}

function grown<A extends Uint8Array | Int32Array | BigInt64Array | Float64Array>(array: A, length: number): A {
  const larger = new (array.constructor as new (length: number) => A)(length);
  larger.set(array as never);
  return larger;
}

class BoolColumn extends ColumnBuilder {
  private bits = new Uint8Array(this.capacity / 8);
  protected put(text: string) {
    if (!bool.test(text)) return false;
    if (text.charCodeAt(0) === 116 || text.charCodeAt(0) === 84) this.bits[this.length >> 3]! |= 1 << (this.length & 7);
    return true;
  }
  protected grow() {
    this.bits = grown(this.bits, this.capacity / 8);
  }
  protected data(common: object) {
    return makeData({ type: new Bool(), data: this.bits, ...common });
  }
}

class IntColumn extends ColumnBuilder {
  private values = new BigInt64Array(this.capacity);
  protected put(text: string) {
    if (text.length <= 15) {
      const value = Number(text); // exact below 2^53
      if (!integer.test(text) || Object.is(value, -0)) return false;
      this.values[this.length] = BigInt(value);
    } else {
      if (!isInt64(text)) return false;
      this.values[this.length] = BigInt(text);
    }
    return true;
  }
  protected grow() {
    this.values = grown(this.values, this.capacity);
  }
  protected data(common: object) {
    return makeData({ type: new Int64(), data: this.values.subarray(0, this.length), ...common });
  }
}

class FloatColumn extends ColumnBuilder {
  private values = new Float64Array(this.capacity);
  protected put(text: string) {
    if (float.test(text)) {
      if (!/[.eE]/.test(text) && text !== '-0' && !isInt64(text)) return false;
      this.values[this.length] = Number(text);
    } else {
      if (!floatWord.test(text)) return false;
      this.values[this.length] = Number(text.replace(/^nan$/, 'NaN').replace(/inf$/, 'Infinity'));
    }
    return true;
  }
  protected grow() {
    this.values = grown(this.values, this.capacity);
  }
  protected data(common: object) {
    return makeData({ type: new Float64(), data: this.values.subarray(0, this.length), ...common });
  }
}

class DateColumn extends ColumnBuilder {
  private values = new Int32Array(this.capacity);
  protected put(text: string) {
    const day = date.test(text) ? dayOf(text) : Number.NaN;
    this.values[this.length] = day;
    return !Number.isNaN(day);
  }
  protected grow() {
    this.values = grown(this.values, this.capacity);
  }
  protected data(common: object) {
    return makeData({ type: new DateDay(), data: this.values.subarray(0, this.length), ...common });
  }
}

class TimestampColumn extends ColumnBuilder {
  private values = new BigInt64Array(this.capacity);
  constructor(private readonly zoned: boolean) {
    super();
  }
  protected put(text: string) {
    const match = timestamp.exec(text);
    if (match) {
      if ((match[6] !== undefined) !== this.zoned) return false;
      const value = microsecondsOf(match);
      if (value === null) return false;
      this.values[this.length] = value;
      return true;
    }
    const day = !this.zoned && date.test(text) ? dayOf(text) : Number.NaN;
    if (Number.isNaN(day)) return false;
    this.values[this.length] = BigInt(day) * 86_400_000_000n;
    return true;
  }
  protected grow() {
    this.values = grown(this.values, this.capacity);
  }
  protected data(common: object) {
    const type = new TimestampMicrosecond(this.zoned ? 'UTC' : null);
    return makeData({ type, data: this.values.subarray(0, this.length), ...common });
  }
}

const utf8 = new TextEncoder();

class TextColumn extends ColumnBuilder {
  private offsets = new Int32Array(this.capacity + 1);
  private bytes = new Uint8Array(1 << 14);
  private end = 0;
  protected put(text: string) {
    const most = this.end + text.length * 3;
    if (most > this.bytes.length) this.bytes = grown(this.bytes, Math.max(most, this.bytes.length * 2));
    const { bytes } = this;
    let at = this.end;
    let i = 0;
    for (; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 127) break;
      bytes[at++] = unit;
    }
    if (i < text.length) at += utf8.encodeInto(text.slice(i), bytes.subarray(at)).written;
    this.end = at;
    this.offsets[this.length + 1] = at;
    return true;
  }
  protected override putNull() {
    this.offsets[this.length + 1] = this.end;
  }
  protected grow() {
    this.offsets = grown(this.offsets, this.capacity + 1);
  }
  protected data(common: object) {
    const valueOffsets = this.offsets.subarray(0, this.length + 1);
    return makeData({ type: new Utf8(), valueOffsets, data: this.bytes.subarray(0, this.end), ...common });
  }
}

/** A column in which no row has a value becomes text. */
export function columnBuilder(type: CsvType): ColumnBuilder {
  switch (type) {
    case 'bool':
      return new BoolColumn();
    case 'int64':
      return new IntColumn();
    case 'float64':
      return new FloatColumn();
    case 'date':
      return new DateColumn();
    case 'timestamp':
    case 'timestamptz':
      return new TimestampColumn(type === 'timestamptz');
    default:
      return new TextColumn();
  }
}
