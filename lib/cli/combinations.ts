/** Which options go together, in the words of the command line. Everything that can be said without a file. */
import { STANDARD } from '../io/formats.js';
import type { Options } from './arguments.js';
import { type CommandName, SHOWN_FORMATS } from './spec.js';
import { UsageError } from './usage.js';
import { parseBy } from './values.js';

/** Throws UsageError for options that do not go together, and for those that are missing. */
export function checkCombination(command: CommandName, operands: readonly string[], options: Options): void {
  const name = command.replace('explain ', '');
  if (name === 'join') checkJoin(options);
  if (name === 'sort') {
    const by = options.texts('by');
    if (!by) throw new UsageError('sort needs --by COLUMNS');
    parseBy(by);
  }
  if (name === 'completion') return;
  if (operands.filter((operand) => operand === STANDARD).length > 1) {
    throw new UsageError('standard input ("-") can be read once, and is named twice');
  }
  checkOutput(options);
}

function checkJoin(options: Options): void {
  const given = (...names: string[]) => names.filter((name) => options.has(name)).map((name) => `--${name}`);
  if (options.text('how') === 'cross') {
    const [other] = given('on', 'left-on', 'right-on', 'nulls-equal', 'coalesce', 'validate', 'algorithm');
    if (other) throw new UsageError(`--how cross does not go with ${other}: each row matches every other one`);
    return;
  }
  const [side] = given('left-on', 'right-on');
  if (options.has('on')) {
    if (side) throw new UsageError(`--on does not go with ${side}: --on names columns of both files`);
    return;
  }
  if (!side) throw new UsageError('join needs --on COLUMNS, or --left-on and --right-on');
  const [left, right] = [options.names('left-on'), options.names('right-on')];
  if (!left) throw new UsageError('--right-on needs --left-on');
  if (!right) throw new UsageError('--left-on needs --right-on');
  if (left.length === right.length) return;
  const columns = (names: readonly string[]) => `${names.length} column${names.length === 1 ? '' : 's'}`;
  throw new UsageError(`--left-on names ${columns(left)} and --right-on ${columns(right)}: each needs a partner`);
}

function checkOutput(options: Options): void {
  const format = options.text('format');
  if (format === undefined || (SHOWN_FORMATS as readonly string[]).includes(format) || !options.has('max-rows')) return;
  throw new UsageError(
    `--max-rows goes with --format table or markdown, and not with ${format}: --limit leaves rows out of the result`,
  );
}
