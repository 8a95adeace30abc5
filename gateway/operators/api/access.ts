import { hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import { boundedMap } from '../../../shared/bounded-map.ts';
import { HttpError } from '../../../shared/http/errors.ts';
import { bearerToken, carriesToken } from '../../../shared/http/request-head.ts';
import { type Access, noToken } from '../../../shared/http/service.ts';
import { isLoopback } from '../../../shared/process/env.ts';
import { SECOND, systemClock, ticksUntilToken } from '../../limiter/bucket.ts';
import { StoreUnavailable } from '../../limiter/limiter.ts';
import { AddressAllowance } from '../../limiter/newcomers.ts';
import { line } from '../../stores/key-hash.ts';
import { MAX_TOKENS, type OperatorToken, type Tokens } from '../../stores/tokens.ts';
import { includesRole, ROLES, type Role, roleFor } from '../../stores/words.ts';
import { accessTokenId, createAccessToken, hasDigest } from '../tokens.ts';
import { allOf, differences, entry } from './activity.ts';
import { CallerAnswer, IssuedToken, TokensAnswer } from './answers.ts';
import { orUnclaimed } from './keys.ts';
import { type Operator, operation, who } from './operation.ts';
import { choice } from './values.ts';

/** Decides who may call the admin listener, and manages the operators' tokens. */

const NOBODY: Operator = { name: undefined, role: undefined, tokenId: undefined };

/** How long after its last verification a token still works while the store is unavailable. */
const REMEMBERED_MS = 15 * 60_000;

/** The number of different wrong tokens that an address may send per minute. */
const WRONG_TOKENS = 10;
const MAX_WRONG = 10_000;

/** Safe methods change nothing (RFC 9110 §9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

const actorName = line(100);

interface OperatorsAccessOptions {
  readonly host: string;
  /** The address for which wrong tokens are counted. */
  addressOf(request: IncomingMessage): string;
  /** Returns ADMIN_TOKEN or the stored token. Called for every request. */
  sharedToken(): string;
  readonly tokens: Tokens;
  /** The lower-case name of the header in which a proxy sends the operator's name; undefined if no proxy does. */
  readonly actorHeader: string | undefined;
  /** Whether the peer of this request is one of our proxies. */
  isFromProxy(request: IncomingMessage): boolean;
}

/**
 * The shared token has all rights, a named token those of its role. Two kinds of attackers are kept out: other web
 * sites, whose pages can make an operator's browser send requests here, and clients that guess tokens. Responses have
 * no CORS headers, so that a page from another site cannot read them.
 */
export class OperatorsAccess implements Access<Operator> {
  readonly #options: OperatorsAccessOptions;
  readonly #isLocal: boolean;
  readonly #guesses = new AddressAllowance(systemClock, WRONG_TOKENS);
  /** Digests of the last wrong tokens of each address, so that a repeated wrong token counts only once. */
  readonly #wrong = boundedMap<string, true>(MAX_WRONG);
  readonly #verified = new LRUCache<string, OperatorToken>({ max: MAX_TOKENS, ttl: REMEMBERED_MS });

  constructor(options: OperatorsAccessOptions) {
    this.#options = options;
    this.#isLocal = isLoopback(options.host);
  }

  /**
   * @throws {HttpError} 401, 403 for a page from another site, or 429 after too many wrong tokens; {StoreUnavailable}
   *   if the token cannot be looked up and is not remembered
   */
  async identify(request: IncomingMessage, isOpen: boolean): Promise<Operator> {
    const { addressOf, sharedToken } = this.#options;
    // The token is read on open routes too, so that even a probe gets a faulty token file logged.
    const shared = sharedToken();
    this.#refuseOtherSites(request);
    if (isOpen) return NOBODY;
    const { authorization } = request.headers;
    if (!this.#isRemembered(authorization)) this.#refuseGuesses(addressOf(request));
    const operator = await this.#holderOf(authorization, shared);
    if (operator === undefined) {
      if (authorization === undefined) throw noToken();
      this.#noteWrong(addressOf(request), authorization);
      throw new HttpError('unauthorized', 'The token is wrong or has been revoked.');
    }
    return { ...operator, name: this.#namedByProxy(request) ?? operator.name };
  }

  authorize({ role }: Operator, { method, needs }: { readonly method: string; readonly needs?: string }): void {
    const needed = roleFor(method, needs as Role);
    if (role !== undefined && includesRole(role, needed)) return;
    throw new HttpError('forbidden', `This needs the ${needed} role; the token has the ${role} role.`);
  }

  /** @throws {HttpError} 403 */
  #refuseOtherSites(request: IncomingMessage): void {
    if (this.#isLocal && !namesLoopback(request.headers.host))
      throw new HttpError('forbidden', 'This listener is bound to loopback and accepts only loopback host names.');
    if (!SAFE_METHODS.has(request.method ?? '') && !isSameOrigin(request))
      throw new HttpError('forbidden', 'Pages from other origins cannot change anything here.');
  }

  /**
   * Whether this is a named token that was verified recently. Named tokens are random, so they cannot be guessed, and
   * guesses from the same address need not keep their holders out.
   */
  #isRemembered(authorization: string | undefined): boolean {
    const token = bearerToken(authorization) ?? '';
    const remembered = this.#verified.peek(accessTokenId(token) ?? '');
    return remembered !== undefined && hasDigest(token, remembered.digest);
  }

  /** Called before the token is checked, so that no response shows whether a guess is right. @throws {HttpError} 429 */
  #refuseGuesses(address: string): void {
    const [bucket] = this.#guesses.peek(address).buckets;
    if (bucket === undefined || bucket.tokens >= 1) return;
    const wait = Math.ceil(ticksUntilToken(bucket, bucket.limit, bucket.window) / SECOND);
    throw new HttpError('rate_limit_exceeded', 'Too many wrong tokens. Retry after the time in Retry-After.', {
      headers: ['Retry-After', String(wait)],
    });
  }

