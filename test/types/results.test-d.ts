/** The compiler checks this file (npm run lint runs tsc): nothing in it runs. */
import type {
  AsyncRecordBatchStreamReader,
  Binary,
  BinaryView,
  Bool,
  DataType,
  DateDay,
  DateMillisecond,
  Decimal,
  Dictionary,
  DurationNanosecond,
  DurationSecond,
  FixedSizeBinary,
  FixedSizeList,
  Float16,
  Float32,
  Float64,
  Int8,
  Int16,
  Int32,
  Int64,
  LargeBinary,
  LargeUtf8,
  List,
  Map_,
  Null,
  RecordBatch,
  RecordBatchFileReader,
  RecordBatchReader,
  RecordBatchStreamReader,
  Struct,
  Table,
  TimeMicrosecond,
  TimeSecond,
  Timestamp,
  TimestampMillisecond,
  TimestampSecond,
  TypeMap,
  Uint8,
  Uint16,
  Uint32,
  Uint64,
  Utf8,
  Utf8View,
} from 'apache-arrow';
import { expectTypeOf } from 'vitest';
import {
  type BatchStream,
  type Engine,
  fromColumns,
  fromRows,
  isSorted,
  join,
  joinBatches,
  joinCount,
  joinIndices,
  joinKeys,
  type LoadedTable,
  type MappedTable,
  type ResidentTable,
  type ResultPlace,
  type ResultTable,
  searchSorted,
  sort,
  sortBatches,
  sortIndices,
  sortPairs,
  toRows,
  unique,
} from '../../lib/index.js';

declare const left: Table<{ id: Int32; name: Utf8; price: Float64 }>;
declare const right: Table<{ id: Int64; name: Utf8; ok: Bool }>;
declare const engine: Engine;
declare const unknown: Table;
declare const bytes: Uint8Array;
declare const flag: boolean;
declare const how: 'left' | 'semi';
declare const column: string;

