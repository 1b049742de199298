/** Values of Arrow columns as they lie in memory, with what is within them: children, and dictionaries. No value is touched. */
import { types } from 'node:util';
import { WarpjoinError } from '../errors.js';
import type { NativeChunk, NativeResultColumn } from '../native.js';
import { quote, show } from '../suggest.js';
import { type ForeignField, type TypeInfo, typeInfo } from './types.js';

/** What is read of a Data, in all apache-arrow versions since 7. */
export interface ForeignData {
  readonly length: number;
  readonly offset?: number;
  /** -1: not counted yet, as in slices. Counting takes time in proportion to the rows, so it is not asked for. */
  readonly _nullCount?: number;
  readonly values?: unknown;
  readonly valueOffsets?: unknown;
  readonly nullBitmap?: unknown;
  readonly typeIds?: unknown;
  readonly children?: readonly ForeignData[];
  readonly dictionary?: ForeignVector;
  readonly variadicBuffers?: readonly unknown[];
}

/** What is read of a Vector. */
export interface ForeignVector {
  readonly data: readonly ForeignData[];
}

/** The values of a column, or of a child of one. */
export interface Values {
  /** Whether it is known, without a look at the values, that none is null. */
  withoutNulls: boolean;
  chunks: NativeChunk[];
  /** Of a nested type: chunk c of each belongs to chunk c of these. */
  children: Values[];
  /** Where these are indices: what they are indices of. */
  dictionary: InputDictionary | null;
}

export interface InputDictionary {
  /** Its values' type. */
  info: TypeInfo;
  /** Of each chunk of indices; null: it has no valid index. */
  ofChunks: (ForeignVector | null)[];
  /** The values of all dictionaries, one after the other. A dictionary that another one begins with is a part of that. */
  values: Values;
  /** The one dictionary of all chunks, as it came; null where there are several, or none. */
  shared: ForeignVector | null;
  /** Whether the data plane makes one dictionary of them. */
  isUnified: boolean;
  /** That one, once it is made. */
  made: NativeResultColumn | null;
}

export function invalid(argument: string, problem: string, options?: ErrorOptions): WarpjoinError {
  return new WarpjoinError('ERR_INVALID_TABLE', `The ${argument} table ${problem}.`, options);
}

export const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Values of a type, before there are any; null: of one that is not supported. */
export function noValues(info: TypeInfo | null): Values {
  const dictionary = info?.dictionary;
  return {
    withoutNulls: true,
    chunks: [],
    children: info?.children.map(noValues) ?? [],
    dictionary: dictionary
      ? { info: dictionary, ofChunks: [], values: noValues(dictionary), shared: null, isUnified: false, made: null }
      : null,
  };
}

/**
 * Adds a chunk of values of a type, and the chunks of what is within them. `path` names the values in messages. Buffers are taken
 * as they are.
 */
export function addChunk(of: Values, info: TypeInfo, data: ForeignData, argument: string, path: string): void {
  const problem = (what: string) => invalid(argument, `has a column ${quote(path)} ${what}`);
  const view = (buffer: unknown, what: string): ArrayBufferView | null => {
    if (buffer === undefined || buffer === null) return null;
    if (!ArrayBuffer.isView(buffer)) throw problem(`whose ${what} are not a typed array`);
    if (isResizable(buffer)) throw problem(`whose ${what} ${RESIZABLE}`);
    return buffer;
  };
  if (!isCount(data?.length)) throw problem(`of ${show(data?.length)} values`);
  const bitmap = view(data.nullBitmap, 'validity bits');
  const offset = data.offset ?? 0;
  if (!isCount(offset)) throw problem(`with the offset ${show(offset)}`);
  const nulls = typeof data._nullCount === 'number' ? data._nullCount : -1;
  const isUnion = info.kind === 'sparse_union' || info.kind === 'dense_union';
  const noBitmap = isUnion || info.kind === 'null';
  // A bitmap of no bytes stands for "no nulls", but not where nulls were counted: then its buffer is gone.
  const validity =
    noBitmap || nulls === 0 || (nulls < 0 && (bitmap === null || (bitmap.byteLength === 0 && !isDetached(bitmap))))
      ? null
      : (bitmap ?? new Uint8Array(0));
  if (validity || info.kind === 'null') of.withoutNulls = false;
  const children = data.children ?? [];
  if (info.children.length > 0 && (!Array.isArray(children) || children.length !== info.children.length))
    throw problem(`of ${info.children.length} children, but a batch of it has ${show(children.length)}`);
  for (const [index, child] of info.children.entries()) {
    const data = children[index]!;
    addChunk(of.children[index]!, child, data, argument, childPath(path, info, index));
  }
  const chunk: NativeChunk = {
    length: data.length,
    bitOffset: offset,
    validity,
    values: isUnion ? view(data.typeIds, 'type ids') : view(data.values, 'values'),
    offsets: view(data.valueOffsets, 'offsets'),
  };
  if (info.kind === 'view') {
    const buffers = data.variadicBuffers ?? [];
    if (!Array.isArray(buffers)) throw problem('whose buffers are not an array');
    chunk.buffers = buffers.map((buffer) => view(buffer, 'bytes') ?? new Uint8Array(0));
  }
  if (of.dictionary) {
    const { dictionary } = data;
    if (dictionary && !Array.isArray(dictionary.data)) throw problem('whose dictionary is not a vector');
    of.dictionary.ofChunks.push(dictionary ?? null);
  }
  of.chunks.push(chunk);
}

