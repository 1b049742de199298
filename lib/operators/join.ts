/** Joining two tables: validate, encode keys, plan, run the plan's steps, hand the columns over. */
import { whenRead } from '../columns/batches.js';
import { type Input, infoOf, stretchesForDevices } from '../columns/input.js';
import { joinKeyColumns, joinLayout, type ResultColumn } from '../columns/layout.js';
import { buildTable, checkArrayRows, checkTableRows, rowNumbers } from '../columns/result.js';
import { WarpjoinError } from '../errors.js';
import type {
  JoinKeysHandle,
  NativeJoinRequest,
  NativeResultColumn,
  RelationHandle,
  RowsHandle,
  RunHandle,
  Side,
} from '../native.js';
import { tooManyRows } from '../native-errors.js';
import {
  explainJoinSchema,
  type JoinKind,
  type JoinSettings,
  joinCountSchema,
  joinIndicesSchema,
  joinSchema,
  joinSettings,
  type Running,
} from '../options.js';
import { explain } from '../plan/explain.js';
import {
  type JoinDeviceBytes,
  type JoinPlan,
  type JoinRequestShape,
  type JoinStep,
  joinWork,
  planColumns,
  planCrossJoin,
  planJoin,
  planWithoutHash,
} from '../plan/join.js';
import { checkHostBytes, columnBlocks, hostBlock, JOIN_IN_BATCHES, madeBytes } from '../plan/memory.js';
import { rowsTaken } from '../plan/order.js';
import { type ColumnOrigin, type ColumnStep, isHandedOver, type PlannedColumn, type Resources } from '../plan/plan.js';
import { quote } from '../suggest.js';
import type { JoinIndices, ResidentTable, ResultTable } from '../types.js';
import { type Call, type EngineCore, placed, runCall } from './call.js';
import { encodeKeys, givesKeys, keysInWords, pairOf } from './join-keys.js';
import { type Joined, type JoinTask, plannedCoalesced, rightOf } from './join-task.js';
import { loadResult, readInput } from './load.js';
import { executeResident, prepareResident, type ResidentJoin } from './resident-join.js';
import { asResult, fromHostMemory, isOutOfDeviceMemory, plannedWidth } from './shared.js';
import { runSteps } from './steps.js';
import { checkUniqueKeys } from './validate.js';

interface Prepared {
  /** null: no column of this side is needed in host memory. */
  relations: Record<Side, RelationHandle | null>;
  /** Position of a column of an input among those of its relation. */
  position: Record<Side, Map<number, number>>;
  /** null for cross, and for loaded tables that are joined where they lie. */
  keyed: Keyed | null;
  /** These. */
  joined?: ResidentJoin;
  request: NativeJoinRequest;
  planned: PlannedColumn[];
  rowBytes: number;
  plan: JoinPlan;
  resources: Resources;
}

/** What a join by keys is planned with. */
interface Keyed {
  keys: JoinKeysHandle;
  shape: JoinRequestShape;
  deviceBytes: JoinDeviceBytes;
}

/** `whole`: the kind of a join that this one gives some rows of; its columns have the types of that. */
export async function joinTables(
  core: EngineCore,
  left: unknown,
  right: unknown,
  options: unknown,
  whole?: JoinKind,
): Promise<ResultTable | ResidentTable> {
  const settings = joinSettings(joinSchema, 'join', options);
  return whenRead({ left, right }, settings.signal, async (tables) => {
    const task = tableTask(core, tables, settings, whole);
    return runCall(settings.resident ? core : placeJoin(core, task), settings, async (call) => {
      const { columns, table, rows, stats } = await runJoin(call, task);
      if (table) return asResult(table, stats);
      const made = buildTable(task.want.columns, columns, rows, task.left);
      return asResult(settings.resident ? await loadResult(call, core, made) : made, stats);
    });
  });
}

export async function joinCount(core: EngineCore, left: unknown, right: unknown, options: unknown): Promise<number> {
  const settings = joinSettings(joinCountSchema, 'joinCount', options);
  return whenRead({ left, right }, settings.signal, async (tables) => {
    const task = matchTask(core, tables, settings, 'count');
    if (task.keys === null) return rowsOfCross(task);
    return runCall(placeJoin(core, task), settings, async (call) => (await runJoin(call, task)).rows);
  });
}

