import { type RecordBatch, Table } from 'apache-arrow';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Engine, Stats } from '../../lib/index.js';
import { DEVICE_COUNTS, inspectedEngine, onGpus } from '../support/engines.js';
import {
  bufferBytes,
  type ColumnSpec,
  checkOraclePayload,
  checkPayload,
  KEY_TYPES,
  type KeyType,
  makeTable,
  nullRates,
  OTHER_KEY_TYPES,
  payloadKinds,
  rowCounts,
  SPREADS,
  same,
  seeds,
} from './cases.js';
import { duckdbValues, PAYLOAD_KINDS, type PayloadKind, type Plain } from './payload.js';
import { parameters, Seen, setUp, sortRoom, TIMEOUT } from './run.js';

const setup = setUp();

const ALGORITHMS = ['auto', 'merge', 'radix', 'sample'] as const;
/** What GPUs keep of a loaded table. */
const THERE = KEY_TYPES.filter((type) => type !== 'utf8');
const INTEGERS = ['int32', 'int64', 'uint32', 'uint64', 'date', 'timestamp'] as const satisfies KeyType[];

const columnOf = (types: readonly KeyType[], nullRate: fc.Arbitrary<number>, dictionaries = false) =>
  fc.record({
    type: fc.constantFrom(...types),
    spread: fc.constantFrom(...SPREADS),
    nullRate,
    descending: fc.boolean(),
    nullsLast: fc.boolean(),
    dictionary: fc.constantFrom(false, false, false, dictionaries),
  });

const common = {
  seed: seeds,
  rows: rowCounts,
  devices: fc.constantFrom(...DEVICE_COUNTS),
  chunksets: fc.constantFrom(1, 1, 2, 3, 5, 9),
  maxBufferBytes: bufferBytes,
  payload: payloadKinds,
};

interface SortCase {
  seed: number;
  rows: number;
  tableChunks: number;
  columns: (Omit<ColumnSpec, 'name'> & { descending: boolean; nullsLast: boolean })[];
  devices: number;
  algorithm: (typeof ALGORITHMS)[number];
  chunksets: number;
  maxBufferBytes: number | null;
  payload: readonly PayloadKind[];
  /** Left out: all rows. */
  limit?: number;
  offset?: number;
}

/** A table to sort, and the order of its rows that DuckDB gives. */
async function sortInput(
  seed: number,
  rows: number,
  tableChunks: number,
  columns: SortCase['columns'],
  payload: readonly PayloadKind[] = [],
) {
  const specs = columns.map((spec, i) => ({ name: `k${i}`, ...spec }));
  const input = makeTable(seed, 't_', rows, tableChunks, specs, payload);
  const order = specs.map((s) => `${s.name} ${s.descending ? 'DESC' : 'ASC'} NULLS ${s.nullsLast ? 'LAST' : 'FIRST'}`);
  const wanted = ['row', ...Object.keys(input.payload)].join(', ');
  const [numbers, ...values] = await setup.oracle.columns(
    { t: input },
    `SELECT ${wanted} FROM t ORDER BY ${order.join(', ')}, row`,
  );
  const expected = (numbers ?? []) as number[];
  const expectedPayload = Object.entries(input.payload).map(([name, { of }], at) => [name, duckdbValues(of, values[at] ?? [])]);
  const by = specs.map((s) => ({ column: s.name, descending: s.descending, nullsLast: s.nullsLast }));
  return { input, by, expected, expectedPayload: Object.fromEntries(expectedPayload) as Record<string, Plain[]> };
}

type Sorted = Awaited<ReturnType<typeof sortInput>>;

/** Whether a result has these rows of the input, in this order. */
function checkRows(
  sorted: Table,
  input: Sorted['input'],
  by: Sorted['by'],
  expected: number[],
  payload: Sorted['expectedPayload'],
): void {
  expect(sorted.numRows).toBe(expected.length);
  expect(checkPayload(sorted, 't_', expected)).toBeUndefined();
  expect(checkOraclePayload(sorted, input.payload, payload)).toBeUndefined();
  for (const { column: name } of by) {
    const got = sorted.getChild(name)!;
    const from = input.table.getChild(name)!;
    for (let i = 0; i < expected.length; ++i) {
      const want = from.get(expected[i]!);
      if (!same(got.get(i), want)) expect.fail(`${name}[${i}] is ${got.get(i)}, not ${want}`);
    }
  }
}

