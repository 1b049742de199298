/** The type of a full join's coalesced key, for the compiler: what lib/columns/common-type.ts gives at run time. */
import type {
  Binary,
  DataType,
  DateDay,
  DateMillisecond,
  Decimal,
  Dictionary,
  DurationMicrosecond,
  DurationMillisecond,
  DurationNanosecond,
  DurationSecond,
  FixedSizeBinary,
  Float16,
  Float32,
  Float64,
  Int8,
  Int16,
  Int32,
  Int64,
  LargeBinary,
  LargeUtf8,
  Null,
  TimeMicrosecond,
  TimeMillisecond,
  TimeNanosecond,
  TimeSecond,
  Timestamp,
  TimestampMicrosecond,
  TimestampMillisecond,
  TimestampNanosecond,
  TimestampSecond,
  Uint8,
  Uint16,
  Uint32,
  Uint64,
  Utf8,
} from 'apache-arrow';

type Unsigned = Uint8 | Uint16 | Uint32 | Uint64;
type Integer = Unsigned | Int8 | Int16 | Int32 | Int64;
type FloatLadder = [Float64, Float32, Float16];
type TimeLadder = [TimeNanosecond, TimeMicrosecond, TimeMillisecond, TimeSecond];
type DurationLadder = [DurationNanosecond, DurationMicrosecond, DurationMillisecond, DurationSecond];
type TimestampLadder = [TimestampNanosecond, TimestampMicrosecond, TimestampMillisecond, TimestampSecond];
type Point = DateDay | DateMillisecond | TimestampLadder[number];

type IsUnion<T, U = T> = T extends unknown ? ([U] extends [T] ? false : true) : never;
type IsSame<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type ValuesOf<T> = T extends Dictionary<infer Values> ? ValuesOf<Values> : T;
/** The first of a ladder that is one of these. */
type First<Of, Ladder> = Ladder extends [infer One, ...infer Others] ? (One extends Of ? One : First<Of, Others>) : DataType;

/** DataType where the compiler knows too little of the columns: not which type of a group, or not the parameters that decide. */
export type CoalescedType<L extends DataType, R extends DataType> = true extends IsUnion<L['typeId']> | IsUnion<R['typeId']>
  ? IsSame<L, R> extends true
    ? OfSame<L>
    : DataType
  : IsSame<L, R> extends true
    ? OfSame<L>
    : ValuesOf<L> extends Null
      ? R
      : ValuesOf<R> extends Null
        ? L
        : IsSame<ValuesOf<L>, ValuesOf<R>> extends true
          ? OfValues<L, R>
          : Wider<ValuesOf<L>, ValuesOf<R>>;

/** Binary of two sizes becomes binary of any; types of two scales, units or zones become one of these. */
type OfSame<T> = T extends FixedSizeBinary
  ? FixedSizeBinary | Binary
  : T extends Dictionary<infer Values>
    ? OfIndices<T, Values>
    : T;
/** A dictionary, if both have the same type of values, which the compiler does not know of these. */
type OfIndices<T, Values> = Values extends Decimal | FixedSizeBinary | Timestamp | Dictionary ? DataType : T;
/** Of columns whose values have the same type: dictionaries, or one of them. */
type OfValues<L, R> = L extends Dictionary ? (R extends Dictionary ? OfIndices<L, ValuesOf<L>> : OfSame<ValuesOf<L>>) : OfSame<L>;

type Wider<A, B> = [A | B] extends [Integer]
  ? WiderInteger<A, B>
  : [A | B] extends [Integer | Decimal]
    ? Decimal
    : [A | B] extends [FloatLadder[number]]
      ? First<A | B, FloatLadder>
      : LargeUtf8 extends A | B
        ? LargeUtf8
        : Utf8 extends A | B
          ? Utf8
          : LargeBinary extends A | B
            ? LargeBinary
            : Binary extends A | B
              ? Binary
              : FixedSizeBinary extends A | B
                ? Binary
                : [A | B] extends [TimeLadder[number]]
                  ? First<A | B, TimeLadder>
                  : [A | B] extends [DurationLadder[number]]
                    ? First<A | B, DurationLadder>
                    : [A | B] extends [DateDay | DateMillisecond]
                      ? DateMillisecond
                      : [A | B] extends [Point]
                        ? First<AsTimestamp<A> | AsTimestamp<B>, TimestampLadder>
                        : DataType;

type AsTimestamp<T> = T extends DateDay ? TimestampSecond : T extends DateMillisecond ? TimestampMillisecond : T;

type WiderInteger<A, B> = [A | B] extends [Unsigned]
  ? First<A | B, [Uint64, Uint32, Uint16, Uint8]>
  : First<AsSigned<A> | AsSigned<B>, [Decimal, Int64, Int32, Int16, Int8]>;
/** What holds the values and negative ones, too. */
type AsSigned<T> = T extends Uint8 ? Int16 : T extends Uint16 ? Int32 : T extends Uint32 ? Int64 : T extends Uint64 ? Decimal : T;
