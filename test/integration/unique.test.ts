import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { unique } from '../../lib/index.js';
import { describeDevices, engineMaker } from '../support/engines.js';
import { KEY_TYPES } from '../support/keys.js';
import { chunked, failure, type Row, random, rows, table } from '../support/tables.js';

const KEEPS = ['first', 'last', 'any', 'none'] as const;
const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });

/** Values that are equal give the same text: -0 is 0, and nulls and NaN are each equal to themselves. */
const identity = (value: unknown): string =>
  typeof value === 'string' ? `"${value}` : `${Object.is(value, -0) ? 0 : (value ?? null)}`;

/** Rows that are kept, in their order. */
function referenceUnique(of: readonly Row[], on: readonly string[], keep: (typeof KEEPS)[number]): Row[] {
  const groups = new Map<string, number[]>();
  for (const [index, row] of of.entries()) {
    const key = JSON.stringify(on.map((name) => identity(row[name])));
    groups.set(key, [...(groups.get(key) ?? []), index]);
  }
  const kept = [...groups.values()].flatMap((group) =>
    keep === 'none' ? (group.length === 1 ? group : []) : [group.at(keep === 'last' ? -1 : 0)!],
  );
  return kept.sort((a, b) => a - b).map((index) => of[index]!);
}

function input(type: arrow.DataType, values: readonly unknown[], length: number, seed: number): arrow.Table {
  const draw = random(seed);
  const made = table(
    { key: type, i: new arrow.Int32(), s: new arrow.Utf8() },
    {
      key: Array.from({ length }, () => (draw(10) === 0 ? null : values[draw(values.length)])),
      i: Array.from({ length }, (_, row) => row),
      s: Array.from({ length }, (_, row) => (draw(5) === 0 ? null : `row ${row}`)),
    },
  );
  return chunked(
    made,
    [draw(length + 1), draw(length + 1)].sort((a, b) => a - b),
  );
}

describeDevices((devices) => {
  const engine = engineOf(devices);

  test.each(KEEPS)('keep %s: all sizes and multiplicities', async (keep) => {
    for (const [length, distinct] of [
      [0, 1],
      [1, 1],
      [65, 1],
      [300, 50],
      [2000, 100_000],
    ] as const) {
      const values = Array.from({ length: distinct }, (_, index) => index * 7 - 3);
      const of = input(new arrow.Int32(), values, length, length + 1);
      const out = await (await engine).unique(of, { on: 'key', keep, maintainOrder: true });
      expect(rows(out)).toEqual(referenceUnique(rows(of), ['key'], keep));
      expect(out.stats).toMatchObject({ inputRows: [length], outputRows: out.numRows, algorithm: 'hash' });
      const select = ['s', 'i'];
      const some = await (await engine).unique(of, { on: ['key'], keep, select, maintainOrder: true });
      expect(some.schema.fields.map(({ name }) => name)).toEqual(select);
      expect(rows(some)).toEqual(referenceUnique(rows(of), ['key'], keep).map(({ s, i }) => ({ s, i })));
    }
  });
});

const engine = engineOf(1);

describe.each(KEY_TYPES)('key type $name', ({ type, values }) => {
  test.each(KEEPS)('keep %s', async (keep) => {
    const of = input(type, values, 70, 3);
    const out = await (await engine).unique(of, { on: 'key', keep, maintainOrder: true });
    expect(rows(out)).toEqual(referenceUnique(rows(of), ['key'], keep));
  });
});

test('large tables: keys of a range, keys far apart, and one frequent key', async () => {
  const length = 300_000;
  const draw = random(5);
  for (const [distinct, step] of [
    [1000, 1n],
    [200_000, 0x1234567_89abcdefn],
  ] as const) {
    const keys = BigInt64Array.from({ length }, () => BigInt.asIntN(64, BigInt(draw(3) === 0 ? 0 : draw(distinct) - 500) * step));
    const of = new arrow.Table({ key: arrow.makeVector(keys), i: arrow.makeVector(new Int32Array(length).map((_, row) => row)) });
    const counts = new Map<bigint, { first: number; last: number; count: number }>();
    for (const [row, key] of keys.entries()) {
      const seen = counts.get(key);
      if (seen) Object.assign(seen, { last: row, count: seen.count + 1 });
      else counts.set(key, { first: row, last: row, count: 1 });
    }
    const expected = {
      first: [...counts.values()].map(({ first }) => first),
      last: [...counts.values()].map(({ last }) => last),
      none: [...counts.values()].filter(({ count }) => count === 1).map(({ first }) => first),
    };
    for (const keep of ['first', 'last', 'none'] as const) {
      const out = await (await engine).unique(of, { on: 'key', keep, select: ['i'], maintainOrder: true });
      expect([...out.getChild('i')!.toArray()]).toEqual(expected[keep].sort((a, b) => a - b));
    }
  }
});

