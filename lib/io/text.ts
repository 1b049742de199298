/** Arrow values as text, exactly: what CSV files and printed tables show. */
import { type Data, DataType, Precision, TimeUnit, Vector } from 'apache-arrow';

/** The text of row i of a chunk; null where the value is null. */
export type TextOf = (row: number) => string | null;

const unitsPerSecond: Record<TimeUnit, bigint> = {
  [TimeUnit.SECOND]: 1n,
  [TimeUnit.MILLISECOND]: 1000n,
  [TimeUnit.MICROSECOND]: 1_000_000n,
  [TimeUnit.NANOSECOND]: 1_000_000_000n,
};
const fractionDigits = (unit: TimeUnit) => unitsPerSecond[unit].toString().length - 1;

const two = (n: number) => (n < 10 ? `0${n}` : `${n}`);

/** Proleptic Gregorian date of a day since 1970-01-01, for any day: Date ends at year 275760. */
function dateText(day: bigint): string {
  // Days from civil, Howard Hinnant; eras are 400 years of 146097 days.
  const z = day + 719468n;
  const era = (z >= 0n ? z : z - 146096n) / 146097n;
  const dayOfEra = Number(z - era * 146097n);
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1460) + Math.floor(dayOfEra / 36524) - Math.floor(dayOfEra / 146096)) / 365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const shifted = Math.floor((5 * dayOfYear + 2) / 153);
  const month = shifted < 10 ? shifted + 3 : shifted - 9;
  const year = era * 400n + BigInt(yearOfEra) + (month <= 2 ? 1n : 0n);
  const digits = (year < 0n ? -year : year).toString().padStart(4, '0');
  return `${year < 0n ? '-' : ''}${digits}-${two(month)}-${two(dayOfYear - Math.floor((153 * shifted + 2) / 5) + 1)}`;
}

