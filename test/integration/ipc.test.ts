/** Arrow IPC bytes: what every writer makes is read, what is damaged is refused, at once and with what is wrong. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as arrow from 'apache-arrow';
import { Builder } from 'flatbuffers';
import { afterAll, describe, expect, test } from 'vitest';
import { readTable as readArgument } from '../../lib/columns/input.js';
import { readTable } from '../../lib/io/index.js';
import { IpcError, readIpcBytes } from '../../lib/ipc/reader.js';
import { testEngine } from '../support/engines.js';
import { chunked, failure, rows, table } from '../support/tables.js';

const engine = testEngine(1, { memoryLimit: '256MiB', threads: 2 });
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-ipc-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await (await engine).dispose();
});

const write = (name: string, bytes: Uint8Array): string => {
  writeFileSync(join(folder, name), bytes);
  return join(folder, name);
};
const concat = (...parts: Uint8Array[]) => Uint8Array.from(parts.flatMap((part) => [...part]));
const problemOf = (bytes: Uint8Array): string => {
  try {
    readIpcBytes(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(IpcError);
    return (error as Error).message;
  }
  throw new Error('Expected a refusal');
};

const people = table(
  { k: new arrow.Int32(), name: new arrow.Utf8(), code: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 5) },
  { k: [3, null, 1], name: ['c', null, 'a'], code: ['x', 'y', 'x'] },
);
const legacy = (of: arrow.Table) =>
  arrow.RecordBatchStreamWriter.writeAll(of, { writeLegacyIpcFormat: true } as never).toUint8Array(true);

/** A damaged byte that hung or exhausted the reader. */
test('deltas of a dictionary are put together once, whatever batches are between them', () => {
  const builder = arrow.makeBuilder({ type: new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 7) });
  const parts = ['a', 'b', 'c', 'd'].map((value) => builder.append(value).flush());
  const field = new arrow.Field('d', parts[0]!.type, true);
  const batches = parts.map((part) => {
    const data = arrow.makeData({ type: new arrow.Struct([field]), length: 1, nullCount: 0, children: [part] });
    return new arrow.RecordBatch(new arrow.Schema([field]), data);
  });
  const read = readIpcBytes(arrow.RecordBatchStreamWriter.writeAll(batches).toUint8Array(true));
  expect([...read.getChild('d')!]).toEqual(['a', 'b', 'c', 'd']);
  const dictionaries = read.batches.map(({ data }) => data.children[0]!.dictionary!);
  expect(dictionaries[0]!.data.map(({ length }) => length)).toEqual([1, 1, 1, 1]);
  expect(new Set(dictionaries).size).toBe(1);
});

describe('bytes that hung apache-arrow', () => {
  const small = new arrow.Table({ k: arrow.vectorFromArray([1, 2, 3], new arrow.Int32()) });
  for (const [format, at] of [
    ['file', 8],
    ['stream', 52],
  ] as const) {
    test(`a ${format} with a wrong bit in byte ${at}`, async () => {
      const bytes = arrow.tableToIPC(small, format);
      bytes[at]! ^= 1;
      const error = await failure((await engine).sort(bytes, { by: 'k' }));
      expect(error.code).toBe('ERR_INVALID_TABLE');
      expect(error.message).toMatch(/^The input table is not readable as Arrow IPC bytes: /);
      const path = write(`bit.${format}.arrow`, bytes);
      const file = await failure(readTable(path));
      expect(file.code).toBe('ERR_FILE');
      expect(file.message.startsWith(`${path}: `)).toBe(true);
    });
  }
});

