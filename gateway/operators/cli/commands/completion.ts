import { setTimeout as sleep } from 'node:timers/promises';
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
 * Completion for shells. When Tab is pressed, the script asks ctl what can be typed, so it is never out of date. The ids
 * and names of keys, secrets and tokens are read from the gateway; without a gateway, everything else is completed.
 */

type Shell = keyof typeof SCRIPTS;

/** The names that the package installs. */
const PROGRAM_NAMES = Object.keys(packageFile.bin).join(' ');

export function add(program: Command, session: Session): void {
  program
    .sub('completion', 'print a script that completes commands, options and their values on Tab')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .notes(`
Examples; the first applies to the current shell, the others to new shells:
  source <(ctl completion bash)
  echo 'source <(ctl completion bash)' >> ~/.bashrc
  echo 'source <(ctl completion zsh)' >> ~/.zshrc        after compinit

The script completes ${PROGRAM_NAMES.replace(' ', ' and ')}, which npm installs. Ids and names of keys, secrets and tokens
are read from the gateway that the shell's environment variables point to.`)
    .action((shell: Shell) => session.write(SCRIPTS[shell]));

  program
    .command('complete', { hidden: true })
    .argument('<shell>')
    .argument('<words...>', 'the words after the program, up to the one at the cursor, as they are typed')
    .action(async (shell: Shell, typed: readonly string[]) => {
      session.write((await offered(program, session, shell, typed.map(unquoted))).map((line) => `${line}\n`).join(''));
      // A call that hangs must not delay the shell, which is blocked until this process exits.
      process.exit();
    });
}

/** How long the shell waits for ids and names. */
const LONGEST_WAIT_MS = 2_000;

const unquoted = (word: string): string => word.replace(/^["']|["']$/g, '').replaceAll(/\\(.)/g, '$1');

/** Reads what the arguments of these names can stand for. */
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

/** Finds ids and names that begin with the typed text. If that contains a secret, nothing is sent. */
async function wordsFrom(session: Session, kind: Kind, beginning: string, key: string): Promise<ReadonlySet<string>> {
  const { text, hadSecret } = searchText(beginning);
  if (hadSecret) return new Set();
  const words = (await NAMED[kind](session, text, key)).flatMap(({ id, name }) => [id, name]);
  const begins = (word: string) => word.toLowerCase().startsWith(text.toLowerCase());
  return new Set(words.filter((word) => word !== '' && begins(word) && harmless(word) === word));
}

const NAMED_KINDS = Object.keys(NAMED) as Kind[];

/** The commands of a group that its --help lists, without `help` itself. */
export const shownCommands = (group: Command): readonly Command[] => {
  const shown = group.createHelp().visibleCommands(group);
  return group.commands.filter((command) => shown.includes(command));
};

/**
 * Finds what is valid at the cursor: only the value, after an option that takes one. Options and their values do not
 * count as arguments.
 * @param typed the words up to the one at the cursor. bash splits them at = and :, as in --grace=24h and in times
 * @returns the lines for the script. The first one is `described` for words with their help, `values` for those of an
 *   option, `named` for ids and names, or `file`
 */
async function offered(program: Command, session: Session, shell: Shell, typed: readonly string[]): Promise<string[]> {
  const last = typed.length - 1;
  const beginning = typed[last] ?? '';
  let command = program;
  /** The option whose value is at the cursor. */
  let option: Option | undefined;
  const given: string[] = [];
  for (let at = 0; at < last; at++) {
    const word = typed[at] ?? '';
    option = optionsOf(command).find(
      ({ short, long, required, optional }) => (required || optional) && [short, long].includes(word),
    );
    const below = shownCommands(command).find((one) => one.name() === word);
    if (below !== undefined) command = below;
    else if (option?.variadic) {
      while (at + 1 < last && !typed[at + 1]?.startsWith('-')) at++;
    } else if (option !== undefined) {
      if (typed[at + 1] === '=') at++;
      if (++at < last) option = undefined;
    } else if (/^[=:]/.test(word)) at++;
    else if (!word.startsWith('-')) given.push(word);
  }
  const named = async (kind: Kind) => {
    const late = sleep(LONGEST_WAIT_MS, [], { ref: false });
    return ['named', ...(await Promise.race([wordsFrom(session, kind, beginning, given[0] ?? ''), late]))];
  };
  if (option !== undefined) {
    const { argChoices = [], flags } = option;
    const kind = NAMED_KINDS.find((one) => flags.includes(`<${one}>`));
    if (kind !== undefined) return await named(kind);
    return flags.includes('<file>') ? ['file'] : ['values', ...argChoices];
  }
  const kind = NAMED_KINDS.find((one) => command.registeredArguments[given.length]?.name() === one);
  const found = kind === undefined || beginning.startsWith('-') ? [] : await named(kind).catch(() => []);
  if (found.length > 1) return found;
  const line = (word: string, help: string) => (shell === 'zsh' ? `${word.replaceAll(':', '\\:')}:${help}` : word);
  return [
    'described',
    ...command
      .createHelp()
      .visibleCommands(command)
      .map((one) => line(one.name(), one.description())),
    ...command.registeredArguments.flatMap(({ argChoices = [], description }) =>
      argChoices.map((word) => line(word, description)),
    ),
    ...optionsOf(command).map(({ long, flags, description }) => line(long ?? flags, description)),
  ];
}

function optionsOf(command: Command): readonly Option[] {
  const help = Object.assign(command.createHelp(), { showGlobalOptions: true });
  return [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)];
}

const SCRIPTS = {
  /** https://www.gnu.org/software/bash/manual/html_node/Programmable-Completion.html */
  bash: `# Completion for bash, printed by \`ctl completion bash\`.
_animal_store_ctl() {
  local word=\${COMP_WORDS[COMP_CWORD]} kind found
  COMPREPLY=()
  while IFS= read -r found; do
    if [[ -z $kind ]]; then kind=$found; continue; fi
    [[ $kind != named || $word == [\\"\\']* ]] || printf -v found %q "$found"
    [[ $kind != named && $found != "$word"* ]] || COMPREPLY+=("$found")
  done < <("\${COMP_WORDS[0]}" complete bash -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
  [[ $kind != file ]] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -F _animal_store_ctl ${PROGRAM_NAMES}
`,
  /** https://zsh.sourceforge.io/Doc/Release/Completion-System.html */
  zsh: `#compdef ${PROGRAM_NAMES}
# Completion for zsh, printed by \`ctl completion zsh\`.
_animal_store_ctl() {
  local -a found
  found=("\${(@f)$(\${words[1]} complete zsh -- "\${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)}")
  local kind=$found[1]
  shift found
  if [[ $kind == file ]]; then _files
  elif [[ $kind == described ]]; then _describe 'ctl' found
  elif [[ -n $found ]]; then compadd -- $found
  fi
}
if [[ \${funcstack[1]} == _animal_store_ctl || \${funcstack[1]} == _ctl ]]; then
  _animal_store_ctl
else
  compdef _animal_store_ctl ${PROGRAM_NAMES}
fi
`,
} as const;
