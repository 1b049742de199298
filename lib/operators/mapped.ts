/** Results of joins and sorts that lie in temporary files: rows of calls with batches, written as they come, over a file that is mapped. */
import { OwnSignal, type Signal } from '../abort.js';
import { Behind } from '../behind.js';
import { isBatch, isTable, readable } from '../columns/batches.js';
import type { ForeignTable } from '../columns/input.js';
import { libraryOf } from '../columns/library.js';
import { checkTableRows } from '../columns/result.js';
import { tablesOfBatches } from '../columns/tables.js';
import { eachIn, itemsIn } from '../items.js';
import { native, type Side } from '../native.js';
import { type JoinSettings, joinSchema, joinSettings, type Running, sortSchema, sortSettings } from '../options.js';
import { Reporting } from '../progress.js';
import { expected } from '../schema.js';
import { tracing } from '../trace.js';
import type { MappedTable } from '../types.js';
import { joinFraction, sortFraction } from './batch-progress.js';
import { type BatchesCore, type BatchStats, type BatchStream, noStats } from './batch-stream.js';
import { joinBatches } from './join-batches.js';
import { LoadedTable } from './load.js';
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
  const { keys, how, coalesce, suffix, select, algorithm, sortAlgorithm, validate } = settings;
  const { limit, offset, maxOutputRows, order } = settings;
  checkMapped('join', settings);
  const on = keys && {
    leftOn: keys.map(({ left }) => left),
    rightOn: keys.map(({ right }) => right),
    nullsEqual: keys.map(({ nullsEqual }) => nullsEqual),
    coalesce,
  };
  const rows = Math.max(1, rowsOf(left, 'left') + rowsOf(right, 'right'));
  return mapped(core, settings, {
    step: 'join',
    batches: (core, running) =>
      joinBatches(core, left, right, {
        ...on,
        ...{ how, suffix, select, algorithm, sortAlgorithm, validate, offset },
        ...(Number.isFinite(limit) && { limit }),
        ...(Number.isFinite(maxOutputRows) && { maxOutputRows }),
        buildSide: buildSideOf(settings, left, right),
        maintainOrder: order ?? 'none',
        ...running,
      }),
    fraction: (stats) => joinFraction(stats.inputRows / rows, stats, order !== null),
  });
}

export async function sortMapped(core: BatchesCore, table: unknown, options: unknown): Promise<MappedTable> {
  const settings = sortSettings(sortSchema, 'sort', options);
  checkMapped('sort', settings);
  const { by, select, algorithm, limit, offset } = settings;
  const some = { by, select, algorithm, offset, ...(Number.isFinite(limit) && { limit }) };
  const rows = Math.max(1, rowsOf(table, 'input'));
  return mapped(core, settings, {
    step: 'sort',
    batches: (core, running) => sortBatches(core, table, { ...some, ...running }),
    fraction: (stats) => sortFraction(stats.inputRows / rows, stats, limit, offset),
  });
}

/** Rejects options that go with no mapped result. */
function checkMapped(call: string, { resident }: { resident: boolean }): void {
  if (resident) throw expected('no resident', `${call} with result "mapped"`, resident, ' A result lies in one place.');
}

/** The side that is asked for; where none is, the one whose order is not kept, then that with fewer rows. */
function buildSideOf({ buildSide, order }: JoinSettings, left: unknown, right: unknown): Side {
  if (buildSide !== 'auto') return buildSide;
  if (order) return order === 'left' ? 'right' : 'left';
  return rowsOf(left, 'left') < rowsOf(right, 'right') ? 'left' : 'right';
}

/** Rows of a table, a batch or an array of them; more than any where that is not known. */
function rowsOf(value: unknown, argument: string): number {
  const of = (one: unknown) =>
    isTable(one) || isBatch(one) || one instanceof LoadedTable ? (one as { numRows: number }).numRows : Number.POSITIVE_INFINITY;
  return readable(argument, () => (Array.isArray(value) ? value.reduce((rows, one) => rows + of(one), 0) : of(value)));
}

/** A call whose record batches make the result. */
interface MappedCall {
  /** As progress names it. */
  step: string;
  batches(core: BatchesCore, running: { batchRows: number; signal: Signal }): BatchStream;
  /** About the share of it that is done. */
  fraction(stats: BatchStats): number;
}

/** What a call with batches gives, in one table. */
function mapped(core: BatchesCore, { signal, onProgress, trace }: Running, call: MappedCall): Promise<MappedTable> {
  return tracing(trace, async (keep) => {
    const asked = { ...core, maxBufferBytes: BUFFER_BYTES, ...(keep && { keep }) };
    const own = new OwnSignal(signal);
    const batches = call.batches(asked, { batchRows: BATCH_ROWS, signal: own });
    const reporting = onProgress && new Reporting(onProgress);
    reporting?.start(
      () => ({ fraction: call.fraction(batches.stats), step: call.step }),
      () => own.abort(),
    );
    try {
      const made = await inFile(asked, batches);
      reporting?.finish();
      return made;
    } catch (error) {
      reporting?.check();
      throw error;
    } finally {
      reporting?.stop();
    }
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