export async function joinIndices(core: EngineCore, left: unknown, right: unknown, options: unknown): Promise<JoinIndices> {
  const settings = joinSettings(joinIndicesSchema, 'joinIndices', options);
  return whenRead({ left, right }, settings.signal, async (tables) => {
    const task = matchTask(core, tables, settings, 'indices');
    return runCall({ ...placeJoin(core, task), givesArrays: true }, settings, async (call) => {
      const { left, right, stats } = await runJoin(call, task);
      return { left: rowNumbers(left!), right: right && rowNumbers(right), stats };
    });
  });
}

export async function explainJoin(core: EngineCore, left: unknown, right: unknown, options: unknown): Promise<string> {
  const settings: JoinSettings & Running & { analyze?: boolean } = joinSettings(explainJoinSchema, 'explain', options);
  return whenRead({ left, right }, settings.signal, async (tables) => {
    const task = tableTask(core, tables, settings);
    return runCall(placeJoin(core, task), settings, async (call) => {
      const prepared = await prepare(call, task);
      const measured = settings.analyze ? await call.measured((await run(call, task, prepared)).stats) : null;
      const { how, keys } = settings;
      const on = keys?.map(
        ({ left, right, nullsEqual }) => `${quote(left)} = ${quote(right)}${nullsEqual ? ' (nulls equal)' : ''}`,
      );
      const what = on ? `${how} join on ${on.join(' and ')}` : 'cross join';
      const made = 'origins' in prepared || !prepared.keyed ? null : keysInWords(prepared.keyed.keys);
      return explain(what, prepared.plan, prepared.resources, call.deviceReason, measured, made);
    });
  });
}

/** Cross joins have nothing for GPUs; loaded tables stay there. */
export function placeJoin(core: EngineCore, { left, right, keys, settings, want }: JoinTask): EngineCore {
  if (left.loaded || right.loaded) return core;
  return placed(core, keys && joinWork(settings.how, left.rows, right.rows, want === 'count', core.threads));
}

type TableTask = JoinTask & { want: { columns: ResultColumn[] } };

type Tables = Readonly<Record<Side, unknown>>;
const readInputs = (core: EngineCore, { left, right }: Tables): Record<Side, Input> => {
  return { left: readInput(core, left, 'left'), right: readInput(core, right, 'right') };
};

function tableTask(core: EngineCore, tables: Tables, settings: JoinSettings, whole?: JoinKind): TableTask {
  const inputs = readInputs(core, tables);
  const { keys, columns, left: one, right: other } = joinLayout(inputs.left, inputs.right, settings, whole);
  return { left: one, right: other, keys, settings, want: { columns } };
}

function matchTask(core: EngineCore, tables: Tables, settings: JoinSettings, want: 'count' | 'indices'): JoinTask {
  const inputs = readInputs(core, tables);
  return { ...inputs, keys: settings.keys && joinKeyColumns(inputs.left, inputs.right, settings.keys), settings, want };
}

/** Rows of a cross join's result. */
function rowsOfCross({ left, right, settings }: JoinTask): number {
  const found = BigInt(left.rows) * BigInt(right.rows);
  if (settings.maxOutputRows < found) {
    throw tooManyRows(`The cross join has ${found} rows but maxOutputRows is ${settings.maxOutputRows}.`);
  }
  const rest = found - BigInt(settings.offset);
  const rows = Math.max(0, Number(settings.limit < rest ? settings.limit : rest));
  if (!Number.isSafeInteger(rows)) {
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `A cross join of ${left.rows} and ${right.rows} rows has more rows than a number holds exactly.`,
    );
  }
  return rows;
}

export async function runJoin(call: Call, task: JoinTask): Promise<Joined> {
  return run(call, task, await prepare(call, task));
}

/** Where the tables lie, if they are loaded and can be joined there; else from host memory. */
async function prepare(call: Call, task: JoinTask): Promise<Prepared | ResidentJoin> {
  const resident = await prepareResident(call, task);
  return resident === null || typeof resident === 'string' ? prepareFromHost(call, task, resident) : resident;
}

