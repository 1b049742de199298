/** README.md and docs/ are true: their examples run and print what they say, their commands exist, their links lead somewhere. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import { blocksOf, commandsOf, examplesOf, pages, read, root, runExamples } from '../../scripts/docs-examples.mjs';

const run = promisify(execFile);
const guides = pages.filter((page) => page.startsWith('docs/guides/'));

/** What a heading is called in links. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\w\s-]/g, '')
    .trim()
    .replace(/\s/g, '-');

const anchorsOf = (page: string) => [...read(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchorOf(heading!));

/** Links of a page to files of the repository, outside its code. */
function linksOf(page: string): { file: string; anchor: string | undefined }[] {
  const prose = read(page)
    .replace(/^```[\s\S]*?^```$/gm, '')
    .replace(/`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target!)
    .filter((target) => !/^https?:/.test(target))
    .map((target) => {
      const [file, anchor] = target.split('#') as [string, string | undefined];
      return { file: file ? join(dirname(page), file) : page, anchor };
    });
}

describe.each(pages)('%s', (page) => {
  test('the examples run, and print what they say', () => runExamples(page), 60_000);

  test('the warpjoin commands are such', () => {
    for (const { words, line } of commandsOf(page)) {
      expect(() => parseCommandLine(words), `${page}:${line}: warpjoin ${words.join(' ')}`).not.toThrow();
    }
  });

  test('the links lead to files and headings', () => {
    for (const { file, anchor } of linksOf(page)) {
      expect(existsSync(join(root, file)), `${page} links to ${file}`).toBe(true);
      if (anchor && file.endsWith('.md')) expect(anchorsOf(file), `${page} links to ${file}`).toContain(anchor);
    }
  });
});

describe('pages', () => {
  test('every guide is listed in docs/guides/README.md', () => {
    const listed = linksOf('docs/guides/README.md').map(({ file }) => file);
    for (const guide of guides) if (guide !== 'docs/guides/README.md') expect(listed).toContain(guide);
  });

  test('the README has examples, of which some print, and commands', () => {
    const examples = examplesOf('README.md');
    expect(examples.length).toBeGreaterThan(4);
    expect(examples.flatMap(({ printed }) => printed).length).toBeGreaterThan(2);
    expect(commandsOf('README.md').length).toBeGreaterThan(2);
    expect(blocksOf('README.md').map(({ kind }) => kind)).toContain('js gpu');
  });

  test('the npm scripts are those of package.json', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const named = [...pages, 'CONTRIBUTING.md'].flatMap((page) =>
      [...read(page).matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name!),
    );
    for (const name of named) expect(Object.keys(scripts)).toContain(name);
  });

  test("the README's Node.js is that of package.json", () => {
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    const versions = engines.node.match(/\d+(\.\d+)?/g)!.filter((version) => version !== '0');
    expect(read('README.md')).toContain(`Node.js ${versions.join(', ')} or later`);
  });

  test.each(['render.mjs', 'chart.mjs'])(
    'bench/report/%s has nothing to change: the numbers are those of bench/results',
    async (script) => {
      await run(process.execPath, [join(root, 'bench', 'report', script), '--check']);
    },
  );
});
