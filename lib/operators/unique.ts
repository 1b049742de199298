/** One row of each key of a table: validate, encode keys, find the rows, gather their columns. */
import { whenRead } from '../columns/batches.js';
import { type Input, stretchesForDevices } from '../columns/input.js';
import { type ResultColumn, sortLayout, uniqueKeyColumns } from '../columns/layout.js';
import { buildTable, checkTableRows } from '../columns/result.js';
import { NO_FACTOR } from '../columns/types.js';
import type { JoinKeysHandle, NativeResultColumn, RelationHandle, RowsHandle } from '../native.js';
import { explainUniqueSchema, uniqueSchema } from '../options.js';
import { explain } from '../plan/explain.js';
import { checkHostBytes, columnBlocks } from '../plan/memory.js';
import type { PlannedColumn, Resources, UniqueRowsStep } from '../plan/plan.js';
import { planUnique, type UniquePlan } from '../plan/unique.js';
import { parse } from '../schema.js';
import { list } from '../suggest.js';
import type { ResultTable, Stats } from '../types.js';
import { type Call, type EngineCore, onProcessor, runCall } from './call.js';
import { readInput } from './load.js';
import { asResult, fromHostMemory, plannedWidth } from './shared.js';
import { runSteps } from './steps.js';

interface UniqueTask {
  table: Input;
  /** Columns that rows are told apart by. */
  keys: number[];
  columns: ResultColumn[];
  keep: UniqueRowsStep['keep'];
}

interface Prepared {
  relation: RelationHandle;
  keys: JoinKeysHandle;
  /** Position of a column of the table among those of the relation. */
  position: Map<number, number>;
  planned: PlannedColumn[];
  plan: UniquePlan;
  resources: Resources;
}

export async function uniqueTable(core: EngineCore, table: unknown, options: unknown): Promise<ResultTable> {
  const settings = parse(uniqueSchema, 'unique', options);
  return whenRead({ input: table }, settings.signal, async ({ input }) => {
    const task = taskOf(core, input, settings);
    return runCall(place(core, task), settings, async (call) => {
      const { columns, rows, stats } = await execute(call, task, await prepare(call, task));
      return asResult(buildTable(task.columns, columns, rows, task.table), stats);
    });
  });
}

export async function explainUnique(core: EngineCore, table: unknown, options: unknown): Promise<string> {
  const settings = parse(explainUniqueSchema, 'explain', options);
  return whenRead({ input: table }, settings.signal, async ({ input }) => {
    const task = taskOf(core, input, settings);
    return runCall(place(core, task), settings, async (call) => {
      const prepared = await prepare(call, task);
      const measured = settings.analyze ? await call.measured((await execute(call, task, prepared)).stats) : null;
      const what = `unique by ${list(task.keys.map((key) => task.table.columns[key]!.name))}`;
      return explain(what, prepared.plan, prepared.resources, call.deviceReason, measured);
    });
  });
}

/** The host's threads do all of it; a table that is loaded belongs to an engine's own devices. */
const place = (core: EngineCore, { table }: UniqueTask): EngineCore =>
  table.loaded ? core : onProcessor(core, "device 'auto': unique runs on the processor");

type Settings = ReturnType<typeof parse<typeof uniqueSchema>>;

function taskOf(core: EngineCore, table: unknown, settings: Settings): UniqueTask {
  const input = readInput(core, table, 'input');
  // The first row of a key is as good as any; and whichever rows are kept come in the order of the table.
  const keep = settings.keep === 'any' ? 'first' : settings.keep;
  return { table: input, keys: uniqueKeyColumns(input, settings.on), columns: sortLayout(input, settings.select), keep };
}

async function prepare(call: Call, task: UniqueTask): Promise<Prepared> {
  const { table, columns, keep } = task;
  const needed = [...new Set([...task.keys, ...columns.map((column) => column.column)])];
  const position = new Map(needed.map((column, index) => [column, index]));
  await call.bringHome(table);
  const relation = await call.relation('check buffers', table, needed);
  const keys = await selfKeys(
    call,
    relation,
    task.keys.map((key) => position.get(key)!),
    'encode keys',
  );
  const planned = columns.map((column): PlannedColumn => {
    const width = plannedWidth(table, column.column);
    return { name: column.name, from: 'gathered', width, stretches: stretchesForDevices(table, column.column) };
  });
  const groupBytes = call.native.uniqueRowsBytes(keys);
  const resources = call.resources;
  const why = table.loaded ? 'unique runs on the host' : null;
  const plan = planUnique({ rows: table.rows, keyBytes: keys.keyBytes, keep, columns: planned, groupBytes }, resources);
  return { relation, keys, position, planned, plan: { ...plan, loaded: fromHostMemory(why) }, resources };
}

/**
 * Keys of columns with themselves, by their positions in the relation: equal rows have equal keys. Nulls of one column alone are
 * no keys, and excluded; `nullsEqual` says whether those of several columns are equal.
 */
export async function selfKeys(
  call: Call,
  relation: RelationHandle,
  columns: readonly number[],
  step: string,
  nullsEqual: readonly boolean[] = columns.map(() => columns.length > 1),
): Promise<JoinKeysHandle> {
  const encode = (): Promise<JoinKeysHandle> =>
    call.native.joinKeys(
      call.job,
      relation,
      columns,
      null,
      relation,
      columns,
      null,
      nullsEqual.map((equal) => ({ nullsEqual: equal, factors: { left: NO_FACTOR, right: NO_FACTOR } })),
    );
  return call.keep(await call.step(step, encode));
}

interface Unique {
  columns: NativeResultColumn[];
  rows: number;
  stats: Stats;
}

async function execute(call: Call, task: UniqueTask, prepared: Prepared): Promise<Unique> {
  const { relation, keys, position, planned, plan } = prepared;
  const { native, job } = call;
  const columns: NativeResultColumn[] = [];
  let rows!: RowsHandle;
  await runSteps(call, plan, {
    async uniqueRows() {
      rows = call.keep(await native.uniqueRows(job, keys, task.keep));
      call.free(keys);
      checkTableRows(rows.size, 'Take the unique rows of the table in parts.');
      const bytes = planned.reduce((sum, column) => sum + columnBlocks(rows.size, column), 0);
      checkHostBytes(`Making the columns of ${rows.size} unique rows`, bytes, call.resources);
    },
    async column(step) {
      const { column } = task.columns[step.column]!;
      columns[step.column] = await native.gather(job, relation, position.get(column)!, rows, 'left');
    },
  });
  call.free(rows, relation);
  return { columns, rows: rows.size, stats: call.stats(plan, [task.table.rows], rows.size) };
}
