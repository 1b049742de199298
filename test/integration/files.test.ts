/** readTable, writeTable and scanFiles: names, patterns, compression, JSON and types. */
import { spawn } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as zlib from 'node:zlib';
import { Float32, Table, tableToIPC, vectorFromArray } from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WarpjoinError } from '../../lib/errors.js';
import { fromColumns, fromRows, toRows } from '../../lib/index.js';
import { readArrow, scanArrow } from '../../lib/io/arrow.js';
import { type CastType, castColumns, castTypeOf } from '../../lib/io/cast.js';
import { expandBraces, expandInput, namePattern } from '../../lib/io/globs.js';
import {
  type ReadOptions,
  type ReadProgress,
  readTable,
  type ScanOptions,
  scanFiles,
  writeBatches,
  writeTable,
} from '../../lib/io/index.js';
import type { ByteSource } from '../../lib/io/source.js';
import { spooled } from '../../lib/io/spool.js';
import { temporaryFolder } from '../../lib/io/temporary.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-files-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);
const write = (name: string, data: string | Uint8Array) => {
  writeFileSync(at(name), data);
  return at(name);
};

/** The one-line message of the WarpjoinError that the call must reject with. */
async function errorOf(call: Promise<unknown>, code = 'ERR_FILE'): Promise<string> {
  const error = await call.then(
    () => undefined,
    (e) => e,
  );
  expect(error).toBeInstanceOf(WarpjoinError);
  expect(error).toMatchObject({ code });
  expect(error.message).not.toContain('\n');
  return error.message;
}

/** Files that inputs were written to: those that a folder shows, and how many this process has open. */
function spooledFiles(): { named: string[]; open: number } {
  // Linux gives files that never had a name a number.
  const isOne = (path: string) => /\/(warpjoin-[0-9a-f-]{36}|#\d+)( \(deleted\))?$/.test(path);
  const links = readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return []; // the one that lists them
    }
  });
  const named = [tmpdir(), '/var/tmp'].flatMap((of) => readdirSync(of).map((name) => join(of, name)));
  return { named: named.filter(isOne), open: links.filter(isOne).length };
}

const typesOf = (table: Table) => Object.fromEntries(table.schema.fields.map(({ name, type }) => [name, String(type)]));
const rows = Array.from({ length: 500 }, (_, id) => ({ id, name: id % 7 ? `n${id}` : null, tags: [`t${id % 3}`] }));
const hasZstd = 'createZstdCompress' in zlib;

async function scanned(input: string | string[], options = {}): Promise<unknown[]> {
  const all: unknown[] = [];
  for await (const batch of scanFiles(input, options)) all.push(...batch.toArray().map((row) => row.id));
  return all;
}

