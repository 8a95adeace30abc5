import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import { pairsOf } from '../../../shared/lists.ts';
import { inRounds } from '../../../shared/process/in-rounds.ts';
import {
  type Change,
  type Fields,
  type KeyCursor,
  keyIdOf,
  LOG_LENGTHS,
  type LogEntry,
  type LoggedEntry,
  type LogLengths,
  type LogName,
  NotMade,
  type Part,
  type RecordName,
  type Storage,
  type TailQuery,
  Unconfirmed,
} from '../storage.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { isCluster, serverOf } from './connection.ts';
import { bulkReads, keyPlaces, placeOf, scan } from './key-places.ts';
import { fieldsOf, followersIn, type Node, nodesOf } from './nodes.ts';
import {
  type Announced,
  fieldsIn,
  hashesBeside,
  INDEX,
  inMicroseconds,
  isPassing,
  nameOf,
  newId,
  type OnLost,
  outboxEntries,
  outboxes,
  STREAMS,
  streamEntry,
  tagOf,
  take,
} from './step.ts';

/** How long a change waits for its entries to be moved. */
const LONGEST_MOVE_MS = 1_000;

/**
 * While Redis is full, gateways decide without it and cannot be notified. They find an urgent change within this time,
 * in the log that they follow (primary/changes.ts).
 */
const FOLLOWED_WITHIN_MS = 600;

export interface RedisStorageOptions {
  readonly auditLength?: number | undefined;
  /** Called for an entry that could not be added, before the change is acknowledged. */
  readonly onLost?: OnLost;
  /**
   * False for a connection that makes decisions, because WAIT would block them. Changes are then acknowledged before a
   * replica has them.
   */
  readonly isConfirmed?: boolean;
  /** Entries in an outbox that are older than this, in milliseconds, were left behind by their gateway. */
  readonly leftBehindMs?: number;
}

/**
 * The storage that gateways share: a hash for each record, a stream for each log, and two sorted sets of keys. Every
 * change is one script, and waits for a replica if one is connected.
 */
export class RedisStorage implements Storage {
  readonly #redis: RedisConnection;
  readonly #lengths: LogLengths;
  readonly #onLost: OnLost;
  readonly #places: ReturnType<typeof keyPlaces>;
  readonly #outboxes: ReturnType<typeof outboxes>;
  /** Undefined on a connection that does not wait for replicas. */
  readonly #noteWrite: NoteWrite | undefined;

  constructor(
    redis: RedisConnection,
    { auditLength = LOG_LENGTHS.audit, onLost = () => {}, isConfirmed = true, leftBehindMs }: RedisStorageOptions = {},
  ) {
    this.#redis = redis;
    this.#lengths = { ...LOG_LENGTHS, audit: auditLength };
    this.#onLost = onLost;
    this.#places = keyPlaces(redis);
    this.readMany = bulkReads(redis, (record: RecordName) => this.read(record));
    this.#outboxes = outboxes(redis, this.#lengths, this.#places.forgetIfGone, leftBehindMs);
    this.#noteWrite = isConfirmed ? replicasOf(redis) : undefined;
  }

