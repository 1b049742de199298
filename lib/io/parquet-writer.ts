/** Parquet files: the addon encodes tables of flat columns on all cores (native/parquet), parquet-wasm those with nested ones. */
import { availableParallelism } from 'node:os';
import { DataType, Field, Schema, Table, Type, tableToIPC } from 'apache-arrow';
import type { RecordBatch as WasmBatch } from 'parquet-wasm/esm';
import { Behind } from '../behind.js';
import { HeldBuffers } from '../columns/held-buffers.js';
import { type Input, nativeColumns, readTable } from '../columns/input.js';
import { type ForeignType, ownType } from '../columns/types.js';
import { ahead, eachIn } from '../items.js';
import { physicalMemory } from '../machine.js';
import { type NativeAddon, native } from '../native.js';
import { type Batches, gathered, isTable } from './batches.js';
import { asWriteError } from './file-errors.js';
import { type Output, writeWhole } from './files.js';
import { BYTES_PER_ROW_GROUP } from './options.js';
import { parquetLibrary } from './parquet-decoder.js';
import { type NativeParquetWriter, type ParquetField, type ParquetProgress, parquetType } from './parquet-writer-native.js';

/** Sizes of what a file consists of, and of the work on it. Tests make what is large small. */
export interface ParquetSizes {
  threads?: number | undefined;
  groupRows?: number | undefined;
  groupBytes?: number | undefined;
  pageBytes?: number | undefined;
}

const mostThreads = 16;
const leastRowsPerGroup = 1 << 17;
const mostRowsPerGroup = 1 << 20; // each group has dictionaries of its own
const likelyRows = mostRowsPerGroup; // at least, where nobody knows how many will come
const mostBytesPerGroup = 1 << 30; // of the addon
const bytesPerPage = 1 << 20;
const rowsPerBatch = 1 << 20;
const groupsPerPart = 2; // of bytes, where batches come: some are encoded while those before are written

/** Writes a Parquet file, compressed with Snappy where that pays. Types that Parquet lacks are refused with ERR_FILE. */
export async function writeParquet(source: Batches, output: Output, sizes: ParquetSizes = {}): Promise<void> {
  const fields = fieldsOf(source.schema);
  const addon = fields && loaded();
  return addon ? writeNative(addon, fields, source, output, sizes) : writeThroughWasm(source, output, sizes);
}

/** The fields, if the addon writes columns of all their types. */
function fieldsOf(schema: Schema): ParquetField[] | undefined {
  const fields = schema.fields.map(({ name, nullable, type }) => {
    const stored = parquetType(type);
    return stored && { ...stored, name, nullable: nullable || type.typeId === Type.Null };
  });
  const distinct = new Set(schema.fields.map(({ name }) => name)).size === fields.length;
  return fields.length > 0 && distinct && fields.every((field) => field !== undefined) ? fields : undefined;
}

/** The addon, where there is one. */
function loaded(): NativeAddon | undefined {
  try {
    return native();
  } catch {
    return undefined; // files are written without it
  }
}

/** The schema's own metadata, and the schema as Arrow's implementations keep it in Parquet files: a message of the IPC format. */
function metadataOf({ columns, metadata = new Map() }: Input): [string, string][] {
  const fields = columns.map(({ name, foreignType, nullable, metadata }) => {
    const type = isReadAsDictionary(foreignType) ? foreignType : foreignType.dictionary!;
    return new Field(name, ownType(type), nullable, metadata);
  });
  const stream = tableToIPC(new Table(new Schema(fields, metadata), []), 'stream');
  const size = new DataView(stream.buffer, stream.byteOffset).getInt32(4, true); // behind the mark of a message
  const message = Buffer.from(stream.buffer, stream.byteOffset, 8 + size);
  return [...[...metadata].filter(([key]) => key !== arrowSchema), [arrowSchema, message.toString('base64')]];
}
const arrowSchema = 'ARROW:schema';

/** Arrow's Rust implementation fails to read dictionaries of booleans, values of fixed width in bytes, and views. */
function isReadAsDictionary({ typeId, dictionary }: ForeignType): boolean {
  if (typeId !== Type.Dictionary) return true;
  const physical = parquetType(dictionary!)!.type;
  const isView = dictionary!.typeId === Type.Utf8View || dictionary!.typeId === Type.BinaryView;
  return physical !== 'boolean' && physical !== 'fixed_bytes' && !isView;
}

