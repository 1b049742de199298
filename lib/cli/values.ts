/** Values of options: checked as the command line is read, in its own words. */
import { CAST_WORDS, type CastType, castTypeOf } from '../io/cast.js';
import { parseBytes, parseSize } from '../sizes.js';
import { didYouMean, list, quote } from '../suggest.js';
import type { OptionSpec } from './spec.js';
import { UsageError } from './usage.js';

/** Splits at separators that no backslash precedes; backslashes stay. */
function splitEscaped(text: string, separator: string): string[] {
  const parts: string[] = [];
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === separator) {
      parts.push(text.slice(start, i));
      start = i + 1;
    }
  }
  return [...parts, text.slice(start)];
}
const unescaped = (text: string) => text.replace(/\\(.)/g, '$1');

/** Names separated by commas; a backslash takes the next character as it is. */
export function namesIn(option: string, text: string): string[] {
  const names = splitEscaped(text, ',').map(unescaped);
  if (names.includes('')) throw new UsageError(`--${option} has an empty column name in "${text}"`);
  return names;
}

export interface SortColumnArgument {
  column: string;
  descending: boolean;
  nullsLast: boolean;
}

const orders = ['asc', 'desc', 'nulls-first', 'nulls-last'];

/** `country,ts:desc:nulls-first` to sort columns. */
export function parseBy(texts: readonly string[]): SortColumnArgument[] {
  const columns = texts
    .flatMap((text) => splitEscaped(text, ','))
    .map((part) => {
      const [name, ...modifiers] = splitEscaped(part, ':');
      if (!name) throw new UsageError(`--by has an empty column name in "${texts.join(',')}"`);
      for (const modifier of modifiers) {
        if (!orders.includes(modifier)) {
          throw new UsageError(
            `--by: "${modifier}" in "${part}" is none of ${orders.join(', ')}.${didYouMean(modifier, orders)}`,
          );
        }
      }
      return { column: unescaped(name), descending: modifiers.includes('desc'), nullsLast: !modifiers.includes('nulls-first') };
    });
  checkOnce(
    'by',
    columns.map(({ column }) => column),
  );
  return columns;
}

function checkOnce(option: string, names: readonly string[]): void {
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`--${option} names ${quote(twice)} twice`);
}

/** `a=b,c=d` to pairs; a backslash takes the next character as it is. */
function pairsIn(option: string, text: string, form: string): [string, string][] {
  const pairs = splitEscaped(text, ',').map((part): [string, string] => {
    const [name, value, ...more] = splitEscaped(part, '=');
    if (!name || !value || more.length > 0) throw new UsageError(`--${option} needs ${form} but received "${part}"`);
    return [unescaped(name), unescaped(value)];
  });
  checkOnce(
    option,
    pairs.map(([name]) => name),
  );
  return pairs;
}

/** `old=new,...`: new names by old ones. */
export function parseRenames(text: string): Map<string, string> {
  const pairs = pairsIn('rename', text, 'OLD=NEW');
  const names = pairs.map(([, name]) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`--rename gives two columns the name ${quote(twice)}`);
  return new Map(pairs);
}

/** `column=type,...`; the comma within `decimal(10,2)` separates nothing. */
export function parseCasts(text: string): Map<string, CastType> {
  const whole = text.replace(/\(\s*\d+\s*,\s*\d+\s*\)/g, (digits) => digits.replace(',', '\\,'));
  return new Map(
    pairsIn('cast', whole, 'COLUMN=TYPE').map(([name, word]) => {
      const type = castTypeOf(word);
      if (!type) throw new UsageError(`--cast: "${word}" for ${quote(name)} is not ${CAST_WORDS}`);
      return [name, type];
    }),
  );
}

/** Throws UsageError for a value that the option does not take. */
export function checkValue(
  name: string,
  { choices, hints, kind, most = Number.POSITIVE_INFINITY }: OptionSpec,
  text: string,
): void {
  if (choices && !choices.includes(text)) {
    const hint = hints?.[text] ? ` Did you mean ${quote(hints[text])}?` : didYouMean(text, choices);
    throw new UsageError(
      `--${name} takes ${choices.length === 1 ? quote(choices[0]!) : list(choices)} but received "${text}".${hint}`,
    );
  }
  switch (kind) {
    case 'count':
    case 'positive': {
      const least = kind === 'positive' ? 1 : 0;
      const fits = /^\d{1,15}$/.test(text) && Number(text) >= least && Number(text) <= most;
      const range = Number.isFinite(most) ? ` from ${least} to ${most}` : least > 0 ? ` of at least ${least}` : '';
      if (!fits) throw new UsageError(`--${name} needs a whole number${range} but received "${text}"`);
      return;
    }
    case 'size':
      if (!parseSize(text)) throw new UsageError(`--${name} needs a size, such as 64GiB, 500MB or 80%, but received "${text}"`);
      return;
    case 'bytes':
      if (!parseBytes(text)) throw new UsageError(`--${name} needs a size, such as 64GiB or 500MB, but received "${text}"`);
      return;
    case 'character':
      if (text.length !== 1 || /["\r\n\ufeff]/.test(text)) {
        throw new UsageError(`--${name} needs one character that is no quote and no line break, but received ${quote(text)}`);
      }
      return;
    case 'names':
      namesIn(name, text);
      return;
    case 'keys':
      checkOnce(name, namesIn(name, text));
      return;
    case 'by':
      parseBy([text]);
      return;
    case 'renames':
      parseRenames(text);
      return;
    case 'casts':
      parseCasts(text);
      return;
  }
}
