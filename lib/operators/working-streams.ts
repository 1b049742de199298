/** Which streams of batches of an engine work at once. */
import { setTimeout } from 'node:timers/promises';
import { type Signal, untilAborted } from '../abort.js';
import type { BatchesCore } from './batch-stream.js';

/** So many do, whatever they take. */
const FEW = 4;
/** One more begins where so much of the memory limit is free: those that work take more meanwhile. */
const ROOM_SHARE = 1 / 2;
/** After so long, one that has begun has taken the first of its memory. */
const SETTLE_MILLISECONDS = 2;
/** Where none begins or ends for so long, one more begins all the same. */
const PATIENCE_MILLISECONDS = 1000;

/** What a stream holds while it works. */
export class Working implements AsyncDisposable {
  #ended = false;

  constructor(private readonly atEnd: () => void) {}

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.atEnd();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.end();
  }
}

/**
 * The streams that were begun and have not ended, first come, first served. Their memory is theirs while nobody reads them, and another
 * one may be what they wait for: two that are read in turns. So one that finds no room waits while others keep beginning and ending.
 */
export class WorkingStreams {
  #count = 0;
  #lastChange = 0;
  #last: Promise<unknown> = Promise.resolve();
  #hear = (): void => {};

  /** Begins a stream once memory has room for it. Rejects with the signal's reason as soon as it aborts. */
  async begin(core: BatchesCore, signal: Signal | undefined): Promise<Working> {
    const came = performance.now();
    const begun = this.#last.then(() => this.#begin(core, signal, came));
    this.#last = begun.catch(() => {}); // whoever begins it is told
    if (!signal) return begun;
    try {
      return await untilAborted(begun, signal);
    } catch (error) {
      begun.then((working) => working.end()).catch(() => {}); // nobody reads it
      throw error;
    }
  }

  async #begin(core: BatchesCore, signal: Signal | undefined, came: number): Promise<Working> {
    signal?.throwIfAborted();
    while (this.#count >= FEW && !(await this.#hasRoom(core, signal))) {
      const left = Math.max(came, this.#lastChange) + PATIENCE_MILLISECONDS - performance.now();
      if (left <= 0) break;
      await this.#oneEnds(left, signal);
    }
    this.#change(1);
    return new Working(() => {
      this.#change(-1);
      this.#hear();
    });
  }

  #change(by: 1 | -1): void {
    this.#count += by;
    this.#lastChange = performance.now();
  }

  async #hasRoom(core: BatchesCore, signal: Signal | undefined): Promise<boolean> {
    await setTimeout(SETTLE_MILLISECONDS);
    // As the first call of an engine, this sets its limit.
    const free = await core.enqueue('beside others', signal, () => core.freeMemory.bytes());
    return free >= ROOM_SHARE * core.native.memory().limitBytes;
  }

  /** Waits until one ends, at most for so long. */
  async #oneEnds(milliseconds: number, signal: Signal | undefined): Promise<void> {
    const waited = new AbortController();
    this.#hear = () => waited.abort();
    signal?.addEventListener('abort', this.#hear);
    await setTimeout(milliseconds, undefined, { signal: waited.signal }).catch(() => {}); // that is what it waits for
    signal?.removeEventListener('abort', this.#hear);
    signal?.throwIfAborted();
  }
}
