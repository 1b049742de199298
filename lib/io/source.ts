/** Bytes that are read once, in order. */
import { SNIFFED_BYTES } from './formats.js';

/** Those of a file, of standard input, or what a decompressor makes of them. */
export interface ByteSource {
  /** What messages call it: the path, or "standard input". */
  readonly name: string;
  /** The fraction of it that was read so far, from 0 to 1; undefined where its size is unknown, as a pipe's is. */
  progress(): number | undefined;
  bytes(): AsyncIterable<Uint8Array>;
}

/** A source of other bytes that are made of those of `source`. */
export const derived = (source: ByteSource, bytes: () => AsyncIterable<Uint8Array>): ByteSource => ({
  name: source.name,
  progress: () => source.progress(),
  bytes,
});

/** The first bytes of a source, as many as `sniff` needs, and a source that still has them. */
export async function peek(source: ByteSource): Promise<{ head: Uint8Array; source: ByteSource }> {
  const bytes = source.bytes()[Symbol.asyncIterator]();
  const first: Uint8Array[] = [];
  let length = 0;
  while (length < SNIFFED_BYTES) {
    const { done, value } = await bytes.next();
    if (done) break;
    first.push(value);
    length += value.byteLength;
  }
  const all = async function* () {
    try {
      yield* first;
      yield* { [Symbol.asyncIterator]: () => bytes };
    } finally {
      await bytes.return?.();
    }
  };
  return { head: Buffer.concat(first), source: derived(source, all) };
}
