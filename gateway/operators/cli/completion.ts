import { Argument, type Command, type Option } from 'commander';
import type { Session } from './session.ts';

/** Completion scripts for shells, made from the table of commands. They ask nobody: no gateway has to run. */

const SHELLS = { bash, zsh } as const;
type Shell = keyof typeof SHELLS;

/** Adds `completion`. @param names of the programs that are completed */
export function addCompletionCommand(program: Command, session: Session, names: readonly string[]): void {
  program
    .command('completion')
    .description('print a script with which Tab completes commands, options and their values')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SHELLS)))
    .addHelpText(
      'after',
      `
Example, for this shell and for the next ones:
  source <(ctl completion bash)
  echo 'source <(ctl completion bash)' >> ~/.bashrc
  echo 'source <(ctl completion zsh)' >> ~/.zshrc        behind compinit

It completes ${names.join(' and ')}: install one of them with npm, or use npx.`,
    )
    .action((shell: Shell) => session.write(SHELLS[shell](placesOf(program), names)));
}

interface Word {
  readonly word: string;
  readonly help: string;
}

/** A place in the command line: behind a program, a group or a command. */
interface Place {
  /** The words that lead to it, as ` keys list`; empty behind the program. */
  readonly path: string;
  readonly words: readonly Word[];
  /** Options that take a value: all their names, and what may follow. */
  readonly values: readonly {
    readonly flags: readonly string[];
    readonly choices: readonly string[] | 'file' | 'any';
  }[];
}

function placesOf(command: Command, path = ''): Place[] {
  const root = command.parent === null ? [] : globalOptions(command);
  const options = [...command.createHelp().visibleOptions(command), ...root];
  const words = [
    ...command
      .createHelp()
      .visibleCommands(command)
      .map((one) => ({ word: one.name(), help: one.summary() || one.description() })),
    ...command.registeredArguments.flatMap(({ argChoices = [], description }) =>
      argChoices.map((word) => ({ word, help: description })),
    ),
    ...options.map((option) => ({ word: option.long ?? option.flags, help: option.description })),
  ];
  const values = options
    .filter(({ required, optional }) => required || optional)
    .map((option) => ({
      flags: [option.short, option.long].filter((flag) => flag !== undefined),
      choices: option.argChoices ?? (option.flags.includes('<file>') ? ('file' as const) : ('any' as const)),
    }));
  return [{ path, words, values }, ...command.commands.flatMap((one) => placesOf(one, `${path} ${one.name()}`))];
}

function globalOptions(command: Command): readonly Option[] {
  let root = command;
  while (root.parent !== null) root = root.parent;
  return root.options;
}

/** https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html */
function bash(places: readonly Place[], names: readonly string[]): string {
  return `# Completion for bash, printed by \`ctl completion bash\`.
_animal_store_ctl() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} place='' at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "$place \${COMP_WORDS[at]}" in
      ${pathPattern(places)}) place="$place \${COMP_WORDS[at]}" ;;
    esac
  done
  case "$place $before" in
${valueCases(places, {
  choices: (words) => `COMPREPLY=($(compgen -W ${quoted(words.join(' '))} -- "$word"))`,
  file: 'COMPREPLY=($(compgen -f -- "$word"))',
})}
  esac
  local words
  case "$place" in
${places.map(({ path, words }) => `    ${quoted(path)}) words=${quoted(words.map(({ word }) => word).join(' '))} ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _animal_store_ctl ${names.join(' ')}
`;
}

/** https://zsh.sourceforge.io/Doc/Release/Completion-System.html */
function zsh(places: readonly Place[], names: readonly string[]): string {
  const described = ({ word, help }: Word) => quoted(`${word.replaceAll(':', '\\:')}:${help}`);
  return `#compdef ${names.join(' ')}
# Completion for zsh, printed by \`ctl completion zsh\`.
_animal_store_ctl() {
  local place='' before=\${words[CURRENT-1]} at
  for ((at = 2; at < CURRENT; at++)); do
    case "$place \${words[at]}" in
      ${pathPattern(places)}) place="$place \${words[at]}" ;;
    esac
  done
  case "$place $before" in
${valueCases(places, { choices: (words) => `compadd -- ${words.map(quoted).join(' ')}`, file: '_files' })}
  esac
  local -a found
  case "$place" in
${places.map(({ path, words }) => `    ${quoted(path)}) found=(${words.map(described).join(' ')}) ;;`).join('\n')}
  esac
  _describe 'ctl' found
}
if [[ \${funcstack[1]} == _animal_store_ctl || \${funcstack[1]} == _ctl ]]; then
  _animal_store_ctl
else
  compdef _animal_store_ctl ${names.join(' ')}
fi
`;
}

const pathPattern = (places: readonly Place[]): string =>
  places
    .map(({ path }) => path)
    .filter((path) => path !== '')
    .map(quoted)
    .join(' | ');

/** Behind an option with a value, only that value is completed. */
function valueCases(
  places: readonly Place[],
  write: { choices(words: readonly string[]): string; file: string },
): string {
  const cases = places.flatMap(({ path, values }) =>
    values.map(({ flags, choices }) => {
      const pattern = flags.map((flag) => quoted(`${path} ${flag}`)).join(' | ');
      const action = choices === 'file' ? write.file : choices === 'any' ? ':' : write.choices(choices);
      return `    ${pattern}) ${action}; return ;;`;
    }),
  );
  return cases.join('\n');
}

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
