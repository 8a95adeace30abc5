import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { Unavailable } from '../../../shared/domain-errors.ts';
import { ERRORS, type ErrorCode, HttpError } from '../../../shared/http/errors.ts';
import { type CheckResult, fault, unknown } from '../../check-result.ts';
import { MILLISECOND } from '../../limiter/bucket.ts';
import type { KeyEntry } from '../../limiter/key-record.ts';
import { NO_DECISION } from '../../limiter/limiter.ts';
import { hasTags } from '../../limiter/tags.ts';
import { NO_FACTS } from '../../stores/keys.ts';
import type { Peers } from '../../stores/redis/peers.ts';
import { OtherValue } from '../../stores/storage.ts';
import { MOST_DECISIONS, newestFirst } from '../../telemetry/decision-report.ts';
import {
  type FoundRequests,
  mergeFound,
  REQUEST_CURSOR,
  RequestQuery,
  type RequestReport,
} from '../../telemetry/recent-requests.ts';
import { type BanView, DecisionsAnswer, ExplainAnswer, RequestsAnswer, type RequestView } from './answers.ts';
import { runningBans } from './key-view.ts';
import { describe, findKey } from './keys.ts';
import { type AdminDependencies, operation, type RequestSource } from './operation.ts';
import { cursor, period, periodIn, tag, tagsIn, text, wholeNumber } from './values.ts';

const PAGE = 50;
const MOST = 200;
/** Gateways that do not respond within this time are listed as missing. Their wait for their own workers is shorter. */
const ANSWER_WITHIN_MS = 1_000;
const PEER_KNOWN_WITHIN_MS = 2_500;
/** How long one call searches for requests with keys that have certain tags. */
const SEARCH_MS = 1_000;
/** How long a response waits for the names of keys. */
const NAMES_WITHIN_MS = 500;

const STATUS = 'must be a status such as 429, or a class such as 4xx';

const RequestsQuery = z.object({
  keyId: text,
  tag,
  status: z
    .string(STATUS)
    .regex(/^(?:[1-5]\d\d|[1-5][xX][xX])?$/, STATUS)
    .optional(),
  code: text,
  /** A part of the request id, the path, the address, the key id, the code or the outcome. */
  q: text,
  ...period,
  after: cursor((given) => REQUEST_CURSOR.test(given)),
  limit: wholeNumber(1, MOST).default(PAGE),
});

/**
 * Lists requests, newest first. `after` is the `next` of a previous response. With `tag`, it lists only requests with
 * keys that have all of these tags, or had them when they were revoked. Tags are not stored with requests, so each call
 * searches for at most a second: a page can be short and still have a `next`.
 */
export const listRequests = operation({ query: RequestsQuery, answer: RequestsAnswer }, async ({ deps, query }) => {
  const [wanted, tags] = [wantedIn(query), tagsIn(query.tag)];
  const limit = tags.length === 0 ? wanted.limit : MOST;
  const [found, missing, keys] = [[] as RequestReport[], new Set<string>(), new Map<string, KeyEntry | undefined>()];
  const giveUpAt = performance.now() + SEARCH_MS;
  let after = wanted.after;
  let since = 0;
  let isAtEnd = false;
  while (!isAtEnd && found.length < wanted.limit && performance.now() < giveUpAt) {
    const page = await deps.requests.find({ ...wanted, after, limit });
    for (const one of page.missing) missing.add(one);
    since = page.since;
    await loadKeys(deps, page.requests, keys, tags.length > 0);
    for (const report of page.requests) {
      if (found.length === wanted.limit) break;
      if (hasTags(keys.get(report.keyId ?? '')?.record.tags, tags)) found.push(report);
      after = report.cursor;
    }
    isAtEnd = page.requests.length < limit;
  }
  const shown = [...new Set(found.map(({ keyId = '' }) => keyId))].flatMap((id) => keys.get(id) ?? []);
  // The ends of bans are compared with this machine's clock, because the store may be unavailable. Requests refused by
  // bans are counted only if all gateways have responded, so that the call waits only once for a gateway that hangs.
  const bans = await runningBans(deps, shown, Date.now() * MILLISECOND, missing.size === 0);
  const views = found.map((report) => viewOf(report, keys, bans));
  const next = isAtEnd && found.length < wanted.limit ? undefined : after;
  return { requests: views, missing: [...missing], since: new Date(since).toISOString(), next };
});