/** Sorts and compares with DuckDB; returns the stats. */
async function checkSort(sortCase: SortCase): Promise<Stats> {
  const { seed, rows, tableChunks, columns, devices, algorithm, chunksets, maxBufferBytes } = sortCase;
  const { input, by, expected: all, expectedPayload } = await sortInput(seed, rows, tableChunks, columns, sortCase.payload);
  const { limit = rows, offset = 0 } = sortCase;
  const expected = all.slice(offset, offset + limit);
  const payload = Object.entries(expectedPayload).map(([name, values]) => [name, values.slice(offset, offset + limit)]);
  const range = 'limit' in sortCase ? { limit, offset } : {};
  let stats: Stats | undefined;
  const run = async (engine: Engine) => {
    const sorted = await engine.sort(input.table, { by, algorithm, ...range });
    stats = sorted.stats;
    checkRows(sorted, input, by, expected, Object.fromEntries(payload));
  };
  await setup.onEngine(sortRoom(rows, chunksets, devices, algorithm === 'auto' ? 'merge' : algorithm), maxBufferBytes, run);
  return stats!;
}

test('sort gives the order that DuckDB gives, stable', { timeout: TIMEOUT }, async () => {
  const sortCase = fc.record({
    ...common,
    tableChunks: fc.integer({ min: 1, max: 4 }),
    columns: fc.array(columnOf(KEY_TYPES, nullRates, true), { minLength: 1, maxLength: 4 }),
    algorithm: fc.constantFrom(...ALGORITHMS),
  });
  const seen = new Seen();
  await fc.assert(
    fc.asyncProperty(sortCase, async (c) => {
      const { chunksets, algorithm } = await checkSort(c);
      seen.add(`${chunksets} chunksets`, algorithm, `${c.devices} devices`, `${c.columns.length} keys`);
      if (chunksets >= 6) seen.add('6 chunksets or more');
      seen.add(...c.columns.map(({ type }) => type), ...c.payload);
    }),
    parameters(500),
  );
  // GPUs take more memory than nine chunksets of so few rows would.
  seen.expect('merge', 'radix', 'sample', ...KEY_TYPES, ...PAYLOAD_KINDS);
  seen.expect(...DEVICE_COUNTS.map((count) => `${count} devices`), ...[1, 2, 3, 4].map((count) => `${count} keys`));
  // GPUs take more memory than nine chunksets of so few rows would.
  seen.expect('1 chunksets', '2 chunksets', ...(onGpus ? [] : ['3 chunksets', '6 chunksets or more']));
});

test('sort takes keys of every type, and gives some rows of the order', { timeout: TIMEOUT }, async () => {
  const sortCase = fc.record({
    ...common,
    tableChunks: fc.integer({ min: 1, max: 4 }),
    columns: fc.array(
      fc.oneof(columnOf(OTHER_KEY_TYPES, nullRates, true), columnOf([...KEY_TYPES, ...OTHER_KEY_TYPES], nullRates, true)),
      {
        minLength: 1,
        maxLength: 4,
      },
    ),
    algorithm: fc.constantFrom('auto' as const, 'auto' as const, ...ALGORITHMS),
    limit: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 3000 }), fc.constant(Number.MAX_SAFE_INTEGER)),
    offset: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 50 }), fc.integer({ min: 0, max: 5000 })),
  });
  const seen = new Seen();
  await fc.assert(
    fc.asyncProperty(sortCase, async (c) => {
      seen.add((await checkSort(c)).algorithm, ...c.columns.map(({ type }) => type));
    }),
    parameters(500),
  );
  seen.expect('top', 'merge', 'radix', 'sample', ...OTHER_KEY_TYPES);
});

