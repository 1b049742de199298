/** What the property tests share: how they run, the oracle, and engines, some of them too small for their input. */
import type { Table } from 'apache-arrow';
import type fc from 'fast-check';
import { afterAll, beforeAll, expect } from 'vitest';
import { nativeColumns, readTable } from '../../lib/columns/input.js';
import { joinKeyColumns } from '../../lib/columns/layout.js';
import type { Engine, EngineOptions } from '../../lib/index.js';
import { type NativeEngine, type NativeJoinKind, native } from '../../lib/native.js';
import type { NamedKeyPair, SortAlgorithm } from '../../lib/options.js';
import { MIN_SUBPARTITIONS } from '../../lib/plan/join.js';
import { hashJoin, LEAST_DEVICE_LIMIT, nativeDevices, onGpus, splittingEngine, testEngine } from '../support/engines.js';
import { Oracle } from './oracle.js';

const RUNS = Number(process.env.WARPJOIN_RUNS ?? 1);

/** Milliseconds of a test of some hundred cases on a busy machine. A few cases may be the slow ones. */
export const TIMEOUT = 60_000 + 540_000 * RUNS;

/** WARPJOIN_SEED repeats a run. */
const seed = Number(process.env.WARPJOIN_SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`property tests: WARPJOIN_SEED=${seed} WARPJOIN_RUNS=${RUNS}`);

/**
 * `runs` cases, times WARPJOIN_RUNS. fast-check prints the seed and the shrunk case of a failure: it must be done with shrinking before
 * the test's time is over, and with the cases themselves.
 */
export function parameters<T>(runs: number): fc.Parameters<T> {
  return { numRuns: Math.ceil(runs * RUNS), seed, interruptAfterTimeLimit: 0.9 * TIMEOUT, markInterruptAsFailure: true };
}

/** How often something was seen. */
export class Seen {
  readonly #counts = new Map<string, number>();

  add(...all: unknown[]): void {
    for (const what of all) this.#counts.set(`${what}`, (this.#counts.get(`${what}`) ?? 0) + 1);
  }

