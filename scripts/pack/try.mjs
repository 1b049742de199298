// Installs the packages of build/pack as users do, in an empty project without scripts, compilers or python, and joins two tables:
//   node scripts/pack/try.mjs [--node PATH] [npm|pnpm|yarn|bun ...]
//   node scripts/pack/try.mjs webpack    bundles the program, too, with the package and without it
//   node scripts/pack/try.mjs --cpu arm64 --run "/usr/bin/qemu-aarch64 -L /usr/aarch64-linux-gnu NODE" npm    another processor's packages
// Prints what each package manager and the first join took. Ends with 1 where one failed.
import { execFile, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { startRegistry } from './registry.mjs';

/** Package managers, by the package that has them, in versions that the oldest Node.js runs, too; npm comes with Node.js. */
const managers = {
  npm: { add: ['install', '--ignore-scripts', '--no-audit', '--no-fund'] },
  pnpm: { from: 'pnpm@10', script: 'pnpm/bin/pnpm.cjs', add: ['add', '--ignore-scripts'] },
  yarn: { from: 'yarn@1', script: 'yarn/bin/yarn.js', add: ['add', '--ignore-scripts', '--non-interactive', '--silent'] },
  webpack: { add: ['install', '--ignore-scripts', '--no-audit', '--no-fund'], bundler: ['webpack@5', 'webpack-cli@6'] },
  bun: { from: 'bun@1', script: '@oven/bun-linux-x64/bin/bun', add: ['add', '--ignore-scripts'] },
};

const code = `
import { tableFromArrays } from 'apache-arrow';
import { join, sort } from 'warpjoin';
const orders = tableFromArrays({ customer: Int32Array.of(2, 1, 2, 9), total: Float64Array.of(20, 5, 7.5, 1) });
const customers = tableFromArrays({ customer: Int32Array.of(1, 2, 3), name: ['Ada', 'Grace', 'Edsger'] });
const joined = await sort(await join(orders, customers, { on: 'customer' }), { by: 'total' });
console.log(joined.toArray().map((row) => row.name + ' ' + row.total).join(', '));
`;
const expected = 'Ada 5, Grace 7.5, Grace 20';
const execute = promisify(execFile);

const text = { type: 'string' };
const { values, positionals } = parseArgs({ options: { node: text, cpu: text, run: text }, allowPositionals: true });
const node = values.node ?? process.execPath;
const [program, ...programArgs] = values.run?.split(' ') ?? [node];
const chosen = positionals.length > 0 ? positionals : ['npm', 'pnpm', 'yarn'];
const work = mkdtempSync(join(tmpdir(), 'warpjoin-install-'));
const npm = join(
  dirname(spawnSync('sh', ['-c', 'readlink -f "$(command -v npm)"'], { encoding: 'utf8' }).stdout.trim()),
  'npm-cli.js',
);

/** The script of a package manager, fetched by npm where it isn't npm. */
function scriptOf(name) {
  const { from, script } = managers[name];
  if (!from) return npm;
  const tools = join(work, 'tools', name);
  mkdirSync(tools, { recursive: true });
  const { status, stderr } = spawnSync(
    'npm',
    ['install', '--prefix', tools, '--no-audit', '--no-fund', '--ignore-scripts', from],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
  return join(tools, 'node_modules', script);
}

async function attempt(name, registry) {
  const script = scriptOf(name);
  const project = join(work, name);
  const bin = join(project, 'bin');
  mkdirSync(bin, { recursive: true });
  symlinkSync(node, join(bin, 'node')); // all that PATH has
  if (name !== 'npm') chmodSync(script, 0o755);
  writeFileSync(join(project, 'package.json'), '{ "name": "first", "version": "1.0.0", "type": "module", "private": true }\n');
  writeFileSync(join(project, '.npmrc'), `registry=${registry}\n`);
  writeFileSync(join(project, '.yarnrc'), `registry "${registry}"\n`);
  writeFileSync(join(project, 'first.mjs'), code);
  const env = {
    ...process.env, // certificates and proxies of this network
    HOME: project,
    PATH: bin,
    npm_config_cache: join(project, '.cache'),
    YARN_CACHE_FOLDER: join(project, '.cache'),
    npm_config_registry: registry,
  };
  const run = (file, args) => execute(file, args, { cwd: project, env, maxBuffer: 1 << 26 });
  const start = performance.now();
  const [file, first] = name === 'bun' ? [script, []] : [node, [script]];
  const platform = values.cpu ? [`--cpu=${values.cpu}`, '--os=linux'] : [];
  await run(file, [...first, ...managers[name].add, ...platform, 'warpjoin', 'apache-arrow']);
  const installed = performance.now();
  const { stdout, stderr } = await run(program, [...programArgs, 'first.mjs']);
  const joined = performance.now();
  if (stdout.trim() !== expected || stderr !== '') throw new Error(`it printed ${stdout}${stderr}, and not ${expected}`);
  const compiled = existsSync(join(project, 'node_modules', 'warpjoin', 'binding.gyp'));
  const manifest = JSON.parse(readFileSync(join(project, 'node_modules', 'warpjoin', 'package.json'), 'utf8'));
  if (compiled || manifest.scripts) throw new Error('the package has scripts, or something to compile');
  if (managers[name].bundler) await bundle(run, project, managers[name]);
  const seconds = (from, to) => `${((to - from) / 1000).toFixed(1)} s`;
  return `installed in ${seconds(start, installed)}, joined in ${seconds(installed, joined)}`;
}

/** The program in a bundle finds the addon where the package is, and says what would do where it isn't; outside of one it finds it, too. */
async function bundle(run, project, { add, bundler }) {
  await run(node, [npm, ...add, '--save-dev', ...bundler]);
  const cli = join(project, 'node_modules', 'webpack', 'bin', 'webpack.js');
  for (const external of [[], ['--externals-type', 'commonjs', '--externals', 'warpjoin']]) {
    const output = [
      '--mode=production',
      '--target=node',
      '--entry=./first.mjs',
      '--output-path=out',
      '--output-filename=main.cjs',
    ];
    const { stdout } = await run(node, [cli, ...output, ...external]);
    if (/warning/i.test(stdout)) throw new Error(stdout);
    const { stdout: printed } = await run(node, ['out/main.cjs']);
    if (printed.trim() !== expected) throw new Error(`the bundle printed ${printed}, and not ${expected}`);
  }
}

const registry = await startRegistry();
let failed = false;
for (const name of chosen) {
  try {
    console.log(`${name}: ${await attempt(name, registry.url)}`);
  } catch (error) {
    failed = true;
    console.log(`${name}: failed: ${error.message}\n${error.stdout ?? ''}${error.stderr ?? ''}`);
  }
}
registry.close();
rmSync(work, { recursive: true, force: true });
process.exitCode = failed ? 1 : 0;
