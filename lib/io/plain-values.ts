/** Arrow values as plain JavaScript values that JSON holds: what toRows() gives. */
import { type Data, DataType, Type, Vector } from 'apache-arrow';
import { dictionaryReader, textOf } from './text.js';

/** What 64-bit integers become. */
export type Int64As = 'auto' | 'bigint' | 'text';

/** The value of row i of a chunk; null where it is null. */
type ValueOf = (row: number) => unknown;

const int64Readers: Readonly<Record<Int64As, (value: bigint) => unknown>> = {
  auto: (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value)),
  bigint: (value) => value,
  text: String,
};

/** How to read a chunk's values: the table in toRows() says what they become. */
export function valueReader(data: Data, int64: Int64As): ValueOf {
  const type: DataType = data.type;
  if (DataType.isNull(type)) return () => null;
  if (DataType.isDictionary(type)) return dictionaryReader(data, (chunk) => valueReader(chunk, int64));
  if (DataType.isUnion(type)) {
    const { typeIdToChildIndex } = type;
    const children = (data.children as Data[]).map((child) => valueReader(child, int64));
    const rowOf = DataType.isDenseUnion(type) ? (row: number) => Number(data.valueOffsets[row]) : (row: number) => row;
    return (row) => children[typeIdToChildIndex[data.typeIds[row]!]!]!(rowOf(row));
  }
  const read = plainReader(data, int64);
  return data.nullCount === 0 ? read : (row) => (data.getValid(row) ? read(row) : null);
}

function plainReader(data: Data, int64: Int64As): ValueOf {
  const type: DataType = data.type;
  const values = data.values as ArrayLike<number | bigint>;
  const integer = int64Readers[int64];
  if (DataType.isInt(type) || DataType.isDuration(type)) {
    return values instanceof BigInt64Array || values instanceof BigUint64Array
      ? (row) => integer(values[row]!)
      : (row) => values[row];
  }
  if (DataType.isTimestamp(type)) {
    const text = textOf(data)!;
    return (row) => text(row)!.replace(' ', 'T');
  }
  const vector = new Vector([data]);
  switch (type.typeId) {
    case Type.Bool:
    case Type.Float:
    case Type.Utf8:
    case Type.LargeUtf8:
    case Type.Utf8View:
      return (row) => vector.get(row);
    default:
      return nestedReader(data, int64) ?? textOf(data) ?? ((row) => vector.get(row));
  }
}

function nestedReader(data: Data, int64: Int64As): ValueOf | null {
  const type: DataType = data.type;
  const reader = (child: unknown) => valueReader(child as Data, int64);
  const rows = <T>(begin: number, end: number, of: (row: number) => T) =>
    Array.from({ length: end - begin }, (_, at) => of(begin + at));
  const { valueOffsets: offsets } = data;
  const bounds = (row: number): [number, number] => [Number(offsets[row]), Number(offsets[row + 1])];
  if (DataType.isStruct(type)) {
    const fields = type.children.map(({ name }, index) => ({ name, read: reader(data.children[index]) }));
    return (row) => objectOf(fields, row);
  }
  if (DataType.isMap(type)) {
    const [key, value] = (data.children[0] as Data).children.map(reader);
    return (row) => Object.fromEntries(rows(...bounds(row), (at) => [String(key!(at)), value!(at)]));
  }
  if (DataType.isList(type) || DataType.isLargeList(type)) {
    const read = reader(data.children[0]);
    return (row) => rows(...bounds(row), read);
  }
  if (DataType.isFixedSizeList(type)) {
    const [{ listSize }, read] = [type, reader(data.children[0])];
    return (row) => rows(row * listSize, (row + 1) * listSize, read);
  }
  return null;
}

/** An object with these properties. A column may be named "__proto__". */
export function objectOf(fields: readonly { name: string; read: ValueOf }[], row: number): Record<string, unknown> {
  const made: Record<string, unknown> = {};
  for (const { name, read } of fields) {
    if (name === '__proto__')
      Object.defineProperty(made, name, { value: read(row), enumerable: true, configurable: true, writable: true });
    else made[name] = read(row);
  }
  return made;
}
