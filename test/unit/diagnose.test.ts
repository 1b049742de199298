/** diagnose(): each fault that it looks for is planted, one at a time, in a machine of plain values. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  ARROW_RANGE,
  type Diagnosis,
  describeDiagnosis,
  diagnose,
  diagnoseSystem,
  type Finding,
  NODE_RANGE,
} from '../../lib/diagnose.js';
import { WarpjoinError } from '../../lib/errors.js';
import {
  AMD_CARD,
  DOCKER,
  type FakeSystem,
  fakeSystem,
  GIB,
  gpuAddon,
  hostAddon,
  NVIDIA,
  NVIDIA_CARD,
  NVIDIA_MODULE,
} from '../support/fake-system.js';

const findings = async (system: FakeSystem): Promise<Finding[]> => (await diagnoseSystem(fakeSystem(system))).findings;
const problems = (all: Finding[]): Finding[] => all.filter(({ status }) => status === 'warning' || status === 'error');

interface Fault {
  fault: string;
  system: FakeSystem;
  check: string;
  status: Finding['status'];
  message: RegExp;
  remedy: RegExp;
  /** Other checks that have a problem with it. */
  also?: string[];
}

/** Each plants its fault, and expects one finding of the check, and no other problem. */
function testFaults(faults: Fault[]): void {
  test.each(faults)('$check: $fault', async ({ system, check, status, message, remedy, also = [] }) => {
    const all = await findings(system);
    const found = all.filter((one) => one.check === check && one.status !== 'ok');
    expect(found).toEqual([
      { check, status, message: expect.stringMatching(message), remedy: expect.stringMatching(remedy) } satisfies Finding,
    ]);
    for (const text of [found[0]!.message, found[0]!.remedy!]) expect(text).not.toMatch(/\n|undefined|NaN|\.$/);
    expect(problems(all).filter((one) => one.check !== check && !also.includes(one.check))).toEqual([]);
  });
}

const addonOf = (...args: Parameters<typeof gpuAddon>) => ({ addon: gpuAddon(...args), from: '@warpjoin/linux-x64-cuda' });
const unloaded = (...tried: [name: string, reason: string][]) => ({
  addon: undefined,
  from: undefined,
  tried: tried.map(([name, reason]) => ({ name, reason })),
});
const NO_DRIVER = { driverVersion: '', errorName: 'cudaErrorInsufficientDriver', error: 'CUDA driver version is insufficient' };
const failing = (errorName: string, error = 'it fails') => addonOf([], { errorName, error });

test('a healthy machine without a GPU', async () => {
  const diagnosis = await diagnoseSystem(fakeSystem());
  expect(diagnosis.ok).toBe(true);
  expect(problems(diagnosis.findings)).toEqual([]);
  expect(describeDiagnosis(diagnosis).split('\n')).toEqual([
    'ok       platform         Linux x64, Debian GNU/Linux 12 (bookworm)',
    'ok       processor        Some CPU, 8 logical processors',
    'ok       libc             glibc 2.36',
    'ok       node             Node.js 22.12.0',
    'ok       package manager  npm',
    'ok       addon            for the processor, 0.1.0, from @warpjoin/linux-x64-gnu',
    'ok       apache-arrow     21.2.0',
    'info     gpu              the addon has no code for GPUs, and this machine shows none',
    '                          -> on a machine with GPUs, add @warpjoin/linux-x64-cuda or @warpjoin/linux-x64-rocm',
    'ok       engine           joins and sorts on the processor',
    'ok       memory           64 GiB; engines take up to 50 GiB where no memoryLimit is given',
    'ok       temp directory   /tmp, 100 GiB free',
    'ok       cache directory  /home/user/.cache/warpjoin',
    '',
    'No problems found.',
  ]);
});

