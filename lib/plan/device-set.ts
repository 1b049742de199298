/**
 * Which of the GPUs relations go through. All their links end in the host's memory, so more of them are not always
 * faster.
 */
import type { DeviceDescription, LinkSpeeds } from '../native.js';
import { COSTS } from './costs.js';
import { attempt, type Resources, type Traffic } from './plan.js';

/** Below this all devices are used: measuring the links would take longer than such calls ever could gain. */
export const LEAST_BYTES_FOR_A_CHOICE = 2 ** 26;

export interface DeviceSet {
  /** Ordinals. */
  devices: number[];
  /** What the bytes take over their links, there and back. */
  milliseconds: number;
}

/**
 * The measured sets within `devices` by what the bytes take to them and back home, the fastest first; of equal ones that
 * with fewer devices.
 */
export function deviceSets(traffic: Traffic, devices: readonly DeviceDescription[], links: LinkSpeeds): DeviceSet[] {
  const there = new Set(devices.map((device) => device.ordinal));
  return links.sets
    .filter((set) => set.devices.every((ordinal) => there.has(ordinal)))
    .map(({ devices, h2d, d2h }) => ({ devices, milliseconds: (traffic.there / h2d + traffic.home / d2h) * 1e3 }))
    .sort((a, b) => a.milliseconds - b.milliseconds || a.devices.length - b.devices.length);
}

const time = (milliseconds: number): string => `${milliseconds.toFixed(milliseconds < 10 ? 2 : 1)} ms`;
const counted = (set: DeviceSet): string => `${set.devices.length} ${set.devices.length === 1 ? 'device' : 'devices'}`;

/** Why `chosen` of `sets`: with the fastest set of another size to compare it with. */
function reasonFor(chosen: DeviceSet, sets: readonly DeviceSet[]): string {
  const other = sets.find((set) => set.devices.length !== chosen.devices.length);
  const faster = other && other.milliseconds < chosen.milliseconds ? ' but need more parts' : '';
  const compared = other
    ? `, ${counted(other)} ${other.devices.length === 1 ? 'takes' : 'take'} ${time(other.milliseconds)}${faster}`
    : '';
  return `${time(chosen.milliseconds)} over their links, there and back${compared}`;
}

/**
 * What `plan` makes of the devices whose links are fastest together, of those that need no more `parts` (chunksets, rounds)
 * than all devices would: each part more costs more than the links could win. `plan` is told why it gets its devices, null
 * where there was nothing to choose, and throws ERR_MEMORY_LIMIT where they can't hold what it needs.
 */
export function onBestSet<Made>(
  traffic: Traffic,
  resources: Resources,
  plan: (on: Resources, why: string | null) => Made,
  parts: (made: Made) => number,
): Made {
  const { devices, links } = resources;
  if (links === null || typeof links === 'string') return plan(resources, links);
  const all = plan(resources, null);
  const sets = deviceSets(traffic, devices, links);
  for (const set of sets) {
    const on = devices.filter((device) => set.devices.includes(device.ordinal));
    const [made] = attempt(() => plan({ ...resources, devices: on }, reasonFor(set, sets)));
    if (made && parts(made) <= parts(all)) return made;
  }
  return all;
}

/** The set of just these devices, if its links were measured. */
const setOf = (devices: readonly DeviceDescription[], { sets }: LinkSpeeds): LinkSpeeds['sets'][number] | undefined =>
  sets.find((set) => set.devices.length === devices.length && devices.every(({ ordinal }) => set.devices.includes(ordinal)));

/** Milliseconds that bytes take over the links of devices at least, both ways at the same time; null where these were not measured. */
export function overLinks({ there, home }: Traffic, devices: readonly DeviceDescription[], links: LinkSpeeds): number | null {
  const set = setOf(devices, links);
  return set ? Math.max(there / set.h2d, home / set.d2h, (there + home) / set.both) * 1e3 : null;
}

/**
 * Bytes a second between ordinary memory and the devices, by the measured speeds of their links or the usual one; `both` are
 * those of both directions together.
 */
export function transferSpeeds(
  devices: readonly DeviceDescription[],
  links: LinkSpeeds | string | null,
): { h2d: number; d2h: number; both: number } {
  const same = links === null || typeof links === 'string' ? undefined : setOf(devices, links);
  const usual = COSTS.linkBytesPerSecond * devices.length;
  const reached = (speed: number): number => Math.min(COSTS.transferShare * speed, COSTS.transferBytesPerSecond);
  return { h2d: reached(same?.h2d ?? usual), d2h: reached(same?.d2h ?? usual), both: reached(same?.both ?? usual) };
}
