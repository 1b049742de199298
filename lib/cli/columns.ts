/** Columns that a command line names, beside those that the files have. */
import type { Schema } from 'apache-arrow';
import { didYouMean, list, quote } from '../suggest.js';
import { UsageError } from './usage.js';

/** What an input is called, and the columns that it has. */
export interface KnownInput {
  readonly name: string;
  readonly schema: Schema;
}

export const namesOf = ({ fields }: Schema): string[] => fields.map(({ name }) => name);

/** Throws UsageError for a name that `what` does not have. */
export function checkNames(option: string, wanted: Iterable<string>, what: string, names: readonly string[]): void {
  for (const name of wanted) {
    if (names.includes(name)) continue;
    throw new UsageError(`--${option}: ${what} has no column ${quote(name)}.${didYouMean(name, names)} It has ${list(names)}`);
  }
}

/** Those of a table's columns that are wanted. */
export function neededOf(names: readonly string[], wanted: readonly string[]): string[] {
  return names.filter((name) => wanted.includes(name));
}

/**
 * The columns of a side of a join that are needed for its keys and for columns of the result. Those of the result may have the suffix, several
 * times even; and a column whose name others have with the suffix is needed for that.
 */
export function neededForJoin(
  names: readonly string[],
  keys: readonly string[],
  select: readonly string[],
  suffix: string,
): string[] {
  const wanted = new Set(keys);
  for (const name of select) {
    for (let rest = name; ; rest = rest.slice(0, -suffix.length)) {
      wanted.add(rest);
      if (!rest.endsWith(suffix) || rest === suffix) break;
    }
  }
  return names.filter((name) => wanted.has(name));
}
