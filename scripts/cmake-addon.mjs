// The addon as CMake builds it.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));

const hasNinja = () => spawnSync('ninja', ['--version']).status === 0;

function required(args, env) {
  // The command's own output may be parsed: what the build says goes to stderr.
  const { status, error } = spawnSync('cmake', args, { stdio: ['ignore', 2, 2], cwd: root, env: { ...process.env, ...env } });
  if (error) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

/** Builds an addon in `build/${folder}` with these settings of CMake: its path. */
export function buildAddon(folder, settings, target = 'warpjoin', env = {}) {
  const out = join(root, 'build', folder);
  // A folder keeps the generator that it was made with. Ninja builds with less waiting.
  const generator = existsSync(join(out, 'CMakeCache.txt')) || !hasNinja() ? [] : ['-G', 'Ninja'];
  required(['-S', root, '-B', out, ...generator, '-DWARPJOIN_ADDON=ON', ...settings], env);
  required(['--build', out, '--target', target, '--parallel', String(availableParallelism())], env);
  return join(out, `${target}.node`);
}
