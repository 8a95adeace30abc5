import { join } from 'node:path';
import { SECOND, systemClock } from '../../limiter/clock.ts';
import { rejectionReason, secretOf } from '../../limiter/credential.ts';
import {
  type BanReason,
  FRESH,
  type KeyChange,
  type KeyEntry,
  type KeyRecord,
  type KeyState,
} from '../../limiter/key-record.ts';
import { NO_REFUSALS } from '../../limiter/refusals.ts';
import type { Activity, ActivityStore, WithActivity } from '../activity-entry.ts';
import type { BackedUpKey, BackupPage, RestoreOutcome } from '../key-backup.ts';
import { readKey, readRevoked, writeKey } from '../key-hash.ts';
import { compareCursors, type KeyCursor, type KeyPage, type WalkQuery } from '../key-walk.ts';
import type { KeyList, KeyQuery, KeyStore } from '../stores.ts';
import { JsonFile } from './file.ts';
import { readRecords } from './key-records.ts';
import { RevokedKeys } from './revoked-keys.ts';

interface Claim {
  /** In days since 1970. */
  readonly day: number;
  readonly claimant: string;
}

interface FileKeysParts {
  readonly file: JsonFile;
  readonly records: ReadonlyMap<string, KeyRecord>;
  readonly revoked: RevokedKeys;
  readonly activity: Pick<ActivityStore, 'record'> | undefined;
}

/**
 * API keys of a standalone gateway. Records are in a file and survive a restart; levels and use are in memory. A record
 * is in force once it is on disk, not earlier.
 */
export class FileKeys implements KeyStore {
  readonly #file: JsonFile;
  #records: ReadonlyMap<string, KeyRecord>;
  readonly #states = new Map<string, KeyState>();
  /** The last claim of each event of a key. */
  readonly #claims = new Map<string, Map<string, Claim>>();
  readonly #revoked: RevokedKeys;
  readonly #activity: Pick<ActivityStore, 'record'> | undefined;

  private constructor({ file, records, revoked, activity }: FileKeysParts) {
    this.#file = file;
    this.#records = records;
    this.#revoked = revoked;
    this.#activity = activity;
  }

  /** @throws if a file in this folder exists but does not hold what it should */
  static async open(folder: string, activity?: ActivityStore): Promise<FileKeys> {
    const path = join(folder, 'keys.json');
    const file = new JsonFile(path);
    const records = readRecords(path, (await file.read()) ?? {});
    const revoked = await RevokedKeys.open(join(folder, 'revoked-keys.json'), activity);
    return new FileKeys({ file, records, revoked, activity });
  }

  async now(): Promise<number> {
    return systemClock();
  }

  record(id: string): KeyRecord | undefined {
    return this.#records.get(id);
  }

  state(id: string): KeyState | undefined {
    return this.#states.get(id);
  }

