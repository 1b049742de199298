/** Gathering columns on GPUs: when it is planned, and what is asked of the data plane. */
import * as arrow from 'apache-arrow';
import { afterEach, describe, expect, test } from 'vitest';
import { Engine } from '../../lib/engine.js';
import type { DeviceDescription, LinkSpeeds } from '../../lib/native.js';
import { engineSchema } from '../../lib/options.js';
import { COSTS } from '../../lib/plan/costs.js';
import type { GatherStep, PlannedColumn, Resources } from '../../lib/plan/plan.js';
import { planSort, type SortDeviceBytes, type SortRequest } from '../../lib/plan/sort.js';
import { parse } from '../../lib/schema.js';
import { preferDevices } from '../support/costs.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { rows, table } from '../support/tables.js';

const GIB = 2 ** 30;
const usual = { ...COSTS };
afterEach(() => void Object.assign(COSTS, usual));

describe('the plan of a sort', () => {
  const links: LinkSpeeds = { sets: [{ devices: [0, 1, 2, 3], h2d: 178e9, d2h: 146e9, both: 177e9 }], peers: [] };
  const device = (ordinal: number): DeviceDescription => ({
    kind: 'gpu',
    ordinal,
    name: `GPU ${ordinal}`,
    memoryBytes: 80 * GIB,
    limitBytes: 64 * GIB,
    peakBytes: 0,
    bytesToDevice: 0,
    bytesToHost: 0,
    residentBytes: 0,
    peers: [0, 1, 2, 3].filter((other) => other !== ordinal),
  });
  const four = [0, 1, 2, 3].map(device);
  const resources: Resources = {
    devices: four,
    threads: 64,
    memoryLimitBytes: 64 * GIB,
    freeBytes: 64 * GIB,
    links,
    sortSpills: () => false,
    mergeScratchBytes: () => 1000,
  };
  const fixed = (name: string, more: Partial<PlannedColumn> = {}): PlannedColumn => ({
    name,
    from: 'gathered',
    width: 8,
    stretches: 1,
    ...more,
  });
  const request: SortRequest = {
    tuples: 2e8,
    keyBytes: 8,
    valueBytes: 4,
    refine: false,
    columns: [fixed('a'), fixed('k', { from: 'decoded' }), fixed('text', { stretches: null }), fixed('b', { width: 1 / 8 })],
    algorithm: 'auto',
    sorted: false,
    encodedBytes: 0,
    flips: false,
  };
  const sortBytes: SortDeviceBytes = (_shape, tuples, devices) => (tuples / devices) * 12;
  const plan = (of: Partial<SortRequest> = {}, on: Partial<Resources> = {}, gatherBytes = GIB) =>
    planSort({ ...request, ...of }, sortBytes, { ...resources, ...on }, () => gatherBytes);
  const gatherOf = (...of: Parameters<typeof plan>): GatherStep | undefined =>
    plan(...of).steps.find((step): step is GatherStep => step.op === 'gather');

  test('has one step for all columns that devices take, by the time of their bytes on the links', () => {
    const made = plan({}, {}, 10 * GIB);
    expect(made.steps.map(({ label }) => label)).toEqual([
      'sort',
      'column k (decode keys)',
      'columns a, b (gather on devices)',
      'column text (gather)',
    ]);
    const step = made.steps[2] as GatherStep;
    expect(step).toMatchObject({ columns: [0, 3], devices: [0, 1, 2, 3], estimate: { rows: 2e8, bytes: 4.05e9 } });
    const started = 3 * COSTS.deviceGather + (2 / 4) * COSTS.deviceCopy;
    expect(step.estimate.milliseconds).toBeCloseTo(started + 4050e9 / COSTS.transferBytesPerSecond);
    expect(made.deviceBytes).toBe(10 * GIB);
    const slow = { ...links, sets: [{ devices: [0, 1, 2, 3], h2d: 50e9, d2h: 60e9, both: 1e9 }] };
    const milliseconds = (on: Partial<Resources>) => gatherOf({}, on)!.estimate.milliseconds;
    expect(milliseconds({ links: slow })).toBeCloseTo(started + (2425 / 50 + 1625 / 60) / COSTS.transferShare);
    const one = { devices: four.slice(0, 1), threads: 8 };
    const unmeasured = 3 * COSTS.deviceGather + 2 * COSTS.deviceCopy + 4050e9 / (COSTS.transferShare * COSTS.linkBytesPerSecond);
    for (const unknown of [null, 'no room', links]) expect(milliseconds({ ...one, links: unknown })).toBeCloseTo(unmeasured);
  });

  test('leaves to the host what is small, or lies in too many stretches', () => {
    expect(gatherOf({ tuples: 1e7 })).toBeUndefined();
    expect(gatherOf({ tuples: 1e7 }, { threads: 4 })).toBeDefined();
    expect(gatherOf({ columns: [fixed('a')] })).toBeDefined();
    expect(gatherOf({ columns: [fixed('a', { stretches: 2e5 })] })).toBeUndefined();
    expect(gatherOf({ columns: [fixed('text', { stretches: null })] })).toBeUndefined();
    expect(gatherOf({ columns: [{ name: 'unknown', from: 'gathered', width: 8 }] })).toBeUndefined();
  });

  test('leaves everything to it without memory, or devices that read each other', () => {
    expect(gatherOf({}, {}, 64 * GIB)).toBeDefined();
    expect(gatherOf({}, {}, 64 * GIB + 1)).toBeUndefined();
    expect(gatherOf({}, { freeBytes: 7.4e9 })).toBeDefined();
    expect(gatherOf({}, { freeBytes: 7.2e9 })).toBeUndefined();
    expect(gatherOf({}, { devices: four.map((one) => ({ ...one, kind: 'host' })) })).toBeUndefined();
    expect(gatherOf({}, { devices: [...four.slice(0, 3), { ...four[3]!, peers: [0, 1] }] })).toBeUndefined();
    expect(gatherOf({}, { devices: four.slice(0, 1) })).toMatchObject({ devices: [0] });
    expect(planSort(request, sortBytes, resources).steps.map(({ op }) => op)).not.toContain('gather');
  });
});

