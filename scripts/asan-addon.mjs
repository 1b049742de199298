// Builds the addon with ASan and UBSan beside the usual one, and runs a command in which warpjoin loads that one:
//   node scripts/asan-addon.mjs [COMMAND ...]
//   node scripts/asan-addon.mjs node scripts/trials/binding.mjs --rounds 1000
//   node scripts/asan-addon.mjs npx vitest run test/integration/join.test.ts
// The addon shares its objects with the native tests of scripts/native-tests.mjs; a test can let its allocations fail
// (test/native/failing_new.cc), and give it GPUs that are none (test/native/far_gpus.cc). Ends with the command's exit code.
import { spawnSync } from 'node:child_process';
import { runWithAddon } from './test-addon.mjs';

function library(name) {
  const { stdout } = spawnSync(process.env.CXX?.split(' ').at(-1) ?? 'g++', [`-print-file-name=${name}`], { encoding: 'utf8' });
  return stdout.trim();
}

runWithAddon('tests-asan', ['-DWARPJOIN_SANITIZE=address,undefined', '-DWARPJOIN_FAILING_NEW=ON', '-DWARPJOIN_FAR_GPUS=ON'], {
  // libstdc++ too, for ASan looks for what it wraps in the libraries that are there at the start.
  LD_PRELOAD: `${library('libasan.so')} ${library('libstdc++.so.6')}`,
  // Node.js itself frees little at its end, and the addon has an operator new of its own.
  ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? 'detect_leaks=0:strict_string_checks=1:alloc_dealloc_mismatch=0',
  UBSAN_OPTIONS: process.env.UBSAN_OPTIONS ?? 'halt_on_error=1:print_stacktrace=1',
});
