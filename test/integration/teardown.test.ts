import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('worker threads and the process may end in the middle of calls', async () => {
  const script = fileURLToPath(new URL('../support/teardown.mjs', import.meta.url));
  // A crash, or a wait for ever, rejects.
  const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: 20_000 });
  expect(stdout).toBe('400000\n');
});
