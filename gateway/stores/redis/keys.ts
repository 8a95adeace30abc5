import { readFileSync } from 'node:fs';
import { rejectionReason, secretOf } from '../../limiter/credential.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../../limiter/key-record.ts';
import { StoreUnavailable } from '../../limiter/limiter.ts';
import type { Activity, WithActivity } from '../activity-entry.ts';
import type { BackedUpKey, BackupPage, RestoreOutcome } from '../key-backup.ts';
import { readEntry, readRecord, readRevoked, writeBan, writeKey, writeRecord } from '../key-hash.ts';
import type { KeyPage, WalkQuery } from '../key-walk.ts';
import { type KeyList, type KeyQuery, type KeyStore, Unreadable } from '../stores.ts';
import { BulkReads } from './bulk-reads.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { changeHash } from './change-hash.ts';
import { handEditsOf } from './hand-edits.ts';
import { exportKeys, restoreKey } from './key-backup.ts';
import { cursorsAfter, INDEX, issue, revoke } from './key-index.ts';
import { keyOf, usageOf } from './key-names.ts';
import { withDigest } from './record-digest.ts';
import { Trail } from './trail.ts';

/** Keys that a list reads together. */
const PAGE = 100;
const ATTEMPTS = 10;
/** Keys that one search checks. The answer says where to continue. */
const LOOKED_AT_ONCE = 5_000;

const CLAIM_EVENT = readFileSync(new URL('./claim-event.lua', import.meta.url), 'utf8');

/** API keys in Redis: one hash per key, and a sorted set of ids by time of creation. */
export class RedisKeys implements KeyStore {
  readonly #redis: RedisConnection;
  readonly #trail: Trail;
  readonly #bulk = new BulkReads((id) => this.read(id));

  constructor(redis: RedisConnection, trail = new Trail(redis)) {
    this.#redis = redis;
    this.#trail = trail;
  }

  async now(): Promise<number> {
    const [seconds, microseconds] = await orUnavailable(this.#redis.time());
    return Number(seconds) * 1e6 + Number(microseconds);
  }

  create(id: string, record: KeyRecord, activity?: Activity): Promise<void> {
    const fields = Object.entries(withDigest(writeKey(record))).flat() as string[];
    return issue(this.#trail, id, { seconds: record.createdAt / 1e6, fields, notes: this.#trail.notesOf([activity]) });
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const hash = await this.read(id);
    return hash && readEntry(id, hash);
  }

  async isValid(id: string, digest: string): Promise<boolean> {
    const hash = await this.read(id);
    if (hash === undefined) return false;
    const { record } = readEntry(id, hash);
    const secret = secretOf(record, digest);
    if (secret === undefined) return record.secrets.length === 0;
    return rejectionReason(record, secret, await this.now()) === undefined;
  }

  /**
   * Goes through the index, the newest key first, page by page. One call checks a limited number of keys, so that a
   * search in a large Redis delays nobody. `next` is where to continue.
   */
  async list(query: KeyQuery): Promise<KeyList> {
    const total = await orUnavailable(this.#redis.zcard(INDEX));
    const keys: KeyEntry[] = [];
    let at = query.offset;
    while (at < total && at - query.offset < LOOKED_AT_ONCE) {
      const page = await this.#page(at);
      // If keys were revoked meanwhile, the index ends earlier.
      if (page.length === 0) return { total, keys, next: undefined };
      for (const entry of page) {
        if (keys.length === query.limit) return { total, keys, next: at };
        at += 1;
        if (entry !== undefined && query.isWanted(entry)) keys.push(entry);
      }
    }
    return { total, keys, next: at < total ? at : undefined };
  }

  async change(id: string, make: (record: KeyRecord) => KeyChange & WithActivity): Promise<boolean> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const hash = await this.read(id);
      if (hash === undefined) return false;
      const record = readRecord(id, hash);
      if (record === undefined) throw new Unreadable();
      const { record: changes = {}, ban, activity } = make(record);
      // Edits by hand first, because this change hides them.
      const byHand = handEditsOf(id, hash, Date.now() * 1_000);
      const changed = await changeHash(this.#trail, keyOf(id), {
        expected: byHand.expected,
        changes: { ...byHand.changes, ...withDigest(writeRecord(changes, record.secrets), hash), ...writeBan(ban) },
        notes: this.#trail.notesOf([...byHand.entries, activity]),
        read: () => this.read(id),
      });
      if (changed !== undefined) return true;
    }
    throw new StoreUnavailable('The key was changed by others, again and again.');
  }

  /** @throws {StoreUnavailable} also while the key's slot migrates between nodes of a cluster */
  remove(id: string, activity?: Activity): Promise<boolean> {
    return revoke(this.#trail, id, this.#trail.notesOf([activity]));
  }

  async walk({ after, limit }: WalkQuery): Promise<KeyPage> {
    const cursors = await cursorsAfter(this.#redis, after, limit);
    const hashes = await this.#bulk.read(cursors.map(({ id }) => id));
    const keys = await Promise.all(
      cursors.map(({ id }, at) => {
        const hash = hashes[at];
        return hash === undefined ? this.#revoked(id) : readEntry(id, hash);
      }),
    );
    return {
      keys: keys.filter((key) => key !== undefined),
      next: cursors.length === limit ? cursors.at(-1) : undefined,
    };
  }

  export(query: WalkQuery): Promise<BackupPage> {
    return exportKeys(this.#redis, query, (ids) => this.#bulk.read(ids));
  }

  restore(keys: readonly BackedUpKey[]): Promise<RestoreOutcome[]> {
    return Promise.all(keys.map((key) => restoreKey(this.#redis, key)));
  }

  async claim(id: string, event: string, day: number, claimant: string): Promise<boolean> {
    return (await orUnavailable(this.#redis.eval(CLAIM_EVENT, 1, keyOf(id), `told_${event}`, day, claimant))) === 1;
  }

  async #page(offset: number): Promise<(KeyEntry | undefined)[]> {
    const ids = await orUnavailable(this.#redis.zrevrange(INDEX, offset, offset + PAGE - 1));
    const hashes = await this.#bulk.read(ids);
    return ids.map((id, at) => hashes[at] && readEntry(id, hashes[at]));
  }

  async #revoked(id: string): Promise<KeyEntry | undefined> {
    const hash = await orUnavailable(this.#redis.hgetall(usageOf(id)));
    const isKept = Object.keys(hash).length > 0 && hash.deleted_by_hand === undefined;
    return isKept ? readRevoked(id, hash) : undefined;
  }

  /** A key's hash. An id whose value is not a hash still counts as a key, so that it can be seen and removed. */
  async read(id: string): Promise<Record<string, string> | undefined> {
    const hash = await orUnavailable(this.#redis.hgetall(keyOf(id)).catch(otherThanHash));
    if (hash === OTHER) return {};
    return Object.keys(hash).length === 0 ? undefined : hash;
  }
}

const OTHER: Record<string, string> = {};

function otherThanHash(fault: Error): Record<string, string> {
  if (fault.message.startsWith('WRONGTYPE')) return OTHER;
  throw fault;
}
