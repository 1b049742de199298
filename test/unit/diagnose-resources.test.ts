/** diagnose() on machines that are short of memory, processors or folders: each fault that it looks for is planted, one at a time. */
import { describe, expect, test } from 'vitest';
import type { Finding } from '../../lib/diagnose.js';
import { type Fault, findings, problems, testFaults } from '../support/diagnosis.js';
import { type FakeSystem, GIB } from '../support/fake-system.js';

describe('resources', () => {
  const group2 = (bytes: number, used = 0) => ({
    '/proc/self/cgroup': '0::/pod/x\n',
    '/sys/fs/cgroup/pod/memory.max': `${bytes}\n`,
    '/sys/fs/cgroup/pod/memory.current': `${used}\n`,
    '/sys/fs/cgroup/pod/x/memory.max': 'max\n',
  });
  const group1 = (bytes: number | string) => ({
    '/proc/self/cgroup': '9:name=systemd:/\n4:memory:/docker/ab\n0::/\n',
    '/sys/fs/cgroup/memory/memory.limit_in_bytes': `${bytes}\n`,
    '/sys/fs/cgroup/memory/memory.usage_in_bytes': '0\n',
  });
  const limits = (line: string) => ({ '/proc/self/limits': `${line}\nMax processes   unlimited  unlimited  processes\n` });
  const fault = (
    name: string,
    system: FakeSystem,
    check: string,
    status: Finding['status'],
    message: RegExp,
    remedy: RegExp,
  ): Fault => ({
    fault: name,
    system,
    check,
    status,
    message,
    remedy,
  });
  testFaults([
    fault(
      'a limit of control groups 2 that Node.js does not see',
      { files: group2(2 * GIB) },
      'memory',
      'warning',
      /^the container's limit is 2 GiB of 64 GiB, but Node\.js reports 64 GiB: engines take up to 50 GiB/,
      /memoryLimit: '1536MiB'/,
    ),
    fault(
      'a limit of control groups 1 that Node.js does not see',
      { files: group1(8 * GIB) },
      'memory',
      'warning',
      /limit is 8 GiB/,
      /--memory-limit 6GiB/,
    ),
    fault(
      'a container that is nearly full',
      { files: group2(32 * GIB, 30 * GIB), constrainedBytes: 32 * GIB, defaultMemoryBytes: 25 * GIB },
      'memory',
      'warning',
      /^2 GiB are free, and engines take up to 25 GiB/,
      /end other processes/,
    ),
    fault(
      'other processes have the memory',
      { files: { '/proc/meminfo': 'MemAvailable:    4194304 kB\n' } },
      'memory',
      'warning',
      /^4 GiB are free/,
      /memoryLimit: '3GiB'/,
    ),
    fault(
      'a small container',
      { files: group2(256 * 2 ** 20), constrainedBytes: 256 * 2 ** 20, defaultMemoryBytes: 150 * 2 ** 20 },
      'memory',
      'warning',
      /limit is 256 MiB of 64 GiB.*small tables/,
      /raise the memory limit of the container/,
    ),
    fault(
      'a limit of the address space',
      { files: limits('Max address space   8589934592  unlimited  bytes') },
      'memory',
      'warning',
      /address space is 8 GiB/,
      /ulimit -v/,
    ),
    fault('no overcommit', { files: { '/proc/sys/vm/overcommit_memory': '2\n' } }, 'memory', 'warning', /overcommit/, /sysctl/),
    fault(
      'much is swapped out',
      { files: { '/proc/meminfo': 'MemAvailable:  62914560 kB\nSwapTotal:  16777216 kB\nSwapFree:  4194304 kB\n' } },
      'swap',
      'warning',
      /^12 GiB of memory are swapped out/,
      /lower memoryLimit/,
    ),
    fault(
      'a quota of processors in control groups 2',
      {
        parallelism: 64,
        files: { '/sys/fs/cgroup/user.slice/cpu.max': '200000 100000\n', '/sys/fs/cgroup/cpu.max': 'max 100000\n' },
      },
      'threads',
      'warning',
      /has 2 processors' time, and engines start 64 threads/,
      /threads: 2 /,
    ),
    fault(
      'a quota of processors in control groups 1',
      {
        parallelism: 16,
        files: {
          '/proc/self/cgroup': '3:cpu,cpuacct:/docker/ab\n0::/\n',
          '/sys/fs/cgroup/cpu/cpu.cfs_quota_us': '150000\n',
          '/sys/fs/cgroup/cpu/cpu.cfs_period_us': '100000\n',
        },
      },
      'threads',
      'warning',
      /has 1\.5 processors' time/,
      /--threads 2/,
    ),
    fault(
      'few threads for the user',
      { files: { '/proc/self/limits': 'Max processes   10   10   processes\n' } },
      'threads',
      'warning',
      /10 threads in all/,
      /ulimit -u/,
    ),
    fault(
      'no temp directory',
      { temporary: '/gone', fileSystems: { '/gone': null } },
      'temp directory',
      'warning',
      /\/gone does not exist/,
      /TMPDIR/,
    ),
    fault('a temp directory that is not writable', { closed: ['/tmp'] }, 'temp directory', 'warning', /not writable/, /TMPDIR/),
    fault(
      'a temp directory in memory',
      { fileSystems: { '/tmp': { inMemory: true, freeBytes: 10 * GIB } } },
      'temp directory',
      'info',
      /\/tmp is kept in memory/,
      /TMPDIR name a folder on a disk/,
    ),
    fault(
      'a full disk',
      { fileSystems: { '/tmp': { inMemory: false, freeBytes: 2 ** 20 } } },
      'temp directory',
      'warning',
      /1 MiB free/,
      /free some/,
    ),
    fault(
      'a cache directory that is not writable',
      { closed: ['/home/user/.cache'] },
      'cache directory',
      'info',
      /not writable.*anew/,
      /WARPJOIN_CACHE_DIR/,
    ),
  ]);

  test.each([
    ['a limit that Node.js sees', { files: group2(32 * GIB), constrainedBytes: 32 * GIB, defaultMemoryBytes: 25 * GIB }],
    ['no limit in version 1', { files: group1('9223372036854771712') }],
    ['a quota of as many processors as there are', { files: { '/sys/fs/cgroup/cpu.max': '800000 100000\n' } }],
    ['no files at all', { files: { '/proc/self/cgroup': null, '/proc/meminfo': null, '/proc/self/limits': null } }],
  ] satisfies [string, FakeSystem][])('%s is fine', async (_, system) => {
    expect(problems(await findings(system))).toEqual([]);
  });

  test('files that can be dropped are free', async () => {
    const files = { ...group2(32 * GIB, 30 * GIB), '/sys/fs/cgroup/pod/memory.stat': `anon 1\ninactive_file ${28 * GIB}\n` };
    expect(problems(await findings({ files, constrainedBytes: 32 * GIB, defaultMemoryBytes: 25 * GIB }))).toEqual([]);
  });
});