/** How messages name a child. */
export function childPath(path: string, { type }: TypeInfo, index: number): string {
  return `${path}.${(type.children as readonly ForeignField[])[index]!.name}`;
}

/** A dictionary among those of a column, and where it begins among the values of all. */
interface Part {
  of: ForeignVector;
  base: number;
}

/**
 * Once all chunks are there: which dictionaries they, and the chunks within them, have. Gives the type with indices of so many bytes at
 * least, and wide enough for the values of all dictionaries of a column.
 */
export function layOutDictionaries(
  of: Values,
  info: TypeInfo,
  leastIndexBytes: number,
  argument: string,
  path: string,
): TypeInfo {
  const { dictionary } = of;
  if (!dictionary) {
    const children = info.children.map((child, index) =>
      layOutDictionaries(of.children[index]!, child, leastIndexBytes, argument, childPath(path, info, index)),
    );
    return children.some((child, index) => child !== info.children[index]) ? { ...info, children } : info;
  }
  const parts = layOutParts(dictionary.ofChunks);
  dictionary.values = noValues(dictionary.info);
  for (const { of } of parts)
    for (const data of of.data) addChunk(dictionary.values, dictionary.info, data, argument, `${path} (dictionary)`);
  const laidOut = layOutDictionaries(dictionary.values, dictionary.info, leastIndexBytes, argument, `${path} (dictionary)`);
  const bases = new Map<ForeignVector, number>();
  for (const [index, vector] of dictionary.ofChunks.entries()) {
    if (vector && !bases.has(vector)) bases.set(vector, parts.find(({ of }) => beginsWith(of, vector))!.base);
    const [dictionaryBase, dictionarySize] = vector ? [bases.get(vector)!, sizeOf(vector)] : [0, 0];
    Object.assign(of.chunks[index]!, { dictionaryBase, dictionarySize });
  }
  const isWider = laidOut !== dictionary.info;
  dictionary.info = laidOut;
  // One with wider indices within is made anew, too.
  dictionary.isUnified = parts.length > 1 || isWider;
  dictionary.shared = (dictionary.isUnified ? null : parts[0]?.of) ?? null;
  const last = parts.at(-1);
  const width = Math.max(leastIndexBytes, parts.length > 1 ? indexWidth(info, last!.base + sizeOf(last!.of)) : info.width);
  return isWider || width !== info.width ? { ...info, dictionary: laidOut, width } : info;
}

/** What of a column changes where it is given another dictionary. */
type Recoded = Pick<Values, 'chunks' | 'dictionary'> & { info: TypeInfo };

/** Two columns of indices as ones of the same dictionary, and of the same width. */
export function shareDictionary(
  one: Values,
  oneInfo: TypeInfo,
  other: Values,
  otherInfo: TypeInfo,
  argument: string,
): [Recoded, Recoded] {
  const copies = (of: Values) => of.chunks.map((chunk) => ({ ...chunk }));
  const valueInfo = typeInfo(oneInfo.type.dictionary!)!;
  const dictionary: InputDictionary = {
    info: valueInfo,
    ofChunks: [...one.dictionary!.ofChunks, ...other.dictionary!.ofChunks],
    values: noValues(valueInfo),
    shared: null,
    isUnified: false,
    made: null,
  };
  const joint: Values = { withoutNulls: true, chunks: [...copies(one), ...copies(other)], children: [], dictionary };
  let info = layOutDictionaries(joint, oneInfo, 1, argument, 'keys');
  if (!dictionary.isUnified && (oneInfo.width !== otherInfo.width || oneInfo.order !== otherInfo.order)) {
    // The one dictionary is made anew, for the indices have to be.
    info = { ...info, width: indexWidth(info, dictionary.shared ? sizeOf(dictionary.shared) : 0) };
    Object.assign(dictionary, { isUnified: true, shared: null });
  }
  const { width, dictionary: of } = info;
  return [
    { info, chunks: joint.chunks.slice(0, one.chunks.length), dictionary },
    { info: { ...otherInfo, width, dictionary: of }, chunks: joint.chunks.slice(one.chunks.length), dictionary },
  ];
}

