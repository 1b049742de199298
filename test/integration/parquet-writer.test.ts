/** What the addon writes is what parquet-wasm writes: to parquet-wasm, DuckDB and Polars. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type DuckDBConnection, DuckDBInstance } from '@duckdb/node-api';
import * as arrow from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parquetLibrary } from '../../lib/io/parquet-decoder.js';
import { type ParquetSizes, writeParquet, writeThroughWasm } from '../../lib/io/parquet-writer.js';
import { parquetType } from '../../lib/io/parquet-writer-native.js';
import { writeBatches } from '../../lib/io/write.js';
import { readIpcBytes } from '../../lib/ipc/reader.js';
import { everyType, plainRows, type Random, randomTable } from '../support/nested.js';
import { chunked, failure, random, table } from '../support/tables.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-parquet-writer-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const ours = join(folder, 'native.parquet');
const theirs = join(folder, 'wasm.parquet');
let duckdb: DuckDBConnection;
beforeAll(async () => {
  duckdb = await (await DuckDBInstance.create(':memory:')).connect();
});

/** Types that files hold, and what values of them are below: random bytes are no time of day. */
const FLAT: Record<string, [type: arrow.DataType, bound?: number]> = {
  bool: [new arrow.Bool()],
  int8: [new arrow.Int8()],
  int16: [new arrow.Int16()],
  int32: [new arrow.Int32()],
  int64: [new arrow.Int64()],
  uint8: [new arrow.Uint8()],
  uint16: [new arrow.Uint16()],
  uint32: [new arrow.Uint32()],
  uint64: [new arrow.Uint64()],
  float32: [new arrow.Float32()],
  float64: [new arrow.Float64()],
  utf8: [new arrow.Utf8()],
  large_utf8: [new arrow.LargeUtf8()],
  binary: [new arrow.Binary()],
  large_binary: [new arrow.LargeBinary()],
  date: [new arrow.DateDay(), 1e5],
  date_ms: [new arrow.DateMillisecond(), 1e12],
  time_s: [new arrow.TimeSecond(), 86_400],
  time_ms: [new arrow.TimeMillisecond(), 864e5],
  time_us: [new arrow.TimeMicrosecond(), 864e8],
  time_ns: [new arrow.TimeNanosecond(), 864e11],
  timestamp_s: [new arrow.TimestampSecond(), 1e9],
  timestamp_ms: [new arrow.TimestampMillisecond(), 1e12],
  timestamp_us: [new arrow.TimestampMicrosecond('Europe/Berlin'), 1e15],
  timestamp_ns: [new arrow.TimestampNanosecond('UTC'), 1e15],
  duration_us: [new arrow.DurationMicrosecond()],
  decimal128_5: [new arrow.Decimal(2, 5, 128)],
  decimal128_18: [new arrow.Decimal(2, 18, 128)],
  decimal128_20: [new arrow.Decimal(2, 20, 128)],
  decimal256_5: [new arrow.Decimal(2, 5, 256)],
  dictionary_time: [new arrow.Dictionary(new arrow.DateDay(), new arrow.Uint8()), 1e5],
  dictionary_float: [new arrow.Dictionary(new arrow.Float64(), new arrow.Int32())],
};

function bound(data: arrow.Data, below: number): void {
  if (data.dictionary) for (const chunk of data.dictionary.data) bound(chunk, below);
  else {
    const values = data.values as BigInt64Array | Int32Array;
    for (let i = 0; i < values.length; i++) {
      values[i] = typeof values[i] === 'bigint' ? (values[i] as bigint) % BigInt(below) : (values[i] as number) % below;
    }
  }
}

/** A table of all types that the addon writes, whose values repeat by chance. */
function flatTable(lengths: readonly number[], draw: Random): arrow.Table {
  const every = Object.entries(everyType()).filter(
    ([name, type]) => parquetType(type) && name !== 'dictionary_view' /* parquet-wasm can't read it */,
  );
  const types = {
    ...Object.fromEntries(every),
    ...Object.fromEntries(Object.entries(FLAT).map(([name, [type]]) => [name, type])),
  };
  const rows = lengths.reduce((sum, length) => sum + length, 0);
  const made = randomTable(
    types,
    Array.from({ length: rows }, (_, i) => i - 5),
    lengths,
    draw,
  );
  for (const [name, [, below]] of Object.entries(FLAT)) {
    if (below) for (const data of made.getChild(name)?.data ?? []) bound(data, below);
  }
  return made;
}

async function readThroughWasm(path: string): Promise<arrow.Table> {
  const { readParquet } = await parquetLibrary();
  const { schema, batches } = readIpcBytes(readParquet(readFileSync(path)).intoIPCStream());
  return new arrow.Table(schema, batches);
}

