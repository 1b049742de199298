/** `validate` of joinBatches(): keys that have to be unique, of sides that are in memory, in partitions, and sorted. */
import { mkdtempSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { WarpjoinError } from '../../lib/errors.js';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { describeDevices, describeHost, inspectedEngine, testEngine } from '../support/engines.js';
import { cut, failure, later, random, rows, table, unordered } from '../support/tables.js';

type Validate = 'm:m' | '1:m' | 'm:1' | '1:1';
const VALIDATE: Validate[] = ['m:m', '1:m', 'm:1', '1:1'];
const SIDES = ['left', 'right'] as const;

async function read(batches: AsyncIterable<arrow.RecordBatch>): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  for await (const batch of batches) all.push(...rows(new arrow.Table([batch])));
  return all;
}

/** Rows with these keys, and their numbers. */
const keyed = (keys: (number | null)[], name: string): arrow.Table =>
  table({ k: new arrow.Int32(), [name]: new arrow.Int32() }, { k: keys, [name]: [...keys.keys()] });

describeDevices((devices) => {
  const once = keyed([5, 1, null, 9, null, 2], 'n');
  const twice = keyed([9, null, 2, 7, 2, 7], 'n');
  const ways: Record<string, (of: arrow.Table) => unknown> = {
    tables: (of) => of,
    arrays: (of) => cut(of, 2).flatMap(({ batches }) => batches),
    generators: (of) => later(cut(of, 2)),
  };
  test.each(Object.keys(ways))('%s are taken and refused as join() does it', async (way) => {
    await using engine = await testEngine(devices, { memoryLimit: '256MiB' });
    for (const validate of VALIDATE) {
      for (const [left, right] of [
        [once, once],
        [once, twice],
        [twice, once],
        [twice, twice],
      ] as const) {
        for (const nullsEqual of [false, true]) {
          const options = { on: 'k', how: 'full', nullsEqual } as const;
          const whole = (of: Validate) =>
            engine.join(left, right, { ...options, validate: of }).catch((error: WarpjoinError) => error);
          for (const buildSide of SIDES) {
            const given = { ...options, validate, buildSide };
            const joined = engine.joinBatches(ways[way]!(left) as never, ways[way]!(right) as never, given);
            const found = await read(joined).catch((error: WarpjoinError) => error);
            // The build side is looked at first.
            const first = validate === '1:1' && buildSide === 'right' ? await whole('m:1') : null;
            const expected = first instanceof Error ? first : await whole(validate);
            if (!(expected instanceof Error)) expect(unordered(found as never)).toEqual(unordered(rows(expected)));
            else expect((found as WarpjoinError).message).toBe(expected.message.replace(/"m:1"|"1:m"/, `"${validate}"`));
          }
        }
      }
    }
  });
});

describe.each(['semi', 'anti', 'left', 'right'] as const)('%s joins', (how) => {
  test('look at the keys of both sides', async () => {
    await using engine = await testEngine(1, { memoryLimit: '256MiB' });
    const [left, right] = [keyed([1, 2, 3], 'l'), keyed([3, 4, 4], 'r')];
    for (const buildSide of SIDES) {
      const call = (validate: Validate) => read(engine.joinBatches([left], [right], { on: 'k', how, validate, buildSide }));
      await call('1:m');
      expect(await failure(call('m:1'))).toMatchObject({
        code: 'ERR_DUPLICATE_KEY',
        message: 'Expected each key of the right table once, for validate is "m:1", but rows 1 and 2 have the same: "k" 4.',
      });
    }
  });
});