describe('formats and compression', () => {
  for (const format of ['arrow', 'parquet', 'ndjson', 'json']) {
    for (const compression of ['', '.gz', ...(hasZstd ? ['.zst'] : [])]) {
      it(`returns and scans what was written: .${format}${compression}`, async () => {
        const path = at(`all.${format}${compression}`);
        await writeTable(fromRows(rows), path);
        expect(toRows(await readTable(path))).toEqual(rows);
        expect(await scanned(path, { batchRows: 70 })).toEqual(rows.map(({ id }) => id));
        const some = await readTable(path, { maxRows: 3, columns: ['name', 'id'] });
        expect(toRows(some)).toEqual(rows.slice(0, 3).map(({ id, name }) => ({ name, id })));
        expect(some.schema.fields.map(({ name }) => name)).toEqual(['name', 'id']);
        const first = readFileSync(path).subarray(0, 2).toString('hex');
        expect(first === '1f8b').toBe(compression === '.gz');
        expect(first === '28b5').toBe(compression === '.zst');
      });
    }
  }

  it('reads what gzip and zstd wrote, in several members, too', async () => {
    const text = `id,name\n${rows.map(({ id, name }) => `${id},${name ?? ''}`).join('\n')}\n`;
    const half = text.indexOf('\n250,') + 1;
    const gz = Buffer.concat([zlib.gzipSync(text.slice(0, half)), zlib.gzipSync(text.slice(half))]);
    expect(toRows(await readTable(write('two.csv.gz', gz)))).toEqual(rows.map(({ id, name }) => ({ id, name })));
    // Made by zstd 1.5, of "id,name\\n1,one\\n" and "2,two\\n".
    const frames = ['KLUv/QRYcQAAaWQsbmFtZQoxLG9uZQp478SS', 'KLUv/QRYMQAAMix0d28K6Ap28A=='].map((frame) =>
      Buffer.from(frame, 'base64'),
    );
    const ones = [
      { id: 1, name: 'one' },
      { id: 2, name: 'two' },
    ];
    expect(toRows(await readTable(write('made.csv.zst', Buffer.concat(frames))))).toEqual(ones);
    expect(await errorOf(readTable(write('cut.csv.zst', frames[0]!.subarray(0, 20))))).toContain(
      'damaged or truncated Zstandard data',
    );
  });

  it('refuses damaged and cut compressed files in one message', async () => {
    const text = `id\n${Array.from({ length: 20_000 }, (_, id) => (id * 7919) % 100_003).join('\n')}\n`;
    const gz = zlib.gzipSync(text);
    const wrong = Buffer.from(gz);
    wrong[gz.length >> 1]! ^= 0xff;
    for (const bytes of [gz.subarray(0, gz.length - 9), gz.subarray(0, 100), wrong, Buffer.from('no gzip')]) {
      expect(await errorOf(readTable(write('bad.csv.gz', bytes)))).toMatch(/bad\.csv\.gz: damaged or truncated gzip data \(/);
    }
    expect(await errorOf(readTable(write('bad.csv.zst', 'no zstd at all')))).toMatch(
      /bad\.csv\.zst: damaged or truncated Zstandard data/,
    );
    expect(await errorOf(readTable(write('bad.parquet.gz', zlib.gzipSync('x'.repeat(500)))))).toMatch(/bad\.parquet\.gz: /);
    await expect.poll(spooledFiles).toEqual({ named: [], open: 0 });
  });

  it('spools to files that have no name, and are closed in any case', async () => {
    await writeTable(fromRows(rows), at('plain.parquet'));
    const path = write('spooled.parquet.gz', zlib.gzipSync(readFileSync(at('plain.parquet'))));
    const batches = scanFiles(path, { batchRows: 100 });
    expect((await batches.next()).value?.numRows).toBe(100);
    await expect.poll(() => spooledFiles().named).toEqual([]);
    expect(spooledFiles().open).toBeGreaterThan(0); // what reads it has it open, too
    await batches.return(undefined);
    await expect.poll(spooledFiles).toEqual({ named: [], open: 0 });
    const failing: ByteSource = {
      name: 'a pipe',
      progress: () => undefined,
      async *bytes() {
        yield Buffer.from('some');
        throw new Error('it broke');
      },
    };
    await expect(spooled(failing)).rejects.toThrow('it broke');
    await expect.poll(spooledFiles).toEqual({ named: [], open: 0 });
  });

  it('spools to a disk where the folder for temporary files is memory', async () => {
    const set = { TMPDIR: process.env.TMPDIR, TMP: process.env.TMP, TEMP: process.env.TEMP };
    for (const name of Object.keys(set)) delete process.env[name];
    try {
      expect(await temporaryFolder(folder)).toBe(folder);
      const isMemory = (of: string) => statfsSync(of).type === 0x01021994;
      expect(await temporaryFolder('/dev/shm')).toBe(isMemory('/dev/shm') && !isMemory('/var/tmp') ? '/var/tmp' : '/dev/shm');
      process.env.TMPDIR = '/dev/shm';
      expect(await temporaryFolder()).toBe('/dev/shm');
    } finally {
      delete process.env.TMPDIR;
      for (const [name, value] of Object.entries(set)) if (value !== undefined) process.env[name] = value;
    }
  });

  it.skipIf(hasZstd)('says which Node.js writes .zst where this one does not', async () => {
    const message = await errorOf(writeTable(fromRows(rows), at('no.csv.zst')), 'ERR_NOT_SUPPORTED');
    expect(message).toMatch(/no\.csv\.zst: .*Node\.js 22\.15/);
  });

  it('tells Arrow and Parquet by their first bytes', async () => {
    await writeTable(fromRows(rows), at('named.parquet'));
    write('unnamed', readFileSync(at('named.parquet')));
    expect((await readTable(at('unnamed'))).numRows).toBe(500);
    write('stream', tableToIPC(fromRows(rows), 'stream'));
    expect((await readTable(at('stream'))).numRows).toBe(500);
    expect(await errorOf(readTable(write('text', 'id\n1\n')))).toMatch(
      /text: its name does not end in .*Say its format: "arrow"/,
    );
    expect(toRows(await readTable(at('text'), { format: 'csv' }))).toEqual([{ id: 1 }]);
  });

  it('aborts while it reads and while it writes', async () => {
    const stop = new AbortController();
    const reason = new Error('enough');
    const path = write('long.ndjson', `${JSON.stringify(rows[1])}\n`.repeat(60_000));
    const reading = readTable(path, { signal: stop.signal, onProgress: () => stop.abort(reason) });
    await expect(reading).rejects.toBe(reason);
    for (const name of ['aborted.ndjson.gz', 'aborted.json']) {
      await expect(writeTable(fromRows(rows), at(name), { signal: stop.signal })).rejects.toBe(reason);
    }
    expect(readdirSync(folder).filter((name) => name.includes('aborted'))).toEqual([]);
  });

  it('says how far it has read', async () => {
    write('long.csv', `id,name\n${`1,${'x'.repeat(100)}\n`.repeat(20_000)}`);
    await writeTable(fromRows(rows), at('long.arrow'));
    for (const name of ['long.csv', 'long.ndjson', 'long.arrow']) {
      const seen: (number | undefined)[] = [];
      await readTable(at(name), {
        onProgress({ file, fraction }) {
          expect(file).toBe(at(name));
          seen.push(fraction);
        },
      });
      expect(seen.length, name).toBeGreaterThan(1);
      for (const fraction of seen) expect(fraction).toBeGreaterThan(0);
      expect(Math.max(...(seen as number[]))).toBe(1);
    }
  });

  it.each(['long.arrow', 'long.parquet', 'long.ndjson'])('says how far it has scanned %s', async (name) => {
    const ids = fromColumns({ id: Float64Array.from({ length: 400_000 }, (_, row) => row) });
    const parts = [0, 1, 2, 3].flatMap((part) => ids.slice(part * 100_000, (part + 1) * 100_000).batches);
    await writeTable(new Table(parts), at(name));
    const seen: number[] = [];
    const onProgress = ({ fraction }: ReadProgress) => seen.push(fraction!);
    for await (const _ of scanFiles(at(name), { onProgress }));
    expect(seen.length).toBeGreaterThan(1);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen[0]).toBeGreaterThan(0);
    expect(seen.at(-1)).toBeGreaterThan(0.9);
  });

  it.each(['ahead.parquet', 'ahead.csv'])('reads as far ahead in %s as it may', async (name) => {
    const ids = fromColumns({ id: Float64Array.from({ length: 400_000 }, (_, row) => row) });
    await writeBatches([ids], at(name), { rowGroupBytes: '1MiB' }); // of 2^17 rows, on however many cores
    const scanned = async (options: ScanOptions) => {
      const seen: number[] = [];
      const onProgress = ({ fraction }: ReadProgress) => seen.push(fraction!);
      let rows = 0;
      for await (const batch of scanFiles(at(name), { ...options, onProgress }))
        for (const id of batch.getChild('id')!) if (Number(id) !== rows++) throw new Error(`row ${rows} is ${id}`);
      expect(rows).toBe(400_000);
      return seen;
    };
    expect((await scanned({}))[0]).toBe(1);
    for (const readAhead of [1, '100kB']) {
      const seen = await scanned({ readAhead });
      expect(seen[0]).toBeLessThan(0.5);
      expect(seen.at(-1)).toBe(1);
    }
    expect((await scanned({ readAhead: '1GB' }))[0]).toBe(1);
    await expect(scanned({ readAhead: 'much' })).rejects.toThrow(/^Expected a number of bytes, .* for readAhead .*"much"/);
  });
});

