/** Which GPUs an engine can use; where it can't, why, and what would help: one wording for errors, `devices` and diagnose(). */
import { containerOf, isWsl, type Machine, machine, nvidiaDriver, tracesOf, type Vendor } from './machine.js';
import type { GpuDescription, GpuSupport, NativeAddon } from './native.js';
import { addCommand } from './package-manager.js';

/** Why GPUs are not used. */
export interface GpuProblem {
  /** A clause for messages: "the NVIDIA driver 535.104.05 is too old for the addon's CUDA 13.0". */
  why: string;
  /** A clause of what to do: "update the driver to version 580 or later"; '' where `why` says it. */
  remedy: string;
  /** 'none': the machine shows no GPU; 'withheld': others decided that the process gets none; 'broken': something must be repaired. */
  cause: 'none' | 'withheld' | 'broken';
}

export interface RefusedGpu {
  gpu: GpuDescription;
  problem: GpuProblem;
}

/** The GPUs of an addon: those it can use, those it can't, and why there are none at all. */
export interface Gpus {
  usable: GpuDescription[];
  refused: RefusedGpu[];
  /** Where none is usable. */
  problem: GpuProblem | undefined;
}

/** The packages with addons for GPUs. */
export const GPU_PACKAGES: Readonly<Record<Vendor, string>> = {
  nvidia: '@warpjoin/linux-x64-cuda',
  amd: '@warpjoin/linux-x64-rocm',
};

const VENDORS: Readonly<Record<Vendor, string>> = { nvidia: "NVIDIA's", amd: "AMD's" };

/** "why; remedy", as a message ends. */
export const describeProblem = ({ why, remedy }: GpuProblem): string => (remedy ? `${why}; ${remedy}` : why);

/** What brings an addon for a vendor's GPUs. */
function installRemedy(vendor: Vendor, from: Machine): string {
  if (from.arch === 'x64') return addCommand(from, GPU_PACKAGES[vendor]);
  const backend = vendor === 'nvidia' ? 'cuda' : 'hip';
  return `build warpjoin on this machine, in a checkout of it: "WARPJOIN_GPU=${backend} npm run pack"`;
}

/** How the process gets GPUs where the host has them. */
function passRemedy(vendor: Vendor, from: Machine): string {
  const container = containerOf(from);
  const nvidia = vendor === 'nvidia';
  switch (container) {
    case 'kubernetes':
      return `ask for GPUs in the pod: "resources: { limits: { ${nvidia ? 'nvidia.com' : 'amd.com'}/gpu: 1 } }"; the node needs ${VENDORS[vendor]} device plugin`;
    case 'podman':
    case 'docker':
    case 'other':
      if (!nvidia) return 'start the container with "--device /dev/kfd --device /dev/dri --group-add video --group-add render"';
      return container === 'podman'
        ? 'start the container with "--device nvidia.com/gpu=all"; the host needs the NVIDIA Container Toolkit'
        : 'start the container with "--gpus all"; the host needs the NVIDIA Container Toolkit';
    case undefined:
      return nvidia
        ? 'make the driver\'s device files: run "nvidia-smi" or "nvidia-modprobe -u -c=0" as root'
        : 'load the driver: run "modprobe amdgpu" as root';
  }
}

const driverPlace = (from: Machine): string => (containerOf(from) ? ' on the host' : '');

/** The first driver that a CUDA version works with, by its major number: NVIDIA's table of CUDA Compatibility. */
const DRIVERS: Readonly<Record<string, string>> = { 11: '450', 12: '525', 13: '580' };

