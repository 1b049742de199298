/** The commands and their options, once: parsing, checks of values, help, completion and the hints for mistyped names come from here. */

import { FORMATS } from '../io/formats.js';
import { JOIN_ALGORITHMS, JOIN_KINDS } from '../options.js';

/** What the value of an option is, where that is checked: see values.ts. */
export type ValueKind = 'count' | 'positive' | 'size' | 'bytes' | 'character' | 'names' | 'keys' | 'by' | 'renames' | 'casts';

export interface OptionSpec {
  short?: string;
  /** What stands for the value in help; none for a switch. */
  value?: string;
  /** The values that there are. */
  choices?: readonly string[];
  /** Hints for values that others use. */
  hints?: Readonly<Record<string, string>>;
  kind?: ValueKind;
  /** The greatest number that there may be. */
  most?: number;
  /** May be given several times. */
  multiple?: boolean;
  help: string;
}

export interface CommandSpec {
  /** Names of the positional arguments. */
  operands: readonly string[];
  /** Whether the last operand may be there several times. */
  several?: boolean;
  /** The words that an operand may be, where it is no file. */
  words?: readonly string[];
  summary: string;
  options: Record<string, OptionSpec>;
  examples: readonly string[];
}

/** Formats for people, which show some rows. */
export const SHOWN_FORMATS = ['table', 'markdown'] as const;

const everywhere: Record<string, OptionSpec> = {
  quiet: { short: 'q', help: 'no progress and no summary on stderr' },
  help: { short: 'h', help: 'show this help' },
};

const engine: Record<string, OptionSpec> = {
  device: { value: 'KIND', choices: ['auto', 'cpu', 'gpu'], help: 'auto (default), cpu or gpu' },
  'host-devices': { value: 'N', kind: 'positive', most: 64, help: 'show the processor as N devices' },
  threads: { value: 'N', kind: 'positive', most: 1024, help: 'threads of the processor to use (default: one a core)' },
  'memory-limit': { value: 'SIZE', kind: 'size', help: 'most host memory to use: 8GiB, 500MB, 80%' },
  'device-memory-limit': { value: 'SIZE', kind: 'size', help: 'most memory to use on each device' },
  'temp-directory': { value: 'DIR', help: 'where rows that do not fit go: default /var/tmp, or what TMPDIR names' },
  'max-temp-size': { value: 'SIZE', kind: 'size', help: 'most disk space that they take there (default: all that is free)' },
};

const reading: Record<string, OptionSpec> = {
  'input-format': {
    value: 'FORMAT',
    choices: FORMATS,
    help: `format of standard input, and of files whose name does not state it: ${FORMATS.join(', ')}`,
  },
  delimiter: { value: 'CHAR', kind: 'character', help: 'what separates the fields of CSV (default: "," and a tab in .tsv)' },
  'no-header': { help: 'CSV has no header row: columns are column1, column2, ...' },
  'no-hive-partitioning': { help: 'folders named country=DE give files no column country' },
  'null-value': { value: 'TEXT', multiple: true, help: 'text in CSV that means null, in addition to the empty one' },
};

const files: Record<string, OptionSpec> = {
  cast: {
    value: 'COLUMN=TYPE,...',
    kind: 'casts',
    help: 'read columns as another type: int32, int64, float32, float64, bool, utf8, date, timestamp or decimal(10,2)',
  },
  ...reading,
};

const output: Record<string, OptionSpec> = {
  output: {
    short: 'o',
    value: 'FILE',
    help: 'write the result here: .arrow, .parquet, .csv, .tsv, .ndjson, .json or .md, and .gz or .zst after it; "-": stdout',
  },
  format: {
    value: 'FORMAT',
    choices: [...SHOWN_FORMATS, ...FORMATS],
    help: `format of the result, whatever the file's name: ${[...SHOWN_FORMATS, ...FORMATS].join(', ')} (default on stdout: table)`,
  },
  'file-rows': {
    value: 'N',
    kind: 'positive',
    help: 'write several files of so many rows each, where FILE has a "*" for their numbers: part-*.parquet',
  },
  'file-size': { value: 'SIZE', kind: 'bytes', help: 'write several files of about so many bytes each, likewise: 1GiB, 500MB' },
  rename: { value: 'OLD=NEW,...', kind: 'renames', help: 'other names for columns of the result' },
};

const result: Record<string, OptionSpec> = {
  ...output,
  'partition-by': {
    value: 'A,B',
    kind: 'names',
    help: 'write a folder for each value of these columns of the result: out/*.parquet becomes out/a=1/b=2/000000.parquet',
  },
  'max-rows': {
    value: 'N',
    kind: 'count',
    help: 'rows that a table or markdown shows (default: 10, and all in a file); no others are made',
  },
  stats: {
    value: 'json',
    choices: ['json'],
    help: 'print what the operation did as JSON: on stderr, or on stdout where the result goes to a file',
  },
};

