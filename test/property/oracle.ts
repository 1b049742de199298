/** DuckDB as the oracle: the row numbers that a join or sort must give. */
import {
  BIGINT,
  BLOB,
  BOOLEAN,
  DATE,
  DECIMAL,
  DOUBLE,
  DuckDBBlobValue,
  type DuckDBConnection,
  DuckDBDataChunk,
  DuckDBDateValue,
  DuckDBDecimalValue,
  DuckDBInstance,
  DuckDBTimestampValue,
  type DuckDBType,
  type DuckDBValue,
  FLOAT,
  INTEGER,
  SMALLINT,
  TIMESTAMP,
  TINYINT,
  UBIGINT,
  UINTEGER,
  USMALLINT,
  UTINYINT,
  VARCHAR,
} from '@duckdb/node-api';
import type { CaseTable, KeyType, Value } from './cases.js';

const TYPES: Record<KeyType, DuckDBType> = {
  int8: TINYINT,
  int16: SMALLINT,
  int32: INTEGER,
  int64: BIGINT,
  uint8: UTINYINT,
  uint16: USMALLINT,
  uint32: UINTEGER,
  uint64: UBIGINT,
  float32: FLOAT,
  float64: DOUBLE,
  date: DATE,
  timestamp: TIMESTAMP,
  utf8: VARCHAR,
  bool: BOOLEAN,
  decimal128: DECIMAL(38, 2),
  decimal256: DECIMAL(38, 2),
  binary5: BLOB,
  binary11: BLOB,
  dictionary: VARCHAR,
};

function toDuckDB(type: KeyType, value: Value): DuckDBValue {
  if (value === null) return null;
  if (type === 'date') return new DuckDBDateValue(value as number);
  if (type === 'timestamp') return new DuckDBTimestampValue(value as bigint);
  if (type === 'decimal128' || type === 'decimal256') return new DuckDBDecimalValue(value as bigint, 38, 2);
  if (type === 'binary5' || type === 'binary11') {
    const width = type === 'binary5' ? 5 : 11;
    return new DuckDBBlobValue(Uint8Array.from({ length: width }, (_, at) => (value as string).charCodeAt(at) || 0));
  }
  return value;
}

const CHUNK_ROWS = 2048;

export class Oracle {
  readonly #connection: DuckDBConnection;

  private constructor(connection: DuckDBConnection) {
    this.#connection = connection;
  }

  static async create(): Promise<Oracle> {
    const instance = await DuckDBInstance.create(':memory:', { threads: '2' });
    return new Oracle(await instance.connect());
  }

  close(): void {
    this.#connection.closeSync();
  }

  /** Creates a table of the case's key columns and `row`. */
  async load(name: string, source: CaseTable): Promise<void> {
    const columns = Object.keys(source.keys);
    const types = columns.map((column) => TYPES[source.types[column]!]);
    await this.#connection.run(
      `CREATE OR REPLACE TABLE ${name} (${columns.map((column, i) => `${column} ${types[i]}`).join(', ')}, row INTEGER)`,
    );
    const appender = await this.#connection.createAppender(name);
    for (let begin = 0; begin < source.rows; begin += CHUNK_ROWS) {
      const end = Math.min(source.rows, begin + CHUNK_ROWS);
      const chunk = DuckDBDataChunk.create([...types, INTEGER], end - begin);
      columns.forEach((column, i) => {
        const type = source.types[column]!;
        chunk.setColumnValues(
          i,
          source.keys[column]!.slice(begin, end).map((value) => toDuckDB(type, value)),
        );
      });
      chunk.setColumnValues(
        columns.length,
        Array.from({ length: end - begin }, (_, i) => begin + i),
      );
      appender.appendDataChunk(chunk);
    }
    appender.flushSync();
    appender.closeSync();
  }

  /** The columns of a query's result. */
  async columns(sql: string): Promise<DuckDBValue[][]> {
    return (await this.#connection.runAndReadAll(sql)).getColumns();
  }
}
