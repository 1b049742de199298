/** Plans of joins of loaded tables where they lie. */
import type { Input } from '../columns/input.js';
import { infoOf } from '../columns/input.js';
import type { ResultColumn } from '../columns/layout.js';
import type { JoinKind } from '../options.js';
import { formatBytes } from '../sizes.js';
import { COSTS } from './costs.js';
import { transferSpeeds } from './device-set.js';
import { expectedRows, type JoinPlan } from './join.js';
import type { Resources } from './plan.js';

/** A join of loaded tables. */
export interface ResidentShape {
  how: JoinKind;
  buildLeft: boolean;
  left: Input;
  right: Input;
  /** Of the result; none where rows are counted or numbered. */
  columns: readonly ResultColumn[];
  /** Whether the result is made on the devices as a whole; else its rows go home as they are found. */
  stays: boolean;
  comesHome: boolean;
}

/** Resident memory is allocated in steps of up to an eighth. */
const ALLOCATION_STEP = 1.125;

/** The plan; or why there is none: the devices lack the memory for what the join takes, `joinBytes`, and a result that stays. */
export function planResidentJoin(shape: ResidentShape, joinBytes: number, resources: Resources): JoinPlan | string {
  const { how, buildLeft, left, right, columns, stays, comesHome } = shape;
  const { devices, links } = resources;
  const rows = expectedRows(how, left.rows, right.rows);
  const width = ({ source, column }: ResultColumn): number => {
    const { kind, width } = infoOf(source === 'right' ? right : left, column);
    return kind === 'boolean' ? 1 / 8 : width;
  };
  const resultBytes = Math.ceil(columns.reduce((bytes, column) => bytes + rows * width(column), 0));
  const needed = joinBytes + (stays ? Math.ceil((ALLOCATION_STEP * resultBytes) / devices.length) : 0);
  const free = Math.min(...devices.map(({ limitBytes }) => limitBytes));
  if (needed > free)
    return `joining where they lie takes ${formatBytes(needed)} on each device, which has ${formatBytes(free)} left`;
  const keyBytes = 8 * (left.rows + right.rows);
  const seconds = (COSTS.gpuHashJoinPasses * 2 * keyBytes) / COSTS.gpuPassBytesPerSecond / devices.length;
  const bringing = (resultBytes / transferSpeeds(devices, links).d2h) * 1e3;
  const apart = stays && comesHome;
  const steps: JoinPlan['steps'] = [
    {
      op: 'residentJoin',
      label: `hash join of loaded tables, build ${buildLeft ? 'left' : 'right'}`,
      estimate: {
        rows: left.rows + right.rows,
        bytes: keyBytes,
        milliseconds: seconds * 1e3 + (comesHome && !apart ? bringing : 0),
      },
    },
  ];
  if (apart) steps.push({ op: 'bringHome', label: 'bring home', estimate: { rows, bytes: resultBytes, milliseconds: bringing } });
  return {
    algorithm: 'radix-hash',
    reason: 'what runs on loaded tables where they lie',
    chunksets: 1,
    rounds: 1,
    hostBytes: comesHome ? resultBytes : 0,
    deviceBytes: needed,
    steps,
    inOrder: [],
    loaded: { inputs: ['left', 'right'], reason: 'joined where they lie' },
  };
}
