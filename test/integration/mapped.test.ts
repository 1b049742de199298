/** Results that lie in temporary files: `result: 'mapped'` of join() and sort(). */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import * as arrow from 'apache-arrow';
import * as arrow18 from 'apache-arrow-18';
import { afterAll, describe, expect, test } from 'vitest';
import type { JoinKind, Progress } from '../../lib/index.js';
import { native } from '../../lib/native.js';
import { collectGarbage } from '../../lib/operators/reclaim.js';
import { DEVICE_COUNTS, describeDevices, describeHost, inspectedEngine, testEngine } from '../support/engines.js';
import { cut, failure, later, random, rows, unordered } from '../support/tables.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-mapped-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Keys with nulls and repetitions, texts plain and of a dictionary, lists, and row numbers. */
function keyed(length: number, distinct: number, seed: number, name: string): arrow.Table {
  const draw = random(seed);
  const numbers = Array.from({ length }, () => draw(distinct));
  const list = new arrow.List(new arrow.Field('item', new arrow.Int32(), true));
  return new arrow.Table({
    k: arrow.vectorFromArray(
      Array.from({ length }, () => (draw(20) ? draw(distinct) : null)),
      new arrow.Int32(),
    ),
    t: arrow.vectorFromArray(
      numbers.map((number) => (number % 7 ? `text ${number}` : null)),
      new arrow.Utf8(),
    ),
    d: arrow.vectorFromArray(numbers.map((number) => `t${number % 9}`)),
    l: arrow.vectorFromArray(
      numbers.map((number) => (number % 5 ? [number, number % 3] : null)),
      list,
    ),
    [name]: arrow.vectorFromArray(
      Array.from({ length }, (_, row) => row),
      new arrow.Int32(),
    ),
  });
}
const inOrder = (of: arrow.Table): string[] => rows(of).map((row) => JSON.stringify(row));

const KINDS: JoinKind[] = ['inner', 'left', 'right', 'full', 'semi', 'anti', 'cross'];
const [left, right] = [keyed(1200, 400, 1, 'a'), keyed(700, 500, 2, 'b')];
const SOME = DEVICE_COUNTS[1] ?? 1;

/** How many temporary files are open, or read as memory. */
function temporaryFiles(): number {
  const maps = readFileSync('/proc/self/maps', 'utf8').split('\n');
  return maps.filter((line) => line.includes(`${folder}/`)).length;
}
async function expectNoFiles(): Promise<void> {
  await expect.poll(() => collectGarbage(() => temporaryFiles())).toBe(0);
}

describeDevices((devices) => {
  const engineOf = () => testEngine(devices, { memoryLimit: '64MiB', tempDirectory: folder });

  test.each(KINDS)('a %s join has the rows of one in memory, in the same order where one is asked for', async (how) => {
    await using engine = await engineOf();
    const [one, other] = how === 'cross' ? [left.slice(0, 60), right.slice(0, 40)] : [left, right];
    const on = how === 'cross' ? {} : { on: ['k', 't'], nullsEqual: [true, false] };
    for (const maintainOrder of ['none', 'left', 'right', 'left_right', 'right_left']) {
      const options = { how, ...on, maintainOrder } as object as { on: 'k' };
      const expected = await engine.join(one, other, options);
      for (const [of, with_] of [
        [one, other],
        [later(cut(one, 90)), later(cut(other, 70))],
      ] as const) {
        const found = await engine.join(of, with_, { ...options, result: 'mapped' });
        expect(found.schema.fields.map(String)).toEqual(expected.schema.fields.map(String));
        if (maintainOrder === 'none') expect(unordered(rows(found))).toEqual(unordered(rows(expected)));
        else expect(inOrder(found)).toEqual(inOrder(expected));
        expect(found.stats).toMatchObject({ inputRows: one.numRows + other.numRows, outputRows: expected.numRows });
      }
    }
  });

  test('a join by sorting, of keys that are looked at, has the rows of one in memory', async () => {
    await using engine = await engineOf();
    const once = await engine.unique(left, { on: 'k' });
    for (const sortAlgorithm of ['auto', 'merge', 'radix'] as const) {
      const options = { on: 'k', algorithm: 'sort-merge', sortAlgorithm, validate: '1:m' } as const;
      const found = await engine.join(once, right, { ...options, result: 'mapped' });
      expect(unordered(rows(found))).toEqual(unordered(rows(await engine.join(once, right, options))));
    }
  });

  test('a sort has the rows of one in memory', async () => {
    await using engine = await engineOf();
    for (const options of [
      { by: 't' },
      { by: ['d', { column: 'k', descending: true, nullsLast: false }], select: ['a', 'l', 't'] },
      { by: 'k', limit: 100, offset: 1050 },
      { by: 'k', limit: 0 },
      { by: 'k', offset: 5000 },
    ] as object[] as { by: 'k' }[]) {
      const expected = await engine.sort(left, options);
      for (const input of [left, later(cut(left, 130))]) {
        const found = await engine.sort(input, { ...options, result: 'mapped' });
        expect(inOrder(found)).toEqual(inOrder(expected));
        expect(found.schema.fields.map(String)).toEqual(expected.schema.fields.map(String));
        expect(found.stats).toMatchObject({ outputRows: expected.numRows });
        if (expected.numRows > 0) expect(found.stats.mappedBytes).toBeGreaterThan(0);
      }
    }
  });
});

