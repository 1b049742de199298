// npm run lint [-- --fix] [-- --tidy | --tidy-recent]: TypeScript (biome, tsc), C++ (clang-format, clang-tidy), and the seams of docs/architecture.md.
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';

const fix = process.argv.includes('--fix');
const tidyRecent = process.argv.includes('--tidy-recent');
const tidy = tidyRecent || process.argv.includes('--tidy');
let failed = false;

/** Runs the command once for each list of arguments, all at the same time. */
async function run(title, command, ...argumentLists) {
  const calls = argumentLists.map((args) => promisify(execFile)(command, args, { maxBuffer: 1 << 28 }));
  const errors = (await Promise.allSettled(calls)).filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  console.log(`${errors.length === 0 ? 'ok  ' : 'FAIL'} ${title}`);
  for (const { message, stdout, stderr } of errors) {
    failed = true;
    console.log(stdout || stderr ? `${stdout}${stderr}` : message);
  }
}

const tracked = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' })
  .stdout.split('\n')
  .filter((path) => existsSync(path));
/** What the last 25 commits or the working tree changed. */
function recent() {
  const lists = [
    ['log', '-25', '--name-only', '--format='],
    ['diff', '--name-only', 'HEAD'],
  ];
  return new Set(lists.flatMap((args) => spawnSync('git', args, { encoding: 'utf8' }).stdout.split('\n')));
}

const native = tracked.filter((path) => /^(native|test\/native|bench\/native)\/.*\.(h|cc|cu)$/.test(path));

await run('biome', 'node_modules/.bin/biome', ['check', ...(fix ? ['--write'] : []), '--error-on-warnings']);
await run('tsc', 'node_modules/.bin/tsc', ['-p', 'tsconfig.json']);
await run('clang-format', 'clang-format', fix ? ['-i', ...native] : ['--dry-run', '-Werror', ...native]);
if (tidy) {
  const chosen = tidyRecent ? recent() : new Set(native);
  const sources = native.filter((path) => chosen.has(path) && /^native\/(?!binding\/).*\.cc$/.test(path));
  const cores = availableParallelism();
  const shares = Array.from({ length: cores }, (_, share) => sources.filter((_, index) => index % cores === share)).filter(
    (share) => share.length > 0,
  );
  const flags = ['-std=c++20', '-Inative', '-march=x86-64-v3'];
  await run('clang-tidy', 'clang-tidy', ...shares.map((share) => ['--quiet', ...share, '--', ...flags]));
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
  'only lib/addon.ts knows where the addon is',
  tracked.filter((path) => path.startsWith('lib/') && path !== 'lib/addon.ts'),
  /\.node['"`]/,
);
forbid(
  'native/binding/entry.h makes all that JavaScript calls, so that no exception gets past it',
  native.filter((path) => path.startsWith('native/binding/') && path !== 'native/binding/entry.h'),
  /Function::New|napi_create_function|napi_property_descriptor \w+ =|(Instance|Static)(Method|Accessor|Value)|DefineClass|ObjectWrap/,
);
forbid(
  'native/core/threads.cc starts all threads, so that none is refused unseen',
  native.filter((path) => path.startsWith('native/') && !path.startsWith('native/core/threads.')),
  /std::async|std::j?thread\(|std::thread [a-z_]+[({]|pthread_create/,
);
/** The folders of native/, each above those that it may include. A device has its primitives. */
const layers = 'core device primitives engine transfer flow columns csv parquet sort join binding'.split(' ');
for (const [index, layer] of layers.entries()) {
  const above = layers.slice(index + 1).filter((other) => !(layer === 'device' && other === 'primitives'));
  if (above.length === 0) continue;
  forbid(
    `native/${layer} includes nothing from above it`,
    native.filter((path) => path.startsWith(`native/${layer}/`)),
    new RegExp(`#include "(${above.join('|')})/`),
  );
}

/** The types that a file of C++ defines in namespaces with a name, but for specializations. */
function* typesOf(path) {
  const code = readFileSync(path, 'utf8').replace(/\/\/.*|"(\\.|[^"\\\n])*"|'(\\.|[^'\\])'/g, '');
  const begin =
    /namespace\s*([\w:]*)\s*\{|\b(?:struct|class|enum|union)\s+(?:class\s+)?(?:alignas\([^)]*\)\s*)?([\w:]+)\s*(?:final\s*)?(?::[^;{}]*)?\{|[{}]/g;
  const scopes = [];
  for (const [token, namespace, type] of code.matchAll(begin)) {
    if (type && scopes.every((scope) => scope)) yield [...scopes, type].join('::');
    if (token === '}') scopes.pop();
    else scopes.push(namespace);
  }
}
const homes = new Map();
for (const path of native) for (const type of typesOf(path)) homes.set(type, [...(homes.get(type) ?? []), path]);
const shared = [...homes].filter(([, paths]) => paths.length > 1);
// Two types of one name are one to the linker: it keeps the destructor, or the vector's functions, of either.
console.log(`${shared.length ? 'FAIL' : 'ok  '} no two types of native code have one name`);
if (shared.length) failed = true;
for (const [type, paths] of shared) console.log(`  ${type}: ${paths.join(', ')}`);

for (const path of tracked.filter((p) => /^(native|lib)\//.test(p))) {
  const lines = readFileSync(path, 'utf8').split('\n').length;
  if (lines > 600) {
    console.log(`FAIL ${path} has ${lines} lines: over 600 a file is a room too large to know`);
    failed = true;
  }
}
process.exit(failed ? 1 : 0);
