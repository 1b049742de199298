/** Tables as they come in: Arrow tables and record batches of any apache-arrow version, read structurally, or IPC bytes. No row is touched. */
import { types } from 'node:util';
import * as arrow from 'apache-arrow';
import { messageOf, WarpjoinError } from '../errors.js';
import { readIpcBytes } from '../ipc/reader.js';
import type { NativeColumn, NativeResultColumn } from '../native.js';
import type { Contents } from '../operators/load.js';
import { didYouMean, list, quote, show } from '../suggest.js';
import { isTable, noTable, readable, tableOfBatches } from './batches.js';
import { type Library, libraryOf, ownLibrary } from './library.js';
import { type ForeignField, type ForeignType, hasPlainParameters, type TypeInfo, typeInfo, typeName } from './types.js';
import {
  addChunk,
  childPath,
  type ForeignData,
  invalid,
  isCount,
  isDetached,
  isResizable,
  layOutDictionaries,
  noValues,
  RESIZABLE,
  type Values,
} from './values.js';

/** One column of an input. */
export interface InputColumn extends Values {
  name: string;
  /** null: a type that is not supported, even as payload. */
  info: TypeInfo | null;
  foreignType: ForeignType;
  nullable: boolean;
  metadata: Map<string, string> | undefined;
}

export interface Input {
  /** The argument that it came in as, for messages. */
  argument: string;
  rows: number;
  columns: readonly InputColumn[];
  metadata: Map<string, string> | undefined;
  /** Whose classes it is made of. */
  library: Library;
  /** Where the engine has loaded it: columns may be on the devices, and have no chunks before they come home. */
  loaded?: Contents;
  /** The loaded table itself: as long as it is held, `loaded` is not freed. */
  holds?: object;
}

export interface ForeignTable {
  schema: { fields: ForeignField[]; metadata?: Map<string, string> };
  batches: { data: ForeignData }[];
}

/**
 * A table argument as a table: that itself, record batches in an object that holds them, or what IPC bytes hold. Throws
 * ERR_INVALID_TABLE, naming the argument, for anything else.
 */
export function tableOf(value: unknown, argument: string): ForeignTable {
  return readable(argument, () => {
    if (isTable(value)) return value;
    return fromBytes(value, argument) ?? tableOfBatches(value, argument) ?? refuse(value, argument);
  });
}

function refuse(value: unknown, argument: string): never {
  throw noTable(value, argument);
}

/**
 * Reads a table argument. Buffers are taken as they are: the data plane checks them against what they claim. Indices of dictionaries
 * get so many bytes at least. Throws ERR_INVALID_TABLE, naming the argument, for anything that is no table.
 */
export function readTable(value: unknown, argument: string, leastIndexBytes = 1): Input {
  const table = tableOf(value, argument);
  return readable(argument, () => readColumns(table, argument, leastIndexBytes));
}

function readColumns(table: ForeignTable, argument: string, leastIndexBytes: number): Input {
  const { fields, metadata } = table.schema;
  const columns: InputColumn[] = [];
  const seen = new Set<string>();
  for (const field of fields) {
    if (typeof field?.name !== 'string' || typeof field.type?.typeId !== 'number')
      throw invalid(argument, 'has a field without a name or type');
    if (!hasPlainParameters(field.type))
      throw invalid(argument, `has a column ${quote(field.name)} of a type that makes no sense`);
    if (seen.has(field.name)) throw invalid(argument, `has two columns named ${quote(field.name)}; expected distinct names`);
    seen.add(field.name);
    const info = typeInfo(field.type);
    columns.push({
      name: field.name,
      info,
      foreignType: field.type,
      nullable: field.nullable !== false,
      metadata: textsOf(field.metadata, argument, `the column ${quote(field.name)}`),
      ...noValues(info),
    });
  }
  let rows = 0;
  for (const [number, batch] of table.batches.entries()) {
    const length = batch?.data?.length;
    const children = batch?.data?.children;
    if (!isCount(length) || !Array.isArray(children) || children.length !== fields.length) {
      throw invalid(argument, `has a record batch (${number}) that doesn't fit its schema`);
    }
    rows += length;
    if (length === 0) continue;
    for (const [index, column] of columns.entries()) {
      const data = children[index];
      if (data?.length !== length) {
        throw invalid(
          argument,
          `has a column ${quote(column.name)} of ${data?.length} rows in record batch ${number}, which has ${length}`,
        );
      }
      if (column.info) addChunk(column, column.info, data, argument, column.name);
    }
  }
  for (const column of columns)
    if (column.info) column.info = layOutDictionaries(column, column.info, leastIndexBytes, argument, column.name);
  return { argument, rows, columns, metadata: textsOf(metadata, argument, 'its schema'), library: libraryOf(table) };
}

