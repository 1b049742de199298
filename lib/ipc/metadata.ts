/**
 * Arrow's metadata, table by table and slot by slot, as Schema.fbs, Message.fbs and File.fbs of the Arrow format list it; and
 * what apache-arrow makes of each type of column.
 */
import * as arrow from 'apache-arrow';
import {
  among,
  atLeastZero,
  bool,
  type Decoded,
  IpcError,
  int16,
  int32,
  int64,
  list,
  type Slot,
  type Slots,
  struct,
  table,
  text,
  uint8,
  union,
} from './flatbuffer.js';

/** A type of columns. */
export interface ColumnType {
  readonly name: string;
  readonly slots: Slots;
  /** How many child fields columns of the type have; null: any number. */
  readonly children: number | null;
  /** null: apache-arrow has no such type. */
  readonly make: ((type: never, children: arrow.Field[]) => arrow.DataType) | null;
}

function columnType<S extends Slots>(
  name: string,
  slots: S,
  make: ((type: Decoded<S>, children: arrow.Field[]) => arrow.DataType) | null,
  children: number | null = 0,
): ColumnType {
  return { name, slots, children, make };
}

const integer = { bitWidth: among(int32(0), 8, 16, 32, 64), isSigned: bool(false) };
const timeUnit = (absent: number) => among(int16(absent), 0, 1, 2, 3);

/** By their numbers in the union Type. */
export const columnTypes: readonly (ColumnType | undefined)[] = [
  undefined,
  columnType('null', {}, () => new arrow.Null()),
  columnType('integer', integer, ({ isSigned, bitWidth }) => new arrow.Int(isSigned as never, bitWidth as never)),
  columnType('float', { precision: among(int16(0), 0, 1, 2) }, ({ precision }) => new arrow.Float(precision)),
  columnType('binary', {}, () => new arrow.Binary()),
  columnType('utf8', {}, () => new arrow.Utf8()),
  columnType('bool', {}, () => new arrow.Bool()),
  columnType(
    'decimal',
    { precision: int32(0), scale: int32(0), bitWidth: among(int32(128), 32, 64, 128, 256) },
    ({ precision, scale, bitWidth }) => new arrow.Decimal(scale, precision, bitWidth),
  ),
  columnType('date', { unit: among(int16(1), 0, 1) }, ({ unit }) => new arrow.Date_(unit)),
  columnType('time', { unit: timeUnit(1), bitWidth: among(int32(32), 32, 64) }, ({ unit, bitWidth }) => {
    if (bitWidth !== (unit < 2 ? 32 : 64)) throw new IpcError(`it is a time in unit ${unit} of ${bitWidth} bits`);
    return new arrow.Time(unit, bitWidth as never);
  }),
  columnType('timestamp', { unit: timeUnit(0), timezone: text }, ({ unit, timezone }) => new arrow.Timestamp(unit, timezone)),
  columnType('interval', { unit: among(int16(0), 0, 1, 2) }, ({ unit }) => new arrow.Interval(unit)),
  columnType('list', {}, (_, [child]) => new arrow.List(child!), 1),
  columnType('struct', {}, (_, children) => new arrow.Struct(children), null),
  columnType(
    'union',
    { mode: among(int16(0), 0, 1), typeIds: list(int32(0)) },
    ({ mode, typeIds }, children) => {
      if (typeIds.length > 0 && typeIds.length !== children.length)
        throw new IpcError(`it is a union of ${children.length} fields with ${typeIds.length} type numbers`);
      // Without them they are the positions of the fields.
      const ids = typeIds.length > 0 ? typeIds : children.keys();
      return new arrow.Union(mode as never, Int32Array.from(ids), children);
    },
    null,
  ),
  columnType('fixed_size_binary', { byteWidth: atLeastZero(int32(0)) }, (type) => new arrow.FixedSizeBinary(type.byteWidth)),
  columnType(
    'fixed_size_list',
    { listSize: atLeastZero(int32(0)) },
    ({ listSize }, [child]) => new arrow.FixedSizeList(listSize, child!),
    1,
  ),
  columnType(
    'map',
    { keysSorted: bool(false) },
    ({ keysSorted }, [entries]) => {
      if (entries!.type.typeId !== arrow.Type.Struct || entries!.type.children.length !== 2)
        throw new IpcError('it is a map whose entries are not pairs of keys and values');
      return new arrow.Map_(entries as never, keysSorted);
    },
    1,
  ),
  columnType('duration', { unit: timeUnit(1) }, ({ unit }) => new arrow.Duration(unit)),
  columnType('large_binary', {}, () => new arrow.LargeBinary()),
  columnType('large_utf8', {}, () => new arrow.LargeUtf8()),
  columnType('large_list', {}, (_, [child]) => new arrow.LargeList(child!), 1),
  columnType('run_end_encoded', {}, null, 2),
  columnType('binary_view', {}, () => new arrow.BinaryView()),
  columnType('utf8_view', {}, () => new arrow.Utf8View()),
  columnType('list_view', {}, null, 1),
  columnType('large_list_view', {}, null, 1),
];

