/** What the property tests share: how they run, and engines too small for their input. */
import type fc from 'fast-check';
import { createEngine, type Engine } from '../../lib/index.js';
import { native } from '../../lib/native.js';

/** `runs` cases; WARPJOIN_SEED repeats a run. fast-check prints the seed and the shrunk case of a failure. */
export function parameters<T>(runs: number): fc.Parameters<T> {
  const seed = process.env.WARPJOIN_SEED;
  return { numRuns: runs, ...(seed ? { seed: Number(seed) } : {}) };
}

/** Device memory that holds a `chunksets`-th of so many rows at a time, at the widest layout. */
async function chunksetBytes(devices: number, rows: number, chunksets: number): Promise<number> {
  const probe = new (native().Engine)({
    threads: 2,
    hostDevices: devices,
    gpus: [],
    memoryLimitBytes: 2 ** 30,
    deviceMemoryLimitBytes: 0,
  });
  const bytes = probe.sortDeviceBytes(8, 8, Math.ceil(rows / chunksets), devices, 'merge', true);
  await probe.dispose();
  return bytes;
}

/** Runs `use` on an engine whose devices hold about a `chunksets`-th of the rows at a time. */
export async function tightEngine(
  { devices, rows, chunksets }: { devices: number; rows: number; chunksets: number },
  use: (engine: Engine) => Promise<void>,
): Promise<void> {
  const engine = await createEngine({
    device: 'cpu',
    threads: 2,
    hostDevices: devices,
    deviceMemoryLimit: await chunksetBytes(devices, rows, chunksets),
  });
  try {
    await use(engine);
  } finally {
    await engine.dispose();
  }
}
