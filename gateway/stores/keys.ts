import { Conflict, Unavailable } from '../../shared/domain-errors.ts';
import { monotonicClock } from '../limiter/bucket.ts';
import type { KeyFacts } from '../limiter/client.ts';
import type { Clients } from '../limiter/clients.ts';
import { type Credential, isKeyId, secretOf } from '../limiter/credential.ts';
import { countsOf, DAYS_KEPT, type KeyChange, type KeyEntry, type KeyRecord } from '../limiter/key-record.ts';
import { StoreUnavailable } from '../limiter/limiter.ts';
import { type Activity, auditEntries, type WithActivity } from './audit.ts';
import { handEditsOf, reported, seenOf } from './hand-edits.ts';
import {
  faultIn,
  fieldsForBackup,
  inForce,
  isNarrower,
  REVOKED_FIELDS,
  REVOKED_KEPT_SECONDS,
  readEntry,
  readRecord,
  readRevoked,
  withKept,
  writeKey,
  writeRecord,
} from './key-hash.ts';
import { writeBan } from './key-state.ts';
import {
  type Fields,
  type KeyCursor,
  type KeyListQuery,
  NotMade,
  type RecordName,
  type Storage,
  type Urgency,
  withChanges,
} from './storage.ts';

const PAGE = 100;
const ATTEMPTS = 10;
/** The number of keys that one search checks. The result says where to continue. */
const CHECKED_AT_ONCE = 5_000;

const key = (id: string): RecordName => `key:${id}`;
const revoked = (id: string): RecordName => `revoked:${id}`;

/** The key's data is malformed, for example after a manual edit. */
export class Unreadable extends Conflict {
  constructor() {
    super("The key's data cannot be read. Fix it by hand, or revoke the key.");
  }
}

/** A key in a backup: its stored fields as text, including digests and usage, but no secret. */
export interface BackedUpKey {
  readonly id: string;
  /** The key's place in the order of keys, in Unix seconds: an interrupted backup continues there. */
  readonly createdAt: number;
  readonly fields: Fields;
}

/**
 * The age up to which a backup can be restored, in seconds. All revocations since such a backup are still on record.
 * One day is subtracted because clocks differ.
 */
export const RESTORED_FOR_SECONDS = REVOKED_KEPT_SECONDS - 86_400;

type WalkQuery = Pick<KeyListQuery, 'after' | 'limit'>;

/** API keys. Each has a record and a place in the order of creation. */
export class Keys {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** The clock used for decisions: Unix time in microseconds. */
  now = () => this.#storage.now();

