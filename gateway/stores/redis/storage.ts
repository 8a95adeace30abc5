import { setTimeout as sleep } from 'node:timers/promises';
import { pairsOf } from '../../../shared/lists.ts';
import { ACTIVITY_LENGTH, canRepeat } from '../audit.ts';
import { HISTORY_LENGTH } from '../plans.ts';
import {
  type Change,
  type Fields,
  type KeyCursor,
  type KeyListQuery,
  keyIdOf,
  type LogEntry,
  type LoggedEntry,
  type LogName,
  NotMade,
  type Part,
  type RecordName,
  type Storage,
  type TailQuery,
} from '../storage.ts';
import { BulkReads } from './bulk-reads.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { isCluster } from './cluster.ts';
import { nodesOf } from './info.ts';
import { KeyPlaces, placeOf, scan } from './key-places.ts';
import { fieldsIn, hashesBeside, isPassing, nameOf, STREAMS, tagOf } from './names.ts';
import { type Announced, Outboxes, outboxEntries } from './outbox.ts';
import { Replicas } from './replicas.ts';
import { LATEST_SECONDS, newId, type StepEntry, take } from './step.ts';

/** How long a change waits for its entries to be moved. */
const LONGEST_MOVE_MS = 1_000;

type OnLost = NonNullable<Change['onLost']>;

export interface RedisStorageOptions {
  readonly auditLength?: number | undefined;
  /** Called, before the change is acknowledged, for an entry that could not be added. */
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
 * change is one script. It waits for a replica if one is connected.
 */
export class RedisStorage implements Storage {
  readonly #redis: RedisConnection;
  readonly #lengths: Readonly<Record<LogName, number>>;
  readonly #onLost: OnLost;
  readonly #bulk = new BulkReads((record: RecordName) => this.read(record));
  readonly #places: KeyPlaces;
  readonly #outboxes: Outboxes;
  readonly #replicas: Replicas | undefined;

  constructor(
    redis: RedisConnection,
    { auditLength = ACTIVITY_LENGTH, onLost = () => {}, isConfirmed = true, leftBehindMs }: RedisStorageOptions = {},
  ) {
    this.#redis = redis;
    this.#lengths = { audit: auditLength, 'plan history': HISTORY_LENGTH };
    this.#onLost = onLost;
    this.#places = new KeyPlaces(redis);
    const move = (entry: LogEntry, id: string) => this.#move(entry, id, onLost);
    this.#outboxes = new Outboxes(redis, move, (tag) => this.#places.forgetIfGone(tag), leftBehindMs);
    this.#replicas = isConfirmed ? new Replicas(redis) : undefined;
  }

