/** What of the addon reads and writes files; it needs no engine. */
import type { NativeColumn } from '../native.js';
import type { NativeCsvReaderClass } from './csv-native.js';
import type { NativeParquetReaderClass } from './parquet-native.js';
import type { NativeParquetWriterClass } from './parquet-writer-native.js';

export interface FileClasses {
  CsvReader: NativeCsvReaderClass;
  ParquetReader: NativeParquetReaderClass;
  ParquetWriter: NativeParquetWriterClass;
  /**
   * The rows whose values of some column are not those of the row before, ascending; the first row is one. Equal are values of the same bytes,
   * and two nulls. The columns are checked. Throws ERR_INVALID_TABLE, and ERR_NOT_SUPPORTED for nested columns.
   */
  rowRuns(columns: NativeColumn[], rows: number): number[];
}
