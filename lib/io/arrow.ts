/** Arrow IPC files (.arrow, .feather) and streams, read and written batch by batch. */
import { constants } from 'node:buffer';
import { type FileHandle, open } from 'node:fs/promises';
import { RecordBatchFileWriter, type Table } from 'apache-arrow';
import { IpcError, type Range, readIpc } from '../ipc/reader.js';
import { formatBytes } from '../sizes.js';
import { asFileError, fileError, writeWhole } from './files.js';

const largestRead = 1 << 30; // one read(2) moves at most 2^31 - 4096 bytes

/** Reads an Arrow IPC file or stream; what is in it is read once and not copied. Throws ERR_FILE. */
export async function readArrow(path: string, signal?: AbortSignal): Promise<Table> {
  const file = await open(path).catch((error) => {
    throw asFileError(path, 'Arrow IPC', error);
  });
  try {
    const { size } = await file.stat();
    if (size === 0) throw fileError(path, 'the file is empty');
    const reading = readIpc(size);
    let step = reading.next();
    while (!step.done) step = reading.next(await bytesAt(path, file, step.value, signal));
    return step.value;
  } catch (error) {
    if (error instanceof IpcError) throw fileError(path, `not readable as Arrow IPC: ${error.message}`, error);
    throw asFileError(path, 'Arrow IPC', error, signal);
  } finally {
    await file.close();
  }
}

async function bytesAt(path: string, file: FileHandle, { position, length }: Range, signal?: AbortSignal): Promise<Uint8Array> {
  if (length > constants.MAX_LENGTH) {
    const [found, most] = [formatBytes(length), formatBytes(constants.MAX_LENGTH)];
    throw fileError(path, `a batch in it has ${found}, and this Node.js holds ${most} in one: write it in smaller batches`);
  }
  const { buffer } = Buffer.allocUnsafeSlow(length);
  const bytes = new Uint8Array(buffer, 0, length);
  for (let at = 0; at < length; ) {
    signal?.throwIfAborted();
    const { bytesRead } = await file.read(bytes, at, Math.min(length - at, largestRead), position + at);
    if (bytesRead === 0) throw fileError(path, 'the file became shorter while it was read');
    at += bytesRead;
  }
  return bytes;
}

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
