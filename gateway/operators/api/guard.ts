import type { IncomingMessage } from 'node:http';
import { HttpError } from '../../../shared/http/errors.ts';
import { isLoopback } from '../../../shared/process/env.ts';
import { type Clock, SECOND, systemClock, ticksUntilToken } from '../../limiter/bucket.ts';
import { AddressAllowance } from '../../limiter/newcomers.ts';

/** The number of wrong tokens that an address may send per minute. */
const WRONG_TOKENS = 10;

/** Safe methods change nothing (RFC 9110 §9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Keeps out two attackers: other web sites, whose pages can make an operator's browser send requests here, and clients
 * that guess tokens. There is no CORS: a page of another site cannot read the responses.
 */
export class OperatorsGuard {
  readonly #isLocal: boolean;
  readonly #addressOf: (request: IncomingMessage) => string;
  readonly #guesses: AddressAllowance;

  /** @param host the host that the listener is bound to */
  constructor(host: string, addressOf: (request: IncomingMessage) => string, clock: Clock = systemClock) {
    this.#isLocal = isLoopback(host);
    this.#addressOf = addressOf;
    this.#guesses = new AddressAllowance(clock, WRONG_TOKENS);
  }

  /** @throws {HttpError} 403 */
  admit(request: IncomingMessage): void {
    if (this.#isLocal && !namesLoopback(request.headers.host)) {
      throw new HttpError('forbidden', 'This listener is bound to loopback and accepts no other host name.');
    }
    if (!SAFE_METHODS.has(request.method ?? '') && !isSameOrigin(request)) {
      throw new HttpError('forbidden', 'Pages of other origins cannot change anything here.');
    }
  }

  /**
   * Called before a token is checked, because a correct token would confirm a guess.
   * @throws {HttpError} 429 while the address has used up its wrong tokens
   */
  beforeToken(request: IncomingMessage): void {
    const [bucket] = this.#guesses.peek(this.#addressOf(request)).buckets;
    if (bucket === undefined || bucket.tokens >= 1) return;
    const wait = Math.ceil(ticksUntilToken(bucket, bucket.limit, bucket.window) / SECOND);
    throw new HttpError('rate_limit_exceeded', 'Too many wrong tokens. Retry after the time in Retry-After.', {
      headers: ['Retry-After', String(wait)],
    });
  }

  wrongToken(request: IncomingMessage): void {
    this.#guesses.consume(this.#addressOf(request));
  }
}

/**
 * Another site can make its own name resolve to this machine (DNS rebinding). Its pages then have the same origin as
 * this listener, but the Host header reveals the name. A client without Host, as HTTP/1.0 allows, is not a browser.
 */
function namesLoopback(host: string | undefined): boolean {
  return (
    host === undefined ||
    isLoopback(
      host
        .replace(/:\d*$/, '')
        .replace(/^\[(.*)\]$/, '$1')
        .toLowerCase(),
    )
  );
}

/** Browsers state the origin of a request (Fetch Metadata, RFC 6454 §7). Other clients send neither header. */
function isSameOrigin({
  headers: { host = '', origin, 'sec-fetch-site': site = 'same-origin' },
}: IncomingMessage): boolean {
  if (site !== 'same-origin') return false;
  return origin === undefined || (URL.canParse(origin) && new URL(origin).host === host.toLowerCase());
}
