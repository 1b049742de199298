/**
 * Joins of two tables where they lie on the devices, from which nothing but what is asked for comes home: of loaded tables, and of
 * such as are lent to the devices for the call.
 */
import { type Input, infoOf, isForDevices } from '../columns/input.js';
import type { KeyPair, ResultColumn } from '../columns/layout.js';
import { checkTableRows } from '../columns/result.js';
import { type TypeInfo, typeName } from '../columns/types.js';
import {
  type KeyedTables,
  type NativeJoinRequest,
  type NativeResultColumn,
  type ResidentHandle,
  type ResidentOrigin,
  SIDES,
  type Side,
  type TableJoinKeysHandle,
  type TableKeys,
  type TableRowOrder,
} from '../native.js';
import type { JoinPlan } from '../plan/join.js';
import { checkHostBytes } from '../plan/memory.js';
import { ALL_ROWS, takesAll } from '../plan/order.js';
import { type ColumnOrigin, type PlannedColumn, type Resources, readEachOther } from '../plan/plan.js';
import { planResidentJoin } from '../plan/resident.js';
import type { Call } from './call.js';
import { type Joined, type JoinTask, plannedCoalesced } from './join-task.js';
import type { Resident } from './load.js';
import { carriedThere, lend, planThere, stayingTable, useThere } from './resident.js';
import { isOutOfDeviceMemory, plannedWidth } from './shared.js';
import { runSteps } from './steps.js';

/** A join that runs where its tables lie. */
export interface ResidentJoin {
  tables: KeyedTables;
  request: NativeJoinRequest;
  /** How the columns of a result are made that is made on the devices; null: its rows come home, and its columns are made there. */
  origins: ResidentOrigin[] | null;
  /** Of a result that is made on the devices. */
  order: TableRowOrder | null;
  /** Tables that are there for this call alone. */
  lent: ResidentHandle[];
  planned: PlannedColumn[];
  plan: JoinPlan;
  resources: Resources;
}

/** What of each side is on the devices. */
type There = Record<Side, Resident>;

/** How a join runs where its tables lie, or why it does not; null where neither of them is loaded, and none need be lent. */
export async function prepareResident(call: Call, task: JoinTask): Promise<ResidentJoin | string | null> {
  if (task.left.loaded || task.right.loaded) {
    const refusal = refusalOf(call, task);
    if (refusal !== null) return refusal;
    for (const side of SIDES) {
      if (!(await useThere(call, task[side].loaded!))) return `the ${side} table was evicted, and there is no room for it`;
    }
    return joinThere(call, task, { left: task.left.loaded!.resident!, right: task.right.loaded!.resident! }, []);
  }
  if (!isSoonerThere(call, task)) return null;
  const there = await lendBoth(call, task);
  if (!there) return null;
  const joined = await joinThere(call, task, there, [there.left.handle, there.right.handle]);
  return typeof joined === 'string' ? null : joined;
}

/**
 * Whether tables in host memory are lent to the devices as a whole: where these make keys of several columns and put rows in order,
 * which takes the host's threads longer than the join. Other joins begin while their keys arrive.
 */
function isSoonerThere(call: Call, task: JoinTask): boolean {
  const { keys, settings, want } = task;
  if (!keys || settings.algorithm !== 'auto' || !readEachOther(call.resources.devices)) return false;
  const columns = typeof want === 'string' ? [] : want.columns;
  const isOrdered = settings.order !== null && columns.length > 0 && canBeOrdered(task);
  if (keys.length === 1 && !isOrdered) return false;
  const areMadeThere = columns.every(({ source, column }) => source !== 'coalesced' && isForDevices(task[source], column));
  return areMadeThere && refusalOfTypes(task, keys) === null;
}

/** Room for keys that are made, for the join and for its result beside tables that are lent, as a multiple of their size. */
const ROOM_BESIDE_LENT = 3;

