import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { pairsOf } from '../../../shared/lists.ts';
import { inRounds } from '../../../shared/process/in-rounds.ts';
import { repeat } from '../../../shared/process/repeat.ts';
import { isRunning } from '../../../shared/process/running.ts';
import type { StoreUnavailable } from '../../limiter/limiter.ts';
import { Unconfirmed } from '../storage.ts';
import { orUnavailable, type RedisConnection } from './calls.ts';
import { isCluster } from './connection.ts';

/** The gateways, scored by the time of their last poll for questions, in Unix seconds by the Redis clock. */
const GATEWAYS = 'gateway:gateways';
const questionsOf = (gateway: string): string => `gateway:questions:{${gateway}}`;
/** On a cluster, answers are on the node of the list of gateways, because a question needs that node anyway. */
const answersOf = (question: string): string => `gateway:answers:{${GATEWAYS}}{${question}}`;

const LOOK_EVERY_MS = 100;
/** How often a gateway records that it is polling. If it hangs, others show the last record as its sign of life. */
const LISTED_EVERY_MS = 1_000;
/** A gateway that has not polled for this long counts as stopped. A gateway that only hangs for a while does not. */
const FORGOTTEN_AFTER_SECONDS = 300;
/** A gateway that has polled within this time serves clients, so a change waits for its confirmation. */
const SERVES_FOR_SECONDS = 3;
/** Longer than a busy gateway needs, but not as long as it waits for a worker that hangs (primary/worker-process.ts). */
const CONFIRM_WITHIN_MS = 2_000;
/** After an outage of Redis, all gateways poll again within this time. */
const BACK_WITHIN_MS = 2_000;
const EXPIRES_SECONDS = 30;
const MOST_QUESTIONS = 16;
const ANSWER_EVERY_MS = 20;
const LIST_WITHIN_MS = 1_000;
/**
 * If Redis has not replied for this long, gateways may not have had time to answer, so silent ones do not count as
 * missing.
 */
const HUNG_MS = 500;

/** The name of a gateway for operators: its host and its process id. Containers can share both. */
const nameOf = (gateway: string): string => gateway.replace(/:\w+$/, '');
/** When a gateway started, in Unix seconds: the first eight digits of its id's last part. */
const startOf = (gateway: string): number => Number.parseInt(gateway.slice(-12, -4), 16);

const waited = (ms: number): Promise<undefined> => sleep(ms, undefined, { ref: false });

export type Peers = ReturnType<typeof peersOn>;

/** Answers another gateway's question. */
export type Answer = (content: unknown) => Promise<unknown>;

/**
 * The gateways on one Redis query each other. A gateway adds its question to the list of each other gateway, and they
 * add their answers to a list for that question. All lists expire.
 */
