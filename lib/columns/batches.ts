/** Record batches as tables: one, several in any iterable, or those that a reader gives, now or over time. No row is touched. */
import { types } from 'node:util';
import type { Schema } from 'apache-arrow';
import { type Signal, untilAborted } from '../abort.js';
import { errorFor, readingFor, WarpjoinError } from '../errors.js';
import { END, eachIn, type Items, itemsOf } from '../items.js';
import { quote, show } from '../suggest.js';
import type { ForeignTable } from './input.js';
import { type ForeignField, isSameType, typeName } from './types.js';
import { type ForeignData, invalid } from './values.js';

/** What is read of a RecordBatch of any apache-arrow version. */
export interface ForeignBatch {
  readonly schema: ForeignTable['schema'];
  readonly data: ForeignData;
}

type Given = Partial<ForeignTable & ForeignBatch & AsyncIterable<unknown> & Iterable<unknown> & { isAsync: () => boolean }>;
const isObject = (value: unknown): value is Given => typeof value === 'object' && value !== null;
const hasSchema = (value: unknown): value is Given => isObject(value) && Array.isArray(value.schema?.fields);

export const isTable = (value: unknown): value is ForeignTable => hasSchema(value) && Array.isArray(value.batches);
export const isBatch = (value: unknown): value is ForeignBatch => hasSchema(value) && isObject(value.data);

/** Whether record batches come from it one after the other, each after a promise. apache-arrow's readers have both iterators. */
export function isAsyncSource(value: unknown): value is AsyncIterable<unknown> {
  if (!isObject(value)) return false;
  if (typeof value.isAsync === 'function') return value.isAsync() === true;
  return typeof value[Symbol.asyncIterator] === 'function' && typeof value[Symbol.iterator] !== 'function';
}

/** The table of a record batch, of an iterable of record batches or tables, or of a reader; null for anything else. */
export function tableOfBatches(value: unknown, argument: string): ForeignTable | null {
  if (isBatch(value)) return { schema: value.schema, batches: [value] };
  if (!isObject(value) || ArrayBuffer.isView(value) || isAsyncSource(value)) return null;
  if (typeof value[Symbol.iterator] !== 'function') return null;
  let schema: ForeignTable['schema'] | undefined;
  const batches: { data: ForeignData }[] = [];
  for (const item of value as Iterable<unknown>) {
    if (!isTable(item) && !isBatch(item)) {
      if (!schema) return null;
      throw invalid(argument, `has ${show(item)} after ${batches.length} record batches; expected record batches alone`);
    }
    schema ??= item.schema;
    if (item.schema !== schema) checkSameSchema(schema, item.schema, argument, batches.length);
    if (isTable(item)) for (const batch of item.batches) batches.push(batch);
    else batches.push(item);
  }
  if (schema) return { schema, batches };
  throw invalid(
    argument,
    'has no record batches, and so no columns: expected one at least, or a reader that has not been read to its end',
  );
}

/** Throws unless record batch `number`, of a schema of its own, has the columns of the first one. */
export function checkSameSchema(
  { fields }: ForeignTable['schema'],
  { fields: others }: ForeignTable['schema'],
  argument: string,
  number: number,
): void {
  const at = `in record batch ${number}`;
  const differs = (column: string, how: string) =>
    invalid(argument, `has record batches of different schemas: column ${quote(column)} ${how}`);
  for (const [index, field] of fields.entries()) {
    const other: ForeignField | undefined = others[index];
    if (other?.name !== field.name) throw differs(field.name, `${other ? `is ${quote(other.name)}` : 'is missing'} ${at}`);
    if (!isSameType(field.type, other.type))
      throw differs(field.name, `is ${typeName(field.type)} in the first one and ${typeName(other.type)} ${at}`);
    if (field.nullable === false && other.nullable !== false)
      throw differs(field.name, `may have nulls ${at} but not in the first one`);
  }
  if (others.length > fields.length) throw differs(others[fields.length]!.name, `is ${at} but not in the first one`);
}

