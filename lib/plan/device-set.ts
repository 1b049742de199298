/**
 * Which of the GPUs a relation goes through. All their links end in the host's memory, so more of them are not always
 * faster.
 */
import type { DeviceDescription, LinkSpeeds } from '../native.js';
import { COSTS } from './costs.js';

/** Below this all devices are used: measuring the links would take longer than such calls ever could gain. */
export const LEAST_BYTES_FOR_A_CHOICE = 2 ** 26;

export interface DeviceSet {
  /** Ordinals. */
  devices: number[];
  /** What the relation takes over their links, there and back. */
  milliseconds: number;
}

/**
 * The measured sets within `devices` by what `bytes` take to them and back home, the fastest first; of equal ones that
 * with fewer devices.
 */
export function deviceSets(bytes: number, devices: readonly DeviceDescription[], links: LinkSpeeds): DeviceSet[] {
  const there = new Set(devices.map((device) => device.ordinal));
  return links.sets
    .filter((set) => set.devices.every((ordinal) => there.has(ordinal)))
    .map(({ devices, h2d, d2h }) => ({ devices, milliseconds: (bytes / h2d + bytes / d2h) * 1e3 }))
    .sort((a, b) => a.milliseconds - b.milliseconds || a.devices.length - b.devices.length);
}

const time = (milliseconds: number): string => `${milliseconds.toFixed(milliseconds < 10 ? 2 : 1)} ms`;
const counted = (set: DeviceSet): string => `${set.devices.length} ${set.devices.length === 1 ? 'device' : 'devices'}`;

/** Why `chosen` of `sets`: with the fastest set of another size to compare it with. */
export function reasonFor(chosen: DeviceSet, sets: readonly DeviceSet[]): string {
  const other = sets.find((set) => set.devices.length !== chosen.devices.length);
  const faster = other && other.milliseconds < chosen.milliseconds ? ' but need more chunksets' : '';
  const compared = other
    ? `, ${counted(other)} ${other.devices.length === 1 ? 'takes' : 'take'} ${time(other.milliseconds)}${faster}`
    : '';
  return `${time(chosen.milliseconds)} over their links, there and back${compared}`;
}

/**
 * Bytes a second between ordinary memory and the devices, by the measured speeds of their links or the usual one; `both` are
 * those of both directions together.
 */
export function transferSpeeds(
  devices: readonly DeviceDescription[],
  links: LinkSpeeds | string | null,
): { h2d: number; d2h: number; both: number } {
  const measured = links === null || typeof links === 'string' ? [] : links.sets;
  const same = measured.find(
    (set) => set.devices.length === devices.length && devices.every(({ ordinal }) => set.devices.includes(ordinal)),
  );
  const usual = COSTS.linkBytesPerSecond * devices.length;
  const reached = (speed: number): number => Math.min(COSTS.transferShare * speed, COSTS.transferBytesPerSecond);
  return { h2d: reached(same?.h2d ?? usual), d2h: reached(same?.d2h ?? usual), both: reached(same?.both ?? usual) };
}
