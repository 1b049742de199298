/** The package manager of the project that this process belongs to, for the commands that messages name. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';

const managers = {
  npm: { lock: ['package-lock.json'], add: 'npm install', again: 'npm install --include=optional' },
  pnpm: { lock: ['pnpm-lock.yaml'], add: 'pnpm add', again: 'pnpm install' },
  yarn: { lock: ['yarn.lock'], add: 'yarn add', again: 'yarn install' },
  bun: { lock: ['bun.lock', 'bun.lockb'], add: 'bun add', again: 'bun install' },
} as const;
export type PackageManager = keyof typeof managers;

/** By the variable that package managers set for what they run, else by the lock file nearest to the folder; npm where neither says. */
export function packageManager(folder = process.cwd(), agent = process.env.npm_config_user_agent): PackageManager {
  const names = Object.keys(managers) as PackageManager[];
  const running = names.find((name) => agent?.startsWith(`${name}/`));
  if (running) return running;
  for (let at = folder; ; at = dirname(at)) {
    const found = names.find((name) => managers[name].lock.some((file) => existsSync(join(at, file))));
    if (found) return found;
    if (at === dirname(at)) return 'npm';
  }
}

/** The command that adds a package to the project. */
export const addCommand = (what: string, manager = packageManager()): string => `${managers[manager].add} ${what}`;

/** The command that installs what package.json and the lock file ask for, packages for this platform included. */
export const installCommand = (manager = packageManager()): string => managers[manager].again;
