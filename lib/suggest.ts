/** Edits (insert, delete, replace, swap neighbours) that turn `a` into `b`, without regard to case. */
export function editDistance(a: string, b: string): number {
  const from = a.toLowerCase();
  const to = b.toLowerCase();
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1];
      let best = Math.min(previous[column]! + 1, current[column - 1]! + 1, previous[column - 1]! + (same ? 0 : 1));
      if (row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]) {
        best = Math.min(best, beforePrevious[column - 2]! + 1);
      }
      current.push(best);
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[to.length]!;
}

/** The name most like `name`, if one is like it at all: at most a third of its letters differ (at least one may). */
export function nearest(name: string, names: Iterable<string>): string | undefined {
  let found: string | undefined;
  let least = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of names) {
    const distance = Math.abs(candidate.length - name.length) < least ? editDistance(name, candidate) : least;
    if (distance < least) {
      least = distance;
      found = candidate;
    }
  }
  return found;
}

/** ` Did you mean "x"?`, or nothing. */
export function didYouMean(name: string, names: Iterable<string>): string {
  const found = nearest(name, names);
  return found === undefined ? '' : ` Did you mean ${quote(found)}?`;
}

export const quote = (text: string): string => JSON.stringify(text);

/** `"a", "b" and "c"`; more than `most` names end in the number left out. */
export function list(names: readonly string[], most = 12): string {
  const shown = names.slice(0, most).map(quote);
  if (names.length > most) shown.push(`${names.length - most} more`);
  if (shown.length < 2) return shown.join('');
  return `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`;
}

/** A value as an error message shows it: short, and never its whole contents. */
export function show(value: unknown): string {
  try {
    return shown(value);
  } catch {
    return 'an object that throws'; // a getter or a proxy
  }
}

function shown(value: unknown): string {
  if (typeof value === 'string') return quote(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return 'a function';
  if (Array.isArray(value)) {
    const element = (one: unknown) => (Array.isArray(one) ? 'an array' : show(one)); // it may hold itself
    return value.length > 4 ? `an array of ${value.length}` : `[${value.map(element).join(', ')}]`;
  }
  if (typeof value === 'object' && value !== null) {
    const name: unknown = value.constructor?.name;
    return `an object of type ${(typeof name === 'string' && name) || 'Object'}`;
  }
  return String(value);
}
