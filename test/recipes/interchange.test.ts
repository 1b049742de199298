/** The recipes of docs/guides/interchange.md run as they stand on the page, and print what their comments say. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs/guides/interchange.md'), 'utf8');

/** Each with the heading that it stands under. */
const recipes = page
  .split(/^## /m)
  .slice(1)
  .flatMap((section) => {
    const heading = section.split('\n', 1)[0]!;
    return [...section.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => ({ heading, code: code! }));
  });

test('there is a recipe for everybody', () => {
  expect([...new Set(recipes.map(({ heading }) => heading))]).toEqual([
    'What calls take',
    'arrow-js',
    'Polars',
    'DuckDB',
    'DataFusion',
    'Plain JavaScript and JSON',
  ]);
});

test.each(recipes)('$heading', async ({ code }) => {
  const expected = [...code.matchAll(/^console\.log\(.*\); \/\/ (.*)$/gm)].map(([, line]) => line!);
  expect(expected.length).toBeGreaterThan(0);
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code], { cwd: root });
  expect(stdout.trim().split('\n')).toEqual(expected);
});
