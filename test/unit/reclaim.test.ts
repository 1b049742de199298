import { expect, test } from 'vitest';
import type { NativeEngine } from '../../lib/native.js';
import { FreeMemory, reclaim } from '../../lib/operators/reclaim.js';

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

test('what malloc keeps is given back where it may be much of the limit', async () => {
  const native = { limitBytes: 2 ** 28, trims: 0, error: null as Error | null };
  const engine = {
    memory: () => ({ usedBytes: 0, limitBytes: native.limitBytes }),
    createJob: () => ({}),
    async trimMemory() {
      native.trims++;
      if (native.error) throw native.error;
    },
  };
  const memory = new FreeMemory(engine as unknown as NativeEngine);
  const trimsOf = async (limitBytes: number, bytes: number, hasGarbage = false): Promise<number> => {
    Object.assign(native, { limitBytes, trims: 0 });
    await memory.trim(bytes, hasGarbage);
    return native.trims;
  };
  expect(await trimsOf(2 ** 28, 2 ** 27)).toBe(1);
  expect(await trimsOf(2 ** 28, 2 ** 28, true)).toBe(1);
  expect(await trimsOf(2 ** 28, 2 ** 27 - 1)).toBe(0);
  expect(await trimsOf(2 ** 20, 2 ** 26 - 1)).toBe(0);
  expect(await trimsOf(2 ** 20, 2 ** 26)).toBe(1);
  native.error = Object.assign(new Error('it has failed'), { code: 'ERR_DEVICE' });
  await expect(memory.trim(2 ** 26, false)).rejects.toMatchObject({ name: 'WarpjoinError', code: 'ERR_DEVICE' });
});