describe('several files', () => {
  beforeAll(async () => {
    mkdirSync(at('many/deep/er'), { recursive: true });
    for (const [name, ids] of Object.entries({
      'b.ndjson': [3, 4],
      'a.ndjson': [1, 2],
      'deep/er/c.ndjson': [5],
      '.hidden.ndjson': [9],
    })) {
      await writeTable(fromRows(ids.map((id) => ({ id }))), at(`many/${name}`));
    }
  });
  const ids = async (...inputs: string[]) => (await readTable(inputs.map((input) => at(input)))).toArray().map(({ id }) => id);

  it('are named by patterns, and come in order', async () => {
    expect(await ids('many/*.ndjson')).toEqual([1, 2, 3, 4]);
    expect(await ids('many/**/*.ndjson')).toEqual([1, 2, 3, 4, 5]);
    expect(await ids('many/**')).toEqual([1, 2, 3, 4, 5]);
    expect(await ids('many/{b,a}.ndjson')).toEqual([1, 2, 3, 4]);
    expect(await ids('many/[!a].ndjson', 'many/?.ndjson')).toEqual([3, 4, 1, 2, 3, 4]);
    expect(await ids('ma*/deep/*/[a-c].ndjson')).toEqual([5]);
    expect(await ids('many/.h*')).toEqual([9]);
    expect(await scanned(at('many/*.ndjson'), { maxRows: 3 })).toEqual([1, 2, 3]);
    expect((await readTable(at('many/*.ndjson'), { maxRows: 3 })).numRows).toBe(3);
  });

  it('match patterns as shells do', () => {
    expect(expandBraces('a{b,c{d,e}}f{1,2}')).toEqual(['abf1', 'abf2', 'acdf1', 'acdf2', 'acef1', 'acef2']);
    for (const text of ['a{b}', 'a{b,c', 'a}b,c{']) expect(expandBraces(text)).toEqual([text]);
    const matching = (pattern: string, ...names: string[]) => names.filter((name) => namePattern(pattern).test(name));
    expect(matching('a.*', 'a.b', 'ab', 'a.', 'xa.b')).toEqual(['a.b', 'a.']);
    expect(matching('[a-c^]?', 'ax', '^x', 'dx', 'a')).toEqual(['ax', '^x']);
    expect(matching('[^a]', 'a', 'b')).toEqual(['b']);
    expect(matching('[]]+(x)', ']+(x)')).toEqual([']+(x)']);
    expect(matching('?', '😀', 'ab')).toEqual(['😀']);
    expect(matching('[', '[', 'a')).toEqual(['[']);
  });

  it('must be there', async () => {
    expect(await errorOf(readTable(at('many/*.csv')))).toBe(`${at('many/*.csv')}: no file matches this pattern`);
    expect(await errorOf(readTable(at('many/{a,z}.ndjson')))).toBe(`${at('many/z.ndjson')}: no such file or directory`);
    expect(await errorOf(readTable(at('many')))).toContain(`${at('many')}: is a directory; "${at('many')}/*.parquet"`);
    expect(await errorOf(readTable(['-', '-']))).toContain('named twice');
    expect(await errorOf(readTable(at('many/a.ndjson/x')))).toContain('not a directory');
    symlinkSync(at('gone'), at('many/dangling.ndjson'));
    expect(await expandInput(at('many/*.ndjson'))).toEqual([at('many/a.ndjson'), at('many/b.ndjson')]);
    rmSync(at('many/dangling.ndjson'));
    write('odd[1].csv', 'id\n7\n'); // a name that looks like a pattern
    expect(await ids('odd[1].csv')).toEqual([7n]);
  });

  it('must have the same columns', async () => {
    write('one.csv', 'id,x\n1,2\n');
    for (const [text, message] of [
      ['id,x\n1,two\n', 'column 2 is x: utf8, not x: int64'],
      ['id\n1\n', 'column 2 is no more columns, not x: int64'],
      ['ID,x\n1,1\n', 'column 1 is ID: int64, not id: int64'],
    ] as const) {
      const path = write('other.csv', text);
      const wanted = `${path}: its columns are not those of ${at('one.csv')}: ${message}`;
      expect(await errorOf(readTable([at('one.csv'), path]))).toBe(wanted);
      expect(await errorOf(scanned([at('one.csv'), path]))).toBe(wanted);
    }
    write('other.csv', 'id,x\n1,two\n');
    const table = await readTable([at('one.csv'), at('other.csv')], { types: { x: 'utf8' } });
    expect(toRows(table).map(({ x }) => x)).toEqual(['2', 'two']);
  });
});

