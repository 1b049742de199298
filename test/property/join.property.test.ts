import { type RecordBatch, Table } from 'apache-arrow';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Engine, WarpjoinError } from '../../lib/index.js';
import { DEVICE_COUNTS, hashJoin, inspectedEngine, onGpus } from '../support/engines.js';
import {
  bufferBytes,
  type CaseTable,
  checkOraclePayload,
  checkPayload,
  isHeavy,
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
import { matches } from './oracle.js';
import { duckdbValues, PAYLOAD_KINDS, type Plain } from './payload.js';
import { joinRoom, parameters, Seen, setUp, TIMEOUT } from './run.js';

const setup = setUp();

const INTEGERS: readonly KeyType[] = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'];
const KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti'] as const;
const TEXTS = ['utf8', 'large_utf8', 'utf8_view', 'dictionary'] as const satisfies KeyType[];
/** Types of which any two compare. */
const COMPARABLE: readonly (readonly KeyType[])[] = [
  INTEGERS,
  ['decimal64', 'decimal128', 'decimal256', 'int32', 'int64', 'uint64'],
  ['float32', 'float64'],
  ['date', 'date_ms', 'timestamp', 'timestamp_s', 'timestamp_ns'],
  TEXTS,
  ['binary', 'binary_view', 'binary5', 'binary11'],
];

/** Types of columns that GPUs hold. */
const PLAIN: readonly KeyType[] = KEY_TYPES.filter((type) => type !== 'utf8');

/** Key types that compare: mostly the same on both sides. */
const keyTypes: fc.Arbitrary<readonly [KeyType, KeyType]> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...KEY_TYPES).map((type) => [type, type] as const) },
  { weight: 2, arbitrary: fc.constantFrom(...OTHER_KEY_TYPES).map((type) => [type, type] as const) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(...COMPARABLE).chain((types) => fc.tuple(fc.constantFrom(...types), fc.constantFrom(...types))),
  },
);

/** One column of each side. */
const key = fc.record({
  types: keyTypes,
  leftSpread: fc.constantFrom(...SPREADS),
  rightSpread: fc.constantFrom(...SPREADS),
  leftNulls: nullRates,
  rightNulls: nullRates,
  /** Whether the columns have dictionaries. */
  dictionaries: fc.constantFrom<readonly boolean[]>([false, false], [false, false], [true, true], [true, false], [false, true]),
  nullsEqual: fc.boolean(),
});
/** The columns beside the first one: of few values, for rows to match. */
const otherKeys = fc.array(
  fc.record({ key, spread: fc.constantFrom('few' as const, 'equal' as const, 'zipf' as const, null) }).map(({ key, spread }) => {
    return spread ? { ...key, leftSpread: spread, rightSpread: spread } : key;
  }),
  { maxLength: 3 },
);

