/** Which columns a result has, what they are called and where each comes from. */
import type { DataType } from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import type { Side } from '../native.js';
import type { JoinSettings, SortKey } from '../options.js';
import { didYouMean, list, quote } from '../suggest.js';
import { type CommonType, commonType } from './common-type.js';
import { distinctDictionaries } from './dictionaries.js';
import { findColumn, type Input, infoOf } from './input.js';
import { typeIn } from './library.js';
import {
  checkComparable,
  checkKey,
  isSameType,
  type KeyColumn,
  type KeyFactors,
  type TypeInfo,
  typeName,
  valuesOf,
} from './types.js';
import { noValues, shareDictionary, type Values } from './values.js';

/** Where a result column comes from: one side, or for the coalesced key of a full join the left side, else the right. */
export type Source = Side | 'coalesced';

export interface ResultColumn {
  name: string;
  /** For tables of the left input's apache-arrow. */
  type: DataType;
  nullable: boolean;
  metadata: Map<string, string> | undefined;
  source: Source;
  /** Column of the left or right input; of the left one where the source is coalesced. */
  column: number;
  /** That column's values: a result of indices has its dictionary. */
  of: Values;
  /** Where the source is coalesced: the type, if the columns of both sides have to become that. */
  common?: CommonType;
}

export interface JoinLayout {
  /** The inputs as they came, but that keys which become one column have one dictionary. */
  left: Input;
  right: Input;
  keys: readonly KeyPair[] | null;
  columns: ResultColumn[];
}

/** Columns of the inputs that are to be equal, at least one pair; null for cross. */
export interface KeyPair {
  left: number;
  right: number;
  nullsEqual: boolean;
  /** What brings both columns' values to one unit. */
  factors: KeyFactors;
}

/** Looks up the key columns and checks that they compare. */
export function joinKeyColumns(left: Input, right: Input, keys: NonNullable<JoinSettings['keys']>): KeyPair[] {
  if (keys.every((key) => key.left === key.right)) checkShared(left, right, keys);
  return keys.map(({ left: leftName, right: rightName, nullsEqual }) => {
    const found = { left: findColumn(left, leftName, 'leftOn'), right: findColumn(right, rightName, 'rightOn') };
    const factors = checkComparable(
      { label: `${quote(leftName)} of the ${left.argument} table`, info: infoOf(left, found.left) },
      { label: `${quote(rightName)} of the ${right.argument} table`, info: infoOf(right, found.right) },
    );
    return { ...found, nullsEqual, factors };
  });
}

/** Throws ERR_COLUMN_NOT_FOUND for keys of the same name in both tables, one of which a table does not have. */
function checkShared(left: Input, right: Input, keys: readonly { left: string }[]): void {
  const names = { left: left.columns.map(({ name }) => name), right: right.columns.map(({ name }) => name) };
  const shared = names.left.filter((name) => names.right.includes(name));
  const missing = keys.find((key) => !shared.includes(key.left))?.left;
  if (missing === undefined) return;
  const has = (of: readonly string[]): string => (of.length > 0 ? list(of) : 'no columns');
  throw new WarpjoinError(
    'ERR_COLUMN_NOT_FOUND',
    `Expected a column of both tables for on but received ${quote(missing)}. The left table has ${has(names.left)}. The right table has ` +
      `${has(names.right)}.${shared.length > 0 ? didYouMean(missing, shared) : ' They share no column name: leftOn and rightOn name the columns of each.'}`,
  );
}

/**
 * The columns of a join's result: the left ones in order, then the right ones less coalesced keys. A right one whose name the
 * left table has gets the suffix, as often as it takes to be like no other. Semi and anti joins give the left ones alone. A
 * coalesced key has the left key's name, and the values of the side whose rows are all there: the right one's in a right join. That
 * of a full join has a type that holds the values of both; so has that of a join whose rows are some of those of a full one, `whole`.
 */
