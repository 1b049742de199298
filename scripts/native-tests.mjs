// Builds and runs the C++ tests under ASan + UBSan and under TSan: npm run test:native [-- asan|tsan|plain ...]
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

const sanitizers = { plain: '', asan: 'address,undefined', tsan: 'thread' };
const named = process.argv.slice(2).filter((name) => name in sanitizers);

function run(command, args, env = {}) {
  const result = spawnSync(command, args, { stdio: 'inherit', env: { ...process.env, ...env } });
  if (result.status !== 0) process.exit(result.status ?? 1);
}

for (const name of named.length ? named : ['asan', 'tsan']) {
  const directory = `build/tests-${name}`;
  console.log(`-- native tests: ${name}`);
  run('cmake', [
    '-S',
    '.',
    '-B',
    directory,
    '-DWARPJOIN_TESTS=ON',
    '-DWARPJOIN_GPU=none',
    `-DWARPJOIN_SANITIZE=${sanitizers[name]}`,
  ]);
  run('cmake', ['--build', directory, '--parallel', String(availableParallelism())]);
  run(`${directory}/warpjoin_tests`, ['--gtest_brief=1'], {
    ASAN_OPTIONS: 'detect_leaks=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'halt_on_error=1:print_stacktrace=1',
    TSAN_OPTIONS: 'halt_on_error=1',
  });
}
