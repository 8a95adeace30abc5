import type { ServerResponse } from 'node:http';
import { Client, type Dispatcher, Pool } from 'undici';
import { HttpError } from '../../shared/errors.ts';
import { neverArrived, upstreamFault } from './faults.ts';
import { Relay } from './relay.ts';

/** What goes to the core. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query in canonical form. */
  readonly target: string;
  /** Flat list, filtered. */
  readonly headers: string[];
  readonly body: Buffer | undefined;
}

export interface Forwarder {
  /**
   * Passes a request on to a core and its answer back to the client; ends when the answer has been handed over.
   * @param extraHeaders put behind the core's own, as a flat list
   * @throws {HttpError} 502, 503 or 504, while nothing has been sent; once something has, the client's connection is cut
   */
  forward(request: UpstreamRequest, response: ServerResponse, extraHeaders: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

const CONNECTIONS = 64;
const MAX_IN_FLIGHT = 1_024;
const CONNECT_TIMEOUT_MS = 1_000;
/** Below the core's own 5 s, so that a connection is never used in the moment in which the core closes it. */
const KEEP_ALIVE_MS = 4_000;

/**
 * A client that stays available when a request is refused before it is sent: undici's own then reports itself busy, with
 * nothing in flight that could ever make it free again.
 */
class SafeClient extends Client {
  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    return super.dispatch(options, handler) || this.stats.size === 0;
  }
}

/** Forwards to one core or to several in turn. A GET or HEAD that certainly never arrived goes to the next one, once. */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = origins.map((origin) => openPool(origin, timeoutMs));
  let inFlight = 0;
  let turn = 0;

  async function attempt(
    core: Pool,
    request: UpstreamRequest,
    response: ServerResponse,
    extraHeaders: readonly string[],
  ) {
    const relay = new Relay(response, extraHeaders, timeoutMs);
    const { method, target: path, headers, body = null } = request;
    try {
      core.dispatch({ method: method as Dispatcher.HttpMethod, path, headers, body }, relay);
    } catch (fault) {
      relay.abort(fault as Error);
    }
    await relay.done;
  }

  async function forward(
    request: UpstreamRequest,
    response: ServerResponse,
    extraHeaders: readonly string[],
  ): Promise<void> {
    if (inFlight >= MAX_IN_FLIGHT) throw new HttpError('unavailable', undefined, { headers: ['Retry-After', '1'] });
    const nextCore = () => cores[turn++ % cores.length] as Pool;
    inFlight += 1;
    try {
      await attempt(nextCore(), request, response, extraHeaders).catch((fault) => {
        const another = cores.length > 1 && request.body === undefined && neverArrived(fault);
        if (!another) throw fault;
        return attempt(nextCore(), request, response, extraHeaders);
      });
    } catch (fault) {
      throw upstreamFault(fault);
    } finally {
      inFlight -= 1;
    }
  }

  return {
    forward,
    async close() {
      await Promise.all(cores.map((core) => core.destroy()));
    },
  };
}

function openPool(origin: string, timeoutMs: number): Pool {
  return new Pool(origin, {
    connections: CONNECTIONS,
    pipelining: 1,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    factory: (url, options) => new SafeClient(url, options as Client.Options),
  });
}
