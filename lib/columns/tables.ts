/** Record batches that come over time, as tables. */
import type * as arrow from 'apache-arrow';
import { behind, END, type Items, itemsOf, nextOf } from '../items.js';
import { checkSameSchema, readable } from './batches.js';
import { type ForeignTable, tableOf } from './input.js';
import { batchWithoutRows, type Library, libraryOf, tableIn } from './library.js';
import { invalid } from './values.js';

/**
 * Tables of one schema, one at least, of tables and record batches: each of the copy of apache-arrow that it came from, or of `library`.
 * Throws ERR_INVALID_TABLE for anything else.
 */
export function tablesOfBatches(items: Items<unknown>, argument: string, library?: Library): Items<arrow.Table> {
  let first: ForeignTable['schema'] | undefined;
  let number = 0;
  return itemsOf(
    async () => {
      const item = await nextOf(items);
      if (item === END) {
        if (!first) throw invalid(argument, 'has no record batches, and so no columns: expected one at least');
        return END;
      }
      return readable(argument, () => {
        const table = tableOf(item, argument);
        first ??= table.schema;
        if (table.schema !== first) checkSameSchema(first, table.schema, argument, number);
        number += table.batches.length;
        const own = tableIn(library ?? libraryOf(table), table);
        if (own === (table as object)) own.slice(0, 0); // throws for what is no table inside
        return own;
      });
    },
    () => items.return(),
  );
}

/** The columns of a table, of which it holds no buffer. Dictionaries stay. */
export function withoutRows(table: arrow.Table): arrow.Table {
  const library = libraryOf(table as unknown as ForeignTable);
  const { schema, batches } = table;
  return new library.Table(schema, [batchWithoutRows(schema, batches[0], library)]);
}

/** The columns of tables of which there is one at least, and all of them. */
export async function opened(tables: Items<arrow.Table>): Promise<{ none: arrow.Table; all: Items<arrow.Table> }> {
  const first = (await nextOf(tables)) as arrow.Table;
  return { none: withoutRows(first), all: behind(first, tables) };
}
