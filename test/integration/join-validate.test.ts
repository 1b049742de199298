import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import type { Engine } from '../../lib/index.js';
import { describeDevices, engineMaker } from '../support/engines.js';
import { failure, table } from '../support/tables.js';

const engineOf = engineMaker({ memoryLimit: '1GiB', threads: 2 });
const ints = (keys: (number | null)[]) => table({ id: new arrow.Int32(), v: new arrow.Int32() }, { id: keys, v: keys });

type Call = (engine: Engine, left: arrow.Table, right: arrow.Table, options: object) => Promise<unknown>;
const CALLS: [string, Call][] = [
  ['join', (engine, left, right, options) => engine.join(left, right, { on: 'id', ...options } as never)],
  ['joinCount', (engine, left, right, options) => engine.joinCount(left, right, { on: 'id', ...options } as never)],
  ['joinIndices', (engine, left, right, options) => engine.joinIndices(left, right, { on: 'id', ...options } as never)],
  [
    'explain',
    (engine, left, right, options) => engine.explain('join', left, right, { on: 'id', analyze: true, ...options } as never),
  ],
];

describeDevices((devices) => {
  const engine = engineOf(devices);
  // Right keys that no left row has count, too, and so do left ones.
  const once = ints([4, null, 2, null, 9]);
  const twice = ints([7, 2, null, 7, 2, null]);

  describe.each(CALLS)('%s', (_, call) => {
    test('keys that are there once pass', async () => {
      for (const algorithm of ['radix-hash', 'sort-merge']) {
        await call(await engine, once, once, { validate: '1:1', algorithm });
        await call(await engine, once, twice, { validate: '1:m', algorithm });
        await call(await engine, twice, once, { validate: 'm:1', algorithm });
        await call(await engine, twice, twice, { validate: 'm:m', algorithm });
      }
    });

    test.each([
      ['1:1', 'left', 7, 0, 3],
      ['1:m', 'left', 7, 0, 3],
    ] as const)('%s: a left key that is there twice', async (validate, side, key, first, row) => {
      for (const how of ['inner', 'full', 'semi', 'anti']) {
        const error = await failure(call(await engine, twice, once, { validate, how }));
        expect(error).toMatchObject({
          code: 'ERR_DUPLICATE_KEY',
          message: `Expected each key of the ${side} table once, for validate is "${validate}", but rows ${first} and ${row} have the same: "id" ${key}.`,
        });
      }
    });

    test.each(['1:1', 'm:1'] as const)('%s: a right key that is there twice', async (validate) => {
      const error = await failure(call(await engine, once, twice, { validate }));
      expect(error).toMatchObject({
        code: 'ERR_DUPLICATE_KEY',
        message: `Expected each key of the right table once, for validate is "${validate}", but rows 0 and 3 have the same: "id" 7.`,
      });
    });
  });
});

const engine = engineOf(1);

test('the engine works afterwards, and holds nothing', async () => {
  const twice = ints([1, 1]);
  await failure((await engine).join(twice, twice, { on: 'id', validate: '1:1' }));
  expect(await (await engine).joinCount(twice, twice, { on: 'id' })).toBe(4);
});

test('explain without a run does not look', async () => {
  const twice = ints([1, 1]);
  expect(await (await engine).explain('join', twice, twice, { on: 'id', validate: '1:1' })).toContain('inner join on');
});

test.each([
  [new arrow.Utf8(), ['a', 'b "quoted"', 'b "quoted"'], '"b \\"quoted\\""'],
  [new arrow.Binary(), [Uint8Array.of(1), Uint8Array.of(1, 255), Uint8Array.of(1, 255)], '0x01ff'],
  [new arrow.Int64(), [1n, 2n ** 60n, 2n ** 60n], '1152921504606846976'],
  [new arrow.Float64(), [1, Number.NaN, Number.NaN], 'NaN'],
  [new arrow.Bool(), [true, false, false], 'false'],
])('the message shows a key of type %s', async (type, keys, text) => {
  const of = table({ id: type }, { id: keys });
  const error = await failure((await engine).join(of, of, { on: 'id', validate: 'm:1' }));
  expect(error.message).toBe(
    `Expected each key of the right table once, for validate is "m:1", but rows 1 and 2 have the same: "id" ${text}.`,
  );
});

test('many keys: the least row that repeats one is named', async () => {
  const keys = Int32Array.from({ length: 300_000 }, (_, row) => Math.imul(row, 0x9e3779b1));
  for (const at of [299_999, 250_000, 1000]) {
    keys[at] = keys[at - 500]!;
    const of = new arrow.Table({ id: arrow.makeVector(keys) });
    const error = await failure((await engine).joinCount(of, of, { on: 'id', validate: '1:m' }));
    expect(error.message).toContain(`rows ${at - 500} and ${at} have the same: "id" ${keys[at]}.`);
  }
});

test('typed arrays', async () => {
  const pairs = (...keys: number[]) => ({ keys: Int32Array.from(keys), values: Int32Array.from(keys) });
  const error = await failure((await engine).joinKeys(pairs(1, 2), pairs(5, 6, 5), { validate: '1:1' }));
  expect(error.code).toBe('ERR_DUPLICATE_KEY');
  expect(error.message).toContain('of the s table once');
});
