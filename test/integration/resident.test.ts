/** The addon's tables on devices, on host devices: what calls on GPUs ask for. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { nativeColumns, readTable } from '../../lib/columns/input.js';
import { type NativeEngine, type NativeResultColumn, native } from '../../lib/native.js';
import { chunked, random, table } from '../support/tables.js';

const draw = random(5);
const types = { k: new arrow.Int32(), v: new arrow.Int64(), b: new arrow.Bool(), t: new arrow.Utf8() };
const tableOf = (rows: number) =>
  chunked(
    table(types, {
      k: Array.from({ length: rows }, () => draw(400)),
      v: Array.from({ length: rows }, (_, row) => BigInt(row) << 30n),
      b: Array.from({ length: rows }, (_, row) => (draw(5) ? row % 3 === 0 : null)),
      t: Array.from({ length: rows }, String),
    }),
    [500, 701],
  );
const [left, right] = [tableOf(2000), tableOf(1500)];
/** Of a column in one chunk. */
const values = (column: NativeResultColumn | undefined): ArrayBuffer => {
  expect(column!.chunks).toHaveLength(1);
  return column!.chunks[0]!.values;
};
const request = {
  kind: 'inner',
  buildLeft: false,
  countOnly: false,
  wantKeys: true,
  wantLeft: true,
  wantRight: true,
  maxRows: Number.POSITIVE_INFINITY,
} as const;

