import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { readJsonBytes, takesNoBody } from '../../shared/http/body.ts';
import { HttpError, toHttpError, unavailable } from '../../shared/http/errors.ts';
import { addTrace, CALLER_ID } from '../../shared/http/request-head.ts';
import type { Listening } from '../../shared/http/server.ts';
import { createRouter } from '../../shared/http/service.ts';
import type { Logger } from '../../shared/process/logger.ts';
import { isNear, monotonicClock } from '../limiter/bucket.ts';
import { Client } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import type { Credential } from '../limiter/credential.ts';
import type { BucketState, Verdict } from '../limiter/limiter.ts';
import { type GatewayRoute, LIMITS_ROUTE } from '../routes.ts';
import { type CanonicalRequest, Exchange } from '../telemetry/exchange.ts';
import type { BannedKeys, KeyWatch } from '../telemetry/key-watch.ts';
import type { RecentRequests } from '../telemetry/recent-requests.ts';
import { ElsewhereLog, logExchange, type Traffic } from '../telemetry/request-metrics.ts';
import type { Done } from '../upstream/answer.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import { requestHeaders, type UpstreamRequest } from '../upstream/headers.ts';
import { Tunnel } from '../upstream/tunnel.ts';
import { Authorizer, authenticate, MALFORMED, refusalOf, refuseKeyInTarget, shed } from './authorize.ts';
import {
  addForwarded,
  canonicalRequest,
  clientAddress,
  clientHeaders,
  networkOf,
  serverTiming,
  type TrustedProxies,
} from './client-http.ts';
import { costOfBody, LoadShedder, RefusalPacing } from './overload.ts';
import { OwnAnswers, type OwnAnswersDependencies, sendError, sendOwnAnswer } from './own-answers.ts';
import { asksForWebSocket, checkHandshake, type Tunnels } from './tunnels.ts';

interface PipelineDependencies extends ForwardDependencies, OwnAnswersDependencies {
  readonly routes: readonly GatewayRoute[];
  readonly clients: Clients;
  readonly recent: RecentRequests;
  readonly banned: BannedKeys;
  readonly watch: KeyWatch;
  readonly logger: Logger;
  readonly traffic: Traffic;
  readonly bodyLimitBytes: number;
  /** Whether responses report how long each step took (Server-Timing). */
  readonly showsTiming: boolean;
}