const metadata = list(table({ key: text, value: text }));

const dictionaryEncoding = {
  id: int64(0),
  indexType: table(integer),
  isOrdered: bool(false),
  dictionaryKind: among(int16(0), 0),
};

export interface FieldTable {
  readonly name: string | null;
  readonly nullable: boolean;
  readonly typeType: number;
  readonly type: Readonly<Record<string, unknown>> | null;
  readonly dictionary: Decoded<typeof dictionaryEncoding> | null;
  readonly children: readonly FieldTable[];
  readonly customMetadata: Decoded<{ metadata: typeof metadata }>['metadata'];
}
const field = {
  name: text,
  nullable: bool(false),
  typeType: uint8(0),
  type: union<Readonly<Record<string, unknown>>>(
    'typeType',
    columnTypes.map((type) => type?.slots),
  ),
  dictionary: table(dictionaryEncoding),
  children: list((): Slot<FieldTable | null> => table(field)),
  customMetadata: metadata,
};

const schema = {
  endianness: among(int16(0), 0, 1),
  fields: list(table(field)),
  customMetadata: metadata,
  features: list(int64(0)),
};
export type SchemaTable = Decoded<typeof schema>;

const recordBatch = {
  length: atLeastZero(int64(0)),
  nodes: list(struct({ length: atLeastZero(int64(0)), nullCount: int64(0) })),
  buffers: list(struct({ offset: atLeastZero(int64(0)), length: atLeastZero(int64(0)) })),
  compression: table({ codec: uint8(0), method: uint8(0) }),
  variadicBufferCounts: list(atLeastZero(int64(0))),
};
export type RecordBatchTable = Decoded<typeof recordBatch>;

const dictionaryBatch = { id: int64(0), data: table(recordBatch), isDelta: bool(false) };
export type DictionaryBatchTable = Decoded<typeof dictionaryBatch>;

/** From version V1 (0) to V5 (4). */
const version = int16(0);

/** By their numbers in the union MessageHeader. */
export const messageKinds = [undefined, 'schema', 'dictionary batch', 'record batch', 'tensor', 'sparse tensor'] as const;

export const message = {
  version,
  headerType: uint8(0),
  header: union<SchemaTable | DictionaryBatchTable | RecordBatchTable>('headerType', [
    undefined,
    schema,
    dictionaryBatch,
    recordBatch,
    {},
    {},
  ]),
  bodyLength: atLeastZero(int64(0)),
  customMetadata: metadata,
};

const block = struct({
  offset: atLeastZero(int64(0)),
  metadataLength: atLeastZero(int32(0)),
  bodyLength: atLeastZero(int64(0)),
});
export const footer = {
  version,
  schema: table(schema),
  dictionaries: list(block),
  recordBatches: list(block),
  customMetadata: metadata,
};
