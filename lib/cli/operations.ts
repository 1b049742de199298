/** The operators behind join, sort and unique: what they check, which columns they need, and how they run. */
import { makeVector, type RecordBatch, Table } from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { BatchStats, BatchStream, Engine, JoinOptions, Progress, UniqueOptions } from '../index.js';
import { joinFraction, sortFraction } from '../operators/batch-progress.js';
import { orderOf } from '../options.js';
import type { Options } from './arguments.js';
import { checkNames, type KnownInput, namesOf, neededForJoin, neededOf } from './columns.js';
import { type Coming, castsOf } from './inputs.js';
import { partitionColumns, type RowCount, renamedColumns } from './output.js';
import { parseBy } from './values.js';

export interface Running {
  signal: AbortSignal;
  onProgress?: (progress: Progress) => void;
  /** A file for the trace. */
  trace?: string;
}

export interface Made {
  /** The result, or as many of its first rows as are shown. */
  table: Table;
  count: RowCount;
  stats: object;
}

/** A result as it comes. */
export interface MadeOverTime {
  readonly batches: AsyncIterable<RecordBatch>;
  /** Known at its end. */
  readonly count: () => RowCount;
  readonly stats: Readonly<BatchStats>;
  /** About the share of the work that is done, from 0 to 1. */
  fraction(): number;
}

export interface Operation {
  /**
   * Checks the columns that the command line names. `isExact`: whether the types of the inputs are those that all of their rows have. Throws
   * UsageError, and ERR_KEY_TYPE for keys that can't be compared.
   */
  check(engine: Engine, inputs: readonly KnownInput[], isExact: boolean): Promise<void>;
  /** The columns of each input that have to be read; undefined for all. */
  needed(inputs: readonly KnownInput[]): (string[] | undefined)[];
  /** `shownRows`: rows that will be shown; no others have to be made. */
  run(engine: Engine, tables: readonly Table[], shownRows: number, running: Running): Promise<Made>;
  /** The same of inputs as they come, of about so many bytes; not there for operators that need whole tables. */
  comes?(
    engine: Engine,
    inputs: readonly Coming[],
    bytes: readonly number[],
    shownRows: number,
    running: Omit<Running, 'onProgress'>,
  ): MadeOverTime;
  explain(engine: Engine, tables: readonly Table[], more: { analyze: boolean; signal: AbortSignal }): Promise<string>;
  /** Whether rows come in the order of --partition-by; unset: they don't. */
  readonly isPartitioned?: boolean;
}

/** Options that were given; the API knows the defaults. */
export function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

function checkCasts(options: Options, inputs: readonly KnownInput[]): void {
  const names = inputs.flatMap(({ schema }) => namesOf(schema));
  checkNames('cast', castsOf(options).keys(), inputs.map(({ name }) => name).join(' and '), names);
}

/** Checks --select, --rename and --partition-by against the columns that there are. */
function checkResult(options: Options, what: string, names: readonly string[]): void {
  const select = options.names('select');
  if (select) checkNames('select', select, what, names);
  const renamed = renamedColumns(select ?? names, options);
  checkNames('partition-by', partitionColumns(options), 'the result', renamed);
}

