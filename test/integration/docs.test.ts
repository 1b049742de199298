/** The examples of docs/ run, and print what they say. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..', '..');

/** JavaScript in a page, and what its lines with console.log say that they print. */
function examples(text: string): { code: string; printed: string[] }[] {
  return [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => ({
    code: code!,
    printed: [...code!.matchAll(/^console\.log\(.*\); \/\/ (.*)$/gm)].map(([, line]) => line!),
  }));
}

const read = (page: string) => readFileSync(join(root, page), 'utf8');
const runModule = (code: string) => run(process.execPath, ['--input-type=module', '--eval', code], { cwd: root });

describe('README.md', () => {
  const [anywhere, onGpus] = read('README.md').split('## On GPUs\n') as [string, string];
  test('the examples run, one after the other', async () => {
    const found = examples(anywhere);
    expect(found.length).toBeGreaterThan(3);
    const { stdout } = await runModule(found.map(({ code }) => code).join('\n'));
    const lines = stdout.split('\n');
    for (const { printed } of found) for (const line of printed) expect(lines).toContain(line);
  });
  test.each(examples(onGpus))('example %# for GPUs is JavaScript', async ({ code }) => {
    await runModule(`const run = async () => {${code}};`);
  });
});

describe.each(['text-order.md', 'coalesced-keys.md'])('docs/%s', (page) => {
  const found = examples(read(`docs/${page}`));
  test('has examples that print', () => {
    expect(found.length).toBeGreaterThan(0);
    for (const { printed } of found) expect(printed.length).toBeGreaterThan(0);
  });
  test.each(found)('example %#', async ({ code, printed }) => {
    const { stdout } = await runModule(code);
    expect(stdout.trim().split('\n')).toEqual(printed);
  });
});