test.each([1, 3])('tables are loaded, joined where they lie, and come home, on %i devices', async (devices) => {
  const engine: NativeEngine = new (native().Engine)({
    threads: 2,
    hostDevices: devices,
    gpus: [],
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const ordinals = [...Array(devices).keys()];
  const job = engine.createJob();
  const residentBytes = () => engine.devices().map((device) => device.residentBytes);
  const load = async (of: typeof left) => {
    const relation = await engine.relation(job, nativeColumns(readTable(of, 'input'), [0, 1, 2, 3]), of.numRows);
    const before = residentBytes();
    const bytes = engine.residentBytes(relation, [0, 1, 2], ordinals);
    const handle = await engine.loadTable(job, relation, [0, 1, 2], ordinals);
    for (const [device, now] of residentBytes().entries()) expect(now - before[device]!).toBeLessThanOrEqual(bytes);
    await expect(engine.loadTable(job, relation, [3], ordinals)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
    relation.release();
    return handle;
  };
  const [l, r] = [await load(left), await load(right)];
  expect([l.rows, l.spreadEvenly, l.nullable, r.rows]).toEqual([2000, true, [false, false, true], 1500]);
  const [k] = await engine.bringHome(job, l, [0]);
  expect(new Int32Array(values(k))).toEqual(left.getChild('k')!.toArray());
  // In pieces of 64 rows, which are 256 bytes.
  const [pieces] = await engine.bringHome(engine.createJob(300), l, [0]);
  expect(pieces!.chunks.map(({ length }) => length)).toEqual([...Array(31).fill(64), 16]);
  expect(pieces!.chunks.flatMap((chunk) => [...new Int32Array(chunk.values)])).toEqual([...left.getChild('k')!.toArray()]);

  const [one, other] = [
    { table: l, keys: [0] },
    { table: r, keys: [0] },
  ];
  const joinKeys = await engine.tableJoinKeys(job, one, other, [false]);
  expect(joinKeys).toMatchObject({ bits: 32, mostBits: 64, areColumns: true, giveLeft: [true] });
  const tables = { keys: joinKeys, payload: { left: 1, right: 1 } };
  const rows = await engine.joinTablesHome(job, tables, request);
  const pairs = (keys: ArrayBuffer, a: ArrayBuffer, b: ArrayBuffer, size: number) => {
    const [lefts, rights] = [new BigInt64Array(a, 0, size), new BigInt64Array(b, 0, size)];
    return [...new Int32Array(keys, 0, size)].map((key, row) => `${key} ${lefts[row]} ${rights[row]}`).sort();
  };
  const atHome = pairs(
    values(engine.takeJoinKeys(job, rows)),
    values(engine.takeJoinValues(job, rows, 'left')),
    values(engine.takeJoinValues(job, rows, 'right')),
    rows.size,
  );
  const expected: string[] = [];
  for (let i = 0; i < 2000; i++) {
    for (let j = 0; j < 1500; j++) {
      if (left.get(i)!.k === right.get(j)!.k) expected.push(`${left.get(i)!.k} ${left.get(i)!.v} ${right.get(j)!.v}`);
    }
  }
  expect(atHome).toEqual(expected.sort());

  const stays = await engine.joinTables(
    job,
    tables,
    request,
    [
      { from: 'right', column: null },
      { from: 'keys', pair: 0 },
      { from: 'left', column: null },
    ],
    null,
  );
  expect([stays.rows, stays.nullable]).toEqual([rows.size, [false, false, false]]);
  const [v, keys, u] = await engine.bringHome(job, stays, [0, 1, 2]);
  expect(pairs(values(keys), values(u), values(v), stays.rows)).toEqual(atHome);
  expect(engine.joinTablesDeviceBytes(tables, request)).toBeGreaterThan(0);

  const gathered = await engine.joinTables(
    job,
    { keys: joinKeys, payload: { left: null, right: null } },
    { ...request, kind: 'left', wantKeys: false },
    [{ from: 'right', column: 2 }],
    null,
  );
  expect(gathered.nullable).toEqual([true]);
  expect((await engine.bringHome(job, gathered, [0]))[0]!.nullCount).toBeGreaterThan(0);

  // 0 to 399 with 0 to 1499 shifted by 30 bits: only 0 is on both sides
  const twoTypes = await engine.tableJoinKeys(job, one, { table: r, keys: [1] }, [false]);
  expect(twoTypes).toMatchObject({ bits: 41, areColumns: false, giveLeft: [true] });
  const zeroes = await engine.joinTables(
    job,
    { keys: twoTypes, payload: { left: 1, right: 1 } },
    request,
    [
      { from: 'keys', pair: 0 },
      { from: 'left', column: null },
    ],
    null,
  );
  const [zero, ofLeft] = await engine.bringHome(job, zeroes, [0, 1]);
  const zeroRows = [...left.getChild('k')!].flatMap((k, row) => (k === 0 ? [BigInt(row) << 30n] : []));
  expect([...new BigInt64Array(values(ofLeft), 0, zeroes.rows)].sort()).toEqual(zeroRows.sort());
  expect(new Int32Array(values(zero), 0, zeroes.rows)).toEqual(new Int32Array(zeroRows.length));

  // By two columns, of which one has nulls that are equal.
  const pair = await engine.tableJoinKeys(job, { table: l, keys: [0, 2] }, { table: r, keys: [0, 2] }, [false, true]);
  expect(pair).toMatchObject({ bits: 11, areColumns: false, giveLeft: [true, true] });
  const byTwo = await engine.joinTables(
    job,
    { keys: pair, payload: { left: 1, right: 1 } },
    request,
    [
      { from: 'left', column: null },
      { from: 'keys', pair: 1 },
    ],
    null,
  );
  const ofRight = new Map<string, number>();
  for (const { k, b } of right) ofRight.set(`${k} ${b}`, (ofRight.get(`${k} ${b}`) ?? 0) + 1);
  const expectedByTwo = [...left].reduce((sum, { k, b }) => sum + (ofRight.get(`${k} ${b}`) ?? 0), 0);
  expect([byTwo.rows, byTwo.nullable]).toEqual([expectedByTwo, [false, true]]);
  expect(() => engine.tableJoinKeys(job, one, other, [])).toThrow('nullsEqual for each');
  expect(() =>
    engine.joinTables(job, { keys: pair, payload: tables.payload }, request, [{ from: 'keys', pair: 2 }], null),
  ).toThrow('columns.pair is not a pair');
  byTwo.release();
  pair.release();

  const by = [{ column: 0, descending: true, nullsLast: true }];
  const all = { first: 0, rows: 2000 };
  const asItIs = await engine.tableSortKeys(job, l, by, null);
  expect(asItIs).toMatchObject({ bits: 32, mostBits: 64, keyBytes: 4, giveColumns: true, carriesPayload: false });
  const sorted = await engine.sortTable(job, asItIs, [0, 1, 2], all);
  expect([sorted.rows, sorted.nullable]).toEqual([2000, [false, false, true]]);
  const order = [...Array(2000).keys()].sort((a, b) => left.get(b)!.k - left.get(a)!.k || a - b);
  const [sortedKeys, sortedValues, sortedBits] = await engine.bringHome(job, sorted, [0, 1, 2]);
  expect([...new Int32Array(values(sortedKeys))]).toEqual(order.map((row) => left.get(row)!.k));
  expect(new BigInt64Array(values(sortedValues))).toEqual(BigInt64Array.from(order, (row) => BigInt(row) << 30n));
  expect(sortedBits!.nullCount).toBe(left.getChild('b')!.nullCount);
  expect(engine.sortTableDeviceBytes(asItIs, [0, 1], all)).toBeGreaterThan(0);
  const two = await engine.tableSortKeys(job, l, [{ column: 2, descending: false, nullsLast: false }, by[0]!], 1);
  expect(two).toMatchObject({ bits: 11, keyBytes: 4, giveColumns: true, carriesPayload: true });
  const sortedByTwo = await engine.sortTable(job, two, [1, 0, 2], all);
  expect(sortedByTwo.nullable).toEqual([false, false, true]);
  const rank = (row: number) => (left.get(row)!.b === null ? 0 : left.get(row)!.b ? 2 : 1);
  const orderByTwo = [...Array(2000).keys()].sort((a, b) => rank(a) - rank(b) || left.get(b)!.k - left.get(a)!.k || a - b);
  const [valuesByTwo, keysByTwo, bitsByTwo] = await engine.bringHome(job, sortedByTwo, [0, 1, 2]);
  expect(new BigInt64Array(values(valuesByTwo))).toEqual(BigInt64Array.from(orderByTwo, (row) => BigInt(row) << 30n));
  expect([...new Int32Array(values(keysByTwo))]).toEqual(orderByTwo.map((row) => left.get(row)!.k));
  expect(bitsByTwo!.nullCount).toBe(left.getChild('b')!.nullCount);

  const few = await engine.sortTable(job, asItIs, [1, 2], { first: 5, rows: 20 });
  expect([few.rows, few.spreadEvenly]).toEqual([20, true]);
  const [valuesOfFew] = await engine.bringHome(job, few, [0]);
  expect(new BigInt64Array(values(valuesOfFew))).toEqual(BigInt64Array.from(order.slice(5, 25), (row) => BigInt(row) << 30n));
  expect(engine.sortTableDeviceBytes(asItIs, [1, 2], { first: 5, rows: 20 })).toBeLessThan(
    engine.sortTableDeviceBytes(asItIs, [1, 2], all),
  );
  const last = await engine.sortTable(job, asItIs, [1], { first: 1990, rows: 20 });
  expect(last.rows).toBe(10);
  expect(() => engine.sortTable(job, asItIs, [1], { first: -1, rows: 20 })).toThrow('window.first');
  expect(() => engine.sortTable(job, asItIs, [1], { first: 0, rows: 0.5 })).toThrow('window.rows');

  expect(() => engine.sortTable(job, asItIs, [3], all)).toThrow('columns is not a column of the table');
  expect(() => engine.tableSortKeys(job, l, [{ ...by[0]!, column: 3 }], null)).toThrow('by.column is not a column of the table');
  expect(() => engine.tableSortKeys(job, l, by, 3)).toThrow('payload is not a column of the table');
  const carrying = await engine.tableSortKeys(job, l, by, 1);
  await expect(engine.sortTable(job, carrying, [2], all)).rejects.toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
  await expect(engine.tableSortKeys(job, l, [], null)).rejects.toMatchObject({ code: 'ERR_OPTION' });
  expect(() => engine.bringHome(job, l, [3])).toThrow('columns is not a column of the table');
  expect(() => engine.tableJoinKeys(job, { ...one, keys: [9] }, other, [false])).toThrow('table.keys is not a column');
  expect(() => engine.joinTablesHome(job, { ...tables, payload: { left: null, right: 3 } }, request)).toThrow(
    'tables.payload.right is not a column',
  );
  expect(() => engine.joinTables(job, tables, request, [{ from: 'both' as 'left', column: 0 }], null)).toThrow(
    "'left' or 'right'",
  );
  await expect(engine.tableJoinKeys(job, { ...one, keys: [2] }, other, [false])).rejects.toMatchObject({
    code: 'ERR_NOT_SUPPORTED',
  });
  for (const handle of [
    l,
    r,
    joinKeys,
    twoTypes,
    rows,
    stays,
    gathered,
    zeroes,
    asItIs,
    sorted,
    two,
    sortedByTwo,
    carrying,
    few,
    last,
  ])
    handle.release();
  expect(residentBytes()).toEqual(ordinals.map(() => 0));
  await engine.dispose();
});
