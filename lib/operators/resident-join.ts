/** Joins of two loaded tables where they lie: the keys are columns as they are, and only what is asked for comes home. */
import { type InputColumn, infoOf } from '../columns/input.js';
import type { ResultColumn } from '../columns/layout.js';
import { typeInfo } from '../columns/types.js';
import type { NativeJoinRequest, ResidentHandle, ResidentOrigin, ResidentSide, Side } from '../native.js';
import type { JoinPlan } from '../plan/join.js';
import type { Resources } from '../plan/plan.js';
import { planResidentJoin } from '../plan/resident.js';
import { quote } from '../suggest.js';
import type { Call } from './call.js';
import type { Joined, JoinTask } from './join.js';
import { type Contents, LoadedTable } from './load.js';
import { handedOver } from './shared.js';

/** A join that runs where its tables lie. */
export interface ResidentJoin {
  left: ResidentSide;
  right: ResidentSide;
  request: NativeJoinRequest;
  /** Of each column of the result. */
  origins: ResidentOrigin[];
  plan: JoinPlan;
  resources: Resources;
}

const SIDES = ['left', 'right'] as const;
const isGathered = (origin: ResidentOrigin): boolean => origin.from !== 'keys' && origin.column !== null;

/** How a join runs where its tables lie, or why it does not; null where neither of them is loaded. */
export async function prepareResident(call: Call, task: JoinTask): Promise<ResidentJoin | string | null> {
  if (!task.left.loaded && !task.right.loaded) return null;
  const refusal = refusalOf(call, task);
  if (refusal !== null) return refusal;
  for (const side of SIDES) {
    const contents = task[side].loaded!;
    if (!contents.resident) await call.tables.load(call, contents, false);
    if (!contents.resident) return `the ${side} table was evicted, and there is no room for it`;
    call.tables.use(contents);
  }
  const refused = unfit(task);
  if (refused !== null) return refused;
  const { settings, want } = task;
  const columns = typeof want === 'string' ? [] : want.columns;
  const carried = { left: carriedOf(task, columns, 'left'), right: carriedOf(task, columns, 'right') };
  const origins = columns.map((column): ResidentOrigin => {
    if (isKey(task, column)) return { from: 'keys' };
    const from = column.source as Side;
    const position = residentOf(task, from).position.get(column.column)!;
    return { from, column: carried[from] === position ? null : position };
  });
  const sideOf = (side: Side): ResidentSide => {
    const { handle, position } = residentOf(task, side);
    return { table: handle, key: position.get(task.keys![side])!, payload: carried[side] };
  };
  const wants = (side: Side): boolean => want === 'indices' || origins.some(({ from }) => from === side);
  const buildLeft = settings.buildSide === 'auto' ? task.left.rows <= task.right.rows : settings.buildSide === 'left';
  const request: NativeJoinRequest = {
    kind: settings.how as NativeJoinRequest['kind'],
    buildLeft,
    countOnly: want === 'count',
    wantKeys: origins.some(({ from }) => from === 'keys'),
    wantLeft: wants('left'),
    wantRight: wants('right') && settings.how !== 'semi' && settings.how !== 'anti',
    maxRows: settings.maxOutputRows,
  };
  const [left, right] = [sideOf('left'), sideOf('right')];
  const stays = settings.resident || origins.some(isGathered);
  const shape = {
    how: settings.how,
    buildLeft,
    left: task.left,
    right: task.right,
    columns,
    stays,
    comesHome: !settings.resident,
  };
  const joinBytes = call.native.joinTablesDeviceBytes(left, right, request);
  for (;;) {
    const { resources } = call;
    const plan = planResidentJoin(shape, joinBytes, resources);
    if (typeof plan !== 'string') return { left, right, request, origins, plan, resources };
    if (!(await call.tables.makeRoom(call))) return plan;
  }
}

const residentOf = (task: JoinTask, side: Side): NonNullable<Contents['resident']> => task[side].loaded!.resident!;

/** Whether the column is a key of an inner join, which rows carry. */
function isKey({ keys, settings }: JoinTask, { source, column }: ResultColumn): boolean {
  return settings.how === 'inner' && source !== 'coalesced' && column === keys![source];
}

/** Why a join of these does not run where they lie, as far as their types and the options say; or null. */
function refusalOf(call: Call, { left, right, keys, settings, want }: JoinTask): string | null {
  if (call.resources.devices.some(({ kind }) => kind === 'host')) return 'the devices are the processor';
  if (!left.loaded || !right.loaded) return `the ${left.loaded ? 'right' : 'left'} table is not loaded`;
  if (!keys) return 'a cross join has no keys';
  if (settings.algorithm === 'sort-merge') return 'sort-merge was asked for';
  const [one, other] = [infoOf(left, keys.left), infoOf(right, keys.right)];
  const integers = one.order === 'signed' || one.order === 'unsigned';
  if (!integers || (one.width !== 4 && one.width !== 8) || one.order !== other.order || one.width !== other.width)
    return 'the keys are not integers of 4 or 8 bytes of one type';
  if (typeof want === 'string') return null;
  const coalesced = want.columns.find(({ source }) => source === 'coalesced');
  return coalesced ? `key ${quote(coalesced.name)} is coalesced from both tables` : null;
}

