// An addon for tests, built by CMake beside the usual one, and commands in which warpjoin loads that one.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
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

/**
 * Builds the addon in `build/${folder}` with these settings of CMake, and runs the command that this script was given, with `env`
 * beside the usual variables. Ends with the command's exit code.
 */
export function runWithAddon(folder, settings, env) {
  const out = join(root, 'build', folder);
  required('cmake', ['-S', root, '-B', out, '-DWARPJOIN_GPU=none', ...settings, `-DCMAKE_JS_INC=${headers}`]);
  required('cmake', ['--build', out, '--target', 'warpjoin', '--parallel', String(availableParallelism())]);
  const [command, ...args] = process.argv.slice(2);
  if (!command) return;
  const hook = `--require ${JSON.stringify(join(root, 'scripts', 'use-addon.cjs'))}`;
  const loading = {
    WARPJOIN_ADDON: join(out, 'warpjoin.node'),
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} ${hook}`.trim(),
  };
  process.exit(run(command, args, { env: { ...process.env, ...loading, ...env } }));
}
