/** Whether the keys of a join are as unique as `validate` says: a look at each side that has to be, before it is joined. */
import type * as arrow from 'apache-arrow';
import type { Input } from '../columns/input.js';
import { sortLayout, uniqueKeyColumns } from '../columns/layout.js';
import { buildTable } from '../columns/result.js';
import { WarpjoinError } from '../errors.js';
import { type RelationHandle, SIDES, type Side } from '../native.js';
import type { JoinBatchesSettings, JoinSettings } from '../options.js';
import { quote, show } from '../suggest.js';
import { type Call, type EngineCore, onProcessor, runCall } from './call.js';
import type { JoinTask } from './join-task.js';
import { readInput } from './load.js';
import { selfKeys } from './unique.js';

type Validate = JoinSettings['validate'];

/** The sides of which each key is to be there once. */
export function uniqueSides(validate: Validate): Side[] {
  const often = validate.split(':');
  return SIDES.filter((_, index) => often[index] === '1');
}

/** The key columns of rows that are to have each key once. */
interface UniqueKeys {
  /** Its argument names the side. */
  input: Input;
  columns: readonly number[];
  nullsEqual: readonly boolean[];
  validate: Validate;
  /** Whether the rows are the first ones of their side, so that messages can say which. */
  isNumbered: boolean;
}

/** Rejects with ERR_DUPLICATE_KEY where two rows of a side that has to be unique share a key. */
export async function checkUniqueKeys(call: Call, task: JoinTask): Promise<void> {
  const { validate } = task.settings;
  for (const side of uniqueSides(validate)) {
    const columns = [...new Set(task.keys!.map((key) => key[side]))];
    const nullsEqual = columns.map((column) => task.keys!.some((key) => key[side] === column && key.nullsEqual));
    await check(call, { input: task[side], columns, nullsEqual, validate, isNumbered: true });
  }
}

/** The same of some rows of a side of a join of batches. `isFirst`: they are its first ones. */
export async function checkUniqueRows(
  core: EngineCore,
  side: Side,
  rows: readonly (arrow.RecordBatch | arrow.Table)[],
  { keys, nullsEqual, validate, signal }: JoinBatchesSettings,
  isFirst: boolean,
): Promise<void> {
  const input = readInput(core, rows, side);
  const unique = { input, columns: uniqueKeyColumns(input, keys![side]), nullsEqual, validate, isNumbered: isFirst };
  const running = { signal, onProgress: undefined, trace: undefined };
  await runCall(onProcessor(core, "device 'auto': keys are validated on the processor"), running, (call) => check(call, unique));
}

async function check(call: Call, unique: UniqueKeys): Promise<void> {
  const { native, job } = call;
  const { input, columns, nullsEqual } = unique;
  const side = input.argument;
  await call.bringHome(input);
  const relation = await call.relation(`check ${side} keys`, input, columns);
  const keys = await selfKeys(call, relation, [...columns.keys()], `encode ${side} keys`, nullsEqual);
  const repeated = await call.step(`find repeated ${side} keys`, () => native.repeatedKey(job, keys));
  call.free(keys);
  if (repeated) throw await duplicate(call, unique, relation, repeated);
  call.free(relation);
}

async function duplicate(
  call: Call,
  { input, columns, validate, isNumbered }: UniqueKeys,
  relation: RelationHandle,
  { first, row }: { first: number; row: number },
): Promise<WarpjoinError> {
  const names = columns.map((column) => input.columns[column]!.name);
  const values = await keyValues(call, input, names, relation, row);
  const key = names.map((name, index) => `${quote(name)} ${values[index]}`).join(', ');
  const rows = isNumbered ? `rows ${first} and ${row}` : 'two rows';
  return new WarpjoinError(
    'ERR_DUPLICATE_KEY',
    `Expected each key of the ${input.argument} table once, for validate is ${quote(validate)}, but ${rows} have the same: ${key}.`,
  );
}

/** The values of one row as text. */
async function keyValues(
  call: Call,
  input: Input,
  names: readonly string[],
  relation: RelationHandle,
  row: number,
): Promise<string[]> {
  const { native, job } = call;
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
