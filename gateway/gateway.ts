import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { bearerToken } from '../shared/bearer.ts';
import { readJsonBytes, takesNoBody } from '../shared/body.ts';
import { HttpError, toHttpError, unavailable } from '../shared/errors.ts';
import { CALLER_ID } from '../shared/headers.ts';
import type { Logger } from '../shared/logger.ts';
import { createRouter } from '../shared/routes.ts';
import { traceHeaders } from '../shared/trace.ts';
import type { Upgrades } from '../shared/upgrades.ts';
import type { AddressAllowance } from './access/address-allowance.ts';
import { holdsApiKey, parseApiKey } from './access/credential.ts';
import { AccessUnavailable, type Limiter } from './access/limiter.ts';
import type { RecentDecisions } from './access/recent-decisions.ts';
import type { Standing, Verdict } from './access/verdict.ts';
import { Admission } from './admission.ts';
import { type CanonicalRequest, canonicalRequest } from './edge/canonical-request.ts';
import { clientAddress, forwardedHeaders, networkOf, type TrustedProxies } from './edge/client-address.ts';
import { asksForWebSocket, checkHandshake } from './edge/web-socket.ts';
import { Exchange } from './exchange.ts';
import type { Reference } from './reference/files.ts';
import { serveReference } from './reference/serve.ts';
import { logExchange } from './respond/access-log.ts';
import { limitHeaders } from './respond/limit-headers.ts';
import { sendError } from './respond/send-error.ts';
import type { GatewayRoute } from './routes.ts';
import type { Traffic } from './traffic/traffic.ts';
import type { Tunnels } from './tunnels.ts';
import { upstreamFault } from './upstream/faults.ts';
import type { Forwarder } from './upstream/forward.ts';
import { requestHeaders } from './upstream/headers.ts';
import { openTunnel, type Upgrade } from './upstream/tunnel.ts';

export interface GatewayParts {
  readonly routes: readonly GatewayRoute[];
  readonly limiter: Limiter;
  readonly recent: RecentDecisions;
  readonly allowance: AddressAllowance;
  readonly forwarder: Forwarder;
  readonly tunnels: Tunnels;
  readonly reference: Reference;
  readonly logger: Logger;
  readonly traffic: Traffic;
  readonly trustedProxies: TrustedProxies;
  readonly bodyLimitBytes: number;
  readonly coreTimeoutMs: number;
  /** Whether the IETF draft's RateLimit fields are sent. */
  readonly draftFields: boolean;
  readonly coreToken: string | undefined;
}

export interface Gateway {
  readonly onRequest: RequestListener;
  readonly upgrades: Upgrades;
}

/** The last step of a request that was admitted. */
type PassOn = (exchange: Exchange, request: CanonicalRequest) => Promise<void>;

/** The gateway: what happens to a request, from top to bottom. Each step returns what it learned or throws the answer. */
export function createGateway(parts: GatewayParts): Gateway {
  const router = createRouter(parts.routes);
  const admission = new Admission(() => parts.forwarder.limit);

  async function serve(exchange: Exchange, passOn: PassOn): Promise<void> {
    const request = canonicalRequest(exchange.request);
    exchange.path = request.path;
    const file = parts.reference.get(request.path);
    if (file !== undefined) return await serveReference(exchange, request, file, parts);
    const verdict = await decide(parts.limiter, admission, exchange, request);
    parts.recent.note(exchange.id, exchange.keyId, verdict);
    admit(parts.allowance, exchange, verdict);
    exchange.route = router.find(request.method, request.path).route;
    if (holdsApiKey(request.target)) throw keyInTarget();
    await passOn(exchange, request);
  }

  const forward: PassOn = async (exchange, request) => {
    const body = await readBody(exchange, request, admission, parts.bodyLimitBytes);
    await parts.forwarder.forward(
      { method: request.method, target: request.target, headers: headersForCore(exchange, request, parts), body },
      exchange.response,
      headersForClient(exchange, parts.draftFields),
    );
  };

  async function tunnel(exchange: Exchange, request: CanonicalRequest, upgrade: Upgrade): Promise<void> {
    checkHandshake(exchange.request);
    await readBody(exchange, request, admission, 0);
    if (parts.tunnels.stopped) throw unavailable();
    const asked = {
      origin: parts.forwarder.nextOrigin(),
      target: request.target,
      headers: headersForCore(exchange, request, parts),
      extraHeaders: headersForClient(exchange, parts.draftFields),
      timeoutMs: parts.coreTimeoutMs,
    };
    const opened = await openTunnel(asked, upgrade).catch((fault: unknown) => {
      throw upstreamFault(fault);
    });
    exchange.tunnel = opened;
    parts.tunnels.add(opened, exchange.keyId as string);
  }

  function fail(exchange: Exchange, thrown: unknown): void {
    const error = toHttpError(thrown);
    if (thrown instanceof AccessUnavailable) exchange.outcome = 'undecided';
    // Who is refused before a decision pays from its address's allowance; who meets a fault of ours does not.
    if (exchange.standing === undefined && error.status < 500) parts.allowance.charge(exchange.address);
    exchange.standing ??= parts.allowance.look(exchange.address);
    sendError(exchange, error, limitHeaders(exchange.standing, parts.draftFields));
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
    response.once('close', () => {
      parts.traffic.answered(exchange);
      logExchange(parts.logger, exchange);
    });
    serve(exchange, passOn)
      .catch((thrown: unknown) => fail(exchange, thrown))
      .finally(() => {
        if (exchange.shareOf !== undefined) admission.leave(exchange.shareOf);
      });
  }

  return {
    onRequest: (request, response) => take(request, response, forward),
    upgrades: {
      areTaken: (request) => asksForWebSocket(request) && takesWebSocket(request),
      take: (request, response, socket, head) =>
        take(request, response, (exchange, canonical) => tunnel(exchange, canonical, { request, socket, head })),
    },
  };
}

