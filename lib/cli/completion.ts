/** Completion scripts of shells, made of the table of commands. */
import { type CommandName, type CommandSpec, commandNames, commands, type OptionSpec } from './spec.js';

/** The first words of commands: those of two words have one first word. */
const firstWords = [...new Set(commandNames.map((name) => name.split(' ')[0]!)), 'help'];
const secondWords = (first: string): string[] =>
  commandNames.filter((name) => name.startsWith(`${first} `)).map((name) => name.split(' ')[1]!);

const specOf = (name: CommandName): CommandSpec => commands[name];
const optionsOf = (name: CommandName): [string, OptionSpec][] => Object.entries(specOf(name).options);

/** Options whose value is one of some words, or a file; others have values that nobody can guess. */
const isFile = (option: string) => option === 'output';

export const shells: Readonly<Record<string, () => string>> = { bash, zsh, fish };

export function printCompletion(shell: string): void {
  process.stdout.write(shells[shell]!());
}

function bash(): string {
  const cases = commandNames.map((name) => {
    const values = optionsOf(name)
      .filter(([, { value }]) => value)
      .map(([option, { short, choices }]) => {
        const pattern = short ? `--${option}|-${short}` : `--${option}`;
        const reply = choices ? `COMPREPLY=($(compgen -W ${quoted(choices.join(' '))} -- "$cur"))` : 'COMPREPLY=()';
        return `        ${pattern}) ${isFile(option) ? 'COMPREPLY=($(compgen -f -- "$cur"))' : reply}; return ;;`;
      });
    const words = optionsOf(name).map(([option]) => `--${option}`);
    const { operands, words: operandWords } = specOf(name);
    const operandReply = operandWords
      ? `COMPREPLY=($(compgen -W ${quoted(operandWords.join(' '))} -- "$cur"))`
      : operands.length > 0
        ? 'COMPREPLY=($(compgen -f -- "$cur"))'
        : 'COMPREPLY=()';
    return [
      `    ${quoted(name)})`,
      '      case "$prev" in',
      ...values,
      '      esac',
      '      case "$cur" in',
      `        -*) COMPREPLY=($(compgen -W ${quoted(words.join(' '))} -- "$cur")) ;;`,
      `        *) ${operandReply} ;;`,
      '      esac ;;',
    ].join('\n');
  });
  const pairs = firstWords.filter((word) => secondWords(word).length > 0);
  return [
    '# Completion of warpjoin for bash.',
    '_warpjoin() {',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: of bash
    '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
    '  if [ "$COMP_CWORD" -eq 1 ]; then',
    `    COMPREPLY=($(compgen -W ${quoted([...firstWords, '--help', '--version'].join(' '))} -- "$cur"))`,
    '    return',
    '  fi',
    ...pairs.flatMap((word) => [
      `  if [ "$command" = ${word} ]; then`,
      '    if [ "$COMP_CWORD" -eq 2 ]; then',
      `      COMPREPLY=($(compgen -W ${quoted(secondWords(word).join(' '))} -- "$cur"))`,
      '      return',
      '    fi',
      // biome-ignore lint/suspicious/noTemplateCurlyInString: of bash
      '    command="$command ${COMP_WORDS[2]}"',
      '  fi',
    ]),
    '  case "$command" in',
    ...cases,
    `    help) COMPREPLY=($(compgen -W ${quoted(firstWords.join(' '))} -- "$cur")) ;;`,
    '  esac',
    '}',
    'complete -o filenames -F _warpjoin warpjoin',
    '',
  ].join('\n');
}

/** A word of a shell. */
const quoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;

function zsh(): string {
  const described = (text: string) => text.replace(/[[\]:\\]/g, '\\$&');
  const cases = commandNames.map((name) => {
    const specs = optionsOf(name).map(([option, { short, value, choices, multiple, help }]) => {
      const action = choices ? `(${choices.join(' ')})` : isFile(option) ? '_files' : ' ';
      const rest = `[${described(help)}]${value ? `:${described(value)}:${action}` : ''}`;
      const long = value ? `--${option}=` : `--${option}`;
      const names = short ? `{-${short}${value ? '+' : ''},${long}}` : '';
      return names ? `${multiple ? "'*'" : ''}${names}${quoted(rest)}` : quoted(`${multiple ? '*' : ''}${long}${rest}`);
    });
    const { operands, words } = specOf(name);
    const action = words ? `(${words.join(' ')})` : '_files';
    if (operands.length > 0) specs.push(quoted(`*:${operands.at(-1)}:${action}`));
    return `    ${quoted(name)})\n      _arguments -s ${specs.join(' \\\n        ')} ;;`;
  });
  const lines = firstWords.map((word) => {
    const summary = (commands as Record<string, CommandSpec>)[word]?.summary;
    return `    ${quoted(`${word}:${summary ?? (word === 'help' ? 'show help' : 'show how a command would run')}`)}`;
  });
  const pairs = firstWords.filter((word) => secondWords(word).length > 0);
  return [
    '#compdef warpjoin',
    '# Completion of warpjoin for zsh.',
    '_warpjoin() {',
    '  local -a names',
    '  names=(',
    ...lines,
    '  )',
    '  if (( CURRENT == 2 )); then',
    "    _describe 'command' names",
    '    return',
    '  fi',
    '  local command="$words[2]"',
    ...pairs.flatMap((word) => [
      `  if [[ $command == ${word} ]]; then`,
      '    if (( CURRENT == 3 )); then',
      `      compadd ${secondWords(word).join(' ')}`,
      '      return',
      '    fi',
      '    command="$command $words[3]"',
      '    shift words',
      '    (( CURRENT-- ))',
      '  fi',
    ]),
    '  shift words',
    '  (( CURRENT-- ))',
    '  case "$command" in',
    ...cases,
    `    help) compadd ${firstWords.join(' ')} ;;`,
    '  esac',
    '}',
    '_warpjoin "$@"',
    '',
  ].join('\n');
}

function fish(): string {
  const lines = ['# Completion of warpjoin for fish.', 'complete -c warpjoin -f'];
  for (const word of firstWords) {
    const summary = (commands as Record<string, CommandSpec>)[word]?.summary;
    lines.push(`complete -c warpjoin -n __fish_use_subcommand -a ${word}${summary ? ` -d ${quoted(summary)}` : ''}`);
    const seconds = secondWords(word);
    if (seconds.length > 0)
      lines.push(`complete -c warpjoin -n '__fish_seen_subcommand_from ${word}' -a ${quoted(seconds.join(' '))}`);
  }
  for (const name of commandNames) {
    const [first, second] = name.split(' ');
    const seen = `__fish_seen_subcommand_from ${first}${second ? `; and __fish_seen_subcommand_from ${second}` : ''}`;
    const plain =
      !second && commandNames.some((other) => other.endsWith(` ${name}`))
        ? `${seen}; and not __fish_seen_subcommand_from explain`
        : seen;
    const where = `complete -c warpjoin -n ${quoted(plain)}`;
    const { operands, words } = specOf(name);
    if (words) lines.push(`${where} -a ${quoted(words.join(' '))}`);
    else if (operands.length > 0) lines.push(`${where} -F`);
    for (const [option, { short, value, choices, help }] of optionsOf(name)) {
      const takes = value ? (choices ? ` -x -a ${quoted(choices.join(' '))}` : isFile(option) ? ' -r -F' : ' -x') : '';
      lines.push(`${where} -l ${option}${short ? ` -s ${short}` : ''}${takes} -d ${quoted(help)}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
