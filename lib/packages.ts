/** Finds other packages and files of this one, whatever a bundler made of it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const isThere = (url: string | undefined) => Boolean(url?.startsWith('file:') && existsSync(fileURLToPath(url)));

/** This file's URL; undefined in a bundle: some clear it there, others write where the file was when they made the bundle. */
const here = isThere(import.meta.url) ? import.meta.url : undefined;

/** Where the package is; undefined where this file was moved into a bundle, for then nothing says so. */
export const packageRoot = here && /\/(dist|lib)\/packages\.[jt]s$/.test(here) ? new URL('..', here) : undefined;

/**
 * Ways to find a package: from here, which is right for every package manager; from where the process was started, too, which finds
 * what a bundle left out. webpack replaces calls of an imported `createRequire`.
 */
export function finders(): NodeJS.Require[] {
  const { createRequire } = process.getBuiltinModule('node:module');
  const project = createRequire(join(process.cwd(), 'package.json'));
  return here ? [createRequire(here), project] : [project];
}

/** The path of a package or of a file in it; undefined where it isn't installed. */
export function pathOf(name: string): string | undefined {
  for (const require of finders()) {
    try {
      return require.resolve(name);
    } catch {
      // not from there
    }
  }
  return undefined;
}
