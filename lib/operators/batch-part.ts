/** Record batches in memory, as parts of a stream. */
import type * as arrow from 'apache-arrow';
import { ByStretch, viewsOf } from '../columns/buffers.js';
import type { ReservationHandle } from '../native.js';
import { isMemoryLimit } from './call.js';

/** Record batches that go through a call together. */
export class Part {
  readonly batches: arrow.RecordBatch[] = [];
  readonly #counted = new ByStretch<number>();
  readonly #reservations: ReservationHandle[] = [];
  bytes = 0;

  /** Bytes of a batch that the part does not have yet, and from now on has: batches may be slices of one. */
  count(batch: arrow.RecordBatch): number {
    let bytes = 0;
    for (const view of viewsOf(batch.data)) this.#counted.get(view, () => (bytes += view.byteLength));
    return bytes;
  }

  /** Without a reservation, somebody else holds the batch. */
  add(batch: arrow.RecordBatch, bytes: number, reservation: ReservationHandle | null): void {
    this.batches.push(batch);
    this.bytes += bytes;
    if (reservation) this.#reservations.push(reservation);
  }

  /** Takes out the first batch, which counts no longer. */
  shift(): arrow.RecordBatch | undefined {
    this.#reservations.shift()?.release();
    return this.batches.shift();
  }

  release(): void {
    for (const reservation of this.#reservations.splice(0)) reservation.release();
    this.batches.length = 0;
  }
}

/** The buffers of batches; those of dictionaries are not. */
export const buffersOf = (batches: readonly arrow.RecordBatch[]): ArrayBuffer[] =>
  batches.flatMap(({ data }) => [...viewsOf(data)].map(({ buffer }) => buffer as ArrayBuffer));

/** Bytes of batches. What several share counts once. */
export const bytesOf = (batches: readonly arrow.RecordBatch[]): number => {
  const part = new Part();
  return batches.reduce((bytes, batch) => bytes + part.count(batch), 0);
};

/** The error, where it says that memory is short. */
export function orShort(error: unknown): Error {
  if (isMemoryLimit(error)) return error as Error;
  throw error;
}

/** null in place of an error that says that memory is short. */
export function nullIfShort(error: unknown): null {
  if (isMemoryLimit(error)) return null;
  throw error;
}

/** The rows of batches in two parts. */
export function halvesOf(batches: readonly arrow.RecordBatch[]): [arrow.RecordBatch[], arrow.RecordBatch[]] {
  if (batches.length > 1) {
    const middle = batches.length >> 1;
    return [batches.slice(0, middle), batches.slice(middle)];
  }
  const [batch] = batches as [arrow.RecordBatch];
  const middle = batch.numRows >> 1;
  return [[batch.slice(0, middle)], [batch.slice(middle)]];
}
