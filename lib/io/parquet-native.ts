/** The addon's ParquetReader, typed (native/binding/parquet_reader.h). */
import type { NativeResultColumn } from '../native.js';
import type { FileRoom } from './file-room.js';

export interface ParquetReaderOptions extends FileRoom {
  path: string;
}

/** A column of values: a leaf of the file's schema. Numbers are those of the format (native/parquet/format.h). */
export interface ParquetColumn {
  /** Names from the top down. */
  path: string[];
  physical: number;
  /** Bytes of a value of fixed width. */
  typeLength: number;
  /** A field of the union LogicalType; null: the file states none. */
  logical: number | null;
  /** A ConvertedType; null: the file states none. */
  converted: number | null;
  repetition: number;
  scale: number;
  precision: number;
  /** Of times and timestamps of a logical type: a TimeUnit. */
  unit: number;
  utc: boolean;
  /** Of integers of a logical type. */
  bitWidth: number;
  signed: boolean;
  fieldId: number | null;
  /** Whether read() knows its type; it knows no nested ones. */
  isRead: boolean;
  /** A codec of its chunks that read() does not know; null: there is none. */
  unknownCodec: string | null;
  unknownEncoding: string | null;
  /** Whether some of it is in another file, or encrypted. */
  elsewhere: boolean;
}

/** What a file's footer says. */
export interface ParquetOutline {
  rows: number;
  groups: {
    rows: number;
    /** Bytes of each column in the file. */
    bytes: number[];
  }[];
  columns: ParquetColumn[];
  keyValues: [key: string, value: string][];
}

/** The first rows of these row groups, one after the other. */
export interface ParquetBatchRequest {
  groups: number[];
  rows: number;
}

export interface ParquetColumnRequest {
  /** Its index among the outline's columns. */
  leaf: number;
  /** Texts and bytes: offsets have 64 bits. */
  large: boolean;
}

export interface NativeParquetBatch {
  rows: number;
  columns: NativeResultColumn[];
}

/**
 * Reads one file, on threads of its own. Promises reject once it was cancelled; with ERR_FILE, and a message that does not name
 * the file, for what is wrong with it.
 */
export interface NativeParquetReader {
  /** Once, before read(). */
  open(): Promise<ParquetOutline>;
  /** A batch for each that is asked for. */
  read(request: { batches: ParquetBatchRequest[]; columns: ParquetColumnRequest[] }): Promise<NativeParquetBatch[]>;
  cancel(): void;
  /** Frees the memory and closes the file, once the calls have ended. */
  release(): void;
}

export type NativeParquetReaderClass = new (options: ParquetReaderOptions) => NativeParquetReader;