const inputs = {
  seed: seeds,
  keys: fc.tuple(key, otherKeys).map(([first, others]) => [first, ...others]),
  leftRows: rowCounts,
  rightRows: rowCounts,
  leftChunks: fc.integer({ min: 1, max: 4 }),
  rightChunks: fc.integer({ min: 1, max: 4 }),
  how: fc.constantFrom(...KINDS),
  devices: fc.constantFrom(...DEVICE_COUNTS),
  buildSide: fc.constantFrom('auto' as const, 'left' as const, 'right' as const),
  maxBufferBytes: bufferBytes,
  leftPayload: payloadKinds,
  rightPayload: payloadKinds,
};
const room = {
  algorithm: fc.constantFrom('auto' as const, hashJoin, 'sort-merge' as const),
  chunksets: fc.constantFrom(1, 1, 2, 3, 5, 9, 12),
};
const manyRows = fc.integer({ min: 2000, max: 5000 });
const matching = fc.constantFrom('uniform' as const, 'sorted' as const);
/** Joins of so many rows that match that too little room for them is more than what a join of one row takes. */
const largeJoins = fc.record({
  ...inputs,
  ...room,
  keys: fc
    .record({ key, leftSpread: matching, rightSpread: matching })
    .map(({ key, ...spreads }) => [{ ...key, ...spreads, leftNulls: 0 as const, rightNulls: 0 as const }]),
  leftRows: manyRows,
  rightRows: manyRows,
  chunksets: fc.constantFrom(2, 3, 5, 9, 12),
});
const plainTexts = fc.constantFrom(...TEXTS.filter((type) => type !== 'dictionary'));
/** Joins by texts of which one side has each once: those too long to be packed, without nulls and dictionaries. */
const lookups = fc.record({
  ...inputs,
  ...room,
  algorithm: fc.constant('auto' as const),
  keys: fc.record({ key, types: fc.tuple(plainTexts, plainTexts) }).map(({ key, types }) => [
    {
      ...key,
      types,
      leftSpread: 'unique' as const,
      rightSpread: 'unique' as const,
      leftNulls: 0 as const,
      rightNulls: 0 as const,
      dictionaries: [false, false],
      nullsEqual: false,
    },
  ]),
});
const joinCase = fc.oneof(
  { weight: 12, arbitrary: fc.record({ ...inputs, ...room }) },
  { weight: 2, arbitrary: largeJoins },
  { weight: 1, arbitrary: lookups },
);

const MOST_PAIRS = 200_000;
/** As many with payload that DuckDB holds, too. */
const MOST_PAYLOAD_PAIRS = 5000;

type JoinInputs = { [K in keyof typeof inputs]: (typeof inputs)[K] extends fc.Arbitrary<infer T> ? T : never };

/** Two tables to join, and what DuckDB gives: the pairs of their rows, and the payload of these. */
async function joinInputs(c: JoinInputs) {
  // Products of two constant columns get large fast; a smaller side keeps the case and not the cost.
  const heavy = ({ types, leftSpread, rightSpread, leftNulls, rightNulls, nullsEqual }: (typeof c.keys)[number]) =>
    isHeavy(types[0], leftSpread) || isHeavy(types[1], rightSpread) || (nullsEqual && leftNulls > 0 && rightNulls > 0);
  const most = c.leftPayload.length + c.rightPayload.length > 0 ? MOST_PAYLOAD_PAIRS : MOST_PAIRS;
  const bound = c.keys.every(heavy) ? most / Math.max(1, c.leftRows) : Number.POSITIVE_INFINITY;
  const rightRows = Math.floor(Math.min(c.rightRows, bound));
  const left = makeTable(
    c.seed,
    'l_',
    c.leftRows,
    c.leftChunks,
    c.keys.map(({ types, leftSpread, leftNulls, dictionaries }, index) => {
      return { name: nameOf(index), type: types[0], spread: leftSpread, nullRate: leftNulls, dictionary: dictionaries[0]! };
    }),
    c.leftPayload,
  );
  const right = makeTable(
    c.seed + 1,
    'r_',
    rightRows,
    c.rightChunks,
    c.keys.map(({ types, rightSpread, rightNulls, dictionaries }, index) => {
      return { name: nameOf(index), type: types[1], spread: rightSpread, nullRate: rightNulls, dictionary: dictionaries[1]! };
    }),
    c.rightPayload,
  );
  const leftOnly = c.how === 'semi' || c.how === 'anti';
  const rows = leftOnly ? ['l.row'] : ['l.row', 'r.row'];
  const payload = { ...left.payload, ...(leftOnly ? {} : right.payload) };
  const columns = [...rows, ...Object.keys(payload)].join(', ');
  const on = c.keys.map(({ types, nullsEqual }, index) => matches(types, nameOf(index), nullsEqual));
  const sql = `SELECT ${columns} FROM l ${c.how} JOIN r ON ${on.join(' AND ')}`;
  const names = c.keys.map((_, index) => nameOf(index));
  const nullsEqual = c.keys.map((key) => key.nullsEqual);
  const found = await setup.oracle.columns({ l: left, r: right }, sql);
  const expected = inOrder(found.slice(0, rows.length) as (number | null)[][]);
  const oraclePayload = Object.entries(payload).map(([name, { of }], index) => {
    const values = duckdbValues(of, found[rows.length + index] ?? []);
    return [name, expected.order.map((row) => values[row]!)];
  });
  return {
    left,
    right,
    leftOnly,
    names,
    nullsEqual,
    expected: expected.pairs,
    payload,
    /** By column, in the order of the pairs. */
    expectedPayload: Object.fromEntries(oraclePayload) as Record<string, Plain[]>,
  };
}