function clockText(units: bigint, unit: TimeUnit): string {
  const perSecond = unitsPerSecond[unit];
  const seconds = Number(units / perSecond);
  const fraction = units % perSecond;
  const clock = `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return fraction === 0n ? clock : `${clock}.${fraction.toString().padStart(fractionDigits(unit), '0').replace(/0+$/, '')}`;
}

function timestampText(units: bigint, unit: TimeUnit, suffix: string): string {
  const perDay = 86400n * unitsPerSecond[unit];
  const clock = ((units % perDay) + perDay) % perDay;
  return `${dateText((units - clock) / perDay)} ${clockText(clock, unit)}${suffix}`;
}

function decimalText(words: Uint32Array, scale: number): string {
  let value = 0n;
  for (let i = words.length - 1; i >= 0; i--) value = (value << 32n) | BigInt(words[i]!);
  value = BigInt.asIntN(words.length * 32, value);
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, '0');
  const text = scale > 0 ? `${digits.slice(0, -scale)}.${digits.slice(-scale)}` : digits + '0'.repeat(-scale);
  return value < 0n ? `-${text}` : text;
}

/** The number with the fewest digits that is nearest to this float of 32 bits: 0.1, not 0.10000000149011612. */
export function shortestFloat32<T extends number | null>(value: T): T {
  if (value === null || !Number.isFinite(value)) return value;
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short as T;
  }
  return Number(value.toPrecision(9)) as T;
}

const isText = (type: DataType): boolean => DataType.isUtf8(type) || DataType.isLargeUtf8(type) || DataType.isUtf8View(type);

function valueText(data: Data): ((row: number) => string) | null {
  const type: DataType = data.type;
  // Raw values: Arrow's own getters round timestamps to milliseconds.
  const values = data.values as ArrayLike<number | bigint> & ArrayBufferView;
  if (DataType.isInt(type)) return (row) => String(values[row]);
  if (DataType.isDate(type)) {
    return type.unit === 0 ? (row) => dateText(BigInt(values[row]!)) : (row) => dateText(BigInt(values[row]!) / 86400000n);
  }
  if (DataType.isTimestamp(type)) {
    const suffix = type.timezone ? 'Z' : ''; // a zoned timestamp counts from the epoch in UTC
    return (row) => timestampText(BigInt(values[row]!), type.unit, suffix);
  }
  if (DataType.isTime(type)) return (row) => clockText(BigInt(values[row]!), type.unit);
  if (DataType.isDuration(type)) return (row) => String(values[row]);
  if (DataType.isDecimal(type)) {
    const width = type.bitWidth / 32;
    const words = new Uint32Array(values.buffer, values.byteOffset, values.byteLength / 4);
    return (row) => decimalText(words.subarray(row * width, (row + 1) * width), type.scale);
  }
  const vector = new Vector([data]);
  if (DataType.isFloat(type)) {
    if (type.precision === Precision.HALF) return (row) => String(vector.get(row));
    if (type.precision === Precision.SINGLE)
      return (row) => (Object.is(values[row], -0) ? '-0' : String(shortestFloat32(values[row] as number)));
    return (row) => (Object.is(values[row], -0) ? '-0' : String(values[row]));
  }
  if (isText(type) || DataType.isBool(type)) return (row) => String(vector.get(row));
  if (
    DataType.isBinary(type) ||
    DataType.isLargeBinary(type) ||
    DataType.isBinaryView(type) ||
    DataType.isFixedSizeBinary(type)
  ) {
    return (row) => Buffer.from(vector.get(row) as Uint8Array).toString('hex');
  }
  return null;
}

/** How to show a chunk's values, or null for types that have no flat text (lists, structs). */
export function textOf(data: Data): TextOf | null {
  const type: DataType = data.type;
  if (DataType.isNull(type)) return () => null;
  if (DataType.isDictionary(type)) return dictionaryText(data, textOf);
  const text = valueText(data);
  return text && withNulls(data, text);
}

function withNulls(data: Data, text: (row: number) => string): TextOf {
  return data.nullCount === 0 ? text : (row) => (data.getValid(row) ? text(row) : null);
}

function dictionaryText(data: Data, of: (chunk: Data) => TextOf | null): TextOf | null {
  const dictionary = data.dictionary as Vector | undefined;
  if (dictionary?.data.some((chunk) => !of(chunk))) return null;
  return dictionaryReader(data, (chunk) => of(chunk)!);
}

/** How to read the values of a chunk of indices, where `of` reads those of a chunk of their dictionary; null for a null. */
export function dictionaryReader<T>(data: Data, of: (chunk: Data) => (row: number) => T): (row: number) => T | null {
  const dictionary = data.dictionary as Vector | undefined;
  const chunks = (dictionary?.data ?? []).map((chunk) => ({ length: chunk.length, read: of(chunk) }));
  const indices = data.values as ArrayLike<number | bigint>;
  return (row) => {
    if (!data.getValid(row)) return null;
    let index = Number(indices[row]);
    for (const { length, read } of chunks) {
      if (index < length) return read(index);
      index -= length;
    }
    return null;
  };
}

/** How to show the values of any chunk: lists as [1, 2], structs as {a: 1}, maps as {"a": 1}, unions as what is in them. */
export function shownText(data: Data): TextOf {
  return textOf(data) ?? nestedText(data) ?? ((row) => String(new Vector([data]).get(row)));
}

/** How to show the values within those of a chunk: texts in quotes. */
function childTexts({ children }: Data): ((row: number) => string)[] {
  return (children as Data[]).map((child) => {
    const text = shownText(child);
    const type: DataType = child.type;
    const quoted = isText(DataType.isDictionary(type) ? type.dictionary : type);
    return (row) => {
      const shown = text(row);
      return shown === null ? 'null' : quoted ? JSON.stringify(shown) : shown;
    };
  });
}

function nestedText(data: Data): TextOf | null {
  const type: DataType = data.type;
  if (DataType.isDictionary(type)) return dictionaryText(data, shownText);
  const children = childTexts(data);
  const [first] = children;
  const offsets = data.valueOffsets as ArrayLike<number | bigint> | undefined;
  const rows = (begin: number, end: number, of: (row: number) => string) =>
    Array.from({ length: end - begin }, (_, at) => of(begin + at)).join(', ');
  const bounds = (row: number): [number, number] => [Number(offsets![row]), Number(offsets![row + 1])];
  if (DataType.isMap(type)) {
    const [keys, values] = childTexts(data.children[0] as Data);
    return withNulls(data, (row) => `{${rows(...bounds(row), (at) => `${keys!(at)}: ${values!(at)}`)}}`);
  }
  if (DataType.isList(type) || DataType.isLargeList(type)) return withNulls(data, (row) => `[${rows(...bounds(row), first!)}]`);
  if (DataType.isFixedSizeList(type)) {
    const { listSize } = type;
    return withNulls(data, (row) => `[${rows(row * listSize, (row + 1) * listSize, first!)}]`);
  }
  if (DataType.isStruct(type)) {
    const { children: fields } = type;
    return withNulls(data, (row) => `{${fields.map(({ name }, index) => `${name}: ${children[index]!(row)}`).join(', ')}}`);
  }
  if (DataType.isUnion(type)) {
    const { typeIdToChildIndex } = type;
    const texts = (data.children as Data[]).map(shownText);
    return (row) => texts[typeIdToChildIndex[data.typeIds[row]!]!]!(DataType.isDenseUnion(type) ? Number(offsets![row]) : row);
  }
  return null;
}