/**
 * Throws ERR_NOT_SUPPORTED unless the columns of tables that an engine has made have the types of those before: dictionaries have more
 * values together than 32 bits number.
 */
export function checkSameTypes(before: Schema, now: Schema): void {
  if (before === now) return;
  for (const [index, { name, type }] of now.fields.entries()) {
    const was = before.fields[index]!.type;
    if (isSameType(type as never, was as never)) continue;
    throw new WarpjoinError(
      'ERR_NOT_SUPPORTED',
      `Column ${quote(name)} is ${type} in some batches and ${was} in others: that is not supported. Cast dictionaries to their values.`,
    );
  }
}

/**
 * What `use` makes of the table arguments: in the same turn, unless one of them is asynchronous. Such ones are read to their
 * end before, one after the other; `use` gets arrays of their record batches. Rejects with the signal's reason as soon as it aborts.
 */
export function whenRead<Tables extends Readonly<Record<string, unknown>>, T>(
  tables: Tables,
  signal: Signal | undefined,
  use: (tables: Tables) => Promise<T>,
): Promise<T> {
  const sources = Object.entries(tables).filter(([argument, value]) => readable(argument, () => isAsyncSource(value)));
  if (sources.length === 0) return use(tables);
  return (async () => {
    const read: Record<string, unknown> = { ...tables };
    for (const [argument, source] of sources) read[argument] = await readAll(source as AsyncIterable<unknown>, argument, signal);
    return use(read as Tables);
  })();
}

async function readAll(source: AsyncIterable<unknown>, argument: string, signal: Signal | undefined): Promise<unknown[]> {
  const batches: unknown[] = [];
  await eachIn(eachOf(source, argument, signal), (batch) => batches.push(batch));
  return batches;
}

/** What a source gives, which ends with these. Rejects with the signal's reason as soon as it aborts. */
export function eachOf(source: AsyncIterable<unknown>, argument: string, signal: Signal | undefined): Items<unknown> {
  let iterator: AsyncIterator<unknown> | undefined;
  let ended = false;
  return itemsOf(
    async () => {
      try {
        signal?.throwIfAborted();
        iterator ??= source[Symbol.asyncIterator]();
        const next = iterator.next();
        const { done, value } = await (signal ? untilAborted(next, signal) : next);
        ended = done === true;
        return ended ? END : value;
      } catch (error) {
        signal?.throwIfAborted();
        throw unreadable(argument, error);
      }
    },
    () => {
      // It may be in the middle of a read that never ends, so it is not waited for.
      if (!ended) void (async () => iterator?.return?.())().catch(() => {});
    },
  );
}

/** How errors of what a caller gave are told. */
export const readable = <T>(argument: string, read: () => T): T => readingFor('ERR_INVALID_TABLE', cannotRead(argument), read);
export const unreadable = (argument: string, cause: unknown): WarpjoinError =>
  errorFor('ERR_INVALID_TABLE', cannotRead(argument), cause);
const cannotRead = (argument: string): string => `The ${argument} table can't be read`;

/** The refusal of a value that is no table argument, with what would do. */
export function noTable(value: unknown, argument: string): WarpjoinError {
  const wanted =
    'an apache-arrow Table, record batches (one, an array or a reader), or Arrow IPC bytes (a Uint8Array or ArrayBuffer),';
  return new WarpjoinError(
    'ERR_INVALID_TABLE',
    `Expected ${wanted} for the ${argument} table but received ${show(value)}.${hintFor(value)}`,
  );
}

function hintFor(value: unknown): string {
  if (types.isPromise(value)) return ' Await it first.';
  if (isAsyncSource(value)) return ' This call is synchronous: read the batches first, and give an array of them.';
  const isRow = (row: unknown) => isObject(row) && !ArrayBuffer.isView(row) && !Array.isArray(row);
  if (Array.isArray(value) && value.length > 0 && value.every(isRow)) return ' fromRows() makes a table of objects.';
  return '';
}
