/** Record batches whose dictionaries only grow: an Arrow file can add values to a dictionary, but can't replace it. */
import { Data, DataType, type Dictionary, type RecordBatch, type Schema, Type, Vector } from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import { quote } from '../suggest.js';
import { batchOver } from './library.js';
import { fieldsOf } from './types.js';
import { invalid } from './values.js';

type Numbers = Record<number, number | bigint>;
type NumbersConstructor = new (length: number) => Numbers;
const numbersOf = (like: unknown, length: number): Numbers => new (like as NumbersConstructor)(length);

/** By the indices of a dictionary's values, those that they have in the grown one; null: the same. */
type Positions = Numbers | null;

/** The dictionary of a number: that of the first batch, and behind it the values that others add. */
class GrowingDictionary {
  vector: Vector;
  /** The values by their bytes, once another dictionary came: of equal ones the first. */
  #known: Map<string, number> | undefined;
  readonly #found = new WeakMap<Vector, { readonly positions: Positions }>();

  constructor(
    first: Vector,
    private readonly type: Dictionary,
    private readonly column: string,
  ) {
    this.vector = first;
  }

  /** Where the values of a dictionary are, or come to be. */
  positionsOf(dictionary: Vector): Positions {
    const found = this.#found.get(dictionary) ?? { positions: this.#place(dictionary) };
    this.#found.set(dictionary, found);
    return found.positions;
  }

  #place(dictionary: Vector): Positions {
    const { data } = this.vector;
    const begins = (one: readonly Data[], other: readonly Data[]) => one.every((chunk, index) => chunk === other[index]);
    if (begins(dictionary.data, data)) return null;
    if (!this.#known && begins(data, dictionary.data)) {
      this.vector = dictionary;
      return null;
    }
    const { indices, dictionary: values } = this.type;
    if (hasDictionary(values)) throw this.#notSupported('differ, and have dictionaries within');
    this.#known ??= numbered(data);
    const positions = numbersOf(indices.ArrayType, dictionary.length);
    const number = typeof positions[0] === 'bigint' ? BigInt : Number;
    const added: Data[] = [];
    let [size, index, isMoved] = [this.vector.length, 0, false];
    for (const chunk of dictionary.data) {
      const keyOf = keyReader(chunk);
      const runs: Run[] = [];
      for (let row = 0; row < chunk.length; row++, index++) {
        const key = keyOf?.(row);
        let position = key === undefined ? undefined : this.#known.get(key);
        if (position === undefined) {
          position = size++;
          const last = runs.at(-1);
          if (last?.end === row) last.end++;
          else runs.push({ chunk, begin: row, end: row + 1 });
          if (key !== undefined) this.#known.set(key, position);
        }
        positions[index] = number(position);
        isMoved ||= position !== index;
      }
      const [first] = runs;
      if (first) added.push(first.end - first.begin === chunk.length ? chunk : copied(runs));
    }
    if (size > 2 ** (indices.bitWidth - (indices.isSigned ? 1 : 0)))
      throw this.#notSupported(`have more values together than ${indices} indices number`);
    if (added.length > 0) this.vector = new Vector([...data, ...added]);
    return isMoved ? positions : null;
  }

  /** Puts the values into one chunk, as far as their types allow: a file then has one dictionary without additions to it. */
  compact(): void {
    const { data } = this.vector;
    if (data.length > 1 && data.every((chunk) => keyReader(chunk)))
      this.vector = new Vector([copied(data.map((chunk) => ({ chunk, begin: 0, end: chunk.length })))]);
  }

  #notSupported(problem: string): WarpjoinError {
    return new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The dictionaries of column ${quote(this.column)} ${problem}: an Arrow file can't hold that. Cast them to their values, or write Parquet.`,
    );
  }
}

/** The first index of each value, by its bytes. */
function numbered(chunks: readonly Data[]): Map<string, number> {
  const known = new Map<string, number>();
  let index = 0;
  for (const chunk of chunks) {
    const keyOf = keyReader(chunk);
    for (let row = 0; row < chunk.length; row++, index++) {
      const key = keyOf?.(row);
      if (key !== undefined && !known.has(key)) known.set(key, index);
    }
  }
  return known;
}

const hasDictionary = (type: DataType): boolean =>
  DataType.isDictionary(type) || fieldsOf(type).some((field) => hasDictionary(field.type as DataType));

/** How to read the bytes of a chunk's values; null where some are null, and for types without bytes of their own. */
function keyReader(chunk: Data): ((row: number) => string) | null {
  if (chunk.nullCount > 0) return null;
  const bytes = bytesOf(chunk);
  if (!bytes) return null;
  const [values, beginOf] = bytes;
  return (row) => values.toString('latin1', beginOf(row), beginOf(row + 1));
}

/** The bytes of a chunk's values, and where each begins and the one before ends. */
function bytesOf({ type, values, valueOffsets, stride }: Data): [Buffer, (row: number) => number] | null {
  const bytes = () => Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  switch (type.typeId) {
    case Type.Utf8:
    case Type.Binary:
    case Type.LargeUtf8:
    case Type.LargeBinary:
      return [bytes(), (row) => Number(valueOffsets[row])];
    case Type.Int:
    case Type.Float:
    case Type.Decimal:
    case Type.Date:
    case Type.Time:
    case Type.Timestamp:
    case Type.Duration:
    case Type.Interval:
    case Type.FixedSizeBinary: {
      const width = values.BYTES_PER_ELEMENT * stride;
      return [bytes(), (row) => row * width];
    }
    default:
      return null;
  }
}

