// Makes the packages as they are published, to build/pack: npm run pack [-- PACKAGE...], of warpjoin, linux-x64-gnu,
// linux-arm64-gnu, linux-x64-cuda and linux-x64-rocm. Without names: all that this machine has the tools for; it says what it left out.
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join, relative } from 'node:path';
import { buildAddon, root } from '../cmake-addon.mjs';
import { compareVersions, GLIBC, run } from './libc.mjs';

const project = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const out = join(root, 'build', 'pack');
const { PATH = '' } = process.env;
const onPath = (tool) => PATH.split(delimiter).some((folder) => existsSync(join(folder, tool)));
const lacks = (...tools) => {
  const missing = tools.filter((tool) => !onPath(tool));
  return missing.length > 0 ? `there is no ${missing.join(' and no ')} in PATH` : null;
};

/** What GPUs of these compute capabilities run as it is, and later ones once the driver has compiled it. */
const cudaArchitectures = ['75-real', '80-real', '86-real', '89-real', '90-real', '100', '120'];
const hipArchitectures = ['gfx90a'];

/** The addons: what each takes, and how it is built. `missing` says what this machine lacks for it, or null. */
const addons = {
  'linux-x64-gnu': {
    cpu: 'x64',
    about: 'for the processor (x86-64 with AVX2)',
    missing: () => (process.arch === 'x64' ? lacks('cmake', 'g++') : 'it is built on x86-64'),
    // A build for GPUs has the same objects for the host.
    build: () =>
      existsSync(join(root, 'build', 'gpu', 'CMakeCache.txt'))
        ? buildAddon('gpu', ['-DWARPJOIN_GPU=cuda'], 'warpjoin_processor')
        : buildAddon('processor', ['-DWARPJOIN_GPU=none']),
  },
  'linux-arm64-gnu': {
    cpu: 'arm64',
    about: 'for the processor (64-bit ARM)',
    tools: 'aarch64-linux-gnu-',
    missing: () => lacks('cmake', 'aarch64-linux-gnu-g++'),
    build: () =>
      buildAddon('arm64', [
        '-DWARPJOIN_GPU=none',
        '-DCMAKE_SYSTEM_NAME=Linux',
        '-DCMAKE_SYSTEM_PROCESSOR=aarch64',
        '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++',
      ]),
  },
  'linux-x64-cuda': {
    cpu: 'x64',
    about: 'for NVIDIA GPUs of compute capability 7.5 and later, and for the processor',
    missing: () =>
      lacks('cmake', 'g++') ?? (onPath('nvcc') || existsSync('/usr/local/cuda/bin/nvcc') ? null : 'there is no nvcc'),
    build: () =>
      buildAddon('pack-cuda', ['-DWARPJOIN_GPU=cuda'], 'warpjoin', {
        WARPJOIN_CUDA_ARCHITECTURES: process.env.WARPJOIN_CUDA_ARCHITECTURES ?? cudaArchitectures.join(';'),
      }),
  },
  'linux-x64-rocm': {
    cpu: 'x64',
    about: 'for AMD GPUs (gfx90a), with ROCm, and for the processor',
    missing: () => lacks('cmake', 'g++') ?? (onPath('hipcc') || existsSync('/opt/rocm/bin/hipcc') ? null : 'there is no hipcc'),
    build: () =>
      buildAddon('hip', ['-DWARPJOIN_GPU=hip'], 'warpjoin', {
        WARPJOIN_HIP_ARCHITECTURES: process.env.WARPJOIN_HIP_ARCHITECTURES ?? hipArchitectures.join(';'),
      }),
  },
};
const scoped = (name) => `@warpjoin/${name}`;
const isForGpus = (name) => /-(cuda|rocm)$/.test(name);

