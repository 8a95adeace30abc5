import { z } from 'zod';
import { systemClock } from '../clock.ts';
import { unauthorized } from '../decide.ts';
import { isWanted } from '../key-query.ts';
import { comparePlaces, type Place, REVOKED_KEPT_SECONDS, type Walked, type WalkQuery } from '../key-walk.ts';
import { type BanReason, FRESH, type KeyChange, type KeyEntry, type KeyRecord, type KeyState } from '../keys.ts';
import type { KeyList, KeyQuery, KeyStore } from '../limiter.ts';
import { MAX_LIMIT, PLAN_NAMES } from '../plans.ts';
import { SECOND } from '../verdict.ts';
import { JsonFile } from './file.ts';

const limit = z.int().min(1).max(MAX_LIMIT);
const time = z.int().nonnegative();

const Records = z.record(
  z.string(),
  z.strictObject({
    plan: z.enum(PLAN_NAMES),
    name: z.string(),
    secret: z.string(),
    oldSecret: z.string().optional(),
    oldSecretUntil: time.optional(),
    createdAt: time,
    expiresAt: time.optional(),
    disabled: z.boolean().optional(),
    minute: limit.optional(),
    day: limit.optional(),
  }),
);

interface RevokedKey {
  readonly entry: KeyEntry;
  readonly revokedAt: number;
}

/**
 * API keys of a gateway on its own: records in a file, so that they survive a restart; levels and use in memory. A record is
 * in force once it is on disk, and not before.
 */
export class FileKeys implements KeyStore {
  readonly #file: JsonFile;
  #records: ReadonlyMap<string, KeyRecord>;
  readonly #states = new Map<string, KeyState>();
  /** The first one was revoked first. */
  readonly #revoked = new Map<string, RevokedKey>();

  private constructor(file: JsonFile, records: Map<string, KeyRecord>) {
    this.#file = file;
    this.#records = records;
  }

  /** @throws when the file is there and does not hold key records */
  static async open(path: string): Promise<FileKeys> {
    const file = new JsonFile(path);
    const result = Records.safeParse((await file.read()) ?? {});
    if (!result.success) throw new Error(`${path} does not hold API keys:\n${z.prettifyError(result.error)}`);
    return new FileKeys(file, new Map(Object.entries(result.data)));
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

  /** How many keys are banned beyond this time. */
  bans(now: number): number {
    return [...this.#states.values()].filter(({ bannedUntil }) => bannedUntil > now).length;
  }

  keep(id: string, state: KeyState): void {
    this.#states.set(id, state);
  }

  create(id: string, record: KeyRecord): Promise<void> {
    return this.#save((records) => records.set(id, record));
  }

  async get(id: string): Promise<KeyEntry | undefined> {
    const found = this.#records.get(id);
    if (found === undefined) return undefined;
    const { secret: _secret, oldSecret: _oldSecret, ...record } = found;
    return { id, isReadable: true, record, ...(this.#states.get(id) ?? FRESH) };
  }

  async isGood(id: string, digest: string): Promise<boolean> {
    const record = this.#records.get(id);
    return record !== undefined && unauthorized(record, digest, systemClock()) === undefined;
  }

  async list(query: KeyQuery): Promise<KeyList> {
    const newestFirst = [...this.#records].sort(([, a], [, b]) => b.createdAt - a.createdAt).map(([id]) => id);
    const entries = await Promise.all(newestFirst.map((id) => this.get(id)));
    const keys: KeyEntry[] = [];
    for (const [at, entry] of entries.entries()) {
      if (at < query.offset || entry === undefined || !isWanted(entry, query)) continue;
      if (keys.length === query.limit) return { total: newestFirst.length, keys, next: at };
      keys.push(entry);
    }
    return { total: newestFirst.length, keys, next: undefined };
  }

  /** A ban is a matter of the moment, as bucket levels are: it does not outlive the process. */
  async change(id: string, make: (record: KeyRecord) => KeyChange): Promise<boolean> {
    const before = this.#records.get(id);
    if (before === undefined) return false;
    const { record, ban } = make(before);
    if (record !== undefined && !(await this.#changeRecord(id, make))) return false;
    if (ban !== undefined) this.#states.set(id, withBan(this.#states.get(id) ?? FRESH, ban));
    return true;
  }

  async remove(id: string): Promise<boolean> {
    const entry = await this.get(id);
    if (entry === undefined) return false;
    await this.#save((records) => records.delete(id));
    const state = this.#states.get(id) ?? FRESH;
    this.#states.delete(id);
    this.#revoked.set(id, { entry: { ...entry, ...state, isRevoked: true }, revokedAt: systemClock() });
    this.#forgetOld();
    return true;
  }

  async walk({ after, limit }: WalkQuery): Promise<Walked> {
    const live = await Promise.all([...this.#records.keys()].map((id) => this.get(id)));
    const entries = [...live.filter((entry) => entry !== undefined), ...this.#revokedEntries()];
    const inOrder = entries
      .filter((entry) => after === undefined || comparePlaces(placeOf(entry), after) > 0)
      .sort((a, b) => comparePlaces(placeOf(a), placeOf(b)));
    const keys = inOrder.slice(0, limit);
    const last = keys.at(-1);
    return { keys, next: last !== undefined && inOrder.length > limit ? placeOf(last) : undefined };
  }

  #revokedEntries(): KeyEntry[] {
    this.#forgetOld();
    return [...this.#revoked.values()].map(({ entry }) => entry);
  }

  #forgetOld(): void {
    const oldest = systemClock() - REVOKED_KEPT_SECONDS * SECOND;
    for (const [id, { revokedAt }] of this.#revoked) if (revokedAt < oldest) this.#revoked.delete(id);
  }

  /** The change is made of the record that is there when its turn comes. False when the key is gone by then. */
  async #changeRecord(id: string, make: (record: KeyRecord) => KeyChange): Promise<boolean> {
    let isThere = false;
    await this.#save((records) => {
      const before = records.get(id);
      isThere = before !== undefined;
      if (before !== undefined) records.set(id, { ...before, ...make(before).record });
    });
    return isThere;
  }

  #save(change: (records: Map<string, KeyRecord>) => void): Promise<void> {
    let next: Map<string, KeyRecord>;
    return this.#file.replace(
      () => {
        next = new Map(this.#records);
        change(next);
        return Object.fromEntries(next);
      },
      () => {
        this.#records = next;
      },
    );
  }
}

const placeOf = ({ id, record: { createdAt } }: KeyEntry): Place => ({ createdAt: createdAt / SECOND, id });

/** A lifted ban takes the early requests and the series with it: whoever is let in again begins anew. */
function withBan(state: KeyState, ban: BanReason | 'lift'): KeyState {
  if (ban !== 'lift') return { ...state, bannedUntil: ban.until, banReason: ban };
  return { ...state, bannedUntil: 0, bans: 0, queue: undefined, banReason: undefined };
}
