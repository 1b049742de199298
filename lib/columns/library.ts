/** Copies of apache-arrow: a result is made of the classes of the caller's own tables, of whatever version they are. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { ColumnKind } from '../native.js';
import type { ForeignTable } from './input.js';
import { type ForeignField, type ForeignType, fieldsOf, ownType, type TypeInfo, typeInfo, typeName } from './types.js';
import type { ForeignData, ForeignVector } from './values.js';

/** The classes of one copy of apache-arrow that its tables consist of. */
export type Library = Pick<typeof arrow, 'Data' | 'Field' | 'RecordBatch' | 'Schema' | 'Struct' | 'Table' | 'Vector'>;

/** What data of a column consist of. */
interface DataParts {
  /** The first row's place in the buffers; 0 where it isn't given. */
  readonly offset?: number;
  readonly length: number;
  /** -1 where nobody has counted them. */
  readonly nullCount: number;
  /** Offsets, values, validity and type ids: each may be missing. */
  readonly buffers: readonly unknown[];
  readonly children?: readonly (arrow.Data | undefined)[];
  readonly dictionary?: arrow.Vector | null | undefined;
  /** The bytes that views point to. Versions of apache-arrow before 21.1 know nothing of them. */
  readonly variadicBuffers?: unknown;
}

/** Data over buffers as they are: the declaration of its class leaves out what columns without values have. */
export function dataOver(library: Library, type: arrow.DataType, parts: DataParts): arrow.Data {
  const { offset = 0, length, nullCount, buffers, children = [], dictionary, variadicBuffers } = parts;
  const Data = library.Data as unknown as new (...parts: unknown[]) => arrow.Data;
  return new Data(type, offset, length, nullCount, buffers, children, dictionary, variadicBuffers);
}

/** The copy that warpjoin itself imports: tables from IPC bytes are made of it. */
export const ownLibrary: Library = arrow;

const libraries = new WeakMap<object, Library>([[arrow.Table, ownLibrary]]);

/**
 * The copy of apache-arrow that a table was made with: by its class or, of an object that holds record batches, by that of the
 * first one. warpjoin's own where no class tells.
 */
export function libraryOf(table: ForeignTable): Library {
  const root = rootPrototype(table) as Partial<arrow.Table> | null;
  const Table = (root ? root.constructor : tableClassOf(table.batches[0])) as typeof arrow.Table | undefined;
  if (typeof Table !== 'function' || typeof Table.prototype.getChildAt !== 'function') return ownLibrary;
  let library = libraries.get(Table);
  if (!library) {
    library = classesOf(Table);
    libraries.set(Table, library);
  }
  return library;
}

/** Classes of tables, by those of their record batches. */
const tableClasses = new WeakMap<object, unknown>();

/** The class of tables that a record batch makes of itself and others. */
function tableClassOf(batch: object | undefined): unknown {
  const root = batch && (rootPrototype(batch) as Partial<arrow.RecordBatch> | null);
  if (typeof root?.concat !== 'function') return undefined;
  if (!tableClasses.has(root)) tableClasses.set(root, rootPrototype(root.concat.call(batch as arrow.RecordBatch))?.constructor);
  return tableClasses.get(root);
}

/** The prototype of the class that the object's class extends in the end; null for a plain object. */
function rootPrototype(of: object): object | null {
  let root: object | null = null;
  for (let next = Object.getPrototypeOf(of); next && Object.getPrototypeOf(next); next = Object.getPrototypeOf(next)) root = next;
  return root;
}

/** The classes behind a class of tables, by what it makes: an application may be bundled, and its names minified. */
function classesOf(Table: typeof arrow.Table): Library {
  const classOf = <C>(instance: object): C => instance.constructor as C;
  try {
    const batch = new Table({} as never).batches[0]!;
    const Data = classOf<typeof arrow.Data>(batch.data);
    const table = new Table({ column: new Data(batch.data.type, 0, 0, 0) } as never);
    const { schema } = table;
    const [field] = schema.fields;
    if (field!.name !== 'column') return ownLibrary;
    return {
      Table,
      Data,
      Field: classOf(field!),
      RecordBatch: classOf(batch),
      Schema: classOf(schema),
      Struct: classOf(batch.data.type),
      Vector: classOf(table.getChildAt(0)!),
    };
  } catch {
    return ownLibrary;
  }
}

/**
 * A column's type for a table of `library`: the type itself, or, if it is of another copy, one that is equal to it. Indices of
 * dictionaries are as wide as `info` says. Throws ERR_NOT_SUPPORTED for a type that this version does not have.
 */