export function joinLayout(
  leftInput: Input,
  rightInput: Input,
  settings: Pick<JoinSettings, 'how' | 'keys' | 'suffix' | 'coalesce' | 'select'>,
  whole = settings.how,
): JoinLayout {
  const { how, coalesce } = settings;
  const keys = settings.keys && joinKeyColumns(leftInput, rightInput, settings.keys);
  const coalesced = keys && coalesce ? keys : [];
  const ofBoth = coalesced.filter((key) => how === 'full' || (whole === 'full' && !areAlike(leftInput, rightInput, key)));
  const [left, right] = ofBoth.length > 0 ? withSharedDictionaries(leftInput, rightInput, ofBoth) : [leftInput, rightInput];
  const leftMissing = how === 'right' || how === 'full';
  const rightMissing = how === 'left' || how === 'full';
  const columns: UntypedColumn[] = left.columns.map((_, index) => resultColumn(left, index, 'left', leftMissing));
  if (how === 'semi' || how === 'anti') return { left, right, keys, columns: selected(columns, settings.select, [left]) };

  for (const key of coalesced) {
    const column = columns[key.left]!;
    if (ofBoth.includes(key)) columns[key.left] = coalescedColumn(left, right, key, column);
    else if (how === 'right') columns[key.left] = { ...resultColumn(right, key.right, 'right', false), name: column.name };
  }
  if (how === 'inner') for (const key of keys ?? []) takeInProbeOrder(left, right, key, columns);
  const ofLeft = new Set(columns.map((column) => column.name));
  const others = [...right.columns.keys()].filter((index) => !coalesced.some((key) => key.right === index));
  const names = new Set([...ofLeft, ...others.map((index) => right.columns[index]!.name)]);
  for (const index of others) {
    let { name } = right.columns[index]!;
    if (ofLeft.has(name)) {
      while (names.has(name)) name += settings.suffix;
      names.add(name);
    }
    columns.push({ ...resultColumn(right, index, 'right', rightMissing), name });
  }
  return { left, right, keys, columns: selected(columns, settings.select, [left, right], coalesced) };
}

/**
 * Takes a text key of an inner join from the longer side, where both are the same bytes. A lookup join, which joins by unique texts,
 * gives that side's rows in their order, so they are read in sequence.
 */
function takeInProbeOrder(left: Input, right: Input, key: KeyPair, columns: UntypedColumn[]): void {
  if (!sameBytes(infoOf(left, key.left), infoOf(right, key.right))) return;
  if (right.rows >= left.rows)
    columns[key.left] = { ...columns[key.left]!, source: 'right', column: key.right, of: right.columns[key.right]! };
}

/** Whether equal values of two key columns are the same texts of one type. */
export const sameBytes = (one: TypeInfo, other: TypeInfo): boolean =>
  one.order === 'bytes' && one.kind === other.kind && one.width === other.width && one.type.typeId === other.type.typeId;

/** The inputs with one dictionary for each pair of keys of the same type of dictionary. */
function withSharedDictionaries(left: Input, right: Input, keys: readonly KeyPair[]): [Input, Input] {
  const [lefts, rights] = [[...left.columns], [...right.columns]];
  for (const key of keys) {
    const [one, other] = [lefts[key.left]!, rights[key.right]!];
    if (!one.dictionary || !other.dictionary) continue;
    if (typeName(one.dictionary.info.type) !== typeName(other.dictionary.info.type)) continue;
    const shared = shareDictionary(one, infoOf(left, key.left), other, infoOf(right, key.right), left.argument);
    lefts[key.left] = { ...one, ...shared[0] };
    rights[key.right] = { ...other, ...shared[1] };
  }
  return [
    { ...left, columns: lefts },
    { ...right, columns: rights },
  ];
}

/**
 * The column that a pair of keys of a full join becomes. A side of the null type adds nulls alone, which are what the other side's
 * column has where its rows are missing.
 */
function coalescedColumn(left: Input, right: Input, key: KeyPair, { name }: UntypedColumn): UntypedColumn {
  const [of, other] = [resultColumn(left, key.left, 'left', true), resultColumn(right, key.right, 'right', true)];
  if (isOfNulls(infoOf(left, key.left))) return { ...other, name };
  if (isOfNulls(infoOf(right, key.right))) return of;
  const nullable = left.columns[key.left]!.nullable || right.columns[key.right]!.nullable;
  return { ...of, source: 'coalesced', nullable };
}

/** Whether the columns of a pair of keys have one type. */
const areAlike = (left: Input, right: Input, key: KeyPair): boolean =>
  isSameType(infoOf(left, key.left).type, infoOf(right, key.right).type);

