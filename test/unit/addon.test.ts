import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { addonPackages, missingMessage, type Platform, platformProblem, thisPlatform } from '../../lib/addon.js';
import { addCommand, installCommand, packageManager } from '../../lib/package-manager.js';
import { VERSION } from '../../lib/version.js';

const platform = (changes: Partial<Platform> = {}): Platform => ({
  os: 'linux',
  architecture: 'x64',
  node: '22.12.0',
  processor: new Set(['avx2', 'bmi1', 'bmi2', 'fma', 'movbe', 'f16c', 'abm']),
  glibc: '2.36',
  ...changes,
});

describe('the version', () => {
  it('is that of package.json', () => {
    expect(JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version).toBe(VERSION);
  });
});

describe('platformProblem', () => {
  it('has none on Linux with glibc 2.28, on either architecture', () => {
    expect(platformProblem(platform({ glibc: '2.28' }))).toBeNull();
    expect(platformProblem(platform({ architecture: 'arm64', processor: null }))).toBeNull();
    expect(platformProblem(thisPlatform)).toBeNull();
  });

  it.each<[string, Partial<Platform>, RegExp]>([
    ['macOS', { os: 'darwin' }, /runs on Linux, and this is darwin\. Use a container/],
    ['Windows', { os: 'win32' }, /this is win32\. On Windows, use it within WSL2/],
    ['32-bit ARM', { architecture: 'arm' }, /x64 and arm64, and this Node\.js is for arm\./],
    ['an old Node.js', { node: '18.20.4' }, /needs Node\.js 20 or later, and this is 18\.20\.4/],
    ['a processor without AVX2', { processor: new Set(['bmi1', 'fma', 'movbe', 'f16c', 'abm']) }, /lacks avx2, bmi2/],
    ['musl', { glibc: null }, /another C library, as on Alpine\. Use an image with glibc, such as node:22-slim/],
    ['an old glibc', { glibc: '2.17' }, /glibc 2\.28 or later, and this system has 2\.17/],
  ])('names %s, and what would do', (_, changes, message) => {
    expect(platformProblem(platform(changes))).toMatch(message);
  });
});

describe('missingMessage', () => {
  const missing = addonPackages('x64').map((from) => ({ from, outcome: 'missing' as const, reason: 'not installed' }));

  it('names each package that was tried, and the command that installs them', () => {
    const message = missingMessage(missing, platform(), false);
    for (const name of ['cuda', 'rocm', 'gnu']) expect(message).toContain(`@warpjoin/linux-x64-${name}: not installed`);
    expect(message).toContain('npm install --include=optional');
    expect(message).toContain(`npm install @warpjoin/linux-x64-gnu@${VERSION}`);
  });

  it('names the setting in a bundle', () => {
    expect(missingMessage(missing, platform(), true)).toMatch(
      /esbuild: --external:warpjoin.*serverExternalPackages.*WARPJOIN_ADDON/,
    );
  });

  it('says how a package that fails is replaced', () => {
    const failed = { from: '@warpjoin/linux-x64-gnu', outcome: 'failed' as const, reason: 'the file is damaged: file too short' };
    const message = missingMessage([missing[0]!, failed], platform(), false);
    expect(message).toContain('@warpjoin/linux-x64-gnu: the file is damaged: file too short');
    expect(message).toContain(`Run "npm install @warpjoin/linux-x64-gnu@${VERSION}"`);
  });

  it('names the platform alone where no package could do', () => {
    expect(missingMessage(missing, platform({ glibc: null }), false)).toMatch(/^warpjoin's packages need glibc/);
  });
});

describe('packageManager', () => {
  const folder = mkdtempSync(join(tmpdir(), 'warpjoin-manager-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  it('is the one that runs the process', () => {
    expect(packageManager(folder, 'pnpm/10.2.0 npm/? node/v22.12.0 linux x64')).toBe('pnpm');
    expect(packageManager(folder, 'bun/1.2.0 npm/? node/v22.6.0 linux x64')).toBe('bun');
  });

  it.each([
    ['yarn.lock', 'yarn', 'yarn add warpjoin', 'yarn install'],
    ['pnpm-lock.yaml', 'pnpm', 'pnpm add warpjoin', 'pnpm install'],
    ['bun.lock', 'bun', 'bun add warpjoin', 'bun install'],
    ['package-lock.json', 'npm', 'npm install warpjoin', 'npm install --include=optional'],
  ])('is told by %s, in a folder above, too', (lock, name, add, again) => {
    const project = join(folder, name);
    mkdirSync(join(project, 'src'), { recursive: true });
    writeFileSync(join(project, lock), '');
    expect(packageManager(join(project, 'src'), '')).toBe(name);
    expect(addCommand('warpjoin', packageManager(project, ''))).toBe(add);
    expect(installCommand(packageManager(project, ''))).toBe(again);
  });

  it('is npm where nothing tells', () => {
    expect(packageManager(join(folder, 'none'), 'deno/2.0')).toBe('npm');
  });
});