export function typeIn(library: Library, info: TypeInfo, column: string): arrow.DataType {
  const { type, kind, width, children, dictionary } = info;
  const isOwn = isTypeOf(library, type);
  const made = isOwn ? (type as unknown as arrow.DataType) : library === ownLibrary ? ownType(type) : adopted(library, type);
  const within = children.map((child) => typeIn(library, child, column));
  const values = dictionary && valueTypeIn(library, dictionary, column);
  const indices = dictionary && indexTypeIn(library, type.indices!, width, column);
  if (isOwn) {
    const same = within.every((child, index) => child === (made.children as readonly arrow.Field[])[index]!.type);
    if (same && (!dictionary || (values === type.dictionary && indices === type.indices))) return made;
  }
  if (values) return variant(made, { dictionary: values, indices });
  if (children.length > 0) {
    const fields = (type.children as readonly ForeignField[]).map(({ name, nullable, metadata }, index) => {
      return new library.Field(name, within[index]!, nullable !== false, metadata ? new Map(metadata) : null);
    });
    const parent = variant(made, { children: fields });
    if (isOwn || isKnownTo(library, parent)) return parent;
  } else if (kind === 'fixed') {
    // Timestamps and dates were pairs of 32-bit integers before apache-arrow 16; intervals had no 16 bytes before 20.
    const { stride } = new library.Data(made, 0, 0, 0);
    if (made.ArrayType.BYTES_PER_ELEMENT * stride === width) return made;
    const Elements = { 4: Int32Array, 8: BigInt64Array }[width / stride];
    if (Elements) return variant(made, { ArrayType: Elements });
  } else if (isKnownTo(library, made)) return made;
  throw new WarpjoinError(
    'ERR_NOT_SUPPORTED',
    `Column ${column} has type ${typeName(type)}, which the apache-arrow version of the left table, and so of the result, does not have. ` +
      'Make both tables with the newer version, or leave the column out with select.',
  );
}

/** Types of dictionaries' values, by those of other copies. */
const valueTypes = new WeakMap<ForeignType, WeakMap<Library, arrow.DataType>>();

/** Columns with the same dictionary must have the same object for the type of its values. */
function valueTypeIn(library: Library, info: TypeInfo, column: string): arrow.DataType {
  if (hasWiderIndices(info)) return typeIn(library, info, column);
  const known = valueTypes.get(info.type) ?? new WeakMap<Library, arrow.DataType>();
  valueTypes.set(info.type, known);
  const type = known.get(library) ?? typeIn(library, info, column);
  known.set(library, type);
  return type;
}

/** Whether indices within a type are wider than it says. */
const hasWiderIndices = ({ type, width, children, dictionary }: TypeInfo): boolean =>
  (dictionary !== null && (type.indices!.bitWidth !== 8 * width || hasWiderIndices(dictionary))) ||
  children.some(hasWiderIndices);

const isTypeOf = (library: Library, type: object): boolean => Object.prototype.isPrototypeOf.call(rootOf(library), type);

/** Whether the version has vectors of such a type. */
function isKnownTo({ Data, Vector }: Library, type: arrow.DataType): boolean {
  try {
    return new Vector([new Data(type, 0, 0, 0)]).length === 0;
  } catch {
    return false;
  }
}

/** A type like this one, but for some of its properties. */
function variant(type: arrow.DataType, properties: object): arrow.DataType {
  const changed = Object.getOwnPropertyDescriptors(properties);
  return Object.create(Object.getPrototypeOf(type), { ...Object.getOwnPropertyDescriptors(type), ...changed });
}

/** The type of indices of so many bytes: that itself, or, where they are wider, one with the same sign. */
function indexTypeIn(library: Library, type: ForeignType, width: number, column: string): arrow.DataType {
  const own = typeIn(library, typeInfo(type)!, column);
  if (type.bitWidth === 8 * width) return own;
  // What all integer types of the version extend: their own classes can't be had.
  let integer = Object.getPrototypeOf(own);
  while (Object.getPrototypeOf(integer) !== rootOf(library)) integer = Object.getPrototypeOf(integer);
  const ArrayType = type.isSigned
    ? { 1: Int8Array, 2: Int16Array, 4: Int32Array, 8: BigInt64Array }[width]
    : { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }[width];
  const wide = Object.create(integer, Object.getOwnPropertyDescriptors(own));
  return variant(wide, { isSigned: type.isSigned, bitWidth: 8 * width, ArrayType });
}

/** A dictionary's type under this number, with values of this type: itself, or one like it. */
export const renumbered = (type: arrow.Dictionary, id: number, values: arrow.DataType): arrow.DataType =>
  type.id === id && type.dictionary === values ? type : variant(type, { id, dictionary: values });

