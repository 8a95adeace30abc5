import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Counter, Label } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Keys as AllKeys } from '../stores/keys.ts';
import { dayOf, type Happening, type Message, messageOf, post, secretBytes } from './message.ts';

const MAX_WAITING = 1_000;
const AT_ONCE = 4;
const STOP_GRACE_MS = 1_000;

/** Ten attempts, over about four minutes. */
const PATIENCE = { timeoutMs: 5_000, attempts: 10, firstRetryMs: 1_000, longestRetryMs: 64_000 };

const RESULTS = ['delivered', 'retried', 'given_up', 'dropped'] as const;

export interface WebhookOptions extends Partial<typeof PATIENCE> {
  /** Undefined disables webhooks. */
  readonly url: string | undefined;
  readonly secret: () => string | undefined;
}

type Keys = Pick<AllKeys, 'claim' | 'get'>;

interface Pending {
  readonly happening: Happening;
  /** Each retry claims the event under this name, because a claim without an answer may be in force. */
  readonly claimant: string;
  message: Message | undefined;
  failed: number;
}

/**
 * Reports events of keys to a receiver. Events go to a queue of limited length, so that no request waits for a
 * delivery. A gateway claims each event in the store before sending it: one gateway sends it, once per key and UTC day.
 */
export class Webhooks {
  readonly #url: string;
  readonly #secret: () => string | undefined;
  readonly #patience: typeof PATIENCE;
  readonly #keys: Keys | Promise<Keys>;
  readonly #logger: Logger;
  readonly #result = new Label('result', RESULTS);
  readonly #counts = new Counter(
    {
      name: 'gateway_webhook_deliveries_total',
      help: 'Webhook events by what became of them, and attempts that come again.',
    },
    this.#result,
  );
  readonly #waiting: Pending[] = [];
  readonly #underWay = new Map<Pending, AbortController>();
  readonly #resting = new Map<Pending, NodeJS.Timeout>();
  #isStopping = false;
  #isStopped = false;
  #onIdle: () => void = () => {};

  /** @param keys the keys, or a promise that resolves once they can be reached */
  constructor(keys: Keys | Promise<Keys>, logger: Logger, { url, secret, ...patience }: WebhookOptions) {
    this.#url = url ?? '';
    this.#secret = secret;
    this.#patience = { ...PATIENCE, ...patience };
    this.#keys = keys;
    this.#logger = logger;
    for (const result of RESULTS) this.#counts.declare(result);
  }

  /** Adds the event to the queue and returns at once. */
  send(happening: Happening): void {
    if (this.#url === '') return;
    if (this.#isStopping || this.#size >= MAX_WAITING) {
      this.#count('dropped');
      return;
    }
    this.#waiting.push({ happening, claimant: randomUUID(), message: undefined, failed: 0 });
    this.#sendNext();
  }

  counted = () => [this.#counts.family()];

  /** Sends the waiting events once more, for at most one second. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    for (const [pending, timer] of this.#resting) {
      clearTimeout(timer);
      this.#waiting.push(pending);
    }
    this.#resting.clear();
    this.#sendNext();
    const { promise: idle, resolve } = Promise.withResolvers<void>();
    this.#onIdle = resolve;
    if (this.#waiting.length + this.#underWay.size > 0) await Promise.race([idle, sleep(STOP_GRACE_MS)]);
    this.#isStopped = true;
    for (const timer of this.#resting.values()) clearTimeout(timer);
    const lost = [...this.#resting.keys(), ...this.#waiting, ...this.#underWay.keys()];
    for (const attempt of this.#underWay.values()) attempt.abort();
    this.#waiting.length = 0;
    for (const pending of lost) this.#giveUp(pending, 'The gateway stops.');
  }

  get #size(): number {
    return this.#waiting.length + this.#underWay.size + this.#resting.size;
  }

  #sendNext(): void {
    while (this.#underWay.size < AT_ONCE) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      void this.#attempt(next);
    }
    if (this.#underWay.size === 0) this.#onIdle();
  }

  async #attempt(pending: Pending): Promise<void> {
    const attempt = new AbortController();
    this.#underWay.set(pending, attempt);
    try {
      await this.#deliver(pending, attempt);
    } catch (fault) {
      if (!this.#isStopped) this.#failed(pending, fault as Error);
    }
    this.#underWay.delete(pending);
    this.#sendNext();
  }

  /** @throws if the event must be sent again */
  async #deliver(pending: Pending, attempt: AbortController): Promise<void> {
    pending.message ??= await this.#claim(pending);
    if (pending.message === undefined) return;
    const timer = setTimeout(() => attempt.abort(), this.#patience.timeoutMs);
    const secret = secretBytes(this.#secret() ?? '');
    await post(this.#url, secret, pending.message, attempt.signal).finally(() => clearTimeout(timer));
    this.#count('delivered');
  }

  /** @returns undefined if another gateway sends the event, the key no longer exists, or the event did not take place */
  async #claim({ happening, claimant }: Pending): Promise<Message | undefined> {
    const { keyId, event } = happening;
    const keys = await this.#keys;
    const entry = await keys.get(keyId);
    if (entry === undefined) this.#count('dropped');
    const message = entry && messageOf(happening, entry);
    return message && (await keys.claim(keyId, event, dayOf(happening), claimant)) ? message : undefined;
  }

  #failed(pending: Pending, { message: reason }: Error): void {
    pending.failed += 1;
    if (pending.failed >= this.#patience.attempts) {
      this.#giveUp(pending, reason);
      return;
    }
    this.#count('retried');
    const timer = setTimeout(() => {
      this.#resting.delete(pending);
      this.#waiting.push(pending);
      this.#sendNext();
    }, this.#restMs(pending.failed)).unref();
    this.#resting.set(pending, timer);
  }

  #giveUp({ happening: { keyId, event }, failed }: Pending, reason: string): void {
    this.#count('given_up');
    this.#logger.error({ keyId, event: `key.${event}`, attempts: failed, reason }, 'webhook event given up');
  }

  /** The wait before a retry doubles, with jitter: a receiver that is back does not get all messages at once. */
  #restMs(failed: number): number {
    const { firstRetryMs, longestRetryMs } = this.#patience;
    return Math.min(firstRetryMs * 2 ** (failed - 1), longestRetryMs) * (0.5 + Math.random() / 2);
  }

  #count(result: (typeof RESULTS)[number]): void {
    this.#counts.add(this.#result.positionOf(result));
  }
}
