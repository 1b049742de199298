import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { hasNoBrowser, openPage, whyNoBrowser } from '../support/browser.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-browser-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe.skipIf(hasNoBrowser)(`the headless browser of the tests${whyNoBrowser}`, () => {
  test('runs scripts, measures what it shows, and tells of errors', async () => {
    const page = file('page.html', '<!doctype html><p>one</p><script>document.body.append("two"); none.such</script>');
    const { dom, console, probed } = await openPage<number>(page, 'document.querySelector("p").getBoundingClientRect().height');
    expect(dom).toMatch(/<p>one<\/p>.*two/s);
    expect(console).toEqual([expect.stringContaining('none is not defined')]);
    expect(probed).toBeGreaterThan(5);
  });

  test('draws SVG', async () => {
    const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="50" height="50"><rect width="20" height="10"/></svg>';
    const box = '(({ width, height }) => [width, height])(document.querySelector("rect").getBoundingClientRect())';
    expect((await openPage(file('chart.svg', svg), box)).probed).toEqual([20, 10]);
    await expect(openPage(file('chart.svg', svg), 'document.querySelector("circle").id')).rejects.toThrow(/The probe of .*null/);
  });
});