/** The requests on this gateway and on all others with the same store. */
export function ofAllGateways(own: RequestSource, peers: Peers | undefined): RequestSource {
  return {
    async find(query) {
      const [here, there] = await Promise.all([own.find(query), peers?.ask(query, ANSWER_WITHIN_MS)]);
      if (there === undefined) return here;
      const silent = {
        requests: [],
        missing: there.missing?.map(({ gateway }) => gateway) ?? ['the gateways registered in Redis'],
        since: 0,
      };
      return mergeFound([here, ...there.answers.map(foundBy), silent], query);
    },
  };
}

/** Checks whether other gateways and their workers respond. If Redis cannot list them, the Redis check reports it. */
export async function checkPeers(peers: Peers | undefined): Promise<CheckResult[]> {
  const query: RequestQuery = { limit: 1 };
  const {
    missing = [],
    answers = [],
    areUnasked,
    refusal,
    cause,
  } = (await peers?.ask(query, PEER_KNOWN_WITHIN_MS)) ?? {};
  const ofGateway =
    'It or its machine is hung, it runs another version, or it was killed. In the last case, this finding disappears after five minutes.';
  const ofWorker = 'It will be replaced unless it answers again.';
  const silent = (name: string, advice: string) => unknown(`gateway ${name}`, 'does not answer', advice);
  if (cause instanceof OtherValue)
    return [
      fault(
        'other gateways',
        'are not listed, because gateway:gateways in Redis holds a value of the wrong type: changes get 503',
        'Run DEL gateway:gateways. Each gateway lists itself again within a second.',
      ),
    ];
  if (areUnasked)
    return [
      unknown(
        'other gateways',
        `cannot be queried through Redis${refusal === undefined ? '' : `: ${refusal}`}`,
        'See the other findings. On NOPERM, fix the user gateway in users.acl.',
      ),
    ];
  return [
    ...missing.map(({ gateway, seenAt }) => ({ ...silent(gateway, ofGateway), since: seenAt })),
    ...answers.flatMap((one) => foundBy(one).missing.map((worker) => silent(worker, ofWorker))),
  ];
}

/** Answers another gateway's query. */
export const answerPeer = (own: RequestSource) => (content: unknown) => own.find(RequestQuery.parse(content));

const Report = z.custom<RequestReport>((value) => typeof (value as RequestReport | null)?.cursor === 'string');
const Found = z
  .object({ requests: z.array(Report), missing: z.array(z.string()), since: z.number().default(0) })
  .catch({ requests: [], missing: [], since: 0 });

/** Reads what another gateway has found, and which of its workers did not respond. */
function foundBy({ gateway, answer }: { readonly gateway: string; readonly answer: unknown }): FoundRequests {
  const { requests, missing, since } = Found.parse(answer);
  return { requests, missing: missing.map((worker) => `${gateway} ${worker}`), since };
}

function wantedIn({ keyId, status, code, q, after, limit, ...asked }: z.infer<typeof RequestsQuery>): RequestQuery {
  return {
    keyId: keyId || undefined,
    // A class such as 4xx is queried by its first digit.
    status: status ? Number(status.replace(/xx$/i, '')) : undefined,
    code: code || undefined,
    text: q?.toLowerCase() || undefined,
    ...periodIn(asked),
    after,
    limit,
  };
}

/**
 * Adds the current data of the requests' keys to `known`. If the store is unavailable, requests are shown without
 * names.
 * @throws {Unavailable} if the store is unavailable and tags are needed
 */
async function loadKeys(
  { keys }: AdminDependencies,
  requests: readonly RequestReport[],
  known: Map<string, KeyEntry | undefined>,
  mustBeKnown: boolean,
): Promise<void> {
  const ids = new Set(requests.flatMap(({ keyId }) => keyId ?? []));
  const load = async (id: string) => {
    known.set(id, await (mustBeKnown ? keys.everKnown(id) : keys.everKnown(id).catch(() => undefined)));
  };
  const late = sleep(NAMES_WITHIN_MS, undefined, { ref: false }).then(() => {
    throw new Unavailable('The keys could not be read in time.', 'Redis does not answer.');
  });
  const loaded = Promise.all([...ids].filter((id) => !known.has(id)).map(load));
  await Promise.race([loaded, late]).catch((fault) => {
    if (mustBeKnown) throw fault;
  });
}