  async now(): Promise<number> {
    const [seconds, microseconds] = await orUnavailable(this.#redis.time());
    return Number(seconds) * 1e6 + Number(microseconds);
  }

  /** A value of another type is a record without fields, so that it can be seen and removed. */
  async read(record: RecordName): Promise<Fields | undefined> {
    const id = keyIdOf(record);
    const names = [nameOf(record), ...(id === undefined ? [] : hashesBeside(id))];
    const read = (name: string) => this.#redis.hgetall(name).catch(otherThanHash);
    const hashes = await orUnavailable(Promise.all(names.map(read)));
    const [hash = OTHER] = hashes;
    if (hash === OTHER) return {};
    if (Object.keys(hash).length === 0) return undefined;
    return id === undefined ? hash : Object.assign({}, ...hashes.map((one, at) => fieldsIn(names[at] ?? '', id, one)));
  }

  readMany(records: readonly RecordName[]): Promise<readonly (Fields | undefined)[]> {
    return this.#bulk.read(records);
  }

  /** Whether no gateway has stored anything. Goes through all names in Redis. */
  async isEmpty(): Promise<boolean> {
    for (const [, node] of nodesOf(this.#redis)) {
      for await (const names of scan(node, 'gateway:*')) if (!names.every(isPassing)) return false;
    }
    return true;
  }

  countKeys(): Promise<number> {
    return this.#places.count();
  }

  listKeys(query: KeyListQuery): Promise<readonly KeyCursor[]> {
    return this.#places.list(query);
  }

  /** Existing keys that have no place in the order. Goes through all names in Redis, with pauses. */
  unlistedKeys(): Promise<readonly string[]> {
    return this.#places.unlisted();
  }

  relistKeys(): Promise<number> {
    return this.#places.relist();
  }

  async change(change: Change): Promise<boolean> {
    const { parts, entries, isUrgent } = change;
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
    const { isMade, lost } = await take(this.#redis, {
      ...about,
      parts,
      place: isSpread ? undefined : born,
      entries: isSpread ? outboxEntries(entries, about) : entries.map((entry) => this.#entry(entry)),
      isUrgent,
    });
    const confirm = parts[0] && this.#replicas?.noteWrite(nameOf(parts[0].record));
    for (const [at, why] of lost) onLost(entries[at] as LogEntry, why);
    if (isSpread && born !== undefined && !isMade) await this.#places.forgetIfGone(born.id).catch(() => undefined);
    if (isAnnounced) await this.#follow(about, onLost);
    // If this fails, a later revocation cleans up.
    if (revoked !== undefined) await this.#places.tidyUp(revoked).catch(() => undefined);
    if (isMade) await confirm?.();
    return isMade;
  }

  async tail(log: LogName, { after, count }: TailQuery): Promise<LoggedEntry[]> {
    // Redis refuses an interval that ends before the lowest id.
    if (after !== undefined && /^0+-0+$/.test(after)) return [];
    const from = after === undefined ? '+' : `(${after}`;
    const found = await orUnavailable(this.#redis.xrevrange(STREAMS[log], from, '-', 'COUNT', count));
    return found.map(([id, flat]) => [id, Object.fromEntries(pairsOf(flat))]);
  }

  /**
   * Moves the entries of gateways that ended before they could. Call it at intervals on any gateway of a cluster. It
   * counts entries as left behind if it sees them in two calls 5 s apart.
   */
  moveOutboxes(): Promise<void> {
    return this.#outboxes.emptyLeftBehind();
  }

  /**
   * On a cluster, the index and the set of outboxes are in other slots than the record. If a change is announced and
   * then fails, another gateway removes its place in the index.
   */
  async #prepare(born: KeyCursor | undefined, about: Announced): Promise<void> {
    try {
      await this.#outboxes.announce(about);
      if (born !== undefined) await this.#places.add(born);
    } catch (fault) {
      throw new NotMade('A node of the Redis cluster does not answer.', fault);
    }
  }

  /** If this fails or takes long, because the stream's node is away, any gateway does it later (moveOutboxes). */
  async #follow(about: Announced, onLost: OnLost): Promise<void> {
    const moved = this.#outboxes.empty(about, (entry, id) => this.#move(entry, id, onLost)).catch(() => undefined);
    await Promise.race([moved, sleep(LONGEST_MOVE_MS, undefined, { ref: false })]);
  }

  async #move(entry: LogEntry, id: string, onLost: OnLost): Promise<void> {
    const { lost } = await take(this.#redis, {
      tag: STREAMS[entry.log],
      id,
      parts: [],
      entries: [this.#entry(entry)],
      markSeconds: LATEST_SECONDS,
    });
    for (const [, why] of lost) onLost(entry, why);
  }

  #entry(entry: LogEntry): StepEntry {
    const { log, fields } = entry;
    return { name: STREAMS[log], fields, length: this.#lengths[log], isOnce: canRepeat(entry) };
  }
}

/** The place that a new key gets, if a change makes one. */
function newKeyIn(parts: readonly Part[]): KeyCursor | undefined {
  for (const { record, exists, set } of parts) {
    const id = keyIdOf(record);
    if (id !== undefined && exists === false && set !== undefined) return placeOf(id, set.created_at);
  }
  return undefined;
}

/** Operators see this text in place of tags that are not in a hash. No change expects it. */
const OTHER: Fields = { tags: '\uFFFD' };

function otherThanHash(fault: Error): Fields {
  if (fault.message.startsWith('WRONGTYPE')) return OTHER;
  throw fault;
}
