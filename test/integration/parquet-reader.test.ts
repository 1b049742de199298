import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DuckDBInstance } from '@duckdb/node-api';
import {
  Binary,
  Bool,
  DateDay,
  Dictionary,
  DurationMicrosecond,
  Field,
  Float32,
  Float64,
  Int8,
  Int32,
  Int64,
  LargeUtf8,
  Schema,
  Table,
  TimestampMicrosecond,
  TimestampNanosecond,
  tableToIPC,
  Uint16,
  Uint64,
  Utf8,
  vectorFromArray,
} from 'apache-arrow';
import * as polars from 'nodejs-polars';
import { afterAll, describe, expect, it } from 'vitest';
import { countParquet, outlineParquet, readParquet, scanParquet } from '../../lib/io/parquet.js';
import { AddonFile, type ParquetSizes } from '../../lib/io/parquet-addon.js';
import { parquetLibrary } from '../../lib/io/parquet-decoder.js';
import { planNative } from '../../lib/io/parquet-schema.js';
import { type BytesColumn, i32, parquetBytes, struct } from '../support/parquet-bytes.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-parquet-reader-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const newPath = () => join(folder, `${files++}.parquet`);

const connection = await (await DuckDBInstance.create(':memory:')).connect();
async function duckFile(query: string, options = ''): Promise<string> {
  const path = newPath();
  await connection.run(`COPY (${query}) TO '${path}' (FORMAT parquet${options && `, ${options}`})`);
  return path;
}

/** undefined: the addon reads it. */
async function reasonAgainst(path: string, columns?: string[]): Promise<string | undefined> {
  const file = (await AddonFile.open(path, statSync(path).size, undefined, {}))!;
  const plan = planNative(file.outline, columns);
  file.close();
  return 'reason' in plan ? plan.reason : undefined;
}

/** parquet-wasm loses the metadata of the whole schema. */
const described = ({ schema: { fields } }: Pick<Table, 'schema'>) =>
  fields.map(({ name, type, nullable, metadata }) => [name, String(type), nullable, [...metadata].sort()]);
const text = (value: unknown): string =>
  value === null ? 'null' : ArrayBuffer.isView(value) ? `[${value}]` : value instanceof Date ? String(+value) : String(value);
const columnsOf = (table: Table) => table.schema.fields.map((_, c) => Array.from(table.getChildAt(c)!, text));

const bySizes: ParquetSizes[] = [{}, { batchRows: 1000, bytesPerThread: 1, threads: 1 }, { threads: 3, batchRows: 1 }];
/** Reads a file natively and with parquet-wasm: with the same result. */
async function expectSame(path: string): Promise<Table> {
  expect(await reasonAgainst(path)).toBeUndefined();
  const expected = await readParquet(path, undefined, undefined, {}, { withoutAddon: true });
  const columns = columnsOf(expected);
  for (const sizes of bySizes) {
    const found = await readParquet(path, undefined, undefined, {}, sizes);
    expect(described(found)).toEqual(described(expected));
    expect(found.numRows).toBe(expected.numRows);
    expect(columnsOf(found)).toEqual(columns);
  }
  expect(described(await outlineParquet(path))).toEqual(described(expected));
  expect(await countParquet(path)).toBe(expected.numRows);
  return expected;
}