/** Whether all dictionaries within two types that are alike have the same numbers. */
export function haveSameNumbers(one: ForeignType, other: ForeignType): boolean {
  if (one === other) return true;
  const [fields, others] = [fieldsOf(one), fieldsOf(other)];
  return (
    one.id === other.id &&
    (!one.dictionary || haveSameNumbers(one.dictionary, other.dictionary!)) &&
    fields.every(({ type }, index) => haveSameNumbers(type, others[index]!.type))
  );
}

/** The same type with children of other types. */
export function withChildTypes(library: Library, type: arrow.DataType, types: readonly arrow.DataType[]): arrow.DataType {
  const fields = (type.children as readonly arrow.Field[]).map(({ name, nullable, metadata }, index) => {
    return new library.Field(name, types[index]!, nullable, metadata);
  });
  return variant(type, { children: fields });
}

const isOf = ({ prototype }: { prototype: object }, value: object): boolean =>
  Object.prototype.isPrototypeOf.call(prototype, value);

const adoptedVectors = new WeakMap<ForeignVector, WeakMap<Library, arrow.Vector>>();

/**
 * A vector of any version as one of `library`, of a type of that, which says how dictionaries within are numbered: the vector itself,
 * or one over the same memory.
 */
export function vectorIn(library: Library, type: arrow.DataType, vector: ForeignVector): arrow.Vector {
  if (isOf(library.Vector, vector)) {
    const own = vector as unknown as arrow.Vector;
    if (haveSameNumbers(own.type, type)) return own;
  }
  const known = adoptedVectors.get(vector) ?? new WeakMap<Library, arrow.Vector>();
  adoptedVectors.set(vector, known);
  let made = known.get(library);
  if (!made || !haveSameNumbers(made.type, type)) {
    made = new library.Vector(vector.data.map((data) => dataIn(library, type, data)));
    known.set(library, made);
  }
  return made;
}

/** Whether an object that is no table holds record batches of `library`, all of one schema. */
function holdsBatchesOf(library: Library, { schema, batches }: ForeignTable): boolean {
  const isOwn = (batch: object) => isOf(library.RecordBatch, batch) && (batch as { schema?: unknown }).schema === schema;
  return isOf(library.Schema, schema) && batches.every(isOwn);
}

/**
 * A table of any version, or what holds record batches, as a table of `library`: itself, or one over the same memory. Batches of no rows
 * are whole. Throws like typeIn().
 */
export function tableIn(library: Library, table: ForeignTable): arrow.Table {
  const isTable = isOf(library.Table, table);
  if (isTable || holdsBatchesOf(library, table)) {
    const { schema, batches } = table as unknown as arrow.Table;
    if (isTable && batches.every(({ numRows }) => numRows > 0)) return table as unknown as arrow.Table;
    return new library.Table(
      schema,
      batches.map((batch) => (batch.numRows > 0 ? batch : batchWithoutRows(schema, batch, library))),
    );
  }
  const { fields, metadata } = table.schema;
  const schema = new library.Schema(
    fields.map(({ name, type, nullable, metadata }) => {
      const info = typeInfo(type);
      if (!info)
        throw new WarpjoinError('ERR_NOT_SUPPORTED', `Column ${name} has type ${typeName(type)}, which is not supported yet.`);
      return new library.Field(name, typeIn(library, info, name), nullable !== false, metadata ? new Map(metadata) : null);
    }),
    metadata ? new Map(metadata) : null,
  );
  const struct = new library.Struct(schema.fields);
  const batches = table.batches.map(
    ({ data }) => new library.RecordBatch(schema, dataIn(library, struct, data) as arrow.Data<arrow.Struct>),
  );
  return new library.Table(schema, batches);
}

/** A record batch over columns, of which each has `length` rows. Fields of the schema may differ from the columns' in where nulls may be. */
export function batchOver(schema: arrow.Schema, length: number, columns: arrow.Data[], library = ownLibrary): arrow.RecordBatch {
  const buffers = [undefined, undefined, new Uint8Array(0)];
  const data = dataOver(library, new library.Struct(schema.fields), { length, nullCount: 0, buffers, children: columns });
  return new library.RecordBatch(schema, data as arrow.Data<arrow.Struct>);
}

/** Rows [begin, end) of a record batch, like its slice(), which makes vectors, too. */
export function rowsOfBatch(batch: arrow.RecordBatch, begin: number, end: number): arrow.RecordBatch {
  const RecordBatch = batch.constructor as typeof arrow.RecordBatch;
  return new RecordBatch(batch.schema, batch.data.slice(begin, end - begin));
}

