/** Checks of what warpjoin runs on: the platform, libc, Node.js, its packages and its addon. */
import { dirname, join } from 'node:path';
import { messageOf } from '../errors.js';
import { containerOf, isWsl, type Machine } from '../machine.js';
import { addCommand, packageManagerOf } from '../package-manager.js';
import { libcFault, processorFault, systemFault } from '../platform.js';
import { type AddonState, type Check, error, type Found, info, ok, type System, warning } from './finding.js';

/** The package with the addon for the processor; undefined where there is none. */
export function processorPackage({ platform, arch, glibc }: Machine): string | undefined {
  return platform === 'linux' && glibc !== undefined && (arch === 'x64' || arch === 'arm64')
    ? `@warpjoin/linux-${arch}-gnu`
    : undefined;
}

const platform: Check = {
  name: 'platform',
  run(system) {
    const fault = systemFault(system);
    if (fault) return [error(fault.what, fault.remedy)];
    const { arch } = system;
    const name = /^PRETTY_NAME="?([^"\n]+)"?$/m.exec(system.readFile('/etc/os-release') ?? '')?.[1];
    return [ok(`Linux ${arch}${name ? `, ${name}` : ''}${isWsl(system) ? ', on WSL2' : ''}`)];
  },
};

const processor: Check = {
  name: 'processor',
  run(system) {
    const fault = processorFault(system);
    if (fault) return [error(fault.what, fault.remedy)];
    const name = /^model name\s*:\s*(.+)$/m.exec(system.readFile('/proc/cpuinfo') ?? '')?.[1] ?? system.arch;
    return [ok(`${name}, ${system.parallelism} logical processors`)];
  },
};

/** The versions of a library that an addon asked for in vain: "GLIBC_2.34". */
function wantedVersion(tried: AddonState['tried'], library: 'GLIBC' | 'GLIBCXX'): string | undefined {
  return tried.map(({ reason }) => new RegExp(`version .${library}_([\\d.]+). not found`).exec(reason)?.[1]).find(Boolean);
}

const libc: Check = {
  name: 'libc',
  run(system) {
    if (system.platform !== 'linux') return [];
    const { addon, tried } = stateOf(system);
    const wanted = wantedVersion(tried, 'GLIBC');
    const newer = `use a newer distribution or image (node:22-slim), or build warpjoin here, in a checkout: "npm run pack"`;
    if (!addon && wanted)
      return [error(`the addon needs glibc ${wanted}, and this is glibc ${system.glibc ?? 'of another version'}`, newer)];
    const wantedCxx = wantedVersion(tried, 'GLIBCXX');
    if (!addon && wantedCxx) return [error(`the addon needs a newer libstdc++ (GLIBCXX_${wantedCxx})`, newer)];
    if (addon) return [ok(system.glibc === undefined ? 'another libc than glibc, such as musl' : `glibc ${system.glibc}`)];
    const fault = libcFault(system);
    return [fault ? error(fault.what, fault.remedy) : ok(`glibc ${system.glibc}`)];
  },
};

/** A version's numbers: 'v20.17.0' is [20, 17, 0]. */
const numbers = (version: string): number[] => (version.match(/\d+/g) ?? []).map(Number);

/** Whether a version is at least another. */
function isAtLeast(version: string, least: string): boolean {
  const [a, b] = [numbers(version), numbers(least)];
  for (let i = 0; i < b.length; i++) {
    if ((a[i] ?? 0) !== b[i]) return (a[i] ?? 0) > b[i]!;
  }
  return true;
}

/** Whether a version is in a range of package.json, made of "^1.2", ">=1.2" and "||". */
export function isIn(version: string, range: string): boolean {
  return range.split('||').some((part) => {
    const sameMajor = !part.includes('^') || numbers(version)[0] === numbers(part)[0];
    return sameMajor && isAtLeast(version, part);
  });
}

/** When each line of Node.js gets no fixes any more: https://github.com/nodejs/release. */
const NODE_ENDS: Readonly<Record<number, string>> = {
  20: '2026-04-30',
  21: '2024-06-01',
  22: '2027-04-30',
  23: '2025-06-01',
  24: '2028-04-30',
  25: '2026-06-01',
  26: '2029-04-30',
};

const node: Check = {
  name: 'node',
  run({ versions, nodeRange, now }) {
    for (const other of ['bun', 'deno', 'electron']) {
      if (versions[other])
        return [info(`${other} ${versions[other]}, which warpjoin is not tested on`, 'use Node.js where something fails')];
    }
    const version = versions.node ?? '';
    if (!isIn(version, nodeRange)) {
      return [
        error(
          `Node.js ${version} is none that warpjoin works with: ${nodeRange}`,
          'install a newer one: "nvm install --lts", or the image node:22-slim',
        ),
      ];
    }
    const end = NODE_ENDS[numbers(version)[0]!];
    if (end && now.toISOString().slice(0, 10) > end)
      return [
        info(`Node.js ${version}, which has had no fixes since ${end}`, 'install a newer line when you can: "nvm install --lts"'),
      ];
    return [ok(`Node.js ${version}`)];
  },
};

const manager: Check = {
  name: 'package manager',
  run(system) {
    const known = packageManagerOf(system);
    if (!known) return [info('none shows: no lock file above the current folder; remedies are for npm')];
    const { name, version } = known;
    const omits = system.env.npm_config_omit?.includes('optional') || system.env.npm_config_optional === 'false';
    if (omits)
      return [
        warning(
          `${name} leaves out optional dependencies, which addons are`,
          'unset "omit" and "optional" in its configuration, or add the addon by name',
        ),
      ];
    return [ok(version ? `${name} ${version}` : name)];
  },
};