test('a healthy machine with GPUs', async () => {
  const all = await findings({ files: NVIDIA, loaded: addonOf([{}, {}]) });
  expect(problems(all)).toEqual([]);
  const messages = Object.fromEntries(all.map(({ check, message }) => [check, message]));
  expect(messages).toMatchObject({
    addon: 'for CUDA, 0.1.0, from @warpjoin/linux-x64-cuda',
    driver: 'NVIDIA 535.104.05, CUDA 13.0; the addon has CUDA 13.0',
    gpu: '2 x NVIDIA H200 (9.0)',
  });
  expect(all.filter(({ check }) => check === 'gpu engine').map(({ message }) => message)).toEqual([
    'joins and sorts on all 2 GPUs',
    'GPUs copy to each other directly',
  ]);
});

describe('software', () => {
  const x64v2 = 'processor\t: 0\nmodel name\t: Old CPU\nflags\t\t: fpu sse2 avx abm\n';
  testFaults([
    {
      fault: 'Windows',
      system: { platform: 'win32', glibc: undefined },
      check: 'platform',
      status: 'error',
      message: /^warpjoin runs on Linux, and this is win32$/,
      remedy: /WSL2/,
    },
    {
      fault: 'macOS',
      system: { platform: 'darwin', glibc: undefined },
      check: 'platform',
      status: 'error',
      message: /darwin/,
      remedy: /docker run/,
    },
    {
      fault: 'a processor without an addon',
      system: { arch: 'riscv64' },
      check: 'platform',
      status: 'error',
      message: /no addon for riscv64/,
      remedy: /npm run pack/,
    },
    {
      fault: 'a processor without AVX2',
      system: {
        files: { '/proc/cpuinfo': x64v2 },
        addon: () => expect.fail('an addon that would end the process was loaded'),
      } as FakeSystem,
      check: 'processor',
      status: 'error',
      message: /^Old CPU lacks avx2, bmi1, bmi2, f16c, fma, movbe, which the addon uses$/,
      remedy: /2013.*-cpu host/,
      also: ['addon'],
    },
    {
      fault: 'an addon for a newer glibc',
      system: {
        glibc: '2.17',
        loaded: unloaded([
          '@warpjoin/linux-x64-gnu',
          "/lib64/libc.so.6: version `GLIBC_2.28' not found (required by warpjoin.node)",
        ]),
      },
      check: 'libc',
      status: 'error',
      message: /^the addon needs glibc 2\.28, and this is glibc 2\.17$/,
      remedy: /node:22-slim/,
      also: ['addon'],
    },
    {
      fault: 'an addon for a newer libstdc++',
      system: { loaded: unloaded(['build/Release/warpjoin.node', "libstdc++.so.6: version `GLIBCXX_3.4.30' not found"]) },
      check: 'libc',
      status: 'error',
      message: /GLIBCXX_3\.4\.30/,
      remedy: /build warpjoin here/,
      also: ['addon'],
    },
    {
      fault: 'musl',
      system: { glibc: undefined, loaded: unloaded(['@warpjoin/linux-x64-gnu', 'not installed']) },
      check: 'libc',
      status: 'error',
      message: /musl/,
      remedy: /node:22-slim in place of node:22-alpine/,
      also: ['addon'],
    },
    {
      fault: 'an old Node.js',
      system: { versions: { node: '18.20.4' } },
      check: 'node',
      status: 'error',
      message: /^Node\.js 18\.20\.4 is none that warpjoin works with: >=20\.17$/,
      remedy: /nvm install --lts/,
    },
    {
      fault: 'a release of a line before the one that is needed',
      system: { versions: { node: '22.11.0' }, nodeRange: '^20.19 || >=22.12' },
      check: 'node',
      status: 'error',
      message: /22\.11\.0/,
      remedy: /nvm/,
    },
    {
      fault: 'a line of Node.js without fixes',
      system: { versions: { node: '20.20.2' }, now: new Date('2026-11-25') },
      check: 'node',
      status: 'info',
      message: /no fixes since 2026-04-30/,
      remedy: /newer/,
    },
    {
      fault: 'another runtime',
      system: { versions: { node: '22.0.0', bun: '1.2.0' } },
      check: 'node',
      status: 'info',
      message: /bun 1\.2\.0/,
      remedy: /Node\.js/,
    },
    {
      fault: 'optional dependencies left out',
      system: { env: { npm_config_user_agent: 'npm/11.0.0 node/v22.12.0 linux x64', npm_config_omit: 'optional' } },
      check: 'package manager',
      status: 'warning',
      message: /^npm leaves out optional dependencies/,
      remedy: /unset "omit"/,
    },
    {
      fault: 'an apache-arrow that is too old',
      system: { files: { '/project/node_modules/apache-arrow/package.json': '{ "version": "14.0.2" }' } },
      check: 'apache-arrow',
      status: 'error',
      message: /^14\.0\.2 is installed, and warpjoin works with 15 to 21$/,
      remedy: /^run "npm install apache-arrow@21"$/,
    },
    {
      fault: 'an apache-arrow that is too new',
      system: { files: { '/project/node_modules/apache-arrow/package.json': '{ "version": "22.0.0" }' } },
      check: 'apache-arrow',
      status: 'error',
      message: /^22\.0\.0 is installed/,
      remedy: /apache-arrow@21/,
    },
    {
      fault: 'no apache-arrow',
      system: { files: { '/project/node_modules/apache-arrow/package.json': null } },
      check: 'apache-arrow',
      status: 'error',
      message: /not installed/,
      remedy: /npm install apache-arrow/,
    },
    {
      fault: 'two copies of apache-arrow',
      system: { files: { '/project/node_modules/warpjoin/node_modules/apache-arrow/package.json': '{ "version": "18.1.0" }' } },
      check: 'apache-arrow',
      status: 'info',
      message: /two copies: 21\.2\.0 of the project, and 18\.1\.0/,
      remedy: /one version/,
    },
  ]);

  test.each([
    ['Node.js that is new enough', { versions: { node: '20.19.0' }, nodeRange: '^20.19 || >=22.12' }],
    ['a processor that does not tell', { files: { '/proc/cpuinfo': null } }],
    ['arm64', { arch: 'arm64', files: { '/proc/cpuinfo': 'processor : 0\nFeatures : fp asimd\n' } }],
    ['an addon that was built on musl', { glibc: undefined }],
  ] satisfies [string, FakeSystem][])('%s is fine', async (_, system) => {
    expect(problems(await findings(system))).toEqual([]);
  });

  test('nothing tells the package manager', async () => {
    const all = await findings({ files: { '/project/package-lock.json': null } });
    expect(all.find(({ check }) => check === 'package manager')).toMatchObject({
      status: 'info',
      message: expect.stringContaining('none shows'),
    });
  });

  test.each([
    ['pnpm by its agent', { env: { npm_config_user_agent: 'pnpm/9.15.0 npm/? node/v22' } }, 'pnpm 9.15.0'],
    ['yarn by its lock file', { files: { '/project/package-lock.json': null, '/project/yarn.lock': '' } }, 'yarn'],
    [
      'bun by its lock file in a folder above',
      { cwd: '/project/a/b', files: { '/project/package-lock.json': null, '/project/bun.lock': '' } },
      'bun',
    ],
    [
      'pnpm by package.json',
      { files: { '/project/package.json': '{ "packageManager": "pnpm@10.1.0+sha512.ab" }' } },
      'pnpm 10.1.0',
    ],
  ] satisfies [string, FakeSystem, string][])('%s', async (_, system, name) => {
    expect((await findings(system)).find(({ check }) => check === 'package manager')).toMatchObject({
      status: 'ok',
      message: name,
    });
  });
});

