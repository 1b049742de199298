/** The warpjoin command as a child process. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

export interface Outcome {
  code: number | null;
  out: string;
  err: string;
}

export function start(args: readonly string[], input?: string | Uint8Array) {
  if (!existsSync(main)) throw new Error('dist/ is missing: run "npm run setup"');
  const child = spawn(process.execPath, [main, ...args]);
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on('data', (bytes) => out.push(bytes));
  child.stderr.on('data', (bytes) => err.push(bytes));
  child.stdin.on('error', () => {}); // a command may end before it has read all
  child.stdin.end(input);
  const text = (parts: readonly Buffer[]) => Buffer.concat(parts).toString();
  const ended = new Promise<Outcome>((resolve) => {
    child.on('close', (code) => resolve({ code, out: text(out), err: text(err) }));
  });
  /** What it wrote to stdout. */
  const bytes = ended.then(() => Buffer.concat(out));
  return { child, ended, bytes };
}

export const warpjoin = (...args: string[]) => start(args).ended;
export const warpjoinWith = (input: string | Uint8Array, ...args: string[]) => start(args, input).ended;

/** Expects the one-line error that every failure ends in, and nothing else. */
export function expectFailure({ code, out, err }: Outcome, wanted: number, text: string | RegExp) {
  expect(err).toMatch(/^warpjoin: [^\n]+\n$/);
  expect(err).toMatch(text);
  expect(out).toBe('');
  expect(code).toBe(wanted);
}

/** What a command prints on stdout, if it ends well. */
export async function printed(...args: string[]): Promise<string> {
  const { code, out, err } = await warpjoin(...args, '-q');
  expect(err).toBe('');
  expect(code).toBe(0);
  return out;
}
