/** The commands that look into files: head, schema and count. */
import type { Table } from 'apache-arrow';
import { type ForeignType, typeName } from '../columns/types.js';
import { countRows } from '../io/count.js';
import { expandInputs } from '../io/inputs.js';
import type { Outline } from '../io/outline.js';
import { checkNames, type KnownInput, namesOf } from './columns.js';
import { type Context, castsOf, Input, inOwnWords } from './inputs.js';
import { DEFAULT_ROWS, renamed, renamedColumns, targetOf, writeResult } from './output.js';
import { alignColumns, rowsOf, withSeparators } from './table.js';
import { escaped } from './width.js';

/** Shows or writes the first rows. */
export async function head(context: Context, operands: readonly string[]): Promise<void> {
  const { options, progress, signal } = context;
  const rows = options.count('limit') ?? DEFAULT_ROWS;
  const target = { ...targetOf(options), shownRows: rows };
  const input = new Input(operands, context);
  const check = ({ name, schema }: KnownInput) => {
    const names = namesOf(schema);
    checkNames('cast', castsOf(options).keys(), name, names);
    const select = options.names('select');
    if (select) checkNames('select', select, name, names);
    renamedColumns(select ?? names, options);
  };
  const outline = await input.outline();
  if (outline) check(outline);
  const select = options.names('select');
  // One more than is shown, to know whether there are more.
  const first = await input.table({ isSole: true, maxRows: rows + 1, ...(outline && select && { columns: select }) });
  if (!outline) check({ name: input.name, schema: first.schema });
  const selected = (select ? first.select(select) : first) as Table;
  progress.clear();
  const isOne = (await expandInputs(operands)).length === 1;
  const total = isOne && outline?.rows;
  const count = total ? { rows: total } : { rows: Math.min(rows, first.numRows), more: first.numRows > rows };
  await writeResult(renamed(selected.slice(0, rows), options), count, target, signal);
}

/** Shows the columns of files. */
export async function schema(context: Context, operands: readonly string[]): Promise<void> {
  const { options, progress } = context;
  const outlines: Outline[] = [];
  const input = new Input(operands, context);
  for (const path of await expandInputs(operands)) {
    progress.show(`reading ${path}`);
    outlines.push(await input.anyOutline(path));
  }
  progress.clear();
  if (options.text('format') === 'json') {
    console.log(JSON.stringify(outlines.map(plainOutline), undefined, 2));
    return;
  }
  console.log(outlines.map(describeOutline).join('\n\n'));
}

const columnsOf = ({ schema: { fields } }: Outline) =>
  fields.map(({ name, type, nullable }) => ({ name, type: typeName(type as unknown as ForeignType), nullable }));

const plainOutline = (outline: Outline) => ({
  file: outline.name,
  rows: outline.rows ?? null,
  sampledRows: outline.sampledRows ?? null,
  columns: columnsOf(outline),
});

function describeOutline(outline: Outline): string {
  const { name, rows, sampledRows } = outline;
  const columns = columnsOf(outline);
  const facts = [
    `${columns.length} column${columns.length === 1 ? '' : 's'}`,
    ...(rows === undefined ? [] : [rowsOf(rows)]),
    ...(sampledRows === undefined ? [] : [`types by the first ${withSeparators(sampledRows)} rows`]),
  ];
  const lines = alignColumns([
    { cells: columns.map((column) => escaped(column.name)), right: false },
    { cells: columns.map(({ type }) => escaped(type)), right: false },
    { cells: columns.map(({ nullable }) => (nullable ? '' : 'not null')), right: false },
  ]);
  return [`${name}: ${facts.join(', ')}`, ...lines.map((line) => `  ${line}`)].join('\n');
}

/** Counts the rows of files: the number alone for one file, else a line for each and one for all. */
export async function count(context: Context, operands: readonly string[]): Promise<void> {
  const { progress, signal } = context;
  const counts: { path: string; rows: number }[] = [];
  for (const path of await expandInputs(operands)) {
    const show = (fraction: number | undefined) => progress.show(`reading ${path}`, fraction);
    const rows = await countRows(path, new Input([path], context).settings, signal, show).catch((error) => {
      throw inOwnWords(error);
    });
    counts.push({ path, rows });
  }
  progress.clear();
  if (counts.length === 1) {
    console.log(String(counts[0]!.rows));
    return;
  }
  const all = [...counts, { path: 'total', rows: counts.reduce((sum, { rows }) => sum + rows, 0) }];
  console.log(
    alignColumns([
      { cells: all.map(({ rows }) => String(rows)), right: true },
      { cells: all.map(({ path }) => path), right: false },
    ]).join('\n'),
  );
}
