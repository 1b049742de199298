import { describe, expect, test } from 'vitest';
import type { DeviceDescription, LinkSpeeds } from '../../lib/native.js';
import { COSTS } from '../../lib/plan/costs.js';
import { deviceSets } from '../../lib/plan/device-set.js';
import { explain } from '../../lib/plan/explain.js';
import {
  expectedRows,
  type JoinDeviceBytes,
  type JoinRequestShape,
  joinWork,
  leastRows,
  planColumns,
  planCrossJoin,
  planJoin,
} from '../../lib/plan/join.js';
import { ALL_ROWS } from '../../lib/plan/order.js';
import { whyProcessor } from '../../lib/plan/placement.js';
import { chunksetEnds, deviceBudget, deviceChoices, largestFitting, type Resources, type SortStep } from '../../lib/plan/plan.js';
import {
  planSort,
  planTop,
  prefersTop,
  rowRange,
  type SortDeviceBytes,
  type SortRequest,
  sortWork,
} from '../../lib/plan/sort.js';
import type { Stats } from '../../lib/types.js';

const GIB = 2 ** 30;
function resources(devices: number, deviceLimit: number, memoryLimitBytes = 64 * GIB, freeBytes = memoryLimitBytes): Resources {
  const device = (ordinal: number): DeviceDescription => ({
    kind: 'host',
    ordinal,
    name: `host ${ordinal}`,
    memoryBytes: deviceLimit,
    limitBytes: deviceLimit,
    peakBytes: 0,
    bytesToDevice: 0,
    bytesToHost: 0,
    residentBytes: 0,
    peers: [],
  });
  return {
    devices: Array.from({ length: devices }, (_, ordinal) => device(ordinal)),
    threads: 4,
    memoryLimitBytes,
    freeBytes,
    links: null,
    sortSpills: () => false,
    mergeScratchBytes: () => 1000,
  };
}

const sortBytes: SortDeviceBytes = ({ keyBytes, valueBytes }, tuples, devices, _algorithm, several) =>
  1000 + Math.ceil(tuples / devices) * (keyBytes + valueBytes) * (several ? 3 : 2);
const joinBytes: JoinDeviceBytes = {
  sort: sortBytes,
  hash: (devices, _buildLeft, rounds) => Math.ceil(64_000_000 / devices / rounds),
  // The sides, keys and values, in blocks of 2 MiB.
  spill: (_devices, _buildLeft, rounds) =>
    rounds > 1 ? { rows: 4e6, bytes: 64e6, hostBytes: (2 * 4 + 2 * 12) * 2 ** 21 } : { rows: 0, bytes: 0, hostBytes: 0 },
  mergeJoin: (devices, subpartitions) => Math.ceil(48_000_000 / devices / subpartitions),
  sortMergeJoin: () => 1,
  order: (rows) => 20 * rows,
  gather: (_side, columns, rows, devices) => Math.ceil((columns.length * 16 * rows) / devices),
};

test('the largest number that fits', () => {
  for (const most of [0, 1, 2, 7, 100]) {
    for (const limit of [-1, 0, 1, 3, 6, 7, 99, 100, 1000])
      expect(largestFitting(most, (n) => n <= limit)).toBe(Math.max(0, Math.min(most, limit)));
  }
  expect(largestFitting(2 ** 50, (n) => n <= 2 ** 49 + 7)).toBe(2 ** 49 + 7);
});

describe('sorts of which few rows are kept', () => {
  const columns = [{ name: 'a', from: 'gathered' as const, width: 8 }];

  test('are found in one pass where they are few', () => {
    const few = (rows: number, offset: number, limit: number) => prefersTop(rows, rowRange(rows, offset, limit), 'auto');
    expect(few(1e6, 0, 100)).toBe(true);
    expect(few(1e6, 1e5, 100)).toBe(true);
    expect(few(1e6, 2e5, 100)).toBe(false);
    expect(few(1e6, 0, 1e6)).toBe(false);
    expect(few(100, 0, 99)).toBe(true);
    expect(few(100, 1, 99)).toBe(false); // the last row is wanted
    expect(few(100, 100, 5)).toBe(true); // none is
    expect(few(0, 0, 5)).toBe(false);
    expect(prefersTop(1e6, { begin: 0, end: 1 }, 'merge')).toBe(false);
  });

  test('say so, and what memory they take', () => {
    const request = { tuples: 1e6, rows: { begin: 10, end: 110 }, columns, topBytes: 1e7 };
    const plan = planTop(request, resources(2, GIB));
    expect(plan).toMatchObject({ algorithm: 'top', chunksets: 1, hostBytes: 1e7, deviceBytes: 0 });
    expect(plan.steps.map(({ label }) => label)).toEqual(['first rows', 'column a (gather)']);
    expect(plan.steps[0]).toMatchObject({ op: 'top', skip: 10, count: 100 });
    expect(() => planTop(request, resources(2, GIB, 1e6))).toThrow(/The first 110 of 1000000 rows takes at least/);
  });
});

