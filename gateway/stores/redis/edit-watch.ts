import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../../../shared/process/logger.ts';
import type { Activity } from '../activity-entry.ts';
import { changeHash } from './change-hash.ts';
import { deletionByHand, handEditsOf } from './hand-edits.ts';
import { INDEX } from './key-index.ts';
import { keyOf, usageOf } from './key-names.ts';
import { scriptWithNotes, type Trail } from './trail.ts';

/** Keys that are read each time. */
const AT_ONCE = 50;

const USUAL = {
  everyMs: 1_000,
  /** A new or restored key has its place in the index before its data, for less than this. */
  withoutDataMs: 60_000,
};

const DELETED_BY_HAND = scriptWithNotes('deleted-by-hand');

type Read = (id: string) => Promise<Readonly<Record<string, string>> | undefined>;

/**
 * Tells the activity of what was edited in Redis by hand: records, secrets and bans of keys, and keys deleted there. Each
 * gateway reads a few keys a second, from a random one on, so more gateways find an edit sooner. It is accepted and told
 * in one step, and therefore told once.
 */
export class EditWatch {
  readonly #trail: Trail;
  readonly #read: Read;
  readonly #logger: Logger;
  readonly #times: typeof USUAL;
  readonly #stopped = new AbortController();
  /** When each listed key without data was first seen, by id: of the last round and of this one. */
  #missingBefore = new Map<string, number>();
  #missing = new Map<string, number>();
  #at: number | undefined;

  constructor(trail: Trail, read: Read, logger: Logger, times = USUAL) {
    this.#trail = trail;
    this.#read = read;
    this.#logger = logger;
    this.#times = times;
  }

  /** Ends after `stop`. Never throws: while Redis is away, nothing is found. */
  async run(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      await sleep(this.#times.everyMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (!signal.aborted) await this.#look().catch(() => undefined);
    }
  }

  stop(): void {
    this.#stopped.abort();
  }

  async #look(): Promise<void> {
    const { redis } = this.#trail;
    this.#at ??= Math.floor(Math.random() * (await redis.zcard(INDEX)));
    const ids = await redis.zrevrange(INDEX, this.#at, this.#at + AT_ONCE - 1);
    this.#at += AT_ONCE;
    await Promise.all(ids.map((id) => this.#lookAt(id)));
    if (ids.length < AT_ONCE) this.#beginAgain();
  }

  #beginAgain(): void {
    this.#at = 0;
    this.#missingBefore = this.#missing;
    this.#missing = new Map();
  }

  async #lookAt(id: string): Promise<void> {
    const hash = await this.#read(id);
    if (hash === undefined) return await this.#miss(id);
    const { entries, changes, expected } = handEditsOf(id, hash, Date.now() * 1_000);
    if (entries.length === 0) return;
    const notes = this.#trail.notesOf(entries);
    const accepted = await changeHash(this.#trail, keyOf(id), { expected, changes, notes, read: () => this.#read(id) });
    if (accepted !== undefined) this.#log(entries);
  }

  async #miss(id: string): Promise<void> {
    const since = this.#missing.get(id) ?? this.#missingBefore.get(id) ?? Date.now();
    this.#missing.set(id, since);
    if (Date.now() - since < this.#times.withoutDataMs) return;
    const entry = deletionByHand(id);
    const { reply } = await this.#trail.write(
      this.#trail.notesOf([entry]),
      (run) => run(DELETED_BY_HAND, [keyOf(id), usageOf(id)], []),
      async () => undefined,
    );
    if (reply !== undefined) this.#log([entry]);
  }

  /** As for every change, a line for each entry. */
  #log(entries: readonly Activity[]): void {
    for (const activity of entries) this.#logger.info({ activity }, 'activity');
  }
}