/** The same, now that both are on the devices. */
function unfit(task: JoinTask): string | null {
  for (const side of SIDES) {
    const { handle, position } = residentOf(task, side);
    const key = task.keys![side];
    if (handle.nullable[position.get(key)!]) return `key ${quote(task[side].columns[key]!.name)} of the ${side} table has nulls`;
  }
  if (typeof task.want === 'string') return null;
  for (const column of task.want.columns) {
    if (!residentOf(task, column.source as Side).position.has(column.column))
      return `column ${quote(column.name)} is in host memory alone`;
  }
  for (const side of SIDES) {
    const moved = movedOf(task, task.want.columns, side);
    if (moved.length > 0 && carriedOf(task, moved, side) === null && !residentOf(task, side).handle.spreadEvenly)
      return `the ${side} table is the result of a join, of which columns can't be gathered`;
  }
  return null;
}

const movedOf = (task: JoinTask, columns: readonly ResultColumn[], side: Side): ResultColumn[] =>
  columns.filter((column) => column.source === side && !isKey(task, column));

/** The one column of a side, by its position on the devices, that rows can carry; or null. */
function carriedOf(task: JoinTask, columns: readonly ResultColumn[], side: Side): number | null {
  const moved = movedOf(task, columns, side);
  if (task.settings.how !== 'inner' || moved.length !== 1) return null;
  const { handle, position } = residentOf(task, side);
  const at = position.get(moved[0]!.column)!;
  const { kind, width } = infoOf(task[side], moved[0]!.column);
  return kind === 'fixed' && (width === 4 || width === 8) && !handle.nullable[at] ? at : null;
}

/** Runs it; or, where a device turns out to have too little memory, says so: the join has to run from host memory. */
export async function executeResident(call: Call, task: JoinTask, join: ResidentJoin): Promise<Joined | string> {
  const { left, right, request, origins, plan } = join;
  const { native, job } = call;
  const [step, home] = plan.steps;
  call.follow(plan);
  const done = (rows: number, joined: { skew: number; splitRows: number }): Pick<Joined, 'rows' | 'stats'> => ({
    rows,
    stats: call.stats(plan, [task.left.rows, task.right.rows], rows, joined),
  });
  try {
    if (task.settings.resident || origins.some(isGathered)) {
      const made = call.keep(await call.step(step!, () => native.joinTables(job, left, right, request, origins)));
      const result = { left: null, right: null };
      if (task.settings.resident) {
        const table = new LoadedTable(call.core, stayingResult(call, task, made));
        return { ...result, columns: [], table, ...done(made.rows, made) };
      }
      const columns = await call.step(home!, () => native.bringHome(job, made, [...origins.keys()]));
      call.free(made);
      return { ...result, columns, table: null, ...done(made.rows, made) };
    }
    const rows = call.keep(await call.step(step!, () => native.joinTablesHome(job, left, right, request)));
    const columns = origins.map(({ from }) =>
      handedOver(from === 'keys' ? native.takeJoinKeys(rows) : native.takeJoinValues(rows, from), rows.size),
    );
    const numbers = (side: Side, wanted: boolean): ArrayBuffer | null =>
      task.want === 'indices' && wanted ? native.takeJoinValues(rows, side) : null;
    const indices = { left: numbers('left', request.wantLeft), right: numbers('right', request.wantRight) };
    call.free(rows);
    return { ...indices, columns, table: null, ...done(rows.size, rows) };
  } catch (error) {
    const { code, freeBytes } = error as { code?: unknown; freeBytes?: unknown };
    if (code !== 'ERR_DEVICE' || freeBytes !== undefined) throw error;
    return (error as Error).message;
  }
}

/** A result on the devices as a loaded table's contents. */
function stayingResult(call: Call, task: JoinTask, handle: ResidentHandle): Contents {
  const { columns } = task.want as { columns: ResultColumn[] };
  const contents: Contents = {
    rows: handle.rows,
    columns: columns.map(({ name, type, nullable, metadata }, index): InputColumn => {
      const mayBeNull = handle.nullable[index]!;
      const info = typeInfo(type);
      return { name, info, foreignType: type, nullable: nullable || mayBeNull, metadata, withoutNulls: !mayBeNull, chunks: [] };
    }),
    metadata: task.left.metadata,
    host: null,
    resident: null,
    disposed: false,
  };
  call.handOver(handle);
  call.tables.add(contents, { handle, position: new Map(columns.map((_, index) => [index, index])) });
  return contents;
}
