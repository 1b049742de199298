/** The memory and threads of what reads and writes files: they need no engine, and have their own. */

/** Where batches come and go, blocks from so many bytes on are mapped: what V8 frees would stay in the heaps of the threads that made it. */
export const MAPPED_WHILE_SCANNED = 2 ** 18;

/** What a reader or writer may use. */
export interface FileRoom {
  /** 1 to 256. */
  threads: number;
  /** The most memory that it takes, with what it makes. */
  memoryBytes: number;
  /** The least bytes of blocks that are mapped, a multiple of 4 KiB. A huge page if not given. */
  leastMapped?: number | undefined;
}
