// Builds the addon with ASan and UBSan beside the usual one, and runs a command in which warpjoin loads that one:
//   node scripts/asan-addon.mjs [COMMAND ...]
//   node scripts/asan-addon.mjs node scripts/trials/binding.mjs --rounds 1000
//   node scripts/asan-addon.mjs npx vitest run test/integration/join.test.ts
// The addon shares its objects with the native tests of scripts/native-tests.mjs; a test can let its allocations fail
// (test/native/failing_new.cc). Ends with the command's exit code.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const out = join(root, 'build', 'tests-asan');
const { include_dir: headers } = createRequire(import.meta.url)('node-api-headers');

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit', cwd: root, ...options });
  if (error) throw error;
  return status ?? 1;
}

function required(command, args) {
  // The command's own output may be parsed: what the build says goes to stderr.
  const status = run(command, args, { stdio: ['ignore', 2, 2] });
  if (status !== 0) process.exit(status);
}

function library(name) {
  const { stdout } = spawnSync(process.env.CXX?.split(' ').at(-1) ?? 'g++', [`-print-file-name=${name}`], { encoding: 'utf8' });
  return stdout.trim();
}

const settings = ['-DWARPJOIN_GPU=none', '-DWARPJOIN_SANITIZE=address,undefined', '-DWARPJOIN_FAILING_NEW=ON', '-DWARPJOIN_FAR_GPUS=ON'];
required('cmake', ['-S', root, '-B', out, ...settings, `-DCMAKE_JS_INC=${headers}`]);
required('cmake', ['--build', out, '--target', 'warpjoin', '--parallel', String(availableParallelism())]);

const [command, ...args] = process.argv.slice(2);
if (command) {
  const hook = `--require ${JSON.stringify(join(root, 'scripts', 'use-addon.cjs'))}`;
  const env = {
    ...process.env,
    WARPJOIN_ADDON: join(out, 'warpjoin.node'),
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} ${hook}`.trim(),
    // libstdc++ too, for ASan looks for what it wraps in the libraries that are there at the start.
    LD_PRELOAD: `${library('libasan.so')} ${library('libstdc++.so.6')}`,
    // Node.js itself frees little at its end, and the addon has an operator new of its own.
    ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? 'detect_leaks=0:strict_string_checks=1:alloc_dealloc_mismatch=0',
    UBSAN_OPTIONS: process.env.UBSAN_OPTIONS ?? 'halt_on_error=1:print_stacktrace=1',
  };
  process.exit(run(command, args, { env }));
}
