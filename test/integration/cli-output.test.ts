/** What the command prints and writes: formats, names, types and rows of results. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Decimal, Float32, Float64, type Table, tableFromIPC, Utf8, vectorFromArray } from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import { joinOperation, uniqueOperation } from '../../lib/cli/operations.js';
import { describeRows, targetOf } from '../../lib/cli/output.js';
import { progressLine } from '../../lib/cli/progress.js';
import { renderMarkdown, renderTable } from '../../lib/cli/table.js';
import { escaped, truncated, widthOf } from '../../lib/cli/width.js';
import { createEngine, fromColumns, fromRows, toRows } from '../../lib/index.js';
import { readTable, writeTable } from '../../lib/io/index.js';
import { expectFailure, printed, start, warpjoin, warpjoinWith } from '../support/cli.js';
import { readTrace } from '../support/traces.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-output-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);
const typesOf = ({ schema }: Table) => Object.fromEntries(schema.fields.map(({ name, type }) => [name, String(type)]));
const rows = Array.from({ length: 30 }, (_, id) => ({ id, name: `n${id % 3}`, total: id / 4 }));

beforeAll(async () => {
  mkdirSync(at('orders'));
  await writeTable(fromRows(rows.slice(0, 20)), at('orders/1.parquet'));
  await writeTable(fromRows(rows.slice(20)), at('orders/2.parquet'));
  writeFileSync(at('names.csv'), 'key,label,zip\nn0,zero,007\nn1,one,010\n');
});
const orders = () => at('orders/*.parquet');

describe('results', () => {
  const first = ['--by', 'id:desc', '--limit', '2', '--select', 'id,total'];

  it('are printed in the format that is asked for', async () => {
    const [json, ndjson, csv, tsv, markdown, arrow] = await Promise.all([
      printed('sort', orders(), ...first, '--format', 'json'),
      printed('sort', orders(), ...first, '--format', 'ndjson', '-o', '-'),
      printed('sort', orders(), ...first, '--format', 'csv'),
      printed('sort', orders(), ...first, '--format', 'tsv'),
      printed('sort', orders(), ...first, '--format', 'markdown'),
      start(['sort', orders(), ...first, '--format', 'arrow', '-q']).bytes,
    ]);
    const wanted = [
      { id: 29, total: 7.25 },
      { id: 28, total: 7 },
    ];
    expect(JSON.parse(json)).toEqual(wanted);
    expect(ndjson).toBe(wanted.map((row) => `${JSON.stringify(row)}\n`).join(''));
    expect(csv).toBe('id,total\n29,7.25\n28,7\n');
    expect(tsv).toBe('id\ttotal\n29\t7.25\n28\t7\n');
    expect(markdown).toBe('|  id | total |\n| --: | ----: |\n|  29 |  7.25 |\n|  28 |     7 |\n');
    expect(toRows(tableFromIPC(arrow))).toEqual(wanted);
  });

  it('are written in the format that the name or the option states', async () => {
    const sort = (...more: string[]) => printed('sort', orders(), ...first, ...more);
    await Promise.all(
      ['a.parquet', 'a.json.gz', 'a.md'].map((name) => sort('-o', at(name))).concat(sort('-o', at('a.txt'), '--format', 'csv')),
    );
    expect(toRows(await readTable(at('a.parquet')))).toHaveLength(2);
    expect(JSON.parse(gunzipSync(readFileSync(at('a.json.gz'))).toString())).toHaveLength(2);
    expect(readFileSync(at('a.md'), 'utf8')).toContain('|  29 |  7.25 |');
    expect(readFileSync(at('a.txt'), 'utf8')).toBe('id,total\n29,7.25\n28,7\n');
  });

  it('have other names and types', async () => {
    const cast = ['--cast', 'total=decimal(6,3),id=utf8', '--rename', 'id=order,total=sum'];
    await printed('sort', orders(), '--by', 'id', '--select', 'total,id', ...cast, '-o', at('cast.arrow'));
    const table = await readTable(at('cast.arrow'));
    expect(typesOf(table)).toEqual({ sum: 'Decimal[6e+3]', order: 'Utf8' });
    expect(toRows(table)[2]).toEqual({ sum: '2.500', order: '10' }); // 0, 1, 10: ordered as text
    // A zip code is text where that is said before the file is read.
    const zips = ['sort', at('names.csv'), '--by', 'zip', '--cast', 'zip=utf8', '--format', 'csv', '--select', 'zip'];
    expect(await printed(...zips)).toBe('zip\n007\n010\n');
    const wrong = await warpjoin('sort', orders(), '--by', 'id', '--cast', 'name=int32', '-q');
    expectFailure(wrong, 1, /column "name", row 0: "n0" is no int32/);
  });

  it('come of files and of standard input', async () => {
    const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
    const join = [
      'join',
      '-',
      at('names.csv'),
      '--left-on',
      'name',
      '--right-on',
      'key',
      '--input-format',
      'ndjson',
      '--maintain-order',
      'left',
    ];
    const joined = await warpjoinWith(lines, ...join, '--select', 'id,label', '--limit', '3', '--format', 'csv', '-q');
    expect(joined).toMatchObject({ code: 0, err: '', out: 'id,label\n0,zero\n1,one\n3,zero\n' });
    const parquet = await warpjoinWith(readFileSync(at('orders/2.parquet')), 'count', '-');
    expect(parquet).toMatchObject({ code: 0, out: '10\n' });
    const unknown = await warpjoinWith('a,b\n', 'head', '-');
    expectFailure(unknown, 2, /standard input: its first bytes .*; --input-format says what it is: arrow/);
    const mixed = await warpjoinWith('{"a":1}\n{"a":"x"}\n', 'head', '-', '--input-format', 'ndjson');
    expectFailure(mixed, 1, /standard input: .*numbers.*strings.*with --cast/);
  });

  it('give statistics on stderr where the result is on stdout', async () => {
    const { out, err, code } = await warpjoin('sort', orders(), ...first, '--format', 'csv', '--stats', 'json', '-q');
    expect(code).toBe(0);
    expect(out).toBe('id,total\n29,7.25\n28,7\n');
    expect(JSON.parse(err)).toMatchObject({ command: 'sort', inputs: [{ rows: 30 }], output: { path: null, rows: 2 } });
  });

  it('leave a trace where one is asked for', async () => {
    for (const command of [
      ['sort', orders(), '--by', 'id'],
      ['unique', orders(), '--on', 'name'],
      ['join', orders(), orders(), '--on', 'id'],
    ]) {
      await printed(...command, '--trace', at('trace.json'));
      expect(readTrace(at('trace.json')).get('host/steps')!.length).toBeGreaterThan(0);
      rmSync(at('trace.json'));
    }
    const refused = await warpjoin('sort', orders(), '--by', 'id', '--trace', at('none/trace.json'));
    expectFailure(refused, 2, /The trace can't be written to .*none/);
  });

  it('end quietly where the reader of a pipe has seen enough', () => {
    const main = new URL('../../dist/cli/main.js', import.meta.url).pathname;
    writeFileSync(at('long.csv'), `id\n${Array.from({ length: 100_000 }, (_, id) => id).join('\n')}\n`);
    const line = `set -o pipefail; "$0" "${main}" sort "${at('long.csv')}" --by id --format ndjson -q | head -n 1`;
    const out = execFileSync('bash', ['-c', line, process.execPath], { stdio: ['ignore', 'pipe', 'pipe'] });
    expect(out.toString()).toBe('{"id":0}\n');
  });
});

describe('previews', () => {
  const optionsOf = (...words: string[]) => {
    const request = parseCommandLine(words);
    return request.kind === 'run' ? request.options : expect.fail(request.kind);
  };
  const running = { signal: new AbortController().signal };

  it('make the rows that they show, and count the others', async () => {
    await using engine = await createEngine({ device: 'cpu' });
    const left = fromColumns({
      id: Int32Array.from({ length: 1000 }, (_, i) => i % 10),
      row: Int32Array.from({ length: 1000 }, (_, i) => i),
    });
    const right = fromColumns({ id: Int32Array.from({ length: 50 }, (_, i) => i % 10) });
    const join = (shown: number, ...more: string[]) =>
      joinOperation(optionsOf('join', 'a', 'b', '--on', 'id', ...more)).run(engine, [left, right], shown, running);
    const shown = await join(10);
    expect([shown.table.numRows, shown.count.rows]).toEqual([10, 5000]);
    expect((shown.stats as { outputRows: number }).outputRows).toBe(10);
    expect((await join(10, '--limit', '4')).count).toEqual({ rows: 4 });
    expect((await join(10, '--limit', '400', '--offset', '4900')).count).toEqual({ rows: 100 });
    expect((await join(Number.POSITIVE_INFINITY)).table.numRows).toBe(5000);

    const unique = (shown: number, ...more: string[]) =>
      uniqueOperation(optionsOf('unique', 'a', '--on', 'id', ...more)).run(engine, [left], shown, running);
    const some = await unique(3, '--keep', 'last', '--maintain-order');
    expect(some.count.rows).toBe(10);
    expect(toRows(some.table)).toEqual([990, 991, 992].map((row) => ({ id: row % 10, row })));
    expect(toRows((await unique(3, '--select', 'row', '--maintain-order')).table)).toEqual([{ row: 0 }, { row: 1 }, { row: 2 }]);
    expect((await unique(100)).table.numRows).toBe(10);
    const limited = [await unique(100, '--limit', '4'), await unique(Number.POSITIVE_INFINITY, '--limit', '4')];
    for (const { table, count } of limited) expect([table.numRows, count.rows]).toEqual([4, 4]);
    expect((await uniqueOperation(optionsOf('unique', 'a')).run(engine, [left], 2, running)).count.rows).toBe(1000);
  });

  it('say how many rows there are', async () => {
    expect(describeRows(10, { rows: 1 })).toBe('1 row');
    expect(describeRows(10, { rows: 1234 })).toBe('first 10 of 1,234 rows');
    expect(describeRows(10, { rows: 10, more: true })).toBe('first 10 rows; there are more');
    const out = await printed('join', orders(), at('names.csv'), '--left-on', 'name', '--right-on', 'key', '--max-rows', '2');
    expect(out.trim().split('\n')).toHaveLength(6);
    expect(out).toMatch(/\nfirst 2 of 20 rows\n$/);
  });

  it('show all rows in a file', () => {
    expect(targetOf(optionsOf('sort', 'a', '--by', 'x')).shownRows).toBe(10);
    expect(targetOf(optionsOf('sort', 'a', '--by', 'x', '-o', at('x.md'))).shownRows).toBe(Number.POSITIVE_INFINITY);
    expect(targetOf(optionsOf('sort', 'a', '--by', 'x', '--format', 'csv')).shownRows).toBe(Number.POSITIVE_INFINITY);
    expect(targetOf(optionsOf('sort', 'a', '--by', 'x', '--max-rows', '0')).shownRows).toBe(0);
  });
});

describe('printed tables', () => {
  it('show numbers as they are, to the right', () => {
    const table = fromColumns({
      dec: vectorFromArray(
        [Uint32Array.of(1250, 0, 0, 0), Uint32Array.of(4294967291, 4294967295, 4294967295, 4294967295)],
        new Decimal(2, 10),
      ),
      f32: vectorFromArray([0.1, 1e21], new Float32()),
      f64: vectorFromArray([0.1, -0], new Float64()),
      big: [2n ** 62n, null],
    });
    const lines = renderTable(table, 2).split('\n');
    expect(lines.slice(3).map((line) => line.trim().split(/\s+/))).toEqual([
      ['12.50', '0.1', '0.1', '4611686018427387904'],
      ['-0.05', '1e+21', '-0', 'null'],
    ]);
    expect(new Set(lines.map((line) => line.length)).size).toBe(1);
  });

  it('align wide characters, emoji and marks', () => {
    expect(['日本', 'ｗ', 'e\u0301', '👩‍👩‍👧', '🇩🇪', '❤️', '한', 'ab', '\u200b'].map(widthOf)).toEqual([
      4, 2, 1, 2, 2, 2, 2, 2, 0,
    ]);
    const table = fromColumns({ t: ['日本語', 'e\u0301', '👩‍👩‍👧 x', 'plain'], n: [1, 2, 3, 4] });
    const lines = renderTable(table, 4).split('\n');
    expect(lines.slice(3).map(widthOf)).toEqual(Array(4).fill(widthOf(lines[2]!)));
    expect(lines[3]).toBe('日本語      1');
    expect(truncated('日本語', 4)).toBe('日…');
    expect(truncated('👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧', 5)).toBe('👩‍👩‍👧👩‍👩‍👧…');
  });

  it('escape what would move the cursor', () => {
    expect(escaped('a\nb\tc\x1b[31m\x9b\u202e\u2028\ud800')).toBe('a\\nb\\tc\\x1b[31m\\x9b\\u202e\\u2028\\ud800');
    const table = fromColumns({ 'na\nme': vectorFromArray(['x\r\ny', null], new Utf8()) });
    expect(renderTable(table, 2).split('\n')).toHaveLength(5);
    expect(renderTable(table, 2)).toContain('x\\r\\ny');
  });

  it('cut long cells on a terminal alone', () => {
    const table = fromColumns({ t: ['x'.repeat(100)], u: [1] });
    expect(renderTable(table, 1)).toContain('x'.repeat(100));
    const lines = renderTable(table, 1, 60).split('\n');
    expect(lines[3]).toBe(`${'x'.repeat(39)}…      1`);
    expect(
      renderTable(table, 1, 20)
        .split('\n')
        .map(widthOf)
        .every((width) => width <= 20),
    ).toBe(true);
  });

  it('are Markdown, with its characters escaped', () => {
    const table = fromColumns({ 'a|b': ['x|y\\z\n', null], n: [1, 22] });
    expect(renderMarkdown(table, 2).split('\n')).toEqual([
      '| a\\|b       |   n |',
      '| ---------- | --: |',
      '| x\\|y\\\\z\\\\n |   1 |',
      '| null       |  22 |',
    ]);
  });
});

it('shows on a terminal how far it has read', async () => {
  writeFileSync(
    at('read.ndjson'),
    rows
      .map((row) => `${JSON.stringify(row)}\n`)
      .join('')
      .repeat(2000),
  );
  let shown = '';
  const terminal = { isTTY: true, columns: 80, write: (text: string) => (shown += text) } as unknown as NodeJS.WriteStream;
  const line = progressLine(terminal, false);
  await readTable(at('read.ndjson'), { onProgress: ({ file, fraction }) => line.show(`reading ${file}`, fraction) });
  line.clear();
  expect(shown).toMatch(/█+░+ +\d+ % {2}reading /);
  expect(shown.endsWith('\r\x1b[2K')).toBe(true);
  shown = '';
  const now = vi.spyOn(performance, 'now').mockReturnValue(1000);
  const long = progressLine(terminal, false);
  long.show('sort x', 0);
  for (const [time, fraction, text] of [
    [2500, 0.5, '█ 50 %  sort x'],
    [4000, 0.04, '4 %  sort x'],
    [11_000, 0.25, '25 %  30 s left, sort x'],
    [41_000, 0.1, '10 %  6 min left, sort x'],
  ] as const) {
    now.mockReturnValue(time);
    long.show('sort x', fraction);
    expect(shown.replaceAll('░', '').replaceAll(/█ +/g, '█ ')).toContain(text.replace('█ ', ''));
  }
  now.mockRestore();
  shown = '';
  progressLine(terminal, true).show('reading x', 0.5);
  expect(shown).toBe('');
});
