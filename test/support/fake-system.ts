/** A machine of plain values, for faults to be planted in: healthy as it is, a Linux x64 with Node.js 22, npm and no GPU. */
import type { AddonState, System } from '../../lib/diagnose/finding.js';
import { ARROW_RANGE } from '../../lib/diagnose.js';
import type { DeviceInfo } from '../../lib/engine.js';
import type { FileSystem } from '../../lib/machine.js';
import type { GpuDescription, GpuSupport, NativeAddon } from '../../lib/native.js';
import { VERSION } from '../../lib/version.js';

export const GIB = 2 ** 30;

const CPU_FLAGS = 'fpu sse2 avx avx2 bmi1 bmi2 f16c fma abm movbe';

const FILES: Readonly<Record<string, string>> = {
  '/etc/os-release': 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
  '/proc/cpuinfo': `processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: ${CPU_FLAGS}\n`,
  '/proc/meminfo': `MemTotal: 67108864 kB\nMemAvailable:   62914560 kB\nSwapTotal:   8388608 kB\nSwapFree:   8388608 kB\n`,
  '/proc/self/cgroup': '0::/user.slice\n',
  '/proc/self/limits': 'Limit  Soft Limit  Hard Limit  Units\nMax processes  100000  100000  processes\n',
  '/proc/sys/kernel/osrelease': '6.1.0-13-amd64\n',
  '/project/package.json': '{ "name": "project" }',
  '/project/package-lock.json': '{}',
  '/project/node_modules/warpjoin/package.json': `{ "version": "${VERSION}" }`,
  '/project/node_modules/apache-arrow/package.json': '{ "name": "apache-arrow", "version": "21.2.0" }',
};

export interface FakeSystem
  extends Partial<Omit<System, 'readFile' | 'list' | 'canAccess' | 'realPath' | 'fileSystem' | 'addon'>> {
  /** Files in addition, or in place of those above; null: not there. A device file's text is empty. */
  files?: Record<string, string | null>;
  /** Paths that can't be read or written. */
  closed?: string[];
  fileSystems?: Record<string, FileSystem | null>;
  loaded?: Partial<AddonState>;
}

const NO_SUPPORT: GpuSupport = { architectures: '', runtimeVersion: '', driverVersion: '', errorName: '', error: '' };

/** An addon for CUDA 13.0 with machine code for 7.5 to 9.0 and PTX of 12.0, and these GPUs. */
export function gpuAddon(
  gpus: Partial<GpuDescription>[] = [],
  support: Partial<GpuSupport> = {},
  more: Partial<NativeAddon> = {},
) {
  const cuda = {
    architectures: '75-real,80-real,90-real,120',
    runtimeVersion: '13.0',
    driverVersion: '13.0',
    errorName: '',
    error: '',
  };
  const gpu = (given: Partial<GpuDescription>, ordinal: number): GpuDescription => ({
    kind: 'gpu',
    ordinal,
    name: `NVIDIA H200 ${ordinal}`,
    memoryBytes: 141 * GIB,
    limitBytes: 112 * GIB,
    peakBytes: 0,
    bytesToDevice: 0,
    bytesToHost: 0,
    residentBytes: 0,
    peers: gpus.map((_, other) => other).filter((other) => other !== ordinal),
    architecture: '9.0',
    failure: null,
    ...given,
  });
  return {
    backend: 'cuda',
    version: VERSION,
    gpus: () => gpus.map(gpu),
    gpuSupport: () => ({ ...cuda, ...support }),
    ...more,
  } as NativeAddon;
}

export const hostAddon = (more: Partial<NativeAddon> = {}): NativeAddon => gpuAddon([], NO_SUPPORT, { backend: 'none', ...more });

/** Files of a machine with an NVIDIA GPU and its driver. */
export const NVIDIA_CARD: Readonly<Record<string, string>> = {
  '/sys/bus/pci/devices/0000:01:00.0/vendor': '0x10de\n',
  '/sys/bus/pci/devices/0000:01:00.0/class': '0x030200\n',
};
export const NVIDIA_MODULE: Readonly<Record<string, string>> = {
  ...NVIDIA_CARD,
  '/proc/driver/nvidia/version': 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n',
};
export const NVIDIA: Readonly<Record<string, string>> = { ...NVIDIA_MODULE, '/dev/nvidiactl': '', '/dev/nvidia0': '' };
export const AMD_CARD: Readonly<Record<string, string>> = {
  '/sys/bus/pci/devices/0000:02:00.0/vendor': '0x1002\n',
  '/sys/bus/pci/devices/0000:02:00.0/class': '0x120000\n',
};
export const DOCKER: Readonly<Record<string, string>> = { '/.dockerenv': '' };

export function fakeSystem({ files: given = {}, closed = [], fileSystems = {}, loaded = {}, ...more }: FakeSystem = {}): System {
  const files = new Map(Object.entries({ ...FILES, ...given }).filter((file): file is [string, string] => file[1] !== null));
  const disk: FileSystem = { inMemory: false, freeBytes: 100 * GIB };
  const folders = ['/tmp', '/home/user', '/home/user/.cache', '/project'];
  const isThere = (path: string): boolean => files.has(path) || folders.includes(path);
  const device = (ordinal: number, all: readonly number[]): DeviceInfo => ({
    ...gpuAddon(all.map(() => ({}))).gpus()[ordinal]!,
    peers: all.filter((other) => other !== ordinal),
  });
  return {
    platform: 'linux',
    arch: 'x64',
    env: {},
    versions: { node: '22.12.0' },
    glibc: '2.36',
    now: new Date('2026-01-15'),
    cwd: '/project',
    temporary: '/tmp',
    home: '/home/user',
    installed: '/project/node_modules/warpjoin',
    parallelism: 8,
    memoryBytes: 64 * GIB,
    constrainedBytes: 0,
    readFile: (path) => (closed.includes(path) ? undefined : files.get(path)),
    list: (path) => [
      ...new Set(
        [...files.keys()].filter((file) => file.startsWith(`${path}/`)).map((file) => file.slice(path.length + 1).split('/')[0]!),
      ),
    ],
    canAccess: (path, mode) => isThere(path) && (mode === 'exists' || !closed.includes(path)),
    realPath: (path) => path,
    fileSystem: (path) => (path in fileSystems ? (fileSystems[path] ?? undefined) : disk),
    version: VERSION,
    nodeRange: '>=20.17',
    arrowRange: ARROW_RANGE,
    defaultMemoryBytes: 50 * GIB,
    cacheFolder: '/home/user/.cache/warpjoin',
    addon: () => ({ addon: hostAddon(), from: '@warpjoin/linux-x64-gnu', tried: [], ...loaded }),
    trial: async (gpus) => (gpus === 'cpu' ? [] : gpus.map((ordinal) => device(ordinal, gpus))),
    ...more,
  };
}