describe('chunksets', () => {
  const bytes = (tuples: number, several: boolean): number => 100 + tuples * (several ? 30 : 20);
  const ends = (tuples: number, budget: number) => chunksetEnds(tuples, budget, bytes, resources(1, budget));

  test('are as few as fit, of even size, and cover all tuples', () => {
    expect(ends(0, 10)).toEqual([0]);
    expect(ends(10, 300)).toEqual([10]);
    expect(ends(10, 299)).toEqual([5, 10]);
    expect(ends(10, 190)).toEqual([3, 6, 8, 10]);
    for (let tuples = 1; tuples < 200; tuples += 7) {
      for (let budget = 130; budget < 5000; budget += 91) {
        const cuts = ends(tuples, budget);
        const sizes = cuts.map((end, index) => end - (cuts[index - 1] ?? 0));
        expect(cuts.at(-1)).toBe(tuples);
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
        for (const size of sizes) expect(bytes(size, cuts.length > 1)).toBeLessThanOrEqual(budget);
      }
    }
  });

  test('that never fit name the limit', () => {
    expect(() => ends(10, 120)).toThrow(
      'Sorting 10 tuples takes at least 130 bytes on each device but deviceMemoryLimit is 120 bytes.',
    );
    expect(() => ends(1_000_000, 500)).toThrow(/deviceMemoryLimit is 500 bytes/);
    expect(() => chunksetEnds(10, 120, bytes, resources(1, GIB, 2 * GIB))).toThrow('memoryLimit (2 GiB) leaves 120 bytes for it');
  });
});

test('host devices share the host memory that is left', () => {
  expect(deviceBudget(resources(4, GIB, 10 * GIB), 2 * GIB)).toBe(GIB);
  expect(deviceBudget(resources(4, 10 * GIB, 10 * GIB), 2 * GIB)).toBe(2 * GIB);
  expect(deviceBudget(resources(4, 10 * GIB, 10 * GIB, 4 * GIB), 8 * GIB)).toBe(0);
  const gpu = resources(2, GIB, 10, 10);
  expect(deviceBudget({ ...gpu, devices: gpu.devices.map((device) => ({ ...device, kind: 'gpu' })) }, 5)).toBe(GIB);
});

describe('sorts', () => {
  const request: SortRequest = {
    tuples: 1_000_000,
    keyBytes: 8,
    valueBytes: 4,
    refine: false,
    columns: [
      { name: 'v', from: 'gathered', width: 8 },
      { name: 'k', from: 'decoded', width: 8 },
    ],
    algorithm: 'auto',
    sorted: false,
    encodedBytes: 0,
    flips: false,
  };

  test('in one chunkset where that fits', () => {
    const plan = planSort(request, sortBytes, resources(1, GIB));
    expect(plan.steps.map((step) => step.label)).toEqual(['sort', 'column k (decode keys)', 'column v (gather)']);
    expect(plan).toMatchObject({ algorithm: 'merge', chunksets: 1, deviceBytes: 24_001_000 });
    // The run and the device's memory, in blocks of 2 MiB.
    expect(plan.hostBytes).toBe((4 + 2 + 12) * 2 ** 21);
    expect(plan.steps[0]).toMatchObject({ op: 'sort', side: null, devices: [0], chunksetEnds: [1_000_000] });
    for (const { estimate } of plan.steps) {
      expect(estimate.milliseconds).toBeGreaterThan(0);
      expect(estimate.rows).toBe(1_000_000);
    }
  });

  test('keys that become a column stay in memory', () => {
    const columns: SortRequest['columns'] = [
      { name: 'k', from: 'keys', width: 8 },
      { name: 'v', from: 'gathered', width: 8 },
    ];
    const plan = planSort({ ...request, columns, algorithm: 'sample' }, sortBytes, resources(1, GIB));
    expect(plan.steps.map((step) => step.label)).toEqual(['sort', 'column k (the keys)', 'column v (gather)']);
    expect(plan.hostBytes).toBe((4 + 2 + 12) * 2 ** 21);
    expect(plan.steps[1]!.estimate).toMatchObject({ bytes: 0, milliseconds: 0 });
  });

  test('in several, merged, where it does not', () => {
    const plan = planSort({ ...request, refine: true }, sortBytes, resources(2, 5_000_000));
    expect(plan.steps.map((step) => step.op)).toEqual(['sort', 'merge', 'refine', 'column', 'column']);
    expect(plan.chunksets).toBe(4);
    expect(plan.deviceBytes).toBeLessThanOrEqual(5_000_000);
    expect(plan.steps[0]).toMatchObject({ devices: [0, 1], chunksetEnds: [250_000, 500_000, 750_000, 1_000_000] });
  });

  test('no rows', () => {
    expect(planSort({ ...request, tuples: 0 }, sortBytes, resources(3, 10_000)).steps[0]).toMatchObject({ chunksetEnds: [0] });
  });

  test('are cut to the rows that are kept', () => {
    const plan = planSort({ ...request, rows: { begin: 5, end: 25 } }, sortBytes, resources(1, GIB));
    const [cut] = plan.steps.filter(({ op }) => op === 'cut');
    expect(cut).toMatchObject({ begin: 5, end: 25 });
    expect(plan.steps.filter(({ op }) => op === 'column').every(({ estimate }) => estimate.rows === 20)).toBe(true);
    const whole = planSort({ ...request, rows: { begin: 0, end: request.tuples } }, sortBytes, resources(1, GIB));
    expect(whole.steps.map(({ op }) => op)).not.toContain('cut');
  });

  test('fail early over the host limit', () => {
    expect(() => planSort(request, sortBytes, resources(1, GIB, 10_000_000))).toThrow(
      'Sorting 1000000 tuples takes at least 12 MiB of host memory but memoryLimit is 9.5 MiB.',
    );
  });

  test('the algorithm is chosen by cost', () => {
    expect(planSort(request, sortBytes, resources(1, GIB)).algorithm).toBe('merge');
    expect(planSort({ ...request, keyBytes: 4 }, sortBytes, resources(8, GIB)).algorithm).toBe('radix');
    expect(planSort({ ...request, algorithm: 'merge' }, sortBytes, resources(8, GIB)).algorithm).toBe('merge');
    expect(planSort(request, sortBytes, resources(8, GIB)).reason).toMatch(/^cheapest: merge [\d.]+ ms, radix [\d.]+ ms$/);
    expect(planSort({ ...request, algorithm: 'radix' }, sortBytes, resources(8, GIB))).toMatchObject({
      algorithm: 'radix',
      reason: 'asked for',
    });
  });
});

