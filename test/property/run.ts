/** What the property tests share: how they run, the oracle, and engines, some of them too small for their input. */
import type fc from 'fast-check';
import { afterAll, beforeAll } from 'vitest';
import type { Engine } from '../../lib/index.js';
import { native } from '../../lib/native.js';
import type { SortAlgorithm } from '../../lib/options.js';
import { DEVICE_COUNTS, LEAST_DEVICE_LIMIT, nativeDevices, onGpus, testEngine } from '../support/engines.js';
import { Oracle } from './oracle.js';

/** `runs` cases; WARPJOIN_SEED repeats a run. fast-check prints the seed and the shrunk case of a failure. */
export function parameters<T>(runs: number): fc.Parameters<T> {
  const seed = process.env.WARPJOIN_SEED;
  return { numRuns: runs, ...(seed ? { seed: Number(seed) } : {}) };
}

/** How much of its rows a call may have on its devices. */
export interface Room {
  devices: number;
  rows: number;
  /** 1: as much as it likes. */
  chunksets: number;
  /** The sort that takes as much for a few rows as the call may: radix where it partitions, sample where by key range. */
  algorithm: SortAlgorithm;
  /** Bytes that each device gets on top. */
  extraBytes: number;
}

export interface Setup {
  readonly oracle: Oracle;
  /** Runs `use` on an engine whose devices hold about a `chunksets`-th of the rows at a time. */
  onEngine(room: Room, use: (engine: Engine) => Promise<void>): Promise<void>;
}

/** Sets up, before the tests of the file that calls this, what they compare with and run on; closes it after them. */
export function setUp(): Setup {
  let oracle: Oracle | undefined;
  const roomy = new Map<number, Engine>();
  beforeAll(async () => {
    oracle = await Oracle.create();
    for (const devices of DEVICE_COUNTS) roomy.set(devices, await testEngine(devices));
  });
  afterAll(async () => {
    oracle?.close();
    for (const engine of roomy.values()) await engine.dispose();
  });
  return {
    get oracle() {
      return oracle!;
    },
    async onEngine(room, use) {
      if (room.chunksets === 1 || room.rows < 2) return use(roomy.get(room.devices)!);
      await using engine = await tightEngine(room);
      await use(engine);
    },
  };
}

async function tightEngine(room: Room): Promise<Engine> {
  const deviceMemoryLimit = Math.max(LEAST_DEVICE_LIMIT, (await chunksetBytes(room)) + room.extraBytes);
  return testEngine(room.devices, { threads: 2, deviceMemoryLimit });
}

/** Device memory that holds a `chunksets`-th of so many rows at a time, or less where tuples are wider than 8 bytes. */
async function chunksetBytes({ devices, rows, chunksets, algorithm }: Room): Promise<number> {
  const probe = new (native().Engine)({
    threads: 2,
    ...nativeDevices(devices),
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const tuples = Math.ceil(rows / chunksets);
  const merge = probe.sortDeviceBytes(4, 4, tuples, devices, 'merge', true);
  const radix = [4, 8].map((keyBytes) => probe.sortDeviceBytes(keyBytes, 8, tuples, devices, 'radix', true));
  // What is needed for one wide tuple may be more than for a few narrow ones: always on GPUs, and where there are ranges.
  const least = (sort: SortAlgorithm): number => probe.sortDeviceBytes(8, 8, 1, devices, sort, true);
  const partitions = algorithm !== 'merge';
  const onAny = algorithm === 'sample' ? [least('sample')] : [];
  const onGpu = onGpus ? [least('merge'), ...(partitions ? [least('radix'), least('sample')] : [])] : [];
  await probe.dispose();
  return Math.max(merge, ...onAny, ...onGpu, ...(partitions ? radix : []));
}