/** The newest version of glibc that a file asks for, and the libraries that it needs. */
function needs(path) {
  const versions = [...run('readelf', ['--version-info', '--wide', path]).matchAll(/\bGLIBC_([\d.]+)/g)].map(
    ([, version]) => version,
  );
  const libraries = [...run('readelf', ['--dynamic', '--wide', path]).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(
    ([, library]) => library,
  );
  return { glibc: versions.sort(compareVersions).at(-1), libraries };
}

/** Writes a folder to be packed: its package.json, and a copy of each file. */
function stage(name, manifest, files) {
  const folder = join(out, name);
  rmSync(folder, { recursive: true, force: true });
  for (const [from, to] of files) {
    mkdirSync(join(folder, to, '..'), { recursive: true });
    copyFileSync(from, join(folder, to));
  }
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  return folder;
}

function pack(folder) {
  const [{ filename, size, unpackedSize }] = JSON.parse(
    run('npm', ['pack', folder, '--json', '--ignore-scripts', '--pack-destination', out]),
  );
  const mega = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;
  return `${relative(root, join(out, filename))}: ${mega(size)}, unpacked ${mega(unpackedSize)}`;
}

const licence = [join(root, 'LICENSE'), 'LICENSE'];
const { version, license } = project;

function packAddon(name) {
  const { cpu, about, tools = '', build } = addons[name];
  const built = build();
  const { glibc, libraries } = needs(built);
  if (compareVersions(glibc, GLIBC) > 0) throw new Error(`${name} needs glibc ${glibc}, which is later than ${GLIBC}`);
  const manifest = {
    name: scoped(name),
    version,
    description: `The native addon of warpjoin ${about}`,
    license,
    main: 'warpjoin.node',
    files: ['warpjoin.node'],
    os: ['linux'],
    cpu: [cpu],
    libc: ['glibc'],
    preferUnplugged: true,
  };
  const folder = stage(name, manifest, [licence, [built, 'warpjoin.node']]);
  run(`${tools}strip`, ['--strip-unneeded', join(folder, 'warpjoin.node')]);
  writeFileSync(
    join(folder, 'README.md'),
    `# ${scoped(name)}\n\n${manifest.description}: glibc ${glibc} or later. [warpjoin](https://www.npmjs.com/package/warpjoin) loads it.\n`,
  );
  return `${pack(folder)}, glibc ${glibc}, needs ${libraries.join(', ')}`;
}

/** The JavaScript alone: no install script, and packages with an addon for the platform. */
function packJavaScript() {
  run('npm', ['run', '--silent', 'build:ts']);
  const { scripts, devDependencies, files, private: isPrivate, gypfile, ...manifest } = project;
  const names = Object.keys(addons);
  const exactly = (chosen) => Object.fromEntries(chosen.map((name) => [scoped(name), version]));
  const forGpus = names.filter(isForGpus);
  Object.assign(manifest, {
    files: ['dist'],
    optionalDependencies: exactly(names.filter((name) => !isForGpus(name))),
    // So that package managers that keep packages apart let warpjoin load them where the project has them.
    peerDependencies: { ...manifest.peerDependencies, ...exactly(forGpus) },
    peerDependenciesMeta: Object.fromEntries(forGpus.map((name) => [scoped(name), { optional: true }])),
  });
  const sources = run('find', [
    join(root, 'dist'),
    '-type',
    'f',
    '(',
    '-name',
    '*.js',
    '-o',
    '-name',
    '*.d.ts',
    '-o',
    '-name',
    '*.d.cts',
    '-o',
    '-name',
    '*.cjs',
    ')',
  ]).split('\n');
  const texts = ['README.md', 'CHANGELOG.md'].map((name) => [join(root, name), name]);
  return pack(stage('warpjoin', manifest, [licence, ...texts, ...sources.map((path) => [path, relative(root, path)])]));
}

const named = process.argv.slice(2);
const unknown = named.find((name) => name !== 'warpjoin' && !(name in addons));
if (unknown) {
  console.error(`pack: there is no package ${unknown}; packages are warpjoin, ${Object.keys(addons).join(', ')}`);
  process.exit(2);
}
mkdirSync(out, { recursive: true });
let failed = false;
for (const name of named.length > 0 ? named : ['warpjoin', ...Object.keys(addons)]) {
  const missing = name === 'warpjoin' ? null : addons[name].missing();
  if (missing) {
    console.log(`left out ${scoped(name)}: ${missing}`);
    failed ||= named.length > 0;
  } else console.log(name === 'warpjoin' ? packJavaScript() : packAddon(name));
}
if (named.length === 0) console.log('left out packages for musl: there is no C++ standard library for it here');
process.exitCode = failed ? 1 : 0;