export function peersOn(redis: RedisConnection, answer: Answer) {
  /** This gateway's id; undefined until Redis has first replied, because the id contains the time by its clock. */
  let own: string | undefined;
  const stopped = new AbortController();
  let listedAt = Number.NEGATIVE_INFINITY;
  /** The time of the last listing by the Redis clock, the one before an outage, and when that outage ended. */
  const listing = { at: 0, before: 0, backAt: Number.NEGATIVE_INFINITY };
  let ended: Promise<void> = Promise.resolve();
  const replies = new Set<Promise<void>>();

  /**
   * Queries all other gateways. Never rejects, and returns in time even if Redis is down or hangs.
   * @param since leaves out gateways that have not polled since then, in Unix seconds
   * @returns the answers, and the gateways that did not answer. The latter are undefined if the gateways are unknown,
   *   or if Redis hung or refused commands during the query, so that their silence proves nothing (`areUnasked`).
   *   `unanswered` names those that could have answered as far as known; undefined if the gateways are unknown, and
   *   `cause` is the fault, if any. `refusal` is the last error of Redis or of the connection to it
   */
  async function ask(content: unknown, withinMs: number, since = 0) {
    const until = performance.now() + withinMs;
    const answers = new Map<string, unknown>();
    let [repliedAt, hungMs] = [performance.now(), 0];
    const noteReply = () => {
      const now = performance.now();
      [repliedAt, hungMs] = [now, Math.max(hungMs, now - repliedAt)];
    };
    let cause: Partial<StoreUnavailable> | undefined;
    const listed = await Promise.race([others(since), waited(LIST_WITHIN_MS)]).catch((fault) => {
      cause = fault;
      return undefined;
    });
    if (listed === undefined) return { answers: [], missing: undefined, cause };
    const asked = [...listed.keys()];
    noteReply();
    const id = randomBytes(12).toString('hex');
    const question = JSON.stringify({ id, content });
    /** Gateways to whose list nothing can be added: Redis refuses it, or the list's node of a cluster is down. */
    const unreachable = new Set(isCluster(redis) ? asked : []);
    const failed = new Set<string>();
    let refusal: string | undefined;
    const askOne = (gateway: string) =>
      put(questionsOf(gateway), question).then(
        () => unreachable.delete(gateway),
        ({ name, message }: Error) => {
          failed.add(gateway);
          if (name !== 'ReplyError') return;
          unreachable.add(gateway);
          refusal = message;
        },
      );
    const askAll = async (): Promise<undefined> => {
      const added = Promise.all(asked.map(askOne));
      // A node of a cluster that hangs must not delay the answers of the others.
      if (!isCluster(redis)) await added;
      while (answers.size + failed.size < asked.length && performance.now() < until) {
        noteReply();
        for (const text of await take(answersOf(id))) {
          const { gateway, answer } = JSON.parse(text) as { gateway: string; answer: unknown };
          answers.set(gateway, answer);
        }
        if (answers.size + failed.size < asked.length) await sleep(ANSWER_EVERY_MS);
      }
    };
    const late = waited(Math.max(0, until - performance.now()));
    const isCutOff = await Promise.race([askAll(), late]).catch(({ message }: Error) => {
      refusal = message;
      // No gateway can answer until the permissions are corrected.
      if (message.startsWith('NOPERM')) for (const gateway of asked) unreachable.add(gateway);
      return true;
    });
    noteReply();
    const silent = asked.filter((gateway) => !answers.has(gateway));
    const named = [...answers].map(([gateway, answer]) => ({ gateway: nameOf(gateway), answer }));
    const unanswered = silent.filter((gateway) => !unreachable.has(gateway)).map(nameOf);
    if (silent.length > 0 && (isCutOff || failed.size + unreachable.size > 0 || hungMs > HUNG_MS))
      return { answers: named, missing: undefined, areUnasked: true, unanswered, refusal };
    const gone = silent.filter((gateway) =>
      hasEnded(gateway, listed.get(gateway) ?? 0, [own ?? '', ...answers.keys()]),
    );
    if (gone.length > 0) void redis.zrem(GATEWAYS, ...gone).catch(() => undefined);
    const missing = silent.filter((gateway) => !gone.includes(gateway));
    return {
      answers: named,
      missing: missing.map((gateway) => ({
        gateway: nameOf(gateway),
        seenAt: new Date(listed.get(gateway) ?? 0).toISOString(),
      })),
      unanswered: missing.map(nameOf),
    };
  }

  /**
   * Whether a silent gateway has exited: its process on this host is gone, or one with its name started after its last
   * sign of life, as in a restarted container.
   */
  function hasEnded(gateway: string, seenAt: number, answered: readonly string[]): boolean {
    const [host = '', pid] = nameOf(gateway).split(/:(?=\d+$)/);
    const isReplaced = answered.some((one) => nameOf(one) === nameOf(gateway) && startOf(one) * 1_000 >= seenAt);
    return isReplaced || (host === hostname() && !isRunning(Number(pid)));
  }

  async function look(): Promise<void> {
    try {
      if (own === undefined || performance.now() - listedAt >= LISTED_EVERY_MS) {
        const at = await seconds();
        if (listing.at > 0 && at - listing.at > SERVES_FOR_SECONDS)
          Object.assign(listing, { before: listing.at, backAt: performance.now() });
        own ??= `${hostname()}:${process.pid}:${at.toString(16)}${randomBytes(2).toString('hex')}`;
        await redis.zadd(GATEWAYS, at, own);
        listedAt = performance.now();
        listing.at = at;
      }
      await answerAll(own);
    } catch {
      listedAt = Number.NEGATIVE_INFINITY;
    }
  }

  async function answerAll(gateway: string): Promise<void> {
    for (const text of await take(questionsOf(gateway))) {
      const replied: Promise<void> = reply(text).finally(() => replies.delete(replied));
      replies.add(replied);
    }
  }

  async function reply(text: string): Promise<void> {
    try {
      const { id, content } = JSON.parse(text) as { id: string; content: unknown };
      await put(answersOf(id), JSON.stringify({ gateway: own, answer: await answer(content) }));
    } catch {
      // The asking gateway reports this one as missing.
    }
  }

  /** The time of the last poll of each other gateway that has polled since a time, in Unix ms. */
  async function others(since: number): Promise<Map<string, number>> {
    const [listed, now] = await Promise.all([orUnavailable(redis.zrange(GATEWAYS, 0, '-1', 'WITHSCORES')), seconds()]);
    const seen = pairsOf(listed).map(([gateway, at]) => ({ gateway, at: Number(at) }));
    const gone = seen.filter(({ at }) => at < now - FORGOTTEN_AFTER_SECONDS).map(({ gateway }) => gateway);
    if (gone.length > 0) await redis.zrem(GATEWAYS, ...gone);
    const wanted = seen.filter(
      ({ gateway, at }) => gateway !== own && at >= Math.max(since, now - FORGOTTEN_AFTER_SECONDS),
    );
    return new Map(wanted.map(({ gateway, at }) => [gateway, at * 1_000]));
  }

  /**
   * Gateways that cannot be notified because Redis refuses it, or because a node of a cluster is down, learn of the
   * changes from the logs (primary/changes.ts).
   * @throws {Unconfirmed} if a gateway does not answer
   */
  async function sendChanges(changes: readonly unknown[]): Promise<void> {
    // While gateways return after an outage, their last polls are as old as it.
    const isBack = performance.now() - listing.backAt < BACK_WITHIN_MS;
    const since = (isBack ? listing.before : listing.at) - SERVES_FOR_SECONDS;
    const { unanswered, cause } = await ask(changes, CONFIRM_WITHIN_MS, since);
    if (unanswered === undefined && !isCluster(redis))
      throw new Unconfirmed('the other gateways have not confirmed it', cause?.shown);
    if (unanswered !== undefined && unanswered.length > 0)
      throw new Unconfirmed(`not all gateways have confirmed it (${unanswered.join(', ')})`);
  }

  const waiting: unknown[] = [];
  const sendWaiting = inRounds(() => sendChanges(waiting.splice(0)));

  /**
   * Notifies all gateways that serve clients of a change, and waits until they act on it. Changes that are made at the
   * same time share a notice.
   * @throws {Unconfirmed} if a gateway does not answer
   */
  function notify(change: unknown): Promise<void> {
    waiting.push(change);
    return sendWaiting();
  }

  /** The Redis clock, because those of gateways can differ by more than they may be silent. */
  const seconds = async (): Promise<number> => Number((await redis.time())[0]);

  async function put(list: string, text: string): Promise<void> {
    await redis.rpush(list, text);
    await redis.expire(list, EXPIRES_SECONDS);
  }

  const take = async (list: string): Promise<string[]> => (await redis.lpop(list, MOST_QUESTIONS)) ?? [];

  return {
    ask,
    notify,
    start(): void {
      ended = repeat(LOOK_EVERY_MS, stopped.signal, look);
    },
    /** Signs off, so that others do not wait for this gateway, and answers those that have already asked. */
    async stop(): Promise<void> {
      stopped.abort();
      await ended;
      if (own === undefined) return;
      await redis.zrem(GATEWAYS, own).catch(() => undefined);
      await answerAll(own).catch(() => undefined);
      await Promise.all(replies);
    },
  };
}