  async now(): Promise<number> {
    // On a cluster, the library would also ask a node that is down.
    const ready = nodesOf(this.#redis).filter(([, { status }]) => status === 'ready');
    const [, node = this.#redis] = ready[Math.floor(Math.random() * ready.length)] ?? [];
    return inMicroseconds(await orUnavailable(node.time()));
  }

  /** A value of another type counts as a record without fields, so that it can be seen and removed. */
  async read(record: RecordName): Promise<Fields | undefined> {
    const id = keyIdOf(record);
    const names = [nameOf(record), ...(id === undefined ? [] : hashesBeside(id))];
    const read = (name: string) =>
      this.#redis.hgetall(name).catch((fault: Error) => {
        if (fault.message.startsWith('WRONGTYPE')) return OTHER;
        throw fault;
      });
    const hashes = await orUnavailable(Promise.all(names.map(read)), serverOf(this.#redis, nameOf(record)));
    const [hash = OTHER] = hashes;
    if (hash === OTHER) return {};
    if (Object.keys(hash).length === 0) return undefined;
    return id === undefined ? hash : Object.assign({}, ...hashes.map((one, at) => fieldsIn(names[at] ?? '', id, one)));
  }

  readonly readMany: Storage['readMany'];

  /** Whether no gateway has stored anything. Scans all names in Redis. */
  async isEmpty(): Promise<boolean> {
    for (const [, node] of nodesOf(this.#redis)) {
      for await (const names of scan(node, 'gateway:*')) if (!names.every(isPassing)) return false;
    }
    return true;
  }

  countKeys = () => this.#places.count();
  listKeys: Storage['listKeys'] = (query) => this.#places.list(query);
  unlistedKeys = () => this.#places.unlisted();

  async relistKeys(): Promise<number> {
    const relisted = await this.#places.relist();
    await this.#noteWrite?.(INDEX)();
    return relisted;
  }

  async change(change: Change): Promise<boolean> {
    const { parts, entries, urgency } = change;
    const [first, ...others] = new Set(parts.map(({ record }) => tagOf(record)));
    if (others.length > 0) throw new Error('A change concerns one key or one table.');
    const tag = first ?? (entries[0] && STREAMS[entries[0].log]);
    if (tag === undefined) return true;
    const about = { tag, id: newId() };
    const onLost: OnLost = (entry, why) => {
      change.onLost?.(entry, why);
      this.#onLost(entry, why);
    };
    const isSpread = isCluster(this.#redis) && first !== undefined;
    const born = newKeyIn(parts);
    const revoked = parts.flatMap(({ record, moveTo }) => (moveTo && keyIdOf(record)) ?? [])[0];
    if (revoked !== undefined) await this.#places.addRevoked(revoked).catch(() => undefined);
    const isAnnounced = isSpread && (born !== undefined || entries.length > 0);
    if (isAnnounced) await this.#prepare(born, about);
    const { isMade, lost, wasFull } = await take(this.#redis, {
      ...about,
      parts,
      place: isSpread ? undefined : born,
      entries: isSpread
        ? outboxEntries(entries, about)
        : entries.map((entry) => streamEntry(entry, this.#lengths[entry.log])),
      isUrgent: urgency !== undefined,
    });
    const confirm = parts[0] && this.#noteWrite?.(nameOf(parts[0].record));
    for (const [at, why] of lost) onLost(entries[at] as LogEntry, why);
    if (isSpread && born !== undefined && !isMade) await this.#places.forgetIfGone(born.id).catch(() => undefined);
    if (isAnnounced) await this.#follow(about, onLost);
    // If this fails, a later revocation cleans up.
    if (revoked !== undefined) await this.#places.tidyUp(revoked).catch(() => undefined);
    if (isMade) await confirm?.();
    if (isMade && wasFull) await sleep(FOLLOWED_WITHIN_MS);
    return isMade;
  }

  async tail(log: LogName, { after, count }: TailQuery): Promise<LoggedEntry[]> {
    // Redis refuses an interval that ends before the lowest id.
    if (after !== undefined && /^0+-0+$/.test(after)) return [];
    const from = after === undefined ? '+' : `(${after}`;
    const found = await orUnavailable(
      this.#redis.xrevrange(STREAMS[log], from, '-', 'COUNT', count),
      serverOf(this.#redis, STREAMS[log]),
    );
    return found.map(([id, flat]) => [id, Object.fromEntries(pairsOf(flat))]);
  }

  /**
   * Moves the entries of gateways that stopped before they could do so. Call it at intervals on any gateway of a
   * cluster. It counts entries as left behind if it sees them in two calls 5 s apart.
   */
  moveOutboxes = () => this.#outboxes.emptyLeftBehind(this.#onLost);

  /**
   * On a cluster, the index and the set of outboxes are in different slots from the record. If the change of a new key
   * is announced and then fails, another gateway removes the key's place in the index.
   */
  async #prepare(born: KeyCursor | undefined, about: Announced): Promise<void> {
    try {
      await this.#outboxes.announce(about);
      if (born !== undefined) await this.#places.add(born);
    } catch (fault) {
      throw new NotMade('A Redis cluster node does not answer.', fault);
    }
  }

  /** If this fails or is slow because the stream's node is down, any gateway can do it later (moveOutboxes). */
  async #follow(about: Announced, onLost: OnLost): Promise<void> {
    const moved = this.#outboxes.empty(about, onLost).catch(() => undefined);
    await Promise.race([moved, sleep(LONGEST_MOVE_MS, undefined, { ref: false })]);
  }
}

/** The place of a new key, if a change creates one. */
function newKeyIn(parts: readonly Part[]): KeyCursor | undefined {
  for (const { record, exists, set } of parts) {
    const id = keyIdOf(record);
    if (id !== undefined && exists === false && set !== undefined) return placeOf(id, set.created_at);
  }
  return undefined;
}

/** The fields of a value that is not a hash. Operators see this string as its tags. Changes do not compare it. */
const OTHER: Fields = { tags: '\uFFFD' };

/** A replica that takes longer to confirm does not count. */
const CONFIRM_MS = 1_000;
/** How often a node without replicas is checked for new ones. Until one is found, changes wait for no replica. */
const LOOK_EVERY_MS = 1_000;
const LOOK_AGAIN_MS = 50;
/**
 * A replica that has left may have been promoted, in which case this node is the primary no more. Sentinels announce it
 * within this time, and the connection ends.
 */
const ANNOUNCED_WITHIN_MS = 3_000;

interface Seen {
  readonly at: number;
  readonly count: number;
  /** The replication id. A replica that takes over has another one. */
  readonly id: string;
  /** When a replica was found to have left. */
  readonly leftAt: number;
}

/** Identifies a connection: WAIT covers only writes on the same connection. */
type Socket = Node['stream'];

/**
 * Call this as soon as Redis has answered a change to `name`. The returned function waits for the confirmation.
 * @throws {Unconfirmed} (by that function) if replicas are connected and none confirms the change within 1 s
 */
type NoteWrite = (name: string) => () => Promise<void>;

/**
 * Waits until a replica has a change, because the replica may take over. Redis replies before it sends the change to
 * any replica.
 */
export function replicasOf(redis: RedisConnection): NoteWrite {
  const seen = new WeakMap<Node, Seen>();
  const waits = new WeakMap<Socket, () => Promise<boolean>>();

  function servingNode(name: string): Node | undefined {
    if (!isCluster(redis)) return redis;
    const address = redis.slots[slotOf(name)]?.[0];
    return nodesOf(redis).find(([node]) => node === `redis ${address}`)?.[1];
  }

  async function isSafe(node: Node, socket: Socket): Promise<boolean> {
    const last = seen.get(node);
    const isFresh = last !== undefined && performance.now() - last.at < LOOK_EVERY_MS;
    const before = isFresh ? last : await look(node);
    if (before.count > 0) {
      const isConfirmed = await wait(node, socket);
      const { count } = await look(node);
      if (!isConfirmed && count > 0) return false;
    }
    return await isStillPrimary(node, socket, before);
  }

  /** Waits if a replica has left. */
  async function isStillPrimary(node: Node, socket: Socket, before: Seen): Promise<boolean> {
    let last = seen.get(node) ?? before;
    for (let ms = untilAnnounced(last); ms > 0; ms = untilAnnounced(last)) {
      await sleep(ms);
      last = await look(node);
    }
    return last.id === before.id && node.stream === socket;
  }

  /** After the connection was lost: whether this is still the same node, and still without a replica. */
  async function isStillAlone(node: Node): Promise<boolean> {
    const before = seen.get(node);
    if (before === undefined || untilAnnounced(before) > 0) return false;
    for (let waited = 0; before.count === 0 && waited < CONFIRM_MS; waited += LOOK_AGAIN_MS) {
      const now = await look(node).catch(() => undefined);
      if (now !== undefined) return now.count === 0 && now.id === before.id;
      await sleep(LOOK_AGAIN_MS);
    }
    return false;
  }

  /** Counts only replicas that are in sync: changes do not wait for one that is still loading the data. */
  async function look(node: Node) {
    const replication = fieldsOf(await node.info('replication'));
    const { master_replid: id = '' } = replication;
    const [at, count, before] = [performance.now(), followersIn(replication), seen.get(node)];
    const hasLeft = before?.id === id && count < before.count;
    const found = { at, count, id, leftAt: hasLeft ? at : (before?.leftAt ?? Number.NEGATIVE_INFINITY) };
    seen.set(node, found);
    return found;
  }

  /** WAIT blocks its connection, so one WAIT covers all changes that were answered before it was sent. */
  function wait(node: Node, socket: Socket): Promise<boolean> {
    // On a new connection, perhaps to another node, WAIT would not cover the change.
    const own =
      waits.get(socket) ?? inRounds(async () => node.stream === socket && (await node.wait(1, CONFIRM_MS)) > 0);
    waits.set(socket, own);
    return own();
  }

  const untilAnnounced = ({ leftAt }: Seen): number => leftAt + ANNOUNCED_WITHIN_MS - performance.now();

  return (name) => {
    const node = servingNode(name);
    const socket = node?.stream;
    return async () => {
      const isKept =
        node !== undefined && socket !== undefined && (await isSafe(node, socket).catch(() => isStillAlone(node)));
      if (!isKept) throw new Unconfirmed('no replica has confirmed it');
    };
  };
}
