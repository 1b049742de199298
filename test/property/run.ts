/** What the property tests share: how they run, and engines too small for their input. */
import type fc from 'fast-check';
import { createEngine, type Engine } from '../../lib/index.js';
import { native } from '../../lib/native.js';

/** `runs` cases; WARPJOIN_SEED repeats a run. fast-check prints the seed and the shrunk case of a failure. */
export function parameters<T>(runs: number): fc.Parameters<T> {
  const seed = process.env.WARPJOIN_SEED;
  return { numRuns: runs, ...(seed ? { seed: Number(seed) } : {}) };
}

/** Device memory that holds a `chunksets`-th of so many rows at a time, or less where tuples are wider than 8 bytes. */
async function chunksetBytes({ devices, rows, chunksets, partitions }: Tight): Promise<number> {
  const probe = new (native().Engine)({
    threads: 2,
    hostDevices: devices,
    gpus: [],
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const tuples = Math.ceil(rows / chunksets);
  const merge = probe.sortDeviceBytes(4, 4, tuples, devices, 'merge', true);
  const radix = [4, 8].map((keyBytes) => probe.sortDeviceBytes(keyBytes, 8, tuples, devices, 'radix', true));
  await probe.dispose();
  return partitions ? Math.max(merge, ...radix) : merge;
}

export interface Tight {
  devices: number;
  rows: number;
  chunksets: number;
  /** Whether the call will partition, which needs some memory even for a few rows. */
  partitions: boolean;
  /** Bytes that each device gets on top. */
  extraBytes: number;
}

/** Runs `use` on an engine whose devices hold about a `chunksets`-th of the rows at a time. */
export async function tightEngine(tight: Tight, use: (engine: Engine) => Promise<void>): Promise<void> {
  const engine = await createEngine({
    device: 'cpu',
    threads: 2,
    hostDevices: tight.devices,
    deviceMemoryLimit: (await chunksetBytes(tight)) + tight.extraBytes,
  });
  try {
    await use(engine);
  } finally {
    await engine.dispose();
  }
}