export function joinOperation(options: Options): Operation {
  const keys = given({
    on: options.names('on'),
    leftOn: options.names('left-on'),
    rightOn: options.names('right-on'),
    nullsEqual: options.has('nulls-equal') || undefined,
    how: options.text('how') as 'inner' | undefined,
  });
  const shape = { ...keys, ...given({ suffix: options.text('suffix'), coalesce: options.has('coalesce') || undefined }) };
  const matching = given({
    algorithm: options.text('algorithm') as 'auto' | undefined,
    validate: options.text('validate') as 'm:m' | undefined,
    maintainOrder: options.text('maintain-order') as 'none' | undefined,
    limit: options.count('limit'),
    offset: options.count('offset'),
    maxOutputRows: options.count('max-output-rows'),
  });
  const select = options.names('select');
  const all = { ...shape, ...matching, ...given({ select }) } as object as JoinOptions;
  const order = orderOf({ how: shape.how ?? 'inner', maintainOrder: matching.maintainOrder ?? 'none' }) ?? 'none';
  const [leftKeys = [], rightKeys = []] = [keys.leftOn ?? keys.on, keys.rightOn ?? keys.on];
  return {
    async check(engine, inputs, isExact) {
      const [left, right] = inputs as [KnownInput, KnownInput];
      checkNames(keys.on ? 'on' : 'left-on', leftKeys, `LEFT (${left.name})`, namesOf(left.schema));
      checkNames(keys.on ? 'on' : 'right-on', rightKeys, `RIGHT (${right.name})`, namesOf(right.schema));
      checkCasts(options, inputs);
      if (castsOf(options).size > 0 && !isExact) return; // casts change types, and the tables have them
      // The join of no rows has the columns of the join.
      const [l, r] = [new Table(left.schema), new Table(right.schema)];
      const empty = await engine.join(l, r, shape as object as JoinOptions).catch((error) => {
        if (!isExact && error instanceof WarpjoinError && error.code === 'ERR_KEY_TYPE') return undefined;
        throw error;
      });
      if (empty) checkResult(options, 'the join', namesOf(empty.schema));
    },
    needed: (inputs) =>
      inputs.map((input, side) => {
        if (!select) return undefined;
        const names = namesOf(input.schema);
        return neededForJoin(names, side === 0 ? leftKeys : rightKeys, select, options.text('suffix') ?? '_right');
      }),
    async run(engine, [left, right], shownRows, running) {
      const limit = options.count('limit') ?? Number.POSITIVE_INFINITY;
      const most = Math.min(limit, shownRows);
      const bound = Number.isFinite(most) ? { limit: most } : {};
      const result = await engine.join(left!, right!, { ...all, ...bound, ...running });
      const rows = result.numRows;
      if (rows < most || most === limit) return { table: result, count: { rows }, stats: result.stats };
      const counted = { ...keys, ...matching, ...running, trace: undefined } as object as JoinOptions;
      return { table: result, count: { rows: await engine.joinCount(left!, right!, counted) }, stats: result.stats };
    },
    comes(engine, [left, right], [leftBytes, rightBytes], shownRows, running) {
      const isLeftSmaller = order === 'none' ? leftBytes! < rightBytes! : order === 'right';
      const { algorithm, validate, offset, maxOutputRows, limit = Number.POSITIVE_INFINITY } = matching;
      // One more than is shown, to know whether there are more.
      const most = Math.min(limit, shownRows + 1);
      const batches: BatchStream = engine.joinBatches(left!.tables, right!.tables, {
        ...shape,
        ...given({ select, algorithm, validate, maintainOrder: order, offset, maxOutputRows }),
        ...(Number.isFinite(most) && { limit: most }),
        buildSide: isLeftSmaller ? 'left' : 'right',
        ...running,
      } as never);
      const { stats } = batches;
      const count = () => ({ rows: Math.min(stats.outputRows, shownRows), more: stats.outputRows > shownRows });
      const bytes = leftBytes! + rightBytes!;
      const read = () => (leftBytes! * left!.fraction() + rightBytes! * right!.fraction()) / Math.max(1, bytes);
      return { batches, count, stats, fraction: () => joinFraction(read(), stats, order !== 'none') };
    },
    explain: (engine, [left, right], more) => engine.explain('join', left!, right!, { ...all, ...more }),
  };
}

