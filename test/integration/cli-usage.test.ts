/** Mistakes in the command line: exit code 2, in its own words, before anything is read. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import { renamedColumns, targetOf } from '../../lib/cli/output.js';
import { UsageError } from '../../lib/cli/usage.js';
import { fromRows } from '../../lib/index.js';
import { writeTable } from '../../lib/io/index.js';
import { expectFailure, warpjoin, warpjoinWith } from '../support/cli.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-usage-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);

/** The message of the UsageError that a command line ends in, at the latest where its output is checked. */
function usage(...argv: string[]): string {
  try {
    const request = parseCommandLine(argv);
    if (request.kind === 'run') targetOf(request.options);
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    expect((error as Error).message).not.toContain('\n');
    return (error as Error).message;
  }
  return expect.fail(`accepted ${argv.join(' ')}`);
}

describe('options that do not go together', () => {
  it('of joins', () => {
    const join = (...more: string[]) => usage('join', 'a', 'b', ...more);
    expect(join()).toBe('join needs --on COLUMNS, or --left-on and --right-on');
    expect(join('--left-on', 'x')).toBe('--left-on needs --right-on');
    expect(join('--right-on', 'x')).toBe('--right-on needs --left-on');
    expect(join('--on', 'x', '--right-on', 'y')).toBe('--on does not go with --right-on: --on names columns of both files');
    expect(join('--left-on', 'x,y', '--right-on', 'z')).toBe(
      '--left-on names 2 columns and --right-on 1 column: each needs a partner',
    );
    expect(join('--on', 'x,y,x')).toBe('--on names "x" twice');
    for (const other of [
      ['--on', 'x'],
      ['--coalesce'],
      ['--validate', '1:1'],
      ['--algorithm', 'radix-hash'],
      ['--algorithm', 'triton'],
      ['--nulls-equal'],
    ]) {
      expect(join('--how', 'cross', ...other)).toMatch(new RegExp(`^--how cross does not go with ${other[0]}:`));
    }
    expect(usage('explain', 'join', 'a', 'b')).toContain('--on COLUMNS');
    expect(usage('join', '-', '-', '--on', 'x')).toBe('standard input ("-") can be read once, and is named twice');
  });

  it('of sorts and results', () => {
    expect(usage('sort', 'a')).toBe('sort needs --by COLUMNS');
    expect(usage('sort', 'a', '--by', 'x', '--by', 'x:desc')).toBe('--by names "x" twice');
    const sort = (...more: string[]) => usage('sort', 'a', '--by', 'x', ...more);
    expect(sort('--format', 'csv', '--max-rows', '3')).toContain('--limit');
    expect(sort('-o', at('x.csv'), '--max-rows', '3')).toContain('--limit');
    expect(sort('--rename', 'a=b,c=b')).toBe('--rename gives two columns the name "b"');
    expect(sort('--rename', 'a=b,a=c')).toBe('--rename names "a" twice');
  });
});

it('refuses wrong values', () => {
  const sort = (...more: string[]) => usage('sort', 'a', '--by', 'x', ...more);
  expect(sort('--max-rows', '1.5')).toBe('--max-rows needs a whole number but received "1.5"');
  expect(sort('--threads', '0')).toBe('--threads needs a whole number from 1 to 1024 but received "0"');
  expect(sort('--host-devices', '65')).toContain('from 1 to 64');
  expect(sort('--memory-limit', '10 apples')).toContain('--memory-limit needs a size, such as 64GiB');
  expect(sort('--device', 'gpuu')).toBe('--device takes "auto", "cpu" and "gpu" but received "gpuu". Did you mean "gpu"?');
  expect(sort('--format', 'parqet')).toContain('Did you mean "parquet"?');
  expect(sort('--input-format', 'xml')).toContain('--input-format takes "arrow"');
  expect(sort('--stats', 'xml')).toBe('--stats takes "json" but received "xml".');
  expect(sort('--delimiter', ';;')).toContain('--delimiter needs one character');
  expect(sort('--select', 'a,,b')).toBe('--select has an empty column name in "a,,b"');
  expect(sort('--by', 'x:down')).toContain('"down"');
  for (const text of ['a', 'a=', '=b', 'a=b=c'])
    expect(sort('--rename', text)).toBe(`--rename needs OLD=NEW but received "${text}"`);
  expect(sort('--cast', 'a=int')).toContain('--cast: "int" for "a" is not one of "int32"');
  expect(sort('--cast', 'a=decimal(40,2)')).toContain('"decimal(10,2)" with its digits');
  expect(usage('join', 'a', 'b', '--on', 'x', '--how', 'outer')).toContain('Did you mean "full"?');
  expect(usage('completion', 'tcsh')).toContain('"bash", "zsh" and "fish"');
});

