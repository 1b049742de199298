/** What each command does. Results go to stdout, or to the file asked for; everything else to stderr. */
import type { Table } from 'apache-arrow';
import { describeProblem, gpusOf } from '../gpus.js';
import { createEngine, type Engine } from '../index.js';
import { STANDARD } from '../io/formats.js';
import { native } from '../native.js';
import type { Options, Request } from './arguments.js';
import { printCompletion } from './completion.js';
import { describeDevice, describeLinks } from './devices.js';
import { doctor } from './doctor.js';
import { type Context, Input, type ReadInput } from './inputs.js';
import { count, head, schema } from './inspect.js';
import { given, joinOperation, type Operation, sortOperation, uniqueOperation } from './operations.js';
import { describeRows, renamed, targetOf, writeResult } from './output.js';
import { progressLine } from './progress.js';

type Run = Extract<Request, { kind: 'run' }>;

const engineOptions = (options: Options) =>
  given({
    device: options.text('device') as 'auto' | undefined,
    hostDevices: options.count('host-devices'),
    threads: options.count('threads'),
    memoryLimit: options.text('memory-limit'),
    deviceMemoryLimit: options.text('device-memory-limit'),
  });

const seconds = (milliseconds: number) => `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 2 : 1)} s`;

/** Reads the tables of an operation: first checks what can be known without their rows, so that mistakes end it before they are read. */
async function tablesOf(
  operation: Operation,
  engine: Engine,
  inputs: readonly Input[],
  options: Options,
  reads: ReadInput[],
): Promise<Table[]> {
  const outlines = [];
  for (const input of inputs) outlines.push(await input.outline());
  const known = outlines.filter((outline) => outline !== undefined);
  const isKnown = known.length === inputs.length;
  const isExact = isKnown && !options.has('cast') && known.every(({ sampledRows }) => sampledRows === undefined);
  if (isKnown) await operation.check(engine, known, isExact);
  const needed = isExact ? operation.needed(known) : [];
  const tables: Table[] = [];
  for (const [index, input] of inputs.entries()) {
    const start = performance.now();
    const columns = needed[index];
    const table = await input.table({ isSole: inputs.length === 1, ...(columns && { columns }) });
    reads.push({ path: input.name, rows: table.numRows, milliseconds: performance.now() - start });
    tables.push(table);
  }
  if (!isExact) {
    const read = tables.map((table, index) => ({ name: inputs[index]!.name, schema: table.schema }));
    await operation.check(engine, read, true);
  }
  return tables;
}

/** Runs an operation, then prints or writes its result. */
async function deliver(request: Run, context: Context, operation: Operation, inputs: readonly Input[]): Promise<void> {
  const { options, progress, signal } = context;
  const target = targetOf(options);
  const reads: ReadInput[] = [];
  await using engine = await createEngine(engineOptions(options));
  const tables = await tablesOf(operation, engine, inputs, options, reads);
  const start = performance.now();
  const { table, count, stats } = await operation.run(engine, tables, target.shownRows, {
    signal,
    onProgress: ({ fraction, step }) => progress.show(step, fraction),
    ...given({ trace: options.text('trace') }),
  });
  const ran = performance.now();
  if (target.path !== STANDARD) progress.show(`writing ${target.path}`);
  else progress.clear();
  await writeResult(renamed(table, options), count, target, signal);
  const written = performance.now();
  progress.clear();
  const toFile = target.path !== STANDARD;
  if (!options.has('quiet')) {
    const read = reads.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    const done = `${describeRows(count.rows, count)}: read ${seconds(read)}, ${request.command} ${seconds(ran - start)}`;
    console.error(toFile ? `${done}, write ${seconds(written - ran)} -> ${target.path}` : done);
  }
  if (options.has('stats')) {
    const report = {
      command: request.command,
      inputs: reads,
      output: { path: toFile ? target.path : null, rows: count.rows, milliseconds: toFile ? written - ran : 0 },
      stats,
    };
    const line = JSON.stringify(report, (_, value) => (typeof value === 'bigint' ? Number(value) : value));
    if (toFile) console.log(line);
    else console.error(line);
  }
}

async function explain({ options, progress, signal }: Context, operation: Operation, inputs: readonly Input[]): Promise<void> {
  await using engine = await createEngine(engineOptions(options));
  const tables = await tablesOf(operation, engine, inputs, options, []);
  const plan = await operation.explain(engine, tables, { analyze: options.has('analyze'), signal });
  progress.clear();
  process.stdout.write(plan);
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

/** Runs a command and gives its exit code; rejects with the reason of `signal` if it aborts. */
export async function run(request: Run, signal: AbortSignal): Promise<number> {
  const { command, operands, options } = request;
  const progress = progressLine(process.stderr, options.has('quiet'));
  const context: Context = { options, signal, progress };
  const sides = () => operands.map((operand) => new Input([operand], context));
  const one = () => [new Input(operands, context)];
  try {
    switch (command) {
      case 'join':
        await deliver(request, context, joinOperation(options), sides());
        break;
      case 'sort':
        await deliver(request, context, sortOperation(options), one());
        break;
      case 'unique':
        await deliver(request, context, uniqueOperation(options), one());
        break;
      case 'explain join':
        await explain(context, joinOperation(options), sides());
        break;
      case 'explain sort':
        await explain(context, sortOperation(options), one());
        break;
      case 'explain unique':
        await explain(context, uniqueOperation(options), one());
        break;
      case 'head':
        await head(context, operands);
        break;
      case 'schema':
        await schema(context, operands);
        break;
      case 'count':
        await count(context, operands);
        break;
      case 'devices':
        await devices(context);
        break;
      case 'doctor':
        return await doctor();
      case 'completion':
        printCompletion(operands[0]!);
    }
    signal.throwIfAborted();
    return 0;
  } finally {
    progress.clear();
  }
}
