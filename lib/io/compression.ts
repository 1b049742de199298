/** gzip and Zstandard: what this Node.js has of them, and a library where it lacks one. */
import { pipeline, Readable, type Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { Decompress } from 'fzstd';
import type { Compression } from './formats.js';

type MakeTransform = () => Transform;
/** Since Node.js 22.15. */
const { createZstdCompress, createZstdDecompress } = zlib as {
  createZstdCompress?: MakeTransform;
  createZstdDecompress?: MakeTransform;
};

/** What this Node.js compresses with; undefined where it can't. */
export const compressors: Readonly<Record<Compression, MakeTransform | undefined>> = {
  gz: zlib.createGzip,
  zst: createZstdCompress,
};

/** Decompresses bytes; errors about them are those that `isDamage` knows. */
export function decompress(bytes: AsyncIterable<Uint8Array>, compression: Compression): AsyncIterable<Uint8Array> {
  const make = compression === 'gz' ? zlib.createGunzip : createZstdDecompress;
  return make ? through(bytes, make()) : unzstd(bytes);
}

/** Whether an error is a decoder's about its bytes. */
export function isDamage(error: unknown): boolean {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'number' || /^(Z_|ZSTD_|ERR_ZLIB)/.test(String(code));
}

function through(bytes: AsyncIterable<Uint8Array>, transform: Transform): AsyncIterable<Uint8Array> {
  pipeline(Readable.from(bytes, { objectMode: false }), transform, () => {}); // the error reaches who reads `transform`
  return transform;
}

async function* unzstd(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const made: Uint8Array[] = [];
  const decoder = new Decompress((chunk) => made.push(chunk));
  let length = 0;
  for await (const chunk of bytes) {
    length += chunk.byteLength;
    decoder.push(chunk);
    yield* made.splice(0);
  }
  if (length > 0) decoder.push(new Uint8Array(0), true); // throws where the data ends too soon
  yield* made.splice(0);
}
