/** Loaded tables over an addon of plain JavaScript: what is on the GPUs, what goes when, and what calls take from where. */
import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import * as arrow from 'apache-arrow';
import { describe, expect, test, vi } from 'vitest';
import { joinLayout, sortLayout } from '../../lib/columns/layout.js';
import { ownLibrary } from '../../lib/columns/library.js';
import { NO_FACTOR } from '../../lib/columns/types.js';
import { Engine } from '../../lib/engine.js';
import type { ResidentHandle } from '../../lib/native.js';
import { runCall } from '../../lib/operators/call.js';
import { runJoin } from '../../lib/operators/join.js';
import type { JoinTask } from '../../lib/operators/join-task.js';
import { type Contents, type LoadedTable, readInput, Tables } from '../../lib/operators/load.js';
import { runSort, type SortTask } from '../../lib/operators/sort.js';
import { type EngineOptions, engineSchema, joinSchema, joinSettings } from '../../lib/options.js';
import { parse } from '../../lib/schema.js';
import type { JoinOptions, TableInput } from '../../lib/types.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { failure, rows, table, unordered } from '../support/tables.js';

const engineOn = (addon: FakeAddon, options: EngineOptions = {}): Engine =>
  new Engine(
    parse(engineSchema, 'createEngine', { memoryLimit: '1GiB', device: addon.settings.gpus ? 'gpu' : 'cpu', ...options }),
    addon,
  );
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

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

test('a table that nobody holds is freed when it is collected', async () => {
  const addon = fakeAddon({ gpus: 1 });
  const engine = engineOn(addon);
  const held = await engine.load(of);
  await engine.load(of);
  expect(residentBytes(engine)).toEqual([96]);
  await vi.waitFor(() => {
    collect();
    expect(residentBytes(engine)).toEqual([48]);
  });
  expect([held.resident, addon.liveHandles()]).toEqual([true, 1]);
});

test('calls hold the tables that they are given', async () => {
  const addon = fakeAddon({ gpus: 1, stepMilliseconds: 3 });
  const engine = engineOn(addon);
  const { first, joined } = await (async () => {
    const [left, right] = [await engine.load(of), await engine.load(of)];
    return { first: engine.sort(of, { by: 'a' }), joined: engine.join(left, right, { on: 'id' }) };
  })();
  let ended = false;
  const end = joined.finally(() => {
    ended = true;
  });
  while (!ended) {
    collect();
    await setTimeout(1);
  }
  await first;
  expect((await end).stats.resident).toEqual(['left', 'right']);
  await vi.waitFor(() => {
    collect();
    expect(residentBytes(engine)).toEqual([0]);
  });
  expect(addon.liveHandles()).toBe(0);
});