describe('addon', () => {
  const gnu = '@warpjoin/linux-x64-gnu';
  testFaults([
    {
      fault: 'its package is missing',
      system: {
        loaded: unloaded(
          ['build/Release/warpjoin.node', "Cannot find module '../build/Release/warpjoin.node'"],
          [gnu, 'not installed'],
        ),
      },
      check: 'addon',
      status: 'error',
      message:
        /^no addon could be loaded \(build\/Release\/warpjoin\.node: Cannot find module .*; @warpjoin\/linux-x64-gnu: not installed\)$/,
      remedy: /^run "npm install @warpjoin\/linux-x64-gnu"$/,
    },
    {
      fault: 'its package is missing, with pnpm',
      system: {
        env: { npm_config_user_agent: 'pnpm/9.15.0 npm/?' },
        arch: 'arm64',
        loaded: unloaded(['@warpjoin/linux-arm64-gnu', 'not installed']),
      },
      check: 'addon',
      status: 'error',
      message: /arm64/,
      remedy: /^run "pnpm add @warpjoin\/linux-arm64-gnu"$/,
    },
    {
      fault: 'its package is missing, with an unknown package manager',
      system: { env: { npm_config_user_agent: 'cnpm/9.4.0 npm/?' }, loaded: unloaded([gnu, 'not installed']) },
      check: 'addon',
      status: 'error',
      message: /not installed/,
      remedy: /^add @warpjoin\/linux-x64-gnu to the project with cnpm$/,
    },
    {
      fault: 'a damaged file',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: file too short']) },
      check: 'addon',
      status: 'error',
      message: /file too short/,
      remedy: /damaged.*remove node_modules/,
    },
    {
      fault: 'a file system that allows no programs',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: failed to map segment from shared object']) },
      check: 'addon',
      status: 'error',
      message: /map segment/,
      remedy: /noexec/,
    },
    {
      fault: 'no permission',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: cannot open shared object file: Permission denied']) },
      check: 'addon',
      status: 'error',
      message: /Permission denied/,
      remedy: /read the file/,
    },
    {
      fault: 'a file for another kind of machine',
      system: { loaded: unloaded([gnu, '/x/warpjoin.node: wrong ELF class: ELFCLASS32']) },
      check: 'addon',
      status: 'error',
      message: /wrong ELF class/,
      remedy: /another kind of machine/,
    },
    {
      fault: 'no libstdc++',
      system: { loaded: unloaded([gnu, 'libstdc++.so.6: cannot open shared object file: No such file or directory']) },
      check: 'addon',
      status: 'error',
      message: /libstdc/,
      remedy: /package libstdc\+\+6/,
    },
    {
      fault: 'no ROCm',
      system: {
        loaded: unloaded([
          '@warpjoin/linux-x64-rocm',
          'libamdhip64.so.6: cannot open shared object file: No such file or directory',
        ]),
      },
      check: 'addon',
      status: 'error',
      message: /libamdhip64/,
      remedy: /install ROCm/,
    },
    {
      fault: 'an addon of another version',
      system: { loaded: { addon: hostAddon({ version: '0.0.9' }), from: gnu } },
      check: 'addon',
      status: 'error',
      message: /^the addon from @warpjoin\/linux-x64-gnu is of version 0\.0\.9, and warpjoin of 0\.1\.0$/,
      remedy: /^run "npm install @warpjoin\/linux-x64-gnu@0\.1\.0"$/,
    },
    {
      fault: 'a build of another version',
      system: { loaded: { addon: hostAddon({ version: '0.0.9' }), from: 'build/Release/warpjoin.node' } },
      check: 'addon',
      status: 'error',
      message: /0\.0\.9/,
      remedy: /npm run build:native/,
    },
    {
      fault: "the GPU's package fails, and the processor's is used",
      system: {
        loaded: {
          tried: [
            { name: '@warpjoin/linux-x64-cuda', reason: 'invalid ELF header' },
            { name: 'x', reason: 'not installed' },
          ],
        },
      },
      check: 'addon',
      status: 'warning',
      message: /^@warpjoin\/linux-x64-cuda was not used: invalid ELF header$/,
      remedy: /damaged/,
    },
    {
      fault: 'it loads, but an engine fails',
      system: { trial: () => Promise.reject(new WarpjoinError('ERR_DEVICE', 'The system gives no thread')) },
      check: 'engine',
      status: 'error',
      message: /fails on the processor: The system gives no thread/,
      remedy: /"memory" and "threads"/,
    },
  ]);
});

