/**
 * Finds and loads the addon: that of WARPJOIN_ADDON, else of a checkout, else of the packages for this platform. A package for
 * GPUs goes before that for the processor, and what can't be loaded is passed over: addonAttempts() says why.
 */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { elfProblem } from './elf.js';
import { messageOf, WarpjoinError } from './errors.js';
import { type Machine, machine } from './machine.js';
import type { NativeAddon } from './native.js';
import { addCommand, installCommand } from './package-manager.js';
import { finders, packageRoot, pathOf } from './packages.js';
import { below, type Fault, libcFault, processorFault, systemFault } from './platform.js';
import { VERSION } from './version.js';

/** An attempt to load an addon. */
export interface AddonAttempt {
  /** The package, or the path. */
  readonly from: string;
  /** 'missing': it isn't installed. */
  readonly outcome: 'loaded' | 'missing' | 'failed';
  /** Why it wasn't loaded, in one line. */
  readonly reason?: string;
}

/** Packages with an addon for a processor's architecture, in the order in which they are tried. */
export const addonPackages = (architecture: string): readonly string[] =>
  [...(architecture === 'x64' ? ['cuda', 'rocm'] : []), 'gnu'].map((kind) => `@warpjoin/linux-${architecture}-${kind}`);

/** A fault as an error says it. */
const sentences = ({ what, remedy }: Fault) => `${what}. ${remedy[0]!.toUpperCase()}${remedy.slice(1)}.`;

/** Why no addon may be loaded in a process, wherever it is from; null where one may. */
function processProblem(on: Machine): string | null {
  const { node = '' } = on.versions;
  if (below(node, '20.0')) return `warpjoin needs Node.js 20.19 or later, and this is ${node}.`;
  const fault = processorFault(on);
  return fault && sentences(fault);
}

/** Why no package has an addon for a machine, with what would do; null where one has. */
export function platformProblem(on: Machine): string | null {
  const system = systemFault(on);
  if (system) return sentences(system);
  const libc = libcFault(on);
  return processProblem(on) ?? (libc && sentences(libc));
}

function load(path: string, checkVersion: boolean): NativeAddon {
  const loaded = finders()[0]!(path) as NativeAddon;
  if (checkVersion && loaded.version !== VERSION) {
    throw new Error(`it is of version ${loaded.version ?? 'unknown'}, and warpjoin of ${VERSION}`);
  }
  return loaded;
}

/** Why the system refused to load a file, in one line. */
function loadProblem(error: unknown): string {
  const message = messageOf(error);
  if (/GLIBC/.test(message)) return `this system's glibc is older than the addon needs: ${message}`;
  if (/invalid ELF header|file too short|cannot read file data|ELF load command|not a valid/.test(message)) {
    return `the file is damaged: ${message}`;
  }
  return message;
}

function attempt(from: string, path: string | undefined, checkVersion: boolean): AddonAttempt & { addon?: NativeAddon } {
  if (path === undefined) return { from, outcome: 'missing', reason: 'not installed' };
  if (!existsSync(path)) return { from, outcome: 'failed', reason: 'there is no such file' };
  const damage = elfProblem(path); // a file that is cut off would end the process
  if (damage) return { from, outcome: 'failed', reason: damage };
  try {
    return { from, outcome: 'loaded', addon: load(path, checkVersion) };
  } catch (error) {
    return { from, outcome: 'failed', reason: loadProblem(error) };
  }
}

let attempts: readonly AddonAttempt[] | undefined;
let addon: NativeAddon | undefined;

/** Where an addon was looked for, up to the one that was loaded. */
export function addonAttempts(): readonly AddonAttempt[] {
  if (!attempts) {
    try {
      loadAddon();
    } catch {
      // the attempts say why
    }
  }
  return attempts ?? [];
}

/** Loads the addon once. Throws ERR_NATIVE_MISSING, with what was tried and what would do, where there is none for this process. */
export function loadAddon(): NativeAddon {
  addon ??= find();
  return addon;
}

function find(): NativeAddon {
  const chosen = process.env.WARPJOIN_ADDON;
  const checkout = packageRoot && fileURLToPath(new URL('build/Release/warpjoin.node', packageRoot));
  const places = function* () {
    if (chosen) {
      yield { from: `WARPJOIN_ADDON=${chosen}`, path: resolve(chosen), checkVersion: false };
      return;
    }
    if (checkout && existsSync(checkout)) yield { from: checkout, path: checkout, checkVersion: false };
    for (const from of addonPackages(process.arch)) yield { from, path: pathOf(from), checkVersion: true };
  };
  const made: AddonAttempt[] = [];
  attempts = made;
  const problem = processProblem(machine);
  if (problem) throw new WarpjoinError('ERR_NATIVE_MISSING', problem);
  for (const { from, path, checkVersion } of places()) {
    const { addon: loaded, ...what } = attempt(from, path, checkVersion);
    made.push(what);
    if (loaded) return loaded;
  }
  throw new WarpjoinError('ERR_NATIVE_MISSING', missingMessage(made, machine));
}

/** What an error says where no addon could be loaded. */
export function missingMessage(made: readonly AddonAttempt[], on: Machine, bundled = !packageRoot): string {
  // An addon of this machine's own is for any platform: then its fault counts.
  const problem = made.some(({ from }) => !from.startsWith('@')) ? null : platformProblem(on);
  if (problem) return problem;
  const tried = made.map(({ from, reason }) => `${from}: ${reason}`).join('; ');
  return `warpjoin found no addon for this process (${tried}). ${remedy(made, on, bundled)}`;
}

function remedy(made: readonly AddonAttempt[], on: Machine, bundled: boolean): string {
  const path = made.find(({ from }) => !from.startsWith('@'));
  if (path)
    return path.from.startsWith('WARPJOIN_ADDON')
      ? 'Correct WARPJOIN_ADDON, or unset it.'
      : 'Build it anew with "npm run setup".';
  const failed = made.find(({ outcome }) => outcome === 'failed');
  if (failed) return `To replace it, ${addCommand(on, `${failed.from}@${VERSION}`)}.`;
  if (bundled) {
    return 'Leave warpjoin out of the bundle (esbuild: --external:warpjoin; webpack: externals; Next.js: serverExternalPackages), or set WARPJOIN_ADDON to the path of its warpjoin.node.';
  }
  const usual = `@warpjoin/linux-${on.arch}-gnu@${VERSION}`;
  return `Run "${installCommand(on)}"; where optional dependencies are left out, ${addCommand(on, usual)}.`;
}