export function sortOperation(options: Options): Operation {
  const sortKeys = parseBy(options.texts('by')!);
  const byNames = sortKeys.map(({ column }) => column);
  const select = options.names('select');
  const [limit, offset] = [options.count('limit'), options.count('offset')];
  const partitionBy = partitionColumns(options);
  // The first rows of all are others than those of the first partitions.
  const isPartitioned = limit === undefined && offset === undefined && !options.has('rename');
  const first = partitionBy.map((column) => sortKeys.find((key) => key.column === column) ?? { column });
  const by = isPartitioned ? [...first, ...sortKeys.filter(({ column }) => !partitionBy.includes(column))] : sortKeys;
  const all = { by, ...given({ limit, offset, select, algorithm: options.text('algorithm') as 'auto' | undefined }) };
  return {
    async check(_, [input]) {
      const names = namesOf(input!.schema);
      checkNames('by', byNames, input!.name, names);
      checkCasts(options, [input!]);
      checkResult(options, input!.name, names);
    },
    needed: ([input]) => [select && neededOf(namesOf(input!.schema), [...byNames, ...select])],
    async run(engine, [table], shownRows, running) {
      const most = Math.min(limit ?? Number.POSITIVE_INFINITY, shownRows);
      const result = await engine.sort(table!, { ...all, ...(Number.isFinite(most) && { limit: most }), ...running });
      const rows = Math.min(limit ?? Number.POSITIVE_INFINITY, Math.max(0, table!.numRows - (offset ?? 0)));
      return { table: result, count: { rows }, stats: result.stats };
    },
    comes(engine, [input], _, shownRows, running) {
      const most = Math.min(limit ?? Number.POSITIVE_INFINITY, shownRows);
      const some = { ...all, ...(Number.isFinite(most) && { limit: most }), ...running };
      const batches: BatchStream = engine.sortBatches(input!.tables, some as never);
      const { stats } = batches;
      const count = () => ({
        rows: Math.min(limit ?? Number.POSITIVE_INFINITY, Math.max(0, stats.inputRows - (offset ?? 0))),
      });
      return { batches, count, stats, fraction: () => sortFraction(input!.fraction(), stats, most, offset ?? 0) };
    },
    explain: (engine, [table], more) => engine.explain('sort', table!, { ...all, ...more }),
    isPartitioned,
  };
}

export function uniqueOperation(options: Options): Operation {
  const on = options.names('on');
  const select = options.names('select');
  const all = given({
    on,
    select,
    keep: options.text('keep') as 'any' | undefined,
    maintainOrder: options.has('maintain-order') || undefined,
  }) as UniqueOptions;
  return {
    async check(_, [input]) {
      const names = namesOf(input!.schema);
      if (on) checkNames('on', on, input!.name, names);
      checkCasts(options, [input!]);
      checkResult(options, input!.name, names);
    },
    needed: ([input]) => [on && select && neededOf(namesOf(input!.schema), [...on, ...select])],
    async run(engine, [table], shownRows, running) {
      const limit = options.count('limit') ?? Number.POSITIVE_INFINITY;
      if (Number.isFinite(shownRows)) {
        const { count, ...preview } = await uniquePreview(engine, table!, all, Math.min(limit, shownRows), running);
        return { ...preview, count: { rows: Math.min(limit, count.rows) } };
      }
      const result = await engine.unique(table!, { ...all, ...running });
      const rows = Math.min(limit, result.numRows);
      return { table: rows < result.numRows ? result.slice(0, rows) : result, count: { rows }, stats: result.stats };
    },
    explain: (engine, [table], more) => engine.explain('unique', table!, { ...all, ...more }),
  };
}

/** The first rows of unique(), by the numbers of all: no other rows are made. */
async function uniquePreview(
  engine: Engine,
  table: Table,
  options: UniqueOptions,
  shownRows: number,
  running: Running,
): Promise<Made> {
  const names = namesOf(table.schema);
  const number = freeName(names);
  const { select = names, on = names, ...rest } = options;
  const numbers = new Table({ [number]: makeVector(Float64Array.from({ length: table.numRows }, (_, row) => row)) });
  const numbered = table.assign(numbers);
  const unique = await engine.unique(numbered, { ...rest, on, select: [number], ...running } as UniqueOptions);
  const rows = unique.getChildAt(0)!;
  const shown = table.select([...select]);
  const batches: RecordBatch[] = [];
  for (let at = 0; at < Math.min(shownRows, unique.numRows); at++) {
    const row = rows.get(at) as number;
    batches.push(...shown.slice(row, row + 1).batches.filter((batch) => batch.numRows > 0));
  }
  return { table: new Table(shown.schema, batches), count: { rows: unique.numRows }, stats: unique.stats };
}

function freeName(names: readonly string[]): string {
  let name = 'row';
  while (names.includes(name)) name += '_';
  return name;
}
