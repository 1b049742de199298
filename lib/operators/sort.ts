/** Sorting a table: validate, encode keys, plan, run the plan's steps, hand the columns over. */
import { whenRead } from '../columns/batches.js';
import { canBeCarried, canBeDecoded, type Input, stretchesForDevices } from '../columns/input.js';
import { type ResultColumn, sortKeyColumns, sortLayout } from '../columns/layout.js';
import { buildTable, checkArrayRows, checkTableRows, rowNumbers } from '../columns/result.js';
import { isMemoryLimit, WarpjoinError } from '../errors.js';
import type { NativeResultColumn, RelationHandle, RunHandle, SortKeysHandle } from '../native.js';
import {
  explainSortSchema,
  type SortAlgorithmChoice,
  type SortKey,
  sortIndicesSchema,
  sortSchema,
  sortSettings,
} from '../options.js';
import { explain } from '../plan/explain.js';
import type { PlannedColumn, Resources } from '../plan/plan.js';
import {
  planSort,
  planTop,
  prefersSample,
  prefersTop,
  type RowRange,
  rowRange,
  type SortDeviceBytes,
  type SortPlan,
  type SortPlanStep,
  sortWork,
} from '../plan/sort.js';
import { quote } from '../suggest.js';
import type { ResidentTable, ResultTable, SortIndices, Stats } from '../types.js';
import { type Call, type EngineCore, placed, runCall } from './call.js';
import { type LoadedTable, loadResult, readInput } from './load.js';
import { executeResidentSort, prepareResidentSort, type ResidentSort } from './resident-sort.js';
import { asResult, fromHostMemory, isOutOfDeviceMemory, plannedWidth, textBytes } from './shared.js';
import { runSteps } from './steps.js';

/** What a sort works on. */
export interface SortTask {
  table: Input;
  by: readonly SortKey[];
  /** Columns of the table that the rows are sorted by. */
  keys: number[];
  columns: ResultColumn[];
  algorithm: SortAlgorithmChoice;
  /** Whether the result stays on the devices. */
  resident: boolean;
  /** Rows of the order that the result has. */
  rows: RowRange;
  /** Whether row numbers are wanted, in place of columns. */
  indices?: boolean;
}

/** Whether a sort gives all rows. */
export const givesAll = ({ table, rows }: SortTask): boolean => rows.end - rows.begin === table.rows;

interface Prepared {
  relation: RelationHandle;
  /** null where the plan needs none: its rows are found without a sort of all. */
  keys: SortKeysHandle | null;
  /** Position of a column of the table among those of the relation. */
  position: Map<number, number>;
  plan: SortPlan;
  resources: Resources;
  /** Why a loaded table is taken from host memory; null where it is not loaded. */
  why: string | null;
}

export interface Sorted {
  columns: NativeResultColumn[];
  /** A result that stays on the devices, in place of the columns. */
  table: LoadedTable | null;
  /** Row numbers, where these are asked for. */
  indices?: NativeResultColumn;
  rows: number;
  stats: Stats;
}

export async function sortTable(core: EngineCore, table: unknown, options: unknown): Promise<ResultTable | ResidentTable> {
  const settings = sortSettings(sortSchema, 'sort', options);
  return whenRead({ input: table }, settings.signal, async ({ input }) => {
    const task = taskOf(core, input, settings);
    return runCall(placeSort(core, task), settings, async (call) => {
      if (!task.resident) checkTableRows(task.rows.end - task.rows.begin, 'Give a limit, or sort the table in parts.');
      const { columns, table, rows, stats } = await runSort(call, task);
      if (table) return asResult(table, stats);
      const made = buildTable(task.columns, columns, rows, task.table);
      return asResult(task.resident ? await loadResult(call, core, made) : made, stats);
    });
  });
}