test('a table that a call reads where it lies goes with the end of the call', () => {
  const tables = new Tables();
  const contents: Contents = {
    rows: 0,
    columns: [],
    metadata: undefined,
    library: ownLibrary,
    host: null,
    resident: null,
    disposed: false,
  };
  const handle = { release: vi.fn() };
  tables.add(contents, { handle: handle as unknown as ResidentHandle, position: new Map() });
  tables.endCall(true);
  tables.use(contents);
  tables.abandon(contents);
  expect(handle.release).not.toHaveBeenCalled();
  tables.endCall(true);
  expect(handle.release).toHaveBeenCalledOnce();
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
  const engine = engineOn(addon, { device: 'gpu', deviceMemoryLimit: 160 });
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

describe('joins of loaded tables', () => {
  const right = table({ id: new arrow.Int32(), b: new arrow.Int64() }, { id: [2, 3, 1, 2], b: [20n, 30n, 10n, 21n] });
  const wide = table(
    { id: new arrow.Int32(), b: new arrow.Int64(), c: new arrow.Int16(), t: new arrow.Utf8() },
    { id: [2, 3], b: [1n, 2n], c: [null, 3], t: ['x', 'y'] },
  );
  async function joining(options: EngineOptions = {}) {
    const addon = fakeAddon({ gpus: 2 });
    const engine = engineOn(addon, options);
    const tables = { one: await engine.load(of), other: await engine.load(right), wide: await engine.load(wide) };
    addon.calls.length = 0;
    return { addon, engine, ...tables };
  }

  test('run where they lie, with what rows carry', async () => {
    const { addon, engine, one, other } = await joining();
    const joined = await engine.join(one, other, { on: 'id' });
    expect(unordered(rows(joined))).toEqual(unordered(rows(await engine.join(of, right, { on: 'id' }))));
    expect(addon.calls.slice(0, 2)).toEqual(['tableJoinKeys', 'joinTablesHome']);
    expect(addon.calls.slice(2)).toEqual(['relation', 'relation', 'joinKeys', 'hashJoin']);
    expect(joined.stats).toMatchObject({ resident: ['left', 'right'], residentReason: 'joined where they lie' });
    expect(await engine.joinCount(one, other, { on: 'id', how: 'left' })).toBe(6);
    const { left: l, right: r } = await engine.joinIndices(one, other, { on: 'id', how: 'semi' });
    expect([[...l], r]).toEqual([[0, 1, 2], null]);
    expect(addon.calls.slice(6)).toEqual(['tableJoinKeys', 'joinTablesHome', 'tableJoinKeys', 'joinTablesHome']);
  });

  test('gather more columns there, and bring them home', async () => {
    const { addon, engine, one, wide: loaded } = await joining();
    const select = ['id', 'a', 'b', 'c'] as const;
    const joined = await engine.join(one, loaded, { on: 'id', how: 'full', coalesce: false, select });
    expect(unordered(rows(joined))).toEqual(
      unordered(rows(await engine.join(of, wide, { on: 'id', how: 'full', coalesce: false, select }))),
    );
    expect(addon.calls.slice(0, 3)).toEqual(['tableJoinKeys', 'joinTables', 'bringHome']);
  });

  test.each([
    ['t', { on: 'id', select: ['id', 'a', 't'] }],
    ['id, a, b', { on: 'id', how: 'full', coalesce: true, select: ['id', 'a', 'b'] }],
  ] as const)('give the rows by which columns are gathered that are not there: %s', async (names, options) => {
    const { addon, engine, one, wide: loaded } = await joining();
    const ask = (l: TableInput, r: TableInput) => engine.join(l, r, options as JoinOptions);
    const joined = await ask(one, loaded);
    expect(addon.calls.filter((call) => !call.startsWith('gather'))).toEqual([
      'tableJoinKeys',
      ...['relation', 'relation'].slice(names === 't' ? 1 : 0),
      'joinTablesHome',
    ]);
    expect(joined.stats.residentReason).toBe(`joined where they lie, but for columns that come from host memory: ${names}`);
    expect(unordered(rows(joined))).toEqual(unordered(rows(await ask(of, wide))));
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('have rows in order there, where the columns of the result are', async () => {
    const { addon, engine, one, other } = await joining();
    for (const options of [
      { on: 'id', maintainOrder: 'right', limit: 3 },
      { on: 'id', maintainOrder: 'left', offset: 1, how: 'left' },
      { on: 'id', maintainOrder: 'left', select: ['b'] },
    ] as const) {
      addon.calls.length = 0;
      const joined = await engine.join(one, other, options);
      expect(addon.calls).toEqual(['tableJoinKeys', 'joinTables', 'bringHome']);
      expect(rows(joined)).toEqual(rows(await engine.join(of, right, { ...options, algorithm: 'radix-hash' })));
      const stays = await engine.join(one, other, { ...options, resident: true });
      expect(rows(await stays.toArrow())).toEqual(rows(joined));
    }
    expect(await engine.joinCount(one, other, { on: 'id', maintainOrder: 'right', limit: 3, offset: 3 })).toBe(2);
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('bring row numbers to host memory where these are cut, or ordered for columns that are not there', async () => {
    const { addon, engine, one, wide: other } = await joining();
    const options = { on: 'id', maintainOrder: 'right', limit: 3 } as const;
    const joined = await engine.join(one, other, options);
    expect(addon.calls.slice(0, 6)).toEqual([
      ...['tableJoinKeys', 'relation', 'relation', 'joinTablesHome', 'orderRows', 'sliceRows'],
    ]);
    expect(rows(joined)).toEqual(rows(await engine.join(of, wide, options)));
    addon.calls.length = 0;
    const stays = await engine.join(one, other, { ...options, resident: true });
    expect(addon.calls).toContain('orderRows');
    expect(addon.calls.at(-1)).toBe('loadTable');
    expect(rows(await stays.toArrow())).toEqual(rows(joined));
    addon.calls.length = 0;
    expect((await engine.join(one, one, { on: 'id', limit: 1 })).numRows).toBe(1);
    expect(addon.calls).toContain('sliceRows');
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('are looked through in host memory for keys that are there twice', async () => {
    const { engine, one, other } = await joining();
    expect(await engine.joinCount(one, one, { on: 'a', validate: '1:1' })).toBe(one.numRows);
    const error = await failure(engine.join(one, other, { on: 'id', validate: 'm:1' }));
    expect(error.code).toBe('ERR_DUPLICATE_KEY');
    expect(error.message).toContain('of the right table once');
    const kept = await engine.unique(other, { on: 'id' });
    expect(rows(kept).map(({ id }) => id)).toEqual([2, 3, 1]);
    expect(kept.stats.residentReason).toBe('taken from host memory: unique runs on the host');
  });

  test('leave a result on the devices, to be joined again', async () => {
    const { addon, engine, one, other } = await joining();
    const joined = await engine.join(one, other, { on: 'id', resident: true });
    expect([joined.numRows, joined.resident, joined.schema.names]).toEqual([5, true, ['id', 'a', 'b']]);
    expect(await engine.joinCount(joined, one, { on: 'id' })).toBe(9);
    const again = await engine.join(joined, other, { on: 'id', select: ['id', 'b'], resident: true });
    expect(addon.calls.filter((call) => call !== 'tableJoinKeys')).toEqual(['joinTables', 'joinTablesHome', 'joinTables']);
    const host = await engine.join(of, right, { on: 'id' });
    expect(unordered(rows(await joined.toArrow()))).toEqual(unordered(rows(host)));
    expect(await joined.toArrow()).toBe(await joined.toArrow());
    expect(addon.calls.filter((call) => call === 'bringHome')).toHaveLength(1);
    const all = await engine.join(again, one, { on: 'id' });
    expect(all.stats.residentReason).toBe('joined where they lie');
    const gathered = await engine.join(joined, one, { on: 'id' });
    expect(gathered.stats.residentReason).toBe('joined where they lie, but for columns that come from host memory: a, b');
    await joined.dispose();
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
    expect((await failure(again.toArrow())).message).toContain('disposed');
  });

  test('results that nobody holds make room for others, and those in use come home for it', async () => {
    const { addon, engine, one, other } = await joining({ deviceMemoryLimit: 230 });
    const join = () => engine.join(one, other, { on: 'id', resident: true });
    for (let turn = 0; turn < 20; turn++) expect((await join()).resident).toBe(true);
    expect(addon.calls).not.toContain('bringHome');
    const held = [];
    for (let turn = 0; turn < 20; turn++) held.push(await join());
    expect(addon.calls).toContain('bringHome');
    expect(held.at(-1)!.resident).toBe(true);
    for (const result of held) expect((await result.toArrow()).numRows).toBe(5);
  });

  test.each([
    ['the right table is not loaded', { on: 'id' }, 'other'],
    ['the keys are in host memory alone', { on: 't' }, 'texts'],
    ['a cross join has no keys', { how: 'cross' }, 'one'],
    ['sort-merge was asked for', { on: 'id', algorithm: 'sort-merge' }, 'one'],
  ] as const)('from host memory: %s', async (reason, options, with_) => {
    const { engine, ...tables } = await joining();
    const texts = await engine.load(table({ id: new arrow.Int32(), t: new arrow.Utf8() }, { id: [1], t: ['x'] }));
    const one = with_ === 'texts' ? texts : tables.one;
    const second = { other: right, texts, one }[with_];
    const plan = await engine.explain('join', one, second, options as never);
    expect(plan).toContain(`  loaded   taken from host memory: ${reason}\n`);
    const joined = await engine.join(one, second, options as JoinOptions<typeof one, typeof second>);
    expect([joined.stats.resident, joined.stats.residentReason]).toEqual([[], `taken from host memory: ${reason}`]);
  });

  describe('by keys that are made there', () => {
    const withNulls = table(
      { id: new arrow.Int32(), b: new arrow.Int64(), t: new arrow.Utf8() },
      { id: [2, null, 3, null, 2], b: [1n, 2n, 3n, 4n, 5n], t: ['v', 'w', 'x', 'y', 'z'] },
    );
    async function making() {
      const tables = await joining();
      return { ...tables, nulls: await tables.engine.load(withNulls) };
    }

    test.each([
      ['what keys and rows carry', { on: 'id', select: ['id', 'b'] }, true, ['joinTables', 'bringHome']],
      ['no key', { on: 'id', select: ['b', 'a'] }, true, ['joinTablesHome']],
      ['a key that they do not give', { on: 'id', select: ['id', 'b'] }, false, ['joinTablesHome']],
      ['a key that they do not give, gathered', { on: 'id', select: ['id', 'a', 'b'] }, false, ['joinTables', 'bringHome']],
      ['a column that is not there', { on: 'id', select: ['id', 't'] }, true, ['relation', 'joinTablesHome']],
      ['all rows', { on: 'id', how: 'full', coalesce: false }, true, ['relation', 'relation', 'joinTablesHome']],
      ['left rows', { on: 'id', how: 'anti' }, true, ['joinTables', 'bringHome']],
    ] as const)('give %s', async (_, options, decodes, calls) => {
      const { addon, engine, one, nulls } = await making();
      addon.settings.decodes = decodes;
      addon.calls.length = 0;
      const ask = (l: TableInput, r: TableInput) => engine.join(l, r, options as JoinOptions);
      const joined = await ask(one, nulls);
      const made = addon.calls.filter((call) => !call.startsWith('gather'));
      expect(made).toEqual(['tableJoinKeys', ...calls]);
      expect(joined.stats.resident).toEqual(['left', 'right']);
      expect(unordered(rows(joined))).toEqual(unordered(rows(await ask(of, withNulls))));
      await engine.dispose();
      expect(addon.liveHandles()).toBe(0);
    });

    test('come from host memory where they take too many bits', async () => {
      const { addon, engine, one, nulls } = await making();
      addon.settings.keyBits = 65;
      const { stats } = await engine.join(one, nulls, { on: 'id' });
      expect(stats.residentReason).toBe('taken from host memory: the keys take 65 bits, more than 64');
      await engine.dispose();
      expect(addon.liveHandles()).toBe(0);
    });

    test('give no columns of rows in an order', async () => {
      const { addon, engine, nulls, one } = await making();
      const options = { on: 'id', maintainOrder: 'right', select: ['id', 'a', 'b'] } as const;
      addon.calls.length = 0;
      const joined = await engine.join(one, nulls, options);
      expect(addon.calls).toEqual(['tableJoinKeys', 'joinTables', 'bringHome']);
      expect(rows(joined)).toEqual(rows(await engine.join(of, withNulls, { ...options, algorithm: 'radix-hash' })));
    });

    test('are made of several columns', async () => {
      const { addon, engine } = await making();
      const types = { a: new arrow.Int32(), b: new arrow.Int64(), v: new arrow.Float64() };
      const left = await engine.load(table(types, { a: [1, 2, null], b: [7n, 8n, 9n], v: [1, 2, 3] }));
      const right = await engine.load(table({ w: types.v, a: types.a, b: types.b }, { w: [5, 6], a: [2, 3], b: [8n, 8n] }));
      const { core } = left as LoadedTable;
      const inputs = { left: readInput(core, left, 'left'), right: readInput(core, right, 'right') };
      const settings = joinSettings(joinSchema, 'join', { on: 'a', resident: true });
      const keys = [
        { left: 0, right: 1, nullsEqual: false, factors: { left: NO_FACTOR, right: NO_FACTOR } },
        { left: 1, right: 2, nullsEqual: true, factors: { left: NO_FACTOR, right: NO_FACTOR } },
      ];
      const { columns } = joinLayout(inputs.left, inputs.right, { ...settings, select: ['a', 'b', 'v', 'w'] });
      const made = vi.spyOn(core.native, 'tableJoinKeys');
      const joined = vi.spyOn(core.native, 'joinTables');
      const task: JoinTask = { ...inputs, keys, settings, want: { columns } };
      const running = { signal: undefined, onProgress: undefined, trace: undefined };
      const result = await runCall(core, running, (call) => runJoin(call, task));
      expect(made.mock.lastCall!.slice(1)).toEqual([
        { table: expect.anything(), keys: [0, 1] },
        { table: expect.anything(), keys: [1, 2] },
        [false, true],
      ]);
      expect(joined.mock.lastCall![3]).toEqual([
        { from: 'keys', pair: 0 },
        { from: 'keys', pair: 1 },
        { from: 'left', column: null },
        { from: 'right', column: null },
      ]);
      expect(rows(await result.table!.toArrow())).toEqual([{ a: 2, b: 8n, v: 2, w: 5 }]);
      addon.settings.keyBits = 65;
      const { stats } = await runCall(core, running, (call) => runJoin(call, { ...task, want: 'count' }));
      expect(stats.residentReason).toBe('taken from host memory: the keys take 65 bits, more than 64');
      await engine.dispose();
      expect(addon.liveHandles()).toBe(0);
    });

    test('come from host memory where floats are of two widths', async () => {
      const { engine } = await making();
      const [one, other] = [new arrow.Float32(), new arrow.Float64()].map((f) => engine.load(table({ f }, { f: [1, 2] })));
      const { stats } = await engine.join(await one!, await other!, { on: 'f' });
      expect(stats.residentReason).toBe('taken from host memory: the keys are floats of two widths');
    });
  });

  test('evict other tables for their room, then go on from host memory', async () => {
    const { addon, engine, one, other, wide: third } = await joining({ deviceMemoryLimit: 185 });
    const { stats } = await engine.join(one, other, { on: 'id' });
    expect([stats.resident, third.resident]).toEqual([['left', 'right'], false]);
    addon.settings.bytesPerTuple = 40;
    const joined = await engine.join(one, other, { on: 'id' });
    expect(joined.stats.residentReason).toBe(
      'taken from host memory: joining where they lie takes 160 bytes on each device, which has 137 bytes left',
    );
    expect(joined.numRows).toBe(5);
  });

  test('come back to the devices where there is room', async () => {
    const { addon, engine, one, other } = await joining({ deviceMemoryLimit: 300 });
    const big = await engine.load(table({ v: new arrow.Int64() }, { v: Array(60).fill(1n) }));
    expect([one.resident, other.resident, big.resident]).toEqual([false, true, true]);
    await big.dispose();
    addon.calls.length = 0;
    expect(await engine.joinCount(one, other, { on: 'id' })).toBe(5);
    expect(addon.calls).toEqual(['relation', 'loadTable', 'tableJoinKeys', 'joinTablesHome']);
  });

  test('a device that runs out of memory leaves them to host memory', async () => {
    const { addon, engine, one, other } = await joining();
    const error = Object.assign(new Error('device full'), { code: 'ERR_DEVICE_MEMORY' });
    addon.settings.failing = { step: 'joinTables', error };
    const joined = await engine.join(one, other, { on: 'id', resident: true });
    expect(joined.stats.residentReason).toBe('taken from host memory: device full');
    expect(addon.calls.at(-1)).toBe('loadTable');
    expect([joined.numRows, joined.resident]).toEqual([5, true]);
  });
});

describe('joins of tables in host memory that are lent to the devices', () => {
  const types = { id: new arrow.Int32(), day: new arrow.Int32(), v: new arrow.Float64(), t: new arrow.Utf8() };
  const left = table(types, { id: [1, 2, 2, 5], day: [1, 1, 2, 2], v: [0.5, 1.5, 2.5, 3.5], t: ['a', 'b', 'c', 'd'] });
  const right = table({ ...types, w: types.v }, { id: [2, 2, 5, 2], day: [2, 1, 2, 2], v: [], t: [], w: [1, 2, 3, 4] });
  const select = ['id', 'day', 'v', 'w'] as const;
  const lent = ['relation', 'loadTable', 'relation', 'loadTable', 'tableJoinKeys'];
  const several = { on: ['id', 'day'], select } as const;
  const ordered = { on: 'id', maintainOrder: 'right', select: ['id', 'v', 'w'] } as const;

  async function onFake(options: EngineOptions = {}) {
    const addon = fakeAddon({ gpus: 2 });
    return { addon, engine: engineOn(addon, options) };
  }

  test.each([
    ['keys of several columns', several],
    ['an order', ordered],
    ['both, in part', { ...several, how: 'left', maintainOrder: 'left', offset: 1, limit: 3 }],
  ] as const)('for %s', async (_, given) => {
    const options: JoinOptions<typeof left, typeof right> = given;
    const { addon, engine } = await onFake();
    const joined = await engine.join(left, right, options);
    expect(addon.calls).toEqual([...lent, 'joinTables', 'bringHome']);
    expect(joined.stats).toMatchObject({ resident: [], residentReason: null, algorithm: 'radix-hash' });
    expect(addon.liveHandles()).toBe(0);
    const host = await engine.join(left, right, { ...options, algorithm: 'radix-hash' });
    const sorted = 'maintainOrder' in given ? (of: object[]) => of : unordered;
    // The fake's host memory gives the first key for each.
    const payload = (of: ReturnType<typeof rows>) => sorted(of.map(({ v, w }) => ({ v, w })));
    expect(payload(rows(joined))).toEqual(payload(rows(host)));
    const stays = await engine.join(left, right, { ...options, resident: true });
    expect(addon.calls.at(-1)).toBe('joinTables');
    expect(sorted(rows(await stays.toArrow()))).toEqual(sorted(rows(joined)));
    expect(await engine.explain('join', left, right, options)).toContain('the devices make keys and order rows sooner');
  });

  test('their keys alone, to be counted', async () => {
    const { addon, engine } = await onFake();
    expect(await engine.joinCount(left, right, { on: ['id', 'day'] })).toBe(4);
    expect(addon.calls).toEqual([...lent, 'joinTablesHome']);
    expect(addon.liveHandles()).toBe(0);
  });

  test.each([
    ['one key in any order', { on: 'id', select }, {}],
    ['an algorithm that was asked for', { ...several, algorithm: 'radix-hash' }, {}],
    ['a column that devices do not hold', { ...several, select: ['t', 'w'] }, {}],
    ['a key that devices do not hold', { on: ['id', 't'], select }, {}],
    ['a coalesced key', { ...several, how: 'full', coalesce: true }, {}],
    ['an order of row numbers alone', null, {}],
    ['too little memory', several, { deviceMemoryLimit: 100 }],
  ] as const)('but not for %s', async (_, options, limits) => {
    const { addon, engine } = await onFake(limits);
    if (options) await engine.join(left, right, options as JoinOptions<typeof left, typeof right>).catch(() => {});
    else await engine.joinIndices(left, right, { on: 'id', maintainOrder: 'left' });
    expect(addon.calls).not.toContain('loadTable');
    expect(addon.liveHandles()).toBe(0);
  });

  test.each(['loadTable', 'joinTables'])('go on from host memory where the devices run out of theirs: %s', async (step) => {
    const { addon, engine } = await onFake();
    const error = Object.assign(new Error('device full'), { code: 'ERR_DEVICE_MEMORY' });
    addon.settings.failing = { step, error };
    const joined = await engine.join(left, right, several);
    expect(addon.calls).toContain('hashJoin');
    expect([joined.numRows, joined.stats.residentReason]).toEqual([4, null]);
    expect(addon.liveHandles()).toBe(0);
  });

  test('name a result that does not fit host memory', async () => {
    const { addon, engine } = await onFake({ memoryLimit: 2 ** 20 });
    const many = table({ id: types.id, day: types.day }, { id: Array(400).fill(1), day: Array(400).fill(1) });
    const error = await failure(engine.join(many, many, { on: ['id', 'day'] }));
    expect([error.code, error.message]).toEqual(['ERR_MEMORY_LIMIT', expect.stringContaining('a result of 160000 rows')]);
    expect(addon.liveHandles()).toBe(0);
  });
});

describe('sorts of loaded tables', () => {
  const wide = table(
    { id: new arrow.Int32(), n: new arrow.Int32(), a: new arrow.Float64(), c: new arrow.Int16(), t: new arrow.Utf8() },
    { id: [3, 1, 2, 1], n: [1, 2, 3, null], a: [0.5, 1.5, 2.5, 3.5], c: [null, 1, 2, 3], t: ['x', 'y', 'z', null] },
  );
  async function sorting(options: EngineOptions = {}) {
    const addon = fakeAddon({ gpus: 2 });
    const engine = engineOn(addon, options);
    const loaded = await engine.load(wide);
    addon.calls.length = 0;
    return { addon, engine, loaded };
  }

  test.each([
    { by: 'id', select: ['id'] },
    { by: 'id', select: ['a'] },
    { by: { column: 'id', descending: true }, select: ['a', 'id'] },
    { by: 'id', select: ['c', 'n', 'id', 'a'], algorithm: 'sample' },
    { by: { column: 'a', descending: true }, select: ['a'] },
    { by: 'n', select: ['id'] },
    { by: [{ column: 'c', nullsLast: false }, 'id'], select: ['c', 'id', 'a'] },
  ] as const)('run where it lies: %o', async (options) => {
    const { addon, engine, loaded } = await sorting();
    const sorted = await engine.sort(loaded, options);
    expect(addon.calls).toEqual(['tableSortKeys', 'sortTable', 'bringHome']);
    expect(rows(sorted)).toEqual(rows(await engine.sort(wide, options)));
    expect(sorted.stats).toMatchObject({ resident: ['input'], residentReason: 'sorted where it lies', outputRows: 4 });
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('leave a result on the devices, to go into further calls', async () => {
    const { addon, engine, loaded } = await sorting();
    const sorted = await engine.sort(loaded, { by: 'id', select: ['id', 'a'], resident: true });
    expect([sorted.numRows, sorted.resident, sorted.schema.names]).toEqual([4, true, ['id', 'a']]);
    const again = await engine.sort(sorted, { by: { column: 'id', descending: true }, resident: true });
    expect(await engine.joinCount(again, loaded, { on: 'id' })).toBe(6);
    const sorts = ['tableSortKeys', 'sortTable', 'tableSortKeys', 'sortTable'];
    expect(addon.calls).toEqual([...sorts, 'tableJoinKeys', 'joinTablesHome']);
    expect(rows(await again.toArrow()).map((row) => (row as { a: number }).a)).toEqual([0.5, 2.5, 1.5, 3.5]);
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test.each([
    [0, 2, [1, 1]],
    [1, 3, [1, 2]],
    [4, 4, []],
  ])('give the rows from %i to %i', async (begin, end, ids) => {
    const { addon, engine, loaded } = await sorting();
    const input = readInput((loaded as LoadedTable).core, loaded, 'input');
    const task: SortTask = {
      table: input,
      by: [{ column: 'id', descending: false, nullsLast: true }],
      keys: [0],
      columns: sortLayout(input, ['id', 'c']),
      algorithm: 'auto',
      resident: true,
      rows: { begin, end },
    };
    const running = { signal: undefined, onProgress: undefined, trace: undefined };
    const sorted = await runCall((loaded as LoadedTable).core, running, (call) => runSort(call, task));
    expect(addon.calls).toEqual(['tableSortKeys', 'sortTable']);
    expect([sorted.rows, sorted.stats.inputRows, sorted.stats.outputRows]).toEqual([end - begin, [4], end - begin]);
    expect(rows(await sorted.table!.toArrow()).map((row) => (row as { id: number }).id)).toEqual(ids);
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('explain shows it, and measures it', async () => {
    const { engine, loaded } = await sorting();
    const plan = await engine.explain('sort', loaded, { by: 'id', select: ['id', 'c'], analyze: true });
    expect(plan).toContain('  loaded   input: sorted where it lies\n');
    expect(plan).toMatch(/sort of a loaded table.*\n.*bring home/);
  });

  test.each([
    ['its keys take 65 bits, more than 64', { by: ['a', 'n'], select: ['a'] }],
    ['merge was asked for', { by: 'id', select: ['a'], algorithm: 'merge' }],
    ['columns are in host memory alone: "t"', { by: 'id' }],
    ['columns are in host memory alone: "t"', { by: ['id', 't'], select: ['id'] }],
  ] as const)('from host memory: %s', async (reason, options) => {
    const { addon, engine, loaded } = await sorting();
    addon.settings.keyBits = 65;
    const sorted = await engine.sort(loaded, { ...options, resident: true } as { by: 'id'; resident: true });
    expect(sorted.stats).toMatchObject({ resident: [], residentReason: `taken from host memory: ${reason}` });
    expect(sorted).toMatchObject({ numRows: 4, resident: true });
    await engine.dispose();
    expect(addon.liveHandles()).toBe(0);
  });

  test('gather the columns that their keys do not give back', async () => {
    const { addon, engine, loaded } = await sorting();
    addon.settings.decodes = false;
    const by = { column: 'a', descending: true } as const;
    const sorted = await engine.sort(loaded, { by, select: ['a', 'id'] });
    expect(rows(sorted)).toEqual(rows(await engine.sort(wide, { by, select: ['a', 'id'] })));
    expect(sorted.stats.resident).toEqual(['input']);
  });

  test('gather from tables alone that are spread evenly', async () => {
    const { engine, loaded } = await sorting();
    const sorted = await engine.sort(loaded, { by: 'id', select: ['id', 'a', 'c'], resident: true });
    const { stats } = await engine.sort(sorted, { by: 'id' });
    expect(stats.residentReason).toBe('taken from host memory: its rows are not spread evenly over the devices');
    expect((await engine.sort(sorted, { by: 'id', select: ['a'] })).stats.resident).toEqual(['input']);
  });

  test('bring no evicted table back that they then take from host memory', async () => {
    const { addon, engine, loaded } = await sorting({ deviceMemoryLimit: 70 });
    await engine.load(wide);
    expect(loaded.resident).toBe(false);
    addon.calls.length = 0;
    const sorted = await engine.sort(loaded, { by: 'id' });
    expect(sorted.stats.residentReason).toBe('taken from host memory: columns are in host memory alone: "t"');
    expect(addon.calls).not.toContain('loadTable');
  });

  test('evict other tables for their room, then go on from host memory', async () => {
    const { addon, engine, loaded } = await sorting({ deviceMemoryLimit: 110 });
    const other = await engine.load(of);
    expect([loaded.resident, other.resident]).toEqual([true, true]);
    addon.settings.bytesPerTuple = 18;
    expect((await engine.sort(loaded, { by: 'id', select: ['a'] })).stats.resident).toEqual(['input']);
    expect([loaded.resident, other.resident]).toEqual([true, false]);
    addon.settings.bytesPerTuple = 20;
    const sorted = await engine.sort(loaded, { by: 'id', select: ['a'] });
    expect(sorted.stats.residentReason).toMatch(
      /^taken from host memory: sorting where it lies takes 80 bytes on each device, which/,
    );
  });

  test('a result that host memory has no room for is refused before anything is sorted', async () => {
    const { addon, engine } = await sorting({ memoryLimit: 2 ** 20 });
    addon.settings.bytesPerTuple = 1;
    const loaded = await engine.load(table({ id: new arrow.Int64() }, { id: Array(2 ** 17 + 1).fill(1n) }));
    const error = await failure(engine.sort(loaded, { by: 'id' }));
    expect([error.code, error.message]).toEqual(['ERR_MEMORY_LIMIT', expect.stringContaining('memoryLimit is 1 MiB')]);
    expect(addon.calls).not.toContain('sortTable');
  });

  test('a device that runs out of memory leaves them to host memory', async () => {
    const { addon, engine, loaded } = await sorting();
    const error = Object.assign(new Error('device full'), { code: 'ERR_DEVICE_MEMORY' });
    addon.settings.failing = { step: 'sortTable', error };
    const sorted = await engine.sort(loaded, { by: 'id', select: ['id', 'a'], resident: true });
    expect(sorted.stats.residentReason).toBe('taken from host memory: device full');
    expect([sorted.numRows, sorted.resident]).toEqual([4, true]);
  });

  test('on the processor a result that stays is the Arrow table', async () => {
    const engine = engineOn(fakeAddon({}));
    const sorted = await engine.sort(await engine.load(wide), { by: 'id', resident: true });
    expect([sorted.resident, sorted.stats.residentReason]).toEqual([
      false,
      'taken from host memory: the devices are the processor',
    ]);
    expect(rows(await sorted.toArrow())).toEqual(rows(await engine.sort(wide, { by: 'id' })));
  });
});
