/** Joins of two loaded tables where they lie, from which nothing but what is asked for comes home. */
import { type Input, infoOf, isForDevices } from '../columns/input.js';
import type { KeyPair, ResultColumn } from '../columns/layout.js';
import { checkTableRows } from '../columns/result.js';
import { type TypeInfo, typeName } from '../columns/types.js';
import type { KeyedTables, NativeJoinRequest, ResidentOrigin, Side, TableKeys } from '../native.js';
import type { JoinPlan } from '../plan/join.js';
import { ALL_ROWS, takesAll } from '../plan/order.js';
import { type ColumnOrigin, type PlannedColumn, type Resources, readEachOther } from '../plan/plan.js';
import { planResidentJoin } from '../plan/resident.js';
import type { Call } from './call.js';
import { type Joined, type JoinTask, plannedCoalesced } from './join.js';
import type { Resident } from './load.js';
import { carriedThere, planThere, stayingTable, useThere } from './resident.js';
import { plannedWidth } from './shared.js';

/** A join that runs where its tables lie. */
export interface ResidentJoin {
  tables: KeyedTables;
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
  const pairs = task.keys!;
  const keysOf = (side: Side): TableKeys => {
    const { handle, position } = residentOf(task, side);
    return { table: handle, keys: pairs.map((pair) => position.get(pair[side])!) };
  };
  const nullsEqual = pairs.map((pair) => pair.nullsEqual);
  const keys = call.keep(
    await call.step('encode keys', () => call.native.tableJoinKeys(call.job, keysOf('left'), keysOf('right'), nullsEqual)),
  );
  const unjoined = (reason: string): string => {
    call.free(keys);
    return reason;
  };
  if (keys.bits > keys.mostBits) return unjoined(`the keys take ${keys.bits} bits, more than ${keys.mostBits}`);
  const { settings, want } = task;
  const columns = typeof want === 'string' ? [] : want.columns;
  const gathers = readEachOther(call.resources.devices);
  let layout = takesAll(settings) ? layOut(task, columns, gathers, keys.giveLeft, keys.areColumns) : layOutRows(columns);
  // Keys that are made can be decoded only where the result is made.
  if (!keys.areColumns && !layout.made) layout = layOut(task, columns, gathers, [], false);
  const { payload, from, made } = layout;
  const originOf = ({ source, column }: ResultColumn, index: number): ResidentOrigin => {
    if (from[index] === 'keys') return { from: 'keys', pair: pairs.findIndex((pair) => pair.left === column) };
    const side = source as Side;
    return { from: side, column: from[index] === 'gathered' ? residentOf(task, side).position.get(column)! : null };
  };
  const origins = made ? columns.map(originOf) : null;
  const wants = (side: Side): boolean =>
    want === 'indices' ||
    (want !== 'count' && settings.order === side) ||
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
  const planned = columns.map((column, index): PlannedColumn => {
    const { name, source: side } = column;
    if (side === 'coalesced') return plannedCoalesced(task, column);
    return { name, from: from[index]!, width: plannedWidth(task[side], column.column), side };
  });
  const [leftRows, rightRows, comesHome] = [task.left.rows, task.right.rows, !settings.resident || !made];
  const shape = {
    how: settings.how,
    buildLeft,
    leftRows,
    rightRows,
    columns: planned,
    made,
    comesHome,
    result: want === 'count' ? ALL_ROWS : settings,
  };
  const tables = { keys, payload };
  const joinBytes = call.native.joinTablesDeviceBytes(tables, request);
  const fitting = await planThere(call, (resources) => planResidentJoin(shape, joinBytes, resources));
  return typeof fitting === 'string' ? unjoined(fitting) : { tables, request, origins, planned, ...fitting };
}

/** What rows carry of the result's columns, where these come from, and whether they are made on the devices. */
interface Layout {
  payload: KeyedTables['payload'];
  from: ColumnOrigin[];
  made: boolean;
}

/**
 * `gathers`: whether the devices gather columns, for which they must read each other's memory; `keysGive`: whether keys give the left
 * column of each pair; `asTheyAre`: they are its values, which may come home as they are.
 */
