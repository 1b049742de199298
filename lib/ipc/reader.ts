/**
 * Arrow IPC streams and files: which messages they hold, and where. What they claim is checked before it is used, so that no
 * bytes make the reader loop, allocate what isn't there or read elsewhere. Message bodies become the table's buffers as they are.
 */
import * as arrow from 'apache-arrow';
import { readColumns } from './batch.js';
import { type Decoded, IpcError, readRoot, within } from './flatbuffer.js';
import { type DictionaryBatchTable, footer, message, messageKinds, type RecordBatchTable, type SchemaTable } from './metadata.js';
import { checkVersion, readSchema, type TableSchema, textMap } from './schema.js';

export { IpcError } from './flatbuffer.js';

/** Bytes of the stream or file. */
export interface Range {
  readonly position: number;
  readonly length: number;
}

/** Receives record batches as they are read; the table then has none. */
export interface BatchSink {
  /** Whether the batch that comes next, with so many rows, is read; false skips its bytes. */
  wants(rows: number): boolean;
  take(batch: arrow.RecordBatch): void;
}

/** Reads a table: yields each range that it needs, which lies within the bytes that there are, and goes on with its bytes. */
export type Reading = Generator<Range, arrow.Table, Uint8Array>;

const magic = 'ARROW1';
/** The magic at the start of a file, padded. */
const fileStart = 8;
/** The footer's length and the magic at the end of a file. */
const fileEnd = 4 + magic.length;
/** Stands before the length of a message's metadata since Arrow 0.15. */
const continuation = -1;

interface Message {
  readonly metadata: Decoded<typeof message>;
  readonly body: Range;
  /** How messages about it name it. */
  readonly label: string;
}

/** The table of a stream or file of `size` bytes. Throws an IpcError for bytes that are none, or that can't be read here. */
export function* readIpc(size: number, sink?: BatchSink): Reading {
  const start = yield* text(0, Math.min(size, magic.length));
  return start === magic ? yield* readFile(size, sink) : yield* readStream(size, sink);
}

/** The table of IPC bytes, over these bytes: only buffers that lie at odd places are copied. Throws an IpcError. */
export function readIpcBytes({ buffer, byteOffset, byteLength }: Uint8Array): arrow.Table {
  // Subclasses slice in other ways, Node's Buffer without a copy.
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  const reading = readIpc(bytes.byteLength);
  let step = reading.next();
  while (!step.done) {
    const { position, length } = step.value;
    step = reading.next(bytes.subarray(position, position + length));
  }
  return step.value;
}

function* readStream(size: number, sink?: BatchSink): Reading {
  let builder: TableBuilder | undefined;
  let position = 0;
  // A stream may end without a marker.
  while (position < size) {
    const found = yield* readMessage(position, size);
    if (!found) break;
    if (builder) yield* builder.add(found);
    else builder = new TableBuilder(schemaOf(found), true, sink);
    position = found.body.position + found.body.length;
  }
  if (!builder) throw new IpcError('there is no schema in it');
  return builder.table();
}

function* readFile(size: number, sink?: BatchSink): Reading {
  if (size < fileStart + fileEnd || (yield* text(size - magic.length, magic.length)) !== magic)
    throw new IpcError('the file has lost its end');
  const footerLength = int32(yield { position: size - fileEnd, length: 4 });
  const footerStart = size - fileEnd - footerLength;
  if (footerLength <= 0 || footerStart < fileStart)
    throw new IpcError(`its footer of ${footerLength} bytes does not fit the file of ${size} bytes`);
  const footerBytes = yield { position: footerStart, length: footerLength };
  let builder: TableBuilder;
  let places: { kind: BatchKind; offset: number; end: number }[];
  try {
    const { schema, version, dictionaries, recordBatches } = readRoot(footerBytes, footer);
    if (!schema) throw new IpcError('it has no schema');
    builder = new TableBuilder(readSchema(schema, version), false, sink);
    const ends = endsOf([...dictionaries, ...recordBatches], footerStart);
    const placesOf = (kind: BatchKind, list: readonly Block[]) =>
      list.map(({ offset }) => ({ kind, offset, end: ends.get(offset)! }));
    places = [...placesOf('dictionary batch', dictionaries), ...placesOf('record batch', recordBatches)];
  } catch (error) {
    throw within(`footer at byte ${footerStart}`, error);
  }
  for (const { kind, offset, end } of places) {
    const found = yield* readMessage(offset, end);
    if (!found || messageKinds[found.metadata.headerType] !== kind)
      throw new IpcError(`there is no ${kind} at byte ${offset}, where its footer says that there is one`);
    yield* builder.add(found);
  }
  return builder.table();
}

type Block = Decoded<typeof footer>['recordBatches'][number];
type BatchKind = 'dictionary batch' | 'record batch';

/** Where the messages at these offsets must end, by their offsets: none is read twice, or as a part of another one. */
function endsOf(blocks: readonly Block[], end: number): Map<number, number> {
  const offsets = blocks.map(({ offset }) => offset).sort((a, b) => a - b);
  const ends = new Map(offsets.map((offset, index) => [offset, offsets[index + 1] ?? end]));
  if (offsets[0]! < fileStart) throw new IpcError(`one of its messages is at byte ${offsets[0]}, before they begin`);
  if (ends.size < offsets.length) throw new IpcError('two of its messages are at one place');
  return ends;
}

