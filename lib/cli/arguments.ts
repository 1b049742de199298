/** Command lines to requests. Whatever is wrong with one is a UsageError in one line. */
import { parseArgs } from 'node:util';
import { didYouMean, list } from '../suggest.js';
import { checkCombination } from './combinations.js';
import { type CommandName, type CommandSpec, commandNames, commands, type OptionSpec } from './spec.js';
import { UsageError } from './usage.js';
import { checkValue, namesIn } from './values.js';

export type Request =
  | { kind: 'version' }
  | { kind: 'help'; command?: CommandName }
  | { kind: 'run'; command: CommandName; operands: string[]; options: Options };

/** Reads options by their long names. */
export class Options {
  constructor(private readonly given: ReadonlyMap<string, readonly string[]>) {}

  has(name: string): boolean {
    return this.given.has(name);
  }
  text(name: string): string | undefined {
    return this.given.get(name)?.at(-1);
  }
  texts(name: string): readonly string[] | undefined {
    return this.given.get(name);
  }
  names(name: string): string[] | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : namesIn(name, text);
  }
  count(name: string): number | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : Number(text);
  }
}

function commandOf(words: string[]): { command: CommandName; used: number } {
  const [first, second] = words;
  if (first === 'explain') {
    const command = `explain ${second}` as CommandName;
    if (commandNames.includes(command)) return { command, used: 2 };
    throw new UsageError(`explain needs "join", "sort" or "unique"${second === undefined ? '' : ` but received "${second}"`}`);
  }
  if (commandNames.includes(first as CommandName)) return { command: first as CommandName, used: 1 };
  throw new UsageError(
    `unknown command "${first}".${didYouMean(first!, [...commandNames, 'explain'])} "warpjoin --help" lists them`,
  );
}

/** Throws UsageError. */
export function parseCommandLine(argv: readonly string[]): Request {
  const first = argv[0];
  if (first === undefined) throw new UsageError('a command is missing: warpjoin --help lists them');
  if (first === '--help' || first === '-h' || first === 'help') {
    const topic = argv.slice(1).filter((word) => !word.startsWith('-'));
    return first === 'help' && topic.length > 0 ? { kind: 'help', command: commandOf(topic).command } : { kind: 'help' };
  }
  if (first === '--version' || first === '-V') return { kind: 'version' };
  if (first.startsWith('-')) throw new UsageError(`the command comes before options like ${first}: warpjoin COMMAND [OPTIONS]`);
  if (first === 'explain' && argv.length > 1 && argv.slice(1).every((word) => word === '--help' || word === '-h'))
    return { kind: 'help' };

  const { command, used } = commandOf([...argv]);
  const spec: CommandSpec = commands[command];
  const { tokens } = parseArgs({
    args: argv.slice(used),
    options: Object.fromEntries(
      Object.entries(spec.options).map(([name, { short, value }]) => [
        name,
        { type: value ? ('string' as const) : ('boolean' as const), ...(short && { short }) },
      ]),
    ),
    strict: false, // its messages take several lines; the checks below take one
    allowPositionals: true,
    tokens: true,
  });

  const operands: string[] = [];
  const given = new Map<string, string[]>();
  for (const token of tokens) {
    if (token.kind === 'positional') operands.push(token.value);
    if (token.kind !== 'option') continue;
    const option: OptionSpec | undefined = spec.options[token.name];
    if (!option) {
      const hint = didYouMean(token.name, Object.keys(spec.options)).replace(/"(.*)"/, '"--$1"');
      throw new UsageError(`unknown option ${token.rawName} for ${command}.${hint} "warpjoin ${command} --help" lists them`);
    }
    if (!option.value && token.value !== undefined) throw new UsageError(`--${token.name} takes no value`);
    if (option.value && (token.value === undefined || (!token.inlineValue && /^-./.test(token.value)))) {
      throw new UsageError(`--${token.name} needs a value (${option.value}); write --${token.name}=VALUE if it starts with "-"`);
    }
    const values = given.get(token.name) ?? [];
    if (values.length > 0 && !option.multiple && option.value) throw new UsageError(`--${token.name} is given twice`);
    if (option.value) checkValue(token.name, option, token.value!);
    given.set(token.name, [...values, token.value ?? '']);
  }

  if (given.has('help')) return { kind: 'help', command };
  const { length } = spec.operands;
  if (spec.several ? operands.length < length : operands.length !== length) {
    const wanted = length === 0 ? 'no files' : spec.operands.join(' and ');
    throw new UsageError(`${command} needs ${wanted} but received ${operands.length === 0 ? 'none' : operands.join(' ')}`);
  }
  const wrong = spec.words && operands.find((operand) => !spec.words!.includes(operand));
  if (wrong !== undefined) {
    throw new UsageError(`${command} takes ${list(spec.words!)} but received "${wrong}".${didYouMean(wrong, spec.words!)}`);
  }
  const options = new Options(given);
  checkCombination(command, operands, options);
  return { kind: 'run', command, operands, options };
}
