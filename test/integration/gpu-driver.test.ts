/**
 * What the CUDA runtime in the addon makes of drivers that don't work: a library that answers for libcuda.so.1 plants each fault, so
 * no GPU is needed. Only for addons built with CUDA, and where there is a compiler for the library.
 */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { codeFor } from '../../lib/gpus.js';
import type { Finding } from '../../lib/index.js';
import { native } from '../../lib/native.js';
import { VERSION } from '../../lib/version.js';

const LIBRARY = `
#include <stdlib.h>
int cuDriverGetVersion(int *version) { *version = atoi(getenv("FAKE_DRIVER")); return 0; }
int cuInit(unsigned flags) { return atoi(getenv("FAKE_INIT")); }
`;

test('the addon tells its version and what its code for GPUs was built for', () => {
  const { backend, version, gpuSupport, gpus } = native();
  expect(version).toBe(VERSION);
  const support = gpuSupport();
  if (backend === 'none') expect(support).toMatchObject({ architectures: '', runtimeVersion: '', errorName: '', error: '' });
  else {
    expect(support.architectures).toMatch(
      backend === 'cuda' ? /^\d+[af]?(-real|-virtual)?(,\d+[af]?(-real|-virtual)?)*$/ : /^gfx/,
    );
    expect(support.runtimeVersion).toMatch(/^\d+\.\d+$/);
    expect(support.errorName === '').toBe(gpus().length > 0);
  }
  for (const { architecture } of gpus()) expect(codeFor(architecture, support.architectures)).not.toBe('none');
});

const hasCompiler = spawnSync('cc', ['--version']).status === 0;
const can = native().backend === 'cuda' && hasCompiler;
const why = can ? '' : ` (skipped: needs an addon built with CUDA, this is "${native().backend}", and a C compiler)`;

describe.skipIf(!can)(`drivers that don't work${why}`, () => {
  const folder = mkdtempSync(join(tmpdir(), 'warpjoin-driver-'));
  beforeAll(() => {
    writeFileSync(join(folder, 'driver.c'), LIBRARY);
    const made = spawnSync('cc', ['-shared', '-fPIC', '-o', join(folder, 'libcuda.so.1'), join(folder, 'driver.c')]);
    expect(made.stderr.toString()).toBe('');
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function outcome(driver: number, init: number, env: Record<string, string> = {}) {
    const script = fileURLToPath(new URL('../support/driver-faults.mjs', import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, [script], {
      env: { ...process.env, LD_LIBRARY_PATH: folder, FAKE_DRIVER: String(driver), FAKE_INIT: String(init), ...env },
    });
    return JSON.parse(stdout) as { found: Finding[]; error: { code: string; message: string } };
  }

  test.each([
    ['too old', 10010, 0, {}, 'error', /works with CUDA up to 10\.1, and the addon needs CUDA \d+\.\d/, /update it/],
    ['of another version than the kernel module', 99000, 803, {}, 'error', /different versions/, /restart the machine/],
    ['a stub', 99000, 34, {}, 'error', /stub/, /LD_LIBRARY_PATH/],
    [
      'that finds no GPU that is visible',
      99000,
      100,
      { CUDA_VISIBLE_DEVICES: '9' },
      'warning',
      /CUDA_VISIBLE_DEVICES is "9"/,
      /unset/,
    ],
  ] as const)('%s', async (_, driver, init, env, status, message, remedy) => {
    const { found, error } = await outcome(driver, init, env);
    expect(found).toEqual([
      { check: 'gpu', status, message: expect.stringMatching(message), remedy: expect.stringMatching(remedy) },
    ]);
    const { message: text, remedy: help } = found[0]!;
    expect(error).toEqual({ code: 'ERR_DEVICE', message: expect.stringMatching(/^GPUs were asked for but /) });
    expect(error.message).toContain(`${text}; ${help}. Device "auto" takes them`);
  });
});
