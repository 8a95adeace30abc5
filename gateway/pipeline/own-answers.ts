import { takesNoBody } from '../../shared/body.ts';
import type { AddressAllowance } from '../access/address-allowance.ts';
import type { KeyFactsReader } from '../access/key-facts.ts';
import type { Limiter } from '../access/limiter.ts';
import type { Reference } from '../reference/files.ts';
import { LIMITS_ROUTE } from '../routes.ts';
import { ADDRESS_LIMITED, authenticate, refusalOf, refuseKeyInTarget, UNAUTHORIZED } from './authorize.ts';
import type { CanonicalRequest } from './canonical-request.ts';
import { clientHeaders } from './client-headers.ts';
import type { Cors } from './cors.ts';
import type { Exchange } from './exchange.ts';
import { describeLimits } from './limits-answer.ts';
import { answerWithFile, costOf } from './reference-answer.ts';

/** An answer that the gateway makes itself. */
export interface OwnAnswer {
  readonly status: number;
  /** As a flat list. Those of every answer are put beside them. */
  readonly headers: readonly string[];
  readonly body?: string | Buffer | undefined;
}

export interface OwnAnswersParts {
  readonly limiter: Limiter;
  readonly facts: KeyFactsReader;
  readonly allowance: AddressAllowance;
  /** What reading the reference is paid from. */
  readonly readers: AddressAllowance;
  readonly cors: Cors;
  readonly reference: Reference;
}

/** What the gateway answers itself: preflights, the reference, where a key stands, OPTIONS. No key pays for it; the address does. */
export class OwnAnswers {
  readonly #parts: OwnAnswersParts;
  readonly #allowed: (path: string) => string | undefined;

  /** @param allowed the methods of a path; undefined for a path that is none of ours */
  constructor(parts: OwnAnswersParts, allowed: (path: string) => string | undefined) {
    this.#parts = parts;
    this.#allowed = allowed;
  }

  /**
   * @returns undefined for what the core is to answer
   * @throws {HttpError} 400, 401, 405, 429 or 503
   */
  answerTo(request: CanonicalRequest, exchange: Exchange): OwnAnswer | Promise<OwnAnswer> | undefined {
    const preflight = request.hasBody ? undefined : this.#parts.cors.preflightHeaders(exchange.request);
    if (preflight !== undefined) return this.#preflight(exchange, preflight);
    const file = this.#parts.reference.get(request.path);
    if (file !== undefined) {
      exchange.ownAnswer = 'reference';
      exchange.addressStatus = this.#parts.readers.consume(exchange.address, costOf(file, exchange.request.headers));
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

  /** Free: a browser sends no key with it. */
  #preflight(exchange: Exchange, headers: readonly string[]): OwnAnswer {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#parts.allowance.peek(exchange.address);
    return { status: 204, headers };
  }

  /** Where a key stands. Nothing is taken from it, and nothing is counted as a decision. */
  async #limits(request: CanonicalRequest, exchange: Exchange): Promise<OwnAnswer> {
    this.#charge(exchange);
    exchange.route = LIMITS_ROUTE;
    refuseKeyInTarget(request.target);
    if (request.hasBody) throw takesNoBody();
    const credential = authenticate(request.authorization);
    exchange.credential = credential;
    if (credential === undefined) throw UNAUTHORIZED;
    const verdict = await this.#parts.limiter.peek(credential);
    if (verdict.outcome === 'undecided' || verdict.outcome === 'unauthorized')
      throw refusalOf(verdict, exchange.addressStatus);
    const known = await this.#parts.facts.of(credential);
    if (known === undefined) throw UNAUTHORIZED;
    exchange.keyStatus = verdict;
    const body = JSON.stringify(describeLimits(verdict, known));
    return { status: 200, headers: ['Content-Type', 'application/json'], body };
  }

  /** Methods of a path (RFC 9110 §9.3.7); undefined for a path that is none of ours. */
  #methodsOn(path: string): string | undefined {
    const methods = path === '*' ? 'GET, HEAD, POST' : this.#allowed(path);
    return methods && `${methods}, OPTIONS`;
  }

  /** The address pays, before anything is done. */
  #charge(exchange: Exchange): void {
    exchange.ownAnswer = 'own';
    exchange.addressStatus = this.#parts.allowance.consume(exchange.address);
    if (exchange.addressStatus.outcome === 'refused') throw ADDRESS_LIMITED;
  }
}

export function sendOwnAnswer(exchange: Exchange, { status, headers, body }: OwnAnswer, draftFields: boolean): void {
  const { request, response } = exchange;
  const all = [...headers, ...clientHeaders(exchange, draftFields, headers)];
  if (body !== undefined) all.push('Content-Length', String(Buffer.byteLength(body)));
  response.writeHead(status, all);
  response.end(request.method === 'HEAD' ? undefined : body);
}