/** Columns that differ between the two files, read by DuckDB. */
async function differing(names: readonly string[]): Promise<string[]> {
  const quoted = names.map((name) => `"${name}"`);
  const counts = quoted.map((name) => `count(*) FILTER (a.${name} IS DISTINCT FROM b.${name})::INTEGER`);
  const query = `SELECT ${counts.join(', ')} FROM '${ours}' a POSITIONAL JOIN '${theirs}' b`;
  const [found] = (await duckdb.runAndReadAll(query)).getRows();
  return names.filter((_, index) => found![index] !== 0);
}

/** Writes a table both ways and compares what others read. */
async function compare(of: arrow.Table, sizes: ParquetSizes): Promise<void> {
  await writeParquet(of, { path: ours }, sizes);
  await writeThroughWasm(of, { path: theirs });
  const [mine, other] = await Promise.all([readThroughWasm(ours), readThroughWasm(theirs)]);
  expect(String(mine.schema)).toBe(String(other.schema));
  expect(mine.schema.fields.map(({ nullable, metadata }) => [nullable, [...metadata]])).toEqual(
    other.schema.fields.map(({ nullable, metadata }) => [nullable, [...metadata]]),
  );
  expect([...mine.schema.metadata]).toEqual([...other.schema.metadata]);
  expect(plainRows(mine)).toEqual(plainRows(other));
  expect(await differing(of.schema.fields.map(({ name }) => name))).toEqual([]);
}