/** A record batch of no rows, with the dictionaries of another batch. */
export function batchWithoutRows(schema: arrow.Schema, like?: arrow.RecordBatch, library = ownLibrary): arrow.RecordBatch {
  const data = dataWithoutRows(library, new library.Struct(schema.fields), like?.data as ForeignData | undefined);
  return new library.RecordBatch(schema, data as arrow.Data<arrow.Struct>);
}

/** Data of no rows. What apache-arrow makes of none may lack buffers and children; its dictionary stays. */
function dataWithoutRows(library: Library, type: arrow.DataType, data: ForeignData | undefined): arrow.Data {
  const { indices, dictionary } = type as Partial<arrow.Dictionary>;
  const children = Array.isArray(data?.children) ? data.children : [];
  const Offsets = OFFSETS.get(typeInfo(type as unknown as ForeignType)?.kind);
  const Elements = (indices ?? type).ArrayType as Uint8ArrayConstructor; // Array, where there are none
  return dataOver(library, type, {
    length: 0,
    nullCount: 0,
    buffers: [
      Offsets && new Offsets(1),
      'BYTES_PER_ELEMENT' in Elements ? new Elements(0) : undefined,
      new Uint8Array(0),
      new Int8Array(0),
    ],
    children: fieldsOf(type).map((field, index) => dataWithoutRows(library, field.type as arrow.DataType, children[index])),
    dictionary: dictionary && data?.dictionary && vectorIn(library, dictionary, data.dictionary),
  });
}

/** Of the kinds that have offsets. */
const OFFSETS = new Map<ColumnKind | undefined, Int32ArrayConstructor | BigInt64ArrayConstructor>([
  ['utf8', Int32Array],
  ['large_utf8', BigInt64Array],
  ['list', Int32Array],
  ['large_list', BigInt64Array],
  ['dense_union', Int32Array],
]);

function dataIn(library: Library, type: arrow.DataType, data: ForeignData | undefined): arrow.Data {
  if (!data?.length) return dataWithoutRows(library, type, data);
  const { indices, dictionary } = type as Partial<arrow.Dictionary>;
  const fields = fieldsOf(type) as readonly arrow.Field[];
  const { valueOffsets, nullBitmap, typeIds } = data;
  const values = data.values && elementsOf((indices ?? type).ArrayType, data.values as ArrayBufferView);
  return dataOver(library, type, {
    offset: data.offset ?? 0,
    length: data.length,
    nullCount: data._nullCount ?? -1,
    buffers: [valueOffsets, values, nullBitmap, typeIds],
    children: fields.map((field, index) => dataIn(library, field.type, data.children![index]!)),
    dictionary: dictionary && data.dictionary && vectorIn(library, dictionary, data.dictionary),
    variadicBuffers: data.variadicBuffers,
  });
}

/** The same bytes as elements that the version has for the type. */
function elementsOf(Elements: unknown, view: ArrayBufferView): ArrayBufferView {
  const { BYTES_PER_ELEMENT: bytes = 1 } = Elements as Uint8ArrayConstructor;
  const aligned = view.byteOffset % bytes === 0 ? view : new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice();
  return new (Elements as Uint8ArrayConstructor)(aligned.buffer as ArrayBuffer, aligned.byteOffset, aligned.byteLength / bytes);
}

/** What the types of a copy have in common. */
const rootOf = ({ Struct }: Library): object => Object.getPrototypeOf(Struct.prototype);

/** Types of other copies, by their prototypes, as types of a library whose own classes of types can't be had. */
const adoptions = new WeakMap<Library, WeakMap<object, object>>();

function adopted(library: Library, type: ForeignType): arrow.DataType {
  const known = adoptions.get(library) ?? new WeakMap<object, object>();
  adoptions.set(library, known);
  const from = Object.getPrototypeOf(type);
  let prototype = known.get(from);
  if (!prototype) {
    // A class of its own: types are equal only where one is an instance of the other's constructor.
    class Adopted extends (rootOf(library).constructor as new () => object) {}
    prototype = Adopted.prototype;
    for (const of of chainOf(from)) {
      const { constructor: _, ...members } = Object.getOwnPropertyDescriptors(of);
      Object.defineProperties(prototype, members);
    }
    known.set(from, prototype);
  }
  return Object.create(prototype, Object.getOwnPropertyDescriptors(type));
}

/** The prototype after those that it inherits from, less Object's. */
function chainOf(prototype: object): object[] {
  const parent = Object.getPrototypeOf(prototype);
  return parent === null ? [] : [...chainOf(parent), prototype];
}
