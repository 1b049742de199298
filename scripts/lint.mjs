// npm run lint [-- --fix]: TypeScript (biome, tsc), C++ (clang-format, clang-tidy), and the seams of docs/architecture.md.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';

const fix = process.argv.includes('--fix');
const tidy = process.argv.includes('--tidy');
let failed = false;

function run(title, command, args) {
  const result = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28 });
  const ok = result.status === 0;
  console.log(`${ok ? 'ok  ' : 'FAIL'} ${title}`);
  if (!ok) {
    failed = true;
    console.log(result.error?.message ?? `${result.stdout}${result.stderr}`);
  }
}

const tracked = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' })
  .stdout.split('\n')
  .filter((path) => existsSync(path));
const native = tracked.filter((path) => /^(native|test\/native|bench\/native)\/.*\.(h|cc|cu)$/.test(path));

run('biome', 'node_modules/.bin/biome', ['check', ...(fix ? ['--write'] : []), '--error-on-warnings']);
run('tsc', 'node_modules/.bin/tsc', ['-p', 'tsconfig.json']);
run('clang-format', 'clang-format', fix ? ['-i', ...native] : ['--dry-run', '-Werror', ...native]);
if (tidy) {
  const sources = native.filter((path) => /^native\/.*\.cc$/.test(path) && !path.startsWith('native/binding/'));
  run('clang-tidy', 'clang-tidy', ['--quiet', ...sources, '--', '-std=c++20', '-Inative', '-march=x86-64-v3']);
}

/** A rule of the architecture: no line of these files may match. */
function forbid(title, files, pattern) {
  const hits = files.flatMap((path) =>
    readFileSync(path, 'utf8')
      .split('\n')
      .flatMap((line, i) => (pattern.test(line) ? [`  ${path}:${i + 1}: ${line.trim()}`] : [])),
  );
  console.log(`${hits.length ? 'FAIL' : 'ok  '} ${title}`);
  if (hits.length) failed = true;
  for (const hit of hits) console.log(hit);
}

const isVendorFolder = (path) => /^native\/(device|primitives\/gpu)\//.test(path);
forbid(
  'an operator names no vendor',
  native.filter((path) => path.startsWith('native/') && !isVendorFolder(path)),
  /\b(cuda|hip)[A-Z]\w*\(|<<<|#include <(cuda|hip|cub|thrust|rocprim)/,
);
forbid(
  'only lib/native.ts knows the addon',
  tracked.filter((path) => path.startsWith('lib/') && path !== 'lib/native.ts'),
  /\.node['"]/,
);
for (const path of tracked.filter((p) => /^(native|lib)\//.test(p))) {
  const lines = readFileSync(path, 'utf8').split('\n').length;
  if (lines > 600) {
    console.log(`FAIL ${path} has ${lines} lines: over 600 a file is a room too large to know`);
    failed = true;
  }
}
process.exit(failed ? 1 : 0);
