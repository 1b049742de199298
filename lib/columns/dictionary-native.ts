/** What of the addon makes one dictionary of several. It needs no engine, and a call of it has done all when it returns. */
import type { NativeColumn, NativeResultColumn } from '../native.js';

/** Where the values of a dictionary are in the grown one. */
export interface PlacedValues {
  /** 32 bits each; null: each is where it was. */
  positions: ArrayBuffer | null;
  /** How many values the grown one has now. */
  size: number;
  /** Those that were added to it. */
  added: NativeResultColumn | null;
}

export interface NativeGrowingDictionary {
  /**
   * Places copies of the values of a dictionary: the first one's are added as they are, and others add those that are not there yet. Values
   * of fixed width, texts and views are compared by their bytes, and nulls are equal; values of other types are all added. Throws
   * ERR_INVALID_TABLE and ERR_MEMORY_LIMIT, and ERR_NOT_SUPPORTED for 2^32 - 1 values and more.
   */
  place(values: NativeColumn): PlacedValues;
  /** All values, copied into one column. */
  joined(): NativeResultColumn;
  release(): void;
}

export interface DictionaryClasses {
  GrowingDictionary: new (options: { threads: number; memoryBytes: number }) => NativeGrowingDictionary;
  /**
   * Indices of a dictionary by these positions of its values, as many bytes each; null rows have any. Throws ERR_INVALID_TABLE for
   * one behind the last position.
   */
  placeIndices(indices: NativeColumn, positions: ArrayBuffer): ArrayBuffer;
}
