import { bearerToken } from '../../shared/bearer.ts';
import { HttpError, unavailable } from '../../shared/errors.ts';
import { type Credential, holdsApiKey, parseApiKey } from '../access/credential.ts';
import { AccessUnavailable, type Limiter } from '../access/limiter.ts';
import { Newcomers } from '../access/newcomers.ts';
import { ProvenKeys } from '../access/proven-keys.ts';
import type { LimitStatus, Verdict } from '../access/verdict.ts';
import { Shed, type Slot } from './load-shedder.ts';

/** Whether a request may: who it is from, the decision on it, and the refusal that follows from that. */

/** The same for everybody, so made once. */
export const UNAUTHORIZED = new HttpError('unauthorized');
const RATE_LIMITED = new HttpError('rate_limit_exceeded');
const BANNED = new HttpError('key_banned');
export const ADDRESS_LIMITED = new HttpError(
  'rate_limit_exceeded',
  'Too many requests without a valid API key from this address. Retry after the time in the Retry-After header.',
);

/** The verdict on what opens nothing by its form alone. */
export const MALFORMED: Verdict = { outcome: 'unauthorized', reason: 'malformed' };

/** Reads the credential that a request presents. @returns undefined for none, or a malformed one */
export function authenticate(authorization: string | undefined): Credential | undefined {
  const token = bearerToken(authorization);
  return token === undefined ? undefined : parseApiKey(token);
}

/** What came of asking for a decision: the verdict, or the refusal of a request that is not worth one. */
export interface Decided {
  readonly verdict?: Verdict;
  readonly refusal?: HttpError;
  /** Where the address stands, when it paid. */
  readonly addressStatus?: LimitStatus;
}

/**
 * Asks for decisions. A key that no decision has known may be made up: until it is proven, its requests share with all of
 * their address, take turns, and are refused once the address has nothing left to pay with.
 */
export class Authorizer {
  readonly #limiter: Limiter;
  readonly #payFor: (address: string) => LimitStatus;
  readonly #proven = new ProvenKeys();
  readonly #newcomers = new Newcomers();

  /** @param payFor charges an address for a key that opens nothing */
  constructor(limiter: Limiter, payFor: (address: string) => LimitStatus) {
    this.#limiter = limiter;
    this.#payFor = payFor;
  }

  /** @throws {HttpError} 503, before the decision has cost anything, where the gateway has too much to do */
  async decide(credential: Credential, address: string, slot: Slot): Promise<Decided> {
    if (this.#proven.has(credential.cacheKey)) return await this.#decideProven(credential, address, slot);
    if (!(await this.#newcomers.enter(address))) return this.#refuseNewcomer(address);
    try {
      // Another of its requests may have come first.
      if (this.#proven.has(credential.cacheKey)) return await this.#decideProven(credential, address, slot);
      return await this.#decideUnproven(credential, address, slot);
    } finally {
      this.#newcomers.leave(address);
    }
  }

  async #decideProven(credential: Credential, address: string, slot: Slot): Promise<Decided> {
    slot.take({ name: credential.cacheKey, isProven: true });
    const verdict = await this.#limiter.decide(credential);
    this.#proven.note(credential.cacheKey, verdict);
    return verdict.outcome === 'unauthorized' ? { verdict, addressStatus: this.#payFor(address) } : { verdict };
  }

  async #decideUnproven(credential: Credential, address: string, slot: Slot): Promise<Decided> {
    slot.take({ name: address, isProven: false });
    const verdict = await this.#limiter.decide(credential);
    this.#proven.note(credential.cacheKey, verdict);
    if (verdict.outcome === 'unauthorized') {
      this.#newcomers.consume(address);
      return { verdict, addressStatus: this.#payFor(address) };
    }
    slot.moveTo({ name: credential.cacheKey, isProven: true });
    return { verdict };
  }

  #refuseNewcomer(address: string): Decided {
    const addressStatus = this.#newcomers.consume(address);
    return { addressStatus, refusal: addressStatus.outcome === 'refused' ? ADDRESS_LIMITED : unavailable(new Shed()) };
  }
}

/**
 * The 401, 429 or 503 that follows from a verdict.
 * @param addressStatus where the address stands, when it paid
 * @returns undefined where the verdict lets the request through
 */
export function refusalOf(verdict: Verdict, addressStatus: LimitStatus | undefined): HttpError | undefined {
  switch (verdict.outcome) {
    case 'admitted':
      return undefined;
    case 'refused':
      return RATE_LIMITED;
    case 'banned':
      return BANNED;
    case 'unauthorized':
      return addressStatus?.outcome === 'refused' ? ADDRESS_LIMITED : UNAUTHORIZED;
    case 'undecided':
      return unavailable(new AccessUnavailable(`The key's data is ${verdict.reason}.`));
  }
}

/** URLs stand in histories, Referers and other people's logs (RFC 6750 §5.3). @throws {HttpError} 400 */
export function refuseKeyInTarget(target: string): void {
  if (holdsApiKey(target))
    throw new HttpError('invalid_request', 'An API key belongs in the Authorization header, never in the URL.');
}
