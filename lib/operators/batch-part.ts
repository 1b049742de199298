/** Record batches in memory, as parts of a stream. */
import { setImmediate } from 'node:timers/promises';
import type * as arrow from 'apache-arrow';
import { ByStretch, viewsOf } from '../columns/buffers.js';
import { rowsOfBatch } from '../columns/library.js';
import { isMemoryLimit } from '../errors.js';
import { eachIn } from '../items.js';
import type { ReservationHandle } from '../native.js';
import { translated } from '../native-errors.js';
import type { BatchMemory, BatchSource } from './batch-source.js';
import type { BatchesCore } from './batch-stream.js';
import { collectGarbage } from './reclaim.js';

/** Record batches that go through a call together. */
export class Part {
  readonly batches: arrow.RecordBatch[] = [];
  #counted = new ByStretch<number>();
  readonly #reservations: ReservationHandle[] = [];
  bytes = 0;

  /** Bytes of a batch that the part does not have yet, and from now on has: batches may be slices of one. */
  count(batch: arrow.RecordBatch): number {
    let bytes = 0;
    for (const view of viewsOf(batch.data)) this.#counted.get(view, () => (bytes += view.byteLength));
    return bytes;
  }

  /** Without a reservation, somebody else counts the batch. */
  add(batch: arrow.RecordBatch, bytes: number, reservation: ReservationHandle | null): void {
    this.batches.push(batch);
    this.bytes += bytes;
    if (reservation) this.#reservations.push(reservation);
  }

  /** Takes out the first batch, which counts no longer. Others are not added from now on. */
  shift(): arrow.RecordBatch | undefined {
    this.#forget();
    this.#reservations.shift()?.release();
    return this.batches.shift();
  }

  /** Leaves the first rows here, which count no longer: the part that it gives has the others, and counts for all. null: there are none. */
  splitAt(rows: number): Part | null {
    const [first, rest] = [rowsBetween(this.batches, 0, rows), rowsBetween(this.batches, rows)];
    if (rest.length === 0) return null;
    const later = new Part();
    later.#reservations.push(...this.#reservations.splice(0));
    for (const batch of rest) later.add(batch, later.count(batch), null);
    this.release();
    for (const batch of first) this.add(batch, this.count(batch), null);
    return later;
  }

  /** Another part, with this one's rows, which do not count there, in front of its own. */
  before(other: Part): Part {
    other.batches.unshift(...this.batches.splice(0));
    return other;
  }

  release(): void {
    this.#forget();
    this.bytes = 0;
    for (const reservation of this.#reservations.splice(0)) reservation.release();
    this.batches.length = 0;
  }

  /** What was counted would be held. */
  #forget(): void {
    this.#counted = new ByStretch();
  }

  /** Releases a part whose rows were read, and frees batches that are in the engine's memory. */
  async free(core: BatchesCore, memory: BatchMemory): Promise<void> {
    const buffers = memory === 'engine' ? buffersOf(this.batches) : [];
    this.release();
    await core.free(buffers);
  }
}

/** After so long without a turn of the event loop, steps that have ended wait for one. */
const MOST_MILLISECONDS = 1;

/**
 * Calls `use` with a source's rows in parts of so many bytes, one after the other: those of a batch that is larger are in several. Where
 * memory is short for more, `makeRoom` sees to it that the parts before are released.
 */
export async function eachPart(
  { native }: BatchesCore,
  { tables, memory }: BatchSource,
  partBytes: number,
  makeRoom: () => Promise<void>,
  use: (part: Part, isLast: boolean) => Promise<void>,
): Promise<void> {
  let part = new Part();
  /** The part is there; then another begins. */
  const whole = (isLast = false): Promise<void> => {
    const made = part;
    part = new Part();
    return use(made, isLast);
  };
  const reserve = (bytes: number): ReservationHandle | null =>
    memory === 'stream' ? translated(() => native.reserve(Math.ceil(bytes))) : null;
  const reserveWhereShort = async (bytes: number): Promise<ReservationHandle | null> => {
    try {
      return reserve(bytes);
    } catch (error) {
      if (!isMemoryLimit(error)) throw error;
      // Others have taken what was free.
      if (part.batches.length > 0) await whole();
      await makeRoom();
      await collectGarbage(() => native.memory().usedBytes);
      return reserve(bytes);
    }
  };
  const add = async (batch: arrow.RecordBatch): Promise<void> => {
    let bytes = part.count(batch);
    if (part.bytes > 0 && part.bytes + bytes > partBytes) {
      await whole();
      bytes = part.count(batch);
    }
    // What would be freed with the first piece is not cut: those who wrote it have seen to its size.
    const most = memory === 'engine' ? 1 : batch.numRows;
    const pieces = Math.min(most, Math.max(1, Math.ceil(bytes / partBytes)));
    for (let piece = 0; piece < pieces; piece++) {
      if (piece > 0) await whole();
      const [begin, end] = [piece, piece + 1].map((of) => Math.floor((batch.numRows * of) / pieces)) as [number, number];
      const reservation = await reserveWhereShort(bytes / pieces);
      part.add(pieces === 1 ? batch : rowsOfBatch(batch, begin, end), bytes / pieces, reservation);
    }
  };
  let turned = performance.now();
  try {
    await eachIn(tables, async ({ batches }) => {
      // Sources that never wait would keep the part before from being worked on.
      if (performance.now() - turned > MOST_MILLISECONDS) {
        await setImmediate();
        turned = performance.now();
      }
      for (const batch of batches) if (batch.numRows > 0) await add(batch);
    });
    if (part.batches.length > 0) await whole(true);
  } finally {
    part.release();
  }
}

/** The buffers of batches; those of dictionaries are not. */
export const buffersOf = (batches: readonly arrow.RecordBatch[]): ArrayBuffer[] => [
  ...new Set(batches.flatMap(({ data }) => [...viewsOf(data)].map(({ buffer }) => buffer as ArrayBuffer))),
];

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
  return [[rowsOfBatch(batch, 0, middle)], [rowsOfBatch(batch, middle, batch.numRows)]];
}

/** Rows [begin, end) of batches, counted through all of them, as slices of these: none of zero rows. */
export function rowsBetween(
  batches: readonly arrow.RecordBatch[],
  begin: number,
  end = Number.POSITIVE_INFINITY,
): arrow.RecordBatch[] {
  let row = 0;
  return batches.flatMap((batch) => {
    const within = (bound: number) => Math.min(batch.numRows, Math.max(0, bound - row));
    const [first, last] = [within(begin), within(end)];
    row += batch.numRows;
    return first < last ? [rowsOfBatch(batch, first, last)] : [];
  });
}