describe('what is right is read', () => {
  const expected = rows(people);

  test.each<[string, () => Uint8Array]>([
    ['a file', () => arrow.tableToIPC(people, 'file')],
    ['a stream', () => arrow.tableToIPC(people, 'stream')],
    ['a stream without continuation markers', () => legacy(people)],
    ['a stream without an end', () => arrow.tableToIPC(people, 'stream').slice(0, -8)],
    ['a stream without continuation markers or an end', () => legacy(people).slice(0, -4)],
    [
      'a stream with more bytes behind its end',
      () => concat(arrow.tableToIPC(people, 'stream'), new TextEncoder().encode('more')),
    ],
    ['a stream at an odd address', () => concat(Uint8Array.of(0), arrow.tableToIPC(people, 'stream')).subarray(1)],
    ['a file in three batches', () => arrow.tableToIPC(chunked(people, [1, 1]), 'file')],
    ['a stream in three batches', () => arrow.tableToIPC(chunked(people, [1, 1]), 'stream')],
  ])('%s', async (_, make) => {
    const bytes = make();
    expect(rows(readIpcBytes(bytes))).toEqual(expected);
    expect(rows(await readTable(write('right.arrow', bytes)))).toEqual(expected);
    const sorted = await (await engine).sort(bytes, { by: 'k', select: ['k', 'name'] });
    expect(rows(sorted as arrow.Table).map((row) => row.k)).toEqual([1, 3, null]);
  });

  test('tables without rows, batches or columns', () => {
    for (const format of ['file', 'stream'] as const) {
      const none = new arrow.Table(people.schema, []);
      for (const of of [none, people.slice(0, 0)]) {
        const read = readIpcBytes(arrow.tableToIPC(of, format));
        expect([read.numRows, read.schema.names]).toEqual([0, ['k', 'name', 'code']]);
      }
      expect(readIpcBytes(arrow.tableToIPC(new arrow.Table(new arrow.Schema([]), []), format)).numCols).toBe(0);
    }
  });

  test('dictionaries that grow, and those that are replaced in streams', () => {
    const type = new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 1);
    const schema = new arrow.Schema([new arrow.Field('d', type, true)]);
    const batch = (values: string[]) => {
      const dictionary = arrow.vectorFromArray(values, new arrow.Utf8());
      const data = arrow.makeData({ type, data: Int32Array.from(values.keys()), dictionary });
      return new arrow.RecordBatch(
        schema,
        arrow.makeData({ type: new arrow.Struct(schema.fields), length: values.length, children: [data] }),
      );
    };
    const texts = (bytes: Uint8Array) => [...readIpcBytes(bytes).getChild('d')!];
    const growing = arrow.RecordBatchStreamWriter.writeAll([batch(['a', 'b']), batch(['a', 'b', 'c'])]).toUint8Array(true);
    expect(texts(growing)).toEqual(['a', 'b', 'a', 'b', 'c']);
    const replaced = arrow.RecordBatchStreamWriter.writeAll([batch(['a', 'b']), batch(['x', 'y'])]).toUint8Array(true);
    expect(texts(replaced)).toEqual(['a', 'b', 'x', 'y']);
  });

  test('metadata of schemas, fields and batches, and columns without a name', () => {
    const field = new arrow.Field('', new arrow.Int32(), true, new Map([['unit', 'm']]));
    const schema = new arrow.Schema([field], new Map([['who', 'me']]));
    const data = arrow.makeData({
      type: new arrow.Struct(schema.fields),
      length: 1,
      children: [arrow.makeData({ type: new arrow.Int32(), data: Int32Array.of(7) })],
    });
    const bytes = arrow.tableToIPC(new arrow.Table(schema, new arrow.RecordBatch(schema, data, new Map([['batch', '0']]))));
    const read = readIpcBytes(bytes);
    expect([...read.schema.metadata, ...read.schema.fields[0]!.metadata]).toEqual([
      ['who', 'me'],
      ['unit', 'm'],
    ]);
    expect(readArgument(bytes, 'left').columns[0]!.name).toBe('');
  });

  test('what Polars writes', () => {
    const polars = createRequire(import.meta.url)('nodejs-polars');
    const frame = polars.DataFrame({
      k: [1, null, 3],
      s: ['a', 'a text that is too long to lie in place', null],
      l: [[1], [], [2, 3]],
    });
    for (const bytes of [
      frame.writeIPC({ compression: 'uncompressed' }),
      frame.writeIPCStream({ compression: 'uncompressed' }),
    ]) {
      const read = readIpcBytes(bytes);
      expect([...read.getChild('k')!]).toEqual([1, null, 3]);
      expect([...read.getChild('s')!]).toEqual(['a', 'a text that is too long to lie in place', null]);
      expect([...read.getChild('l')!].map((list) => [...list])).toEqual([[1], [], [2, 3]]);
    }
  });

  test('buffers are parts of the bytes, and nothing in proportion to the rows is read', () => {
    const rowCount = 1 << 20;
    const wide = new arrow.Table(
      Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`c${i}`, arrow.makeVector(new Float64Array(rowCount))])),
    );
    const bytes = arrow.tableToIPC(wide, 'file');
    const fastest = Math.min(
      ...Array.from({ length: 20 }, () => {
        const start = performance.now();
        const { chunks } = readArgument(bytes, 'left').columns[15]!;
        expect((chunks[0]!.values as Float64Array).buffer).toBe(bytes.buffer);
        return performance.now() - start;
      }),
    );
    expect(fastest).toBeLessThan(5); // of 128 MiB; reading them takes longer
  });
});

