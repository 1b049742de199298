import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { buffersOf, halvesOf, Part, rowsBetween } from '../../lib/operators/batch-part.js';

const numbers = (table: { getChildAt(index: number): unknown }): number[] => [...(table.getChildAt(0) as arrow.Vector)];
const batchOf = (...values: number[]): arrow.RecordBatch => arrow.tableFromArrays({ k: Int32Array.from(values) }).batches[0]!;

describe('rows of batches', () => {
  const batches = [batchOf(0, 1, 2), batchOf(3), batchOf(4, 5)];

  test.each([
    [0, 6],
    [0, 3],
    [1, 2],
    [2, 5],
    [3, 4],
    [2, 2],
    [5, 99],
    [6, 9],
  ])('from row %i to %i', (begin, end) => {
    const some = rowsBetween(batches, begin, end);
    expect(some.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5].slice(begin, end));
    expect(some.every(({ numRows }) => numRows > 0)).toBe(true);
  });

  test.each([0, 1, 2, 3, 4, 5, 6])('from row %i on', (row) => {
    const rest = rowsBetween(batches, row);
    expect(rest.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5].slice(row));
    expect(rest.every(({ numRows }) => numRows > 0)).toBe(true);
    expect(buffersOf(rest)).toHaveLength(rest.flatMap((batch) => buffersOf([batch])).length); // no two share one
  });

  test('in halves', () => {
    const [first, last] = halvesOf(batches);
    expect([...first, ...last].flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5]);
    const [one, other] = halvesOf([batches[0]!]);
    expect([numbers(one[0]!), numbers(other[0]!)]).toEqual([[0], [1, 2]]);
  });
});

describe('a part that is split', () => {
  const made = () => {
    const part = new Part();
    const released: number[] = [];
    for (const [index, batch] of [batchOf(0, 1, 2), batchOf(3), batchOf(4, 5)].entries()) {
      part.add(batch, part.count(batch), { release: () => released.push(index) } as never);
    }
    return { part, released };
  };

  test.each([1, 3, 5])('at row %i, and put together again', (row) => {
    const { part, released } = made();
    const later = part.splitAt(row)!;
    expect(part.batches.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5].slice(0, row));
    expect(later.batches.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5].slice(row));
    expect([part.bytes, later.bytes]).toEqual([4 * row, 4 * (6 - row)]);
    part.release();
    expect(released).toEqual([]); // the others count for all
    const [first, ...rest] = later.batches.splice(0);
    later.batches.push(...rest);
    part.batches.push(first!);
    expect(part.before(later).batches.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5].slice(row));
    later.release();
    expect(released).toEqual([0, 1, 2]);
  });

  test('behind its rows has no others', () => {
    const { part, released } = made();
    expect(part.splitAt(6)).toBeNull();
    expect(part.batches.flatMap(numbers)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(released).toEqual([]);
  });
});
