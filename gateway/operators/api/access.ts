import type { IncomingMessage } from 'node:http';
import { LRUCache } from 'lru-cache';
import { HttpError } from '../../../shared/http/errors.ts';
import { bearerToken, carriesToken } from '../../../shared/http/request-head.ts';
import { type Access, noToken } from '../../../shared/http/service.ts';
import { StoreUnavailable } from '../../limiter/limiter.ts';
import { line } from '../../stores/key-hash.ts';
import { MAX_TOKENS, type OperatorToken, type Tokens } from '../../stores/tokens.ts';
import { includesRole, type Role, roleFor } from '../../stores/words.ts';
import { accessTokenId, hasDigest } from '../access-token.ts';
import type { OperatorsGuard } from './guard.ts';

/** Who calls the operators' listener. */
export interface Operator {
  /** The name from a trusted proxy, or the token's name. The shared token has none: it does not identify a person. */
  readonly name: string | undefined;
  /** Undefined without a token, on routes that are open to all. */
  readonly role: Role | undefined;
  readonly tokenId: string | undefined;
}

const NOBODY: Operator = { name: undefined, role: undefined, tokenId: undefined };

/** How long a token works without its store after it was last verified. */
const REMEMBERED_MS = 15 * 60_000;

const actorName = line(100);

interface OperatorsAccessOptions {
  readonly guard: OperatorsGuard;
  /** Returns ADMIN_TOKEN or the kept one. It is called for every request. */
  sharedToken(): string;
  readonly tokens: Tokens;
  /** The header's name in lower case; undefined if no proxy sends a name. */
  readonly actorHeader: string | undefined;
  /** Whether the peer of this request is one of our proxies. */
  isFromProxy(request: IncomingMessage): boolean;
}

/** The shared token has every right. A named token has those of its role. */
export class OperatorsAccess implements Access<Operator> {
  readonly #options: OperatorsAccessOptions;
  readonly #verified = new LRUCache<string, OperatorToken>({ max: MAX_TOKENS, ttl: REMEMBERED_MS });

  constructor(options: OperatorsAccessOptions) {
    this.#options = options;
  }

  /**
   * @throws {HttpError} 401, or 429 after too many wrong tokens; {StoreUnavailable} for a token that is not remembered
   */
  async identify(request: IncomingMessage, isOpen: boolean): Promise<Operator> {
    const { guard, sharedToken } = this.#options;
    // The token is read on open routes too, so that a probe already logs a faulty token file.
    const shared = sharedToken();
    guard.admit(request);
    if (isOpen) return NOBODY;
    guard.beforeToken(request);
    const { authorization } = request.headers;
    const operator = await this.#holderOf(authorization, shared);
    if (operator === undefined) {
      if (authorization === undefined) throw noToken();
      guard.wrongToken(request);
      throw new HttpError('unauthorized', 'The token is wrong or has been revoked.');
    }
    return { ...operator, name: this.#namedByProxy(request) ?? operator.name };
  }

  authorize({ role }: Operator, { method, needs }: { readonly method: string; readonly needs?: string }): void {
    const needed = roleFor(method, needs as Role);
    if (role !== undefined && includesRole(role, needed)) return;
    throw new HttpError('forbidden', `This needs the role ${needed}; the token has the role ${role}.`);
  }

  async #holderOf(authorization: string | undefined, shared: string): Promise<Operator | undefined> {
    if (carriesToken(authorization, [shared])) return { ...NOBODY, role: 'admin' };
    const token = bearerToken(authorization) ?? '';
    const id = accessTokenId(token);
    const found = id === undefined ? undefined : await this.#find(id);
    if (found === undefined || !hasDigest(token, found.digest)) return undefined;
    return { name: found.name, role: found.role, tokenId: id };
  }

  /** While the store is away, a token that was verified recently still works, so that somebody can find the cause. */
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
