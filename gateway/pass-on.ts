import { readJsonBytes, takesNoBody } from '../shared/body.ts';
import { unavailable } from '../shared/errors.ts';
import { CALLER_ID } from '../shared/headers.ts';
import { traceHeaders } from '../shared/trace.ts';
import type { Credential } from './access/credential.ts';
import type { Standing } from './access/verdict.ts';
import type { Admission, Share } from './admission.ts';
import type { CanonicalRequest } from './edge/canonical-request.ts';
import { forwardedHeaders, type TrustedProxies } from './edge/client-address.ts';
import { checkHandshake } from './edge/web-socket.ts';
import type { Exchange } from './exchange.ts';
import { limitHeaders } from './respond/limit-headers.ts';
import type { Tunnels } from './tunnels.ts';
import { upstreamFault } from './upstream/faults.ts';
import type { Forwarder } from './upstream/forward.ts';
import { requestHeaders } from './upstream/headers.ts';
import { openTunnel, type Upgrade } from './upstream/tunnel.ts';

/** The last step of a request that was admitted: to the core, and its answer back. */
export type PassOn = (exchange: Exchange, request: CanonicalRequest) => Promise<void>;

export interface PassOnParts {
  readonly forwarder: Forwarder;
  readonly tunnels: Tunnels;
  readonly trustedProxies: TrustedProxies;
  readonly bodyLimitBytes: number;
  readonly coreTimeoutMs: number;
  /** Whether the IETF draft's RateLimit fields are sent. */
  readonly draftFields: boolean;
  readonly coreToken: string | undefined;
}

/** Forwards it. */
export function forwardTo(parts: PassOnParts, admission: Admission): PassOn {
  return async (exchange, request) => {
    const body = exchange.route?.takesBody ? await readBody(exchange, admission, parts.bodyLimitBytes) : undefined;
    if (body === undefined && request.hasBody) throw takesNoBody();
    await parts.forwarder.forward(
      {
        method: request.method,
        target: request.target,
        headers: headersForCore(exchange, request, parts),
        body,
        id: exchange.id,
        hasGivenId: exchange.request.headers['x-request-id'] !== undefined,
        client: exchange.keyId ?? '',
      },
      exchange.response,
      headersForClient(exchange, parts.draftFields),
    );
  };
}

/** Opens the WebSocket that it asks for. */
export function tunnelTo(parts: PassOnParts, upgrade: Upgrade): PassOn {
  return async (exchange, request) => {
    checkHandshake(exchange.request);
    if (request.hasBody) throw takesNoBody();
    if (parts.tunnels.stopped) throw unavailable('The gateway is stopping.');
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
    parts.tunnels.add(opened, exchange.credential as Credential);
  };
}

function readBody({ request, response, share }: Exchange, admission: Admission, limit: number): Promise<Buffer> {
  return admission.outside(share as Share, () => readJsonBytes(request, response, limit));
}

function headersForCore(
  { id, trace, keyId = '', client, request }: Exchange,
  { host }: CanonicalRequest,
  { coreToken, trustedProxies }: PassOnParts,
): string[] {
  const ours = forwardedHeaders(request, trustedProxies, client, host);
  ours.push('X-Request-Id', id, CALLER_ID, keyId, ...traceHeaders(trace));
  if (coreToken !== undefined) ours.push('Authorization', `Bearer ${coreToken}`);
  return requestHeaders(request.rawHeaders, ours);
}

function headersForClient(exchange: Exchange, draftFields: boolean): string[] {
  const headers = ['X-Request-Id', exchange.id, ...limitHeaders(exchange.standing as Standing, draftFields)];
  headers.push(...exchange.cors);
  if (exchange.route?.deprecation !== undefined) headers.push(...exchange.route.deprecation);
  return headers;
}
