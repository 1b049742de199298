/** What each command does. Results go to stdout, or to the file asked for; everything else to stderr. */
import { describeProblem, gpusOf } from '../gpus.js';
import { createEngine } from '../index.js';
import { native } from '../native.js';
import type { Request } from './arguments.js';
import { printCompletion } from './completion.js';
import { checked, deliver, engineOptions, tablesOf } from './deliver.js';
import { describeDevice, describeLinks } from './devices.js';
import { doctor } from './doctor.js';
import { type Context, Input } from './inputs.js';
import { count, head, schema } from './inspect.js';
import { joinOperation, type Operation, sortOperation, uniqueOperation } from './operations.js';
import { progressLine } from './progress.js';

async function explain({ options, progress, signal }: Context, operation: Operation, inputs: readonly Input[]): Promise<void> {
  await using engine = await createEngine(engineOptions(options));
  const { tables } = await tablesOf(operation, engine, inputs, await checked(operation, engine, inputs, options));
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
export async function run(request: Extract<Request, { kind: 'run' }>, signal: AbortSignal): Promise<number> {
  const { command, operands, options } = request;
  const progress = progressLine(process.stderr, options.has('quiet'));
  const context: Context = { options, signal, progress };
  const sides = () => operands.map((operand) => new Input([operand], context));
  const one = () => [new Input(operands, context)];
  try {
    switch (command) {
      case 'join':
        await deliver(command, context, joinOperation(options), sides());
        break;
      case 'sort':
        await deliver(command, context, sortOperation(options), one());
        break;
      case 'unique':
        await deliver(command, context, uniqueOperation(options), one());
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
