import { Option } from 'commander';
import {
  FIELD_NAMES,
  PLAN_NAMES,
  type Plan,
  type PlanField,
  type PlanName,
  type PlanTable,
  ruleOf,
  whenAbsent,
} from '../../../limiter/plans.ts';
import type { HistoryAnswer, TrafficAnswer, TrialAnswer } from '../../api/answers.ts';
import { readTrial } from '../../clients.ts';
import type { Command } from '../command.ts';
import { banNote } from '../key.ts';
import {
  describeChanges,
  describeHistory,
  describePlans,
  driftOf,
  type GivenPlan,
  inFull,
  leftOut,
  type PlanFile,
  readPlanFile,
  toYaml,
  warningsOf,
  withGiven,
} from '../plan-file.ts';
import { EXIT, operator, type Session } from '../session.ts';
import { type Column, harmless, table, timeText } from '../text.ts';
import { limit, orNull, planNumber } from '../values.ts';

export function add(program: Command, session: Session): void {
  const plans = program.sub('plans', 'show and set plan limits, and show who set them');
  addReading(plans, session);
  addTry(plans, session);
  addSet(plans, session);
  addRollback(plans, session);
  addPlanFiles(plans, session);
}

function addReading(plans: Command, session: Session): void {
  plans.sub('show', 'show the plan table in force').action(async () => {
    const shown = await session.get<PlanTable>('/plans');
    session.print(shown, () => describePlans(shown));
  });

  plans
    .sub('history', 'show who changed what, when and why, newest change first')
    .option('--limit <number>', 'maximum number of changes, up to 1000', '20')
    .action(async ({ limit: count }: { limit: string }) => {
      const shown = await historyOf(session, count);
      session.print({ history: shown }, () => describeHistory(shown));
    });
}

const historyOf = async (session: Session, count = '20'): Promise<HistoryAnswer['history']> =>
  (await session.get<HistoryAnswer>(`/plans/history?limit=${encodeURIComponent(count)}`)).history;

function addSet(plans: Command, session: Session): void {
  const set = withAuthor(plans.sub('set <plan>', 'change limits of a plan; every gateway applies them within a second'))
    .notes(`
The change is shown first, and made only if nobody else has changed the plans in the meantime. On a terminal, it
requires confirmation unless --yes is given. No bucket is refilled, but after a limit is raised, refused keys are
admitted within a second.

Examples:
  ctl plans set free --minute 120 --reason "launch week"
  ctl plans set pro --minute 600 --day 50000 --yes
  ctl plans set free --minute 30 --mode shadow    try it: no request is refused, but the log shows which would be
  ctl plans set free --mode enforce`)
    .action(async (plan: PlanName, options: Readonly<Record<string, string | number>>) => {
      const typed = FIELD_NAMES.filter((field) => options[camelCase(field)] !== undefined);
      const given = (field: PlanField) => orNull(options[camelCase(field)] as number | 'none');
      const changes: GivenPlan = Object.fromEntries(typed.map((field) => [field, given(field)]));
      const { body, etag } = await session.exchange({ method: 'GET', path: '/plans' });
      const table = body as PlanTable;
      const drift = driftOf(table, { [plan]: changes });
      if (drift.length > 0) session.printNote(describeChanges(drift, process.stderr));
      for (const warning of warningsOf(withGiven(table[plan], changes))) session.printNote(`Note: ${warning}`);
      if (Object.keys(changes).length > 0) await session.confirmChange('Make this change?');
      const changed = await session.exchange({ method: 'PATCH', path: `/plans/${plan}`, body: changes, ifMatch: etag });
      session.print(changed.body, () => describePlans({ [plan]: changed.body as Plan }));
    });
  for (const field of FIELD_NAMES) set.addOption(optionOf(field));
}

function optionOf(field: PlanField): Option {
  const { options, help } = ruleOf(field);
  const name = `--${field.replaceAll('_', '-')}`;
  if (options !== undefined) return new Option(`${name} <${field}>`, help).choices(options);
  const absent = whenAbsent(field);
  const all = absent === undefined ? help : `${help}; \`none\` for ${absent}`;
  return new Option(`${name} <number>`, all).argParser(planNumber(field));
}

function addRollback(plans: Command, session: Session): void {
  withAuthor(plans.sub('rollback', 'revert the last change; to revert a rollback, pass its id'))
    .option('--id <change>', 'the id of the last change, as in ctl plans history --json')
    .notes('\nThis command is safe to repeat.\n\nExample:\n  ctl plans rollback --reason "refused too many"')
    .action(async ({ id }: { id?: string }) => {
      const last = (await historyOf(session)).find(({ action }) => action !== 'restore');
      const isReverted = id === undefined ? last?.action !== 'rollback' : last?.id === id;
      if (last !== undefined && isReverted) {
        const undone = last.changes.map(({ field, from, to }) => ({ field, from: to, to: from }));
        session.printNote(describeChanges(undone, process.stderr));
        await session.confirmChange(
          `Roll back the change by ${harmless(last.author)} at ${timeText(last.at, process.stderr)}?`,
        );
      }
      const body = { id: id ?? (isReverted ? last?.id : undefined) };
      const changed = await session.call<PlanTable>('POST', '/plans/rollback', body);
      session.print(changed, () => describePlans(changed));
    });
}

const withAuthor = (command: Command): Command =>
  command
    .addOption(
      new Option('--author <name>', 'who makes the change').default(operator(), 'the user who runs the command'),
    )
    .option('--reason <text>', 'the reason; kept in the history', '');

const camelCase = (field: string): string => field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