  #noteWrong(address: string, authorization: string): void {
    const name = `${address} ${hash('sha256', authorization)}`;
    if (this.#wrong.get(name) === undefined) this.#guesses.consume(address);
    this.#wrong.set(name, true);
  }

  async #holderOf(authorization: string | undefined, shared: string): Promise<Operator | undefined> {
    if (carriesToken(authorization, [shared])) return { ...NOBODY, role: 'admin' };
    const token = bearerToken(authorization) ?? '';
    const id = accessTokenId(token);
    const found = id === undefined ? undefined : await this.#find(id);
    if (found === undefined || !hasDigest(token, found.digest)) return undefined;
    return { name: found.name, role: found.role, tokenId: id };
  }

  /** While the store is unavailable, a recently verified token still works, so that operators can find the cause. */
  async #find(id: string): Promise<OperatorToken | undefined> {
    try {
      const found = await this.#options.tokens.find(id);
      if (found === undefined) this.#verified.delete(id);
      else this.#verified.set(id, found);
      return found;
    } catch (fault) {
      const remembered = this.#verified.get(id);
      if (!(fault instanceof StoreUnavailable) || remembered === undefined) throw fault;
      return remembered;
    }
  }

  /** @throws {HttpError} 400 unless the proxy sent exactly one valid name */
  #namedByProxy(request: IncomingMessage): string | undefined {
    const { actorHeader, isFromProxy } = this.#options;
    if (actorHeader === undefined || !isFromProxy(request)) return undefined;
    const values = request.headersDistinct[actorHeader] ?? [];
    if (values.length === 0) return undefined;
    // Node decodes header bytes as Latin-1, but proxies send UTF-8.
    const name = Buffer.from(values[0] ?? '', 'latin1').toString();
    if (values.length === 1 && actorName.safeParse(name).success) return name;
    throw new HttpError('invalid_request', `${actorHeader} must be one name of at most 100 characters.`);
  }
}

/**
 * Another site can make its own name resolve to this machine (DNS rebinding). Its pages then have the same origin as
 * this listener, but the Host header reveals the name. A client without Host, as HTTP/1.0 allows, is not a browser.
 */
function namesLoopback(host: string | undefined): boolean {
  const name = host?.replace(/:\d*$/, '').replace(/^\[(.*)\]$/, '$1');
  return name === undefined || isLoopback(name.toLowerCase());
}

/**
 * Browsers state where a request comes from in Sec-Fetch-Site (Fetch Metadata) or Origin (RFC 6454 §7). Other clients
 * send neither header.
 */
function isSameOrigin({
  headers: { host = '', origin, 'sec-fetch-site': site = 'same-origin' },
}: IncomingMessage): boolean {
  if (site !== 'same-origin') return false;
  return origin === undefined || (URL.canParse(origin) && new URL(origin).host === host.toLowerCase());
}

const NewToken = z.strictObject({ name: line(100), role: choice(ROLES), ...who });

export const createToken = operation(
  { needs: 'admin', body: NewToken, answer: IssuedToken, creates: true },
  async ({ deps, given: { name, role }, about }) => {
    const { id, token, digest } = createAccessToken();
    const activity = entry(about, 'token.create', id, allOf({ name, role }));
    const createdAt = new Date().toISOString();
    await orUnclaimed(deps.tokens.create(id, { name, role, createdAt, digest }, activity), `token ${id}`);
    return { id, token, name, role };
  },
);

export const whoAmI = operation({ answer: CallerAnswer }, async ({ caller: { name, role } }) => ({
  name,
  role: role ?? 'viewer',
}));

/** Lists the tokens without their digests, oldest first. The shared token is not among them. */
export const listTokens = operation({ answer: TokensAnswer }, async ({ deps }) => {
  const tokens = [...(await deps.tokens.list())].map(([id, { digest: _digest, ...token }]) => ({ id, ...token }));
  return { tokens: tokens.sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1)) };
});

export const revokeToken = operation({ needs: 'admin' }, async ({ deps, params: [id = ''], about }) => {
  const entryFor = ({ name, role }: OperatorToken) => entry(about, 'token.revoke', id, differences({ name, role }, {}));
  if (!(await deps.tokens.remove(id, entryFor))) throw new HttpError('not_found', 'There is no such token.');
});
