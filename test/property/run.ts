/** What the property tests share: how they run, and engines too small for their input. */
import fc from 'fast-check';
import { createEngine, type Engine } from '../../lib/index.js';

/** `runs` cases; WARPJOIN_SEED repeats a run. fast-check prints the seed and the shrunk case of a failure. */
export function parameters<T>(runs: number): fc.Parameters<T> {
  const seed = process.env.WARPJOIN_SEED;
  return { numRuns: runs, ...(seed ? { seed: Number(seed) } : {}), endOnFailure: false, verbose: fc.VerbosityLevel.None };
}

/** Runs `use` on an engine whose device memory holds about a `chunksets`-th of the rows at a time. */
export async function tightEngine(
  { devices, rows, chunksets }: { devices: number; rows: number; chunksets: number },
  use: (engine: Engine) => Promise<void>,
): Promise<void> {
  const engine = await createEngine({
    device: 'cpu',
    hostDevices: devices,
    maxChunksetRows: Math.ceil(rows / chunksets),
  });
  try {
    await use(engine);
  } finally {
    await engine.dispose();
  }
}
