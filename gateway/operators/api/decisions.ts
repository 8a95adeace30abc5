import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { type DecisionReport, MOST_DECISIONS, newestFirst } from '../../telemetry/decision-report.ts';
import type { RequestQuery } from '../../telemetry/recent-requests.ts';
import type { DecisionsAnswer, ExplainAnswer } from './answers.ts';
import { describe, findKey } from './keys.ts';
import type { AdminDependencies, AdminOperation } from './operation.ts';
import { readQuery, wholeNumber } from './query.ts';

const PAGE = 50;

export const DecisionsQuery = z.object({ limit: wholeNumber(1, MOST_DECISIONS).default(PAGE) });

/** The current state of a key, and the last decisions on it by this gateway's processes, the newest first. */
export const explainKey: AdminOperation = async ({ deps, params, query }) => {
  const { limit } = readQuery(DecisionsQuery, query);
  const entry = await findKey(deps, params[0]);
  const [key, decisions] = await Promise.all([describe(deps, entry), decisionsOn(deps, { keyId: entry.id, limit })]);
  return { status: 200, body: { key, planVersion: deps.planCache.version, decisions } satisfies ExplainAnswer };
};

/** The decisions on a request. There are several, the newest first, if clients reuse an id. */
export const explainRequest: AdminOperation = async ({ deps, params, query }) => {
  const { limit } = readQuery(DecisionsQuery, query);
  const decisions = await decisionsOn(deps, { requestId: params[0], limit });
  if (decisions.length === 0) throw new HttpError('not_found', 'This gateway remembers no decision on this request.');
  return { status: 200, body: { decisions } satisfies DecisionsAnswer };
};

/** The last decisions by this gateway's processes on a key that exists, the newest first. */
export async function decisionsOn(
  { requests }: Pick<AdminDependencies, 'requests'>,
  query: RequestQuery,
): Promise<DecisionReport[]> {
  const found = await requests.find({ ...query, isDecided: true });
  return found.requests
    .flatMap(({ decision, gateway }) => (decision ? { ...decision, gateway } : []))
    .sort(newestFirst);
}
