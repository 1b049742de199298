/** Checks of the GPUs, and of whether engines work. */
import { messageOf } from '../errors.js';
import { type Gpus, gpusOf } from '../gpus.js';
import { isWsl, nvidiaDriver, processLimit, type Vendor } from '../machine.js';
import type { NativeAddon } from '../native.js';
import { type Check, error, type Found, info, ok, type System, warning } from './finding.js';
import { stateOf } from './software.js';

/** What a check does with the addon and its GPUs; nothing where there is no addon, which has its own check. */
function withGpus(run: (gpus: Gpus, addon: NativeAddon, system: System) => Found[] | Promise<Found[]>): Check['run'] {
  return (system) => {
    const { addon } = stateOf(system);
    return addon ? run(gpusOf(addon, system), addon, system) : [];
  };
}

const driver: Check = {
  name: 'driver',
  run: withGpus((_, addon, system) => {
    if (addon.backend === 'none') return [];
    const { runtimeVersion, driverVersion } = addon.gpuSupport();
    if (driverVersion === '') return []; // 'gpu' says why
    const vendor: Vendor = addon.backend === 'hip' ? 'amd' : 'nvidia';
    const name = vendor === 'nvidia' ? `NVIDIA ${nvidiaDriver(system) ?? ''}`.trim() : 'AMD';
    const platform = vendor === 'nvidia' ? 'CUDA' : 'ROCm';
    return [ok(`${name}, ${platform} ${driverVersion}; the addon has ${platform} ${runtimeVersion}`)];
  }),
};

const gpu: Check = {
  name: 'gpu',
  run: withGpus(({ usable, refused, problem }, addon, system) => {
    const found: Found[] = [];
    const counts = new Map<string, number>();
    for (const { name, architecture } of usable) {
      const kind = `${name.replace(/ \d+$/, '')}${architecture ? ` (${architecture})` : ''}`;
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    if (usable.length > 0) found.push(ok([...counts].map(([kind, count]) => `${count} x ${kind}`).join(', ')));
    const hiding = system.env.CUDA_VISIBLE_DEVICES;
    const installed = system.list('/proc/driver/nvidia/gpus').length;
    const visible = usable.length + refused.length;
    if (addon.backend === 'cuda' && hiding !== undefined && visible > 0 && visible < installed) {
      found.push(
        info(`CUDA_VISIBLE_DEVICES is "${hiding}": ${visible} of this machine's ${installed} GPUs`, 'unset it to use all'),
      );
    }
    for (const { problem } of refused) found.push(error(problem.why, problem.remedy || 'restart the process'));
    if (problem && refused.length === 0) {
      const { why, remedy, cause } = problem;
      if (cause === 'none') found.push(info(why, remedy));
      else if (cause === 'withheld' || addon.backend === 'none') found.push(warning(why, remedy));
      else found.push(error(why, remedy));
    }
    return found;
  }),
};

const trialOnProcessor: Check = {
  name: 'engine',
  async run(system) {
    if (!stateOf(system).addon) return [];
    try {
      await system.trial('cpu');
      return [ok('joins and sorts on the processor')];
    } catch (cause) {
      return [
        error(
          `a join of a few rows fails on the processor: ${messageOf(cause)}`,
          'see "memory" and "threads"; report it otherwise, with this output',
        ),
      ];
    }
  },
};

const trialOnGpus: Check = {
  name: 'gpu engine',
  run: withGpus(async ({ usable }, addon, system) => {
    if (usable.length === 0 || addon.backend === 'none') return [];
    const ordinals = usable.map(({ ordinal }) => ordinal);
    try {
      const devices = await system.trial(ordinals);
      return [
        ok(`joins and sorts on ${ordinals.length === 1 ? 'the GPU' : `all ${ordinals.length} GPUs`}`),
        ...peers(devices, usable, system),
      ];
    } catch (cause) {
      const message = messageOf(cause);
      return [error(`a join of a few rows fails on the GPUs: ${message}`, remedyOf(message, system))];
    }
  }),
};

/** What would help where work on GPUs fails. */
function remedyOf(message: string, system: System): string {
  if (/can't pin/.test(message)) {
    return isWsl(system)
      ? 'WSL2 gives little pinned memory: raise "memory" in .wslconfig, or lower memoryLimit'
      : 'raise the memory limit of the container and "ulimit -l", or lower memoryLimit';
  }
  if (/MemoryAllocation|OutOfMemory|out of memory/i.test(message))
    return 'end other processes that hold memory of the GPUs ("nvidia-smi" lists them), or lower deviceMemoryLimit';
  return 'see whether the GPU works elsewhere ("nvidia-smi -q" and "dmesg" tell of errors), and use device "cpu" until then';
}

/** GPUs that do not copy to each other directly. */
function peers(devices: readonly { ordinal: number; peers: number[] }[], claimed: Gpus['usable'], system: System): Found[] {
  if (devices.length < 2) return [];
  // An engine numbers its devices anew: in the order of the GPUs that it was asked for.
  const pairs = devices.flatMap(({ ordinal, peers }, index) =>
    devices.flatMap((other, to) => {
      if (other.ordinal === ordinal || peers.includes(other.ordinal)) return [];
      const [from, target] = [claimed[index]!, claimed[to]!];
      return [{ from: from.ordinal, to: target.ordinal, claims: from.peers.includes(target.ordinal) }];
    }),
  );
  if (pairs.length === 0) return [ok('GPUs copy to each other directly')];
  const names = pairs.slice(0, 4).map(({ from, to }) => `${from} to ${to}`);
  const list = `${names.join(', ')}${pairs.length > names.length ? ' and others' : ''}`;
  const through = 'copies between them go through host memory, and some joins and sorts are slower';
  if (pairs.some(({ claims }) => claims)) {
    const remedy =
      'switch off the IOMMU or ACS for these GPUs in the BIOS or by "iommu=pt"; on NVSwitch machines start the fabric manager';
    return [warning(`the driver claims direct copies that do not arrive (${list}): ${through}`, remedy)];
  }
  const remedy = isWsl(system)
    ? 'WSL2 has no peer access: run on Linux itself'
    : 'use GPUs with NVLink or under one PCIe root ("nvidia-smi topo -p2p r" shows which), named by devices: [0, 1]; GPUs for desktops have no peer access';
  return [info(`no direct copies from GPU to GPU (${list}): ${through}`, remedy)];
}

const pinned: Check = {
  name: 'pinned memory',
  run: withGpus(({ usable }, addon, system) => {
    if (usable.length === 0 || addon.backend === 'none') return [];
    if (isWsl(system)) {
      return [
        info(
          'WSL2 limits the memory that GPUs copy directly',
          'raise "memory" in %UserProfile%\\.wslconfig where a call says that it can\'t pin memory',
        ),
      ];
    }
    const limit = processLimit(system, 'Max locked memory');
    // NVIDIA's driver pins memory by itself, whatever the limit of the process is.
    if (addon.backend === 'hip' && limit < 2 ** 30) {
      return [
        warning(
          'the limit of locked memory is below 1 GiB',
          'run "ulimit -l unlimited", or start the container with "--ulimit memlock=-1"',
        ),
      ];
    }
    return [];
  }),
};

export const deviceChecks: readonly Check[] = [driver, gpu, pinned];
export const trials: readonly Check[] = [trialOnProcessor, trialOnGpus];
