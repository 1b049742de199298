import * as arrow from 'apache-arrow';
import { describe, expect, test } from 'vitest';
import { buffersOf, halvesOf, rowsFrom } from '../../lib/operators/batch-part.js';

const numbers = (table: { getChildAt(index: number): unknown }): number[] => [...(table.getChildAt(0) as arrow.Vector)];
const batchOf = (...values: number[]): arrow.RecordBatch => arrow.tableFromArrays({ k: Int32Array.from(values) }).batches[0]!;

describe('rows of batches', () => {
  const batches = [batchOf(0, 1, 2), batchOf(3), batchOf(4, 5)];

  test.each([0, 1, 2, 3, 4, 5, 6])('from row %i on', (row) => {
    const rest = rowsFrom(batches, row);
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