describeHost('where memory has no room', 'their transfer buffers take more than these limits', () => {
  const folder = mkdtempSync(join(tmpdir(), 'warpjoin-test-'));
  const small = (memoryLimit: string | number) => inspectedEngine(2, { memoryLimit, threads: 2, tempDirectory: folder });

  /** Keys 0 to `length` in random order, one row in nine null in place of its key. */
  function shuffled(length: number, seed: number): (number | null)[] {
    const draw = random(seed);
    const keys: (number | null)[] = Array.from({ length }, (_, key) => (key % 9 ? key : null));
    for (let at = length - 1; at > 0; at--) {
      const other = draw(at + 1);
      [keys[at], keys[other]] = [keys[other]!, keys[at]!];
    }
    return keys;
  }
  const LENGTH = 60_000;
  const [left, right] = [shuffled(LENGTH, 1), shuffled(LENGTH, 2)];
  /** The last row gets the key of the first one that has one. */
  const withOneTwice = (keys: (number | null)[]) => [...keys.slice(0, -1), keys.find((key) => key !== null)!];

  /** The rows, or code and message of the error. */
  async function joined(one: (number | null)[], other: (number | null)[], options: object) {
    const { engine, inner } = small('1500KiB');
    // What a running function holds, and an error, would not be collected.
    const outcome = async () => {
      const sides = [later(cut(keyed(one, 'l'), 1000)), later(cut(keyed(other, 'r'), 700))] as const;
      const batches = engine.joinBatches(...sides, { on: 'k', ...options } as never);
      try {
        return await read(batches);
      } catch (error) {
        const { code, message } = error as WarpjoinError;
        return { code, message };
      } finally {
        expect(batches.stats.runs).toBeGreaterThan(4);
      }
    };
    const found = await outcome();
    expect(inner.memory().peakBytes).toBeLessThanOrEqual(inner.memory().limitBytes);
    expect(await readdir(folder)).toEqual([]);
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
    return found as Record<string, unknown>[];
  }

  test.each(SIDES)('keys that are there once are joined, %s side first', async (buildSide) => {
    const found = await joined(left, right, { validate: '1:1', buildSide });
    const keys = left.filter((key) => key !== null).sort((a, b) => a - b);
    expect(found.map(({ k }) => k as number).sort((a, b) => a - b)).toEqual(keys);
  });

  test('they may be in the order of a side', async () => {
    const found = await joined(left, right, { validate: '1:1', buildSide: 'left', maintainOrder: 'right' });
    expect(found.map(({ k }) => k)).toEqual(right.filter((key) => key !== null));
  });

  test.each([
    ['left', '1:1'],
    ['left', '1:m'],
    ['right', '1:1'],
    ['right', 'm:1'],
  ] as const)('a %s key that is there twice, far apart: %s', async (side, validate) => {
    const [one, other] = side === 'left' ? [withOneTwice(left), right] : [left, withOneTwice(right)];
    const key = (side === 'left' ? one : other).at(-1);
    for (const buildSide of SIDES) {
      expect(await joined(one, other, { validate, buildSide })).toEqual({
        code: 'ERR_DUPLICATE_KEY',
        message: `Expected each key of the ${side} table once, for validate is "${validate}", but two rows have the same: "k" ${key}.`,
      });
    }
    // Where the other side may have it often, it is all the same.
    const found = await joined(one, other, { validate: side === 'left' ? 'm:1' : '1:m', buildSide: side });
    expect(found).toHaveLength(left.filter((key) => key !== null).length + (left.at(-1) === null || side === 'right' ? 1 : 0));
  });

  describe('and most rows of a side have one key', () => {
    /** A key whose hash begins as that of 7. */
    const BESIDE_IT = 10;
    const crowded = left.map((key, row) => (row % 10 ? 7 : key));
    test.each(SIDES)('which the other side has once, %s side first', async (buildSide) => {
      const found = await joined(right, crowded, { validate: '1:m', buildSide, how: 'right' });
      expect(found).toHaveLength(LENGTH);
    });

    test.each(SIDES)('beside which, in its partition, another is there twice, %s side first', async (buildSide) => {
      const twice = right.slice(0, -1).concat(BESIDE_IT);
      const message = `Expected each key of the right table once, for validate is "m:1", but two rows have the same: "k" ${BESIDE_IT}.`;
      expect(await joined(crowded, twice, { validate: 'm:1', buildSide })).toEqual({ code: 'ERR_DUPLICATE_KEY', message });
    });

    test.each(SIDES)('that is to have it once, %s side first', async (buildSide) => {
      for (const [one, other, validate, side] of [
        [crowded, right, '1:m', 'left'],
        [right, crowded, 'm:1', 'right'],
        [crowded, right.slice(0, 10), '1:1', 'left'],
      ] as const) {
        const message = expect.stringMatching(`${side} table.*"k" \\d+\\.`);
        expect(await joined(one, other, { validate, buildSide })).toEqual({ code: 'ERR_DUPLICATE_KEY', message });
      }
    });
  });
});