// inner: left columns, then the right ones without the key, clashes with the suffix
expectTypeOf(await join(left, right, { on: 'id' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; name_right: Utf8; ok: Bool }>
>();
expectTypeOf(await join(left, right, { on: ['id'], how: 'left', suffix: '2' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; name2: Utf8; ok: Bool }>
>();
// right: the key is the right one's
expectTypeOf(await join(left, right, { on: 'id', how: 'right' })).toEqualTypeOf<
  ResultTable<{ id: Int64; name: Utf8; price: Float64; name_right: Utf8; ok: Bool }>
>();
// full: both keys, unless coalesced
expectTypeOf(await join(left, right, { on: 'id', how: 'full' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right: Int64; name_right: Utf8; ok: Bool }>
>();
expectTypeOf(await join(left, right, { on: 'name', how: 'full', coalesce: true })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right: Int64; ok: Bool }>
>();
expectTypeOf(await join(left, right, { on: 'id', coalesce: false })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right: Int64; name_right: Utf8; ok: Bool }>
>();
// a coalesced key of a full join has a type that holds the values of both
declare function fullOf<L extends DataType, R extends DataType>(
  l: L,
  r: R,
): ReturnType<typeof join<Table<{ a: L }>, Table<{ b: R }>, undefined, 'a', 'b', 'full', true>>;
declare function of<T>(): T;
type Full<T extends DataType> = Promise<ResultTable<{ a: T }>>;
expectTypeOf(await join(left, right, { on: ['id', 'name'], how: 'full', coalesce: true })).toEqualTypeOf<
  ResultTable<{ id: Int64; name: Utf8; price: Float64; ok: Bool }>
>();
expectTypeOf(fullOf(of<Int32>(), of<Int32>())).toEqualTypeOf<Full<Int32>>();
expectTypeOf(fullOf(of<Int8>(), of<Int16>())).toEqualTypeOf<Full<Int16>>();
expectTypeOf(fullOf(of<Uint8>(), of<Uint32>())).toEqualTypeOf<Full<Uint32>>();
expectTypeOf(fullOf(of<Uint8>(), of<Int8>())).toEqualTypeOf<Full<Int16>>();
expectTypeOf(fullOf(of<Int64>(), of<Uint8>())).toEqualTypeOf<Full<Int64>>();
expectTypeOf(fullOf(of<Uint32>(), of<Int32>())).toEqualTypeOf<Full<Int64>>();
expectTypeOf(fullOf(of<Int64>(), of<Uint64>())).toEqualTypeOf<Full<Decimal>>();
expectTypeOf(fullOf(of<Int8>(), of<Decimal>())).toEqualTypeOf<Full<Decimal>>();
expectTypeOf(fullOf(of<Float16>(), of<Float32>())).toEqualTypeOf<Full<Float32>>();
expectTypeOf(fullOf(of<Utf8>(), of<LargeUtf8>())).toEqualTypeOf<Full<LargeUtf8>>();
expectTypeOf(fullOf(of<Utf8View>(), of<Utf8>())).toEqualTypeOf<Full<Utf8>>();
expectTypeOf(fullOf(of<BinaryView>(), of<FixedSizeBinary>())).toEqualTypeOf<Full<Binary>>();
expectTypeOf(fullOf(of<FixedSizeBinary>(), of<LargeBinary>())).toEqualTypeOf<Full<LargeBinary>>();
expectTypeOf(fullOf(of<FixedSizeBinary>(), of<FixedSizeBinary>())).toEqualTypeOf<Full<FixedSizeBinary | Binary>>();
expectTypeOf(fullOf(of<DateDay>(), of<DateMillisecond>())).toEqualTypeOf<Full<DateMillisecond>>();
expectTypeOf(fullOf(of<DateDay>(), of<TimestampSecond>())).toEqualTypeOf<Full<TimestampSecond>>();
expectTypeOf(fullOf(of<DateMillisecond>(), of<TimestampSecond>())).toEqualTypeOf<Full<TimestampMillisecond>>();
expectTypeOf(fullOf(of<TimeMicrosecond>(), of<TimeSecond>())).toEqualTypeOf<Full<TimeMicrosecond>>();
expectTypeOf(fullOf(of<DurationSecond>(), of<DurationNanosecond>())).toEqualTypeOf<Full<DurationNanosecond>>();
expectTypeOf(fullOf(of<Null>(), of<Bool>())).toEqualTypeOf<Full<Bool>>();
expectTypeOf(fullOf(of<Dictionary<Utf8, Int8>>(), of<Null>())).toEqualTypeOf<Full<Dictionary<Utf8, Int8>>>();
expectTypeOf(fullOf(of<Dictionary<Utf8, Int8>>(), of<Utf8>())).toEqualTypeOf<Full<Utf8>>();
expectTypeOf(fullOf(of<LargeUtf8>(), of<Dictionary<Utf8, Int8>>())).toEqualTypeOf<Full<LargeUtf8>>();
expectTypeOf(fullOf(of<Dictionary<Utf8, Int8>>(), of<Dictionary<Utf8, Int32>>())).toEqualTypeOf<Full<Dictionary<Utf8, Int8>>>();
expectTypeOf(fullOf(of<Dictionary<Int8>>(), of<Dictionary<Int64>>())).toEqualTypeOf<Full<Int64>>();
// what the compiler can't tell
expectTypeOf(fullOf(of<Dictionary<Decimal>>(), of<Dictionary<Decimal>>())).toEqualTypeOf<Full<DataType>>();
expectTypeOf(fullOf(of<Timestamp>(), of<TimestampSecond>())).toEqualTypeOf<Full<DataType>>();
expectTypeOf(fullOf(of<Int32 | Int8>(), of<Int16>())).toEqualTypeOf<Full<Int32 | Int16>>();
// keys of different names
expectTypeOf(await join(left, right, { leftOn: 'name', rightOn: 'id' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; name_right: Utf8; ok: Bool }>
>();
// several keys: each coalesced
declare const wide: Table<{ id: Int64; name: Utf8; id_right: Bool; other: Int32 }>;
expectTypeOf(await join(left, right, { on: ['id', 'name'] })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; ok: Bool }>
>();
expectTypeOf(await join(left, right, { leftOn: ['id', 'name'], rightOn: ['id', 'name'], how: 'right' })).toEqualTypeOf<
  ResultTable<{ id: Int64; name: Utf8; price: Float64; ok: Bool }>
>();
expectTypeOf(await join(left, wide, { leftOn: ['name', 'id'], rightOn: ['name', 'other'], how: 'right' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right_right: Int64; id_right: Bool }>
>();
expectTypeOf(await join(left, right, { on: ['id', 'name'], coalesce: false, nullsEqual: [true, false] })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right: Int64; name_right: Utf8; ok: Bool }>
>();
expectTypeOf(await join(left, right, { on: ['id', column as 'name'] as ('id' | 'name')[] })).toEqualTypeOf<
  ResultTable<TypeMap>
>();
// @ts-expect-error a column that only one table has
await join(left, right, { on: ['id', 'price'] });
// a suffix is appended until the name is free
expectTypeOf(await join(left, wide, { leftOn: 'price', rightOn: 'other' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right_right: Int64; name_right: Utf8; id_right: Bool }>
>();
// semi and anti: left columns alone, whatever the right table is
expectTypeOf(await join(left, right, { on: 'id', how: 'semi' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64 }>
>();
expectTypeOf(await join(left, unknown, { on: 'id', how: 'anti' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64 }>
>();
// cross: all columns
expectTypeOf(await join(left, right, { how: 'cross' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64; id_right: Int64; name_right: Utf8; ok: Bool }>
>();
// select
expectTypeOf(await join(left, right, { on: 'id', select: ['ok', 'name_right'] })).toEqualTypeOf<
  ResultTable<{ ok: Bool; name_right: Utf8 }>
>();

// what the compiler doesn't know stays open
expectTypeOf(await join(left, unknown, { on: 'id' })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await join(bytes, bytes, { on: 'id' })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await join(left, right, { on: 'id', how })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await join(left, right, { on: 'id', coalesce: flag })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await join(left, right, { on: 'id', suffix: column })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await join(left, unknown, { on: 'id', select: [column] })).toEqualTypeOf<ResultTable<TypeMap>>();

// sorts keep the columns
expectTypeOf(await sort(left, { by: 'id' })).toEqualTypeOf<ResultTable<{ id: Int32; name: Utf8; price: Float64 }>>();
expectTypeOf(
  await sort(left, { by: ['id', { column: 'name', descending: true, nullsLast: false }], select: ['price'] }),
).toEqualTypeOf<ResultTable<{ price: Float64 }>>();
expectTypeOf(await sort(bytes, { by: column })).toEqualTypeOf<ResultTable<TypeMap>>();

// a result is an Arrow table: it goes into the next call
const once = await join(left, right, { on: 'id' });
expectTypeOf(once.getChild('ok')!.get(0)).toEqualTypeOf<boolean | null>();
expectTypeOf(once.stats.milliseconds).toBeNumber();
expectTypeOf(await sort(once, { by: 'name_right', select: ['ok'] })).toEqualTypeOf<ResultTable<{ ok: Bool }>>();

// loaded tables are taken where tables are, and results that stay are loaded tables
await using loaded = await engine.load(left);
expectTypeOf(loaded).toEqualTypeOf<LoadedTable<{ id: Int32; name: Utf8; price: Float64 }>>();
expectTypeOf(await loaded.toArrow()).toEqualTypeOf<Table<{ id: Int32; name: Utf8; price: Float64 }>>();
expectTypeOf(await engine.load(bytes)).toEqualTypeOf<LoadedTable<TypeMap>>();
const stays = await engine.join(loaded, right, { on: 'id', how: 'semi', resident: true });
expectTypeOf(stays).toEqualTypeOf<ResidentTable<{ id: Int32; name: Utf8; price: Float64 }>>();
expectTypeOf(stays.stats.residentReason).toEqualTypeOf<string | null>();
expectTypeOf(await engine.sort(stays, { by: 'price', select: ['id'] })).toEqualTypeOf<ResultTable<{ id: Int32 }>>();
expectTypeOf(await engine.sort(stays, { by: 'price', select: ['id'], resident: true })).toEqualTypeOf<
  ResidentTable<{ id: Int32 }>
>();
expectTypeOf(await engine.join(loaded, stays, { on: 'id', how: 'anti', resident: false })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64 }>
>();
// @ts-expect-error a column that a loaded table doesn't have
await engine.sort(loaded, { by: 'ok' });

// a result in a file is a table with other stats; where the place is not known, it is either
const inFile = await engine.sort(left, { by: 'price', select: ['id'], result: 'mapped' });
expectTypeOf(inFile).toEqualTypeOf<MappedTable<{ id: Int32 }>>();
expectTypeOf(inFile).toExtend<Table<{ id: Int32 }>>();
expectTypeOf(inFile.stats.mappedBytes).toBeNumber();
expectTypeOf(await engine.join(inFile, right, { on: 'id', how: 'semi', result: 'mapped' })).toEqualTypeOf<
  MappedTable<{ id: Int32 }>
>();
expectTypeOf(await engine.sort(left, { by: 'id', result: 'memory' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64 }>
>();
declare const place: ResultPlace;
expectTypeOf(await engine.sort(left, { by: 'id', select: ['id'], result: place })).toEqualTypeOf<
  ResultTable<{ id: Int32 }> | MappedTable<{ id: Int32 }>
>();
// @ts-expect-error no place
await engine.sort(left, { by: 'id', result: 'disk' });

// limits keep the columns; what tells of an order takes its columns alone
expectTypeOf(await sort(left, { by: 'id', limit: 3, offset: 1, select: ['id'] })).toEqualTypeOf<ResultTable<{ id: Int32 }>>();
expectTypeOf((await sortIndices(left, { by: ['id', { column: 'price', descending: true }], limit: 3 })).rows).toEqualTypeOf<
  Uint32Array | BigUint64Array
>();
type LeftColumns = { id: Int32; name: Utf8; price: Float64 };
declare const comingLeft: AsyncIterable<RecordBatch<LeftColumns>>;
expectTypeOf(sortBatches(comingLeft, { by: 'name' })).toEqualTypeOf<BatchStream<LeftColumns>>();
expectTypeOf(sortBatches(comingLeft, { by: 'name', select: ['id'] })).toEqualTypeOf<BatchStream<{ id: Int32 }>>();
for await (const batch of sortBatches(left, { by: ['id'], batchRows: 10 }))
  expectTypeOf(batch).toEqualTypeOf<RecordBatch<LeftColumns>>();
sortBatches(process.stdin, { by: 'anything' });
// @ts-expect-error no such column
sortBatches(comingLeft, { by: 'nope' });
// @ts-expect-error the result is in host memory
sortBatches(left, { by: 'id', resident: true });

expectTypeOf(joinBatches(comingLeft, right, { on: 'id', buildSide: 'right' })).toEqualTypeOf<
  BatchStream<{ id: Int32; name: Utf8; price: Float64; name_right: Utf8; ok: Bool }>
>();
expectTypeOf(joinBatches(comingLeft, right, { on: 'id', how: 'semi' })).toEqualTypeOf<BatchStream<LeftColumns>>();
expectTypeOf(joinBatches(comingLeft, process.stdin, { on: 'id' })).toEqualTypeOf<BatchStream<TypeMap>>();
for await (const batch of joinBatches(left, right, { on: 'id', select: ['ok'], batchRows: 10 }))
  expectTypeOf(batch).toEqualTypeOf<RecordBatch<{ ok: Bool }>>();
// @ts-expect-error a column that only one side has
joinBatches(comingLeft, right, { on: 'price' });
// @ts-expect-error the result is in host memory
joinBatches(left, right, { on: 'id', resident: true });
// indices of dictionaries have 32 bits in batches and in mapped tables, within other types, too
type Narrow = {
  id: Int32;
  d: Dictionary<Utf8, Int8>;
  u: Dictionary<List<Dictionary<Utf8, Uint16>>, Uint8>;
  s: Struct<{ d: Dictionary<Utf8, Int16>; f: FixedSizeList<Dictionary<Int64, Int32>> }>;
  m: Map_<Dictionary<Utf8, Int8>, Bool>;
};
type Wide = {
  id: Int32;
  d: Dictionary<Utf8, Int32>;
  u: Dictionary<List<Dictionary<Utf8, Uint32>>, Uint32>;
  s: Struct<{ d: Dictionary<Utf8, Int32>; f: FixedSizeList<Dictionary<Int64, Int32>> }>;
  m: Map_<Dictionary<Utf8, Int32>, Bool>;
};
declare const narrow: Table<Narrow>;
expectTypeOf(sortBatches(narrow, { by: 'd' })).toEqualTypeOf<BatchStream<Wide>>();
expectTypeOf(joinBatches(narrow, right, { on: 'id', how: 'anti' })).toEqualTypeOf<BatchStream<Wide>>();
expectTypeOf(joinBatches(narrow, right, { on: 'id', select: ['d'] })).toEqualTypeOf<BatchStream<Pick<Wide, 'd'>>>();
expectTypeOf(await sort(narrow, { by: 'd', result: 'mapped' })).toEqualTypeOf<MappedTable<Wide>>();
expectTypeOf(await sort(narrow, { by: 'd' })).toEqualTypeOf<ResultTable<Narrow>>();
expectTypeOf(sortBatches(unknown, { by: 'd' })).toEqualTypeOf<BatchStream<TypeMap>>();

expectTypeOf(await isSorted(left, { by: 'name' })).toEqualTypeOf<boolean>();
expectTypeOf(await searchSorted(left, right, { by: 'id', side: 'right' })).toEqualTypeOf<Uint32Array | BigUint64Array>();
// @ts-expect-error no such column
await sortIndices(left, { by: 'prize' });
// @ts-expect-error no columns are made
await sortIndices(left, { by: 'id', select: ['id'] });
// @ts-expect-error a whole order is asked about
await isSorted(left, { by: 'id', limit: 3 });
// @ts-expect-error no such side
await searchSorted(left, right, { by: 'id', side: 'middle' });

// typed arrays keep their types
const pairs = await sortPairs(new Float64Array(1), new BigInt64Array(1), { descending: true });
expectTypeOf(pairs.values).toExtend<BigInt64Array>();
const joined = await joinKeys(
  { keys: new Int32Array(1), values: new Float32Array(1) },
  { keys: new Int8Array(1), values: new Uint8Array(1) },
);
expectTypeOf(joined.s).toExtend<Uint8Array>();
expectTypeOf(await joinCount(left, right, { on: 'id', how: 'semi' })).toBeNumber();
expectTypeOf((await joinIndices(left, right, { on: 'id' })).left).toExtend<Uint32Array | BigUint64Array>();

// an order, a part of the rows and checks of keys change no column
expectTypeOf(
  await join(left, right, { on: 'id', maintainOrder: 'right_left', limit: 10, offset: 5, validate: '1:m', maxOutputRows: 1e9 }),
).toEqualTypeOf<ResultTable<{ id: Int32; name: Utf8; price: Float64; name_right: Utf8; ok: Bool }>>();
expectTypeOf(
  await joinCount(left, right, { on: 'id', maintainOrder: 'left', limit: 10, offset: 5, validate: 'm:1', maxOutputRows: 9 }),
).toBeNumber();
await joinIndices(left, right, { on: 'id', maintainOrder: 'left', limit: 10, offset: 5, validate: '1:1', maxOutputRows: 9 });
// @ts-expect-error no such order
await join(left, right, { on: 'id', maintainOrder: 'both' });
// @ts-expect-error no such check
await join(left, right, { on: 'id', validate: 'n:m' });

// unique keeps the columns
expectTypeOf(await unique(left)).toEqualTypeOf<ResultTable<{ id: Int32; name: Utf8; price: Float64 }>>();
expectTypeOf(await unique(left, { on: ['id', 'name'], keep: 'last', maintainOrder: true, select: ['price'] })).toEqualTypeOf<
  ResultTable<{ price: Float64 }>
>();
expectTypeOf(await engine.unique(loaded, { on: 'id', keep: 'none' })).toEqualTypeOf<
  ResultTable<{ id: Int32; name: Utf8; price: Float64 }>
>();
expectTypeOf(await unique(bytes, { on: column })).toEqualTypeOf<ResultTable<TypeMap>>();
expectTypeOf(await engine.explain('unique', left, { on: 'id', analyze: true })).toBeString();
// @ts-expect-error no such column
await unique(left, { on: 'idd' });
// @ts-expect-error no such row
await unique(left, { on: 'id', keep: 'some' });
// @ts-expect-error an option of joins
await unique(left, { on: 'id', how: 'left' });

// nested columns and dictionaries are what they were
interface Nested extends TypeMap {
  id: Int32;
  code: Dictionary<Utf8, Int32>;
  tags: List<Dictionary<Utf8>>;
  point: Struct<{ x: Float64; at: FixedSizeList<Int32> }>;
  attributes: Map_<Utf8, Int64>;
}
declare const nested: Table<Pick<Nested, 'id' | 'code' | 'tags' | 'point' | 'attributes'>>;
expectTypeOf(await sort(nested, { by: 'id', select: ['code', 'point'] })).toEqualTypeOf<
  ResultTable<{ code: Nested['code']; point: Nested['point'] }>
>();
const withNested = await join(right, nested, { on: 'id', how: 'left' });
expectTypeOf(withNested.getChild('tags')!.get(0)!.get(0)).toEqualTypeOf<string | null>();
expectTypeOf(withNested.getChild('attributes')!.type).toEqualTypeOf<Nested['attributes']>();

// @ts-expect-error a column that only one table has
await join(left, right, { on: 'price' });
// @ts-expect-error no such column
await join(left, right, { leftOn: 'id', rightOn: 'idd' });
// @ts-expect-error no key
await join(left, right, {});
// @ts-expect-error both kinds of keys
await join(left, right, { on: 'id', leftOn: 'id', rightOn: 'id' });
// @ts-expect-error a cross join has no key
await join(left, right, { how: 'cross', on: 'id' });
// @ts-expect-error no such kind
await join(left, right, { on: 'id', how: 'outer' });
// @ts-expect-error no such option
await join(left, right, { on: 'id', sufix: '_r' });
// @ts-expect-error no such column
await sort(left, { by: 'prize' });
// @ts-expect-error no such column
await sort(left, { by: [{ column: 'prize' }] });
// @ts-expect-error no such option
await sort(left, { by: 'id', descending: true });
// @ts-expect-error joinCount makes no columns
await joinCount(left, right, { on: 'id', suffix: '_r' });
// @ts-expect-error not a table
await sort([{ id: 1 }], { by: 'id' });

// Record batches, arrays of them and readers have their column types.
type Pair = { id: Int32; name: Utf8 };
declare const one: RecordBatch<Pair>;
declare const some: readonly RecordBatch<Pair>[];
declare const reader: RecordBatchReader<Pair>;
declare const files: RecordBatchFileReader<Pair>;
declare const streams: RecordBatchStreamReader<Pair>;
declare const asynchronous: AsyncRecordBatchStreamReader<Pair>;
declare function generate(): AsyncGenerator<RecordBatch<Pair>>;
expectTypeOf(await sort(one, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await sort(some, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await sort([left, left], { by: 'price', select: ['id'] })).toEqualTypeOf<ResultTable<{ id: Int32 }>>();
expectTypeOf(await sort(reader, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await sort(files, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await sort(streams, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await sort(asynchronous, { by: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await unique(generate(), { on: 'id' })).toEqualTypeOf<ResultTable<Pair>>();
expectTypeOf(await join(some, reader, { on: 'id' })).toEqualTypeOf<ResultTable<{ id: Int32; name: Utf8; name_right: Utf8 }>>();
expectTypeOf(await engine.load(some)).toEqualTypeOf<LoadedTable<Pair>>();
// @ts-expect-error no such column
await sort(some, { by: 'nme' });
// @ts-expect-error toRows() is synchronous
toRows(generate());
// @ts-expect-error an array of bytes is no table
await sort([bytes], { by: 'id' });

// Plain values give tables whose columns have names; their types are seen when the values are read.
expectTypeOf(fromColumns({ id: [1], name: ['Ada'] })).toEqualTypeOf<Table<{ id: DataType; name: DataType }>>();
expectTypeOf(fromRows([{ id: 1, name: 'Ada' }, { id: 2 }])).toEqualTypeOf<Table<{ id: DataType; name: DataType }>>();
expectTypeOf(fromRows([{ id: 1 }], { types: { paid: of<Bool>() } })).toEqualTypeOf<Table<{ id: DataType; paid: DataType }>>();
await sort(fromColumns(of<Record<string, unknown[]>>()), { by: 'any' });
await sort(fromRows(of<Record<string, unknown>[]>()), { by: 'any' });
// biome-ignore lint/suspicious/noExplicitAny: what JSON.parse() gives
await sort(fromRows(of<any>()), { by: 'any' });
// @ts-expect-error no such column
await sort(fromColumns({ id: [1] }), { by: 'idd' });
// @ts-expect-error no such column
await join(fromRows([{ id: 1 }]), left, { on: 'idd' });