function viewOf(
  report: RequestReport,
  keys: ReadonlyMap<string, KeyEntry | undefined>,
  bans: ReadonlyMap<string, BanView>,
): RequestView {
  const { cursor: _cursor, digest, fault: _fault, banBeganAt: _began, ...shown } = report;
  const { keyId = '' } = report;
  const record = keys.get(keyId)?.record;
  const secret = record?.secrets.find((one) => one.digest === digest);
  const isBanOver = keys.get(keyId) !== undefined && !bans.has(keyId);
  const hadExpired = (of: typeof record | typeof secret) =>
    (of?.expiresAt ?? Infinity) <= Date.parse(report.at) * MILLISECOND;
  const expired = hadExpired(record) ? 'key' : hadExpired(secret) ? 'secret' : undefined;
  const [reason, advice] = whyOf(report, { isBanOver, expired });
  return {
    ...shown,
    keyName: record?.name,
    keyBan: bans.get(keyId),
    secretId: secret?.id,
    reason,
    advice,
  };
}

type Why = readonly [reason?: string | undefined, advice?: string | undefined];

const FIRST_FAILURE = 400;
const FIRST_FAULT = 500;
const LEFT = 499;

/** Who shares a limit per address. */
const networkInWords = (address: string): string =>
  address.includes(':') ? `the /64 network of ${address}` : `the address ${address}`;

/** What the current data of the key shows about a refusal. */
interface Since {
  /** Whether the key is known to be no longer banned. */
  readonly isBanOver: boolean;
  /** What had expired at the time of the request; undefined if that is unknown. */
  readonly expired: 'key' | 'secret' | undefined;
}

/** Empty if the request was served. */
function whyOf(report: RequestReport, since: Since): Why {
  const { status = 0, code = '', outcome, decision, fault, times, address } = report;
  if (status === LEFT) {
    if (fault !== undefined) return [fault, 'Make the client read faster, or request smaller pages (limit).'];
    const reason = 'The client closed its connection before the response was complete.';
    if (times.core === undefined) return [reason, "Compare the duration of the request with the client's timeout."];
    const took = `The core took ${Math.round(times.core)} ms to respond.`;
    return [reason, `${took} Compare that with the client's timeout.`];
  }
  if (status < FIRST_FAILURE) {
    if (decision?.shadow === undefined) return [];
    const limit = `the limit ${inWords(decision.refusedBy)} would have refused this request`;
    return [`The plan ${decision.plan} is in shadow mode. In enforce mode, ${limit}.`];
  }
  // The limit per address also refuses requests with an invalid key.
  if (code === 'rate_limit_exceeded' && outcome !== 'admitted' && outcome !== 'refused')
    return [
      `In one minute, ${networkInWords(address)} sent too many requests that do not count against a key.${retryIn(report)}`,
      'Check its earlier requests: they have no valid key, or they read the limits or the reference too often.',
    ];
  const refusal = REFUSALS[outcome]?.(report, since);
  if (refusal !== undefined) return refusal;
  const cure = ERRORS[code as ErrorCode]?.cure.replaceAll('`', '');
  const advice = ADVICE[code] ?? (status < FIRST_FAULT && cure ? `Advice for the client: ${cure}` : undefined);
  return [fault ?? 'The core sent this response. Its log shows why.', advice];
}

const inWords = (buckets: readonly string[] = []): string =>
  buckets.length === 0 ? 'of the key' : `per ${buckets.join(' and per ')}`;

const retryIn = ({ retryAt }: RequestReport): string =>
  retryAt === undefined ? '' : ` The client could retry at ${toSecond(retryAt)}.`;

