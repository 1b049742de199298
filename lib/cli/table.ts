/** A table's first rows as aligned text. */
import type { Data, Table } from 'apache-arrow';
import { type ForeignType, typeName } from '../columns/types.js';
import { shownText } from '../io/text.js';

const widestCell = 40;

/** One line, no control characters, at most widestCell characters. */
function cellText(text: string): string {
  const line = text.replace(/\p{Cc}/gu, (c) => (c === '\n' ? '↵' : '·'));
  const characters = [...line];
  return characters.length > widestCell ? `${characters.slice(0, widestCell - 1).join('')}…` : line;
}

const lengthOf = (text: string) => [...text].length;

const isNumber = (type: string) => /^(Int|Uint|Float|Decimal)/.test(type);

/** Header, types and the first `rows` rows. Columns that don't fit into `width` characters are left out, and counted. */
export function renderTable(table: Table, rows: number, width = Number.POSITIVE_INFINITY): string {
  const shown = Math.min(rows, table.numRows);
  const columns = table.schema.fields.map(({ name, type }, c) => {
    const cells: string[] = [];
    for (const batch of table.batches) {
      if (cells.length >= shown) break;
      const data = batch.data.children[c] as Data;
      const text = shownText(data);
      for (let row = 0; row < batch.numRows && cells.length < shown; row++) {
        cells.push(cellText(text(row) ?? 'null'));
      }
    }
    const all = [cellText(name), cellText(typeName(type as unknown as ForeignType)), ...cells];
    const columnWidth = Math.max(...all.map(lengthOf));
    const pad = (text: string) => {
      const space = ' '.repeat(columnWidth - lengthOf(text));
      return isNumber(String(type)) ? space + text : text + space;
    };
    return { width: columnWidth, lines: [all[0]!, all[1]!, '─'.repeat(columnWidth), ...cells].map(pad) };
  });

  let total = 0;
  let fitting = 0;
  for (const column of columns) {
    total += column.width + (fitting > 0 ? 2 : 0);
    if (fitting > 0 && total > width) break;
    fitting++;
  }
  const lines = Array.from({ length: shown + 3 }, (_, line) =>
    columns
      .slice(0, fitting)
      .map(({ lines }) => lines[line])
      .join('  ')
      .trimEnd(),
  );
  if (fitting < columns.length) lines.push(`(${columns.length - fitting} more columns)`);
  return lines.join('\n');
}

export const withSeparators = (n: number): string => n.toLocaleString('en-US');
