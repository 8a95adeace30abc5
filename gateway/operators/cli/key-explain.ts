import type { Command } from 'commander';
import type { DecisionReport, DecisionsAnswer, ExplainAnswer } from '../api/answers.ts';
import { KEY, pathTo } from './key-names.ts';
import { describeKey } from './key-text.ts';
import type { Session } from './session.ts';
import { linesOf, table } from './table.ts';
import { preciseTimeText, timeText } from './time-text.ts';

/** Adds `keys explain`, which shows why requests were admitted or refused. */
export function addExplain(keys: Command, session: Session): void {
  const explain = keys
    .command('explain')
    .description('explain why requests of a key, or one request, were admitted or refused')
    .argument('[key]', KEY)
    .option('--request <id>', 'one request, by its X-Request-Id, which is in every response and every log')
    .option('--limit <number>', 'maximum number of decisions, up to 1000', '50')
    .addHelpText(
      'after',
      `
Each process keeps its last requests in memory, and a gateway reports the decisions of all its processes. Other gateways on
the same Redis keep their own: use the one whose log has the request. Requests with unknown keys, and those refused before a
decision, are not kept.

"Before" and "after" are the requests left in each bucket, refilled up to the moment of the decision. A request is admitted
if both hold at least 1, and takes 1 from each; a refused one takes nothing. "Local" is a decision that was made in the
gateway while Redis was away.

Examples:
  ctl keys explain 4fXk20LmQa9z --limit 5
  ctl keys explain --request 1d9d2e71-70ef-42a0-853b-af79a5ee6eab`,
    )
    .action(async (key: string | undefined, { request, limit }: { request?: string; limit: string }) => {
      if ((key === undefined) === (request === undefined))
        explain.error('error: pass the id or the name of a key, or a request with --request.');
      if (key !== undefined) await explainKey(session, key, limit);
      if (request !== undefined) await explainRequest(session, request, limit);
    });
}

async function explainKey(session: Session, given: string, limit: string): Promise<void> {
  const query = new URLSearchParams({ limit });
  const explained = await session.call<ExplainAnswer>('GET', `${await pathTo(session, given)}/explain?${query}`);
  const { key, decisions } = explained;
  session.print(explained, () => `${describeKey(key)}\n\n${describeDecisions(decisions)}`);
}

function describeDecisions(decisions: readonly DecisionReport[]): string {
  if (decisions.length === 0) return 'This gateway does not remember a decision about it.';
  const rows = decisions.map((decision) => [
    decision.at && preciseTimeText(decision.at),
    decision.shadow === undefined ? decision.outcome : 'shadow refusal',
    decision.refusedBy?.join(', ') ?? '-',
    change(decision.buckets?.minute),
    change(decision.buckets?.day),
    decision.mode ?? '-',
    decision.requestId,
  ]);
  return table(['at', 'outcome', 'refused by', 'minute', 'day', 'mode', 'request'], rows);
}

async function explainRequest(session: Session, request: string, limit: string): Promise<void> {
  const query = new URLSearchParams({ limit });
  const told = await session.call('GET', `/decisions/${encodeURIComponent(request)}?${query}`);
  const { decisions } = told as DecisionsAnswer;
  session.print(told, () => decisions.map(describeDecision).join('\n\n'));
}

function describeDecision(decision: DecisionReport): string {
  const { buckets, plan, planVersion, gateway } = decision;
  return linesOf([
    ['request', decision.requestId],
    ['key', decision.keyId],
    ['outcome', decision.outcome],
    ['shadow', decision.shadow],
    ['refused by', decision.refusedBy?.join(', ')],
    ['banned until', decision.bannedUntil && timeText(decision.bannedUntil)],
    ['plan', plan && `${plan}, table version ${planVersion ?? 'unknown'}`],
    ['minute', buckets && `${change(buckets.minute)} of ${buckets.minute.limit}`],
    ['day', buckets && `${change(buckets.day)} of ${buckets.day.limit}`],
    ['bad overrides', decision.rejectedOverrides?.join(', ')],
    ['decided at', decision.at && preciseTimeText(decision.at)],
    ['mode', decision.mode],
    ['gateway', `${gateway.host}, process ${gateway.pid}${gateway.worker ? `, worker ${gateway.worker}` : ''}`],
  ]);
}

const change = (bucket?: { before: number; after: number }): string =>
  bucket === undefined ? '-' : `${bucket.before} -> ${bucket.after}`;
