/**
 * Runs join, sort and unique: inputs are read whole, or as they come where they are large or memory is short, and the result is shown or
 * written.
 */
import { Table } from 'apache-arrow';
import { defaultMemoryLimit } from '../engine.js';
import { isMemoryLimit } from '../errors.js';
import { createEngine, type Engine } from '../index.js';
import { STANDARD } from '../io/formats.js';
import { BYTES_PER_ROW_GROUP } from '../io/options.js';
import { itemsIn, mapped } from '../items.js';
import { physicalMemory } from '../machine.js';
import { parseSize, resolveSize } from '../sizes.js';
import type { Options } from './arguments.js';
import type { Coming, Context, Input, ReadInput } from './inputs.js';
import { given, type Operation } from './operations.js';
import { describeRows, type RowCount, renamed, type Target, targetOf, writeComing, writeResult } from './output.js';

/** Inputs that take a larger share of the memory limit are not read whole: beside them lies their result. */
const WHOLE_SHARE = 1 / 4;
/** The share of the memory limit that may be read ahead of an input that is not read whole. */
const AHEAD_SHARE = 1 / 16;
/** The share of it that a row group of a result takes at most that is written as it comes. */
const ROW_GROUP_SHARE = 1 / 16;

export const engineOptions = (options: Options) =>
  given({
    device: options.text('device') as 'auto' | undefined,
    hostDevices: options.count('host-devices'),
    threads: options.count('threads'),
    memoryLimit: options.text('memory-limit'),
    deviceMemoryLimit: options.text('device-memory-limit'),
    tempDirectory: options.text('temp-directory'),
    maxTempDirectorySize: options.text('max-temp-size'),
  });

/** What was found out about inputs before their rows are read. */
interface Checked {
  /** Whether the command's columns are right, whatever the rows are. */
  readonly isExact: boolean;
  /** The columns of each input that have to be read; undefined for all. */
  readonly needed: readonly (readonly string[] | undefined)[];
}

/** Checks what can be known without rows, so that mistakes end an operation before they are read. */
export async function checked(
  operation: Operation,
  engine: Engine,
  inputs: readonly Input[],
  options: Options,
): Promise<Checked> {
  const outlines = [];
  for (const input of inputs) outlines.push(await input.outline());
  const known = outlines.filter((outline) => outline !== undefined);
  const isKnown = known.length === inputs.length;
  const isExact = isKnown && !options.has('cast') && known.every(({ sampledRows }) => sampledRows === undefined);
  if (isKnown) await operation.check(engine, known, isExact);
  return { isExact, needed: isExact ? operation.needed(known) : [] };
}

/** What is read of each input. */
async function opened<Read extends { readonly schema: Table['schema'] }>(
  operation: Operation,
  engine: Engine,
  inputs: readonly Input[],
  { isExact, needed }: Checked,
  open: (input: Input, what: { isSole: boolean; columns?: readonly string[] }) => Promise<Read>,
): Promise<Read[]> {
  const all: Read[] = [];
  for (const [index, input] of inputs.entries()) {
    const columns = needed[index];
    all.push(await open(input, { isSole: inputs.length === 1, ...(columns && { columns }) }));
  }
  if (!isExact) {
    const known = all.map(({ schema }, index) => ({ name: inputs[index]!.name, schema }));
    await operation.check(engine, known, true);
  }
  return all;
}

/** The tables of an operation. */
export async function tablesOf(
  operation: Operation,
  engine: Engine,
  inputs: readonly Input[],
  checked: Checked,
): Promise<{ tables: Table[]; reads: ReadInput[] }> {
  const reads: ReadInput[] = [];
  const tables = await opened(operation, engine, inputs, checked, async (input, what) => {
    const start = performance.now();
    const table = await input.table(what);
    reads.push({ path: input.name, rows: table.numRows, milliseconds: performance.now() - start });
    return table;
  });
  return { tables, reads };
}

/** What an operation did. */
interface Delivered {
  readonly count: RowCount;
  readonly stats: object;
  readonly reads: readonly ReadInput[];
  /** In words. */
  readonly took: string;
  readonly writeMilliseconds: number;
}

/** An operation, and what it goes by. */
interface Delivery {
  readonly command: string;
  readonly context: Context;
  readonly operation: Operation;
  readonly engine: Engine;
  readonly inputs: readonly Input[];
  readonly target: Target;
}

/** Runs an operation, then prints or writes its result. */
export async function deliver(command: string, context: Context, operation: Operation, inputs: readonly Input[]): Promise<void> {
  const { options, progress } = context;
  const target = targetOf(options);
  await using engine = await createEngine(engineOptions(options));
  const delivery = { command, context, operation, engine, inputs, target };
  const known = await checked(operation, engine, inputs, options);
  const bytes = await bytesThatCome(delivery, known);
  const whole =
    bytes && areLarge(bytes, options)
      ? null
      : await runWhole(delivery, known).catch((error: unknown) => {
          if (bytes && isShort(error, options)) return null;
          throw error;
        });
  const delivered = whole ? writeWhole(delivery, whole) : deliverComing(delivery, known, bytes!);
  const { count, stats, reads, took, writeMilliseconds } = await delivered;
  progress.clear();
  const toFile = target.path !== STANDARD;
  if (!options.has('quiet')) {
    const done = `${describeRows(count.rows, count)}: ${took}`;
    console.error(toFile ? `${done} -> ${target.path}` : done);
  }
  if (options.has('stats')) {
    const output = { path: toFile ? target.path : null, rows: count.rows, milliseconds: toFile ? writeMilliseconds : 0 };
    const line = JSON.stringify({ command, inputs: reads, output, stats }, (_, value) =>
      typeof value === 'bigint' ? Number(value) : value,
    );
    if (toFile) console.log(line);
    else console.error(line);
  }
}