test('a sort copies what is in order already, unless an algorithm is asked for', () => {
  const request: SortRequest = {
    tuples: 1000,
    keyBytes: 8,
    valueBytes: 4,
    refine: false,
    columns: [{ name: 'v', from: 'gathered', width: 8 }],
    algorithm: 'auto',
    sorted: true,
    encodedBytes: 0,
    flips: false,
  };
  const plan = (of: Partial<SortRequest> = {}) => planSort({ ...request, ...of }, sortBytes, resources(2, GIB));
  expect(plan()).toMatchObject({
    algorithm: 'none',
    reason: 'the rows are in order already',
    inOrder: ['input'],
    deviceBytes: 0,
  });
  expect(plan().steps.map((step) => step.label)).toEqual(['copy', 'column v (gather)']);
  expect(plan({ algorithm: 'merge' })).toMatchObject({ algorithm: 'merge', inOrder: [] });
});

// GB/s to and from so many devices, measured on a host of eight H200 and on one of four.
const EIGHT = { 1: [55, 55], 2: [111, 110], 4: [184, 160], 8: [196, 113] };
const FOUR = { 1: [55, 55], 2: [111, 111], 4: [178, 146] };

function speeds(measured: Record<number, number[]>): LinkSpeeds {
  const set = (devices: number[], [h2d, d2h]: number[]) => {
    return { devices, h2d: h2d! * 1e9, d2h: d2h! * 1e9, both: 0.9e9 * (h2d! + d2h!) };
  };
  const counts = Object.keys(measured).map(Number);
  const alone = Array.from({ length: Math.max(...counts) }, (_, ordinal) => set([ordinal], measured[1]!));
  const together = counts.filter((count) => count > 1).map((count) => set([...Array(count).keys()], measured[count]!));
  return { sets: [...alone, ...together], peers: [] };
}
function gpus(count: number, links: Resources['links'], limit = 80 * GIB): Resources {
  const all = resources(count, limit, 512 * GIB);
  const gpu = (ordinal: number) => ({
    kind: 'gpu' as const,
    name: `GPU ${ordinal}`,
    peers: all.devices.map((device) => device.ordinal).filter((other) => other !== ordinal),
  });
  return { ...all, devices: all.devices.map((device) => ({ ...device, ...gpu(device.ordinal) })), links };
}

