/** Key columns of every type, by what their values mean: those of one group compare, whatever their types. */
import * as arrow from 'apache-arrow';

export type Draw = (below: number) => number;
/** What a value means, in the finest unit of its group; or text. null: none. */
export type Meaning = bigint | string | null;

/** A type of key columns. Types of the same group compare. */
export interface Kind {
  name: string;
  group: string;
  draw(draw: Draw): Meaning;
  vector(values: readonly Meaning[], draw: Draw): arrow.Vector;
}

function bitmap(values: readonly Meaning[]): { nullBitmap: Uint8Array; nullCount: number } {
  const nullBitmap = new Uint8Array((values.length + 7) >> 3);
  for (const [row, value] of values.entries()) if (value !== null) nullBitmap[row >> 3]! |= 1 << (row & 7);
  return { nullBitmap, nullCount: values.filter((value) => value === null).length };
}

const vectorOf = (data: object): arrow.Vector => new arrow.Vector([arrow.makeData(data as never)]);

/** Values of so many bytes, each the meaning divided by `unit`. */
function fixed(name: string, group: string, type: () => arrow.DataType, bytes: number, unit: bigint, coarsest: bigint): Kind {
  return {
    name,
    group,
    draw: (draw) => (draw(4) > 0 ? BigInt(draw(4)) * coarsest : BigInt(draw(3)) * unit),
    vector(values) {
      const data = new Uint8Array(values.length * bytes);
      for (const [row, value] of values.entries()) {
        let rest = BigInt.asUintN(8 * bytes, ((value ?? 7n * unit) as bigint) / unit);
        for (let byte = 0; byte < bytes; byte++, rest >>= 8n) data[row * bytes + byte] = Number(rest & 255n);
      }
      const of = type();
      const { ArrayType } = of as unknown as { ArrayType: { new (buffer: ArrayBuffer): unknown } };
      return vectorOf({ type: of, length: values.length, ...bitmap(values), data: new ArrayType(data.buffer) });
    },
  };
}

const NS = 1n;
const [US, MS, S, DAY] = [1000n * NS, 1000_000n * NS, 1000_000_000n * NS, 86_400_000_000_000n * NS];
const number = (name: string, type: () => arrow.DataType, bytes: number, unit = 1000n) =>
  fixed(name, 'number', type, bytes, unit, 1000n);
const decimal = (bits: number, scale: number) =>
  number(
    `decimal${bits} of ${scale}`,
    () => new arrow.Decimal(scale, bits === 64 ? 18 : 30, bits),
    bits / 8,
    10n ** BigInt(3 - scale),
  );
const point = (name: string, type: () => arrow.DataType, bytes: number, unit: bigint) =>
  fixed(name, 'time point', type, bytes, unit, DAY);
const zoned = (unit: arrow.TimeUnit, of: bigint) =>
  fixed(`zoned ${unit}`, 'zoned', () => new arrow.Timestamp(unit, unit % 2 ? 'UTC' : 'Asia/Tokyo'), 8, of, S);

const TEXTS = ['', 'a', 'ab', 'a text of more than seven bytes', 'a text of more than seven bytes, too', 'seven b', 'é'];
const text = (name: string, group: string, vector: (values: readonly (string | null)[], draw: Draw) => arrow.Vector): Kind => ({
  name,
  group,
  draw: (draw) => TEXTS[draw(TEXTS.length)]!,
  vector: (values, draw) => vector(values as (string | null)[], draw),
});
const bytesOf = (values: readonly (string | null)[]) => values.map((value) => (value === null ? null : Buffer.from(value)));

/** Indices of a dictionary in any order, with values twice, values of no row, and perhaps a null. */
function dictionaryOf(kind: Kind): Kind {
  return {
    ...kind,
    name: `dictionary of ${kind.name}`,
    vector(values, draw) {
      const entries = [...values, ...values.slice(0, 3), kind.draw(draw), ...(draw(2) ? [null] : [])].filter(
        (value) => value !== null || draw(2) === 0,
      );
      entries.sort(() => draw(3) - 1);
      const places = values.map((value) => {
        const all = entries.flatMap((entry, place) => (entry === value ? [place] : []));
        return all.length > 0 ? BigInt(all[draw(all.length)]!) : null;
      });
      const dictionary = kind.vector(entries, draw);
      const type = new arrow.Dictionary(dictionary.type, new arrow.Int16());
      const data = Int16Array.from(places, (place) => Number(place ?? -1));
      return vectorOf({ type, length: values.length, ...bitmap(places), data, dictionary });
    },
  };
}

/** Views of 16 bytes, and a buffer of the longer texts. */
function viewsOf(values: readonly (string | null)[], type: arrow.DataType): arrow.Vector {
  const views = Buffer.alloc(values.length * 16);
  const long: Buffer[] = [];
  let end = 0;
  for (const [row, value] of values.entries()) {
    const bytes = Buffer.from(value ?? '');
    views.writeInt32LE(bytes.length, row * 16);
    bytes.copy(views, row * 16 + 4, 0, bytes.length > 12 ? 4 : 12);
    if (bytes.length <= 12) continue;
    views.writeInt32LE(end, row * 16 + 12);
    long.push(bytes);
    end += bytes.length;
  }
  return vectorOf({ type, length: values.length, ...bitmap(values), views, variadicBuffers: [Buffer.concat(long)] });
}

