// Builds the addon with a GPU backend through cmake-js: build-with-cmake.mjs cuda|hip
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const backend = process.argv[2];
const cmakeJs = join(dirname(createRequire(import.meta.url).resolve('cmake-js/package.json')), 'bin', 'cmake-js');
// The folder of scripts/gpu-build.sh, or build-hip.sh: programs for GPUs and the addon share their objects.
const out = join(root, 'build', backend === 'cuda' ? 'gpu' : backend);

// 'build' alone would take the folder as scripts/gpu-build.sh configured it, without the addon.
for (const command of ['configure', 'build']) {
  const options = ['--directory', root, '--out', out, `--CDWARPJOIN_GPU=${backend}`, '--target', 'warpjoin'];
  const cores = String(availableParallelism());
  const run = spawnSync(process.execPath, [cmakeJs, command, ...options, '--parallel', cores], { stdio: 'inherit', cwd: root });
  if (run.status !== 0) process.exit(run.status ?? 1);
}
mkdirSync(join(root, 'build', 'Release'), { recursive: true });
copyFileSync(join(out, 'Release', 'warpjoin.node'), join(root, 'build', 'Release', 'warpjoin.node'));
