/** The speeds of links: measured when they are needed, kept in a file that may be missing, broken or out of reach. */
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as arrow from 'apache-arrow';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Engine } from '../../lib/engine.js';
import type { LinkSpeeds } from '../../lib/native.js';
import { type EngineOptions, engineSchema } from '../../lib/options.js';
import { LEAST_BYTES_FOR_A_CHOICE } from '../../lib/plan/device-set.js';
import { parse } from '../../lib/schema.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { failure, table } from '../support/tables.js';

const set = (devices: number[], h2d: number, d2h: number) => ({
  devices,
  h2d: h2d * 1e9,
  d2h: d2h * 1e9,
  both: (h2d + d2h) * 8e8,
});
/** Three GPUs whose links get in each other's way on the way home. */
const LINKS: LinkSpeeds = {
  sets: [set([0], 50, 50), set([1], 50, 50), set([2], 50, 50), set([0, 1], 100, 100), set([0, 1, 2], 110, 40)],
  peers: [0, 1, 2].flatMap((from) => [0, 1, 2].flatMap((to) => (from === to ? [] : [{ from, to, speed: 3e11 + to }]))),
};
const PAIR: LinkSpeeds = { sets: LINKS.sets.slice(0, 4).filter(({ devices }) => !devices.includes(2)), peers: [] };

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'warpjoin-links-'));
  vi.stubEnv('WARPJOIN_CACHE_DIR', folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  chmodSync(folder, 0o700);
  rmSync(folder, { recursive: true, force: true });
});

const gpuAddon = (): FakeAddon => fakeAddon({ gpus: 3, links: LINKS });
const engineOn = (addon: FakeAddon, options: EngineOptions = {}): Engine =>
  new Engine(parse(engineSchema, 'createEngine', { device: 'gpu', memoryLimit: '4GiB', ...options }), addon);
const measurements = (addon: FakeAddon): number => addon.calls.filter((call) => call === 'measureLinks').length;
const files = (): string[] => readdirSync(folder).map((name) => join(folder, name));

describe('the file of a host', () => {
  test('saves the next engine the measurement', async () => {
    const addon = gpuAddon();
    const before = Date.now();
    const measured = (await engineOn(addon).linkSpeeds())!;
    expect(measured).toEqual({ ...LINKS, measuredAt: expect.any(String) });
    expect(Date.parse(measured.measuredAt)).toBeGreaterThanOrEqual(before);
    expect(files()).toHaveLength(1);
    const next = gpuAddon();
    const engine = engineOn(next);
    expect(await engine.linkSpeeds()).toEqual(measured);
    expect(measurements(next)).toBe(0);
    next.settings.links = { ...LINKS, sets: LINKS.sets.map((one) => ({ ...one, h2d: 1 })) };
    expect((await engine.linkSpeeds({ measure: true }))!.sets[0]!.h2d).toBe(1);
    expect(measurements(next)).toBe(1);
    expect((await engineOn(gpuAddon()).linkSpeeds())!.sets[0]!.h2d).toBe(1);
    expect(files()).toHaveLength(1);
  });

  test('is another for other GPUs, and for another choice among them', async () => {
    await engineOn(gpuAddon()).linkSpeeds();
    const pair = fakeAddon({ gpus: 3, links: PAIR });
    expect((await engineOn(pair, { devices: [2, 0] }).linkSpeeds())!.sets).toEqual(PAIR.sets);
    expect(measurements(pair)).toBe(1);
    vi.stubEnv('CUDA_VISIBLE_DEVICES', '5,6,7');
    const others = gpuAddon();
    await engineOn(others).linkSpeeds();
    expect(measurements(others)).toBe(1);
    expect(files()).toHaveLength(3);
  });

  test.each([
    ['nothing', ''],
    ['no JSON', '{"measuredAt":'],
    ['null', 'null'],
    ['no date', JSON.stringify({ ...LINKS, measuredAt: 'yesterday' })],
    ['no sets', JSON.stringify({ measuredAt: '2026-01-01', peers: [] })],
    ['only some of the devices', JSON.stringify({ ...PAIR, measuredAt: '2026-01-01' })],
    ['a speed of 0', JSON.stringify({ ...LINKS, measuredAt: '2026-01-01' }).replace('50000000000', '0')],
    ['a device that is not there', JSON.stringify({ ...LINKS, measuredAt: '2026-01-01' }).replace('[1]', '[9]')],
    ['peers that are none', JSON.stringify({ ...LINKS, measuredAt: '2026-01-01', peers: [null] })],
  ])('that holds %s is measured again', async (_, text) => {
    await engineOn(gpuAddon()).linkSpeeds();
    const [file] = files();
    writeFileSync(file!, text);
    const addon = gpuAddon();
    expect(await engineOn(addon).linkSpeeds()).toMatchObject(LINKS);
    expect(measurements(addon)).toBe(1);
    expect(JSON.parse(readFileSync(file!, 'utf8'))).toMatchObject({ ...LINKS, host: { gpus: expect.any(Array) } });
  });

  test('that is out of reach is no error', async () => {
    writeFileSync(join(folder, 'file'), '');
    vi.stubEnv('WARPJOIN_CACHE_DIR', join(folder, 'file', 'below'));
    const addon = gpuAddon();
    const engine = engineOn(addon);
    expect(await engine.linkSpeeds()).toMatchObject(LINKS);
    expect(await engine.linkSpeeds()).toMatchObject(LINKS);
    expect(measurements(addon)).toBe(1); // the engine remembers
  });

  test('is in the cache directory of the user', async () => {
    vi.stubEnv('WARPJOIN_CACHE_DIR', '');
    vi.stubEnv('XDG_CACHE_HOME', folder);
    await engineOn(gpuAddon()).linkSpeeds();
    expect(readdirSync(join(folder, 'warpjoin'))).toEqual([expect.stringMatching(/^links-[0-9a-f]{16}\.json$/)]);
    vi.stubEnv('XDG_CACHE_HOME', '');
    vi.stubEnv('HOME', join(folder, 'home'));
    await engineOn(gpuAddon()).linkSpeeds();
    expect(readdirSync(join(folder, 'home', '.cache', 'warpjoin'))).toHaveLength(1);
  });
});

