import { Client } from 'undici';
import { FairShare } from '../../shared/fair-share.ts';
import { ConcurrencyLimit } from './concurrency-limit.ts';
import { CoreCounts, type LastFault } from './core-counts.ts';
import type { CoreAddress } from './core-url.ts';
import { Lane } from './lane.ts';
import { PipelinedConnection } from './pipelined-connection.ts';

/** One core: its connections and its state. */

const CONNECTIONS = 64;
const CONNECT_TIMEOUT_MS = 1_000;
/** Less than the core's own 5 s, so that no connection is used while the core closes it. */
const KEEP_ALIVE_MS = 4_000;

export interface Core {
  readonly address: CoreAddress;
  /** The address in logs and metrics. */
  readonly origin: string;
  readonly counts: CoreCounts;
  /** Limits the requests that have their own connection. */
  readonly places: FairShare;
  /** Idle connections of this kind. */
  readonly ownConnections: PipelinedConnection[];
  openConnection(): PipelinedConnection;
  /** Pipelined connections. Clients whose reads recently blocked others use a separate lane. */
  readonly quickLane: Lane;
  readonly slowLane: Lane;
  readonly limit: ConcurrencyLimit;
  /** Changed by setReady. */
  ready: boolean;
  notReadyBecause: string | undefined;
  /** When it became ready, not ready, or began to drain: Unix time in ms. */
  since: number;
  /** The last answer to a client: Unix time in ms, 0 before the first; and how long it took. */
  answeredAt: number;
  answeredMs: number;
  /** A read had to be sent to another core, and this one has not answered since. */
  isSilent: boolean;
  /**
   * Whether its answers carry the X-Request-Id of the attempt, which proves to which one they belong. Only then are
   * connections reused.
   */
  echoes: boolean;
  /** When the most recent of the answered requests was sent, as of performance.now(). */
  newestAnswered: number;
  close(): void;
}

export function openCore(address: CoreAddress, timeoutMs: number, counts = new CoreCounts(address.origin)): Core {
  const { origin, url, connect } = address;
  const options = { connect, connectTimeoutMs: CONNECT_TIMEOUT_MS, keepAliveMs: KEEP_ALIVE_MS };
  const lanes = { quickLane: new Lane(url, options), slowLane: new Lane(url, options) };
  const opened: PipelinedConnection[] = [];
  return {
    address,
    origin,
    counts,
    places: new FairShare(CONNECTIONS),
    ownConnections: [],
    openConnection() {
      const connection = new PipelinedConnection(url, { ...options, needsEcho: false });
      opened.push(connection);
      return connection;
    },
    ...lanes,
    limit: new ConcurrencyLimit(timeoutMs, CONNECTIONS),
    ready: true,
    notReadyBecause: undefined,
    since: Date.now(),
    answeredAt: 0,
    answeredMs: 0,
    isSilent: false,
    echoes: false,
    newestAnswered: Number.NEGATIVE_INFINITY,
    close() {
      for (const connection of [lanes.quickLane, lanes.slowLane, ...opened]) connection.close();
    },
  };
}

/**
 * Asks whether the core is ready, on a separate connection: in a busy pool the probe would measure the pool, not the
 * core.
 */
export async function probe(core: Core): Promise<void> {
  const { url, connect } = core.address;
  const client = new Client(url, { connect, connectTimeout: CONNECT_TIMEOUT_MS });
  const timeouts = { headersTimeout: CONNECT_TIMEOUT_MS, bodyTimeout: CONNECT_TIMEOUT_MS };
  try {
    const { statusCode, body } = await client.request({ method: 'GET', path: '/readyz', ...timeouts, reset: true });
    await body.dump();
    setReady(core, statusCode === 200, `/readyz answers ${statusCode}.`);
    core.isSilent = false;
  } catch (fault) {
    setReady(core, false, (fault as Error).message);
  } finally {
    await client.destroy();
  }
}

/** @param because why it is not ready */
export function setReady(core: Core, ready: boolean, because?: string): void {
  if (core.ready !== ready) core.since = Date.now();
  core.ready = ready;
  core.notReadyBecause = ready ? undefined : because;
}

/** The state of a core as one process sees it, for operators. */
export interface CoreState {
  readonly origin: string;
  /** A single core is not probed: its last answer counts, or that it could not be reached. */
  readonly ready: boolean;
  /** It has left CORE_URL and gets no new requests. */
  readonly isDraining: boolean;
  /** Its reads go to another core, as it does not answer them. */
  readonly isSilent: boolean;
  /** Requests handed to the core and not finished; `queued` are those that wait for a connection. */
  readonly inFlight: number;
  readonly queued: number;
  /** The limit of concurrent requests. */
  readonly limit: number;
  /** When it became ready, not ready, or began to drain. All times here are Unix times in ms. */
  readonly since: number;
  /** Why it is not ready. */
  readonly reason: string | undefined;
  readonly lastAnswer: LastAnswer | undefined;
  readonly lastFault: LastFault | undefined;
}

/** The last answer to a client's request. */
export interface LastAnswer {
  readonly at: number;
  readonly ms: number;
}

export const stateOf = (core: Core, isDraining: boolean): CoreState => ({
  origin: core.origin,
  ready: core.ready,
  isDraining,
  isSilent: core.isSilent,
  inFlight: core.limit.inFlight,
  queued: core.places.waiting,
  limit: core.limit.value,
  since: core.since,
  reason: core.notReadyBecause,
  lastAnswer: core.answeredAt === 0 ? undefined : { at: core.answeredAt, ms: core.answeredMs },
  lastFault: core.counts.lastFault,
});
