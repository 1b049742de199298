/** A plan as text. */
import { align } from '../align.js';
import type { LinkSpeeds } from '../native.js';
import { formatBytes } from '../sizes.js';
import type { Stats } from '../types.js';
import { milliseconds } from './costs.js';
import { overLinks } from './device-set.js';
import { deviceChoices, type Plan, type Resources, type Traffic } from './plan.js';

const number = (value: number): string => Math.round(value).toLocaleString('en-US');
const time = (value: number): string => `${value < 10 ? value.toFixed(2) : value.toFixed(value < 1000 ? 1 : 0)} ms`;

/** A plan that has run. */
export interface Measured {
  stats: Stats;
  /** The speeds of the links, or why they are not known; null without GPUs. */
  links: LinkSpeeds | string | null;
}

/** What crossed the links, and what that takes at least by their speeds; null where nothing did. */
function describeMoved({ stats, links }: Measured, { steps }: Plan, { devices }: Resources): string | null {
  const moved = (way: 'bytesToDevice' | 'bytesToHost') => stats.devices.reduce((sum, device) => sum + device[way], 0);
  const [there, home] = [moved('bytesToDevice'), moved('bytesToHost')];
  if (there + home === 0) return null;
  const said = `moved ${formatBytes(there)} to the devices, ${formatBytes(home)} home`;
  const used = devices.filter((_, index) => stats.devices[index]!.bytesToDevice + stats.devices[index]!.bytesToHost > 0);
  const milliseconds = typeof links === 'object' && links && overLinks({ there, home }, used, links);
  if (!milliseconds) return said;
  const moving = new Set(steps.filter((step) => 'devices' in step).map(({ label }) => label));
  const took = stats.steps.reduce((sum, { name, milliseconds }) => sum + (moving.has(name) ? milliseconds : 0), 0);
  const ratio = took > 0 ? `; its steps took ${(took / milliseconds).toFixed(2)} times that` : '';
  return `${said}: at least ${time(milliseconds)} over the links${ratio}`;
}

/** What the plan moves over the links; null where one of its steps on devices does not know. */
function trafficOf({ steps }: Plan): Traffic | null {
  const moving = steps.filter((step) => 'devices' in step);
  if (moving.length === 0 || moving.some(({ traffic }) => !traffic)) return null;
  const sum = (way: keyof Traffic): number => moving.reduce((bytes, { traffic }) => bytes + traffic![way], 0);
  return { there: sum('there'), home: sum('home') };
}

/**
 * The plan of `what`, line by line: choices, limits and steps; with `measured` also what each step took. `deviceReason` says why
 * it runs on these devices, `keys` how a join's keys were made.
 */
export function explain(
  what: string,
  plan: Plan,
  resources: Resources,
  deviceReason: string,
  measured: Measured | null,
  keys: string | null = null,
): string {
  const { devices, threads, memoryLimitBytes } = resources;
  const lines = [
    `${what}: ${plan.algorithm}`,
    `  reason   ${plan.reason}`,
    `  devices  ${devices.map((device) => `${device.ordinal} ${device.name} (${formatBytes(device.limitBytes)})`).join(', ')}; ${threads} host threads`,
    `           ${deviceReason}`,
    `  memory   at least ${formatBytes(plan.hostBytes)} of ${formatBytes(memoryLimitBytes)} on the host, ${formatBytes(plan.deviceBytes)} on each device`,
    `  parts    ${plan.chunksets} ${plan.chunksets === 1 ? 'chunkset' : 'chunksets'}, ${plan.rounds} ${plan.rounds === 1 ? 'round' : 'rounds'}`,
    '',
  ];
  if (keys !== null) lines.splice(-1, 0, `  keys     ${keys}`);
  const moves = trafficOf(plan);
  if (moves) lines.splice(-1, 0, `  moves    ${formatBytes(moves.there)} to the devices, ${formatBytes(moves.home)} home`);
  if (plan.inOrder.length > 0) lines.splice(-1, 0, `  order    not sorted, as they are in order: ${plan.inOrder.join(', ')}`);
  if (plan.loaded) {
    const { inputs, reason } = plan.loaded;
    lines.splice(-1, 0, `  loaded   ${inputs.length > 0 ? `${inputs.join(', ')}: ` : ''}${reason}`);
  }
  for (const { step, devices: chosen, reason } of deviceChoices(plan)) {
    const some = chosen.length < devices.length ? `devices ${chosen.join(', ')}` : 'all devices';
    lines.splice(-1, 0, `  links    ${step} on ${some}: ${reason}`);
  }
  const took = new Map(measured?.stats.steps.map((step) => [step.name, step.milliseconds]));
  const head = ['step', 'rows', 'bytes', 'estimate'];
  const rows = plan.steps.map(({ label, estimate }) => [
    label,
    number(estimate.rows),
    formatBytes(estimate.bytes),
    time(estimate.milliseconds),
  ]);
  const planned = new Set(plan.steps.map((step) => step.label));
  const before = measured?.stats.steps.filter((step) => !planned.has(step.name)).map((step) => [step.name, '', '', '']) ?? [];
  const table = [head, ...before, ...rows, ['total', '', '', time(milliseconds(plan.steps))]];
  if (measured) {
    head.push('measured');
    for (const row of table.slice(1, -1)) row.push(took.has(row[0]!) ? time(took.get(row[0]!)!) : '');
    table.at(-1)!.push(time(measured.stats.milliseconds));
  }
  lines.push(...align(table));
  if (measured) {
    const { stats } = measured;
    const phases = stats.phases.map(({ name, milliseconds, bytes }) => [name, formatBytes(bytes), time(milliseconds)]);
    if (phases.length > 0) lines.push('', ...align([['phase', 'bytes', 'measured'], ...phases]));
    const moved = describeMoved(measured, plan, resources);
    lines.push(
      '',
      ...(moved ? [moved] : []),
      `rows out ${number(stats.outputRows)}, peak memory ${formatBytes(stats.peakMemoryBytes)}, skew ${stats.skew.toFixed(2)}${stats.splitRows ? `, ${number(stats.splitRows)} tuples of heavy keys split` : ''}${stats.spilledRows ? `, ${number(stats.spilledRows)} tuples spilled` : ''}`,
    );
  }
  return `${lines.join('\n')}\n`;
}
