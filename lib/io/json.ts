/** NDJSON (an object a line) and JSON (an array of objects). */
import { type RecordBatch, Table } from 'apache-arrow';
import { WarpjoinError } from '../errors.js';
import { eachIn, itemsIn } from '../items.js';
import { quote } from '../suggest.js';
import type { Batches } from './batches.js';
import { type ColumnCasts, castColumns } from './cast.js';
import { asFileError, fileError } from './file-errors.js';
import { type Output, writeWhole } from './files.js';
import { fromRows, toRows } from './plain.js';
import type { ByteSource } from './source.js';
import { shortestFloat32 } from './text.js';

export interface JsonOptions {
  /** Stops after so many rows. */
  maxRows?: number | undefined;
  /** Types of columns, by name, in place of those that their values have. */
  types?: ColumnCasts | undefined;
  onProgress?: ((fraction: number | undefined) => void) | undefined;
}

type Row = Record<string, unknown>;

const rowsPerWrite = 1 << 12;

const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Stands before the digits of a whole number that a double does not hold. */
const wideMark = '\ud800wide:';

/** JSON.parse, with bigints for whole numbers that are not exact as numbers. */
function parseJson(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let wide = false;
  const marked = text.replace(tokens, (token) => {
    if (token[0] === '"' || /[.eE]/.test(token) || Number.isSafeInteger(Number(token))) return token;
    wide = true;
    return `"\\ud800wide:${token}"`;
  });
  if (!wide) return JSON.parse(text);
  return JSON.parse(marked, (_, value) =>
    typeof value === 'string' && value.startsWith(wideMark) ? BigInt(value.slice(wideMark.length)) : value,
  );
}

const isRow = (value: unknown): value is Row => typeof value === 'object' && value !== null && !Array.isArray(value);

const whatParserSaid = (error: unknown) => String((error as Error).message).split('\n', 1)[0];

async function* textOf(source: ByteSource, signal?: AbortSignal): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  try {
    for await (const bytes of source.bytes()) {
      signal?.throwIfAborted();
      yield decoder.decode(bytes, { stream: true });
    }
    yield decoder.decode();
  } catch (error) {
    if ((error as NodeJS.ErrnoException)?.code === 'ERR_ENCODING_INVALID_ENCODED_DATA') {
      throw fileError(source.name, 'not UTF-8 text', error);
    }
    throw error;
  }
}

/** The rows of each piece of text that was read. */
async function* rowsOf(source: ByteSource, signal?: AbortSignal): AsyncGenerator<Row[]> {
  let line = 0;
  let rest = '';
  const rowOf = (text: string): Row | undefined => {
    line++;
    if (!/\S/.test(text)) return undefined;
    try {
      const value = parseJson(text);
      if (isRow(value)) return value;
    } catch (error) {
      throw fileError(source.name, `not JSON: ${whatParserSaid(error)}`, error, line);
    }
    throw fileError(source.name, 'expected a JSON object in each line', undefined, line);
  };
  const rows = (lines: readonly string[]) => lines.map(rowOf).filter((row) => row !== undefined);
  for await (const text of textOf(source, signal)) {
    const lines = `${rest}${text}`.split('\n');
    rest = lines.pop()!;
    if (lines.length > 0) yield rows(lines);
  }
  yield rows([rest]);
}

/** Rows to a table. Columns with given types are made of the text of their values. */
function tableOfRows(name: string, rows: readonly Row[], types: ColumnCasts = {}): Table {
  const given = Object.keys(types);
  const plain =
    given.length === 0
      ? rows
      : rows.map((row) => ({ ...row, ...Object.fromEntries(given.map((key) => [key, textIn(row[key])])) }));
  try {
    const table = fromRows(plain);
    const unknown = given.find((key) => !rows.some((row) => Object.hasOwn(row, key)));
    if (unknown !== undefined && rows.length > 0)
      throw new WarpjoinError('ERR_OPTION', `${name}: types has ${quote(unknown)}, which is no column of the file`);
    return castColumns(table, types, name);
  } catch (error) {
    if (error instanceof WarpjoinError && error.code === 'ERR_INVALID_TABLE') throw fileError(name, error.message, error);
    throw error;
  }
}

const textIn = (value: unknown): string | null | undefined =>
  value === null || value === undefined || typeof value === 'string'
    ? value
    : typeof value === 'bigint'
      ? String(value)
      : JSON.stringify(value);

/**
 * Reads NDJSON. Column types are those that fromRows() finds in all rows; whole numbers beyond 2^53 are exact. Throws ERR_FILE with the
 * file and line.
 */
export async function readNdjson(source: ByteSource, options: JsonOptions = {}, signal?: AbortSignal): Promise<Table> {
  const { maxRows = Number.POSITIVE_INFINITY, onProgress, types } = options;
  const all: Row[] = [];
  try {
    for await (const rows of rowsOf(source, signal)) {
      for (const row of rows) if (all.length < maxRows) all.push(row);
      onProgress?.(source.progress());
      if (all.length >= maxRows) break;
    }
  } catch (error) {
    throw asFileError(source.name, 'NDJSON', error, signal);
  }
  return tableOfRows(source.name, all, types);
}

/** Counts the objects of NDJSON. Throws ERR_FILE like readNdjson(). */
export async function countNdjson(
  source: ByteSource,
  signal?: AbortSignal,
  onProgress?: (fraction: number | undefined) => void,
): Promise<number> {
  let count = 0;
  for await (const rows of rowsOf(source, signal)) {
    count += rows.length;
    onProgress?.(source.progress());
  }
  return count;
}

