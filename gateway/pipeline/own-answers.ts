import { takesNoBody } from '../../shared/http/body.ts';
import { HttpError } from '../../shared/http/errors.ts';
import type { AddressAllowance } from '../limiter/address-allowance.ts';
import { ticksUntilFull } from '../limiter/bucket.ts';
import type { KeyFacts } from '../limiter/client.ts';
import { SECOND } from '../limiter/clock.ts';
import { SCOPES } from '../limiter/credential.ts';
import type { BucketState, Decision, Limiter } from '../limiter/limiter.ts';
import type { PlanTable } from '../limiter/plans.ts';
import { patienceOf, strikesLeft } from '../limiter/refusals.ts';
import { dateOf } from '../limiter/usage-marks.ts';
import type { Reference } from '../reference/files.ts';
import { LIMITS_ROUTE } from '../routes.ts';
import type { factsReader } from '../stores/keys.ts';
import type { KeyRefusal } from '../telemetry/key-refusals.ts';
import { ADDRESS_LIMITED, authenticate, refusalOf, refuseKeyInTarget, UNAUTHORIZED } from './authorize.ts';
import type { CanonicalRequest } from './canonical-request.ts';
import { retryAfterSeconds } from './client-headers.ts';
import type { Cors } from './cors.ts';
import type { Exchange } from './exchange.ts';
import { answerWithFile, costOf } from './reference-answer.ts';
import type { OwnAnswer } from './send-answer.ts';

export interface OwnAnswersDependencies {
  readonly limiter: Limiter;
  readonly factsOf: ReturnType<typeof factsReader>;
  readonly refusals: (id: string) => Promise<readonly KeyRefusal[] | undefined>;
  readonly plans: () => PlanTable;
  readonly allowance: AddressAllowance;
  /** The allowance that pays for reading the reference. */
  readonly readers: AddressAllowance;
  readonly cors: Cors;
  readonly reference: Reference;
}

/**
 * Answers preflights, OPTIONS, and requests for the reference or the limit status. The address pays for these, never a
 * key.
 */
export class OwnAnswers {
  readonly #deps: OwnAnswersDependencies;
  readonly #allowed: (path: string) => string | undefined;

  /** @param allowed the methods of a path; undefined for an unknown path */
  constructor(deps: OwnAnswersDependencies, allowed: (path: string) => string | undefined) {
    this.#deps = deps;
    this.#allowed = allowed;
  }

  /**
   * @returns undefined if the core must answer
   * @throws {HttpError} 400, 401, 405, 429 or 503
   */
  answerTo(request: CanonicalRequest, exchange: Exchange): OwnAnswer | Promise<OwnAnswer> | undefined {
    const preflight = request.hasBody ? undefined : this.#deps.cors.preflightHeaders(exchange.request);
    if (preflight !== undefined) return this.#preflight(exchange, preflight);
    const file = this.#deps.reference.get(request.path);
    if (file !== undefined) {
      exchange.ownAnswer = 'reference';
      exchange.addressStatus = this.#deps.readers.consume(exchange.network, costOf(file, exchange.request.headers));
      return answerWithFile(exchange, request, file, exchange.addressStatus);
    }
    if (request.path === LIMITS_ROUTE.path && (request.method === 'GET' || request.method === 'HEAD'))
      return this.#limits(request, exchange);
    const allowed = request.method === 'OPTIONS' ? this.#methodsOn(request.path) : undefined;
    if (allowed === undefined) return undefined;
    this.#charge(exchange);
    if (request.hasBody) throw takesNoBody();
    return { status: 204, headers: ['Allow', allowed] };
  }

  /** A preflight is free, because a browser sends no key with it. */
  #preflight(exchange: Exchange, headers: readonly string[]): OwnAnswer {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#deps.allowance.peek(exchange.network);
    return { status: 204, headers };
  }

  /** The limit status of a key. It takes no token and does not count as a decision. */
  async #limits(request: CanonicalRequest, exchange: Exchange): Promise<OwnAnswer> {
    this.#charge(exchange);
    exchange.route = LIMITS_ROUTE;
    refuseKeyInTarget(request.target);
    if (request.hasBody) throw takesNoBody();
    const wantsRefusals = readRefusals(request.target);
    const credential = authenticate(request.authorization, { scope: undefined, address: exchange.clientAddress });
    exchange.credential = credential;
    if (credential === undefined) throw UNAUTHORIZED;
    const verdict = await this.#deps.limiter.peek(credential);
    if (verdict.outcome === 'undecided' || verdict.outcome === 'unauthorized')
      throw refusalOf(verdict, exchange.addressStatus, undefined);
    exchange.keyStatus = verdict;
    const known = await this.#deps.factsOf(credential);
    if (known === undefined) {
      exchange.keyStatus = undefined;
      throw UNAUTHORIZED;
    }
    const limits = describeLimits(verdict, known, this.#deps.plans());
    const refusals = wantsRefusals ? { refusals: (await this.#deps.refusals(credential.id)) ?? null } : undefined;
    const body = JSON.stringify({ ...limits, ...refusals });
    return { status: 200, headers: ['Content-Type', 'application/json'], body };
  }

  /** The methods of a path (RFC 9110 §9.3.7); undefined for an unknown path. */
  #methodsOn(path: string): string | undefined {
    const methods = path === '*' ? 'GET, HEAD, POST' : this.#allowed(path);
    return methods && `${methods}, OPTIONS`;
  }

  #charge(exchange: Exchange): void {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#deps.allowance.consume(exchange.network);
    if (exchange.addressStatus.outcome === 'refused') throw ADDRESS_LIMITED;
  }
}

/** Whether a request for limits asks for refusals. They cost a look at all gateways. @throws {HttpError} 400 */
function readRefusals(target: string): boolean {
  const [given = 'false', ...more] = new URLSearchParams(target.split('?')[1]).getAll('refusals');
  if (more.length === 0 && (given === 'true' || given === 'false')) return given === 'true';
  throw new HttpError('invalid_parameter', 'refusals must be true or false, and given once.');
}

/** The body of GET /v1/limits. Times are Unix seconds, except `expiresAt`, which is ISO 8601. */
function describeLimits(decision: Decision, { name, expiresAt, refusals, days }: KeyFacts, plans: PlanTable) {
  const [minute, day] = decision.buckets as readonly [BucketState, BucketState];
  const until = Math.ceil(decision.bannedUntil / SECOND);
  return {
    name,
    plan: decision.plan,
    minute: describeBucket(minute, decision.now),
    day: describeBucket(day, decision.now),
    waitSeconds: retryAfterSeconds(decision) ?? 0,
    strikesLeft: strikesLeft(refusals, decision.now, patienceOf(plans[decision.plan], minute.limit)),
    ban: decision.outcome === 'banned' ? { until, retryAfter: retryAfterSeconds(decision) } : null,
    bannedUntil: decision.outcome === 'banned' ? until : null,
    scope: decision.bounds?.scope ?? SCOPES,
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt / 1_000).toISOString(),
    usage: days.map(({ at, admitted, refused }) => ({ day: dateOf(at), admitted, refused })),
  };
}

function describeBucket(bucket: BucketState, now: number) {
  const { limit, tokens, window } = bucket;
  const reset = Math.ceil((now + ticksUntilFull(bucket, limit, window)) / SECOND);
  return { limit, remaining: tokens, reset, refillPerSecond: (limit * SECOND) / window };
}
