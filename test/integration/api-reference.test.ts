/** `npm run docs` makes the API reference: it is opened in a browser, which has to show every export and every table. Needs dist/. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ipcSchema } from '../../lib/columns/ipc.js';
import { Engine } from '../../lib/engine.js';
import { errorCodes } from '../../lib/errors.js';
import { toRowsSchema } from '../../lib/io/plain.js';
import { LoadedTable } from '../../lib/operators/load.js';
import * as options from '../../lib/options.js';
import type { Schema } from '../../lib/schema.js';
import { hasNoBrowser, openPage, type Page, whyNoBrowser } from '../support/browser.js';

const root = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-api-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** What the page shows: each export and table with its height in pixels; the rows of tables of options as text, by what they are of. */
interface Shown {
  exports: Record<string, number>;
  tables: { of: string; kind: string; height: number; rows: string[][] }[];
  deadLinks: string[];
  requests: number;
}
const probe = `({
  exports: Object.fromEntries([...document.querySelectorAll('section.export')].map((one) => [one.id, one.getBoundingClientRect().height])),
  tables: [...document.querySelectorAll('table')].map((one) => ({
    of: one.dataset.of ?? '',
    kind: one.className,
    height: one.getBoundingClientRect().height,
    rows: [...one.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent)),
  })),
  deadLinks: [...document.querySelectorAll('a[href^="#"]')].map((link) => link.hash.slice(1)).filter((id) => !document.getElementById(id)),
  requests: performance.getEntriesByType('resource').length,
})`;

/** The names that an entry point exports, as its declarations list them. */
function exportsOf(types: string): string[] {
  const text = readFileSync(join(root, types), 'utf8');
  const lists = [...text.matchAll(/^export (?:type )?\{(.*?)\}/gms)].flatMap(([, list]) => list!.split(','));
  const names = lists.map((name) =>
    name
      .replace(/^\s*type\s/, '')
      .replace(/^.*\sas\s/, '')
      .trim(),
  );
  const own = [...text.matchAll(/^export (?:declare )?(?:async )?(?:const|function|class|type|interface) (\w+)/gm)];
  return [...new Set([...names, ...own.map(([, name]) => name!)])].filter((name) => name !== '');
}

const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  exports: Record<string, { types: string | { default: string } }>;
};
const entries = Object.entries(exports)
  .filter(([, { types }]) => types)
  .map(([path, { types }]) => [`warpjoin${path.slice(1)}`, typeof types === 'string' ? types : types.default] as const);

const documented: [name: string, schema: Schema][] = [
  ['createEngine', { ...options.engineSchema }],
  ['join', { ...options.joinSchema }],
  ['joinCount', { ...options.joinCountSchema }],
  ['joinIndices', { ...options.joinIndicesSchema }],
  ['joinKeys', { ...options.joinKeysSchema }],
  ['sort', { ...options.sortSchema }],
  ['sortIndices', { ...options.sortIndicesSchema }],
  ['sortPairs', { ...options.sortPairsSchema }],
  ['isSorted', { ...options.isSortedSchema }],
  ['searchSorted', { ...options.searchSortedSchema }],
  ['unique', { ...options.uniqueSchema }],
  ['load', { ...options.loadSchema }],
  ['linkSpeeds', { ...options.linkSpeedsSchema }],
  ['explain', { ...options.explainJoinSchema }],
  ['toIPC', ipcSchema],
  ['toRows', toRowsSchema],
];

describe.skipIf(hasNoBrowser)(`the API reference${whyNoBrowser}`, () => {
  let page: Page<Shown>;
  beforeAll(async () => {
    await promisify(execFile)(process.execPath, ['scripts/docs/api.mjs', '--out', folder], { cwd: root });
    page = await openPage<Shown>(join(folder, 'index.html'), probe);
  }, 120_000);

  test('is one page without errors, requests, dead links or anything that was not resolved', () => {
    expect(page.console).toEqual([]);
    expect(page.probed.requests).toBe(0);
    expect(page.probed.deadLinks).toEqual([]);
    expect(page.dom).not.toMatch(/\{@|import\("|undefined<\/|\[object /);
    expect(page.dom.match(/\(prefers-color-scheme: dark\)/g)).toHaveLength(1);
  });

  test.each(entries)('shows every export of %s', (entry, types) => {
    const names = exportsOf(types);
    expect(names.length).toBeGreaterThan(2);
    for (const name of names) expect(page.probed.exports[`${entry}.${name}`.replace('/', '-')], name).toBeGreaterThan(40);
  });

  test.each([
    ['Engine', Engine],
    ['LoadedTable', LoadedTable],
  ])('shows every method of %s', (name, { prototype }) => {
    const methods = Object.getOwnPropertyNames(prototype).filter(
      (method) => typeof Object.getOwnPropertyDescriptor(prototype, method)!.value === 'function' && method !== 'constructor',
    );
    for (const method of methods) expect(page.dom).toContain(`<section id="warpjoin.${name}.${method}">`);
  });

  test('shows every table that it has', () => {
    expect(page.probed.tables.length).toBeGreaterThan(40);
    for (const { of, height, rows } of page.probed.tables) {
      expect(rows.length, of).toBeGreaterThan(0);
      expect(height, of).toBeGreaterThan(20 * rows.length);
    }
  });

  test.each(documented)('has a table of the options of %s', (name, schema) => {
    const tables = page.probed.tables.filter(({ of, kind }) => of === name && kind === 'options');
    const { rows } = tables[0]!;
    expect(rows.map(([option]) => option).sort()).toEqual(Object.keys(schema).sort());
    for (const [option, accepts, fallback, description] of rows) {
      const { expected, ...own } = schema[option!]!;
      expect(accepts).toBe(expected);
      expect(description).toBe(own.description);
      if (own.required) expect(fallback).toBe('required');
      else if (typeof own.fallback !== 'object') {
        expect(fallback).toBe(
          own.fallback === undefined ? '' : typeof own.fallback === 'string' ? `"${own.fallback}"` : `${own.fallback}`,
        );
      }
    }
  });

  test('has a table of the error codes', () => {
    const [codes] = page.probed.tables.filter(({ kind }) => kind === 'codes');
    expect(codes!.rows).toEqual(Object.entries(errorCodes).map(([code, meaning]) => [code, meaning.replaceAll('`', '')]));
  });
});
