import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { HttpError, toHttpError } from '../shared/errors.ts';
import type { Logger } from '../shared/logger.ts';
import { createRouter } from '../shared/routes.ts';
import type { Upgrades } from '../shared/upgrades.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import type { KeyFactsReader } from './access/key-facts.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import type { RecentDecisions } from './access/recent-decisions.ts';
import { Admission } from './admission.ts';
import { Admit, refusalOf, refuseKeyInTarget } from './admit.ts';
import { canonicalRequest } from './edge/canonical-request.ts';
import { clientAddress, networkOf } from './edge/client-address.ts';
import type { Cors } from './edge/cors.ts';
import { asksForWebSocket } from './edge/web-socket.ts';
import { Exchange } from './exchange.ts';
import { answerLimits, asksForLimits } from './limits.ts';
import { forwardTo, type PassOn, type PassOnParts, tunnelTo } from './pass-on.ts';
import type { Reference } from './reference/files.ts';
import { serveReference } from './reference/serve.ts';
import { Refusals } from './refusals.ts';
import { logExchange } from './respond/access-log.ts';
import { limitHeaders } from './respond/limit-headers.ts';
import { answerOptions } from './respond/options.ts';
import { sendError } from './respond/send-error.ts';
import type { GatewayRoute } from './routes.ts';
import type { Traffic } from './traffic/traffic.ts';

export interface GatewayParts extends PassOnParts {
  readonly routes: readonly GatewayRoute[];
  readonly limiter: Limiter;
  readonly facts: KeyFactsReader;
  readonly recent: RecentDecisions;
  readonly allowance: AddressAllowance;
  /** What reading the reference is paid from. */
  readonly readers: AddressAllowance;
  readonly cors: Cors;
  readonly reference: Reference;
  readonly logger: Logger;
  readonly traffic: Traffic;
}

export interface Gateway {
  readonly onRequest: RequestListener;
  readonly upgrades: Upgrades;
}

/**
 * The gateway: what happens to a request, from top to bottom. Each step returns what it learned or throws the answer, but for
 * the refusals that somebody can have by the thousand: those are returned, since throwing costs more than the answer.
 */
export function createGateway(parts: GatewayParts): Gateway {
  const router = createRouter(parts.routes);
  const admission = new Admission(() => parts.forwarder.limit);
  const admit = new Admit(parts, admission);
  const refusals = new Refusals();

  async function answer(exchange: Exchange, passOn: PassOn): Promise<HttpError | undefined> {
    const request = canonicalRequest(exchange.request);
    exchange.path = request.path;
    const preflight = request.hasBody ? undefined : parts.cors.preflightHeaders(exchange.request);
    if (preflight !== undefined) {
      answerPreflight(exchange, preflight);
      return undefined;
    }
    const file = parts.reference.get(request.path);
    if (file !== undefined) {
      await serveReference(exchange, request, file, parts);
      return undefined;
    }
    if (asksForLimits(request)) return await answerLimits(exchange, request, parts);
    const allowed = request.method === 'OPTIONS' ? allowedOn(request.path) : undefined;
    if (allowed !== undefined) {
      answerOptions(exchange, request, allowed, parts);
      return undefined;
    }
    const verdict = await admit.decide(exchange, request);
    if (verdict instanceof HttpError) return verdict;
    parts.recent.note(exchange.id, exchange.keyId, verdict);
    const refusal = refusalOf(parts.allowance, exchange, verdict);
    if (refusal !== undefined) return refusal;
    exchange.route = router.find(request.method, request.path).route;
    refuseKeyInTarget(request.target);
    await passOn(exchange, request);
    return undefined;
  }

  /** Free, and without a key: a browser sends none with it. */
  function answerPreflight(exchange: Exchange, preflight: readonly string[]): void {
    exchange.standing = parts.allowance.look(exchange.address);
    const limits = limitHeaders(exchange.standing, parts.draftFields);
    const headers = ['X-Request-Id', exchange.id, ...limits, ...exchange.cors, ...preflight];
    exchange.response.writeHead(204, headers).end();
  }

  const allowedOn = (path: string): string | undefined => {
    const methods = path === '*' ? 'GET, HEAD, POST' : router.allowed(path);
    return methods && `${methods}, OPTIONS`;
  };

  async function serve(exchange: Exchange, passOn: PassOn): Promise<void> {
    const fault = await answer(exchange, passOn).catch((thrown: unknown) => thrown);
    if (exchange.share !== undefined) admission.leave(exchange.share);
    if (fault !== undefined) await fail(exchange, fault);
  }

  async function fail(exchange: Exchange, thrown: unknown): Promise<void> {
    const error = toHttpError(thrown);
    if (thrown instanceof AccessUnavailable) exchange.outcome ??= 'unavailable';
    // A refusal before a decision is paid from the address's allowance; a fault of ours is not.
    if (exchange.standing === undefined && error.status < 500) parts.allowance.charge(exchange.address);
    const standing = exchange.standing ?? parts.allowance.look(exchange.address);
    exchange.standing = standing;
    if (error.status < 500 && exchange.outcome !== 'admitted')
      await refusals.turn(clientOf(exchange), exchange.response);
    sendError(exchange, error, limitHeaders(standing, parts.draftFields));
  }

  function takesWebSocket({ url = '' }: IncomingMessage): boolean {
    try {
      return router.find('GET', url.split('?', 1)[0] as string).route.webSocket === true;
    } catch {
      return false;
    }
  }

  function take(request: IncomingMessage, response: ServerResponse, passOn: PassOn): void {
    const client = clientAddress(request, parts.trustedProxies);
    const exchange = new Exchange(request, response, client, networkOf(client));
    exchange.cors = parts.cors.headersFor(request.headers.origin);
    response.on('close', () => {
      parts.traffic.answered(exchange);
      logExchange(parts.logger, exchange);
    });
    void serve(exchange, passOn);
  }

  const forward = forwardTo(parts, admission);

  return {
    onRequest: (request, response) => take(request, response, forward),
    upgrades: {
      areTaken: (request) => asksForWebSocket(request) && takesWebSocket(request),
      take: (request, response, socket, head) => take(request, response, tunnelTo(parts, { request, socket, head })),
    },
  };
}

/** Who a refusal goes to: a proven key, or an address. */
const clientOf = ({ share, address }: Exchange): string => (share?.isProven ? share.client : address);
