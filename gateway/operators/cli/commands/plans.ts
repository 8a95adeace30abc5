import { Argument, type Command, Option } from 'commander';
import {
  FIELD_NAMES,
  PLAN_NAMES,
  type Plan,
  type PlanField,
  type PlanTable,
  ruleOf,
  valueIn,
  whenAbsent,
} from '../../../limiter/plans.ts';
import type { HistoryAnswer } from '../../api/answers.ts';
import { addPlanFiles } from '../plan-drift.ts';
import { type GivenPlan, withGiven } from '../plan-file.ts';
import { describeChanges, describeHistory, describePlans, warningsOf } from '../plan-text.ts';
import { addTry } from '../plan-try.ts';
import { operator, type Session } from '../session.ts';
import { harmless } from '../table.ts';
import { timeText } from '../time-text.ts';
import { planNumber } from '../values.ts';

interface Author {
  readonly author: string;
  readonly reason: string;
}

export const PLACE = 3;

/** Adds `plans …`: the limits of every plan, and the history of their changes. */
export function add(program: Command, session: Session): void {
  const plans = program.command('plans').description('show and set plan limits, and show who set them');
  addReading(plans, session);
  addTry(plans, session);
  addSet(plans, session);
  addRollback(plans, session);
  addPlanFiles(plans, session, withAuthor);
}

function addReading(plans: Command, session: Session): void {
  plans
    .command('show')
    .description('show the plan table in force')
    .action(async () => {
      const shown = await session.call<PlanTable>('GET', '/plans');
      session.print(shown, () => describePlans(shown));
    });

  plans
    .command('history')
    .description('show who changed what, when and why, the newest first')
    .option('--limit <number>', 'maximum number of changes, up to 1000', '20')
    .action(async ({ limit: count }: { limit: string }) => {
      const shown = await historyOf(session, count);
      session.print({ history: shown }, () => describeHistory(shown));
    });
}

async function historyOf(session: Session, count: string): Promise<HistoryAnswer['history']> {
  const shown = await session.call('GET', `/plans/history?limit=${encodeURIComponent(count)}`);
  return (shown as HistoryAnswer).history;
}

function addSet(plans: Command, session: Session): void {
  const set = withAuthor(plans.command('set'))
    .description('change limits of a plan; every gateway applies them within a second')
    .addArgument(new Argument('<plan>', 'the plan').choices(PLAN_NAMES))
    .addHelpText(
      'after',
      `
The change is shown first, and made only if nobody else has changed the plans in the meantime. On a terminal it needs
confirmation, unless --yes is given. Used requests stay used, and a raised limit admits refused keys within a second.

Examples:
  ctl plans set free --minute 120 --reason "launch week"
  ctl plans set pro --minute 600 --day 50000 --yes
  ctl plans set free --minute 30 --mode shadow    try it: no request is refused, but the log shows which would be
  ctl plans set free --mode enforce`,
    )
    .action(async (plan: string, { author, reason, ...options }: Author & Record<string, string | number>) => {
      const given = FIELD_NAMES.map((field) => [field, options[camelCase(field)]] as const);
      const typed = given.filter(([, value]) => value !== undefined);
      const changes: GivenPlan = Object.fromEntries(
        typed.map(([field, value]) => [field, value === 'none' ? null : value]),
      );
      const { body, etag } = await session.exchange({ method: 'GET', path: '/plans' });
      announce(session, plan, (body as Record<string, Plan>)[plan] ?? {}, changes);
      if (Object.keys(changes).length > 0) await session.confirmChange('Make this change?');
      const path = `/plans/${encodeURIComponent(plan)}`;
      const changed = await session.exchange({
        method: 'PATCH',
        path,
        body: { ...changes, author, reason },
        ifMatch: etag,
      });
      session.print(changed.body, () => describePlans({ [plan]: changed.body as Plan }));
    });
  for (const field of FIELD_NAMES) set.addOption(optionOf(field));
}

function optionOf(field: PlanField): Option {
  const { options, help } = ruleOf(field);
  const name = `--${field.replaceAll('_', '-')}`;
  if (options !== undefined) return new Option(`${name} <${field}>`, help).choices(options);
  const absent = whenAbsent(field);
  const all = absent === undefined ? help : `${help}; none for ${absent}`;
  return new Option(`${name} <number>`, all).argParser(planNumber(field));
}

function announce(session: Session, plan: string, before: Plan, changes: GivenPlan): void {
  const fields = FIELD_NAMES.filter(
    (field) => changes[field] !== undefined && changes[field] !== (valueIn(before, field) ?? null),
  );
  const text = (value: number | string | null | undefined) => value?.toString();
  const made = fields.map((field) => ({
    field: `${plan}.${field}`,
    from: text(valueIn(before, field)),
    to: text(changes[field]),
  }));
  if (made.length > 0) session.tell(describeChanges(made, process.stderr));
  for (const warning of warningsOf(withGiven(before, changes))) session.tell(`Note: ${warning}`);
}

function addRollback(plans: Command, session: Session): void {
  withAuthor(plans.command('rollback'))
    .description('revert the last change; a second rollback restores it')
    .addHelpText('after', '\nExample:\n  ctl plans rollback --reason "refused too many"')
    .action(async ({ author, reason }: Author) => {
      const [last] = await historyOf(session, '1');
      const undone = last?.changes.map(({ field, from, to }) => ({ field, from: to, to: from })) ?? [];
      if (undone.length > 0) session.tell(describeChanges(undone, process.stderr));
      if (last !== undefined)
        await session.confirmChange(
          `Roll back the change by ${harmless(last.author)} at ${timeText(last.at, process.stderr)}?`,
        );
      const body = { author, reason, ...(last && { id: last.id }) };
      const changed = await session.call<PlanTable>('POST', '/plans/rollback', body);
      session.print(changed, () => describePlans(changed));
    });
}

const withAuthor = (command: Command): Command =>
  command
    .addOption(
      new Option('--author <name>', 'who makes the change').default(operator(), 'the user who runs the command'),
    )
    .option('--reason <text>', 'why; kept in the history', '');

function camelCase(field: string): string {
  return field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}