function layOut(
  task: JoinTask,
  columns: readonly ResultColumn[],
  gathers: boolean,
  keysGive: readonly boolean[],
  asTheyAre: boolean,
): Layout {
  const isKey = ({ source, column }: ResultColumn): boolean =>
    task.settings.how === 'inner' &&
    source === 'left' &&
    (keysGive[task.keys!.findIndex((pair) => pair.left === column)] ?? false);
  const others = columns.filter((column) => !isKey(column));
  const payload = { left: carriedOf(task, others, 'left'), right: carriedOf(task, others, 'right') };
  const from = columns.map((column): ColumnOrigin => {
    if (column.source === 'coalesced') return 'coalesced';
    if (isKey(column)) return 'keys';
    return payload[column.source] === null ? 'gathered' : 'payload';
  });
  const stays = task.settings.resident || from.includes('gathered') || (from.includes('keys') && !asTheyAre);
  return { payload, from, made: stays && columns.every((column, index) => isMadeThere(task, column, from[index]!, gathers)) };
}

/** Rows are ordered and cut in host memory, so they have to come there as numbers, and columns are made of them there. */
function layOutRows(columns: readonly ResultColumn[]): Layout {
  const from = columns.map(({ source }): ColumnOrigin => (source === 'coalesced' ? 'coalesced' : 'gathered'));
  return { payload: { left: null, right: null }, from, made: false };
}

const residentOf = (task: JoinTask, side: Side): Resident => task[side].loaded!.resident!;

/** Whether a column of the result can be made on the devices. */
function isMadeThere(task: JoinTask, { source, column }: ResultColumn, from: ColumnOrigin, gathers: boolean): boolean {
  if (source === 'coalesced') return false;
  const { handle, position } = residentOf(task, source);
  return from !== 'gathered' || (gathers && handle.spreadEvenly && position.has(column));
}

/** Why a join of these does not run where they lie, as far as their types and the options say; or null. */
function refusalOf(call: Call, { left, right, keys, settings }: JoinTask): string | null {
  if (call.resources.devices.some(({ kind }) => kind === 'host')) return 'the devices are the processor';
  if (!left.loaded || !right.loaded) return `the ${left.loaded ? 'right' : 'left'} table is not loaded`;
  if (!keys) return 'a cross join has no keys';
  if (settings.algorithm === 'sort-merge') return 'sort-merge was asked for';
  for (const pair of keys) {
    const refusal = refusalOfPair(left, right, pair);
    if (refusal !== null) return refusal;
  }
  return null;
}

/** Why rows are not joined by a pair of columns where they lie, as far as their types say; or null. */
function refusalOfPair(left: Input, right: Input, key: KeyPair): string | null {
  if (!isForDevices(left, key.left) || !isForDevices(right, key.right)) return 'the keys are in host memory alone';
  const [one, other] = [infoOf(left, key.left), infoOf(right, key.right)];
  if (one.order === 'floating' && one.width !== other.width) return 'the keys are floats of two widths';
  const plain = ({ kind, order, width, dictionary }: TypeInfo): boolean =>
    !dictionary &&
    (kind === 'boolean' || (order !== 'none' && order !== 'bytes' && width <= 8 && !(order === 'floating' && width === 2)));
  if (!plain(one) || !plain(other)) return `the keys are ${typeName(one.type)} and ${typeName(other.type)}`;
  const sameUnit = SIDES.every((side) => key.factors[side].pow10 === 0 && key.factors[side].times === 1);
  return sameUnit ? null : 'the keys differ in unit or scale';
}

/** The one of these columns of a side, by its position on the devices, that rows can carry; or null. */
function carriedOf(task: JoinTask, columns: readonly ResultColumn[], side: Side): number | null {
  const moved = columns.filter(({ source }) => source === side);
  if (task.settings.how !== 'inner' || moved.length !== 1) return null;
  return carriedThere(task[side], moved[0]!.column, residentOf(task, side));
}

/** Makes the columns of the result on the devices, where it stays if it is asked to. */
export async function executeResident(
  call: Call,
  task: JoinTask,
  { tables, request, plan }: ResidentJoin,
  origins: ResidentOrigin[],
): Promise<Joined> {
  const { native, job } = call;
  const [join, home] = plan.steps;
  call.follow(plan);
  const made = call.keep(await call.step(join!, () => native.joinTables(job, tables, request, origins)));
  call.free(tables.keys);
  const { rows } = made;
  const inputRows = [task.left.rows, task.right.rows];
  const result = { columns: [], left: null, right: null, table: null, rows };
  if (task.settings.resident) {
    const { columns } = task.want as { columns: ResultColumn[] };
    const table = stayingTable(call, columns, task.left, made);
    return { ...result, table, stats: call.stats(plan, inputRows, rows, made) };
  }
  checkTableRows(rows, 'Join the left table in parts, or leave the result on the GPUs with resident: true.');
  const columns = await call.step(home!, () => native.bringHome(job, made, [...origins.keys()]));
  call.free(made);
  return { ...result, columns, stats: call.stats(plan, inputRows, rows, made) };
}
