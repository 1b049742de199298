import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/{unit,integration,property,recipes}/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 20_000,
    // Each file gets a process of its own: the addon holds threads and memory that tests measure.
    pool: 'forks',
    poolOptions: { forks: { maxForks: 2 } },
  },
});
