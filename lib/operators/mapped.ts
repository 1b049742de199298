/** Results of joins and sorts that lie in temporary files: rows of calls with batches, written as they come, over a file that is mapped. */
import type * as arrow from 'apache-arrow';
import { isBatch, isTable, readable } from '../columns/batches.js';
import type { ForeignTable } from '../columns/input.js';
import { libraryOf } from '../columns/library.js';
import { checkTableRows } from '../columns/result.js';
import { tablesOfBatches } from '../columns/tables.js';
import { WarpjoinError } from '../errors.js';
import { eachIn, itemsIn } from '../items.js';
import { native, type Side } from '../native.js';
import { type JoinSettings, joinSchema, joinSettings, type Running, sortSchema, sortSettings } from '../options.js';
import { expected } from '../schema.js';
import { tracing } from '../trace.js';
import type { MappedTable } from '../types.js';
import { Behind } from './batch-part.js';
import { type BatchesCore, type BatchStream, noStats } from './batch-stream.js';
import { joinBatches } from './join-batches.js';
import { Run } from './runs.js';
import { asResult } from './shared.js';
import { sortBatches } from './sort-batches.js';

/** Of a record batch: few batches, whose columns have room in one buffer together. */
const BATCH_ROWS = 2 ** 20;
const BUFFER_BYTES = 2 ** 24;

/** Whether options ask for such a result. They are not checked yet. */
export function isMapped(options: unknown): boolean {
  try {
    return (options as { result?: unknown } | null | undefined)?.result === 'mapped';
  } catch {
    return false; // whoever checks them says so
  }
}

export async function joinMapped(core: BatchesCore, left: unknown, right: unknown, options: unknown): Promise<MappedTable> {
  const settings = joinSettings(joinSchema, 'join', options);
  const { keys, how, coalesce, suffix, select, algorithm, limit, offset, maxOutputRows, order, signal } = settings;
  checkMapped('join', settings);
  if (settings.validate !== 'm:m') throw notYet('validate', 'join');
  if (settings.sortAlgorithm !== 'auto') throw notYet('sortAlgorithm', 'join');
  const on = keys && {
    leftOn: keys.map(({ left }) => left),
    rightOn: keys.map(({ right }) => right),
    nullsEqual: keys.map(({ nullsEqual }) => nullsEqual),
    coalesce,
  };
  return mapped(core, settings, (core, batchRows) =>
    joinBatches(core, left, right, {
      ...on,
      ...{ how, suffix, select, algorithm, signal, offset, batchRows },
      ...(Number.isFinite(limit) && { limit }),
      ...(Number.isFinite(maxOutputRows) && { maxOutputRows }),
      buildSide: buildSideOf(settings, left, right),
      maintainOrder: order ?? 'none',
    }),
  );
}

export async function sortMapped(core: BatchesCore, table: unknown, options: unknown): Promise<MappedTable> {
  const settings = sortSettings(sortSchema, 'sort', options);
  checkMapped('sort', settings);
  const { by, select, algorithm, limit, offset, signal } = settings;
  const some = { by, select, algorithm, offset, signal, ...(Number.isFinite(limit) && { limit }) };
  return mapped(core, settings, (core, batchRows) => sortBatches(core, table, { ...some, batchRows }));
}

/** Rejects options that go with no mapped result, or not yet. */
function checkMapped(call: string, { resident, onProgress }: Running & { resident: boolean }): void {
  if (resident) throw expected('no resident', `${call} with result "mapped"`, resident, ' A result lies in one place.');
  if (onProgress) throw notYet('onProgress', call);
}

const notYet = (option: string, call: string): WarpjoinError =>
  new WarpjoinError('ERR_NOT_SUPPORTED', `${option} of ${call} with result "mapped" is not supported yet.`);

/** The side that is asked for; where none is, the one whose order is not kept, then that with fewer rows. */
function buildSideOf({ buildSide, order }: JoinSettings, left: unknown, right: unknown): Side {
  if (buildSide !== 'auto') return buildSide;
  if (order) return order === 'left' ? 'right' : 'left';
  return rowsOf(left, 'left') < rowsOf(right, 'right') ? 'left' : 'right';
}

/** Rows of a table or a batch; more than any where that is not known. */
const rowsOf = (value: unknown, argument: Side): number =>
  readable(argument, () =>
    isTable(value) || isBatch(value) ? (value as arrow.Table | arrow.RecordBatch).numRows : Number.POSITIVE_INFINITY,
  );

/** What a call with batches gives, in one table. */
function mapped(
  core: BatchesCore,
  { trace }: Pick<Running, 'trace'>,
  call: (core: BatchesCore, batchRows: number) => BatchStream,
): Promise<MappedTable> {
  return tracing(trace, (keep) => {
    const asked = { ...core, maxBufferBytes: BUFFER_BYTES, ...(keep && { keep }) };
    return inFile(asked, call(asked, BATCH_ROWS));
  });
}

/** Record batches as a table over a temporary file. They are written while the next ones are made. */
async function inFile(core: BatchesCore, batches: BatchStream): Promise<MappedTable> {
  await core.temporary.check();
  const file = await core.temporary.open(core.keep);
  const writes = new Behind();
  try {
    let run = undefined as Run | undefined;
    await eachIn(tablesOfBatches(itemsIn(batches), 'result'), (table) => {
      run ??= new Run(file, libraryOf(table as unknown as ForeignTable), table.schema, 0, 0, noStats());
      checkTableRows(batches.stats.outputRows, 'joinBatches() and sortBatches() give any number of rows.');
      return writes.start(() => run!.append(table));
    });
    await writes.end();
    const stats = { ...batches.stats, mappedBytes: file.size };
    return asResult(await run!.mapped(native()), stats);
  } catch (error) {
    await writes.end().catch(() => {});
    await file[Symbol.asyncDispose]();
    throw error;
  }
}