function addPlanFiles(plans: Command, session: Session): void {
  plans
    .sub('export', 'print the plan table in force as YAML, or with --json as JSON, for example to keep it in git')
    .notes('\nExample:\n  ctl plans export > plans.yaml')
    .action(async () => {
      const table = await session.get<PlanTable>('/plans');
      session.print(inFull(table), () => toYaml(table).trimEnd());
    });

  const diff = withFile(plans.sub('diff', 'show the differences between the plans in force and a file'))
    .notes(`
Shows what \`plans apply\` would change: each value in force, and the new value in the file. Exits with 4 if any
values differ, otherwise with 0. Only plans and fields in the file are compared.

Example:
  ctl plans diff -f plans.yaml || echo "somebody has changed the plans by hand"`)
    .action(async ({ file }: { file: string }) => {
      const wanted = await fileOf(diff, file);
      const { drift } = await compare(session, wanted);
      noteLeftOut(session, wanted);
      const shown = drift.map(({ field, from, to }) => ({ field, from, to }));
      session.print({ drift: shown }, () => (shown.length === 0 ? AS_IN_FILE : describeChanges(shown, process.stdout)));
      if (drift.length > 0) process.exitCode = EXIT.conflict;
    });

  const apply = withAuthor(
    withFile(plans.sub('apply', 'apply the plans in a file in one step; every gateway uses them within a second')),
  )
    .notes(`
The change is shown first, and made only if nobody else has changed the plans in the meantime. On a terminal, it
requires confirmation unless --yes is given. Plans and fields that are not in the file stay unchanged. To
undo the whole change, use \`plans rollback\`.

Example:
  ctl plans apply -f plans.yaml --reason "$(git log -1 --format=%h\\ %s -- plans.yaml)"`)
    .action(async ({ file }: { file: string }) => {
      const wanted = await fileOf(apply, file);
      const { table, etag, drift } = await compare(session, wanted);
      noteLeftOut(session, wanted);
      if (drift.length === 0) return session.print(table, () => AS_IN_FILE);
      session.printNote(describeChanges(drift, process.stderr));
      for (const plan of PLAN_NAMES.filter((name) => drift.some((change) => change.plan === name)))
        for (const warning of warningsOf(withGiven(table[plan], wanted[plan])))
          session.printNote(`Note: ${plan}: ${warning}`);
      await session.confirmChange(`Make ${drift.length === 1 ? 'this change' : `these ${drift.length} changes`}?`);
      const change = { plans: changesIn(drift, wanted) };
      const changed = await session.exchange({ method: 'PATCH', path: '/plans', body: change, ifMatch: etag });
      session.print(changed.body, () => describePlans(changed.body as PlanTable));
    });
}

async function compare(session: Session, wanted: PlanFile) {
  const { body, etag } = await session.exchange({ method: 'GET', path: '/plans' });
  const table = body as PlanTable;
  const { planTable } = await session.get<TrafficAnswer>('/traffic');
  return { table, etag, drift: driftOf(table, wanted, planTable.rejected) };
}

const AS_IN_FILE = 'The plans are the same as in the file.';

const withFile = (command: Command): Command =>
  command.addOption(
    new Option('-f, --file <file>', 'plans in YAML or JSON; - for standard input').makeOptionMandatory(),
  );

/** Reports a bad file as an invalid value of the option. */
const fileOf = (command: Command, file: string): Promise<PlanFile> =>
  readPlanFile(file).catch(({ message }: Error) =>
    command.error(`error: ${file} cannot be used:\n  ${message.replaceAll('\n', '\n  ')}`),
  );

function noteLeftOut(session: Session, file: PlanFile): void {
  const names = leftOut(file);
  if (names.length > 0) session.printNote(`Note: the file does not contain ${names.join(', ')}.`);
}

/** The values in the file that are not in force. */
function changesIn(drift: ReturnType<typeof driftOf>, file: PlanFile): Record<string, Record<string, unknown>> {
  const changes: Record<string, Record<string, unknown>> = {};
  for (const { plan, name } of drift) changes[plan] = { ...changes[plan], [name]: file[plan]?.[name] };
  return changes;
}

function addTry(plans: Command, session: Session): void {
  plans
    .sub('try <plan>', 'report which keys new limits would have refused in the last hour')
    .option('--minute <number>', 'requests per minute', limit)
    .option('--day <number>', 'requests per day', limit)
    .notes(`
Nothing is changed. Requests are only counted per minute, so the result is a lower bound: it assumes that both buckets
were full an hour ago and that requests arrived when tokens were available, and it ignores bans. A key's own limits
override the new ones. For exact numbers over days, set the limits in shadow mode.

Examples:
  ctl plans try free --minute 30
  ctl plans try pro --minute 200 --day 5000 --json
  ctl plans set free --minute 30 --mode shadow`)
    .action(async (plan: string, limits: { minute?: number; day?: number }) => {
      const ask = async (path: string) =>
        (await session.exchange({ method: 'POST', path, body: limits, isTrial: true })).body as TrialAnswer;
      const { isWhole: _isWhole, ...trial } = await readTrial(ask, plan);
      session.print(trial, () => describe(plan, trial));
    });
}

function describe(plan: string, { keys, requests, affected }: TrialAnswer): string {
  const total = affected.reduce((sum, { wouldRefuse }) => sum + wouldRefuse, 0);
  const summary = `In the last hour, at least ${total} of ${requests} requests would have been refused, from at least ${affected.length} of ${keys} keys on the ${plan} plan.`;
  if (affected.length === 0) return summary;
  const would: Column<(typeof affected)[number]> = ['would refuse', ({ wouldRefuse }) => wouldRefuse];
  const list = table(affected, ['id', 'requests', 'refused', would, 'name', ['?note', ({ ban }) => banNote(ban)]]);
  return `${list}\n\n${summary}`;
}
