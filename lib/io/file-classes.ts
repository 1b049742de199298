/** The addon's classes that read and write files; they need no engine. */
import type { NativeCsvReaderClass } from './csv-native.js';
import type { NativeParquetReaderClass } from './parquet-native.js';
import type { NativeParquetWriterClass } from './parquet-writer-native.js';

export interface FileClasses {
  CsvReader: NativeCsvReaderClass;
  ParquetReader: NativeParquetReaderClass;
  ParquetWriter: NativeParquetWriterClass;
}
