/** Arrow IPC files (.arrow, .feather) and streams, read and written batch by batch. */
import { type FileHandle, open } from 'node:fs/promises';
import { type RecordBatch, RecordBatchFileWriter, RecordBatchReader, Table } from 'apache-arrow';
import { ByteBuffer } from 'flatbuffers';
import { checkBatch } from './check.js';
import { asFileError, fileError, writeWhole } from './files.js';

// In damaged metadata a list may claim thousands of millions of entries, and the Arrow library would read them all: it
// knows no ends of buffers. No list has more entries than there are bytes after it.
const listLength = ByteBuffer.prototype.__vector_len;
ByteBuffer.prototype.__vector_len = function (offset: number): number {
  const length = listLength.call(this, offset);
  if (length < 0 || length > this.capacity() - offset) throw new Error('a list in its metadata is longer than the metadata');
  return length;
};

const magic = 'ARROW1';

async function bytesAt(file: FileHandle, position: number, length: number): Promise<string> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
  return buffer.toString('latin1', 0, bytesRead);
}

/** Reads an Arrow IPC file or stream; buffers are read once and not copied. Throws ERR_FILE. */
export async function readArrow(path: string, signal?: AbortSignal): Promise<Table> {
  const file = await open(path).catch((error) => {
    throw asFileError(path, 'Arrow IPC', error);
  });
  try {
    const { size } = await file.stat();
    if (size === 0) throw fileError(path, 'the file is empty');
    const isFile = (await bytesAt(file, 0, 6)) === magic;
    if (isFile && (await bytesAt(file, size - 6, 6)) !== magic) throw fileError(path, 'damaged: the file has lost its end');
    // A stream starts with a continuation marker, before Arrow 0.15 with the length of its schema.
    if (!isFile && size < 16) throw fileError(path, 'not an Arrow IPC file or stream');
    // A stream is read whole: given a file handle, the library goes round in circles at a negative length in it.
    const reader = isFile
      ? await (await RecordBatchReader.from(file)).open()
      : RecordBatchReader.from(await file.readFile()).open();
    if (!reader.schema) throw fileError(path, 'not an Arrow IPC file or stream');
    const batches: RecordBatch[] = [];
    const add = (batch: RecordBatch) => {
      signal?.throwIfAborted();
      checkBatch(path, batch);
      batches.push(batch);
    };
    if (reader.isFile()) {
      // By number: iterating, the reader never ends where a block of the footer points to some other message.
      for (let i = 0; i < reader.numRecordBatches; i++) {
        const batch = await reader.readRecordBatch(i);
        if (!batch) throw fileError(path, `damaged: record batch ${i} of ${reader.numRecordBatches} can't be read`);
        add(batch);
      }
    } else {
      for await (const batch of reader) add(batch);
    }
    return new Table(reader.schema, batches);
  } catch (error) {
    if (/compressed but codec not found/.test(String(error))) {
      throw fileError(path, 'its buffers are compressed (LZ4 or ZSTD), which is not supported: write it uncompressed', error);
    }
    throw asFileError(path, 'Arrow IPC', error, signal);
  } finally {
    await file.close().catch(() => {}); // the reader closes it at the end of the data
  }
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
