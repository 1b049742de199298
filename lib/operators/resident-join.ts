/** Joins of two loaded tables where they lie: their key columns are the keys, and nothing but what is asked for comes home. */
import { infoOf } from '../columns/input.js';
import type { ResultColumn } from '../columns/layout.js';
import { checkTableRows } from '../columns/result.js';
import type { KeyedTable, NativeJoinRequest, ResidentOrigin, Side } from '../native.js';
import type { JoinPlan } from '../plan/join.js';
import type { ColumnOrigin, PlannedColumn, Resources } from '../plan/plan.js';
import { planResidentJoin } from '../plan/resident.js';
import { quote } from '../suggest.js';
import type { Call } from './call.js';
import type { Joined, JoinTask } from './join.js';
import type { Resident } from './load.js';
import { carriedThere, isKeyThere, planThere, stayingTable, useThere } from './resident.js';
import { plannedWidth } from './shared.js';

/** A join that runs where its tables lie. */
export interface ResidentJoin {
  left: KeyedTable;
  right: KeyedTable;
  request: NativeJoinRequest;
  /** How the columns of a result are made that is made on the devices; null: its rows come home, and its columns are made there. */
  origins: ResidentOrigin[] | null;
  planned: PlannedColumn[];
  plan: JoinPlan;
  resources: Resources;
}

const SIDES = ['left', 'right'] as const;

/** How a join runs where its tables lie, or why it does not; null where neither of them is loaded. */
export async function prepareResident(call: Call, task: JoinTask): Promise<ResidentJoin | string | null> {
  if (!task.left.loaded && !task.right.loaded) return null;
  const refusal = refusalOf(call, task);
  if (refusal !== null) return refusal;
  for (const side of SIDES) {
    if (!(await useThere(call, task[side].loaded!))) return `the ${side} table was evicted, and there is no room for it`;
  }
  for (const side of SIDES) {
    const key = task.keys![side];
    const { handle, position } = residentOf(task, side);
    if (handle.nullable[position.get(key)!]) return `key ${quote(task[side].columns[key]!.name)} of the ${side} table has nulls`;
  }
  const { settings, want } = task;
  const columns = typeof want === 'string' ? [] : want.columns;
  const carried = { left: carriedOf(task, columns, 'left'), right: carriedOf(task, columns, 'right') };
  const from = columns.map((column): ColumnOrigin => {
    if (column.source === 'coalesced') return 'coalesced';
    if (isLeftKey(task, column)) return 'keys';
    return carried[column.source] === null ? 'gathered' : 'payload';
  });
  const stays = settings.resident || from.includes('gathered');
  const made = stays && columns.every((column, index) => isMadeThere(task, column, from[index]!));
  const originOf = ({ source, column }: ResultColumn, index: number): ResidentOrigin => {
    if (from[index] === 'keys') return { from: 'keys' };
    const side = source as Side;
    return { from: side, column: from[index] === 'gathered' ? residentOf(task, side).position.get(column)! : null };
  };
  const origins = made ? columns.map(originOf) : null;
  const wants = (side: Side): boolean =>
    want === 'indices' ||
    columns.some(({ source }, index) => from[index] !== 'keys' && (source === side || source === 'coalesced'));
  const buildLeft = settings.buildSide === 'auto' ? task.left.rows <= task.right.rows : settings.buildSide === 'left';
  const request: NativeJoinRequest = {
    kind: settings.how as NativeJoinRequest['kind'],
    buildLeft,
    countOnly: want === 'count',
    wantKeys: from.includes('keys'),
    wantLeft: wants('left'),
    wantRight: wants('right') && settings.how !== 'semi' && settings.how !== 'anti',
    maxRows: settings.maxOutputRows,
  };
  const sideOf = (side: Side): KeyedTable => {
    const { handle, position } = residentOf(task, side);
    return { table: handle, key: position.get(task.keys![side])!, payload: carried[side] };
  };
  const [left, right] = [sideOf('left'), sideOf('right')];
  const planned = columns.map(({ name, source, column }, index): PlannedColumn => {
    const side = source === 'coalesced' ? null : source;
    return { name, from: from[index]!, width: plannedWidth(task[side ?? 'left'], column), side };
  });
  const [leftRows, rightRows, comesHome] = [task.left.rows, task.right.rows, !settings.resident || !made];
  const shape = { how: settings.how, buildLeft, leftRows, rightRows, columns: planned, made, comesHome };
  const joinBytes = call.native.joinTablesDeviceBytes(left, right, request);
  const fitting = await planThere(call, (resources) => planResidentJoin(shape, joinBytes, resources));
  return typeof fitting === 'string' ? fitting : { left, right, request, origins, planned, ...fitting };
}

const residentOf = (task: JoinTask, side: Side): Resident => task[side].loaded!.resident!;

/** Whether it is the left key of an inner join, which rows carry. */
const isLeftKey = ({ keys, settings }: JoinTask, { source, column }: ResultColumn): boolean =>
  settings.how === 'inner' && source === 'left' && column === keys!.left;

/** Whether a column of the result can be made on the devices. */
function isMadeThere(task: JoinTask, { source, column }: ResultColumn, from: ColumnOrigin): boolean {
  if (source === 'coalesced') return false;
  const { handle, position } = residentOf(task, source);
  return from !== 'gathered' || (handle.spreadEvenly && position.has(column));
}

/** Why a join of these does not run where they lie, as far as their types and the options say; or null. */
function refusalOf(call: Call, { left, right, keys, settings }: JoinTask): string | null {
  if (call.resources.devices.some(({ kind }) => kind === 'host')) return 'the devices are the processor';
  if (!left.loaded || !right.loaded) return `the ${left.loaded ? 'right' : 'left'} table is not loaded`;
  if (!keys) return 'a cross join has no keys';
  if (settings.algorithm === 'sort-merge') return 'sort-merge was asked for';
  const [one, other] = [infoOf(left, keys.left), infoOf(right, keys.right)];
  const same = one.order === other.order && one.width === other.width;
  return isKeyThere(left, keys.left) && same ? null : 'the keys are not integers of 4 or 8 bytes of one type';
}

/** The one column of a side, by its position on the devices, that rows can carry; or null. */
function carriedOf(task: JoinTask, columns: readonly ResultColumn[], side: Side): number | null {
  const moved = columns.filter((column) => column.source === side && !isLeftKey(task, column));
  if (task.settings.how !== 'inner' || moved.length !== 1) return null;
  return carriedThere(task[side], moved[0]!.column, residentOf(task, side));
}

/** Makes the columns of the result on the devices, where it stays if it is asked to. */
export async function executeResident(
  call: Call,
  task: JoinTask,
  { left, right, request, plan }: ResidentJoin,
  origins: ResidentOrigin[],
): Promise<Joined> {
  const { native, job } = call;
  const [join, home] = plan.steps;
  call.follow(plan);
  const made = call.keep(await call.step(join!, () => native.joinTables(job, left, right, request, origins)));
  const { rows } = made;
  const inputRows = [task.left.rows, task.right.rows];
  const result = { columns: [], left: null, right: null, table: null, rows };
  if (task.settings.resident) {
    const { columns } = task.want as { columns: ResultColumn[] };
    const table = stayingTable(call, columns, task.left.metadata, made);
    return { ...result, table, stats: call.stats(plan, inputRows, rows, made) };
  }
  checkTableRows(rows);
  const columns = await call.step(home!, () => native.bringHome(job, made, [...origins.keys()]));
  call.free(made);
  return { ...result, columns, stats: call.stats(plan, inputRows, rows, made) };
}