describe('JSON', () => {
  const read = (text: string, name = 'in.ndjson', options: ReadOptions = {}) => readTable(write(name, text), options);

  it('keeps whole numbers of 64 bits, and infers types from all rows', async () => {
    const table = await read('{"a":1,"big":9007199254740993}\n\n{"a":2.5,"text":"12345678901234567890"}\r\n{"big":-5}');
    expect(typesOf(table)).toEqual({ a: 'Float64', big: 'Int64', text: 'Utf8' });
    expect([...table.getChild('big')!]).toEqual([9007199254740993n, null, -5n]);
    expect(table.getChild('text')!.get(1)).toBe('12345678901234567890');
    expect(toRows(await read('[{"a":18446744073709551615,"b":1e400,"c":1234567890123456.5}]', 'in.json'))).toEqual([
      { a: '18446744073709551615', b: Number.POSITIVE_INFINITY, c: 1234567890123456.5 },
    ]);
  });

  it('takes types', async () => {
    const types = { d: 'date', t: 'timestamp', n: 'int64', s: 'utf8', b: 'bool' } as const;
    const text = '{"d":"2024-05-01","t":"2024-05-01T10:00:00.25","n":"7","s":5,"b":"true"}\n{"s":{"x":1},"n":8}\n';
    const wanted = { d: 'Date32<DAY>', t: 'Timestamp<MICROSECOND>', n: 'Int64', s: 'Utf8', b: 'Bool' };
    const table = await read(text, 'in.ndjson', { types });
    expect(typesOf(table)).toEqual(wanted);
    expect(toRows(table)).toEqual([
      { d: '2024-05-01', t: '2024-05-01T10:00:00.25', n: 7, s: '5', b: true },
      { d: null, t: null, n: 8, s: '{"x":1}', b: null },
    ]);
    const message = await errorOf(read('{"n":1}\n{"n":"x"}\n', 'in.ndjson', { types: { n: 'int64' } }));
    expect(message).toBe(`${at('in.ndjson')}: column "n", row 1: "x" is no int64`);
  });

  it('names the file and the line of what is wrong', async () => {
    const path = at('in.ndjson');
    expect(await errorOf(read('{"a":1}\n{"a":\n'))).toContain(`${path}:2: not JSON: `);
    expect(await errorOf(read('{"a":1}\n\n[1]\n'))).toBe(`${path}:3: expected a JSON object in each line`);
    expect(await errorOf(read('{"a":1}\n{"a":"x"}\n'))).toContain('numbers (row 0) and strings (row 1)');
    expect(await errorOf(readTable(write('in.ndjson', Uint8Array.of(0x7b, 0xff))))).toContain('not UTF-8');
    expect(await errorOf(read('{"a":1}\n{"a":2}', 'in.json'))).toMatch(
      /in\.json: not JSON: .*"ndjson" has an object in each line/,
    );
    expect(await errorOf(read('{"a":1}', 'in.json'))).toContain('expected a JSON array of objects');
    expect(await errorOf(read('[{"a":1},2]', 'in.json'))).toContain('element 1 is none');
    expect(await errorOf(read('', 'in.json'))).toContain('the file is empty');
    expect(await errorOf(read('{"a":1}', 'in.ndjson', { columns: ['b'] }), 'ERR_COLUMN_NOT_FOUND')).toContain('no column "b"');
  });

  it('scans batches of the first types, and names a later misfit', async () => {
    const text = Array.from({ length: 10 }, (_, id) => `{"id":${id}}\n`).join('');
    expect(await scanned(write('scan.ndjson', text), { batchRows: 4 })).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await errorOf(scanned(write('scan.ndjson', `${text}{"id":"x"}\n`), { batchRows: 4 }))).toMatch(
      /"x" in row 2.*counted from 8.*say others with types/,
    );
    expect(await errorOf(scanned(write('scan.ndjson', `${text}{"no":1}\n`), { batchRows: 4 }))).toContain('row 10 has "no"');
    expect((await readTable(write('none.ndjson', ''))).numRows).toBe(0);
  });

  it('writes floats of 32 bits as short as they are', async () => {
    const table = fromColumns({ f: vectorFromArray([0.1, 1 / 3, null, 16777216, 3.4028234663852886e38], new Float32()) });
    for (const name of ['f.ndjson', 'f.csv']) await writeTable(table, at(name));
    expect(
      readFileSync(at('f.ndjson'), 'utf8')
        .split('\n')
        .map((line) => line.slice(5, -1)),
    ).toEqual(['0.1', '0.33333334', 'null', '16777216', '3.4028235e+38', '']);
    expect(readFileSync(at('f.csv'), 'utf8')).toBe('f\n0.1\n0.33333334\n""\n16777216\n3.4028235e+38\n'.replace('""', ''));
    expect([...(await readTable(at('f.ndjson'))).getChild('f')!].map((f) => f && Math.fround(f))).toEqual([
      ...table.getChild('f')!,
    ]);
  });

  it('is written as an array, empty ones, too', async () => {
    await writeTable(fromColumns({ a: Int32Array.of(1, 2) }), at('two.json'));
    expect(readFileSync(at('two.json'), 'utf8')).toBe('[\n{"a":1},\n{"a":2}\n]\n');
    await writeTable(fromColumns({ a: Int32Array.of() }), at('none.json'));
    expect(readFileSync(at('none.json'), 'utf8')).toBe('[]\n');
  });
});

