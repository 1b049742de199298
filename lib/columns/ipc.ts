/** Tables as Arrow IPC bytes, for other libraries, processes and machines. */
import { type Data, RecordBatchFileWriter, RecordBatchStreamWriter, Table, type Vector } from 'apache-arrow';
import { readingFor, WarpjoinError } from '../errors.js';
import { choice, type InputOf, parse } from '../schema.js';
import { formatBytes } from '../sizes.js';
import type { ArrowInput } from '../types.js';
import { GrowingDictionaries } from './growing-dictionaries.js';
import { tableOf } from './input.js';
import { ownLibrary, tableIn } from './library.js';
import { MAX_ARRAY_BYTES } from './result.js';

export const ipcSchema = {
  format: choice(
    ['stream', 'file'],
    'stream',
    'What the bytes are: an IPC stream, or a file, which ends in an index of its batches.',
  ),
};
/** The options of toIPC(). */
export type IpcOptions = InputOf<typeof ipcSchema>;

/**
 * A table as Arrow IPC bytes, which every Arrow library reads: uncompressed, a record batch for each of the table's. Takes what
 * calls take as a table, except asynchronous record batches and loaded tables. Throws ERR_INVALID_TABLE for anything else, and ERR_NOT_SUPPORTED for more bytes than this
 * Node.js holds in one array.
 */
export function toIPC(table: ArrowInput, options?: IpcOptions): Uint8Array {
  const { format } = parse(ipcSchema, 'toIPC', options);
  const found = tableOf(table, 'input');
  return readingFor('ERR_INVALID_TABLE', "The input table can't be written", () => {
    const own = tableIn(ownLibrary, found);
    const bytes = own.batches.reduce((sum, { data }) => sum + bytesOf(data), 0);
    if (bytes > MAX_ARRAY_BYTES) {
      throw new WarpjoinError(
        'ERR_NOT_SUPPORTED',
        `The table has ${formatBytes(bytes)}; this Node.js holds at most ${formatBytes(MAX_ARRAY_BYTES)} in one array. ` +
          'Write the record batches of parts of it, or leave columns out with select.',
      );
    }
    if (format === 'stream') return RecordBatchStreamWriter.writeAll(own).toUint8Array(true);
    const dictionaries = new GrowingDictionaries(own.schema);
    dictionaries.foresee(own.batches);
    const batches = own.batches.map((batch) => dictionaries.over(batch));
    return RecordBatchFileWriter.writeAll(new Table(own.schema, batches)).toUint8Array(true);
  });
}

const bytesOf = (data: Data): number =>
  data.byteLength + ((data.dictionary as Vector | undefined)?.data.reduce((sum, chunk) => sum + bytesOf(chunk), 0) ?? 0);