async function writeNative(
  addon: NativeAddon,
  fields: ParquetField[],
  source: Batches,
  output: Output,
  sizes: ParquetSizes,
): Promise<void> {
  const { path, signal } = output;
  await writeWhole(output, async (append) => {
    let writer: NativeParquetWriter | undefined;
    const writing = new Behind();
    // Where bytes are counted, those of a part say whether the file has another one.
    const isCounted = output.onBytes !== undefined;
    const rows = isTable(source) ? source.numRows : isCounted ? 0 : likelyRows;
    const cancel = () => writer?.cancel();
    try {
      signal?.throwIfAborted();
      const threads = sizes.threads ?? Math.min(availableParallelism(), mostThreads);
      // Groups are what readers share among threads.
      const groupRows = sizes.groupRows ?? Math.min(mostRowsPerGroup, Math.max(leastRowsPerGroup, Math.ceil(rows / threads)));
      const groupBytes = Math.min(sizes.groupBytes ?? BYTES_PER_ROW_GROUP, mostBytesPerGroup);
      writer = new addon.ParquetWriter({
        threads,
        memoryBytes: physicalMemory(),
        fields,
        metadata: metadataOf(readTable({ schema: source.schema, batches: [] }, 'input')),
        groupRows,
        groupBytes,
        pageBytes: sizes.pageBytes ?? bytesPerPage,
      });
      signal?.addEventListener('abort', cancel);
      const parts = gathered(source, { rows: threads * groupRows, bytes: groupsPerPart * groupBytes });
      const encoding = writer;
      const write = async ({ buffers }: ParquetProgress) => {
        for (const buffer of buffers) await append(new Uint8Array(buffer));
        encoding.reclaim();
      };
      await eachIn(isCounted ? parts : ahead(parts), async (part) => {
        await encode(encoding, readTable(part, 'input'), (progress) => writing.start(() => write(progress)));
        await writing.end();
      });
      await write(await encoding.finish());
    } catch (error) {
      throw signal?.aborted ? signal.reason : asWriteError(path, error);
    } finally {
      signal?.removeEventListener('abort', cancel);
      writer?.cancel();
      await writing.end().catch(() => {}); // whoever waits for it is told
      writer?.release();
    }
  });
}

/** Encodes a part. `write` gets what each call makes of it. */
async function encode(
  writer: NativeParquetWriter,
  input: Input,
  write: (progress: ParquetProgress) => Promise<void>,
): Promise<void> {
  const indices = [...input.columns.keys()];
  const held = new HeldBuffers();
  held.add(input, indices);
  for (let call = writer.begin(nativeColumns(input, indices), input.rows); ; call = writer.write()) {
    const progress = await call;
    held.check();
    await write(progress);
    if (progress.rowsLeft === 0) break;
  }
}

/**
 * Columns that a dictionary hardly makes smaller: it takes most of the time to write them. Of `sampled` values drawn from n
 * different ones sampled^2 / 2n are repeated; here n is above about 65536.
 */
function manyValued(table: Table): string[] {
  const sampled = 4096;
  const leastRepeated = 128;
  if (table.numRows < 4 * sampled) return [];
  const flat = table.schema.fields.filter(({ type }) => !type.children?.length && !DataType.isDictionary(type));
  const step = Math.floor(table.numRows / sampled);
  const many = flat.filter(({ name }) => {
    const column = table.getChild(name)!;
    const values = new Set(Array.from({ length: sampled }, (_, i) => String(column.get(i * step))));
    return sampled - values.size < leastRepeated;
  });
  return many.map(({ name }) => name);
}

/** The same for any types that parquet-wasm takes, on one thread. */
export async function writeThroughWasm(
  source: Batches,
  output: Output,
  { groupBytes = BYTES_PER_ROW_GROUP }: ParquetSizes = {},
): Promise<void> {
  const { path, signal } = output;
  const {
    Compression,
    EnabledStatistics,
    Table: WasmTable,
    WriterPropertiesBuilder,
    transformParquetStream,
    writeParquet: encodeTable,
  } = await parquetLibrary();
  const tables = gathered(source, { rows: rowsPerBatch, bytes: groupBytes });
  const first = (await tables.next()).value as Table;
  const plain = manyValued(first);
  const properties = () => {
    const builder = new WriterPropertiesBuilder()
      .setCompression(Compression.SNAPPY)
      .setStatisticsEnabled(EnabledStatistics.Chunk)
      .setCreatedBy('warpjoin');
    return plain.reduce((made, name) => made.setColumnDictionaryEnabled(name, false), builder).build();
  };
  await writeWhole(output, async (append) => {
    try {
      if (first.numRows === 0)
        return await append(encodeTable(WasmTable.fromIPCStream(tableToIPC(first, 'stream')), properties()));
      async function* slices(table: Table): AsyncGenerator<WasmBatch> {
        for (let row = 0; row < table.numRows; row += rowsPerBatch) {
          signal?.throwIfAborted();
          yield* WasmTable.fromIPCStream(tableToIPC(table.slice(row, row + rowsPerBatch), 'stream')).recordBatches();
        }
      }
      const parts = (async function* () {
        yield* slices(first);
        for await (const table of tables) yield* slices(table);
      })();
      const stream = new ReadableStream<WasmBatch>({
        async pull(controller) {
          try {
            const { done, value } = await parts.next();
            if (done) controller.close();
            else controller.enqueue(value);
          } catch (error) {
            controller.error(error);
          }
        },
      });
      const bytes = await transformParquetStream(stream as never, properties());
      for await (const part of bytes as unknown as AsyncIterable<Uint8Array>) await append(part);
    } catch (error) {
      throw signal?.aborted ? signal.reason : asWriteError(path, error);
    } finally {
      await tables.return();
    }
  });
}
