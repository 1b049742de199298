/** What calls make of devices: a shortage of memory is planned anew, a failure is not. */
import * as arrow from 'apache-arrow';
import { describe, expect, test, vi } from 'vitest';
import { Engine } from '../../lib/engine.js';
import { joinCount, sort, WarpjoinError } from '../../lib/index.js';
import * as nativeModule from '../../lib/native.js';
import { type EngineOptions, engineSchema } from '../../lib/options.js';
import { parse } from '../../lib/schema.js';
import { preferDevices } from '../support/costs.js';
import { type FakeSettings, fakeAddon } from '../support/fake-addon.js';
import { failure, table } from '../support/tables.js';

preferDevices();

const ids = table({ id: new arrow.Int32(), n: new arrow.Float64() }, { id: [3, 1, 2, 1], n: [0.5, 1.5, 2.5, 3.5] });
const FAILED = "Device 'Fake GPU 0': an illegal memory access was encountered (cudaErrorIllegalAddress) in cudaMemcpyAsync";

function coded(code: string, message: string, more: object = {}): Error {
  return Object.assign(new Error(message), { code, ...more });
}

function engineWith(settings: Partial<FakeSettings>, options: EngineOptions = {}) {
  const addon = fakeAddon({ gpus: 2, ...settings });
  return { addon, engine: new Engine(parse(engineSchema, 'createEngine', { device: 'gpu', ...options }), addon) };
}

/** Every step that runs on devices, and a call that comes to it. */
const CALLS: [string, (engine: Engine) => Promise<unknown>][] = [
  ['hashJoin', (engine) => engine.join(ids, ids, { on: 'id', algorithm: 'radix-hash' })],
  ['hashJoin', (engine) => engine.join(ids, ids, { on: 'id' })],
  ['sortMergeJoin', (engine) => engine.join(ids, ids, { on: 'id', algorithm: 'sort-merge' })],
  ['sortJoinSide', (engine) => engine.join(ids, ids, { on: 'id', algorithm: 'sort-merge', sortAlgorithm: 'radix' })],
  ['mergeJoin', (engine) => engine.join(ids, ids, { on: 'id', algorithm: 'sort-merge', sortAlgorithm: 'radix' })],
  ['sortChunksets', (engine) => engine.sort(ids, { by: 'id' })],
  ['loadTable', (engine) => engine.load(ids)],
  ['tableJoinKeys', async (engine) => engine.joinCount(await engine.load(ids), await engine.load(ids), { on: 'id' })],
  ['joinTablesHome', async (engine) => engine.joinCount(await engine.load(ids), await engine.load(ids), { on: 'id' })],
  ['joinTables', async (engine) => engine.join(await engine.load(ids), await engine.load(ids), { on: 'id', resident: true })],
  ['sortTable', async (engine) => engine.sort(await engine.load(ids), { by: 'id', resident: true })],
];

