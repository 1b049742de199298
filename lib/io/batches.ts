/** Record batches as readers make them. */
import { makeData, RecordBatch, type Schema, Struct } from 'apache-arrow';

/** A batch of no rows: what a scan of an empty file gives, so that its schema is known. */
export function emptyBatch(schema: Schema): RecordBatch {
  const children = schema.fields.map(({ type }) => makeData({ type, length: 0, nullCount: 0 } as never));
  return new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length: 0, nullCount: 0, children }));
}
