/** Gathering columns in the joint memory of GPUs: where that is possible, and faster than the host's threads. */
import type { Side } from '../native.js';
import { COSTS, milliseconds } from './costs.js';
import { transferSpeeds } from './device-set.js';
import {
  type ColumnStep,
  deviceBudget,
  type GatherStep,
  type PlannedColumn,
  type Resources,
  readEachOther,
  resultBytes,
} from './plan.js';

/** Device memory that gathering these of the result's columns takes, on each of so many devices. */
export type GatherDeviceBytes = (columns: readonly number[], devices: number) => number;

/** What there is to gather: columns of one table, by row numbers that lie in host memory. */
export interface GatherRequest {
  /** Of a join, that the table is; null in a sort. */
  side: Side | null;
  /** Of the result. */
  rows: number;
  tableRows: number;
  /** Bytes a row number. */
  rowBytes: number;
  /** Host memory of the row numbers and what lies there with them. */
  heldBytes: number;
  /** All columns of the result. */
  columns: readonly PlannedColumn[];
}

/**
 * One step that takes the place of those of `steps` that gather, where `ordinals` can take it and it is cheaper, with the
 * memory it takes; or null.
 */
export function gatherStep(
  request: GatherRequest,
  steps: readonly ColumnStep[],
  ordinals: readonly number[],
  deviceBytes: GatherDeviceBytes,
  resources: Resources,
): { step: GatherStep; deviceBytes: number } | null {
  const { side, rows, tableRows, rowBytes, heldBytes, columns } = request;
  const gathered = steps.filter(({ from, column }) => from === 'gathered' && (columns[column]!.stretches ?? null) !== null);
  const devices = resources.devices.filter(({ ordinal }) => ordinals.includes(ordinal));
  if (gathered.length === 0 || !readEachOther(devices)) return null;

  const planned = gathered.map(({ column }) => columns[column]!);
  const [there, home] = [rows * rowBytes + resultBytes(tableRows, planned), resultBytes(rows, planned)];
  const { h2d, d2h } = transferSpeeds(devices, resources.links);
  const copies = planned.reduce((sum, { stretches }) => sum + (stretches ?? 0), 0) / devices.length;
  const start = (1 + planned.length) * COSTS.deviceGather + copies * COSTS.deviceCopy;
  const time = start + (there / h2d + home / d2h) * 1e3;
  if (time >= milliseconds(gathered)) return null;

  // All that is there at the end, and the buffers that bits and transfers go through.
  const hostBytes = heldBytes + resultBytes(rows, columns) + tableRows / 4 + COSTS.leastTransferBytes;
  const indices = gathered.map(({ column }) => column);
  const bytes = deviceBytes(indices, devices.length);
  if (hostBytes > resources.freeBytes || bytes > deviceBudget({ ...resources, devices }, 0)) return null;
  const step: GatherStep = {
    op: 'gather',
    side,
    label: `columns ${planned.map(({ name }) => name).join(', ')} (gather on devices)`,
    columns: indices,
    devices: [...ordinals],
    traffic: { there, home },
    estimate: { rows, bytes: there + home, milliseconds: time },
  };
  return { step, deviceBytes: bytes };
}
