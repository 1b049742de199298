/** The rows of record batches in groups by a hash of their keys: what a partitioned join is made of. */
import type * as arrow from 'apache-arrow';
import { whenRead } from '../columns/batches.js';
import { type ForeignTable, findColumn } from '../columns/input.js';
import { sortLayout } from '../columns/layout.js';
import { libraryOf } from '../columns/library.js';
import { buildTable, checkTableRows } from '../columns/result.js';
import type { KeyComparison, NativeResultColumn, Side } from '../native.js';
import type { Running } from '../options.js';
import { type EngineCore, onProcessor, runCall } from './call.js';
import { readInput } from './load.js';

/** What rows of a side of a join are grouped by. */
export interface Grouping {
  readonly side: Side;
  readonly keys: readonly string[];
  readonly comparisons: readonly KeyComparison[];
  /** A power of two up to 256. */
  readonly groups: number;
  /** The seed of the hash. Equal keys of both sides are in the same group where it is the same. */
  readonly seed: number;
}

/**
 * A table for each group, null for one without rows. No buffer of a table has rows of another, but for bytes of bitmaps. The host's
 * threads do all of it.
 */
export async function groupRows(
  core: EngineCore,
  batches: readonly arrow.RecordBatch[],
  { side, keys, comparisons, groups, seed }: Grouping,
  running: Running,
): Promise<(arrow.Table | null)[]> {
  return whenRead({ input: batches }, running.signal, async ({ input }) => {
    const table = readInput(core, input, 'input');
    const columns = keys.map((name) => findColumn(table, name, 'on'));
    const layout = sortLayout(table, undefined);
    return runCall(onProcessor(core, "device 'auto': rows are grouped on the processor"), running, async (call) => {
      const { native, job } = call;
      const all = [...table.columns.keys()];
      const relation = await call.relation('check buffers', table, all);
      const group = () => native.groupRows(job, relation, columns, comparisons, side, groups, seed);
      const rows = call.keep(await call.step('group rows', group));
      checkTableRows(rows.size, 'Give smaller batches.');
      const made: NativeResultColumn[] = [];
      for (const column of all) {
        const gather = () => native.gather(job, relation, column, rows, 'left');
        made.push(await call.step(`gather ${table.columns[column]!.name}`, gather));
      }
      return tablesOfGroups(buildTable(layout, made, rows.size, table, rows.groupEnds), rows.groupEnds);
    });
  });
}

/** The record batches of each group, of which none has rows of two. */
function tablesOfGroups(table: arrow.Table, ends: readonly number[]): (arrow.Table | null)[] {
  const { schema, batches } = table;
  const { Table } = libraryOf(table as unknown as ForeignTable);
  let next = 0;
  let row = 0;
  return ends.map((end) => {
    const first = next;
    while (row < end) row += batches[next++]!.numRows;
    return next > first ? new Table(schema, batches.slice(first, next)) : null;
  });
}
