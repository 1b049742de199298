/** Sorts of a loaded table where it lies, from which nothing but what is asked for comes home. */
import { canBeDecoded, isForDevices } from '../columns/input.js';
import type { NativeResultColumn, ResidentHandle, RowWindow, TableSortKeysHandle } from '../native.js';
import { type ColumnOrigin, type PlannedColumn, type Resources, readEachOther } from '../plan/plan.js';
import { planResidentSort } from '../plan/resident.js';
import type { SortPlan } from '../plan/sort.js';
import { list } from '../suggest.js';
import type { Call } from './call.js';
import type { Resident } from './load.js';
import { carriedThere, planThere, stayingTable, useThere } from './resident.js';
import { plannedWidth } from './shared.js';
import type { Sorted, SortTask } from './sort.js';
import { runSteps } from './steps.js';

/** A sort that runs where its table lies. */
export interface ResidentSort {
  keys: TableSortKeysHandle;
  /** Of the result, by their positions on the devices. */
  positions: number[];
  window: RowWindow;
  plan: SortPlan;
  resources: Resources;
}

/** How a sort runs where its table lies, or why it does not; null where the table is not loaded. */
export async function prepareResidentSort(call: Call, task: SortTask): Promise<ResidentSort | string | null> {
  const { table, columns } = task;
  const contents = table.loaded;
  if (!contents) return null;
  const refusal = refusalOf(call, task);
  if (refusal !== null) return refusal;
  if (!(await useThere(call, contents))) return 'it was evicted, and there is no room for it';
  const resident = contents.resident!;
  const { handle, position } = resident;
  const by = task.by.map(({ descending, nullsLast }, index) => {
    return { column: position.get(task.keys[index]!)!, descending, nullsLast };
  });
  const payload = carriedOf(task, resident);
  const keys = call.keep(await call.step('encode keys', () => call.native.tableSortKeys(call.job, handle, by, payload)));
  const unsorted = (reason: string): string => {
    call.free(keys);
    return reason;
  };
  if (keys.bits > keys.mostBits) return unsorted(`its keys take ${keys.bits} bits, more than ${keys.mostBits}`);
  const from = columns.map(({ column }): ColumnOrigin => {
    return keys.giveColumns && task.keys.includes(column) ? 'keys' : keys.carriesPayload ? 'payload' : 'gathered';
  });
  if (from.includes('gathered') && !handle.spreadEvenly) return unsorted('its rows are not spread evenly over the devices');
  const positions = columns.map(({ column }) => position.get(column)!);
  const planned = columns.map(({ name, column }, index): PlannedColumn => {
    return { name, from: from[index]!, width: plannedWidth(table, column) };
  });
  const window = { first: task.rows.begin, rows: task.rows.end - task.rows.begin };
  const shape = {
    rows: table.rows,
    resultRows: window.rows,
    keyBytes: keys.keyBytes,
    columns: planned,
    comesHome: !task.resident,
  };
  const deviceBytes = call.native.sortTableDeviceBytes(keys, positions, window);
  const fitting = await planThere(call, (resources) => planResidentSort(shape, deviceBytes, resources));
  return typeof fitting === 'string' ? unsorted(fitting) : { keys, positions, window, ...fitting };
}

/** Why a sort does not run where its table lies, as far as types and options say; or null. */
function refusalOf(call: Call, task: SortTask): string | null {
  const { table, keys, columns, algorithm } = task;
  const { devices } = call.resources;
  if (devices.some(({ kind }) => kind === 'host')) return 'the devices are the processor';
  if (!readEachOther(devices)) return "the devices do not read each other's memory";
  if (algorithm === 'merge' || algorithm === 'radix') return `${algorithm} was asked for`;
  if (task.indices) return 'row numbers are asked for';
  if (keys.some((column) => table.columns[column]!.dictionary)) return 'the keys are indices of a dictionary';
  const needed = [...new Set([...keys, ...columns.map(({ column }) => column)])];
  const atHome = needed.filter((column) => !isForDevices(table, column));
  const names = (of: number[]): string => list(of.map((column) => table.columns[column]!.name));
  if (atHome.length > 0) return `columns are in host memory alone: ${names(atHome)}`;
  const others = keys.filter((column) => !canBeDecoded(table, column));
  return others.length > 0 ? `columns to sort by are neither booleans nor numbers of up to 8 bytes: ${names(others)}` : null;
}

/** The one column beside those that the table is sorted by, by its position on the devices, that tuples can carry; or null. */
function carriedOf({ table, keys, columns }: SortTask, resident: Resident): number | null {
  const others = columns.filter(({ column }) => !keys.includes(column));
  return others.length === 1 ? carriedThere(table, others[0]!.column, resident) : null;
}

export async function executeResidentSort(call: Call, task: SortTask, prepared: ResidentSort): Promise<Sorted> {
  const { keys, positions, window, plan } = prepared;
  const { native, job } = call;
  const columns: NativeResultColumn[] = [];
  let made!: ResidentHandle;
  await runSteps(call, plan, {
    async residentSort() {
      made = call.keep(await native.sortTable(job, keys, positions, window));
      call.free(keys);
    },
    async bringHome() {
      columns.push(...(await native.bringHome(job, made, [...positions.keys()])));
      call.free(made);
    },
  });
  const { rows } = made;
  const table = task.resident ? stayingTable(call, task.columns, task.table, made) : null;
  return { columns, table, rows, stats: call.stats(plan, [task.table.rows], rows) };
}
