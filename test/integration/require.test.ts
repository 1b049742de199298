/** The package from CommonJS: require() gives the one copy of the module, and TypeScript knows its types. Needs dist/. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const run = promisify(execFile);
const project = mkdtempSync(join(tmpdir(), 'warpjoin-require-'));
const installed = join(project, 'node_modules', 'warpjoin');
afterAll(() => rmSync(project, { recursive: true }));

/** A project with what `npm pack` makes of the package, and the packages that it needs. */
beforeAll(async () => {
  mkdirSync(installed, { recursive: true });
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', project], { cwd: root });
  const tarball = readdirSync(project).find((name) => name.endsWith('.tgz'))!;
  await run('tar', ['-xzf', join(project, tarball), '-C', installed, '--strip-components=1']);
  const needed = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Record<string, Record<string, string>>;
  for (const name of [...Object.keys({ ...needed.dependencies, ...needed.peerDependencies }), '@types']) {
    symlinkSync(join(root, 'node_modules', name), join(project, 'node_modules', name));
  }
}, 120_000);

/** A file of the project. */
function file(name: string, text: string): string {
  const path = join(project, name);
  writeFileSync(path, text);
  return path;
}

describe('require()', () => {
  test('gives what import gives, without a warning', async () => {
    const { stdout, stderr } = await run(
      process.execPath,
      [
        file(
          'run.cjs',
          `
      const warpjoin = require('warpjoin');
      const { fromColumns, toRows, WarpjoinError } = warpjoin;
      import('warpjoin').then((imported) => {
        const same = Object.keys(imported).every((name) => imported[name] === warpjoin[name]);
        try {
          toRows(fromColumns({ a: [1] }), { limit: -1 });
        } catch (error) {
          console.log(same, error instanceof imported.WarpjoinError, error instanceof WarpjoinError, error.code);
        }
      });
    `,
        ),
      ],
      { cwd: project },
    );
    expect(stdout).toBe('true true true ERR_OPTION\n');
    expect(stderr).toBe('');
  });
});

interface Packed {
  exports: Record<string, { types: Record<string, string>; default: string }>;
  typesVersions?: { '*': Record<string, string[]> };
}

test('every entry point has types for import, for require() and for compilers that read no exports', () => {
  const { exports, typesVersions } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Packed;
  for (const [path, { types, default: module }] of Object.entries(exports)) {
    if (path.endsWith('.json')) continue;
    const base = module.replace(/\.js$/, '');
    expect(types, path).toEqual({ require: `${base}.d.cts`, default: `${base}.d.ts` });
    for (const file of [module, ...Object.values(types)]) expect(existsSync(join(installed, file)), file).toBe(true);
    if (path !== '.') expect(typesVersions?.['*'][path.slice(2)], path).toEqual([types.default]);
  }
});

const uses = `
  const { table }: { table: Table<{ id: Int32; name: Utf8 }> } = null!;
  const out = join(table, table, { on: 'id', select: ['name_right'] });
  const given: Promise<Utf8['TArray'] | undefined> = out.then((result) => result.getChild('name_right')?.data[0]?.values);
  const engine: Promise<Engine> = createEngine({ threads: 1 });
  const options: EngineOptions = { memoryLimit: '1GiB' };
  const isOwn = (error: unknown): error is WarpjoinError => error instanceof WarpjoinError;
  // @ts-expect-error no such option
  join(table, table, { on: 'id', sufix: '' });
  export default [given, engine, options, isOwn];
`;
const names = "import { createEngine, type Engine, type EngineOptions, join, WarpjoinError } from 'warpjoin';";
const arrow = "import type { Int32, Table, Utf8 } from 'apache-arrow';";
const required =
  "import warpjoin = require('warpjoin'); const isOwn = (error: unknown) => error instanceof warpjoin.WarpjoinError;";
const shared = [
  '--strict',
  '--noEmit',
  '--skipLibCheck',
  '--target',
  'es2022',
  '--lib',
  'es2023,esnext.disposable',
  '--types',
  'node',
];

describe('TypeScript takes the package', () => {
  test.each([
    ['node16', ['--module', 'node16'], ['cts', 'mts']],
    ['node18', ['--module', 'node18'], ['cts']],
    ['node20', ['--module', 'node20'], ['cts']],
    ['nodenext', ['--module', 'nodenext'], ['cts', 'mts']],
    ['bundler', ['--module', 'esnext', '--moduleResolution', 'bundler'], ['ts']],
    ['node10', ['--module', 'commonjs', '--moduleResolution', 'node10', '--esModuleInterop'], ['ts']],
  ] as const)('with %s', async (name, flags, extensions) => {
    const files = extensions.map((extension) => file(`${name}.${extension}`, `${arrow}\n${names}\n${uses}`));
    if (extensions[0] === 'cts') files.push(file(`${name}-required.cts`, `${required}\nexport = [isOwn, warpjoin.join];\n`));
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const compiling = run(process.execPath, [tsc, ...flags, ...shared, ...files], { cwd: project });
    const { stdout } = await compiling.catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  });
});
