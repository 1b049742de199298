/** The files of a command: what is known of them, then their rows. */
import { type Schema, Table } from 'apache-arrow';
import { rowBytes } from '../columns/row-bytes.js';
import { opened } from '../columns/tables.js';
import { WarpjoinError } from '../errors.js';
import { type CastType, castColumns } from '../io/cast.js';
import { compressionOf, FORMATS, type Format, namedFormat, STANDARD, UnknownFormat } from '../io/formats.js';
import { HiveColumns } from '../io/hive-columns.js';
import { type ReadOptions, type ReadProgress, readTable, scanFiles, type TextType } from '../io/index.js';
import { expandInputs } from '../io/inputs.js';
import { type ReadSettings, readSchema, TEXT_TYPES } from '../io/options.js';
import { type Outline, outlineOf } from '../io/outline.js';
import { statInput } from '../io/sources.js';
import { END, type Items, itemsOf, type OrEnd } from '../items.js';
import { parse } from '../schema.js';
import type { Options } from './arguments.js';
import type { ProgressLine } from './progress.js';
import { UsageError } from './usage.js';
import { parseCasts } from './values.js';

export interface Context {
  readonly options: Options;
  readonly signal: AbortSignal;
  readonly progress: ProgressLine;
}

export interface ReadInput {
  readonly path: string;
  readonly rows: number;
  readonly milliseconds: number;
}

/** The rows of an input as they come. */
export interface Coming {
  readonly schema: Schema;
  /** To be read once. */
  readonly tables: Items<Table>;
  /** Rows that came up to now, and what that took. */
  readonly read: ReadInput;
  /** The share of the files that came up to now, from 0 to 1. */
  fraction(): number;
}

const sumOf = (bytes: ReadonlyMap<string, number>): number => [...bytes.values()].reduce((sum, each) => sum + each, 0);

/** What bytes of a compressed file, and of Parquet, are about in memory: several times as many. */
const UNPACKED = 4;

/** The files that stand for one table: an operand, or several. */
export class Input {
  readonly #read: ReadOptions;
  /** What is known before the rows are read; undefined where that takes reading them. */
  #outline: Outline | undefined;
  #folders: Promise<HiveColumns> | undefined;
  /** Bytes of files, about as in memory. */
  readonly #bytes = new Map<string, number>();

