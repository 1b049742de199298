/** Tables for tests, and their rows to compare with. */
import * as arrow from 'apache-arrow';
import type { WarpjoinError } from '../../lib/errors.js';
import type { KeyComparison } from '../../lib/native.js';

export type Row = Record<string, unknown>;

/** A table of one record batch with these columns: plain arrays, null where a value is missing. */
export function table<C extends arrow.TypeMap>(types: C, values: { [K in keyof C]: readonly unknown[] }): arrow.Table<C> {
  const names = Object.keys(types);
  const fields = names.map((name) => new arrow.Field(name, types[name]!, true));
  const schema = new arrow.Schema<C>(fields as never);
  const children = names.map((name) => arrow.vectorFromArray(values[name] as unknown[], types[name]!).data[0]!);
  const length = values[names[0]!]?.length ?? 0;
  const data = arrow.makeData({ type: new arrow.Struct<C>(fields as never), length, nullCount: 0, children });
  return new arrow.Table(schema, new arrow.RecordBatch(schema, data));
}

/** The same rows in record batches that end at `ends`, each one a slice with a bit offset of its own. */
export function chunked<C extends arrow.TypeMap>(of: arrow.Table<C>, ends: readonly number[]): arrow.Table<C> {
  const pieces = [...ends, of.numRows].map((end, index) => of.slice(index ? ends[index - 1]! : 0, end));
  return new arrow.Table(
    of.schema,
    pieces.flatMap((piece) => piece.batches),
  );
}

/** The same rows in tables of `step` rows each. */
export const cut = (of: arrow.Table, step: number): arrow.Table[] =>
  Array.from({ length: Math.ceil(of.numRows / step) }, (_, part) => of.slice(part * step, (part + 1) * step));

/** Items that come one after the other. */
export async function* later<T>(items: Iterable<T>): AsyncGenerator<T> {
  yield* items;
}

/** A field in words, of a result of batches: indices of dictionaries have 32 bits at least. */
export const withWideIndices = (field: arrow.Field): string =>
  `${field}`.replaceAll(/Dictionary<(Uint|Int)(8|16)/g, 'Dictionary<$132');

/** Rows as plain objects, with bytes as hexadecimal and typed arrays as arrays. */
export function rows(of: arrow.Table): Row[] {
  const names = of.schema.fields.map((field) => field.name);
  const vectors = names.map((name) => of.getChild(name)!);
  return Array.from({ length: of.numRows }, (_, row) =>
    Object.fromEntries(names.map((name, column) => [name, plain(vectors[column]!.get(row))])),
  );
}

function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex');
  return value;
}

const text = (value: unknown): string =>
  JSON.stringify(value, (_, part) =>
    typeof part === 'bigint'
      ? `${part}n`
      : typeof part === 'number' && !Number.isFinite(part)
        ? `${part}`
        : Object.is(part, -0)
          ? '-0'
          : part,
  );

/** Rows in an order of their own, to compare results whose order is unspecified. */
export const unordered = (of: readonly Row[]): string[] => of.map(text).sort();

/** The error that a promise rejects with; fails where it doesn't. */
export async function failure(promise: Promise<unknown>): Promise<WarpjoinError> {
  try {
    await promise;
  } catch (error) {
    return error as WarpjoinError;
  }
  throw new Error('Expected a rejection');
}

/** A small generator of random numbers: the same for the same seed. */
export function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

const factor = { pow10: 0, times: 1 };
/** How columns of the same type compare, for calls of the addon. */
export const comparison: KeyComparison = { nullsEqual: false, factors: { left: factor, right: factor } };