const isOfNulls = (info: TypeInfo): boolean => valuesOf(info).kind === 'null';

/** A coalesced key with its type, and what makes both columns that. */
function inOneType(column: UntypedColumn, left: Input, right: Input, key: KeyPair): UntypedColumn {
  const { dictionary } = column.of;
  if (dictionary && dictionary === right.columns[key.right]!.dictionary) return column;
  const labelled = (input: Input, index: number): KeyColumn => {
    const label = `${quote(input.columns[index]!.name)} of the ${input.argument} table`;
    return { label, info: infoOf(input, index) };
  };
  const common = commonType(labelled(left, key.left), labelled(right, key.right), key.factors);
  return { ...column, common, of: noValues(common.info) };
}

/** The columns of a sort's result. */
export function sortLayout(table: Input, select: readonly string[] | undefined): ResultColumn[] {
  return selected(
    table.columns.map((_, index) => resultColumn(table, index, 'left', false)),
    select,
    [table],
  );
}

/** Looks up the columns to sort by and checks that they can be keys. */
export function sortKeyColumns(table: Input, by: readonly SortKey[]): number[] {
  return by.map(({ column }) => {
    const index = findColumn(table, column, 'by');
    let info = infoOf(table, index);
    while (info.dictionary) info = info.dictionary; // a dictionary is sorted by its values
    checkKey({ label: `${quote(column)} of the ${table.argument} table`, info });
    return index;
  });
}

/** The columns that rows are told apart by: those that are named, or all of them. */
export function uniqueKeyColumns(table: Input, on: readonly string[] | undefined): number[] {
  const indices = on ? on.map((name) => findColumn(table, name, 'on')) : [...table.columns.keys()];
  if (indices.length === 0) {
    throw new WarpjoinError('ERR_INVALID_TABLE', 'Expected a table with columns for unique but received one without.');
  }
  for (const [at, index] of indices.entries()) {
    const label = quote(table.columns[index]!.name);
    if (indices.indexOf(index) < at)
      throw new WarpjoinError('ERR_OPTION', `Expected each column once for on but received ${label} twice.`);
    checkKey({ label: `${label} of the ${table.argument} table`, info: infoOf(table, index) });
  }
  return indices;
}

/** Whether a type is supported matters only for columns that are selected. */
type UntypedColumn = Omit<ResultColumn, 'type'>;

function resultColumn(input: Input, index: number, source: Side, mayBeMissing: boolean): UntypedColumn {
  const of = input.columns[index]!;
  const { name, nullable, metadata } = of;
  return { name, nullable: nullable || mayBeMissing, metadata, source, column: index, of };
}

/** `inputs`: the left one and, for joins, the right one. `coalesced`: the keys that became one column. */
function selected(
  columns: readonly UntypedColumn[],
  select: readonly string[] | undefined,
  inputs: readonly [Input, Input?],
  coalesced: readonly KeyPair[] = [],
): ResultColumn[] {
  const [left, right] = inputs;
  const chosen = select ? pickByName(columns, select) : columns;
  const typed = chosen.map((one) => {
    const isCoalesced = one.source === 'coalesced';
    const column = isCoalesced ? inOneType(one, left, right!, coalesced.find((key) => key.left === one.column)!) : one;
    const info = column.common?.info ?? infoOf(column.source === 'right' ? right! : left, column.column);
    return { ...column, type: typeIn(left.library, info, quote(column.name)) };
  });
  return distinctDictionaries(left.library, typed);
}

function pickByName(columns: readonly UntypedColumn[], select: readonly string[]): UntypedColumn[] {
  const byName = new Map(columns.map((column) => [column.name, column]));
  const chosen = new Set<UntypedColumn>();
  for (const name of select) {
    const column = byName.get(name);
    if (!column) {
      const names = [...byName.keys()];
      throw new WarpjoinError(
        'ERR_COLUMN_NOT_FOUND',
        `Expected columns of the result for select but received ${quote(name)}. The result has ${list(names)}.${didYouMean(name, names)}`,
      );
    }
    if (chosen.has(column))
      throw new WarpjoinError('ERR_OPTION', `Expected each column once for select but received ${quote(name)} twice.`);
    chosen.add(column);
  }
  return [...chosen];
}