/** Batches of NDJSON, of `batchRows` rows. Types are those of the first batch, or given ones; a later misfit is ERR_FILE. */
export async function* scanNdjson(
  source: ByteSource,
  options: JsonOptions & { batchRows: number },
  signal?: AbortSignal,
): AsyncGenerator<RecordBatch> {
  const { batchRows, maxRows = Number.POSITIVE_INFINITY, types = {} } = options;
  let held: Row[] = [];
  let schema: Table['schema'] | undefined;
  let given = 0;
  const batchOf = (rows: readonly Row[]): RecordBatch[] => {
    const table = schema ? tableLike(source.name, rows, schema, types, given) : tableOfRows(source.name, rows, types);
    schema ??= table.schema;
    given += rows.length;
    return table.batches;
  };
  try {
    for await (const rows of rowsOf(source, signal)) {
      held = held.concat(rows.slice(0, maxRows - given - held.length));
      while (held.length >= batchRows) yield* batchOf(held.splice(0, batchRows));
      if (given + held.length >= maxRows) break;
    }
  } catch (error) {
    throw asFileError(source.name, 'NDJSON', error, signal);
  }
  if (held.length > 0 || !schema) yield* batchOf(held);
}

/** Rows as a table of the types of those before them. */
function tableLike(name: string, rows: readonly Row[], schema: Table['schema'], types: ColumnCasts, before: number): Table {
  const known = new Set(schema.fields.map((field) => field.name));
  for (const [index, row] of rows.entries()) {
    const other = Object.keys(row).find((key) => !known.has(key));
    if (other === undefined) continue;
    throw fileError(name, `row ${before + index} has "${other}", which no row of the first batch has: read the file as a table`);
  }
  try {
    const inferred = schema.fields.filter((field) => !Object.hasOwn(types, field.name));
    const texts = Object.keys(types);
    const plain = rows.map((row) => ({ ...row, ...Object.fromEntries(texts.map((key) => [key, textIn(row[key])])) }));
    const table = fromRows(plain, { types: Object.fromEntries(inferred.map((field) => [field.name, field.type])) });
    return castColumns(table, types, name).select(schema.fields.map((field) => field.name)) as Table;
  } catch (error) {
    if (!(error instanceof WarpjoinError) || error.code !== 'ERR_INVALID_TABLE') throw error;
    const hint = 'The types are those of the first batch; say others with types.';
    throw fileError(name, `${error.message} (rows counted from ${before}) ${hint}`, error);
  }
}

/** Reads JSON: an array of objects. Types are as in readNdjson(). Throws ERR_FILE. */
export async function readJson(source: ByteSource, options: JsonOptions = {}, signal?: AbortSignal): Promise<Table> {
  const parts: string[] = [];
  let value: unknown;
  try {
    for await (const text of textOf(source, signal)) {
      parts.push(text);
      options.onProgress?.(source.progress());
    }
    const text = parts.join('');
    if (text.trim() === '') throw fileError(source.name, 'the file is empty');
    value = parseJson(text);
  } catch (error) {
    if (error instanceof SyntaxError) throw fileError(source.name, `not JSON: ${whatParserSaid(error)}. ${ndjsonHint}`, error);
    if (error instanceof RangeError) throw fileError(source.name, `too large for JSON in one piece. ${ndjsonHint}`, error);
    throw asFileError(source.name, 'JSON', error, signal);
  }
  const wrong = Array.isArray(value) ? value.findIndex((row) => !isRow(row)) : 0;
  if (!Array.isArray(value) || wrong >= 0) {
    const where = Array.isArray(value) ? `; element ${wrong} is none` : '';
    throw fileError(source.name, `expected a JSON array of objects${where}. ${ndjsonHint}`);
  }
  return tableOfRows(source.name, value.slice(0, options.maxRows), options.types);
}

const ndjsonHint = 'The format "ndjson" has an object in each line.';

/** Calls `write` with objects of rows, some thousands at a time. Floats of 32 bits are the shortest numbers that are read back as them. */
async function eachObjects({ schema, batches }: Batches, write: (rows: readonly Row[]) => Promise<void>): Promise<void> {
  const floats = schema.fields.filter(({ type }) => String(type) === 'Float32').map(({ name }) => name);
  await eachIn(itemsIn(batches), async (batch) => {
    const part = new Table([batch]);
    for (let offset = 0; offset < batch.numRows; offset += rowsPerWrite) {
      const rows = toRows(part, { offset, limit: rowsPerWrite });
      for (const name of floats) for (const row of rows) row[name] = shortestFloat32(row[name] as number | null);
      await write(rows);
    }
  });
}

/** Writes an object a line, as toRows() makes them. Throws ERR_FILE. */
export async function writeNdjson(source: Batches, output: Output): Promise<void> {
  const utf8 = new TextEncoder();
  await writeWhole(output, async (append) => {
    await eachObjects(source, (rows) => append(utf8.encode(rows.map((row) => `${JSON.stringify(row)}\n`).join(''))));
  });
}

/** Writes an array of objects, one a line, as toRows() makes them. Throws ERR_FILE. */
export async function writeJson(source: Batches, output: Output): Promise<void> {
  const utf8 = new TextEncoder();
  await writeWhole(output, async (append) => {
    let before = '[';
    await eachObjects(source, (rows) => {
      const lines = rows.map((row, index) => `${index === 0 ? before : ','}\n${JSON.stringify(row)}`);
      before = ',';
      return append(utf8.encode(lines.join('')));
    });
    await append(utf8.encode(before === '[' ? '[]\n' : '\n]\n'));
  });
}