/** The name of a key column of both tables. */
const nameOf = (index: number): string => (index === 0 ? 'k' : `k${index}`);

test(
  'join gives the rows that DuckDB gives',
  async () => {
    const seen = new Seen();
    await fc.assert(
      fc.asyncProperty(joinCase, async (c) => {
        const inputs = await joinInputs(c);
        const { left, right, names, nullsEqual } = inputs;
        const run = async (engine: Engine) => {
          const matching = { on: names, nullsEqual, how: c.how, algorithm: c.algorithm };
          const options = { ...matching, buildSide: c.buildSide, coalesce: false } as const;
          const joined = await engine.join(left.table, right.table, options);
          const { algorithm, chunksets } = joined.stats;
          seen.add(algorithm, `${chunksets} chunksets`, `${c.devices} devices`, c.how, `${names.length} keys`);
          if (chunksets >= 8) seen.add('8 chunksets or more');
          seen.add(...c.keys.flatMap(({ types }) => types));
          checkJoined(joined, inputs);
          if (joined.numRows > 0) seen.add(...Object.values(inputs.payload).map(({ of }) => of.kind));
          expect(await engine.joinCount(left.table, right.table, matching)).toBe(joined.numRows);
        };
        const algorithm = c.algorithm === 'sort-merge' ? 'sort-merge' : hashJoin;
        const keys = names.map((name, index) => ({ left: name, right: name, nullsEqual: nullsEqual[index]! }));
        const tables = { left: left.table, right: right.table, keys, how: c.how, algorithm } as const;
        await setup.onEngine(joinRoom(tables, c.chunksets, c.devices), c.maxBufferBytes, run);
      }),
      parameters(500),
    );
    seen.expect(hashJoin, 'sort-merge', 'lookup', ...KINDS, ...KEY_TYPES, ...OTHER_KEY_TYPES, ...PAYLOAD_KINDS);
    seen.expect(...DEVICE_COUNTS.map((count) => `${count} devices`), ...[1, 2, 3, 4].map((count) => `${count} keys`));
    // GPUs take more memory than nine chunksets, or rounds, of so few rows would.
    seen.expect('1 chunksets', '2 chunksets', ...(onGpus ? [] : ['8 chunksets or more']));
  },
  TIMEOUT,
);

