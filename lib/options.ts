/** The options of every call, once: types, validation, defaults and documentation. */
import type { Signal } from './abort.js';
import { WarpjoinError } from './errors.js';
import type { Side } from './native.js';
import {
  abortSignal,
  callback,
  choice,
  count,
  expected,
  flag,
  flags,
  type InputOf,
  nameList,
  names,
  type Option,
  omit,
  ordinals,
  type Parsed,
  parse,
  pick,
  required,
  size,
  text,
} from './schema.js';

/** What onProgress gets, about every 50 ms and once at the end. */
export interface Progress {
  /** Share of the estimated work done: 0 to 1, never falling; 1 only at the end. */
  fraction: number;
  /** The step of the plan that runs. */
  step: string;
}

const running = {
  onProgress: callback<(progress: Progress) => void>(
    'Called about every 50 ms with { fraction, step }, and with fraction 1 at the end.',
  ),
  signal: abortSignal("Aborts the call: it rejects with the signal's reason and frees what it holds."),
  trace: text(
    undefined,
    'A file to write to what ran when: the steps, the phases and copies of each thread, each stream of each GPU and direction, and writes ' +
      'and reads of temporary files, as Chrome trace events, which Perfetto opens. It is replaced if it is there, and written if the call ' +
      'fails, too.',
  ),
};
const runningOptions = ['onProgress', 'signal', 'trace'] as const;

const resident = flag(false, 'Whether the result stays on the GPUs, as a LoadedTable.');

const result = choice(
  ['memory', 'mapped'],
  'memory',
  'Where the result lies. mapped: in a temporary file, however large it is. The buffers of its table are the bytes of the file, which is gone with the table.',
);

const SORT_ALGORITHMS = ['auto', 'merge', 'radix', 'sample'] as const;
/** Algorithms of joins that can be asked for. */
export const JOIN_ALGORITHMS = ['auto', 'radix-hash', 'triton', 'sort-merge'] as const;

export const JOIN_KINDS = ['inner', 'left', 'right', 'full', 'semi', 'anti', 'cross'] as const;
/** Which rows a join keeps: see Engine.join(). */
export type JoinKind = (typeof JOIN_KINDS)[number];

/** `then`: what happens where two rows share a key. */
const validate = (then: string) =>
  choice(
    ['m:m', '1:m', 'm:1', '1:1'],
    'm:m',
    `Which keys have to be unique: those of the left table (1:m), of the right one (m:1), or of both. ${then} Null keys do not count unless nullsEqual.`,
  );

export const joinSchema = {
  on: names('Key columns of both tables. Rows match where all of them are equal.'),
  leftOn: names('Key columns of the left table; with rightOn, instead of on.'),
  rightOn: names('Key columns of the right table, each to equal the left one at the same place.'),
  how: choice(JOIN_KINDS, 'inner', 'Which rows to keep. A null key matches nothing, unless nullsEqual is set.', {
    outer: ' Did you mean "full"?',
    left_outer: ' Did you mean "left"?',
    right_outer: ' Did you mean "right"?',
  }),
  suffix: text('_right', 'Appended to the name of a right column that the left table has too; again where that is taken, too.'),
  coalesce: flag(
    undefined,
    'Whether both columns of each key become one, named like the left one. That of a full join has a type that holds the values of both (docs/coalesced-keys.md); a value that it has no room for is an error, ERR_KEY_TYPE. Unset: yes, except for full.',
  ),
  select: nameList('Columns of the result, in this order. Others are never moved. Unset: all.'),
  maxOutputRows: count(
    Number.POSITIVE_INFINITY,
    0,
    'A join that finds more rows fails with ERR_MEMORY_LIMIT before they are written. limit and offset do not count.',
  ),
  limit: count(
    Number.POSITIVE_INFINITY,
    0,
    'Rows of the result at most: the first ones from offset on, in the order of maintainOrder.',
  ),
  offset: count(0, 0, 'Rows of the join to leave out before the first one of the result.'),
  algorithm: choice(
    JOIN_ALGORITHMS,
    'auto',
    'How to join. auto: what the cost model finds cheapest. triton: a hash join that spills to host memory what the GPUs do not hold; ' +
      'radix-hash: one that fails with ERR_MEMORY_LIMIT instead.',
  ),
  sortAlgorithm: choice(SORT_ALGORITHMS, 'auto', 'How a sort-merge join sorts.'),
  resident,
  result,
  buildSide: choice(
    ['auto', 'left', 'right'],
    'auto',
    'Which side the hash tables hold. auto: the one with fewer rows; where a join spills, the other one if keys of the first ' +
      'repeat so often that much more would be spilled.',
  ),
  nullsEqual: flags(false, 'key', 'Whether null keys match each other: all of them, or by key.'),
  validate: validate('If two rows share a key, the join fails with ERR_DUPLICATE_KEY before it begins.'),
  maintainOrder: choice(
    ['none', 'left', 'right', 'left_right', 'right_left'],
    'none',
    'Which row order the result keeps. left: that of the left rows, equal ones in that of the right rows, rows without a left row ' +
      'last; the same as left_right. right, right_left: the other way round. Semi and anti joins have left rows alone, and keep their order.',
  ),
  ...running,
};