/** What NVIDIA's errors other than "no driver", "too old" and "no device" mean, and what to do. */
const CUDA_ERRORS: Readonly<Record<string, { why: string; remedy: string }>> = {
  cudaErrorStubLibrary: {
    why: 'the libcuda.so that was found is the stub that programs are linked with, not the driver',
    remedy: 'take the CUDA toolkit\'s folder "stubs" out of LD_LIBRARY_PATH',
  },
  cudaErrorSystemDriverMismatch: {
    why: "NVIDIA's kernel module and libcuda.so.1 have different versions",
    remedy:
      'restart the machine after an update of the driver; in a container, take out the driver or cuda-compat that is in the image',
  },
  cudaErrorCompatNotSupportedOnDevice: {
    why: 'the cuda-compat package works on data-centre GPUs only',
    remedy: 'remove it from the image or from LD_LIBRARY_PATH, and update the driver',
  },
  cudaErrorSystemNotReady: {
    why: 'the GPUs wait for the fabric manager of their NVSwitches',
    remedy: 'run "systemctl start nvidia-fabricmanager" on the host; its version must be that of the driver',
  },
  cudaErrorDevicesUnavailable: {
    why: 'the GPUs are busy: another process has them in exclusive mode',
    remedy: 'end that process ("nvidia-smi" lists it), or run "nvidia-smi -c DEFAULT" as root',
  },
  cudaErrorMpsConnectionFailed: {
    why: 'the server of the CUDA Multi-Process Service does not answer',
    remedy: 'start it with "nvidia-cuda-mps-control -d", or unset CUDA_MPS_PIPE_DIRECTORY',
  },
};

const UNKNOWN_REMEDY: Readonly<Record<Vendor, string>> = {
  nvidia: 'see whether "nvidia-smi" works here, and restart the machine or the container where it does not',
  amd: 'see whether "rocminfo" works here, and restart the machine or the container where it does not',
};

const broken = (why: string, remedy: string): GpuProblem => ({ why, remedy, cause: 'broken' });
const withheld = (why: string, remedy: string): GpuProblem => ({ why, remedy, cause: 'withheld' });

/** The variable that hides all GPUs from the process, or some. */
function hidingVariable(vendor: Vendor, { env }: Machine): string | undefined {
  const names =
    vendor === 'nvidia' ? ['CUDA_VISIBLE_DEVICES'] : ['HIP_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES'];
  return names.find((name) => env[name] !== undefined);
}

/** Why the addon of a processor has no GPUs. */
function withoutCode(from: Machine): GpuProblem {
  for (const vendor of ['nvidia', 'amd'] as const) {
    const { deviceFiles, module, card } = tracesOf(vendor, from);
    const of = vendor === 'nvidia' ? 'an NVIDIA GPU' : 'an AMD GPU';
    if (deviceFiles) return broken(`the addon has no code for GPUs, and there is ${of}`, installRemedy(vendor, from));
    if (card || module) {
      const first = module ? passRemedy(vendor, from) : `install ${VENDORS[vendor]} driver${driverPlace(from)}`;
      return withheld(
        `the addon has no code for GPUs, and ${of} is not open to this process`,
        `${first}; then ${installRemedy(vendor, from)}`,
      );
    }
  }
  const packages = Object.values(GPU_PACKAGES).join(' or ');
  const remedy = from.arch === 'x64' ? `on a machine with GPUs, add ${packages}` : 'on a machine with GPUs, build warpjoin there';
  return { why: 'the addon has no code for GPUs, and this machine shows none', remedy, cause: 'none' };
}

