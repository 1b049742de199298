/** CSV and TSV through PapaParse: quoting is its business, types are ours (csv-types.ts). */
import { Readable } from 'node:stream';
import { type Data, Field, makeData, RecordBatch, Schema, Struct, Table } from 'apache-arrow';
import Papa from 'papaparse';
import { WarpjoinError } from '../errors.js';
import { type ColumnBuilder, type CsvType, columnBuilder, csvTypeOf, widerCsvType } from './csv-types.js';
import { asFileError, fileError, writeWhole } from './files.js';
import type { ByteSource } from './source.js';
import { openSource } from './sources.js';
import { textOf } from './text.js';

export interface CsvOptions {
  /** What separates fields: ',' in .csv and a tab in .tsv files where unset. */
  delimiter?: string;
  /** Whether the first row names the columns (as when unset). Otherwise they are column1, column2, ... */
  header?: boolean;
  /** Texts that mean null, beside the empty one. */
  nullValues?: string[];
  /** Types of columns, by name, in place of those that their values have. */
  types?: Record<string, CsvTypeName>;
  /** Stops after so many rows. */
  maxRows?: number;
}

export type CsvTypeName = 'bool' | 'int64' | 'float64' | 'date' | 'timestamp' | 'utf8';

class EnoughRows extends Error {}

const rowsPerBatch = 1 << 20; // keeps a text column's bytes below 2^31 for values up to 2 KB
const textBytesPerBatch = 1 << 29;
const rowsPerWrite = 1 << 14;

/** Every record of the file with its line (1-based, of its first character). */
async function forEachRecord(
  path: string,
  input: AsyncIterable<Uint8Array>,
  delimiter: string,
  signal: AbortSignal | undefined,
  visit: (fields: string[], line: number) => void,
): Promise<void> {
  const text = async function* () {
    const decoder = new TextDecoder('utf-8', { fatal: true }); // whole characters, whatever the read boundaries
    for await (const bytes of input) {
      signal?.throwIfAborted();
      const piece = decoder.decode(bytes, { stream: true });
      if (piece.includes('\0')) throw fileError(path, 'not a text file (it holds zero bytes)');
      if (piece) yield piece;
    }
    decoder.decode();
  };
  const stream = Readable.from(text(), { objectMode: true, highWaterMark: 1 });
  let line = 1;
  try {
    await new Promise<void>((resolve, reject) => {
      Papa.parse<string[]>(stream, {
        delimiter,
        chunk({ data, errors }) {
          const badRow = errors.find(({ type }) => type === 'Quotes');
          for (let i = 0; i < data.length; i++) {
            const record = data[i]!;
            if (badRow && badRow.row === i) {
              const what =
                badRow.code === 'MissingQuotes' ? 'a quoted field has no end' : 'a quoted field goes on after its closing quote';
              throw fileError(path, what, undefined, line);
            }
            visit(record, line);
            line++;
            for (const field of record) {
              for (let at = field.indexOf('\n'); at >= 0; at = field.indexOf('\n', at + 1)) line++;
            }
          }
          if (badRow) throw fileError(path, 'a quoted field is malformed', undefined, line);
        },
        complete: () => resolve(),
        error: reject,
      });
    });
  } catch (error) {
    if (error instanceof EnoughRows) return;
    if ((error as NodeJS.ErrnoException)?.code === 'ERR_ENCODING_INVALID_ENCODED_DATA') {
      throw fileError(path, `after line ${line}: not UTF-8 text`, error);
    }
    throw asFileError(path, 'CSV', error, signal);
  } finally {
    stream.destroy();
  }
}

class CsvReader {
  names: string[] | undefined;
  private rows = 0;
  private types: CsvType[];
  private builders: ColumnBuilder[] | undefined;
  private batchRows = 0;
  private batchBytes = 0;
  private batches: Data[][] = [];
  private readonly sample: string[][] = [];
  /** A value that the sample's types can't hold came up: the rest of the pass only finds the types. */
  private misfit = false;