test('sortBatches gives the order that DuckDB gives, through runs on disk', { timeout: TIMEOUT }, async () => {
  const sortCase = fc.record({
    ...common,
    columns: fc.array(columnOf([...KEY_TYPES, ...OTHER_KEY_TYPES], nullRates, true), { minLength: 1, maxLength: 3 }),
    inputRows: fc.constantFrom(1, 7, 100, 1000, 12_000),
    batchRows: fc.constantFrom(1, 50, 1 << 16),
    // Into which the input is cut, or so: 1 needs no runs.
    parts: fc.constantFrom(1, 2, 4, 12, 40),
    limit: fc.oneof(fc.constant(Number.MAX_SAFE_INTEGER), fc.integer({ min: 0, max: 3000 })),
    offset: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 2000 })),
  });
  const seen = new Seen();
  await fc.assert(
    fc.asyncProperty(sortCase, async ({ seed, rows, columns, devices, payload, inputRows, batchRows, parts, limit, offset }) => {
      const { input, by, expected, expectedPayload } = await sortInput(seed, rows, 3, columns, payload);
      const { engine, inner } = inspectedEngine(devices, { threads: 2, memoryLimit: '512MiB' });
      const memory = inner.memory.bind(inner);
      const bytes = input.table.batches.reduce((sum, { data }) => sum + data.byteLength, 0);
      const freeBytes = Math.ceil((8 * Math.max(bytes, 1)) / (parts === 1 ? 0.1 : parts)); // parts take an eighth of it
      let asked = 0;
      Object.defineProperty(inner, 'memory', {
        value: () => (asked++ === 0 ? { ...memory(), usedBytes: 0, limitBytes: freeBytes } : memory()),
      });
      async function* source() {
        // At most 60 batches: beside so few rows their overhead fills the memory, so each may be a run, and merges make as many again.
        const step = Math.max(inputRows, Math.ceil(rows / 60));
        for (let row = 0; row < Math.max(1, rows); row += step) yield input.table.slice(row, row + step);
      }
      const sorted = engine.sortBatches(source(), { by, limit, offset, batchRows });
      const found: RecordBatch[] = [];
      for await (const batch of sorted) found.push(batch);
      const some = Object.entries(expectedPayload).map(([name, values]) => [name, values.slice(offset, offset + limit)]);
      checkRows(new Table(found), input, by, expected.slice(offset, offset + limit), Object.fromEntries(some));
      expect(Math.max(...found.map(({ numRows }) => numRows))).toBeLessThanOrEqual(batchRows);
      const { runs, spilledBytes, readBytes } = sorted.stats;
      if (limit > expected.length) expect(readBytes).toBe(spilledBytes);
      seen.add(runs > 8 ? 'more than 8 runs' : `${Math.min(runs, 2)} runs`);
      await engine.dispose();
    }),
    parameters(120),
  );
  seen.expect('0 runs', '2 runs', 'more than 8 runs');
});

test('sort takes integers as they are', { timeout: TIMEOUT }, async () => {
  const sortCase = fc.record({
    ...common,
    tableChunks: fc.constantFrom(1, 1, 1, 2),
    columns: fc.tuple(columnOf(INTEGERS, fc.constantFrom(0, 0, 0, 0.1))),
    algorithm: fc.constantFrom('sample' as const, 'auto' as const),
  });
  const seen = new Seen();
  await fc.assert(
    fc.asyncProperty(sortCase, async (c) => {
      const { steps, algorithm } = await checkSort(c);
      if (algorithm === 'sample' && steps.some(({ name }) => name === 'column k0 (the keys)')) seen.add('as they are');
    }),
    parameters(200),
  );
  seen.expect('as they are');
});

test('a loaded table is sorted where it lies', { timeout: TIMEOUT }, async () => {
  const sortCase = fc.record({
    seed: seeds,
    rows: rowCounts,
    devices: common.devices,
    columns: fc.oneof(
      fc.tuple(columnOf(INTEGERS, fc.constant(0))),
      fc.array(columnOf(THERE, nullRates), { minLength: 1, maxLength: 3 }),
    ),
    payload: fc.subarray(['t_row', 't_flag', 't_real', 'k0'], { minLength: 1 }),
    maxBufferBytes: bufferBytes,
  });
  const there = new Seen();
  await fc.assert(
    fc.asyncProperty(sortCase, async ({ seed, rows, devices, columns, payload, maxBufferBytes }) => {
      const { input, by, expected } = await sortInput(seed, rows, 2, columns);
      await setup.onEngine({ devices, chunksets: 1, bytes: () => 0 }, maxBufferBytes, async (engine) => {
        await using loaded = await engine.load(input.table);
        await using sorted = await engine.sort(loaded, { by, select: payload, resident: true });
        const { type, nullRate } = columns[0]!;
        const isKey = columns.length === 1 && nullRate === 0 && (INTEGERS as readonly KeyType[]).includes(type);
        if (sorted.stats.resident.length > 0) there.add(isKey ? 'as they are' : 'made');
        const home = await sorted.toArrow();
        for (const name of payload) {
          const [got, from] = [home.getChild(name)!, input.table.getChild(name)!];
          for (let i = 0; i < rows; ++i) {
            if (!Object.is(got.get(i), from.get(expected[i]!))) expect.fail(`${name}[${i}] is ${got.get(i)}`);
          }
        }
      });
    }),
    parameters(150),
  );
  if (onGpus) there.expect('as they are', 'made');
});
