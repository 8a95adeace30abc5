import { bearerToken } from '../shared/bearer.ts';
import { HttpError, unavailable } from '../shared/errors.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import { type Credential, holdsApiKey, parseApiKey } from './access/credential.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import { Newcomers } from './access/newcomers.ts';
import { ProvenKeys } from './access/proven-keys.ts';
import type { Verdict } from './access/verdict.ts';
import type { Admission, Share } from './admission.ts';
import type { CanonicalRequest } from './edge/canonical-request.ts';
import type { Exchange } from './exchange.ts';

/** Whether a request may: who it is from, the decision on it, and what follows from that. */

/** The same for everybody, so made once. */
export const UNAUTHORIZED = new HttpError('unauthorized');
const RATE_LIMITED = new HttpError('rate_limit_exceeded');
const BANNED = new HttpError('key_banned');
export const ADDRESS_LIMITED = new HttpError(
  'rate_limit_exceeded',
  'Too many requests without a valid API key from this address. Retry after the time in the Retry-After header.',
);

/** What opens nothing by its form alone. */
const MALFORMED: Verdict = { outcome: 'unauthorized', reason: 'malformed' };

export interface AdmitParts {
  readonly limiter: Limiter;
  readonly allowance: AddressAllowance;
}

/** How requests are decided on, with what is bounded per client before a decision is asked for. */
export class Admit {
  readonly #limiter: Limiter;
  readonly #allowance: AddressAllowance;
  readonly #admission: Admission;
  readonly #proven = new ProvenKeys();
  readonly #newcomers = new Newcomers();

  constructor({ limiter, allowance }: AdmitParts, admission: Admission) {
    this.#limiter = limiter;
    this.#allowance = allowance;
    this.#admission = admission;
  }

  /**
   * The decision on a request; or the refusal of one that is not worth a decision, as its address is past its allowance.
   * @throws {HttpError} 503, before the decision has cost anything, where the gateway has too much to do
   */
  async decide(exchange: Exchange, { authorization }: CanonicalRequest): Promise<Verdict | HttpError> {
    const credential = credentialIn(exchange, authorization);
    if (credential === undefined) return MALFORMED;
    if (this.#proven.has(credential.name)) return await this.#decideProven(exchange, credential);
    const { address } = exchange;
    if (!(await this.#newcomers.enter(address))) return this.#refuseNewcomer(exchange);
    try {
      // Another of its requests may have come first.
      if (this.#proven.has(credential.name)) return await this.#decideProven(exchange, credential);
      return await this.#decideUnproven(exchange, credential);
    } finally {
      this.#newcomers.leave(address);
    }
  }

  async #decideProven(exchange: Exchange, credential: Credential): Promise<Verdict> {
    this.#enter(exchange, { client: credential.name, isProven: true });
    const verdict = await this.#limiter.decide(credential);
    this.#proven.note(credential.name, verdict);
    return verdict;
  }

  async #decideUnproven(exchange: Exchange, credential: Credential): Promise<Verdict> {
    const share = { client: exchange.address, isProven: false };
    this.#enter(exchange, share);
    const verdict = await this.#limiter.decide(credential);
    this.#proven.note(credential.name, verdict);
    if (verdict.outcome === 'unauthorized') {
      this.#newcomers.charge(exchange.address);
      exchange.standing = this.#allowance.charge(exchange.address);
    } else exchange.share = this.#admission.move(share, { client: credential.name, isProven: true });
    return verdict;
  }

  #refuseNewcomer(exchange: Exchange): HttpError {
    exchange.standing = this.#newcomers.charge(exchange.address);
    return exchange.standing.outcome === 'refused' ? ADDRESS_LIMITED : this.#shed(exchange);
  }

  #enter(exchange: Exchange, share: Share): void {
    if (!this.#admission.enter(share)) throw this.#shed(exchange);
    exchange.share = share;
  }

  #shed(exchange: Exchange): HttpError {
    exchange.outcome = 'shed';
    return unavailable('Too many requests are under way.');
  }
}

/** The credential that a request presents; undefined for none, or a malformed one. */
export function credentialIn(exchange: Exchange, authorization: string | undefined): Credential | undefined {
  const token = bearerToken(authorization);
  const credential = token === undefined ? undefined : parseApiKey(token);
  exchange.credential = credential;
  exchange.keyId = credential?.id;
  return credential;
}

/** URLs stand in histories, Referers and other people's logs (RFC 6750 §5.3). @throws {HttpError} 400 */
export function refuseKeyInTarget(target: string): void {
  if (holdsApiKey(target))
    throw new HttpError('invalid_request', 'An API key belongs in the Authorization header, never in the URL.');
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
      exchange.standing ??= allowance.charge(exchange.address);
      return exchange.standing.outcome === 'refused' ? ADDRESS_LIMITED : UNAUTHORIZED;
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
