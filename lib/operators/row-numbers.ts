/** Rows with their numbers, so that what is made of them can be brought into their order. */
import * as arrow from 'apache-arrow';
import type { ForeignTable } from '../columns/input.js';
import { batchOver, libraryOf, rowsOfBatch, typeIn } from '../columns/library.js';
import { type ForeignType, typeInfo } from '../columns/types.js';
import { mapped } from '../items.js';
import type { BatchSource } from './batch-source.js';

/** The low 16 bits of row numbers are one column, the high 32 another one, so that no number is made for a row. */
const LOW = Uint16Array.from({ length: 1 << 16 }, (_, row) => row);
const TYPES = [new arrow.Uint32(), new arrow.Uint16()] as const;

/** The row numbers of a source, up to 2^48, in columns beside its own. */
export class RowNumbers {
  /** The columns, in whose order the rows come. */
  readonly columns: readonly [string, string];
  #rows = 0;

  /** `taken`: names that the columns can't have. */
  constructor(name: string, taken: ReadonlySet<string>) {
    const free = (of: string): string => (taken.has(of) ? free(`${of}'`) : of);
    this.columns = [free(`high bits of rows, ${name}`), free(`low bits of rows, ${name}`)];
  }

  /** The rows with their numbers, which count towards the memory limit. */
  beside(source: BatchSource): BatchSource {
    return { ...source, memory: 'stream', tables: mapped(source.tables, (table) => this.#with(table)) };
  }

  #with(table: arrow.Table): arrow.Table {
    const library = libraryOf(table as unknown as ForeignTable);
    const { Data, Field, Schema, Table } = library;
    const types = TYPES.map((type, index) => typeIn(library, typeInfo(type as ForeignType)!, this.columns[index]!));
    const fields = types.map((type, index) => new Field(this.columns[index]!, type, false));
    const schema = new Schema([...table.schema.fields, ...fields], table.schema.metadata);
    const made = [...this.#pieces(table)].map(({ piece, high, low }) => {
      const rows = piece.numRows;
      const numbers = [new Uint32Array(rows).fill(high), LOW.subarray(low, low + rows)];
      const columns = numbers.map((values, index) => new Data(types[index]!, 0, rows, 0, [undefined, values] as never));
      return batchOver(schema, rows, [...piece.data.children, ...columns], library);
    });
    return new Table(schema, made);
  }

  /** Record batches whose rows have the same high bits, and the low ones of the first row. */
  *#pieces({ batches }: arrow.Table): Generator<{ piece: arrow.RecordBatch; high: number; low: number }> {
    for (const batch of batches) {
      let given = 0;
      do {
        const low = this.#rows % LOW.length;
        const rows = Math.min(LOW.length - low, batch.numRows - given);
        const piece = rows === batch.numRows ? batch : rowsOfBatch(batch, given, given + rows);
        yield { piece, high: Math.floor(this.#rows / LOW.length), low };
        given += rows;
        this.#rows += rows;
      } while (given < batch.numRows);
    }
  }
}
