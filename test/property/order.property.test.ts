import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JoinCountOptions, JoinOptions } from '../../lib/index.js';
import { DEVICE_COUNTS, hashJoin } from '../support/engines.js';
import {
  bufferBytes,
  type CaseTable,
  checkPayload,
  isHeavy,
  KEY_TYPES,
  type KeyType,
  makeTable,
  nullRates,
  OTHER_KEY_TYPES,
  rowCounts,
  SPREADS,
  seeds,
  type Value,
} from './cases.js';
import { matches } from './oracle.js';
import { joinRoom, parameters, Seen, setUp, TIMEOUT } from './run.js';

const setup = setUp();
const MOST_PAIRS = 20_000;

type Pair = (number | null)[];
const ORDER = {
  left: 'l.row NULLS LAST, r.row NULLS LAST',
  left_right: 'l.row NULLS LAST, r.row NULLS LAST',
  right: 'r.row NULLS LAST, l.row NULLS LAST',
  right_left: 'r.row NULLS LAST, l.row NULLS LAST',
} as const;

const KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti', 'cross'] as const;
const ORDERS = ['none', 'left', 'right', 'left_right', 'right_left'] as const;

/** Key columns, of the same types on both sides: the first one of any values, the others mostly of few, for rows to match. */
const keyColumns = (most: number) => {
  const key = fc.record({
    type: fc.constantFrom(...KEY_TYPES, ...OTHER_KEY_TYPES),
    spread: fc.constantFrom(...SPREADS),
    nullRate: nullRates,
    nullsEqual: fc.boolean(),
    dictionary: fc.constantFrom(false, false, true),
  });
  const other = fc.tuple(key, fc.constantFrom('few' as const, 'equal' as const, null)).map(([of, spread]) => {
    return spread ? { ...of, spread } : of;
  });
  return fc.tuple(key, fc.oneof(fc.constant([]), fc.array(other, { maxLength: most - 1 }))).map(([first, others]) => {
    return [first, ...others].map((of, index) => ({ ...of, name: `k${index}` }));
  });
};

const joinCase = fc.record({
  seed: seeds,
  keys: keyColumns(3),
  leftRows: rowCounts,
  rightRows: rowCounts,
  chunks: fc.integer({ min: 1, max: 4 }),
  how: fc.constantFrom(...KINDS),
  algorithm: fc.constantFrom('auto' as const, hashJoin, 'sort-merge' as const),
  maintainOrder: fc.constantFrom(...ORDERS),
  buildSide: fc.constantFrom('auto' as const, 'left' as const, 'right' as const),
  offset: fc.constantFrom(0, 0, 1, 7, 100),
  limit: fc.constantFrom(undefined, undefined, 0, 1, 10, 1000),
  devices: fc.constantFrom(...DEVICE_COUNTS),
  chunksets: fc.constantFrom(1, 1, 2, 2, 5),
  maxBufferBytes: bufferBytes,
});