/** Creates the listeners that take each request through the steps of `handle`. */
export function createPipeline(deps: PipelineDependencies): Pick<Listening, 'onRequest' | 'upgrades'> {
  const { allowance, draftFields } = deps;
  const router = createRouter(deps.routes);
  const { cores } = deps.forwarder;
  const shedder = new LoadShedder(
    () => cores.limit,
    () => cores.limitPerClient,
  );
  const authorizer = new Authorizer(deps.limiter, deps.clients);
  const ownAnswers = new OwnAnswers(deps, router.allowed, record);
  const pacing = new RefusalPacing();
  const elsewhere = new ElsewhereLog(deps.logger);

  /** The steps of a request, in order. Frequent refusals are returned rather than thrown, because throwing is slow. */
  async function handle(exchange: Exchange, forward: Forward): Promise<void> {
    const slot = shedder.slot();
    const end = (fault?: HttpError) => {
      slot.release();
      if (fault !== undefined) void fail(exchange, fault);
    };
    try {
      // 1. Reduce the request to its canonical form, or refuse it.
      const request = canonicalRequest(exchange.request);
      exchange.canonical = request;

      // 2. Find the operation. Answer requests that do not need the core.
      const match = router.lookUp(request.method, request.path);
      if (match === undefined || match.route === LIMITS_ROUTE) {
        const own = ownAnswers.answerTo(request, exchange);
        if (own !== undefined) {
          sendOwnAnswer(exchange, await own, draftFields);
          return end();
        }
      }

      // 3. Parse the API key, and note the scope that the operation needs.
      const credential = authenticate(request.authorization, {
        scope: match?.route.scope,
        address: exchange.clientAddress,
      });
      exchange.credential = credential;

      // 4. Decide: is there capacity, and does the key have a token? A malformed key needs no lookup.
      let verdict = MALFORMED;
      const askedAt = monotonicClock();
      if (credential !== undefined) {
        exchange.isBeingDecided = true;
        const asked = authorizer.decide(credential, exchange, slot);
        const isVerified = exchange.client !== undefined;
        const decided = asked instanceof Promise ? await asked : asked;
        exchange.isBeingDecided = false;
        if (decided instanceof HttpError) return end(decided);
        // A verdict that is not a promise is a remembered ban. Noting it again would extend how long it is remembered.
        if (isVerified && asked instanceof Promise) deps.clients.note(credential, decided, askedAt, exchange.client);
        if (decided.outcome !== 'undecided') exchange.decidedAt = performance.now();
        verdict = decided;
      }
      if (verdict.outcome === 'unauthorized') exchange.addressStatus = allowance.consume(exchange.network);
      record(exchange, verdict, askedAt);

      // 5. Refuse or admit.
      const refusal = refusalOf(verdict, exchange.addressStatus, match?.route.scope);
      if (refusal !== undefined) return end(refusal);
      pacing.noteAdmitted(payerOf(exchange), exchange.decidedAt);
      if (exchange.endedAt !== 0) {
        // The client has left during the decision.
        observe(exchange);
        return end();
      }

      // 6. Refuse an unknown operation, and read the body. The slot is released while the client sends the body.
      // In the meantime, others may take the capacity, and the key may change.
      exchange.route = (match ?? router.find(request.method, request.path)).route;
      refuseKeyInTarget(request.target);
      let body: Buffer | undefined;
      if (exchange.route.takesBody) {
        slot.pause();
        body = await readJsonBytes(exchange.request, exchange.response, deps.bodyLimitBytes);
        if (!slot.resume()) return end(shed());
      }
      if (credential && deps.clients.hasChangedSince(credential.id, askedAt, exchange.client)) {
        const refused = await authorizer.refusalOfChanged(credential, exchange);
        if (refused !== undefined) return end(refused);
      }

      // 7. Forward the request to the core, and the response to the client.
      forward(exchange, request, body, end);
    } catch (fault) {
      end(toHttpError(fault));
    }
  }

  /** @param askedAt when the decision was requested, on the monotonic clock */
  function record(exchange: Exchange, verdict: Verdict, askedAt = monotonicClock()): void {
    exchange.verdict = verdict;
    const { id, keyId, client, clientAddress, outcome } = exchange;
    deps.recent.decided(exchange);
    if (verdict.outcome === 'banned' && keyId !== undefined) deps.banned.note(keyId);
    if (keyId !== undefined && 'buckets' in verdict) {
      if (client !== undefined) client.askedAt = askedAt;
      // A new key has no record if a change arrived during its decision.
      if (verdict.outcome !== 'admitted' || isNear(verdict.buckets[1] as BucketState))
        deps.watch.note(client ?? new Client(keyId), verdict);
    }
    if (outcome === 'elsewhere') elsewhere.note(keyId, clientAddress, id);
  }

  async function fail(exchange: Exchange, error: HttpError): Promise<void> {
    // A refusal before the decision counts against the address; a gateway or core fault does not.
    if (exchange.limitStatus === undefined) {
      if (error.status < 500 || error.code === 'http_version_not_supported') allowance.consume(exchange.network);
      else if (exchange.credential) exchange.keyStatus = deps.clients.lastStatus(exchange.credential);
      if (exchange.keyStatus === undefined) exchange.addressStatus = allowance.peek(exchange.network);
    }
    exchange.isBeingDecided = false;
    if (exchange.endedAt !== 0) {
      exchange.error ??= error;
      observe(exchange);
      return;
    }
    const isTooLarge = error.code === 'payload_too_large';
    if (isTooLarge || (error.status < 500 && exchange.decision?.outcome !== 'admitted')) {
      if (!exchange.request.complete) exchange.request.pause();
      const from = performance.now();
      const held = pacing.delay(payerOf(exchange), exchange.response, isTooLarge ? costOfBody(deps.bodyLimitBytes) : 1);
      await held;
      if (held !== undefined) exchange.heldFor(performance.now() - from);
    }
    sendError(exchange, error, draftFields);
  }

  const asksForTunnel = ({ url = '' }: IncomingMessage): boolean =>
    router.lookUp('GET', url.split('?', 1)[0] as string)?.route.webSocket === true;

  function take(request: IncomingMessage, response: ServerResponse, forward: Forward): void {
    const peer = deps.trustedProxies.peerOf(request.socket);
    const address = clientAddress(request, deps.trustedProxies);
    const network = address === peer.address ? peer.network : networkOf(address);
    const cors = deps.cors === undefined ? NO_HEADERS : deps.cors.headersFor(request.headers.origin);
    const exchange = new Exchange(request, response, address, peer, network, cors);
    if (deps.showsTiming) exchange.lateHeaders = () => serverTiming(exchange);
    response.on('close', () => {
      exchange.endedAt = performance.now();
      // A request whose client leaves during the decision is observed after it, because it may cost a token.
      if (!exchange.isBeingDecided) observe(exchange);
    });
    void handle(exchange, forward);
  }

  function observe(exchange: Exchange): void {
    if (exchange.isObserved) return;
    exchange.isObserved = true;
    deps.traffic.answered(exchange);
    deps.recent.ended(exchange);
    logExchange(deps.logger, exchange);
  }

  const forward = forwardTo(deps);

  return {
    onRequest: (request, response) => take(request, response, forward),
    upgrades: {
      accepts: (request) => asksForWebSocket(request) && asksForTunnel(request),
      take: (request, response, socket) => take(request, response, tunnelTo(deps, socket)),
    },
  };
}