describe('casts', () => {
  const cast = (values: unknown[], type: CastType) =>
    toRows(castColumns(fromColumns({ x: values }), { x: type }, 'in'), { int64: 'text' }).map(({ x }) => x);
  const refused = (values: unknown[], type: CastType) =>
    expect(() => cast(values, type)).toThrow(/^in: column "x", row 0: .* is no /);

  it('give values that are exact', () => {
    expect(cast(['7', null, '-2147483648', '1.0', '2e3'], 'int32')).toEqual([7, null, -2147483648, 1, 2000]);
    expect(cast([9007199254740993n, 1], 'int64')).toEqual(['9007199254740993', '1']);
    expect(cast(['1.5', 'NaN', '-inf', '0.1'], 'float64')).toEqual([1.5, Number.NaN, -Infinity, 0.1]);
    expect(cast([1, 0, null], 'bool')).toEqual([true, false, null]);
    expect(cast(['TRUE', 'false'], 'bool')).toEqual([true, false]);
    expect(cast([1.5, -0], 'utf8')).toEqual(['1.5', '-0']);
    expect(cast([new Date('2024-05-01'), null], 'date')).toEqual(['2024-05-01', null]);
    expect(cast(['2024-05-01', '1969-12-31 23:59:59.5'], 'timestamp')).toEqual(['2024-05-01T00:00:00', '1969-12-31T23:59:59.5']);
    expect(cast(['2024-05-01T01:00:00+02:30'], 'timestamp')).toEqual(['2024-04-30T22:30:00Z']);
    expect(cast(['12.5', '-0.01', '7', '1e2'], 'decimal(6,2)')).toEqual(['12.50', '-0.01', '7.00', '100.00']);
    expect(typesOf(castColumns(fromColumns({ x: [0.5] }), { x: 'float32' }, 'in'))).toEqual({ x: 'Float32' });
  });

  it('refuse what does not fit', () => {
    for (const value of ['2147483648', '1.5', 'x', '', '.', '1e-1']) refused([value], 'int32');
    refused([9223372036854775808n], 'int64');
    refused([9007199254740993n], 'float64');
    refused([16777217], 'float32');
    refused(['1e39'], 'float32');
    refused(['abc'], 'float64');
    refused(['yes'], 'bool');
    refused(['2024-02-30'], 'date');
    refused(['2024-05-01 10:00'], 'date');
    refused(['2024-05-01 24:00'], 'timestamp');
    refused(['2024-05-01 10:00:00.1234567'], 'timestamp');
    refused(['1.005'], 'decimal(6,2)');
    refused(['10000'], 'decimal(6,2)');
    refused([[1]], 'utf8');
    expect(() => cast(['2024-05-01', '2024-05-01T00:00:00Z'], 'timestamp')).toThrow(/row 1/);
  });

  it('name types', () => {
    expect(castTypeOf('Decimal(10, 2)')).toBe('decimal(10,2)');
    expect(castTypeOf('date')).toBe('date');
    for (const text of ['int', 'decimal(39,2)', 'decimal(2,3)', 'decimal(0,0)', '']) expect(castTypeOf(text)).toBeUndefined();
  });
});

