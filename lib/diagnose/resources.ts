/** Checks of memory, threads and folders. */
import { dirname } from 'node:path';
import { containerOf, memoryFigure, memoryGroup, processLimit, processorQuota } from '../machine.js';
import { formatBytes } from '../sizes.js';
import { type Check, type Found, info, ok, type System, warning } from './finding.js';

/** A size to suggest: three quarters of the bytes, in MiB or GiB, as options take it. */
function suggested(bytes: number): string {
  const share = bytes * 0.75;
  return share >= 2 ** 31 ? `${Math.floor(share / 2 ** 30)}GiB` : `${Math.max(1, Math.floor(share / 2 ** 20))}MiB`;
}

const LITTLE = 2 ** 29;

const memory: Check = {
  name: 'memory',
  run(system) {
    const { memoryBytes, constrainedBytes, defaultMemoryBytes } = system;
    const group = memoryGroup(system);
    const takes = `engines take up to ${formatBytes(defaultMemoryBytes)} where no memoryLimit is given`;
    const whole = group
      ? `the container's limit is ${formatBytes(group.limit)} of ${formatBytes(memoryBytes)}`
      : formatBytes(memoryBytes);
    const found: Found[] = [];
    const known = constrainedBytes > 0 ? Math.min(constrainedBytes, memoryBytes) : memoryBytes;
    const left = group ? group.limit - group.used : Number.POSITIVE_INFINITY;
    const available = Math.min(memoryFigure(system, 'MemAvailable') ?? Number.POSITIVE_INFINITY, left);
    const limit = (bytes: number) =>
      `give createEngine({ memoryLimit: '${suggested(bytes)}' }), or --memory-limit ${suggested(bytes)}`;
    if (group && group.limit < known) {
      const what = `${whole}, but Node.js reports ${formatBytes(known)}: ${takes}, and the kernel would end the process`;
      found.push(warning(what, limit(group.limit)));
    } else if (available < defaultMemoryBytes) {
      found.push(warning(`${formatBytes(available)} are free, and ${takes}`, `end other processes, or ${limit(available)}`));
    } else if (defaultMemoryBytes < LITTLE) {
      const remedy = group ? 'raise the memory limit of the container' : 'use a machine with more memory';
      found.push(warning(`${whole}: ${takes}, which holds small tables only`, remedy));
    } else {
      found.push(ok(`${whole}; ${takes}`));
    }
    const addressSpace = processLimit(system, 'Max address space');
    if (addressSpace < memoryBytes) {
      found.push(
        warning(
          `the limit of the address space is ${formatBytes(addressSpace)}: allocations fail before memory is short`,
          'run "ulimit -v unlimited"',
        ),
      );
    }
    if (system.readFile('/proc/sys/vm/overcommit_memory')?.trim() === '2') {
      const what = 'the kernel does not overcommit memory (vm.overcommit_memory is 2): allocations fail before memory is short';
      found.push(warning(what, 'run "sysctl vm.overcommit_memory=0" as root, or lower memoryLimit'));
    }
    return found;
  },
};

const swap: Check = {
  name: 'swap',
  run(system) {
    const total = memoryFigure(system, 'SwapTotal') ?? 0;
    const used = total - (memoryFigure(system, 'SwapFree') ?? total);
    if (used < system.memoryBytes / 10) return [];
    return [
      warning(
        `${formatBytes(used)} of memory are swapped out: joins and sorts wait for the disk`,
        'end other processes, or lower memoryLimit',
      ),
    ];
  },
};

const threads: Check = {
  name: 'threads',
  run(system) {
    const { parallelism } = system;
    const quota = processorQuota(system);
    const found: Found[] = [];
    if (quota !== undefined && quota + 1 < parallelism) {
      const count = Math.max(1, Math.round(quota));
      const message = `the container has ${Number(quota.toFixed(1))} processors' time, and engines start ${parallelism} threads, which are stopped again and again`;
      found.push(warning(message, `give createEngine({ threads: ${count} }), or --threads ${count}`));
    }
    const processes = processLimit(system, 'Max processes');
    if (processes < parallelism * 4) {
      found.push(
        warning(
          `this user may run ${processes} threads in all, and an engine starts ${parallelism}`,
          'run "ulimit -u unlimited", or give createEngine({ threads })',
        ),
      );
    }
    return found;
  },
};

const SMALL_DISK = 2 ** 30;

const temporary: Check = {
  name: 'temp directory',
  run(system) {
    const { temporary: folder } = system;
    const there = system.fileSystem(folder);
    if (!there) return [warning(`${folder} does not exist`, 'make it, or let TMPDIR name a folder')];
    if (!system.canAccess(folder, 'read-write'))
      return [warning(`${folder} is not writable for this user`, 'let TMPDIR name a folder that is')];
    if (there.inMemory) {
      return [
        info(
          `${folder} is kept in memory: files there leave less for joins, and count against the container's limit`,
          'let TMPDIR name a folder on a disk, and keep large inputs and results there',
        ),
      ];
    }
    if (there.freeBytes < SMALL_DISK)
      return [warning(`${folder} has ${formatBytes(there.freeBytes)} free`, 'free some, or let TMPDIR name another folder')];
    return [ok(`${folder}, ${formatBytes(there.freeBytes)} free`)];
  },
};

/** The nearest folder above a path that exists. */
function existing(system: System, path: string): string {
  let folder = path;
  while (!system.canAccess(folder, 'exists') && folder !== dirname(folder)) folder = dirname(folder);
  return folder;
}

const cache: Check = {
  name: 'cache directory',
  run(system) {
    const { cacheFolder } = system;
    if (system.canAccess(existing(system, cacheFolder), 'read-write')) return [ok(cacheFolder)];
    const where = containerOf(system) ? ', and mount it to keep it' : '';
    return [
      info(
        `${cacheFolder} is not writable for this user: each process measures the links of the GPUs anew, for a second or two`,
        `let WARPJOIN_CACHE_DIR name a folder that is${where}`,
      ),
    ];
  },
};

export const resourceChecks: readonly Check[] = [memory, swap, threads, temporary, cache];
