/** Links of real GPUs, and the choice of GPUs by them. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { createEngine } from '../../lib/index.js';
import { native } from '../../lib/native.js';
import { random } from '../support/tables.js';

const gpus = native().gpus().length;
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-links-'));
beforeAll(() => void vi.stubEnv('WARPJOIN_CACHE_DIR', folder));
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

test('are measured once, and give all memory back', async () => {
  await using engine = await createEngine({ device: 'gpu', memoryLimit: '16GiB' });
  const start = performance.now();
  const links = (await engine.linkSpeeds())!;
  console.log(`measured in ${((performance.now() - start) / 1e3).toFixed(2)} s`);
  for (const { devices, h2d, d2h, both } of links.sets) {
    console.log(`${devices.join(',')}: ${[h2d, d2h, both].map((speed) => (speed / 1e9).toFixed(1)).join(' / ')} GB/s`);
  }
  expect(links.sets.at(-1)!.devices).toHaveLength(gpus);
  expect(links.peers).toHaveLength(gpus * (gpus - 1));
  expect(readdirSync(folder)).toHaveLength(1);
  await using next = await createEngine({ device: 'gpu', memoryLimit: '16GiB' });
  expect(await next.linkSpeeds()).toEqual(links);
});

describe.skipIf(gpus < 2)(`a large sort (needs 2 GPUs, this host has ${gpus})`, () => {
  test('goes through the measured devices, in the right order', async () => {
    const rows = 6_000_000;
    const draw = random(7);
    const column = (data: BigInt64Array) => new arrow.Vector([arrow.makeData({ type: new arrow.Int64(), data })]);
    const keys = BigInt64Array.from({ length: rows }, () => BigInt(draw(2 ** 31)));
    const table = new arrow.Table({ k: column(keys), v: column(BigInt64Array.from(keys, (key) => key * 3n)) });
    await using engine = await createEngine({ device: 'gpu', memoryLimit: '16GiB' });
    const plan = await engine.explain('sort', table, { by: 'k' });
    console.log(plan);
    expect(plan).toMatch(/^ {2}links {4}sort on (all devices|devices [\d, ]+): [\d.]+ ms over their links/m);
    const sorted = await engine.sort(table, { by: 'k' });
    const [k, v] = (['k', 'v'] as const).map((name) => sorted.getChild(name)!.toArray() as BigInt64Array);
    expect(k).toEqual(keys.slice().sort());
    expect(v!.every((value, row) => value === k![row]! * 3n)).toBe(true);
  });
});