/** The columns that rows have to be sorted by, so that they come partition by partition; null where they do. */
const partitionOrder = ({ isPartitioned }: Operation, { options: { partitionBy } }: Target): string[] | null =>
  partitionBy && !isPartitioned ? [...partitionBy] : null;

const seconds = (milliseconds: number) => `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 2 : 1)} s`;

/** What an operation made of whole inputs. */
interface Whole extends Omit<Delivered, 'took' | 'writeMilliseconds'> {
  readonly table: Table;
  readonly milliseconds: number;
}

/** Reads inputs whole, and runs an operation on them. */
async function runWhole(
  { context: { options, progress, signal }, operation, engine, inputs, target }: Delivery,
  checked: Checked,
): Promise<Whole> {
  const { tables, reads } = await tablesOf(operation, engine, inputs, checked);
  const start = performance.now();
  const { table, count, stats } = await operation.run(engine, tables, target.shownRows, {
    signal,
    onProgress: ({ fraction, step }) => progress.show(step, fraction),
    ...given({ trace: options.text('trace') }),
  });
  const milliseconds = performance.now() - start;
  const made = renamed(table, options);
  const by = partitionOrder(operation, target);
  return { table: by ? await engine.sort(made, { by, signal }) : made, count, stats, reads, milliseconds };
}

async function writeWhole({ command, context: { progress, signal }, target }: Delivery, whole: Whole): Promise<Delivered> {
  const { count, reads, table, milliseconds } = whole;
  const toFile = target.path !== STANDARD;
  if (toFile) progress.show(`writing ${target.path}`);
  else progress.clear();
  const start = performance.now();
  await writeResult(table, count, target, signal);
  const writeMilliseconds = performance.now() - start;
  const read = reads.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const written = toFile ? `, write ${seconds(writeMilliseconds)}` : '';
  return { ...whole, writeMilliseconds, took: `read ${seconds(read)}, ${command} ${seconds(milliseconds)}${written}` };
}

/** About the bytes of each input, if the operation takes them as they come; null where nobody knows. */
async function bytesThatCome({ operation, inputs }: Delivery, { needed }: Checked): Promise<number[] | null> {
  if (!operation.comes) return null;
  const bytes: number[] = [];
  for (const [index, input] of inputs.entries()) {
    const estimated = await input.estimatedBytes(needed[index]);
    if (estimated === undefined) return null;
    bytes.push(estimated);
  }
  return bytes;
}

/** The memory limit, in bytes. */
function limitOf(options: Options): number {
  const limit = options.text('memory-limit');
  return limit ? resolveSize(parseSize(limit)!, physicalMemory()) : defaultMemoryLimit();
}

/** Whether inputs of so many bytes are too large to be read whole. */
const areLarge = (bytes: readonly number[], options: Options): boolean =>
  bytes.reduce((sum, each) => sum + each, 0) > WHOLE_SHARE * limitOf(options);

/** Whether there was too little memory for all rows at once. */
const isShort = (error: unknown, options: Options): boolean =>
  isMemoryLimit(error) && options.count('max-output-rows') === undefined;

/** With no more than the memory limit, whatever the inputs and the result take. */
async function deliverComing(
  { command, context, operation, engine, inputs, target }: Delivery,
  checked: Checked,
  bytes: readonly number[],
): Promise<Delivered> {
  const { options, progress, signal } = context;
  const start = performance.now();
  const shareOf = (share: number) => Math.ceil(share * limitOf(options));
  const sources: Coming[] = await opened(operation, engine, inputs, checked, (input, what) =>
    input.coming({ ...what, readAhead: shareOf(AHEAD_SHARE) }),
  );
  const { batches, count, stats, fraction } = operation.comes!(engine, sources, bytes, target.shownRows, {
    signal,
    ...given({ trace: options.text('trace') }),
  });
  const named = mapped(itemsIn(batches), (batch) => renamed(new Table([batch]), options).batches[0]!);
  const names = inputs.map(({ name }) => name).join(' and ');
  const by = partitionOrder(operation, target);
  const ordered = by && engine.sortBatches(named, { by, signal });
  const done = () => (ordered ? (fraction() + ordered.stats.outputRows / Math.max(1, ordered.stats.inputRows)) / 2 : fraction());
  let shown = 0;
  const showing = setInterval(() => {
    shown = Math.max(shown, done());
    progress.show(`${command} ${names}`, shown);
  }, 100);
  try {
    const rowGroupBytes = Math.min(BYTES_PER_ROW_GROUP, shareOf(ROW_GROUP_SHARE));
    await writeComing(ordered ?? named, count, { ...target, options: { ...target.options, rowGroupBytes } }, signal);
  } finally {
    clearInterval(showing);
  }
  const took = performance.now() - start;
  const reads = sources.map(({ read }) => read);
  return { count: count(), stats, reads, writeMilliseconds: took, took: `${command} ${seconds(took)}` };
}