/** The addon where this processor can run it: its instructions would end the process elsewhere. */
export function stateOf(system: System): AddonState {
  if (processorFault(system)) return { addon: undefined, from: undefined, tried: [] };
  try {
    return system.addon();
  } catch (cause) {
    return { addon: undefined, from: undefined, tried: [{ name: 'addon', reason: messageOf(cause) }] };
  }
}

/** What would help where an addon does not load, by what the loader says of this file or package. The first one that matches counts. */
const LOADING: readonly [RegExp, (system: System, name: string) => string][] = [
  [/^it is of version/, (system, name) => addCommand(system, `${name}@${system.version}`)],
  [
    /libamdhip64|libhsa/,
    () => 'install ROCm, whose libamdhip64.so the addon uses, or remove the package @warpjoin/linux-x64-rocm',
  ],
  [/GLIBC(XX)?_|ld-linux|ld-musl|libc\.so\.6|libc\.musl/, () => 'see "libc"'],
  [
    /failed to map segment|Operation not permitted/,
    () => 'node_modules is on a file system that is mounted "noexec": move it to another, or mount it anew without that',
  ],
  [/permission denied|EACCES/i, () => 'let this user read the file, or install the packages as this user'],
  [
    /cannot open shared object file/,
    () => 'install the library that it names: libstdc++.so.6 is in the package libstdc++6 or libstdc++',
  ],
  [
    /wrong ELF class|Exec format|invalid ELF header|file too short|damaged|file is for|ELF file data encoding|self-register|undefined symbol/,
    (system, name) => `the file is damaged, or for another kind of machine: ${anew(system, name)}`,
  ],
];

/** What brings a package or a build once more. */
function anew(system: System, name: string): string {
  if (name.startsWith('@'))
    return `remove node_modules and install again, then ${addCommand(system, `${name}@${system.version}`)}`;
  return name.startsWith('WARPJOIN_ADDON')
    ? 'correct WARPJOIN_ADDON, or unset it'
    : 'build the addon again: "npm run build:native"';
}

/** Whether an addon is not there, which is no fault. */
const isMissing = (reason: string): boolean => /not installed/.test(reason);

function loadingRemedy(system: System, { name, reason }: AddonState['tried'][number]): string {
  return LOADING.find(([pattern]) => pattern.test(reason))?.[1](system, name) ?? anew(system, name);
}

const addonCheck: Check = {
  name: 'addon',
  run(system) {
    if (processorFault(system))
      return [error('the addon was not loaded: its instructions would end this process', 'see "processor"')];
    const { addon, from, tried } = stateOf(system);
    const failed = tried.filter(({ reason }) => !isMissing(reason));
    if (!addon) {
      const list = tried.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
      const own = processorPackage(system);
      const remedy = failed[0] ? loadingRemedy(system, failed[0]) : own ? addCommand(system, own) : 'see "platform" and "libc"';
      return [error(`no addon could be loaded${list && ` (${list})`}`, remedy)];
    }
    if (addon.version !== system.version) {
      const message = `the addon from ${from} is of version ${addon.version}, and warpjoin of ${system.version}`;
      return [error(message, from?.startsWith('@') ? addCommand(system, `${from}@${system.version}`) : anew(system, from ?? ''))];
    }
    const code = { cuda: 'for CUDA', hip: 'for ROCm', none: 'for the processor' }[addon.backend];
    return [
      ok(`${code}, ${addon.version}, from ${from ?? 'an unknown place'}`),
      ...failed.map((one): Found => warning(`${one.name} was not used: ${one.reason}`, loadingRemedy(system, one))),
    ];
  },
};

/** A package as it is found from a folder upwards: its real folder and version. */
function packageFrom(system: System, start: string, name: string): { folder: string; version: string } | undefined {
  for (let folder = start; ; folder = dirname(folder)) {
    const place = join(folder, 'node_modules', name);
    const version = /"version"\s*:\s*"([^"]+)"/.exec(system.readFile(join(place, 'package.json')) ?? '')?.[1];
    if (version) return { folder: system.realPath(place), version };
    if (folder === dirname(folder)) return undefined;
  }
}

const arrow: Check = {
  name: 'apache-arrow',
  run(system) {
    const { from, below } = system.arrowRange;
    const range = `${from} to ${below - 1}`;
    const add = addCommand(system, `apache-arrow@${below - 1}`);
    const own = packageFrom(system, system.realPath(system.installed), 'apache-arrow');
    const project = packageFrom(system, system.cwd, 'apache-arrow');
    const found = own ?? project;
    if (!found)
      return system.versions.pnp
        ? [info('inside an archive of Yarn, where it is not looked for')]
        : [error('is not installed', add)];
    const wrong = [own, project].find((one) => one && (numbers(one.version)[0]! < from || numbers(one.version)[0]! >= below));
    if (wrong) return [error(`${wrong.version} is installed, and warpjoin works with ${range}`, add)];
    if (own && project && own.folder !== project.folder) {
      const message = `two copies: ${project.version} of the project, and ${own.version} in ${own.folder}, which warpjoin uses`;
      return [
        info(message, 'nothing, where types agree: tables of either copy are taken; otherwise install one version for both'),
      ];
    }
    return [ok(found.version)];
  },
};

const container: Check = {
  name: 'container',
  run(system) {
    const kind = containerOf(system);
    if (!kind) return [];
    const names = { docker: 'Docker', podman: 'Podman', kubernetes: 'Kubernetes', other: 'a container' };
    return [ok(names[kind])];
  },
};

export const softwareChecks: readonly Check[] = [platform, container, processor, libc, node, manager, addonCheck, arrow];