describe('files that the addon writes', () => {
  it('hold what those of parquet-wasm do: values of every flat type, in any batches, groups and pages', async () => {
    for (let seed = 0; seed < 12; seed++) {
      const draw = random(seed);
      const lengths = Array.from({ length: 1 + draw(5) }, () => draw(2) * draw(seed < 9 ? 90 : 900));
      const sizes = { threads: 1 + draw(3), groupRows: 1 + draw(700), groupBytes: 1 + draw(1 << 16), pageBytes: 1 + draw(3000) };
      const made = flatTable(lengths, draw);
      await compare(made, draw(3) ? sizes : {});
      if (made.numRows < 50) continue;
      const sliced = made.slice(draw(20), made.numRows - draw(20));
      // parquet-wasm can't write slices of these.
      const apart = ['text_view', 'binary_view', 'null'];
      await compare(sliced.select(sliced.schema.fields.map(({ name }) => name).filter((name) => !apart.includes(name))), sizes);
      await writeParquet(sliced.select(apart), { path: ours }, sizes);
      expect(plainRows(await readThroughWasm(ours))).toEqual(plainRows(sliced.select(apart)));
    }
  });

  it('hold many rows, with dictionaries, differences, runs, nulls and texts of any length', async () => {
    const rows = 40_000;
    const draw = random(7);
    const numbers = Array.from({ length: rows }, (_, i) => i);
    const ends = [0, -0, Number.NaN, 1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    const whole = table(
      {
        ascending: new arrow.Int64(),
        wild: new arrow.Int64(),
        wild32: new arrow.Int32(),
        few: new arrow.Int32(),
        runs: new arrow.Int32(),
        floats: new arrow.Float64(),
        measured: new arrow.Float64(),
        names: new arrow.Utf8(),
        texts: new arrow.Utf8(),
        long: new arrow.Utf8(),
        rare: new arrow.Utf8(),
        flags: new arrow.Bool(),
        none: new arrow.Float64(),
        one: new arrow.Utf8(),
      },
      {
        ascending: numbers.map((i) => BigInt(i) * 1000n - 5n),
        wild: numbers.map(() => (BigInt(draw(2 ** 32)) << 32n) + BigInt(draw(2 ** 32)) - 2n ** 63n),
        wild32: numbers.map((i) => (i % 2 ? 2 ** 31 - 1 - draw(3) : draw(3) - 2 ** 31)),
        few: numbers.map(() => 1e6 * draw(9)),
        runs: numbers.map((i) => (i % 1000 < 700 ? 3 : draw(100) * 1e6)),
        floats: numbers.map(() => ends[draw(ends.length)]!),
        measured: numbers.map(() => draw(2 ** 32) / 7),
        names: numbers.map(() => `name ${draw(3000)}`),
        texts: numbers.map((i) => `${i} ${'x'.repeat(draw(20))}`),
        long: numbers.map((i) => (i % 10_000 === 0 ? 'long '.repeat(1 << 16) : '')),
        rare: numbers.map((i) => (i % 777 ? null : `r${i}`)),
        flags: numbers.map((i) => (i < 30_000 ? true : draw(2) === 1)),
        none: numbers.map(() => null),
        one: numbers.map(() => 'the same'),
      },
    );
    for (const of of [whole, chunked(whole, [1, 100, 12_345, 12_345, 39_999])]) {
      await compare(of, {});
      await compare(of, { groupRows: 9999, pageBytes: 7000 });
    }
    const encodings = await duckdb.runAndReadAll(
      `SELECT path_in_schema, encodings FROM parquet_metadata('${ours}') WHERE row_group_id = 0`,
    );
    const found = new Map(encodings.getRows() as [string, string][]);
    expect(found.get('ascending')).toBe('RLE, DELTA_BINARY_PACKED');
    for (const name of ['wild', 'measured', 'texts', 'flags', 'none']) expect(found.get(name), name).toBe('RLE, PLAIN');
    for (const name of ['few', 'floats', 'one']) expect(found.get(name), name).toContain('DICTIONARY');
    const { default: pl } = await import('nodejs-polars');
    const frames = [pl.readParquet(ours), pl.readParquet(theirs)] as const;
    for (const { name } of whole.schema.fields) {
      expect(frames[0].getColumn(name).toArray(), name).toEqual(frames[1].getColumn(name).toArray());
    }
  }, 60_000);

  it('say the least and greatest values, without NaN and with zeros of both signs', async () => {
    const columns = {
      zeros: [new arrow.Float64(), [0, -0, 0, null], ['-0.0', '0.0', 1]],
      nans: [new arrow.Float64(), [Number.NaN, 2, -3, Number.NaN], ['-3.0', '2.0', 0]],
      only: [new arrow.Float32(), [Number.NaN, null, null, Number.NaN], [null, null, 2]],
      unsigned: [new arrow.Uint32(), [1, 2 ** 32 - 1, 5, 7], ['1', '4294967295', 0]],
      texts: [new arrow.Utf8(), ['b', 'ö', '', null], ['', 'ö', 1]],
      long: [new arrow.Utf8(), ['b', 'c'.repeat(65), 'b', 'b'], [null, null, 0]],
    } as const;
    const types = Object.fromEntries(Object.entries(columns).map(([name, [type]]) => [name, type]));
    const values = Object.fromEntries(Object.entries(columns).map(([name, [, values]]) => [name, [...values]]));
    await writeParquet(table(types as arrow.TypeMap, values), { path: ours });
    const query = `SELECT path_in_schema, stats_min_value, stats_max_value, stats_null_count::INTEGER FROM parquet_metadata('${ours}')`;
    const found = Object.fromEntries(
      (await duckdb.runAndReadAll(query)).getRows().map(([name, ...said]) => [name as string, said]),
    );
    expect(found).toEqual(Object.fromEntries(Object.entries(columns).map(([name, [, , said]]) => [name, [...said]])));
  });

  it('have row groups of bounded rows and bytes, however small the batches are', async () => {
    const rows = 5000;
    const numbers = table({ a: new arrow.Int64() }, { a: Array.from({ length: rows }, (_, i) => BigInt(i)) });
    const tiny = chunked(
      numbers,
      Array.from({ length: rows / 5 }, (_, i) => 5 * i),
    );
    const groups = async (sizes: ParquetSizes) => {
      await writeParquet(tiny, { path: ours }, sizes);
      const query = `SELECT row_group_num_rows::INTEGER FROM parquet_metadata('${ours}') ORDER BY row_group_id`;
      return (await duckdb.runAndReadAll(query)).getRows().map(([count]) => count);
    };
    expect(await groups({})).toEqual([rows]);
    expect(await groups({ groupRows: 2000 })).toEqual([2000, 2000, 1000]);
    expect(await groups({ groupBytes: 1250 * 8 })).toEqual([1250, 1250, 1250, 1250]);
    expect(await groups({ groupBytes: 1 })).toHaveLength(rows);
  });

  it('have row groups that end with a table of which more is kept in memory than they hold', async () => {
    const groups = async (tables: number, rows: number) => {
      async function* slices() {
        for (let made = 0; made < tables; made++) {
          const whole = new arrow.Table({ a: arrow.makeVector(BigInt64Array.from({ length: rows }, (_, i) => BigInt(i))) });
          const [batch] = whole.batches as [arrow.RecordBatch];
          yield batch.slice(rows, rows); // no rows
          for (let row = 0; row < rows; row += 100) yield batch.slice(row, row + 100);
        }
      }
      await writeBatches(slices(), ours, { rowGroupBytes: 1250 * 8 });
      const query = `SELECT row_group_num_rows::INTEGER FROM parquet_metadata('${ours}') ORDER BY row_group_id`;
      return (await duckdb.runAndReadAll(query)).getRows().map(([count]) => count);
    };
    expect(await groups(2, 4000)).toEqual([1250, 1250, 1250, 250, 1250, 1250, 1250, 250]);
    expect(await groups(4, 1000)).toEqual([1250, 1250, 1250, 250]);
  });

  it('give dictionaries that parquet-wasm can not read back as their values', async () => {
    const draw = random(3);
    const values = [
      new arrow.Bool(),
      new arrow.FixedSizeBinary(3),
      new arrow.Float16(),
      new arrow.Utf8View(),
      new arrow.BinaryView(),
      new arrow.Decimal(2, 38, 128),
    ];
    const types = Object.fromEntries(values.map((type) => [String(type), new arrow.Dictionary(type, new arrow.Int8())]));
    const made = randomTable(types as never, [...Array(50).keys()], [20, 30], draw);
    for (const { name, type } of made.schema.fields.slice(1)) {
      await writeParquet(made.select([name]), { path: ours });
      const back = await readThroughWasm(ours);
      // parquet-wasm gives views as texts.
      const { dictionary } = type as unknown as arrow.Dictionary;
      expect(String(back.schema.fields[0]!.type)).toBe(String(dictionary).replace('View', ''));
      expect(plainRows(back)).toEqual(plainRows(made.select([name])));
    }
  });

  it('hold metadata of the schema, and no rows', async () => {
    const schema = new arrow.Schema([new arrow.Field('a', new arrow.Utf8(), false)], new Map([['made by', 'a test']]));
    await writeParquet(new arrow.Table(schema, []), { path: ours });
    const back = await readThroughWasm(ours);
    expect([back.numRows, back.schema.metadata.get('made by'), back.schema.fields[0]!.nullable]).toEqual([0, 'a test', false]);
    const keys = await duckdb.runAndReadAll(`SELECT decode(key) FROM parquet_kv_metadata('${ours}')`);
    expect(keys.getRows()).toEqual([['made by'], ['ARROW:schema']]);
  });
});

describe('writing', () => {
  const numbers = () => table({ a: new arrow.Int64() }, { a: Array.from({ length: 20_000 }, (_, i) => BigInt(i)) });

  it('leaves no file where it is aborted', async () => {
    const out = join(folder, 'aborted.parquet');
    for (const milliseconds of [0, 1, 3, 10]) {
      const abort = new AbortController();
      const reason = new Error('enough');
      setTimeout(() => abort.abort(reason), milliseconds);
      await expect(writeParquet(numbers(), { path: out, signal: abort.signal }, { groupRows: 1, threads: 1 })).rejects.toBe(
        reason,
      );
      expect([existsSync(out), readdirSync(folder).filter((name) => name.includes('partial'))]).toEqual([false, []]);
    }
  });

  it('refuses buffers that are too short or detached, and nulls in a column without', async () => {
    const data = (parts: object, type: arrow.DataType = new arrow.Utf8()) => {
      const schema = new arrow.Schema([new arrow.Field('a', type, false)]);
      const child = arrow.makeData({ type, length: 3, ...parts } as never) as arrow.Data;
      const struct = arrow.makeData({ type: new arrow.Struct(schema.fields), length: 3, nullCount: 0, children: [child] });
      return new arrow.Table(schema, new arrow.RecordBatch(schema, struct));
    };
    const bytes = Buffer.from('abc');
    const refused = async (of: arrow.Table) => (await failure(writeParquet(of, { path: ours }))).message;
    expect(await refused(data({ valueOffsets: Int32Array.of(0, 1, 2, 4), data: bytes }))).toContain("'a'");
    expect(await refused(data({ valueOffsets: Int32Array.of(0, 2, 1, 3), data: bytes }))).toContain('descend');
    expect(await refused(data({ data: Int32Array.of(1) }, new arrow.Int32()))).toContain("'a'");
    const nullable = { data: Int32Array.of(1, 2, 3), nullBitmap: Uint8Array.of(5), nullCount: 1 };
    expect(await refused(data(nullable, new arrow.Int32()))).toContain('not nullable');
  });

  it('takes tables of other versions of apache-arrow', async () => {
    for (const version of ['apache-arrow-15', 'apache-arrow-18']) {
      const { tableFromArrays } = (await import(version)) as typeof arrow;
      await writeParquet(tableFromArrays({ a: Int32Array.of(1, 2), b: ['x', 'y'] }), { path: ours });
      expect(plainRows(await readThroughWasm(ours))).toEqual([
        { a: 1, b: 'x' },
        { a: 2, b: 'y' },
      ]);
    }
  });

  it('goes through parquet-wasm for nested columns', async () => {
    const list = new arrow.List(new arrow.Field('item', new arrow.Int32()));
    const nested = table({ a: new arrow.Int32(), l: list } as arrow.TypeMap, { a: [1, 2], l: [[1], null] });
    await writeParquet(nested, { path: ours });
    expect(plainRows(await readThroughWasm(ours))).toEqual(plainRows(nested));
  });
});