describe('GPUs', () => {
  const wsl = { '/proc/sys/kernel/osrelease': '5.15.153.1-microsoft-standard-WSL2\n' };
  const gpuFault = (fault: string, system: FakeSystem, status: Finding['status'], message: RegExp, remedy: RegExp): Fault => ({
    fault,
    system,
    check: 'gpu',
    status,
    message,
    remedy,
  });
  testFaults([
    gpuFault(
      'a GPU, but the addon of the processor',
      { files: NVIDIA },
      'warning',
      /^the addon has no code for GPUs, and there is an NVIDIA GPU$/,
      /^run "npm install @warpjoin\/linux-x64-cuda"$/,
    ),
    gpuFault(
      'a GPU, but the addon of the processor, with yarn',
      { files: { ...NVIDIA, '/project/package-lock.json': null, '/project/yarn.lock': '' } },
      'warning',
      /no code/,
      /^run "yarn add @warpjoin\/linux-x64-cuda"$/,
    ),
    gpuFault(
      'an AMD GPU, but the addon of the processor',
      { files: { ...AMD_CARD, '/dev/kfd': '' } },
      'warning',
      /an AMD GPU/,
      /linux-x64-rocm/,
    ),
    gpuFault(
      'a GPU, but the addon of the processor on arm64',
      { arch: 'arm64', files: NVIDIA },
      'warning',
      /no code/,
      /WARPJOIN_GPU=cuda npm run pack/,
    ),
    gpuFault(
      'the addon of the processor in a container without the GPU',
      { files: { ...NVIDIA_MODULE, ...DOCKER } },
      'warning',
      /not open to this process/,
      /--gpus all.*then run "npm install @warpjoin\/linux-x64-cuda"/,
    ),
    gpuFault(
      'the addon of the processor, and no driver',
      { files: NVIDIA_CARD },
      'warning',
      /not open/,
      /install NVIDIA's driver; then run/,
    ),
    gpuFault(
      'a card without a driver',
      { files: NVIDIA_CARD, loaded: addonOf([], NO_DRIVER) },
      'error',
      /an NVIDIA GPU without a driver/,
      /install NVIDIA's driver/,
    ),
    gpuFault('no card', { loaded: addonOf([], NO_DRIVER) }, 'info', /shows no NVIDIA GPU/, /processor does the work/),
    gpuFault(
      'a Docker container without --gpus',
      { files: { ...NVIDIA_MODULE, ...DOCKER }, loaded: addonOf([], NO_DRIVER) },
      'warning',
      /the kernel has the NVIDIA driver, but no GPU is open to this container/,
      /--gpus all.*Container Toolkit/,
    ),
    gpuFault(
      'a Podman container without the device',
      { files: { ...NVIDIA_MODULE, '/run/.containerenv': '' }, loaded: addonOf([], NO_DRIVER) },
      'warning',
      /this container/,
      /nvidia\.com\/gpu=all/,
    ),
    gpuFault(
      'a pod without GPUs',
      { files: NVIDIA_MODULE, env: { KUBERNETES_SERVICE_HOST: '10.0.0.1' }, loaded: addonOf([], NO_DRIVER) },
      'warning',
      /this container/,
      /nvidia\.com\/gpu: 1.*device plugin/,
    ),
    gpuFault(
      'a container that is told to have none',
      { files: { ...NVIDIA_MODULE, ...DOCKER }, env: { NVIDIA_VISIBLE_DEVICES: 'void' }, loaded: addonOf([], NO_DRIVER) },
      'warning',
      /NVIDIA_VISIBLE_DEVICES is "void"/,
      /"all"/,
    ),
    gpuFault(
      'a container without the compute capability',
      { files: { ...NVIDIA, ...DOCKER }, loaded: addonOf([], NO_DRIVER) },
      'error',
      /libcuda\.so\.1 is missing/,
      /NVIDIA_DRIVER_CAPABILITIES=compute,utility/,
    ),
    gpuFault(
      'a host without libcuda',
      { files: NVIDIA, loaded: addonOf([], NO_DRIVER) },
      'error',
      /libcuda\.so\.1 is missing/,
      /535\.104\.05.*libcuda1/,
    ),
    gpuFault(
      'device files are missing on a host',
      { files: NVIDIA_MODULE, loaded: addonOf([], NO_DRIVER) },
      'warning',
      /open to this process/,
      /nvidia-modprobe/,
    ),
    gpuFault(
      'WSL2 without the driver of Windows',
      { files: wsl, loaded: addonOf([], NO_DRIVER) },
      'error',
      /does not reach WSL/,
      /driver for Windows.*wsl --update/,
    ),
    gpuFault(
      'a driver that is too old',
      { files: NVIDIA, loaded: addonOf([], { ...NO_DRIVER, driverVersion: '12.2' }) },
      'error',
      /^the driver 535\.104\.05 works with CUDA up to 12\.2, and the addon needs CUDA 13\.0$/,
      /^update it to version 580 or later; .*cuda-compat-13-0/,
    ),
    gpuFault(
      'CUDA_VISIBLE_DEVICES that is empty',
      { files: NVIDIA, env: { CUDA_VISIBLE_DEVICES: '' }, loaded: failing('cudaErrorNoDevice') },
      'warning',
      /^CUDA_VISIBLE_DEVICES is "", which leaves no GPU$/,
      /unset it/,
    ),
    gpuFault(
      'CUDA_VISIBLE_DEVICES that names no GPU',
      { files: NVIDIA, env: { CUDA_VISIBLE_DEVICES: '7' }, loaded: failing('cudaErrorNoDevice') },
      'warning',
      /is "7"/,
      /from 0 on/,
    ),
    gpuFault(
      'a driver that finds no GPU',
      { files: NVIDIA, loaded: failing('cudaErrorNoDevice') },
      'error',
      /finds no GPU/,
      /nvidia-smi.*dmesg/,
    ),
    gpuFault(
      'the stub of libcuda',
      { files: NVIDIA, loaded: failing('cudaErrorStubLibrary') },
      'error',
      /stub/,
      /LD_LIBRARY_PATH/,
    ),
    gpuFault(
      'a driver updated without a restart',
      { files: NVIDIA, loaded: failing('cudaErrorSystemDriverMismatch') },
      'error',
      /different versions/,
      /restart/,
    ),
    gpuFault(
      'cuda-compat on another GPU',
      { files: NVIDIA, loaded: failing('cudaErrorCompatNotSupportedOnDevice') },
      'error',
      /cuda-compat/,
      /remove it/,
    ),
    gpuFault(
      'no fabric manager',
      { files: NVIDIA, loaded: failing('cudaErrorSystemNotReady') },
      'error',
      /fabric manager/,
      /nvidia-fabricmanager/,
    ),
    gpuFault(
      'exclusive mode',
      { files: NVIDIA, loaded: failing('cudaErrorDevicesUnavailable') },
      'error',
      /busy/,
      /nvidia-smi -c DEFAULT/,
    ),
    gpuFault(
      'no MPS server',
      { files: NVIDIA, loaded: failing('cudaErrorMpsConnectionFailed') },
      'error',
      /Multi-Process/,
      /nvidia-cuda-mps-control/,
    ),
    gpuFault(
      'an error that is not known',
      { files: NVIDIA, loaded: failing('cudaErrorUnknown', 'unknown error') },
      'error',
      /^the driver fails: unknown error \(cudaErrorUnknown\)$/,
      /nvidia-smi/,
    ),
    gpuFault(
      'a user who may not open AMD GPUs',
      {
        files: { ...AMD_CARD, '/dev/kfd': '' },
        closed: ['/dev/kfd'],
        loaded: addonOf([], { errorName: 'hipErrorNoDevice' }, { backend: 'hip' }),
      },
      'error',
      /may not open \/dev\/kfd/,
      /groups "render" and "video"/,
    ),
    gpuFault(
      'a container without the AMD GPU',
      {
        files: { ...AMD_CARD, ...DOCKER, '/sys/module/amdgpu': '' },
        loaded: addonOf([], { errorName: 'hipErrorNoDevice' }, { backend: 'hip' }),
      },
      'warning',
      /the kernel has the AMD driver/,
      /--device \/dev\/kfd/,
    ),
    gpuFault(
      'a GPU that is older than the code',
      { files: NVIDIA, loaded: addonOf([{ name: 'Tesla V100 0', architecture: '7.0' }]) },
      'error',
      /^the addon has no code for GPU 'Tesla V100 0' \(compute capability 7\.0\): it has code for 7\.5, 8\.0, 9\.0, 12\.0 and later$/,
      /WARPJOIN_CUDA_ARCHITECTURES=70 WARPJOIN_GPU=cuda npm run pack/,
    ),
    gpuFault(
      'one GPU of two that is older than the code',
      { files: NVIDIA, loaded: addonOf([{ name: 'Tesla P100 0', architecture: '6.0' }, {}]) },
      'error',
      /Tesla P100 0/,
      /=60/,
    ),
    gpuFault(
      'PTX that the driver does not know',
      {
        files: NVIDIA,
        loaded: addonOf([{ architecture: '12.1' }], {
          architectures: '120-virtual',
          runtimeVersion: '13.2',
          driverVersion: '13.0',
        }),
      },
      'error',
      /PTX of CUDA 13\.2 for .*, which the driver, of CUDA 13\.0, can't compile/,
      /update the driver/,
    ),
    gpuFault(
      'an AMD GPU without code',
      { loaded: addonOf([{ name: 'MI300X 0', architecture: 'gfx942' }], { architectures: 'gfx90a' }, { backend: 'hip' }) },
      'error',
      /no code for GPU 'MI300X 0' \(gfx942\): it has code for gfx90a$/,
      /WARPJOIN_HIP_ARCHITECTURES=gfx942/,
    ),
    gpuFault(
      'a GPU that was lost',
      { files: NVIDIA, loaded: addonOf([{ failure: "Device 'NVIDIA H200 0' failed earlier: it broke" }]) },
      'error',
      /failed earlier/,
      /restart the process/,
    ),
    {
      fault: 'work on the GPUs fails',
      system: {
        files: NVIDIA,
        loaded: addonOf([{}]),
        trial: trialThat("Device 'NVIDIA H200 0': uncorrectable ECC error (cudaErrorECCUncorrectable)"),
      },
      check: 'gpu engine',
      status: 'error',
      message: /fails on the GPUs: .*ECC/,
      remedy: /nvidia-smi -q/,
    },
    {
      fault: 'others hold the memory',
      system: {
        files: NVIDIA,
        loaded: addonOf([{}]),
        trial: trialThat('out of memory (cudaErrorMemoryAllocation) in cudaMalloc'),
      },
      check: 'gpu engine',
      status: 'error',
      message: /out of memory/,
      remedy: /end other processes/,
    },
    {
      fault: 'too little memory can be pinned',
      system: { files: NVIDIA, loaded: addonOf([{}]), trial: trialThat("Device 'x' can't pin 4 MiB of host memory") },
      check: 'gpu engine',
      status: 'error',
      message: /can't pin/,
      remedy: /ulimit -l/,
    },
    {
      fault: 'no peer access',
      system: { files: NVIDIA, loaded: addonOf([{ peers: [] }, { peers: [] }]), trial: withPeers([[], []]) },
      check: 'gpu engine',
      status: 'info',
      message: /no direct copies from GPU to GPU \(0 to 1, 1 to 0\)/,
      remedy: /NVLink.*topo -p2p/,
    },
    {
      fault: 'peer access that does not work',
      system: { files: NVIDIA, loaded: addonOf([{}, {}, {}]), trial: withPeers([[1, 2], [0], [0, 1]]) },
      check: 'gpu engine',
      status: 'warning',
      message: /do not arrive \(1 to 2\)/,
      remedy: /IOMMU/,
    },
    {
      fault: 'WSL2',
      system: { files: { ...NVIDIA, ...wsl }, loaded: addonOf([{}]) },
      check: 'pinned memory',
      status: 'info',
      message: /WSL2/,
      remedy: /wslconfig/,
    },
    {
      fault: 'little locked memory with ROCm',
      system: {
        files: {
          '/proc/self/limits':
            'Max locked memory         65536     65536     bytes\nMax processes  unlimited  unlimited  processes\n',
        },
        loaded: addonOf([{ architecture: 'gfx90a' }], { architectures: 'gfx90a' }, { backend: 'hip' }),
      },
      check: 'pinned memory',
      status: 'warning',
      message: /locked memory is below 1 GiB/,
      remedy: /memlock=-1/,
    },
  ]);

  function trialThat(message: string) {
    return async (gpus: readonly number[] | 'cpu') => {
      if (gpus === 'cpu') return [];
      throw new WarpjoinError('ERR_DEVICE', message);
    };
  }
  function withPeers(peers: number[][]) {
    return async (gpus: readonly number[] | 'cpu') => (gpus === 'cpu' ? [] : gpuAddon(peers.map((to) => ({ peers: to }))).gpus());
  }

  test('nothing is tried on request', async () => {
    const system = fakeSystem({ files: NVIDIA, loaded: addonOf([{}]), trial: () => expect.fail('an engine was made') });
    const { findings } = await diagnoseSystem(system, { trial: false });
    expect(findings.map(({ check }) => check)).not.toContain('engine');
  });
});

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

