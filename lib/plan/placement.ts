/** Whether a call is worth the GPUs: starting work on them takes longer than small calls take the processor. */
import type { DeviceDescription } from '../native.js';
import { COSTS } from './costs.js';
import { transferSpeeds } from './device-set.js';
import type { Traffic } from './plan.js';

/**
 * What only devices do in a call, as far as it is known before its keys are encoded: they count as 8 bytes, and what travels with
 * them as 4. Encoding and gathering take the host as long, wherever the rest runs.
 */
export interface Work extends Traffic {
  /** On the processor. */
  milliseconds: number;
}

const time = (milliseconds: number): string => `${milliseconds.toFixed(2)} ms`;

/** Why the processor rather than `gpus`; null where these are faster. */
export function whyProcessor(work: Work, gpus: readonly DeviceDescription[]): string | null {
  const { h2d, d2h } = transferSpeeds(gpus, null);
  const onGpus = COSTS.gpuCall + COSTS.gpuCallEach * gpus.length + (work.there / h2d + work.home / d2h) * 1e3;
  if (onGpus <= work.milliseconds) return null;
  return `device 'auto': the processor takes ${time(work.milliseconds)}, GPUs ${time(onGpus)} at least`;
}
