import { bearerToken } from '../shared/bearer.ts';
import { HttpError, unavailable } from '../shared/errors.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import { type Credential, holdsApiKey, parseApiKey } from './access/credential.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import type { Verdict } from './access/verdict.ts';
import type { Admission } from './admission.ts';
import type { CanonicalRequest } from './edge/canonical-request.ts';
import type { Exchange } from './exchange.ts';

/** Whether a request may: who it is from, the decision on it, and what follows from that. */

/** The same for everybody, so made once. */
export const UNAUTHORIZED = new HttpError('unauthorized');
export const RATE_LIMITED = new HttpError('rate_limit_exceeded');
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
  const credential = credentialIn(admission, exchange, authorization);
  return credential === undefined ? MALFORMED : limiter.decide(credential);
}

/**
 * The credential that a request presents, once there is room for the request; undefined for none, or a malformed one.
 * @throws {HttpError} 503 where the gateway has too much to do
 */
export function credentialIn(
  admission: Admission,
  exchange: Exchange,
  authorization: string | undefined,
): Credential | undefined {
  const token = bearerToken(authorization);
  const credential = token === undefined ? undefined : parseApiKey(token);
  if (credential === undefined) return undefined;
  exchange.keyId = credential.id;
  // By its secret: an id alone is no secret, and who knows it could use up another's share.
  if (!admission.enter(credential.digest)) {
    exchange.outcome = 'shed';
    throw unavailable();
  }
  exchange.shareOf = credential.digest;
  return credential;
}

/** What stands in a URL stands in histories, Referers and other people's logs too (RFC 6750 §5.3), and would in the core's. */
export function refuseKeyInTarget(target: string): void {
  if (holdsApiKey(target))
    throw new HttpError('invalid_request', 'An API key belongs in the Authorization header, never in the URL.');
}

/**
 * The 401, 429 or 503 that follows from a verdict; undefined where it lets the request through.
 */
export function refusalOf(allowance: AddressAllowance, exchange: Exchange, verdict: Verdict): HttpError | undefined {
  exchange.decidedAt = performance.now();
  exchange.outcome = verdict.outcome;
  switch (verdict.outcome) {
    case 'undecided':
      return new AccessUnavailable(`The key's data is ${verdict.reason}.`);
    case 'unauthorized':
      exchange.outcome = verdict.reason;
      exchange.standing = allowance.charge(exchange.address);
      return exchange.standing.outcome === 'refused' ? RATE_LIMITED : UNAUTHORIZED;
    default:
      exchange.standing = verdict;
      exchange.plan = verdict.plan;
      if (verdict.mode === 'local') exchange.mode = 'local';
      if (verdict.isShadowed) exchange.shadow = 'rate_limit_exceeded';
      exchange.rejectedOverrides = verdict.rejected;
      if (verdict.outcome === 'banned') return BANNED;
      return verdict.outcome === 'refused' ? RATE_LIMITED : undefined;
  }
}
