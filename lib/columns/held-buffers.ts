import { WarpjoinError } from '../errors.js';
import { quote } from '../suggest.js';
import type { Input } from './input.js';
import type { Values } from './values.js';

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
  add(input: Input, indices: readonly number[]): void {
    const { argument } = input;
    for (const index of indices) this.#hold(input.columns[index]!, input.columns[index]!.name, argument);
  }

  #hold({ chunks, children, dictionary }: Values, column: string, argument: string): void {
    for (const { validity, values, offsets, buffers = [] } of chunks) {
      for (const view of [validity, values, offsets, ...buffers]) {
        if (!view || this.#held.has(view.buffer)) continue;
        this.#held.set(view.buffer, { byteLength: view.buffer.byteLength, column, argument });
      }
    }
    for (const child of children) this.#hold(child, column, argument);
    if (dictionary) this.#hold(dictionary.values, column, argument);
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