describe('a sort on GPUs', () => {
  const engineOn = (addon: FakeAddon): Engine =>
    new Engine(parse(engineSchema, 'createEngine', { memoryLimit: '1GiB', device: 'gpu' }), addon);
  const of = table(
    { k: new arrow.Int32(), s: new arrow.Utf8(), i: new arrow.Int64(), b: new arrow.Bool() },
    { k: [3, 1, 2], s: ['c', 'a', 'b'], i: [30n, 10n, 20n], b: [true, null, false] },
  );

  test('gathers what it can in one step, and the rest on the host', async () => {
    preferDevices();
    const addon = fakeAddon({ gpus: 2 });
    const out = await engineOn(addon).sort(of, { by: 'k' });
    expect(rows(out)).toEqual([1, 2, 0].map((row) => rows(of)[row]));
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'sortChunksets', 'gatherOnDevices', 'gather']);
    expect(out.stats.steps.map(({ name }) => name)).toContain('columns i, b (gather on devices)');
    expect(addon.liveHandles()).toBe(0);
  });

  test('gathers small tables on the host', async () => {
    const addon = fakeAddon({ gpus: 2 });
    await engineOn(addon).sort(of, { by: 'k' });
    expect(addon.calls).not.toContain('gatherOnDevices');
  });

  test('says so in explain()', async () => {
    const text = await engineOn(fakeAddon({ gpus: 2, plannedRows: 5e6 })).explain('sort', of, { by: 'k' });
    expect(text).toMatch(/\ncolumns i, b \(gather on devices\) +5,000,000 +96.6 MiB/);
  });
});

describe('a join on GPUs', () => {
  const engineOn = (addon: FakeAddon): Engine =>
    new Engine(
      parse(engineSchema, 'createEngine', { memoryLimit: '64GiB', threads: 2, device: 'gpu', fallback: 'silent' }),
      addon,
    );
  const left = table(
    { k: new arrow.Int32(), s: new arrow.Utf8(), i: new arrow.Int64(), b: new arrow.Bool() },
    { k: [3, 1, 2, 2], s: ['c', 'a', 'b', 'd'], i: [30n, 10n, 20n, 21n], b: [true, null, false, true] },
  );
  const right = table(
    { k: new arrow.Int32(), i: new arrow.Int64(), f: new arrow.Float32() },
    { k: [2, 4], i: [1n, 2n], f: [0.5, 1] },
  );
  const gathers = ({ calls }: FakeAddon): string[] => calls.filter((call) => call.startsWith('gather'));

  test.each(['radix-hash', 'sort-merge'] as const)('gathers what it can in one step a side, by %s', async (algorithm) => {
    preferDevices();
    for (const [how, made] of [
      ['inner', ['gatherOnDevices', 'gatherOnDevices', 'gather']],
      ['left', ['gatherOnDevices', 'gatherOnDevices', 'gather']],
      ['full', ['gatherOnDevices', 'gatherOnDevices', 'gatherCoalesced', 'gather']],
      ['anti', ['gatherOnDevices', 'gather']],
    ] as const) {
      const addon = fakeAddon({ gpus: 2 });
      const out = await engineOn(addon).join(left, right, { on: 'k', how, algorithm, coalesce: how !== 'anti' });
      expect(gathers(addon)).toEqual(made);
      expect(addon.calls).toContain(algorithm === 'sort-merge' ? 'sortMergeJoin' : 'hashJoin');
      const host = await engineOn(fakeAddon()).join(left, right, { on: 'k', how, algorithm, coalesce: how !== 'anti' });
      expect(out.schema.names).toEqual(host.schema.names);
      expect(rows(out)).toEqual(rows(host));
      expect(out.stats.steps.map(({ name }) => name)).toContain(
        how === 'inner' || how === 'full' ? 'columns i, b (gather on devices)' : 'columns k, i, b (gather on devices)',
      );
    }
  });

  test('gathers small results of large tables on the host, however many rows were expected', async () => {
    const addon = fakeAddon({ gpus: 2, plannedRows: 5e6 });
    const engine = engineOn(addon);
    expect(await engine.explain('join', left, right, { on: 'k' })).toContain('columns i, b (gather on devices)');
    const out = await engine.join(left, right, { on: 'k' });
    expect(out.numRows).toBe(2);
    expect(gathers(addon)).not.toContain('gatherOnDevices');
  });
});
