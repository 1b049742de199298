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
  const child = spawn(process.execPath, [main, ...args], { stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'] });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout!.on('data', (bytes) => out.push(bytes));
  child.stderr!.on('data', (bytes) => err.push(bytes));
  child.stdin?.on('error', () => {}); // a command may end before it has read all
  child.stdin?.end(input);
  const ended = new Promise<Outcome & { bytes: Buffer }>((resolve) =>
    child.on('close', (code) => {
      const bytes = Buffer.concat(out);
      resolve({ code, out: bytes.toString(), err: Buffer.concat(err).toString(), bytes });
    }),
  );
  return { child, ended };
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