it('refuses outputs that can not be written', () => {
  const output = (path: string) => usage('sort', 'a', '--by', 'x', '-o', path);
  expect(output(at('x.zip'))).toMatch(/x\.zip: its name ends in none of .*\.parquet.*; --format says what it is to be/);
  expect(output(at('no/such/x.csv'))).toBe(`--output ${at('no/such/x.csv')}: there is no folder ${at('no/such')}`);
  mkdirSync(at('folder.csv'));
  expect(output(at('folder.csv'))).toBe(`--output ${at('folder.csv')} is a directory: name a file in it`);
  writeFileSync(at('file'), '');
  expect(output(at('file/x.csv'))).toContain('there is no folder');
  if (Number(process.versions.node.split('.')[0]) < 22) expect(output(at('x.csv.zst'))).toMatch(/Node\.js 22\.15 or later/);
  if (process.getuid!() === 0) return; // root writes anywhere
  mkdirSync(at('closed'), { mode: 0o500 });
  expect(output(at('closed/x.csv'))).toContain("can't be written");
  chmodSync(at('closed'), 0o700);
});

describe('columns that are not there', () => {
  beforeAll(async () => {
    const table = fromRows(Array.from({ length: 10 }, (_, id) => ({ id, name: `n${id}` })));
    await writeTable(table, at('left.arrow'));
    await writeTable(table, at('left.csv'));
    writeFileSync(at('right.csv'), 'id,name,score\n1,one,5\n');
  });
  const join = (...more: string[]) => warpjoin('join', at('left.arrow'), at('right.csv'), ...more);

  it('are refused by option, file and nearest name', async () => {
    const cases = [
      join('--on', 'idd').then((outcome) =>
        expectFailure(
          outcome,
          2,
          /--on: LEFT \(.*left\.arrow\) has no column "idd"\. Did you mean "id"\? It has "id" and "name"/,
        ),
      ),
      join('--left-on', 'id', '--right-on', 'nam').then((outcome) =>
        expectFailure(outcome, 2, /--right-on: RIGHT \(.*right\.csv\)/),
      ),
      join('--on', 'id', '--select', 'id,scor').then((outcome) =>
        expectFailure(
          outcome,
          2,
          /--select: the join has no column "scor"\. Did you mean "score"\? It has "id", "name", "name_right"/,
        ),
      ),
      join('--on', 'id', '--rename', 'x=y').then((outcome) =>
        expectFailure(outcome, 2, /--rename: the result has no column "x"/),
      ),
      join('--on', 'id', '--rename', 'id=name').then((outcome) =>
        expectFailure(outcome, 2, /two columns would have the name "name"/),
      ),
      join('--on', 'id', '--cast', 'x=utf8').then((outcome) =>
        expectFailure(outcome, 2, /--cast: .*left\.arrow and .*right\.csv has no column "x"/),
      ),
      warpjoin('head', at('left.csv'), '--select', 'nam').then((outcome) => expectFailure(outcome, 2, /--select: .*left\.csv/)),
      warpjoin('unique', at('left.arrow'), '--on', 'ix').then((outcome) => expectFailure(outcome, 2, /--on: .*left\.arrow/)),
      ...['csv', 'ndjson'].map((format) =>
        warpjoinWith(
          format === 'csv' ? 'a,b\n1,2\n' : '{"a":1}\n',
          'head',
          '-',
          '--input-format',
          format,
          '--cast',
          'c=utf8',
        ).then((outcome) => expectFailure(outcome, 2, /standard input: --cast has "c", which is no column of the file/)),
      ),
      warpjoinWith('a,b\n1,2\n', 'sort', '-', '--input-format', 'csv', '--by', 'c').then((outcome) =>
        expectFailure(outcome, 2, /--by: standard input has no column "c"/),
      ),
    ];
    await Promise.all(cases);
  });

  it('are refused before the rows are read', async () => {
    // The rows of these files are damaged, which nobody notices.
    const text = 'id,name\n1,one\n';
    writeFileSync(at('damaged.csv'), `${text}${`2,${'x'.repeat(200)}\n`.repeat(20_000)}x\n`);
    expectFailure(await warpjoin('sort', at('damaged.csv'), '--by', 'nam'), 2, /--by/);
    expectFailure(await warpjoin('sort', at('damaged.csv'), '--by', 'name'), 1, /damaged\.csv:20003/);
  });
});

it('gives the columns of a result new names', () => {
  const options = (text: string) => {
    const request = parseCommandLine(['sort', 'a', '--by', 'x', '--rename', text]);
    return request.kind === 'run' ? request.options : expect.fail(request.kind);
  };
  expect(renamedColumns(['a', 'b'], options('a=b,b=a'))).toEqual(['b', 'a']);
  expect(renamedColumns(['a=1', 'b'], options('a\\=1=x\\,y'))).toEqual(['x,y', 'b']);
  expect(() => renamedColumns(['a', 'b'], options('a=b'))).toThrow('two columns would have the name "b"');
});
