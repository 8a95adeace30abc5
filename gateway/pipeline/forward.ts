import { takesNoBody } from '../../shared/http/body.ts';
import { unavailable } from '../../shared/http/errors.ts';
import { CALLER_ID, traceHeaders } from '../../shared/http/headers.ts';
import type { Credential } from '../limiter/credential.ts';
import type { Done } from '../upstream/call.ts';
import { upstreamFault } from '../upstream/faults.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import { attemptIdOf } from '../upstream/request-head.ts';
import { openTunnel, type Upgrade } from '../upstream/tunnel.ts';
import { requestHeaders } from '../upstream/upstream-headers.ts';
import type { CanonicalRequest } from './canonical-request.ts';
import { forwardedHeaders, type TrustedProxies } from './client-address.ts';
import { clientHeaders } from './client-headers.ts';
import type { Exchange } from './exchange.ts';
import { checkHandshake, type Tunnels } from './tunnels.ts';

/**
 * The last step of an admitted request: sends the request to the core and the answer back. Calls `done` once, with the
 * fault if there is one. @throws {HttpError} if it fails before anything is sent; `done` is not called then
 */
export type Forward = (exchange: Exchange, request: CanonicalRequest, body: Buffer | undefined, done: Done) => void;

export interface ForwardDependencies {
  readonly forwarder: Forwarder;
  readonly tunnels: Tunnels;
  readonly trustedProxies: TrustedProxies;
  readonly coreTimeoutMs: number;
  /** Whether the IETF draft's RateLimit fields are sent. */
  readonly draftFields: boolean;
  /** The core's present token, if it needs one. */
  readonly coreToken: () => string | undefined;
}

/** Forwards the request to a core. */
export function forwardTo(deps: ForwardDependencies): Forward {
  return (exchange, request, body, done) => {
    if (body === undefined && request.hasBody) throw takesNoBody();
    deps.forwarder.forward(
      {
        method: request.method,
        target: request.target,
        headers: headersForCore(exchange, request, deps),
        body,
        id: exchange.id,
        client: exchange.client ?? { id: '', slowUntil: 0, largeUntil: 0 },
      },
      exchange,
      clientHeaders(exchange, deps.draftFields),
      done,
    );
  };
}

/** Opens the WebSocket that the request asks for. */
export function tunnelTo(deps: ForwardDependencies, upgrade: Upgrade): Forward {
  return (exchange, request, _body, done) => {
    checkHandshake(exchange.request);
    if (request.hasBody) throw takesNoBody();
    if (deps.tunnels.stopped) throw unavailable('The gateway is stopping.');
    const asked = {
      core: deps.forwarder.nextCore(),
      target: request.target,
      headers: [...headersForCore(exchange, request, deps), 'X-Request-Id', attemptIdOf(exchange.id)],
      extraHeaders: clientHeaders(exchange, deps.draftFields),
      timeoutMs: deps.coreTimeoutMs,
    };
    openTunnel(asked, upgrade).then(
      (opened) => {
        exchange.tunnel = opened;
        deps.tunnels.add(opened, exchange.credential as Credential);
        done();
      },
      (fault: unknown) => done(upstreamFault(fault)),
    );
  };
}

function headersForCore(
  { trace, keyId = '', clientAddress, request }: Exchange,
  { host }: CanonicalRequest,
  { coreToken, trustedProxies }: ForwardDependencies,
): string[] {
  const ours = forwardedHeaders(request, trustedProxies, clientAddress, host);
  ours.push(CALLER_ID, keyId, ...traceHeaders(trace));
  const token = coreToken();
  if (token !== undefined) ours.push('Authorization', `Bearer ${token}`);
  return requestHeaders(request.rawHeaders, ours);
}
