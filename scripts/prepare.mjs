// npm's prepare step: builds dist/ in a checkout. An installed package has dist/ already, and no compiler for it.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

if (existsSync('node_modules/typescript')) {
  const run = spawnSync('npm', ['run', '--silent', 'build:ts'], { stdio: 'inherit' });
  process.exit(run.status ?? 1);
}