describe('the GPUs of a sort', () => {
  const request: SortRequest = {
    tuples: 4e9,
    keyBytes: 8,
    valueBytes: 0,
    refine: false,
    columns: [],
    algorithm: 'radix',
    sorted: false,
    encodedBytes: 0,
    flips: false,
  };
  const sortOf = (on: Resources, of: SortRequest = request) => planSort(of, sortBytes, on).steps[0] as SortStep;

  test('are those whose links bring the tuples there and back soonest', () => {
    expect(sortOf(gpus(8, speeds(EIGHT)))).toMatchObject({
      devices: [0, 1, 2, 3],
      devicesReason: '373.9 ms over their links, there and back, 8 devices take 446.5 ms',
    });
    expect(sortOf(gpus(4, speeds(FOUR))).devices).toEqual([0, 1, 2, 3]);
    expect(sortOf(gpus(4, speeds(FOUR))).devicesReason).toBe(
      '399.0 ms over their links, there and back, 2 devices take 576.6 ms',
    );
    expect(sortOf(gpus(8, speeds({ ...EIGHT, 8: [196, 160] }))).devices).toHaveLength(8);
  });

  test('are the fewer of equal sets', () => {
    expect(sortOf(gpus(4, speeds({ ...FOUR, 4: FOUR[2] }))).devices).toEqual([0, 1]);
    expect(sortOf(gpus(3, speeds({ 1: [50, 50], 3: [50, 50] }))).devices).toEqual([0]);
  });

  test('are within the devices of the engine', () => {
    const sets = deviceSets({ there: 1e9, home: 2e9 }, gpus(2, null).devices, speeds(EIGHT));
    expect(sets.map((set) => set.devices)).toEqual([[0, 1], [0], [1]]);
    expect(sets[0]!.milliseconds).toBeCloseTo(1e3 / 111 + 2e3 / 110);
    expect(sortOf({ ...gpus(8, speeds(EIGHT)), devices: gpus(8, null).devices.slice(0, 2) }).devices).toEqual([0, 1]);
    expect(sortOf({ ...gpus(8, speeds(EIGHT)), devices: gpus(8, null).devices.slice(5, 6) }).devices).toEqual([5]);
  });

  test('are more where fewer would need more chunksets', () => {
    // 4e9 tuples of 8 bytes, twice: 64 GB, on four devices 16 GB each.
    expect(sortOf(gpus(8, speeds(EIGHT), 16.1e9)).devices).toHaveLength(4);
    const tight = sortOf(gpus(8, speeds(EIGHT), 15.9e9));
    expect(tight).toMatchObject({ devices: [0, 1, 2, 3, 4, 5, 6, 7], chunksetEnds: [4e9] });
    expect(tight.devicesReason).toBe('446.5 ms over their links, there and back, 4 devices take 373.9 ms but need more parts');
    const tiny = sortOf(gpus(8, speeds(EIGHT), 3e9));
    expect(tiny.devices).toHaveLength(8);
    expect(() => sortOf(gpus(8, speeds(EIGHT), 900))).toThrow(/deviceMemoryLimit is 900 bytes/);
  });

  test('several chunksets spill where that is possible and faster than merging runs', () => {
    const sample: SortRequest = { ...request, algorithm: 'sample' };
    const on = (both: number, spills: boolean): Resources => {
      const links = speeds(FOUR);
      for (const set of links.sets) set.both = both;
      return { ...gpus(4, links, 7e9), sortSpills: (tuples, chunkset) => spills && tuples === 4e9 && chunkset === 1e9 };
    };
    const ops = (of: Resources) => planSort(sample, sortBytes, of).steps.map((step) => ('spill' in step ? step.spill : step.op));
    expect(ops(on(200e9, true))).toEqual([true]);
    expect(ops(on(200e9, false))).toEqual([false, 'merge']);
    expect(ops(on(2e9, true))).toEqual([false, 'merge']);
  });

  test('are all where nothing is known of the links, which explain() says', () => {
    expect(sortOf(gpus(8, null))).toMatchObject({ devices: [0, 1, 2, 3, 4, 5, 6, 7], devicesReason: null });
    const unknown = gpus(3, 'the links could not be measured: no room');
    expect(sortOf(unknown)).toMatchObject({ devices: [0, 1, 2], devicesReason: 'the links could not be measured: no room' });
    const text = (on: Resources): string => explain('sort', planSort(request, sortBytes, on), on, '', null);
    expect(text(unknown)).toContain('\n  links    sort on all devices: the links could not be measured: no room\n');
    expect(text(gpus(8, speeds(EIGHT)))).toContain('\n  links    sort on devices 0, 1, 2, 3: 373.9 ms over their links');
    expect(text(gpus(8, null))).not.toContain('  links');
  });
});

