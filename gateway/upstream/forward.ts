import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { HttpError } from '../../shared/errors.ts';
import { openCores } from './cores.ts';
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

const MAX_IN_FLIGHT = 1_024;

/** Forwards to one core or to several in turn. A GET or HEAD that certainly never arrived goes to the next one, once. */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = openCores(origins, timeoutMs);
  let inFlight = 0;

  async function attempt(
    request: UpstreamRequest,
    response: ServerResponse,
    extraHeaders: readonly string[],
  ): Promise<void> {
    const core = cores.next();
    const relay = new Relay(response, extraHeaders, timeoutMs);
    const { method, target: path, headers, body = null } = request;
    try {
      core.pool.dispatch({ method: method as Dispatcher.HttpMethod, path, headers, body }, relay);
    } catch (fault) {
      relay.abort(fault as Error);
    }
    await relay.done.catch((fault: unknown) => {
      if (neverArrived(fault)) core.ready = false;
      throw fault;
    });
  }

  async function attemptTwice(
    request: UpstreamRequest,
    response: ServerResponse,
    extraHeaders: readonly string[],
  ): Promise<void> {
    try {
      await attempt(request, response, extraHeaders);
    } catch (fault) {
      const another = cores.count > 1 && request.body === undefined && neverArrived(fault);
      if (!another) throw fault;
      await attempt(request, response, extraHeaders);
    }
  }

  return {
    async forward(request, response, extraHeaders) {
      if (inFlight >= MAX_IN_FLIGHT) throw new HttpError('unavailable', undefined, { headers: ['Retry-After', '1'] });
      inFlight += 1;
      try {
        await attemptTwice(request, response, extraHeaders);
      } catch (fault) {
        throw upstreamFault(fault);
      } finally {
        inFlight -= 1;
      }
    },
    close: () => cores.close(),
  };
}
