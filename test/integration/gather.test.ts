/** The addon's gather on devices, on host devices: what sorts on GPUs ask for. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { nativeColumns, readTable } from '../../lib/columns/input.js';
import { native } from '../../lib/native.js';
import { chunked, random, table } from '../support/tables.js';

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

test.each([1, 3])('gatherOnDevices() makes what gather() makes, on %i devices', async (devices) => {
  const engine = new (native().Engine)({
    threads: 2,
    hostDevices: devices,
    gpus: [],
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const ordinals = [...Array(devices).keys()];
  const job = engine.createJob();
  const relation = await engine.relation(job, nativeColumns(readTable(of, 'input'), [0, 1, 2, 3]), rows);
  const keys = await engine.sortKeys(job, relation, [{ column: 0, descending: false, nullsLast: true }], null, false);
  const plan = { algorithm: 'merge' as const, devices: ordinals, chunksetEnds: [rows], spill: false };
  const [run] = await engine.sortChunksets(job, keys, plan);
  expect(engine.gatherDeviceBytes(relation, [1, 2, 3], keys.valueBytes, devices)).toBeGreaterThan((rows * 12) / devices);
  const made = await engine.gatherOnDevices(job, relation, [1, 2, 3], run!, ordinals);
  expect(made[0]!.nullCount).toBeGreaterThan(0);
  for (const [index, column] of [1, 2, 3].entries()) {
    expect(made[index]).toEqual(await engine.gather(job, relation, column, run!, 'left'));
  }
  expect(job.phases().map(({ name }) => name)).toContain('gather on devices');
  expect(() => engine.gatherDeviceBytes(relation, [4], 4, 1)).toThrow('columns is not a column of the relation');
  expect(() => engine.gatherOnDevices(job, relation, 1 as never, run!, [0])).toThrow('Expected an array for columns');
  await expect(engine.gatherOnDevices(job, relation, [1], run!, [9])).rejects.toMatchObject({ code: 'ERR_OPTION' });
  for (const handle of [run!, keys, relation]) handle.release();
  await engine.dispose();
});
