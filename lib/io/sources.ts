/** Byte sources: files, standard input, and what is decompressed from them. */
import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { decompress, isDamage } from './compression.js';
import { asFileError, fileError, systemReason } from './file-errors.js';
import { type Compression, compressionOf, STANDARD, sniff } from './formats.js';
import { type ByteSource, derived, peek } from './source.js';

const bytesPerRead = 1 << 20;

/** What is at a path. Throws ERR_FILE where nothing is, and for a directory. */
export async function statInput(path: string): Promise<Stats> {
  const found = await stat(path).catch((error) => {
    throw asFileError(path, 'data', error);
  });
  if (found.isDirectory()) throw fileError(path, `is a directory; "${path.replace(/\/+$/, '')}/*.parquet" names files in it`);
  return found;
}

/** The bytes of a stream that is opened when they are asked for. */
class StreamSource implements ByteSource {
  #bytesRead = 0;

  /** `size` in bytes, where it is known. */
  constructor(
    readonly name: string,
    private readonly size: number | undefined,
    private readonly open: () => Readable,
    private readonly signal: AbortSignal | undefined,
  ) {}

  progress(): number | undefined {
    return this.size === undefined ? undefined : this.size === 0 ? 1 : Math.min(1, this.#bytesRead / this.size);
  }

  async *bytes(): AsyncGenerator<Uint8Array> {
    const { signal } = this;
    signal?.throwIfAborted();
    const stream = this.open();
    const stop = () => stream.destroy(signal!.reason as Error);
    signal?.addEventListener('abort', stop);
    try {
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        signal?.throwIfAborted();
        this.#bytesRead += chunk.byteLength;
        yield chunk;
      }
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      throw fileError(this.name, systemReason(error), error);
    } finally {
      signal?.removeEventListener('abort', stop);
      stream.destroy();
    }
  }
}

/** The bytes of a file as they are. `found` is what stat() says about it. */
export const fileSource = (path: string, found: Stats, signal?: AbortSignal): ByteSource =>
  new StreamSource(
    path,
    found.isFile() ? found.size : undefined,
    () => createReadStream(path, { highWaterMark: bytesPerRead }),
    signal,
  );

const standardInput = (signal?: AbortSignal): ByteSource =>
  new StreamSource('standard input', undefined, () => process.stdin, signal);

const compressionNames: Readonly<Record<Compression, string>> = { gz: 'gzip', zst: 'Zstandard' };

/** What is compressed in a source. Damage is ERR_FILE. */
export const decompressed = (source: ByteSource, compression: Compression): ByteSource =>
  derived(source, async function* () {
    try {
      yield* decompress(source.bytes(), compression);
    } catch (error) {
      if (!isDamage(error)) throw error;
      throw fileError(source.name, `damaged or truncated ${compressionNames[compression]} data (${systemReason(error)})`, error);
    }
  });

/** The bytes of an input, decompressed by its name; those of standard input by their start. */
export async function openSource(path: string, signal?: AbortSignal): Promise<ByteSource> {
  if (path !== STANDARD) {
    const { compression } = compressionOf(path);
    const source = fileSource(path, await statInput(path), signal);
    return compression ? decompressed(source, compression) : source;
  }
  const { head, source } = await peek(standardInput(signal));
  const start = sniff(head);
  return start === 'gz' || start === 'zst' ? decompressed(source, start) : source;
}
