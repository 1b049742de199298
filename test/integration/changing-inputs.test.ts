import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('inputs may be written to while calls run: nothing crashes, hangs or harms later calls', async () => {
  const script = fileURLToPath(new URL('../../scripts/trials/changing-inputs.mjs', import.meta.url));
  // What it finds, a crash, or a wait for ever, rejects. A run takes three seconds.
  const { stdout } = await promisify(execFile)(process.execPath, [script, '--seed', '5', '--rounds', '60'], { timeout: 55_000 });
  expect(stdout).toMatch(/^changing inputs: seed 5, 60 rounds: /);
});
