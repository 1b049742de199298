/**
 * Results count towards an engine's memory limit until they are garbage collected, and V8 knows nothing of that limit:
 * results that nobody holds any more could make the next call fail.
 */
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { NativeEngine } from '../native.js';

/** Turns of a millisecond without a buffer freed that end the wait: on a busy machine sweeping takes its time. */
const QUIET_TURNS = 20;

let collect: (() => void) | undefined;

/** Collects garbage, and says whether that freed memory of the engine. Pauses JavaScript: a last resort. */
export async function reclaim(native: NativeEngine): Promise<boolean> {
  const { usedBytes } = native.memory();
  if (usedBytes === 0) return false;
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
  await setTimeout(1);
  collect(); // ends the sweep that the first one began on another thread
  // Each buffer is freed in a turn of its own: wait until no more come.
  let least = usedBytes;
  for (let quiet = 0; quiet < QUIET_TURNS; quiet++) {
    await setTimeout(1);
    const now = native.memory().usedBytes;
    if (now < least) quiet = 0;
    least = Math.min(least, now);
  }
  return least < usedBytes;
}
