import { WarpjoinError } from '../errors.js';
import { quote } from '../suggest.js';
import type { Input } from './input.js';

interface Held {
  byteLength: number;
  column: string;
  argument: string;
}

/**
 * The buffers that a call's steps read. Their owner can transfer them meanwhile, or hand them to another thread, which an addon
 * can't prevent: Node-API keeps the object alive and not its memory. So they are looked at between the steps.
 */
export class HeldBuffers {
  readonly #held = new Map<ArrayBufferLike, Held>();

  /** From now on check() looks at the buffers of these columns. */
  add({ argument, columns }: Input, indices: readonly number[]): void {
    for (const index of indices) {
      const { name, chunks } = columns[index]!;
      for (const { validity, values, offsets } of chunks) {
        for (const view of [validity, values, offsets]) {
          if (!view || this.#held.has(view.buffer)) continue;
          this.#held.set(view.buffer, { byteLength: view.buffer.byteLength, column: name, argument });
        }
      }
    }
  }

  /** Throws ERR_INVALID_TABLE where a buffer is gone. */
  check(): void {
    for (const [buffer, { byteLength, column, argument }] of this.#held) {
      if (buffer.byteLength >= byteLength) continue;
      throw new WarpjoinError(
        'ERR_INVALID_TABLE',
        `The buffer of column ${quote(column)} of the ${argument} table was transferred, or detached, during the call. ` +
          'Inputs must stay as they are until the call has ended.',
      );
    }
  }
}