async function run(call: Call, task: JoinTask, prepared: Prepared | ResidentJoin): Promise<Joined> {
  await checkUniqueKeys(call, task);
  if (!('origins' in prepared)) return execute(call, task, prepared);
  try {
    if (prepared.origins) return await executeResident(call, task, prepared, prepared.origins);
    return await execute(call, task, await prepareRows(call, task, prepared));
  } catch (error) {
    if (!isOutOfDeviceMemory(error)) throw error;
    const { tables, lent } = prepared;
    call.free(tables.keys, ...lent);
    return execute(call, task, await prepareFromHost(call, task, lent.length > 0 ? null : (error as Error).message));
  }
}

/** What of loaded tables has to be in host memory to make columns of the rows of a join of them. */
async function prepareRows(call: Call, task: JoinTask, joined: ResidentJoin): Promise<Prepared> {
  const { request, planned, plan, resources } = joined;
  const columns = typeof task.want === 'string' ? [] : task.want.columns;
  const made = columns.filter((_, index) => planned[index]!.from === 'gathered' || planned[index]!.from === 'coalesced');
  const rowBytes =
    (request.wantKeys ? infoOf(task.left, task.keys![0]!.left).width : 0) +
    (request.wantLeft ? 8 : 0) +
    (request.wantRight ? 8 : 0);
  return { ...(await relationsOf(call, task, made)), keyed: null, joined, request, planned, rowBytes, plan, resources };
}

/** The columns of both inputs that `columns` of the result are made of, checked. */
async function relationsOf(
  call: Call,
  { left, right, keys }: JoinTask,
  columns: readonly ResultColumn[],
  taken: Record<Side, number[]> = { left: [], right: [] },
): Promise<Pick<Prepared, 'relations' | 'position'>> {
  const relation = async (input: Input, side: Side): Promise<[RelationHandle | null, Map<number, number>]> => {
    const own = columns.filter((column) => column.source === side || column.source === 'coalesced');
    const indices = own.map((column) =>
      column.source === 'coalesced' && side === 'right' ? rightOf(keys, column.column) : column.column,
    );
    const needed = [...new Set([...taken[side], ...indices])];
    const position = new Map(needed.map((column, index) => [column, index]));
    if (needed.length === 0) return [null, position];
    await call.bringHome(input);
    return [await call.relation(`check ${side} buffers`, input, needed), position];
  };
  const [leftRelation, leftPosition] = await relation(left, 'left');
  const [rightRelation, rightPosition] = await relation(right, 'right');
  return { relations: { left: leftRelation, right: rightRelation }, position: { left: leftPosition, right: rightPosition } };
}

