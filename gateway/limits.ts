import { takesNoBody } from '../shared/body.ts';
import type { HttpError } from '../shared/errors.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import { ticksUntilFull } from './access/bucket.ts';
import type { KeyFacts, KeyFactsReader } from './access/key-facts.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import { type BucketState, type Decision, SECOND } from './access/verdict.ts';
import { ADDRESS_LIMITED, credentialIn, refuseKeyInTarget, UNAUTHORIZED } from './admit.ts';
import type { CanonicalRequest } from './edge/canonical-request.ts';
import type { Exchange } from './exchange.ts';
import { retryAfterSeconds, standingHeaders } from './respond/limit-headers.ts';
import { LIMITS_ROUTE } from './routes.ts';

/** GET /v1/limits: where a key stands, free of charge. It is no decision: nothing is taken, and nothing counted as one. */

export interface LimitsParts {
  readonly limiter: Limiter;
  readonly facts: KeyFactsReader;
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
}

export const asksForLimits = ({ method, path }: CanonicalRequest): boolean =>
  path === LIMITS_ROUTE.path && (method === 'GET' || method === 'HEAD');

/**
 * Answers, or returns the refusal. The address pays, before anything is asked.
 * @throws {HttpError} 400; 503 where nobody can say where the key stands
 */
export async function answerLimits(
  exchange: Exchange,
  request: CanonicalRequest,
  { limiter, facts, allowance, draftFields }: LimitsParts,
): Promise<HttpError | undefined> {
  exchange.standing = allowance.charge(exchange.address);
  if (exchange.standing.outcome === 'refused') return ADDRESS_LIMITED;
  exchange.route = LIMITS_ROUTE;
  refuseKeyInTarget(request.target);
  if (request.hasBody) throw takesNoBody();
  const credential = credentialIn(exchange, request.authorization);
  if (credential === undefined) return UNAUTHORIZED;
  const verdict = await limiter.peek(credential);
  if (verdict.outcome === 'undecided') throw new AccessUnavailable(`The key's data is ${verdict.reason}.`);
  const known = verdict.outcome === 'unauthorized' ? undefined : await facts.of(credential);
  if (verdict.outcome === 'unauthorized' || known === undefined) return UNAUTHORIZED;
  exchange.plan = verdict.plan;
  send(exchange, JSON.stringify(describe(verdict, known)), standingHeaders(verdict, draftFields));
  return undefined;
}

function send({ id, request, response, cors }: Exchange, body: string, limits: readonly string[]): void {
  const head = ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(body))];
  response.writeHead(200, [...head, 'X-Request-Id', id, ...limits, ...cors]);
  response.end(request.method === 'HEAD' ? undefined : body);
}

/** As the interface has it. Times are Unix seconds, but for `expiresAt`, which is as it was given. */
function describe(decision: Decision, { name, expiresAt }: KeyFacts) {
  const [minute, day] = decision.buckets as readonly [BucketState, BucketState];
  const until = Math.ceil(decision.bannedUntil / SECOND);
  return {
    name,
    plan: decision.plan,
    minute: describeBucket(minute, decision.now),
    day: describeBucket(day, decision.now),
    ban: decision.outcome === 'banned' ? { until, retryAfter: retryAfterSeconds(decision) } : null,
    scope: ['read', 'write'],
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt / 1_000).toISOString(),
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  const reset = Math.ceil((now + ticksUntilFull(bucket, limit, window)) / SECOND);
  return { limit, remaining: tokens, reset, refillPerSecond: (limit * SECOND) / window };
}
