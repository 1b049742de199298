/** Ranges of bytes that come in order, as the reader of Arrow IPC asks for them. */
import { constants } from 'node:buffer';
import { IpcError, type Range } from '../ipc/reader.js';
import { formatBytes } from '../sizes.js';
import { type ByteSource, peek } from './source.js';

/** What ends an Arrow stream; a stream may lack it. */
const endMarker = Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0);

export interface RangedBytes {
  /** In bytes. Of a stream it is not known, and a number that no stream reaches. */
  readonly size: number;
  at(range: Range): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** The bytes of an Arrow stream or file. A file is read at any place, so that all of it is held; a stream is read on and on. */
export async function rangedBytes(source: ByteSource): Promise<RangedBytes> {
  const { head, source: rest } = await peek(source);
  const stream = new StreamRanges(rest);
  if (!Buffer.from(head).toString('latin1').startsWith('ARROW1')) return stream;
  const bytes = await stream.all();
  const at = async ({ position, length }: Range) => bytes.subarray(position, position + length);
  return { size: bytes.byteLength, at, close: async () => {} };
}

class StreamRanges implements RangedBytes {
  readonly size = Number.MAX_SAFE_INTEGER;
  readonly #bytes: AsyncIterator<Uint8Array>;
  /** What was read from #start on: it may be asked for again. */
  #parts: Uint8Array[] = [];
  #held = 0;
  #start = 0;

  constructor(source: ByteSource) {
    this.#bytes = source.bytes()[Symbol.asyncIterator]();
  }

  async close(): Promise<void> {
    await this.#bytes.return?.();
  }

  /** Ranges come in order; the first ones overlap. */
  async at({ position, length }: Range): Promise<Uint8Array> {
    await this.#drop(position - this.#start);
    await this.#fill(length);
    if (this.#held === 0 && position > 0 && length === endMarker.byteLength) return endMarker;
    if (this.#held < length) throw new IpcError(`it is cut off at byte ${position + this.#held}`);
    return this.#copy(length);
  }

  async all(): Promise<Uint8Array> {
    await this.#fill(Number.POSITIVE_INFINITY);
    return this.#copy(this.#held);
  }

  async #fill(length: number): Promise<void> {
    while (this.#held < length) {
      const { done, value } = await this.#bytes.next();
      if (done) return;
      this.#parts.push(value);
      this.#held += value.byteLength;
      if (this.#held <= constants.MAX_LENGTH) continue;
      throw new IpcError(
        `more than the ${formatBytes(constants.MAX_LENGTH)} that this Node.js holds in one: write smaller batches`,
      );
    }
  }

  /** Leaves out bytes, also those that were not read yet. */
  async #drop(length: number): Promise<void> {
    this.#start += length;
    let left = length;
    while (left > 0) {
      if (this.#held === 0) await this.#fill(1);
      const first = this.#parts[0];
      if (!first) return; // the end
      const dropped = Math.min(left, first.byteLength);
      if (first.byteLength > left) this.#parts[0] = first.subarray(left);
      else this.#parts.shift();
      this.#held -= dropped;
      left -= dropped;
    }
  }

  /** The first bytes in a buffer of their own, so that its values are aligned and nothing else is kept. */
  #copy(length: number): Uint8Array {
    const bytes = new Uint8Array(length);
    let at = 0;
    for (const part of this.#parts) {
      if (at === length) break;
      const piece = part.subarray(0, length - at);
      bytes.set(piece, at);
      at += piece.byteLength;
    }
    return bytes;
  }
}