describe('a device that fails', () => {
  test.each(CALLS)('%s: ends the call at once, with its message (%#)', async (step, call) => {
    const { addon, engine } = engineWith({ failing: { step, error: coded('ERR_DEVICE', FAILED) } });
    const error = await failure(call(engine));
    expect([error.code, error.message]).toEqual(['ERR_DEVICE', FAILED]);
    expect(addon.calls.filter((name) => name === step)).toHaveLength(1);
    expect(addon.calls.at(-1)).toBe(step);
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('while links are measured ends the call, too', async () => {
    const settings = { plannedRows: 2 ** 26, failing: { step: 'measureLinks', error: coded('ERR_DEVICE', FAILED) } };
    const { addon, engine } = engineWith(settings);
    expect(await failure(engine.join(ids, ids, { on: 'id' }))).toMatchObject({ code: 'ERR_DEVICE', message: FAILED });
    expect(addon.calls.at(-1)).toBe('measureLinks');
  });
});

describe('a device that is short of memory', () => {
  const FULL = "8 GiB do not fit device 'Fake GPU 0' (100 GiB of 102 GiB reserved in use, limit 102 GiB)";

  test('has a hash join planned anew as one that sorts', async () => {
    const { engine } = engineWith({ failing: { step: 'hashJoin', error: coded('ERR_DEVICE_MEMORY', FULL) } });
    const { stats } = await engine.join(ids, ids, { on: 'id' });
    expect([stats.algorithm, stats.algorithmReason]).toEqual(['sort-merge', `triton doesn't fit: ${FULL}`]);
  });

  test.each(['joinTables', 'sortTable'])('%s: has loaded tables taken from host memory', async (step) => {
    const { engine } = engineWith({ failing: { step, error: coded('ERR_DEVICE_MEMORY', FULL) } });
    const loaded = await engine.load(ids);
    const call =
      step === 'sortTable' ? engine.sort(loaded, { by: 'id' }) : engine.join(loaded, loaded, { on: 'id', resident: true });
    expect((await call).stats.residentReason).toBe(`taken from host memory: ${FULL}`);
  });

  test('has nothing else planned anew: users see what is short', async () => {
    const { addon, engine } = engineWith({ failing: { step: 'sortChunksets', error: coded('ERR_DEVICE_MEMORY', FULL) } });
    expect(await failure(engine.sort(ids, { by: 'id' }))).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: FULL });
    expect(addon.calls.filter((name) => name === 'sortChunksets')).toHaveLength(1);
  });

  test('because of others has the call planned for what is left, twice', async () => {
    const left = coded('ERR_DEVICE_MEMORY', "Device 'Fake GPU 0' has no 8 GiB of free memory (4 GiB left)", {
      freeBytes: 2 ** 32,
    });
    const { addon, engine } = engineWith({ failing: { step: 'hashJoin', error: left } });
    expect(await failure(engine.join(ids, ids, { on: 'id' }))).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: left.message });
    expect(addon.calls.filter((name) => name === 'hashJoin')).toHaveLength(3);
    expect(addon.calls).not.toContain('sortMergeJoin');
    expect(addon.liveHandles()).toBe(0);
  });

  test('is no reason to collect garbage for host memory', async () => {
    let used = 0;
    const error = coded('ERR_DEVICE_MEMORY', FULL);
    const { addon, engine } = engineWith({ usedBytes: () => 1000 - used++, failing: { step: 'sortChunksets', error } });
    expect(await failure(engine.sort(ids, { by: 'id' }))).toMatchObject({ code: 'ERR_MEMORY_LIMIT' });
    expect(addon.calls.filter((name) => name === 'sortChunksets')).toHaveLength(1);
  });
});

describe('a device that is lost', () => {
  test('ends all calls on GPUs; new engines run on the processor', async () => {
    const { addon, engine } = engineWith({});
    const loaded = await engine.load(ids);
    const inner = addon.engines[0]!;
    inner.loseDevice(1);
    addon.calls.length = 0;
    const calls = [
      () => engine.sort(ids, { by: 'id' }),
      () => engine.join(loaded, loaded, { on: 'id' }),
      () => engine.joinCount(ids, ids, { on: 'id' }),
      () => engine.load(ids),
      () => engine.linkSpeeds({ measure: true }),
    ];
    for (const call of calls) {
      expect(await failure(call())).toMatchObject({ code: 'ERR_DEVICE', message: inner.failure() });
    }
    expect(addon.calls).toHaveLength(calls.length);
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
    const made = (options: EngineOptions) => new Engine(parse(engineSchema, 'createEngine', options), addon);
    expect(() => made({ devices: [0] })).toThrow(expect.objectContaining({ code: 'ERR_DEVICE', message: inner.failure() }));
    expect(() => made({ devices: [0] })).toThrow(WarpjoinError);
    expect(() => made({ device: 'gpu' })).toThrow(
      /GPUs were asked for but Device '.*' failed earlier: .*Device "auto" takes them where there are some/,
    );
    const { stats } = await made({}).sort(ids, { by: 'id' });
    expect(stats!.deviceReason).toMatch(/^device 'auto': the processor, without GPUs: Device '.*' failed earlier/);
  });

  test("has the module's own engine made anew, for calls at the same time, too", async () => {
    const addon = fakeAddon({ gpus: 2 });
    vi.spyOn(nativeModule, 'native').mockReturnValue(addon);
    expect((await sort(ids, { by: 'id' })).numRows).toBe(4);
    addon.engines[0]!.loseDevice(0);
    const sorted = await Promise.all([sort(ids, { by: 'id' }), joinCount(ids, ids, { on: 'id' }), sort(ids, { by: 'n' })]);
    expect([sorted[0].numRows, sorted[1], sorted[2].numRows]).toEqual([4, 6, 4]);
    // Calls at the same time have a native engine each.
    const kinds = addon.engines.map((engine) => engine.devices().map(({ kind }) => kind));
    expect(kinds).toEqual([['gpu', 'gpu'], ['host'], ['host'], ['host'], ['host']]);
    expect(addon.calls.filter((name) => name === 'dispose')).toHaveLength(2); // with its processor
  });
});