async function lendBoth(call: Call, task: JoinTask): Promise<There | null> {
  const columns = typeof task.want === 'string' ? [] : task.want.columns;
  const needed = (side: Side): number[] => {
    const own = columns.filter(({ source }) => source === side).map(({ column }) => column);
    return [...new Set([...task.keys!.map((pair) => pair[side]), ...own])];
  };
  try {
    const left = await lend(call, task.left, needed('left'), ROOM_BESIDE_LENT);
    if (!left) return null;
    const right = await lend(call, task.right, needed('right'), ROOM_BESIDE_LENT);
    if (!right) call.free(left.handle);
    return right && { left, right };
  } catch (error) {
    if (isOutOfDeviceMemory(error)) return null;
    throw error;
  }
}

async function joinThere(call: Call, task: JoinTask, there: There, lent: ResidentHandle[]): Promise<ResidentJoin | string> {
  const pairs = task.keys!;
  const keysOf = (side: Side): TableKeys => {
    const { handle, position } = there[side];
    return { table: handle, keys: pairs.map((pair) => position.get(pair[side])!) };
  };
  const nullsEqual = pairs.map((pair) => pair.nullsEqual);
  const keys = call.keep(
    await call.step('encode keys', () => call.native.tableJoinKeys(call.job, keysOf('left'), keysOf('right'), nullsEqual)),
  );
  const unjoined = (reason: string): string => {
    call.free(keys, ...lent);
    return reason;
  };
  if (keys.bits > keys.mostBits) return unjoined(`the keys take ${keys.bits} bits, more than ${keys.mostBits}`);
  const { settings, want } = task;
  const columns = typeof want === 'string' ? [] : want.columns;
  const gathers = readEachOther(call.resources.devices);
  const layout = takesAll(settings)
    ? layOut(task, there, columns, gathers, keys)
    : layOutRows(there, columns, gathers && settings.order !== null && canBeOrdered(task));
  const { payload, from, made } = layout;
  const originOf = ({ source, column }: ResultColumn, index: number): ResidentOrigin => {
    if (from[index] === 'keys') return { from: 'keys', pair: pairs.findIndex((pair) => pair.left === column) };
    const side = source as Side;
    return { from: side, column: from[index] === 'gathered' ? there[side].position.get(column)! : null };
  };
  const origins = made ? columns.map(originOf) : null;
  const { order: side, offset: first, limit } = settings;
  const window = { first, rows: Math.min(limit, Number.MAX_SAFE_INTEGER) };
  const order = made && side ? { side, window } : null;
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
    lent: lent.length > 0,
  };
  const tables = { keys, payload };
  const joinBytes = call.native.joinTablesDeviceBytes(tables, request);
  const fitting = await planThere(call, (resources) => planResidentJoin(shape, joinBytes, resources));
  return typeof fitting === 'string' ? unjoined(fitting) : { tables, request, origins, order, lent, planned, ...fitting };
}

/** What rows carry of the result's columns, where these come from, and whether they are made on the devices. */
interface Layout {
  payload: KeyedTables['payload'];
  from: ColumnOrigin[];
  made: boolean;
}

/**
 * Of rows in any order. `gathers`: whether the devices gather columns, for which they must read each other's memory. Keys that are
 * columns come home as they are; others are decoded, which is done only where the result is made on the devices.
 */
function layOut(
  task: JoinTask,
  there: There,
  columns: readonly ResultColumn[],
  gathers: boolean,
  keys: TableJoinKeysHandle,
): Layout {
  const layout = layOutWith(task, there, columns, gathers, keys.giveLeft, keys.areColumns);
  return keys.areColumns || layout.made ? layout : layOutWith(task, there, columns, gathers, [], false);
}

/** `keysGive`: whether keys give the left column of each pair; `asTheyAre`: they are its values, which may come home as they are. */
function layOutWith(
  task: JoinTask,
  there: There,
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
  const payload = { left: carriedOf(task, there, others, 'left'), right: carriedOf(task, there, others, 'right') };
  const from = columns.map((column): ColumnOrigin => {
    if (column.source === 'coalesced') return 'coalesced';
    if (isKey(column)) return 'keys';
    return payload[column.source] === null ? 'gathered' : 'payload';
  });
  const stays = task.settings.resident || from.includes('gathered') || (from.includes('keys') && !asTheyAre);
  return { payload, from, made: stays && columns.every((column, index) => isMadeThere(there, column, from[index]!, gathers)) };
}

