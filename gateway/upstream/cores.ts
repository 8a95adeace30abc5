import { Client, type Dispatcher, Pool, request } from 'undici';
import { ConcurrencyLimit } from './concurrency-limit.ts';
import { FairShare } from './fair-share.ts';
import { Lane } from './lane.ts';
import { PipelinedConnection } from './pipelined-connection.ts';
import { RecentIds } from './recent-ids.ts';

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
  /** Places for requests that have a connection to themselves. */
  readonly places: FairShare;
  /** Such connections for small reads, at rest. */
  readonly ownConnections: PipelinedConnection[];
  openConnection(): PipelinedConnection;
  /** Such connections for all else. */
  readonly pool: Pool;
  /** One that is used once. */
  openClient(): Client;
  /** Pipelined connections, apart for clients whose reads blocked others lately. */
  readonly quickLane: Lane;
  readonly slowLane: Lane;
  readonly limit: ConcurrencyLimit;
  readonly givenIds: RecentIds;
  ready: boolean;
  /** A read had to be asked of another core, and this one has said nothing since. */
  isSilent: boolean;
  /** Whether its answers carry the request's X-Request-Id, so that it is certain whose they are. Only then are connections kept. */
  echoes: boolean;
  /** When the newest of the requests that were answered was asked; of performance.now(). */
  newestAnswered: number;
  close(): Promise<void>;
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
  readonly all: readonly Core[];
  /** How many requests the cores that are ready may be asked at once. */
  readonly limit: number;
  /** The next core in turn, past those that are not ready, are busy or were tried, as long as there is another. */
  next(tried?: readonly Core[]): Core;
  /** Another core that is ready and has room. */
  other(than: Core): Core | undefined;
  /** To be called when a core begins to answer. */
  answers(core: Core): void;
  states(): CoreState[];
  close(): Promise<void>;
}

/** One with so many more requests under way than another is passed over: it may be silent. */
const AHEAD = 4;

/** Opens the pools. Several cores are probed, so that one that is going down gets no more requests; one alone needs none. */
export function openCores(origins: readonly string[], timeoutMs: number): Cores {
  const cores: Core[] = origins.map((origin) => openCore(origin, timeoutMs));
  const probing = cores.length > 1 ? setInterval(() => cores.forEach(probe), PROBE_EVERY_MS).unref() : undefined;
  let turn = 0;

  function inTurn(): Core[] {
    const first = turn++;
    return cores.map((_, at) => cores[(first + at) % cores.length] as Core);
  }

  /** Those that are ready and take part in the load, in turn. */
  function usable(those: readonly Core[]): Core[] {
    const ready = those.filter((core) => core.ready && !core.isSilent);
    const fewest = Math.min(...ready.map(({ limit }) => limit.inFlight));
    return ready.filter(({ limit }) => limit.hasRoom && limit.inFlight <= 2 * fewest + AHEAD);
  }

  return {
    all: cores,
    get limit() {
      let [all, ready] = [0, 0];
      for (const core of cores) {
        all += core.limit.value;
        if (core.ready) ready += core.limit.value;
      }
      return ready > 0 ? ready : all;
    },
    next(tried = []) {
      if (cores.length === 1) return cores[0] as Core;
      const candidates = inTurn();
      const others = candidates.filter((core) => !tried.includes(core));
      return usable(others)[0] ?? others.find(({ ready }) => ready) ?? others[0] ?? (candidates[0] as Core);
    },
    other: (than) => (cores.length === 1 ? undefined : usable(inTurn().filter((core) => core !== than))[0]),
    // One that goes down still answers: where there are several, only the probe tells.
    answers(core) {
      if (probing === undefined) core.ready = true;
    },
    states: () =>
      cores.map(({ origin, ready, limit, places }) => ({
        origin,
        ready,
        inFlight: limit.inFlight,
        queued: places.waiting,
        limit: limit.value,
      })),
    async close() {
      clearInterval(probing);
      await Promise.all(cores.map((core) => core.close()));
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
    core.isSilent = false;
  } catch {
    core.ready = false;
  }
}

function openCore(origin: string, timeoutMs: number): Core {
  const options = { connectTimeoutMs: CONNECT_TIMEOUT_MS, keepAliveMs: KEEP_ALIVE_MS };
  const timeouts = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  };
  const lanes = { quickLane: new Lane(origin, options), slowLane: new Lane(origin, options) };
  const opened: PipelinedConnection[] = [];
  const pool = new Pool(origin, {
    connections: CONNECTIONS,
    pipelining: 1,
    ...timeouts,
    factory: (url, options) => new SafeClient(url, options as Client.Options),
  });
  return {
    origin,
    places: new FairShare(CONNECTIONS),
    ownConnections: [],
    openConnection() {
      const connection = new PipelinedConnection(origin, { ...options, needsEcho: false });
      opened.push(connection);
      return connection;
    },
    pool,
    openClient: () => new SafeClient(origin, timeouts),
    ...lanes,
    limit: new ConcurrencyLimit(timeoutMs, CONNECTIONS),
    givenIds: new RecentIds(),
    ready: true,
    isSilent: false,
    echoes: false,
    newestAnswered: Number.NEGATIVE_INFINITY,
    async close() {
      for (const connection of [lanes.quickLane, lanes.slowLane, ...opened]) connection.close();
      await pool.destroy();
    },
  };
}
