/** Record batches and dictionary batches: a message's field nodes and buffers as data of apache-arrow, checked and, unless they are compressed, not copied. */
import * as arrow from 'apache-arrow';
import { typeInfo } from '../columns/types.js';
import { type Decompress, decompressor } from './compression.js';
import { IpcError } from './flatbuffer.js';
import type { RecordBatchTable } from './metadata.js';
import { unionsHaveValidity } from './schema.js';

const bytesOfBits = (bits: number) => Math.ceil(bits / 8);

/** The dictionaries that messages before it have given. */
export interface DictionaryVectors {
  vector(id: number): arrow.Vector | undefined;
}

/**
 * The columns `fields` of a batch that a message of metadata `version` lists. Every buffer lies within `body`, and has the bytes
 * that the rows need; text has those that its last offset says. Values and other offsets are not looked at. Throws an IpcError.
 */
export function readColumns(
  fields: readonly arrow.Field[],
  batch: RecordBatchTable,
  body: Uint8Array,
  version: number,
  dictionaries: DictionaryVectors,
): arrow.Data[] {
  const reader = new ColumnReader(batch, body, version, dictionaries);
  const columns = fields.map((field) => {
    const column = reader.column(field);
    if (column.length !== batch.length)
      throw new IpcError(`column ${JSON.stringify(field.name)} has ${column.length} rows in a batch of ${batch.length}`);
    return column;
  });
  reader.end();
  return columns;
}

/** What messages call a column. They are rare, and its name and its parents' may be long. */
type Label = () => string;

/** Goes through nodes and buffers in the order of the schema's fields, parents before children. */
class ColumnReader {
  #nodes = 0;
  #buffers = 0;
  #variadic = 0;
  readonly #decompress: Decompress | null;
  /** Compressed bytes so far: buffers that overlap could hold more than the body's bytes can. */
  #compressed = 0;

  constructor(
    private readonly batch: RecordBatchTable,
    private readonly body: Uint8Array,
    private readonly version: number,
    private readonly dictionaries: DictionaryVectors,
  ) {
    this.#decompress = batch.compression && decompressor(batch.compression);
  }

