// What a results file says of the machine and the versions that it was made with.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

const git = (...args) => execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
const versionOf = (name) => JSON.parse(readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8')).version;

export function environment() {
  return {
    date: new Date().toISOString(),
    commit: git('rev-parse', '--short', 'HEAD') + (git('status', '--porcelain', '--untracked-files=no') ? ' with changes' : ''),
    processor: cpus()[0].model.trim(),
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    kernel: release(),
    loadAverage: loadavg()[0],
    versions: { node: process.version, duckdb: versionOf('@duckdb/node-api'), polars: versionOf('nodejs-polars') },
  };
}