/** `why`: a join of loaded tables runs from host memory; null where none is loaded. */
async function prepareFromHost(call: Call, task: JoinTask, why: string | null): Promise<Prepared> {
  const { left, right, want, settings, keys: keyColumns } = task;
  const crossRows = keyColumns ? 0 : rowsOfCross(task);
  const columns = typeof want === 'string' ? [] : want.columns;
  const taken = { left: keyColumns?.map(({ left }) => left) ?? [], right: keyColumns?.map(({ right }) => right) ?? [] };
  const { relations, position } = await relationsOf(call, task, columns, taken);

  const { usedBytes } = call.native.memory();
  const keys = keyColumns && (await encodeKeys(call, task, keyColumns, relations, position));
  const encodedBytes = call.native.memory().usedBytes - usedBytes;
  const gives = { left: keys !== null && givesKeys(task, 'left', keys), right: keys !== null && givesKeys(task, 'right', keys) };
  const origins = columns.map((column): ColumnOrigin => {
    if (column.source === 'coalesced') return 'coalesced';
    if (gives[column.source] && pairOf(task, column) >= 0) return keys!.made === 'packed' ? 'decoded' : 'keys';
    return keys?.[column.source].carriesPayload ? 'payload' : 'gathered';
  });
  const planned = columns.map((column, index): PlannedColumn => {
    if (column.source === 'coalesced') return plannedCoalesced(task, column);
    const { name, source: side } = column;
    const input = side === 'right' ? right : left;
    const [width, stretches] = [plannedWidth(input, column.column), stretchesForDevices(input, column.column)];
    return { name, from: origins[index]!, width, stretches, side };
  });
  const wants = (side: Side): boolean =>
    want === 'indices' ||
    (want !== 'count' && settings.order === side) ||
    columns.some(
      ({ source }, index) => (source === side || source === 'coalesced') && !['keys', 'decoded'].includes(origins[index]!),
    );
  const request: NativeJoinRequest = {
    kind: settings.how === 'cross' ? 'inner' : settings.how,
    buildLeft: true,
    countOnly: want === 'count',
    wantKeys: gives.left || gives.right,
    wantLeft: wants('left'),
    wantRight: wants('right') && settings.how !== 'semi' && settings.how !== 'anti',
    maxRows: settings.maxOutputRows,
  };
  if (!keys) {
    const resources = call.resources;
    const rowBytes = rowNumberBytes(left) + rowNumberBytes(right);
    const plan = planCrossJoin(left.rows, right.rows, planned, settings, resources);
    checkHolds(call, task, crossRows);
    return {
      relations,
      position,
      keyed: null,
      request,
      planned,
      rowBytes,
      plan: { ...plan, loaded: fromHostMemory(why) },
      resources,
    };
  }
  const rowBytes =
    (request.wantKeys ? keys.keyBytes : 0) +
    (request.wantLeft ? keys.left.valueBytes : 0) +
    (request.wantRight ? keys.right.valueBytes : 0);
  const shape = shapeOf(task, keys, request, planned, rowBytes, encodedBytes);
  const inputs = (side: Side, of: readonly number[]): number[] => of.map((index) => position[side].get(columns[index]!.column)!);
  const deviceBytes: JoinDeviceBytes = {
    sort: ({ keyBytes, valueBytes }, tuples, devices, algorithm, several) =>
      call.native.sortDeviceBytes(keyBytes, valueBytes, tuples, devices, algorithm, several),
    hash: (devices, buildLeft, rounds) => call.native.hashJoinDeviceBytes(keys, devices, { ...request, buildLeft }, rounds),
    spill: (devices, buildLeft, rounds) => call.native.hashJoinSpill(keys, devices, { ...request, buildLeft }, rounds),
    mergeJoin: (devices, subpartitions) => call.native.mergeJoinDeviceBytes(keys, devices, subpartitions),
    sortMergeJoin: (devices) => call.native.sortMergeJoinDeviceBytes(keys, devices, request),
    order: (rows) => orderBytes(call, task, request, rows),
    gather: (side, of, rows, devices) =>
      call.native.gatherDeviceBytes(
        relations[side]!,
        inputs(side, of),
        {
          size: Math.ceil(rows),
          rowBytes: keys[side].valueBytes,
          mayBeMissing: settings.how === 'full' || settings.how === (side === 'left' ? 'right' : 'left'),
        },
        devices,
      ),
  };
  const given = await call.resourcesFor(keys.left.tuples * shape.left.sentBytes + keys.right.tuples * shape.right.sentBytes);
  const { plan, resources } = await planInOrder(call, keys, shape, (of) =>
    call.planned(given, (available) => ({ ...planJoin(of, deviceBytes, available), loaded: fromHostMemory(why) })),
  );
  return { relations, position, keyed: { keys, shape, deviceBytes }, request, planned, rowBytes, plan, resources };
}

interface Planned {
  plan: JoinPlan;
  resources: Resources;
}

/** Plans by what the sides seem: one that the plan would not sort is looked at, and if need be all is planned anew. */
async function planInOrder(
  call: Call,
  keys: JoinKeysHandle,
  shape: JoinRequestShape,
  plan: (shape: JoinRequestShape) => Promise<Planned>,
): Promise<Planned> {
  const planned = await plan(shape);
  const sides = { left: shape.left, right: shape.right };
  let holds = true;
  for (const side of planned.plan.inOrder as readonly Side[]) {
    const sorted = await call.step(`check order of ${side}`, () => call.native.joinSideIsSorted(call.job, keys, side));
    sides[side] = { ...sides[side], sorted };
    holds &&= sorted;
  }
  return holds ? planned : plan({ ...shape, ...sides });
}

function shapeOf(
  { settings }: JoinTask,
  keys: JoinKeysHandle,
  { countOnly, wantKeys, wantLeft, wantRight }: NativeJoinRequest,
  columns: readonly PlannedColumn[],
  rowBytes: number,
  encodedBytes: number,
): JoinRequestShape {
  const { algorithm, sortAlgorithm, buildSide } = settings;
  const { keyBytes } = keys;
  const shape = (side: Side, wanted: boolean) => {
    const { rows, tuples, valueBytes, carriesPayload, seemsSorted } = keys[side];
    // The row numbers of all rows are implied.
    const sentBytes = keyBytes + (wanted && (carriesPayload || tuples < rows) ? valueBytes : 0);
    const homeBytes = (wanted ? valueBytes : 0) + (side === 'left' && wantKeys ? keyBytes : 0);
    return { rows, tuples, keyBytes, valueBytes, sorted: seemsSorted, sentBytes, homeBytes };
  };
  const [left, right] = [shape('left', wantLeft), shape('right', wantRight)];
  const how = settings.how === 'cross' ? 'inner' : settings.how;
  return {
    how,
    countOnly,
    algorithm,
    sortAlgorithm,
    buildSide,
    rowsAreKeysOf: keys.rowsAreKeysOf,
    left,
    right,
    columns,
    result: settings,
    rowBytes,
    encodedBytes,
  };
}

