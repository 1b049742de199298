/**
 * Results count towards an engine's memory limits until they are garbage collected, and V8 knows nothing of those limits:
 * results that nobody holds any more could make the next call fail, or be brought home from the GPUs for its room.
 */
import { setImmediate, setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { NativeEngine } from '../native.js';
import { translate } from '../native-errors.js';

/** Turns of a millisecond without anything freed that end the wait. */
const QUIET_TURNS = 10;
/** Turns of the event loop in which the buffers of a young collection are freed. */
const YOUNG_TURNS = 3;

let collector: ((options?: { type: 'minor' }) => void) | undefined;

/** A collection of all garbage has no argument: any object makes it a minor one before Node.js 24, and even undefined does from then on. */
function collect(type: 'minor' | 'all'): void {
  if (!collector) {
    setFlagsFromString('--expose-gc');
    collector = runInNewContext('gc') as NonNullable<typeof collector>;
  }
  if (type === 'minor') collector({ type });
  else collector();
}

/** Collects what nobody has held for long, in less than a millisecond: results that a consumer has read and let go. */
async function collectYoung(): Promise<void> {
  collect('minor');
  for (let turn = 0; turn < YOUNG_TURNS; turn++) await setImmediate();
}

/** Collects garbage until `inUse` falls no more, and says how much that is then. Pauses JavaScript: a last resort. */
export async function collectGarbage(inUse: () => number): Promise<number> {
  collect('all');
  // V8 sweeps buffers on another thread and frees each in a turn of its own: wait until no more come.
  let least = inUse();
  for (let quiet = 0; quiet < QUIET_TURNS; quiet++) {
    await setTimeout(1);
    const now = inUse();
    if (now < least) quiet = 0;
    least = Math.min(least, now);
  }
  return least;
}

/** So many bytes that went through memory may leave as much of it in pieces as a process has anyway. */
const FEW_BYTES = 2 ** 26;

/** How much of an engine's memory is free, for calls whose parts are as large as that allows. */
export class FreeMemory {
  /** In use after garbage was collected, or 0 before. */
  #collectedBytes = 0;

  constructor(private readonly native: NativeEngine) {}

  /** Where a quarter of what was free has been taken since, garbage is collected: results that nobody holds are no reason for small parts. */
  async bytes(): Promise<number> {
    let { usedBytes, limitBytes } = this.native.memory();
    const inUse = (): number => this.native.memory().usedBytes;
    // What others have freed was no garbage.
    this.#collectedBytes = Math.min(this.#collectedBytes, usedBytes);
    const isMuch = (bytes: number): boolean => bytes - this.#collectedBytes > (limitBytes - this.#collectedBytes) / 4;
    if (isMuch(usedBytes)) {
      await collectYoung();
      usedBytes = inUse();
    }
    if (isMuch(usedBytes)) usedBytes = this.#collectedBytes = await collectGarbage(inUse);
    return Math.max(0, limitBytes - usedBytes);
  }

  /**
   * Between two phases of a flow, the first of which has sent so many bytes through memory: has malloc give back what it keeps in pieces,
   * if that may be much of the limit. The second phase allocates in other sizes. `hasGarbage`: whether V8 frees what came.
   */
  async trim(bytes: number, hasGarbage: boolean): Promise<void> {
    const { native } = this;
    if (bytes < Math.max(FEW_BYTES, native.memory().limitBytes / 2)) return;
    if (hasGarbage) this.#collectedBytes = await collectGarbage(() => native.memory().usedBytes);
    await native.trimMemory(native.createJob()).catch((error: unknown) => Promise.reject(translate(error)));
  }
}

/**
 * Collects garbage, and says whether less of the engine's memory is in use than `heldBytes`, what results held when the
 * call that needs more began: V8 may have freed some since.
 */
export async function reclaim(native: NativeEngine, heldBytes: number): Promise<boolean> {
  return heldBytes > 0 && (await collectGarbage(() => native.memory().usedBytes)) < heldBytes;
}
