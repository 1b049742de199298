/** The README's chart as a browser shows it: every mark is there, readable, and as long as the results say. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { columns } from '../../bench/report/chart.mjs';
import { read, root } from '../../scripts/docs-examples.mjs';
import { hasNoBrowser, openPage, whyNoBrowser } from '../support/browser.js';

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}
interface Mark extends Box {
  /** As computed: rgb(...). */
  fill: string;
}
interface Shown {
  card: Mark;
  bars: Mark[];
  texts: (Mark & { text: string })[];
}

const probe = `(() => {
  const mark = (element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return { left, right, top, bottom, fill: getComputedStyle(element).fill };
  };
  return {
    card: mark(document.querySelector('.card')),
    bars: [...document.querySelectorAll('rect.bar')].map(mark),
    texts: [...document.querySelectorAll('svg text')].map((element) => ({ text: element.textContent, ...mark(element) })),
  };
})()`;

/** Contrast of two colours, 1 to 21, as WCAG 2 has it. */
function contrast(a: string, b: string): number {
  const [light, dark] = [a, b]
    .map((color) => {
      const [red, green, blue] = color.match(/\d+/g)!.map((value) => {
        const share = Number(value) / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
    })
    .sort((x, y) => y - x);
  return (light! + 0.05) / (dark! + 0.05);
}

const within = (box: Box, outer: Box) =>
  box.left >= outer.left && box.right <= outer.right && box.top >= outer.top && box.bottom <= outer.bottom;
const overlap = (a: Box, b: Box) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

const panels = columns.flatMap(({ panels }) => panels);
const bars = panels.flatMap(({ bars }) => bars.map((bar) => ({ ...bar, most: Math.max(...bars.map((b) => b.milliseconds)) })));

describe.each([
  ['light', 1, 'rgb(255, 255, 255)'],
  ['dark', 0, 'rgb(13, 17, 23)'],
])('docs/chart.svg, %s', (_, scheme, background) => {
  test.skipIf(hasNoBrowser)(`every mark is shown${whyNoBrowser}`, { timeout: 60_000 }, async () => {
    const flags = [`--blink-settings=preferredColorScheme=${scheme}`];
    const { probed, console } = await openPage<Shown>(join(root, 'docs', 'chart.svg'), probe, flags);
    expect(console).toEqual([]);
    const { card, bars: shown, texts } = probed;
    expect(card.fill).toBe(background);

    expect(shown).toHaveLength(bars.length);
    const longest = Math.max(...shown.map(({ left, right }) => right - left));
    for (const [index, { milliseconds, most }] of bars.entries()) {
      const { left, right, top, bottom, fill } = shown[index]!;
      expect(right - left).toBeCloseTo((milliseconds / most) * longest, 0);
      expect(right - left).toBeGreaterThan(0.5);
      expect(bottom - top).toBeGreaterThan(10);
      expect(contrast(fill, background)).toBeGreaterThan(3);
    }
    const lines = texts.map(({ text }) => text);
    for (const { title } of columns) expect(lines).toContain(title);
    for (const { title } of panels) expect(lines).toContain(title);
    for (const { label } of bars) expect(lines).toContain(label);
    expect(lines.filter((text) => / ms/.test(text))).toHaveLength(bars.length);
    for (const { text, fill, ...box } of texts) {
      expect(contrast(fill, background), text).toBeGreaterThan(4.5);
      expect(within(box, card), text).toBe(true);
      for (const other of shown) expect(overlap(box, other), text).toBe(false);
      for (const other of texts) if (other.text !== text) expect(overlap(box, other), `${text}; ${other.text}`).toBe(false);
    }
  });
});

describe('docs/chart.svg', () => {
  const svg = read('docs/chart.svg');

  test('shows the medians of the newest results', () => {
    const folder = join(root, 'bench', 'results');
    const reports = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')));
    const newest = reports
      .filter(
        ({ environment, results }) => environment && results?.some((r: { workload: string }) => r.workload === 'join-int64'),
      )
      .sort((a, b) => a.environment.date.localeCompare(b.environment.date))
      .at(-1);
    for (const engine of ['duckdb', 'polars', 'warpjoin']) {
      const { time } = newest.results.find(
        (r: { workload: string; variant: string; engine: string }) =>
          r.workload === 'join-int64' && r.variant === 'materialize' && r.engine === engine,
      );
      expect(svg).toMatch(new RegExp(`>${Math.round(time.median).toLocaleString('en-US')} ms[ <]`));
    }
  });

  test('needs nothing from elsewhere, and runs no script', () => {
    expect(svg).not.toMatch(/<script|<foreignObject|href=|url\(|@import|@font-face/);
    expect(svg.match(/https?:[^"]*/g)).toEqual(['http://www.w3.org/2000/svg']);
  });
});
