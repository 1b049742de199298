/** Record batches whose dictionaries only grow: an Arrow file can add values to a dictionary, but can't replace it. No row is touched. */
import { type Data, DataType, type Dictionary, type RecordBatch, type Schema, Vector } from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import { type NativeResultColumn, native } from '../native.js';
import { translated } from '../native-errors.js';
import { quote } from '../suggest.js';
import { vectorOf } from './data.js';
import type { NativeGrowingDictionary } from './dictionary-native.js';
import { nativeValues } from './input.js';
import { batchOver, dataOver, ownLibrary } from './library.js';
import { type ForeignType, fieldsOf, typeInfo } from './types.js';
import { noValues } from './values.js';

/** Where the values of a dictionary are in the grown one; null: each is where it was. */
type Positions = ArrayBuffer | null;

/** The dictionary of a number: that of the first batch, and behind it the values that others add. */
class GrowingDictionary {
  vector: Vector;
  /** Knows the values, once another dictionary came. */
  #values: NativeGrowingDictionary | undefined;
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
    if (!this.#values && begins(data, dictionary.data)) {
      this.vector = dictionary;
      return null;
    }
    const { indices, dictionary: values } = this.type;
    if (hasDictionary(values)) throw this.#notSupported('differ, and have dictionaries within');
    this.#values ??= this.#known();
    const { positions, size, added } = this.#placed(this.#values, dictionary);
    if (size > 2 ** (indices.bitWidth - (indices.isSigned ? 1 : 0)))
      throw this.#notSupported(`have more values together than ${indices} indices number`);
    if (added) this.vector = new Vector([...data, ...this.#vectorOf(added).data]);
    return positions;
  }

  /** Puts the values into one chunk, as far as their types allow: a file then has one dictionary without additions to it. */
  compact(): void {
    if (this.vector.data.length < 2 || hasDictionary(this.type.dictionary)) return;
    this.#values ??= this.#known();
    const values = this.#values;
    this.vector = this.#vectorOf(translated(() => values.joined()));
  }

  #known(): NativeGrowingDictionary {
    const { GrowingDictionary } = native();
    const made = translated(() => new GrowingDictionary({ threads: 1, memoryBytes: Number.MAX_SAFE_INTEGER }));
    this.#placed(made, this.vector);
    return made;
  }

  #placed(by: NativeGrowingDictionary, { data }: Vector) {
    const values = nativeValues(this.column, this.type.dictionary, data, 'written');
    return translated(() => by.place(values));
  }

  #vectorOf(column: NativeResultColumn): Vector {
    const { dictionary: values } = this.type;
    return vectorOf(ownLibrary, values, column, noValues(typeInfo(values as unknown as ForeignType)));
  }

  #notSupported(problem: string): WarpjoinError {
    return new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `The dictionaries of column ${quote(this.column)} ${problem}: an Arrow file can't hold that. Cast them to their values, or write Parquet.`,
    );
  }
}

const hasDictionary = (type: DataType): boolean =>
  DataType.isDictionary(type) || fieldsOf(type).some((field) => hasDictionary(field.type as DataType));

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
  return dataOver(ownLibrary, type, { offset, length, nullCount, buffers, children, dictionary, variadicBuffers });
}

/** Indices by the positions of their values. Throws ERR_INVALID_TABLE for indices without a value. */
function moved(data: Data, positions: ArrayBuffer, column: string): unknown {
  const { indices } = data.type as Dictionary;
  const values = nativeValues(column, indices, [data], 'written');
  const made = translated(() => native().placeIndices(values, positions));
  return new (indices.ArrayType as Int32ArrayConstructor)(made);
}
