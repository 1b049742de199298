/** A plan as text. */
import { align } from '../align.js';
import { formatBytes } from '../sizes.js';
import type { Stats } from '../types.js';
import { milliseconds } from './costs.js';
import { deviceChoices, type Plan, type Resources, type Traffic } from './plan.js';

const number = (value: number): string => Math.round(value).toLocaleString('en-US');
const time = (value: number): string => `${value < 10 ? value.toFixed(2) : value.toFixed(value < 1000 ? 1 : 0)} ms`;

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
  measured: Stats | null,
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
  const took = new Map(measured?.steps.map((step) => [step.name, step.milliseconds]));
  const head = ['step', 'rows', 'bytes', 'estimate'];
  const rows = plan.steps.map(({ label, estimate }) => [
    label,
    number(estimate.rows),
    formatBytes(estimate.bytes),
    time(estimate.milliseconds),
  ]);
  const planned = new Set(plan.steps.map((step) => step.label));
  const before = measured?.steps.filter((step) => !planned.has(step.name)).map((step) => [step.name, '', '', '']) ?? [];
  const table = [head, ...before, ...rows, ['total', '', '', time(milliseconds(plan.steps))]];
  if (measured) {
    head.push('measured');
    for (const row of table.slice(1, -1)) row.push(took.has(row[0]!) ? time(took.get(row[0]!)!) : '');
    table.at(-1)!.push(time(measured.milliseconds));
  }
  lines.push(...align(table));
  if (measured) {
    const phases = measured.phases.map(({ name, milliseconds, bytes }) => [name, formatBytes(bytes), time(milliseconds)]);
    if (phases.length > 0) lines.push('', ...align([['phase', 'bytes', 'measured'], ...phases]));
    const moved = (way: 'bytesToDevice' | 'bytesToHost') => measured.devices.reduce((sum, device) => sum + device[way], 0);
    if (moved('bytesToDevice') + moved('bytesToHost') > 0) {
      lines.push('', `moved ${formatBytes(moved('bytesToDevice'))} to the devices, ${formatBytes(moved('bytesToHost'))} home`);
    }
    lines.push(
      '',
      `rows out ${number(measured.outputRows)}, peak memory ${formatBytes(measured.peakMemoryBytes)}, skew ${measured.skew.toFixed(2)}${measured.splitRows ? `, ${number(measured.splitRows)} tuples of heavy keys split` : ''}${measured.spilledRows ? `, ${number(measured.spilledRows)} tuples spilled` : ''}`,
    );
  }
  return `${lines.join('\n')}\n`;
}
