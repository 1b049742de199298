// Builds the addon with far devices (test/native/far_gpus.cc) in place of GPUs, beside the usual one, and runs a command in which
// warpjoin loads that one, and the suites run on them:
//   node scripts/far-addon.mjs npx vitest run --config vitest.gpu.config.ts test/property
//   WARPJOIN_FAR_LINKS=apart node scripts/far-addon.mjs npx vitest run --config vitest.gpu.config.ts test/integration/join.test.ts
// So what plans do on GPUs, and what the operators do there, runs without any: in host memory that only its device reads, or, with
// WARPJOIN_FAR_LINKS=linked, grouping or nothing, each. Ends with the command's exit code.
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runWithAddon } from './test-addon.mjs';

runWithAddon('tests-plain', ['-DWARPJOIN_SANITIZE=', '-DWARPJOIN_FAR_GPUS=ON'], {
  WARPJOIN_FAR_GPUS: process.env.WARPJOIN_FAR_GPUS ?? '8',
  WARPJOIN_TEST_DEVICES: 'gpu',
  // The speeds of their links are nobody else's.
  WARPJOIN_CACHE_DIR: mkdtempSync(join(tmpdir(), 'warpjoin-far-')),
});
