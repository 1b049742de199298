/** Data and vectors of apache-arrow over the buffers that the data plane made, without a copy. */
import type * as arrow from 'apache-arrow';
import type { NativeResultChunk, NativeResultColumn } from '../native.js';
import { dataOver, haveSameNumbers, type Library, vectorIn } from './library.js';
import { fieldsOf, type TypeInfo, typeInfo } from './types.js';
import type { InputDictionary, Values } from './values.js';

/** Reads a column from its first row to its last, rows [begin, end) at a time, none of them in two chunks. */
export function chunkReader(
  library: Library,
  type: arrow.DataType,
  column: NativeResultColumn,
  of: Values,
): (begin: number, end: number) => arrow.Data {
  const { length, nullCount, validity, chunks } = column;
  const { kind } = typeInfo(type)!;
  const dictionary = of.dictionary && dictionaryIn(library, type, of.dictionary);
  let index = 0;
  let first = 0;
  let nested: arrow.Data | undefined;
  return (begin, end) => {
    const chunk = chunks[index]!;
    const [from, to] = [begin - first, end - first];
    if (to === chunk.length) {
      first = end;
      index++;
    }
    if (chunk.nested) {
      // A slice of nulls does not know how many they are.
      if (kind === 'null') return dataOver(library, type, { length: to - from, nullCount: to - from, buffers: [] });
      nested = from === 0 ? nestedData(library, type, chunk, of) : nested!;
      return to - from === chunk.length ? nested : nested.slice(from, to - from);
    }
    const whole = end - begin === length;
    const nullBitmap = validity ? bitsOf(validity, begin, end) : new Uint8Array(0);
    const offset = validity || kind === 'boolean' ? begin % 8 : 0;
    const [offsets, values] = buffersOf(type, chunk, from, to);
    // Parts are counted when somebody asks for it.
    const nulls = nullCount === 0 || whole ? nullCount : -1;
    const buffers = [offsets, values, nullBitmap];
    return dataOver(library, type, { offset, length: end - begin, nullCount: nulls, buffers, dictionary });
  };
}

/** A chunk of nested values, or of those within it. */
function nestedData(library: Library, type: arrow.DataType, chunk: NativeResultChunk, of: Values): arrow.Data {
  const { length } = chunk;
  const { nullCount, validity, buffers, children } = chunk.nested!;
  const { kind } = typeInfo(type)!;
  const fields = fieldsOf(type) as readonly arrow.Field[];
  const within = fields.map((field, index) => nestedData(library, field.type, children[index]!, of.children[index]!));
  const dictionary = of.dictionary && dictionaryIn(library, type, of.dictionary);
  const [offsets, values] = buffersOf(type, chunk, 0, length);
  const isUnion = kind === 'sparse_union' || kind === 'dense_union';
  const parts = isUnion
    ? [offsets, undefined, undefined, values]
    : [offsets, values, validity ? new Uint8Array(validity) : new Uint8Array(0)];
  return dataOver(library, type, {
    length,
    nullCount,
    buffers: kind === 'null' ? [] : parts,
    children: within,
    dictionary,
    variadicBuffers: buffers.map((buffer) => new Uint8Array(buffer)),
  });
}

/** The offsets and values, if any, of rows [begin, end) of a chunk. Booleans start in the first byte, bit `begin % 8`. */
export function buffersOf(
  type: arrow.DataType,
  { values, offsets }: NativeResultChunk,
  begin: number,
  end: number,
): [ArrayBufferView | undefined, ArrayBufferView | undefined] {
  const { kind, width, dictionary } = typeInfo(type)!;
  const length = end - begin;
  switch (kind) {
    case 'boolean':
      return [undefined, bitsOf(values, begin, end)];
    case 'fixed': {
      const Elements = (dictionary ? (type as arrow.Dictionary).indices : type).ArrayType as Uint8ArrayConstructor;
      return [undefined, new Elements(values, begin * width, (length * width) / Elements.BYTES_PER_ELEMENT)];
    }
    case 'utf8':
      return [new Int32Array(offsets!, begin * 4, length + 1), new Uint8Array(values)];
    case 'large_utf8':
      return [new BigInt64Array(offsets!, begin * 8, length + 1), new Uint8Array(values)];
    case 'view':
      return [undefined, new Uint8Array(values, begin * 16, length * 16)];
    case 'list':
      return [new Int32Array(offsets!, begin * 4, length + 1), undefined];
    case 'large_list':
      return [new BigInt64Array(offsets!, begin * 8, length + 1), undefined];
    case 'sparse_union':
      return [undefined, new Int8Array(values, begin, length)];
    case 'dense_union':
      return [new Int32Array(offsets!, begin * 4, length), new Int8Array(values, begin, length)];
    case 'fixed_list':
    case 'struct':
    case 'null':
      return [undefined, undefined];
  }
}

/** The bytes of bits [begin, end). */
function bitsOf(bits: ArrayBuffer, begin: number, end: number): Uint8Array {
  const first = Math.floor(begin / 8);
  return new Uint8Array(bits, first, Math.ceil(end / 8) - first);
}

const made = new WeakMap<InputDictionary, WeakMap<Library, arrow.Vector>>();

/** The dictionary of a result's column of this type: the one that all chunks of the input share, or the one made of theirs. */
export function dictionaryIn(library: Library, type: arrow.DataType, dictionary: InputDictionary): arrow.Vector {
  const { dictionary: valueType } = type as arrow.Dictionary;
  const { shared } = dictionary;
  if (shared && shared.data.length > 0) return vectorIn(library, valueType, shared);
  const known = made.get(dictionary) ?? new WeakMap<Library, arrow.Vector>();
  made.set(dictionary, known);
  let vector = known.get(library);
  if (!vector || !haveSameNumbers(vector.type, valueType)) {
    vector = vectorOf(library, valueType, dictionary.made ?? emptyColumn(typeInfo(valueType)!), dictionary.values);
    known.set(library, vector);
  }
  return vector;
}

/** A vector over a column's values, of which `of` says what is within them. */
export function vectorOf(library: Library, type: arrow.DataType, column: NativeResultColumn, of: Values): arrow.Vector {
  const read = chunkReader(library, type, column, of);
  let end = 0;
  return new library.Vector(
    column.chunks.map(({ length }) => {
      const begin = end;
      end += length;
      return read(begin, end);
    }),
  );
}

function emptyColumn(info: TypeInfo): NativeResultColumn {
  const chunk = emptyChunk(info);
  return { length: 0, nullCount: 0, validity: null, chunks: [chunk] };
}

function emptyChunk({ children }: TypeInfo): NativeResultChunk {
  const nested = { nullCount: 0, validity: null, buffers: [], children: children.map(emptyChunk) };
  // One offset of either width.
  return { length: 0, values: new ArrayBuffer(0), offsets: new ArrayBuffer(8), nested };
}
