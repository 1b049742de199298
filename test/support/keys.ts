/** Key types to test with: values that repeat, the type's extremes, and what is special about it. */
import * as arrow from 'apache-arrow';

export interface KeyType {
  name: string;
  type: arrow.DataType;
  values: readonly unknown[];
}

const integers = (bits: number, signed: boolean): bigint[] => {
  const most = 2n ** BigInt(signed ? bits - 1 : bits);
  return signed ? [-most, -1n, 0n, 1n, 7n, most - 1n] : [0n, 1n, 7n, most / 2n, most - 1n];
};
const numbers = (bits: number, signed: boolean): number[] => integers(bits, signed).map(Number);
const wide = [-(2n ** 63n), -1n, 0n, 1n, 1_700_000_000_000n, 2n ** 63n - 1n];
const texts = ['', 'a', 'A', 'ab', 'abc', 'abcdefgh', 'abcdefghi', 'abcdefgi', 'zürich', '東京', '🚀', 'a\u0000b'];

/** Types whose values come out of apache-arrow as they went in. */
export const KEY_TYPES: readonly KeyType[] = [
  { name: 'int8', type: new arrow.Int8(), values: numbers(8, true) },
  { name: 'int16', type: new arrow.Int16(), values: numbers(16, true) },
  { name: 'int32', type: new arrow.Int32(), values: numbers(32, true) },
  { name: 'int64', type: new arrow.Int64(), values: integers(64, true) },
  { name: 'uint8', type: new arrow.Uint8(), values: numbers(8, false) },
  { name: 'uint16', type: new arrow.Uint16(), values: numbers(16, false) },
  { name: 'uint32', type: new arrow.Uint32(), values: numbers(32, false) },
  { name: 'uint64', type: new arrow.Uint64(), values: integers(64, false) },
  {
    name: 'float32',
    type: new arrow.Float32(),
    values: [-0, 0, 1.5, -1.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 2 ** -149],
  },
  {
    name: 'float64',
    type: new arrow.Float64(),
    values: [-0, 0, 0.1, -0.1, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 5e-324, 1e308],
  },
  { name: 'bool', type: new arrow.Bool(), values: [false, true] },
  { name: 'utf8', type: new arrow.Utf8(), values: texts },
  { name: 'large_utf8', type: new arrow.LargeUtf8(), values: texts },
  { name: 'date32', type: new arrow.DateDay(), values: [-86_400_000, 0, 86_400_000, 19_000 * 86_400_000] },
  { name: 'date64', type: new arrow.DateMillisecond(), values: [-86_400_000, 0, 86_400_000, 19_000 * 86_400_000] },
  { name: 'timestamp', type: new arrow.TimestampMillisecond(), values: [-1, 0, 1, 1_700_000_000_000] },
  { name: 'time32', type: new arrow.TimeMillisecond(), values: [0, 1, 86_399_999] },
  { name: 'time64', type: new arrow.TimeNanosecond(), values: [0n, 1n, 86_399_999_999_999n] },
  { name: 'duration', type: new arrow.DurationMicrosecond(), values: wide },
];
