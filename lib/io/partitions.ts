/** Results in folders by the values of columns, named as Hive names them: country=DE/year=2024/000000.parquet. */
import { mkdir, rmdir } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { Data, RecordBatch } from 'apache-arrow';
import { findColumn, infoOf, nativeColumns, readTable } from '../columns/input.js';
import { valuesOf } from '../columns/types.js';
import { invalid } from '../columns/values.js';
import { WarpjoinError } from '../errors.js';
import { END, type Items, itemsIn, itemsOf, nextOf, type OrEnd } from '../items.js';
import { native } from '../native.js';
import { translated } from '../native-errors.js';
import { expected } from '../schema.js';
import { quote } from '../suggest.js';
import type { Batches } from './batches.js';
import { asWriteError } from './file-errors.js';
import { hiveFolder } from './hive-names.js';
import { checkNone, PartFiles } from './parts.js';
import { textOf } from './text.js';

/** The folders of a result, each with files whose names have a number for the star. */
export class PartitionFolders {
  readonly #folder: string;
  readonly #made: string[] = [];
  readonly #files: PartFiles[] = [];

  /** `by`: names of the columns. Throws ERR_OPTION for a name without a star. */
  constructor(
    private readonly output: string,
    readonly by: readonly string[],
  ) {
    new PartFiles(output);
    if (new Set(by).size < by.length) throw expected('each column once', 'partitionBy', by);
    this.#folder = resolve(dirname(output));
  }

  /** Throws ERR_FILE where there are such folders already. */
  check(): void {
    const start = hiveFolder(this.by[0]!, '');
    checkNone(this.output, this.#folder, (name) => name.startsWith(start));
  }

  /** The files of a partition, whose folder is there from now on. */
  async files(partition: string): Promise<PartFiles> {
    const folder = join(this.#folder, partition);
    const first = await mkdir(folder, { recursive: true }).catch((error: unknown) => {
      throw asWriteError(folder, error);
    });
    // Of the folders that were made, `first` is the outermost.
    for (let made = folder; first && made.length >= first.length; made = dirname(made)) this.#made.push(made);
    const files = new PartFiles(join(folder, basename(this.output)));
    this.#files.push(files);
    return files;
  }

  /** Removes the files that were written, and the folders that were made. */
  async remove(): Promise<void> {
    for (const files of this.#files) await files.remove();
    for (const folder of this.#made.sort((a, b) => b.length - a.length)) await rmdir(folder).catch(() => {});
  }
}

/**
 * Writes each partition's rows with `write`; where that fails, nothing stays. Rejects with ERR_COLUMN_NOT_FOUND, with ERR_NOT_SUPPORTED for
 * nested columns, and with ERR_INVALID_TABLE where rows of a partition come again.
 */
export async function writePartitions(
  { schema, batches }: Batches,
  folders: PartitionFolders,
  write: (part: Batches, files: PartFiles) => Promise<void>,
): Promise<void> {
  const each = itemsIn(batches);
  try {
    const partitions = new Partitions({ schema, batches: each }, folders.by);
    for (let name = await partitions.next(); name !== END; name = await partitions.next()) {
      await write({ schema, batches: partitions.take() }, await folders.files(name));
    }
  } catch (error) {
    await folders.remove();
    throw error;
  } finally {
    await each.return();
  }
}

/** Rows of one partition. */
interface Piece {
  readonly partition: string;
  readonly batch: RecordBatch;
}

/** Batches whose rows come partition by partition. */
class Partitions {
  readonly #schema: Batches['schema'];
  readonly #batches: Items<RecordBatch>;
  /** The columns that rows are parted by. */
  readonly #columns: readonly number[];
  readonly #done = new Set<string>();
  /** What was read and not taken. */
  #pieces: Piece[] = [];

  constructor(
    { schema, batches }: Batches,
    private readonly by: readonly string[],
  ) {
    this.#schema = schema;
    this.#batches = itemsIn(batches);
    const input = readTable({ schema, batches: [] }, 'written');
    this.#columns = by.map((name) => findColumn(input, name, 'partitionBy'));
    for (const [at, column] of this.#columns.entries()) {
      const { kind, children } = valuesOf(infoOf(input, column));
      if (children.length > 0 || kind === 'null') {
        const what = `Column ${quote(by[at]!)} of type ${schema.fields[column]!.type}`;
        throw new WarpjoinError('ERR_NOT_SUPPORTED', `${what} has no values that folders are named by.`);
      }
    }
  }

  /** The next partition's name. Throws ERR_INVALID_TABLE where it was there before. */
  async next(): Promise<OrEnd<string>> {
    const piece = await this.#first();
    if (piece === END) return END;
    const { partition } = piece;
    if (this.#done.has(partition)) {
      const problem = `has rows of ${partition} behind those of other partitions: sort it by ${this.by.map(quote).join(' and ')} first`;
      throw invalid('written', `${problem}, as sort() and sortBatches() do`);
    }
    this.#done.add(partition);
    return partition;
  }

  /** The rows of the partition that is next. */
  take(): Items<RecordBatch> {
    let partition: string | undefined;
    return itemsOf(async () => {
      const piece = await this.#first();
      if (piece === END) return END;
      partition ??= piece.partition;
      if (piece.partition !== partition) return END;
      this.#pieces.shift();
      return piece.batch;
    });
  }

  async #first(): Promise<OrEnd<Piece>> {
    while (this.#pieces.length === 0) {
      const batch = await nextOf(this.#batches);
      if (batch === END) return END;
      if (batch.numRows > 0) this.#pieces = this.#piecesOf(batch);
    }
    return this.#pieces[0]!;
  }

  #piecesOf(batch: RecordBatch): Piece[] {
    const input = readTable({ schema: this.#schema, batches: [batch] }, 'written');
    const begins = translated(() => native().rowRuns(nativeColumns(input, this.#columns), batch.numRows));
    const texts = this.#columns.map((column) => textOf(batch.data.children[column] as Data)!);
    const nameOf = (row: number) => {
      const folders = this.by.map((name, at) => {
        const text = texts[at]!(row);
        const isZero = text === '-0' && valuesOf(infoOf(input, this.#columns[at]!)).order === 'floating'; // 0 sorts as -0
        return hiveFolder(name, isZero ? '0' : text);
      });
      return folders.join('/');
    };
    return begins.map((begin, index) => {
      const end = begins[index + 1] ?? batch.numRows;
      return { partition: nameOf(begin), batch: end - begin === batch.numRows ? batch : batch.slice(begin, end) };
    });
  }
}
