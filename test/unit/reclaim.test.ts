import { expect, test } from 'vitest';
import type { NativeEngine } from '../../lib/native.js';
import { reclaim } from '../../lib/operators/reclaim.js';

/** An engine that uses so much memory from one question to the next; the last figure stays. */
function using(...bytes: number[]): NativeEngine {
  const memory = () => ({ usedBytes: bytes.length > 1 ? bytes.shift()! : bytes[0]! });
  return { memory } as unknown as NativeEngine;
}

test.each([
  ['nothing was held', 0, [0], false],
  ['all is still held', 100, [100], false],
  ['some is freed by and by', 100, [100, 100, 60, 30], true],
  ['V8 freed it between the failure and the question', 100, [0], true],
])('reclaim where %s', async (_, heldBytes, usedBytes, freed) => {
  expect(await reclaim(using(...usedBytes), heldBytes)).toBe(freed);
});
