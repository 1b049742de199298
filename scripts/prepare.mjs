// npm's prepare step: builds dist/ in a checkout. An installed package has dist/ already, and no compiler for it.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

if (existsSync('node_modules/typescript')) {
  const run = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json'], { stdio: 'inherit' });
  process.exit(run.status ?? 1);
}
