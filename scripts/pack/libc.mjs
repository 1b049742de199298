// libc.mjs FOLDER COMPILER: makes libraries to link with in place of this system's glibc, so that what is linked runs with an
// older one, too. They have this glibc's functions in the newest version of each that GLIBC has, and no code.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The glibc that is enough for what is linked: that of the oldest systems on which Node.js 20 runs. */
export const GLIBC = '2.28';

const numbers = (version) => version.split('.').map(Number);
/** Orders versions such as 2.2.5 and 2.17. */
export function compareVersions(a, b) {
  const [left, right] = [numbers(a), numbers(b)];
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference) return difference;
  }
  return 0;
}

export function run(command, args, input) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28, input });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}

/** The symbols that a library has, each in the newest version up to GLIBC: [{ name, version, type, size }]. */
function symbolsOf(path) {
  const newest = new Map();
  for (const line of run('readelf', ['--dyn-syms', '--wide', path]).split('\n')) {
    const [, , size, type, bind, , index, symbol] = line.trim().split(/\s+/);
    const [, name, version] = /^(.+?)@{1,2}GLIBC_([\d.]+)$/.exec(symbol ?? '') ?? [];
    if (!name || index === 'UND' || bind === 'LOCAL' || compareVersions(version, GLIBC) > 0) continue;
    const before = newest.get(name);
    if (!before || compareVersions(before.version, version) < 0) newest.set(name, { name, version, type, size: Number(size) });
  }
  return [...newest.values()].filter(({ size, type }) => type !== 'OBJECT' || size > 0);
}

function makeLibrary(compiler, soname, path, out) {
  const symbols = symbolsOf(path);
  const versions = [...new Set(symbols.map(({ version }) => version))].sort(compareVersions);
  const nodes = versions.map((version, at) => {
    const names = symbols.filter((symbol) => symbol.version === version).map(({ name }) => `${name};`);
    return `GLIBC_${version} { ${names.join(' ')} }${at > 0 ? ` GLIBC_${versions[at - 1]}` : ''};`;
  });
  writeFileSync(`${out}.map`, nodes.join('\n'));
  const code = symbols.map(({ name, type, size }) => {
    const [section, kind] =
      type === 'OBJECT'
        ? ['.data', 'object']
        : type === 'TLS'
          ? ['.section .tdata,"awT",%progbits', 'tls_object']
          : ['.text', 'function'];
    return `${section}\n.globl ${name}\n.type ${name}, %${kind}\n.size ${name}, ${size}\n${name}: .skip ${Math.max(size, 1)}\n`;
  });
  writeFileSync(`${out}.s`, code.join(''));
  run(compiler, ['-shared', '-nostdlib', `-Wl,-soname,${soname}`, `-Wl,--version-script,${out}.map`, '-o', out, `${out}.s`]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder, compiler] = process.argv.slice(2);
  const place = (name) => run(compiler, [`-print-file-name=${name}`]);
  mkdirSync(folder, { recursive: true });
  for (const name of ['libc', 'libm']) {
    const soname = `${name}.so.6`;
    const own = join(folder, soname);
    makeLibrary(compiler, soname, place(soname), own);
    // The linker's script for this system, where there is one, also names the part of glibc that is linked statically.
    const usual = readFileSync(place(`${name}.so`), 'latin1');
    const script = usual.startsWith('/* GNU ld script')
      ? usual.replace(new RegExp(`\\S*${name}\\.so\\.6`), own)
      : `GROUP ( ${own} )\n`;
    writeFileSync(join(folder, `${name}.so`), script);
  }
}
