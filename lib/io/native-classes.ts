/** The addon's classes for files: none of them needs an engine. */
import type { NativeCsvReaderClass } from './csv-native.js';
import type { NativeParquetWriterClass } from './parquet-writer-native.js';

export interface NativeFileClasses {
  CsvReader: NativeCsvReaderClass;
  ParquetWriter: NativeParquetWriterClass;
}
