import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Table } from 'apache-arrow';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { type CsvOptions, type CsvSizes, readCsv, scanCsv } from '../../lib/io/csv.js';
import type { ByteSource } from '../../lib/io/source.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-csv-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const file = (name: string, text: string | Uint8Array) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

/** Bytes that can be read once, in parts of such a size. */
function once(text: string | Uint8Array, partBytes: number, name = 'standard input'): ByteSource {
  const bytes = Buffer.from(text as string);
  let at = 0;
  return {
    name,
    progress: () => undefined,
    async *bytes() {
      while (at < bytes.length) {
        at += partBytes;
        yield bytes.subarray(at - partBytes, at);
      }
    },
  };
}

type Row = (string | null)[];
const typesOf = (table: Table) => table.schema.fields.map(({ type }) => String(type));

/** Rows as texts: numbers, booleans and texts alone. */
const rowsOf = (table: Table): Row[] =>
  table.toArray().map((row) => table.schema.fields.map(({ name }) => (row[name] === null ? null : String(row[name]))));

/** The naive reader: one character at a time. Null where the quoting is wrong. */
function records(text: string, delimiter: string): string[][] | null {
  const found: string[][] = [];
  let fields: string[] = [];
  let field = '';
  for (let i = text.startsWith('\ufeff') ? 1 : 0; i < text.length; ) {
    if (text[i] === '"' && field === '') {
      for (i++; text[i] !== '"' || text[i + 1] === '"'; i++) {
        if (i >= text.length) return null;
        field += text[i];
        if (text[i] === '"') i++;
      }
      for (i++; text[i] === ' '; ) i++;
      const ends = [delimiter, '\n', undefined].includes(text[i]) || text.startsWith('\r\n', i);
      if (!ends) return null;
    } else {
      while (i < text.length && text[i] !== delimiter && text[i] !== '\n') field += text[i++];
      if (text[i] === '\n' && field.endsWith('\r')) field = field.slice(0, -1);
    }
    if (text.startsWith('\r\n', i)) i++;
    fields.push(field);
    field = '';
    if (text[i] === delimiter) {
      i++;
      if (i < text.length) continue;
      fields.push('');
    } else i++;
    found.push(fields);
    fields = [];
  }
  return found;
}

const isInteger = (text: string) => /^[+-]?(0|[1-9]\d{0,17})$/.test(text) && text !== '-0';
const isFloat = (text: string) => isInteger(text) || (/^[+-]?(0|[1-9]\d*)\.\d*$/.test(text) && /\d/.test(text));

/** What a column of these texts holds, and its values as texts. */
function column(texts: string[]): [string, Row] {
  const values = texts.filter((text) => text !== '');
  const as = (type: string, value: (text: string) => string): [string, Row] => [
    type,
    texts.map((text) => (text === '' ? null : value(text))),
  ];
  if (values.length === 0) return as('Utf8', String);
  if (values.every((text) => /^(true|false)$/.test(text))) return as('Bool', String);
  if (values.every(isInteger)) return as('Int64', (text) => String(BigInt(text.replace('+', ''))));
  if (values.every(isFloat)) return as('Float64', (text) => String(Number(text)));
  return as('Utf8', String);
}

const pieces = ['a', '"', '""', ',', '\n', '\r\n', 'é', '€', '😀', ' ', 'text', '7'];
const anyText = fc.array(fc.constantFrom(...pieces), { maxLength: 6 }).map((parts) => parts.join(''));
const integer = fc.oneof(fc.integer(), fc.bigInt({ min: -(10n ** 17n), max: 10n ** 17n })).map(String);
const float = fc.tuple(fc.integer({ min: -9999, max: 9999 }), fc.nat(999)).map(([whole, part]) => `${whole}.${part}`);
const rare = (usual: fc.Arbitrary<string>, other: fc.Arbitrary<string>) =>
  fc.oneof({ weight: 30, arbitrary: usual }, { weight: 1, arbitrary: other });
const kinds = [integer, rare(integer, float), fc.constantFrom('true', 'false'), rare(integer, anyText), anyText, fc.constant('')];