/** Rows of a chunk. */
interface Run {
  readonly chunk: Data;
  readonly begin: number;
  end: number;
}

/** Rows of chunks that have a keyReader(). */
function copied(runs: readonly Run[]): Data {
  const { type, values, valueOffsets } = runs[0]!.chunk;
  const pieces = runs.map(({ chunk, begin, end }) => {
    const [bytes, beginOf] = bytesOf(chunk)!;
    return { bytes: bytes.subarray(beginOf(begin), beginOf(end)), beginOf, begin, end };
  });
  const rows = runs.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const made = new Uint8Array(pieces.reduce((sum, { bytes }) => sum + bytes.length, 0));
  const offsets = valueOffsets && numbersOf(valueOffsets.constructor, rows + 1);
  const number = typeof offsets?.[0] === 'bigint' ? BigInt : Number;
  let [row, size] = [0, 0];
  for (const { bytes, beginOf, begin, end } of pieces) {
    made.set(bytes, size);
    if (offsets) for (let from = begin; from < end; from++) offsets[++row] = number(size + beginOf(from + 1) - beginOf(begin));
    size += bytes.length;
  }
  const elements = new (values.constructor as Uint8ArrayConstructor)(made.buffer);
  return new Data(type, 0, rows, 0, [offsets as never, elements, new Uint8Array(0)]);
}

/** The dictionaries of batches of one schema, by their numbers. They stay in memory. */
export class GrowingDictionaries {
  readonly #growing = new Map<number, GrowingDictionary>();

  constructor(private readonly schema: Schema) {}

  /**
   * The batch where its dictionaries are those before it; otherwise its rows, with indices of dictionaries that begin with the values
   * before. Throws ERR_NOT_SUPPORTED where indices are too narrow for the values of all, and for other dictionaries that have dictionaries
   * within, and ERR_INVALID_TABLE for indices without a value.
   */
  over(batch: RecordBatch): RecordBatch {
    const { fields } = this.schema;
    const columns: readonly Data[] = batch.data.children;
    this.#growAll(batch); // columns may share a dictionary: all of it is there before any of them refers to it
    const made = columns.map((data, index) => data && this.#renumbered(fields[index]!.type, data, fields[index]!.name));
    const isSame = batch.schema === this.schema && made.every((data, index) => data === columns[index]);
    return isSame ? batch : batchOver(this.schema, batch.numRows, made);
  }

  /** Takes the dictionaries of all these batches first: over() adds nothing to them then. Throws likewise. */
  foresee(batches: readonly RecordBatch[]): void {
    for (const batch of batches) this.#growAll(batch);
    for (const growing of this.#growing.values()) growing.compact();
  }

  #growAll(batch: RecordBatch): void {
    for (const [index, { type, name }] of this.schema.fields.entries()) this.#grow(type, batch.data.children[index], name);
  }

  #grow(type: DataType, data: Data | undefined, column: string): void {
    const { dictionary, children = [] } = data ?? {};
    if (DataType.isDictionary(type) && dictionary) {
      const growing = this.#growing.get(type.id) ?? new GrowingDictionary(dictionary, type, column);
      this.#growing.set(type.id, growing);
      growing.positionsOf(dictionary);
    }
    for (const [index, field] of fieldsOf(type).entries()) this.#grow(field.type as DataType, children[index], column);
  }

  #renumbered(type: DataType, data: Data, column: string): Data {
    if (DataType.isDictionary(type) && data.dictionary) {
      const growing = this.#growing.get(type.id)!;
      const positions = growing.positionsOf(data.dictionary);
      if (!positions && data.dictionary === growing.vector) return data;
      return rebuilt(type, data, positions ? moved(data, positions, column) : data.values, [], growing.vector);
    }
    const children: readonly Data[] = data.children ?? []; // what apache-arrow makes of no rows may lack them
    const fields = fieldsOf(type);
    const made = children.map((child, index) => child && this.#renumbered(fields[index]!.type as DataType, child, column));
    return made.every((child, index) => child === children[index]) ? data : rebuilt(type, data, data.values, made);
  }
}

function rebuilt(type: DataType, data: Data, values: unknown, children: readonly Data[], dictionary?: Vector): Data {
  const { offset, length, nullCount, valueOffsets, nullBitmap, typeIds, variadicBuffers } = data;
  const buffers = [valueOffsets, values, nullBitmap, typeIds];
  const Parts = Data as unknown as new (...parts: unknown[]) => Data;
  return new Parts(type, offset, length, nullCount, buffers, children, dictionary, variadicBuffers);
}

/** Indices by the positions of their values. */
function moved(data: Data, positions: Numbers, column: string): Numbers {
  const { values, length } = data;
  const made = numbersOf(values.constructor, length);
  for (let row = 0; row < length; row++) {
    const position = positions[Number(values[row])];
    if (position !== undefined) made[row] = position;
    else if (data.getValid(row)) throw invalid('written', `has an index in column ${quote(column)} that stands for no value`);
  }
  return made;
}
