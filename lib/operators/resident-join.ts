/** Joins of two loaded tables where they lie, from which nothing but what is asked for comes home. */
import { infoOf, isForDevices } from '../columns/input.js';
import type { ResultColumn } from '../columns/layout.js';
import { checkTableRows } from '../columns/result.js';
import type { KeyedTables, NativeJoinRequest, ResidentOrigin, Side, TableKey } from '../native.js';
import type { JoinPlan } from '../plan/join.js';
import type { ColumnOrigin, PlannedColumn, Resources } from '../plan/plan.js';
import { planResidentJoin } from '../plan/resident.js';
import type { Call } from './call.js';
import type { Joined, JoinTask } from './join.js';
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
  const keyOf = (side: Side): TableKey => {
    const { handle, position } = residentOf(task, side);
    return { table: handle, key: position.get(task.keys![0]![side])! };
  };
  const keys = call.keep(
    await call.step('encode keys', () => call.native.tableJoinKeys(call.job, keyOf('left'), keyOf('right'))),
  );
  const unjoined = (reason: string): string => {
    call.free(keys);
    return reason;
  };
  if (keys.bits > keys.mostBits) return unjoined(`the keys take ${keys.bits} bits, more than ${keys.mostBits}`);
  const { settings, want } = task;
  const columns = typeof want === 'string' ? [] : want.columns;
  let layout = layOut(task, columns, keys.giveLeft, keys.areColumns);
  // Keys that are made can be decoded only where the result is made.
  if (!keys.areColumns && !layout.made) layout = layOut(task, columns, false, false);
  const { payload, from, made } = layout;
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
  const planned = columns.map(({ name, source, column }, index): PlannedColumn => {
    const side = source === 'coalesced' ? null : source;
    return { name, from: from[index]!, width: plannedWidth(task[side ?? 'left'], column), side };
  });
  const [leftRows, rightRows, comesHome] = [task.left.rows, task.right.rows, !settings.resident || !made];
  const shape = { how: settings.how, buildLeft, leftRows, rightRows, columns: planned, made, comesHome };
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

/** `keysGive`: keys give the left key column; `asTheyAre`: they are its values, which may come home as they are. */
function layOut(task: JoinTask, columns: readonly ResultColumn[], keysGive: boolean, asTheyAre: boolean): Layout {
  const isKey = (column: ResultColumn): boolean => keysGive && isLeftKey(task, column);
  const others = columns.filter((column) => !isKey(column));
  const payload = { left: carriedOf(task, others, 'left'), right: carriedOf(task, others, 'right') };
  const from = columns.map((column): ColumnOrigin => {
    if (column.source === 'coalesced') return 'coalesced';
    if (isKey(column)) return 'keys';
    return payload[column.source] === null ? 'gathered' : 'payload';
  });
  const stays = task.settings.resident || from.includes('gathered') || (from.includes('keys') && !asTheyAre);
  return { payload, from, made: stays && columns.every((column, index) => isMadeThere(task, column, from[index]!)) };
}

const residentOf = (task: JoinTask, side: Side): Resident => task[side].loaded!.resident!;

/** Whether it is the left key of an inner join, which rows carry. */
const isLeftKey = ({ keys, settings }: JoinTask, { source, column }: ResultColumn): boolean =>
  settings.how === 'inner' && source === 'left' && keys!.length === 1 && column === keys![0]!.left;

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
  const [key] = keys;
  if (keys.length > 1) return 'there are several key columns';
  if (key!.nullsEqual) return 'null keys are equal';
  // Indices of the two need not be of one dictionary.
  if (left.columns[key!.left]!.dictionary || right.columns[key!.right]!.dictionary) return 'the keys are indices of dictionaries';
  // Both, as text compares with text alone.
  if (!isForDevices(left, key!.left)) return 'the keys are in host memory alone';
  const [one, other] = [infoOf(left, key!.left), infoOf(right, key!.right)];
  return one.order === 'floating' && one.width !== other.width ? 'the keys are floats of two widths' : null;
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
