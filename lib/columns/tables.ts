/** Record batches that come over time as tables of this library. */
import type * as arrow from 'apache-arrow';
import { checkSameSchema, readable } from './batches.js';
import { type ForeignTable, tableOf } from './input.js';
import { libraryOf, tableIn } from './library.js';
import { invalid } from './values.js';

/** Tables of one schema, one at least, of tables and record batches. Throws ERR_INVALID_TABLE for anything else. */
export async function* tablesOfBatches(
  items: Iterable<unknown> | AsyncIterable<unknown>,
  argument: string,
): AsyncGenerator<arrow.Table> {
  let first: ForeignTable['schema'] | undefined;
  let number = 0;
  for await (const item of items) {
    yield readable(argument, () => {
      const table = tableOf(item, argument);
      first ??= table.schema;
      if (table.schema !== first) checkSameSchema(first, table.schema, argument, number);
      number += table.batches.length;
      const own = tableIn(libraryOf(table), table);
      own.slice(0, 0); // throws for what is no table inside
      return own;
    });
  }
  if (!first) throw invalid(argument, 'has no record batches, and so no columns: expected one at least');
}