const floats = (name: string, type: () => arrow.DataType): Kind => ({
  name,
  group: 'float',
  draw: (draw) => ['-0', '0', 'NaN', '1.5', '-2', 'Infinity'][draw(6)]!,
  vector: (values) =>
    arrow.vectorFromArray(
      values.map((value) => (value === null ? null : Number(value))),
      type(),
    ),
});

const plainKinds: Kind[] = [
  number('int8', () => new arrow.Int8(), 1),
  number('int32', () => new arrow.Int32(), 4),
  number('uint16', () => new arrow.Uint16(), 2),
  number('int64', () => new arrow.Int64(), 8),
  number('uint64', () => new arrow.Uint64(), 8),
  decimal(64, 2),
  decimal(128, 0),
  decimal(128, 3),
  decimal(256, 1),
  point('date32', () => new arrow.DateDay(), 4, DAY),
  point('date64', () => new arrow.DateMillisecond(), 8, MS),
  point('timestamp[s]', () => new arrow.TimestampSecond(), 8, S),
  point('timestamp[us]', () => new arrow.TimestampMicrosecond(), 8, US),
  point('timestamp[ns]', () => new arrow.TimestampNanosecond(), 8, NS),
  zoned(arrow.TimeUnit.SECOND, S),
  zoned(arrow.TimeUnit.NANOSECOND, NS),
  fixed('time[s]', 'time', () => new arrow.TimeSecond(), 4, S, S),
  fixed('time[ns]', 'time', () => new arrow.TimeNanosecond(), 8, NS, S),
  fixed('duration[ms]', 'duration', () => new arrow.DurationMillisecond(), 8, MS, S),
  fixed('duration[ns]', 'duration', () => new arrow.DurationNanosecond(), 8, NS, S),
  floats('float32', () => new arrow.Float32()),
  floats('float64', () => new arrow.Float64()),
  {
    name: 'bool',
    group: 'bool',
    draw: (draw) => `${draw(2) === 0}`,
    vector: (values) =>
      arrow.vectorFromArray(
        values.map((value) => (value === null ? null : value === 'true')),
        new arrow.Bool(),
      ),
  },
  text('utf8', 'utf8', (values) => arrow.vectorFromArray(values, new arrow.Utf8())),
  text('large utf8', 'utf8', (values) => arrow.vectorFromArray(values, new arrow.LargeUtf8())),
  text('utf8 view', 'utf8', (values) => viewsOf(values, new arrow.Utf8View())),
  text('binary view', 'binary', (values) => viewsOf(values, new arrow.BinaryView())),
  text('binary', 'binary', (values) => arrow.vectorFromArray(bytesOf(values), new arrow.Binary())),
  text('large binary', 'binary', (values) => arrow.vectorFromArray(bytesOf(values), new arrow.LargeBinary())),
  {
    ...text('fixed-size binary', 'binary', () => undefined as never),
    draw: (draw) => ['seven b', 'SEVEN B', '1234567'][draw(3)]!,
    vector: (values) =>
      vectorOf({
        type: new arrow.FixedSizeBinary(7),
        length: values.length,
        ...bitmap(values),
        data: Buffer.concat(values.map((value) => Buffer.from((value ?? '.......') as string))),
      }),
  },
  {
    ...text('binary of no bytes', 'binary', () => undefined as never),
    draw: () => '',
    vector: (values) =>
      vectorOf({ type: new arrow.FixedSizeBinary(0), length: values.length, ...bitmap(values), data: new Uint8Array(0) }),
  },
];
export const KINDS = [...plainKinds, ...plainKinds.filter((_, index) => index % 3 !== 1).map(dictionaryOf)];
export const NULLS: Kind = {
  name: 'null',
  group: 'null',
  draw: () => null,
  vector: (values) => vectorOf({ type: new arrow.Null(), length: values.length }),
};

export interface Side {
  table: arrow.Table;
  keys: Meaning[][];
}

/** A table of key columns k0, k1, ... and `row`, in two record batches. */
export function side(kinds: readonly Kind[], rows: number, nulls: boolean, draw: Draw): Side {
  const keys = kinds.map((kind) => Array.from({ length: rows }, () => (nulls && draw(5) === 0 ? null : kind.draw(draw))));
  const cut = draw(rows + 1);
  const batches = [
    [0, cut],
    [cut, rows],
  ].map(([begin, end]) => {
    const columns = kinds.map((kind, index) => kind.vector(keys[index]!.slice(begin, end), draw));
    const numbers = arrow.makeVector(Int32Array.from({ length: end! - begin! }, (_, row) => begin! + row));
    return [...columns, numbers];
  });
  const names = [...kinds.map((_, index) => `k${index}`), 'row'];
  const vectors = names.map((name, index) => {
    const data = batches.flatMap((batch) => [...batch[index]!.data]);
    // One type for both batches, whose dictionaries differ.
    const type = data[0]!.type;
    return [name, new arrow.Vector(data.map((one) => Object.assign(one.clone(type), { dictionary: one.dictionary })))] as const;
  });
  return { table: new arrow.Table(Object.fromEntries(vectors)), keys };
}

export const same = (a: Meaning, b: Meaning, nullsEqual: boolean): boolean => {
  if (a === null || b === null) return a === b && nullsEqual;
  return a === b || (`${a}`.replace('-0', '0') === `${b}`.replace('-0', '0') && typeof a === 'string');
};