describe('joins', () => {
  const side = (rows: number, sorted = false) => ({
    rows,
    tuples: rows,
    keyBytes: 8,
    valueBytes: 8,
    sentBytes: 16,
    homeBytes: 8,
    sorted,
  });
  const request: JoinRequestShape = {
    how: 'inner',
    countOnly: false,
    rowsAreKeysOf: null,
    result: ALL_ROWS,
    algorithm: 'auto',
    sortAlgorithm: 'auto',
    buildSide: 'auto',
    left: side(1_000_000),
    right: side(3_000_000),
    columns: [{ name: 'a', from: 'gathered', width: 8, side: 'left' }],
    rowBytes: 16,
    encodedBytes: 0,
  };

  test('by looking rows up where keys are row numbers, unless an algorithm is asked for', () => {
    const looked: JoinRequestShape = { ...request, rowsAreKeysOf: 'left' };
    expect(planJoin(looked, joinBytes, resources(2, GIB))).toMatchObject({
      algorithm: 'lookup',
      reason: 'the keys of left are its row numbers',
      deviceBytes: 0,
      steps: [{ op: 'lookupJoin', label: 'look up rows of left' }, { op: 'column' }],
    });
    expect(planJoin({ ...looked, algorithm: 'radix-hash' }, joinBytes, resources(2, GIB)).algorithm).toBe('radix-hash');
    expect(planJoin({ ...looked, algorithm: 'sort-merge' }, joinBytes, resources(2, GIB)).algorithm).toBe('sort-merge');
  });

  test('by hash in one round where that fits, building the smaller side', () => {
    const plan = planJoin(request, joinBytes, resources(2, GIB));
    expect(plan).toMatchObject({ algorithm: 'radix-hash', rounds: 1, chunksets: 1, deviceBytes: 32_000_000 });
    expect(plan.reason).toMatch(/^cheapest: radix-hash/);
    expect(plan.steps).toMatchObject([{ op: 'hashJoin', buildLeft: true, rounds: 1, devices: [0, 1] }, { op: 'column' }]);
    expect(planJoin({ ...request, left: side(5_000_000) }, joinBytes, resources(2, GIB)).steps[0]).toMatchObject({
      buildLeft: false,
    });
    expect(planJoin({ ...request, buildSide: 'right' }, joinBytes, resources(2, GIB)).steps[0]).toMatchObject({
      buildLeft: false,
    });
  });

  test('by hash where it is asked for, and host devices have nothing to spill', () => {
    const plan = planJoin({ ...request, algorithm: 'radix-hash' }, joinBytes, resources(1, GIB));
    expect(plan).toMatchObject({ algorithm: 'radix-hash', reason: 'asked for', rounds: 1, hostBytes: 0 });
    const spilling = planJoin({ ...request, algorithm: 'triton' }, joinBytes, resources(1, GIB));
    expect(spilling).toEqual({ ...plan, reason: 'host devices have nothing to spill' });
    for (const [algorithm, name] of [
      ['radix-hash', 'radix-hash'],
      ['triton', 'Triton'],
    ] as const) {
      expect(() => planJoin({ ...request, algorithm }, joinBytes, resources(1, 10_000_000))).toThrow(
        `A ${name} join takes at least 61 MiB on each device but deviceMemoryLimit is 9.5 MiB. algorithm "sort-merge" takes less at a time.`,
      );
    }
  });

  test('by sort-merge where it does not', () => {
    const plan = planJoin(request, joinBytes, resources(1, 900_000));
    expect(plan.algorithm).toBe('sort-merge');
    expect(plan.reason).toMatch(
      /^radix-hash doesn't fit: A radix-hash join takes at least 61 MiB on each device but deviceMemoryLimit is 878\.9 KiB\.?$/,
    );
    expect(plan.steps.map((step) => step.label)).toEqual([
      'sort left',
      'merge runs left',
      'sort right',
      'merge runs right',
      'merge join',
      'column a (gather)',
    ]);
    expect(plan.steps.find((step) => step.op === 'mergeJoin')).toMatchObject({ subpartitions: 96 });
  });

  test('by sort-merge where asked, without a merge of one run', () => {
    const plan = planJoin({ ...request, algorithm: 'sort-merge', sortAlgorithm: 'radix' }, joinBytes, resources(2, GIB));
    expect(plan.steps.map((step) => step.label)).toEqual(['sort left', 'sort right', 'merge join', 'column a (gather)']);
    expect(plan.steps[0]).toMatchObject({ algorithm: 'radix', chunksetEnds: [1_000_000] });
    expect(plan.steps[2]).toMatchObject({ subpartitions: 3 });
  });

  test('by sort-merge leave sides as they are that are in order, whose memory is then free, and explain() says so', () => {
    const sorted = { left: side(1_000_000, true), right: side(3_000_000, true) };
    const merge = { ...request, algorithm: 'sort-merge' as const };
    const labels = (of: JoinRequestShape) => planJoin(of, joinBytes, resources(2, GIB)).steps.map((step) => step.label);
    expect(labels({ ...merge, ...sorted })).toEqual(['merge join', 'column a (gather)']);
    expect(labels({ ...merge, right: sorted.right })).toEqual(['sort left', 'merge join', 'column a (gather)']);
    expect(labels({ ...merge, ...sorted, sortAlgorithm: 'merge' })).toEqual([
      'sort left',
      'sort right',
      'merge join',
      'column a (gather)',
    ]);
    const one = planJoin({ ...merge, left: sorted.left, columns: [] }, joinBytes, resources(2, GIB));
    expect(one).toMatchObject({ inOrder: ['left'], hostBytes: (2 * 12 + 2 * 23) * 2 ** 21 });
    const both = planJoin({ ...request, ...sorted }, joinBytes, resources(2, GIB));
    expect(both).toMatchObject({ algorithm: 'sort-merge', chunksets: 1, inOrder: ['left', 'right'] });
    expect(both.reason).toMatch(/^cheapest: /);
    expect(explain('join', both, resources(2, GIB), '', null)).toContain(
      '\n  order    not sorted, as they are in order: left, right\n',
    );
    expect(explain('join', planJoin(request, joinBytes, resources(2, GIB)), resources(2, GIB), '', null)).not.toContain('order');
  });

  test('neither fits', () => {
    expect(() => planJoin(request, joinBytes, resources(1, 1000))).toThrow(
      /A radix-hash join takes .* deviceMemoryLimit is 1000 bytes/,
    );
  });

  test('fail early over the host limit, but only where the result surely is', () => {
    const small = resources(1, GIB, 20_000_000);
    expect(() => planJoin({ ...request, how: 'left' }, joinBytes, small)).toThrow(
      /A left join of 1000000 and 3000000 rows takes at least 22.9 MiB of host memory but memoryLimit is 19.1 MiB/,
    );
    expect(
      planJoin({ ...request, how: 'left', countOnly: true, algorithm: 'radix-hash' }, { ...joinBytes, hash: () => 1000 }, small)
        .algorithm,
    ).toBe('radix-hash');
    expect(planJoin({ ...request, algorithm: 'radix-hash' }, { ...joinBytes, hash: () => 1000 }, small).algorithm).toBe(
      'radix-hash',
    );
  });

  test('rows to expect', () => {
    expect(
      (['inner', 'left', 'right', 'full', 'semi', 'anti', 'cross'] as const).map((how) => [
        leastRows(how, 3, 5),
        expectedRows(how, 3, 5),
      ]),
    ).toEqual([
      [0, 5],
      [3, 5],
      [5, 5],
      [5, 5],
      [0, 1.5],
      [0, 1.5],
      [15, 15],
    ]);
    expect(expectedRows('inner', 0, 5)).toBe(0);
  });

  test('rows are ordered and cut between the join and its columns', () => {
    const result = { order: 'right', offset: 10, limit: 100 } as const;
    const columns = [{ name: 'a', from: 'gathered', width: 8, side: 'left' }] as const;
    const plan = planJoin({ ...request, columns, result }, joinBytes, resources(1, GIB));
    expect(plan.steps.map((step) => step.op)).toEqual(['hashJoin', 'orderRows', 'sliceRows', 'column']);
    expect(plan.steps.slice(1)).toMatchObject([
      { label: 'order rows by right', side: 'right' },
      { label: '100 rows from 10 on', estimate: { rows: 100 } },
      { estimate: { rows: 100 } },
    ]);
    planColumns(plan, 50, { ...request, columns, result }, joinBytes, resources(1, GIB));
    expect(plan.steps.map(({ op, estimate }) => [op, estimate.rows]).slice(1)).toEqual([
      ['orderRows', 50],
      ['sliceRows', 40],
      ['column', 40],
    ]);
    expect(planJoin({ ...request, result, countOnly: true }, joinBytes, resources(1, GIB)).steps).toHaveLength(1);
    // A left join has all left rows at least, and orders them.
    const tight = resources(1, GIB, 2 ** 20);
    expect(() => planJoin({ ...request, how: 'left', result: { ...result, limit: 1 } }, joinBytes, tight)).toThrow(
      /A left join of .* takes at least/,
    );
  });

  test('cross joins', () => {
    const plan = planCrossJoin(1000, 2000, [{ name: 'a', from: 'gathered', width: 8 }], ALL_ROWS, resources(1, GIB));
    expect(plan).toMatchObject({ algorithm: 'cross', hostBytes: 32_000_000 });
    expect(plan.steps.map((step) => step.op)).toEqual(['crossJoin', 'column']);
    const some = planCrossJoin(1e9, 1e9, [], { order: 'right', offset: 1e17, limit: 1000 }, resources(1, GIB));
    expect(some).toMatchObject({ hostBytes: 8000, steps: [{ op: 'crossJoin', estimate: { rows: 1000 } }] });
    expect(() => planCrossJoin(1e9, 1e9, [], ALL_ROWS, resources(1, GIB))).toThrow(
      /A cross join of 1000000000 and 1000000000 rows takes at least/,
    );
  });

  test('the text lines up', () => {
    const set = resources(2, GIB);
    const text = explain(
      'inner join on "a" = "b"',
      planJoin({ ...request, algorithm: 'sort-merge' }, joinBytes, set),
      set,
      'why',
      null,
    );
    expect(text).toMatchInlineSnapshot(`
      "inner join on "a" = "b": sort-merge
        reason   asked for
        devices  0 host 0 (1 GiB), 1 host 1 (1 GiB); 4 host threads
                 why
        memory   at least 156 MiB of 64 GiB on the host, 45.8 MiB on each device
        parts    1 chunkset, 1 round

      step                    rows      bytes  estimate
      sort left          1,000,000  244.1 MiB   12.8 ms
      sort right         3,000,000  732.4 MiB   38.4 ms
      merge join         4,000,000  106.8 MiB   6.50 ms
      column a (gather)  3,000,000   45.8 MiB   5.25 ms
      total                                     63.0 ms
      "
    `);
  });
});