describe('what is wrong is refused with what and where', () => {
  const stream = arrow.tableToIPC(people, 'stream');
  const file = arrow.tableToIPC(people, 'file');
  const changed = (bytes: Uint8Array, change: (view: DataView) => void) => {
    const copy = Uint8Array.from(bytes);
    change(new DataView(copy.buffer));
    return copy;
  };

  const batches = arrow.tableToIPC(chunked(new arrow.Table({ k: people.getChild('k')! }), [1]), 'file');
  /** Where its record batches are. */
  const offsets = [8, 8 + part(batches.subarray(8), 0).length];
  /** The same file, but its footer has another place for the second batch. */
  const relisted = (place: () => number) =>
    changed(batches, (view) => {
      for (let at = offsets[1]! + 8; at + 24 <= view.byteLength; at++)
        if (view.getBigInt64(at, true) === BigInt(offsets[1]!)) view.setBigInt64(at, BigInt(place()), true);
    });

  test.each<[string, () => Uint8Array, RegExp]>([
    ['text', () => new TextEncoder().encode('id,name\n1,a\n'), /^not an Arrow IPC file or stream$/],
    ['three bytes', () => stream.slice(0, 3), /^message at byte 0 is cut off$/],
    [
      'a stream cut off in its schema',
      () => stream.slice(0, 100),
      /^message at byte 0: its metadata of \d+ bytes does not fit the 92 /,
    ],
    [
      'a stream cut off in a body',
      () => stream.slice(0, -20),
      /^message at byte \d+: its body of \d+ bytes does not fit the \d+ bytes/,
    ],
    ['a file without its end', () => file.slice(0, -1), /^the file has lost its end$/],
    [
      'a footer longer than the file',
      () => changed(file, (v) => v.setInt32(v.byteLength - 10, 1 << 30, true)),
      /^its footer of 1073741824 bytes/,
    ],
    ['a negative footer', () => changed(file, (v) => v.setInt32(v.byteLength - 10, -5, true)), /^its footer of -5 bytes/],
    [
      'a length of metadata of 2 GiB',
      () => changed(stream, (v) => v.setInt32(4, 2 ** 31 - 1, true)),
      /^message at byte 0: its metadata of 2147483647 bytes/,
    ],
    [
      'a file that lists a batch twice',
      () => relisted(() => offsets[0]!),
      /^footer at byte \d+: two of its messages are at one place$/,
    ],
    ['a file that lists a part of a batch', () => relisted(() => offsets[0]! + 16), /does not fit the \d+ bytes that are left$/],
    [
      'a file that lists its magic',
      () => relisted(() => 0),
      /^footer at byte \d+: one of its messages is at byte 0, before they begin$/,
    ],
    ['a file that lists what is behind it', () => relisted(() => 1 << 20), /^message at byte 1048576 is cut off$/],
    [
      'a stream that starts with a batch',
      () => concat(part(stream, 1), part(stream, 2)),
      /expected a schema at the start of a stream$/,
    ],
    [
      'two schemas',
      () => concat(part(stream, 0), part(stream, 0)),
      /^schema at byte \d+: expected a record batch or a dictionary batch$/,
    ],
    [
      'a batch without its dictionary',
      () => concat(part(stream, 0), part(stream, 2)),
      /column "code" needs dictionary 5, which no message/,
    ],
    [
      'big-endian values',
      () => message(1, bigEndianSchema),
      /^schema at byte 0: its values are big-endian, which is not supported/,
    ],
    [
      'a batch of an unknown codec',
      () => concat(message(1, noColumns), message(3, compressedBatch)),
      /^record batch at byte \d+: its buffers are compressed in a way \(codec 7, method 0\) that is not supported yet/,
    ],
    ...Object.entries({ run_end_encoded: 22, list_view: 25, large_list_view: 26 }).map(
      ([name, kind]): [string, () => Uint8Array, RegExp] => [
        `a column of type ${name}`,
        () => message(1, (builder) => schemaOf(builder, [unknownField(builder, kind)])),
        new RegExp(`^schema at byte 0: field "": its type ${name} is not supported yet$`),
      ],
    ),
    ['metadata of 2017', () => message(1, noColumns, 2), /^message at byte 0: metadata version V3 is not supported/],
    [
      'more columns than the schema has',
      () => concat(message(1, noColumns), message(3, surplusBatch)),
      /it lists 1 columns but its schema has 0$/,
    ],
    ['a tensor', () => message(4, emptyTable), /^tensor at byte 0: expected a schema/],
    ['fields that are one field', () => message(1, sharedFields), /its parts overlap$/],
    ['fields that are nested too deeply', () => message(1, deepFields), /nested deeper than 128$/],
  ])('%s', async (_, make, problem) => {
    const bytes = make();
    expect(problemOf(bytes)).toMatch(problem);
    const error = await failure((await engine).joinCount(bytes, people, { on: 'k' } as never));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    const path = write('wrong.arrow', bytes);
    const inFile = await failure(readTable(path));
    expect(inFile.code).toBe('ERR_FILE');
    expect(inFile.message).toBe(`${path}: not readable as Arrow IPC: ${problemOf(bytes)}`);
  });

  test('a claim of 32 GB allocates nothing', async () => {
    const { bodyLength } = part(stream, 2);
    const claims = changed(stream, (view) => {
      for (let at = 0; at + 8 <= view.byteLength; at += 8) {
        if (view.getBigInt64(at, true) === BigInt(bodyLength)) view.setBigInt64(at, 32n << 30n, true);
      }
    });
    const before = process.memoryUsage.rss();
    expect(problemOf(claims)).toMatch(/: its body of 34359738368 bytes does not fit the \d+ bytes that are left$/);
    expect((await failure(readTable(write('claims.arrow', claims)))).message).toContain('34359738368');
    expect(process.memoryUsage.rss() - before).toBeLessThan(2 ** 28);
  });
});

