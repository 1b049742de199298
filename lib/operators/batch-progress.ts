/** About how much of the work of a call with batches is done, from 0 to 1. */
import type { BatchStats } from './batch-stream.js';

/** The share of the time that passes until all inputs have been read, where no row of the result can come before: docs/performance.md. */
const READING_SHARE = 0.45;
/** The same where rows that come back from temporary files are then sorted: those that are merged take longer than the others. */
const READING_SHARE_IN_ORDER = 0.15;

/** `read`: the share of the input that was read. `limit` and `offset` choose rows of those that were read. */
export function sortFraction(read: number, { inputRows, outputRows }: BatchStats, limit: number, offset: number): number {
  const rows = Math.min(limit, inputRows - offset);
  return READING_SHARE * read + (1 - READING_SHARE) * (outputRows / Math.max(1, rows));
}

/** `read`: the share of the inputs that was read. `isInOrder`: whether rows keep the order of a side. */
export function joinFraction(read: number, { readBytes, spilledBytes }: BatchStats, isInOrder: boolean): number {
  if (spilledBytes === 0) return read;
  // Rows that go through temporary files come back from there once all have been read.
  const back = Math.min(1, readBytes / spilledBytes);
  return isInOrder
    ? READING_SHARE_IN_ORDER * read + (1 - READING_SHARE_IN_ORDER) * back ** 2
    : READING_SHARE * read + (1 - READING_SHARE) * back;
}
