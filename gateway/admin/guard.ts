import type { IncomingMessage } from 'node:http';
import { isLoopback } from '../../shared/env.ts';
import { HttpError } from '../../shared/errors.ts';
import type { Guard } from '../../shared/service.ts';
import { AddressAllowance } from '../access/address-allowance.ts';
import { ticksUntilToken } from '../access/bucket.ts';
import { type Clock, systemClock } from '../access/clock.ts';
import { SECOND } from '../access/verdict.ts';

/** Wrong tokens that an address may present a minute. */
const WRONG_TOKENS = 10;

/** Nothing of theirs changes anything (RFC 9110 §9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Keeps other web sites out, whose pages an operator's browser can make ask here, and those who guess tokens. There is no
 * CORS: what a page of another site asks, it never gets to read.
 */
export class OperatorsGuard implements Guard {
  readonly #isLocal: boolean;
  readonly #addressOf: (request: IncomingMessage) => string;
  readonly #guesses: AddressAllowance;

  /** @param host what the listener listens on */
  constructor(host: string, addressOf: (request: IncomingMessage) => string, clock: Clock = systemClock) {
    this.#isLocal = isLoopback(host);
    this.#addressOf = addressOf;
    this.#guesses = new AddressAllowance(clock, WRONG_TOKENS);
  }

  /** @throws {HttpError} 403 */
  admit(request: IncomingMessage): void {
    if (this.#isLocal && !namesLoopback(request.headers.host)) {
      throw new HttpError('forbidden', 'This listener is on loopback and goes by no other name.');
    }
    if (!SAFE_METHODS.has(request.method ?? '') && !isSameOrigin(request)) {
      throw new HttpError('forbidden', 'Pages of other origins change nothing here.');
    }
  }

  /** @throws {HttpError} 429 for as long as its address has presented too many wrong tokens; a right one would be a guess too */
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
 * Another site can have its own name resolve to this machine, and its pages are then of the same origin as what answers
 * there; the name that they ask for gives them away. A client that sends none, as HTTP/1.0 allows, is no browser.
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

/** Browsers tell where a request comes from (Fetch Metadata, RFC 6454 §7); other clients send neither. */
function isSameOrigin({
  headers: { host = '', origin, 'sec-fetch-site': site = 'same-origin' },
}: IncomingMessage): boolean {
  if (site !== 'same-origin') return false;
  return origin === undefined || (URL.canParse(origin) && new URL(origin).host === host.toLowerCase());
}
