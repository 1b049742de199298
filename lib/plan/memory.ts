/** Host memory that plans need: what is in use at the same time, as the data plane counts it. */
import { WarpjoinError } from '../errors.js';
import { formatBytes } from '../sizes.js';
import type { PlannedColumn, Resources } from './plan.js';

const HUGE_PAGE = 2 ** 21;
const LINE = 64;

/** What an allocation of so many bytes counts for (native/core/host_memory.h): blocks lie on huge pages. */
export function hostBlock(bytes: number): number {
  const unit = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
  return Math.max(1, Math.ceil(bytes / unit)) * unit;
}

/** The largest allocation that counts for no more than so many bytes. */
export function wholeBlocks(bytes: number): number {
  return bytes >= HUGE_PAGE ? Math.floor(bytes / HUGE_PAGE) * HUGE_PAGE : bytes;
}

/** What a join's rows count for, at most: keys and one value a side, `rowBytes` together. */
export function joinRowsBytes(rows: number, rowBytes: number): number {
  const bytes = rows * rowBytes;
  return bytes === 0 ? 0 : bytes + 3 * (bytes >= HUGE_PAGE ? HUGE_PAGE : LINE);
}

/** What columns of a run or of a join's rows count for: each is a block of its own; those of no bytes are none. */
export function hostBlocks(rows: number, ...widths: number[]): number {
  return widths.reduce((bytes, width) => bytes + (width > 0 ? hostBlock(rows * width) : 0), 0);
}

/** What a column of a result of `rows` rows counts for, at least; what is handed over with the rows takes nothing more. */
export function columnBlocks(rows: number, { width, nullable, textBytes = 0 }: PlannedColumn): number {
  const validity = nullable ? hostBlock(Math.ceil(rows / 8)) : 0;
  return hostBlock(Math.ceil(rows * width)) + validity + (textBytes > 0 ? hostBlock(textBytes) : 0);
}

/** Follows how much is in use, and remembers the most. */
export class HostUse {
  #now = 0;
  #most = 0;

  /** Negative: `bytes` are freed. */
  add(bytes: number): this {
    this.#now += bytes;
    this.#most = Math.max(this.#most, this.#now);
    return this;
  }

  get most(): number {
    return this.#most;
  }
}

/** What making columns one after the other takes, each of so many bytes: they stay, and what some need beside them does not. */
export function madeBytes(columns: readonly PlannedColumn[], bytesOf: (column: PlannedColumn) => number): number {
  const use = new HostUse();
  for (const column of columns) {
    const { scratchBytes = 0 } = column;
    use.add(scratchBytes + bytesOf(column)).add(-scratchBytes);
  }
  return use.most;
}

/** What else would do where a join, or a sort, does not fit host memory. */
export const JOIN_IN_BATCHES =
  'With result "mapped" the result lies in a temporary file; joinBatches() gives it in record batches.';
export const SORT_IN_BATCHES =
  'With result "mapped" the result lies in a temporary file; sortBatches() gives it in record batches.';

/**
 * Throws ERR_MEMORY_LIMIT, naming the limit, where so much host memory beside what is in use is more than the limit leaves. `remedy`: a
 * sentence that says what would do.
 */
export function checkHostBytes(
  what: string,
  needBytes: number,
  { memoryLimitBytes, freeBytes }: Resources,
  remedy?: string,
): void {
  if (needBytes <= freeBytes) return;
  const limit =
    needBytes > memoryLimitBytes
      ? `memoryLimit is ${formatBytes(memoryLimitBytes)}`
      : `memoryLimit (${formatBytes(memoryLimitBytes)}) leaves ${formatBytes(freeBytes)} for it`;
  const message = `${what} takes at least ${formatBytes(needBytes)} of host memory but ${limit}.`;
  throw new WarpjoinError('ERR_MEMORY_LIMIT', remedy ? `${message} ${remedy}` : message);
}