  /** The number of keys banned beyond this time. */
  bans(now: number): number {
    return [...this.#states.values()].filter(({ bannedUntil }) => bannedUntil > now).length;
  }

  keep(id: string, state: KeyState): void {
    this.#states.set(id, state);
  }

  async create(id: string, record: KeyRecord, activity?: Activity): Promise<void> {
    await this.#save((records) => records.set(id, record));
    await this.#record(activity);
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const found = this.#records.get(id);
    if (found === undefined) return undefined;
    return { id, isReadable: true, record: found, ...(this.#states.get(id) ?? FRESH) };
  }

  async isValid(id: string, digest: string): Promise<boolean> {
    const record = this.#records.get(id);
    const secret = record && secretOf(record, digest);
    return record !== undefined && secret !== undefined && rejectionReason(record, secret, systemClock()) === undefined;
  }

  async list(query: KeyQuery): Promise<KeyList> {
    const newestFirst = [...this.#records].sort(([, a], [, b]) => b.createdAt - a.createdAt).map(([id]) => id);
    const entries = await Promise.all(newestFirst.map((id) => this.get(id)));
    const keys: KeyEntry[] = [];
    for (const [at, entry] of entries.entries()) {
      if (at < query.offset || entry === undefined || !query.isWanted(entry)) continue;
      if (keys.length === query.limit) return { total: newestFirst.length, keys, next: at };
      keys.push(entry);
    }
    return { total: newestFirst.length, keys, next: undefined };
  }

  /** Bans, like bucket levels, are kept in memory only and do not survive a restart. */
  async change(id: string, make: (record: KeyRecord) => KeyChange & WithActivity): Promise<boolean> {
    const before = this.#records.get(id);
    if (before === undefined) return false;
    let made: KeyChange & WithActivity = make(before);
    const { record, ban } = made;
    const remake = (now: KeyRecord) => (made = make(now));
    if (record !== undefined && !(await this.#changeRecord(id, remake))) return false;
    if (ban !== undefined) this.#states.set(id, withBan(this.#states.get(id) ?? FRESH, ban));
    await this.#record(made.activity);
    return true;
  }

  /** The revocation is noted first: if the gateway ends in between, the key still works, and no backup restores it. */
  async remove(id: string, activity?: Activity): Promise<boolean> {
    let record = this.#records.get(id);
    if (record === undefined) return false;
    await this.#save(
      async (records) => {
        record = records.get(id);
        if (record !== undefined) await this.#revoked.note(id);
        records.delete(id);
      },
      () => {
        if (record !== undefined) this.#revoked.keep(readRevoked(id, writeKey(record, this.#states.get(id))));
        this.#states.delete(id);
        this.#claims.delete(id);
      },
    );
    if (record === undefined) return false;
    await this.#record(activity);
    return true;
  }

  async #record(activity: Activity | undefined): Promise<void> {
    if (activity !== undefined) await this.#activity?.record(activity);
  }

  async walk({ after, limit }: WalkQuery): Promise<KeyPage> {
    const live = await Promise.all([...this.#records.keys()].map((id) => this.get(id)));
    const entries = [...live.filter((entry) => entry !== undefined), ...this.#revoked.entries()];
    const inOrder = entries
      .filter((entry) => after === undefined || compareCursors(cursorOf(entry), after) > 0)
      .sort((a, b) => compareCursors(cursorOf(a), cursorOf(b)));
    const keys = inOrder.slice(0, limit);
    const last = keys.at(-1);
    return { keys, next: last !== undefined && inOrder.length > limit ? cursorOf(last) : undefined };
  }

  async export({ after, limit }: WalkQuery): Promise<BackupPage> {
    const all = [...this.#records].map(([id, record]) => ({ id, record, createdAt: record.createdAt / SECOND }));
    const inOrder = all.filter((key) => after === undefined || compareCursors(key, after) > 0).sort(compareCursors);
    const page = inOrder.slice(0, limit);
    const keys = page.map(({ id, record, createdAt }) => ({
      id,
      createdAt,
      fields: writeKey(record, this.#states.get(id)),
    }));
    const last = keys.at(-1);
    return { keys, next: last !== undefined && inOrder.length > limit ? last : undefined };
  }

  /** Restores all keys with one write of the file. */
  async restore(keys: readonly BackedUpKey[]): Promise<RestoreOutcome[]> {
    let outcomes: RestoreOutcome[] = [];
    const states = new Map<string, KeyState>();
    const add = (records: Map<string, KeyRecord>, { id, fields }: BackedUpKey): RestoreOutcome => {
      if (records.has(id)) return 'present';
      if (this.#revoked.has(id)) return 'revoked';
      const key = readKey(id, fields);
      if (key === undefined) return 'unreadable';
      records.set(id, key.record);
      states.set(id, key.state);
      return 'restored';
    };
    await this.#save(
      (records) => {
        outcomes = keys.map((key) => add(records, key));
      },
      () => {
        for (const [id, state] of states) this.#states.set(id, state);
      },
    );
    return outcomes;
  }

  async claim(id: string, event: string, day: number, claimant: string): Promise<boolean> {
    if (!this.#records.has(id)) return false;
    const claims = this.#claims.get(id) ?? new Map<string, Claim>();
    const last = claims.get(event);
    if (last?.day === day && last.claimant === claimant) return true;
    if (last?.day === day || last?.day === day + 1) return false;
    this.#claims.set(id, claims.set(event, { day, claimant }));
    return true;
  }

  /** The change is made from the record at its turn. @returns false if the key is gone by then */
  async #changeRecord(id: string, make: (record: KeyRecord) => KeyChange): Promise<boolean> {
    let isThere = false;
    await this.#save((records) => {
      const before = records.get(id);
      isThere = before !== undefined;
      if (before !== undefined) records.set(id, { ...before, ...make(before).record });
    });
    return isThere;
  }

  /** @param inForce called in the step in which the change comes into force */
  #save(change: (records: Map<string, KeyRecord>) => unknown, inForce: () => void = () => {}): Promise<void> {
    let next: Map<string, KeyRecord>;
    return this.#file.replace(
      async () => {
        next = new Map(this.#records);
        await change(next);
        return Object.fromEntries(next);
      },
      () => {
        this.#records = next;
        inForce();
      },
    );
  }
}

const cursorOf = ({ id, record: { createdAt } }: KeyEntry): KeyCursor => ({ createdAt: createdAt / SECOND, id });

/** Lifting a ban also forgets the line, the strikes and the series: the key starts anew. */
function withBan(state: KeyState, ban: BanReason | 'lift'): KeyState {
  if (ban !== 'lift') return { ...state, bannedUntil: ban.until, banReason: ban };
  return { ...state, bannedUntil: 0, bans: 0, refusals: NO_REFUSALS, banReason: undefined };
}
