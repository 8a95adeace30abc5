import packageFile from '../../../package.json' with { type: 'json' };
import { Command } from './command.ts';
import type { Session } from './session.ts';

/** The files in commands/, in the order of --help. */
const SUBJECTS = [
  'keys',
  'bans',
  'plans',
  'requests',
  'usage',
  'activity',
  'tokens',
  'backup',
  'restore',
  'doctor',
  'completion',
];

const HINT = '(--help after any command explains it)';

/** Creates all commands from the files in commands/. --help and the completion scripts are generated from them. */
export async function createCommands(session: Session): Promise<Command> {
  const program = new Command('ctl')
    .description('Operates a running gateway: API keys, bans, plan limits and usage.')
    .version(packageFile.version, '-V, --version', 'print the version')
    .option('--json', 'print output and errors as JSON')
    .option('-y, --yes', 'answer yes to all prompts')
    .option('--utc', 'print times in UTC even on a terminal')
    .exitOverride()
    .configureOutput({ writeErr: (text) => session.isJson || process.stderr.write(text) })
    .showHelpAfterError(HINT)
    .notes(HELP);
  const load = (subject: string): Promise<{ add(program: Command, session: Session): void }> =>
    import(`./commands/${subject}.ts`);
  for (const { add } of await Promise.all(SUBJECTS.map(load))) add(program, session);
  program.explainAll();
  program.hook('preAction', (_, command) => {
    session.options = command.optsWithGlobals();
  });
  return program;
}

const HELP = `
ctl finds the gateway by ADMIN_HOST and ADMIN_PORT, and uses ADMIN_TOKEN or the token in DATA_DIR/admin-token.
On a terminal, times are in the local zone (TZ) with its offset; --utc prints UTC. Pipes and --json get UTC. NO_COLOR
disables colours. Irreversible changes ask for confirmation; without a terminal they need --yes.

Examples:
  ctl keys create --plan pro --name acme       issue a key
  ctl keys find acme                           find keys by name, id, request id, or a whole key on standard input
  ctl keys top                                 the busiest keys now
  ctl keys show acme                           the limits, usage and ban of a key, by name or id
  ctl requests --text <request id>             why a request was refused, and what to do
  ctl requests --status 5xx --follow           failures as they happen
  ctl keys rotate <id> --grace 24h             a new secret; the old one works for a day
  ctl bans list
  ctl bans lift <id>
  ctl keys reset <id>                          fill both buckets, and clear its ban and strikes
  ctl plans set free --minute 120 --reason "launch week"
  ctl plans diff -f plans.yaml                 compare the gateway with the file in git; exits with 4 if they differ
  ctl plans rollback
  ctl usage --from 2026-11-01 --csv            the usage of every key, by day
  ctl usage --by tag:customer                  what each customer has used
  ctl activity --target <id>                   who changed a key, when and why
  ctl tokens create --name ann --role viewer   read access for a colleague
  ctl backup > keys.jsonl                      all keys, for ctl restore < keys.jsonl
  ctl doctor                                   check Redis, cores and plans
  ctl --json keys list --name acme
  source <(ctl completion bash)                complete commands and options with Tab

Errors go to standard error, with --json as { code, message } and, from the gateway, its status.

Exit codes:
  0  done
  1  failure: no gateway responded, the gateway failed, the settings are invalid, the doctor found a fault,
     or a backup could not be restored completely
  2  usage: the command, an option or a value is invalid
  3  not found: no such key or plan
  4  conflict: somebody else made a change first, the data cannot be read, or the plans differ from the file
  5  not confirmed`;
