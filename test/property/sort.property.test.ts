import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Engine } from '../../lib/index.js';
import { DEVICE_COUNTS, onGpus } from '../support/engines.js';
import { checkPayload, KEY_TYPES, makeTable, nullRates, rowCounts, SPREADS, seeds } from './cases.js';
import { parameters, setUp } from './run.js';

const setup = setUp();

const column = fc.record({
  type: fc.constantFrom(...KEY_TYPES),
  spread: fc.constantFrom(...SPREADS),
  nullRate: nullRates,
  descending: fc.boolean(),
  nullsLast: fc.boolean(),
});

const sortCase = fc.record({
  seed: seeds,
  rows: rowCounts,
  tableChunks: fc.integer({ min: 1, max: 4 }),
  columns: fc.array(column, { minLength: 1, maxLength: 3 }),
  devices: fc.constantFrom(...DEVICE_COUNTS),
  algorithm: fc.constantFrom('auto' as const, 'merge' as const, 'radix' as const, 'sample' as const),
  chunksets: fc.constantFrom(1, 1, 2, 3, 5, 9),
});

test('sort gives the order that DuckDB gives, stable', async () => {
  const chunksetsSeen = new Set<number>();
  await fc.assert(
    fc.asyncProperty(sortCase, async ({ seed, rows, tableChunks, columns, devices, algorithm, chunksets }) => {
      const specs = columns.map((spec, i) => ({ name: `k${i}`, ...spec }));
      const input = makeTable(seed, 't_', rows, tableChunks, specs);
      await setup.oracle.load('t', input);
      const order = specs.map((s) => `${s.name} ${s.descending ? 'DESC' : 'ASC'} NULLS ${s.nullsLast ? 'LAST' : 'FIRST'}`);
      const expected = ((await setup.oracle.columns(`SELECT row FROM t ORDER BY ${order.join(', ')}, row`))[0] ?? []) as number[];

      const by = specs.map((s) => ({ column: s.name, descending: s.descending, nullsLast: s.nullsLast }));
      const run = async (engine: Engine) => {
        const sorted = await engine.sort(input.table, { by, algorithm });
        chunksetsSeen.add(sorted.stats.chunksets);
        expect(checkPayload(sorted, 't_', expected)).toBeUndefined();
        for (const { name } of specs) {
          const got = sorted.getChild(name)!;
          const from = input.table.getChild(name)!;
          for (let i = 0; i < rows; ++i) {
            const want = from.get(expected[i]!);
            if (!Object.is(got.get(i), want)) expect.fail(`${name}[${i}] is ${got.get(i)}, not ${want}`);
          }
        }
      };
      const room = { devices, rows, chunksets, algorithm: algorithm === 'auto' ? ('merge' as const) : algorithm, extraBytes: 0 };
      await setup.onEngine(room, run);
    }),
    parameters(500),
  );
  // GPUs take more memory than nine chunksets of so few rows would.
  expect([...chunksetsSeen]).toEqual(expect.arrayContaining(onGpus ? [1, 2] : [1, 2, 3, 5]));
  if (!onGpus) expect(Math.max(...chunksetsSeen)).toBeGreaterThanOrEqual(9);
});
