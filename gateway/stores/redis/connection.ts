import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import slotOf from 'cluster-key-slot';
import { AbstractConnector, Cluster, Redis, type RedisOptions, SentinelConnector } from 'ioredis';
import type { Logger } from '../../../shared/process/logger.ts';
import { every } from '../../../shared/process/repeat.ts';
import { loadOnConnect, type RedisConnection } from './calls.ts';
import { type Address, addresses, commonOptions, type RedisTarget } from './target.ts';

/** The timeout of an operator's command: far longer than Redis is ever busy, or than a failover takes. */
const OPERATORS_TIMEOUT_MS = 5_000;

const AWAY_MS = 1_000;

/**
 * Opens a second connection, for operators, with longer timeouts. It logs nothing, because the connection for decisions
 * already logs the state of this Redis. If the first failed to connect in time, the second gets only a short time.
 * @throws as `connect` does
 */
export function connectOperators(target: RedisTarget, logger: Logger, isAway: boolean): Promise<RedisConnection> {
  const timeoutMs = Math.max(target.timeoutMs, OPERATORS_TIMEOUT_MS);
  const startMs = isAway ? AWAY_MS : target.startMs;
  return connect({ ...target, timeoutMs, startMs }, logger.child({}, { level: 'silent' }));
}

/**
 * Connects to a Redis of any kind, or keeps trying in the background.
 * @throws if the database number in the URLs does not exist
 */
export const connect = (target: RedisTarget, logger: Logger): Promise<RedisConnection> =>
  target.mode === 'cluster' ? connectCluster(target, logger) : connectRedis(target, logger);

const DEFAULT_PORT = 6379;
const SENTINEL_PORT = 26_379;
const CONNECT_TIMEOUT_MS = 300;
/** A connection without an answer for this long is dead, even if TCP has not noticed. */
export const silentMs = (timeoutMs = 0): number => Math.max(500, 2 * timeoutMs);
const LONGEST_RETRY_MS = 100;
/** Without this, ioredis waits for as long as Redis estimates that loading will take, in whole seconds. */
const LOADING_RETRY_MS = 100;

export const retryDelayMs = (attempt: number): number => Math.min(50 * attempt, LONGEST_RETRY_MS);

/**
 * Options of every connection. Commands fail fast, and none is queued or sent twice: a request could be charged twice.
 * @param timeoutMs the timeout of a command, which may still run afterwards
 */
export const failFast = (timeoutMs: number) =>
  ({
    lazyConnect: true,
    disableClientInfo: true,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: timeoutMs,
    connectTimeout: CONNECT_TIMEOUT_MS,
    maxLoadingRetryTime: LOADING_RETRY_MS,
  }) satisfies RedisOptions;

/**
 * Connects to one Redis, or to the primary that sentinels name, or keeps trying in the background, so that a gateway
 * can start without its Redis.
 * @throws if the Redis has no such database
 */
export async function connectRedis(target: RedisTarget, logger: Logger): Promise<Redis> {
  const isWatched = target.mode === 'sentinel';
  const common = commonOptions(target);
  const servers = addresses(target, isWatched ? SENTINEL_PORT : DEFAULT_PORT);
  const retryStrategy = (attempt: number): number => {
    // Each attempt uses the credentials in force.
    Object.assign(redis.options, target.credentials());
    return retryDelayMs(attempt);
  };
  const redis: Redis = new Redis({
    ...failFast(target.timeoutMs),
    ...common,
    ...target.credentials(),
    enableOfflineQueue: false,
    retryStrategy,
    ...(common.tls && { Connector: isWatched ? SentinelTlsConnector : TlsConnector }),
    ...(isWatched ? { ...watchedBy(servers, target, common.tls), sentinelRetryStrategy: retryStrategy } : servers[0]),
  });
  endWhenSilent(redis);
  if (isWatched) endWhenDeposed(redis, servers, target, common.tls, logger);
  const noteAnswer = logOutages(redis, logger, () => logRefusedTls(servers, common.tls, logger));
  loadOnConnect(redis, noteAnswer);
  await Promise.race([redis.connect().catch(() => undefined), sleep(target.startMs, undefined, { ref: false })]);
  if (redis.status !== 'ready' || common.db === 0) return redis;
  // If a server lacks the database, ioredis only emits an error and uses database 0, which is not ours.
  if ((await redis.client('INFO')).includes(` db=${common.db} `)) return redis;
  redis.disconnect();
  throw new Error(`REDIS_URL: this Redis has no database ${common.db}.`);
}

