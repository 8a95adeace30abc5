import { bearerToken } from '../shared/bearer.ts';
import { HttpError, unavailable } from '../shared/errors.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import { parseApiKey } from './access/credential.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import type { Verdict } from './access/verdict.ts';
import type { Admission } from './admission.ts';
import type { CanonicalRequest } from './edge/canonical-request.ts';
import type { Exchange } from './exchange.ts';

/** Whether a request may: who it is from, the decision on it, and what follows from that. */

/** The same for everybody, so made once. */
const UNAUTHORIZED = new HttpError('unauthorized');
const RATE_LIMITED = new HttpError('rate_limit_exceeded');
const BANNED = new HttpError('key_banned');

/** What opens nothing by its form alone. */
const MALFORMED: Promise<Verdict> = Promise.resolve({ outcome: 'unauthorized', reason: 'malformed' });

/** @throws {HttpError} 503, before the decision has cost anything, where the gateway has too much to do */
export function decide(
  limiter: Limiter,
  admission: Admission,
  exchange: Exchange,
  { authorization }: CanonicalRequest,
): Promise<Verdict> {
  const token = bearerToken(authorization);
  const credential = token === undefined ? undefined : parseApiKey(token);
  if (credential === undefined) return MALFORMED;
  exchange.credential = credential;
  exchange.keyId = credential.id;
  // By its secret: an id alone is no secret, and who knows it could use up another's share.
  if (!admission.enter(credential.digest)) {
    exchange.outcome = 'shed';
    throw unavailable('Too many requests are under way.');
  }
  exchange.shareOf = credential.digest;
  return limiter.decide(credential);
}

/**
 * The 401, 429 or 503 that follows from a verdict; undefined where it lets the request through.
 */
export function refusalOf(allowance: AddressAllowance, exchange: Exchange, verdict: Verdict): HttpError | undefined {
  if (isDecision(verdict)) exchange.decidedAt = performance.now();
  switch (verdict.outcome) {
    case 'undecided':
      exchange.outcome = 'unusable';
      return new AccessUnavailable(`The key's data is ${verdict.reason}.`);
    case 'unauthorized':
      exchange.outcome = verdict.reason;
      exchange.mode = verdict.mode;
      exchange.standing = allowance.charge(exchange.address);
      return exchange.standing.outcome === 'refused' ? RATE_LIMITED : UNAUTHORIZED;
    default:
      exchange.outcome = verdict.outcome;
      exchange.standing = verdict;
      exchange.plan = verdict.plan;
      if (verdict.mode === 'local') exchange.mode = 'local';
      if (verdict.isShadowed) exchange.shadow = 'rate_limit_exceeded';
      exchange.rejectedOverrides = verdict.rejected;
      if (verdict.outcome === 'banned') return BANNED;
      return verdict.outcome === 'refused' ? RATE_LIMITED : undefined;
  }
}

/** Whether anybody was asked, and had an answer. */
const isDecision = (verdict: Verdict): boolean =>
  verdict.outcome === 'unauthorized' ? verdict.reason !== 'malformed' : verdict.outcome !== 'undecided';