describe('diagnose', () => {
  test('finds no error here', async () => {
    const diagnosis = await diagnose();
    expect(diagnosis.findings.filter(({ status }) => status === 'error')).toEqual([]);
    expect(diagnosis.ok).toBe(true);
    for (const check of [
      'platform',
      'processor',
      'libc',
      'node',
      'addon',
      'apache-arrow',
      'gpu',
      'engine',
      'memory',
      'cache directory',
    ]) {
      expect(diagnosis.findings.map((finding) => finding.check)).toContain(check);
    }
  });

  test('a check that fails is a finding', async () => {
    const system = {
      readFile: () => {
        throw new Error('the disk is gone');
      },
      trial: () => {
        throw 'no error at all';
      },
    };
    const diagnosis = await diagnoseSystem({ ...fakeSystem(), ...system });
    expect(diagnosis.findings).toContainEqual({
      check: 'memory',
      status: 'warning',
      message: 'could not be looked at: the disk is gone',
      remedy: expect.any(String),
    });
  });

  test('an addon that throws is none', async () => {
    const addon = () => {
      throw new Error('it throws');
    };
    const { ok, findings } = await diagnoseSystem({ ...fakeSystem(), addon });
    expect(ok).toBe(false);
    expect(findings.find(({ check }) => check === 'addon')).toMatchObject({
      status: 'error',
      message: expect.stringContaining('it throws'),
    });
  });

  test('as text: remedies below, and a sum', () => {
    const diagnosis: Diagnosis = {
      ok: false,
      findings: [
        { check: 'node', status: 'ok', message: 'Node.js 22.12.0' },
        { check: 'addon', status: 'error', message: 'none', remedy: 'install it' },
        { check: 'swap', status: 'warning', message: 'much', remedy: 'less' },
        { check: 'gpu', status: 'warning', message: 'slow', remedy: 'faster' },
      ],
    };
    expect(describeDiagnosis(diagnosis)).toBe(
      [
        'ok       node   Node.js 22.12.0',
        'ERROR    addon  none',
        '                -> install it',
        'WARNING  swap   much',
        '                -> less',
        'WARNING  gpu    slow',
        '                -> faster',
        '',
        '1 error, 2 warnings.',
      ].join('\n'),
    );
    expect(describeDiagnosis({ ok: true, findings: [] })).toBe('\nNo problems found.');
  });

  test('knows what package.json says', () => {
    const { engines, peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(NODE_RANGE).toBe(engines.node);
    expect(`>=${ARROW_RANGE.from} <${ARROW_RANGE.below}`).toBe(peerDependencies['apache-arrow']);
  });
});
