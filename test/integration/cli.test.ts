import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  DateDay,
  Decimal,
  Dictionary,
  Field,
  FixedSizeBinary,
  FixedSizeList,
  Int8,
  Int32,
  Int64,
  List,
  Schema,
  Struct,
  Table,
  TimestampMicrosecond,
  TimestampSecond,
  tableToIPC,
  Utf8,
  Utf8View,
  vectorFromArray,
} from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseCommandLine } from '../../lib/cli/arguments.js';
import { commandHelp, commandNames, commands } from '../../lib/cli/spec.js';
import { renderTable } from '../../lib/cli/table.js';
import { UsageError } from '../../lib/cli/usage.js';
import { parseBy } from '../../lib/cli/values.js';
import { readTable } from '../../lib/io/index.js';
import { expectFailure, start, warpjoin } from '../support/cli.js';

const datasets = fileURLToPath(new URL('../../node_modules/vega-datasets/data/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'warpjoin-cli-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);

/** Opens a pipe to write as soon as somebody has opened it to read. */
async function writerOf(pipe: string): Promise<number> {
  for (;;) {
    try {
      return openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error;
      await wait(10);
    }
  }
}

beforeAll(() => {
  writeFileSync(at('left.csv'), 'id,name\n1,one\n2,two\n2,deux\n,none\n5,five\n');
  writeFileSync(at('right.csv'), 'id,name,score\n2,zwei,0.5\n1,eins,1.5\n7,sieben,\n');
  writeFileSync(at('keyed.csv'), 'code;score\n1;10\n');
});

describe('command lines', () => {
  const usage = (...argv: string[]) => {
    try {
      parseCommandLine(argv);
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError);
      return (error as Error).message;
    }
    return expect.fail(`accepted ${argv.join(' ')}`);
  };

  it('are read option by option', () => {
    const request = parseCommandLine([
      'join',
      '--how=left',
      'a',
      '-o',
      'out',
      'b',
      '--on',
      'x,y\\,z',
      '-q',
      '--host-devices',
      '3',
    ]);
    if (request.kind !== 'run') return expect.fail(request.kind);
    expect(request.command).toBe('join');
    expect(request.operands).toEqual(['a', 'b']);
    expect(request.options.text('how')).toBe('left');
    expect(request.options.text('output')).toBe('out');
    expect(request.options.names('on')).toEqual(['x', 'y,z']);
    expect(request.options.has('quiet')).toBe(true);
    expect(request.options.count('host-devices')).toBe(3);
    expect(request.options.count('max-rows')).toBeUndefined();
  });

  it('take a "--" before names that start with a dash', () => {
    const request = parseCommandLine(['sort', '--by=-x', '--', '-file.csv']);
    expect(request.kind === 'run' && [request.operands, request.options.text('by')]).toEqual([['-file.csv'], '-x']);
  });

  it('are refused with the nearest name', () => {
    expect(usage('joun')).toContain('"join"');
    expect(usage('join', 'a', 'b', '--onn', 'x')).toContain('"--on"');
    expect(usage('join', 'a', 'b', '--memory-limt', 'x')).toContain('"--memory-limit"');
    expect(usage('sort', 'a', '--sufix', 'x')).not.toContain('Did you mean');
  });

  it('are refused for a missing, extra or doubled value', () => {
    expect(usage('join', 'a')).toContain('LEFT and RIGHT');
    expect(usage('sort', '--by', 'x')).toContain('FILE');
    expect(usage('devices', 'a')).toContain('no files');
    expect(usage('join', 'a', 'b', '--on')).toContain('--on needs a value');
    expect(usage('join', 'a', 'b', '--on', '--how')).toContain('--on needs a value');
    expect(usage('join', 'a', 'b', '--quiet=yes')).toContain('takes no value');
    expect(usage('join', 'a', 'b', '--on', 'x', '--on', 'y')).toContain('twice');
    expect(usage('explain')).toContain('"join", "sort" or "unique"');
    expect(usage('--on', 'x')).toContain('COMMAND');
    expect(usage()).toContain('command is missing');
  });

  it('name sort columns', () => {
    const column = (name: string, descending = false, nullsLast = true) => ({ column: name, descending, nullsLast });
    expect(parseBy(['country,ts:desc:nulls-first', 'a\\:b\\,c:asc:nulls-last'])).toEqual([
      column('country'),
      column('ts', true, false),
      column('a:b,c'),
    ]);
    expect(() => parseBy(['ts:dessc'])).toThrow('"desc"');
    expect(() => parseBy(['a,,b'])).toThrow('empty column name');
  });

  it('have help for every option of every command', () => {
    for (const name of commandNames) {
      const help = commandHelp(name);
      for (const option of Object.keys(commands[name].options)) expect(help).toContain(`--${option}`);
      expect(help).toContain('Examples:');
      for (const example of commands[name].examples) {
        const words = example
          .replace(/ [|<>].*/, '')
          .split(' ')
          .slice(1);
        expect(parseCommandLine(words).kind, example).toBe('run');
      }
    }
  });
});