it('are what the package exports as warpjoin/io', async () => {
  const name: string = 'warpjoin/io';
  expect(Object.keys(await import(name)).sort()).toEqual(['readTable', 'scanFiles', 'writeBatches', 'writeTable']);
});

describe('options', () => {
  it('are checked', async () => {
    const wrong = (options: object) => errorOf(readTable(at('one.csv'), options as ReadOptions), 'ERR_OPTION');
    expect(await wrong({ colums: ['a'] })).toContain('Did you mean "columns"?');
    expect(await wrong({ format: 'xlsx' })).toContain('"parquet"');
    expect(await wrong({ types: { a: 'int' } })).toContain('"int64"');
    expect(await wrong({ maxRows: -1 })).toContain('maxRows');
    expect(await wrong({ delimiter: '""' })).toContain('delimiter');
    expect(await errorOf(readTable('' as string), 'ERR_OPTION')).toContain('a path');
    expect(await errorOf(readTable([]), 'ERR_OPTION')).toContain('a path');
    expect(await errorOf(writeTable(fromRows(rows), at('x.csv'), { fromat: 'csv' } as object), 'ERR_OPTION')).toContain(
      '"format"',
    );
    expect(await errorOf(scanned(at('one.csv'), { batchRows: 0 }), 'ERR_OPTION')).toContain('batchRows');
    expect(await errorOf(writeTable(fromRows(rows), '-'))).toContain('standard output');
  });
});

