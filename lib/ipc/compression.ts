/** Compressed buffers of Arrow IPC: LZ4 frames and Zstandard, each behind the number of bytes that it holds. */
import { totalmem } from 'node:os';
import * as zlib from 'node:zlib';
import { formatBytes } from '../sizes.js';
import { IpcError } from './flatbuffer.js';
import { readLz4 } from './lz4.js';
import { readZstd } from './zstd.js';

/** Since Node.js 22.15. */
const { zstdDecompressSync } = zlib as { zstdDecompressSync?: (bytes: Uint8Array, options: zlib.ZlibOptions) => Buffer };

interface Codec {
  readonly name: string;
  /** The most bytes that so many compressed bytes can hold. */
  most(bytes: number): number;
  /** The bytes of a frame that holds `size`, or what of them there is. Throws for more, and for a frame that is damaged. */
  read(frame: Uint8Array, size: number): Uint8Array;
}

const readInto = (read: (frame: Uint8Array, into: Uint8Array) => number) => (frame: Uint8Array, size: number) => {
  const into = new Uint8Array(size);
  return into.subarray(0, read(frame, into));
};

function readNatively(frame: Uint8Array, size: number): Uint8Array {
  // One byte more than there should be: else zlib looks for more in a second chunk.
  const { buffer, byteOffset, byteLength } = zstdDecompressSync!(frame, { chunkSize: Math.max(64, size + 1) });
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** By their numbers in the enumeration CompressionType. */
const codecs: readonly Codec[] = [
  // A byte of a length stands for at most 255 bytes.
  { name: 'LZ4', most: (bytes) => 255 * bytes, read: readInto(readLz4) },
  // A block takes 4 bytes at least, and holds 128 KiB at most.
  { name: 'Zstandard', most: (bytes) => (bytes / 4) * 2 ** 17, read: zstdDecompressSync ? readNatively : readInto(readZstd) },
];

/** What takes the bytes that a buffer holds, at least `least`, out of its compressed bytes. */
export type Decompress = (compressed: Uint8Array, least: number) => Uint8Array;

/** Throws an IpcError for a codec or a method that is not known. What it gives throws one for buffers that are damaged. */
export function decompressor({ codec, method }: { codec: number; method: number }): Decompress {
  const found = codecs[codec];
  if (!found || method !== 0)
    throw new IpcError(
      `its buffers are compressed in a way (codec ${codec}, method ${method}) that is not supported yet: use LZ4 or Zstandard`,
    );
  return (compressed, least) => {
    if (compressed.byteLength === 0) return compressed;
    if (compressed.byteLength < 8)
      throw new IpcError(`are compressed to ${compressed.byteLength} bytes, too few for their length`);
    const view = new DataView(compressed.buffer, compressed.byteOffset);
    const size = Number(view.getBigInt64(0, true));
    const frame = compressed.subarray(8);
    if (size === -1) return frame;
    if (size === 0) return frame.subarray(0, 0);
    if (size < least) throw new IpcError(`are ${size} bytes; its rows need ${least}`);
    // A damaged length must not lead to memory that its bytes can't fill.
    if (size < 0 || size > found.most(frame.byteLength) || size > totalmem())
      throw new IpcError(`are said to be ${size} bytes, which ${frame.byteLength} bytes of ${found.name} can't hold here`);
    try {
      const bytes = found.read(frame, size);
      if (bytes.byteLength === size) return bytes;
      throw new IpcError(`are ${bytes.byteLength} bytes, but said to be ${size}`);
    } catch (error) {
      if (error instanceof IpcError) throw error;
      if (error instanceof RangeError && (error as { code?: unknown }).code !== 'ERR_BUFFER_TOO_LARGE')
        throw new IpcError(`are ${formatBytes(size)}, more memory than there is`);
      throw new IpcError(`are not readable as ${found.name}: ${(error as Error).message}`);
    }
  };
}