export async function explainSort(core: EngineCore, table: unknown, options: unknown): Promise<string> {
  const settings = sortSettings(explainSortSchema, 'explain', options);
  return whenRead({ input: table }, settings.signal, async ({ input }) => {
    const task = taskOf(core, input, settings);
    return runCall(placeSort(core, task), settings, async (call) => {
      const prepared = await prepare(call, task);
      const measured = settings.analyze ? await call.measured((await run(call, task, prepared)).stats) : null;
      const by = task.by.map(
        (key) => `${quote(key.column)}${key.descending ? ' descending' : ''}${key.nullsLast ? '' : ' nulls first'}`,
      );
      const { begin, end } = task.rows;
      const rows = givesAll(task) ? '' : `, rows ${begin} to ${end}`;
      return explain(`sort by ${by.join(', ')}${rows}`, prepared.plan, prepared.resources, call.deviceReason, measured);
    });
  });
}

export async function sortIndices(core: EngineCore, table: unknown, options: unknown): Promise<SortIndices> {
  const settings = sortSettings(sortIndicesSchema, 'sortIndices', options);
  return whenRead({ input: table }, settings.signal, async (tables) => {
    const input = readInput(core, tables.input, 'input');
    const rows = rowRange(input.rows, settings.offset, settings.limit);
    const { by, algorithm } = settings;
    const keys = sortKeyColumns(input, by);
    const task = { table: input, by, keys, columns: [], algorithm, resident: false, rows, indices: true };
    return runCall({ ...placeSort(core, task), givesArrays: true }, settings, async (call) => {
      checkArrayRows(rows.end - rows.begin, input.rows < 2 ** 32 - 1 ? 4 : 8, 'Give a limit.');
      const { indices, stats } = await runSort(call, task);
      return { rows: rowNumbers(indices!), stats };
    });
  });
}

/** Loaded tables may be on the GPUs alone, and a result that stays is there. */
export const placeSort = (core: EngineCore, { table, resident }: SortTask): EngineCore =>
  table.loaded || resident ? core : placed(core, sortWork(table.rows, core.threads));

type Settings = Omit<ReturnType<typeof sortSettings<typeof sortSchema>>, 'result'>;

function taskOf(core: EngineCore, table: unknown, settings: Settings): SortTask {
  const input = readInput(core, table, 'input');
  return {
    table: input,
    by: settings.by,
    keys: sortKeyColumns(input, settings.by),
    columns: sortLayout(input, settings.select),
    algorithm: settings.algorithm,
    resident: settings.resident,
    rows: rowRange(input.rows, settings.offset, settings.limit),
  };
}

export async function runSort(call: Call, task: SortTask): Promise<Sorted> {
  return run(call, task, await prepare(call, task));
}

/** Where the table lies, if it is loaded and can be sorted there; else from host memory. */
async function prepare(call: Call, task: SortTask): Promise<Prepared | ResidentSort> {
  const resident = await prepareResidentSort(call, task);
  return resident === null || typeof resident === 'string' ? prepareFromHost(call, task, true, resident) : resident;
}

async function run(call: Call, task: SortTask, prepared: Prepared | ResidentSort): Promise<Sorted> {
  if (!('positions' in prepared)) return execute(call, task, prepared);
  try {
    return await executeResidentSort(call, task, prepared);
  } catch (error) {
    if (!isOutOfDeviceMemory(error)) throw error;
    return execute(call, task, await prepareFromHost(call, task, true, (error as Error).message));
  }
}

/** The one column that can travel with the keys, or null. */
export function carriedColumn({ table, keys, columns }: SortTask): number | null {
  const others = columns.filter((column) => !keys.includes(column.column));
  if (others.length !== 1 || !canBeCarried(table, others[0]!.column)) return null;
  // Without row numbers the keys can only be decoded, which strings never are.
  const decoded = columns.filter((column) => keys.includes(column.column));
  return decoded.every(({ column }) => canBeDecoded(table, column)) ? others[0]!.column : null;
}

/**
 * `why`: a sort of a loaded table runs from host memory; null where it is not loaded. Where no algorithm fits the memory limits,
 * a sample sort may that takes the column itself for its keys.
 */