const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;
const cell = fc
  .constantFrom(...kinds)
  .map((kind) => fc.oneof({ weight: 6, arbitrary: kind }, { weight: 1, arbitrary: fc.constant('') }));
/** The text of a file, quoted where it has to be and elsewhere now and then; its quotes may be wrong, its rows are as long as each other. */
const fileText = fc
  .tuple(fc.array(cell, { minLength: 1, maxLength: 4 }), fc.constantFrom('\n', '\r\n'), fc.boolean())
  .chain(([columns, lineEnd, ends]) => {
    const field = (value: fc.Arbitrary<string>) =>
      fc.tuple(value, fc.nat(5)).map(([text, style]) => (/["\n\r,]/.test(text) || style === 0 ? quoted(text) : text));
    const row = fc.tuple(...columns.map(field)).map((fields) => fields.join(','));
    const header = columns.map((_, c) => `c${c}`).join(',');
    return fc.array(row, { maxLength: 40 }).map((rows) => [header, ...rows].join(lineEnd) + (ends ? lineEnd : ''));
  });
/** Any pieces: mostly not a table. */
const anyFile = fc.array(fc.constantFrom(...pieces, ',', '\n'), { maxLength: 30 }).map((parts) => parts.join(''));

describe('the native reader and a naive one', () => {
  const runs = { numRuns: 80 * Number(process.env.WARPJOIN_RUNS ?? 1) };
  const sizes = fc.record({ blockBytes: fc.integer({ min: 1, max: 90 }), partBytes: fc.integer({ min: 1, max: 40 }) });

  it('agree on tables, in blocks of any size', async () => {
    await fc.assert(
      fc.asyncProperty(fileText, sizes, async (text, { blockBytes, partBytes }) => {
        const [header, ...rest] = records(text, ',')!;
        const rows = rest.filter((row) => header!.length === 1 || row.length > 1 || row[0] !== '');
        const columns = header!.map((_, c) => column(rows.map((row) => row[c]!)));
        for (const options of [{ blockBytes, partBytes, threads: 2 }, {}]) {
          const table = await readCsv(once(text, blockBytes), {}, undefined, undefined, options);
          expect(table.schema.fields.map(({ name }) => name)).toEqual(header);
          expect(typesOf(table)).toEqual(columns.map(([type]) => type));
          expect(rowsOf(table)).toEqual(rows.map((_, row) => columns.map(([, values]) => values[row])));
        }
      }),
      runs,
    );
  });

  it('agree on whether a text is a table', async () => {
    await fc.assert(
      fc.asyncProperty(anyFile, sizes, async (text, small) => {
        const found = records(text, ',')?.filter((row) => row.length > 1 || row[0] !== '');
        const names = found?.[0]?.map((name, c) => name || `column${c + 1}`) ?? [];
        const isTable =
          names.length > 0 && new Set(names).size === names.length && found!.every((row) => row.length === names.length);
        const outcome = await readCsv(once(text, 1000), {}, undefined, undefined, { ...small, threads: 2 }).catch(
          (error) => error,
        );
        expect(outcome instanceof Table, `${JSON.stringify(text)}: ${outcome}`).toBe(isTable);
        if (!isTable) expect(outcome).toMatchObject({ code: 'ERR_FILE' });
      }),
      runs,
    );
  });
});

describe('readCsv', () => {
  const small: CsvSizes = { blockBytes: 64, partBytes: 16, threads: 2 };
  const read = (text: string | Uint8Array, options: CsvOptions = {}) =>
    readCsv(once(text, 50), options, undefined, undefined, small);
  const numbers = (rows: number) => Array.from({ length: rows }, (_, i) => `${i},${i}\n`).join('');

  it('reads again what turns out to be text: a file from its beginning, a pipe from memory', async () => {
    const text = `a,b\n${numbers(200)}x,0.5\n`;
    for (const source of [once(text, 30), file('late.csv', text)]) {
      const table = await readCsv(source, {}, undefined, undefined, small);
      expect(typesOf(table)).toEqual(['Utf8', 'Float64']);
      expect([table.numRows, table.get(7)!.toArray()]).toEqual([201, ['7', 7]]);
    }
    const path = join(folder, 'pipe.csv');
    execFileSync('mkfifo', [path]);
    const [table] = await Promise.all([
      readCsv(path, {}, undefined, undefined, small),
      import('node:fs/promises').then(({ writeFile }) => writeFile(path, text)),
    ]);
    expect(typesOf(table)).toEqual(['Utf8', 'Float64']);
  });

  it('refuses what the memory does not hold, while it is read and once its types are known', async () => {
    const text = `a,b\n${numbers(20_000)}`;
    for (const memoryBytes of [0, 10_000, 100_000, 400_000]) {
      await expect(readCsv(file('large.csv', text), {}, undefined, undefined, { ...small, memoryBytes })).rejects.toMatchObject({
        code: 'ERR_MEMORY_LIMIT',
        message: /large\.csv.*memory/,
      });
    }
    expect((await readCsv(file('large.csv', text), {}, undefined, undefined, { memoryBytes: 2 ** 26 })).numRows).toBe(20_000);
  });

  it('takes the types that are given, and refuses other values by line', async () => {
    const types = { a: 'utf8', c: 'float64' } as const;
    const table = await read('a,b,c\n007,007,1\n8,8,2\n', { types });
    expect(typesOf(table)).toEqual(['Utf8', 'Utf8', 'Float64']);
    expect(typesOf(await read('a\n2024-01-01 10:00+02:00\n', { types: { a: 'timestamptz' } }))).toEqual([
      'Timestamp<MICROSECOND, UTC>',
    ]);
    await expect(read('a,b,c\n1,2,3\n"x\ny",1,nothing\n', { types })).rejects.toMatchObject({
      code: 'ERR_FILE',
      message: 'standard input:3: "nothing" in column "c" is not of type float64',
    });
    await expect(read('a\n1\n', { types: { b: 'bool' } })).rejects.toMatchObject({ code: 'ERR_OPTION', message: /"b"/ });
    await expect(read('a\n1\n', { types: { a: 'int' as never } })).rejects.toMatchObject({
      code: 'ERR_OPTION',
      message: /int64/,
    });
  });

  it('reads no more than maxRows, and infers types of these alone', async () => {
    const source = once(`a,b\n${numbers(5000)}x,y,z\n`, 500);
    const table = await readCsv(source, { maxRows: 7 }, undefined, undefined, small);
    expect([table.numRows, ...typesOf(table)]).toEqual([7, 'Int64', 'Int64']);
    const rest: Uint8Array[] = [];
    for await (const bytes of source.bytes()) rest.push(bytes);
    expect(Buffer.concat(rest).length).toBeGreaterThan(40_000);
    expect((await read('a\n1\n', { maxRows: 0 })).numRows).toBe(0);
    expect((await read('a\n1\n', { maxRows: 9 })).numRows).toBe(1);
    await expect(read('a\n1\n', { maxRows: -1 })).rejects.toMatchObject({ code: 'ERR_OPTION', message: /maxRows/ });
  });

  it('says how much was read', async () => {
    const path = file('progress.csv', `a,b\n${numbers(1000)}`);
    const seen: (number | undefined)[] = [];
    await readCsv(path, {}, undefined, (fraction) => seen.push(fraction), small);
    expect(seen.length).toBeGreaterThan(50);
    expect(seen).toEqual([...seen].sort((a, b) => a! - b!));
    expect([seen[0]! < 0.1, seen.at(-1)]).toEqual([true, 1]);
    const unknown: unknown[] = [];
    await readCsv(once('a\n1\n', 2), {}, undefined, (fraction) => unknown.push(fraction));
    expect(new Set(unknown)).toEqual(new Set([undefined]));
  });

  it('reads lines that end with CR, and tabs by the name of the source', async () => {
    expect(rowsOf(await read('a,b\r1,"x\ry"\r\r2,z\r'))).toEqual([
      ['1', 'x\ry'],
      ['2', 'z'],
    ]);
    for (const name of ['x.tsv', 'x.tsv.gz', 'x.TSV.zst']) {
      expect((await readCsv(once('a\tb\n1\t2\n', 3, name))).numCols).toBe(2);
    }
    expect((await readCsv(once('a\tb\n', 3, 'x.tsv'), { delimiter: ',' })).numCols).toBe(1);
    for (const delimiter of ['', '"', '\n', '€', ',,']) {
      await expect(read('a\n', { delimiter })).rejects.toMatchObject({ code: 'ERR_OPTION', message: /delimiter/ });
    }
  });

  it('stops when it is aborted, also while the source says nothing', async () => {
    const reason = new Error('enough');
    for (const after of [0, 3]) {
      const abort = new AbortController();
      const silent: ByteSource = {
        name: 'silent',
        progress: () => undefined,
        async *bytes() {
          yield Buffer.from(`a,b\n${numbers(50)}`);
          setTimeout(() => abort.abort(reason), after);
          await new Promise(() => {});
        },
      };
      await expect(readCsv(silent, {}, abort.signal, undefined, small)).rejects.toBe(reason);
    }
    const path = file('large.csv', `a,b\n${numbers(300_000)}`);
    const abort = new AbortController();
    const reading = readCsv(path, {}, abort.signal, () => abort.abort(reason), small);
    await expect(reading).rejects.toBe(reason);
  });

  it('passes on what the source throws', async () => {
    const broken: ByteSource = {
      name: 'broken.csv.gz',
      progress: () => undefined,
      async *bytes() {
        yield Buffer.from('a\n1\n');
        throw new Error('incorrect header check');
      },
    };
    await expect(readCsv(broken)).rejects.toMatchObject({
      code: 'ERR_FILE',
      message: /^broken\.csv\.gz: .*incorrect header check/,
    });
    await expect(readCsv(folder)).rejects.toMatchObject({ code: 'ERR_FILE', message: `${folder}: is a directory` });
  });
});

describe('scanCsv', () => {
  const small: CsvSizes = { blockBytes: 1 << 16, threads: 2 };
  const lines = (rows: number) => Array.from({ length: rows }, (_, i) => `${i},name ${i},\n`).join('');

  it('gives the rows of readCsv in several batches', async () => {
    const path = file('scan.csv', `a,b,c\n${lines(200_000)}`);
    const batches = [];
    for await (const batch of scanCsv(path, {}, undefined, small)) batches.push(batch);
    expect(batches.length).toBeGreaterThan(1);
    const table = new Table(batches);
    expect(typesOf(table)).toEqual(['Int64', 'Utf8', 'Utf8']);
    expect([table.numRows, table.getChild('a')!.get(199_999), table.getChild('b')!.get(150_000)]).toEqual([
      200_000,
      199_999n,
      'name 150000',
    ]);
  });

  it('gives one batch without rows where the file has none', async () => {
    const batches = [];
    for await (const batch of scanCsv(once('a,b\n', 2))) batches.push(batch);
    expect(batches.map(({ numRows, schema }) => [numRows, schema.fields.length])).toEqual([[0, 2]]);
  });

  it('names the value that the first rows did not announce, and the option that would do', async () => {
    const text = `a,b,c\n${lines(20_000)}x,y,z\n`;
    const scan = async (options: CsvOptions) => {
      let rows = 0;
      for await (const batch of scanCsv(once(text, 5000), options, undefined, small)) rows += batch.numRows;
      return rows;
    };
    await expect(scan({})).rejects.toMatchObject({
      code: 'ERR_FILE',
      message: /^standard input:20002: "x" in column "a" is not of type int64, as the first values are: give .* in types$/,
    });
    expect(await scan({ types: { a: 'utf8' } })).toBe(20_001);
    expect(await scan({ maxRows: 20_000 })).toBe(20_000);
  });

  it('ends early, and when it is aborted', async () => {
    for await (const batch of scanCsv(once(`a,b,c\n${lines(90_000)}`, 5000), {}, undefined, small)) {
      expect(batch.numRows).toBeGreaterThan(0);
      break;
    }
    const abort = new AbortController();
    const reason = new Error('enough');
    const scanning = scanCsv(once(`a,b,c\n${lines(90_000)}`, 5000), {}, abort.signal, small);
    await scanning.next();
    abort.abort(reason);
    await expect(scanning.next().then(() => scanning.next())).rejects.toBe(reason);
  });
});