  /** All of the batch must have been asked for. */
  end(): void {
    const { nodes, buffers, variadicBufferCounts } = this.batch;
    const left = (what: string, used: number, all: readonly unknown[]) => {
      if (used < all.length) throw new IpcError(`it lists ${all.length} ${what} but its schema has ${used}`);
    };
    left('columns', this.#nodes, nodes);
    left('buffers', this.#buffers, buffers);
    left('columns of views', this.#variadic, variadicBufferCounts);
  }

  column({ name, type }: arrow.Field, parent?: Label): arrow.Data {
    const label = () => `${parent ? `${parent()}.` : ''}${JSON.stringify(name)}`;
    const node = this.batch.nodes[this.#nodes++];
    if (!node)
      throw new IpcError(`it lists ${this.batch.nodes.length} columns but its schema has more: column ${label()} is missing`);
    const { length, nullCount } = node;
    const buffer = (what: string, least: number) => this.#buffer(what, label, least);
    const validity = () => {
      if (nullCount < 0 || nullCount > length) throw new IpcError(`column ${label()} has ${nullCount} nulls in ${length} rows`);
      const bits = buffer('validity bits', nullCount > 0 ? bytesOfBits(length) : 0);
      return { nullCount, nullBitmap: nullCount > 0 ? bits : bits.subarray(0, 0) };
    };
    /** One offset more than there are values, unless there are none. */
    const offsets = (width: 4 | 8) => aligned(buffer('offsets', length > 0 ? (length + 1) * width : 0), width);
    /** Those of a type of fixed width. */
    const values = (of: arrow.DataType) =>
      aligned(buffer('values', length * (typeInfo(of)?.width ?? 0)), of.ArrayType.BYTES_PER_ELEMENT);
    // Some versions of apache-arrow write fewer values than the parents say, so their numbers are not compared.
    const child = (field: arrow.Field) => this.column(field, label);
    const make = (parts: object): arrow.Data => arrow.makeData({ type, length, ...parts } as never);

    switch (type.typeId) {
      case arrow.Type.Null:
        return make({});
      case arrow.Type.Bool:
        return make({ ...validity(), data: buffer('values', bytesOfBits(length)) });
      case arrow.Type.Utf8:
      case arrow.Type.Binary:
      case arrow.Type.LargeUtf8:
      case arrow.Type.LargeBinary: {
        const large = type.typeId === arrow.Type.LargeUtf8 || type.typeId === arrow.Type.LargeBinary;
        const parts = { ...validity(), valueOffsets: offsets(large ? 8 : 4) };
        const end = length > 0 ? lastOffset(parts.valueOffsets, length, large, label) : 0;
        return make({ ...parts, data: buffer('bytes', end) });
      }
      case arrow.Type.Utf8View:
      case arrow.Type.BinaryView: {
        const parts = { ...validity(), views: buffer('views', length * 16) };
        const count = this.batch.variadicBufferCounts[this.#variadic++];
        if (count === undefined || count > this.batch.buffers.length - this.#buffers)
          throw new IpcError(
            `column ${label()} has views of ${count ?? 'an unknown number of'} buffers; expected those that are listed`,
          );
        return make({ ...parts, variadicBuffers: Array.from({ length: count }, () => buffer('bytes', 0)) });
      }
      case arrow.Type.List:
      case arrow.Type.LargeList:
      case arrow.Type.Map: {
        const parts = { ...validity(), valueOffsets: offsets(type.typeId === arrow.Type.LargeList ? 8 : 4) };
        return make({ ...parts, child: child(type.children[0]!) });
      }
      case arrow.Type.FixedSizeList:
        return make({ ...validity(), child: child(type.children[0]!) });
      case arrow.Type.Struct:
        return make({ ...validity(), children: type.children.map(child) });
      case arrow.Type.Union: {
        const dense = (type as arrow.Union).mode === arrow.UnionMode.Dense;
        if (unionsHaveValidity(this.version)) buffer('validity bits', 0);
        const typeIds = buffer('type numbers', length);
        const valueOffsets = dense ? { valueOffsets: aligned(buffer('offsets', length * 4), 4) } : {};
        return make({ typeIds, ...valueOffsets, children: type.children.map(child) });
      }
      case arrow.Type.Dictionary: {
        const { id, indices } = type as arrow.Dictionary;
        const parts = { ...validity(), data: values(indices) };
        const dictionary = this.dictionaries.vector(id);
        if (!dictionary && nullCount < length)
          throw new IpcError(`column ${label()} needs dictionary ${id}, which no message before it has`);
        return make({ ...parts, ...(dictionary && { dictionary }) });
      }
      default:
        return make({ ...validity(), data: values(type) });
    }
  }

  /** The next buffer, which needs at least `least` bytes. */
  #buffer(what: string, label: Label, least: number): Uint8Array {
    const problem = (text: string) => new IpcError(`the ${what} of column ${label()} ${text}`);
    const range = this.batch.buffers[this.#buffers++];
    if (!range) throw problem(`are missing: it lists ${this.batch.buffers.length} buffers and its schema has more`);
    const { offset, length } = range;
    const size = this.body.byteLength;
    if (offset + length > size) throw problem(`are ${length} bytes at byte ${offset} of a body of ${size}`);
    const found = this.body.subarray(offset, offset + length);
    const bytes = this.#decompress ? this.#decompressed(found, least, problem) : found;
    if (bytes.byteLength < least) throw problem(`are ${bytes.byteLength} bytes; its rows need ${least}`);
    return bytes;
  }

  #decompressed(compressed: Uint8Array, least: number, problem: (text: string) => IpcError): Uint8Array {
    this.#compressed += compressed.byteLength;
    if (this.#compressed > this.body.byteLength) throw problem('overlap others, which compressed ones can not');
    try {
      return this.#decompress!(compressed, least);
    } catch (error) {
      throw error instanceof IpcError ? problem(error.message) : error;
    }
  }
}

/** The offset where the last text or bytes end. */
function lastOffset(offsets: Uint8Array, length: number, large: boolean, label: Label): number {
  const view = new DataView(offsets.buffer, offsets.byteOffset, offsets.byteLength);
  const end = large ? Number(view.getBigInt64(length * 8, true)) : view.getInt32(length * 4, true);
  if (end < 0) throw new IpcError(`the last offset of column ${label()} is ${end}`);
  return end;
}

/** Bytes that a typed array of elements of `size` can be made over: copied where they lie at an odd place. */
const aligned = (bytes: Uint8Array, size: number): Uint8Array => (bytes.byteOffset % size === 0 ? bytes : bytes.slice());
