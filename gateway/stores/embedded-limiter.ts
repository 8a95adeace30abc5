import { setImmediate as nextTurn } from 'node:timers/promises';
import { boundedMap } from '../../shared/bounded-map.ts';
import { every } from '../../shared/process/repeat.ts';
import { type Clock, systemClock } from '../limiter/bucket.ts';
import type { Credential } from '../limiter/credential.ts';
import { type Decided, decide } from '../limiter/decide.ts';
import type { KeyRecord, KeyState } from '../limiter/key-record.ts';
import { type Limiter, NOT_READ, StoreUnavailable, type Verdict } from '../limiter/limiter.ts';
import type { PlansInForce } from '../limiter/plans.ts';
import { isUnknownSecret, readKey } from './key-hash.ts';
import { writeStateChanges } from './key-state.ts';
import type { FieldChanges, Fields } from './storage.ts';

/** The maximum number of keys held with a stored state, and also of keys held with an unsaved state. */
const MAX_KEYS = 50_000;
const SAVE_EVERY_MS = 1_000;
/** The maximum number of states per write, so that a write takes only a few milliseconds. */
const STATES_AT_ONCE = 250;

/** The state of a key, as changes to its record. */
export type SavedState = readonly [id: string, changes: FieldChanges];

export interface KeySource {
  /** Loads the fields of a key, if there is one. @throws {Unavailable} if they cannot be read now */
  load(id: string): Promise<Fields | undefined>;
  /**
   * Stores states. The store receives them before anything that is sent after this call.
   * @param mustBeDurable whether they must survive a power cut
   * @returns whether they are stored
   */
  save(states: readonly SavedState[], mustBeDurable: boolean): Promise<boolean>;
}

interface HeldKey {
  readonly id: string;
  readonly record: KeyRecord;
  state: KeyState;
  /** The state that was last sent to the store, unless the store failed to save it. */
  sent?: KeyState | undefined;
  /** Set until a new ban on the key is stored. Resolves to whether the ban was stored. */
  ban?: Promise<boolean> | undefined;
}

/**
 * The embedded limiter: the rules of decide.lua in this process. It decides requests with the keys that it holds, and
 * loads all other keys. It stores states once a second, and a ban before it returns the verdict.
 */
export class EmbeddedLimiter implements Limiter {
  readonly #source: KeySource;
  readonly #plans: PlansInForce;
  readonly #clock: Clock;
  /** Keys whose state is stored. The least recently used one is evicted first. */
  readonly #stored = boundedMap<string, HeldKey>(MAX_KEYS);
  /** Keys whose state is not stored yet. They are never evicted. */
  readonly #unsaved = new Map<string, HeldKey>();
  readonly #loads = new Map<string, Promise<Fields | undefined>>();
  /** Keys that have changed during their load. The loaded data may be older than the change. */
  readonly #outdated = new Set<string>();
  readonly #saves = new Set<Promise<boolean>>();
  readonly #endSaving: () => void;

  constructor(source: KeySource, plans: PlansInForce, clock: Clock = systemClock) {
    this.#source = source;
    this.#plans = plans;
    this.#clock = clock;
    this.#endSaving = every(SAVE_EVERY_MS, () => this.flush());
  }

  decide(credential: Credential): Promise<Verdict> {
    return this.#withKey(credential, (held) => this.#decideHeld(held, credential));
  }

  peek(credential: Credential): Promise<Verdict> {
    return this.#withKey(credential, (held) => this.#decided(held, credential, false).verdict);
  }

