/** The commands head, schema, count, doctor and completion. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tableToIPC } from 'apache-arrow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shells } from '../../lib/cli/completion.js';
import { doctor } from '../../lib/cli/doctor.js';
import { type CommandSpec, commandNames, commands } from '../../lib/cli/spec.js';
import { fromRows } from '../../lib/index.js';
import { writeTable } from '../../lib/io/index.js';
import { expectFailure, printed, warpjoin, warpjoinWith } from '../support/cli.js';

const folder = mkdtempSync(join(tmpdir(), 'warpjoin-inspect-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);
const flights = fileURLToPath(new URL('../../node_modules/vega-datasets/data/flights-3m.parquet', import.meta.url));
const rows = Array.from({ length: 25 }, (_, id) => ({ id, name: id ? `n${id}` : null }));

beforeAll(async () => {
  for (const name of ['t.arrow', 't.parquet', 't.csv', 't.ndjson', 't.json', 't.csv.gz', 't.arrow.gz'])
    await writeTable(fromRows(rows), at(name));
  // The type of the last row is another one: a count does not mind.
  writeFileSync(at('late.csv'), `id\n${Array.from({ length: 60_000 }, (_, id) => id).join('\n')}\nx\n`);
});

describe('head', () => {
  it('shows the first rows', async () => {
    const [parquet, csv, all] = await Promise.all([
      printed('head', flights, '-n', '2', '--select', 'origin,delay'),
      printed('head', at('late.csv'), '-n', '3'),
      printed('head', at('t.ndjson'), at('t.json'), '-n', '100', '--format', 'csv', '--rename', 'id=key', '--cast', 'id=utf8'),
    ]);
    expect(parquet.trim().split('\n').at(-1)).toBe('first 2 of 3,000,000 rows');
    expect(parquet.split('\n')[0]).toMatch(/^origin +delay$/);
    expect(csv.trim().split('\n').at(-1)).toBe('first 3 rows; there are more');
    const lines = all.trim().split('\n');
    expect([lines.length, lines[0], lines[1], lines.at(-1)]).toEqual([51, 'key,name', '0,', '24,n24']);
  });

  it('knows when there are no more', async () => {
    expect((await printed('head', at('t.csv'), '--limit', '25')).trim().split('\n').at(-1)).toBe('25 rows');
    expect((await printed('head', at('t.json'), '-n', '0')).trim().split('\n').at(-1)).toBe('first 0 rows; there are more');
  });
});

describe('schema', () => {
  it('shows columns, types and rows where they are known', async () => {
    const [parquet, csv, json] = await Promise.all([
      printed('schema', flights),
      printed('schema', at('t.csv'), at('late.csv')),
      printed('schema', at('t.arrow'), '--format', 'json'),
    ]);
    expect(parquet.split('\n').map((line) => line.trim().split(/\s+/))).toContainEqual(['delay', 'int64']);
    expect(parquet).toContain('flights-3m.parquet: 5 columns, 3,000,000 rows\n');
    expect(csv).toBe(
      `${at('t.csv')}: 2 columns, 25 rows\n  id    int64\n  name  utf8\n\n${at('late.csv')}: 1 column, types by the first 1,000 rows\n  id  int64\n`,
    );
    expect(JSON.parse(json)).toEqual([
      {
        file: at('t.arrow'),
        rows: 25,
        sampledRows: null,
        columns: [
          { name: 'id', type: 'int32', nullable: true },
          { name: 'name', type: 'utf8', nullable: true },
        ],
      },
    ]);
  });

  it('reads standard input', async () => {
    const outcome = await warpjoinWith(tableToIPC(fromRows(rows), 'stream'), 'schema', '-');
    expect(outcome).toMatchObject({ code: 0, err: '' });
    expect(outcome.out).toMatch(/^standard input: 2 columns(, 25 rows)?\n {2}id {4}int32\n/);
  });
});

describe('count', () => {
  it('counts the rows of any file', async () => {
    const names = ['t.arrow', 't.parquet', 't.csv', 't.ndjson', 't.json', 't.csv.gz', 't.arrow.gz'];
    const out = await printed('count', ...names.map(at), at('late.csv'));
    const counts = out
      .trim()
      .split('\n')
      .map((line) => line.trim().split(/\s+/));
    expect(counts).toEqual([
      ...names.map((name) => ['25', at(name)]),
      ['60001', at('late.csv')],
      [String(25 * names.length + 60001), 'total'],
    ]);
  });

  it('prints the number alone for one file', async () => {
    expect(await printed('count', flights)).toBe('3000000\n');
    expect(await warpjoinWith('{"a":1}\n{"a":2}\n', 'count', '-', '--input-format', 'ndjson')).toMatchObject({
      code: 0,
      out: '2\n',
    });
    expectFailure(await warpjoin('count', folder), 1, /is a directory; ".*\/\*\.parquet" names files in it/);
    writeFileSync(at('none.parquet'), 'no parquet at all');
    expectFailure(await warpjoin('count', at('none.parquet')), 1, /none\.parquet: not a readable Parquet file/);
    const cut = await warpjoinWith(readFileSync(flights).subarray(0, 1000), 'count', '-');
    expectFailure(cut, 1, /^warpjoin: standard input: damaged/);
  });
});

describe('doctor', () => {
  const outcome = (status: 'ok' | 'warning' | 'error') =>
    doctor(async () => ({ ok: status !== 'error', findings: [{ check: 'addon', status, message: 'found' }] }));

  it('fails where something is an error', async () => {
    expect(await outcome('ok')).toBe(0);
    expect(await outcome('warning')).toBe(0);
    expect(await outcome('error')).toBe(1);
  });

  it('says what it has found', async () => {
    const { out, code } = await warpjoin('doctor');
    expect(out).toMatch(/^ok +addon +for /m);
    expect(out).toMatch(/^ok +engine +joins and sorts on the processor$/m);
    expect(code).toBe(0);
  });
});

describe('completion', () => {
  it('is a script of each shell, with every command and option', () => {
    for (const [shell, script] of Object.entries(shells)) {
      const text = script();
      for (const name of commandNames) {
        for (const word of name.split(' ')) expect(text, shell).toContain(word);
        for (const option of Object.keys((commands[name] as CommandSpec).options)) {
          expect(text, `${shell} ${option}`).toMatch(new RegExp(`(--|-l )${option}\\b`));
        }
      }
    }
    expect(shells.zsh!()).toMatch(/^#compdef warpjoin\n/);
  });

  const complete = (...words: string[]) => {
    const script = `${shells.bash!()}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _warpjoin; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return execFileSync('bash', ['-c', script, 'bash', ...words], { cwd: folder })
      .toString()
      .trim()
      .split('\n')
      .sort();
  };

  it('completes in bash', () => {
    expect(complete('warpjoin', 'so')).toEqual(['sort']);
    expect(complete('warpjoin', 'explain', '')).toEqual(['join', 'sort', 'unique']);
    expect(complete('warpjoin', 'join', '--le')).toEqual(['--left-on']);
    expect(complete('warpjoin', 'explain', 'sort', '--an')).toEqual(['--analyze']);
    expect(complete('warpjoin', 'join', 'a', 'b', '--how', 's')).toEqual(['semi']);
    expect(complete('warpjoin', 'head', 't.cs')).toEqual(['t.csv', 't.csv.gz']);
    expect(complete('warpjoin', 'sort', '-o', 't.pa')).toEqual(['t.parquet']);
    expect(complete('warpjoin', 'completion', 'f')).toEqual(['fish']);
  });

  it('is what the command prints', async () => {
    expect(await printed('completion', 'bash')).toBe(shells.bash!());
  });

  for (const shell of ['zsh', 'fish']) {
    const isThere = ['/bin', '/usr/bin', '/usr/local/bin'].some((bin) => existsSync(`${bin}/${shell}`));
    it.skipIf(!isThere)(`is a script that ${shell} reads`, () => {
      execFileSync(shell, ['-n', '/dev/stdin'], { input: shells[shell]!() });
    });
  }
});
