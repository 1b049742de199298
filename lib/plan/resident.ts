/** Plans of joins and sorts of loaded tables where they lie. */
import type { JoinKind } from '../options.js';
import { formatBytes } from '../sizes.js';
import { COSTS, gpuPassSeconds } from './costs.js';
import { transferSpeeds } from './device-set.js';
import { expectedRows, type JoinPlan } from './join.js';
import { checkHostBytes } from './memory.js';
import { type ResultRows, rowsTaken, takingSteps } from './order.js';
import type { PlannedColumn, Resources } from './plan.js';
import { columnStep, type SortPlan } from './sort.js';

/** A join of tables on the devices: loaded ones, or such as are lent to the devices for the call. */
export interface ResidentShape {
  how: JoinKind;
  buildLeft: boolean;
  leftRows: number;
  rightRows: number;
  /** Of the result; none where rows are counted or numbered. */
  columns: readonly PlannedColumn[];
  /** Whether the result's columns are made on the devices; else rows go home as they are found, and columns are made there. */
  made: boolean;
  comesHome: boolean;
  result: ResultRows;
  lent: boolean;
}

/** Device memory a row of ordering a join's rows at most: the numbers twice, keys of both, and the sort's own. */
const ORDER_ROW_BYTES = 56;

/** Resident memory is allocated in steps of up to an eighth. */
const ALLOCATION_STEP = 1.125;

/** The plan; or why there is none: the devices lack the memory for what the join takes, `joinBytes`, and a result made there. */
export function planResidentJoin(shape: ResidentShape, joinBytes: number, resources: Resources): JoinPlan | string {
  const { how, buildLeft, leftRows, rightRows, columns, made, comesHome, lent } = shape;
  const order = made ? shape.result.order : null;
  const { devices, links, threads } = resources;
  const found = expectedRows(how, leftRows, rightRows);
  const rows = rowsTaken(shape.result, found);
  const resultBytes = Math.ceil(columns.reduce((bytes, { width }) => bytes + rows * width, 0));
  const madeBytes = (made ? ALLOCATION_STEP * resultBytes : 0) + (order ? found * ORDER_ROW_BYTES : 0);
  const needed = joinBytes + Math.ceil(madeBytes / devices.length);
  const free = Math.min(...devices.map(({ limitBytes }) => limitBytes));
  if (needed > free)
    return `joining where they lie takes ${formatBytes(needed)} on each device, which has ${formatBytes(free)} left`;

  const keyBytes = 8 * (leftRows + rightRows);
  const passes = gpuPassSeconds(COSTS.gpuHashJoinPasses, keyBytes, devices.length);
  const home = comesHome ? resultBytes / transferSpeeds(devices, links).d2h : 0;
  const seconds = passes + (made ? 0 : home);
  const join = {
    op: 'residentJoin' as const,
    label: `hash join of ${lent ? 'tables on the devices' : 'loaded tables'}, build ${buildLeft ? 'left' : 'right'}${order ? `, in the order of ${order} rows` : ''}`,
    estimate: { rows: leftRows + rightRows, bytes: keyBytes, milliseconds: seconds * 1e3 },
  };
  const estimate = { rows, bytes: resultBytes, milliseconds: home * 1e3 };
  const after: JoinPlan['steps'] = made
    ? comesHome
      ? [{ op: 'bringHome', label: 'bring home', estimate }]
      : []
    : [
        ...takingSteps(shape.result, found, 8, threads),
        ...columns.map((column, index) => columnStep(column, index, rows, threads, tableRows(shape, column))),
      ];
  const fromHost = columns.filter(({ from }) => !made && (from === 'gathered' || from === 'coalesced'));
  const but =
    fromHost.length > 0 ? `, but for columns that come from host memory: ${fromHost.map(({ name }) => name).join(', ')}` : '';
  return {
    algorithm: 'radix-hash',
    reason: lent ? 'the devices make keys and order rows sooner than the host' : 'what runs on loaded tables where they lie',
    chunksets: 1,
    rounds: 1,
    hostBytes: comesHome ? resultBytes : 0,
    deviceBytes: needed,
    steps: [join, ...after],
    inOrder: [],
    loaded: lent ? undefined : { inputs: ['left', 'right'], reason: `joined where they lie${but}` },
  };
}

const tableRows = ({ leftRows, rightRows }: ResidentShape, { side }: PlannedColumn): number =>
  side === 'right' ? rightRows : leftRows;

/** A sort of a loaded table. */
export interface ResidentSortShape {
  rows: number;
  resultRows: number;
  keyBytes: number;
  /** Of the result. */
  columns: readonly PlannedColumn[];
  comesHome: boolean;
}

/**
 * The plan; or why there is none: the devices lack the memory for what the sort and its result take, `deviceBytes`. Throws
 * ERR_MEMORY_LIMIT, naming the limit, where the result does not fit in host memory.
 */
export function planResidentSort(shape: ResidentSortShape, deviceBytes: number, resources: Resources): SortPlan | string {
  const { rows, resultRows, keyBytes, columns, comesHome } = shape;
  const { devices, links } = resources;
  const free = Math.min(...devices.map(({ limitBytes }) => limitBytes));
  if (deviceBytes > free)
    return `sorting where it lies takes ${formatBytes(deviceBytes)} on each device, which has ${formatBytes(free)} left`;
  const resultBytes = Math.ceil(columns.reduce((bytes, { width }) => bytes + resultRows * width, 0));
  if (comesHome) checkHostBytes(`The result of ${resultRows} rows`, resultBytes, resources);
  const tupleBytes = rows * (keyBytes + (columns.some(({ from }) => from !== 'keys') ? 8 : 0));
  // A pass for each byte of the keys, and one that partitions them for the devices; or one over the keys, of which few are sorted.
  const few = resultRows < rows / 4;
  const sorted = few
    ? gpuPassSeconds(1, rows * keyBytes, devices.length)
    : gpuPassSeconds(keyBytes + (devices.length > 1 ? 1 : 0), tupleBytes, devices.length);
  const home = comesHome ? resultBytes / transferSpeeds(devices, links).d2h : 0;
  const sort = { op: 'residentSort' as const, label: 'sort of a loaded table' };
  const bringHome = { op: 'bringHome' as const, label: 'bring home' };
  return {
    algorithm: devices.length > 1 ? 'sample' : 'radix',
    reason: 'what runs on loaded tables where they lie',
    chunksets: 1,
    rounds: 1,
    hostBytes: comesHome ? resultBytes : 0,
    deviceBytes,
    steps: [
      { ...sort, estimate: { rows, bytes: 2 * tupleBytes, milliseconds: sorted * 1e3 } },
      ...(comesHome ? [{ ...bringHome, estimate: { rows: resultRows, bytes: resultBytes, milliseconds: home * 1e3 } }] : []),
    ],
    inOrder: [],
    loaded: { inputs: ['input'], reason: 'sorted where it lies' },
  };
}