const select: OptionSpec = { value: 'A,B', kind: 'names', help: 'columns of the result, in this order (default: all)' };

const joinOptions: Record<string, OptionSpec> = {
  on: { value: 'COLUMNS', kind: 'keys', help: 'key columns of both files, separated by commas' },
  'left-on': { value: 'COLUMNS', kind: 'keys', help: 'key columns of LEFT, with --right-on' },
  'right-on': { value: 'COLUMNS', kind: 'keys', help: 'key columns of RIGHT, in the order of --left-on' },
  'nulls-equal': { help: 'null keys match each other' },
  how: {
    value: 'KIND',
    choices: JOIN_KINDS,
    hints: { outer: 'full', left_outer: 'left', right_outer: 'right' },
    help: 'inner (default), left, right, full, semi, anti or cross',
  },
  coalesce: { help: 'make one column of both key columns of a full join, as other joins do' },
  select,
  suffix: { value: 'TEXT', help: 'appended to names of RIGHT that LEFT has too (default: _right)' },
  algorithm: { value: 'NAME', choices: JOIN_ALGORITHMS, help: 'auto (default), radix-hash, triton or sort-merge' },
  validate: {
    value: 'KIND',
    choices: ['m:m', '1:m', 'm:1', '1:1'],
    help: 'fail if a key is there twice: 1:1, 1:m (in LEFT) or m:1 (in RIGHT); default m:m',
  },
  'maintain-order': {
    value: 'SIDE',
    choices: ['none', 'left', 'right', 'left_right', 'right_left'],
    help: 'keep the order of left or right rows (default: none)',
  },
  limit: { value: 'N', kind: 'count', help: 'rows of the result at most' },
  offset: { value: 'N', kind: 'count', help: 'rows to leave out before the first one' },
  'max-output-rows': { value: 'N', kind: 'count', help: 'fail if the join finds more rows' },
};

const uniqueOptions: Record<string, OptionSpec> = {
  on: { value: 'A,B', kind: 'keys', help: 'key columns (default: all columns)' },
  keep: {
    value: 'ROW',
    choices: ['first', 'last', 'any', 'none'],
    help: 'first, last or any (default) row of each key; none: rows whose key no other row has',
  },
  'maintain-order': { help: 'keep the order of the rows' },
  limit: { value: 'N', kind: 'count', help: 'rows of the result at most' },
  select,
};

const sortOptions: Record<string, OptionSpec> = {
  by: {
    value: 'COLUMNS',
    kind: 'by',
    multiple: true,
    help: 'name[:desc][:nulls-first], the most significant first, separated by commas; "\\," and "\\:" in a name',
  },
  limit: { value: 'N', kind: 'count', help: 'rows of the result, at most: the first ones' },
  offset: { value: 'N', kind: 'count', help: 'rows to leave out before the first one of the result' },
  select,
  algorithm: { value: 'NAME', choices: ['auto', 'merge', 'radix', 'sample'], help: 'auto (default), merge, radix or sample' },
};

const trace: Record<string, OptionSpec> = {
  trace: { value: 'FILE', help: 'write what ran when to this file, as Chrome trace events; Perfetto opens it' },
};

const analyze: Record<string, OptionSpec> = { analyze: { help: 'run the plan too, and show what its steps took' } };

const links: Record<string, OptionSpec> = {
  measure: { help: 'measure the links of the GPUs anew, whatever the cache of this host says' },
};