async function execute(call: Call, task: JoinTask, prepared: Prepared): Promise<Joined> {
  const { keyed, request, plan, relations, position } = prepared;
  const { native, job } = call;
  const keys = keyed?.keys ?? null;
  const runs: Record<Side, RunHandle[]> = { left: [], right: [] };
  const columns: NativeResultColumn[] = [];
  let rows!: RowsHandle;
  let size = 0;
  /** What is behind the join is planned anew for the rows that there are. */
  const found = (made: RowsHandle): void => {
    rows = call.keep(made);
    call.free(keys);
    size = task.keys ? rowsTaken(task.settings, rows.size) : rows.size;
    checkRows(call, size, task, prepared);
    if (keyed && task.want !== 'count') planColumns(plan, rows.size, keyed.shape, keyed.deviceBytes, prepared.resources);
  };
  const instead = await runSteps<JoinStep, () => Promise<Prepared>>(call, plan, {
    async sort({ side, algorithm, devices, chunksetEnds, spill }) {
      runs[side!] = await native.sortJoinSide(job, keys!, side!, { algorithm, devices, chunksetEnds, spill });
      for (const run of runs[side!]) call.keep(run);
    },
    async merge({ side }) {
      const merged = call.keep(await native.mergeRuns(job, runs[side!]));
      call.free(...runs[side!]);
      runs[side!] = [merged];
    },
    async hashJoin({ buildLeft, devices, rounds, partitions, eitherSide }) {
      let made: RowsHandle;
      try {
        const how = { devices, rounds, partitions, eitherSide };
        made = await native.hashJoin(job, keys!, { ...request, buildLeft }, how);
      } catch (error) {
        if (!isOutOfDeviceMemory(error)) throw error;
        return async () => ({ ...prepared, ...(await planInstead(call, prepared, (error as Error).message)) });
      }
      found(made);
      return undefined;
    },
    async mergeJoin({ buildLeft, devices, subpartitions }) {
      const [left, right] = [runs.left[0] ?? null, runs.right[0] ?? null];
      const made = await native.mergeJoin(job, keys!, left, right, { ...request, buildLeft }, { devices, subpartitions });
      call.free(left, right);
      found(made);
    },
    async sortMergeJoin({ buildLeft, devices }) {
      found(await native.sortMergeJoin(job, keys!, { ...request, buildLeft }, devices));
    },
    async residentJoin() {
      const { tables, lent } = prepared.joined!;
      const made = await native.joinTablesHome(job, tables, request);
      call.free(tables.keys, ...lent);
      found(made);
    },
    async lookupJoin() {
      found(await native.lookupJoin(job, keys!, request));
    },
    async crossJoin() {
      const { order, offset, limit } = task.settings;
      const [left, right] = [task.left.rows, task.right.rows];
      found(await native.crossJoin(job, left, right, request.maxRows, order ?? 'left', offset, limit));
    },
    async orderRows({ side }) {
      checkHostBytes(`Ordering ${rows.size} rows`, orderBytes(call, task, request, rows.size), call.resources);
      await native.orderRows(job, rows, side);
    },
    async sliceRows({ offset, limit }) {
      await native.sliceRows(job, rows, offset, limit);
    },
    async gather({ side, columns: gathered, devices }) {
      const wanted = (task.want as { columns: ResultColumn[] }).columns;
      const inputs = gathered.map((index) => position[side!].get(wanted[index]!.column)!);
      const made = await native.gatherOnDevices(job, relations[side!]!, inputs, rows, side!, devices);
      for (const [index, column] of gathered.entries()) columns[column] = made[index]!;
    },
    async column(step) {
      columns[step.column] = await makeColumn(call, task, prepared, rows, step);
    },
  });
  if (instead) return execute(call, task, await instead());
  const { skew, splitRows, spilledRows } = rows;
  const left = task.want === 'indices' ? native.takeJoinValues(job, rows, 'left') : null;
  const right = task.want === 'indices' && request.wantRight ? native.takeJoinValues(job, rows, 'right') : null;
  call.free(rows, relations.left, relations.right);
  return {
    columns,
    left,
    right,
    table: null,
    rows: size,
    stats: call.stats(plan, [task.left.rows, task.right.rows], size, { skew, splitRows, spilledRows }),
  };
}