  /** @param activity here and below: an audit entry that is written in the same step, if the store allows it */
  async create(id: string, record: KeyRecord, activity?: Activity): Promise<void> {
    const isMade = await this.#storage.change({
      parts: [
        { record: key(id), exists: false, set: withKept(writeKey(record)) },
        { record: revoked(id), exists: false },
      ],
      entries: auditEntries(activity),
    });
    if (!isMade) throw new NotMade('A key with this id already exists.');
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const fields = await this.#storage.read(key(id));
    return fields && readEntry(id, fields);
  }

  count = () => this.#storage.countKeys();

  /** A key that exists or was revoked in the last 36 days. */
  async everKnown(id: string): Promise<KeyEntry | undefined> {
    return (await this.get(id)) ?? (await this.#revoked(id));
  }

  /**
   * Lists the newest keys first.
   * @param query.offset the number of keys to skip, or the `next` of a previous call
   * @returns `total` counts all keys, matching or not. `next` is the last key checked if the list is full or enough keys
   *   were checked; undefined at the end
   */
  async list(query: { offset: number | KeyCursor; limit: number; isWanted(entry: KeyEntry): boolean }) {
    const total = await this.#storage.countKeys();
    const keys: KeyEntry[] = [];
    let checked = 0;
    for (let from = query.offset; ; ) {
      const place = typeof from === 'number' ? { offset: from } : { after: from };
      // One key more than is read shows whether the list continues.
      const cursors = await this.#storage.listKeys({ ...place, limit: PAGE + 1, newestFirst: true });
      const page = cursors.slice(0, PAGE);
      for (const [at, entry] of (await this.#entries(page)).entries()) {
        from = page[at]!;
        checked += 1;
        if (entry !== undefined && query.isWanted(entry)) keys.push(entry);
        if (keys.length === query.limit || checked === CHECKED_AT_ONCE)
          return { total, keys, next: at + 1 < cursors.length ? from : undefined };
      }
      if (cursors.length <= PAGE) return { total, keys, next: undefined };
    }
  }

  /**
   * Applies the change that `make` returns for a key's record and state. Calls `make` again if another change came
   * first.
   * @returns the key after the change; undefined if there is no such key
   * @throws {Unreadable} if malformed data would remain, unless the change stops clients from using the key
   */
  async change(
    id: string,
    make: (record: KeyEntry['record'], before: KeyEntry) => KeyChange & WithActivity,
  ): Promise<KeyEntry | undefined> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const stored = await this.#storage.read(key(id));
      if (stored === undefined) return undefined;
      const before = readEntry(id, stored);
      const { record } = before;
      const made = make(record, before);
      const { record: changes = {}, ban, activity } = made;
      // Records manual edits first, because this change would hide them.
      const byHand = handEditsOf(id, stored, Date.now() * 1_000);
      const now = ban === undefined || ban === 'lift' ? 0 : await this.now();
      const written = { ...writeRecord(changes, record.secrets, stored), ...writeBan(ban, stored, now) };
      const accepted = { ...byHand.changes, ...withKept(written, inForce(stored).fields) };
      const set = { ...accepted, ...reported(withChanges(stored, accepted)) };
      const after = withChanges(stored, set);
      const isStopped = stopsClients(made) && Object.keys(stored).length > 0;
      if (!isStopped && readRecord(after) === undefined) throw new Unreadable();
      const isMade = await this.#storage.change({
        parts: [{ record: key(id), exists: true, expect: seenOf(stored), set }],
        entries: auditEntries(...byHand.entries, activity),
        urgency: urgencyOf(made, record),
      });
      if (isMade) return readEntry(id, after);
    }
    throw new Conflict('Others changed the key during every attempt. Repeat the change.');
  }

  /**
   * Revokes a key. The revocation and the key's usage stay on record for 36 days. If others change the key during every
   * other attempt, the last one revokes it nevertheless.
   * @param activityOf returns the activity for the record that is revoked
   * @returns false if there is no such key. Even then, the call waits for confirmation as a revocation does, because an
   *   earlier attempt may have revoked the key
   */
  async remove(id: string, activityOf?: (record: KeyEntry['record']) => Activity): Promise<boolean> {
    const moveTo = { record: revoked(id), fields: REVOKED_FIELDS, seconds: REVOKED_KEPT_SECONDS };
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      // An earlier change that is not confirmed must not prevent a revocation, which is confirmed by itself.
      const stored = await this.#storage.read(key(id), false);
      if (stored === undefined) break;
      const expect = attempt === ATTEMPTS ? undefined : seenOf(stored);
      const parts = [{ record: key(id), exists: true, ...(expect && { expect }), moveTo }];
      const entries = auditEntries(activityOf?.(readEntry(id, stored).record));
      if (await this.#storage.change({ parts, entries, urgency: 'revocation' })) return true;
    }
    await this.#storage.change({ parts: [{ record: key(id), exists: false }], entries: [], urgency: 'revocation' });
    return false;
  }

  /**
   * All keys page by page, the oldest first, including those revoked in the last 36 days. `next`, here and below, says
   * where to continue; undefined at the end.
   */
  async walk({ after, limit }: WalkQuery) {
    const cursors = await this.#storage.listKeys({ after, limit, withRevoked: true });
    const live = await this.#entries(cursors);
    const keys = await Promise.all(cursors.map(async ({ id }, at) => live[at] ?? (await this.#revoked(id))));
    return { keys: keys.filter((entry) => entry !== undefined), next: nextOf(cursors, limit) };
  }

  /** The existing keys as stored, page by page, the oldest first. `leftOut` lists keys that no restore would accept. */
  async export({ after, limit }: WalkQuery) {
    const cursors = await this.#storage.listKeys({ after, limit });
    const stored = await this.#storage.readMany(cursors.map(({ id }) => key(id)));
    const leftOut: { readonly id: string; readonly reason: string }[] = [];
    const keys = cursors.flatMap(({ id, createdAt }, at): BackedUpKey[] => {
      if (stored[at] === undefined) return [];
      // Fields added by hand have no meaning and are not backed up.
      const own = Object.entries(fieldsForBackup(stored[at])).filter(([name]) => isFieldName(name));
      const fields = Object.fromEntries(own);
      const reason = whyNotBackedUp(fields);
      if (reason !== undefined) leftOut.push({ id, reason });
      return reason === undefined ? [{ id, createdAt, fields }] : [];
    });
    return { keys, leftOut, next: nextOf(cursors, limit) };
  }

  /**
   * Restores a key from a backup if its id is free: an existing key is not changed, and a revoked key stays revoked.
   * The call can be repeated. The caller checks the age of the backup, because revocations are on record for only 36
   * days.
   * @param entryFor the audit entry for a restored key
   * @param isTrial whether to write nothing
   */
  async restore({ id, fields }: BackedUpKey, entryFor?: (id: string, name: string) => Activity, isTrial = false) {
    const refused = whyNotBackedUp(fields);
    if (refused !== undefined) return { refused };
    const [live, gone] = await Promise.all([this.#storage.read(key(id)), this.#storage.read(revoked(id))]);
    if (live !== undefined) {
      // A repeated restore confirms what the first one wrote.
      if (!isTrial) await this.#storage.change({ parts: [{ record: key(id), exists: true }], entries: [] });
      return 'present';
    }
    // A key that was deleted by hand can be restored.
    const byHand = gone?.deleted_by_hand === '1' ? gone : undefined;
    if (gone !== undefined && byHand === undefined) return 'revoked';
    if (isTrial) return 'restored';
    const noLonger = Object.fromEntries(Object.keys(byHand ?? {}).map((field) => [field, undefined]));
    const isMade = await this.#storage.change({
      parts: [
        { record: key(id), exists: false, set: withKept(fields) },
        { record: revoked(id), exists: byHand !== undefined, expect: { ...byHand }, set: noLonger },
      ],
      entries: auditEntries(entryFor?.(id, fields.name ?? '')),
    });
    return isMade ? 'restored' : 'present';
  }

  /** Ids of keys that work but are missing from the list of keys, because it was lost or edited by hand. */
  unlisted = () => this.#storage.unlistedKeys();

  /** Adds all unlisted keys to the list again. @returns their number */
  relist = () => this.#storage.relistKeys();

  /**
   * Claims a key event for a day (UTC, days since 1970). Writes nothing for a key that does not exist.
   * @param claimant the name of one attempt to report the event, without spaces: a retry gets the same answer
   * @returns whether the caller must report the event: false if another claimant reports it, or the key does not exist
   */
  async claim(id: string, event: string, day: number, claimant: string): Promise<boolean> {
    const [field, claim] = [`told_${event}`, `${day} ${claimant}`];
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const fields = await this.#storage.read(key(id));
      if (fields === undefined) return false;
      const last = fields[field] ?? '';
      if (last === claim) return true;
      // An event can wait past midnight, so a claim for the next day counts too.
      const claimed = Number.parseInt(last, 10);
      if (claimed === day || claimed === day + 1) return false;
      const part = { record: key(id), exists: true, expect: { [field]: fields[field] }, set: { [field]: claim } };
      if (await this.#storage.change({ parts: [part], entries: [] })) return true;
    }
    throw new NotMade('The event was claimed by others at every attempt.');
  }

  async #entries(cursors: readonly KeyCursor[]): Promise<(KeyEntry | undefined)[]> {
    const stored = await this.#storage.readMany(cursors.map(({ id }) => key(id)));
    return cursors.map(({ id }, at) => stored[at] && readEntry(id, stored[at]));
  }

  async #revoked(id: string): Promise<KeyEntry | undefined> {
    const fields = isKeyId(id) ? await this.#storage.read(revoked(id)) : undefined;
    return fields === undefined || fields.deleted_by_hand !== undefined ? undefined : readRevoked(id, fields);
  }
}

