import type { ServerResponse } from 'node:http';
import type { Dispatcher, Pool } from 'undici';
import type { Family } from '../../shared/counts.ts';
import { unavailable } from '../../shared/errors.ts';
import { sendAnswer } from './answer.ts';
import { CoreCounts } from './core-counts.ts';
import { type Core, type CoreState, openCores } from './cores.ts';
import {
  AnswerTooLarge,
  ClientGone,
  CoreRefusedUs,
  CoreTooSlow,
  faultKind,
  isConnectionFault,
  neverArrived,
  upstreamFault,
} from './faults.ts';
import { Relay } from './relay.ts';
import { isRead, type UpstreamRequest } from './request.ts';

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

/** Requests that their clients have left can wait their turn with a core still, beyond its limit; here that ends too. */
const MAX_IN_FLIGHT = 4_096;

/** A forwarded request and where its answer goes. */
interface Forwarding {
  readonly request: UpstreamRequest;
  readonly response: ServerResponse;
  readonly extraHeaders: readonly string[];
  /** Until when it is waited for, both attempts counted in; of performance.now(). */
  readonly deadline: number;
}

/**
 * Forwards to one core or to several in turn. What reads and has no body shares a connection. Where its connection fails it
 * before anything of an answer was passed on, it is asked for once more: of another core, if there is one, and of the same
 * one only on a connection that it has to itself.
 */
export function createForwarder(origins: readonly string[], timeoutMs: number): Forwarder {
  const cores = openCores(origins, timeoutMs);
  const counts = new CoreCounts(origins);

  function attempt(core: Core, forwarding: Forwarding): Promise<void> {
    const isShared = isRead(forwarding.request) && core.line.isFree;
    return isShared ? attemptShared(core, forwarding) : attemptAlone(core, forwarding);
  }

  async function attemptShared(core: Core, { request, response, extraHeaders, deadline }: Forwarding): Promise<void> {
    const asked = begin(core, response);
    try {
      const answer = await core.line.ask(request, deadline);
      asked.answered(true);
      if (CoreRefusedUs.saysSo(answer.status)) throw new CoreRefusedUs(answer.status);
      if (response.destroyed) throw new ClientGone();
      sendAnswer(answer, response, extraHeaders);
    } catch (fault) {
      if (fault instanceof CoreTooSlow) asked.answered(false);
      throw fault;
    } finally {
      asked.over();
    }
  }

  function attemptAlone(core: Core, { request, response, extraHeaders, deadline }: Forwarding): Promise<void> {
    const { answered, over } = begin(core, response);
    const relay = new Relay({ response, extraHeaders, deadline, onAnswer: answered, release: over });
    send(core.pool, request, relay);
    return relay.done;
  }

  /** @throws the fault again where another attempt could do harm, or no good */
  async function attemptAgain(failed: Core, forwarding: Forwarding, fault: unknown): Promise<void> {
    if (neverArrived(fault)) failed.ready = false;
    counts.failed(failed.origin, faultKind(fault));
    if (fault instanceof AnswerTooLarge) return await attemptLast(failed, forwarding);
    if (!isRead(forwarding.request) || forwarding.response.headersSent || !isConnectionFault(fault)) throw fault;
    const core = cores.next(failed);
    if (core === failed && neverArrived(fault)) throw fault;
    await attemptLast(core, forwarding);
  }

  async function attemptLast(core: Core, forwarding: Forwarding): Promise<void> {
    try {
      await attemptAlone(core, forwarding);
    } catch (fault) {
      counts.failed(core.origin, faultKind(fault));
      throw fault;
    }
  }

  function begin(core: Core, response: ServerResponse) {
    if (response.destroyed) throw new ClientGone();
    if (core.limit.inFlight >= MAX_IN_FLIGHT)
      throw unavailable(`${MAX_IN_FLIGHT} requests are under way to ${core.origin}.`);
    const askedAt = performance.now();
    core.limit.inFlight += 1;
    return {
      /** @param began or else it was given up */
      answered(began: boolean): void {
        const now = performance.now();
        core.limit.learn(askedAt, now);
        counts.answered(core.origin, now - askedAt);
        if (began) cores.answers(core);
      },
      over(): void {
        core.limit.inFlight -= 1;
      },
    };
  }

  return {
    async forward(request, response, extraHeaders) {
      const forwarding = { request, response, extraHeaders, deadline: performance.now() + timeoutMs };
      const core = cores.next();
      try {
        await attempt(core, forwarding);
      } catch (fault) {
        await attemptAgain(core, forwarding, fault).catch((last: unknown) => {
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
function send(pool: Pool, { method, target, headers, body }: UpstreamRequest, relay: Relay): void {
  try {
    pool.dispatch({ method: method as Dispatcher.HttpMethod, path: target, headers, body: body ?? null }, relay);
  } catch (fault) {
    relay.onResponseError(undefined, fault as Error);
  }
}