  /**
   * Fails where something was never seen. It must be expected 12 times or more in the runs of WARPJOIN_RUNS=1: then that happens by
   * bad luck once in 10^5 times.
   */
  expect(...all: unknown[]): void {
    if (RUNS < 1) return;
    expect([...this.#counts.keys()], [...this.#counts].join('; ')).toEqual(expect.arrayContaining(all.map((what) => `${what}`)));
  }
}

/** How much of its input a call may have on its devices. */
export interface Room {
  devices: number;
  /** 1: as much as it likes. */
  chunksets: number;
  /** Device memory, of each device, for about a `chunksets`-th of the input at a time, by the figures of `probe`. */
  bytes(probe: NativeEngine): number | Promise<number>;
}

export interface Setup {
  readonly oracle: Oracle;
  /** Runs `use` on an engine with so much room; results have buffers of at most `maxBufferBytes`, if any. */
  onEngine(room: Room, maxBufferBytes: number | null, use: (engine: Engine) => Promise<void>): Promise<void>;
}

/** Sets up, before the tests of the file that calls this, what they compare with and run on; closes it after them. */
export function setUp(): Setup {
  let oracle: Oracle | undefined;
  const engines = new Map<string, Engine>();
  beforeAll(async () => {
    oracle = await Oracle.create();
  });
  afterAll(async () => {
    oracle?.close();
    for (const engine of engines.values()) await engine.dispose();
  });
  return {
    get oracle() {
      return oracle!;
    },
    async onEngine(room, maxBufferBytes, use) {
      if (room.chunksets === 1) {
        const name = `${room.devices} ${maxBufferBytes}`;
        const engine = engines.get(name) ?? (await engineOf(room.devices, maxBufferBytes, {}));
        engines.set(name, engine);
        return use(engine);
      }
      await using engine = await tightEngine(room, maxBufferBytes);
      await use(engine);
    },
  };
}

const engineOf = async (devices: number, maxBufferBytes: number | null, options: EngineOptions): Promise<Engine> =>
  maxBufferBytes === null ? testEngine(devices, options) : splittingEngine(devices, maxBufferBytes, options);

async function tightEngine({ devices, bytes }: Room, maxBufferBytes: number | null): Promise<Engine> {
  const probe = new (native().Engine)({
    threads: 2,
    ...nativeDevices(devices),
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const deviceMemoryLimit = Math.max(LEAST_DEVICE_LIMIT, await bytes(probe));
  await probe.dispose();
  return engineOf(devices, maxBufferBytes, { threads: 2, deviceMemoryLimit });
}

/** Room for a `chunksets`-th of so many rows, or less where tuples are wider than 8 bytes, to be sorted at a time. */
export function sortRoom(rows: number, chunksets: number, devices: number, algorithm: SortAlgorithm): Room {
  const tuples = Math.ceil(rows / chunksets);
  const bytes = (probe: NativeEngine): number => {
    const merge = probe.sortDeviceBytes(4, 4, tuples, devices, 'merge', true);
    const radix = [4, 8].map((keyBytes) => probe.sortDeviceBytes(keyBytes, 8, tuples, devices, 'radix', true));
    // What is needed for one wide tuple may be more than for a few narrow ones: always on GPUs, and where there are ranges.
    const widths = [4, 8].flatMap((keyBytes) => [4, 8].map((valueBytes) => [keyBytes, valueBytes] as const));
    const least = (sort: SortAlgorithm): number =>
      Math.max(...widths.map(([keyBytes, valueBytes]) => probe.sortDeviceBytes(keyBytes, valueBytes, 1, devices, sort, true)));
    const partitions = algorithm !== 'merge';
    const onAny = algorithm === 'sample' ? [least('sample')] : [];
    const onGpu = onGpus ? [least('merge'), ...(partitions ? [least('radix'), least('sample')] : [])] : [];
    return Math.max(merge, ...onAny, ...onGpu, ...(partitions ? radix : []));
  };
  return { devices, chunksets: rows < 2 ? 1 : chunksets, bytes };
}

/** What a join is, as far as its memory goes. */
export interface JoinCase {
  left: Table;
  right: Table;
  keys: readonly NamedKeyPair[];
  how: NativeJoinKind;
  algorithm: typeof hashJoin | 'sort-merge';
}

/** Room for a join in about so many rounds, of which host devices have one, or in so many chunksets of its larger side. */
export function joinRoom({ left, right, keys: named, how, algorithm }: JoinCase, chunksets: number, devices: number): Room {
  const parts = algorithm === 'radix-hash' ? 1 : 2 ** Math.ceil(Math.log2(chunksets));
  const bytes = async (probe: NativeEngine): Promise<number> => {
    const job = probe.createJob();
    const inputs = { left: readTable(left, 'left'), right: readTable(right, 'right') };
    const pairs = joinKeyColumns(inputs.left, inputs.right, named);
    const relation = (side: 'left' | 'right') => {
      const columns = nativeColumns(
        inputs[side],
        pairs.map((pair) => pair[side]),
      );
      return probe.relation(job, columns, inputs[side].rows);
    };
    const of = pairs.map((_, index) => index);
    const keys = await probe.joinKeys(job, await relation('left'), of, null, await relation('right'), of, null, pairs);
    if (algorithm === hashJoin) {
      const wanted = {
        kind: how,
        countOnly: false,
        wantKeys: false,
        wantLeft: true,
        wantRight: true,
        maxRows: Number.POSITIVE_INFINITY,
      };
      const figures = [true, false].map((buildLeft) => probe.hashJoinDeviceBytes(keys, devices, { ...wanted, buildLeft }, parts));
      return Math.max(...figures);
    }
    const sorts = [keys.left, keys.right].map(({ tuples, valueBytes }) =>
      probe.sortDeviceBytes(keys.keyBytes, valueBytes, Math.ceil(tuples / chunksets), devices, onGpus ? 'sample' : 'merge', true),
    );
    // Subpartitions are small: it is the sorts that need chunksets.
    return Math.max(...sorts, probe.mergeJoinDeviceBytes(keys, devices, MIN_SUBPARTITIONS * 4 * parts));
  };
  return { devices, chunksets: Math.max(left.numRows, right.numRows) < 2 ? 1 : chunksets, bytes };
}