const nextOf = (cursors: readonly KeyCursor[], limit: number): KeyCursor | undefined =>
  cursors.length === limit ? cursors.at(-1) : undefined;

const stopsClients = ({ record = {}, ban, isUrgent = false }: KeyChange): boolean =>
  isUrgent || record.disabled === true || typeof ban === 'object';

function urgencyOf(change: KeyChange, before: KeyEntry['record']): Urgency | undefined {
  const { disabled, expiresAt, minute, day, secrets = [] } = change.record ?? {};
  const isTaken =
    change.isUrgent === true ||
    disabled === true ||
    isBelow(expiresAt, before.expiresAt) ||
    isBelow(minute, before.minute) ||
    isBelow(day, before.day) ||
    secrets.some((secret) => isNarrower(secret, secretOf(before, secret.digest)));
  // A rotation with a grace period makes the record larger.
  if (isTaken) return secrets.length > before.secrets.length ? 'ban' : 'revocation';
  return typeof change.ban === 'object' ? 'ban' : undefined;
}

const isBelow = (value: number | undefined, before = Infinity): boolean => value !== undefined && value < before;

export const NO_FACTS =
  "The usage of this API key cannot be read: the gateway's key store does not answer. Retry after the time in Retry-After.";

/**
 * Returns a function that reads a key's facts and keeps the last ones for outages. Call that function only after the
 * secret has been verified. It returns undefined for a key that is gone, and throws {StoreUnavailable} if the store
 * does not answer and no facts are kept.
 */
