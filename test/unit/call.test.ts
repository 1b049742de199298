/** The control plane over an addon of plain JavaScript: handles, abort, progress, errors, and what is asked of the data plane. */
import * as arrow from 'apache-arrow';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Engine } from '../../lib/engine.js';
import { WarpjoinError } from '../../lib/errors.js';
import { type EngineOptions, engineSchema } from '../../lib/options.js';
import { COSTS } from '../../lib/plan/costs.js';
import { parse } from '../../lib/schema.js';
import { type FakeAddon, fakeAddon } from '../support/fake-addon.js';
import { hold } from '../support/held.js';
import { failure, rows, table, unordered } from '../support/tables.js';

const engineOn = (addon: FakeAddon, options: EngineOptions = {}): Engine =>
  new Engine(parse(engineSchema, 'createEngine', { memoryLimit: '1GiB', ...options }), addon);

const left = table({ id: new arrow.Int32(), a: new arrow.Float64() }, { id: [1, 2, 2, 5], a: [0.5, 1.5, 2.5, 3.5] });
const right = table({ id: new arrow.Int32(), b: new arrow.Int64() }, { id: [2, 3, 1, 2], b: [20n, 30n, 10n, 21n] });
const inner = [
  { id: 1, a: 0.5, b: 10n },
  { id: 2, a: 1.5, b: 20n },
  { id: 2, a: 1.5, b: 21n },
  { id: 2, a: 2.5, b: 20n },
  { id: 2, a: 2.5, b: 21n },
];

describe('a buffer that is transferred during a call', () => {
  const fresh = (): arrow.Table<{ id: arrow.Int32; a: arrow.Float64 }> =>
    new arrow.Table({ id: arrow.makeVector(Int32Array.of(1, 2)), a: arrow.makeVector(Float64Array.of(1, 2)) });
  const transfer = ({ buffer }: ArrayBufferView<ArrayBuffer>): void => {
    structuredClone(buffer, { transfer: [buffer] });
  };
  const transferId = (of: arrow.Table): void => transfer(of.getChild('id')!.data[0]!.values as Int32Array<ArrayBuffer>);

  test.each(['joinKeys', 'hashJoin'])('in %s', async (step) => {
    const input = fresh();
    const addon = fakeAddon({ onStep: (name) => name === step && transferId(input) });
    const error = await failure(engineOn(addon).join(left, input, { on: 'id' }));
    expect(error.code).toBe('ERR_INVALID_TABLE');
    expect(error.message).toBe(
      'The buffer of column "id" of the right table was transferred, or detached, during the call. ' +
        'Inputs must stay as they are until the call has ended.',
    );
    expect(addon.calls.at(-1)).toBe(step); // nothing reads it afterwards
    expect(addon.liveHandles()).toBe(0);
  });

  test('in a sort, and in one of typed arrays', async () => {
    const input = fresh();
    const addon = fakeAddon({ onStep: (name) => name === 'sortChunksets' && transferId(input) });
    expect((await failure(engineOn(addon).sort(input, { by: 'id' }))).message).toMatch(/column "id" of the input table/);
    const keys = Int32Array.of(2, 1);
    const other = fakeAddon({ onStep: (name) => name === 'sortChunksets' && transfer(keys) });
    const error = await failure(engineOn(other).sortPairs(keys, Int32Array.of(1, 2)));
    expect(error.message).toMatch(/column "keys" of the sortPairs table/);
  });
});