/** Numbers below n that are the same in each run. */
function drawing(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

const duckTypes = `
  i::TINYINT i8, i::SMALLINT i16, i::INT i32, i * 1000000007 i64, i::UTINYINT u8, i::USMALLINT u16, i::UINTEGER u32, i::UBIGINT u64,
  i::FLOAT / 3 f, i::DOUBLE / 7 d, i % 3 = 0 b, 'text ' || i s, ('\\x00\\xFF' || i)::BLOB bl,
  DATE '1960-01-01' + i::INTEGER da, TIME '10:00:00' + to_seconds(i) t, TIMESTAMP '1969-12-31' + to_seconds(i) ts,
  (TIMESTAMP '2020-01-01' + to_seconds(i))::TIMESTAMP_S tss, (TIMESTAMP '2020-01-01' + to_seconds(i))::TIMESTAMP_MS tsm,
  (TIMESTAMP '2020-01-01' + to_seconds(i))::TIMESTAMP_NS tsn, (TIMESTAMP '2020-01-01' + to_seconds(i))::TIMESTAMPTZ tz,
  (i - 50)::DECIMAL(4,1) d4, (i - 50)::DECIMAL(9,2) d9, (i - 50)::DECIMAL(18,2) d18, (i - 50)::DECIMAL(38,2) d38,
  i::HUGEINT h, (CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END)::ENUM('a','b') e, '{"a": 1}'::JSON j, NULL::INT n,
  '00000000-0000-0000-0000-000000000001'::UUID u`;
const nulled = (rows: number) =>
  `(SELECT ${duckTypes} FROM range(100) r(i)) UNION ALL BY NAME SELECT NULL::INT n FROM range(${rows})`;

describe('parquet files that the addon reads', () => {
  it('have every flat type of DuckDB', async () => {
    await expectSame(await duckFile(`SELECT ${duckTypes} FROM range(120) r(i)`));
    await expectSame(await duckFile(nulled(30)));
    await expectSame(await duckFile(`SELECT ${duckTypes} FROM range(0) r(i)`));
  });

  it("have DuckDB's encodings of both versions", async () => {
    const query = `SELECT i, i * 7919 % 100003 AS many, i % 10 AS few, i / 8 AS share, 'name-' || (i % 1000) AS name,
      repeat('long ', (i % 50)::INT) || i AS long, CASE WHEN i % 7 > 0 THEN 'é€' || (i % 90) END AS some, i % 2 = 0 AS even,
      CASE WHEN i % 5 = 0 THEN NULL ELSE i % 3 = 0 END AS third FROM range(30000) r(i)`;
    for (const version of ['V1', 'V2']) {
      for (const codec of ['snappy', 'uncompressed'])
        await expectSame(await duckFile(query, `PARQUET_VERSION ${version}, COMPRESSION ${codec}, ROW_GROUP_SIZE 10000`));
    }
  });

  it('have every encoding and page version of parquet-wasm', async () => {
    const {
      Compression,
      Encoding,
      Table: WasmTable,
      WriterPropertiesBuilder,
      WriterVersion,
      writeParquet,
    } = await parquetLibrary();
    const draw = drawing(7);
    const nullable = <T>(value: T) => (draw(5) === 0 ? null : value);
    const make = (rows: number) => {
      const list = <T>(value: (row: number) => T) => Array.from({ length: rows }, (_, row) => value(row));
      return new Table({
        i8: vectorFromArray(
          list(() => nullable(draw(256) - 128)),
          new Int8(),
        ),
        i32: vectorFromArray(
          list(() => draw(2 ** 31)),
          new Int32(),
        ),
        i64: vectorFromArray(
          list((row) => nullable(BigInt(row) * 1000003n)),
          new Int64(),
        ),
        u16: vectorFromArray(
          list(() => draw(65536)),
          new Uint16(),
        ),
        u64: vectorFromArray(
          list(() => nullable(2n ** 64n - BigInt(1 + draw(9)))),
          new Uint64(),
        ),
        f32: vectorFromArray(
          list(() => nullable(draw(1000) / 3)),
          new Float32(),
        ),
        f64: vectorFromArray(
          list(() => draw(1000) / 7),
          new Float64(),
        ),
        flag: vectorFromArray(
          list(() => nullable(draw(2) === 0)),
          new Bool(),
        ),
        name: vectorFromArray(
          list(() => nullable(`name €${draw(50)}`)),
          new Utf8(),
        ),
        large: vectorFromArray(
          list((row) => `large ${row}`),
          new LargeUtf8(),
        ),
        bytes: vectorFromArray(
          list(() => nullable(Uint8Array.of(draw(256), draw(256)))),
          new Binary(),
        ),
        day: vectorFromArray(
          list(() => nullable(new Date(draw(20000) * 864e5))),
          new DateDay(),
        ),
        moment: vectorFromArray(
          list(() => draw(10 ** 9)),
          new TimestampMicrosecond('Europe/Berlin'),
        ),
        fine: vectorFromArray(
          list(() => nullable(draw(10 ** 9))),
          new TimestampNanosecond(),
        ),
        none: vectorFromArray(
          list(() => null),
          new Int32(),
        ),
      });
    };
    const encodings: Record<string, number[]> = {
      i32: [Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED],
      i64: [Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED],
      u64: [Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED],
      name: [Encoding.PLAIN, Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY],
      large: [Encoding.PLAIN, Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY],
      bytes: [Encoding.PLAIN, Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY],
      f32: [Encoding.PLAIN, Encoding.BYTE_STREAM_SPLIT],
      f64: [Encoding.PLAIN, Encoding.BYTE_STREAM_SPLIT],
    };
    for (let round = 0; round < 12; round++) {
      const table = make([0, 1, 100, 3000][round % 4]!);
      let builder = new WriterPropertiesBuilder()
        .setWriterVersion(round % 2 ? WriterVersion.V2 : WriterVersion.V1)
        .setCompression(round % 3 ? Compression.SNAPPY : Compression.UNCOMPRESSED)
        .setDataPageSizeLimit([200, 5000, 1 << 20][draw(3)]!)
        .setDictionaryPageSizeLimit([100, 1 << 20][draw(2)]!)
        .setWriteBatchSize(64)
        .setMaxRowGroupSize(1 + draw(2000))
        .setDictionaryEnabled(draw(2) === 0);
      for (const [name, known] of Object.entries(encodings)) {
        builder = builder.setColumnEncoding(name, known[draw(known.length)]!);
        builder = builder.setColumnDictionaryEnabled(name, draw(2) === 0);
      }
      const path = newPath();
      writeFileSync(path, writeParquet(WasmTable.fromIPCStream(tableToIPC(table, 'stream')), builder.build()));
      const found = await expectSame(path);
      expect(columnsOf(found)).toEqual(columnsOf(table));
    }
  });

  it('are those of Polars, whose texts become plain ones', async () => {
    const frame = polars.DataFrame({
      id: [1, 2, 3],
      name: ['a', null, 'ccc'],
      flag: [true, null, false],
      at: [new Date(0), new Date(1e12), new Date(2e12)],
    });
    for (const compression of ['uncompressed', 'snappy'] as const) {
      const path = newPath();
      frame.writeParquet(path, { compression });
      await expectSame(path);
    }
  });

  it('keep durations, metadata and what may be null', async () => {
    const { Table: WasmTable, WriterPropertiesBuilder, Compression, writeParquet } = await parquetLibrary();
    const fields = [
      new Field('took', new DurationMicrosecond(), true, new Map([['unit', 'time']])),
      new Field('id', new Int64(), false),
    ];
    const schema = new Schema(fields, new Map([['made', 'here']]));
    const took = vectorFromArray([1n, null, 3n], new DurationMicrosecond());
    const id = vectorFromArray([1n, 2n, 3n], new Int64());
    const table = new Table(schema, { took, id } as never);
    const path = newPath();
    const properties = new WriterPropertiesBuilder().setCompression(Compression.SNAPPY).build();
    writeFileSync(path, writeParquet(WasmTable.fromIPCStream(tableToIPC(table, 'stream')), properties));
    await expectSame(path);
    const found = await readParquet(path);
    expect(found.schema.metadata.get('made')).toBe('here');
    expect(found.schema.fields.map(({ nullable }) => nullable)).toEqual([true, false]);
  });

  it('have the types of older writers', async () => {
    const bytesOf = (...values: (number | bigint)[]) =>
      values.map((value) => [
        ...new Uint8Array((typeof value === 'bigint' ? BigInt64Array.of(value) : Int32Array.of(value)).buffer),
      ]);
    const converted = (kind: number) => ({ 6: i32(kind) });
    const decimal = (scale: number, precision: number) => ({ 6: i32(5), 7: i32(scale), 8: i32(precision) });
    const [int32, int64, int96, byteArray, fixed] = [1, 2, 3, 6, 7];
    const small = bytesOf(1, -2);
    const large = bytesOf(86_400_000_001n, -5n);
    const nanoseconds = [bytesOf(1n)[0]!, bytesOf(86_399_999_999_999n)[0]!];
    const days = bytesOf(2440589, 2440587);
    const texts = [[1, 2], [255]];
    const columns: BytesColumn[] = [
      ...[6, 7, 11, 12, 13, 15, 16, 17].map((kind) => ({ kind, physical: int32, values: small })),
      ...[8, 9, 10, 14, 18].map((kind) => ({ kind, physical: int64, values: large })),
      ...[4, 20].map((kind) => ({ kind, physical: byteArray, values: texts })),
      ...[0, 19].map((kind) => ({ kind, physical: byteArray, values: [[65], []] })),
    ].map(({ kind, ...column }) => ({ name: `type ${kind}`, ...column, element: converted(kind) }));
    columns.push(
      { name: 'old time', physical: int96, values: nanoseconds.map((of, row) => [...of, ...days[row]!]) },
      { name: 'd32', physical: int32, element: decimal(2, 5), values: small },
      { name: 'd64', physical: int64, element: decimal(3, 15), values: large },
      { name: 'dtext', physical: byteArray, element: decimal(1, 20), values: texts },
      {
        name: 'dfixed',
        physical: fixed,
        element: { 2: i32(3), ...decimal(1, 6) },
        values: [
          [0, 1, 2],
          [255, 255, 254],
        ],
      },
      {
        name: 'fixed',
        physical: fixed,
        element: { 2: i32(3) },
        values: [
          [0, 1, 2],
          [255, 255, 254],
        ],
      },
      {
        name: 'half',
        physical: fixed,
        element: { 2: i32(2), 10: struct({ 15: struct({}) }) },
        values: [
          [0, 0x3c],
          [0, 0xc0],
        ],
      },
      { name: 'numbered', physical: int64, element: { 9: i32(7) }, values: large },
    );
    const path = newPath();
    writeFileSync(path, parquetBytes(columns));
    const table = await expectSame(path);
    expect(table.getChild('old time')!.type).toMatchObject({ unit: 3, timezone: null });
    expect(table.schema.fields.at(-1)!.metadata.get('PARQUET:field_id')).toBe('7');
  });

  it('give the first rows, of the columns that are wanted', async () => {
    const path = await duckFile('SELECT i, i::VARCHAR s, [i] l FROM range(5000) r(i)', 'ROW_GROUP_SIZE 2048');
    for (const maxRows of [0, 1, 2048, 2049, 4999, 9999]) {
      for (const columns of [['s'], ['s', 'i']]) {
        const table = await readParquet(path, undefined, undefined, { maxRows, columns });
        const without = await readParquet(path, undefined, undefined, { maxRows, columns }, { withoutAddon: true });
        expect(columnsOf(table)).toEqual(columnsOf(without));
        expect(described(table)).toEqual(described(without));
      }
    }
  });
});

describe('parquet files that the addon does not read', () => {
  it('are read all the same, and the plan says why not natively', async () => {
    const nested = await duckFile('SELECT i, [i] AS l, {a: i} AS st FROM range(10) r(i)');
    expect(await reasonAgainst(nested)).toBe('column "l" is nested');
    expect(await reasonAgainst(nested, ['st'])).toBe('column "st" is nested');
    expect(await reasonAgainst(nested, ['i'])).toBeUndefined();
    expect((await readParquet(nested)).getChild('l')!.get(9)!.get(0)).toBe(9n);
    const packed = await duckFile('SELECT i FROM range(10) r(i)', 'COMPRESSION gzip');
    expect(await reasonAgainst(packed)).toBe('column "i" is compressed with GZIP');
    expect((await readParquet(packed)).numRows).toBe(10);
    const interval = await duckFile('SELECT INTERVAL 1 DAY AS v');
    expect(await reasonAgainst(interval)).toBe('column "v" is of a type that is rare');
    expect((await readParquet(interval)).numRows).toBe(1);
    const flights = fileURLToPath(new URL('../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url));
    expect(await reasonAgainst(flights)).toBe('column "date" is compressed with ZSTD');
  });

  it('are those whose Arrow schema states dictionaries', async () => {
    const { Table: WasmTable, writeParquet } = await parquetLibrary();
    const name = vectorFromArray(['a', 'b', 'a'], new Dictionary(new Utf8(), new Int32()));
    const path = newPath();
    writeFileSync(path, writeParquet(WasmTable.fromIPCStream(tableToIPC(new Table({ name }), 'stream'))));
    expect(await reasonAgainst(path)).toMatch(/^column "name" (was written as|is compressed)/);
    expect([...(await readParquet(path)).getChild('name')!]).toEqual(['a', 'b', 'a']);
  });

  it('are scanned, too', async () => {
    const path = await duckFile('SELECT i, [i] AS l FROM range(3000) r(i)');
    let rows = 0;
    for await (const batch of scanParquet(path)) rows += batch.numRows;
    expect([rows, await countParquet(path), (await outlineParquet(path)).rows]).toEqual([3000, 3000, 3000]);
  });
});

describe('damaged parquet files', () => {
  it('give a table or ERR_FILE, whatever byte is another', { timeout: 120_000 }, async () => {
    const path = await duckFile(
      `SELECT i, 'name-' || (i % 17) AS name, i / 3 AS share, CASE WHEN i % 4 > 0 THEN i % 5 END AS some FROM range(400) r(i)`,
    );
    const bytes = readFileSync(path);
    const draw = drawing(11);
    const damaged = join(folder, 'damaged.parquet');
    let refused = 0;
    for (let round = 0; round < 400; round++) {
      const other = Uint8Array.from(bytes);
      for (let i = 1 + draw(2); i-- > 0; ) other[draw(other.length)] = draw(256);
      writeFileSync(damaged, round % 8 ? other : other.subarray(0, draw(other.length)));
      // Starting parquet-wasm each time would take long.
      if ((await reasonAgainst(damaged).catch(() => undefined)) !== undefined) continue;
      const outcome = await readParquet(damaged, undefined, undefined, {}, { threads: 1 }).catch((error) => error);
      if (outcome instanceof Table) continue;
      expect(outcome).toMatchObject({
        code: expect.stringMatching(/^ERR_(FILE|MEMORY_LIMIT)$/),
        message: expect.stringContaining(damaged),
      });
      refused++;
    }
    expect(refused).toBeGreaterThan(50);
  });

  it('are named with the column', async () => {
    const path = await duckFile("SELECT 'text ' || i AS name FROM range(100) r(i)", 'COMPRESSION uncompressed');
    const bytes = readFileSync(path);
    bytes[bytes.indexOf('text 50')] = 0xff;
    writeFileSync(path, bytes);
    await expect(readParquet(path)).rejects.toMatchObject({
      code: 'ERR_FILE',
      message: `${path}: damaged: column "name": a text is not UTF-8`,
    });
    await expect(readParquet(path, undefined, undefined, {}, { withoutAddon: true })).rejects.toMatchObject({ code: 'ERR_FILE' });
  });
});
