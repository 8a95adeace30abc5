import { Argument, type Option } from 'commander';
import packageFile from '../../../../package.json' with { type: 'json' };
import type { FoundAnswer, KeyView, TokensAnswer } from '../../api/answers.ts';
import { searchText } from '../../clients.ts';
import type { Command } from '../command.ts';
import { pathTo } from '../key.ts';
import type { Named } from '../named.ts';
import type { Session } from '../session.ts';
import { harmless } from '../text.ts';

/**
 * Completion scripts for shells, generated from the commands. When Tab is pressed, they read the ids and names of keys,
 * secrets and tokens from the gateway; without a gateway, they complete everything else.
 */

const SHELLS = { bash, zsh } as const;
type Shell = keyof typeof SHELLS;

/** The names that the package installs. */
export const PROGRAM_NAMES = Object.keys(packageFile.bin);

export function add(program: Command, session: Session): void {
  program
    .sub('completion', 'print a script that completes commands, options and their values on Tab')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SHELLS)))
    .notes(`
Examples; the first applies to the current shell, the others to new shells:
  source <(ctl completion bash)
  echo 'source <(ctl completion bash)' >> ~/.bashrc
  echo 'source <(ctl completion zsh)' >> ~/.zshrc        after compinit

The script completes ${PROGRAM_NAMES.join(' and ')}, which npm installs. Ids and names of keys, secrets and tokens
are read from the gateway that the shell's environment variables point to.`)
    .action((shell: Shell) => session.write(SHELLS[shell](placesOf(program))));

  program
    .command(COMPLETE, { hidden: true })
    .argument('<kind>', Object.keys(NAMED).join(', '))
    .argument('[beginning]', 'what has been typed', '')
    .argument('[key]', 'the key that has the secret', '')
    .action(async (kind: Kind, beginning: string, key: string) => {
      // The shell is blocked until this process exits.
      setTimeout(() => process.exit(), LONGEST_WAIT_MS).unref();
      for (const word of await wordsFrom(session, kind, beginning, key)) session.write(`${word}\n`);
    });
}

/** Called by the scripts. */
const COMPLETE = 'complete';
const LONGEST_WAIT_MS = 2_000;

/** Reads the possible values of the arguments with these names. */
const NAMED = {
  key: async (session: Session, text: string): Promise<Named[]> => {
    // The search does not find short parts of an id, so the newest keys are read too.
    const paths = ['/keys', ...(text === '' ? [] : [`/keys/find?text=${encodeURIComponent(text)}`])];
    const pages = (await Promise.all(paths.map((path) => session.get(path)))) as Pick<FoundAnswer, 'keys'>[];
    return pages.flatMap(({ keys }) => keys);
  },
  secret: async (session: Session, _text: string, key: string): Promise<readonly Named[]> =>
    (await session.get<KeyView>(await pathTo(session, key))).secrets,
  token: async (session: Session): Promise<readonly Named[]> => (await session.get<TokensAnswer>('/tokens')).tokens,
};
type Kind = keyof typeof NAMED;

/** Finds ids and names that begin with the typed text. If the text contains a secret, nothing is sent. */
async function wordsFrom(session: Session, kind: Kind, beginning: string, key: string): Promise<ReadonlySet<string>> {
  const { text, hadSecret } = searchText(beginning);
  if (hadSecret) return new Set();
  const words = (await NAMED[kind](session, text, key)).flatMap(({ id, name }) => [id, name]);
  const begins = (word: string) => word.toLowerCase().startsWith(text.toLowerCase());
  return new Set(words.filter((word) => word !== '' && begins(word) && harmless(word) === word));
}

interface Word {
  readonly word: string;
  readonly help: string;
}

/** A place on the command line: after the program, a group or a command. */
interface Place {
  /** The words before this place, such as ` keys list`; empty right after the program name. */
  readonly path: string;
  readonly words: readonly Word[];
  /** The kinds of its first two arguments; undefined for one that is not a key, secret or token. */
  readonly kinds: readonly (Kind | undefined)[];
  /** Options that take a value: all their names, and their possible values. */
  readonly values: readonly {
    readonly flags: readonly string[];
    readonly choices: readonly string[] | 'file' | 'key' | 'secret' | 'any';
    /** Whether it takes several values, up to the next option. */
    readonly isList: boolean;
  }[];
}

const NAMED_KINDS = Object.keys(NAMED) as Kind[];

/** The commands of a group that its --help lists, without `help` itself. */
export const shownCommands = (group: Command): readonly Command[] => {
  const shown = group.createHelp().visibleCommands(group);
  return group.commands.filter((command) => shown.includes(command));
};

/** @param global the options of the parent commands, which are valid here too */
function placesOf(command: Command, path = '', global: readonly Option[] = []): Place[] {
  const help = command.createHelp();
  const options = [...help.visibleOptions(command), ...global];
  const words = [
    ...help.visibleCommands(command).map((one) => ({ word: one.name(), help: one.description() })),
    ...command.registeredArguments.flatMap(({ argChoices = [], description }) =>
      argChoices.map((word) => ({ word, help: description })),
    ),
    ...options.map((option) => ({ word: option.long ?? option.flags, help: option.description })),
  ];
  const values: Place['values'] = options
    .filter(({ required, optional }) => required || optional)
    .map((option) => ({
      flags: [option.short, option.long].filter((flag) => flag !== undefined),
      choices:
        option.argChoices ??
        (['file', 'key', 'secret'] as const).find((kind) => option.flags.includes(`<${kind}>`)) ??
        'any',
      isList: option.variadic,
    }));
  const kinds = [0, 1].map((at) => NAMED_KINDS.find((kind) => command.registeredArguments[at]?.name() === kind));
  return [
    { path, words, kinds, values },
    ...shownCommands(command).flatMap((one) => placesOf(one, `${path} ${one.name()}`, [...global, ...command.options])),
  ];
}

