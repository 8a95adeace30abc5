import { readJsonBytes, takesNoBody } from '../../shared/body.ts';
import { unavailable } from '../../shared/errors.ts';
import { CALLER_ID } from '../../shared/headers.ts';
import { traceHeaders } from '../../shared/trace.ts';
import type { Credential } from '../access/credential.ts';
import { upstreamFault } from '../upstream/faults.ts';
import type { Forwarder } from '../upstream/forward.ts';
import { requestHeaders } from '../upstream/headers.ts';
import { openTunnel, type Upgrade } from '../upstream/tunnel.ts';
import type { CanonicalRequest } from './canonical-request.ts';
import { forwardedHeaders, type TrustedProxies } from './client-address.ts';
import { clientHeaders } from './client-headers.ts';
import type { Exchange } from './exchange.ts';
import type { Tunnels } from './tunnels.ts';
import { checkHandshake } from './web-socket.ts';

/** The last step of a request that was admitted: to the core, and its answer back. */
export type Forward = (exchange: Exchange, request: CanonicalRequest, body: Buffer | undefined) => Promise<void>;

export interface ForwardParts {
  readonly forwarder: Forwarder;
  readonly tunnels: Tunnels;
  readonly trustedProxies: TrustedProxies;
  readonly coreTimeoutMs: number;
  /** Whether the IETF draft's RateLimit fields are sent. */
  readonly draftFields: boolean;
  readonly coreToken: string | undefined;
}

/** Forwards it. */
export function forwardTo(parts: ForwardParts): Forward {
  return async (exchange, request, body) => {
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
      clientHeaders(exchange, parts.draftFields),
    );
  };
}

/** Opens the WebSocket that it asks for. */
export function tunnelTo(parts: ForwardParts, upgrade: Upgrade): Forward {
  return async (exchange, request) => {
    checkHandshake(exchange.request);
    if (request.hasBody) throw takesNoBody();
    if (parts.tunnels.stopped) throw unavailable('The gateway is stopping.');
    const asked = {
      origin: parts.forwarder.nextOrigin(),
      target: request.target,
      headers: headersForCore(exchange, request, parts),
      extraHeaders: clientHeaders(exchange, parts.draftFields),
      timeoutMs: parts.coreTimeoutMs,
    };
    const opened = await openTunnel(asked, upgrade).catch((fault: unknown) => {
      throw upstreamFault(fault);
    });
    exchange.tunnel = opened;
    parts.tunnels.add(opened, exchange.credential as Credential);
  };
}

/** @throws {HttpError} 400, 408, 413 or 415 */
export const readBody = ({ request, response }: Exchange, limitBytes: number): Promise<Buffer> =>
  readJsonBytes(request, response, limitBytes);

function headersForCore(
  { id, trace, keyId = '', client, request }: Exchange,
  { host }: CanonicalRequest,
  { coreToken, trustedProxies }: ForwardParts,
): string[] {
  const ours = forwardedHeaders(request, trustedProxies, client, host);
  ours.push('X-Request-Id', id, CALLER_ID, keyId, ...traceHeaders(trace));
  if (coreToken !== undefined) ours.push('Authorization', `Bearer ${coreToken}`);
  return requestHeaders(request.rawHeaders, ours);
}
