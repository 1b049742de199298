/** Joins and sorts one row at a time, in plain JavaScript: what results are compared with. */
import type { JoinKind } from '../../lib/index.js';
import type { Row } from './tables.js';

/** Keys that match give the same string; null for a key that matches nothing. */
function identity(key: unknown): string | null {
  if (key === null || key === undefined) return null;
  if (typeof key === 'bigint') return `${key}`;
  // Integers of different widths are compared, as numbers or bigints; -0 is 0.
  if (typeof key === 'number') return `${Object.is(key, -0) ? 0 : key}`;
  return typeof key === 'string' ? `"${key}` : `${key}`;
}

export interface ReferenceOptions {
  left: string;
  right: string;
  how: Exclude<JoinKind, 'cross'>;
  coalesce?: boolean;
  suffix?: string;
}

/** `leftNames` and `rightNames` are the tables' columns, for rows without a match. */
export function referenceJoin(
  left: readonly Row[],
  right: readonly Row[],
  leftNames: string[],
  rightNames: string[],
  options: ReferenceOptions,
): Row[] {
  const { how, suffix = '_right' } = options;
  const coalesce = options.coalesce ?? how !== 'full';
  const byKey = new Map<string, number[]>();
  for (const [index, row] of right.entries()) {
    const key = identity(row[options.right]);
    if (key === null) continue;
    const found = byKey.get(key);
    if (found) found.push(index);
    else byKey.set(key, [index]);
  }
  const make = (one: Row | null, other: Row | null): Row => {
    const row: Row = {};
    for (const name of leftNames) row[name] = one ? one[name] : null;
    if (how === 'semi' || how === 'anti') return row;
    if (coalesce && (how === 'right' || !one)) row[options.left] = other![options.right];
    for (const name of rightNames) {
      if (coalesce && name === options.right) continue;
      row[leftNames.includes(name) ? name + suffix : name] = other ? other[name] : null;
    }
    return row;
  };
  const matched = new Set<number>();
  const rows: Row[] = [];
  for (const one of left) {
    const key = identity(one[options.left]);
    const found = key === null ? [] : (byKey.get(key) ?? []);
    if (how === 'semi' || how === 'anti') {
      if (found.length > 0 === (how === 'semi')) rows.push(make(one, null));
      continue;
    }
    for (const index of found) {
      matched.add(index);
      rows.push(make(one, right[index]!));
    }
    if (found.length === 0 && (how === 'left' || how === 'full')) rows.push(make(one, null));
  }
  if (how === 'right' || how === 'full') {
    for (const [index, other] of right.entries()) if (!matched.has(index)) rows.push(make(null, other));
  }
  return rows;
}

export interface ReferenceKey {
  column: string;
  descending?: boolean;
  nullsLast?: boolean;
}

/** NaN is the greatest, -0 equals 0, strings compare by their UTF-8 bytes. */
function compare(a: unknown, b: unknown): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
  if (typeof a === 'string') return Buffer.compare(Buffer.from(a), Buffer.from(b as string));
  return (a as number) < (b as number) ? -1 : (a as number) > (b as number) ? 1 : 0;
}

/** Stable. */
export function referenceSort(rows: readonly Row[], by: readonly ReferenceKey[]): Row[] {
  return [...rows].sort((one, other) => {
    for (const { column, descending = false, nullsLast = true } of by) {
      const [a, b] = [one[column] ?? null, other[column] ?? null];
      if (a === null || b === null) {
        if (a !== b) return (a === null) === nullsLast ? 1 : -1;
        continue;
      }
      const order = compare(a, b);
      if (order !== 0) return descending ? -order : order;
    }
    return 0;
  });
}
