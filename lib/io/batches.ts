/** Record batches as readers make them, and as writers take them. */
import { makeData, RecordBatch, type Schema, Struct, Table } from 'apache-arrow';

/** What writers take: a table, or record batches of one schema as they come. */
export type Batches = Table | { readonly schema: Schema; readonly batches: AsyncIterable<RecordBatch> };

export const isTable = (source: Batches): source is Table => 'numRows' in source;

/** The batches as tables of `most` rows or bytes, or a batch more: a table alone is one. One at least. */
export async function* gathered(source: Batches, most: { readonly rows: number; readonly bytes: number }): AsyncGenerator<Table> {
  if (isTable(source)) return yield source;
  const { schema, batches } = source;
  let part: RecordBatch[] = [];
  let [rows, bytes, given] = [0, 0, 0];
  for await (const batch of batches) {
    part.push(batch);
    rows += batch.numRows;
    bytes += batch.data.byteLength;
    if (rows < most.rows && bytes < most.bytes) continue;
    yield new Table(schema, part);
    [part, rows, bytes] = [[], 0, 0];
    ++given;
  }
  if (rows > 0 || given === 0) yield new Table(schema, part);
}

/** A batch of no rows: what a scan of an empty file gives, so that its schema is known. */
export function emptyBatch(schema: Schema): RecordBatch {
  const children = schema.fields.map(({ type }) => makeData({ type, length: 0, nullCount: 0 } as never));
  return new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length: 0, nullCount: 0, children }));
}
