import { z } from 'zod';
import { HttpError } from '../../../shared/http/errors.ts';
import { MOST_DECISIONS } from '../../telemetry/decision-report.ts';
import type { DecisionsAnswer, ExplainAnswer } from './answers.ts';
import { describe, findKey } from './keys.ts';
import type { AdminOperation } from './operation.ts';
import { readQuery, wholeNumber } from './query.ts';

/** Decisions in one answer. */
const PAGE = 50;

export const DecisionsQuery = z.object({ limit: wholeNumber(1, MOST_DECISIONS).default(PAGE) });

/** The current state of a key, and the last decisions on it by this gateway's processes, the newest first. */
export const explainKey: AdminOperation = async ({ deps, params, query }) => {
  const { limit } = readQuery(DecisionsQuery, query);
  const entry = await findKey(deps, params[0]);
  const [key, decisions] = await Promise.all([
    describe(deps, entry),
    deps.requests.findDecisions({ keyId: entry.id, limit }),
  ]);
  return { status: 200, body: { key, planVersion: deps.planCache.version, decisions } satisfies ExplainAnswer };
};

/** The decisions on a request. There are several, the newest first, if clients reuse an id. */
export const explainRequest: AdminOperation = async ({ deps, params, query }) => {
  const { limit } = readQuery(DecisionsQuery, query);
  const decisions = await deps.requests.findDecisions({ requestId: params[0], limit });
  if (decisions.length === 0) throw new HttpError('not_found', 'This gateway remembers no decision on such a request.');
  return { status: 200, body: { decisions } satisfies DecisionsAnswer };
};
