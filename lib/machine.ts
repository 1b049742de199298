/** What messages and diagnose() read of the machine, through one interface: tests plant faults by another implementation. */
import { accessSync, constants, readdirSync, readFileSync, realpathSync, statfsSync } from 'node:fs';
import { availableParallelism, homedir, tmpdir, totalmem } from 'node:os';
import { dirname, join } from 'node:path';

/** A file system, as statfs tells. */
export interface FileSystem {
  /** Whether files are kept in memory: tmpfs or ramfs. */
  inMemory: boolean;
  /** Bytes that this user can still write. */
  freeBytes: number;
}

/** The machine as this process sees it. No method throws. */
export interface Machine {
  /** As process.platform and process.arch. */
  readonly platform: string;
  readonly arch: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** As process.versions. */
  readonly versions: Readonly<Record<string, string | undefined>>;
  /** The version of glibc; undefined where Node.js runs on another libc, such as musl. */
  readonly glibc: string | undefined;
  readonly now: Date;
  /** Folders: the current one, that of temporary files, the user's, and warpjoin's own. */
  readonly cwd: string;
  readonly temporary: string;
  readonly home: string;
  readonly installed: string;
  /** Logical processors, as Node.js counts them. */
  readonly parallelism: number;
  /** Bytes of memory, and of the container's limit as Node.js reports it; 0: none. */
  readonly memoryBytes: number;
  readonly constrainedBytes: number;
  /** A file's text; undefined where it can't be read. */
  readFile(path: string): string | undefined;
  /** The names in a folder; empty where it can't be read. */
  list(path: string): string[];
  canAccess(path: string, mode: 'exists' | 'read-write'): boolean;
  realPath(path: string): string;
  /** The file system of a path; undefined where the path does not exist. */
  fileSystem(path: string): FileSystem | undefined;
}

const TMPFS = 0x01021994;
const RAMFS = 0x858458f6;

