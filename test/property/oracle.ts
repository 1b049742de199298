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
import { binaryOf, type CaseTable, type KeyType, type Value } from './cases.js';

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
  decimal64: DECIMAL(18, 4),
  decimal128: DECIMAL(38, 2),
  decimal256: DECIMAL(38, 2),
  binary: BLOB,
  binary_view: BLOB,
  large_utf8: VARCHAR,
  utf8_view: VARCHAR,
  // Counts of their units: all that matters is their order.
  date_ms: BIGINT,
  timestamp_s: BIGINT,
  timestamp_ns: BIGINT,
  time: BIGINT,
  duration: BIGINT,
  binary5: BLOB,
  binary11: BLOB,
  dictionary: VARCHAR,
};

function toDuckDB(type: KeyType, value: Value): DuckDBValue {
  if (value === null) return null;
  if (type === 'date') return new DuckDBDateValue(value as number);
  if (type === 'timestamp') return new DuckDBTimestampValue(value as bigint);
  if (type === 'decimal64') return new DuckDBDecimalValue(value as bigint, 18, 4);
  if (type === 'decimal128' || type === 'decimal256') return new DuckDBDecimalValue(value as bigint, 38, 2);
  if (type === 'binary' || type === 'binary_view') return new DuckDBBlobValue(binaryOf(value as string));
  if (type === 'binary5' || type === 'binary11') {
    const width = type === 'binary5' ? 5 : 11;
    return new DuckDBBlobValue(Uint8Array.from({ length: width }, (_, at) => (value as string).charCodeAt(at) || 0));
  }
  return value;
}

const INTEGERS: readonly KeyType[] = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'];
const DECIMALS: readonly KeyType[] = ['decimal64', 'decimal128', 'decimal256'];

/** A key column as something that equals another type's where the values do. */
function exact(column: string, type: KeyType, other: KeyType): string {
  if (DECIMALS.includes(type)) return `rtrim(rtrim(${column}::VARCHAR, '0'), '.')`;
  if (DECIMALS.includes(other)) return `${column}::VARCHAR`;
  if (INTEGERS.includes(type)) return `${column}::HUGEINT`;
  if (type === 'float32' || type === 'float64') return `${column}::DOUBLE`;
  if (type === 'date') return `(${column} - DATE '1970-01-01')::HUGEINT * 86400000000000`;
  if (type === 'timestamp') return `epoch_us(${column})::HUGEINT * 1000`;
  const unit = { date_ms: 1_000_000, timestamp_s: 1_000_000_000, timestamp_ns: 1 }[type as string];
  return unit ? `${column}::HUGEINT * ${unit}` : column;
}

/** The condition that two key columns match. */
export function matches([left, right]: readonly [KeyType, KeyType], name: string, nullsEqual: boolean): string {
  const equal = nullsEqual ? 'IS NOT DISTINCT FROM' : '=';
  return `${exact(`l.${name}`, left, right)} ${equal} ${exact(`r.${name}`, right, left)}`;
}

const CHUNK_ROWS = 2048;

/** A column of a table in DuckDB. */
interface Column {
  name: string;
  type: DuckDBType;
  values(begin: number, end: number): DuckDBValue[];
}

/** The case's key columns, its payload columns, and `row`. */
function columnsOf({ keys, types, payload, rows }: CaseTable): Column[] {
  const numbers = Array.from({ length: rows }, (_, row) => row);
  return [
    ...Object.entries(keys).map(([name, values]) => {
      const type = types[name]!;
      return {
        name,
        type: TYPES[type],
        values: (...range: [number, number]) => values.slice(...range).map((value) => toDuckDB(type, value)),
      };
    }),
    ...Object.entries(payload).map(([name, { of, values }]) => ({
      name,
      type: of.duckdb,
      values: (...range: [number, number]) => values.slice(...range).map((value) => (value === null ? null : of.toDuckDB(value))),
    })),
    { name: 'row', type: INTEGER, values: (...range: [number, number]) => numbers.slice(...range) },
  ];
}

export class Oracle {
  readonly #instance: DuckDBInstance;

  private constructor(instance: DuckDBInstance) {
    this.#instance = instance;
  }

  static async create(): Promise<Oracle> {
    return new Oracle(await DuckDBInstance.create(':memory:', { threads: '2' }));
  }

  close(): void {
    this.#instance.closeSync();
  }

  /** The columns of a query over these tables, which are there for this query alone: others may run meanwhile. */
  async columns(tables: Record<string, CaseTable>, sql: string): Promise<DuckDBValue[][]> {
    const connection = await this.#instance.connect();
    try {
      for (const [name, table] of Object.entries(tables)) await load(connection, name, table);
      return (await connection.runAndReadAll(sql)).getColumns();
    } finally {
      connection.closeSync();
    }
  }
}

/** Creates a table that its connection alone sees. */
async function load(connection: DuckDBConnection, name: string, table: CaseTable): Promise<void> {
  const columns = columnsOf(table);
  await connection.run(`CREATE TEMP TABLE ${name} (${columns.map(({ name, type }) => `${name} ${type}`).join(', ')})`);
  const appender = await connection.createAppender(name, 'main', 'temp');
  for (let begin = 0; begin < table.rows; begin += CHUNK_ROWS) {
    const end = Math.min(table.rows, begin + CHUNK_ROWS);
    const chunk = DuckDBDataChunk.create(
      columns.map(({ type }) => type),
      end - begin,
    );
    columns.forEach((column, index) => {
      chunk.setColumnValues(index, column.values(begin, end));
    });
    appender.appendDataChunk(chunk);
  }
  appender.flushSync();
  appender.closeSync();
}
