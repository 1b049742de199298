/** Record batches as readers make them, and as writers take them. */
import { type RecordBatch, type Schema, Table } from 'apache-arrow';
import { END, type Items, itemsIn, itemsOf, nextOf } from '../items.js';

/** What writers take: a table, or record batches of one schema as they come. */
export type Batches = Table | { readonly schema: Schema; readonly batches: AsyncIterable<RecordBatch> };

export const isTable = (source: Batches): source is Table => 'numRows' in source;

/** The batches as tables of `most` rows or bytes, or a batch more: a table alone is one. One at least. */
export function gathered(source: Batches, most: { readonly rows: number; readonly bytes: number }): Items<Table> {
  if (isTable(source)) return itemsIn([source]);
  const batches = itemsIn(source.batches);
  let isFirst = true;
  return itemsOf(
    async () => {
      const part: RecordBatch[] = [];
      let [rows, bytes] = [0, 0];
      while (rows < most.rows && bytes < most.bytes) {
        const batch = await nextOf(batches);
        if (batch === END) break;
        part.push(batch);
        rows += batch.numRows;
        bytes += batch.data.byteLength;
      }
      if (rows === 0 && !isFirst) return END;
      isFirst = false;
      return new Table(source.schema, part);
    },
    () => batches.return(),
  );
}
