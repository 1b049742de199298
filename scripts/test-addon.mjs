// An addon for tests, built by CMake beside the usual one, and commands in which warpjoin loads that one.
import { spawnSync } from 'node:child_process';
import { buildAddon, root } from './cmake-addon.mjs';

/**
 * Builds the addon in `build/${folder}` with these settings of CMake, and runs the command that this script was given, with `env`
 * beside the usual variables. Ends with the command's exit code.
 */
export function runWithAddon(folder, settings, env) {
  const addon = buildAddon(folder, ['-DWARPJOIN_GPU=none', ...settings]);
  const [command, ...args] = process.argv.slice(2);
  if (!command) return;
  const { status, error } = spawnSync(command, args, {
    stdio: 'inherit',
    cwd: root,
    env: { ...process.env, WARPJOIN_ADDON: addon, ...env },
  });
  if (error) throw error;
  process.exit(status ?? 1);
}
