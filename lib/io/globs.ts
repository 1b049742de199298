/** File names by patterns: *, ?, [a-z], {a,b} and ** for folders of any depth. */
import type { Dirent } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { fileError } from './file-errors.js';
import { STANDARD } from './formats.js';

const special = /[*?[{]/;

/** The files that an input names: itself, or those that its pattern matches, in the order of their names. Throws ERR_FILE for none. */
export async function expandInput(input: string): Promise<string[]> {
  if (input === STANDARD || !special.test(input) || (await exists(input))) return [input];
  const found = new Set<string>();
  for (const pattern of expandBraces(input)) {
    if (special.test(pattern)) for (const path of await matches(pattern)) found.add(path);
    else if (await exists(pattern)) found.add(pattern);
    else throw fileError(pattern, 'no such file or directory');
  }
  if (found.size === 0) throw fileError(input, 'no file matches this pattern');
  return [...found].sort((a, b) => (a < b ? -1 : 1));
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** `a{b,c}d` to `abd`, `acd`; groups may hold groups. One without a comma or an end is text. */
export function expandBraces(pattern: string): string[] {
  for (let open = pattern.indexOf('{'); open >= 0; open = pattern.indexOf('{', open + 1)) {
    const parts: string[] = [];
    let depth = 0;
    let start = open + 1;
    for (let at = open; at < pattern.length; at++) {
      if (pattern[at] === '{') depth++;
      if (pattern[at] === '}') depth--;
      if ((pattern[at] === ',' && depth === 1) || depth === 0) {
        parts.push(pattern.slice(start, at));
        start = at + 1;
      }
      if (depth > 0) continue;
      if (parts.length < 2) break;
      return parts.flatMap((part) => expandBraces(`${pattern.slice(0, open)}${part}${pattern.slice(start)}`));
    }
  }
  return [pattern];
}

/** The names that one part of a pattern matches. Names that begin with a dot need a pattern that does. */
export function namePattern(part: string): RegExp {
  let source = part.startsWith('.') ? '' : '(?!\\.)';
  for (let at = 0; at < part.length; at++) {
    const end = part[at] === '[' ? part.indexOf(']', at + 2) : -1;
    if (part[at] === '*') source += '.*';
    else if (part[at] === '?') source += '.';
    else if (end > 0) {
      const set = part.slice(at + 1, end).replace(/[\\\]^]/g, (c, index) => (c === '^' && index === 0 ? c : `\\${c}`));
      source += `[${set.replace(/^!/, '^')}]`;
      at = end;
    } else source += part[at]!.replace(/[\\^$.|+()[\]{}]/, '\\$&');
  }
  return new RegExp(`^${source}$`, 'su');
}

async function matches(pattern: string): Promise<string[]> {
  const parts = pattern.split('/').filter((part, index) => part !== '' || index === 0);
  const isAbsolute = parts[0] === '';
  return walk(isAbsolute ? '/' : '', isAbsolute ? parts.slice(1) : parts);
}

/** Files at `folder`, which is empty or ends in a slash, that match the parts of a pattern. */
async function walk(folder: string, [part, ...rest]: readonly string[]): Promise<string[]> {
  if (part === undefined) return [];
  const isLast = rest.length === 0;
  if (!special.test(part)) {
    const path = `${folder}${part}`;
    if (!isLast) return walk(`${path}/`, rest);
    return (await exists(path)) ? [path] : [];
  }
  const entries: Dirent[] = await readdir(folder || '.', { withFileTypes: true }).catch(() => []);
  if (part === '**') {
    const within = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'));
    const deeper = await inTurn(within, ({ name }) => walk(`${folder}${name}/`, [part, ...rest]));
    return [...(await walk(folder, isLast ? ['*'] : rest)), ...deeper];
  }
  const wanted = namePattern(part);
  const named = entries.filter(({ name }) => wanted.test(name));
  if (!isLast) return inTurn(named, ({ name }) => walk(`${folder}${name}/`, rest));
  return inTurn(named, async (entry) => ((await isFile(`${folder}${entry.name}`, entry)) ? [`${folder}${entry.name}`] : []));
}

async function inTurn<T>(values: readonly T[], of: (value: T) => Promise<string[]>): Promise<string[]> {
  const all: string[] = [];
  for (const value of values) all.push(...(await of(value)));
  return all;
}

/** Folders match no pattern; what is behind a symbolic link counts. */
async function isFile(path: string, entry: Dirent): Promise<boolean> {
  if (!entry.isSymbolicLink()) return !entry.isDirectory();
  return stat(path).then(
    (found) => !found.isDirectory(),
    () => false,
  );
}
