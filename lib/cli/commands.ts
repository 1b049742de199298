/** What each command does. Results go to stdout, or to the file asked for; everything else to stderr. */
import type { Table } from 'apache-arrow';
import { describeProblem, gpusOf } from '../gpus.js';
import { createEngine, type Engine, type JoinOptions, type UniqueOptions } from '../index.js';
import { type FileOptions, formatOf, readTable, writeTable } from '../io/index.js';
import { native } from '../native.js';
import { type Options, parseBy, type Request, UsageError } from './arguments.js';
import { describeDevice, describeLinks } from './devices.js';
import { type ProgressLine, progressLine } from './progress.js';
import { renderTable, withSeparators } from './table.js';

type Run = Extract<Request, { kind: 'run' }>;

interface Context {
  options: Options;
  signal: AbortSignal;
  progress: ProgressLine;
  files: FileOptions;
  inputs: { path: string; rows: number; milliseconds: number }[];
}

/** Options that were given; the API knows the defaults. */
function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

const engineOptions = (options: Options) =>
  given({
    device: options.text('device') as 'auto' | undefined,
    hostDevices: options.count('host-devices'),
    threads: options.count('threads'),
    memoryLimit: options.text('memory-limit'),
    deviceMemoryLimit: options.text('device-memory-limit'),
  });

// Which options go together is the API's to check, with its messages.
const joinOptions = (options: Options) =>
  given({
    on: options.names('on'),
    leftOn: options.names('left-on'),
    rightOn: options.names('right-on'),
    nullsEqual: options.has('nulls-equal') || undefined,
    how: options.text('how') as 'inner' | undefined,
    coalesce: options.has('coalesce') || undefined,
    select: options.names('select'),
    suffix: options.text('suffix'),
    algorithm: options.text('algorithm') as 'auto' | undefined,
    validate: options.text('validate') as 'm:m' | undefined,
    maintainOrder: options.text('maintain-order') as 'none' | undefined,
    limit: options.count('limit'),
    offset: options.count('offset'),
    maxOutputRows: options.count('max-output-rows'),
  }) as object as JoinOptions;

const uniqueOptions = (options: Options) =>
  given({
    on: options.names('on'),
    keep: options.text('keep') as 'any' | undefined,
    maintainOrder: options.has('maintain-order') || undefined,
    select: options.names('select'),
  }) as object as UniqueOptions;

function sortOptions(options: Options) {
  const by = options.texts('by');
  if (!by) throw new UsageError('sort needs --by COLUMNS');
  return given({
    by: parseBy(by),
    limit: options.count('limit'),
    offset: options.count('offset'),
    select: options.names('select'),
    algorithm: options.text('algorithm') as 'auto' | undefined,
  }) as { by: ReturnType<typeof parseBy> };
}

async function read(context: Context, path: string): Promise<Table> {
  context.progress.show(`reading ${path}`);
  const start = performance.now();
  const table = await readTable(path, context.files);
  context.inputs.push({ path, rows: table.numRows, milliseconds: performance.now() - start });
  return table;
}

const seconds = (milliseconds: number) => `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 2 : 1)} s`;

/** Runs an operator, then prints or writes its result. */
async function deliver(
  request: Run,
  context: Context,
  run: (engine: Engine) => Promise<Table & { stats: object }>,
): Promise<void> {
  const { options, progress, signal } = context;
  const output = options.text('output');
  const quiet = options.has('quiet');
  const shown = options.count('rows') ?? 10;
  const stats = options.text('stats');
  if (stats !== undefined && stats !== 'json') throw new UsageError(`--stats takes "json" but received "${stats}"`);
  if (output !== undefined) formatOf(output); // before the work, not after it

  const engine = await createEngine(engineOptions(options));
  try {
    const start = performance.now();
    const result = await run(engine);
    const read = context.inputs.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    const took = performance.now() - start - read;
    const writeStart = performance.now();
    if (output !== undefined) {
      progress.show(`writing ${output}`);
      await writeTable(result, output, context.files);
    }
    const write = performance.now() - writeStart;
    progress.clear();

    const rows = result.numRows;
    if (output === undefined) {
      console.log(renderTable(result, shown, process.stdout.isTTY ? process.stdout.columns : undefined));
      console.log(
        `${rows > shown ? `first ${withSeparators(shown)} of ` : ''}${withSeparators(rows)} row${rows === 1 ? '' : 's'}`,
      );
    }
    if (!quiet) {
      const done = `${withSeparators(rows)} rows: read ${seconds(read)}, ${request.command} ${seconds(took)}`;
      console.error(output === undefined ? done : `${done}, write ${seconds(write)} -> ${output}`);
    }
    if (stats) {
      const report = {
        command: request.command,
        inputs: context.inputs,
        output: { path: output ?? null, rows, milliseconds: output === undefined ? 0 : write },
        stats: result.stats,
      };
      const line = JSON.stringify(report, (_, value) => (typeof value === 'bigint' ? Number(value) : value));
      if (output !== undefined) console.log(line);
      else console.error(line);
    }
  } finally {
    await engine.dispose();
  }
  signal.throwIfAborted();
}

