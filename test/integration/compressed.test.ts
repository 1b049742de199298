/** Compressed Arrow IPC: what Polars and apache-arrow write is read, on every Node.js, and what is damaged is refused with what is wrong. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as zlib from 'node:zlib';
import * as arrow from 'apache-arrow';
import pl from 'nodejs-polars';
import { afterAll, describe, expect, test } from 'vitest';
import { toRows } from '../../lib/index.js';
import { readTable } from '../../lib/io/index.js';
import { IpcError } from '../../lib/ipc/flatbuffer.js';
import { readLz4 } from '../../lib/ipc/lz4.js';
import { readIpcBytes } from '../../lib/ipc/reader.js';
import { readZstd } from '../../lib/ipc/zstd.js';
import { testEngine } from '../support/engines.js';
import { failure } from '../support/tables.js';

const engine = await testEngine(1, { memoryLimit: '256MiB', threads: 2 });
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-compressed-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await engine.dispose();
});

const words = ['short', 'a text that is longer than twelve bytes', '', 'ünï'];
function frameOf(length: number): pl.DataFrame {
  const of = <T>(make: (row: number) => T) => Array.from({ length }, (_, row) => (row % 11 === 7 ? null : make(row)));
  return pl.DataFrame({
    k: pl.Series(
      'k',
      of((row) => (row * 7919) % 1000),
      pl.Int32,
    ),
    wide: pl.Series(
      'wide',
      of((row) => BigInt(row) * 3n),
      pl.Int64,
    ),
    price: pl.Series(
      'price',
      of((row) => Math.sqrt(row)),
      pl.Float64,
    ),
    zero: pl.Series(
      'zero',
      of(() => 0),
      pl.Float64,
    ),
    name: pl.Series(
      'name',
      of((row) => `${words[row % 4]}${row % 13}`),
      pl.Utf8,
    ),
    kind: pl
      .Series(
        'kind',
        of((row) => words[row % 3]),
        pl.Utf8,
      )
      .cast(pl.Categorical),
    ok: pl.Series(
      'ok',
      of((row) => row % 3 === 0),
      pl.Bool,
    ),
  });
}
const codecs = ['lz4', 'zstd'] as const;
const bytesOf = (frame: pl.DataFrame, compression: 'uncompressed' | 'lz4' | 'zstd', format: 'file' | 'stream'): Uint8Array =>
  format === 'file' ? frame.writeIPC({ compression }) : frame.writeIPCStream({ compression });

describe.each(codecs)('Polars, %s', (codec) => {
  test.each([
    ['file', 0],
    ['file', 1],
    ['file', 3000],
    ['stream', 3000],
    ['stream', 20_000],
  ] as const)('a %s of %d rows', async (format, length) => {
    const frame = frameOf(length);
    const bytes = bytesOf(frame, codec, format);
    const expected = bytesOf(frame, 'uncompressed', format);
    if (length > 1000) expect(bytes.length).toBeLessThan(expected.length);
    const read = readIpcBytes(bytes);
    expect([read.numRows, read.numCols]).toEqual([length, 7]);
    expect(JSON.stringify(toRows(read))).toBe(JSON.stringify(toRows(expected)));
    const path = join(folder, `${codec}-${length}.arrow`);
    writeFileSync(path, bytes);
    expect((await readTable(path)).numRows).toBe(length);
    const last = { by: ['k', 'wide'], offset: Math.max(0, length - 50) };
    expect(toRows(await engine.sort(bytes, last))).toEqual(toRows(await engine.sort(expected, last)));
    expect(await engine.joinCount(bytes, expected, { on: 'wide' })).toBe(
      await engine.joinCount(expected, expected, { on: 'wide' }),
    );
  });

  test('a damaged byte anywhere is read or refused, and never anything else', () => {
    const bytes = Uint8Array.from(bytesOf(frameOf(40), codec, 'stream'));
    const outcomes = { read: 0, refused: 0 };
    for (let at = 0; at < bytes.length; at += 11) {
      const damaged = bytes.slice();
      damaged[at]! ^= 1 << (at % 8);
      try {
        readIpcBytes(damaged);
        outcomes.read++;
      } catch (error) {
        expect(error).toBeInstanceOf(IpcError);
        outcomes.refused++;
      }
    }
    expect(outcomes.read).toBeGreaterThan(0);
    expect(outcomes.refused).toBeGreaterThan(0);
  });
});

/** An LZ4 frame that holds bytes as they are. */
function stored(bytes: Uint8Array): Uint8Array {
  const frame = new Uint8Array(7 + 4 + bytes.length + 4);
  frame.set([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
  new DataView(frame.buffer).setUint32(7, (bytes.length | 0x80000000) >>> 0, true);
  frame.set(bytes, 11);
  return frame;
}

describe('apache-arrow', () => {
  const people = new arrow.Table({
    k: arrow.vectorFromArray([3, null, 1], new arrow.Int32()),
    name: arrow.vectorFromArray(['c', null, 'a'], new arrow.Utf8()),
    code: arrow.vectorFromArray(['x', 'y', 'x'], new arrow.Dictionary(new arrow.Utf8(), new arrow.Int32(), 5)),
    list: arrow.vectorFromArray([[1, 2], [], null], new arrow.List(new arrow.Field('item', new arrow.Int32()))),
  });
  const write = (compressionType: arrow.CompressionType) =>
    arrow.RecordBatchStreamWriter.writeAll(people, { compressionType } as never).toUint8Array(true);

  test('buffers that are not compressed, among those that could be', async () => {
    // A frame is longer than what it holds, so the writer leaves all as they are.
    arrow.compressionRegistry.set(arrow.CompressionType.LZ4_FRAME, { encode: stored });
    const bytes = write(arrow.CompressionType.LZ4_FRAME);
    expect(toRows(readIpcBytes(bytes))).toEqual(toRows(people));
    expect(toRows(await engine.sort(bytes, { by: 'k' })).map(({ name }) => name)).toEqual(['a', 'c', null]);
  });
});

describe('lengths', () => {
  /** One column of 32-bit integers; its only compressed buffer that is not empty has this length before this frame. */
  function ipcOf(size: bigint, frame: Uint8Array, rows: number): Uint8Array {
    const plain = new Uint8Array(4 * rows);
    const prefixed = new Uint8Array(8 + frame.length);
    new DataView(prefixed.buffer).setBigInt64(0, size, true);
    prefixed.set(frame, 8);
    arrow.compressionRegistry.set(arrow.CompressionType.LZ4_FRAME, { encode: stored });
    const table = new arrow.Table({
      k: new arrow.Vector([arrow.makeData({ type: new arrow.Int32(), data: new Int32Array(plain.buffer) })]),
    });
    const bytes = arrow.RecordBatchStreamWriter.writeAll(table, {
      compressionType: arrow.CompressionType.LZ4_FRAME,
    } as never).toUint8Array(true);
    // The writer left the buffer as it is, behind -1: the frame takes its place.
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = bytes.length - 8;
    while (at >= 0 && view.getBigInt64(at, true) !== -1n) at -= 8;
    expect(prefixed.length).toBeLessThanOrEqual(8 + plain.length);
    bytes.set(prefixed, at);
    return bytes;
  }
  const zeros = (rows: number): Uint8Array => {
    // A literal, and a match that repeats it to the last 5 bytes, which are literals.
    const length = 4 * rows - 1 - 5 - 4 - 15;
    const more = [...new Array<number>(Math.floor(length / 255)).fill(255), length % 255];
    const block = [0x1f, 0, 1, 0, ...more, 0x50, 0, 0, 0, 0, 0];
    return Uint8Array.from([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, block.length, 0, 0, 0, ...block, 0, 0, 0, 0]);
  };
  const problem = (bytes: Uint8Array): string => {
    try {
      return `${readIpcBytes(bytes).numRows} rows`;
    } catch (error) {
      expect(error).toBeInstanceOf(IpcError);
      return (error as Error).message;
    }
  };

  test('true ones are read', () => {
    const read = readIpcBytes(ipcOf(4000n, zeros(1000), 1000));
    expect([...read.getChild('k')!]).toEqual(new Array(1000).fill(0));
  });
  test.each<[string, bigint, RegExp]>([
    ['less than rows need', 3996n, /the values of column "k" are 3996 bytes; its rows need 4000$/],
    ['more than there are', 4001n, /are 4000 bytes, but said to be 4001$/],
    ['more than a frame can hold', 2n ** 40n, /are said to be 1099511627776 bytes, which \d+ bytes of LZ4 can't hold here$/],
    ['negative', -2n, /are -2 bytes; its rows need 4000$/],
  ])('%s', (_, size, message) => {
    expect(problem(ipcOf(size, zeros(1000), 1000))).toMatch(message);
  });
  test('a call names the argument', async () => {
    const error = await failure(engine.sort(ipcOf(4001n, zeros(1000), 1000), { by: 'k' }));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toMatch(
      /^The input table is not readable as Arrow IPC bytes: record batch at byte \d+: the values of column "k"/,
    );
  });
});

describe('frames', () => {
  const refuse = (read: typeof readLz4, frame: Uint8Array | number[], size: number) => {
    try {
      return read(Uint8Array.from(frame), new Uint8Array(size));
    } catch (error) {
      expect(error).toBeInstanceOf(IpcError);
      return (error as Error).message;
    }
  };
  const lz4 = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
  const block = (...bytes: number[]) => [...lz4, bytes.length, 0, 0, 0, ...bytes, 0, 0, 0, 0];
  test('LZ4', () => {
    expect(refuse(readLz4, block(0x30, 1, 2, 3), 3)).toBe(3);
    expect(refuse(readLz4, block(0x12, 7, 1, 0, 0x10, 9), 8)).toBe(8);
    expect(refuse(readLz4, stored(Uint8Array.of(1, 2)), 9)).toBe(2);
    expect(refuse(readLz4, block(0x30, 1, 2, 3), 2)).toMatch(/holds more than 2 bytes/);
    expect(refuse(readLz4, stored(Uint8Array.of(1, 2)), 1)).toMatch(/holds more than 1 bytes/);
    expect(refuse(readLz4, block(0x12, 7, 2, 0, 0x10, 9), 8)).toMatch(/a match begins before it/);
    expect(refuse(readLz4, block(0x12, 7, 0, 0, 0x10, 9), 8)).toMatch(/a match begins before it/);
    expect(refuse(readLz4, block(0x1f, 7, 1, 0, 255, 255, 0, 0x10, 9), 99)).toMatch(/holds more/);
    expect(refuse(readLz4, block(0x40, 1, 2), 9)).toMatch(/its literals are cut off/);
    expect(refuse(readLz4, block(0x11, 1, 2), 9)).toMatch(/a match is cut off/);
    expect(refuse(readLz4, block(0x11, 1, 1, 0), 9)).toMatch(/a block has no end/);
    expect(refuse(readLz4, [...lz4, 9, 0, 0, 0, 1], 9)).toMatch(/a block of 9 bytes is cut off/);
    expect(refuse(readLz4, lz4, 9)).toMatch(/it is cut off/);
    expect(refuse(readLz4, [1, 2, 3, 4, 5, 6, 7], 9)).toMatch(/does not begin as one/);
    expect(refuse(readLz4, [...lz4.slice(0, 4), 0xa0, 0, 0], 9)).toMatch(/of version 2/);
    expect(refuse(readLz4, [...lz4.slice(0, 4), 0x61, 0, 0], 9)).toMatch(/needs a dictionary/);
  });

  const zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0];
  test('Zstandard', () => {
    const raw = (last: number, type: number, size: number, ...bytes: number[]) => [
      (size << 3) | (type << 1) | last,
      0,
      0,
      ...bytes,
    ];
    expect(refuse(readZstd, [...zstd, ...raw(0, 0, 2, 1, 2), ...raw(1, 1, 9, 7)], 11)).toBe(11);
    expect(refuse(readZstd, [...zstd, ...raw(1, 1, 9, 7)], 8)).toMatch(/holds more than 8 bytes/);
    expect(refuse(readZstd, [...zstd, ...raw(0, 0, 2, 1, 2)], 11)).toMatch(/it is cut off/);
    expect(refuse(readZstd, [...zstd, ...raw(1, 0, 2, 1)], 11)).toMatch(/a block of 2 bytes is cut off/);
    expect(refuse(readZstd, [...zstd, ...raw(1, 3, 2, 1, 2)], 11)).toMatch(/of a kind that there is not/);
    expect(refuse(readZstd, [0x28, 0xb5, 0x2f, 0xfd, 0x28, 0, 0, 0, 0], 11)).toMatch(/a reserved bit/);
    expect(refuse(readZstd, [0x28, 0xb5, 0x2f, 0xfd, 0x21, 0, 0, 0, 0], 11)).toMatch(/needs a dictionary/);
    expect(refuse(readZstd, [1, 2, 3, 4, 5, 6], 11)).toMatch(/does not begin as one/);
  });

  const { zstdCompressSync } = zlib as { zstdCompressSync?: (bytes: Uint8Array, options: object) => Uint8Array };
  test.skipIf(!zstdCompressSync)('Zstandard of every level, as the zlib of Node.js 22.15 and later makes it', () => {
    let state = 1;
    const random = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
      return Math.floor((state / 0x80000000) * below);
    };
    const makes: ((at: number) => number)[] = [() => 0, () => random(256), () => random(3) + 97, (at) => (at * at) >> 8];
    for (const make of makes)
      for (const size of [1, 40, 5000, 200_000]) {
        const bytes = Uint8Array.from({ length: size }, (_, at) => make(at));
        for (const level of [1, 3, 19]) {
          const frame = zstdCompressSync!(bytes, { params: { 100: level, 201: level % 2 } });
          const into = new Uint8Array(size);
          expect(readZstd(frame, into)).toBe(size);
          expect(Buffer.compare(into, bytes)).toBe(0);
        }
      }
  });
});
