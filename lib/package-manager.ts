/** Which package manager a project uses, and its command that adds a package: for remedies. */
import { dirname, join } from 'node:path';
import type { Machine } from './machine.js';

export interface PackageManager {
  /** 'npm', 'pnpm', 'yarn', 'bun', or another's name. */
  name: string;
  version: string | undefined;
}

const ADD: Readonly<Record<string, string>> = { npm: 'npm install', pnpm: 'pnpm add', yarn: 'yarn add', bun: 'bun add' };

const LOCK_FILES: Readonly<Record<string, string>> = {
  'package-lock.json': 'npm',
  'npm-shrinkwrap.json': 'npm',
  'pnpm-lock.yaml': 'pnpm',
  'yarn.lock': 'yarn',
  'bun.lock': 'bun',
  'bun.lockb': 'bun',
};

/**
 * The package manager that runs this process ("pnpm exec"), else that of the nearest lock file above the current folder, or of
 * the field `packageManager` next to it; undefined where nothing tells.
 */
export function packageManagerOf({ env, cwd, readFile, canAccess }: Machine): PackageManager | undefined {
  const agent = /^([a-z]+)\/(\S+)/.exec(env.npm_config_user_agent ?? '');
  if (agent) return { name: agent[1]!, version: agent[2] };
  for (let folder = cwd; ; folder = dirname(folder)) {
    const field = /"packageManager"\s*:\s*"([a-z]+)@([^"+]+)/.exec(readFile(join(folder, 'package.json')) ?? '');
    if (field) return { name: field[1]!, version: field[2] };
    const lock = Object.keys(LOCK_FILES).find((file) => canAccess(join(folder, file), 'exists'));
    if (lock) return { name: LOCK_FILES[lock]!, version: undefined };
    if (folder === dirname(folder)) return undefined;
  }
}

const INSTALL: Readonly<Record<string, string>> = { npm: 'npm install --include=optional', bun: 'bun install' };

/** The command that installs what package.json and the lock file ask for, optional dependencies included. */
export function installCommand(from: Machine): string {
  const { name } = packageManagerOf(from) ?? { name: 'npm' };
  return INSTALL[name] ?? `${name} install`;
}

/** What adds packages to the project: `run "npm install @warpjoin/linux-x64-cuda"`; npm where no package manager shows. */
export function addCommand(from: Machine, packages: string): string {
  const { name } = packageManagerOf(from) ?? { name: 'npm' };
  const command = ADD[name];
  return command ? `run "${command} ${packages}"` : `add ${packages} to the project with ${name}`;
}