const matchOptions = [
  'on',
  'leftOn',
  'rightOn',
  'how',
  'algorithm',
  'sortAlgorithm',
  'buildSide',
  'nullsEqual',
  'validate',
  'maxOutputRows',
  'maintainOrder',
  'limit',
  'offset',
  ...runningOptions,
] as const;
export const joinCountSchema = pick(joinSchema, matchOptions);
export const joinIndicesSchema = pick(joinSchema, matchOptions);
export const joinKeysSchema = {
  how: choice(
    ['inner'],
    'inner',
    'Typed arrays have no nulls, so there are inner joins only; joinIndices has the other kinds.',
    Object.fromEntries(JOIN_KINDS.filter((kind) => kind !== 'inner').map((kind) => [kind, ' joinIndices and join take it.'])),
  ),
  ...pick(joinSchema, [
    'validate',
    'maxOutputRows',
    'maintainOrder',
    'limit',
    'offset',
    'algorithm',
    'sortAlgorithm',
    'buildSide',
    ...runningOptions,
  ]),
};

/** One sort column. */
export interface SortKey {
  column: string;
  descending: boolean;
  nullsLast: boolean;
}

export const sortColumnSchema = {
  column: required(text('', 'The column.')),
  descending: flag(false, 'Greatest first.'),
  nullsLast: flag(true, 'Where nulls go, whatever the direction.'),
};
/** A column to sort by. */
export interface SortColumn<Name extends string = string> extends InputOf<typeof sortColumnSchema> {
  column: Name;
}

const by: Option<string | SortColumn | readonly (string | SortColumn)[], readonly SortKey[]> = {
  expected: 'a column name, a { column, descending, nullsLast } or an array of at least one of these',
  description: 'The columns to sort by, the most significant first.',
  fallback: [],
  required: true,
  parse(value) {
    const parts = Array.isArray(value) ? value : [value];
    if (parts.length === 0) return undefined;
    const keys: SortKey[] = [];
    for (const part of parts) {
      if (typeof part !== 'string' && (typeof part !== 'object' || part === null || Array.isArray(part))) return undefined;
      const key = parse(sortColumnSchema, 'a column of by', typeof part === 'string' ? { column: part } : part);
      keys.push(key);
    }
    return keys;
  },
};

