// What a results file says of the machine and the versions that it was made with. WARPJOIN_COMMIT says which commit a copy without a
// repository is of.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

const git = (...args) => execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
const commit = () =>
  git('rev-parse', '--short', 'HEAD') + (git('status', '--porcelain', '--untracked-files=no') ? ' with changes' : '');

/** Of a peer, where it is installed. */
function versionOf(name) {
  const manifest = join(root, 'node_modules', name, 'package.json');
  return existsSync(manifest) ? JSON.parse(readFileSync(manifest, 'utf8')).version : undefined;
}

export function environment() {
  return {
    date: new Date().toISOString(),
    commit: process.env.WARPJOIN_COMMIT ?? commit(),
    processor: cpus()[0].model.trim(),
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    kernel: release(),
    loadAverage: loadavg()[0],
    versions: { node: process.version, duckdb: versionOf('@duckdb/node-api'), polars: versionOf('nodejs-polars') },
  };
}