/** The distinct ones of these dictionaries, but for those that others begin with. */
function layOutParts(dictionaries: readonly (ForeignVector | null)[]): Part[] {
  // Longer ones first: where one begins with another, it is seen before that.
  const found = [...new Set(dictionaries.filter((vector) => vector !== null))];
  const distinct = new Set<ForeignVector>();
  const byFirst = new Map<unknown, ForeignVector[]>();
  for (const vector of [...found].sort((a, b) => sizeOf(b) - sizeOf(a))) {
    const first = bufferOf(vector.data[0]);
    const alike = byFirst.get(first) ?? [];
    if (alike.some((other) => beginsWith(other, vector))) continue;
    byFirst.set(first, [...alike, vector]);
    distinct.add(vector);
  }
  const kept = found.filter((vector) => distinct.has(vector));
  let base = 0;
  return kept.map((of) => {
    const part = { of, base };
    base += sizeOf(of);
    return part;
  });
}

/** Something that equal chunks have in common. */
const bufferOf = (data: ForeignData | undefined): unknown =>
  ArrayBuffer.isView(data?.values) ? data.values.buffer : data?.children?.[0];

const sizeOf = ({ data }: ForeignVector): number => data.reduce((size, { length }) => size + length, 0);

/** Whether a dictionary begins with all chunks of another one. */
function beginsWith({ data }: ForeignVector, other: ForeignVector): boolean {
  return other.data.length <= data.length && other.data.every((chunk, index) => isSameData(chunk, data[index]!));
}

/** Whether two chunks are the same values in the same memory. */
function isSameData(one: ForeignData, other: ForeignData): boolean {
  if (one === other) return true;
  const sameView = (a: unknown, b: unknown): boolean =>
    a === b ||
    (ArrayBuffer.isView(a) &&
      ArrayBuffer.isView(b) &&
      a.buffer === b.buffer &&
      a.byteOffset === b.byteOffset &&
      a.byteLength === b.byteLength);
  const [children, others] = [one.children ?? [], other.children ?? []];
  return (
    one.length === other.length &&
    (one.offset ?? 0) === (other.offset ?? 0) &&
    sameView(one.values, other.values) &&
    sameView(one.valueOffsets, other.valueOffsets) &&
    sameView(one.nullBitmap, other.nullBitmap) &&
    sameView(one.typeIds, other.typeIds) &&
    one.variadicBuffers?.length === other.variadicBuffers?.length &&
    (one.variadicBuffers ?? []).every((buffer, index) => sameView(buffer, other.variadicBuffers![index])) &&
    children.length === others.length &&
    children.every((child, index) => isSameData(child, others[index]!)) &&
    (one.dictionary === other.dictionary ||
      (one.dictionary !== undefined &&
        other.dictionary !== undefined &&
        one.dictionary.data.length === other.dictionary.data.length &&
        beginsWith(one.dictionary, other.dictionary)))
  );
}

/** Bytes of an index, at least those of the type's, that tells so many values apart. */
function indexWidth({ type, width, order }: TypeInfo, values: number): number {
  const own = Math.max(width, type.indices!.bitWidth! / 8);
  return [1, 2, 4, 8].find((bytes) => bytes >= own && values <= 2 ** (8 * bytes - (order === 'signed' ? 1 : 0)))!;
}

export const RESIZABLE =
  'are in a resizable ArrayBuffer, which could shrink while they are read. Copy it to one of fixed length, for instance with slice()';

/** Whether the view's memory can go away piece by piece. A SharedArrayBuffer only grows. */
export function isResizable({ buffer }: ArrayBufferView): boolean {
  return (buffer as { resizable?: boolean }).resizable === true; // ES2024
}

/** Whether the view's buffer was transferred away: then it can't be sliced. */
export function isDetached(view: ArrayBufferView): boolean {
  const { buffer } = view;
  if (!types.isArrayBuffer(buffer) || buffer.byteLength > 0) return false;
  try {
    buffer.slice(0, 0);
    return false;
  } catch {
    return true;
  }
}
