/** Schemas as IPC metadata states them, as those of apache-arrow. */
import { isDeepStrictEqual } from 'node:util';
import * as arrow from 'apache-arrow';
import { IpcError, within } from './flatbuffer.js';
import { columnTypes, type FieldTable, type SchemaTable } from './metadata.js';

/** V4, of Arrow 0.8. Before it, buffers were listed in another way. */
const oldestVersion = 3;
/** V5, of Arrow 1.0. */
const newestVersion = 4;

export interface TableSchema {
  readonly schema: arrow.Schema;
  /** Types of the values that dictionaries hold. */
  readonly dictionaries: ReadonlyMap<number, arrow.DataType>;
}

/** Throws an IpcError for a schema that makes no sense, and for one that can't be read here. */
export function readSchema(table: SchemaTable, version: number): TableSchema {
  checkVersion(version);
  if (table.endianness !== 0)
    throw new IpcError('its values are big-endian, which is not supported: write it on a little-endian machine');
  const dictionaries: Dictionaries = new Map();
  const fields = table.fields.map((field) => readField(field, dictionaries));
  return {
    schema: new arrow.Schema(fields, textMap(table.customMetadata)),
    dictionaries: new Map([...dictionaries].map(([id, { type }]) => [id, type])),
  };
}

/** Whether columns of unions have validity bits. */
export const unionsHaveValidity = (version: number): boolean => version < newestVersion;

export function checkVersion(version: number): void {
  if (version >= oldestVersion && version <= newestVersion) return;
  throw new IpcError(
    `metadata version V${version + 1} is not supported: expected V${oldestVersion + 1} or V${newestVersion + 1}, which Arrow has written since 0.8`,
  );
}

/** Entries of custom metadata; an absent key or value is empty. */
export function textMap(entries: SchemaTable['customMetadata']): Map<string, string> {
  return new Map(entries.map(({ key, value }) => [key ?? '', value ?? '']));
}

/** The fields that introduced a dictionary, with the type of its values. */
type Dictionaries = Map<number, { field: FieldTable; type: arrow.DataType }>;

function readField(field: FieldTable, dictionaries: Dictionaries): arrow.Field {
  // Writers leave empty names out.
  const name = field.name ?? '';
  try {
    return new arrow.Field(name, readType(field, dictionaries), field.nullable, textMap(field.customMetadata));
  } catch (error) {
    throw within(`field ${JSON.stringify(name)}`, error);
  }
}

function readType(field: FieldTable, dictionaries: Dictionaries): arrow.DataType {
  const { dictionary } = field;
  if (!dictionary) return readValueType(field, dictionaries);
  const { id, indexType, isOrdered } = dictionary;
  let known = dictionaries.get(id);
  if (!known) {
    known = { field, type: readValueType(field, dictionaries) };
    dictionaries.set(id, known);
  } else if (!isDeepStrictEqual(valuesOf(field), valuesOf(known.field))) {
    throw new IpcError(`dictionary ${id} has values of another type in field ${JSON.stringify(known.field.name ?? '')}`);
  }
  const indices = indexType ? new arrow.Int(indexType.isSigned as never, indexType.bitWidth as never) : new arrow.Int32();
  return new arrow.Dictionary(known.type, indices as never, id, isOrdered);
}

/** What a field says of its dictionary's values. */
const valuesOf = ({ typeType, type, children }: FieldTable) => ({ typeType, type, children });

function readValueType({ typeType, type, children: fields }: FieldTable, dictionaries: Dictionaries): arrow.DataType {
  const known = columnTypes[typeType];
  if (!known || !type) throw new IpcError('it has no type');
  if (known.children !== null && fields.length !== known.children)
    throw new IpcError(`it is of type ${known.name} with ${fields.length} child fields; expected ${known.children}`);
  if (!known.make) throw new IpcError(`its type ${known.name} is not supported yet`);
  const children = fields.map((child) => readField(child, dictionaries));
  return known.make(type as never, children);
}
