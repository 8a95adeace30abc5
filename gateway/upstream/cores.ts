import { Client, type Dispatcher, Pool, request } from 'undici';
import { ConcurrencyLimit } from './concurrency-limit.ts';
import { SharedLine } from './shared-line.ts';

/** The cores behind the gateway: a pool of connections each, and which of them are ready. */

const CONNECTIONS = 64;
const CONNECT_TIMEOUT_MS = 1_000;
/** Below the core's own 5 s, so that a connection is never used in the moment in which the core closes it. */
const KEEP_ALIVE_MS = 4_000;
/** Several times within the second in which a core that is going down still serves. */
const PROBE_EVERY_MS = 250;

/**
 * A client that stays available when a request is refused before it is sent: undici's own then reports itself busy, with
 * nothing in flight that could ever make it free again.
 */
class SafeClient extends Client {
  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    return super.dispatch(options, handler) || this.stats.size === 0;
  }
}

export interface Core {
  readonly origin: string;
  /** Connections with one request at a time. */
  readonly pool: Pool;
  /** The connection that small reads share. */
  readonly line: SharedLine;
  readonly limit: ConcurrencyLimit;
  ready: boolean;
}

/** A core as it stands, for those who look after it. */
export interface CoreState {
  readonly origin: string;
  /** What counts for one alone, which is not probed, is its last answer, or that it could not be reached. */
  readonly ready: boolean;
  /** Requests that were handed over and not let go of; and of these, those that wait for a connection. */
  readonly inFlight: number;
  readonly queued: number;
  /** How many it may be asked at once. */
  readonly limit: number;
}

export interface Cores {
  /** How many requests the cores that are ready may be asked at once. */
  readonly limit: number;
  /** The next core in turn, past those that are not ready, are busy or are `except`, as long as there is another. */
  next(except?: Core): Core;
  /** To be called when a core begins to answer. */
  answers(core: Core): void;
  states(): CoreState[];
  close(): Promise<void>;
}

/** Opens the pools. Several cores are probed, so that one that is going down gets no more requests; one alone needs none. */
export function openCores(origins: readonly string[], timeoutMs: number): Cores {
  const cores: Core[] = origins.map((origin) => openCore(origin, timeoutMs));
  const probing = cores.length > 1 ? setInterval(() => cores.forEach(probe), PROBE_EVERY_MS).unref() : undefined;
  let turn = 0;

  return {
    get limit() {
      let [all, ready] = [0, 0];
      for (const core of cores) {
        all += core.limit.value;
        if (core.ready) ready += core.limit.value;
      }
      return ready > 0 ? ready : all;
    },
    next(except) {
      const first = turn++;
      if (cores.length === 1) return cores[0] as Core;
      const inTurn = cores.map((_, at) => cores[(first + at) % cores.length] as Core);
      const others = inTurn.filter((core) => core !== except);
      const ready = others.filter((core) => core.ready);
      return ready.find(({ limit }) => limit.hasRoom) ?? ready[0] ?? others[0] ?? (inTurn[0] as Core);
    },
    // One that goes down still answers: where there are several, only the probe tells.
    answers(core) {
      if (probing === undefined) core.ready = true;
    },
    states: () =>
      cores.map(({ origin, ready, limit, pool }) => ({
        origin,
        ready,
        inFlight: limit.inFlight,
        queued: pool.stats.queued,
        limit: limit.value,
      })),
    async close() {
      clearInterval(probing);
      for (const { line } of cores) line.close();
      await Promise.all(cores.map(({ pool }) => pool.destroy()));
    },
  };
}

/** On a connection of its own: a busy pool would answer for itself, not for the core. */
async function probe(core: Core): Promise<void> {
  const timeouts = { headersTimeout: CONNECT_TIMEOUT_MS, bodyTimeout: CONNECT_TIMEOUT_MS };
  try {
    const { statusCode, body } = await request(`${core.origin}/readyz`, { ...timeouts, reset: true });
    await body.dump();
    core.ready = statusCode === 200;
  } catch {
    core.ready = false;
  }
}

function openCore(origin: string, timeoutMs: number): Core {
  const line = new SharedLine(origin, { connectTimeoutMs: CONNECT_TIMEOUT_MS, keepAliveMs: KEEP_ALIVE_MS });
  const limit = new ConcurrencyLimit(timeoutMs, CONNECTIONS);
  return { origin, pool: openPool(origin, timeoutMs), line, limit, ready: true };
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