/** Longer than a connection may take: the library must not close one during its handshake (see TlsConnector). */
const SENTINEL_TIMEOUT_MS = 2 * CONNECT_TIMEOUT_MS;

/**
 * Options to connect to the primary that the sentinels name. A node that answers READONLY is no longer the primary: the
 * decision fails, and the sentinels are queried again. While none of them answers, the library calls only
 * `sentinelRetryStrategy`.
 */
const watchedBy = (
  sentinels: Address[],
  { masterName = '', sentinelUsername }: RedisTarget,
  tls: ConnectionOptions | undefined,
) =>
  ({
    sentinels,
    name: masterName,
    role: 'master',
    // Uses only the configured sentinels: an address that a sentinel reports may be unreachable from here.
    updateSentinels: false,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    reconnectOnError: ({ message }) => message.startsWith('READONLY '),
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  }) satisfies RedisOptions;

const WATCH_AGAIN_MS = 1_000;

/**
 * Closes the connection as soon as a sentinel announces another primary. The old one may still be running, and the
 * sentinels make it a replica only ten seconds later: until then, it would acknowledge changes that are lost with it.
 * The library's own `failoverDetector` prints the errors of its connections, and tries again after 60 s.
 */
function endWhenDeposed(
  redis: Redis,
  sentinels: Address[],
  { masterName = '', sentinelUsername: username, credentials }: RedisTarget,
  tls: ConnectionOptions | undefined,
  logger: Logger,
): void {
  const current = () => ({ username, password: credentials().sentinelPassword });
  for (const address of sentinels) {
    const watch: Redis = new Redis({
      ...failFast(SENTINEL_TIMEOUT_MS),
      ...address,
      ...current(),
      ...(tls && { tls, Connector: TlsConnector }),
      lazyConnect: false,
      enableReadyCheck: false,
      autoResubscribe: false,
      retryStrategy: () => {
        Object.assign(watch.options, current());
        return WATCH_AGAIN_MS;
      },
    });
    const about = { sentinel: `${address.host}:${address.port}` };
    let isAway = false;
    const noteAway = ({ message: reason }: Error) => {
      if (!isAway) logger.error({ ...about, reason }, 'sentinel is unavailable');
      isAway = true;
    };
    const noteBack = () => {
      if (isAway) logger.info(about, 'sentinel is back');
      isAway = false;
    };
    watch.on('error', noteAway);
    watch.on('ready', () =>
      watch.subscribe('+switch-master').then(noteBack, (fault) => {
        noteAway(fault);
        watch.disconnect(true);
      }),
    );
    watch.on('message', async (_channel, announced: string) => {
      const [name, , , host = '', port] = announced.split(' ');
      const { address } = await lookup(host).catch(() => ({ address: '' }));
      const { remoteAddress, remotePort } = redis.stream ?? {};
      // Another sentinel may have announced it first.
      const isThere = remoteAddress === address && remotePort === Number(port);
      if (name === masterName && !isThere) redis.stream?.destroy(new Error('The primary was replaced.'));
    });
    redis.once('end', () => watch.disconnect());
  }
}

/** The most reasons of one outage that are logged. */
const MOST_REASONS = 5;

/**
 * ioredis reports every failed attempt. This logs only the beginning and the end of an outage, and once each further
 * reason: Redis may close a connection without one, and then refuse the next.
 * @returns a function to call when Redis answers again
 */