test('bytes, loaded tables and the shared engine', async () => {
  const of = input(new arrow.Utf8(), ['a', 'b', 'a text of some length'], 50, 8);
  const expected = referenceUnique(rows(of), ['key'], 'last');
  expect(rows(await (await engine).unique(arrow.tableToIPC(of), { on: 'key', keep: 'last' }))).toEqual(expected);
  await using loaded = await (await engine).load(of);
  const out = await (await engine).unique(loaded, { on: 'key', keep: 'last' });
  expect(rows(out)).toEqual(expected);
  expect(out.stats.residentReason).toBe('taken from host memory: unique runs on the host');
  expect(rows(await unique(of, { on: 'key', keep: 'last' }))).toEqual(expected);
});

test('without on all columns are keys', async () => {
  const of = table({ key: new arrow.Int32() }, { key: [3, null, 3, 1, null] });
  expect(rows(await (await engine).unique(of))).toEqual([{ key: 3 }, { key: null }, { key: 1 }]);
  expect(rows(await (await engine).unique(of, { keep: 'none' }))).toEqual([{ key: 1 }]);
});

test('explain', async () => {
  const of = input(new arrow.Int32(), [1, 2, 3], 100, 9);
  const text = await (await engine).explain('unique', of, { on: 'key', keep: 'last', analyze: true });
  expect(text).toMatch(/^unique by "key": hash\n[\s\S]*find unique rows[\s\S]*column key[\s\S]*rows out 4,/);
  expect(await (await engine).explain('unique', of, { on: 'key' })).not.toContain('rows out');
});

describe('refusals', () => {
  const of = table({ key: new arrow.Int32(), i: new arrow.Int32() }, { key: [1], i: [1] });
  test.each([
    [{ on: 'kye' }, 'ERR_COLUMN_NOT_FOUND', /"kye".*Did you mean "key"\?/],
    [{ on: ['key', 'key'] }, 'ERR_OPTION', /^Expected each column once for on but received "key" twice\.$/],
    [{ on: [] }, 'ERR_OPTION', /^Expected a column name or an array of at least one column name/],
    [{ on: 'key', keep: 'all' }, 'ERR_OPTION', /^Expected one of "first", "last", "any", "none" for keep but received "all"/],
    [{ on: 'key', select: ['k'] }, 'ERR_COLUMN_NOT_FOUND', /for select but received "k"/],
    [{ on: 'key', limit: 1 }, 'ERR_OPTION', /^Expected one of the options .* for unique but received "limit"/],
  ])('%j', async (options, code, message) => {
    const error = await failure((await engine).unique(of, options as never));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
  });

  test('a table without columns', async () => {
    const error = await failure((await engine).unique(new arrow.Table(new arrow.Schema([]))));
    expect(error).toMatchObject({
      code: 'ERR_INVALID_TABLE',
      message: 'Expected a table with columns for unique but received one without.',
    });
  });

  test('memory that does not suffice', async () => {
    await using small = await engineOf(1, { memoryLimit: '8MiB' });
    const keys = new arrow.Table({ key: arrow.makeVector(new BigInt64Array(1_000_000)) });
    const error = await failure(small.unique(keys));
    expect(error.code).toBe('ERR_MEMORY_LIMIT');
    expect(error.message).toMatch(/^Finding the unique rows of 1000000 takes at least .* memoryLimit/);
  });

  test('an abort', async () => {
    const error = await failure((await engine).unique(of, { on: 'key', signal: AbortSignal.abort(new Error('enough')) }));
    expect(error.message).toBe('enough');
  });
});
