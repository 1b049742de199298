import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DEVICE_COUNTS } from '../support/engines.js';
import { bufferBytes, checkPayload, KEY_TYPES, makeTable, nullRates, rowCounts, SPREADS, seeds, type Value } from './cases.js';
import { joinRoom, parameters, setUp, TIMEOUT } from './run.js';

const setup = setUp();
const MOST_PAIRS = 20_000;

type Pair = (number | null)[];
const ORDER = {
  left: 'l.row NULLS LAST, r.row NULLS LAST',
  left_right: 'l.row NULLS LAST, r.row NULLS LAST',
  right: 'r.row NULLS LAST, l.row NULLS LAST',
  right_left: 'r.row NULLS LAST, l.row NULLS LAST',
} as const;

const joinCase = fc.record({
  seed: seeds,
  type: fc.constantFrom(...KEY_TYPES),
  leftRows: rowCounts,
  rightRows: rowCounts,
  spread: fc.constantFrom(...SPREADS),
  nulls: nullRates,
  chunks: fc.integer({ min: 1, max: 4 }),
  how: fc.constantFrom('inner' as const, 'left' as const, 'right' as const, 'full' as const, 'semi' as const, 'anti' as const),
  algorithm: fc.constantFrom('radix-hash' as const, 'sort-merge' as const),
  maintainOrder: fc.constantFrom(
    'none' as const,
    'left' as const,
    'right' as const,
    'left_right' as const,
    'right_left' as const,
  ),
  buildSide: fc.constantFrom('auto' as const, 'left' as const, 'right' as const),
  offset: fc.constantFrom(0, 0, 1, 7, 100),
  limit: fc.constantFrom(undefined, undefined, 0, 1, 10, 1000),
  devices: fc.constantFrom(...DEVICE_COUNTS),
  chunksets: fc.constantFrom(1, 1, 1, 2, 5),
  maxBufferBytes: bufferBytes,
});

test('joins keep the order that DuckDB gives row numbers, and the rows of it that are asked for', {
  timeout: TIMEOUT,
}, async () => {
  await fc.assert(
    fc.asyncProperty(joinCase, async (c) => {
      const few = ['equal', 'few', 'extreme', 'zipf'].includes(c.spread) || ['bool', 'int8', 'uint8'].includes(c.type);
      const rightRows = few ? Math.min(c.rightRows, Math.floor(MOST_PAIRS / Math.max(1, c.leftRows))) : c.rightRows;
      const column = { name: 'k', type: c.type, spread: c.spread, nullRate: c.nulls };
      const left = makeTable(c.seed, 'l_', c.leftRows, c.chunks, [column]);
      const right = makeTable(c.seed + 1, 'r_', rightRows, c.chunks, [column]);
      const leftOnly = c.how === 'semi' || c.how === 'anti';
      const order = leftOnly ? 'l.row' : ORDER[c.maintainOrder === 'none' ? 'left' : c.maintainOrder];
      const columns = await setup.oracle.columns(
        { l: left, r: right },
        `SELECT ${leftOnly ? 'l.row' : 'l.row, r.row'} FROM l ${c.how} JOIN r ON l.k = r.k ORDER BY ${order}`,
      );
      const all: Pair[] = Array.from({ length: columns[0]?.length ?? 0 }, (_, i) => columns.map((of) => of[i] as number | null));
      const { how, algorithm, maintainOrder, buildSide, offset, limit, type } = c;
      const options = { on: 'k', how, algorithm, maintainOrder, buildSide, offset, limit, coalesce: false } as const;
      const room = joinRoom(
        { left: left.table, right: right.table, keys: [{ left: 'k', right: 'k', nullsEqual: false }], how, algorithm },
        c.chunksets,
        c.devices,
      );
      await setup.onEngine(room, c.maxBufferBytes, async (engine) => {
        const out = await engine.join(left.table, right.table, options);
        const numbers = (name: string): (number | null)[] => Array.from(out.getChild(name) as Iterable<number | null>);
        const [leftRows, rightRows] = [numbers('l_row'), leftOnly ? [] : numbers('r_row')];
        const got: Pair[] = leftRows.map((row, i) => (leftOnly ? [row] : [row, rightRows[i]!]));
        const expected = all.slice(offset, limit === undefined ? undefined : offset + limit);
        if (maintainOrder === 'none') {
          expect(got).toHaveLength(expected.length);
          const there = new Set(all.map(String));
          expect(new Set(got.map(String)).size).toBe(got.length);
          for (const pair of got) expect(there).toContain(String(pair));
        } else {
          expect(got).toEqual(expected);
        }
        expect(checkPayload(out, 'l_', leftRows)).toBeUndefined();
        if (!leftOnly) expect(checkPayload(out, 'r_', rightRows)).toBeUndefined();
        const { coalesce: _, ...match } = options;
        expect(await engine.joinCount(left.table, right.table, match)).toBe(got.length);
        // Nulls are no keys.
        const keyed = (of: Record<string, Value[]>): string[] =>
          of.k!.filter((value) => value !== null).map((v) => identity(type, v));
        for (const [validate, of] of [
          ['1:m', left],
          ['m:1', right],
        ] as const) {
          const keys = keyed(of.keys);
          const run = engine.joinCount(left.table, right.table, { ...match, validate });
          if (new Set(keys).size === keys.length) await run;
          else await expect(run).rejects.toMatchObject({ code: 'ERR_DUPLICATE_KEY' });
        }
      });
    }),
    parameters(150),
  );
});

/** Values that are equal give the same text. */
const identity = (type: string, value: Value): string =>
  `${type.startsWith('float') && Object.is(value, -0) ? 0 : typeof value === 'string' ? `"${value}` : value}`;

test('unique keeps the rows that DuckDB keeps', { timeout: TIMEOUT }, async () => {
  const uniqueCase = fc.record({
    seed: seeds,
    type: fc.constantFrom(...KEY_TYPES),
    rows: rowCounts,
    spread: fc.constantFrom(...SPREADS),
    nulls: nullRates,
    chunks: fc.integer({ min: 1, max: 4 }),
    keep: fc.constantFrom('first' as const, 'last' as const, 'any' as const, 'none' as const),
    devices: fc.constantFrom(...DEVICE_COUNTS),
    maxBufferBytes: bufferBytes,
  });
  await fc.assert(
    fc.asyncProperty(uniqueCase, async (c) => {
      const { keep, type, spread, nulls } = c;
      const of = makeTable(c.seed, 't_', c.rows, c.chunks, [{ name: 'k', type, spread, nullRate: nulls }]);
      const sql =
        keep === 'none'
          ? 'SELECT min(row) AS row FROM t GROUP BY k HAVING count(*) = 1 ORDER BY row'
          : `SELECT ${keep === 'last' ? 'max' : 'min'}(row) AS row FROM t GROUP BY k ORDER BY row`;
      const [expected = []] = await setup.oracle.columns({ t: of }, sql);
      await setup.onEngine({ devices: c.devices, chunksets: 1, bytes: () => 0 }, c.maxBufferBytes, async (engine) => {
        const out = await engine.unique(of.table, { on: 'k', keep, maintainOrder: true });
        const rows = Array.from(out.getChild('t_row') as Iterable<number>);
        expect(rows).toEqual([...expected]);
        expect(checkPayload(out, 't_', rows)).toBeUndefined();
      });
    }),
    parameters(150),
  );
});
