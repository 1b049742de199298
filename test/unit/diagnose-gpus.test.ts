/** diagnose() on machines with GPUs: each fault that it looks for is planted, one at a time. */
import { describe, expect, test } from 'vitest';
import { diagnoseSystem, type Finding } from '../../lib/diagnose.js';
import { WarpjoinError } from '../../lib/errors.js';
import { addonOf, type Fault, failing, findings, NO_DRIVER, testFaults } from '../support/diagnosis.js';
import {
  AMD_CARD,
  DOCKER,
  type FakeSystem,
  fakeSystem,
  gpuAddon,
  NVIDIA,
  NVIDIA_CARD,
  NVIDIA_MODULE,
} from '../support/fake-system.js';

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
      'CUDA_VISIBLE_DEVICES that hides some',
      {
        files: {
          ...NVIDIA,
          '/proc/driver/nvidia/gpus/0000:01:00.0/information': '',
          '/proc/driver/nvidia/gpus/0000:02:00.0/information': '',
        },
        env: { CUDA_VISIBLE_DEVICES: '1' },
        loaded: addonOf([{}]),
      },
      'info',
      /^CUDA_VISIBLE_DEVICES is "1": 1 of this machine's 2 GPUs$/,
      /unset it/,
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

  test('pairs without direct copies have the numbers of the GPUs, not those of the engine', async () => {
    const loaded = addonOf([{ architecture: '5.0', peers: [] }, { peers: [] }, { peers: [] }]);
    const all = await findings({ files: NVIDIA, loaded, trial: withPeers([[], []]) });
    expect(all.filter(({ check, status }) => check === 'gpu engine' && status === 'info')).toMatchObject([
      { message: expect.stringContaining('(1 to 2, 2 to 1)') },
    ]);
  });

  test('nothing is tried on request', async () => {
    const system = fakeSystem({ files: NVIDIA, loaded: addonOf([{}]), trial: () => expect.fail('an engine was made') });
    const { findings } = await diagnoseSystem(system, { trial: false });
    expect(findings.map(({ check }) => check)).not.toContain('engine');
  });
});
