/** Copies of apache-arrow: a result is made of the classes of the caller's own tables, of whatever version they are. */
import * as arrow from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import { type ForeignType, ownType, type TypeInfo, typeName } from './types.js';

/** The classes of one copy of apache-arrow that its tables consist of. */
export type Library = Pick<typeof arrow, 'Data' | 'Field' | 'RecordBatch' | 'Schema' | 'Struct' | 'Table'>;

/** The copy that warpjoin itself imports: tables from IPC bytes are made of it. */
export const ownLibrary: Library = arrow;

const libraries = new WeakMap<object, Library>([[arrow.Table, ownLibrary]]);

/** The copy of apache-arrow that a table was made with; warpjoin's own for an object that no class of tables made. */
export function libraryOf(table: object): Library {
  const root = rootPrototype(table) as Partial<arrow.Table> | null;
  const Table = root?.constructor as typeof arrow.Table | undefined;
  if (typeof Table !== 'function' || typeof root?.getChildAt !== 'function') return ownLibrary;
  let library = libraries.get(Table);
  if (!library) {
    library = classesOf(Table);
    libraries.set(Table, library);
  }
  return library;
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
    const { schema } = new Table({ column: new Data(batch.data.type, 0, 0, 0) } as never);
    const [field] = schema.fields;
    if (field!.name !== 'column') return ownLibrary;
    return {
      Table,
      Data,
      Field: classOf(field!),
      RecordBatch: classOf(batch),
      Schema: classOf(schema),
      Struct: classOf(batch.data.type),
    };
  } catch {
    return ownLibrary;
  }
}

/**
 * A column's type for a table of `library`: the type itself, or, if it is of another copy, one that is equal to it. Throws
 * ERR_NOT_SUPPORTED for a type that this version does not have.
 */
export function typeIn(library: Library, { type, kind, width }: TypeInfo, column: string): arrow.DataType {
  if (Object.prototype.isPrototypeOf.call(rootOf(library), type)) return type as unknown as arrow.DataType;
  const made = library === ownLibrary ? ownType(type) : adopted(library, type);
  if (kind !== 'fixed') return made;
  // Timestamps and dates were pairs of 32-bit integers before apache-arrow 16; intervals had no 16 bytes before 20.
  const { stride } = new library.Data(made, 0, 0, 0);
  if (made.ArrayType.BYTES_PER_ELEMENT * stride === width) return made;
  const Elements = { 4: Int32Array, 8: BigInt64Array }[width / stride];
  if (Elements) return Object.defineProperty(made, 'ArrayType', { value: Elements });
  throw new WarpjoinError(
    'ERR_NOT_SUPPORTED',
    `Column ${column} has type ${typeName(type)}, which the apache-arrow version of the left table, and so of the result, does not have. ` +
      'Make both tables with the newer version, or leave the column out with select.',
  );
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