export const commands = {
  join: {
    operands: ['LEFT', 'RIGHT'],
    summary: 'join two files',
    options: { ...joinOptions, ...result, ...trace, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin join flights.parquet airports.csv --left-on origin --right-on iata',
      'warpjoin join "orders/*.parquet" customers.csv --on customer_id --how left -o out.parquet',
      'warpjoin join a.csv b.csv --on id --select id,name,total --stats json -o out.arrow | jq .',
      'warpjoin join - users.arrow --input-format ndjson --on user --format csv < events.ndjson > named.csv',
    ],
  },
  sort: {
    operands: ['FILE'],
    several: true,
    summary: 'sort files by one column or several',
    options: { ...sortOptions, ...result, ...trace, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin sort flights.parquet --by delay:desc,date',
      'warpjoin sort events.csv --by country,ts:desc:nulls-first -o sorted.arrow',
      'warpjoin sort "orders-*.parquet" --by total:desc --limit 100 -o largest.csv.gz',
    ],
  },
  unique: {
    operands: ['FILE'],
    several: true,
    summary: 'keep one row of each key of files',
    options: { ...uniqueOptions, ...result, ...trace, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin unique events.parquet --on user,day --keep last --maintain-order',
      'warpjoin unique names.csv -o distinct.csv',
    ],
  },
  head: {
    operands: ['FILE'],
    several: true,
    summary: 'show or write the first rows of files',
    options: {
      limit: { short: 'n', value: 'N', kind: 'count', help: 'how many rows (default: 10)' },
      select,
      ...output,
      ...files,
      ...everywhere,
    },
    examples: ['warpjoin head flights.parquet', 'warpjoin head "logs/**/*.csv.gz" -n 3 --select time,status --format markdown'],
  },
  schema: {
    operands: ['FILE'],
    several: true,
    summary: 'show the columns of files with their types',
    options: {
      format: { value: 'FORMAT', choices: ['table', 'json'], help: 'table (default) or json' },
      ...reading,
      ...everywhere,
    },
    examples: ['warpjoin schema flights.parquet', 'warpjoin schema airports.csv --format json'],
  },
  count: {
    operands: ['FILE'],
    several: true,
    summary: 'count the rows of files',
    options: { ...reading, ...everywhere },
    examples: ['warpjoin count flights.parquet', 'warpjoin count "orders/*.csv"'],
  },
  'explain join': {
    operands: ['LEFT', 'RIGHT'],
    summary: 'show how a join would run',
    options: { ...joinOptions, ...analyze, ...files, ...engine, ...everywhere },
    examples: ['warpjoin explain join flights.parquet airports.csv --left-on origin --right-on iata --analyze'],
  },
  'explain sort': {
    operands: ['FILE'],
    several: true,
    summary: 'show how a sort would run',
    options: { ...sortOptions, ...analyze, ...files, ...engine, ...everywhere },
    examples: ['warpjoin explain sort flights.parquet --by delay:desc'],
  },
  'explain unique': {
    operands: ['FILE'],
    several: true,
    summary: 'show how unique would run',
    options: { ...uniqueOptions, ...analyze, ...files, ...engine, ...everywhere },
    examples: ['warpjoin explain unique events.parquet --on user --keep last'],
  },
  devices: {
    operands: [],
    summary: 'list the devices that this machine has, and how fast the links of its GPUs are',
    options: { ...links, ...engine, ...everywhere },
    examples: ['warpjoin devices', 'warpjoin devices --host-devices 4', 'warpjoin devices --device gpu --measure'],
  },
  doctor: {
    operands: [],
    summary: 'check the installation, the GPUs and the limits of this machine, and say what would help',
    options: { ...everywhere },
    examples: ['warpjoin doctor'],
  },
  completion: {
    operands: ['SHELL'],
    words: ['bash', 'zsh', 'fish'],
    summary: 'print the completion script of a shell: bash, zsh or fish',
    options: { ...everywhere },
    examples: [
      'warpjoin completion bash > ~/.local/share/bash-completion/completions/warpjoin',
      'warpjoin completion zsh > ~/.zfunc/_warpjoin',
      'warpjoin completion fish > ~/.config/fish/completions/warpjoin.fish',
    ],
  },
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof commands;
export const commandNames = Object.keys(commands) as CommandName[];

const exitCodes = 'Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.';

export function generalHelp(version: string): string {
  const width = Math.max(...commandNames.map((name) => name.length));
  return [
    `warpjoin ${version}: joins and sorts Arrow, Parquet, CSV and JSON files.`,
    '',
    'Usage: warpjoin COMMAND [OPTIONS]',
    '',
    ...commandNames.map((name) => `  ${name.padEnd(width)}  ${commands[name].summary}`),
    '',
    '"warpjoin COMMAND --help" shows the options of a command, "warpjoin --version" the version.',
    exitCodes,
  ].join('\n');
}

const operandHelp = 'A file may be a quoted pattern ("data/*.csv", ** for folders of any depth) or "-" for standard input.';

export function commandHelp(name: CommandName): string {
  const { operands, several, summary, options, examples }: CommandSpec = commands[name];
  const lines = Object.entries(options).map(([long, { short, value, help }]) => ({
    left: `${short ? `-${short}, ` : '    '}--${long}${value ? ` ${value}` : ''}`,
    help,
  }));
  const width = Math.max(...lines.map(({ left }) => left.length));
  return [
    `Usage: warpjoin ${[name, ...operands].join(' ')}${several ? '...' : ''} [OPTIONS]`,
    '',
    `${summary[0]!.toUpperCase()}${summary.slice(1)}.`,
    ...('input-format' in options ? [operandHelp] : []),
    '',
    ...lines.map(({ left, help }) => `  ${left.padEnd(width)}  ${help}`),
    '',
    'Examples:',
    ...examples.map((example) => `  ${example}`),
    '',
    exitCodes,
  ].join('\n');
}
