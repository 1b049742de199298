/** The suites on real GPUs: vitest run --config vitest.gpu.config.ts. They need an addon built with CUDA or ROCm. */
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: [
      'test/integration/{sort,join,sort-batches,join-batches,validate-batches,spilled-join,mapped,bad-input,engine,load}.test.ts',
      'test/property/*.property.test.ts',
      'test/gpu/**/*.test.ts',
    ],
    env: { WARPJOIN_TEST_DEVICES: 'gpu' },
    globalSetup: 'test/gpu/setup.ts',
    setupFiles: ['test/gpu/costs.ts'],
    // The first engine of a process starts the driver on every GPU.
    testTimeout: 300_000,
    hookTimeout: 60_000,
    pool: 'forks',
    // One file at a time: the speeds of links are measured, too.
    poolOptions: { forks: { singleFork: true, isolate: true } },
  },
});