/** Custom metadata as it is now. */
function textsOf(metadata: unknown, argument: string, of: string): Map<string, string> | undefined {
  if (metadata === undefined || metadata === null) return undefined;
  if (!types.isMap(metadata)) throw invalid(argument, `has metadata of ${of} that is no Map`);
  return new Map(metadata as Map<string, string>);
}

function fromBytes(value: unknown, argument: string): ForeignTable | null {
  const bytes = types.isArrayBuffer(value) ? new Uint8Array(value) : value;
  if (!types.isUint8Array(bytes)) return null;
  if (bytes.byteLength === 0) throw invalid(argument, 'has no bytes: its buffer is empty or detached');
  try {
    return readIpcBytes(bytes) as unknown as ForeignTable;
  } catch (cause) {
    throw invalid(argument, `is not readable as Arrow IPC bytes: ${messageOf(cause)}`, { cause });
  }
}

/** The index of a column. Throws ERR_COLUMN_NOT_FOUND with the nearest name. */
export function findColumn(input: Input, name: string, option: string): number {
  const index = input.columns.findIndex((column) => column.name === name);
  if (index < 0) {
    const names = input.columns.map((column) => column.name);
    throw new WarpjoinError(
      'ERR_COLUMN_NOT_FOUND',
      `Expected a column of the ${input.argument} table for ${option} but received ${quote(name)}. ` +
        `${names.length ? `It has ${list(names)}.` : 'It has no columns.'}${didYouMean(name, names)}`,
    );
  }
  return index;
}

/** The type of a column that is to be moved. Throws ERR_NOT_SUPPORTED for one that can't be. */
export function infoOf(input: Input, index: number): TypeInfo {
  const column = input.columns[index]!;
  if (!column.info) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `Column ${quote(column.name)} of the ${input.argument} table has type ${typeName(column.foreignType)}, which is not supported yet. ` +
        'Leave it out with select.',
    );
  }
  return column.info;
}

/** The columns of `indices`, for the data plane. */
export function nativeColumns(input: Input, indices: readonly number[]): NativeColumn[] {
  return indices.map((index) => {
    const column = input.columns[index]!;
    return nativeColumn(column.name, infoOf(input, index), column);
  });
}

/** Takes the dictionaries that a relation of these columns has made of several. */
export function takeDictionaries(input: Input, indices: readonly number[], made: readonly NativeResultColumn[]): void {
  const left = [...made];
  const visit = ({ children, dictionary }: Values): void => {
    for (const child of children) visit(child);
    if (!dictionary) return;
    visit(dictionary.values);
    if (!dictionary.isUnified) return;
    const next = left.shift()!;
    dictionary.made ??= next;
  };
  for (const index of indices) visit(input.columns[index]!);
}

/** Chunks of values of a type, for the data plane. Throws ERR_INVALID_TABLE, naming the argument. */
export function nativeValues(name: string, type: arrow.DataType, chunks: readonly arrow.Data[], argument: string): NativeColumn {
  const info = typeInfo(type as unknown as ForeignType)!;
  const values = noValues(info);
  for (const chunk of chunks) addChunk(values, info, chunk as unknown as ForeignData, argument, name);
  return nativeColumn(name, info, values);
}

function nativeColumn(name: string, info: TypeInfo, { chunks, children, dictionary }: Values): NativeColumn {
  const { kind, order, width, typeIds } = info;
  const column: NativeColumn = { name, kind, order, width, chunks };
  if (info.children.length > 0 || kind === 'struct') {
    column.children = info.children.map((child, index) => nativeColumn(childPath(name, info, index), child, children[index]!));
  }
  if (kind === 'sparse_union' || kind === 'dense_union') Object.assign(column, { typeIds, children: column.children ?? [] });
  if (dictionary) {
    column.width = info.type.indices!.bitWidth! / 8;
    column.indexWidth = width;
    column.isUnified = dictionary.isUnified;
    column.dictionary = nativeColumn(`${name} (dictionary)`, dictionary.info, dictionary.values);
  }
  return column;
}

