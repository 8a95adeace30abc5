import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { pairsOf } from '../../../shared/lists.ts';
import { repeat } from '../../../shared/process/repeat.ts';
import { isRunning } from '../../../shared/process/running.ts';
import type { RedisConnection } from './calls.ts';

/**
 * The gateways on one Redis query each other. A gateway adds its question to the list of each other gateway, and they
 * add their answers to a list for that question. All lists expire.
 */

/** The gateways, scored by the time of their last poll for questions, in Unix seconds. */
const GATEWAYS = 'gateway:gateways';
const questionsOf = (gateway: string): string => `gateway:questions:{${gateway}}`;
const answersOf = (question: string): string => `gateway:answers:{${question}}`;

const LOOK_EVERY_MS = 250;
const LISTED_EVERY_MS = 5_000;
/** A gateway that has not polled for this long counts as stopped. One that hangs must not be forgotten sooner. */
const FORGOTTEN_AFTER_SECONDS = 300;
const EXPIRES_SECONDS = 30;
const MOST_QUESTIONS = 16;
const ANSWER_EVERY_MS = 20;
const LIST_WITHIN_MS = 1_000;

/** How operators see a gateway: its host and its process. */
const nameOf = (gateway: string): string => gateway.replace(/:\w+$/, '');

const namedAnswers = (answers: ReadonlyMap<string, unknown>) =>
  [...answers].map(([gateway, answer]) => ({ gateway: nameOf(gateway), answer }));

const waited = (ms: number): Promise<undefined> => sleep(ms, undefined, { ref: false });

export class Peers {
  readonly #redis: RedisConnection;
  readonly #answer: (content: unknown) => Promise<unknown>;
  readonly #own = `${hostname()}:${process.pid}:${randomBytes(4).toString('hex')}`;
  readonly #stopped = new AbortController();
  #listedAt = Number.NEGATIVE_INFINITY;
  #ended: Promise<void> = Promise.resolve();

  /** @param answer answers the question of another gateway */
  constructor(redis: RedisConnection, answer: (content: unknown) => Promise<unknown>) {
    this.#redis = redis;
    this.#answer = answer;
  }

  start(): void {
    this.#ended = repeat(LOOK_EVERY_MS, this.#stopped.signal, () => this.#look());
  }

  /**
   * Queries all other gateways. Never rejects, and returns in time even if Redis is away or hangs.
   * @returns the answers, and the gateways without one (undefined if the gateways are unknown)
   */
  async ask(content: unknown, withinMs: number) {
    const until = performance.now() + withinMs;
    const answers = new Map<string, unknown>();
    const listed = await Promise.race([this.#others(), waited(LIST_WITHIN_MS)]).catch(() => undefined);
    if (listed === undefined) return { answers: [], missing: undefined };
    const asked = [...listed.keys()];
    const isAsked = await Promise.race([
      this.#collectAnswers(asked, content, answers, until).catch(() => false),
      waited(Math.max(0, until - performance.now())),
    ]);
    // Redis may answer, but refuse what is written. That says nothing about the other gateways.
    if (isAsked === false) return { answers: namedAnswers(answers), missing: undefined };
    const silent = asked.filter((gateway) => !answers.has(gateway));
    const ended = this.#endedOf(silent, [this.#own, ...answers.keys()]);
    return {
      answers: namedAnswers(answers),
      missing: silent
        .filter((gateway) => !ended.includes(gateway))
        .map((gateway) => ({ gateway: nameOf(gateway), seenAt: new Date(listed.get(gateway) ?? 0).toISOString() })),
    };
  }

  /** Removes silent gateways whose process has ended: it ran on this host, or another gateway now has its name. */
  #endedOf(silent: readonly string[], answered: readonly string[]): readonly string[] {
    const names = answered.map(nameOf);
    const ended = silent.filter((gateway) => {
      const [name = '', host, pid] = /^(.*):(\d+)(?=:)/.exec(gateway) ?? [];
      return names.includes(name) || (host === hostname() && !isRunning(Number(pid)));
    });
    if (ended.length > 0) void this.#redis.zrem(GATEWAYS, ...ended).catch(() => undefined);
    return ended;
  }

  /** Collects the answers. Rejects if Redis refuses a command or is away. */
  async #collectAnswers(
    asked: readonly string[],
    content: unknown,
    answers: Map<string, unknown>,
    until: number,
  ): Promise<void> {
    const id = randomBytes(12).toString('hex');
    const question = JSON.stringify({ id, content });
    await Promise.all(asked.map((gateway) => this.#put(questionsOf(gateway), question)));
    while (answers.size < asked.length && performance.now() < until) {
      for (const text of await this.#take(answersOf(id))) {
        const { gateway, answer } = JSON.parse(text) as { gateway: string; answer: unknown };
        answers.set(gateway, answer);
      }
      if (answers.size < asked.length) await sleep(ANSWER_EVERY_MS);
    }
  }

  /** Signs off, so that others do not wait for this gateway. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#ended;
    await this.#redis.zrem(GATEWAYS, this.#own).catch(() => undefined);
  }

  async #look(): Promise<void> {
    try {
      if (performance.now() - this.#listedAt >= LISTED_EVERY_MS) {
        await this.#redis.zadd(GATEWAYS, Math.floor(Date.now() / 1_000), this.#own);
        this.#listedAt = performance.now();
      }
      for (const text of await this.#take(questionsOf(this.#own))) void this.#reply(text);
    } catch {
      this.#listedAt = Number.NEGATIVE_INFINITY;
    }
  }

  async #reply(text: string): Promise<void> {
    try {
      const { id, content } = JSON.parse(text) as { id: string; content: unknown };
      const answer = await this.#answer(content);
      await this.#put(answersOf(id), JSON.stringify({ gateway: this.#own, answer }));
    } catch {
      // The asking gateway reports this one as missing.
    }
  }

  /** The time of each other gateway's last poll, in Unix ms. */
  async #others(): Promise<Map<string, number>> {
    const seen = new Map(pairsOf(await this.#redis.zrange(GATEWAYS, 0, '-1', 'WITHSCORES')));
    const oldest = Date.now() / 1_000 - FORGOTTEN_AFTER_SECONDS;
    const gone = [...seen.keys()].filter((gateway) => Number(seen.get(gateway)) < oldest);
    if (gone.length > 0) await this.#redis.zrem(GATEWAYS, ...gone);
    for (const gateway of [this.#own, ...gone]) seen.delete(gateway);
    return new Map([...seen].map(([gateway, at]) => [gateway, Number(at) * 1_000]));
  }

  async #put(list: string, text: string): Promise<void> {
    await this.#redis.rpush(list, text);
    await this.#redis.expire(list, EXPIRES_SECONDS);
  }

  async #take(list: string): Promise<string[]> {
    return (await this.#redis.lpop(list, MOST_QUESTIONS)) ?? [];
  }
}