async function prepareFromHost(call: Call, task: SortTask, carry: boolean, why: string | null): Promise<Prepared> {
  if (prefersTop(task.table.rows, task.rows, task.algorithm)) return prepareTop(call, task, why);
  const allowFlip = prefersSample(task.algorithm, call.resources.devices);
  try {
    return await encodeAndPlan(call, task, carry, why, allowFlip);
  } catch (error) {
    if (allowFlip || task.algorithm !== 'auto' || !isMemoryLimit(error)) throw error;
    call.free(...call.handles);
    const lean = await encodeAndPlan(call, { ...task, algorithm: 'sample' }, carry, why, true).catch((second: unknown) => {
      throw isMemoryLimit(second) ? error : second;
    });
    return { ...lean, plan: { ...lean.plan, reason: 'the only one that fits the memory limits' } };
  }
}

/** The columns of a task in host memory. */
async function readColumns(call: Call, { table, keys, columns, by }: SortTask) {
  const needed = [...new Set([...keys, ...columns.map((column) => column.column)])];
  const position = new Map(needed.map((column, index) => [column, index]));
  await call.bringHome(table);
  const relation = await call.relation('check buffers', table, needed);
  const specs = by.map(({ descending, nullsLast }, index) => ({ column: position.get(keys[index]!)!, descending, nullsLast }));
  return { relation, position, specs };
}

function plannedColumn(table: Input, { name, column }: ResultColumn, from: PlannedColumn['from']): PlannedColumn {
  const stretches = stretchesForDevices(table, column);
  const nullable = !table.columns[column]!.withoutNulls;
  return { name, from, width: plannedWidth(table, column), nullable, textBytes: textBytes(table, column), stretches };
}

async function prepareTop(call: Call, task: SortTask, why: string | null): Promise<Prepared> {
  const { table, rows, columns } = task;
  const { relation, position } = await readColumns(call, task);
  const request = {
    tuples: table.rows,
    rows,
    // How much text the rows have is not known: as much as all have would be far too much.
    columns: columns.map((column) => ({ ...plannedColumn(table, column, 'gathered'), textBytes: 0 })),
    topBytes: call.native.topRowsBytes(table.rows, rows.end),
  };
  const { plan, resources } = await call.planned(call.resources, (available) => ({
    ...planTop(request, available),
    loaded: fromHostMemory(why),
  }));
  return { relation, keys: null, position, plan, resources, why };
}

async function encodeAndPlan(
  call: Call,
  task: SortTask,
  carry: boolean,
  why: string | null,
  allowFlip: boolean,
): Promise<Prepared> {
  const { table, columns } = task;
  const { relation, position, specs } = await readColumns(call, task);
  const carried = carry ? carriedColumn(task) : null;
  const payload = carried === null ? null : position.get(carried)!;
  const { usedBytes } = call.native.memory();
  const keys = call.keep(
    await call.step('encode keys', () => call.native.sortKeys(call.job, relation, specs, payload, allowFlip)),
  );
  const encodedBytes = call.native.memory().usedBytes - usedBytes;
  const planned = columns.map((column): PlannedColumn => {
    const key = task.keys.includes(column.column);
    const ofKeys = keys.areValues ? 'keys' : canBeDecoded(table, column.column) ? 'decoded' : 'gathered';
    return plannedColumn(table, column, key ? ofKeys : keys.carriesPayload ? 'payload' : 'gathered');
  });
  const deviceBytes: SortDeviceBytes = (shape, tuples, devices, algorithm, several) =>
    call.native.sortDeviceBytes(shape.keyBytes, shape.valueBytes, tuples, devices, algorithm, several);
  const { keyBytes, valueBytes } = keys;
  const request = {
    tuples: keys.rows,
    keyBytes,
    valueBytes,
    refine: !keys.complete,
    columns: planned,
    algorithm: task.algorithm,
    sorted: keys.sorted,
    encodedBytes,
    flips: keys.areValues && allowFlip,
    ...(givesAll(task) ? {} : { rows: task.rows }),
  };
  const inputs = (of: readonly number[]): number[] => of.map((index) => position.get(columns[index]!.column)!);
  const gatherBytes = (of: readonly number[], devices: number): number =>
    call.native.gatherDeviceBytes(
      relation,
      inputs(of),
      { size: givesAll(task) ? keys.rows : task.rows.end - task.rows.begin, rowBytes: valueBytes, mayBeMissing: false },
      devices,
    );
  const { plan, resources } = await call.planned(await call.resourcesFor(keys.rows * (keyBytes + valueBytes)), (available) => ({
    ...planSort(request, deviceBytes, available, gatherBytes),
    loaded: fromHostMemory(why),
  }));
  return { relation, keys, position, plan, resources, why };
}

