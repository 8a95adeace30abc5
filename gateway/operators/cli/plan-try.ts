import { Argument, type Command } from 'commander';
import { PLAN_NAMES } from '../../limiter/plans.ts';
import type { TrialAnswer } from '../api/answers.ts';
import { readTrial } from '../whole-answers.ts';
import type { Session } from './session.ts';
import { table } from './table.ts';
import { limit } from './values.ts';

/** Adds `plans try`. */
export function addTry(plans: Command, session: Session): void {
  plans
    .command('try')
    .description('report which keys other limits would have refused in the last hour')
    .addArgument(new Argument('<plan>', 'the plan').choices(PLAN_NAMES))
    .option('--minute <number>', 'requests per minute', limit)
    .option('--day <number>', 'requests per day', limit)
    .addHelpText(
      'after',
      `
Nothing is changed. The result is a lower bound: requests are counted by the minute, so both buckets count as full an hour
ago, and each request as sent when a token was available. The same traffic would have been refused at least as often, not
counting bans. A key's own limits override
those that are tried. To see exact numbers over days, try the limits in shadow mode.

Examples:
  ctl plans try free --minute 30
  ctl plans try pro --minute 200 --day 5000 --json
  ctl plans set free --minute 30 --mode shadow`,
    )
    .action(async (plan: string, limits: { minute?: number; day?: number }) => {
      const ask = async (path: string) =>
        (await session.exchange({ method: 'POST', path, body: limits, isTrial: true })).body as TrialAnswer;
      const { isWhole: _isWhole, ...trial } = await readTrial(ask, plan);
      session.print(trial, () => describe(plan, trial));
    });
}

function describe(plan: string, { keys, requests, affected }: TrialAnswer): string {
  const total = affected.reduce((sum, { wouldRefuse }) => sum + wouldRefuse, 0);
  const summary = `At least ${total} of ${requests} requests of the last hour would have been refused, of at least ${affected.length} of ${keys} keys of ${plan}.`;
  if (affected.length === 0) return summary;
  const rows = affected.map(({ id, name, requests: sent, refused, wouldRefuse }) => [
    id,
    sent,
    refused,
    wouldRefuse,
    name,
  ]);
  return `${table(['id', 'requests', 'refused', 'would refuse', 'name'], rows)}\n\n${summary}`;
}