/** Why there is no driver. */
function withoutDriver(vendor: Vendor, from: Machine): GpuProblem {
  const { deviceFiles, module, card } = tracesOf(vendor, from);
  const brand = vendor === 'nvidia' ? 'NVIDIA' : 'AMD';
  if (from.env.NVIDIA_VISIBLE_DEVICES && /^(void|none)$/.test(from.env.NVIDIA_VISIBLE_DEVICES) && (module || card)) {
    const { NVIDIA_VISIBLE_DEVICES: value } = from.env;
    return withheld(`NVIDIA_VISIBLE_DEVICES is "${value}"`, 'set it to "all" where the container is started');
  }
  if (vendor === 'nvidia' && isWsl(from)) {
    const remedy =
      'install NVIDIA\'s driver for Windows, none within WSL, then run "wsl --update" and "wsl --shutdown" in Windows';
    return broken("Windows' NVIDIA driver does not reach WSL", remedy);
  }
  if (deviceFiles && vendor === 'nvidia') {
    const why = 'the NVIDIA GPU has its device files, but libcuda.so.1 is missing';
    return containerOf(from)
      ? broken(why, 'start the container with "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility"')
      : broken(
          why,
          `install the driver's library, of version ${nvidiaDriver(from) ?? 'the kernel module'}: the package is libcuda1 or libnvidia-compute`,
        );
  }
  if (module) {
    const why = `the kernel has the ${brand} driver, but no GPU is open to this ${containerOf(from) ? 'container' : 'process'}`;
    return withheld(why, passRemedy(vendor, from));
  }
  if (card) return broken(`there is an ${brand} GPU without a driver`, `install ${VENDORS[vendor]} driver${driverPlace(from)}`);
  return {
    why: `this machine shows no ${brand} GPU`,
    remedy: containerOf(from)
      ? passRemedy(vendor, from)
      : 'none is needed on a machine without GPUs: the processor does the work',
    cause: 'none',
  };
}

/** Why the runtime lists no GPUs. */
function withoutDevices(vendor: Vendor, support: GpuSupport, from: Machine): GpuProblem {
  const { runtimeVersion, driverVersion, errorName, error } = support;
  const [major] = runtimeVersion.split('.');
  if (driverVersion === '') return withoutDriver(vendor, from);
  if (/ErrorInsufficientDriver$/.test(errorName)) {
    const known = nvidiaDriver(from);
    const least = DRIVERS[major ?? ''];
    const platform = vendor === 'nvidia' ? 'CUDA' : 'ROCm';
    const why = `the driver${known && vendor === 'nvidia' ? ` ${known}` : ''} works with ${platform} up to ${driverVersion}, and the addon needs ${platform} ${runtimeVersion}`;
    const version = least && vendor === 'nvidia' ? ` to version ${least} or later` : '';
    const compat =
      vendor === 'nvidia' ? `; on data-centre GPUs the package cuda-compat-${runtimeVersion.replace('.', '-')} does, too` : '';
    return broken(why, `update it${version}${driverPlace(from)}${compat}`);
  }
  const hiding = hidingVariable(vendor, from);
  if (/ErrorNoDevice$|ErrorInvalidDevice$/.test(errorName) || errorName === '') {
    if (hiding)
      return withheld(`${hiding} is "${from.env[hiding]}", which leaves no GPU`, 'unset it, or name GPUs that exist, from 0 on');
    const { deviceFiles, module, card } = tracesOf(vendor, from);
    if (vendor === 'amd' && deviceFiles && !from.canAccess('/dev/kfd', 'read-write'))
      return broken('this user may not open /dev/kfd', 'add the user to the groups "render" and "video", and log in again');
    if (!deviceFiles) return withoutDriver(vendor, from);
    if (module || card) {
      const why = `the driver finds no GPU that it can use (${errorName})`;
      return broken(why, `${UNKNOWN_REMEDY[vendor]}; "dmesg" says what the driver met`);
    }
    return withoutDriver(vendor, from);
  }
  const meaning = CUDA_ERRORS[errorName];
  const named = `${error} (${errorName})`;
  return meaning
    ? broken(`${meaning.why}: ${named}`, meaning.remedy)
    : broken(`the driver fails: ${named}`, UNKNOWN_REMEDY[vendor]);
}

interface Code {
  major: number;
  minor: number;
  /** 'a': for this very architecture; 'f': for its family; '': for later ones, too. */
  only: string;
  machine: boolean;
  ptx: boolean;
}

/** '75-real' has machine code, '75-virtual' PTX, which the driver compiles for later GPUs, and '75' both. undefined: other names. */
function codeOf(architecture: string): Code | undefined {
  const match = /^(\d+)(\d)([af]?)(-real|-virtual)?$/.exec(architecture);
  if (!match) return undefined;
  const [, major, minor, only, kind] = match;
  return { major: Number(major), minor: Number(minor), only: only!, machine: kind !== '-virtual', ptx: kind !== '-real' };
}

