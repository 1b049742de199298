/** The types of columns that leave in batches, for the compiler: what LEAST_INDEX_BYTES of lib/operators/batch-stream.ts makes of them. */
import type {
  DataType,
  Dictionary,
  FixedSizeList,
  Int8,
  Int16,
  Int32,
  List,
  Map_,
  Struct,
  Uint8,
  Uint16,
  Uint32,
} from 'apache-arrow';

/** Columns of batches: indices of dictionaries have 32 bits, for later batches may bring values that fewer can't number. */
export type BatchedColumns<Columns> = { [K in keyof Columns]: Columns[K] extends DataType ? BatchedType<Columns[K]> : never };

/** A union's children are not in its type, and keep theirs for the compiler. */
type BatchedType<T extends DataType> =
  T extends Dictionary<infer Values, infer Index>
    ? Dictionary<BatchedType<Values>, WideIndex<Index>>
    : T extends Struct<infer Children>
      ? Struct<BatchedColumns<Children>>
      : T extends List<infer Child>
        ? List<BatchedType<Child>>
        : T extends FixedSizeList<infer Child>
          ? FixedSizeList<BatchedType<Child>>
          : T extends Map_<infer Key, infer Value>
            ? Map_<BatchedType<Key>, BatchedType<Value>>
            : T;
type WideIndex<Index extends Dictionary['indices']> = Index extends Int8 | Int16
  ? Int32
  : Index extends Uint8 | Uint16
    ? Uint32
    : Index;
