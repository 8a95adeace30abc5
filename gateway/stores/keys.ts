import { setImmediate as nextTurn } from 'node:timers/promises';
import { isKeyId, rejectionReason, secretOf } from '../limiter/credential.ts';
import type { KeyChange, KeyEntry, KeyRecord } from '../limiter/key-record.ts';
import type { Activity, WithActivity } from './activity-entry.ts';
import { auditEntries } from './audit.ts';
import { handEditsOf } from './hand-edits.ts';
import { type BackedUpKey, type BackupPage, ownFields, type RestoreOutcome } from './key-backup.ts';
import {
  faultIn,
  inForce,
  REVOKED_FIELDS,
  readEntry,
  readRecord,
  readRevoked,
  recordFields,
  withKept,
  writeBan,
  writeKey,
  writeRecord,
} from './key-hash.ts';
import { type KeyPage, REVOKED_KEPT_SECONDS, type WalkQuery } from './key-walk.ts';
import { type Fields, type KeyCursor, NotMade, type RecordName, type Storage } from './storage.ts';
import { type KeyList, type KeyQuery, type KeyStore, Unreadable } from './stores.ts';

/** Keys that a list reads together. */
const PAGE = 100;
const ATTEMPTS = 10;
/** Keys that one search checks. The answer says where to continue. */
const CHECKED_AT_ONCE = 5_000;

const key = (id: string): RecordName => `key:${id}`;
const revoked = (id: string): RecordName => `revoked:${id}`;

/** API keys: a record for each, and its place in the order of their creation. */
export class Keys implements KeyStore {
  readonly #storage: Storage;

  constructor(storage: Storage) {
    this.#storage = storage;
  }

  now(): Promise<number> {
    return this.#storage.now();
  }