/** Whether the data plane can carry the column's values with the keys: 4 or 8 bytes wide, no nulls. */
export function canBeCarried(input: Input, index: number): boolean {
  const { kind, width } = infoOf(input, index);
  return kind === 'fixed' && (width === 4 || width === 8) && input.columns[index]!.withoutNulls;
}

/** Whether the column's values are keys as they are, which may give them back: booleans and numbers of up to 8 bytes. */
export function canBeDecoded(input: Input, index: number): boolean {
  const { kind, order, width, dictionary } = infoOf(input, index);
  if (dictionary) return false;
  return kind === 'boolean' || (kind === 'fixed' && order !== 'bytes' && width <= 8);
}

/** Whether devices can use the column: booleans, and values of 1, 2, 4, 8 or 16 bytes. */
export function isForDevices(input: Input, index: number): boolean {
  const { kind, width } = infoOf(input, index);
  return kind === 'boolean' || (kind === 'fixed' && [1, 2, 4, 8, 16].includes(width));
}

/** In how many stretches of memory a column lies that the data plane can gather on devices; null for one that it can't. */
export function stretchesForDevices(input: Input, index: number): number | null {
  return isForDevices(input, index) ? input.columns[index]!.chunks.length : null;
}

/** A typed array as a column. */
export type KeyArray =
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array
  | Float32Array
  | Float64Array;

const ARRAY_TYPES = new Map<string, () => arrow.DataType>([
  ['Int8Array', () => new arrow.Int8()],
  ['Int16Array', () => new arrow.Int16()],
  ['Int32Array', () => new arrow.Int32()],
  ['BigInt64Array', () => new arrow.Int64()],
  ['Uint8Array', () => new arrow.Uint8()],
  ['Uint16Array', () => new arrow.Uint16()],
  ['Uint32Array', () => new arrow.Uint32()],
  ['BigUint64Array', () => new arrow.Uint64()],
  ['Float32Array', () => new arrow.Float32()],
  ['Float64Array', () => new arrow.Float64()],
]);

/** The type of a typed array of numbers or bigints; undefined for anything else. */
export function typeOfArray(array: unknown): arrow.DataType | undefined {
  const tag = ArrayBuffer.isView(array) ? (array as unknown as { [Symbol.toStringTag]: string })[Symbol.toStringTag] : '';
  return ARRAY_TYPES.get(tag)?.();
}

/** Typed arrays of the same length as an input with these columns. Throws ERR_INVALID_TABLE for anything else. */
export function readArrays(arrays: Readonly<Record<string, unknown>>, argument: string): Input {
  const columns: InputColumn[] = [];
  let rows: number | undefined;
  for (const [name, array] of Object.entries(arrays)) {
    const arrayType = typeOfArray(array);
    if (!arrayType) {
      const what = argument === name ? argument : `${name} of ${argument}`;
      throw new WarpjoinError(
        'ERR_INVALID_TABLE',
        `Expected a typed array of numbers or bigints for ${what} but received ${show(array)}.`,
      );
    }
    const typed = array as KeyArray;
    if (isResizable(typed)) throw new WarpjoinError('ERR_INVALID_TABLE', `The ${name} of ${argument} ${RESIZABLE}.`);
    if (isDetached(typed)) throw new WarpjoinError('ERR_INVALID_TABLE', `The buffer of ${name} of ${argument} is detached.`);
    rows ??= typed.length;
    if (typed.length !== rows) {
      throw new WarpjoinError(
        'ERR_INVALID_TABLE',
        `Expected arrays of the same length for ${argument} but ${name} has ${typed.length} values and not ${rows}.`,
      );
    }
    const type = arrayType as unknown as ForeignType;
    columns.push({
      name,
      info: typeInfo(type),
      foreignType: type,
      nullable: false,
      metadata: undefined,
      ...noValues(null),
      chunks: rows === 0 ? [] : [{ length: rows, bitOffset: 0, validity: null, values: typed, offsets: null }],
    });
  }
  return { argument, rows: rows ?? 0, columns, metadata: undefined, library: ownLibrary };
}