async function execute(call: Call, task: SortTask, prepared: Prepared): Promise<Sorted> {
  const { relation, keys, position, plan } = prepared;
  const { native, job } = call;
  let runs: RunHandle[] = [];
  const columns: NativeResultColumn[] = [];
  const handsOverKeys = plan.steps.some((step) => step.op === 'column' && step.from === 'keys');
  /** Once all columns are there that are decoded of keys, these make room for the others. */
  const dropKeys = (): void => {
    call.free(keys);
    if (keys && !handsOverKeys) native.dropKeys(runs[0]!);
  };
  /** One run in place of those before it. */
  const goOnWith = (run: RunHandle): void => {
    call.keep(run);
    call.free(...runs);
    runs = [run];
  };
  const instead = await runSteps<SortPlanStep, () => Promise<Prepared>>(call, plan, {
    async sort({ algorithm, devices, chunksetEnds, spill }) {
      runs = await native.sortChunksets(job, keys!, { algorithm, devices, chunksetEnds, spill });
      for (const run of runs) call.keep(run);
    },
    async copy() {
      goOnWith(await native.copyRun(job, keys!));
    },
    async top({ skip, count }) {
      const specs = task.by.map(({ descending, nullsLast }, index) => {
        return { column: position.get(task.keys[index]!)!, descending, nullsLast };
      });
      goOnWith(await native.topRows(job, relation, specs, skip, count));
    },
    async cut({ begin, end }) {
      goOnWith(await native.cutRun(job, runs[0]!, begin, end));
    },
    async merge() {
      goOnWith(await native.mergeRuns(job, runs));
    },
    async refine() {
      await native.refineTies(job, keys!, runs[0]!);
    },
    async gather({ columns: gathered, devices }) {
      dropKeys();
      const inputs = gathered.map((index) => position.get(task.columns[index]!.column)!);
      const made = await native.gatherOnDevices(job, relation, inputs, runs[0]!, 'left', devices);
      for (const [index, column] of gathered.entries()) columns[column] = made[index]!;
    },
    async column({ column: index, from }) {
      const run = runs[0]!;
      const { column } = task.columns[index]!;
      const gather = (): Promise<NativeResultColumn> => native.gather(job, relation, position.get(column)!, run, 'left');
      if (from === 'decoded') {
        const exact = await native.decodeKeys(job, keys!, task.keys.indexOf(column), run);
        const made = exact ?? (keys!.carriesPayload ? null : await gather());
        if (!made) {
          // The carried payload took the place of the row numbers that this column turns out to need.
          call.free(keys, relation, ...runs);
          return () => prepareFromHost(call, task, false, prepared.why);
        }
        columns[index] = made;
        return undefined;
      }
      dropKeys();
      columns[index] =
        from === 'gathered' ? await gather() : from === 'keys' ? native.takeKeys(job, run) : native.takeValues(job, run);
      return undefined;
    },
  });
  if (instead) return execute(call, task, await instead());
  const rows = runs[0]!.size;
  if (rows !== task.rows.end - task.rows.begin)
    throw new WarpjoinError('ERR_INTERNAL', `Sorted ${rows} rows of ${task.table.rows}.`);
  const indices = task.indices ? { indices: native.takeValues(job, runs[0]!) } : {};
  call.free(keys, relation, ...runs);
  return { columns, table: null, ...indices, rows, stats: call.stats(plan, [task.table.rows], rows) };
}
