/** The types that the package ships, as an editor shows them: what options are, and what is wrong. Needs dist/ (`npm run build:ts`). */
import { describe, expect, test } from 'vitest';
import { ipcSchema } from '../../lib/columns/ipc.js';
import { fromSchema, toRowsSchema } from '../../lib/io/plain.js';
import * as all from '../../lib/options.js';
import type { Schema } from '../../lib/schema.js';
import { editor } from '../support/compiler.js';

const firstLines = `
import type { Bool, Float64, Int32, Int64, Table, Utf8 } from 'apache-arrow';
import * as warpjoin from 'warpjoin';
import { createEngine, isSorted, join, joinBatches, joinCount, joinIndices, joinKeys, searchSorted, sort, sortBatches, sortIndices, unique } from 'warpjoin';
declare const left: Table<{ id: Int32; name: Utf8; price: Float64 }>;
declare const right: Table<{ id: Int64; name: Utf8; ok: Bool }>;
declare const apart: Table<{ zip: Int64; city: Utf8 }>;
declare const any: Table;
declare const bytes: Uint8Array;
declare const column: string;
declare const engine: warpjoin.Engine;
`;

/** Of options that decide a result's columns: any value. */
const values: Record<string, string> = {
  on: "'id'",
  leftOn: "'id'",
  rightOn: "'id'",
  how: "'left'",
  suffix: "'_r'",
  select: "['id']",
};
const given = (option: string): string => {
  const value = values[option] ?? (/coalesce|resident/.test(option) ? 'true' : 'undefined!');
  return `${/^(on|leftOn|rightOn)$/.test(option) ? '' : "on: 'id', "}${option}: ${value}`;
};

/** A call for each schema, which is given the option. */
const calls: [name: string, schema: Schema, call: (option: string) => string][] = [
  ['join', { ...all.joinSchema }, (option) => `join(left, right, { ${given(option)} });`],
  ['joinBatches', { ...all.joinBatchesSchema }, (option) => `joinBatches(left, right, { ${given(option)} });`],
  ['joinCount', { ...all.joinCountSchema }, (option) => `joinCount(left, right, { ${given(option)} });`],
  ['joinIndices', { ...all.joinIndicesSchema }, (option) => `joinIndices(left, right, { ${given(option)} });`],
  ['joinKeys', { ...all.joinKeysSchema }, (option) => `joinKeys(undefined!, undefined!, { ${option}: undefined! });`],
  ['sort', { ...all.sortSchema }, (option) => `sort(left, { ${option}: undefined! });`],
  ['sortBatches', { ...all.sortBatchesSchema }, (option) => `sortBatches(left, { ${option}: undefined! });`],
  ['a column to sort by', all.sortColumnSchema, (option) => `sort(left, { by: [{ ${option}: undefined! }] });`],
  ['sortIndices', { ...all.sortIndicesSchema }, (option) => `sortIndices(left, { ${option}: undefined! });`],
  ['isSorted', { ...all.isSortedSchema }, (option) => `isSorted(left, { ${option}: undefined! });`],
  ['searchSorted', { ...all.searchSortedSchema }, (option) => `searchSorted(left, left, { ${option}: undefined! });`],
  ['sortPairs', { ...all.sortPairsSchema }, (option) => `engine.sortPairs(undefined!, undefined!, { ${option}: undefined! });`],
  ['unique', { ...all.uniqueSchema }, (option) => `unique(left, { ${option}: undefined! });`],
  ['createEngine', { ...all.engineSchema }, (option) => `createEngine({ ${option}: undefined! });`],
  ['load', { ...all.loadSchema }, (option) => `engine.load(left, { ${option}: undefined! });`],
  ['linkSpeeds', { ...all.linkSpeedsSchema }, (option) => `engine.linkSpeeds({ ${option}: undefined! });`],
  ['explain join', { ...all.explainJoinSchema }, (option) => `engine.explain('join', left, right, { ${given(option)} });`],
  [
    'explain sort',
    { ...all.explainSortSchema },
    (option) => `engine.explain('sort', left, { ...({ by: 'id' } as const), ${option}: ${values[option] ?? 'undefined!'} });`,
  ],
  ['explain unique', { ...all.explainUniqueSchema }, (option) => `engine.explain('unique', left, { ${option}: undefined! });`],
  ['toIPC', ipcSchema, (option) => `warpjoin.toIPC(left, { ${option}: undefined! });`],
  ['fromRows', fromSchema, (option) => `warpjoin.fromRows([], { ${option}: undefined! });`],
  ['toRows', toRowsSchema, (option) => `warpjoin.toRows(left, { ${option}: undefined! });`],
];