  constructor(
    private readonly path: string,
    private readonly header: boolean,
    private readonly nullValues: Set<string>,
    private readonly given: Record<string, CsvTypeName>,
    private readonly maxRows: number,
    /** Types known to hold every value; without them the first rows decide, and later ones may object. */
    private readonly known?: CsvType[],
  ) {
    this.types = known ?? [];
  }

  visit(fields: string[], line: number): void {
    if (!this.names) {
      if (this.header && fields.length === 1 && fields[0] === '') return;
      this.setNames(fields);
      if (this.header) return;
    }
    const width = this.names!.length;
    if (fields.length !== width) {
      if (fields.length === 1 && fields[0] === '') return; // a blank line
      throw fileError(this.path, `expected ${width} fields, found ${fields.length}`, undefined, line);
    }
    if (++this.rows > this.maxRows) throw new EnoughRows();
    this.checkGiven(fields, line);
    if (this.builders) this.add(fields);
    else {
      this.sample.push(fields);
      if (this.sample.length === 4096) this.startBuilding();
    }
  }

  private setNames(fields: string[]): void {
    this.names = fields.map((name, i) => (this.header && name !== '' ? name : `column${i + 1}`));
    const twice = this.names.find((name, i) => this.names!.indexOf(name) !== i);
    if (twice !== undefined) throw fileError(this.path, `two columns are named "${twice}"`, undefined, 1);
    if (this.known) this.builders = this.known.map(columnBuilder);
    else this.types = this.names.map((name) => this.given[name] ?? 'empty');
    const unknown = Object.keys(this.given).find((name) => !this.names!.includes(name));
    if (unknown !== undefined)
      throw new WarpjoinError('ERR_OPTION', `${this.path}: types has "${unknown}", which is no column of the file`);
  }

  private checkGiven(fields: string[], line: number): void {
    for (const [name, type] of Object.entries(this.given)) {
      const text = fields[this.names!.indexOf(name)]!;
      if (this.isNull(text) || columnBuilder(type).add(text)) continue;
      throw fileError(this.path, `column "${name}": "${text}" is no ${type}`, undefined, line);
    }
  }

  private isNull(text: string): boolean {
    return text === '' || this.nullValues.has(text);
  }

  private widen(fields: string[]): void {
    fields.forEach((text, c) => {
      if (this.types[c] !== 'utf8' && !this.given[this.names![c]!] && !this.isNull(text))
        this.types[c] = widerCsvType(this.types[c]!, csvTypeOf(text));
    });
  }

  private startBuilding(): void {
    for (const fields of this.sample) this.widen(fields);
    this.builders = this.types.map(columnBuilder);
    for (const fields of this.sample) this.add(fields);
    this.sample.length = 0;
  }

  private add(fields: string[]): void {
    if (this.misfit) {
      this.widen(fields);
      return;
    }
    const builders = this.builders!;
    for (let c = 0; c < fields.length; c++) {
      const text = fields[c]!;
      // A column that had no value yet has a text builder, and a type to be found.
      const fits = this.isNull(text) ? builders[c]!.add(null) : this.types[c] !== 'empty' && builders[c]!.add(text);
      if (!fits) {
        this.misfit = true;
        this.batches = [];
        this.widen(fields);
        return;
      }
      this.batchBytes += text.length;
    }
    if (++this.batchRows === rowsPerBatch || this.batchBytes >= textBytesPerBatch) this.endBatch();
  }

  private endBatch(): void {
    this.batches.push(this.builders!.map((builder) => builder.finish()));
    this.builders = this.types.map(columnBuilder);
    this.batchRows = 0;
    this.batchBytes = 0;
  }

