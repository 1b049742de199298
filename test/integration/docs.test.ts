/** The examples of docs/ run, and print what they say. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..', '..');

/** JavaScript in a page, and what its lines with console.log say that they print. */
function examples(page: string): { code: string; printed: string[] }[] {
  const text = readFileSync(join(root, 'docs', page), 'utf8');
  return [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => ({
    code: code!,
    printed: [...code!.matchAll(/^console\.log\(.*\); \/\/ (.*)$/gm)].map(([, line]) => line!),
  }));
}

describe.each(['text-order.md', 'coalesced-keys.md'])('docs/%s', (page) => {
  const found = examples(page);
  test('has examples that print', () => {
    expect(found.length).toBeGreaterThan(0);
    for (const { printed } of found) expect(printed.length).toBeGreaterThan(0);
  });
  test.each(found)('example %#', async ({ code, printed }) => {
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', code], { cwd: root });
    expect(stdout.trim().split('\n')).toEqual(printed);
  });
});
