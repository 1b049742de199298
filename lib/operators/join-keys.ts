/** The keys of a join from host memory: how they are made of the columns, and what of the result comes with them. */
import { canBeCarried, type Input, infoOf } from '../columns/input.js';
import { type KeyPair, type ResultColumn, sameBytes } from '../columns/layout.js';
import type { JoinKeysHandle, NativePayload, RelationHandle, Side } from '../native.js';
import type { Call } from './call.js';
import type { JoinTask } from './join-task.js';

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

/**
 * Whether keys could give the left column of a pair: integers, indices of dictionaries, and where a key is one column numbers of
 * its own width. Keys of several columns give texts, too, if few are distinct.
 */
function givesColumn(left: Input, right: Input, { left: column, right: other, factors, nullsEqual }: KeyPair, packed: boolean) {
  if ([factors.left, factors.right].some(({ pow10, times }) => pow10 > 0 || times > 1)) return false;
  // Nulls that match have keys of their own.
  if (nullsEqual && !left.columns[column]!.withoutNulls && !right.columns[other]!.withoutNulls) return false;
  const { kind, order, width, dictionary } = infoOf(left, column);
  if (order === 'none') return false;
  if (dictionary) return true;
  if (order === 'bytes') return packed && (kind === 'utf8' || kind === 'large_utf8');
  return packed ? order !== 'floating' : order !== 'boolean' && (width === 4 || width === 8);
}

/** The pair whose left column it is, or whose right one if that has the same bytes; -1: none. */
export function pairOf({ left, right, keys }: JoinTask, { source, column }: ResultColumn): number {
  return keys!.findIndex((key) => {
    if (source === 'left') return column === key.left;
    return source === 'right' && column === key.right && sameBytes(infoOf(left, key.left), infoOf(right, key.right));
  });
}

/** The pairs whose columns are asked for from a side, if all of them could come out of the tuples' keys. */
function pairsToGive(task: JoinTask, side: Side): number[] {
  const { left, right, keys, settings, want } = task;
  if (!keys || settings.how !== 'inner' || settings.order || typeof want === 'string') return [];
  const pairs = want.columns.filter(({ source }) => source === side).map((column) => pairOf(task, column));
  const wanted = [...new Set(pairs)].filter((pair) => pair >= 0);
  return wanted.every((pair) => givesColumn(left, right, keys[pair]!, keys.length > 1)) ? wanted : [];
}

/**
 * The one column of a side that can travel with its keys, or null: a side whose rows are read twice needs row numbers, and so do
 * rows that are to be ordered.
 */
export function carriedColumn(task: JoinTask, side: Side, keysAreGiven: boolean): number | null {
  const { settings, want } = task;
  if (settings.how !== 'inner' || settings.order || typeof want === 'string') return null;
  const moved = want.columns.filter((column) => column.source === side && !(keysAreGiven && pairOf(task, column) >= 0));
  return moved.length === 1 && canBeCarried(task[side], moved[0]!.column) ? moved[0]!.column : null;
}

/** Whether the rows' keys become the key columns that are asked for from a side. */
export function givesKeys(task: JoinTask, side: Side, { givesLeft }: JoinKeysHandle): boolean {
  const pairs = pairsToGive(task, side);
  return pairs.length > 0 && pairs.every((pair) => givesLeft[pair]);
}

export async function encodeKeys(
  call: Call,
  task: JoinTask,
  columns: readonly KeyPair[],
  relations: Record<Side, RelationHandle | null>,
  position: Record<Side, Map<number, number>>,
): Promise<JoinKeysHandle> {
  const of = (side: Side): number[] => columns.map((key) => position[side].get(key[side])!);
  const payload = (side: Side): NativePayload => {
    const [given, otherwise] = [true, false].map((given) => {
      const column = carriedColumn(task, side, given);
      return column === null ? null : position[side].get(column)!;
    });
    const pairs = pairsToGive(task, side);
    return pairs.length > 0 ? { pairs, given: given!, otherwise: otherwise! } : otherwise!;
  };
  const [left, right] = [relations.left!, relations.right!];
  const comparisons = columns.map(({ nullsEqual, factors }) => ({ nullsEqual, factors }));
  const job = (): Promise<JoinKeysHandle> =>
    call.native.joinKeys(call.job, left, of('left'), payload('left'), right, of('right'), payload('right'), comparisons);
  return call.keep(await call.step('encode keys', job));
}
