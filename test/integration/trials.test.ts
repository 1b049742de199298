/** Short forms of the trials in scripts/trials, each with a seed of its own every time: what fails prints how to run it again. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

async function trial(name: string, ...options: string[]): Promise<string> {
  const script = fileURLToPath(new URL(`../../scripts/trials/${name}.mjs`, import.meta.url));
  const limits = { timeout: 55_000, killSignal: 'SIGKILL' } as const;
  try {
    return (await promisify(execFile)(process.execPath, [script, ...options], limits)).stdout;
  } catch (error) {
    // Another exit code than 0, a signal or too long a time.
    const { message, stdout, stderr } = error as Error & { stdout: string; stderr: string };
    throw new Error(`${message}\n${stdout}${stderr}`);
  }
}

test.each([1, 2, 8])('%d worker threads at a time may end in the middle of calls', async (workers) => {
  const printed = await trial('workers', '--rounds', String(Math.ceil(80 / workers)), '--workers', String(workers));
  expect(printed).toMatch(/memory up to \d+ MiB/);
});

test('the addon refuses whatever arguments are not right', async () => {
  expect(await trial('binding', '--rounds', '60')).toContain('succeeded: ');
});

test('columns whose buffers lie are refused, or give what is in their buffers', async () => {
  expect(await trial('lying-buffers', '--rounds', '60')).toContain('60 rounds');
});

test('calls of all kinds at once end as they do alone, and leave nothing', async () => {
  expect(await trial('at-once', '--rounds', '1', '--calls', '400', '--rows', '50000', '--megabytes', '24')).toContain('left 0');
});

const isRoot = process.getuid?.() === 0;
const skipped = isRoot ? '' : ', skipped: only root can start processes with few threads';
test.skipIf(!isRoot)(`engines work, or say so, where the system gives few threads${skipped}`, async () => {
  expect(await trial('threads', '--least', '14', '--most', '30')).toMatch(/1[0-9] engines/);
});
