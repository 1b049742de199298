/** The trace of a call: what it holds on any devices. What runs at the same time on GPUs is in test/gpu. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tableFromArrays } from 'apache-arrow';
import { afterAll, expect, test } from 'vitest';
import { engineMaker } from '../support/engines.js';
import { failure } from '../support/tables.js';
import { readTrace, spansOf } from '../support/traces.js';

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