/** https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html */
function bash(places: readonly Place[]): string {
  return `# Completion for bash, printed by \`ctl completion bash\`.
_animal_store_named() {
  local typed=\${word//\\\\/} key=\${2//\\\\/} found
  key=\${key#[\\"\\']}
  while IFS= read -r found; do
    [[ $word == [\\"\\']* ]] || printf -v found %q "$found"
    COMPREPLY+=("$found")
  done < <("\${COMP_WORDS[0]}" ${COMPLETE} -- "$1" "\${typed#[\\"\\']}" "\${key%[\\"\\']}" 2>/dev/null </dev/null)
  [[ \${#COMPREPLY[@]} != 0 ]]
}
_animal_store_ctl() {
  COMPREPLY=()
${search(places, {
  line: 'COMP_WORDS',
  current: 'COMP_CWORD',
  first: 1,
  offer: (words) => `COMPREPLY=($(compgen -W ${quoted(words.map(({ word }) => word).join(' '))} -- "$word"))`,
  file: 'COMPREPLY=($(compgen -f -- "$word"))',
})}
}
complete -F _animal_store_ctl ${PROGRAM_NAMES.join(' ')}
`;
}

/** https://zsh.sourceforge.io/Doc/Release/Completion-System.html */
function zsh(places: readonly Place[]): string {
  return `#compdef ${PROGRAM_NAMES.join(' ')}
# Completion for zsh, printed by \`ctl completion zsh\`.
_animal_store_named() {
  local -a found
  found=("\${(@f)$(\${words[1]} ${COMPLETE} -- "$1" "\${\${(Q)words[CURRENT]}#[\\"\\']}" "\${(Q)2}" 2>/dev/null </dev/null)}")
  [[ -n $found ]] && compadd -- $found
}
_animal_store_ctl() {
  local -a found
${search(places, {
  line: 'words',
  current: 'CURRENT',
  first: 2,
  offer: (words) =>
    words.every(({ help }) => help === '')
      ? `compadd -- ${words.map(({ word }) => quoted(word)).join(' ')}`
      : `found=(${words.map(({ word, help }) => quoted(`${word.replaceAll(':', '\\:')}:${help}`)).join(' ')}); _describe 'ctl' found`,
  file: '_files',
})}
}
if [[ \${funcstack[1]} == _animal_store_ctl || \${funcstack[1]} == _ctl ]]; then
  _animal_store_ctl
else
  compdef _animal_store_ctl ${PROGRAM_NAMES.join(' ')}
fi
`;
}

/** What differs between the shells. */
interface Syntax {
  /** The array of words on the command line, the index of the word at the cursor, and that of the word after `ctl`. */
  readonly line: string;
  readonly current: string;
  readonly first: number;
  /** Completes one of the given words. */
  offer(words: readonly Word[]): string;
  /** Completes the name of a file. */
  readonly file: string;
}

/**
 * Finds the place of the cursor and completes what is valid there: after an option that takes a value, only that
 * value. Options and their values do not count as arguments.
 */
function search(places: readonly Place[], { line, current, first, offer, file }: Syntax): string {
  const patternOf = (words: readonly string[]) => words.map(quoted).join(' | ');
  const named = NAMED_KINDS.map((kind) => {
    const paths = places.flatMap(({ path, kinds }) => kinds.flatMap((one, at) => (one === kind ? `${at}${path}` : [])));
    return `    ${patternOf(paths)}) [[ $word != -* ]] && _animal_store_named ${kind} "$first" && return ;;`;
  });
  const flags = places.flatMap(({ path, values }) =>
    values.flatMap(({ flags, isList }) => flags.map((flag) => ({ flag: `${path} ${flag}`, isList }))),
  );
  const options = (areLists: boolean) =>
    patternOf(flags.filter(({ isList }) => isList === areLists).map(({ flag }) => flag));
  const values = places.flatMap(({ path, values }) =>
    values.map(({ flags, choices }) => {
      const ofKind = { file, key: '_animal_store_named key', secret: '_animal_store_named secret "$first"', any: ':' };
      const action = typeof choices === 'string' ? ofKind[choices] : offer(choices.map((word) => ({ word, help: '' })));
      return `    ${patternOf(flags.map((flag) => `${path} ${flag}`))}) ${action}; return ;;`;
    }),
  );
  // bash splits words at = and :, for example in --grace=24h and in times.
  return `  local word=\${${line}[${current}]} place='' option='' first='' count=0 at
  for ((at = ${first}; at < ${current}; at++)); do
    option="$place \${${line}[at]}"
    case "$option" in
      ${patternOf(places.flatMap(({ path }) => path || []))}) place=$option ;;
      ${options(true)}) while ((at + 1 < ${current})) && [[ \${${line}[at + 1]} != -* ]]; do ((at++)); done ;;
      ${options(false)}) [[ \${${line}[at + 1]} != = ]] || ((at++)); ((++at == ${current})) || option='' ;;
      *' '[=:]*) ((at++)) ;;
      *' '-*) ;;
      *) ((count++)) || first=\${${line}[at]} ;;
    esac
  done
  case "$option" in
${values.join('\n')}
  esac
  case "$count$place" in
${named.join('\n')}
  esac
  case "$place" in
${places.map(({ path, words }) => `    ${quoted(path)}) ${offer(words)} ;;`).join('\n')}
  esac`;
}

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
