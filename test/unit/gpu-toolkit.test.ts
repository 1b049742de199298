/** Which GPU toolkit a build uses, and what it says where it can't have the one that was asked for. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';

const script = fileURLToPath(new URL('../../scripts/gpu-toolkit.mjs', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-toolkit-'));
afterAll(() => rmSync(folder, { recursive: true }));

function toolkit(env: Record<string, string>, tools: string[]) {
  const path = mkdtempSync(join(folder, 'path-'));
  for (const tool of tools) {
    writeFileSync(join(path, tool), '');
    chmodSync(join(path, tool), 0o755);
  }
  const { status, stdout, stderr } = spawnSync(process.execPath, [script], { env: { PATH: path, ...env }, encoding: 'utf8' });
  return { status, out: stdout.trim(), err: stderr.trim() };
}

test.each<[Record<string, string>, string[], string]>([
  [{}, [], 'none'],
  [{}, ['nvcc'], 'none'],
  [{}, ['cmake', 'nvcc'], 'cuda'],
  [{ WARPJOIN_GPU: 'auto' }, ['cmake', 'nvcc', 'hipcc'], 'cuda'],
  [{ WARPJOIN_GPU: 'hip' }, ['cmake', 'nvcc', 'hipcc'], 'hip'],
  [{ WARPJOIN_GPU: 'none' }, ['cmake', 'nvcc'], 'none'],
  [{ WARPJOIN_GPU: 'cuda', CUDACXX: process.execPath }, ['cmake'], 'cuda'],
])('%j with %j is %s', (env, tools, expected) => {
  expect(toolkit(env, tools)).toEqual({ status: 0, out: expected, err: '' });
});

test.each<[string, string[], RegExp]>([
  ['cuda', ['nvcc'], /^warpjoin: WARPJOIN_GPU is "cuda" but there is no cmake in PATH: install CMake/],
  ['hip', ['hipcc'], /^warpjoin: WARPJOIN_GPU is "hip" but there is no cmake in PATH/],
  ['rocm', ['cmake'], /^warpjoin: WARPJOIN_GPU is "rocm"; expected auto, cuda, hip or none$/],
])('%s with %j is an error that says why', (wanted, tools, message) => {
  const { status, out, err } = toolkit({ WARPJOIN_GPU: wanted }, tools);
  expect([status, out]).toEqual([1, '']);
  expect(err).toMatch(message);
});
