// Builds and runs the C++ tests, but those of GPUs, under ASan + UBSan and under TSan: npm run test:native [-- asan|tsan|plain ...]
// WARPJOIN_NATIVE_SHARE, at most a half: so much of the files of tests for each of the two, and those of their tests that begin within a
// minute; others for each and each time.
// WARPJOIN_TEST_FILES: only these files, a regular expression for what stands before _test.cc.
import { spawn, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';

const sanitizers = { plain: '', asan: 'address,undefined', tsan: 'thread' };
/**
 * Joins of more rows than 32 bits count take minutes, and go no other ways. Under TSan tests take fifteen times as long: large ones,
 * other numbers of devices than two, and of threads than two and eight, race no more.
 * Those of inputs that are written to during a call are races.
 */
const filters = {
  asan: '-LargeJoin.*',
  tsan: '-Large*:Devices*1:Devices*3:Devices*4:Devices*8:Threads*1:Threads*3:ChangingInput.*:*WhileInputsChange',
};
const share = Number(process.env.WARPJOIN_NATIVE_SHARE ?? 0);
/** How long tests of a share of the files go on to begin. */
const SHARE_MS = 60_000;
const isShare = share > 0 && !process.env.WARPJOIN_TEST_FILES;
const named = process.argv.slice(2).filter((name) => name in sanitizers);

function run(command, args, env = {}) {
  const result = spawnSync(command, args, { stdio: 'inherit', env: { ...process.env, ...env } });
  if (result.status !== 0) process.exit(result.status ?? 1);
}

/**
 * Runs the tests in GoogleTest's shards in any order, one on each core at a time: most tests use one thread at a time. Resolves whether
 * all passed.
 */
async function runShards(command, args, env) {
  const cores = availableParallelism();
  const count = (isShare ? 32 : 8) * cores; // some tests take as long as all others of a file
  const shards = [...Array(count).keys()].sort(() => Math.random() - 0.5);
  const end = isShare ? performance.now() + SHARE_MS : Number.POSITIVE_INFINITY;
  let passed = true;
  const runOnCore = async () => {
    while (passed && shards.length > 0 && performance.now() < end) {
      const own = { GTEST_TOTAL_SHARDS: String(count), GTEST_SHARD_INDEX: String(shards.pop()) };
      const child = spawn(command, args, { stdio: 'inherit', env: { ...process.env, ...env, ...own } });
      passed = (await new Promise((resolve) => child.on('close', resolve))) === 0 && passed;
    }
  };
  await Promise.all(Array.from({ length: cores }, runOnCore));
  if (passed && shards.length > 0) console.log(`-- native tests: time was up for ${shards.length} of ${count} shards`);
  return passed;
}

/** Of each run the files of tests that it builds, as a regular expression for what stands before _test.cc. */
function filesOf(names) {
  const wanted = process.env.WARPJOIN_TEST_FILES;
  if (!isShare) return names.map(() => wanted ?? '.*');
  const files = readdirSync('test/native').filter((file) => file.endsWith('_test.cc') && !file.startsWith('gpu_'));
  const drawn = files.map((file) => file.replace('_test.cc', '')).sort(() => Math.random() - 0.5);
  return names.map(() => drawn.splice(0, Math.ceil(share * files.length)).join('|'));
}

const names = named.length ? named : ['asan', 'tsan'];
const files = filesOf(names);
for (const [index, name] of names.entries()) {
  const directory = `build/tests-${name}`;
  const start = performance.now();
  console.log(`-- native tests: ${name}${files[index] === '.*' ? '' : `: ${files[index]}`}`);
  run('cmake', [
    '-S',
    '.',
    '-B',
    directory,
    '-DWARPJOIN_TESTS=ON',
    '-DWARPJOIN_GPU=none',
    `-DWARPJOIN_SANITIZE=${sanitizers[name]}`,
    `-DWARPJOIN_TEST_FILES=${files[index]}`,
  ]);
  run('cmake', ['--build', directory, '--parallel', String(availableParallelism())]);
  const built = performance.now();
  const filter = ['--gtest_brief=1', `--gtest_filter=${filters[name] ?? '*'}`];
  const options = {
    ASAN_OPTIONS: 'detect_leaks=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'halt_on_error=1:print_stacktrace=1',
    TSAN_OPTIONS: 'halt_on_error=1',
  };
  const passed = await runShards(`${directory}/warpjoin_tests`, filter, options);
  const seconds = (from, to) => ((to - from) / 1000).toFixed(0);
  console.log(`-- native tests: ${name}: built in ${seconds(start, built)} s, ran in ${seconds(built, performance.now())} s`);
  if (!passed) process.exit(1);
}