export const sortSchema = {
  by,
  select: nameList('Columns of the result, in this order. Others are never moved. Unset: all.'),
  algorithm: choice(SORT_ALGORITHMS, 'auto', 'How devices share the work. auto: what the cost model finds cheapest.'),
  resident,
  result,
  maintainOrder: flag(true, 'Whether rows with equal keys keep their order. They always do.'),
  limit: count(
    Number.POSITIVE_INFINITY,
    0,
    'Rows of the result, at most: the first ones, which are found without a sort of all.',
  ),
  offset: count(0, 0, 'Rows of the order to leave out before the first one of the result.'),
  ...running,
};
/** Of results that come in record batches. */
const batchRows = count(1 << 16, 1, 'Rows of a record batch of the result, at most.');
export const joinBatchesSchema = {
  ...pick(joinSchema, [
    'on',
    'leftOn',
    'rightOn',
    'how',
    'suffix',
    'coalesce',
    'select',
    'nullsEqual',
    'algorithm',
    'sortAlgorithm',
    'signal',
    'trace',
  ]),
  validate: validate(
    'Reading rejects with ERR_DUPLICATE_KEY where two rows share a key; rows that were joined before may have been given. A probe side ' +
      'that has to be unique goes through temporary files where memory has no room for all of it.',
  ),
  limit: count(Number.POSITIVE_INFINITY, 0, 'Rows of the result, at most: reading ends once they are there.'),
  offset: count(0, 0, 'Rows of the join to leave out before the first one of the result.'),
  maxOutputRows: count(
    Number.POSITIVE_INFINITY,
    0,
    'Reading rejects with ERR_MEMORY_LIMIT once the join finds more rows. limit and offset do not count.',
  ),
  buildSide: choice(
    ['left', 'right'],
    'right',
    'The side that is read first, and stays in memory where it has room there. The other one comes and goes.',
  ),
  maintainOrder: choice(
    ['none', 'left', 'right'],
    'none',
    'Whether rows come in the order of the side that is not the build side, equal ones in that of the build side. Rows of the build ' +
      'side without a match come last, whatever this is.',
  ),
  batchRows,
};

export const sortBatchesSchema = {
  ...pick(sortSchema, ['by', 'select', 'algorithm', 'limit', 'offset', 'signal', 'trace']),
  batchRows,
};
export const sortPairsSchema = {
  descending: flag(false, 'Greatest first.'),
  ...pick(sortSchema, ['algorithm', ...runningOptions]),
};

export const sortIndicesSchema = pick(sortSchema, ['by', 'limit', 'offset', 'algorithm', ...runningOptions]);
export const isSortedSchema = pick(sortSchema, ['by', ...runningOptions]);
export const searchSortedSchema = {
  by,
  side: choice(
    ['left', 'right'],
    'left',
    'Where a row goes among rows of the table that are equal: before them, or behind them.',
  ),
  ...running,
};

export const uniqueSchema = {
  on: names('Key columns. Unset: all columns.'),
  keep: choice(
    ['first', 'last', 'any', 'none'],
    'any',
    'Which row of each key to keep: any one; none keeps the rows whose key no other row has.',
  ),
  maintainOrder: flag(false, 'Whether the rows keep their order.'),
  select: nameList('Columns of the result, in this order. Others are never moved. Unset: all.'),
  ...running,
};

const analyze = flag(false, 'Run the plan too, and show what its steps took.');
export const explainJoinSchema = { ...omit(joinSchema, 'result'), analyze };
export const explainSortSchema = { ...omit(sortSchema, 'result'), analyze };
export const explainUniqueSchema = { ...uniqueSchema, analyze };

export const engineSchema = {
  device: choice(
    ['auto', 'gpu', 'cpu'],
    'auto',
    'Where to run. auto: on all GPUs, or on the processor where there are none and for calls too small to gain by them.',
  ),
  devices: ordinals("Which of the GPUs that the process may use, by number; implies device 'gpu'. Unset: all."),
  hostDevices: count(1, 1, 'How many devices to show the processor as, where it is used.', 64),
  threads: count(
    undefined,
    1,
    'Threads of the processor to use, or fewer where the system gives no more. Unset: one a core.',
    1024,
  ),
  memoryLimit: size(
    undefined,
    'Most host memory to use; a percentage is of the physical memory, or of the container limit. Unset: 80 % of what the process leaves of it at the first call.',
  ),
  deviceMemoryLimit: size(
    undefined,
    'Most memory to use on each device; a percentage is of its memory; of memoryLimit for host devices.',
  ),
  fallback: choice(
    ['raise', 'warn', 'silent'],
    'raise',
    "What to do where device 'gpu' can't be had: fail, or use the processor with or without a warning.",
  ),
  tempDirectory: text(
    undefined,
    'Where temporary files go: a directory on a disk. Unset: that of TMPDIR, else /tmp, or /var/tmp where that is memory.',
  ),
  maxTempDirectorySize: size(
    undefined,
    'Most bytes of temporary files; a percentage is of what is free on the disk as the engine is made. Unset: no limit.',
  ),
};
export const linkSpeedsSchema = {
  measure: flag(false, "Measure anew, whatever the host's file says."),
  signal: running.signal,
};