  async create(id: string, record: KeyRecord, activity?: Activity): Promise<void> {
    const isMade = await this.#storage.change({
      parts: [
        { record: key(id), exists: false, set: withKept(writeKey(record)) },
        { record: revoked(id), exists: false },
      ],
      entries: auditEntries(activity),
    });
    if (!isMade) throw new NotMade('There is a key with this id already.');
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const fields = await this.#storage.read(key(id));
    return fields && readEntry(id, fields);
  }

  async isValid(id: string, digest: string): Promise<boolean> {
    const entry = await this.get(id);
    if (entry === undefined) return false;
    const secret = secretOf(entry.record, digest);
    if (secret === undefined) return entry.record.secrets.length === 0;
    return rejectionReason(entry.record, secret, await this.now()) === undefined;
  }

  /** Page by page, with other work of this process between two pages. */
  async list(query: KeyQuery): Promise<KeyList> {
    const total = await this.#storage.countKeys();
    const keys: KeyEntry[] = [];
    let at = query.offset;
    while (at < total && at - query.offset < CHECKED_AT_ONCE) {
      const cursors = await this.#storage.listKeys({ offset: at, limit: PAGE, newestFirst: true });
      // If keys were revoked meanwhile, the list ends earlier.
      if (cursors.length === 0) return { total, keys, next: undefined };
      for (const entry of await this.#entries(cursors)) {
        if (keys.length === query.limit) return { total, keys, next: at };
        at += 1;
        if (entry !== undefined && query.isWanted(entry)) keys.push(entry);
      }
      await nextTurn();
    }
    return { total, keys, next: at < total ? at : undefined };
  }

  async change(id: string, make: (record: KeyRecord) => KeyChange & WithActivity): Promise<KeyEntry | undefined> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const stored = await this.#storage.read(key(id));
      if (stored === undefined) return undefined;
      const record = readRecord(id, stored);
      if (record === undefined) throw new Unreadable();
      const { record: changes = {}, ban, activity } = make(record);
      // Edits by hand first, because this change hides them.
      const byHand = handEditsOf(id, stored, Date.now() * 1_000);
      const written = { ...writeRecord(changes, record.secrets), ...writeBan(ban) };
      const set = { ...byHand.changes, ...withKept(written, inForce(stored).fields) };
      const isMade = await this.#storage.change({
        parts: [{ record: key(id), exists: true, expect: { ...recordFields(stored), ...byHand.expected }, set }],
        entries: auditEntries(...byHand.entries, activity),
        isUrgent: isUrgent(changes, ban),
      });
      if (isMade) return readEntry(id, present({ ...stored, ...set }));
    }
    throw new NotMade('The key was changed by others, again and again.');
  }

  /** Its name and use are kept for 36 days, and so long no backup brings it back. */
  async remove(id: string, activity?: Activity): Promise<boolean> {
    const moveTo = { record: revoked(id), fields: REVOKED_FIELDS, seconds: REVOKED_KEPT_SECONDS };
    return await this.#storage.change({
      parts: [{ record: key(id), exists: true, moveTo }],
      entries: auditEntries(activity),
      isUrgent: true,
    });
  }

  async walk({ after, limit }: WalkQuery): Promise<KeyPage> {
    const cursors = await this.#storage.listKeys({ after, limit, withRevoked: true });
    const live = await this.#entries(cursors);
    const keys = await Promise.all(cursors.map(async ({ id }, at) => live[at] ?? (await this.#revoked(id))));
    return { keys: keys.filter((entry) => entry !== undefined), next: nextOf(cursors, limit) };
  }

  async export({ after, limit }: WalkQuery): Promise<BackupPage> {
    const cursors = await this.#storage.listKeys({ after, limit });
    const stored = await this.#storage.readMany(cursors.map(({ id }) => key(id)));
    const keys = cursors.map(({ id, createdAt }, at) => {
      return { id, createdAt, fields: ownFields(inForce(stored[at] ?? {}).fields) };
    });
    // A key that was revoked meanwhile has no fields.
    return { keys: keys.filter(({ fields }) => Object.keys(fields).length > 0), next: nextOf(cursors, limit) };
  }

  restore(
    keys: readonly BackedUpKey[],
    entryFor?: (id: string, name: string) => Activity,
    isTrial = false,
  ): Promise<RestoreOutcome[]> {
    return Promise.all(keys.map((one) => this.#restore(one, entryFor, isTrial)));
  }

  unlisted(): Promise<readonly string[]> {
    return this.#storage.unlistedKeys();
  }

  relist(): Promise<number> {
    return this.#storage.relistKeys();
  }

  async claim(id: string, event: string, day: number, claimant: string): Promise<boolean> {
    const [field, claim] = [`told_${event}`, `${day} ${claimant}`];
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const fields = await this.#storage.read(key(id));
      if (fields === undefined) return false;
      const last = fields[field] ?? '';
      if (last === claim) return true;
      // An event can wait past midnight.
      const claimed = Number.parseInt(last, 10);
      if (claimed === day || claimed === day + 1) return false;
      const part = { record: key(id), exists: true, expect: { [field]: fields[field] }, set: { [field]: claim } };
      if (await this.#storage.change({ parts: [part], entries: [] })) return true;
    }
    throw new NotMade('The event was claimed by others, again and again.');
  }

  async #restore(
    { id, fields }: BackedUpKey,
    entryFor: ((id: string, name: string) => Activity) | undefined,
    isTrial: boolean,
  ): Promise<RestoreOutcome> {
    const fault = faultIn(fields);
    if (fault !== undefined) return { refused: fault };
    const [live, gone] = await Promise.all([this.#storage.read(key(id)), this.#storage.read(revoked(id))]);
    if (live !== undefined) return 'present';
    // A key that was deleted by hand comes back.
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

/** Whether a change takes something away from clients: it must work on a full disk too. */
const isUrgent = ({ disabled, secrets, expiresAt }: Partial<KeyRecord>, ban: KeyChange['ban']): boolean =>
  disabled === true || secrets !== undefined || expiresAt !== undefined || (ban !== undefined && ban !== 'lift');

const present = (fields: Readonly<Record<string, string | undefined>>): Fields =>
  Object.fromEntries(Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined));
