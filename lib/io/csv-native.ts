/** The addon's CsvReader, typed (native/binding/csv_reader.h). */
import type { NativeResultColumn } from '../native.js';
import type { FileRoom } from './file-room.js';

/** Types of columns as the addon finds them; 'empty' where no value was found yet. */
export type CsvType = 'empty' | 'bool' | 'int64' | 'float64' | 'date' | 'timestamp' | 'timestamptz' | 'utf8';

export interface CsvReaderOptions extends FileRoom {
  /** An ASCII code that is neither a quote nor a line end. */
  delimiter: number;
  header: boolean;
  nullValues: readonly string[];
  /** Types that are not inferred: another value is a fault. */
  given: readonly { name: string; type: CsvType }[];
  /** The types of all columns, as an earlier pass found them; empty: there was none. */
  known: readonly CsvType[];
  /** The rows of the first block decide the types, and batches are handed over once they are complete. */
  streaming: boolean;
  /** Infinity: all. */
  maxRows: number;
  /** A batch ends with the block that brings it to so many rows. */
  batchRows: number;
  /** What one thread parses at a time. */
  partBytes: number;
  /** A longer record is a fault. At most 1 GiB. */
  maxRecordBytes: number;
}

export interface NativeCsvBatch {
  rows: number;
  columns: NativeResultColumn[];
}

export interface CsvProgress {
  /** What is wrong with the file, and in which line (0: in none in particular); null: nothing so far. */
  fault: { what: string; line: number } | null;
  /** `maxRows` were read. */
  done: boolean;
  /** After finish(): texts of an earlier batch are needed, which another pass with the `types` known gives. */
  lost: boolean;
  /** Empty until the header was read. */
  names: string[];
  types: CsvType[];
  /** When streaming the batches that are complete, otherwise all once it has finished. */
  batches: NativeCsvBatch[];
}

/** Reads one file, on threads of its own. Promises reject once it was cancelled. */
export interface NativeCsvReader {
  /** The next bytes of the file, at most 256 MiB. They are copied before the call returns. */
  push(bytes: Uint8Array): Promise<CsvProgress>;
  finish(): Promise<CsvProgress>;
  cancel(): void;
  /** Frees the memory, once the calls have ended. */
  release(): void;
}

export type NativeCsvReaderClass = new (options: CsvReaderOptions) => NativeCsvReader;