/** How the addon has code for an architecture: machine code, PTX, none. */
export function codeFor(architecture: string, architectures: string): 'machine' | 'ptx' | 'none' {
  const built = architectures.split(',').filter(Boolean);
  const capability = /^(\d+)\.(\d+)$/.exec(architecture);
  // Names of AMD's architectures are the whole story; features follow a colon.
  if (!capability) return architecture === '' || built.some((one) => one.split(':')[0] === architecture) ? 'machine' : 'none';
  const major = Number(capability[1]);
  const minor = Number(capability[2]);
  let found: 'ptx' | 'none' = 'none';
  for (const code of built.map(codeOf)) {
    if (!code) return 'machine'; // "all", "native"
    const same = code.major === major && (code.only === 'a' ? code.minor === minor : code.minor <= minor);
    if (same && code.machine) return 'machine';
    const later = code.major < major || (code.major === major && code.minor <= minor);
    if (code.ptx && (code.only ? same : later)) found = 'ptx';
  }
  return found;
}

/** "7.5, 8.0 and later" of '75-real,80'. */
export function describeArchitectures(architectures: string): string {
  const built = architectures.split(',').filter(Boolean);
  const names = built.map((one) => {
    const code = codeOf(one);
    return code ? `${code.major}.${code.minor}${code.only}` : one;
  });
  const open = built.some((one) => {
    const code = codeOf(one);
    return code?.ptx && !code.only;
  });
  const list = [...new Set(names)].join(', ');
  return open ? `${list} and later` : list;
}

const versionNumber = (version: string): number => {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major * 100 + minor;
};

/** Why the addon can't use a GPU that works. */
function refusal(gpu: GpuDescription, vendor: Vendor, support: GpuSupport): GpuProblem | undefined {
  const { architectures, runtimeVersion, driverVersion } = support;
  const code = codeFor(gpu.architecture, architectures);
  const nvidia = vendor === 'nvidia';
  const what = `GPU '${gpu.name}' (${nvidia ? 'compute capability ' : ''}${gpu.architecture})`;
  const variable = nvidia ? 'WARPJOIN_CUDA_ARCHITECTURES' : 'WARPJOIN_HIP_ARCHITECTURES';
  const wanted = nvidia ? gpu.architecture.replace('.', '') : gpu.architecture;
  const build = `build the addon for it, in a checkout of warpjoin: "${variable}=${wanted} WARPJOIN_GPU=${nvidia ? 'cuda' : 'hip'} npm run pack"`;
  if (code === 'none') {
    const has = describeArchitectures(architectures);
    return broken(`the addon has no code for ${what}: it has code for ${has}`, build);
  }
  if (code === 'ptx' && versionNumber(driverVersion) < versionNumber(runtimeVersion)) {
    const why = `the addon has PTX of CUDA ${runtimeVersion} for ${what}, which the driver, of CUDA ${driverVersion}, can't compile`;
    return broken(why, `update the driver, or ${build}`);
  }
  return undefined;
}

/** The GPUs that the process may use, as far as `addon` can. Reads files of `from` only where there are none. */
export function gpusOf(addon: NativeAddon, from: Machine = machine): Gpus {
  const { backend } = addon;
  const there = addon.gpus();
  const support = addon.gpuSupport();
  const vendor = backend === 'hip' ? 'amd' : 'nvidia';
  const gpus: Gpus = { usable: [], refused: [], problem: undefined };
  for (const gpu of there) {
    const problem = gpu.failure === null ? refusal(gpu, vendor, support) : broken(gpu.failure, '');
    if (problem) gpus.refused.push({ gpu, problem });
    else gpus.usable.push(gpu);
  }
  if (gpus.usable.length > 0) return gpus;
  if (gpus.refused[0]) gpus.problem = gpus.refused[0].problem;
  else gpus.problem = backend === 'none' ? withoutCode(from) : withoutDevices(vendor, support, from);
  return gpus;
}
