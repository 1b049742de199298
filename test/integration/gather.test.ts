/** The addon's gather on devices, on host devices: what sorts and joins on GPUs ask for. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { nativeColumns, readTable } from '../../lib/columns/input.js';
import { type NativeResultColumn, native } from '../../lib/native.js';
import { chunked, comparison, random, table } from '../support/tables.js';

const rows = 3000;
const draw = random(3);
const values = (value: (row: number) => unknown) => Array.from({ length: rows }, (_, row) => (draw(9) ? value(row) : null));
const types = { k: new arrow.Int32(), i: new arrow.Int64(), b: new arrow.Bool(), f: new arrow.Float32() };
const of = chunked(
  table(types, {
    k: Array.from({ length: rows }, () => draw(500)),
    i: values((row) => BigInt(row) << 33n),
    b: values((row) => row % 3 === 0),
    f: Array.from({ length: rows }, (_, row) => row / 2),
  }),
  [1000, 1701],
);

const engineOf = (devices: number) =>
  new (native().Engine)({
    threads: 2,
    hostDevices: devices,
    gpus: [],
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });

/** The values of all chunks. */
const joined = ({ chunks }: NativeResultColumn) => Buffer.concat(chunks.map(({ values }) => new Uint8Array(values)));

test.each([1, 3])('gatherOnDevices() makes what gather() makes of a run, on %i devices', async (devices) => {
  const engine = engineOf(devices);
  const ordinals = [...Array(devices).keys()];
  const job = engine.createJob();
  const relation = await engine.relation(job, nativeColumns(readTable(of, 'input'), [0, 1, 2, 3]), rows);
  const keys = await engine.sortKeys(job, relation, [{ column: 0, descending: false, nullsLast: true }], null, false);
  const plan = { algorithm: 'merge' as const, devices: ordinals, chunksetEnds: [rows], spill: false };
  const [run] = await engine.sortChunksets(job, keys, plan);
  const numbers = { size: rows, rowBytes: keys.valueBytes, mayBeMissing: false };
  const bytes = engine.gatherDeviceBytes(relation, [1, 2, 3], numbers, devices);
  expect(bytes).toBeGreaterThan((rows * 12) / devices);
  expect(engine.gatherDeviceBytes(relation, [3], { ...numbers, mayBeMissing: true }, devices)).toBeGreaterThan(
    engine.gatherDeviceBytes(relation, [3], numbers, devices),
  );
  const made = await engine.gatherOnDevices(job, relation, [1, 2, 3], run!, 'left', ordinals);
  expect(made[0]!.nullCount).toBeGreaterThan(0);
  for (const [index, column] of [1, 2, 3].entries()) {
    expect(made[index]).toEqual(await engine.gather(job, relation, column, run!, 'left'));
  }
  const small = engine.createJob(1000);
  const cut = await engine.gatherOnDevices(small, relation, [1, 2, 3], run!, 'left', ordinals);
  expect(cut.map(({ chunks }) => chunks.length)).toEqual([47, 1, 24]);
  for (const [index, column] of [1, 2, 3].entries()) {
    expect(cut[index]).toEqual(await engine.gather(small, relation, column, run!, 'left'));
    expect(joined(cut[index]!)).toEqual(joined(made[index]!));
  }
  expect(job.phases().map(({ name }) => name)).toContain('gather on devices');
  expect(() => engine.gatherDeviceBytes(relation, [4], numbers, 1)).toThrow('columns is not a column of the relation');
  expect(() => engine.gatherOnDevices(job, relation, 1 as never, run!, 'left', [0])).toThrow('Expected an array for columns');
  expect(() => engine.gatherOnDevices(job, relation, [1], run!, 'both' as never, [0])).toThrow("Expected 'left' or 'right'");
  expect(() => engine.gatherOnDevices(job, relation, [1], run!, 'left', [9])).toThrow('at least one device of the engine');
  for (const handle of [run!, keys, relation]) handle.release();
  await engine.dispose();
});

test.each([1, 3])('and of both sides of a full join, whose rows may be missing, on %i devices', async (devices) => {
  const engine = engineOf(devices);
  const ordinals = [...Array(devices).keys()];
  const job = engine.createJob();
  const other = of.slice(100, 900);
  const relations = {
    left: await engine.relation(job, nativeColumns(readTable(of, 'left'), [0, 1, 2, 3]), rows),
    right: await engine.relation(job, nativeColumns(readTable(other, 'right'), [1, 2, 3]), other.numRows),
  };
  // Integers of the left side match none of the right side's nulls, and few others.
  const keys = await engine.joinKeys(job, relations.left, [1], null, relations.right, [0], null, [comparison]);
  const request = {
    kind: 'full',
    buildLeft: false,
    countOnly: false,
    wantKeys: false,
    wantLeft: true,
    wantRight: true,
    maxRows: Number.POSITIVE_INFINITY,
  } as const;
  const matched = await engine.hashJoin(job, keys, request, { devices: ordinals, rounds: 1, partitions: 0, eitherSide: false });
  expect([matched.leftMayBeMissing, matched.rightMayBeMissing]).toEqual([true, true]);
  for (const side of ['left', 'right'] as const) {
    const made = await engine.gatherOnDevices(job, relations[side], [0, 1, 2], matched, side, ordinals);
    for (const [column, one] of made.entries()) {
      expect(one.nullCount).toBeGreaterThan(0);
      expect(one).toEqual(await engine.gather(job, relations[side], column, matched, side));
    }
  }
  for (const handle of [matched, keys, relations.left, relations.right]) handle.release();
  await engine.dispose();
});
