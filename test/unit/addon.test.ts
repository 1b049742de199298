import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { addonPackages, missingMessage, platformProblem } from '../../lib/addon.js';
import { type Machine, machine } from '../../lib/machine.js';
import { LEAST_GLIBC } from '../../lib/platform.js';
import { VERSION } from '../../lib/version.js';

const flags = (...without: string[]) =>
  `flags : ${['avx', 'avx2', 'bmi1', 'bmi2', 'fma', 'movbe', 'f16c', 'abm'].filter((flag) => !without.includes(flag)).join(' ')}\n`;
const on = (changes: Partial<Machine> = {}): Machine => ({
  ...machine,
  platform: 'linux',
  arch: 'x64',
  versions: { node: '22.12.0' },
  glibc: '2.36',
  cwd: '/',
  env: {},
  readFile: (path) => (path === '/proc/cpuinfo' ? flags() : undefined),
  canAccess: () => false,
  ...changes,
});

describe('the version', () => {
  it('is that of package.json', () => {
    expect(JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version).toBe(VERSION);
  });
});

describe('platformProblem', () => {
  it('has the glibc that the packages are linked for', () => {
    const script = readFileSync(new URL('../../scripts/pack/libc.mjs', import.meta.url), 'utf8');
    expect(script).toContain(`export const GLIBC = '${LEAST_GLIBC}';`);
  });

  it('has none on Linux with glibc 2.28, on either architecture', () => {
    expect(platformProblem(on({ glibc: '2.28' }))).toBeNull();
    expect(platformProblem(on({ arch: 'arm64' }))).toBeNull();
    expect(platformProblem(machine)).toBeNull();
  });

  it('has none on a virtual machine that does not show LZCNT', () => {
    expect(platformProblem(on({ readFile: () => flags('abm') }))).toBeNull();
  });

  it.each<[string, Partial<Machine>, RegExp]>([
    ['macOS', { platform: 'darwin' }, /runs on Linux, and this is darwin\. Use it in a Linux container/],
    ['Windows', { platform: 'win32' }, /this is win32\. Use it within WSL2/],
    [
      '32-bit ARM',
      { arch: 'arm' },
      /x64 and arm64, and this Node\.js is for arm\. Use another Node\.js, or build warpjoin from source/,
    ],
    ['an old Node.js', { versions: { node: '18.20.4' } }, /needs Node\.js 20\.19 or later, and this is 18\.20\.4/],
    ['a processor without AVX2', { readFile: () => flags('avx2', 'bmi2') }, /lacks avx2, bmi2/],
    ['musl', { glibc: undefined }, /another C library, such as musl on Alpine\. Use an image with glibc \(node:22-slim/],
    ['an old glibc', { glibc: '2.17' }, /glibc 2\.28 or later, and this system has 2\.17/],
  ])('names %s, and what would do', (_, changes, message) => {
    expect(platformProblem(on(changes))).toMatch(message);
  });
});

describe('missingMessage', () => {
  const missing = addonPackages('x64').map((from) => ({ from, outcome: 'missing' as const, reason: 'not installed' }));

  it('names each package that was tried, and the command that installs them', () => {
    const message = missingMessage(missing, on(), false);
    for (const name of ['cuda', 'rocm', 'gnu']) expect(message).toContain(`@warpjoin/linux-x64-${name}: not installed`);
    expect(message).toContain('npm install --include=optional');
    expect(message).toContain(`npm install @warpjoin/linux-x64-gnu@${VERSION}`);
  });

  it('names the setting in a bundle', () => {
    expect(missingMessage(missing, on(), true)).toMatch(/esbuild: --external:warpjoin.*serverExternalPackages.*WARPJOIN_ADDON/);
  });

  it('says how a package that fails is replaced', () => {
    const failed = { from: '@warpjoin/linux-x64-gnu', outcome: 'failed' as const, reason: 'the file is damaged: file too short' };
    const message = missingMessage([missing[0]!, failed], on(), false);
    expect(message).toContain('@warpjoin/linux-x64-gnu: the file is damaged: file too short');
    expect(message).toContain(`To replace it, run "npm install @warpjoin/linux-x64-gnu@${VERSION}"`);
  });

  it('names the fault of an addon that was built or chosen, on any platform', () => {
    const built = { from: '/src/build/Release/warpjoin.node', outcome: 'failed' as const, reason: 'the file is damaged' };
    expect(missingMessage([built], on({ glibc: undefined }), false)).toMatch(/the file is damaged.*npm run setup/);
  });

  it('names the platform alone where no package could do', () => {
    expect(missingMessage(missing, on({ glibc: undefined }), false)).toMatch(/^warpjoin's packages need glibc/);
  });
});