describe('bytes that come in order', () => {
  const sourceOf = (bytes: Uint8Array, step: number): ByteSource => ({
    name: 'bytes',
    progress: () => undefined,
    async *bytes() {
      for (let at = 0; at < bytes.byteLength; at += step) yield bytes.subarray(at, at + step);
    },
  });

  it('are read as Arrow streams and files, in pieces of any size', async () => {
    const table = fromRows(rows);
    for (const step of [1, 7, 1000, 1 << 20]) {
      for (const format of ['stream', 'file'] as const) {
        const source = () => sourceOf(tableToIPC(table, format), step);
        expect(toRows(await readArrow(source()))).toEqual(rows);
        expect(toRows(await readArrow(source(), { maxRows: 5 }))).toEqual(rows.slice(0, 5));
      }
    }
  });

  it('are read no further than to the last row that is wanted', async () => {
    const part = fromRows(rows);
    const stream = tableToIPC(part.concat(part).concat(part), 'stream');
    const ends: ByteSource = {
      name: 'bytes',
      progress: () => undefined,
      async *bytes() {
        yield stream.subarray(0, stream.length - 1000);
        throw new Error('read too far');
      },
    };
    for (const maxRows of [5, 500, 501]) expect((await readArrow(ends, { maxRows })).numRows).toBe(maxRows);
    await expect(readArrow(ends)).rejects.toThrow('read too far');
    const none = await readArrow(sourceOf(stream, 64), { maxRows: 0 });
    expect([none.numRows, none.numCols]).toEqual([0, 3]);
    let seen = 0;
    for await (const batch of scanArrow(ends, { maxRows: 700 })) seen += batch.numRows;
    expect(seen).toBe(700);
  });

  it('may lack the end marker of a stream, and nothing else', async () => {
    const stream = tableToIPC(fromRows(rows), 'stream');
    expect((await readArrow(sourceOf(stream.subarray(0, stream.length - 8), 100))).numRows).toBe(500);
    for (const length of [0, 3, 8, 100, stream.length - 9, stream.length - 4]) {
      expect(await errorOf(readArrow(sourceOf(stream.subarray(0, length), 64)))).toMatch(/^bytes: not readable as Arrow IPC: /);
    }
  });
});

