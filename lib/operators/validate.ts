/** Whether the keys of a join are as unique as `validate` says: a look at each side that has to be, before the join. */
import { sortLayout } from '../columns/layout.js';
import { buildTable } from '../columns/result.js';
import { WarpjoinError } from '../errors.js';
import type { RelationHandle, Side } from '../native.js';
import { quote, show } from '../suggest.js';
import type { Call } from './call.js';
import type { JoinTask } from './join-task.js';
import { selfKeys } from './unique.js';

/** Rejects with ERR_DUPLICATE_KEY where two rows of a side that has to be unique share a key. */
export async function checkUniqueKeys(call: Call, task: JoinTask): Promise<void> {
  const [left, right] = task.settings.validate.split(':');
  if (left === '1') await checkSide(call, task, 'left');
  if (right === '1') await checkSide(call, task, 'right');
}

async function checkSide(call: Call, task: JoinTask, side: Side): Promise<void> {
  const { native, job } = call;
  const input = task[side];
  const columns = [...new Set(task.keys!.map((key) => key[side]))];
  const nullsEqual = columns.map((column) => task.keys!.some((key) => key[side] === column && key.nullsEqual));
  await call.bringHome(input);
  const relation = await call.relation(`check ${side} keys`, input, columns);
  const keys = await selfKeys(call, relation, [...columns.keys()], `encode ${side} keys`, nullsEqual);
  const repeated = await call.step(`find repeated ${side} keys`, () => native.repeatedKey(job, keys));
  call.free(keys);
  if (repeated) throw await duplicate(call, task, side, columns, relation, repeated);
  call.free(relation);
}

async function duplicate(
  call: Call,
  task: JoinTask,
  side: Side,
  columns: readonly number[],
  relation: RelationHandle,
  { first, row }: { first: number; row: number },
): Promise<WarpjoinError> {
  const input = task[side];
  const names = columns.map((column) => input.columns[column]!.name);
  const values = await keyValues(call, task, side, names, relation, row);
  const key = names.map((name, index) => `${quote(name)} ${values[index]}`).join(', ');
  return new WarpjoinError(
    'ERR_DUPLICATE_KEY',
    `Expected each key of the ${input.argument} table once, for validate is ${quote(task.settings.validate)}, ` +
      `but rows ${first} and ${row} have the same: ${key}.`,
  );
}

/** The values of one row as text. */
async function keyValues(
  call: Call,
  task: JoinTask,
  side: Side,
  names: readonly string[],
  relation: RelationHandle,
  row: number,
): Promise<string[]> {
  const { native, job } = call;
  const input = task[side];
  // The list of this one row.
  const rows = call.keep(await native.crossJoin(job, input.rows, 1, Number.POSITIVE_INFINITY, 'left', row, 1));
  const made = await Promise.all(names.map((_, index) => native.gather(job, relation, index, rows, 'left')));
  const table = buildTable(sortLayout(input, names), made, 1, input);
  return names.map((_, index) => valueText(table.getChildAt(index)!.get(0)));
}

const MOST_BYTES = 30;

function valueText(value: unknown): string {
  if (typeof value === 'bigint') return `${value}`;
  if (value instanceof Uint8Array) {
    const hex = Buffer.from(value.subarray(0, MOST_BYTES)).toString('hex');
    return `0x${hex}${value.length > MOST_BYTES ? '…' : ''}`;
  }
  return show(value);
}
