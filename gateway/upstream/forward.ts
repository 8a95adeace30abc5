import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Family } from '../../shared/counts.ts';
import { unavailable } from '../../shared/errors.ts';
import { CoreCounts } from './core-counts.ts';
import { type Core, type CoreState, openCores } from './cores.ts';
import { AnswerTooLarge, ClientGone, faultKind, neverArrived, upstreamFault } from './faults.ts';
import { Reads } from './reads.ts';
import { Relay } from './relay.ts';
import { isRepeatable, type UpstreamRequest } from './request.ts';

export interface Forwarder {
  /**
   * Passes a request on to a core and its answer back to the client; ends when the answer has been handed over.
   * @param extraHeaders put behind the core's own, as a flat list
   * @throws {HttpError} 502, 503 or 504, while nothing has been sent; once something has, the client's connection is cut
   */
  forward(request: UpstreamRequest, response: ServerResponse, extraHeaders: readonly string[]): Promise<void>;
  /** The origin of the next core in turn, for what goes there by another way. */
  nextOrigin(): string;
  /** How many requests the cores may be asked at once, as things stand. */
  readonly limit: number;
  states(): CoreState[];
  counted(): Family[];
  close(): Promise<void>;
}

/** A forwarded request and where its answer goes. */
export interface Forwarding {
  readonly request: UpstreamRequest;
  readonly response: ServerResponse;
  readonly extraHeaders: readonly string[];
  /** When it came here; of performance.now(). */
  readonly askedAt: number;
  /** Until when it is waited for, all attempts counted in; of performance.now(). */
  readonly deadline: number;
}

/**
 * Forwards to one core or to several in turn. Small reads go where they are answered soonest, and are asked twice at most.
 * Writes and large answers are streamed on a connection of their own. Of these only what certainly never arrived is asked
 * of another core.
 */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = openCores(origins, timeoutMs);
  const counts = new CoreCounts(origins);
  const reads = new Reads(cores, counts, timeoutMs);

  async function stream(forwarding: Forwarding): Promise<void> {
    for (const unreachable: Core[] = []; ; ) {
      const core = cores.next(unreachable);
      try {
        return await streamFrom(core, forwarding);
      } catch (fault) {
        counts.failed(core.origin, faultKind(fault));
        if (!neverArrived(fault)) throw fault;
        core.ready = false;
        unreachable.push(core);
        if (unreachable.length === cores.all.length) throw fault;
      }
    }
  }

  function streamFrom(core: Core, { request, response, extraHeaders, deadline }: Forwarding): Promise<void> {
    if (response.destroyed) throw new ClientGone();
    if (core.limit.isFull) throw unavailable(`${core.limit.inFlight} requests are under way to ${core.origin}.`);
    const askedAt = performance.now();
    core.limit.enter();
    const relay = new Relay({
      response,
      extraHeaders,
      deadline,
      id: request.id,
      onAnswer(began, echoes) {
        const now = performance.now();
        core.limit.learn(askedAt, now);
        counts.answered(core.origin, now - askedAt);
        if (!began) return;
        core.echoes = echoes;
        cores.answers(core);
      },
      release() {
        core.limit.leave();
        core.places.release(request.client);
      },
    });
    const waiter = { client: request.client, start: () => send(core, request, relay) };
    core.places.take(waiter);
    return relay.done.catch((fault: unknown) => {
      // Given up in the queue, it was never sent.
      if (core.places.cancel(waiter)) core.limit.leave();
      throw fault;
    });
  }

  return {
    async forward(request, response, extraHeaders) {
      const askedAt = performance.now();
      const forwarding = { request, response, extraHeaders, askedAt, deadline: askedAt + timeoutMs };
      try {
        if (isRepeatable(request)) await reads.forward(forwarding);
        else await stream(forwarding);
      } catch (fault) {
        if (!(fault instanceof AnswerTooLarge)) throw upstreamFault(fault);
        await stream(forwarding).catch((last: unknown) => {
          throw upstreamFault(last);
        });
      }
    },
    nextOrigin: () => cores.next().origin,
    get limit() {
      return cores.limit;
    },
    states: () => cores.states(),
    counted: () => counts.families(),
    close: () => cores.close(),
  };
}

/** undici throws at once what it will not send; that is an end like any other. */
function send(core: Core, { method, target, headers, body, hasGivenId, id }: UpstreamRequest, relay: Relay): void {
  // Where a late answer to another request could pass for this one's, the connection is a new one and is used once.
  const isRepeated = hasGivenId && core.givenIds.note(id);
  const once = isRepeated || !core.echoes ? core.openClient() : undefined;
  try {
    const request = { method: method as Dispatcher.HttpMethod, path: target, headers, body: body ?? null };
    (once ?? core.pool).dispatch(request, relay);
  } catch (fault) {
    relay.onResponseError(undefined, fault as Error);
  }
  void once?.close().catch(() => {});
}
