/** What of a machine keeps the addons from running, and what would do: errors and diagnose() say it in the same words. */
import { type Machine, missingInstructions } from './machine.js';

/** A sentence and a clause, without full stops: messages put them together. */
export interface Fault {
  readonly what: string;
  readonly remedy: string;
}

/** The least glibc that the packages need. */
export const LEAST_GLIBC = '2.28';
const FROM_SOURCE = 'build warpjoin from source ("npm run pack" in a checkout)';
const ARCHITECTURES = ['x64', 'arm64'];
const REMEDIES: Readonly<Record<string, string>> = {
  win32: 'use it within WSL2 ("wsl --install"), with Node.js installed there',
  darwin: 'use it in a Linux container or virtual machine: "docker run --rm -it node:22-slim"',
};

/** Whether a version, of which the first two numbers count, comes before another. */
export function below(version: string, least: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [leastMajor = 0, leastMinor = 0] = least.split('.').map(Number);
  return major < leastMajor || (major === leastMajor && minor < leastMinor);
}

export function systemFault({ platform, arch }: Machine): Fault | null {
  if (platform !== 'linux') {
    return { what: `warpjoin runs on Linux, and this is ${platform}`, remedy: REMEDIES[platform] ?? 'use it on Linux' };
  }
  if (ARCHITECTURES.includes(arch)) return null;
  return {
    what: `warpjoin has packages for ${ARCHITECTURES.join(' and ')}, and this Node.js is for ${arch}`,
    remedy: `use another Node.js, or ${FROM_SOURCE}`,
  };
}

/** Without AVX2 the addon would end the process. */
export function processorFault(machine: Machine): Fault | null {
  const missing = missingInstructions(machine);
  if (missing.length === 0) return null;
  return {
    what: `warpjoin needs a processor with AVX2 (x86-64-v3, 2013 and later), and this one lacks ${missing.join(', ')}`,
    remedy:
      'use another machine; in a virtual machine, give it the instructions of the host ("-cpu host" in QEMU, type "host" in Proxmox)',
  };
}

export function libcFault({ glibc }: Machine): Fault | null {
  if (glibc === undefined) {
    return {
      what: "warpjoin's packages need glibc, and this Node.js uses another C library, such as musl on Alpine",
      remedy: `use an image with glibc (node:22-slim in place of node:22-alpine), or ${FROM_SOURCE}`,
    };
  }
  if (!below(glibc, LEAST_GLIBC)) return null;
  return {
    what: `warpjoin's packages need glibc ${LEAST_GLIBC} or later, and this system has ${glibc}`,
    remedy: `use a newer system or image (node:22-slim), or ${FROM_SOURCE}`,
  };
}