/** A message of a stream with its body: its bytes. */
function part(stream: Uint8Array, index: number): Uint8Array & { bodyLength: number } {
  const view = new DataView(stream.buffer, stream.byteOffset);
  for (let at = 0, n = 0; ; n++) {
    const start = at + 8 + view.getInt32(at + 4, true);
    const { bodyLength } = arrow.Message.decode(stream.slice(at + 8, start));
    if (n === index) return Object.assign(stream.slice(at, start + bodyLength), { bodyLength });
    at = start + bodyLength;
  }
}

/** A message of a stream, without a body. */
function message(kind: number, header: (builder: Builder) => number, version = 4): Uint8Array {
  const builder = new Builder();
  const offset = header(builder);
  builder.startObject(5);
  builder.addFieldInt16(0, version, 0);
  builder.addFieldInt8(1, kind, 0);
  builder.addFieldOffset(2, offset, 0);
  builder.finish(builder.endObject());
  const metadata = builder.asUint8Array();
  const padded = new Uint8Array(8 + Math.ceil(metadata.length / 8) * 8);
  new DataView(padded.buffer).setInt32(0, -1, true);
  new DataView(padded.buffer).setInt32(4, padded.length - 8, true);
  padded.set(metadata, 8);
  return padded;
}

function schemaOf(builder: Builder, fields: number[], endianness = 0): number {
  builder.startVector(4, fields.length, 4);
  for (const field of fields.toReversed()) builder.addOffset(field);
  const list = builder.endVector();
  builder.startObject(4);
  builder.addFieldInt16(0, endianness, 0);
  builder.addFieldOffset(1, list, 0);
  return builder.endObject();
}
const noColumns = (builder: Builder) => schemaOf(builder, []);
function emptyTable(builder: Builder): number {
  builder.startObject(0);
  return builder.endObject();
}
const bigEndianSchema = (builder: Builder) => schemaOf(builder, [], 1);