/**
 * Of rows that are put in order or cut: they have row numbers alone. The devices do it where they `gather` in an order; otherwise
 * row numbers come to host memory, and columns are made of them there.
 */
function layOutRows(there: There, columns: readonly ResultColumn[], gather: boolean): Layout {
  const from = columns.map(({ source }): ColumnOrigin => (source === 'coalesced' ? 'coalesced' : 'gathered'));
  const made = columns.length > 0 && gather && columns.every((column) => isMadeThere(there, column, 'gathered', gather));
  return { payload: { left: null, right: null }, from, made };
}

/** Whether the row numbers of both sides fit one key of 64 bits, with one that no row has. */
const canBeOrdered = ({ left, right }: JoinTask): boolean => Math.max(left.rows, right.rows) < 2 ** 32 - 1;

/** Whether a column of the result can be made on the devices. */
function isMadeThere(there: There, { source, column }: ResultColumn, from: ColumnOrigin, gathers: boolean): boolean {
  if (source === 'coalesced') return false;
  const { handle, position } = there[source];
  return from !== 'gathered' || (gathers && handle.spreadEvenly && position.has(column));
}

/** Why a join of these does not run where they lie, as far as their types and the options say; or null. */
function refusalOf(call: Call, { left, right, keys, settings }: JoinTask): string | null {
  if (call.resources.devices.some(({ kind }) => kind === 'host')) return 'the devices are the processor';
  if (!left.loaded || !right.loaded) return `the ${left.loaded ? 'right' : 'left'} table is not loaded`;
  if (!keys) return 'a cross join has no keys';
  if (settings.algorithm === 'sort-merge') return 'sort-merge was asked for';
  return refusalOfTypes({ left, right }, keys);
}

/** Why rows are not joined by these columns on devices, as far as their types say; or null. */
function refusalOfTypes({ left, right }: Record<Side, Input>, keys: readonly KeyPair[]): string | null {
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
function carriedOf(task: JoinTask, there: There, columns: readonly ResultColumn[], side: Side): number | null {
  const moved = columns.filter(({ source }) => source === side);
  if (task.settings.how !== 'inner' || moved.length !== 1) return null;
  return carriedThere(task[side], moved[0]!.column, there[side]);
}

/** Makes the columns of the result on the devices, where it stays if it is asked to. */
export async function executeResident(
  call: Call,
  task: JoinTask,
  { tables, request, order, lent, planned, plan, resources }: ResidentJoin,
  origins: ResidentOrigin[],
): Promise<Joined> {
  const { native, job } = call;
  const columns: NativeResultColumn[] = [];
  let made!: ResidentHandle;
  await runSteps(call, plan, {
    async residentJoin() {
      made = call.keep(await native.joinTables(job, tables, request, origins, order));
      call.free(tables.keys, ...lent);
      if (task.settings.resident) return;
      checkTableRows(made.rows, 'Join the left table in parts, or leave the result on the GPUs with resident: true.');
      const bytes = planned.reduce((sum, { width }) => sum + made.rows * width, 0);
      checkHostBytes(`Making the columns of a result of ${made.rows} rows`, bytes, resources);
    },
    async bringHome() {
      columns.push(...(await native.bringHome(job, made, [...origins.keys()])));
      call.free(made);
    },
  });
  const { rows } = made;
  const wanted = (task.want as { columns: ResultColumn[] }).columns;
  const table = task.settings.resident ? stayingTable(call, wanted, task.left, made) : null;
  const stats = call.stats(plan, [task.left.rows, task.right.rows], rows, made);
  return { columns, left: null, right: null, table, rows, stats };
}