test('joinBatches gives the rows that DuckDB gives, whatever comes at once, also through temporary files', {
  timeout: TIMEOUT,
}, async () => {
  const batchRows = fc.constantFrom(1, 7, 100, 1000, 12_000);
  const joinCase = fc.record({
    ...inputs,
    buildSide: fc.constantFrom('left' as const, 'right' as const),
    algorithm: room.algorithm,
    leftBatch: batchRows,
    rightBatch: batchRows,
    batchRows: fc.constantFrom(1, 50, 1 << 16),
    /** Whether rows are wanted in the order of the other side. */
    isOrdered: fc.boolean(),
    /** Sides that are to have each key once. */
    unique: fc.constantFrom<('left' | 'right')[]>([], [], ['left'], ['right'], ['left', 'right']),
    // So many times what is taken for free memory does the build side take, about: more than 1 needs partitions.
    times: fc.constantFrom(0, 0, 2, 8, 24),
  });
  const seen = new Seen();
  const isUnique = async (of: CaseTable, names: readonly string[], nullsEqual: readonly boolean[]): Promise<boolean> => {
    const there = names.map((name, index) => (nullsEqual[index] ? 'TRUE' : `${name} IS NOT NULL`)).join(' AND ');
    const groups = `SELECT count(*) AS times FROM t WHERE ${there} GROUP BY ${names}`;
    return (await setup.oracle.columns({ t: of }, `SELECT 1 FROM (${groups}) WHERE times > 1 LIMIT 1`)).length === 0;
  };
  await fc.assert(
    fc.asyncProperty(joinCase, async (c) => {
      const inputs = await joinInputs(c);
      const { left, right, names, nullsEqual, leftOnly } = inputs;
      const isOrdered = c.isOrdered && !(leftOnly && c.buildSide === 'left');
      const { engine, inner } = inspectedEngine(c.devices, { threads: 2, memoryLimit: '1GiB' });
      const { table: probe } = c.buildSide === 'left' ? right : left;
      const { table: build } = c.buildSide === 'left' ? left : right;
      const memory = inner.memory.bind(inner);
      const bytesOf = ({ batches }: Table): number => batches.reduce((sum, { data }) => sum + data.byteLength, 0);
      // A probe side that is much larger would go in thousands of parts.
      const bytes = Math.max(bytesOf(build), bytesOf(probe) / 10);
      let asked = 0;
      const free = () => ({ ...memory(), usedBytes: 0, limitBytes: Math.ceil((4 * bytes) / c.times) });
      Object.defineProperty(inner, 'memory', { value: () => (c.times > 0 && asked++ === 0 ? free() : memory()) });
      // Parts double, from one batch to an eighth of the memory.
      let pieces = 0;
      async function* source({ table, rows }: CaseTable, batch: number) {
        const step = Math.max(batch, Math.ceil(rows / 60));
        for (let row = 0; row < Math.max(1, rows); row += step) {
          if (table === probe) ++pieces;
          yield table.slice(row, row + step);
        }
      }
      const joined = engine.joinBatches(source(left, c.leftBatch), source(right, c.rightBatch), {
        on: names,
        nullsEqual,
        how: c.how,
        algorithm: c.algorithm,
        buildSide: c.buildSide,
        maintainOrder: isOrdered ? (c.buildSide === 'left' ? 'right' : 'left') : 'none',
        batchRows: c.batchRows,
        coalesce: false,
        validate: `${c.unique.includes('left') ? '1' : 'm'}:${c.unique.includes('right') ? '1' : 'm'}`,
      });
      let isValid = true;
      for (const side of c.unique) isValid &&= await isUnique(side === 'left' ? left : right, names, nullsEqual);
      const found: RecordBatch[] = [];
      try {
        for await (const batch of joined) found.push(batch);
      } catch (error) {
        const { code, message } = error as WarpjoinError;
        if (!isValid && code === 'ERR_DUPLICATE_KEY')
          seen.add(`not valid, ${joined.stats.runs === 0 ? 'in memory' : 'through files'}`);
        else expect(message).toMatch(/can't be sorted by their keys/); // where one key has most of the rows
        return engine.dispose();
      }
      expect(isValid).toBe(true);
      checkJoined(new Table(found), inputs);
      if (isOrdered && !leftOnly) {
        const [leftRows, rightRows] = ['l_row', 'r_row'].map((name) => rowsOf(new Table(found), name)) as [number[], number[]];
        const [first, second] = c.buildSide === 'right' ? [0, 1] : [1, 0];
        const wanted = orderedPairs(inputs.expected, first, second);
        expect(leftRows.map((row, i) => `${row} ${rightRows[i]}`)).toEqual(wanted);
      }
      expect(Math.max(...found.map(({ numRows }) => numRows))).toBeLessThanOrEqual(c.batchRows);
      const { runs, spilledBytes, readBytes } = joined.stats;
      expect(readBytes).toBe(spilledBytes);
      seen.add(`${runs === 0 ? 'in memory' : 'through files'}${isOrdered ? ', in order' : ''}`);
      if (c.unique.length > 0) seen.add(`valid, ${runs === 0 ? 'in memory' : 'through files'}`);
      seen.add(
        `${c.how} with the ${c.buildSide} side first`,
        pieces > 8 ? 'more than 8 pieces' : `${Math.min(pieces, 2)} pieces`,
      );
      await engine.dispose();
    }),
    parameters(200),
  );
  seen.expect(...KINDS.flatMap((how) => ['left', 'right'].map((side) => `${how} with the ${side} side first`)));
  seen.expect('1 pieces', '2 pieces', 'more than 8 pieces');
  const wheres = ['in memory', 'through files'];
  seen.expect(...wheres.flatMap((where) => [where, `${where}, in order`, `valid, ${where}`, `not valid, ${where}`]));
});

test('tables are joined where they lie, loaded and lent', { timeout: TIMEOUT }, async () => {
  const plain = key
    .filter(({ types }) => types.every((type) => PLAIN.includes(type)) && (types[0] === types[1] || INTEGERS.includes(types[0])))
    .map((key) => ({ ...key, dictionaries: [false, false] }));
  const few = plain.map((key) => ({ ...key, leftSpread: 'few' as const, rightSpread: 'few' as const }));
  const there = fc.record({
    ...inputs,
    keys: fc.tuple(plain, fc.array(few, { maxLength: 2 })).map(([first, others]) => [first, ...others]),
    // All may match all, and results are compared row by row.
    leftRows: fc.nat({ max: 400 }),
    rightRows: fc.nat({ max: 400 }),
    columns: fc.subarray(['k', 'k_right', 'l_flag', 'r_real']),
    order: fc.constantFrom('none' as const, 'left' as const, 'right' as const),
    /** The rows that are wanted of an order. */
    window: fc.constantFrom(null, null, { offset: 0, limit: 7 }, { offset: 20, limit: 300 }),
    leftPayload: fc.constant([]),
    rightPayload: fc.constant([]),
  });
  const joinedThere = new Seen();
  await fc.assert(
    fc.asyncProperty(there, async (c) => {
      const { left, right, leftOnly, names, nullsEqual, expected } = await joinInputs(c);
      const ofLeft = (name: string) => name === 'k' || name === 'l_flag';
      const wanted = leftOnly ? ['l_row', ...c.columns.filter(ofLeft)] : ['l_row', 'r_row', ...c.columns];
      const { how, buildSide, order } = c;
      const window = order === 'none' ? null : c.window;
      const matching = { on: names, nullsEqual, how };
      const options = { ...matching, buildSide, coalesce: false, select: wanted, maintainOrder: order, ...window } as const;
      const check = (home: Table) => {
        const leftRows = rowsOf(home, 'l_row');
        const rightRows = leftOnly ? [] : rowsOf(home, 'r_row');
        const rows = leftOnly ? [leftRows] : [leftRows, rightRows];
        if (order === 'none') {
          expect(inOrder(rows).pairs).toEqual(expected);
        } else {
          const [first, second] = order === 'left' || leftOnly ? [0, 1] : [1, 0];
          const wantedRows = orderedPairs(expected, first, second).slice(
            window?.offset,
            window ? window.offset + window.limit : undefined,
          );
          expect(leftRows.map((row, i) => (leftOnly ? [row] : [row, rightRows[i]]).map(String).join(' '))).toEqual(wantedRows);
        }
        for (const name of wanted.slice(leftOnly ? 1 : 2)) {
          const [source, rows] = ofLeft(name) ? [left.table, leftRows] : [right.table, rightRows];
          checkColumn(home, name, source, name === 'k_right' ? 'k' : name, rows);
        }
        return home.numRows;
      };
      await setup.onEngine({ devices: c.devices, chunksets: 1, bytes: () => 0 }, c.maxBufferBytes, async (engine) => {
        await using one = await engine.load(left.table);
        await using other = await engine.load(right.table);
        await using joined = await engine.join(one, other, { ...options, resident: true });
        if (joined.stats.residentReason === 'joined where they lie') joinedThere.add(c.how, `in order of ${order}`);
        const rows = check(await joined.toArrow());
        const lent = await engine.join(left.table, right.table, options);
        if (lent.stats.steps.some(({ name }) => name === 'move left to the devices'))
          joinedThere.add(`lent, in order of ${order}`);
        expect(check(lent)).toBe(rows);
        if (!window) expect(await engine.joinCount(one, other, matching)).toBe(rows);
        if (!window) expect(await engine.joinCount(left.table, right.table, matching)).toBe(rows);
      });
    }),
    parameters(300),
  );
  if (onGpus)
    joinedThere.expect(...KINDS, ...['none', 'left', 'right'].flatMap((of) => [`in order of ${of}`, `lent, in order of ${of}`]));
});

/** Whether a join that keeps both key columns has the rows that DuckDB gives. */
function checkJoined(joined: Table, of: Awaited<ReturnType<typeof joinInputs>>): void {
  const { left, right, leftOnly, names, expected, payload, expectedPayload } = of;
  const leftRows = rowsOf(joined, 'l_row');
  const rightRows = leftOnly ? leftRows : rowsOf(joined, 'r_row');
  const { pairs, order } = inOrder(leftOnly ? [leftRows] : [leftRows, rightRows]);
  expect(pairs).toEqual(expected);
  expect(checkOraclePayload(joined, payload, expectedPayload, order)).toBeUndefined();
  expect(checkPayload(joined, 'l_', leftRows)).toBeUndefined();
  if (!leftOnly) expect(checkPayload(joined, 'r_', rightRows)).toBeUndefined();
  for (const name of names) {
    checkColumn(joined, name, left.table, name, leftRows);
    if (!leftOnly) checkColumn(joined, `${name}_right`, right.table, name, rightRows);
  }
}

/** Pairs of rows, as inOrder() has them, in the order of their rows of one side and then of the other; rows that are missing last. */
function orderedPairs(pairs: readonly string[], first: number, second: number): string[] {
  const rowOf = (pair: string, side: number): number => {
    const row = pair.split(' ')[side] ?? '0';
    return row === 'null' ? Number.POSITIVE_INFINITY : Number(row);
  };
  const compare = (a: number, b: number): number => (a < b ? -1 : a > b ? 1 : 0);
  return [...pairs].sort((a, b) => compare(rowOf(a, first), rowOf(b, first)) || compare(rowOf(a, second), rowOf(b, second)));
}

/** Pairs of rows as text, in an order that does not depend on theirs, and where each of them was. */
function inOrder(columns: ArrayLike<unknown>[]): { pairs: string[]; order: number[] } {
  const texts = Array.from({ length: columns[0]?.length ?? 0 }, (_, i) => columns.map((column) => String(column[i])).join(' '));
  const order = texts.map((_, i) => i).sort((a, b) => (texts[a]! < texts[b]! ? -1 : texts[a]! > texts[b]! ? 1 : 0));
  return { pairs: order.map((i) => texts[i]!), order };
}

function rowsOf(
  table: { getChild(name: string): { toArray(): ArrayLike<unknown>; get(i: number): unknown; length: number } | null },
  name: string,
) {
  const column = table.getChild(name)!;
  return Array.from({ length: column.length }, (_, i) => column.get(i) as number | null);
}

function checkColumn(
  joined: { getChild(name: string): unknown },
  name: string,
  from: { getChild(name: string): unknown },
  of: string,
  rows: (number | null)[],
) {
  const got = joined.getChild(name) as { get(i: number): unknown };
  const source = from.getChild(of) as { get(i: number): unknown };
  rows.forEach((row, i) => {
    const want = row === null ? null : source.get(row);
    if (!same(got.get(i), want)) expect.fail(`${name}[${i}] is ${got.get(i)}, not ${want}`);
  });
}