function attempt<T, U>(read: () => T, otherwise: U): T | U {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

function glibcVersion(): string | undefined {
  const { report } = process as { report?: NodeJS.ProcessReport & { excludeNetwork?: boolean } };
  if (!report) return undefined;
  const before = report.excludeNetwork;
  report.excludeNetwork = true; // otherwise the report looks up host names
  const { header } = report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  if (before !== undefined) report.excludeNetwork = before;
  return header.glibcVersionRuntime;
}

/** This machine. Each property is read when it is asked for. */
export const machine: Machine = {
  platform: process.platform,
  arch: process.arch,
  env: process.env,
  versions: process.versions,
  get glibc() {
    return attempt(glibcVersion, undefined);
  },
  get now() {
    return new Date();
  },
  get cwd() {
    return attempt(() => process.cwd(), '/'); // the folder may be gone
  },
  get temporary() {
    return tmpdir();
  },
  get home() {
    return attempt(homedir, '/');
  },
  get installed() {
    return attempt(() => dirname(import.meta.dirname), '/'); // a bundle may have none
  },
  get parallelism() {
    return availableParallelism();
  },
  get memoryBytes() {
    return totalmem();
  },
  get constrainedBytes() {
    return process.constrainedMemory?.() ?? 0;
  },
  readFile: (path) => attempt(() => readFileSync(path, 'utf8'), undefined),
  list: (path) => attempt(() => readdirSync(path), []),
  canAccess: (path, mode) =>
    attempt(() => {
      accessSync(path, mode === 'exists' ? constants.F_OK : constants.R_OK | constants.W_OK);
      return true;
    }, false),
  realPath: (path) => attempt(() => realpathSync(path), path),
  fileSystem: (path) =>
    attempt(() => {
      const { type, bavail, bsize } = statfsSync(path);
      return { inMemory: type === TMPFS || type === RAMFS, freeBytes: bavail * bsize };
    }, undefined),
};

/**
 * What x86-64-v3, which the addon is compiled for, has more than the first x86-64, as /proc/cpuinfo names it. Its LZCNT (abm) isn't
 * here: every processor with the others has it, and some virtual machines don't show it.
 */
const NEEDED_FLAGS = ['avx', 'avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'movbe'];

/** Which of the addon's instructions this processor lacks; empty also where /proc/cpuinfo does not tell. */
export function missingInstructions({ arch, readFile }: Pick<Machine, 'arch' | 'readFile'>): string[] {
  const flags = arch === 'x64' ? /^flags\s*:\s*(.+)$/m.exec(readFile('/proc/cpuinfo') ?? '') : null;
  if (!flags) return [];
  const there = new Set(flags[1]!.split(' '));
  return NEEDED_FLAGS.filter((flag) => !there.has(flag));
}

/** What runs the process: a container of this kind, or none that shows. */
export type Container = 'docker' | 'podman' | 'kubernetes' | 'other';

export function containerOf({ env, canAccess, readFile }: Machine): Container | undefined {
  if (env.KUBERNETES_SERVICE_HOST) return 'kubernetes';
  if (canAccess('/run/.containerenv', 'exists')) return 'podman';
  if (canAccess('/.dockerenv', 'exists')) return 'docker';
  const groups = readFile('/proc/1/cgroup') ?? '';
  if (/kubepods/.test(groups)) return 'kubernetes';
  if (/docker/.test(groups)) return 'docker';
  return env.container || /lxc|containerd|libpod/.test(groups) ? 'other' : undefined;
}

/** Whether this is Windows' subsystem for Linux, version 2. */
export function isWsl({ readFile }: Machine): boolean {
  return /microsoft.*wsl2|wsl2.*microsoft/i.test(readFile('/proc/sys/kernel/osrelease') ?? '');
}

/** A control group's folders, from this process's up to the root, of version 2 or of a controller of version 1. */
function controlGroups({ readFile }: Machine, controller: string): { folders: string[]; version: 1 | 2 } {
  const lines = (readFile('/proc/self/cgroup') ?? '').split('\n').map((line) => line.split(':'));
  const old = lines.find(([, controllers]) => controllers?.split(',').includes(controller));
  const own = old ?? lines.find(([id]) => id === '0');
  const root = old ? `/sys/fs/cgroup/${controller}` : '/sys/fs/cgroup';
  const folders: string[] = [];
  for (let path = own?.[2] ?? '/'; path !== '/' && path !== '.'; path = dirname(path)) folders.push(join(root, path));
  return { folders: [...folders, root], version: old ? 1 : 2 };
}

/** The number in a file; undefined where there is none ("max"). */
function numberIn(text: string | undefined): number | undefined {
  const value = Number.parseInt(text ?? '', 10);
  return Number.isNaN(value) ? undefined : value;
}

/** The smallest memory limit of the process's control groups, and what its group uses except for files that can be dropped. */
export function memoryGroup(from: Machine): { limit: number; used: number } | undefined {
  const { folders, version } = controlGroups(from, 'memory');
  const [limitFile, usedFile] =
    version === 2 ? ['memory.max', 'memory.current'] : ['memory.limit_in_bytes', 'memory.usage_in_bytes'];
  let smallest: { limit: number; used: number } | undefined;
  for (const folder of folders) {
    const limit = numberIn(from.readFile(`${folder}/${limitFile}`));
    // Version 1 has no word for "no limit", but a number that no machine reaches.
    if (limit === undefined || limit >= from.memoryBytes || (smallest && limit >= smallest.limit)) continue;
    const files = /^(?:total_)?inactive_file (\d+)$/m.exec(from.readFile(`${folder}/memory.stat`) ?? '');
    const used = (numberIn(from.readFile(`${folder}/${usedFile}`)) ?? 0) - Number(files?.[1] ?? 0);
    smallest = { limit, used: Math.max(0, used) };
  }
  return smallest;
}

/** Processors' worth of time that the process's control groups leave it; undefined: no quota. */
export function processorQuota(from: Machine): number | undefined {
  const { folders, version } = controlGroups(from, 'cpu');
  const quotas = folders.map((folder) => {
    const [quota, period] =
      version === 2
        ? (from.readFile(`${folder}/cpu.max`) ?? '').split(' ')
        : [from.readFile(`${folder}/cpu.cfs_quota_us`), from.readFile(`${folder}/cpu.cfs_period_us`)];
    const share = (numberIn(quota) ?? 0) / (numberIn(period) ?? 1);
    return share > 0 ? share : Number.POSITIVE_INFINITY;
  });
  const least = Math.min(...quotas);
  return Number.isFinite(least) ? least : undefined;
}

/** A figure of /proc/meminfo, in bytes. */
export function memoryFigure({ readFile }: Machine, name: string): number | undefined {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(readFile('/proc/meminfo') ?? '');
  return match ? Number(match[1]) * 1024 : undefined;
}

/** A soft limit of the process, in its unit; Infinity where it is unlimited. */
export function processLimit({ readFile }: Machine, name: string): number {
  const match = new RegExp(`^${name}\\s+(\\d+|unlimited)`, 'm').exec(readFile('/proc/self/limits') ?? '');
  return match && match[1] !== 'unlimited' ? Number(match[1]) : Number.POSITIVE_INFINITY;
}

export type Vendor = 'nvidia' | 'amd';

/** How far the GPUs of a vendor have come: their driver's device files, its kernel module, or a card without either. */
export interface Traces {
  /** What programs open. */
  deviceFiles: boolean;
  /** The kernel has the driver: of the host, where this is a container. */
  module: boolean;
  /** The PCI bus shows a GPU. */
  card: boolean;
}

const VENDOR_IDS: Readonly<Record<Vendor, string>> = { nvidia: '0x10de', amd: '0x1002' };

/** What the machine shows of the GPUs of a vendor. */
export function tracesOf(vendor: Vendor, { readFile, list, canAccess }: Machine): Traces {
  const hasCard = (): boolean =>
    list('/sys/bus/pci/devices').some((device) => {
      const about = (file: string) => readFile(`/sys/bus/pci/devices/${device}/${file}`)?.trim() ?? '';
      // Display controllers (0x03), and AMD's accelerators (0x12).
      return about('vendor') === VENDOR_IDS[vendor] && /^0x(03|12)/.test(about('class'));
    });
  // WSL2 has no device files of NVIDIA's, but Windows' part of the driver.
  const opened = { nvidia: ['/dev/nvidiactl', '/usr/lib/wsl/lib/libcuda.so.1'], amd: ['/dev/kfd'] };
  return {
    deviceFiles: opened[vendor].some((path) => canAccess(path, 'exists')),
    module: canAccess(vendor === 'nvidia' ? '/proc/driver/nvidia/version' : '/sys/module/amdgpu', 'exists'),
    card: hasCard(),
  };
}

/** The version of NVIDIA's driver: "580.95.05". */
export function nvidiaDriver({ readFile }: Machine): string | undefined {
  return /Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)/.exec(readFile('/proc/driver/nvidia/version') ?? '')?.[1];
}

/** Host memory, in bytes, that this process may use: the container's limit where there is one below the physical memory. */
export function physicalMemory(): number {
  const constrained = process.constrainedMemory?.() ?? 0;
  return constrained > 0 && constrained < totalmem() ? constrained : totalmem();
}