const asGiven = [
  "join(left, right, { on: 'id', how: 'left', limit: 3, select: ['id', 'ok'], onProgress: ({ fraction }) => fraction });",
  "sort(left, { by: ['name', { column: 'id', descending: true }], limit: 3 });",
];

/** What is refused, and the words that the message has to have. */
const refused: [snippet: string, words: RegExp][] = [
  ["join(left, right, { on: 'id', sufix: '_r' });", /'sufix' does not exist .* Did you mean to write 'suffix'\?$/s],
  ["join(left, right, { on: 'id', suffix: 7 });", /'number' is not assignable to type 'string'/],
  ["join(left, right, { on: 'id', how: 'outer' });", /'"outer"' is not assignable to type '.*"inner" \| "left" \| "right"/],
  ["join(left, right, { on: 'price' });", /'"price"' is not assignable to type 'OneOrMore<"id" \| "name">/],
  ["join(left, right, { on: ['id', 'price'] });", /'"price"' is not assignable to type '"id" \| "name"'/],
  ["join(left, apart, { on: 'id' });", /the tables share no column name: expected leftOn and rightOn/],
  ["joinCount(left, apart, { on: 'id' });", /the tables share no column name: expected leftOn and rightOn/],
  ["engine.explain('join', left, apart, { on: 'id' });", /the tables share no column name: expected leftOn and rightOn/],
  [
    "join(left, right, { leftOn: 'id', rightOn: 'idd' });",
    /'"idd"' is not assignable to type 'OneOrMore<"id" \| "name" \| "ok">/,
  ],
  [
    "join(left, right, { leftOn: 'ok', rightOn: 'ok' });",
    /'"ok"' is not assignable to type 'OneOrMore<"id" \| "name" \| "price">/,
  ],
  ["join(left, right, { leftOn: 'id' });", /Property 'rightOn' is missing/],
  ['join(left, right, {});', /'\{\}' is not assignable to .*CrossJoin .*KeysOfEach.*SharedKeys/],
  ["join(left, right, { on: 'id', leftOn: 'id', rightOn: 'id' });", /not assignable/],
  ["join(left, right, { how: 'cross', on: 'id' });", /not assignable/],
  ["join(left, right, { on: 'id', select: ['nope'] });", /'"nope"' is not assignable to type '"id" \| .*"name_right"/],
  [
    "join(left, right, { on: 'id', how: 'semi', select: ['ok'] });",
    /'"ok"' is not assignable to type '"id" \| "name" \| "price"'/,
  ],
  ["joinCount(left, right, { on: 'id', sufix: '_r' });", /'sufix' does not exist/],
  ["joinCount(left, right, { on: 'price' });", /'"price"' is not assignable to type 'OneOrMore<"id" \| "name">/],
  ["joinIndices(left, right, { on: 'id', select: ['id'] });", /'select' does not exist/],
  [
    "sort(left, { by: 'prize' });",
    /'"prize"' is not assignable to type 'By<"id" \| "name" \| "price">'. Did you mean '"price"'\?$/,
  ],
  ["sort(left, { by: ['id', { column: 'prize' }] });", /to type '"id" \| "name" \| "price"'. Did you mean '"price"'\?$/],
  ["sort(left, { by: [{ column: 'id', desc: true }] });", /'desc' does not exist in type 'SortColumn</],
  ["sort(left, { by: 'id', descending: true });", /'descending' does not exist in type 'SortOptions</],
  ["sort(left, { by: 'id', select: ['nope'] });", /'"nope"' is not assignable to type '"id" \| "name" \| "price"'/],
  ['sort(left, {});', /Property 'by' is missing/],
  ["sortIndices(left, { by: 'prize' });", /Did you mean '"price"'\?$/],
  ["unique(left, { on: 'idd' });", /'"idd"' is not assignable to type 'OneOrMore<"id" \| "name" \| "price">/],
  ["unique(left, { select: ['nope'] });", /'"nope"' is not assignable to type '"id" \| "name" \| "price"'/],
  ["unique(left, { keap: 'any' });", /'keap' does not exist in type 'UniqueOptions</],
  ["createEngine({ memorylimit: '1GiB' });", /Did you mean to write 'memoryLimit'\?$/],
  ["sortBatches(left, { by: 'prize' });", /Did you mean '"price"'\?$/],
  ["sortBatches(left, { by: 'id', select: ['nope'] });", /'"nope"' is not assignable to type '"id" \| "name" \| "price"'/],
  ['engine.load(left, { progress() {} });', /'progress' does not exist/],
  ["warpjoin.toIPC(left, { format: 'arrow' });", /'"arrow"' is not assignable to type '"stream" \| "file"/],
  ['warpjoin.toRows(left, { limt: 3 });', /Did you mean to write 'limit'\?$/],
  ["sort(bytes, { by: column, selct: ['a'] });", /'selct' does not exist .* Did you mean to write 'select'\?$/s],
];

/** What goes: tables whose columns the compiler does not know take any names. */
const taken = [
  ...asGiven,
  "join(any, any, { on: 'x', select: ['y'] });",
  "join(any, bytes, { leftOn: ['x', column], rightOn: ['y', 'z'], select: [column] });",
  "join(left, any, { on: 'id', select: ['whatever'] });",
  "join(left, bytes, { on: 'id' });",
  'joinCount(any, any, { on: column });',
  "engine.explain('join', any, any, { on: 'x', select: ['y'], analyze: true });",
  "sort(any, { by: column, select: ['x'] });",
  "sort(bytes, { by: ['x', { column }] });",
  "sortBatches(bytes, { by: ['x', { column }] });",
  "unique(any, { on: ['x', column], select: ['y'] });",
  "join(left, right, { how: 'cross' });",
  "join(left, apart, { leftOn: 'id', rightOn: 'zip', select: ['city'] });",
  "const options: warpjoin.JoinOptions<typeof left, typeof right> = { on: 'id', how: 'left' }; join(left, right, options);",
  'const options: warpjoin.JoinOptions = { on: column }; join(any, any, options).then((table) => table.numRows);',
  'const options: warpjoin.EngineOptions = { tempDirectory: undefined }; createEngine(options);',
];

const cases = calls.flatMap(([name, schema, call]) =>
  Object.entries(schema).map(([option, { description, expected, fallback, required }]) => ({
    name: `${name}: ${option}`,
    option,
    snippet: call(option),
    texts: [description, expected],
    fallback: required || typeof fallback === 'object' ? undefined : (fallback as unknown),
  })),
);
const { messages, hover } = editor(firstLines, [
  ...new Set([...cases.map(({ snippet }) => snippet), ...refused.map(([snippet]) => snippet), ...taken]),
]);

describe('an editor shows of an option what the schema says', () => {
  test.each(cases)('$name', ({ option, snippet, texts, fallback }) => {
    const shown = hover(snippet, option);
    for (const text of texts) expect(shown).toContain(text);
    if (fallback === undefined) expect(shown).not.toContain('@default');
    else expect(shown).toContain(`@default ${typeof fallback === 'string' ? JSON.stringify(fallback) : fallback}`);
  });
  test('for every schema of lib/options.ts', () => {
    const tried = calls.map(([, schema]) => Object.keys(schema).join());
    const schemas = Object.entries(all).filter(([name]) => name.endsWith('Schema'));
    expect(schemas.length).toBeGreaterThan(10);
    for (const [name, schema] of schemas) expect(tried, name).toContain(Object.keys(schema).join());
  });
  test('in calls as they are written', () => {
    expect(hover(asGiven[0]!, 'on')).toContain(all.joinSchema.on.description);
    expect(hover(asGiven[0]!, 'how')).toContain('@default "inner"');
    expect(hover(asGiven[0]!, 'select')).toContain(all.joinSchema.select.description);
    expect(hover(asGiven[1]!, 'by')).toContain(all.sortSchema.by.description);
    expect(hover(asGiven[1]!, 'descending')).toContain('@default false');
    expect(hover(asGiven[1]!, 'sort')).toContain('Sorts a table');
  });
});

describe('the compiler refuses, and says why', () => {
  test.each(refused)('%s', (snippet, words) => {
    const found = messages(snippet);
    expect(found.length).toBeGreaterThan(0);
    expect(found[0]).toMatch(words);
  });
});

test.each(taken)('the compiler takes %s', (snippet) => {
  expect(messages(snippet)).toEqual([]);
});