describe('joins on GPUs', () => {
  const side = (rows: number, sentBytes = 16) => ({
    rows,
    tuples: rows,
    keyBytes: 8,
    valueBytes: 8,
    sentBytes,
    homeBytes: 8,
    sorted: false,
  });
  const request: JoinRequestShape = {
    how: 'inner',
    countOnly: false,
    rowsAreKeysOf: null,
    result: ALL_ROWS,
    algorithm: 'auto',
    sortAlgorithm: 'auto',
    buildSide: 'auto',
    left: side(1e8),
    right: side(4e8),
    columns: [],
    rowBytes: 24,
    encodedBytes: 0,
  };
  const bytes: JoinDeviceBytes = {
    sort: sortBytes,
    hash: (devices, _buildLeft, rounds) => 64e6 + 24e9 / devices / rounds,
    spill: (_devices, _buildLeft, rounds) => {
      const share = 1 - 1 / rounds;
      return { rows: 5e8 * share, bytes: 8e9 * share, hostBytes: 8e9 * share };
    },
    mergeJoin: (devices, subpartitions) => 8e9 / devices / subpartitions,
    sortMergeJoin: () => Number.POSITIVE_INFINITY,
    order: (rows) => 20 * rows,
    gather: (_side, columns, rows, devices) => (columns.length * 16 * rows) / devices,
  };
  const plan = (on: Resources, of: Partial<JoinRequestShape> = {}) => planJoin({ ...request, ...of }, bytes, on);

  test('go through those whose links bring the relations there and the rows home soonest', () => {
    expect(plan(gpus(8, speeds(EIGHT))).steps[0]).toMatchObject({
      op: 'hashJoin',
      devices: [0, 1, 2, 3],
      // 5e8 tuples of 16 bytes there, 4e8 rows of 24 home.
      devicesReason: '103.5 ms over their links, there and back, 8 devices take 125.8 ms',
    });
    // Nothing goes home.
    const count = { countOnly: true, rowBytes: 0, left: side(1e8, 8), right: side(4e8, 8) };
    expect(plan(gpus(8, speeds(EIGHT)), count).steps[0]).toMatchObject({
      devices: [0, 1, 2, 3, 4, 5, 6, 7],
      devicesReason: '20.4 ms over their links, there and back, 4 devices take 21.7 ms',
    });
  });

  test('match ranges that are only counted do not go home', () => {
    const sorted = (tuples: number) => ({ ...side(tuples, 8), sorted: true });
    const merge = { algorithm: 'sort-merge' as const, left: sorted(4e8), right: sorted(4e8) };
    const [rows, count] = [{}, { countOnly: true, rowBytes: 0 }].map(
      (of) => plan(gpus(8, speeds(EIGHT)), { ...merge, ...of }).steps[0]!,
    );
    expect(rows!.estimate.bytes - count!.estimate.bytes).toBeGreaterThan(4e8 * 16);
    expect(count).toMatchObject({ op: 'mergeJoin', devices: [0, 1, 2, 3, 4, 5, 6, 7] });
    expect(count!.estimate.bytes).toBe(8e8 * 8);
  });

  test('go through more where fewer would need more rounds', () => {
    expect(plan(gpus(8, speeds(EIGHT), 6.1e9)).steps[0]).toMatchObject({ devices: [0, 1, 2, 3], rounds: 1 });
    const tight = plan(gpus(8, speeds(EIGHT), 6e9));
    expect(tight.steps[0]).toMatchObject({ devices: [0, 1, 2, 3, 4, 5, 6, 7], rounds: 1 });
    expect(deviceChoices(tight)).toEqual([
      {
        step: 'hash join, build left',
        devices: [0, 1, 2, 3, 4, 5, 6, 7],
        reason: '125.8 ms over their links, there and back, 4 devices take 103.5 ms but need more parts',
      },
    ]);
    const rounds = plan(gpus(2, speeds(FOUR), 6e9), { algorithm: 'triton' });
    expect(rounds).toMatchObject({ rounds: 4, steps: [{ rounds: 4, devices: [0, 1] }] });
  });

  test('take their links, and passes on the devices; the host writes the rows of a merge join', () => {
    const milliseconds = (on: Resources, of: Partial<JoinRequestShape> = {}) =>
      plan(on, of).steps.map(({ label, estimate }) => [label, estimate.milliseconds] as const);
    const usual = COSTS.linkBytesPerSecond * COSTS.transferShare;
    const passes = (COSTS.gpuHashJoinPasses * 16e9) / COSTS.gpuPassBytesPerSecond;
    expect(milliseconds(gpus(1, null))[0]![1]).toBeCloseTo(((8e9 + 9.6e9) / usual + passes) * 1e3);
    // Of two rounds, one is joined as it comes, and the other goes home and comes back.
    expect(milliseconds(gpus(1, null, 20e9))[0]![1]).toBeCloseTo(((8e9 + 2 * 4e9 + 9.6e9) / usual + passes) * 1e3);
    // On two GPUs one of four rounds is joined as it comes.
    const whole = milliseconds(gpus(2, null))[0]![1];
    expect(milliseconds(gpus(2, null, 6e9))[0]![1] - whole).toBeCloseTo(((2 * 6e9) / usual / 2) * 1e3);
    const merged = milliseconds(gpus(1, null), { algorithm: 'sort-merge' });
    expect(merged.map(([label]) => label)).toEqual(['sort left', 'sort right', 'merge join']);
    expect(merged[0]![1]).toBeCloseTo((2 * 1.6e9 * 1e3) / usual);
    expect(merged[2]![1]).toBeGreaterThan(((4e9 + 1.6e9) / usual) * 1e3);
    expect(plan(gpus(1, null)).reason).toMatch(/^cheapest: triton [\d.]+ ms, sort-merge [\d.]+ ms$/);
    expect(plan(gpus(1, null)).algorithm).toBe('triton');
  });

  test('spill what they do not hold, unless the hash join is asked for that does not', () => {
    const [all, half] = [gpus(1, null), gpus(1, null, 20e9)];
    expect(plan(half)).toMatchObject({ algorithm: 'triton', rounds: 2 });
    expect(plan(half, { algorithm: 'triton' })).toMatchObject({ algorithm: 'triton', reason: 'asked for', rounds: 2 });
    expect(plan(all, { algorithm: 'radix-hash' })).toMatchObject({ algorithm: 'radix-hash', reason: 'asked for', rounds: 1 });
    expect(() => plan(half, { algorithm: 'radix-hash' })).toThrow(
      /^A radix-hash join takes at least 22\.4 GiB on each device but deviceMemoryLimit is 18\.6 GiB\. algorithm "triton" spills what the devices do not hold\.$/,
    );
    expect(explain('join', plan(half), half, '', null)).toContain('\n  moves    11.2 GiB to the devices, 12.7 GiB home\n');
    expect(explain('join', plan(all), all, '', null)).toContain('\n  moves    7.5 GiB to the devices, 8.9 GiB home\n');
    expect(explain('join', planJoin(request, joinBytes, resources(1, GIB)), resources(1, GIB), '', null)).not.toContain('moves');
    // What is spilled needs host memory, too.
    expect(() => plan({ ...half, freeBytes: 3e9 }, { algorithm: 'triton' })).toThrow(
      /^A hash join that spills takes at least 3\.7 GiB of host memory but memoryLimit \(512 GiB\) leaves 2\.8 GiB for it\.$/,
    );
    expect(() => plan(gpus(1, null, 1e8), { algorithm: 'triton' })).toThrow(
      /^A hash join in 64 rounds takes at least .* but deviceMemoryLimit is 95\.4 MiB\.$/,
    );
    expect(plan(gpus(1, null, 2e8)).reason).toMatch(/^triton doesn't fit: A hash join in 64 rounds takes/);
  });

  test('what moved is compared with what the links take at least, where their speeds are known', () => {
    const on = gpus(1, null);
    const moved = (there: number, home: number, milliseconds: number, links: LinkSpeeds | string | null) => {
      const joins = plan(on);
      const stats = {
        ...{
          steps: [{ name: 'hash join, build left', milliseconds }],
          phases: [],
          milliseconds,
          outputRows: 1,
          peakMemoryBytes: 1,
          skew: 1,
        },
        devices: [{ bytesToDevice: there, bytesToHost: home }],
      } as unknown as Stats;
      return explain('join', joins, on, '', { stats, links }).split('\n').at(-3);
    };
    const links = { sets: [{ devices: [0], h2d: 50e9, d2h: 40e9, both: 80e9 }], peers: [] };
    const there = 'moved 7.5 GiB to the devices, ';
    expect(moved(8e9, 1e9, 176, links)).toBe(
      `${there}953.7 MiB home: at least 160.0 ms over the links; its steps took 1.10 times that`,
    );
    expect(moved(8e9, 8e9, 400, links)).toBe(
      `${there}7.5 GiB home: at least 200.0 ms over the links; its steps took 2.00 times that`,
    );
    expect(moved(8e9, 12e9, 300, links)).toMatch(/at least 300\.0 ms .* 1\.00 times that$/);
    expect(moved(8e9, 0, 300, 'they could not be measured')).toBe(`${there}0 bytes home`);
    expect(moved(8e9, 0, 300, { sets: [], peers: [] })).toBe(`${there}0 bytes home`);
    expect(moved(0, 0, 300, links)).toBe('');
  });

  test('sort and match each on the best devices, and explain() says why', () => {
    const on = gpus(8, speeds(EIGHT));
    const merge = plan(on, { algorithm: 'sort-merge' });
    expect(deviceChoices(merge).map(({ step, devices }) => [step, devices.length])).toEqual([
      ['sort left', 4],
      ['sort right', 4],
      ['merge join', 4],
    ]);
    expect(explain('join', merge, on, '', null)).toContain(
      '\n  links    merge join on devices 0, 1, 2, 3: 31.7 ms over their links',
    );
    expect(explain('join', plan(gpus(2, 'no room')), on, '', null)).toContain(
      '  links    hash join, build left on devices 0, 1: no room',
    );
    expect(deviceChoices(plan(gpus(2, null)))).toEqual([]);
  });

  describe('in joint memory', () => {
    const joint = (on: Resources, of: Partial<JoinRequestShape> = {}, bytesOf = 20e9) =>
      planJoin({ ...request, algorithm: 'sort-merge', ...of }, { ...bytes, sortMergeJoin: (devices) => bytesOf / devices }, on);
    const labels = (...of: Parameters<typeof joint>) => joint(...of).steps.map((step) => step.label);
    const runs = ['sort left', 'sort right', 'merge join'];

    test('sort and merge where it fits and GPUs read each other', () => {
      const plan = joint(gpus(4, null));
      expect(plan.steps).toMatchObject([{ op: 'sortMergeJoin', buildLeft: true, devices: [0, 1, 2, 3] }]);
      expect(plan).toMatchObject({ algorithm: 'sort-merge', hostBytes: 4e9, deviceBytes: 5e9 });
      expect(labels(gpus(1, null, 19e9))).toEqual(runs);
      const apart = gpus(2, null);
      expect(labels({ ...apart, devices: apart.devices.map((device) => ({ ...device, peers: [] })) })).toEqual(runs);
      expect(labels(resources(4, 80 * GIB, 512 * GIB))).toEqual(runs);
    });

    test('take keys and values there once, values and match ranges home', () => {
      const usual = COSTS.linkBytesPerSecond * COSTS.transferShare;
      const { estimate } = joint(gpus(1, null), { countOnly: true, rowBytes: 0 }).steps[0]!;
      expect(estimate.milliseconds).toBeCloseTo(((8e9 + 4e9 + 1.6e9) / usual) * 1e3, -3);
    });

    test('leave sides in order, and algorithms that are asked for, to runs', () => {
      const sorted = { left: { ...request.left, sorted: true }, right: { ...request.right, sorted: true } };
      expect(labels(gpus(2, null), sorted)).toEqual(['merge join']);
      expect(labels(gpus(2, null), { sortAlgorithm: 'merge' })).toEqual(runs);
    });
  });
});

describe('where a call runs that may choose', () => {
  const one = gpus(1, null).devices;
  test('small ones on the processor, large ones on GPUs', () => {
    expect(whyProcessor(joinWork('inner', 1000, 1000, false, 32), one)).toMatch(
      /^device 'auto': the processor takes 0\.01 ms, GPUs /,
    );
    expect(whyProcessor(sortWork(0, 32), one)).not.toBeNull();
    for (const threads of [1, 8, 256]) {
      expect(whyProcessor(joinWork('full', 1e7, 1e7, false, threads), one)).toBeNull();
      expect(whyProcessor(joinWork('inner', 1e7, 1e7, true, threads), one)).toBeNull();
      expect(whyProcessor(sortWork(1e7, threads), one)).toBeNull();
    }
  });

  test('fewer on the processor where it has few threads, more where there are many GPUs to start', () => {
    const most = (threads: number, devices: Resources['devices']): number => {
      let rows = 1;
      while (whyProcessor(sortWork(2 * rows, threads), devices) !== null) rows *= 2;
      return rows;
    };
    expect(most(1, one)).toBeLessThan(most(32, one));
    expect(most(32, one)).toBeLessThan(most(32, gpus(8, null).devices));
  });
});