  /**
   * Forgets a key. The next decision on the key loads it again.
   * @param isChanged whether the key's record will change. If not, another worker loads the key, and this worker may
   *   load it again only after that
   * @returns the key's state, if it is not stored yet
   */
  release(id: string, isChanged: boolean): FieldChanges | undefined {
    if (isChanged && this.#loads.has(id)) this.#outdated.add(id);
    const held = this.#unsaved.get(id);
    this.#unsaved.delete(id);
    this.#stored.delete(id);
    return held && writeStateChanges(held.state);
  }

  /**
   * Sends all states that are not stored yet, a few at a time, so that requests are handled in between. Resolves once
   * they are sent.
   */
  async flush(): Promise<void> {
    const keys = [...this.#unsaved.values()];
    for (let at = 0; at < keys.length; at += STATES_AT_ONCE) {
      if (at > 0) await nextTurn();
      // Skips states that were already sent, and keys that were released in the meantime.
      const unsent = keys
        .slice(at, at + STATES_AT_ONCE)
        .filter((held) => held.sent !== held.state && this.#unsaved.get(held.id) === held);
      const hasBan = unsent.some(({ ban }) => ban !== undefined);
      if (unsent.length > 0) void this.#save(unsent, hasBan);
    }
  }

  /** Forgets all keys, because nothing can be stored any longer. */
  readonly forgetAll = (): void => {
    for (const id of this.#loads.keys()) this.#outdated.add(id);
    this.#unsaved.clear();
    this.#stored.clear();
  };

  async stop(): Promise<void> {
    this.#endSaving();
    await this.flush();
    await Promise.all(this.#saves);
  }

  #held(id: string): HeldKey | undefined {
    return this.#unsaved.get(id) ?? this.#stored.get(id);
  }

  #decided({ record, state }: HeldKey, credential: Credential, takes: boolean): Decided {
    const { table } = this.#plans;
    if (table === undefined) throw new StoreUnavailable(NOT_READ);
    return decide(record, state, credential, table[record.plan], this.#clock(), takes);
  }

  async #decideHeld(held: HeldKey, credential: Credential): Promise<Verdict> {
    const { verdict, state } = this.#decided(held, credential, true);
    if (state !== undefined) this.#keep(held, state);
    if (verdict.outcome === 'banned' && held.ban !== undefined && !(await held.ban))
      throw new StoreUnavailable('The ban on the key could not be stored.');
    return verdict;
  }

  #keep(held: HeldKey, state: KeyState): void {
    const isNewBan = state.bannedUntil > held.state.bannedUntil;
    held.state = state;
    if (!this.#unsaved.has(held.id)) {
      this.#stored.delete(held.id);
      this.#unsaved.set(held.id, held);
    }
    if (isNewBan) held.ban = this.#save([held], true);
  }

  /** A key may be released between its load and the decision. It is then loaded again. */
  async #withKey({ id, digest }: Credential, act: (held: HeldKey) => Verdict | Promise<Verdict>): Promise<Verdict> {
    let held = this.#held(id);
    while (held === undefined) {
      const fields = await this.#load(id);
      held = this.#held(id);
      if (held !== undefined) break;
      if (fields === undefined) return GONE;
      if (isUnknownSecret(digest, fields)) return UNKNOWN;
      if (readKey(fields) === undefined) return UNREADABLE;
    }
    return await act(held);
  }

  /** Concurrent requests for one key share a load. */
  #load(id: string): Promise<Fields | undefined> {
    const underWay = this.#loads.get(id);
    if (underWay !== undefined) return underWay;
    if (this.#unsaved.size >= MAX_KEYS) throw new StoreUnavailable('Too many key states are waiting to be stored.');
    const load = this.#read(id).finally(() => this.#loads.delete(id));
    this.#loads.set(id, load);
    return load;
  }

  async #read(id: string): Promise<Fields | undefined> {
    let fields: Fields | undefined;
    do {
      this.#outdated.delete(id);
      fields = await this.#source.load(id).catch((cause) => Promise.reject(new StoreUnavailable(cause)));
    } while (this.#outdated.has(id));
    const key = fields && readKey(fields);
    if (key !== undefined) this.#stored.set(id, { id, ...key });
    return fields;
  }

  #save(keys: readonly HeldKey[], mustBeDurable: boolean): Promise<boolean> {
    const saved = keys.map((held) => ({ held, state: held.state }));
    for (const { held, state } of saved) held.sent = state;
    const changes = saved.map(({ held: { id }, state }): SavedState => [id, writeStateChanges(state)]);
    const save = this.#source
      .save(changes, mustBeDurable)
      .catch(() => false)
      .then((isStored) => {
        this.#saves.delete(save);
        for (const { held, state } of saved) {
          if (isStored) this.#wasStored(held, state, mustBeDurable);
          // The state stays unsaved, so the next flush sends it again.
          else if (held.sent === state) held.sent = undefined;
        }
        return isStored;
      });
    this.#saves.add(save);
    return save;
  }

  #wasStored(held: HeldKey, state: KeyState, isDurable: boolean): void {
    if (isDurable && state.bannedUntil === held.state.bannedUntil) held.ban = undefined;
    if (held.state !== state || this.#unsaved.get(held.id) !== held) return;
    this.#unsaved.delete(held.id);
    this.#stored.set(held.id, held);
  }
}

const GONE: Verdict = { outcome: 'unauthorized', reason: 'unknown', isOfKey: true };
const UNKNOWN: Verdict = { outcome: 'unauthorized', reason: 'unknown' };
const UNREADABLE: Verdict = { outcome: 'undecided', reason: 'unreadable' };