const REFUSALS: Readonly<Record<string, (report: RequestReport, since: Since) => Why>> = {
  refused: (report) => {
    const { decision } = report;
    const [empty = 'minute'] = decision?.refusedBy?.toReversed() ?? [];
    const limit = decision?.buckets?.[empty === 'day' ? 'day' : 'minute'].limit;
    return [
      `The key had used up its limit of ${limit} ${limit === 1 ? 'request' : 'requests'} per ${empty}.${retryIn(report)}`,
      `Raise the limit of the key or of its plan (${decision?.plan}), or make the client wait for the time in Retry-After.`,
    ];
  },
  banned: ({ decision }, { isBanOver }) => {
    const until = decision?.bannedUntil && toSecond(decision.bannedUntil);
    const over = isBanOver ? ' The ban is over.' : '';
    if (decision?.isBannedByOperator)
      return [
        `An operator had banned the key until ${until}.${over}`,
        'The audit log has the name of the operator and the reason.',
      ];
    return [
      `The key was banned until ${until}, because its client kept sending requests before Retry-After had passed.${over}`,
      isBanOver
        ? 'Make the client respect Retry-After. Otherwise its next ban lasts longer.'
        : 'Lift the ban once the client respects Retry-After.',
    ];
  },
  forbidden: ({ method }) => [
    `The secret lacks the scope for ${method}.`,
    'Use a secret with that scope, or change the scope of this one.',
  ],
  malformed: () => [
    'The request had no API key in its Authorization header, or a malformed one.',
    'The client must send the header Authorization: Bearer as_… with the whole key.',
  ],
  unknown: ({ keyId }) => [
    `There is no key ${keyId} with this secret: the key or the secret was revoked, or it was never issued.`,
    'Find the key in the audit log, and issue a new secret.',
  ],
  disabled: () => ['The key is disabled.', 'Enable it to serve its requests again.'],
  expired: (_, { expired }) => {
    if (expired === 'key') return ['The key has expired.', 'Extend its expiry, or issue a new key.'];
    const advice = 'Extend its expiry, or add a new secret.';
    return expired === 'secret'
      ? ['The secret has expired.', advice]
      : ['The key or the secret had expired.', EXPIRIES];
  },
  elsewhere: ({ address }) => [
    `The secret is limited to certain networks, and ${address} is in none of them.`,
    'Add the network to the secret. If the client is not yours, revoke the secret.',
  ],
  shed: () => [
    'The gateway had as many requests in progress as the core can handle, and this client had used its share.',
    'Check the core: it is slow or hangs, or it needs more instances.',
  ],
  unavailable: ({ fault = '' }) => {
    const reason = fault.replace(`${NO_DECISION} `, '');
    if (reason.includes('primary process'))
      return [reason, "Check whether the gateway's primary process hangs or lacks CPU."];
    const isOfUsage = fault.startsWith(NO_FACTS);
    return [
      isOfUsage ? "Redis did not answer, so the key's usage could not be read." : reason,
      'Check Redis, as the runbook describes.',
    ];
  },
  unusable: () => ["The key's data in Redis cannot be read.", 'The doctor names the invalid field.'],
};

/** The expiry was changed since, or the secret was removed. */
const EXPIRIES = 'Compare the expiry of the key and of its secrets with the audit log.';

const ADVICE: Readonly<Record<string, string>> = {
  bad_gateway: "Check the core's log for this time.",
  gateway_timeout: "Check the core's CPU and database at this time.",
  internal_error: "The gateway's log has the stack trace of this error.",
};

/** Rounds up, because a client that retries earlier is refused again. */
const toSecond = (time: string): string =>
  new Date(1_000 * Math.ceil(Date.parse(time) / 1_000)).toISOString().replace('.000Z', 'Z');

const DecisionsQuery = z.object({ limit: wholeNumber(1, MOST_DECISIONS).default(PAGE) });

/** The current state of a key, and the last decisions on it, newest first. */
export const explainKey = operation(
  { query: DecisionsQuery, target: findKey, answer: ExplainAnswer },
  async ({ deps, query: { limit }, target }) => {
    const [key, decisions] = await Promise.all([
      describe(deps, target),
      decisionsOn(deps, { keyId: target.id, limit }),
    ]);
    return { key, planVersion: deps.planCache.version, ...decisions };
  },
);

/** The decisions on the request with this id, newest first. There are several if clients reuse the id. */
export const explainRequest = operation(
  { query: DecisionsQuery, answer: DecisionsAnswer },
  async ({ deps, query: { limit }, params: [requestId] }) => {
    const found = await decisionsOn(deps, { requestId, limit });
    if (found.decisions.length > 0) return found;
    const [reason, silent] = ['No gateway remembers a decision on this request.', found.missing.join(', ')];
    throw new HttpError('not_found', silent === '' ? reason : `${reason} These did not respond: ${silent}.`);
  },
);

/** The last decisions on existing keys, newest first, and the workers and gateways that did not respond. */
export async function decisionsOn(
  { requests }: Pick<AdminDependencies, 'requests'>,
  query: RequestQuery,
): Promise<DecisionsAnswer> {
  const { requests: found, missing } = await requests.find({ ...query, isDecided: true });
  const decisions = found.flatMap(({ decision, gateway }) => (decision ? { ...decision, gateway } : []));
  return { decisions: decisions.sort(newestFirst), missing };
}