export const loadSchema = running;

/** The options of createEngine(). */
export interface EngineOptions extends InputOf<typeof engineSchema> {}
export type EngineSettings = Parsed<typeof engineSchema>;

/** The options of joinKeys(). */
export interface JoinKeysOptions extends InputOf<typeof joinKeysSchema> {}
/** The options of Engine.load(). */
export interface LoadOptions extends InputOf<typeof loadSchema> {}
/** The options of Engine.linkSpeeds(). */
export interface LinkSpeedsOptions extends InputOf<typeof linkSpeedsSchema> {}
/** The options of sortPairs(). */
export interface SortPairsOptions extends InputOf<typeof sortPairsSchema> {}

/** A column of each side that are to be equal. */
export interface NamedKeyPair {
  left: string;
  right: string;
  /** Whether two nulls are. */
  nullsEqual: boolean;
}

/** A join's options, parsed: what remains is to look its columns up. */
export interface JoinSettings {
  how: JoinKind;
  /** Columns that are to be equal, at least one pair; null for cross. */
  keys: readonly NamedKeyPair[] | null;
  suffix: string;
  coalesce: boolean;
  select: readonly string[] | undefined;
  maxOutputRows: number;
  limit: number;
  offset: number;
  validate: 'm:m' | '1:m' | 'm:1' | '1:1';
  /** The side whose order the rows keep; null: any order. */
  order: Side | null;
  algorithm: (typeof JOIN_ALGORITHMS)[number];
  sortAlgorithm: SortAlgorithmChoice;
  resident: boolean;
  result: 'memory' | 'mapped';
  buildSide: 'auto' | 'left' | 'right';
}
export type SortAlgorithmChoice = (typeof SORT_ALGORITHMS)[number];
export type SortAlgorithm = Exclude<SortAlgorithmChoice, 'auto'>;

/** What every call can be given besides what it works on. */
export interface Running {
  onProgress: ((progress: Progress) => void) | undefined;
  signal: Signal | undefined;
  trace: string | undefined;
}

/** Checks what the schema can't: which options go together. `call` names the function in messages. */
export function joinSettings(schema: Partial<typeof joinSchema>, call: string, options: unknown): JoinSettings & Running {
  const given = { ...defaults, ...parse(schema as typeof joinSchema, call, options) };
  const { on, leftOn, rightOn, nullsEqual, ...rest } = given;
  const keys = keyColumns(given.how, call, on, leftOn, rightOn, nullsEqual);
  if (given.how === 'cross') {
    if (given.coalesce)
      throw expected('no coalesce', `${call} with how "cross"`, given.coalesce, ' A cross join has no key columns.');
    if (given.validate !== 'm:m') throw expected('no validate', `${call} with how "cross"`, given.validate);
    if (given.algorithm !== 'auto') throw expected('no algorithm', `${call} with how "cross"`, given.algorithm);
  }
  return { ...rest, keys, coalesce: given.coalesce ?? given.how !== 'full', order: orderOf(given) };
}

/** The options of joinBatches(), parsed. */
export interface JoinBatchesSettings
  extends Pick<
    JoinSettings,
    'how' | 'suffix' | 'coalesce' | 'select' | 'algorithm' | 'sortAlgorithm' | 'validate' | 'limit' | 'offset' | 'maxOutputRows'
  > {
  /** Key columns of each side; null for cross. */
  keys: Record<Side, readonly string[]> | null;
  nullsEqual: readonly boolean[];
  buildSide: Side;
  probeSide: Side;
  maintainOrder: 'none' | Side;
  batchRows: number;
  signal: Signal | undefined;
  trace: string | undefined;
}

