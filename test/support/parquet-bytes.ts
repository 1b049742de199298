/** Small Parquet files with schemas that no writer at hand makes: one row group, required columns, plain pages. */

const varint = (value: number): number[] => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);
const zigzag = (value: number): number[] => varint(value < 0 ? -2 * value - 1 : 2 * value);

type Value = { type: number; bytes: number[] };
export const i32 = (value: number): Value => ({ type: 5, bytes: zigzag(value) });
const i64 = (value: number): Value => ({ type: 6, bytes: zigzag(value) });

const text = (value: string): Value => {
  const bytes = [...Buffer.from(value)];
  return { type: 8, bytes: [...varint(bytes.length), ...bytes] };
};
/** Fields by their numbers, which ascend. */
export const struct = (fields: Readonly<Record<number, Value>>): Value => {
  let last = 0;
  const bytes = Object.entries(fields).flatMap(([key, value]) => {
    const step = Number(key) - last;
    last = Number(key);
    return [step * 16 + value.type, ...value.bytes];
  });
  return { type: 12, bytes: [...bytes, 0] };
};
const list = (elements: readonly Value[]): Value => ({
  type: 9,
  bytes: [
    ...(elements.length < 15
      ? [elements.length * 16 + elements[0]!.type]
      : [0xf0 + elements[0]!.type, ...varint(elements.length)]),
    ...elements.flatMap(({ bytes }) => bytes),
  ],
});

export interface BytesColumn {
  name: string;
  /** A number of the format, as in native/parquet/format.h. */
  physical: number;
  /** More fields of the schema's element by their numbers: 2 the bytes of a value, 6 a ConvertedType, 7 scale, 8 precision, 9 field id, 10 a LogicalType. */
  element?: Readonly<Record<number, Value>>;
  /** The bytes of each value; those of byte arrays get their lengths before them. */
  values: readonly (readonly number[])[];
}

const byteArray = 6;

export function parquetBytes(columns: readonly BytesColumn[]): Uint8Array {
  const rows = columns[0]!.values.length;
  const file = [...Buffer.from('PAR1')];
  const chunks = columns.map(({ name, physical, values }) => {
    const page = values.flatMap((value) => (physical === byteArray ? [value.length, 0, 0, 0, ...value] : value));
    const begin = file.length;
    const data = struct({ 1: i32(rows), 2: i32(0), 3: i32(3), 4: i32(3) });
    file.push(...struct({ 1: i32(0), 2: i32(page.length), 3: i32(page.length), 5: data }).bytes, ...page);
    const bytes = i64(file.length - begin);
    const path = list([text(name)]);
    const fields = { 1: i32(physical), 2: list([i32(0)]), 3: path, 4: i32(0), 5: i64(rows), 6: bytes, 7: bytes, 9: i64(begin) };
    return struct({ 2: i64(begin), 3: struct(fields) });
  });
  const elements = columns.map(({ name, physical, element = {} }) => {
    const { 2: length, ...others } = element as Record<number, Value>;
    return struct({ 1: i32(physical), ...(length && { 2: length }), 3: i32(0), 4: text(name), ...others });
  });
  const root = struct({ 4: text('schema'), 5: i32(columns.length) });
  const group = struct({ 1: list(chunks), 2: i64(0), 3: i64(rows) });
  const footer = struct({ 1: i32(1), 2: list([root, ...elements]), 3: i64(rows), 4: list([group]) }).bytes;
  const size = new Uint8Array(Uint32Array.of(footer.length).buffer);
  return Uint8Array.from([...file, ...footer, ...size, ...Buffer.from('PAR1')]);
}
