/** The commands and their options, once: parsing, help and the hints for mistyped names come from here. */

export interface OptionSpec {
  short?: string;
  /** What stands for the value in help; none for a switch. */
  value?: string;
  /** May be given several times. */
  multiple?: boolean;
  help: string;
}

export interface CommandSpec {
  /** Names of the positional arguments. */
  operands: readonly string[];
  summary: string;
  options: Record<string, OptionSpec>;
  examples: readonly string[];
}

const everywhere: Record<string, OptionSpec> = {
  quiet: { short: 'q', help: 'no progress and no summary on stderr' },
  help: { short: 'h', help: 'show this help' },
};

const engine: Record<string, OptionSpec> = {
  device: { value: 'KIND', help: 'auto (default), cpu or gpu' },
  'host-devices': { value: 'N', help: 'show the processor as N devices' },
  threads: { value: 'N', help: 'threads of the processor to use (default: one a core)' },
  'memory-limit': { value: 'SIZE', help: 'most host memory to use: 8GiB, 500MB, 80%' },
  'device-memory-limit': { value: 'SIZE', help: 'most memory to use on each device' },
};

const files: Record<string, OptionSpec> = {
  delimiter: { value: 'CHAR', help: 'what separates the fields of CSV files (default: "," and a tab in .tsv)' },
  'no-header': { help: 'CSV files have no header row: columns are column1, column2, ...' },
  'null-value': { value: 'TEXT', multiple: true, help: 'text in CSV files that means null, beside the empty one' },
};

const result: Record<string, OptionSpec> = {
  output: { short: 'o', value: 'FILE', help: 'write the result here (.arrow, .parquet, .csv, .tsv); else print its first rows' },
  rows: { value: 'N', help: 'rows to print without --output (default: 10)' },
  stats: { value: 'json', help: 'print what the operation did as JSON: on stdout with --output, else on stderr' },
};

const joinOptions: Record<string, OptionSpec> = {
  on: { value: 'COLUMNS', help: 'key columns of both files, separated by commas' },
  'left-on': { value: 'COLUMNS', help: 'key columns of LEFT, with --right-on' },
  'right-on': { value: 'COLUMNS', help: 'key columns of RIGHT, in the order of --left-on' },
  'nulls-equal': { help: 'null keys match each other' },
  how: { value: 'KIND', help: 'inner (default), left, right, full, semi, anti or cross' },
  coalesce: { help: 'make one column of both key columns of a full join, as other joins do' },
  select: { value: 'A,B', help: 'columns of the result, in this order (default: all)' },
  suffix: { value: 'TEXT', help: 'appended to names of RIGHT that LEFT has too (default: _right)' },
  algorithm: { value: 'NAME', help: 'auto (default), radix-hash or sort-merge' },
  validate: { value: 'KIND', help: 'fail if a key is there twice: 1:1, 1:m (in LEFT) or m:1 (in RIGHT); default m:m' },
  'maintain-order': { value: 'SIDE', help: 'keep the order of left or right rows (default: none)' },
  limit: { value: 'N', help: 'rows of the result at most' },
  offset: { value: 'N', help: 'rows to leave out before the first one' },
  'max-output-rows': { value: 'N', help: 'fail if the join finds more rows' },
};

const uniqueOptions: Record<string, OptionSpec> = {
  on: { value: 'A,B', help: 'key columns (default: all columns)' },
  keep: { value: 'ROW', help: 'first, last or any (default) row of each key; none: rows whose key no other row has' },
  'maintain-order': { help: 'keep the order of the rows' },
  select: { value: 'A,B', help: 'columns of the result, in this order (default: all)' },
};

