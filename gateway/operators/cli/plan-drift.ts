import { type Command, Option } from 'commander';
import { PLAN_NAMES, type PlanTable } from '../../limiter/plans.ts';
import { EXIT, endWith } from './outcome.ts';
import { BadPlanFile, driftOf, inFull, leftOut, type PlanFile, readPlanFile, toYaml, withGiven } from './plan-file.ts';
import { describeChanges, describePlans, warningsOf } from './plan-text.ts';
import type { Session } from './session.ts';

interface FileOption {
  readonly file: string;
}

interface Author {
  readonly author: string;
  readonly reason: string;
}

/**
 * Adds `plans export`, `plans diff` and `plans apply`, with which a file in git determines the plans.
 * @param withAuthor adds the options that all changes of plans have
 */
export function addPlanFiles(plans: Command, session: Session, withAuthor: (command: Command) => Command): void {
  plans
    .command('export')
    .description('write the plan table in force as a file for git, in YAML or with --json in JSON')
    .addHelpText('after', '\nExample:\n  ctl plans export > plans.yaml')
    .action(async () => {
      const table = await session.call<PlanTable>('GET', '/plans');
      session.print(inFull(table), () => toYaml(table).trimEnd());
    });

  const diff = withFile(plans.command('diff'))
    .description('show differences between the plans in force and a file')
    .addHelpText(
      'after',
      `
This shows what \`plans apply\` would do: the value in force and the one in the file. It exits with 4 if they differ, and with 0 if they do
not. Only plans and fields in the file are compared.

Example:
  ctl plans diff -f plans.yaml || echo "somebody has changed the plans by hand"`,
    )
    .action(async ({ file }: FileOption) => {
      const wanted = await readPlanFile(file).catch((fault: unknown) => refuse(diff, file, fault));
      const drift = driftOf(await session.call<PlanTable>('GET', '/plans'), wanted);
      noteLeftOut(session, wanted);
      const shown = drift.map(({ field, from, to }) => ({ field, from, to }));
      session.print({ drift: shown }, () => (shown.length === 0 ? AS_IN_FILE : describeChanges(shown, process.stdout)));
      if (drift.length > 0) endWith(EXIT.conflict);
    });

  const apply = withAuthor(withFile(plans.command('apply')))
    .description('set the plans to those in a file, in one step; every gateway applies them within a second')
    .addHelpText(
      'after',
      `
The change is shown first, and made only if nobody else has changed the plans in the meantime. On a terminal it needs confirmation,
unless --yes is given. Plans and fields that are not in the file stay. \`plans rollback\` undoes the whole change.

Example:
  ctl plans apply -f plans.yaml --reason "$(git log -1 --format=%h\\ %s -- plans.yaml)"`,
    )
    .action(async ({ file, author, reason }: FileOption & Author) => {
      const wanted = await readPlanFile(file).catch((fault: unknown) => refuse(apply, file, fault));
      const { body, etag } = await session.exchange({ method: 'GET', path: '/plans' });
      const table = body as PlanTable;
      const drift = driftOf(table, wanted);
      noteLeftOut(session, wanted);
      if (drift.length === 0) return session.print(table, () => AS_IN_FILE);
      session.tell(describeChanges(drift, process.stderr));
      for (const plan of PLAN_NAMES.filter((name) => drift.some((change) => change.plan === name)))
        for (const warning of warningsOf(withGiven(table[plan], wanted[plan])))
          session.tell(`Note: ${plan}: ${warning}`);
      await session.confirmChange(`Make ${drift.length === 1 ? 'this change' : `these ${drift.length} changes`}?`);
      const changed = await session.exchange({
        method: 'PATCH',
        path: '/plans',
        body: { plans: changesIn(drift, wanted), author, reason },
        ifMatch: etag,
      });
      session.print(changed.body, () => describePlans(changed.body as PlanTable));
    });
}

const AS_IN_FILE = 'The plans are the same as in the file.';

const withFile = (command: Command): Command =>
  command.addOption(
    new Option('-f, --file <file>', 'plans in YAML or JSON; - for standard input').makeOptionMandatory(),
  );

/** Reports a bad file as a wrong value. */
function refuse(command: Command, file: string, fault: unknown): never {
  if (!(fault instanceof BadPlanFile)) throw fault;
  return command.error(`error: ${file} cannot be used:\n  ${fault.message.replaceAll('\n', '\n  ')}`);
}

function noteLeftOut(session: Session, file: PlanFile): void {
  const names = leftOut(file);
  if (names.length > 0) session.tell(`Note: the file does not contain ${names.join(', ')}.`);
}

/** The values in the file that are not in force. */
function changesIn(drift: ReturnType<typeof driftOf>, file: PlanFile): Record<string, Record<string, unknown>> {
  const changes: Record<string, Record<string, unknown>> = {};
  for (const { plan, name } of drift) changes[plan] = { ...changes[plan], [name]: file[plan]?.[name] };
  return changes;
}
