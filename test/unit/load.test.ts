/** Loaded tables over an addon of plain JavaScript: what is on the GPUs, what goes when, and what calls take from where. */
import * as arrow from 'apache-arrow';
import { expect, test } from 'vitest';
import { Engine } from '../../lib/engine.js';
import { type EngineOptions, engineSchema } from '../../lib/options.js';
import { parse } from '../../lib/schema.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { failure, rows, table, unordered } from '../support/tables.js';

const engineOn = (addon: FakeAddon, options: EngineOptions = {}): Engine =>
  new Engine(parse(engineSchema, 'createEngine', { memoryLimit: '1GiB', ...options }), addon);
const residentBytes = (engine: Engine): number[] => engine.devices().map((device) => device.residentBytes);

const of = table({ id: new arrow.Int32(), a: new arrow.Float64() }, { id: [1, 2, 2, 5], a: [0.5, 1.5, 2.5, 3.5] });

test('a table is on all GPUs until it is disposed', async () => {
  const addon = fakeAddon({ gpus: 2 });
  const engine = engineOn(addon);
  const loaded = await engine.load(of);
  expect(addon.calls).toEqual(['relation', 'loadTable']);
  expect([loaded.numRows, loaded.resident, loaded.schema]).toEqual([4, true, of.schema]);
  expect(residentBytes(engine)).toEqual([24, 24]);
  expect(await loaded.toArrow()).toBe(of);
  await loaded.dispose();
  expect([loaded.resident, addon.liveHandles()]).toEqual([false, 0]);
  expect(residentBytes(engine)).toEqual([0, 0]);
});

test('text stays in host memory, and so do columns that nothing can use', async () => {
  const addon = fakeAddon({ gpus: 1 });
  const engine = engineOn(addon);
  const type = new arrow.List(new arrow.Field('item', new arrow.Int32()));
  const mixed = table({ t: new arrow.Utf8(), l: type, k: new arrow.Int32() }, { t: ['x', null], l: [[1], [2]], k: [1, 2] });
  await using loaded = await engine.load(mixed);
  expect(residentBytes(engine)).toEqual([8]);
  expect(rows(await engine.sort(loaded, { by: 'k', select: ['t'] }))).toEqual([{ t: 'x' }, { t: null }]);
  const texts = await engine.load(table({ t: new arrow.Utf8() }, { t: ['x'] }));
  expect(texts.resident).toBe(false);
  expect(addon.calls.filter((call) => call === 'loadTable')).toHaveLength(1);
});

test('on the processor a loaded table is the table', async () => {
  const addon = fakeAddon();
  await using loaded = await engineOn(addon).load(of);
  expect([loaded.resident, addon.calls]).toEqual([false, ['relation']]);
});

test('the table that was not used for the longest time makes room for another', async () => {
  const addon = fakeAddon({ gpus: 1 });
  const engine = engineOn(addon, { deviceMemoryLimit: 120 });
  const [one, two] = [await engine.load(of), await engine.load(of)];
  const three = await engine.load(of);
  expect([one, two, three].map(({ resident }) => resident)).toEqual([false, true, true]);
  expect(rows(await one.toArrow())).toEqual(rows(of));
  const wide = table({ a: new arrow.Int64() }, { a: Array(16).fill(1n) });
  const error = await failure(engine.load(wide));
  expect([error.code, error.message]).toEqual([
    'ERR_MEMORY_LIMIT',
    'The loaded table takes 128 bytes on each device but deviceMemoryLimit leaves 120 bytes for it.',
  ]);
  await engine.dispose();
  expect(addon.liveHandles()).toBe(0);
});

test('calls that do not fit beside loaded tables evict them before they go in parts', async () => {
  const addon = fakeAddon({ gpus: 1, bytesPerTuple: 32 });
  const engine = engineOn(addon, { deviceMemoryLimit: 160 });
  const loaded = await engine.load(of);
  const small = await engine.sort(of.slice(0, 2), { by: 'id' });
  expect([small.stats.chunksets, loaded.resident]).toEqual([1, true]);
  const large = await engine.sort(of, { by: 'id' });
  expect([large.stats.chunksets, loaded.resident]).toEqual([1, false]);
  expect(rows(await engine.sort(loaded, { by: 'a' }))).toEqual(rows(of));
});

test('what fails or is aborted leaves nothing on the devices', async () => {
  const addon = fakeAddon({
    gpus: 1,
    failing: { step: 'loadTable', error: Object.assign(new Error('no'), { code: 'ERR_DEVICE' }) },
  });
  const engine = engineOn(addon);
  expect((await failure(engine.load(of))).code).toBe('ERR_DEVICE');
  addon.settings.failing = null;
  const late = new AbortController();
  const onProgress = ({ fraction }: { fraction: number }) => fraction === 1 && late.abort(new Error('too late'));
  expect((await failure(engine.load(of, { signal: late.signal, onProgress }))).message).toBe('too late');
  expect([addon.liveHandles(), ...residentBytes(engine)]).toEqual([0, 0]);
});

test('tables of another engine, and those that were disposed, are refused', async () => {
  const [engine, other] = [engineOn(fakeAddon({ gpus: 1 })), engineOn(fakeAddon())];
  const loaded = await engine.load(of);
  const refused = [failure(other.sort(loaded, { by: 'id' })), failure(other.join(of, loaded, { on: 'id' }))];
  for (const { message } of await Promise.all(refused)) {
    expect(message).toMatch(/^Expected a table that this engine has loaded for the (input|right) table/);
  }
  const before = engine.joinCount(loaded, loaded, { on: 'id' });
  const disposal = loaded.dispose();
  const error = await failure(engine.joinCount(loaded, of, { on: 'id' }));
  expect([error.code, error.message]).toEqual([
    'ERR_INVALID_TABLE',
    'Expected a loaded table in use for the left table but received one that was disposed.',
  ]);
  expect(await before).toBe(6);
  await disposal;
  await loaded.dispose();
  expect((await failure(loaded.toArrow())).code).toBe('ERR_INVALID_TABLE');
  expect((await failure(engine.load(3 as never))).message).toContain('for the loaded table but received 3');
});

test('an engine that is disposed frees its tables', async () => {
  const addon = fakeAddon({ gpus: 1 });
  const engine = engineOn(addon);
  const loaded = await engine.load(of);
  await engine.dispose();
  expect([loaded.resident, addon.liveHandles()]).toEqual([false, 0]);
  expect(await loaded.toArrow()).toBe(of);
  expect((await failure(engine.load(of))).message).toContain('disposed');
  await loaded.dispose();
});

test('results are loaded with resident: true', async () => {
  const addon = fakeAddon({ gpus: 1 });
  const engine = engineOn(addon);
  await using joined = await engine.join(of, of, { on: 'id', resident: true });
  expect([joined.numRows, joined.resident]).toEqual([6, true]);
  expect(joined.stats.outputRows).toBe(6);
  expect(unordered(rows(await joined.toArrow()))).toEqual(unordered(rows(await engine.join(of, of, { on: 'id' }))));
});
