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
const out = join(root, 'build', backend);

const run = spawnSync(
  process.execPath,
  [
    cmakeJs,
    'build',
    '--directory',
    root,
    '--out',
    out,
    `--CDWARPJOIN_GPU=${backend}`,
    '--parallel',
    String(availableParallelism()),
  ],
  { stdio: 'inherit', cwd: root },
);
if (run.status !== 0) process.exit(run.status ?? 1);
mkdirSync(join(root, 'build', 'Release'), { recursive: true });
copyFileSync(join(out, 'Release', 'warpjoin.node'), join(root, 'build', 'Release', 'warpjoin.node'));
