/** The trace of a call: what it holds on any devices. What runs at the same time on GPUs is in test/gpu. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Table, tableFromArrays } from 'apache-arrow';
import { afterAll, describe, expect, test } from 'vitest';
import { type BatchStream, createEngine } from '../../lib/index.js';
import { chromeEvents, type FileAccess, type Traced } from '../../lib/trace.js';
import { engineMaker } from '../support/engines.js';
import { failure, later } from '../support/tables.js';
import { readTrace, type Span, spansOf } from '../support/traces.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-trace-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);
const engineOf = engineMaker({ threads: 2, memoryLimit: '1GiB' });

const rows = 200_000;
const ordered = tableFromArrays({ k: Int32Array.of(1, 2, 4) });
const few = { keys: Int32Array.of(2, 1), values: Int32Array.of(5, 6) };
const table = tableFromArrays({
  k: Int32Array.from({ length: rows }, (_, row) => (row * 7919) % rows),
  v: new Float64Array(rows),
});

test.each([1, 2])('each call writes its steps and phases, on %d devices', async (devices) => {
  const engine = await engineOf(devices);
  const trace = at('run.json');
  const calls: [string, () => Promise<unknown>][] = [
    ['join', () => engine.join(table, table, { on: 'k', trace })],
    ['joinCount', () => engine.joinCount(table, table, { on: 'k', trace })],
    ['joinIndices', () => engine.joinIndices(table, table, { on: 'k', trace })],
    ['joinKeys', () => engine.joinKeys(few, few, { trace })],
    ['sort', () => engine.sort(table, { by: 'k', trace })],
    ['sortPairs', () => engine.sortPairs(few.keys, few.values, { trace })],
    ['sortIndices', () => engine.sortIndices(table, { by: 'k', trace })],
    ['isSorted', () => engine.isSorted(table, { by: 'k', trace })],
    ['searchSorted', () => engine.searchSorted(ordered, ordered, { by: 'k', trace })],
    ['unique', () => engine.unique(table, { on: 'k', trace })],
    ['explain', () => engine.explain('sort', table, { by: 'k', analyze: true, trace })],
  ];
  for (const [name, call] of calls) {
    const began = performance.now();
    const made = (await call()) as { stats?: { steps: { name: string; milliseconds: number }[]; phases: { name: string }[] } };
    const took = performance.now() - began;
    const read = readTrace(trace);
    rmSync(trace);
    const steps = read.get('host/steps')!;
    expect(steps.length, name).toBeGreaterThan(0);
    for (const { begin, end } of spansOf(read, /./)) {
      expect(begin, name).toBeGreaterThanOrEqual(0);
      expect(end, name).toBeLessThanOrEqual(took);
    }
    if (!made.stats) continue;
    const { stats } = made;
    expect(steps.map((step) => step.name)).toEqual(stats.steps.map((step) => step.name));
    for (const [index, { milliseconds }] of stats.steps.entries())
      expect(steps[index]!.end - steps[index]!.begin).toBeCloseTo(milliseconds, 3);
    const phases = new Set(spansOf(read, /^host\/thread/).map((span) => span.name));
    for (const { name: phase } of stats.phases) expect(phases).toContain(phase);
  }
});

test('phases lie within the steps that they are of, and say their bytes', async () => {
  const engine = await engineOf(1);
  const { stats } = await engine.sort(table, { by: 'k', algorithm: 'merge', trace: at('sort.json') });
  const read = readTrace(at('sort.json'));
  const step = read.get('host/steps')!.find(({ name }) => name === 'sort')!;
  const phases = spansOf(read, /^host\/thread/).filter(({ name }) => name === 'sort');
  expect(phases.length).toBeGreaterThan(0);
  for (const phase of phases) {
    // The clocks of the two are compared once, when the call begins.
    expect(phase.begin).toBeGreaterThan(step.begin - 1);
    expect(phase.end).toBeLessThan(step.end + 1);
  }
  const bytes = phases.reduce((sum, phase) => sum + phase.bytes, 0);
  expect(bytes).toBe(stats.phases.find(({ name }) => name === 'sort')!.bytes);
});

describe('calls with batches', () => {
  const trace = at('batches.json');
  const parts = (of: Table) => Array.from({ length: 8 }, (_, part) => of.slice((part * rows) / 8, ((part + 1) * rows) / 8));
  const read = async (batches: AsyncIterable<{ numRows: number }>): Promise<number> => {
    let sum = 0;
    for await (const { numRows } of batches) sum += numRows;
    return sum;
  };
  const bytesOf = (of: Map<string, Span[]>, track: RegExp) => spansOf(of, track).reduce((sum, { bytes }) => sum + bytes, 0);
  const expectFiles = async (batches: BatchStream) => {
    expect(await read(batches)).toBe(rows);
    const { spilledBytes, readBytes } = batches.stats;
    expect(Math.min(spilledBytes, readBytes)).toBeGreaterThan(0);
    const found = readTrace(trace);
    expect(bytesOf(found, /^temporary files\/write/)).toBe(spilledBytes);
    expect(bytesOf(found, /^temporary files\/read/)).toBe(readBytes);
  };
  const stepsOf = () => spansOf(readTrace(trace), /^host\/steps/).map(({ name }) => name);

  test('write the steps of all that they did', async () => {
    const engine = await engineOf(1);
    const began = performance.now();
    expect(await read(engine.joinBatches(parts(table), parts(table), { on: 'k', trace }))).toBe(rows);
    const took = performance.now() - began;
    const spans = spansOf(readTrace(trace), /./);
    expect(stepsOf().filter((name) => name.startsWith('hash join'))).not.toEqual([]);
    expect(Math.min(...spans.map(({ begin }) => begin))).toBeGreaterThanOrEqual(0);
    expect(Math.max(...spans.map(({ end }) => end))).toBeLessThanOrEqual(took);
    await read(engine.sortBatches(parts(table), { by: 'k', trace }));
    expect(stepsOf()).toContain('sort');
    await engine.sort(table, { by: 'k', result: 'mapped', trace });
    expect(stepsOf()).toContain('sort');
  });

  test('also through temporary files, and no two steps of a track at the same time', async () => {
    await using engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit: '8MiB' });
    expect(await read(engine.joinBatches(later(parts(table)), later(parts(table)), { on: 'k', trace }))).toBe(rows);
    expect(stepsOf()).toContain('group rows');
    for (const [track, spans] of readTrace(trace)) {
      if (!track.startsWith('host/steps')) continue;
      const sorted = [...spans].sort((a, b) => a.begin - b.begin);
      for (const [index, { end }] of sorted.slice(0, -1).entries())
        expect(sorted[index + 1]!.begin).toBeGreaterThanOrEqual(end - 1e-3);
    }
  });

  test('and what they wrote to temporary files and read of them', async () => {
    await using engine = await createEngine({ device: 'cpu', threads: 2, memoryLimit: '8MiB' });
    await expectFiles(engine.joinBatches(later(parts(table)), later(parts(table)), { on: 'k', trace }));
    await expectFiles(engine.sortBatches(later(parts(table)), { by: 'k', trace }));
  });

  test('and a result that lies in such a file', async () => {
    const engine = await engineOf(1);
    for (const make of [
      () => engine.sort(table, { by: 'k', result: 'mapped', trace }),
      () => engine.join(table, table, { on: 'k', result: 'mapped', trace }),
    ]) {
      const { stats } = await make();
      const found = readTrace(trace);
      expect(bytesOf(found, /^temporary files\/write/)).toBe(stats.mappedBytes);
      expect(spansOf(found, /^temporary files\/read/)).toEqual([]);
      expect(stepsOf().length).toBeGreaterThan(0);
    }
  });

  test('where they end early, or fail', async () => {
    const engine = await engineOf(1);
    for await (const _ of engine.joinBatches(parts(table), parts(table), { on: 'k', trace })) break;
    expect(stepsOf()).not.toEqual([]);
    const error = await failure(read(engine.joinBatches(parts(table), parts(table), { on: 'k', maxOutputRows: 1, trace })));
    expect(error.message).toMatch(/more rows than the 1 allowed/);
    expect(stepsOf()).not.toEqual([]);
  });

  test('a file that can not be written is refused before anything is read', async () => {
    const engine = await engineOf(1);
    let hasBegun = false;
    async function* coming() {
      hasBegun = true;
      yield table;
    }
    const error = await failure(read(engine.sortBatches(coming(), { by: 'k', trace: join(folder, 'none', 'run.json') })));
    expect(error).toMatchObject({ code: 'ERR_OPTION', message: expect.stringContaining("The trace can't be written to") });
    expect(hasBegun).toBe(false);
  });
});

test('calls at the same time have tracks of their own, and later ones those that are free', () => {
  const call = (began: number, name: string): Traced => ({
    began,
    steps: [{ name, begin: 0, end: 10 }],
    events: [{ name: `${name} phase`, track: 'thread', device: 0, number: 0, begin: 1, end: 9, bytes: 5 }],
    devices: [],
  });
  const path = at('made.json');
  writeFileSync(path, JSON.stringify({ traceEvents: chromeEvents([call(105, 'b'), call(100, 'a'), call(110, 'c')]) }));
  const found = [...readTrace(path)].map(([track, spans]) => [track, spans.map(({ name, begin, end }) => [name, begin, end])]);
  expect(Object.fromEntries(found)).toEqual({
    'host/steps': [
      ['a', 0, 10],
      ['c', 10, 20],
    ],
    'host/thread 0': [
      ['a phase', 1, 9],
      ['c phase', 11, 19],
    ],
    'host/steps, call 2': [['b', 5, 15]],
    'host/thread 0, call 2': [['b phase', 6, 14]],
  });
});

test('writes and reads of temporary files at the same time have tracks of their own', () => {
  const accesses: FileAccess[] = [
    { name: 'write', began: 100, ended: 110, bytes: 1 },
    { name: 'write', began: 105, ended: 120, bytes: 2 },
    { name: 'read', began: 106, ended: 107, bytes: 3 },
    { name: 'write', began: 110, ended: 111, bytes: 4 },
  ];
  const path = at('accesses.json');
  const call: Traced = { began: 101, steps: [{ name: 'a', begin: 0, end: 1 }], events: [], devices: [] };
  writeFileSync(path, JSON.stringify({ traceEvents: chromeEvents([call], accesses) }));
  const found = [...readTrace(path)].map(([track, spans]) => [track, spans.map(({ begin, end, bytes }) => [begin, end, bytes])]);
  expect(Object.fromEntries(found)).toEqual({
    'host/steps': [[1, 2, 0]],
    'temporary files/write': [
      [0, 10, 1],
      [10, 11, 4],
    ],
    'temporary files/write 2': [[5, 20, 2]],
    'temporary files/read': [[6, 7, 3]],
  });
});

test('a call that fails writes what it did, and says its own error', async () => {
  const engine = await engineOf(1);
  const error = await failure(engine.join(table, table, { on: 'k', maxOutputRows: 1, trace: at('failed.json') }));
  expect(error.message).toBe('The join gives 200000 rows, more than the 1 allowed');
  expect(readTrace(at('failed.json')).get('host/steps')!.length).toBeGreaterThan(0);
});

test('a file that can not be written is refused before the call begins', async () => {
  const engine = await engineOf(1);
  for (const trace of [join(folder, 'none', 'run.json'), folder]) {
    const steps: string[] = [];
    const onProgress = ({ step }: { step: string }) => steps.push(step);
    const error = await failure(engine.sort(table, { by: 'k', trace, onProgress }));
    expect(error).toMatchObject({ code: 'ERR_OPTION' });
    expect(error.message).toContain(`The trace can't be written to ${trace}: `);
    expect(steps).toEqual([]);
  }
  expect(await failure(engine.sort(table, { by: 'k', trace: '' }))).toMatchObject({ code: 'ERR_OPTION' });
});

test.runIf(existsSync('/dev/full'))('a disk that is full fails the call, which has nothing else to say', async () => {
  const engine = await engineOf(1);
  const error = await failure(engine.sort(table, { by: 'k', trace: '/dev/full' }));
  expect(error).toMatchObject({ code: 'ERR_OPTION' });
  expect(error.message).toContain('ENOSPC');
  expect((await engine.sort(table, { by: 'k', trace: at('next.json') })).numRows).toBe(rows);
  expect(readFileSync(at('next.json'), 'utf8')).toMatch(/^\{"displayTimeUnit":"ms","traceEvents":\[/);
});
