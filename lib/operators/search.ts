/** Tables in order: whether one is, where rows of another would go, and where a merge of several is cut. */
import type * as arrow from 'apache-arrow';
import { whenRead } from '../columns/batches.js';
import { type Input, infoOf } from '../columns/input.js';
import { sortKeyColumns } from '../columns/layout.js';
import { type RowNumbers, rowNumbers } from '../columns/result.js';
import { type TypeInfo, typeName } from '../columns/types.js';
import { WarpjoinError } from '../errors.js';
import type { MergeCut, SortColumnSpec } from '../native.js';
import { isSortedSchema, type Running, type SortKey, searchSortedSchema, sortSettings } from '../options.js';
import { quote } from '../suggest.js';
import { type EngineCore, runCall } from './call.js';
import { readInput } from './load.js';

/** The columns by their places among those that a relation is made of. */
const specsOf = (by: readonly SortKey[]): SortColumnSpec[] =>
  by.map(({ descending, nullsLast }, column) => ({ column, descending, nullsLast }));

export async function isSorted(core: EngineCore, table: unknown, options: unknown): Promise<boolean> {
  const { by, ...running } = sortSettings(isSortedSchema, 'isSorted', options);
  return whenRead({ input: table }, running.signal, async (tables) => {
    const input = readInput(core, tables.input, 'input');
    const keys = sortKeyColumns(input, by);
    return runCall(core, running, async (call) => {
      await call.bringHome(input);
      const relation = await call.relation('check buffers', input, keys);
      return call.step('check order', () => call.native.rowsAreSorted(call.job, relation, specsOf(by)));
    });
  });
}

export async function searchSorted(core: EngineCore, table: unknown, values: unknown, options: unknown): Promise<RowNumbers> {
  const { by, side, ...running } = sortSettings(searchSortedSchema, 'searchSorted', options);
  return whenRead({ input: table, values }, running.signal, async (tables) => {
    const [sorted, wanted] = [readInput(core, tables.input, 'input'), readInput(core, tables.values, 'values')];
    const keys = { table: sortKeyColumns(sorted, by), values: sortKeyColumns(wanted, by) };
    for (const [index, column] of keys.table.entries()) checkSearchable(sorted, column, wanted, keys.values[index]!);
    return runCall({ ...core, givesArrays: true }, running, async (call) => {
      await call.bringHome(sorted, wanted);
      const relation = await call.relation('check buffers', sorted, keys.table);
      const rows = await call.relation('check values', wanted, keys.values);
      const columns = [...keys.values.keys()];
      const { native, job } = call;
      return rowNumbers(await call.step('search', () => native.searchSorted(job, relation, specsOf(by), rows, columns, side)));
    });
  });
}

/** A row of one of several tables. */
export interface RowOfTable {
  table: number;
  row: number;
}

/**
 * Cuts a stable merge of tables of one schema, each in the order of `by`, at the least of some of their rows: says of which table it is,
 * and how many rows of each come before it.
 */
export async function cutMerge(
  core: EngineCore,
  tables: readonly arrow.Table[],
  rows: readonly RowOfTable[],
  by: readonly SortKey[],
  running: Running,
): Promise<MergeCut> {
  const input = readInput(core, tables, 'input');
  const ends: number[] = [];
  for (const { numRows } of tables) ends.push((ends.at(-1) ?? 0) + numRows);
  const places = rows.map(({ table, row }) => ends[table]! - tables[table]!.numRows + row);
  const keys = sortKeyColumns(input, by);
  return runCall(core, running, async (call) => {
    const relation = await call.relation('check buffers', input, keys);
    return call.step('cut', () => call.native.cutMerge(call.job, relation, specsOf(by), ends, places));
  });
}

/** Throws unless both columns have one type, but for the widths of integers, floats and offsets; dictionaries have their values'. */
function checkSearchable(table: Input, tableColumn: number, values: Input, valuesColumn: number): void {
  const [one, other] = [infoOf(table, tableColumn), infoOf(values, valuesColumn)];
  const alike = ({ order, comparesAs, type, dictionary }: TypeInfo): string => {
    if (dictionary) return alike(dictionary);
    return order === 'bytes' || order === 'floating' ? String(comparesAs) : typeName(type).replace(/^u?int\d+$/, 'integer');
  };
  if (alike(one) === alike(other)) return;
  const name = quote(table.columns[tableColumn]!.name);
  throw new WarpjoinError(
    'ERR_KEY_TYPE',
    `Expected column ${name} of one type in both tables but it is ${typeName(one.type)} in the ${table.argument} table and ` +
      `${typeName(other.type)} in the ${values.argument} table. Cast one of them.`,
  );
}
