import type { ServerResponse } from 'node:http';
import type { Dispatcher, Pool } from 'undici';
import { unavailable } from '../../shared/errors.ts';
import { type Core, openCores } from './cores.ts';
import { isLineFault, neverArrived, upstreamFault } from './faults.ts';
import { ClientGone, type Relay, type RelayOptions } from './relay.ts';
import type { SharedLine } from './shared-line.ts';
import { StreamRelay } from './stream-relay.ts';
import { WholeRelay } from './whole-relay.ts';

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

/** A forwarded request and where its answer goes. */
interface Forwarding {
  readonly request: UpstreamRequest;
  readonly response: ServerResponse;
  readonly extraHeaders: readonly string[];
}

/**
 * Forwards to one core or to several in turn. What reads and has no body shares a connection, and is asked for once more
 * where that connection fails it; a GET or HEAD that never arrived goes to another core, once.
 */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = openCores(origins, timeoutMs);

  async function attempt(core: Core, forwarding: Forwarding): Promise<void> {
    if (isRead(forwarding.request) && core.line.isFree) return await attemptShared(core, forwarding);
    return await attemptAlone(core, forwarding);
  }

  async function attemptShared(core: Core, forwarding: Forwarding): Promise<void> {
    const { line } = core;
    const relay = new WholeRelay(
      begin(core, forwarding, () => line.released()),
      () => line.writing(),
    );
    send(line, forwarding.request, relay);
    try {
      await relay.done;
    } catch (fault) {
      if (neverArrived(fault) || !isLineFault(fault)) throw fault;
      await attemptAlone(core, forwarding);
    }
  }

  async function attemptAlone(core: Core, forwarding: Forwarding): Promise<void> {
    const relay = new StreamRelay(begin(core, forwarding, () => {}));
    send(core.pool, forwarding.request, relay);
    await relay.done;
  }

  function begin(core: Core, { response, extraHeaders }: Forwarding, released: () => void): RelayOptions {
    if (response.destroyed) throw new ClientGone();
    if (core.inFlight >= MAX_IN_FLIGHT) throw unavailable();
    core.inFlight += 1;
    const release = () => {
      core.inFlight -= 1;
      released();
    };
    return { response, extraHeaders, timeoutMs, release };
  }

  return {
    async forward(request, response, extraHeaders) {
      const forwarding = { request, response, extraHeaders };
      const core = cores.next();
      try {
        await attempt(core, forwarding).catch((fault: unknown) => {
          if (!neverArrived(fault)) throw fault;
          core.ready = false;
          if (cores.count === 1 || !isRead(request)) throw fault;
          return attempt(cores.next(core), forwarding);
        });
      } catch (fault) {
        throw upstreamFault(fault);
      }
    },
    close: () => cores.close(),
  };
}

const isRead = ({ method, body }: UpstreamRequest): boolean =>
  (method === 'GET' || method === 'HEAD') && body === undefined;

/** undici throws at once what it will not send; that is an end like any other. */
function send(way: Pick<SharedLine, 'dispatch'> | Pool, request: UpstreamRequest, relay: Relay): void {
  const { method, target: path, headers, body = null } = request;
  try {
    way.dispatch({ method: method as Dispatcher.HttpMethod, path, headers, body }, relay);
  } catch (fault) {
    relay.onResponseError(undefined, fault as Error);
  }
}