  /** The table, or the column types to read the file again with. */
  finish(): Table | CsvType[] {
    if (!this.names) throw fileError(this.path, 'the file is empty');
    if (!this.builders) this.startBuilding();
    if (this.misfit) return this.types;
    if (this.batchRows > 0 || this.batches.length === 0) this.endBatch();
    const schema = new Schema(this.names.map((name, c) => new Field(name, this.batches[0]![c]!.type, true)));
    const batches = this.batches.map(
      (children) =>
        new RecordBatch(
          schema,
          makeData({ type: new Struct(schema.fields), length: children[0]!.length, nullCount: 0, children }),
        ),
    );
    return new Table(schema, batches);
  }
}

/**
 * Reads a CSV file (UTF-8, RFC 4180 quoting). Column types are the narrowest that hold every value: bool, int64, float64,
 * date, timestamp (microseconds; UTC where values have an offset) or utf8. An empty field is null, quoted or not. In a
 * file of one column a blank line is a null; elsewhere it is skipped. Throws ERR_FILE with the file and line.
 */
export async function readCsv(
  source: ByteSource | string,
  options: CsvOptions = {},
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
): Promise<Table> {
  const input = typeof source === 'string' ? await openSource(source, signal) : source;
  const { name: path } = input;
  const delimiter = options.delimiter ?? (path.endsWith('.tsv') ? '\t' : ',');
  if (delimiter.length !== 1 || Papa.BAD_DELIMITERS.includes(delimiter)) {
    throw new WarpjoinError('ERR_OPTION', `Expected one character for delimiter but received ${JSON.stringify(delimiter)}`);
  }
  const nullValues = new Set(options.nullValues ?? []);
  const held: Uint8Array[] = []; // a source is read once, and there may be a second pass
  const bytes = async function* () {
    for await (const chunk of input.bytes()) {
      held.push(chunk);
      onProgress?.(input.progress());
      yield chunk;
    }
  };
  const pass = async (chunks: AsyncIterable<Uint8Array>, known?: CsvType[]) => {
    const most = options.maxRows ?? Number.POSITIVE_INFINITY;
    const reader = new CsvReader(path, options.header ?? true, nullValues, options.types ?? {}, most, known);
    await forEachRecord(path, chunks, delimiter, signal, (fields, line) => reader.visit(fields, line));
    return reader.finish();
  };
  const first = await pass(bytes());
  if (first instanceof Table) return first;
  const second = await pass(Readable.from(held), first);
  if (second instanceof Table) return second;
  throw fileError(path, 'changed while it was read');
}

export async function* scanCsv(
  source: ByteSource | string,
  options: CsvOptions = {},
  signal?: AbortSignal,
): AsyncGenerator<RecordBatch> {
  yield* (await readCsv(source, options, signal)).batches;
}

/** Writes a CSV file with a header. Nulls are empty fields, empty texts "". Throws ERR_FILE, or ERR_NOT_SUPPORTED for nested columns. */
export async function writeCsv(table: Table, path: string, options: CsvOptions = {}, signal?: AbortSignal): Promise<void> {
  const delimiter = options.delimiter ?? (path.endsWith('.tsv') ? '\t' : ',');
  const unparse = { delimiter, newline: '\n', quotes: (value: unknown) => value === '' };
  const utf8 = new TextEncoder();
  await writeWhole(path, signal, async (append) => {
    const line = (rows: (string | null)[][]) => append(utf8.encode(`${Papa.unparse(rows, unparse)}\n`));
    if (options.header ?? true) await line([table.schema.fields.map(({ name }) => name)]);
    for (const batch of table.batches) {
      const columns = batch.data.children.map((data, c) => {
        const text = textOf(data as Data);
        const { name, type } = table.schema.fields[c]!;
        if (!text) throw new WarpjoinError('ERR_NOT_SUPPORTED', `Column "${name}" of type ${type} can't be written as CSV`);
        return text;
      });
      for (let start = 0; start < batch.numRows; start += rowsPerWrite) {
        const rows: (string | null)[][] = [];
        for (let row = start; row < Math.min(start + rowsPerWrite, batch.numRows); row++)
          rows.push(columns.map((text) => text(row)));
        await line(rows);
      }
    }
  });
}
