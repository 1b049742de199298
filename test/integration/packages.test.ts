/** How warpjoin finds its addon when it is installed, and what it says where it finds none: processes in a project with packages. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { loadAddon } from '../../lib/addon.js';
import { VERSION } from '../../lib/version.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const work = mkdtempSync(join(tmpdir(), 'warpjoin-packages-'));
const modules = join(work, 'node_modules');
const usual = `@warpjoin/linux-${process.arch}-gnu`;
const { backend } = loadAddon();
const addon = process.env.WARPJOIN_ADDON ?? join(root, 'build', 'Release', 'warpjoin.node');
afterAll(() => rmSync(work, { recursive: true }));

function install(name: string, main = addon): string {
  const folder = join(modules, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name, version: VERSION, main: 'warpjoin.node' }));
  cpSync(main, join(folder, 'warpjoin.node'));
  return join(folder, 'warpjoin.node');
}

const program = `
import { tableFromArrays } from 'apache-arrow';
import { join } from 'warpjoin';
const table = tableFromArrays({ id: Int32Array.of(1, 2, 3) });
try {
  console.log((await join(table, table, { on: 'id' })).numRows);
} catch (error) {
  console.log(error.code + ': ' + error.message);
}`;

const bundle = (outfile: string, format: 'esm' | 'cjs', external: string[] = []) =>
  build({
    absWorkingDir: work,
    entryPoints: ['program.mjs'],
    outfile,
    bundle: true,
    platform: 'node',
    format,
    external,
    logLevel: 'silent',
  });

/** What a program of the project prints. */
function run(file = 'program.mjs', env: NodeJS.ProcessEnv = {}): string {
  const { WARPJOIN_ADDON: _, npm_config_user_agent: __, ...usualEnv } = process.env;
  const { stdout, stderr } = spawnSync(process.execPath, [file], { cwd: work, encoding: 'utf8', env: { ...usualEnv, ...env } });
  return `${stdout}${stderr}`.trim();
}

beforeEach(() => {
  rmSync(modules, { recursive: true, force: true });
  mkdirSync(join(modules, 'warpjoin'), { recursive: true });
  cpSync(join(root, 'dist'), join(modules, 'warpjoin', 'dist'), { recursive: true });
  cpSync(join(root, 'package.json'), join(modules, 'warpjoin', 'package.json'));
  for (const name of ['apache-arrow', 'papaparse', 'parquet-wasm', 'flatbuffers', 'tslib']) {
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
  }
  writeFileSync(join(work, 'program.mjs'), program);
});

describe('an installed warpjoin', () => {
  it('takes the addon of the package for the platform', () => {
    install(usual);
    expect(run()).toBe('3');
  });

  it('takes a package for GPUs before that', () => {
    install(usual);
    install('@warpjoin/linux-x64-cuda');
    writeFileSync(
      join(work, 'program.mjs'),
      `import { addonAttempts } from './node_modules/warpjoin/dist/addon.js'; console.log(JSON.stringify(addonAttempts()))`,
    );
    expect(JSON.parse(run())).toEqual([{ from: '@warpjoin/linux-x64-cuda', outcome: 'loaded' }]);
  });

  it('takes the next package where one fails', () => {
    install(usual);
    truncateSync(install('@warpjoin/linux-x64-cuda'), 100);
    expect(run()).toBe('3');
  });

  it('says that no package is installed, and the command of the package manager in use', () => {
    const message = run('program.mjs', { npm_config_user_agent: 'pnpm/10.1.0 npm/? node/v20' });
    expect(message).toMatch(/^ERR_NATIVE_MISSING: warpjoin found no addon for this process \(@warpjoin\//);
    expect(message).toContain(`${usual}: not installed`);
    expect(message).toContain('Run "pnpm install"');
    expect(message.split('\n')).toHaveLength(1);
  });

  it.each([
    ['cut off', (path: string) => truncateSync(path, 100_000), /the file is damaged: it has 97\.7 KiB of at least [\d.]+ MiB/],
    ['cut off early', (path: string) => truncateSync(path, 30), /the file is damaged: it is no 64-bit ELF file/],
    [
      'overwritten',
      (path: string) => writeFileSync(path, Buffer.alloc(10_000, 'x')),
      /the file is damaged: it is no 64-bit ELF file/,
    ],
  ])('says that an addon is damaged: %s', (_, damage, problem) => {
    damage(install(usual));
    const message = run();
    expect(message).toContain(`${usual}: `);
    expect(message).toMatch(problem);
    expect(message).toContain(`To replace it, run "npm install ${usual}@${VERSION}"`);
  });

  it('says that an addon is of another version', () => {
    install(usual);
    writeFileSync(join(modules, 'warpjoin', 'dist', 'version.js'), "export const VERSION = '99.1.0';");
    expect(run()).toContain(`${usual}: it is of version ${VERSION}, and warpjoin of 99.1.0`);
    expect(run()).toContain(`To replace it, run "npm install ${usual}@99.1.0"`);
  });

  it('takes the addon that WARPJOIN_ADDON names, and no other', () => {
    expect(run('program.mjs', { WARPJOIN_ADDON: addon })).toBe('3');
    install(usual);
    const message = run('program.mjs', { WARPJOIN_ADDON: './none.node' });
    expect(message).toContain('WARPJOIN_ADDON=./none.node: there is no such file');
    expect(message).toContain('Correct WARPJOIN_ADDON, or unset it');
  });

  it.each(['esm', 'cjs'] as const)(
    'works within a bundle (%s) where the packages are near, and says what would do where they are not',
    async (format) => {
      const outfile = join(work, 'out', format === 'esm' ? 'server.mjs' : 'server.cjs');
      writeFileSync(join(work, 'program.mjs'), program.replace(/^try/m, 'void (async () => { try').replace(/$/, '})();'));
      await bundle(outfile, format);
      const message = run(outfile);
      expect(message).toMatch(/esbuild: --external:warpjoin; webpack: externals; Next\.js: serverExternalPackages/);
      expect(run(outfile, { WARPJOIN_ADDON: addon })).toBe('3');
      install(usual);
      expect(run(outfile)).toBe('3');
    },
  );

  it('works outside of a bundle', async () => {
    install(usual);
    const outfile = join(work, 'out', 'external.mjs');
    await bundle(outfile, 'esm', ['warpjoin']);
    expect(run(outfile)).toBe('3');
  });
});

describe('the addon', () => {
  it('has the version of the package', () => {
    expect(loadAddon().version).toBe(VERSION);
    expect(['none', 'cuda', 'hip']).toContain(backend);
  });
});