export const factsReader =
  (keys: Pick<Keys, 'get'>, clients: Clients) =>
  async ({ id }: Credential): Promise<KeyFacts | undefined> => {
    const askedAt = monotonicClock();
    try {
      const entry = await keys.get(id);
      const facts = entry && {
        name: entry.record.name,
        expiresAt: entry.record.expiresAt,
        refusals: entry.refusals,
        days: countsOf(entry.usage.days, entry).slice(-DAYS_KEPT),
      };
      clients.noteFacts(id, facts, askedAt);
      return facts;
    } catch (fault) {
      if (!(fault instanceof Unavailable)) throw fault;
      const facts = clients.facts(id);
      if (facts === undefined) throw new StoreUnavailable(fault, NO_FACTS);
      return facts;
    }
  };

/** More than any key needs, but few enough for one command and for one line of a file. */
const MAX_FIELDS = 1_000;
const MAX_BYTES = 200_000;

/** Whether a gateway may have written a field of this name. */
const isFieldName = (name: string): boolean => /^[\w:-]{1,100}$/.test(name);

/** Why backups and restores must leave out a key with these fields; undefined if they may include it. */
function whyNotBackedUp(fields: Fields): string | undefined {
  const names = Object.keys(fields);
  if (names.length === 0) return 'It has no fields.';
  if (names.length > MAX_FIELDS) return `It has more than ${MAX_FIELDS} fields.`;
  const odd = names.find((name) => !isFieldName(name));
  if (odd !== undefined) return `${odd.slice(0, 100)} is not a field of a key.`;
  if (Buffer.byteLength(JSON.stringify(fields)) > MAX_BYTES) return `It has more than ${MAX_BYTES} bytes.`;
  return faultIn(fields);
}

/** Reports when the last complete backup was made. All gateways report the same time. */
export class Backups {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  /** In Unix seconds; undefined if none is known. */
  async last(): Promise<number | undefined> {
    const text = (await this.#storage.read('backup'))?.completed_at ?? '';
    return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
  }

  async note(seconds: number, entry: Activity): Promise<void> {
    const set = { completed_at: String(seconds) };
    await this.#storage.change({ parts: [{ record: 'backup', set }], entries: auditEntries(entry) });
  }
}