  constructor(
    readonly operands: readonly string[],
    private readonly context: Context,
  ) {
    const { options, signal } = context;
    const nullValues = options.texts('null-value');
    const delimiter = options.text('delimiter');
    const format = options.text('input-format') as Format | undefined;
    const needsFormat = operands.some((operand) => operand === STANDARD || !namedFormat(operand));
    this.#read = {
      signal,
      header: !options.has('no-header'),
      hivePartitioning: !options.has('no-hive-partitioning'),
      ...(delimiter !== undefined && { delimiter }),
      ...(nullValues && { nullValues: [...nullValues] }),
      ...(format && needsFormat && { format }),
    };
  }

  /** How the files are read. */
  get settings(): ReadSettings {
    return parse(readSchema, 'readTable', this.#read);
  }

  /** What the files are called in messages. */
  get name(): string {
    return this.operands.map((operand) => (operand === STANDARD ? 'standard input' : operand)).join(', ');
  }

  /**
   * What can be known of the first file without reading its rows: nothing of standard input and of other pipes, which are read once, nor
   * of compressed files and JSON, which would be read twice.
   */
  async outline(): Promise<Outline | undefined> {
    const [path] = this.operands.includes(STANDARD) ? [] : await expandInputs(this.operands);
    if (path === undefined || !(await canBeOutlined(path, this.#read.format))) return undefined;
    this.#outline = await this.anyOutline(path);
    return this.#outline;
  }

  /** The columns of one of the files, whatever it takes to know them. */
  async anyOutline(path: string): Promise<Outline> {
    try {
      this.#folders ??= HiveColumns.of(await expandInputs(this.operands), this.settings);
      return await outlineOf(path, this.settings, this.context.signal, await this.#folders);
    } catch (error) {
      throw inOwnWords(error);
    }
  }

  /**
   * The whole table, or its first rows, with columns of the types that --cast says. `isSole`: whether the command has no other input,
   * so that the columns of --cast must be in this one.
   */
  async table({ isSole, ...more }: { isSole: boolean; columns?: readonly string[]; maxRows?: number }): Promise<Table> {
    const table = await readTable(this.operands, this.#reading(isSole, more)).catch((error) => {
      throw inOwnWords(error);
    });
    return castColumns(table, this.#casts, this.name);
  }

  /**
   * The same rows as they come, whose types are those of the first ones where the files don't state them. Shows nothing of its progress.
   */
  async coming({
    isSole,
    readAhead,
    ...more
  }: {
    isSole: boolean;
    columns?: readonly string[];
    readAhead: number;
  }): Promise<Coming> {
    const come = new Map<string, number>();
    const onProgress = ({ file, fraction = 0 }: ReadProgress) => come.set(file, fraction * (this.#bytes.get(file) ?? 0));
    const batches = scanFiles(this.operands, { ...this.#reading(isSole, more), readAhead, onProgress });
    const read = { path: this.name, rows: 0, milliseconds: 0 };
    const next = async (): Promise<OrEnd<Table>> => {
      const start = performance.now();
      const { done, value } = await batches.next().catch((error) => {
        throw inOwnWords(error);
      });
      read.milliseconds += performance.now() - start;
      if (done) return END;
      read.rows += value.numRows;
      return castColumns(new Table([value]), this.#casts, this.name);
    };
    const { none, all } = await opened(itemsOf(next, () => batches.return(undefined))); // an empty file has a batch without rows
    const fraction = () => Math.min(1, sumOf(come) / Math.max(1, sumOf(this.#bytes)));
    return { schema: none.schema, tables: all, read, fraction };
  }

  /**
   * About as many bytes as the rows take in memory, of Parquet those of the columns that are read; undefined where the files don't tell, as
   * of standard input.
   */
  async estimatedBytes(columns?: readonly string[]): Promise<number | undefined> {
    if (this.operands.includes(STANDARD)) return undefined;
    for (const path of await expandInputs(this.operands)) {
      const stats = await statInput(path);
      if (!stats.isFile()) return undefined;
      const { compression } = compressionOf(path);
      const isParquet = (this.#read.format ?? namedFormat(path)) === 'parquet';
      const unpacked = (compression || isParquet ? UNPACKED : 1) * stats.size;
      this.#bytes.set(path, isParquet && !compression ? await this.#parquetBytes(path, unpacked, columns) : unpacked);
    }
    return sumOf(this.#bytes);
  }

  /** About the bytes of columns of a Parquet file's rows: encodings may make them any number of times smaller. */
  async #parquetBytes(path: string, unpacked: number, columns: readonly string[] | undefined): Promise<number> {
    const { schema, rows = 0 } = await this.anyOutline(path);
    const all = rowBytes(schema);
    const read = columns ? rowBytes(schema.select([...columns])) : all;
    return Math.max(rows * read, all > 0 ? unpacked * (read / all) : unpacked);
  }

  get #casts(): Record<string, CastType> {
    return Object.fromEntries(castsOf(this.context.options));
  }

  #reading(isSole: boolean, more: { columns?: readonly string[]; maxRows?: number }): ReadOptions {
    const names = this.#outline?.schema.fields.map(({ name }) => name);
    const inFile = Object.entries(this.#casts).filter(([name]) => names?.includes(name) ?? isSole);
    const types = Object.fromEntries(inFile.map(([name, type]) => [name, readAs(type)]));
    const { progress } = this.context;
    const onProgress = ({ file, fraction }: ReadProgress) => progress.show(`reading ${file}`, fraction);
    return { ...this.#read, ...more, types, onProgress };
  }
}

/** An error of the library, with the command's options in place of the library's. */
export function inOwnWords(error: unknown): unknown {
  if (error instanceof UnknownFormat) {
    const why = error.message.slice(0, error.message.indexOf('. Say its format'));
    return new UsageError(`${why}; --input-format says what it is: ${FORMATS.join(', ')}`);
  }
  if (!(error instanceof WarpjoinError)) return error;
  const message = error.message
    .replace(/ with types\b/g, ' with --cast')
    .replace(/: types has /, ': --cast has ')
    .replace(/ in types$/, ' in --cast');
  return message === error.message ? error : new WarpjoinError(error.code, message, { cause: error });
}

/** The types that --cast gives to columns. */
export const castsOf = (options: Options): Map<string, CastType> => {
  const text = options.text('cast');
  return text === undefined ? new Map() : parseCasts(text);
};

/** What the reader of a text file makes of a column that will be cast. */
function readAs(type: CastType): TextType {
  if (type === 'int32') return 'int64';
  if (type === 'float32') return 'float64';
  return TEXT_TYPES.find((known) => known === type) ?? 'utf8';
}

async function canBeOutlined(path: string, given: Format | undefined): Promise<boolean> {
  const format = given ?? namedFormat(path);
  if (format === 'csv' || format === 'tsv') return (await statInput(path)).isFile();
  if (format !== 'arrow' && format !== 'parquet') return false;
  return !compressionOf(path).compression && (await statInput(path)).isFile();
}