const NO_HEADERS: readonly string[] = [];

/** Who pays for the request: a valid key, or a network. */
const payerOf = ({ decision, credential, network }: Exchange): string =>
  decision === undefined || credential === undefined ? network : credential.cacheKey;

/**
 * The last step of an admitted request: forwards it to the core, and the response to the client. Calls `done` once,
 * with the fault if there is one.
 * @throws {HttpError} if it fails before sending anything, in which case `done` is not called
 */
type Forward = (exchange: Exchange, request: CanonicalRequest, body: Buffer | undefined, done: Done) => void;

interface ForwardDependencies {
  readonly forwarder: Forwarder;
  readonly tunnels: Tunnels;
  readonly trustedProxies: TrustedProxies;
  /** Whether the IETF draft's RateLimit fields are sent. */
  readonly draftFields: boolean;
  /** Returns the current token for the core. Undefined if the core needs none. */
  readonly coreToken: (() => string | undefined) | undefined;
}

/** Forwards the request to a core. */
function forwardTo(deps: ForwardDependencies): Forward {
  return (exchange, request, body, done) => {
    if (body === undefined && request.hasBody) throw takesNoBody();
    const asked = requestForCore(exchange, request, body, deps);
    deps.forwarder.forward(asked, exchange, clientHeaders(exchange, deps.draftFields), done);
  };
}

/** Opens the WebSocket that the request asks for. */
function tunnelTo(deps: ForwardDependencies, socket: Socket): Forward {
  return (exchange, request, _body, done) => {
    checkHandshake(exchange.request);
    if (request.hasBody) throw takesNoBody();
    if (deps.tunnels.stopped) throw unavailable('The gateway is stopping.');
    const headers = clientHeaders(exchange, deps.draftFields);
    const opened = (core: Socket) => {
      const tunnel = new Tunnel(socket, core);
      exchange.tunnel = tunnel;
      deps.tunnels.add(tunnel, exchange.credential as Credential);
    };
    const upgrade = { request: exchange.request, socket, headers, opened };
    const asked = { ...requestForCore(exchange, request, undefined, deps), upgrade };
    deps.forwarder.forward(asked, exchange, headers, done);
  };
}

const requestForCore = (
  exchange: Exchange,
  request: CanonicalRequest,
  body: Buffer | undefined,
  deps: ForwardDependencies,
): UpstreamRequest => ({
  method: request.method,
  target: request.target,
  headers: headersForCore(exchange, request, deps),
  body,
  id: exchange.id,
  client: exchange.client ?? { id: '', slowUntil: 0, largeUntil: 0, largePath: '' },
});

function headersForCore(
  { trace, keyId = '', clientAddress, peer, request }: Exchange,
  { host }: CanonicalRequest,
  { coreToken }: ForwardDependencies,
): string[] {
  const headers = requestHeaders(request.rawHeaders);
  addForwarded(headers, request, peer, clientAddress, host);
  headers.push(CALLER_ID, keyId);
  addTrace(headers, trace);
  const token = coreToken?.();
  if (token !== undefined) headers.push('Authorization', `Bearer ${token}`);
  return headers;
}