function logOutages(redis: RedisConnection, logger: Logger, onAway: () => unknown): () => void {
  const reasons = new Set<string>();
  const noteAway = (message: string) => {
    const reason = message.replace(/ Retrying from scratch after \d+ms\./, '');
    if (reasons.has(reason) || reasons.size === MOST_REASONS) return;
    reasons.add(reason);
    logger.error({ reason }, 'redis is unavailable');
    if (reasons.size === 1) onAway();
  };
  redis.on('error', (error: Error & { lastNodeError?: Error }) => noteAway((error.lastNodeError ?? error).message));
  redis.on('reconnecting', () => {
    if (reasons.size === 0) noteAway('The connection was closed.');
  });
  return () => {
    if (reasons.size > 0) logger.info('redis is back');
    reasons.clear();
  };
}

const lastFaults = new WeakMap<Redis, NodeJS.ErrnoException>();

/**
 * Why the last connection ended or could not be opened. The code is `ETIMEDOUT` if Redis did not answer.
 * @returns undefined if the connection is open, or was closed without an error
 */
export const lastFaultOf = (redis: Redis): NodeJS.ErrnoException | undefined => lastFaults.get(redis);

/** The timeout is counted in this many parts, so that a stall of this process counts as one part only. */
const SILENT_PARTS = 5;

/**
 * Closes a silent connection. After a stall of this process, the library's own timer, `socketTimeout`, would also close
 * good connections, because it fires before a waiting reply is read.
 */
function endWhenSilent(redis: Redis): void {
  const ms = silentMs(redis.options.commandTimeout);
  redis.on('error', (fault: Error) => lastFaults.set(redis, fault));
  redis.on('ready', () => lastFaults.delete(redis));
  redis.on('connect', () => {
    const { stream } = redis;
    let bytesRead = 0;
    let silentParts = 0;
    const end = every(ms / SILENT_PARTS, () => {
      const isSilent = redis.commandQueue.length > 0 && stream.bytesRead === bytesRead;
      silentParts = isSilent ? silentParts + 1 : 0;
      bytesRead = stream.bytesRead;
      if (silentParts > SILENT_PARTS)
        stream.destroy(Object.assign(new Error(`No answer in ${ms} ms.`), { code: 'ETIMEDOUT' }));
    });
    stream.once('close', end);
  });
}

/**
 * Connects to a cluster, or keeps trying in the background. A decision follows a redirect (MOVED, ASK), because the
 * first node did not run it. It fails if the connection closes or on CLUSTERDOWN; by default, the library would resend
 * it.
 */
export async function connectCluster(target: RedisTarget, logger: Logger): Promise<Cluster> {
  const { db: _db, ...common } = commonOptions(target);
  const nodes = addresses(target, DEFAULT_PORT);
  const cluster = new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    // The check would query a node that is not connected yet, and then start over. A cluster that is not ready answers
    // CLUSTERDOWN anyway.
    enableReadyCheck: false,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    clusterRetryStrategy: retryDelayMs,
    // Names stay unresolved because certificates are checked against them.
    dnsLookup: (name, done) => done(null, name),
    redisOptions: { ...failFast(target.timeoutMs), ...common, ...(common.tls && { Connector: TlsConnector }) },
  });
  const noteReady = logOutages(cluster, logger, () => logRefusedTls(nodes, common.tls, logger));
  cluster.on('ready', noteReady);
  const noteAnswer = logNodeOutages(cluster, logger);
  // The event is emitted for each new connection to a node, before the node is connected.
  cluster.on('+node', (node: Redis) => {
    endWhenSilent(node);
    loadOnConnect(node, () => noteAnswer(node));
    Object.assign(node.options, target.credentials());
    // The library connects to a node at its first command, and refuses other commands until then.
    setImmediate(() => {
      if (node.status === 'wait' && !node.options.readOnly) node.connect().catch(() => undefined);
    });
  });
  await Promise.race([connectAll(cluster), sleep(target.startMs, undefined, { ref: false })]);
  return cluster;
}