/** A join without hashing, once the devices turn out too small for it. */
async function planInstead(call: Call, { keyed, plan, resources }: Prepared, why: string): Promise<Planned> {
  const { keys, shape, deviceBytes } = keyed!;
  const left = { ...call.resources, links: resources.links };
  return planInOrder(call, keys, shape, async (of) => ({
    plan: { ...planWithoutHash(of, deviceBytes, left, plan, why), loaded: plan.loaded },
    resources: left,
  }));
}

/** Host memory of ordering so many rows, beside them. */
function orderBytes(call: Call, { left, right, settings }: JoinTask, request: NativeJoinRequest, rows: number): number {
  const [side, other] = settings.order === 'right' ? [right, left] : [left, right];
  const hasOther = settings.order === 'right' ? request.wantLeft : request.wantRight;
  return call.native.orderRowsBytes(rows, rowNumberBytes(side), hasOther ? rowNumberBytes(other) : 0);
}

/** Now that the number of rows is known: throws where the result can't be made. */
function checkRows(call: Call, size: number, task: JoinTask, { planned }: Prepared): void {
  if (task.want === 'count') return;
  checkHolds(call, task, size);
  const bytes = madeBytes(
    planned.flatMap((column, index) => {
      if (isHandedOver(column)) return [];
      // Texts and indices that are decoded have their numbers first.
      return column.from === 'decoded' && isNumbered(task, index) ? [{ ...column, scratchBytes: hostBlock(4 * size) }] : [column];
    }),
    (column) => columnBlocks(size, column),
  );
  checkHostBytes(`Making the columns of a result of ${size} rows`, bytes, call.resources, JOIN_IN_BATCHES);
}

function isNumbered({ left, right, want }: JoinTask, index: number): boolean {
  const { source, column } = (want as { columns: ResultColumn[] }).columns[index]!;
  const { order, dictionary } = infoOf(source === 'right' ? right : left, column);
  return dictionary !== null || order === 'bytes';
}

/** Throws where what the call gives, a table or typed arrays, can't hold so many rows. */
function checkHolds(call: Call, { left, right, want }: JoinTask, rows: number): void {
  if (!call.core.givesArrays) {
    checkTableRows(rows, 'Join the left table in parts, or use joinIndices.');
    return;
  }
  const widths =
    typeof want === 'string'
      ? [left, right].map(rowNumberBytes)
      : want.columns.map(({ source, column }) => infoOf(source === 'right' ? right : left, column).width);
  checkArrayRows(
    rows,
    Math.max(...widths),
    'Join the left side in parts, or use join(), whose tables have several record batches.',
  );
}

const rowNumberBytes = ({ rows }: Input): number => (rows < 2 ** 32 - 1 ? 4 : 8);

async function makeColumn(
  call: Call,
  task: JoinTask,
  prepared: Prepared,
  rows: RowsHandle,
  step: ColumnStep,
): Promise<NativeResultColumn> {
  const { native, job } = call;
  const { relations, position } = prepared;
  const { columns } = task.want as { columns: ResultColumn[] };
  const { column, source, common } = columns[step.column]!;
  if (step.from === 'keys') return native.takeJoinKeys(job, rows);
  if (step.from === 'decoded') return native.decodeJoinKeys(job, rows, pairOf(task, columns[step.column]!));
  if (source === 'coalesced') {
    const [left, right] = [position.left.get(column)!, position.right.get(rightOf(task.keys, column))!];
    const as = common?.as ?? { left: null, right: null };
    return native.gatherCoalesced(job, relations.left!, left, relations.right!, right, rows, as);
  }
  if (step.from === 'payload') return native.takeJoinValues(job, rows, source);
  return native.gather(job, relations[source]!, position[source].get(column)!, rows, source);
}