describe('the warpjoin command', () => {
  it('shows help and its version', async () => {
    const version = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')).version;
    expect(await warpjoin('--version')).toEqual({ code: 0, out: `${version}\n`, err: '' });
    const general = await warpjoin('--help');
    expect(general.code).toBe(0);
    for (const name of commandNames) expect(general.out).toContain(name);
    expect((await warpjoin('join', '--help')).out).toContain('--left-on');
    expect((await warpjoin('help', 'sort')).out).toContain('--by');
  });

  it('tells usage from failure by the exit code', async () => {
    expectFailure(await warpjoin('joun'), 2, /Did you mean "join"/);
    expectFailure(await warpjoin('join', at('left.csv'), at('right.csv'), '--on', 'id', '--how', 'outer'), 2, /full/);
    expectFailure(await warpjoin('sort', at('left.csv')), 2, /--by/);
    expectFailure(await warpjoin('sort', at('left.csv'), '--by', 'id', '--memory-limit', 'lots'), 2, /lots/);
    expectFailure(
      await warpjoin('sort', at('left.csv'), '--by', 'nam'),
      2,
      /--by: .*left\.csv has no column "nam"\. Did you mean "name"/,
    );
    expectFailure(await warpjoin('sort', at('none.csv'), '--by', 'id'), 1, /none\.csv: no such file/);
    expectFailure(
      await warpjoin('sort', at('left.csv'), '--by', 'id', '-o', at('x.zip')),
      2,
      /--output .*x\.zip.*\.parquet.*--format/,
    );
    expectFailure(
      await warpjoin('join', at('left.csv'), at('right.csv'), '--left-on', 'name', '--right-on', 'score'),
      1,
      /name|score/,
    );
  });

  it('joins files to a file', async () => {
    const { code, out, err } = await warpjoin('join', at('left.csv'), at('right.csv'), '--on', 'id', '-o', at('joined.arrow'));
    expect({ code, out }).toEqual({ code: 0, out: '' });
    expect(err).toContain('3 rows');
    const rows = (await readTable(at('joined.arrow'))).toArray().map((row) => ({ ...row.toJSON() }));
    expect(rows.map((row) => `${row.id} ${row.name} ${row.name_right} ${row.score}`).sort()).toEqual([
      '1 one eins 1.5',
      '2 deux zwei 0.5',
      '2 two zwei 0.5',
    ]);
  });

  it('passes the options of a join on', async () => {
    const { code } = await warpjoin(
      ...['join', at('left.csv'), at('keyed.csv'), '--left-on', 'id', '--right-on', 'column1', '--how', 'left'],
      ...['--no-header', '--select', 'column1', '-o', at('refused.csv')],
    );
    expect(code).toBe(2); // without a header there is no column "id"
    const joined = await warpjoin(
      ...['join', at('left.csv'), at('right.csv'), '--on', 'id', '--how', 'full', '--suffix', '2', '--select', 'name,name2'],
      ...['--algorithm', 'sort-merge', '--host-devices', '2', '--memory-limit', '1GiB', '-o', at('full.csv'), '-q'],
    );
    expect(joined).toEqual({ code: 0, out: '', err: '' });
    const [header, ...lines] = readFileSync(at('full.csv'), 'utf8').trim().split('\n');
    expect(header).toBe('name,name2');
    expect(lines.sort()).toEqual([',sieben', 'deux,zwei', 'five,', 'none,', 'one,eins', 'two,zwei']);
    const on = ['--left-on', 'id', '--right-on', 'id', '--how', 'full', '--coalesce', '--select', 'id,name_right'];
    const coalesced = await warpjoin('join', at('left.csv'), at('right.csv'), ...on, '-o', at('coalesced.csv'), '-q');
    expect(coalesced).toEqual({ code: 0, out: '', err: '' });
    const rows = readFileSync(at('coalesced.csv'), 'utf8').trim().split('\n').slice(1);
    expect(rows.sort()).toEqual([',', '1,eins', '2,zwei', '2,zwei', '5,', '7,sieben']);
  });

  it('joins in the order of a side, and gives some of its rows', async () => {
    const files = [at('left.csv'), at('right.csv'), '--on', 'id', '--select', 'name,name_right', '-q'];
    const some = ['--maintain-order', 'left', '--offset', '1', '--limit', '1', '-o', at('some.csv')];
    expect(await warpjoin('join', ...files, ...some)).toEqual({ code: 0, out: '', err: '' });
    expect(readFileSync(at('some.csv'), 'utf8').trim().split('\n')).toEqual(['name,name_right', 'two,zwei']);
    expectFailure(await warpjoin('join', ...files, '--max-output-rows', '1'), 1, /gives 3 rows, more than the 1 allowed/);
    expectFailure(await warpjoin('join', ...files, '--validate', '1:m'), 1, /rows 1 and 2 have the same: "id" 2\./);
    expectFailure(await warpjoin('join', ...files, '--maintain-order', 'both'), 2, /left_right/);
  });

  it('keeps one row of each key', async () => {
    const unique = ['unique', at('left.csv'), '--on', 'id', '--maintain-order', '-o', at('unique.csv'), '-q'];
    expect(await warpjoin(...unique, '--keep', 'last')).toEqual({ code: 0, out: '', err: '' });
    expect(readFileSync(at('unique.csv'), 'utf8').trim().split('\n')).toEqual(['id,name', '1,one', '2,deux', ',none', '5,five']);
    expectFailure(
      await warpjoin(...unique, '--keep', 'some'),
      2,
      /--keep takes "first", "last", "any" and "none" but received "some"/,
    );
    const explained = await warpjoin('explain', 'unique', at('left.csv'), '--on', 'id', '--analyze');
    expect(explained).toMatchObject({ code: 0 });
    expect(explained.out).toMatch(/^unique by "id": hash/);
  });

  it('joins by several columns, whose nulls may be equal', async () => {
    writeFileSync(at('one.csv'), 'a,b,x\n1,p,10\n1,q,11\n,p,12\n');
    writeFileSync(at('other.csv'), 'a,c,y\n1,q,20\n,p,21\n1,r,22\n');
    const on = ['join', at('one.csv'), at('other.csv'), '--left-on', 'a,b', '--right-on', 'a,c', '-q', '-o', at('several.csv')];
    const rows = async (...more: string[]) => {
      expect(await warpjoin(...on, ...more)).toEqual({ code: 0, out: '', err: '' });
      return readFileSync(at('several.csv'), 'utf8').trim().split('\n').sort();
    };
    expect(await rows()).toEqual(['1,q,11,20', 'a,b,x,y']);
    expect(await rows('--nulls-equal')).toEqual([',p,12,21', '1,q,11,20', 'a,b,x,y']);
    expectFailure(await warpjoin('join', at('one.csv'), at('other.csv'), '--on', 'a,a'), 2, /--on names "a" twice/);
  });

  it('prints the first rows without an output', async () => {
    const { code, out } = await warpjoin('sort', at('left.csv'), '--by', 'id:desc:nulls-first,name', '--max-rows', '4');
    expect(code).toBe(0);
    const lines = out.trim().split('\n');
    expect(lines[0]).toMatch(/^\s*id\s+name$/);
    expect(lines.slice(3, 7).map((line) => line.trim().split(/\s+/))).toEqual([
      ['null', 'none'],
      ['5', 'five'],
      ['2', 'deux'],
      ['2', 'two'],
    ]);
    expect(lines.at(-1)).toBe('first 4 of 5 rows');
  });

  it('gives statistics as JSON, on stdout when the result goes to a file', async () => {
    const toFile = await warpjoin('sort', at('left.csv'), '--by', 'name', '-o', at('s.parquet'), '--stats', 'json');
    const report = JSON.parse(toFile.out);
    expect(report).toMatchObject({ command: 'sort', inputs: [{ rows: 5 }], output: { rows: 5, path: at('s.parquet') } });
    expect(report.stats).toBeTypeOf('object');
    const printed = await warpjoin('sort', at('left.csv'), '--by', 'name', '--stats', 'json', '-q');
    expect(JSON.parse(printed.err).output).toMatchObject({ rows: 5, path: null });
    expectFailure(await warpjoin('sort', at('left.csv'), '--by', 'name', '--stats', 'xml'), 2, /xml/);
  });

  it('explains joins and sorts, and lists devices', async () => {
    const join = await warpjoin('explain', 'join', at('left.csv'), at('right.csv'), '--on', 'id');
    expect(join.code).toBe(0);
    expect(join.out.length).toBeGreaterThan(20);
    const sort = await warpjoin('explain', 'sort', at('left.csv'), '--by', 'id', '--analyze');
    expect(sort.code).toBe(0);
    expect(sort.out.length).toBeGreaterThan(20);
    const devices = await warpjoin('devices', '--host-devices', '3');
    expect(
      devices.out
        .trim()
        .split('\n')
        .filter((line) => line.startsWith('host')),
    ).toHaveLength(3);
  });

  it('stops at an interrupt with 130 and leaves no file', async () => {
    const output = at('interrupted.csv');
    const { child, ended } = start(['sort', join(datasets, 'flights-3m.parquet'), '--by', 'distance', '-o', output]);
    const writing = () => readdirSync(folder).some((name) => name.startsWith('.interrupted.csv'));
    while (!writing() && child.exitCode === null) await wait(5);
    child.kill('SIGINT');
    const outcome = await ended;
    expectFailure(outcome, 130, /interrupted/);
    expect(readdirSync(folder).filter((name) => name.includes('interrupted'))).toEqual([]);
  }, 60_000);

  it('ends at the first signal while it reads a pipe that nobody writes to', async () => {
    execFileSync('mkfifo', [at('silent.csv')]);
    const { child, ended } = start(['sort', at('silent.csv'), '--by', 'id']);
    const writer = await writerOf(at('silent.csv'));
    child.kill('SIGTERM');
    expect((await ended).err).toBe('warpjoin: interrupted\n');
    // By itself, where the signal comes before the first read.
    expect(['SIGTERM', 143]).toContain(child.signalCode ?? child.exitCode);
    closeSync(writer);
  });

  it('refuses a damaged Arrow file in one line', async () => {
    const bytes = tableToIPC(await readTable(at('left.csv')), 'file');
    bytes[8]! ^= 1;
    writeFileSync(at('damaged.arrow'), bytes);
    expectFailure(await warpjoin('sort', at('damaged.arrow'), '--by', 'id'), 1, /damaged\.arrow: not readable as Arrow IPC: /);
  });

  it('writes through symbolic links, whole or not at all, and keeps permissions', async () => {
    mkdirSync(at('elsewhere'));
    const target = at('elsewhere/target.csv');
    symlinkSync('elsewhere/target.csv', at('link.csv'));
    symlinkSync(at('link.csv'), at('second.csv'));
    for (const what of ['a target that is not there yet', 'one that is']) {
      const { code, err } = await warpjoin('sort', at('left.csv'), '--by', 'name', '-q', '-o', at('second.csv'));
      expect([code, err], what).toEqual([0, '']);
      expect([readlinkSync(at('link.csv')), readlinkSync(at('second.csv'))]).toEqual(['elsewhere/target.csv', at('link.csv')]);
      expect(readFileSync(target, 'utf8')).toMatch(/^id,name\n2,deux\n/);
      if (what === 'one that is') expect(statSync(target).mode & 0o777).toBe(0o640);
      chmodSync(target, 0o640);
    }
    await warpjoin('sort', at('left.csv'), '--by', 'nothing', '-q', '-o', at('second.csv'));
    expect(readFileSync(target, 'utf8')).toMatch(/^id,name\n2,deux\n/);
    expect(readdirSync(at('elsewhere'))).toEqual(['target.csv']);
    symlinkSync(at('loop.csv'), at('loop.csv'));
    expectFailure(
      await warpjoin('sort', at('left.csv'), '--by', 'id', '-o', at('loop.csv')),
      1,
      /loop\.csv: too many symbolic links/,
    );
  });

  it('ends quietly when nobody reads its output', async () => {
    const { child, ended } = start(['sort', at('left.csv'), '--by', 'id', '-q']);
    child.stdout.destroy();
    expect(await ended).toMatchObject({ code: 0, err: '' });
  });
});