async function connectAll(cluster: Cluster): Promise<void> {
  await cluster.connect().catch(() => undefined);
  await Promise.all(
    cluster.nodes('master').map((node) => node.status === 'ready' || once(node, 'ready').catch(() => undefined)),
  );
}

/**
 * The library reports every failed attempt to connect to a node, and drops the node until other nodes name it again.
 * Failures of the library's own queries are not logged, because the library repeats them elsewhere.
 * @returns a function to call when a node answers again
 */
function logNodeOutages(cluster: Cluster, logger: Logger): (redis: Redis) => void {
  const away = new Set<string>();
  const nameOf = ({ options: { host, port } }: Redis): string => `${host}:${port}`;
  cluster.on('+node', (redis: Redis) => {
    const node = nameOf(redis);
    redis.on('error', ({ message }: Error) => {
      if (!away.has(node)) logger.error({ node, reason: message }, 'redis node is unavailable');
      away.add(node);
    });
  });
  return (redis) => {
    const node = nameOf(redis);
    if (away.delete(node)) logger.info({ node }, 'redis node is back');
  };
}

export type ClusterConnection = Cluster;

export const isCluster = (redis: RedisConnection): redis is ClusterConnection => redis instanceof Cluster;

/** The node of a key's id, or of another tag, if known. */
export const nodeOf = (cluster: Cluster, tag: string): string => cluster.slots[slotOf(tag)]?.[0] ?? 'unknown';

/** The name of the Redis that has a record, for operators: on a cluster, that of its node. */
export const serverOf = (redis: RedisConnection, record: string) => (): string =>
  isCluster(redis) ? `Redis node ${nodeOf(redis, record)}` : 'Redis';

/**
 * Connections over TLS. The library handles only the first error of a socket. A socket that is closed while its
 * certificate is refused emits two, and the second would crash the process.
 */

const DISCONNECT_TIMEOUT_MS = 2_000;
const PROBE_MS = 1_000;

const withErrorListener = <Socket extends NodeJS.EventEmitter>(socket: Socket): Socket =>
  socket.on('error', () => undefined);

export class TlsConnector extends AbstractConnector {
  readonly #options: RedisOptions;

  constructor(options: unknown) {
    super(DISCONNECT_TIMEOUT_MS);
    this.#options = options as RedisOptions;
  }

  async connect(): Promise<TLSSocket> {
    const { host = '127.0.0.1', port = 6379, tls: options } = this.#options;
    this.connecting = true;
    const socket = withErrorListener(tls.connect({ host, port, ...options }));
    this.stream = socket;
    return socket;
  }
}

class SentinelTlsConnector extends SentinelConnector {
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof SentinelConnector>[0]);
  }

  override async connect(emit: Parameters<SentinelConnector['connect']>[0]) {
    return withErrorListener(await super.connect(emit));
  }
}

/** ioredis does not report a refused certificate. This connects once more to each address and logs the reason. */
async function logRefusedTls(
  addresses: readonly Address[],
  options: ConnectionOptions | undefined,
  logger: Logger,
): Promise<void> {
  if (options === undefined) return;
  for (const { host, port } of addresses) {
    const reason = await whyRefused({ host, port, ...options });
    if (reason !== undefined) logger.error({ server: `${host}:${port}`, reason }, 'no TLS with redis');
  }
}

function whyRefused(options: ConnectionOptions): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const socket = tls.connect({ ...options, timeout: PROBE_MS });
  const settle = (reason?: string) => {
    resolve(reason);
    socket.destroy();
  };
  socket.on('error', ({ message }) => settle(message));
  socket.once('secureConnect', () => settle());
  socket.once('timeout', () => settle('The handshake took too long.'));
  return promise;
}