/** Checks what the schema of joinBatches() can't. */
export function joinBatchesSettings(options: unknown): JoinBatchesSettings {
  const given = parse(joinBatchesSchema, 'joinBatches', options);
  const { buildSide, batchRows, limit, offset, maxOutputRows, signal, trace, maintainOrder: order, ...rest } = given;
  const shape = joinSettings(joinSchema, 'joinBatches', rest);
  const { how, suffix, coalesce, select, algorithm, sortAlgorithm, validate, keys } = shape;
  const probeSide = buildSide === 'left' ? 'right' : 'left';
  const maintainOrder = orderOf({ how, maintainOrder: order }) ?? 'none';
  if (maintainOrder === buildSide) {
    const wanted = order === buildSide ? `"none" or "${probeSide}"` : '"none"';
    throw expected(
      wanted,
      'maintainOrder',
      order,
      ` The build side is ${buildSide}, whose order the rows would have: set buildSide.`,
    );
  }
  return {
    ...{ how, suffix, coalesce, select, algorithm, sortAlgorithm, validate, limit, offset, maxOutputRows },
    ...{ buildSide, probeSide, maintainOrder, batchRows, signal, trace },
    keys: keys && { left: keys.map(({ left }) => left), right: keys.map(({ right }) => right) },
    nullsEqual: (keys ?? []).map(({ nullsEqual }) => nullsEqual),
  };
}

/** The side whose order the rows have first; null: none. Left rows alone have no other order than theirs. */
export function orderOf({ how, maintainOrder }: Pick<Parsed<typeof joinSchema>, 'how' | 'maintainOrder'>): Side | null {
  if (maintainOrder === 'none') return null;
  return how === 'semi' || how === 'anti' || maintainOrder.startsWith('left') ? 'left' : 'right';
}

const defaults = parse(joinSchema, 'join', {});

function keyColumns(
  how: JoinKind,
  call: string,
  on: readonly string[] | undefined,
  leftOn: readonly string[] | undefined,
  rightOn: readonly string[] | undefined,
  nullsEqual: boolean | readonly boolean[],
): JoinSettings['keys'] {
  if (how === 'cross') {
    const given = on ?? leftOn ?? rightOn;
    if (given) throw expected('neither on nor leftOn and rightOn', `${call} with how "cross"`, given);
    return null;
  }
  if (on && (leftOn || rightOn)) {
    throw new WarpjoinError('ERR_OPTION', `Expected on, or leftOn and rightOn, for ${call} but received both.`);
  }
  const left = on ?? leftOn;
  const right = on ?? rightOn;
  if (!left || !right) {
    const received = left ? 'leftOn without rightOn' : right ? 'rightOn without leftOn' : 'none of them';
    throw new WarpjoinError('ERR_OPTION', `Expected on, or leftOn and rightOn, for ${call} but received ${received}.`);
  }
  if (left.length !== right.length) {
    throw expected(`as many columns as leftOn has (${left.length})`, 'rightOn', right);
  }
  for (const [option, columns] of [
    [on ? 'on' : 'leftOn', left],
    [on ? 'on' : 'rightOn', right],
  ] as const) {
    const twice = columns.find((name, index) => columns.indexOf(name) !== index);
    if (twice !== undefined) throw expected('each column once', option, twice);
  }
  const each = typeof nullsEqual === 'boolean' ? left.map(() => nullsEqual) : nullsEqual;
  if (each.length !== left.length) {
    throw expected(`a boolean, or one for each of the keys (${left.length})`, 'nullsEqual', nullsEqual);
  }
  return left.map((name, index) => ({ left: name, right: right[index]!, nullsEqual: each[index]! }));
}

/** Checks a sort's options. */
export function sortSettings<S extends Pick<typeof sortSchema, 'by'>>(schema: S, call: string, options: unknown): Parsed<S> {
  const settings = parse(schema, call, options) as Parsed<S> & Parsed<Pick<typeof sortSchema, 'by'>>;
  const seen = new Set<string>();
  for (const { column } of settings.by) {
    if (seen.has(column)) throw expected('each column once', 'by', column);
    seen.add(column);
  }
  return settings;
}