const sortOptions: Record<string, OptionSpec> = {
  by: {
    value: 'COLUMNS',
    multiple: true,
    help: 'name[:desc][:nulls-first], the most significant first, separated by commas; "\\," and "\\:" in a name',
  },
  limit: { value: 'N', help: 'rows of the result, at most: the first ones' },
  offset: { value: 'N', help: 'rows to leave out before the first one of the result' },
  select: { value: 'A,B', help: 'columns of the result, in this order (default: all)' },
  algorithm: { value: 'NAME', help: 'auto (default), merge or radix' },
};

const analyze: Record<string, OptionSpec> = { analyze: { help: 'run the plan too, and show what its steps took' } };

const links: Record<string, OptionSpec> = {
  measure: { help: 'measure the links of the GPUs anew, whatever the cache of this host says' },
};

export const commands = {
  join: {
    operands: ['LEFT', 'RIGHT'],
    summary: 'join two files',
    options: { ...joinOptions, ...result, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin join flights.parquet airports.csv --left-on origin --right-on iata',
      'warpjoin join orders.arrow customers.csv --on customer_id --how left -o out.parquet',
      'warpjoin join a.csv b.csv --on id --select id,name,total --stats json -o out.arrow | jq .',
    ],
  },
  sort: {
    operands: ['FILE'],
    summary: 'sort a file by one column or several',
    options: { ...sortOptions, ...result, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin sort flights.parquet --by delay:desc,date',
      'warpjoin sort events.csv --by country,ts:desc:nulls-first -o sorted.arrow',
      'warpjoin sort orders.parquet --by total:desc --limit 100 -o largest.csv',
    ],
  },
  unique: {
    operands: ['FILE'],
    summary: 'keep one row of each key of a file',
    options: { ...uniqueOptions, ...result, ...files, ...engine, ...everywhere },
    examples: [
      'warpjoin unique events.parquet --on user,day --keep last --maintain-order',
      'warpjoin unique names.csv -o distinct.csv',
    ],
  },
  'explain join': {
    operands: ['LEFT', 'RIGHT'],
    summary: 'show how a join would run',
    options: { ...joinOptions, ...analyze, ...files, ...engine, ...everywhere },
    examples: ['warpjoin explain join flights.parquet airports.csv --left-on origin --right-on iata --analyze'],
  },
  'explain sort': {
    operands: ['FILE'],
    summary: 'show how a sort would run',
    options: { ...sortOptions, ...analyze, ...files, ...engine, ...everywhere },
    examples: ['warpjoin explain sort flights.parquet --by delay:desc'],
  },
  'explain unique': {
    operands: ['FILE'],
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
} as const satisfies Record<string, CommandSpec>;

export type CommandName = keyof typeof commands;
export const commandNames = Object.keys(commands) as CommandName[];

const exitCodes = 'Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.';

export function generalHelp(version: string): string {
  const width = Math.max(...commandNames.map((name) => name.length));
  return [
    `warpjoin ${version}: joins and sorts Arrow, Parquet and CSV files.`,
    '',
    'Usage: warpjoin COMMAND [OPTIONS]',
    '',
    ...commandNames.map((name) => `  ${name.padEnd(width)}  ${commands[name].summary}`),
    '',
    '"warpjoin COMMAND --help" shows the options of a command, "warpjoin --version" the version.',
    exitCodes,
  ].join('\n');
}

export function commandHelp(name: CommandName): string {
  const { operands, summary, options, examples }: CommandSpec = commands[name];
  const lines = Object.entries(options).map(([long, { short, value, help }]) => ({
    left: `${short ? `-${short}, ` : '    '}--${long}${value ? ` ${value}` : ''}`,
    help,
  }));
  const width = Math.max(...lines.map(({ left }) => left.length));
  return [
    `Usage: warpjoin ${[name, ...operands].join(' ')} [OPTIONS]`,
    '',
    `${summary[0]!.toUpperCase()}${summary.slice(1)}.`,
    '',
    ...lines.map(({ left, help }) => `  ${left.padEnd(width)}  ${help}`),
    '',
    'Examples:',
    ...examples.map((example) => `  ${example}`),
    '',
    exitCodes,
  ].join('\n');
}
