import { HttpError, unavailable } from '../../shared/http/errors.ts';
import { bearerToken } from '../../shared/http/request-head.ts';
import { monotonicClock } from '../limiter/bucket.ts';
import type { Client } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import { type Credential, holdsApiKey, parseApiKey, type Scope, type Use } from '../limiter/credential.ts';
import { type Limiter, type LimitStatus, StoreUnavailable, type Verdict } from '../limiter/limiter.ts';
import { Newcomers } from '../limiter/newcomers.ts';
import { type Exchange, Shed } from '../telemetry/exchange.ts';
import type { Slot } from './overload.ts';

/** Errors without variable parts are created once. */
export const UNAUTHORIZED = new HttpError('unauthorized');
const RATE_LIMITED = new HttpError('rate_limit_exceeded');
/** The error for each missing scope. A secret that has both scopes never gets one. */
const FORBIDDEN = { read: forbidden('read', 'write'), write: forbidden('write', 'read') };
const BANNED = new HttpError('key_banned');
const UNREADABLE_KEY = 'The stored data of this API key cannot be read. Contact the issuer of the key.';
const CROWDED = 'Too many requests are in progress. Retry after the time in the Retry-After header.';
export const shed = () => unavailable(new Shed(), CROWDED);
const ADDRESS_LIMITED = new HttpError(
  'rate_limit_exceeded',
  'Too many requests without a valid API key from this address. Retry after the time in the Retry-After header.',
);
/** The key may be valid, so its owner learns that others behind the address are the reason. */
const NOT_CHECKED = new HttpError(
  'rate_limit_exceeded',
  'This API key was not checked, because its address sent too many invalid ones. Retry after the time in the Retry-After header.',
);

function forbidden(wanted: Scope, own: Scope): HttpError {
  return new HttpError(
    'insufficient_scope',
    `This request needs the ${wanted} scope, but this API key has only the ${own} scope.`,
    { headers: ['WWW-Authenticate', 'Bearer error="insufficient_scope"'] },
  );
}

/** The verdict for a missing or malformed key. */
export const MALFORMED: Verdict = { outcome: 'unauthorized', reason: 'malformed' };

/** Reads the credential of a request. @returns undefined if it is missing or malformed */
export function authenticate(authorization: string | undefined, use: Use): Credential | undefined {
  const token = bearerToken(authorization);
  return token === undefined ? undefined : parseApiKey(token, use);
}

/** A verdict, or a refusal without one. */
type Decided = Verdict | HttpError;

/**
 * Requests decisions. A key is unverified until a decision finds it valid, because it may be made up. Requests with
 * unverified keys share the capacity of their address. The address's allowance limits how many are decided
 * concurrently. Once the allowance is used up, they are refused.
 */
export class Authorizer {
  readonly #limiter: Limiter;
  readonly #clients: Clients;
  readonly #newcomers: Newcomers;

  constructor(limiter: Limiter, clients: Clients) {
    this.#limiter = limiter;
    this.#clients = clients;
    this.#newcomers = new Newcomers(clients);
  }

  /**
   * Under overload, returns a 503 instead of a decision, before a token is spent. If this returns a promise and has set
   * `exchange.client`, the caller must note the verdict: noting it here would take another promise per request.
   */
  decide(credential: Credential, exchange: Exchange, slot: Slot): Decided | Promise<Decided> {
    const client = this.#clients.verified(credential);
    return client === undefined
      ? this.#decideUnverified(credential, exchange, slot)
      : this.#decideVerified(client, credential, exchange, slot);
  }

  #decideVerified(client: Client, credential: Credential, exchange: Exchange, slot: Slot): Decided | Promise<Decided> {
    if (!slot.take(client)) return shed();
    exchange.client = client;
    return this.#clients.bannedVerdict(client, credential) ?? this.#limiter.decide(credential);
  }

  async #decideUnverified(credential: Credential, exchange: Exchange, slot: Slot): Promise<Decided> {
    const { network } = exchange;
    const refused = this.#newcomers.refusal(network, credential);
    if (refused !== undefined) return refused;
    const turn = await this.#newcomers.enter(network);
    try {
      // Another request may have verified the key in the meantime.
      const client = this.#clients.verified(credential);
      if (client !== undefined) {
        const askedAt = monotonicClock();
        const asked = this.#decideVerified(client, credential, exchange, slot);
        const decided = await asked;
        if (asked instanceof Promise && !(decided instanceof HttpError))
          this.#clients.note(credential, decided, askedAt);
        return decided;
      }
      // Overload is not the key's fault, so the address does not pay for it.
      if (turn === 'crowded') return shed();
      if (turn === 'exhausted') return this.#refuseNewcomer(exchange);
      return await this.#decideNewcomer(credential, exchange, slot);
    } finally {
      if (turn === 'entered') this.#newcomers.leave(network);
    }
  }

  async #decideNewcomer(credential: Credential, exchange: Exchange, slot: Slot): Promise<Decided> {
    if (!slot.takeUnverified(exchange.network)) return shed();
    const askedAt = monotonicClock();
    const verdict = await this.#limiter.decide(credential);
    this.#clients.note(credential, verdict, askedAt);
    if (verdict.outcome === 'unauthorized') {
      this.#newcomers.refuse(exchange.network, credential, verdict, askedAt);
      return verdict;
    }
    exchange.client = this.#clients.verified(credential);
    // If the key was changed in the meantime, the slot stays with the address.
    if (exchange.client !== undefined) slot.moveTo(exchange.client);
    return verdict;
  }

  /**
   * Checks an admitted request again, because its key was changed after the decision, for example revoked. The request
   * has already spent its tokens, so an empty bucket does not refuse it.
   */
  async refusalOfChanged(credential: Credential, exchange: Exchange): Promise<HttpError | undefined> {
    const verdict = await this.#limiter.peek(credential);
    if (verdict.outcome === 'banned') exchange.laterBan = verdict;
    return verdict.outcome === 'refused' ? undefined : refusalOf(verdict, undefined, credential.use.scope);
  }

  #refuseNewcomer(exchange: Exchange): HttpError {
    exchange.addressStatus = this.#newcomers.status(exchange.network);
    return exchange.addressStatus.outcome === 'refused' ? NOT_CHECKED : shed();
  }
}

/**
 * The 401, 403, 429 or 503 that follows from a verdict.
 * @param addressStatus the limit status of the address, if the address paid for the request
 * @param scope the scope that the request needs
 * @returns undefined if the verdict admits the request
 */
export function refusalOf(
  verdict: Verdict,
  addressStatus: LimitStatus | undefined,
  scope: Scope | undefined,
): HttpError | undefined {
  switch (verdict.outcome) {
    case 'admitted':
      return undefined;
    case 'refused':
      return RATE_LIMITED;
    case 'banned':
      return BANNED;
    case 'forbidden':
      return FORBIDDEN[scope ?? 'read'];
    case 'unauthorized':
      return addressStatus?.outcome === 'refused' ? ADDRESS_LIMITED : UNAUTHORIZED;
    case 'undecided':
      return unavailable(new StoreUnavailable(`The key's data is ${verdict.reason}.`), UNREADABLE_KEY);
  }
}

/**
 * Refuses a key in the URL, because browser histories, Referer headers and third-party logs keep URLs (RFC 6750 §5.3).
 * @throws {HttpError} 400
 */
export function refuseKeyInTarget(target: string): void {
  if (holdsApiKey(target))
    throw new HttpError('invalid_request', 'An API key belongs in the Authorization header, never in the URL.');
}
