/** What the checks of diagnose() are made of. */
import type { DeviceInfo } from '../engine.js';
import type { Machine } from '../machine.js';
import type { NativeAddon } from '../native.js';

/** What a check found. */
export interface Finding {
  /** What was looked at: 'addon', 'gpu', 'memory'. */
  check: string;
  /** 'info': nothing is wrong, but good to know; 'warning': works, slower or with less than there could be; 'error': does not work. */
  status: 'ok' | 'info' | 'warning' | 'error';
  /** One sentence. */
  message: string;
  /** What to do; absent where there is nothing to do. */
  remedy?: string;
}

/** A finding before it has its check's name. */
export type Found = Omit<Finding, 'check'>;

/** Where an addon was looked for in vain: a file or a package, and why it was not used. */
export interface Candidate {
  name: string;
  reason: string;
}

/** The addon, or why there is none. */
export interface AddonState {
  addon: NativeAddon | undefined;
  /** The file or package that it was loaded from. */
  from: string | undefined;
  /** What was tried before, or in vain. */
  tried: Candidate[];
}

/** The machine, and warpjoin on it. */
export interface System extends Machine {
  /** Version of the package, and the range of Node.js that it needs: '>=20.17'. */
  readonly version: string;
  readonly nodeRange: string;
  /** The versions of apache-arrow that the package works with. */
  readonly arrowRange: { from: number; below: number };
  /** Bytes of host memory that an engine takes where no limit is asked for. */
  readonly defaultMemoryBytes: number;
  /** Where the speeds of links are kept. */
  readonly cacheFolder: string;
  /** Loads the addon, once. Not called on processors that it can't run on. */
  addon(): AddonState;
  /** Sorts and joins a few rows on the processor, or on these GPUs: the devices of the engine. Rejects where that fails. */
  trial(gpus: readonly number[] | 'cpu'): Promise<DeviceInfo[]>;
}

/** Looks at one thing. */
export interface Check {
  name: string;
  run(system: System): Found[] | Promise<Found[]>;
}

export const ok = (message: string): Found => ({ status: 'ok', message });
export const info = (message: string, remedy?: string): Found => ({ status: 'info', message, ...(remedy && { remedy }) });
export const warning = (message: string, remedy: string): Found => ({ status: 'warning', message, remedy });
export const error = (message: string, remedy: string): Found => ({ status: 'error', message, remedy });