test('host devices have no links, and nothing is measured or kept', async () => {
  const addon = fakeAddon();
  expect(await engineOn(addon, { device: 'cpu', hostDevices: 4 }).linkSpeeds()).toBeNull();
  expect(addon.calls).toEqual([]);
  expect(files()).toEqual([]);
});

describe('a sort', () => {
  const tiny = table({ k: new arrow.Float64(), v: new arrow.Float64() }, { k: [2, 1], v: [3, 4] });
  /** The plan of a sort of tuples of 16 bytes. */
  const explain = (addon: FakeAddon, engine: Engine, bytes: number): Promise<string> => {
    addon.settings.plannedRows = bytes / 16;
    return engine.explain('sort', tiny, { by: 'k' });
  };

  test('of much asks for the links, once, and goes through the fastest', async () => {
    const addon = gpuAddon();
    const engine = engineOn(addon);
    expect(await explain(addon, engine, LEAST_BYTES_FOR_A_CHOICE)).toMatch(/^ {2}links {4}sort on devices 0, 1: 1\.34 ms over/m);
    expect(await explain(addon, engine, LEAST_BYTES_FOR_A_CHOICE)).toContain('3 devices take 2.29 ms');
    expect(measurements(addon)).toBe(1);
    expect(addon.liveHandles()).toBe(0);
  });

  test('of little, on one GPU or on host devices does not', async () => {
    for (const [options, bytes] of [
      [{}, LEAST_BYTES_FOR_A_CHOICE - 16],
      [{ devices: [1] }, LEAST_BYTES_FOR_A_CHOICE],
      [{ device: 'cpu', hostDevices: 3 }, LEAST_BYTES_FOR_A_CHOICE],
    ] as const) {
      const addon = gpuAddon();
      expect(await explain(addon, engineOn(addon, options), bytes)).not.toContain('  links');
      expect(measurements(addon)).toBe(0);
    }
  });

  test('goes through all devices where memory is too short to measure', async () => {
    const error = Object.assign(new Error('no room'), { code: 'ERR_MEMORY_LIMIT' });
    const addon = fakeAddon({ gpus: 3, links: LINKS, failing: { step: 'measureLinks', error } });
    const text = await explain(addon, engineOn(addon), LEAST_BYTES_FOR_A_CHOICE);
    expect(text).toContain('links    sort on all devices: the links could not be measured: no room');
    expect(files()).toEqual([]);
    addon.settings.failing!.error = new Error('unexpected');
    expect(await failure(explain(addon, engineOn(addon), LEAST_BYTES_FOR_A_CHOICE))).toMatchObject({ code: 'ERR_INTERNAL' });
  });

  test('that must be small in device memory uses more', async () => {
    const addon = gpuAddon();
    const engine = engineOn(addon, { deviceMemoryLimit: 48 * 2 ** 20 }); // a third of what 32 bytes a tuple take
    expect(await explain(addon, engine, LEAST_BYTES_FOR_A_CHOICE)).toMatch(/sort on all devices: 2\.29 ms .* more parts$/m);
  });
});

describe('a join', () => {
  const tiny = table({ k: new arrow.Int32(), v: new arrow.Utf8() }, { k: [2, 1], v: ['a', 'b'] });
  // Keys of 4 bytes on both sides; two row numbers of 4 bytes a row.
  const rows = LEAST_BYTES_FOR_A_CHOICE / 8;

  test.each(['radix-hash', 'sort-merge'] as const)('of much goes through the fastest, by %s', async (algorithm) => {
    const addon = gpuAddon();
    addon.settings.plannedRows = rows;
    const engine = engineOn(addon);
    const text = await engine.explain('join', tiny, tiny, { on: 'k', algorithm });
    const step = algorithm === 'radix-hash' ? 'hash join, build left' : 'sort-merge join';
    expect(text).toMatch(
      new RegExp(`^ {2}links {4}${step} on devices 0, 1: [\\d.]+ ms over their links, there and back, [13] device`, 'm'),
    );
    expect(measurements(addon)).toBe(1);
    addon.settings.plannedRows = rows - 1;
    expect(await engine.explain('join', tiny, tiny, { on: 'k', algorithm })).not.toContain('  links');
    expect(addon.liveHandles()).toBe(0);
  });

  test('tells in its stats', async () => {
    const addon = gpuAddon();
    addon.settings.failing = { step: 'measureLinks', error: Object.assign(new Error('no room'), { code: 'ERR_DEVICE_MEMORY' }) };
    addon.settings.plannedRows = rows;
    const { stats } = await engineOn(addon).join(tiny, tiny, { on: 'k' });
    expect(stats.deviceChoices).toEqual([
      { step: 'hash join, build left', devices: [0, 1, 2], reason: 'the links could not be measured: no room' },
    ]);
  });
});

test('an aborted measurement rejects with the reason and keeps nothing', async () => {
  const addon = fakeAddon({ gpus: 3, links: LINKS, stepMilliseconds: 500 });
  const reason = new Error('enough');
  const controller = new AbortController();
  const speeds = failure(engineOn(addon).linkSpeeds({ signal: controller.signal }));
  setTimeout(() => controller.abort(reason), 20);
  expect(await speeds).toBe(reason);
  expect(files()).toEqual([]);
});