describe('standard input and output', () => {
  const library = new URL('../../dist/io/index.js', import.meta.url).href;
  const root = fileURLToPath(new URL('../..', import.meta.url));

  /** What a program prints that has these bytes on standard input; all of it goes through pipes. */
  async function run(code: string, input: Uint8Array, read = true): Promise<{ out: string; err: string }> {
    const imports = `import { readTable, scanFiles, writeTable } from '${library}'; import { tableFromArrays } from 'apache-arrow';`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', `${imports}\n${code}`], { cwd: root });
    const said = { out: '', err: '' };
    if (!read) child.stdout.destroy();
    child.stdout.on('data', (text) => {
      said.out += text;
    });
    child.stderr.on('data', (text) => {
      said.err += text;
    });
    child.stdin.end(input);
    await new Promise((resolve) => child.on('close', resolve));
    return said;
  }

  it('carry any format', async () => {
    const table = fromRows(rows);
    await writeTable(table, at('in.parquet'));
    const text = rows.map((row) => JSON.stringify(row)).join('\n');
    const count = "console.log((await readTable('-')).numRows)";
    const copy = "await writeTable(await readTable('-', { format: 'ndjson' }), '-', { format: 'json' })";
    const failing = "await readTable('-').catch(({ code, message }) => console.log(code, message))";
    const [parquet, gzip, json, csv] = await Promise.all([
      run(count, readFileSync(at('in.parquet'))),
      run(count, zlib.gzipSync(tableToIPC(table, 'stream'))),
      run(copy, Buffer.from(text)),
      run(failing, Buffer.from('a,b\n')),
    ]);
    expect([parquet.out, gzip.out]).toEqual(['500\n', '500\n']);
    expect(JSON.parse(json.out)).toEqual(rows);
    expect(csv.out).toMatch(/^ERR_FILE standard input: its first bytes are neither Arrow nor Parquet\. Say its format: "arrow"/);
  });

  it('reject when nobody reads the output', async () => {
    const code = `const table = tableFromArrays({ a: new Int32Array(1e5) });
      await writeTable(table, '-', { format: 'csv' }).catch(({ code, message }) => console.error(code, message));`;
    expect((await run(code, Buffer.alloc(0), false)).err).toMatch(/^ERR_FILE standard output: cannot write: .*EPIPE/);
  });
});
