/** The keys of a join from host memory: how they are made of the columns, and what of the result comes with them. */
import { canBeCarried, type Input, infoOf } from '../columns/input.js';
import type { KeyPair, ResultColumn } from '../columns/layout.js';
import type { JoinKeysHandle, RelationHandle, Side } from '../native.js';
import type { Call } from './call.js';
import type { JoinTask } from './join.js';

/** How keys were made of the columns. */
export function keysInWords({ made, bits, keyBytes, rowsAreKeysOf }: JoinKeysHandle): string {
  switch (made) {
    case 'value':
      return `values of ${keyBytes} bytes`;
    case 'packed':
      return `${bits} bits of each row, in ${keyBytes} bytes`;
    case 'code': {
      const of = bits === 0 ? 'texts' : `rows of ${bits} bits`;
      return `${keyBytes}-byte codes of ${of}${rowsAreKeysOf ? `, all of which differ on the ${rowsAreKeysOf} side` : ''}`;
    }
  }
}

/** Whether left key columns are asked for, and all that are could come out of the tuples' keys. */
function keysCouldBeHandedOver({ left, right, keys, settings, want }: JoinTask): boolean {
  if (!keys || settings.how !== 'inner' || settings.order || typeof want === 'string') return false;
  const wanted = keys.filter((key) => want.columns.some((column) => isColumnOf(column, key)));
  return wanted.length > 0 && wanted.every((key) => givesColumn(left, right, key, keys.length > 1));
}

/** Whether keys could give the left column of a pair: integers, and where a key is one column numbers of its own width. */
function givesColumn(left: Input, right: Input, { left: column, right: other, factors, nullsEqual }: KeyPair, packed: boolean) {
  if ([factors.left, factors.right].some(({ pow10, times }) => pow10 > 0 || times > 1)) return false;
  // Nulls that match have keys of their own.
  if (nullsEqual && !left.columns[column]!.withoutNulls && !right.columns[other]!.withoutNulls) return false;
  const { order, width, dictionary } = infoOf(left, column);
  if (dictionary || order === 'none' || order === 'bytes') return false;
  return packed ? order !== 'floating' : order !== 'boolean' && (width === 4 || width === 8);
}

const isColumnOf = ({ source, column }: ResultColumn, key: KeyPair): boolean => source === 'left' && column === key.left;
export const isLeftKey = (column: ResultColumn, keys: JoinTask['keys']): boolean => keys!.some((key) => isColumnOf(column, key));

/**
 * The one column of a side that can travel with its keys, or null: a side whose rows are read twice needs row numbers, and so do
 * rows that are to be ordered.
 */
export function carriedColumn(task: JoinTask, side: Side, keyIsHandedOver: boolean): number | null {
  const { settings, want, keys } = task;
  if (settings.how !== 'inner' || settings.order || typeof want === 'string') return null;
  const moved = want.columns.filter((column) => column.source === side && !(keyIsHandedOver && isLeftKey(column, keys)));
  return moved.length === 1 && canBeCarried(task[side], moved[0]!.column) ? moved[0]!.column : null;
}

/** Whether the rows' keys become the left key columns that are asked for. */
export function handsOverKeys(task: JoinTask, handle: JoinKeysHandle): boolean {
  if (!keysCouldBeHandedOver(task)) return false;
  const { columns } = task.want as { columns: ResultColumn[] };
  const keys = task.keys!;
  if (handle.made === 'packed')
    return keys.every((key, pair) => handle.givesLeft[pair] || !columns.some((column) => isColumnOf(column, key)));
  return handle.keysAreLeftValues && infoOf(task.left, keys[0]!.left).width === handle.keyBytes;
}

export async function encodeKeys(
  call: Call,
  task: JoinTask,
  columns: readonly KeyPair[],
  relations: Record<Side, RelationHandle | null>,
  position: Record<Side, Map<number, number>>,
): Promise<JoinKeysHandle> {
  const encode = async (keyIsHandedOver: boolean): Promise<JoinKeysHandle> => {
    const payload = (side: Side): number | null => {
      const column = carriedColumn(task, side, keyIsHandedOver);
      return column === null ? null : position[side].get(column)!;
    };
    const of = (side: Side): number[] => columns.map((key) => position[side].get(key[side])!);
    const [left, right] = [relations.left!, relations.right!];
    const comparisons = columns.map(({ nullsEqual, factors }) => ({ nullsEqual, factors }));
    const job = (): Promise<JoinKeysHandle> =>
      call.native.joinKeys(call.job, left, of('left'), payload('left'), right, of('right'), payload('right'), comparisons);
    return call.keep(await call.step('encode keys', job));
  };
  const hoped = keysCouldBeHandedOver(task);
  const keys = await encode(hoped);
  if (!hoped || !keys.left.carriesPayload || handsOverKeys(task, keys)) return keys;
  // The left keys have to be gathered after all, so the left rows need their numbers.
  call.free(keys);
  return encode(false);
}