/** The message at `position`, without its body; null where a marker says that the stream ends. */
function* readMessage(position: number, end: number): Generator<Range, Message | null, Uint8Array> {
  const label = `message at byte ${position}`;
  const left = end - position;
  if (left < 4) throw new IpcError(`${label} is cut off`);
  const prefix = yield { position, length: Math.min(left, 8) };
  const [first, second] = [int32(prefix), prefix.byteLength < 8 ? undefined : int32(prefix, 4)];
  const prefixed = first === continuation;
  const length = prefixed ? second : first;
  if (length === undefined) throw new IpcError(`${label} is cut off`);
  if (length === 0) return null;
  const start = position + (prefixed ? 8 : 4);
  if (length < 0 || start + length > end) {
    if (position === 0 && !prefixed) throw new IpcError('not an Arrow IPC file or stream');
    throw new IpcError(`${label}: its metadata of ${length} bytes does not fit the ${end - start} bytes that are left`);
  }
  const bytes = yield { position: start, length };
  try {
    const metadata = readRoot(bytes, message);
    checkVersion(metadata.version);
    const body = { position: start + length, length: metadata.bodyLength };
    if (body.position + body.length > end)
      throw new IpcError(`its body of ${body.length} bytes does not fit the ${end - body.position} bytes that are left`);
    return { metadata, body, label: `${messageKinds[metadata.headerType] ?? 'message'} at byte ${position}` };
  } catch (error) {
    throw within(label, error);
  }
}

function schemaOf({ metadata: { header, headerType, version }, label }: Message): TableSchema {
  if (messageKinds[headerType] !== 'schema' || !header)
    throw new IpcError(`${label}: expected a schema at the start of a stream`);
  try {
    return readSchema(header as SchemaTable, version);
  } catch (error) {
    throw within(label, error);
  }
}

/** A dictionary's values: one chunk, and one more for each delta. */
class DictionaryValues {
  readonly #chunks: arrow.Data[];
  #vector: arrow.Vector | undefined;

  constructor(chunk: arrow.Data) {
    this.#chunks = [chunk];
  }

  append(chunk: arrow.Data): void {
    this.#chunks.push(chunk);
    this.#vector = undefined;
  }

  get vector(): arrow.Vector {
    this.#vector ??= new arrow.Vector(this.#chunks).memoize();
    return this.#vector;
  }
}

/** Dictionaries by their numbers, as they are at a message. */
class Dictionaries extends Map<number, DictionaryValues> {
  vector(id: number): arrow.Vector | undefined {
    return this.get(id)?.vector;
  }
}

/**
 * The table that messages after its schema make up. Record batches are made at the end: a delta adds values to the dictionary of the
 * batches before it, too, whose indices stay what they are. So a dictionary of many deltas is put together once.
 */
class TableBuilder {
  readonly #schema: TableSchema;
  readonly #dictionaries = new Dictionaries();
  readonly #batches: (() => arrow.RecordBatch)[] = [];

  /** `replaces`: whether a later dictionary may take the place of one with the same number, as in streams. */
  constructor(
    schema: TableSchema,
    private readonly replaces: boolean,
    private readonly sink?: BatchSink,
  ) {
    this.#schema = schema;
  }

  table(): arrow.Table {
    return new arrow.Table(
      this.#schema.schema,
      this.#batches.map((make) => make()),
    );
  }

  *add({ metadata, body: range, label }: Message): Generator<Range, void, Uint8Array> {
    const kind = messageKinds[metadata.headerType];
    if ((kind !== 'record batch' && kind !== 'dictionary batch') || !metadata.header)
      throw new IpcError(`${label}: expected a record batch or a dictionary batch`);
    const { header, version, customMetadata } = metadata;
    if (kind === 'record batch' && this.sink?.wants((header as RecordBatchTable).length) === false) return;
    const body = yield range;
    const labelled = <T>(read: () => T): T => {
      try {
        return read();
      } catch (error) {
        throw within(label, error);
      }
    };
    if (kind === 'dictionary batch') {
      labelled(() => this.#addDictionary(header as DictionaryBatchTable, body, version));
    } else {
      const dictionaries = new Dictionaries(this.#dictionaries);
      const metadata = textMap(customMetadata);
      const make = () => labelled(() => this.#recordBatch(header as RecordBatchTable, body, version, metadata, dictionaries));
      if (this.sink) this.sink.take(make());
      else this.#batches.push(make);
    }
  }

  #recordBatch(
    batch: RecordBatchTable,
    body: Uint8Array,
    version: number,
    metadata: Map<string, string>,
    dictionaries: Dictionaries,
  ): arrow.RecordBatch {
    const { schema } = this.#schema;
    const children = readColumns(schema.fields, batch, body, version, dictionaries);
    const data = arrow.makeData({ type: new arrow.Struct(schema.fields), length: batch.length, nullCount: 0, children });
    return new arrow.RecordBatch(schema, data, metadata);
  }

  #addDictionary({ id, data: batch, isDelta }: DictionaryBatchTable, body: Uint8Array, version: number): void {
    const type = this.#schema.dictionaries.get(id);
    if (!type || !batch) throw new IpcError(`it is dictionary ${id}, which no field of the schema has`);
    const fields = [new arrow.Field(`dictionary ${id}`, type, true)];
    const [values] = readColumns(fields, batch, body, version, this.#dictionaries);
    const before = this.#dictionaries.get(id);
    if (before && !isDelta && !this.replaces) throw new IpcError(`dictionary ${id} is there twice, which a file can't have`);
    if (before && isDelta) before.append(values!);
    else this.#dictionaries.set(id, new DictionaryValues(values!));
  }
}

const int32 = (bytes: Uint8Array, at = 0): number =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getInt32(at, true);

function* text(position: number, length: number): Generator<Range, string, Uint8Array> {
  const bytes = yield { position, length };
  return String.fromCharCode(...bytes);
}