describeHost('results larger than the memory limit', 'transfer buffers take more than these limits', () => {
  const many = 150_000;
  const draw = random(3);
  const keys = Int32Array.from({ length: many }, () => draw(many));
  const large = new arrow.Table({ k: arrow.makeVector(keys), v: arrow.makeVector(Float64Array.from(keys, (key) => key / 2)) });
  const engineOf = () =>
    inspectedEngine(SOME, { memoryLimit: '1500KiB', threads: 2, tempDirectory: folder, maxTempDirectorySize: '15MiB' });

  test('are tables, whose bytes are not in memory; their file is gone with them', async () => {
    const { engine, inner } = engineOf();
    const refused = await failure(engine.sort(large, { by: 'k' }));
    expect(refused).toMatchObject({ code: 'ERR_MEMORY_LIMIT', message: expect.stringMatching(/result "mapped"/) });
    await (async () => {
      const sorted = await engine.sort(large, { by: 'k', result: 'mapped' });
      expect(sorted.getChild('k')!.toArray()).toEqual(keys.slice().sort());
      expect(sorted.stats.mappedBytes).toBeGreaterThan(12 * many);
      expect(temporaryFiles()).toBe(1);
      await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
      const joined = await engine.join(sorted, large, { on: 'k', select: ['v', 'v_right'], result: 'mapped' });
      expect(joined.numRows).toBeGreaterThan(many);
      let wrong = 0;
      const [one, other] = [joined.getChild('v')!, joined.getChild('v_right')!];
      for (let row = 0; row < joined.numRows; row += 97) wrong += one.get(row) === other.get(row) ? 0 : 1;
      expect(wrong).toBe(0);
    })();
    await expectNoFiles();
    await engine.dispose();
  });

  /** What a call tells of its progress. */
  async function told(call: (onProgress: (progress: Progress) => void) => Promise<unknown>): Promise<Progress[]> {
    const all: Progress[] = [];
    await call((progress) => all.push(progress));
    return all;
  }

  test('progress never falls, and ends with 1', async () => {
    const { engine } = engineOf();
    const slowly = async function* () {
      for (const part of cut(large, 5000)) {
        yield* part.batches;
        await setTimeout(10);
      }
    };
    const calls: Record<string, Parameters<typeof told>[0]> = {
      sort: (onProgress) => engine.sort(large, { by: 'k', result: 'mapped', onProgress }),
      'sort of batches': (onProgress) => engine.sort(slowly(), { by: 'k', result: 'mapped', onProgress }),
      'sort of no rows': (onProgress) => engine.sort(large.slice(0, 0), { by: 'k', result: 'mapped', onProgress }),
      join: (onProgress) => engine.join(slowly(), large, { on: 'k', select: ['v'], result: 'mapped', onProgress }),
    };
    for (const [name, call] of Object.entries(calls)) {
      const all = await told(call);
      const fractions = all.map(({ fraction }) => fraction);
      expect(fractions, name).toEqual([...fractions].sort((a, b) => a - b));
      expect(fractions.filter((fraction) => fraction === 1)).toEqual([1]);
      expect(new Set(all.map(({ step }) => step))).toEqual(new Set([name.slice(0, 4)]));
    }
    await engine.dispose();
  });

  test('what the progress callback throws ends the call', async () => {
    const { engine, inner } = engineOf();
    const enough = new Error('enough');
    const forever = async function* () {
      for (;;) {
        yield* large.slice(0, 1000).batches;
        await setTimeout(5);
      }
    };
    const onProgress = () => {
      throw enough;
    };
    expect(await failure(engine.sort(forever(), { by: 'k', result: 'mapped', onProgress }))).toBe(enough);
    expect(await failure(engine.join(large, forever(), { on: 'k', result: 'mapped', onProgress }))).toBe(enough);
    expect(await failure(engine.sort(large.slice(0, 10), { by: 'k', result: 'mapped', onProgress }))).toBe(enough);
    await expectNoFiles();
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });

  test('the file counts towards maxTempDirectorySize as long as it is there', async () => {
    const { engine } = engineOf();
    // Close to two megabytes each, and as many of runs meanwhile.
    const held: unknown[] = [];
    const more = async () => held.push(await engine.sort(large, { by: 'k', result: 'mapped' }));
    const error = await failure(
      (async () => {
        for (;;) await more();
      })(),
    );
    expect(error).toMatchObject({ code: 'ERR_SPILL', message: expect.stringMatching(/maxTempDirectorySize of 15 MiB/) });
    expect(held.length).toBeGreaterThan(3);
    expect(temporaryFiles()).toBe(held.length);
    held.length = 0;
    await expectNoFiles();
    await more();
    held.length = 0;
    await engine.dispose();
  });

  test('outlive the engine, go into calls, and into other threads', async () => {
    const { engine } = engineOf();
    const sorted = await engine.sort(large, { by: 'k', result: 'mapped', limit: 1000 });
    await engine.dispose();
    expect(readdirSync(folder)).toEqual([]);
    const expected = Array.from(keys.slice().sort().subarray(0, 1000));
    await using other = await testEngine(1);
    const again = await other.sort(sorted, { by: { column: 'k', descending: true } });
    expect(Array.from(again.getChild('k')!.toArray())).toEqual(expected.toReversed());
    expect(Array.from(arrow.tableFromIPC(sorted.toIPC()).getChild('k')!.toArray())).toEqual(expected);
    const values = sorted.batches[0]!.data.children[0]!.values as Int32Array;
    values[0] = -1; // as that of any table
    expect(sorted.getChild('k')!.get(0)).toBe(-1);
    // From Node.js 22 on, memory of addons is copied to other threads, and not transferred.
    const isTransferred = Number.parseInt(process.versions.node, 10) < 22;
    const sent = structuredClone(values, { transfer: isTransferred ? [values.buffer as ArrayBuffer] : [] });
    expect(sent[1]).toBe(expected[1]);
  });

  test('an abort, and a consumer that fails, leave nothing', async () => {
    const { engine, inner } = engineOf();
    const controller = new AbortController();
    async function* endless() {
      for (let part = 0; ; part++) {
        if (part === 20) controller.abort(new Error('enough'));
        yield large.slice(0, 50_000);
      }
    }
    const { signal } = controller;
    expect(await failure(engine.sort(endless(), { by: 'k', result: 'mapped', signal }))).toMatchObject({ message: 'enough' });
    expect(await failure(engine.join(endless(), large.slice(0, 10), { on: 'k', result: 'mapped', signal }))).toMatchObject({
      message: 'enough',
    });
    async function* broken() {
      yield large.slice(0, 100_000);
      throw new Error('the line is dead');
    }
    expect((await failure(engine.sort(broken(), { by: 'k', result: 'mapped' }))).message).toMatch(/the line is dead/);
    await expectNoFiles();
    await expect.poll(() => collectGarbage(() => inner.memory().usedBytes)).toBe(0);
    await engine.dispose();
  });
});

