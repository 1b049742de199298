import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  Binary,
  Bool,
  DateDay,
  Decimal,
  Dictionary,
  Field,
  Float64,
  Int32,
  Int64,
  List,
  makeData,
  RecordBatch,
  Schema,
  Table,
  TimestampMicrosecond,
  TimestampNanosecond,
  tableFromIPC,
  tableToIPC,
  Utf8,
  Vector,
  vectorFromArray,
} from 'apache-arrow';
import { afterAll, describe, expect, it } from 'vitest';
import { WarpjoinError } from '../../lib/errors.js';
import { createEngine } from '../../lib/index.js';
import { namedFormat } from '../../lib/io/formats.js';
import { readTable, writeTable } from '../../lib/io/index.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-io-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);

const flights = fileURLToPath(new URL('../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url));

function write(name: string, text: string | Uint8Array): string {
  writeFileSync(at(name), text);
  return at(name);
}

/** The one-line message of the WarpjoinError that the call must reject with. */
async function fileErrorOf(call: Promise<unknown>, code = 'ERR_FILE'): Promise<string> {
  const error = await call.then(
    () => undefined,
    (e) => e,
  );
  expect(error).toBeInstanceOf(WarpjoinError);
  expect((error as WarpjoinError).code).toBe(code);
  expect((error as Error).message).not.toContain('\n');
  return (error as Error).message;
}

/** Values with the raw numbers of timestamps, which Arrow's getters round to milliseconds. */
const columnOf = (table: Table, name: string): unknown[] => {
  const vector = table.getChild(name)!;
  return vector.data.flatMap((data) => {
    const part = new Vector([data]);
    return Array.from({ length: data.length }, (_, i) => {
      if (!data.getValid(i)) return null;
      const raw = data.typeId === 10 || data.typeId === 8 ? (data.values as ArrayLike<unknown>)[i] : part.get(i);
      return raw instanceof Uint8Array || raw instanceof Uint32Array ? [...raw].join() : raw;
    });
  });
};
const typesOf = (table: Table) => Object.fromEntries(table.schema.fields.map(({ name, type }) => [name, String(type)]));

function mixedTable(rows: number): Table {
  const nulls = <T>(make: (i: number) => T) => Array.from({ length: rows }, (_, i) => (i % 7 === 3 ? null : make(i)));
  const columns: Record<string, Vector> = {
    id: vectorFromArray(
      nulls((i) => BigInt(i) * 1_000_000_007n - 5n),
      new Int64(),
    ),
    small: vectorFromArray(
      nulls((i) => i - 9),
      new Int32(),
    ),
    ratio: vectorFromArray(
      nulls((i) => i / 3),
      new Float64(),
    ),
    flag: vectorFromArray(
      nulls((i) => i % 3 === 0),
      new Bool(),
    ),
    name: vectorFromArray(
      nulls((i) => (i % 5 === 0 ? '' : `näme ${i}, "quoted"\nline`)),
      new Utf8(),
    ),
    day: vectorFromArray(
      nulls((i) => new Date(86400000 * (i - 3))),
      new DateDay(),
    ),
    code: vectorFromArray(
      nulls((i) => `c${i % 4}`),
      new Dictionary(new Utf8(), new Int32()),
    ),
  };
  return new Table(columns);
}

describe('arrow and parquet files', () => {
  for (const rows of [0, 1, 9, 5000]) {
    for (const extension of ['arrow', 'parquet']) {
      it(`returns what was written: ${extension}, ${rows} rows`, async () => {
        const table = mixedTable(rows);
        await writeTable(table, at(`mixed.${extension}`));
        const back = await readTable(at(`mixed.${extension}`));
        expect(back.numRows).toBe(rows);
        expect(typesOf(back)).toEqual(typesOf(table));
        for (const { name } of table.schema.fields) expect(columnOf(back, name)).toEqual(columnOf(table, name));
      });

      it(`returns a table of slices as it is: ${extension}, ${rows} rows`, async () => {
        const table = mixedTable(rows);
        const cut = Math.floor(rows / 3);
        const sliced = table.slice(cut).concat(table.slice(0, cut));
        await writeTable(sliced, at(`sliced.${extension}`));
        const back = await readTable(at(`sliced.${extension}`));
        for (const { name } of table.schema.fields) {
          expect(columnOf(back, name)).toEqual([...columnOf(table, name).slice(cut), ...columnOf(table, name).slice(0, cut)]);
        }
      });
    }
  }

  it('reads the 3 million flights with the types of the file', async () => {
    const table = await readTable(flights);
    expect(table.numRows).toBe(3_000_000);
    expect(typesOf(table)).toEqual({
      date: 'Timestamp<MICROSECOND>',
      delay: 'Int64',
      distance: 'Int64',
      origin: 'LargeUtf8',
      destination: 'LargeUtf8',
    });
    expect(table.get(0)!.toJSON()).toMatchObject({ delay: 33n, distance: 2176n, origin: 'LAS', destination: 'PHL' });
  });

  it('reads Arrow streams as well as files', async () => {
    const table = mixedTable(100);
    const path = write('stream.arrows', tableToIPC(table, 'stream'));
    expect(columnOf(await readTable(path), 'name')).toEqual(columnOf(table, 'name'));
  });

  it('writes files that Arrow reads on its own', async () => {
    const table = mixedTable(50);
    await writeTable(table, at('own.arrow'));
    expect(columnOf(tableFromIPC(readFileSync(at('own.arrow'))), 'id')).toEqual(columnOf(table, 'id'));
  });

  it('names a damaged file in one line', async () => {
    await writeTable(mixedTable(4000), at('whole.arrow'));
    await writeTable(mixedTable(4000), at('whole.parquet'));
    for (const extension of ['arrow', 'parquet']) {
      const bytes = readFileSync(at(`whole.${extension}`));
      for (const length of [0, 1, 7, 8, 13, 100, bytes.length >> 1, bytes.length - 9, bytes.length - 1]) {
        const path = write(`cut.${extension}`, bytes.subarray(0, length));
        expect(await fileErrorOf(readTable(path)), `${extension} of ${length} bytes`).toContain(path);
      }
      const path = write(`text.${extension}`, 'a,b\n1,2\n'.repeat(1000));
      expect(await fileErrorOf(readTable(path))).toContain(path);
    }
    expect(await fileErrorOf(readTable(at('missing.arrow')))).toBe(`${at('missing.arrow')}: no such file or directory`);
    expect(await fileErrorOf(readTable(at('missing.parquet')))).toBe(`${at('missing.parquet')}: no such file or directory`);
    expect(await fileErrorOf(readTable(at('missing.csv')))).toBe(`${at('missing.csv')}: no such file or directory`);
  });

  it('reads or refuses an Arrow file with wrong bytes, and never hangs', async () => {
    let state = 7;
    const below = (n: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor((state / 2 ** 32) * n);
    };
    await writeTable(mixedTable(300), at('wrong.arrow'));
    write('wrong.arrows', tableToIPC(mixedTable(300), 'stream'));
    for (const name of ['wrong.arrow', 'wrong.arrows']) {
      const whole = readFileSync(at(name));
      let refused = 0;
      for (let i = 0; i < 300; i++) {
        const bytes = Uint8Array.from(whole);
        // Metadata is at both ends.
        for (let wrong = 0; wrong < 3; wrong++) bytes[i % 2 ? below(800) : bytes.length - 1 - below(800)] = below(256);
        const outcome = await readTable(write(name, bytes)).catch((error) => error);
        if (outcome instanceof Table) continue;
        refused++;
        expect(outcome).toMatchObject({ code: 'ERR_FILE' });
        expect(outcome.message).not.toContain('\n');
      }
      expect(refused).toBeGreaterThan(10);
    }
  });

  it('keeps nested columns and dictionaries of results', async () => {
    const engine = await createEngine({ device: 'cpu', memoryLimit: '64MiB' });
    const text = new Dictionary(new Utf8(), new Int32());
    const batch = (words: string[], lists: (number[] | null)[]) =>
      new Table({
        row: vectorFromArray(
          words.map((_, row) => -row - words.length),
          new Int32(),
        ),
        word: vectorFromArray(words, text),
        list: vectorFromArray(lists, new List(new Field('item', new Int32(), true))),
      });
    const one = batch(['x', 'y', 'x'], [[1], null, []]);
    // A dictionary of its own.
    const other = new Table(
      one.schema,
      batch(['z', 'y'], [[2, 3], [4]]).batches.map((part) => new RecordBatch(one.schema, part.data as never)),
    );
    const sorted = await engine.sort(one.concat(other), { by: 'row' });
    const words = ['x', 'y', 'x', 'y', 'z'];
    expect([...sorted.getChild('word')!]).toEqual(words);
    for (const name of ['nested.arrow', 'nested.parquet']) {
      await writeTable(sorted, at(name));
      const again = await readTable(at(name));
      expect([...again.getChild('word')!]).toEqual(words);
      expect([...again.getChild('list')!].map((list) => list && [...list])).toEqual([[], null, [1], [4], [2, 3]]);
    }
    await writeTable(sorted.select(['word']), at('words.csv'));
    expect(readFileSync(at('words.csv'), 'utf8')).toBe(`word\n${words.join('\n')}\n`);
    await engine.dispose();
  });

  it('leaves what was there when writing fails or is aborted', async () => {
    const nested = new Table({ tags: vectorFromArray([[1], [2, 3]], new List(new Field('item', new Int32()))) });
    const path = write('kept.csv', 'old');
    expect(await fileErrorOf(writeTable(nested, path), 'ERR_NOT_SUPPORTED')).toContain('"tags"');
    const gone = AbortSignal.abort(new Error('stop'));
    for (const name of ['kept.csv', 'kept.arrow', 'kept.parquet']) {
      write(name, 'old');
      await expect(writeTable(mixedTable(100), at(name), { signal: gone })).rejects.toThrow('stop');
      expect(readFileSync(at(name), 'utf8')).toBe('old');
    }
    expect(readdirSync(folder).filter((name) => name.endsWith('.partial'))).toEqual([]);
    expect(await fileErrorOf(writeTable(mixedTable(1), at('no/such/folder.arrow')))).toContain('no such file or directory');
  });

  it('tells formats by the extension', async () => {
    expect(namedFormat('a.feather')).toBe('arrow');
    expect(namedFormat('A.PARQUET')).toBe('parquet');
    expect(namedFormat('a/b.tsv.GZ')).toBe('tsv');
    expect(namedFormat('a.b/.csv')).toBeUndefined();
    const path = write('data.xlsx', 'a,b');
    expect(await fileErrorOf(readTable(path))).toMatch(
      /data\.xlsx: its name does not end in .*\.parquet.*Say its format: "arrow"/,
    );
    expect(await fileErrorOf(writeTable(mixedTable(1), at('out.xlsx')))).toContain('.parquet');
  });
});

describe('csv files', () => {
  const read = (text: string | Uint8Array, options = {}) => readTable(write('in.csv', text), options);

  it('infers the narrowest type that holds every value', async () => {
    const table = await read(
      [
        'i,f,b,d,t,z,s,zip,big,none,dt',
        '1,1.5,true,2024-02-29,2024-01-01 10:00:00,2024-01-01T10:00:00Z,x,01234,9223372036854775807,,2024-01-01',
        '-2,2,false,1969-12-31,1969-12-31T23:59:59.999999,2024-01-01T10:00:00+02:30,7,9,9223372036854775808,,2024-01-01 00:00:01',
        ',,,,,,,,,,',
        '+3,1e3,TRUE,0001-01-01,2024-01-01 10:00,2024-01-01 10:00:00.5-0130,y,10,1,,',
      ].join('\n'),
    );
    expect(typesOf(table)).toEqual({
      i: 'Int64',
      f: 'Float64',
      b: 'Bool',
      d: 'Date32<DAY>',
      t: 'Timestamp<MICROSECOND>',
      z: 'Timestamp<MICROSECOND, UTC>',
      s: 'Utf8',
      zip: 'Utf8',
      big: 'Utf8',
      none: 'Utf8',
      dt: 'Timestamp<MICROSECOND>',
    });
    expect(columnOf(table, 'i')).toEqual([1n, -2n, null, 3n]);
    expect(columnOf(table, 'f')).toEqual([1.5, 2, null, 1000]);
    expect(columnOf(table, 'b')).toEqual([true, false, null, true]);
    expect(columnOf(table, 'd')).toEqual([19782, -1, null, -719162]);
    const ten = 1_704_103_200_000_000n;
    expect(columnOf(table, 't')).toEqual([ten, -1n, null, ten]);
    expect(columnOf(table, 'z')).toEqual([ten, ten - 9_000_000_000n, null, ten + 5_400_500_000n]);
    expect(columnOf(table, 'zip')).toEqual(['01234', '9', null, '10']);
    expect(columnOf(table, 'none')).toEqual([null, null, null, null]);
  });

  it('keeps as text what no number, date or time is', async () => {
    for (const text of [
      '1_000',
      '0x10',
      '1,5',
      '2024-02-30',
      '2024-13-01',
      '2024-01-01 24:00',
      '--1',
      '1e',
      '.',
      '+',
      '1 ',
      'Nan',
    ]) {
      const table = await read(`a,b\n"${text}",1\n`);
      expect(columnOf(table, 'a')).toEqual([text]);
    }
  });

  it('reads special floats', async () => {
    expect(columnOf(await read('a\n-0\nNaN\ninf\n-Infinity\n.5\n5.\n'), 'a')).toEqual([
      -0,
      Number.NaN,
      Infinity,
      -Infinity,
      0.5,
      5,
    ]);
  });

  it('reads quotes, line breaks in fields, CRLF, a byte order mark and other delimiters', async () => {
    expect(columnOf(await read('\ufeffa;b\r\n"x;""y""";"l1\r\nl2"\r\nü€😀;2\r\n', { delimiter: ';' }), 'a')).toEqual([
      'x;"y"',
      'ü€😀',
    ]);
    expect(columnOf(await readTable(write('in.tsv', 'a\tb\n1\t2\n')), 'b')).toEqual([2n]);
    expect(columnOf(await read('1,x\n2,y', { header: false }), 'column2')).toEqual(['x', 'y']);
    expect(columnOf(await read('a,b\nNA,x\n2,NA\n', { nullValues: ['NA'] }), 'a')).toEqual([null, 2n]);
  });

  it('skips blank lines, but in a file of one column they are nulls', async () => {
    expect(columnOf(await read('a,b\n\n1,2\n\n'), 'a')).toEqual([1n]);
    expect(columnOf(await read('a\n1\n\n3\n'), 'a')).toEqual([1n, null, 3n]);
    expect(columnOf(await read('a\n1\n\n3'), 'a')).toEqual([1n, null, 3n]);
  });

  it('reads a header alone as no rows', async () => {
    const table = await read('a,b\n');
    expect([table.numRows, table.numCols]).toEqual([0, 2]);
  });

  it('widens a type for a late value, over many reads of the file', async () => {
    const rows = 150_000; // several megabytes: records lie across read boundaries
    const lines = Array.from({ length: rows }, (_, i) => `${i},${i},"é${i}\n""x"",${i}",`);
    lines[rows - 2] = `${rows - 2},0.5,last,2024-01-01`;
    const table = await read(`i,f,s,d\n${lines.join('\n')}\n`);
    expect(typesOf(table)).toEqual({ i: 'Int64', f: 'Float64', s: 'Utf8', d: 'Date32<DAY>' });
    expect(table.numRows).toBe(rows);
    const [i, s, d] = [columnOf(table, 'i'), columnOf(table, 's'), columnOf(table, 'd')];
    for (let row = 0; row < rows - 2; row++) {
      if (i[row] !== BigInt(row) || s[row] !== `é${row}\n"x",${row}`) expect.fail(`row ${row}: ${i[row]}, ${s[row]}`);
    }
    expect(d.filter((day) => day !== null)).toEqual([19723]);
    expect(columnOf(table, 'f')[rows - 2]).toBe(0.5);
  });

  it('names the file and the line of what is wrong', async () => {
    const path = at('in.csv');
    expect(await fileErrorOf(read('a,b\n1,2\n3\n'))).toBe(`${path}:3: expected 2 fields, found 1`);
    expect(await fileErrorOf(read('a,b\n"x\ny",2\n3,4,5\n'))).toBe(`${path}:4: expected 2 fields, found 3`);
    expect(await fileErrorOf(read('a,b\n1,2\n"x,4\n5,6\n'))).toBe(`${path}:3: a quoted field has no end`);
    expect(await fileErrorOf(read('a,b\n1,2\n"x"y,4\n'))).toContain(`${path}:3: a quoted field`);
    expect(await fileErrorOf(read('a,a\n1,2\n'))).toBe(`${path}:1: two columns are named "a"`);
    expect(await fileErrorOf(read(''))).toBe(`${path}: the file is empty`);
    expect(await fileErrorOf(read(new Uint8Array([97, 10, 0xff, 0xfe, 10])))).toContain('not UTF-8');
    expect(await fileErrorOf(read('a\n\0\n'))).toContain('not a text file');
    expect(await fileErrorOf(read('a\n1\n', { delimiter: '""' }), 'ERR_OPTION')).toContain('delimiter');
    const many = `a,b\n${'1,2\n'.repeat(700_000)}3\n`;
    expect(await fileErrorOf(read(many))).toBe(`${path}:700002: expected 2 fields, found 1`);
  });

  it('returns what was written, but for empty texts, which are nulls', async () => {
    const table = mixedTable(3000);
    await writeTable(table, at('out.csv'));
    const back = await readTable(at('out.csv'));
    for (const name of ['id', 'small', 'ratio', 'flag', 'day', 'code']) {
      expect(columnOf(back, name).map(String), name).toEqual(columnOf(table, name).map(String));
    }
    expect(columnOf(back, 'name')).toEqual(columnOf(table, 'name').map((name) => name || null));
  });

  it('writes every flat type exactly', async () => {
    const decimal = vectorFromArray(
      [new Uint32Array([12345, 0, 0, 0]), new Uint32Array([4294967291, 4294967295, 4294967295, 4294967295])],
      new Decimal(2, 20),
    );
    const micros = new BigInt64Array([1_704_103_200_000_001n, -1n]);
    const nanos = new BigInt64Array([1n, -62135596800_000_000_000n / 7n]);
    const table = new Table({
      micros: new Vector([makeData({ type: new TimestampMicrosecond(), data: micros })]),
      nanos: new Vector([makeData({ type: new TimestampNanosecond('UTC'), data: nanos })]),
      decimal,
      bytes: vectorFromArray([new Uint8Array([0, 255]), new Uint8Array([])], new Binary()),
    });
    await writeTable(table, at('exact.csv'));
    expect(readFileSync(at('exact.csv'), 'utf8').split('\n')).toEqual([
      'micros,nanos,decimal,bytes',
      '2024-01-01 10:00:00.000001,1970-01-01 00:00:00.000000001Z,123.45,00ff',
      '1969-12-31 23:59:59.999999,1688-09-17 13:42:51.428571429Z,-0.05,""',
      '',
    ]);
  });

  it('aborts', async () => {
    const reason = new Error('enough');
    await expect(read('a\n1\n', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(readTable(flights, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });
});

it('keeps a schema of several batches', async () => {
  const schema = new Schema([new Field('a', new Int32(), true)]);
  const part = (values: number[]) =>
    new RecordBatch(schema, new Table({ a: vectorFromArray(values, new Int32()) }).batches[0]!.data);
  const table = new Table(schema, [part([1, 2]), part([]), part([3])]);
  for (const name of ['parts.arrow', 'parts.parquet', 'parts.csv']) {
    await writeTable(table, at(name));
    expect(columnOf(await readTable(at(name)), 'a').map(Number)).toEqual([1, 2, 3]);
  }
});
