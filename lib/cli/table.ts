/** A table's first rows as text: aligned, or as Markdown. */
import type { Data, Table } from 'apache-arrow';
import { type ForeignType, typeName } from '../columns/types.js';
import { shownText } from '../io/text.js';
import { escaped, padded, truncated, widthOf } from './width.js';

/** Columns of a cell on a terminal. */
const widestCell = 40;

interface TextColumn {
  name: string;
  type: string;
  /** Numbers stand to the right. */
  right: boolean;
  cells: string[];
}

/** The first rows of each column as text; `most` is how wide a cell may be. */
function textColumns(table: Table, rows: number, most: number): TextColumn[] {
  const shown = Math.min(rows, table.numRows);
  const cell = (text: string) => truncated(escaped(text), most);
  return table.schema.fields.map(({ name, type }, c) => {
    const cells: string[] = [];
    for (const batch of table.batches) {
      if (cells.length >= shown) break;
      const text = shownText(batch.data.children[c] as Data);
      for (let row = 0; row < batch.numRows && cells.length < shown; row++) cells.push(cell(text(row) ?? 'null'));
    }
    const right = /^(Int|Uint|Float|Decimal)/.test(String(type));
    return { name: cell(name), type: cell(typeName(type as unknown as ForeignType)), right, cells };
  });
}

/** Lines of cells in columns, which are two spaces apart. */
export function alignColumns(columns: readonly { cells: readonly string[]; right: boolean }[]): string[] {
  const wide = columns.map(({ cells, right }) => {
    const width = Math.max(0, ...cells.map(widthOf));
    return cells.map((cell) => padded(cell, width, right));
  });
  return (wide[0] ?? []).map((_, line) =>
    wide
      .map((cells) => cells[line])
      .join('  ')
      .trimEnd(),
  );
}

/**
 * Header, types and the first `rows` rows. With `width`, the columns of a terminal, long cells are cut, and columns that don't fit are left
 * out, and counted.
 */
export function renderTable(table: Table, rows: number, width = Number.POSITIVE_INFINITY): string {
  const columns = textColumns(table, rows, Number.isFinite(width) ? Math.min(widestCell, width) : width).map(
    ({ name, type, right, cells }) => {
      const columnWidth = [name, type, ...cells].reduce((most, cell) => Math.max(most, widthOf(cell)), 0);
      return { right, cells: [name, type, '─'.repeat(columnWidth), ...cells], width: columnWidth };
    },
  );
  let total = 0;
  let fitting = 0;
  for (const column of columns) {
    total += column.width + (fitting > 0 ? 2 : 0);
    if (fitting > 0 && total > width) break;
    fitting++;
  }
  const lines = alignColumns(columns.slice(0, fitting));
  const left = columns.length - fitting;
  if (left > 0) lines.push(`(${left} more column${left === 1 ? '' : 's'})`);
  return lines.join('\n');
}

/** The first `rows` rows as a table of GitHub's Markdown. */
export function renderMarkdown(table: Table, rows: number): string {
  const cell = (text: string) => text.replace(/[\\|]/g, '\\$&');
  const columns = textColumns(table, rows, Number.POSITIVE_INFINITY).map(({ name, right, cells }) => {
    const all = [name, ...cells].map(cell);
    const width = all.reduce((most, text) => Math.max(most, widthOf(text)), 3);
    const rule = right ? `${'-'.repeat(width - 1)}:` : '-'.repeat(width);
    return [all[0]!, rule, ...all.slice(1)].map((text) => padded(text, width, right));
  });
  const lines = (columns[0] ?? []).map((_, line) => `| ${columns.map((cells) => cells[line]).join(' | ')} |`);
  return lines.join('\n');
}

export const withSeparators = (n: number): string => n.toLocaleString('en-US');

/** `1 row`, `1,234 rows`. */
export const rowsOf = (n: number): string => `${withSeparators(n)} row${n === 1 ? '' : 's'}`;
