import { z } from 'zod';
import type { Peers } from '../../stores/stores.ts';
import {
  newestRequestFirst,
  REQUEST_CURSOR,
  type RequestQuery,
  type RequestReport,
} from '../../telemetry/recent-requests.ts';
import type { RequestsAnswer, RequestView } from './answers.ts';
import type { AdminDependencies, AdminOperation, RequestSource } from './operation.ts';
import { cursor, msOf, readQuery, text, time, wholeNumber } from './query.ts';

/** The last requests of all gateways, each with the reason for its answer in words. */

const PAGE = 50;
const MOST = 200;
/** Gateways that have not answered by then are listed as missing. */
const ANSWER_WITHIN_MS = 1_000;

const Wanted = z.object({
  keyId: z.string().optional(),
  status: z.int().optional(),
  code: z.string().optional(),
  text: z.string().optional(),
  from: z.number().optional(),
  to: z.number().optional(),
  after: z.string().optional(),
  limit: z.int().min(1).max(MOST),
});

const STATUS = 'must be a status such as 429, or a class such as 4xx';

export const RequestsQuery = z.object({
  keyId: text,
  status: z
    .string(STATUS)
    .regex(/^(?:[1-5]\d\d|[1-5][xX][xX])?$/, STATUS)
    .optional(),
  code: text,
  /** A part of the request id, the path, the address, the key id, the code or the outcome. */
  q: text,
  from: time,
  to: time,
  after: cursor((given) => REQUEST_CURSOR.test(given)),
  limit: wholeNumber(1, MOST).default(PAGE),
});

/** The newest first; `after` is the `next` of another answer. */
export const listRequests: AdminOperation = async ({ deps, query }) => {
  const wanted = wantedIn(query);
  const { requests, missing } = await deps.requests.find(wanted);
  const keys = await keysOf(deps, requests);
  const views = requests.map((report) => describe(report, keys.get(report.keyId ?? '')));
  const next = requests.length === wanted.limit ? requests.at(-1)?.cursor : undefined;
  return { status: 200, body: { requests: views, missing, next } satisfies RequestsAnswer };
};

/** Those of this gateway and of all others on its store. */
export function ofAllGateways(own: RequestSource, peers: Peers | undefined): RequestSource {
  return {
    findDecisions: (query) => own.findDecisions(query),
    async find(query) {
      const [here, there] = await Promise.all([own.find(query), peers?.ask(query, ANSWER_WITHIN_MS)]);
      const told = (there?.answers ?? []).map((answer) => Found.safeParse(answer).data ?? NOTHING);
      const requests = [here, ...told].flatMap((one) => one.requests).sort(newestRequestFirst);
      const missing = [here, ...told].flatMap((one) => one.missing);
      return { requests: requests.slice(0, query.limit), missing: [...missing, ...(there?.missing ?? [])] };
    },
  };
}

/** The answer to another gateway. */
export const answerPeer =
  (own: RequestSource) =>
  async (content: unknown): Promise<unknown> =>
    await own.find(Wanted.parse(content));

const Report = z.custom<RequestReport>((value) => typeof (value as RequestReport | null)?.cursor === 'string');
const Found = z.object({ requests: z.array(Report), missing: z.array(z.string()) });
const NOTHING = { requests: [], missing: [] };

/** @throws {HttpError} 400 */
function wantedIn(query: URLSearchParams): RequestQuery {
  const { keyId, status, code, q, from, to, after, limit } = readQuery(RequestsQuery, query);
  return {
    keyId: keyId || undefined,
    // Of a class, its first digit.
    status: status ? Number(status.replace(/xx$/i, '')) : undefined,
    code: code || undefined,
    text: q?.toLowerCase() || undefined,
    from: msOf(from),
    to: msOf(to),
    after,
    limit,
  };
}

interface KnownKey {
  readonly name: string;
  /** The ids of its secrets, by digest. */
  readonly secrets: ReadonlyMap<string, string>;
}

/** What is known of the keys now. Without the store, requests are shown without names. */
async function keysOf({ keys }: AdminDependencies, requests: readonly RequestReport[]): Promise<Map<string, KnownKey>> {
  const ids = new Set(requests.flatMap(({ keyId, decision }) => (decision === undefined ? [] : (keyId ?? []))));
  const found = await Promise.all([...ids].map((id) => keys.get(id).catch(() => undefined)));
  return new Map(
    found.flatMap((entry) => {
      if (entry === undefined) return [];
      const secrets = new Map(entry.record.secrets.map(({ id, digest }) => [digest, id]));
      return [[entry.id, { name: entry.record.name, secrets }] as const];
    }),
  );
}