/** A field of a type without parameters, by its number in the union Type: a struct unless it is said. */
function structOf(builder: Builder, children: number[], kind = 13): number {
  builder.startVector(4, children.length, 4);
  for (const child of children.toReversed()) builder.addOffset(child);
  const list = builder.endVector();
  builder.startObject(0);
  const type = builder.endObject();
  builder.startObject(7);
  builder.addFieldInt8(2, kind, 0);
  builder.addFieldOffset(3, type, 0);
  builder.addFieldOffset(5, list, 0);
  return builder.endObject();
}

/** A field of a type that apache-arrow does not have. */
function unknownField(builder: Builder, kind: number): number {
  const children = Array.from({ length: kind === 22 ? 2 : 1 }, () => structOf(builder, []));
  return structOf(builder, children, kind);
}

/** 2^30 fields in 3 KB: each level has the one below it as both of its children. */
function sharedFields(builder: Builder): number {
  let field = structOf(builder, []);
  for (let level = 0; level < 30; level++) field = structOf(builder, [field, field]);
  return schemaOf(builder, [field]);
}

function deepFields(builder: Builder): number {
  let field = structOf(builder, []);
  for (let level = 0; level < 1000; level++) field = structOf(builder, [field]);
  return schemaOf(builder, [field]);
}

function compressedBatch(builder: Builder): number {
  builder.startObject(2);
  builder.addFieldInt8(0, 7, 0);
  const compression = builder.endObject();
  builder.startObject(5);
  builder.addFieldOffset(3, compression, 0);
  return builder.endObject();
}

function surplusBatch(builder: Builder): number {
  builder.startVector(16, 1, 8);
  builder.writeInt64(0n);
  builder.writeInt64(0n);
  const nodes = builder.endVector();
  builder.startObject(5);
  builder.addFieldOffset(1, nodes, 0);
  return builder.endObject();
}

describe('trials', () => {
  const trial = (name: string, ...args: string[]) =>
    new Promise<{ code: number | null; text: string }>((resolve) => {
      const child = spawn(process.execPath, [
        fileURLToPath(new URL(`../../scripts/trials/${name}.mjs`, import.meta.url)),
        ...args,
      ]);
      let text = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (part) => {
          text += part;
        });
      child.on('close', (code) => resolve({ code, text }));
    });

  test.each(['ipc', 'arguments'])('%s', async (name) => {
    const { code, text } = await trial(name, '--seed', '1', '--rounds', '2000');
    expect(text).toMatch(/2000 rounds, /);
    expect(code).toBe(0);
  });
});
