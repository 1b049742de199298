/** Devices and their links as text. */
import { align } from '../align.js';
import type { DeviceInfo, LinkSpeeds, MeasuredLinks } from '../index.js';
import { formatBytes } from '../sizes.js';

export function describeDevice({ kind, ordinal, name, memoryBytes, limitBytes, peers }: DeviceInfo): string {
  const reach = peers.length > 0 ? `, copies directly to ${peers.join(', ')}` : '';
  return `${kind} ${ordinal}: ${name}, ${formatBytes(memoryBytes)} of memory, of which warpjoin uses up to ${formatBytes(limitBytes)}${reach}`;
}

/** GB/s, with a decimal where it says something. */
const speed = (bytesPerSecond: number): string => {
  const value = bytesPerSecond / 1e9;
  return value.toFixed(value < 100 ? 1 : 0);
};

/** `0`, `0, 1` or, for more devices in a row, `0 to 7`. */
function devicesOf({ devices }: LinkSpeeds['sets'][number]): string {
  const first = devices[0]!;
  const row = devices.length > 2 && devices.every((ordinal, index) => ordinal === first + index);
  return row ? `${first} to ${devices.at(-1)}` : devices.join(', ');
}

/** The tables of the links: what they carry alone and together, and from GPU to GPU. */
export function describeLinks({ measuredAt, sets, peers }: MeasuredLinks): string {
  const time = new Date(measuredAt).toISOString().replace('T', ' ').slice(0, 16);
  const host = [
    ['GPUs', 'to them', 'to host', 'both at once'],
    ...sets.map((set) => [devicesOf(set), speed(set.h2d), speed(set.d2h), speed(set.both)]),
  ];
  const lines = [`Links between host and GPUs in GB/s, measured on ${time} UTC ("--measure" measures anew):`, ...align(host)];
  if (peers.length > 0) {
    const ordinals = [...new Set(peers.map((pair) => pair.from))];
    const pair = (from: number, to: number) => peers.find((one) => one.from === from && one.to === to);
    const cell = (from: number, to: number): string => {
      const known = pair(from, to);
      return known ? speed(known.speed) : '-';
    };
    const matrix = [
      ['from', ...ordinals.map((to) => `to ${to}`)],
      ...ordinals.map((from) => [String(from), ...ordinals.map((to) => cell(from, to))]),
    ];
    lines.push('', 'Copies from GPU to GPU in GB/s, one pair at a time:', ...align(matrix));
  }
  return lines.join('\n');
}
