/** One call of the addon as a whole: its progress, and what ran when. */

export interface PhaseRecord {
  name: string;
  milliseconds: number;
  bytes: number;
}

/** What ran when, on a thread of the host or on a stream of a device; times in milliseconds since the job was made. */
export interface EventRecord {
  name: string;
  track: 'thread' | 'toDevice' | 'toHost' | 'kernels';
  /** The ordinal; 0 for threads. */
  device: number;
  /** Of the thread or the stream; null for the stream of direct copies. */
  number: number | null;
  /** Of a stream: when it was enqueued, which may be before the event before it has ended. */
  begin: number;
  end: number;
  bytes: number;
}

/** One user-visible call: passed to each of its native steps. */
export interface NativeJob {
  cancel(): void;
  /** Rows of work planned so far and done so far, over all steps. */
  progress(): { planned: number; done: number };
  phases(): PhaseRecord[];
  /** Of a job that keeps them; else none. */
  events(): EventRecord[];
}
