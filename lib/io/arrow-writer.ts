/** Arrow IPC files, written batch by batch. */
import { RecordBatchFileWriter, type Table } from 'apache-arrow';
import { writeWhole } from './files.js';

/** Writes an Arrow IPC file, uncompressed, without gathering it in memory. Throws ERR_FILE. */
export async function writeArrow(table: Table, path: string, signal?: AbortSignal): Promise<void> {
  await writeWhole(path, signal, async (append) => {
    const writer = new RecordBatchFileWriter();
    writer.reset(undefined, table.schema);
    const drained = (async () => {
      for await (const bytes of writer) await append(bytes);
    })();
    for (const batch of table.batches) writer.write(batch);
    writer.finish();
    await drained;
  });
}