it('names types as its messages do', () => {
  const types = [
    new Decimal(2, 10),
    new Int64(),
    new TimestampMicrosecond('UTC'),
    new DateDay(),
    new FixedSizeBinary(3),
    new Utf8(),
  ];
  const schema = new Schema(types.map((type, i) => new Field(`column${i}`, type)));
  expect(renderTable(new Table(schema, []), 1).split('\n')[1]!.trim().split(/ {2,}/)).toEqual([
    'decimal128(10, 2)',
    'int64',
    'timestamp[us, UTC]',
    'date32',
    'fixed_size_binary(3)',
    'utf8',
  ]);
});

it('prints wide tables within the width', async () => {
  const table = await readTable(join(datasets, 'airports.csv'));
  const text = renderTable(table, 3, 60);
  expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(60);
  expect(text).toMatch(/\(\d more columns\)$/);
  expect(renderTable(table, 3).split('\n')).toHaveLength(6);
});

it('shows nested values whole', () => {
  const item = new Dictionary(new Utf8(), new Int32());
  const point = new Struct([new Field('x', new Int32(), true), new Field('at', new TimestampSecond('UTC'), true)]);
  const table = new Table({
    list: vectorFromArray([['a', null], [], null], new List(new Field('item', item, true))),
    pair: vectorFromArray([[1, 2], [3, null], null], new FixedSizeList(2, new Field('item', new Int8(), true))),
    point: vectorFromArray([{ x: 1, at: 0 }, { x: null, at: 86400_000 }, null], point),
    view: vectorFromArray(['x', 'more than twelve bytes', null], new Utf8View()),
  });
  expect(
    renderTable(table, 3)
      .split('\n')
      .map((line) => line.trimEnd()),
  ).toEqual([
    'list                    pair                      point                                    view',
    'list<dictionary<utf8>>  fixed_size_list<int8>[2]  struct<x: int32, at: timestamp[s, UTC]>  utf8_view',
    expect.stringMatching(/^─+ {2}─+/),
    expect.stringMatching(/^\["a", null\] {2,}\[1, 2\] {2,}\{x: 1, at: 1970-01-01 00:00:00Z\} {2,}x$/),
    expect.stringMatching(/^\[\] {2,}\[3, null\] {2,}\{x: null, at: 1970-01-02 00:00:00Z\} {2,}more than twelve bytes$/),
    expect.stringMatching(/^null {2,}null {2,}null {2,}null$/),
  ]);
});
