/** Arrow IPC files, written batch by batch. */
import { AsyncByteQueue, RecordBatchFileWriter } from 'apache-arrow';
import { GrowingDictionaries } from '../columns/growing-dictionaries.js';
import { eachIn, itemsIn } from '../items.js';
import { type Batches, isTable } from './batches.js';
import { type Output, writeWhole } from './files.js';

/** What the writer of apache-arrow makes of a batch, until it is taken. */
class Pieces extends AsyncByteQueue<Uint8Array> {
  #made: Uint8Array[] = [];

  override write(bytes: unknown): void {
    this.#made.push(bytes as Uint8Array);
  }

  take(): Uint8Array[] {
    const made = this.#made;
    this.#made = [];
    return made;
  }
}

/**
 * Writes an Arrow IPC file, uncompressed, without gathering it in memory, but for dictionaries. Throws ERR_FILE, and ERR_NOT_SUPPORTED for
 * dictionaries that no file holds.
 */
export async function writeArrow(source: Batches, output: Output): Promise<void> {
  const { schema } = source;
  await writeWhole(output, async (append) => {
    const writer = new RecordBatchFileWriter();
    const pieces = new Pieces();
    const flush = async () => {
      for (const bytes of pieces.take()) await append(bytes);
    };
    writer.reset(pieces as never, schema);
    const dictionaries = new GrowingDictionaries(schema);
    if (isTable(source)) dictionaries.foresee(source.batches);
    await eachIn(itemsIn(source.batches), (batch) => {
      writer.write(dictionaries.over(batch));
      return flush();
    });
    writer.finish();
    await flush();
  });
}