describe('what a join asks for', () => {
  test('keys and payloads travel with the rows of an inner join', async () => {
    const addon = fakeAddon();
    const out = await engineOn(addon).join(left, right, { on: 'id' });
    expect(unordered(rows(out))).toEqual(unordered(inner));
    expect(addon.calls).toEqual(['relation', 'relation', 'joinKeys', 'hashJoin']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('a key that has to be gathered keeps the row numbers', async () => {
    const addon = fakeAddon({ keysAreLeftValues: false });
    const out = await engineOn(addon).join(left, right, { on: 'id' });
    expect(unordered(rows(out))).toEqual(unordered(inner));
    expect(addon.calls).toEqual(['relation', 'relation', 'joinKeys', 'hashJoin', 'gather', 'gather']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('what keys do not carry is gathered', async () => {
    const addon = fakeAddon({ carriesPayload: false, keysAreLeftValues: false });
    const out = await engineOn(addon).join(left, right, { on: 'id', select: ['a', 'b'] });
    expect(unordered(rows(out))).toEqual(unordered(inner.map(({ a, b }) => ({ a, b }))));
    expect(addon.calls.filter((call) => call === 'gather')).toHaveLength(2);
  });

  test('rows are looked up where they are keys', async () => {
    const addon = fakeAddon({ rowsAreKeysOf: 'right' });
    const out = await engineOn(addon).join(left, right, { on: 'id' });
    expect(unordered(rows(out))).toEqual(unordered(inner));
    expect(addon.calls.slice(0, 4)).toEqual(['relation', 'relation', 'joinKeys', 'lookupJoin']);
    expect(out.stats.algorithm).toBe('lookup');
  });

  test('rows that are to be ordered carry nothing, and columns are made of those that are asked for', async () => {
    const addon = fakeAddon();
    const options = { on: 'id', maintainOrder: 'right', offset: 1, limit: 3 } as const;
    const out = await engineOn(addon).join(left, right, options);
    expect(rows(out)).toEqual([inner[3], inner[0], inner[2]]);
    expect(addon.calls).toEqual([
      ...['relation', 'relation', 'joinKeys', 'hashJoin', 'orderRows', 'sliceRows'],
      ...['gather', 'gather', 'gather'],
    ]);
    expect(out.stats.steps.map(({ name }) => name)).toContain('order rows by right');
    expect(addon.liveHandles()).toBe(0);
    expect(await engineOn(addon).joinCount(left, right, options)).toBe(3);
    expect(addon.calls.slice(-2)).toEqual(['joinKeys', 'hashJoin']);
  });

  test('a key that is there twice ends the call before the join', async () => {
    const addon = fakeAddon();
    const error = await failure(engineOn(addon).join(left, right, { on: 'id', validate: '1:m' }));
    expect(error.code).toBe('ERR_DUPLICATE_KEY');
    expect(error.message).toContain('rows 1 and 2 have the same: "id" 2.');
    expect(addon.calls.slice(3)).toEqual(['relation', 'joinKeys', 'repeatedKey', 'crossJoin', 'gather']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('unique finds rows, then gathers', async () => {
    const addon = fakeAddon();
    const out = await engineOn(addon).unique(left, { on: 'id', keep: 'last', select: ['a'] });
    expect(rows(out).map(({ a }) => a)).toEqual([0.5, 2.5, 3.5]);
    expect(addon.calls).toEqual(['relation', 'joinKeys', 'uniqueRows', 'gather']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('columns that are not selected are not even checked', async () => {
    const addon = fakeAddon();
    const out = await engineOn(addon).join(left, right, { on: 'id', select: ['b'] });
    expect(out.schema.names).toEqual(['b']);
    expect(unordered(rows(out))).toEqual(unordered(inner.map(({ b }) => ({ b }))));
    expect(addon.calls).not.toContain('gather');
  });

  test.each(['left', 'right', 'full', 'semi', 'anti'] as const)('a %s join gathers by row number', async (how) => {
    const addon = fakeAddon();
    const out = await engineOn(addon).join(left, right, { on: 'id', how, coalesce: true });
    expect(addon.calls).toContain('gather');
    expect(addon.calls.includes('gatherCoalesced')).toBe(how === 'full');
    const ids = rows(out).map((row) => row.id);
    const expected = {
      left: [1, 2, 2, 2, 2, 5],
      right: [1, 2, 2, 2, 2, 3],
      full: [1, 2, 2, 2, 2, 3, 5],
      semi: [1, 2, 2],
      anti: [5],
    };
    expect(ids.sort()).toEqual(expected[how]);
    expect(addon.liveHandles()).toBe(0);
  });

  test('sort-merge sorts both sides in chunksets, merges and joins', async () => {
    const addon = fakeAddon();
    // One tuple takes 32 bytes, and twice that with double buffers: each of the four is a chunkset.
    const engine = engineOn(addon, { deviceMemoryLimit: 70 });
    const out = await engine.join(left, right, { on: 'id', algorithm: 'sort-merge' });
    expect(unordered(rows(out))).toEqual(unordered(inner));
    expect(addon.calls.slice(3)).toEqual(['sortJoinSide', 'mergeRuns', 'sortJoinSide', 'mergeRuns', 'mergeJoin']);
    expect(out.stats).toMatchObject({ algorithm: 'sort-merge', algorithmReason: 'asked for', chunksets: 4 });
    expect(addon.liveHandles()).toBe(0);
  });

  test('sort-merge leaves sides as they are that seem to be in order and are', async () => {
    const addon = fakeAddon({ seemsSorted: true });
    const out = await engineOn(addon).join(left, right, { on: 'id', algorithm: 'sort-merge' });
    expect(unordered(rows(out))).toEqual(unordered(inner));
    expect(addon.calls.slice(3)).toEqual(['joinSideIsSorted', 'joinSideIsSorted', 'mergeJoin']);
    expect(out.stats.inOrder).toEqual(['left', 'right']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('sides that only seem to be in order are sorted', async () => {
    const addon = fakeAddon({ seemsSorted: true, isSorted: false });
    const out = await engineOn(addon).join(left, right, { on: 'id', algorithm: 'sort-merge' });
    expect(addon.calls.slice(3)).toEqual(['joinSideIsSorted', 'joinSideIsSorted', 'sortJoinSide', 'sortJoinSide', 'mergeJoin']);
    expect(out.stats.inOrder).toEqual([]);
  });

  test('a hash join does not look at the order', async () => {
    const addon = fakeAddon({ seemsSorted: true });
    await engineOn(addon).join(left, right, { on: 'id', algorithm: 'radix-hash' });
    expect(addon.calls.slice(3)).toEqual(['hashJoin']);
  });

  test('counting and row numbers', async () => {
    const addon = fakeAddon();
    const engine = engineOn(addon);
    expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    expect(await engine.joinCount(left, right, { how: 'cross' })).toBe(16);
    const indices = await engine.joinIndices(left, right, { on: 'id', how: 'left' });
    expect([...indices.left].map((row, index) => [row, indices.right![index]])).toContainEqual([3, 2 ** 32 - 1]);
    expect((await engine.joinIndices(left, right, { on: 'id', how: 'semi' })).right).toBeNull();
    expect(addon.liveHandles()).toBe(0);
  });
});

describe('what a sort asks for', () => {
  const unsorted = table({ k: new arrow.Int32(), v: new arrow.Int32() }, { k: [3, null, 1, 2, 1], v: [1, 2, 3, 4, 5] });
  const sorted = [
    { k: 1, v: 3 },
    { k: 1, v: 5 },
    { k: 2, v: 4 },
    { k: 3, v: 1 },
    { k: null, v: 2 },
  ];

  test('one payload column travels with the keys', async () => {
    const addon = fakeAddon();
    expect(rows(await engineOn(addon).sort(unsorted, { by: 'k' }))).toEqual(sorted);
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'sortChunksets', 'decodeKeys']);
    expect(addon.liveHandles()).toBe(0);
  });

  test('a sample sort takes integers as they are, and hands them over', async () => {
    const addon = fakeAddon();
    const integers = table({ k: new arrow.Int32(), v: new arrow.Int32() }, { k: [3, -1, 2], v: [1, 2, 3] });
    const [by, algorithm] = [{ column: 'k', descending: true } as const, 'sample' as const];
    const engine = engineOn(addon);
    const descending = [
      { k: 3, v: 1 },
      { k: 2, v: 3 },
      { k: -1, v: 2 },
    ];
    expect(rows(await engine.sort(integers, { by, algorithm }))).toEqual(descending);
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'sortChunksets']);
    expect(await engine.explain('sort', integers, { by, algorithm })).toContain('column k (the keys)');
    expect(addon.liveHandles()).toBe(0);
    addon.calls.length = 0;
    expect(rows(await engine.sort(unsorted, { by: 'k', algorithm }))).toEqual(sorted);
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'sortChunksets', 'decodeKeys']);
  });

  test('where keys turn out not to decode it sorts again with row numbers', async () => {
    const addon = fakeAddon({ decodes: false });
    expect(rows(await engineOn(addon).sort(unsorted, { by: 'k' }))).toEqual(sorted);
    expect(addon.calls).toEqual([
      ...['relation', 'sortKeys', 'sortChunksets', 'decodeKeys'],
      ...['relation', 'sortKeys', 'sortChunksets', 'decodeKeys', 'gather', 'gather'],
    ]);
    expect(addon.liveHandles()).toBe(0);
  });

  test('what is in order is copied', async () => {
    const addon = fakeAddon({ sorted: true });
    const out = await engineOn(addon).sort(left, { by: 'id' });
    expect(rows(out)).toEqual(rows(left));
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'copyRun', 'decodeKeys']);
    expect(out.stats).toMatchObject({ algorithm: 'none', inOrder: ['input'] });
    expect(addon.liveHandles()).toBe(0);
  });

  test('ties of the first key word are refined', async () => {
    const addon = fakeAddon({ complete: false });
    expect(rows(await engineOn(addon).sort(unsorted, { by: 'k' }))).toEqual(sorted);
    expect(addon.calls).toEqual(['relation', 'sortKeys', 'sortChunksets', 'refineTies', 'decodeKeys', 'gather']);
  });

  test('runs of several chunksets are merged', async () => {
    const addon = fakeAddon();
    const out = await engineOn(addon, { deviceMemoryLimit: 128 }).sort(unsorted, { by: 'k' });
    expect(rows(out)).toEqual(sorted);
    expect(addon.calls).toContain('mergeRuns');
    expect(out.stats.chunksets).toBe(3);
    expect(addon.liveHandles()).toBe(0);
  });

  test('select decides the columns and their order', async () => {
    const addon = fakeAddon();
    const out = await engineOn(addon).sort(unsorted, {
      by: [{ column: 'k', descending: true, nullsLast: false }],
      select: ['v', 'k'],
    });
    expect(out.schema.names).toEqual(['v', 'k']);
    expect(rows(out).map((row) => row.v)).toEqual([2, 1, 4, 3, 5]);
  });
});

describe('failures', () => {
  test.each(['relation', 'joinKeys', 'hashJoin', 'gather'])(
    'a failing step %s releases everything, and the engine goes on',
    async (step) => {
      const native = Object.assign(new Error('no room'), { code: 'ERR_MEMORY_LIMIT' });
      const addon = fakeAddon({ failing: { step, error: native }, carriesPayload: false });
      const engine = engineOn(addon);
      const error = await failure(engine.join(left, right, { on: 'id' }));
      expect(error).toBeInstanceOf(WarpjoinError);
      expect(error).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: 'no room', cause: native });
      expect(addon.liveHandles()).toBe(0);
      addon.settings.failing = null;
      expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    },
  );

  test('where memory is short it tries again, if garbage was in the way', async () => {
    const short = Object.assign(new Error('no room'), { code: 'ERR_MEMORY_LIMIT' });
    let used = 3000;
    const addon = fakeAddon({ failing: { step: 'hashJoin', error: short }, usedBytes: () => used });
    const engine = engineOn(addon);
    expect((await failure(engine.joinCount(left, right, { on: 'id' }))).code).toBe('ERR_MEMORY_LIMIT');
    expect(addon.calls.filter((call) => call === 'hashJoin')).toHaveLength(1);
    addon.settings.usedBytes = () => {
      used = Math.max(0, used - 100);
      if (used < 2000) addon.settings.failing = null;
      return used;
    };
    expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    expect(addon.calls.filter((call) => call === 'hashJoin')).toHaveLength(3);
    expect(addon.liveHandles()).toBe(0);
  });

  test('an unknown failure is internal', async () => {
    const addon = fakeAddon({ failing: { step: 'sortKeys', error: new TypeError('Expected a relation handle') } });
    const error = await failure(engineOn(addon).sort(left, { by: 'id' }));
    expect(error.code).toBe('ERR_INTERNAL');
    expect(error.message).toContain('Expected a relation handle');
  });
});

describe('abort', () => {
  test('before the call nothing runs', async () => {
    const addon = fakeAddon();
    const reason = new Error('not today');
    expect(await failure(engineOn(addon).join(left, right, { on: 'id', signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(addon.calls).toEqual([]);
  });

  test.each([5, 25, 45, 65])('after %d ms rejects with the reason and releases everything', async (delay) => {
    const addon = fakeAddon({ stepMilliseconds: 20 });
    const engine = engineOn(addon);
    const reason = { why: 'changed my mind' };
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), delay);
    expect(await failure(engine.join(left, right, { on: 'id', signal: controller.signal }))).toBe(reason);
    expect(addon.liveHandles()).toBe(0);
    addon.settings.stepMilliseconds = 0;
    expect((await engine.join(left, right, { on: 'id' })).numRows).toBe(5);
  });

  test('while waiting for another call rejects at once, and the others are not disturbed', async () => {
    const addon = fakeAddon({ stepMilliseconds: 20, gpus: 1 });
    const engine = engineOn(addon, { device: 'gpu' });
    const controller = new AbortController();
    const first = engine.joinCount(left, right, { on: 'id' });
    const second = failure(engine.joinCount(left, right, { on: 'id', signal: controller.signal }));
    const third = engine.joinCount(left, right, { on: 'id' });
    controller.abort('enough');
    expect(await second).toBe('enough');
    expect(addon.calls.length).toBeLessThan(4); // of the first
    expect(await Promise.all([first, third])).toEqual([5, 5]);
    expect(addon.calls).toHaveLength(8);
  });
});

describe('calls at the same time', () => {
  const join = ['relation', 'relation', 'joinKeys', 'hashJoin'];
  const short = () => Object.assign(new Error('no room'), { code: 'ERR_MEMORY_LIMIT' });

  test('run one after the other on GPUs', async () => {
    const addon = fakeAddon({ stepMilliseconds: 5, gpus: 2 });
    const engine = engineOn(addon, { device: 'gpu' });
    await Promise.all([
      engine.joinCount(left, right, { on: 'id' }),
      engine.sort(left, { by: 'a' }),
      engine.joinCount(left, right, { on: 'id' }),
    ]);
    expect(addon.calls).toEqual([...join, 'relation', 'sortKeys', 'sortChunksets', 'decodeKeys', ...join]);
    expect(addon.engines).toHaveLength(1);
  });

  test('run beside each other on the processor, a native engine each', async () => {
    const { held, letGo } = hold();
    const addon = fakeAddon({ held });
    const engine = engineOn(addon, { threads: 1 });
    const counts = Promise.all([1, 2, 3, 4, 5].map(() => engine.joinCount(left, right, { on: 'id' })));
    await vi.waitFor(() => expect(addon.calls).toHaveLength(4));
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect(addon.calls).toEqual(['relation', 'relation', 'relation', 'relation']);
    letGo();
    expect(await counts).toEqual([5, 5, 5, 5, 5]);
    expect(addon.engines).toHaveLength(4);
    expect(addon.beside).toBe(addon.engines[0]);
    await engine.dispose();
    expect(addon.calls.filter((call) => call === 'dispose')).toHaveLength(4);
  });

  test('on the processor do not wait for those on GPUs', async () => {
    const { gpuCall, gpuCallEach } = COSTS;
    const { held, letGo } = hold();
    const addon = fakeAddon({ held, gpus: 2 });
    const engine = engineOn(addon);
    Object.assign(COSTS, { gpuCall: 0, gpuCallEach: 0 });
    const large = engine.sort(left, { by: 'a' });
    await vi.waitFor(() => expect(addon.calls).toEqual(['relation']));
    Object.assign(COSTS, { gpuCall, gpuCallEach });
    addon.settings.held = null;
    expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    expect(addon.calls).toEqual(['relation', ...join]);
    letGo();
    expect((await large).stats.device).toBe('gpu');
    expect(addon.engines).toHaveLength(2);
  });

  test('one that memory is short for beside others runs again, alone', async () => {
    const addon = fakeAddon({ stepMilliseconds: 5 });
    const engine = engineOn(addon);
    let running = 0;
    let alone = 0;
    addon.settings.onStep = (name) => {
      if (name === 'relation') running++;
      if (name !== 'hashJoin') return;
      if (addon.liveHandles() > 3) throw short();
      alone++;
    };
    expect(await Promise.all([1, 2, 3].map(() => engine.joinCount(left, right, { on: 'id' })))).toEqual([5, 5, 5]);
    expect(running).toBeGreaterThan(6);
    expect(alone).toBe(3);
    expect(addon.liveHandles()).toBe(0);
  });

  test('one that does not fit alone rejects, and the others go on', async () => {
    const addon = fakeAddon({ stepMilliseconds: 5, failing: { step: 'sortKeys', error: short() } });
    const engine = engineOn(addon);
    const sorted = failure(engine.sort(left, { by: 'a' }));
    const counts = await Promise.all([1, 2, 3].map(() => engine.joinCount(left, right, { on: 'id' })));
    expect(counts).toEqual([5, 5, 5]);
    expect((await sorted).code).toBe('ERR_MEMORY_LIMIT');
    expect(addon.calls.filter((call) => call === 'sortKeys')).toHaveLength(2);
    expect(addon.liveHandles()).toBe(0);
  });

  test('what others will take is not free: a call whose plan has no room beside them waits', async () => {
    const fits = (memoryLimit: number): Promise<boolean> =>
      engineOn(fakeAddon(), { memoryLimit })
        .sort(left, { by: 'a' })
        .then(() => true)
        .catch(() => false);
    let limit = 64;
    while (!(await fits(limit))) limit += 64;

    /** A sort beside one that has its plan and is held before its rows are sorted. */
    const besideOneOf = async (memoryLimit: number) => {
      const { held, letGo } = hold();
      const addon = fakeAddon();
      const sorts = (): number => addon.calls.filter((name) => name === 'sortKeys').length;
      addon.settings.onStep = (name) => (name === 'sortChunksets' && sorts() === 1 ? held : undefined);
      const engine = engineOn(addon, { memoryLimit });
      const first = engine.sort(left, { by: 'a' });
      await vi.waitFor(() => expect(addon.calls).toContain('sortChunksets'));
      return { addon, sorts, letGo, handles: addon.liveHandles(), first, second: engine.sort(left, { by: 'a' }) };
    };

    const tight = await besideOneOf(limit);
    await vi.waitFor(() => {
      expect(tight.sorts()).toBe(3); // planned twice, the second time as a sample sort
      expect(tight.addon.liveHandles()).toBe(tight.handles);
    });
    tight.letGo();
    for (const sorted of [await tight.first, await tight.second]) expect(sorted.numRows).toBe(4);
    expect(tight.sorts()).toBe(4);

    const wide = await besideOneOf(4 * limit);
    expect((await wide.second).numRows).toBe(4);
    expect(wide.sorts()).toBe(2);
    wide.letGo();
    expect((await wide.first).numRows).toBe(4);
  });
});

describe('progress', () => {
  test('never falls, and ends with 1', async () => {
    const addon = fakeAddon({ stepMilliseconds: 60, carriesPayload: false });
    const seen: number[] = [];
    const steps = new Set<string>();
    await engineOn(addon).join(left, right, {
      on: 'id',
      onProgress({ fraction, step }) {
        seen.push(fraction);
        steps.add(step);
      },
    });
    expect(seen.length).toBeGreaterThan(3);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen[0]).toBeLessThan(0.5);
    expect(seen.filter((fraction) => fraction === 1)).toHaveLength(1);
    expect(steps).toContain('encode keys');
  });

  test('never falls where the call runs again', async () => {
    const addon = fakeAddon({ stepMilliseconds: 70, carriesPayload: false });
    const engine = engineOn(addon);
    const short = Object.assign(new Error('no room'), { code: 'ERR_MEMORY_LIMIT' });
    let joins = 0;
    addon.settings.onStep = (name) => {
      if (name === 'hashJoin' && ++joins <= 2) throw short; // of both, beside each other
    };
    const seen: number[] = [];
    const onProgress = ({ fraction }: { fraction: number }) => seen.push(fraction);
    const [joined] = await Promise.all([
      engine.join(left, right, { on: 'id', onProgress }),
      engine.joinCount(left, right, { on: 'id' }),
    ]);
    expect(joined.numRows).toBe(5);
    expect(joins).toBe(4);
    expect(seen.length).toBeGreaterThan(6);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen.filter((fraction) => fraction === 1)).toHaveLength(1);
  });

  test('what the callback throws ends the call', async () => {
    const addon = fakeAddon({ stepMilliseconds: 200 });
    const error = new Error('in the callback');
    const thrown = await failure(
      engineOn(addon).join(left, right, {
        on: 'id',
        onProgress() {
          throw error;
        },
      }),
    );
    expect(thrown).toBe(error);
    expect(addon.liveHandles()).toBe(0);
  });
});

describe('engines', () => {
  afterEach(() => vi.restoreAllMocks());

  test('limits reach the data plane', () => {
    const addon = fakeAddon();
    engineOn(addon, { memoryLimit: '2GiB', deviceMemoryLimit: '50%', hostDevices: 3, threads: 2 });
    expect(addon.config).toEqual({
      threads: 2,
      hostDevices: 3,
      gpus: [],
      memoryLimitBytes: 2 ** 31,
      deviceMemoryLimitBytes: 2 ** 30,
    });
    engineOn(addon, { deviceMemoryLimit: 12345 });
    expect(addon.config).toMatchObject({ hostDevices: 1, deviceMemoryLimitBytes: 12345 });
    engineOn(addon);
    expect(addon.config).toMatchObject({ deviceMemoryLimitBytes: 0 });
  });

  test('dispose waits for calls, and later ones reject', async () => {
    const addon = fakeAddon({ stepMilliseconds: 5 });
    const engine = engineOn(addon);
    const running = engine.joinCount(left, right, { on: 'id' });
    const disposed = engine.dispose();
    const error = await failure(engine.joinCount(left, right, { on: 'id' }));
    expect(error).toMatchObject({ code: 'ERR_OPTION' });
    expect(await running).toBe(5);
    await disposed;
    await engine[Symbol.asyncDispose]();
    expect(addon.calls.filter((call) => call === 'dispose')).toHaveLength(1);
  });

  test("device 'auto' and 'gpu' are all GPUs, devices are some, and 'cpu' none", async () => {
    const addon = fakeAddon({ gpus: 4 });
    const onGpus = await engineOn(addon, { device: 'gpu', hostDevices: 3, deviceMemoryLimit: '25%' }).sort(left, { by: 'a' });
    expect(addon.config).toMatchObject({ hostDevices: 0, gpus: [0, 1, 2, 3], deviceMemoryLimitBytes: 2 ** 35 });
    expect(onGpus.stats).toMatchObject({ device: 'gpu', deviceReason: "device 'gpu' was asked for" });
    expect(onGpus.stats.devices.map((device) => device.name)).toEqual([0, 1, 2, 3].map((gpu) => `Fake GPU ${gpu}`));
    const some = engineOn(addon, { devices: [3, 1] });
    expect(addon.config).toMatchObject({ hostDevices: 0, gpus: [3, 1] });
    expect((await some.sort(left, { by: 'a' })).stats.deviceReason).toBe('GPUs 3, 1 were asked for');
    engineOn(addon, { hostDevices: 3 });
    expect(addon.config).toMatchObject({ hostDevices: 0, gpus: [0, 1, 2, 3] });
    const cpu = engineOn(addon, { device: 'cpu' });
    expect(addon.config).toMatchObject({ hostDevices: 1, gpus: [] });
    expect((await cpu.sort(left, { by: 'a' })).stats).toMatchObject({
      device: 'cpu',
      deviceReason: "device 'cpu' was asked for",
    });
    expect(() => engineOn(addon, { devices: [0, 4] })).toThrow(
      'Expected numbers of the 4 GPUs that the process may use for devices but received [0, 4].',
    );
    expect(() => engineOn(addon, { device: 'cpu', devices: [0] })).toThrow(
      /^Expected no devices for an engine with device "cpu"/,
    );
  });

  test("device 'auto' runs on the processor what GPUs take longer to begin with, within the same memory", async () => {
    const addon = fakeAddon({ gpus: 4 });
    const engine = engineOn(addon, { hostDevices: 3 });
    const small = await engine.sort(left, { by: 'a' });
    expect(addon.config).toMatchObject({ hostDevices: 3, gpus: [], memoryLimitBytes: 2 ** 30 });
    expect(addon.beside?.devices()).toHaveLength(4);
    const reason = /^device 'auto': the processor takes 0\.00 ms, GPUs [\d.]+ ms at least$/;
    expect(small.stats).toMatchObject({ device: 'cpu', deviceReason: expect.stringMatching(reason) });
    expect(small.stats.devices.map((device) => device.kind)).toEqual(['host', 'host', 'host']);
    addon.config = null;
    expect((await engine.join(left, right, { on: 'id' })).stats).toMatchObject({ device: 'cpu' });
    expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    expect(await engine.explain('sort', left, { by: 'a' })).toMatch(/^ {11}device 'auto': the processor takes/m);
    expect(addon.config).toBeNull(); // the processor that is there
    await engine.dispose();
    expect(addon.calls.filter((call) => call === 'dispose')).toHaveLength(2);
    expect(addon.liveHandles()).toBe(0);
  });

  test("device 'auto' runs on GPUs what they take less time for", async () => {
    const { gpuCall, gpuCallEach } = COSTS;
    Object.assign(COSTS, { gpuCall: 0, gpuCallEach: 0 });
    try {
      const engine = engineOn(fakeAddon({ gpus: 4 }));
      const onGpus = { device: 'gpu', deviceReason: "device 'auto': all GPUs that the process can use, 4" };
      expect((await engine.sort(left, { by: 'a' })).stats).toMatchObject(onGpus);
      expect((await engine.join(left, right, { on: 'id' })).stats).toMatchObject(onGpus);
      expect((await engine.sortPairs(Int32Array.of(1), Int32Array.of(2))).stats).toMatchObject(onGpus);
    } finally {
      Object.assign(COSTS, { gpuCall, gpuCallEach });
    }
  });

  test('joins run on GPUs', async () => {
    const addon = fakeAddon({ gpus: 2 });
    const engine = engineOn(addon, { device: 'gpu' });
    for (const algorithm of ['auto', 'radix-hash', 'sort-merge'] as const) {
      const out = await engine.join(left, right, { on: 'id', algorithm });
      expect(unordered(rows(out))).toEqual(unordered(inner));
      expect(out.stats).toMatchObject({ device: 'gpu', deviceReason: "device 'gpu' was asked for", deviceChoices: [] });
    }
    expect(addon.calls).toContain('sortMergeJoin');
    expect(addon.liveHandles()).toBe(0);
    expect(await engine.joinCount(left, right, { on: 'id' })).toBe(5);
    expect((await engine.joinIndices(left, right, { on: 'id' })).left).toHaveLength(5);
    const joined = await engine.joinKeys(
      { keys: Int32Array.of(1, 2), values: Int32Array.of(3, 4) },
      { keys: Int32Array.of(2), values: Int32Array.of(5) },
    );
    expect(joined.r).toEqual(Int32Array.of(4));
    expect((await engine.join(left, right, { how: 'cross' })).numRows).toBe(16);
    expect(addon.liveHandles()).toBe(0);
  });

  test("device 'gpu' fails unless fallback allows the processor, which stats then tell", async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const addon = fakeAddon();
    expect(() => engineOn(addon, { device: 'gpu' })).toThrow(
      /^GPUs were asked for but the addon has no code for GPUs.* Device "auto" takes them where there are some, and "cpu" never\./,
    );
    const builtIn = Object.assign(fakeAddon(), { backend: 'cuda' });
    expect(() => engineOn(builtIn, { devices: [0] })).toThrow(/^GPUs were asked for but .+; .+\. Device "auto"/);
    const silent = await engineOn(addon, { device: 'gpu', fallback: 'silent' }).sort(left, { by: 'a' });
    expect(silent.stats).toMatchObject({ device: 'cpu', deviceReason: expect.stringContaining('running on the processor') });
    expect(warn).not.toHaveBeenCalled();
    engineOn(addon, { device: 'gpu', fallback: 'warn' });
    expect(warn).toHaveBeenCalledOnce();
    const auto = await engineOn(addon).sort(left, { by: 'a' });
    expect(auto.stats).toMatchObject({
      device: 'cpu',
      deviceReason: expect.stringMatching(/^device 'auto': the processor, without GPUs: the addon has no code for GPUs, and /),
    });
    expect(warn).toHaveBeenCalledOnce();
  });

  test('stats are there but not among the properties of the table', async () => {
    const out = await engineOn(fakeAddon(), { hostDevices: 2 }).sort(left, { by: 'a' });
    expect(Object.keys(out)).not.toContain('stats');
    expect(out.stats).toMatchObject({
      device: 'cpu',
      inputRows: [4],
      outputRows: 4,
      skew: 1,
      rounds: 1,
      phases: [{ name: 'work' }],
      peakMemoryBytes: 1000,
    });
    expect(out.stats.devices.map((device) => device.name)).toEqual(['host 0', 'host 1']);
    expect(out.stats.steps.map((step) => step.name)).toContain('sort');
  });
});

describe('explain', () => {
  test('shows the plan without running it', async () => {
    const addon = fakeAddon();
    const text = await engineOn(addon).explain('join', left, right, { on: 'id', how: 'left' });
    expect(text).toMatch(/^left join on "id" = "id": radix-hash\n/);
    expect(text).toMatch(/reason +cheapest: radix-hash [\d.]+ ms, sort-merge [\d.]+ ms/);
    expect(text).toMatch(/hash join, build left +8 /);
    expect(text).not.toContain('measured');
    expect(addon.calls).not.toContain('hashJoin');
    expect(addon.liveHandles()).toBe(0);
  });

  test('analyze adds what the steps took', async () => {
    const addon = fakeAddon({ stepMilliseconds: 3 });
    const text = await engineOn(addon).explain('sort', left, { by: ['id', { column: 'a', descending: true }], analyze: true });
    const lines = text.split('\n');
    expect(lines[0]).toBe('sort by "id", "a" descending: merge');
    const head = lines.findIndex((line) => line.startsWith('step'));
    const total = lines.findIndex((line) => line.startsWith('total'));
    expect(new Set(lines.slice(head, total + 1).map((line) => line.length)).size).toBe(1);
    expect(lines.find((line) => line.startsWith('sort  '))).toMatch(/[\d.]+ ms +[\d.]+ ms$/);
    expect(text).toContain('rows out 4');
    expect(addon.liveHandles()).toBe(0);
  });

  test('knows joins and sorts', async () => {
    const engine = engineOn(fakeAddon());
    const error = await failure(engine.explain('merge' as 'sort', left, { by: 'id' }));
    expect(error).toMatchObject({ code: 'ERR_OPTION', message: expect.stringContaining('"merge"') });
  });
});

test('typed arrays', async () => {
  const addon = fakeAddon();
  const engine = engineOn(addon);
  const sorted = await engine.sortPairs(Float64Array.of(2, Number.NaN, -1), BigInt64Array.of(1n, 2n, 3n), { descending: true });
  expect(sorted.keys).toEqual(Float64Array.of(Number.NaN, 2, -1));
  expect(sorted.values).toEqual(BigInt64Array.of(2n, 1n, 3n));
  const r = { keys: Int32Array.of(1, 2, 2), values: Float32Array.of(10, 20, 21) };
  const s = { keys: Uint8Array.of(2, 3), values: Int16Array.of(7, 8) };
  const joined = await engine.joinKeys(r, s);
  expect([joined.keys, joined.r, joined.s]).toEqual([Int32Array.of(2, 2), Float32Array.of(20, 21), Int16Array.of(7, 7)]);
  expect(addon.liveHandles()).toBe(0);
});