/** What stands in a URL stands in histories, Referers and other people's logs too (RFC 6750 §5.3), and would in the core's. */
const keyInTarget = (): HttpError =>
  new HttpError('invalid_request', 'An API key belongs in the Authorization header, never in the URL.');

/** @throws {HttpError} 503, before the decision has cost anything, where the gateway has too much to do */
async function decide(
  limiter: Limiter,
  admission: Admission,
  exchange: Exchange,
  { authorization }: CanonicalRequest,
): Promise<Verdict> {
  const token = bearerToken(authorization);
  const credential = token === undefined ? undefined : parseApiKey(token);
  if (credential === undefined) return { outcome: 'unauthorized', reason: 'malformed' };
  exchange.keyId = credential.id;
  // By its secret: an id alone is no secret, and who knows it could use up another's share.
  if (!admission.enter(credential.digest)) {
    exchange.outcome = 'shed';
    throw unavailable();
  }
  exchange.shareOf = credential.digest;
  return await limiter.decide(credential);
}

/** @throws {HttpError} 401, 429 or 503, unless the verdict lets the request through */
function admit(allowance: AddressAllowance, exchange: Exchange, verdict: Verdict): void {
  exchange.decidedAt = performance.now();
  exchange.outcome = verdict.outcome;
  switch (verdict.outcome) {
    case 'undecided':
      throw new AccessUnavailable(`The key's data is ${verdict.reason}.`);
    case 'unauthorized':
      exchange.outcome = verdict.reason;
      exchange.standing = allowance.charge(exchange.address);
      throw new HttpError(exchange.standing.outcome === 'refused' ? 'rate_limit_exceeded' : 'unauthorized');
    default:
      exchange.standing = verdict;
      exchange.plan = verdict.plan;
      if (verdict.mode === 'local') exchange.mode = 'local';
      if (verdict.isShadowed) exchange.shadow = 'rate_limit_exceeded';
      exchange.rejectedOverrides = verdict.rejected;
      if (verdict.outcome === 'banned') throw new HttpError('key_banned');
      if (verdict.outcome === 'refused') throw new HttpError('rate_limit_exceeded');
  }
}

/** The body, whole, where the operation takes one. */
async function readBody(
  { request, response, route, shareOf = '' }: Exchange,
  { hasBody }: CanonicalRequest,
  admission: Admission,
  limit: number,
): Promise<Buffer | undefined> {
  if (route?.takesBody) return await admission.outside(shareOf, () => readJsonBytes(request, response, limit));
  if (hasBody) throw takesNoBody();
  return undefined;
}

function headersForCore(
  { id, trace, keyId = '', client, request }: Exchange,
  { host }: CanonicalRequest,
  { coreToken, trustedProxies }: GatewayParts,
): string[] {
  const ours = forwardedHeaders(request, trustedProxies, client, host);
  ours.push('X-Request-Id', id, CALLER_ID, keyId, ...traceHeaders(trace));
  if (coreToken !== undefined) ours.push('Authorization', `Bearer ${coreToken}`);
  return requestHeaders(request.rawHeaders, ours);
}

function headersForClient(exchange: Exchange, draftFields: boolean): string[] {
  const limits = limitHeaders(exchange.standing as Standing, draftFields);
  return ['X-Request-Id', exchange.id, ...limits, ...(exchange.route?.deprecation ?? [])];
}
