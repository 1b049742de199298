/**
 * Results count towards an engine's memory limit until they are garbage collected, and V8 knows nothing of that limit:
 * results that nobody holds any more could make the next call fail.
 */
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { NativeEngine } from '../native.js';

/** Turns of a millisecond without a buffer freed that end the wait. */
const QUIET_TURNS = 10;

let collect: (() => void) | undefined;

/**
 * Collects garbage, and says whether less of the engine's memory is in use than `heldBytes`, what results held when the
 * call that needs more began: V8 may have freed some since. Pauses JavaScript: a last resort.
 */
export async function reclaim(native: NativeEngine, heldBytes: number): Promise<boolean> {
  if (heldBytes === 0) return false;
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
  // V8 sweeps buffers on another thread and frees each in a turn of its own: wait until no more come.
  let least = native.memory().usedBytes;
  for (let quiet = 0; quiet < QUIET_TURNS; quiet++) {
    await setTimeout(1);
    const now = native.memory().usedBytes;
    if (now < least) quiet = 0;
    least = Math.min(least, now);
  }
  return least < heldBytes;
}