test('joins keep the order that DuckDB gives row numbers, and the rows of it that are asked for', {
  timeout: TIMEOUT,
}, async () => {
  const seen = new Seen();
  await fc.assert(
    fc.asyncProperty(joinCase, async (c) => {
      const cross = c.how === 'cross';
      // Of all pairs of rows, those that a key may match: all where values repeat, else those of two nulls.
      const shares = c.keys.map((key) => (isHeavy(key.type, key.spread) ? 1 : key.nullsEqual ? key.nullRate ** 2 : 0));
      const pairsPerRow = c.leftRows * (cross ? 1 : shares.reduce((all, share) => all * share, 1));
      const rightRows = Math.min(c.rightRows, Math.floor(MOST_PAIRS / Math.max(1, pairsPerRow)));
      const left = makeTable(c.seed, 'l_', c.leftRows, c.chunks, c.keys);
      const right = makeTable(c.seed + 1, 'r_', rightRows, c.chunks, c.keys);
      const leftOnly = c.how === 'semi' || c.how === 'anti';
      const order = leftOnly ? 'l.row' : ORDER[c.maintainOrder === 'none' ? 'left' : c.maintainOrder];
      const on = c.keys.map(({ name, type, nullsEqual }) => matches([type, type], name, nullsEqual)).join(' AND ');
      const columns = await setup.oracle.columns(
        { l: left, r: right },
        `SELECT ${leftOnly ? 'l.row' : 'l.row, r.row'} FROM l ${c.how} JOIN r ${cross ? '' : `ON ${on}`} ORDER BY ${order}`,
      );
      const all: Pair[] = Array.from({ length: columns[0]?.length ?? 0 }, (_, i) => columns.map((of) => of[i] as number | null));
      const { how, maintainOrder, offset, limit, buildSide } = c;
      const named = c.keys.map(({ name, nullsEqual }) => ({ left: name, right: name, nullsEqual }));
      const match: JoinCountOptions =
        how === 'cross'
          ? { how, maintainOrder, offset, limit }
          : {
              on: named.map(({ left }) => left),
              nullsEqual: named.map(({ nullsEqual }) => nullsEqual),
              ...{ how, maintainOrder, offset, limit, algorithm: c.algorithm, buildSide },
            };
      const algorithm = c.algorithm === 'sort-merge' ? 'sort-merge' : hashJoin;
      const room =
        how === 'cross'
          ? { devices: c.devices, chunksets: 1, bytes: () => 0 }
          : joinRoom({ left: left.table, right: right.table, keys: named, how, algorithm }, c.chunksets, c.devices);
      await setup.onEngine(room, c.maxBufferBytes, async (engine) => {
        const out = await engine.join(left.table, right.table, (cross ? match : { ...match, coalesce: false }) as JoinOptions);
        seen.add(
          how,
          maintainOrder,
          `${c.devices} devices`,
          `${c.keys.length} keys`,
          out.stats.chunksets > 1 ? 'chunksets' : 'one',
        );

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
        expect(await engine.joinCount(left.table, right.table, match)).toBe(got.length);
        if (cross) return;
        for (const [validate, of] of [
          ['1:m', left],
          ['m:1', right],
        ] as const) {
          const keys = identities(c.keys, of);
          const run = engine.joinCount(left.table, right.table, { ...match, validate } as JoinCountOptions);
          const once = new Set(keys).size === keys.length;
          seen.add(once ? 'valid' : 'not valid');
          if (once) await run;
          else await expect(run).rejects.toMatchObject({ code: 'ERR_DUPLICATE_KEY' });
        }
      });
    }),
    parameters(150),
  );
  seen.expect(...KINDS, ...ORDERS, ...DEVICE_COUNTS.map((count) => `${count} devices`), '1 keys', '2 keys', '3 keys');
  seen.expect('valid', 'not valid', 'one', 'chunksets');
});

/** The keys of a table's rows as texts, equal ones for equal keys. A row with a null that equals none has no key. */
function identities(keys: readonly { name: string; nullsEqual: boolean }[], { keys: values, types, rows }: CaseTable): string[] {
  const matching = Array.from({ length: rows }, (_, row) => row).filter((row) =>
    keys.every(({ name, nullsEqual }) => nullsEqual || values[name]![row] !== null),
  );
  return matching.map((row) => keys.map(({ name }) => identity(types[name]!, values[name]![row]!)).join());
}

/** Values that are equal give the same text. Fixed-size ones are filled up with zeros. */
const identity = (type: KeyType, value: Value): string => {
  if (type.startsWith('float') && Object.is(value, -0)) return '0';
  return typeof value === 'string' ? JSON.stringify(/^binary\d/.test(type) ? value.padEnd(11, '\0') : value) : `${value}`;
};

test('unique keeps the rows that DuckDB keeps', { timeout: TIMEOUT }, async () => {
  const uniqueCase = fc.record({
    seed: seeds,
    keys: keyColumns(3),
    rows: rowCounts,
    chunks: fc.integer({ min: 1, max: 4 }),
    keep: fc.constantFrom('first' as const, 'last' as const, 'any' as const, 'none' as const),
    devices: fc.constantFrom(...DEVICE_COUNTS),
    maxBufferBytes: bufferBytes,
  });
  await fc.assert(
    fc.asyncProperty(uniqueCase, async (c) => {
      const { keep } = c;
      const of = makeTable(c.seed, 't_', c.rows, c.chunks, c.keys);
      const on = c.keys.map(({ name }) => name);
      const sql =
        keep === 'none'
          ? `SELECT min(row) AS row FROM t GROUP BY ${on} HAVING count(*) = 1 ORDER BY row`
          : `SELECT ${keep === 'last' ? 'max' : 'min'}(row) AS row FROM t GROUP BY ${on} ORDER BY row`;
      const [expected = []] = await setup.oracle.columns({ t: of }, sql);
      await setup.onEngine({ devices: c.devices, chunksets: 1, bytes: () => 0 }, c.maxBufferBytes, async (engine) => {
        const out = await engine.unique(of.table, { on, keep, maintainOrder: true });
        const rows = Array.from(out.getChild('t_row') as Iterable<number>);
        expect(rows).toEqual([...expected]);
        expect(checkPayload(out, 't_', rows)).toBeUndefined();
      });
    }),
    parameters(150),
  );
});