test('results are made of the classes of the caller, and the smaller table is the build side', async () => {
  await using engine = await testEngine(1, { tempDirectory: folder });
  const other = arrow18.tableFromIPC(arrow.tableToIPC(left));
  const sorted = await engine.sort(other, { by: 'k', result: 'mapped' });
  expect(sorted).toBeInstanceOf(arrow18.Table);
  expect(inOrder(sorted as never)).toEqual(inOrder(await engine.sort(left, { by: 'k' })));
  for (const [one, two] of [
    [left, right],
    [right, left],
  ] as const) {
    // Rows of the build side without a match come last.
    const { k } = {
      k: (await engine.join(one, two, { on: 'k', how: 'full', coalesce: false, result: 'mapped' })).toArray().at(-1)!,
    };
    expect([k.a, k.b].filter((row) => row !== null)).toHaveLength(1);
    expect(k.a).toBe(null);
  }
});

describe('bad input', () => {
  test.each([
    [{ by: 'k', result: 'disk' }, 'ERR_OPTION', /one of "memory", "mapped" for result/],
    [{ by: 'k', result: 'mapped', resident: true }, 'ERR_OPTION', /no resident/],
    [{ by: 'no', result: 'mapped' }, 'ERR_COLUMN_NOT_FOUND', /"no"/],
    [{ by: 'k', result: 'mapped', trace: '/none/run.json' }, 'ERR_OPTION', /trace can't be written to \/none/],
  ])('sort with %j', async (options, code, message) => {
    await using engine = await testEngine(1);
    const error = await failure(engine.sort(left, options as never));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
  });

  test.each([
    [{ on: 'k', validate: '1:m' }, 'ERR_DUPLICATE_KEY', /left table once, .* rows \d+ and \d+ have the same: "k"/],
    [{ on: 'k', sortAlgorithm: 'quick' }, 'ERR_OPTION', /"quick"/],
    [{ on: 'k', maintainOrder: 'left', buildSide: 'left' }, 'ERR_OPTION', /The build side is left/],
    [{ on: 'k', maxOutputRows: 3 }, 'ERR_MEMORY_LIMIT', /more rows than the 3 allowed/],
    [{ how: 'cross', on: 'k' }, 'ERR_OPTION', /cross/],
  ])('join with %j', async (options, code, message) => {
    await using engine = await testEngine(1);
    const error = await failure(engine.join(left, right, { ...options, result: 'mapped' } as never));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
  });

  test('calls without tables have no such result', async () => {
    await using engine = await testEngine(1);
    expect(await failure(engine.joinCount(left, right, { on: 'k', result: 'mapped' } as never))).toMatchObject({
      code: 'ERR_OPTION',
    });
    expect(await failure(engine.explain('sort', left, { by: 'k', result: 'mapped' } as never))).toMatchObject({
      code: 'ERR_OPTION',
    });
  });

  test('a folder that can have no temporary files', async () => {
    await using engine = await testEngine(1, { tempDirectory: '/dev/shm' });
    for (const call of [
      () => engine.sort(left, { by: 'k', result: 'mapped' }),
      () => engine.join(left, right, { on: 'k', result: 'mapped' }),
    ]) {
      expect(await failure(call())).toMatchObject({ code: 'ERR_OPTION', message: expect.stringMatching(/tempDirectory/) });
    }
  });
});

describe('the addon maps', () => {
  const { mapFile } = native();
  test('bytes of files up to each end, which stay when the file is closed and has no name', async () => {
    const path = join(folder, 'bytes');
    writeFileSync(
      path,
      Uint8Array.from({ length: 300 }, (_, index) => index),
    );
    const file = await open(path);
    const buffers = mapFile(file.fd, [10, 10, 300]);
    await file.close();
    rmSync(path);
    expect(buffers.map(({ byteLength }) => byteLength)).toEqual([10, 0, 290]);
    expect(new Uint8Array(buffers[2]!)[7]).toBe(17);
    new Uint8Array(buffers[0]!).fill(9);
    expect(new Uint8Array(buffers[2]!)[0]).toBe(10);
  });

  test('no files that are shorter, or none, and takes no other arguments', async () => {
    const path = join(folder, 'short');
    writeFileSync(path, 'abc');
    const file = await open(path);
    expect(mapFile(file.fd, [])).toEqual([]);
    expect(mapFile(file.fd, [0]).map(({ byteLength }) => byteLength)).toEqual([0]);
    expect(() => mapFile(file.fd, [4])).toThrow(
      expect.objectContaining({ code: 'ERR_FILE', message: 'shorter than it should be' }),
    );
    const closed = file.fd;
    await file.close();
    expect(() => mapFile(closed, [3])).toThrow(expect.objectContaining({ code: 'ERR_FILE' }));
    const self = await open(folder);
    expect(() => mapFile(self.fd, [3])).toThrow(/not a regular file/);
    await self.close();
    rmSync(path);
    for (const [fd, ends] of [
      [-1, [3]],
      [1.5, [3]],
      [2 ** 31, [3]],
      ['3', [3]],
      [0, 3],
      [0, [3, 2]],
      [0, [-1]],
      [0, ['3']],
      [undefined, undefined],
    ] as never[][]) {
      expect(() => mapFile(fd as never, ends as never), `${fd} ${ends}`).toThrow(/Expected/);
    }
  });
});
