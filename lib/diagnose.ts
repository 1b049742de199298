/** What keeps warpjoin, or its GPUs, from working here, and what would help. */
import { makeVector, Table } from 'apache-arrow';
import { addonAttempts, loadAddon } from './addon.js';
import { deviceChecks, trials } from './diagnose/devices.js';
import type { AddonState, Check, Finding, System } from './diagnose/finding.js';
import { resourceChecks } from './diagnose/resources.js';
import { softwareChecks } from './diagnose/software.js';
import { createEngine, type DeviceInfo, defaultMemoryLimit } from './engine.js';
import { messageOf, WarpjoinError } from './errors.js';
import { cacheFolder } from './links.js';
import { machine } from './machine.js';
import { VERSION } from './version.js';

export type { Finding } from './diagnose/finding.js';

export interface Diagnosis {
  /** Whether nothing is an error: warpjoin works here, on the GPUs where there are any that it has been built for. */
  ok: boolean;
  findings: Finding[];
}

export interface DiagnoseOptions {
  /**
   * Whether an engine sorts and joins a few rows on the processor and on all GPUs: the proof that they work. It takes up to some
   * seconds, and some hundred MB of each GPU's memory until the process ends. Default: true.
   */
  trial?: boolean;
}

/** As package.json says; a test compares. */
export const NODE_RANGE = '^20.19.0 || ^22.13.0 || >=24';
export const ARROW_RANGE = { from: 15, below: 22 };

/** The addon as lib/addon.ts finds it. */
function loadedAddon(): AddonState {
  const attempts = addonAttempts();
  const from = attempts.find(({ outcome }) => outcome === 'loaded')?.from;
  const tried = attempts.filter(({ outcome }) => outcome !== 'loaded').map(({ from: name, reason = '' }) => ({ name, reason }));
  return { addon: from === undefined ? undefined : loadAddon(), from, tried };
}

/** Sorts and joins a few rows, and looks at what comes out. */
async function tryDevices(gpus: readonly number[] | 'cpu'): Promise<DeviceInfo[]> {
  const rows = 1 << 14;
  const ids = Int32Array.from({ length: rows }, (_, row) => (row * 7919) % rows); // each number once
  const table = new Table({ id: makeVector(ids) });
  const where = gpus === 'cpu' ? ({ device: 'cpu' } as const) : { devices: [...gpus] };
  const engine = await createEngine({ ...where, memoryLimit: '256MiB', deviceMemoryLimit: '64MiB' });
  try {
    const sorted = await engine.sort(table, { by: 'id' });
    const count = await engine.joinCount(table, table, { on: 'id' });
    const wrong =
      count !== rows ||
      sorted
        .getChild('id')!
        .toArray()
        .some((id, row) => id !== row);
    if (wrong) throw new WarpjoinError('ERR_INTERNAL', 'the result is wrong');
    return engine.devices();
  } finally {
    await engine.dispose();
  }
}

const thisSystem = (): System => ({
  ...machine,
  version: VERSION,
  nodeRange: NODE_RANGE,
  arrowRange: ARROW_RANGE,
  defaultMemoryBytes: defaultMemoryLimit(),
  cacheFolder: cacheFolder(),
  addon: loadedAddon,
  trial: tryDevices,
});

async function resultOf({ name, run }: Check, system: System): Promise<Finding[]> {
  try {
    return (await run(system)).map((found) => ({ check: name, ...found }));
  } catch (cause) {
    const message = `could not be looked at: ${messageOf(cause)}`;
    return [{ check: name, status: 'warning', message, remedy: 'report it, with this output' }];
  }
}

/** @internal diagnose() of another system. */
export async function diagnoseSystem(system: System, { trial = true }: DiagnoseOptions = {}): Promise<Diagnosis> {
  const checks = [...softwareChecks, ...deviceChecks, ...(trial ? trials : []), ...resourceChecks];
  const findings: Finding[] = [];
  for (const check of checks) findings.push(...(await resultOf(check, system)));
  return { ok: findings.every(({ status }) => status !== 'error'), findings };
}

/**
 * Looks at what warpjoin needs: platform, processor, libc, Node.js, packages, the addon, driver and GPUs, memory, threads and
 * folders. Each finding that needs one has a remedy. Never rejects for what it finds, nor where a check fails: that is a
 * finding, too. It reads files of the system, and changes nothing.
 *
 *     const { ok, findings } = await diagnose();
 *     if (!ok) console.error(findings.filter(({ status }) => status === 'error'));
 */
export async function diagnose(options: DiagnoseOptions = {}): Promise<Diagnosis> {
  return diagnoseSystem(thisSystem(), options);
}

const MARKS: Readonly<Record<Finding['status'], string>> = { ok: 'ok', info: 'info', warning: 'WARNING', error: 'ERROR' };

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/**
 * A diagnosis as text: a line for each finding, with its remedy below, and one that sums up. Plain characters, without colours,
 * and without an end of line after the last line.
 */
export function describeDiagnosis({ findings }: Diagnosis): string {
  const width = Math.max(0, ...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, status, message, remedy }) => {
    const line = `${MARKS[status].padEnd(7)}  ${check.padEnd(width)}  ${message}`;
    return remedy ? [line, `${' '.repeat(width + 11)}-> ${remedy}`] : [line];
  });
  const count = (wanted: Finding['status']): number => findings.filter(({ status }) => status === wanted).length;
  const [errors, warnings] = [count('error'), count('warning')];
  const problems = [errors > 0 && counted(errors, 'error'), warnings > 0 && counted(warnings, 'warning')].filter(Boolean);
  return [...lines, '', problems.length > 0 ? `${problems.join(', ')}.` : 'No problems found.'].join('\n');
}
