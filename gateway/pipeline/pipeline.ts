import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { type HttpError, toHttpError } from '../../shared/errors.ts';
import type { Logger } from '../../shared/logger.ts';
import { createRouter } from '../../shared/routes.ts';
import type { Upgrades } from '../../shared/upgrades.ts';
import type { GatewayRoute } from '../routes.ts';
import { logExchange } from '../telemetry/access-log.ts';
import type { RecentDecisions } from '../telemetry/recent-decisions.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import { Authorizer, authenticate, type Decided, MALFORMED, refusalOf, refuseKeyInTarget } from './authorize.ts';
import { canonicalRequest } from './canonical-request.ts';
import { clientAddress, networkOf } from './client-address.ts';
import { Exchange } from './exchange.ts';
import { type Forward, type ForwardParts, forwardTo, readBody, tunnelTo } from './forward.ts';
import { LoadShedder, type Slot } from './load-shedder.ts';
import { OwnAnswers, type OwnAnswersParts, sendOwnAnswer } from './own-answers.ts';
import { RefusalPacing } from './refusal-pacing.ts';
import { sendError } from './send-error.ts';
import { asksForWebSocket } from './web-socket.ts';

export interface PipelineParts extends ForwardParts, OwnAnswersParts {
  readonly routes: readonly GatewayRoute[];
  readonly recent: RecentDecisions;
  readonly logger: Logger;
  readonly traffic: Traffic;
  readonly bodyLimitBytes: number;
}

export interface Pipeline {
  readonly onRequest: RequestListener;
  readonly upgrades: Upgrades;
}

/** What happens to a request, from top to bottom. */
export function createPipeline(parts: PipelineParts): Pipeline {
  const { allowance, draftFields } = parts;
  const router = createRouter(parts.routes);
  const shedder = new LoadShedder(() => parts.forwarder.limit);
  const authorizer = new Authorizer(parts.limiter, (address) => allowance.consume(address));
  const ownAnswers = new OwnAnswers(parts, router.allowed);
  const pacing = new RefusalPacing();

  /**
   * The steps of a request, in order.
   * @returns its refusal. A refusal is returned because throwing is slow, and a client can have thousands of them.
   * @throws {HttpError} whatever else goes wrong
   */
  async function handle(exchange: Exchange, forward: Forward, slot: Slot): Promise<HttpError | undefined> {
    // 1. The one form in which it is checked, decided on and forwarded.
    const request = canonicalRequest(exchange.request);
    exchange.canonical = request;

    // 2. What the gateway answers itself ends here.
    const own = ownAnswers.answerTo(request, exchange);
    if (own !== undefined) return void sendOwnAnswer(exchange, await own, draftFields);

    // 3. Who is it?
    const credential = authenticate(request.authorization);
    exchange.credential = credential;

    // 4. Is there room, and does the key have a token left? What has not the form of a key is not asked about.
    const decided: Decided =
      credential === undefined
        ? { verdict: MALFORMED, addressStatus: allowance.consume(exchange.address) }
        : await authorizer.decide(credential, exchange.address, slot);
    exchange.verdict = decided.verdict;
    exchange.addressStatus = decided.addressStatus;
    if (decided.verdict === undefined) return decided.refusal;
    if (credential !== undefined && decided.verdict.outcome !== 'undecided') exchange.decidedAt = performance.now();
    parts.recent.note(exchange.id, exchange.keyId, decided.verdict);

    // 5. Refuse, or admit.
    const refusal = refusalOf(decided.verdict, decided.addressStatus);
    if (refusal !== undefined) return refusal;

    // 6. What does it ask for, and with which body? Its client is waited for without a slot.
    exchange.route = router.find(request.method, request.path).route;
    refuseKeyInTarget(request.target);
    const body = exchange.route.takesBody
      ? await slot.during(() => readBody(exchange, parts.bodyLimitBytes))
      : undefined;

    // 7. To the core, and its answer back.
    await forward(exchange, request, body);
    return undefined;
  }

  async function serve(exchange: Exchange, forward: Forward): Promise<void> {
    const slot = shedder.slot();
    const fault = await handle(exchange, forward, slot).catch((thrown: unknown) => thrown);
    slot.release();
    if (fault !== undefined) await fail(exchange, toHttpError(fault));
  }

  async function fail(exchange: Exchange, error: HttpError): Promise<void> {
    // A refusal before a decision is paid from the address's allowance. A fault of ours is not.
    if (exchange.limitStatus === undefined) {
      if (error.status < 500) allowance.consume(exchange.address);
      exchange.addressStatus = allowance.peek(exchange.address);
    }
    if (error.status < 500 && exchange.decision?.outcome !== 'admitted')
      await pacing.turn(refusedClient(exchange), exchange.response);
    sendError(exchange, error, draftFields);
  }

  function asksForTunnel({ url = '' }: IncomingMessage): boolean {
    try {
      return router.find('GET', url.split('?', 1)[0] as string).route.webSocket === true;
    } catch {
      return false;
    }
  }

  function take(request: IncomingMessage, response: ServerResponse, forward: Forward): void {
    const client = clientAddress(request, parts.trustedProxies);
    const cors = parts.cors.headersFor(request.headers.origin);
    const exchange = new Exchange({ request, response, client, address: networkOf(client), cors });
    response.on('close', () => {
      parts.traffic.answered(exchange);
      logExchange(parts.logger, exchange);
    });
    void serve(exchange, forward);
  }

  const forward = forwardTo(parts);

  return {
    onRequest: (request, response) => take(request, response, forward),
    upgrades: {
      areTaken: (request) => asksForWebSocket(request) && asksForTunnel(request),
      take: (request, response, socket, head) => take(request, response, tunnelTo(parts, { request, socket, head })),
    },
  };
}

/** Who a refusal goes to: a good key, or an address. */
const refusedClient = ({ decision, credential, address }: Exchange): string =>
  decision === undefined || credential === undefined ? address : credential.cacheKey;
