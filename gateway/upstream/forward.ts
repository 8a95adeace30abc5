import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { HttpError } from '../../shared/errors.ts';
import { type Core, openCores } from './cores.ts';
import { neverArrived, upstreamFault } from './faults.ts';
import { ClientGone, Relay } from './relay.ts';

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

/** Past this, an answer would come too late for anyone: a core answers a request in a millisecond, or it is in trouble. */
const MAX_IN_FLIGHT = 1_024;

/** Forwards to one core or to several in turn. A GET or HEAD that certainly never arrived goes to another one, once. */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = openCores(origins, timeoutMs);

  async function attempt(
    core: Core,
    request: UpstreamRequest,
    response: ServerResponse,
    extraHeaders: readonly string[],
  ) {
    if (response.destroyed) throw new ClientGone();
    if (core.inFlight >= MAX_IN_FLIGHT)
      throw new HttpError('unavailable', undefined, { headers: ['Retry-After', '1'] });
    core.inFlight += 1;
    const relay = new Relay(response, extraHeaders, timeoutMs, () => {
      core.inFlight -= 1;
    });
    const { method, target: path, headers, body = null } = request;
    try {
      core.pool.dispatch({ method: method as Dispatcher.HttpMethod, path, headers, body }, relay);
    } catch (fault) {
      relay.onResponseError(undefined, fault as Error);
    }
    await relay.done;
  }

  return {
    async forward(request, response, extraHeaders) {
      const core = cores.next();
      try {
        await attempt(core, request, response, extraHeaders).catch((fault: unknown) => {
          if (!neverArrived(fault)) throw fault;
          core.ready = false;
          if (cores.count === 1 || request.body !== undefined) throw fault;
          return attempt(cores.next(core), request, response, extraHeaders);
        });
      } catch (fault) {
        throw upstreamFault(fault);
      }
    },
    close: () => cores.close(),
  };
}