function describe(report: RequestReport, key: KnownKey | undefined): RequestView {
  const { cursor: _cursor, digest, fault: _fault, ...shown } = report;
  const why = whyOf(report);
  return {
    ...shown,
    keyName: key?.name,
    secretId: key?.secrets.get(digest ?? ''),
    reason: why?.reason,
    advice: why?.advice,
  };
}

interface Why {
  readonly reason: string;
  /** What to look at or to change. */
  readonly advice?: string;
}

const FIRST_FAILURE = 400;
const LEFT = 499;

/** Why a request was answered as it was; undefined if it was served. */
function whyOf(report: RequestReport): Why | undefined {
  const { status = 0, code, outcome, decision, fault, times, address } = report;
  if (status === LEFT)
    return {
      reason: 'The client closed its connection before the answer was complete.',
      advice:
        times.core === undefined
          ? 'Compare the time that it waited with the timeout of the client.'
          : `The core took ${Math.round(times.core)} ms to answer. Compare that with the timeout of the client.`,
    };
  if (status < FIRST_FAILURE)
    return decision?.shadow === undefined
      ? undefined
      : {
          reason: `The plan ${decision.plan} is in shadow mode. Without it, the limit ${inWords(decision.refusedBy)} would have refused this request.`,
        };
  const refusal = REFUSALS[outcome]?.(report);
  if (refusal !== undefined) return refusal;
  if (code === 'rate_limit_exceeded')
    return {
      reason: `The address ${address} has sent too many requests without a valid API key in a minute.`,
      advice: 'Look at its earlier requests: it sends no key, or one that is not valid.',
    };
  return { reason: fault ?? 'The core gave this answer, and its log says why.', ...ADVICE[code ?? ''] };
}

const inWords = (buckets: readonly string[] = []): string =>
  buckets.length === 0 ? 'of the key' : `of the ${buckets.join(' and the ')}`;

const REFUSALS: Readonly<Record<string, (report: RequestReport) => Why>> = {
  refused: ({ decision }) => {
    const [empty = 'minute'] = decision?.refusedBy?.toReversed() ?? [];
    const limit = decision?.buckets?.[empty === 'day' ? 'day' : 'minute'].limit;
    const retry = decision?.retryAt === undefined ? '' : ` It was told to come back at ${toSecond(decision.retryAt)}.`;
    return {
      reason: `The key had used its limit of ${limit} ${limit === 1 ? 'request' : 'requests'} a ${empty}.${retry}`,
      advice: `Raise the limit of the key or of its plan ${decision?.plan}, or let the client wait for the time in Retry-After.`,
    };
  },
  banned: ({ decision }) => ({
    reason: `The key was banned until ${toSecond(decision?.bannedUntil ?? '')}.`,
    advice: 'The page of the key shows why. Lift the ban once the client waits for the time in Retry-After.',
  }),
  forbidden: ({ method }) => ({
    reason: `The secret that was used has no scope for ${method}.`,
    advice: 'Use a secret with that scope, or change the scope of this one.',
  }),
  malformed: () => ({
    reason: 'The request had no API key in its Authorization header, or a malformed one.',
    advice: 'The client sends the header Authorization: Bearer as_…, with the whole key.',
  }),
  unknown: ({ keyId }) => ({
    reason: `No key ${keyId} has this secret: the key or the secret was revoked, or it was never issued.`,
    advice: 'Look for the key in the audit log, and issue a new secret.',
  }),
  disabled: () => ({ reason: 'The key is disabled.', advice: 'Enable it on the page of the key.' }),
  expired: () => ({
    reason: 'The key, or the secret that was used, has expired.',
    advice: 'Issue a new secret, or move the end of the key.',
  }),
  elsewhere: ({ address }) => ({
    reason: `The secret may be used from its own networks only, and ${address} is in none of them.`,
    advice: 'Add the network to the secret. If the client is not yours, revoke the secret.',
  }),
  shed: () => ({
    reason: 'The gateway had as many requests under way as the core can answer, and this client had its share of them.',
    advice: 'Look at the core: it is slow, or it needs more instances.',
  }),
  unavailable: () => ({
    reason: 'Redis did not answer, and this gateway has not seen the key before.',
    advice: 'Look at Redis; the runbook has a page for it.',
  }),
  unusable: () => ({
    reason: 'What Redis holds of the key cannot be read.',
    advice: 'The doctor names the field that is wrong.',
  }),
};

const ADVICE: Readonly<Record<string, { readonly advice: string }>> = {
  bad_gateway: { advice: 'Look at the log of the core at this time.' },
  gateway_timeout: { advice: 'Look at the CPU and the database of the core at this time.' },
  internal_error: { advice: 'The log of the gateway has the stack of this fault.' },
};

const toSecond = (time: string): string => time.replace(/\.\d+Z$/, 'Z');
