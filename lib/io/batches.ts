/** Record batches as readers make them, and as writers take them. */
import { type RecordBatch, type Schema, Table } from 'apache-arrow';
import { viewsOf } from '../columns/buffers.js';
import { END, type Items, itemsIn, itemsOf, nextOf } from '../items.js';

/** What writers take: a table, or record batches of one schema as they come. */
export type Batches = Table | { readonly schema: Schema; readonly batches: AsyncIterable<RecordBatch> };

export const isTable = (source: Batches): source is Table => 'numRows' in source;

/** Bytes of padding that buffers may have behind their values. */
const MOST_PADDING = 64;

/** Whether no batch behind this one can be a slice of the same buffers. */
const endsBuffers = ({ data }: RecordBatch): boolean =>
  [...viewsOf(data)].every(({ buffer, byteOffset, byteLength }) => byteOffset + byteLength + MOST_PADDING >= buffer.byteLength);

/** The buffers that batches are slices of. */
class Kept {
  /** Of all that is in them. */
  bytes = 0;
  readonly #buffers = new Set<ArrayBufferLike>();

  add({ data }: RecordBatch): void {
    for (const { buffer } of viewsOf(data)) {
      if (this.#buffers.has(buffer)) continue;
      this.#buffers.add(buffer);
      this.bytes += buffer.byteLength;
    }
  }
}

/**
 * The batches as tables of `most` rows or bytes, or a batch more: a table alone is one. One at least. A table ends early where it would keep
 * more than `most` bytes of memory while what has the next batch is made: it has the last slice of a batch that is larger.
 */
export function gathered(source: Batches, most: { readonly rows: number; readonly bytes: number }): Items<Table> {
  if (isTable(source)) return itemsIn([source]);
  const batches = itemsIn(source.batches);
  let isFirst = true;
  return itemsOf(
    async () => {
      const part: RecordBatch[] = [];
      const kept = new Kept();
      let [rows, bytes] = [0, 0];
      while (rows < most.rows && bytes < most.bytes) {
        const batch = await nextOf(batches);
        if (batch === END) break;
        part.push(batch);
        rows += batch.numRows;
        bytes += batch.data.byteLength;
        kept.add(batch);
        if (rows > 0 && kept.bytes > most.bytes && endsBuffers(batch)) break;
      }
      if (rows === 0 && !isFirst) return END;
      isFirst = false;
      return new Table(source.schema, part);
    },
    () => batches.return(),
  );
}
