// Brings a checkout to where everything runs: packages, the addon, the compiled TypeScript. Each step runs only where its
// result is missing or older than what it is made from; with nothing to do it is silent and takes milliseconds.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const at = (...parts) => join(root, ...parts);

function step(what, command, args) {
  console.error(`setup: ${what}`);
  const start = performance.now();
  const { status, error, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 28 });
  if (status !== 0) {
    console.error(`${stdout ?? ''}${stderr ?? ''}`.trimEnd());
    console.error(`setup: "${command} ${args.join(' ')}" failed${error ? `: ${error.message}` : ` with exit code ${status}`}`);
    process.exit(1);
  }
  console.error(`setup: done in ${((performance.now() - start) / 1000).toFixed(1)} s`);
}

/** Modification time of the newest file in the paths; missing ones are older than anything. */
function newest(...paths) {
  let time = 0;
  for (const path of paths) {
    const info = statSync(path, { throwIfNoEntry: false });
    if (!info) continue;
    const inside = info.isDirectory() ? newest(...readdirSync(path).map((name) => join(path, name))) : info.mtimeMs;
    time = Math.max(time, inside);
  }
  return time;
}

const lockOf = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : undefined);

/** Whether node_modules holds what the lock file asks for. npm skips optional packages for other platforms. */
function packagesInstalled() {
  const wanted = lockOf(at('package-lock.json'));
  const installed = lockOf(at('node_modules', '.package-lock.json'));
  if (!installed) return false;
  return Object.entries(wanted).every(
    ([path, { version, optional }]) => path === '' || (installed[path] ? installed[path].version === version : optional),
  );
}

const addon = at('build', 'Release', 'warpjoin.node');
const nativeSources = ['native', 'binding.gyp', 'CMakeLists.txt', 'cmake'].map((name) => at(name));
const addonIsFresh = () => newest(addon) > 0 && newest(addon) >= newest(...nativeSources);

const compiled = at('dist', 'index.js');
const sources = ['lib', 'scripts/docs/declarations.mjs', 'tsconfig.json', 'tsconfig.build.json'].map((name) => at(name));
const compiledIsFresh = () => newest(compiled) > 0 && newest(compiled) >= newest(...sources);

// Not npm ci: it refuses a lock file made where a registry had the optional packages of one platform only.
if (!packagesInstalled()) step('installing packages', 'npm', ['install', '--no-save', '--no-audit', '--no-fund']);
if (!addonIsFresh()) {
  step('building the native addon (a minute or two)', 'npm', ['run', '--silent', 'build:native']);
  // What changed may be nothing that the compilers read.
  utimesSync(addon, new Date(), new Date());
}
if (!compiledIsFresh()) step('compiling TypeScript', 'npm', ['run', '--silent', 'build:ts']);
