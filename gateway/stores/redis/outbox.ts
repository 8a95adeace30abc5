import { z } from 'zod';
import type { LogEntry } from '../storage.ts';
import { readJson } from '../stored-json.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { markOf, OUTBOXES, outboxOf } from './names.ts';
import { LATEST_SECONDS, type Step, type StepEntry } from './step.ts';

/**
 * Entries on a cluster, where a stream is in another slot than the change. A change is first announced in a set. It
 * writes its entries to a list beside its record in the same step, and then they are moved. So wherever a gateway
 * stops, others find its entries, and can remove the place of a key that it did not issue.
 */

/** The age of an announcement, in milliseconds, at which its gateway has left it behind. */
const LEFT_BEHIND_MS = 5_000;

/** The id of an entry marks it as moved, so that it is not added twice. */
const Waiting = z.object({
  id: z.string(),
  log: z.enum(['audit', 'plan history']),
  fields: z.record(z.string(), z.string()),
});

/** Adds an entry to its stream, unless it was added under this id before. */
type Move = (entry: LogEntry, id: string) => Promise<unknown>;

export type Announced = Pick<Step, 'tag' | 'id'>;

const announcement = ({ tag, id }: Announced): string => `${id} ${tag}`;

export const outboxEntries = (entries: readonly LogEntry[], { tag, id }: Announced): StepEntry[] =>
  entries.map(({ log, fields }, at) => ({
    name: outboxOf(tag),
    text: JSON.stringify({ id: `${id}.${at}`, log, fields } satisfies z.infer<typeof Waiting>),
  }));

export class Outboxes {
  readonly #redis: RedisConnection;
  readonly #move: Move;
  readonly #forget: (tag: string) => Promise<void>;
  readonly #leftBehindMs: number;
  /** When this gateway first saw each announcement, by its own clock. */
  #seen = new Map<string, number>();

  /** @param forget removes the place of a key that was to be issued, if there is no such key */
  constructor(
    redis: RedisConnection,
    move: Move,
    forget: (tag: string) => Promise<void>,
    leftBehindMs = LEFT_BEHIND_MS,
  ) {
    this.#redis = redis;
    this.#move = move;
    this.#forget = forget;
    this.#leftBehindMs = leftBehindMs;
  }

  async announce(change: Announced): Promise<void> {
    await orUnavailable(this.#redis.sadd(OUTBOXES, announcement(change)));
  }

  /** Moves the entries of a change that was made or will never be made. */
  async empty(change: Announced, move = this.#move): Promise<void> {
    const outbox = outboxOf(change.tag);
    for (const text of await orUnavailable(this.#redis.lrange(outbox, 0, -1))) {
      // A text put there by hand is no entry.
      const entry = readJson(Waiting, text);
      if (entry !== undefined) await move({ log: entry.log, fields: entry.fields }, entry.id);
      await orUnavailable(this.#redis.lrem(outbox, 1, text));
    }
    await orUnavailable(this.#redis.srem(OUTBOXES, announcement(change)));
  }

  /** Moves the entries of gateways that have ended. */
  async emptyLeftBehind(): Promise<void> {
    const announced = await orUnavailable(this.#redis.smembers(OUTBOXES));
    const now = performance.now();
    this.#seen = new Map(announced.map((text) => [text, this.#seen.get(text) ?? now]));
    for (const [text, since] of this.#seen) {
      // The next outbox may be on another node, so a failure does not stop the loop.
      if (now - since >= this.#leftBehindMs) await this.#takeOver(text).catch(() => undefined);
    }
  }

  /** Calls the change off unless it was made: it must not be made after its announcement is gone. */
  async #takeOver(text: string): Promise<void> {
    const [id = '', tag] = text.split(' ');
    if (tag === undefined) return void (await orUnavailable(this.#redis.srem(OUTBOXES, text)));
    await orUnavailable(this.#redis.set(markOf(tag, id), 'called off', 'EX', LATEST_SECONDS, 'NX'));
    await this.#forget(tag);
    await this.empty({ tag, id });
  }
}
