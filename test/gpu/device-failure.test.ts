/** A GPU that fails: what calls say, and what goes on. In a process of its own, which must survive it. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

interface Outcome {
  value?: number;
  name?: string;
  code?: string;
  message?: string;
}

test('ends calls by name and leaves the process, whose next engines do without it', async () => {
  const script = fileURLToPath(new URL('../support/lost-gpu.mjs', import.meta.url));
  // A crash, or a wait for ever, rejects.
  const { stdout } = await promisify(execFile)(process.execPath, [script], { timeout: 120_000 });
  const { device, ...found } = JSON.parse(stdout) as { device: string } & Record<string, Outcome>;
  console.log(found.first?.message);
  const lost = (message: RegExp) => ({ name: 'WarpjoinError', code: 'ERR_DEVICE', message: expect.stringMatching(message) });
  const before = `^Device '${device}'`;
  expect(found.before).toEqual({ value: 3_000_000 });
  expect(found.first).toEqual(lost(new RegExp(`${before}.*: .* \\((cuda|hip)Error\\w+\\) in .`)));
  const later = lost(new RegExp(`${before} failed earlier: .* \\((cuda|hip)Error\\w+\\) in .*restart it`));
  for (const call of ['later', 'sort', 'loaded', 'home', 'another']) expect(found[call], call).toEqual(later);
  for (const call of ['module', 'auto', 'cpu']) expect(found[call], call).toEqual({ value: 3_000_000 });
  expect(found.disposed).toEqual({});
});
