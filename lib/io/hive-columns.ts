/** Columns that the names of folders give to the files there. */
import { type Data, DataType, Dictionary, Field, Int32, Schema, Table, Utf8, type Vector, vectorFromArray } from 'apache-arrow';
import Papa from 'papaparse';
import { batchOver, dataOver, ownLibrary } from '../columns/library.js';
import { WarpjoinError } from '../errors.js';
import { readCsv } from './csv.js';
import { fileError } from './file-errors.js';
import { hiveValues } from './hive-names.js';
import type { ReadSettings, TextType } from './options.js';
import type { ByteSource } from './source.js';

type HiveSettings = Pick<ReadSettings, 'types' | 'hivePartitioning'>;

/** A column whose value is the same in all rows of a file. */
interface HiveColumn {
  readonly type: DataType;
  /** What the values array has for a text: an index, where there is a dictionary. undefined: null. */
  readonly elements: ReadonlyMap<string, unknown>;
  readonly dictionary?: Vector;
}

/** The columns that the folders of files give, of one type each in all of them. */
export class HiveColumns {
  private constructor(
    private readonly values: ReadonlyMap<string, Map<string, string | null>>,
    private readonly columns: ReadonlyMap<string, HiveColumn>,
  ) {}

  /**
   * The columns of these files' folders: their types are those of `types`, or what a CSV file of their values has. Throws ERR_FILE for
   * values of another type than that of `types`.
   */
  static async of(paths: readonly string[], { types, hivePartitioning }: HiveSettings): Promise<HiveColumns> {
    const values = new Map(hivePartitioning ? paths.map((path) => [path, hiveValues(path)]) : []);
    const texts = new Map<string, Set<string>>();
    for (const of of values.values()) {
      for (const [name, text] of of) {
        const known = texts.get(name) ?? new Set();
        texts.set(name, text === null ? known : known.add(text));
      }
    }
    const columns = new Map<string, HiveColumn>();
    for (const [name, all] of texts)
      columns.set(name, await columnOf(name, [...all], Object.hasOwn(types, name) ? types[name] : undefined));
    return new HiveColumns(values, columns);
  }

  /** The columns that a file's folders give, outermost first. */
  namesOf(path: string): string[] {
    return [...(this.values.get(path)?.keys() ?? [])];
  }

  /** A schema and, behind its columns, those of a file's folders that it lacks. */
  besideSchema(path: string, schema: Schema): Schema {
    const lacking = this.#lacking(path, schema);
    if (lacking.length === 0) return schema;
    const fields = lacking.map((name) => new Field(name, this.columns.get(name)!.type, true));
    return new Schema([...schema.fields, ...fields], schema.metadata);
  }

  /** A file's rows and, behind its columns, those of its folders that it lacks. */
  beside(path: string, table: Table): Table {
    const lacking = this.#lacking(path, table.schema);
    if (lacking.length === 0) return table;
    const schema = this.besideSchema(path, table.schema);
    const added = (rows: number) => lacking.map((name) => this.#data(path, name, rows));
    return new Table(
      schema,
      table.batches.map(({ numRows, data }) => batchOver(schema, numRows, [...data.children, ...added(numRows)])),
    );
  }

  #lacking(path: string, { names }: Schema): string[] {
    return this.namesOf(path).filter((name) => !names.includes(name));
  }

  #data(path: string, name: string, length: number): Data {
    const { type, elements, dictionary } = this.columns.get(name)!;
    const text = this.values.get(path)!.get(name)!;
    const bits = (ones: boolean) => new Uint8Array(Math.ceil(length / 8)).fill(ones ? 255 : 0);
    const element = text === null ? undefined : elements.get(text);
    const Values = (dictionary ? (type as Dictionary).indices : type).ArrayType as BigInt64ArrayConstructor;
    const values = DataType.isBool(type) ? bits(element === true) : new Values(length);
    if (element !== undefined && !DataType.isBool(type)) (values as BigInt64Array).fill(element as bigint);
    const isNull = element === undefined;
    const buffers = [undefined, values, isNull ? bits(false) : new Uint8Array(0)];
    return dataOver(ownLibrary, type, { length, nullCount: isNull ? length : 0, buffers, dictionary });
  }
}

/** A column of these texts: of a dictionary, where it is of text. */
async function columnOf(name: string, texts: readonly string[], given: TextType | undefined): Promise<HiveColumn> {
  const table = await readCsv(csvOf(name, texts), { delimiter: ',', types: given ? { [name]: given } : {} }).catch((error) => {
    if (!(error instanceof WarpjoinError)) throw error;
    throw fileError('names of folders', error.message.replace(/^[^:]*:\d+: /, ''), error); // no line of a file
  });
  const vector = table.getChildAt(0)!;
  const type = vector.type as DataType;
  const isText = DataType.isUtf8(type) || (!given && texts.includes('')); // which is null in CSV
  if (!isText) {
    const element = (row: number) => (DataType.isBool(type) ? vector.get(row) : vector.data[0]!.values[row]);
    const known = texts.map((text, row) => [text, vector.isValid(row) ? element(row) : undefined] as const);
    return { type, elements: new Map(known) };
  }
  return {
    type: new Dictionary(new Utf8(), new Int32()),
    elements: new Map(texts.map((text, index) => [text, index])),
    dictionary: vectorFromArray(texts, new Utf8()),
  };
}

const csvOf = (name: string, texts: readonly string[]): ByteSource => ({
  name: 'names of folders',
  progress: () => undefined,
  async *bytes() {
    yield Buffer.from(Papa.unparse([[name], ...texts.map((text) => [text])]));
  },
});
