import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Counter, Label } from '../../shared/process/counts.ts';
import type { Logger } from '../../shared/process/logger.ts';
import type { Keys as AllKeys } from '../stores/keys.ts';
import { dayOf, type Happening, type Message, messageOf, post, secretBytes } from './message.ts';

const MAX_WAITING = 1_000;
const AT_ONCE = 4;
const STOP_GRACE_MS = 1_000;
const STOPS = 'The gateway is stopping.';

/** Ten attempts, over about four minutes. */
const PATIENCE = { timeoutMs: 5_000, attempts: 10, firstRetryMs: 1_000, longestRetryMs: 64_000 };

const RESULTS = ['delivered', 'retried', 'given_up', 'dropped'] as const;

export interface WebhookOptions extends Partial<typeof PATIENCE> {
  /** Undefined disables webhooks. */
  readonly url: string | undefined;
  readonly secret: () => string | undefined;
}

type Keys = Pick<AllKeys, 'claim' | 'get'>;

interface Event {
  readonly happening: Happening;
  /** Each retry claims the event under this name, because an earlier claim that got no reply may be in force. */
  readonly claimant: string;
  message: Message | undefined;
  failed: number;
}

/**
 * Reports key events to a receiver. Events go to a queue of limited length, so that no request waits for a delivery. A
 * gateway claims each event in the store before sending it, so that only one gateway sends it, once per key and UTC
 * day.
 */
export class Webhooks {
  readonly #options: WebhookOptions & typeof PATIENCE;
  readonly #keys: Keys | Promise<Keys>;
  readonly #logger: Logger;
  readonly #counts = new Counter(
    {
      name: 'gateway_webhook_deliveries_total',
      help: 'Webhook events by outcome, and attempts that will be retried.',
    },
    new Label('result', RESULTS),
  );
  /** The unsettled events, each with the promise of its delivery. */
  readonly #events = new Map<Event, Promise<void>>();
  #sending = 0;
  readonly #line: (() => void)[] = [];
  readonly #stopping = new AbortController();
  readonly #stopped = new AbortController();

  /** @param keys the keys, or a promise that resolves once they can be reached */
  constructor(keys: Keys | Promise<Keys>, logger: Logger, options: WebhookOptions) {
    this.#options = { ...PATIENCE, ...options };
    this.#keys = keys;
    this.#logger = logger;
    for (const result of RESULTS) this.#counts.declare(result);
  }

  /** Adds the event to the queue and returns at once. */
  send(happening: Happening): void {
    if (this.#options.url === undefined) return;
    if (this.#stopping.signal.aborted || this.#events.size >= MAX_WAITING) {
      this.#count('dropped');
      return;
    }
    const event: Event = { happening, claimant: randomUUID(), message: undefined, failed: 0 };
    this.#events.set(event, this.#report(event));
  }

  counted = () => [this.#counts.family()];

  /** Sends the waiting events once more, for at most one second. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#events.size > 0) await Promise.race([Promise.all(this.#events.values()), sleep(STOP_GRACE_MS)]);
    this.#stopped.abort();
    for (const event of this.#events.keys()) this.#giveUp(event, STOPS);
    this.#events.clear();
  }

  /** Sends an event until it is delivered or counts as lost. Never rejects. */
  async #report(event: Event): Promise<void> {
    const { attempts, firstRetryMs, longestRetryMs } = this.#options;
    for (;;) {
      const fault = await this.#inTurn(() =>
        this.#deliver(event).then(
          () => undefined,
          (reason: Error) => reason,
        ),
      );
      if (this.#stopped.signal.aborted) return;
      if (fault === undefined) break;
      event.failed += 1;
      const isLast = event.failed >= attempts;
      if (isLast || this.#stopping.signal.aborted) {
        this.#giveUp(event, isLast ? fault.message : STOPS);
        break;
      }
      this.#count('retried');
      const restMs = Math.min(firstRetryMs * 2 ** (event.failed - 1), longestRetryMs);
      // With jitter, a receiver that has recovered does not get all messages at once.
      const jitter = 0.5 + Math.random() / 2;
      await sleep(restMs * jitter, undefined, { ref: false, signal: this.#stopping.signal }).catch(() => {});
    }
    this.#events.delete(event);
  }

  /** Lets a few attempts run concurrently. The others wait in line. */
  async #inTurn<T>(attempt: () => Promise<T>): Promise<T> {
    if (this.#sending < AT_ONCE) this.#sending += 1;
    else await new Promise<void>((resolve) => this.#line.push(resolve));
    try {
      return await attempt();
    } finally {
      const next = this.#line.shift();
      if (next === undefined) this.#sending -= 1;
      else next();
    }
  }

  /** @throws if the event must be sent again */
  async #deliver(event: Event): Promise<void> {
    event.message ??= await this.#claim(event);
    if (event.message === undefined) return;
    const { url = '', secret, timeoutMs } = this.#options;
    const signal = AbortSignal.any([this.#stopped.signal, AbortSignal.timeout(timeoutMs)]);
    await post(url, secretBytes(secret() ?? ''), event.message, signal);
    this.#count('delivered');
  }

  /** @returns undefined if another gateway sends the event, the key no longer exists, or the event did not happen */
  async #claim({ happening, claimant }: Event): Promise<Message | undefined> {
    const { keyId, event } = happening;
    const keys = await this.#keys;
    const entry = await keys.get(keyId);
    if (entry === undefined) this.#count('dropped');
    const message = entry && messageOf(happening, entry);
    return message && (await keys.claim(keyId, event, dayOf(happening), claimant)) ? message : undefined;
  }

  #giveUp({ happening: { keyId, event }, failed }: Event, reason: string): void {
    this.#count('given_up');
    this.#logger.error({ keyId, event: `key.${event}`, attempts: failed, reason }, 'webhook event lost');
  }

  #count(result: (typeof RESULTS)[number]): void {
    this.#counts.addMany(1, result);
  }
}