async function explain(context: Context, run: (engine: Engine) => Promise<string>): Promise<void> {
  const engine = await createEngine(engineOptions(context.options));
  try {
    const plan = await run(engine);
    context.progress.clear();
    process.stdout.write(plan);
  } finally {
    await engine.dispose();
  }
}

/** Lists the processor and the GPUs, or one of them where --device says which, and the links of the GPUs. */
async function devices({ options, progress, signal }: Context): Promise<void> {
  const chosen = engineOptions(options);
  const both = chosen.device === undefined || chosen.device === 'auto';
  if (both) {
    await using processor = await createEngine({ ...chosen, device: 'cpu' });
    for (const device of processor.devices()) console.log(describeDevice(device));
  }
  await using engine = await createEngine(both ? { ...chosen, device: 'gpu', fallback: 'silent' } : chosen);
  const gpus = engine.devices().filter((device) => device.kind === 'gpu');
  for (const device of both ? gpus : engine.devices()) console.log(describeDevice(device));
  if (both) {
    const { refused, problem } = gpusOf(native());
    for (const { gpu, problem } of refused) console.log(`gpu ${gpu.ordinal}: not used: ${describeProblem(problem)}`);
    if (problem && refused.length === 0) console.log(`no GPU: ${describeProblem(problem)}`);
  }
  if (gpus.length === 0) {
    if (options.has('measure')) throw new Error('there are no GPUs whose links could be measured');
    return;
  }
  progress.show('measuring links');
  const links = await engine.linkSpeeds({ measure: options.has('measure'), signal });
  progress.clear();
  if (links) console.log(`\n${describeLinks(links)}`);
}

/** Runs a command; rejects with the reason of `signal` if it aborts. */
export async function run(request: Run, signal: AbortSignal): Promise<void> {
  const { command, operands, options } = request;
  const progress = progressLine(process.stderr, options.has('quiet'));
  const nullValues = options.texts('null-value');
  const context: Context = {
    options,
    signal,
    progress,
    files: {
      signal,
      header: !options.has('no-header'),
      ...given({ delimiter: options.text('delimiter') }),
      ...(nullValues && { nullValues: [...nullValues] }),
    },
    inputs: [],
  };
  const running = {
    signal,
    onProgress: ({ fraction, step }: { fraction: number; step: string }) => progress.show(step, fraction),
  };
  const [first, second] = operands as [string, string];
  try {
    switch (command) {
      case 'join': {
        const chosen = joinOptions(options);
        return await deliver(request, context, async (engine) =>
          engine.join(await read(context, first), await read(context, second), { ...chosen, ...running }),
        );
      }
      case 'sort': {
        const chosen = sortOptions(options);
        return await deliver(request, context, async (engine) =>
          engine.sort(await read(context, first), { ...chosen, ...running }),
        );
      }
      case 'explain join': {
        const chosen = { ...joinOptions(options), analyze: options.has('analyze'), signal };
        return await explain(context, async (engine) =>
          engine.explain('join', await read(context, first), await read(context, second), chosen),
        );
      }
      case 'explain sort': {
        const chosen = { ...sortOptions(options), analyze: options.has('analyze'), signal };
        return await explain(context, async (engine) => engine.explain('sort', await read(context, first), chosen));
      }
      case 'unique': {
        const chosen = uniqueOptions(options);
        return await deliver(request, context, async (engine) =>
          engine.unique(await read(context, first), { ...chosen, ...running }),
        );
      }
      case 'explain unique': {
        const chosen = { ...uniqueOptions(options), analyze: options.has('analyze'), signal };
        return await explain(context, async (engine) => engine.explain('unique', await read(context, first), chosen));
      }
      case 'devices':
        return await devices(context);
    }
  } finally {
    progress.clear();
  }
}
