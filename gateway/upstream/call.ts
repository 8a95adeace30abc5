import type { ServerResponse } from 'node:http';
import { unavailable } from '../../shared/http/errors.ts';
import { type Answer, sendAnswer } from './answer.ts';
import { Attempt, type Attempted } from './attempt.ts';
import { type Core, setReady } from './core.ts';
import type { Cores } from './cores.ts';
import {
  AnswerTooLarge,
  ClientGone,
  CoreRefusedUs,
  CoreTooSlow,
  faultKind,
  isConnectionFault,
  neverArrived,
  upstreamFault,
} from './faults.ts';
import { type Lane, STALLED_AFTER_MS } from './lane.ts';
import type { RecentClients } from './recent.ts';
import { Relay } from './relay.ts';
import { isRepeatable, type UpstreamRequest } from './request-head.ts';
import { type AnsweredSocket, streamAnswer } from './streamed-answer.ts';
import { requestIdOf } from './upstream-headers.ts';

/** A read is sent again once, a write never. Cores that cannot be reached do not count. */
const MAX_ATTEMPTS = { read: 2, write: 1 };

const NONE: readonly never[] = [];

/** A forwarded request and the destination of its answer. */
export interface Forwarding {
  readonly request: UpstreamRequest;
  readonly response: ServerResponse;
  readonly extraHeaders: readonly string[];
  /** When it arrived here, as of performance.now(). */
  readonly askedAt: number;
  /** The deadline of all attempts together, as of performance.now(). */
  readonly deadline: number;
}

/** What all calls have in common. */
export interface CallContext {
  readonly cores: Cores;
  /** Their reads blocked others. They share other connections. */
  readonly slowClients: RecentClients;
  /** Their answers were too large to be taken whole. They share no connection. */
  readonly largeClients: RecentClients;
  readonly timeoutMs: number;
  /** Called when the call has ended. */
  remove(call: Call): void;
}

/** One request to the cores. */
export class Call implements Attempted {
  readonly forwarding: Forwarding;
  /** @throws {HttpError} */
  readonly done: Promise<void>;
  /** Its index in the list of running calls. */
  place: number;
  readonly #context: CallContext;
  readonly #isRead: boolean;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  #unreachable: readonly Core[] = NONE;
  #attempts: readonly Attempt[] = NONE;
  #count = 0;

  constructor(context: CallContext, forwarding: Forwarding, place: number) {
    this.#context = context;
    this.place = place;
    this.forwarding = forwarding;
    this.#isRead = isRepeatable(forwarding.request);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get hasAttemptsLeft(): boolean {
    return this.#count < MAX_ATTEMPTS[this.#isRead ? 'read' : 'write'];
  }

  /** Whether the client has left. */
  get isAbandoned(): boolean {
    return this.forwarding.response.destroyed;
  }

  /** The first attempt; pipelined if possible. */
  ask(core: Core): void {
    const { request, askedAt } = this.forwarding;
    const attempt = this.#begin(core, askedAt);
    if (attempt === undefined) return;
    try {
      const mayShare = core.echoes && !this.#context.largeClients.has(request.client, askedAt);
      const lane = this.#laneOf(core, askedAt);
      const isShared = this.#isRead && mayShare && lane.ask(attempt, askedAt);
      if (isShared) attempt.lane = lane;
      else attempt.askAlone();
    } catch (fault) {
      attempt.failed(fault);
    }
  }

  /** Sends a hedged request: another attempt beside the slow one. The first answer wins. */
  hedge(core: Core, now: number): void {
    const lane = this.#laneOf(core, now);
    if (!lane.takeHedge()) return;
    const [late] = this.#attempts;
    if (late !== undefined) late.core.counts.hedged();
    this.#askAlone(core, now, lane);
  }

  checkDeadlines(now: number, silentAfterMs: number): void {
    if (this.isAbandoned) this.#fail(new ClientGone());
    else if (this.forwarding.deadline <= now) this.#giveUp(now);
    else if (now - this.forwarding.askedAt >= silentAfterMs && this.hasAttemptsLeft) {
      const [attempt] = this.#attempts;
      const other = attempt && this.#context.cores.other(attempt.core);
      if (attempt === undefined || other === undefined || !attempt.isSent) return;
      attempt.core.isSilent = attempt.core.newestAnswered < attempt.askedAt;
      this.hedge(other, now);
    }
  }

  answered(attempt: Attempt, answer: Answer, now: number): void {
    const { response, extraHeaders } = this.forwarding;
    const { core } = attempt;
    this.#began(attempt, now);
    if (attempt.lane !== undefined) attempt.lane.answered();
    else core.echoes = requestIdOf(answer.headers) === attempt.id;
    if (CoreRefusedUs.saysSo(answer.status)) {
      const fault = new CoreRefusedUs(answer.status);
      core.counts.failed(faultKind(fault));
      this.#fail(fault);
    } else if (this.isAbandoned) this.#fail(new ClientGone());
    else {
      this.#end();
      sendAnswer(answer, response, extraHeaders);
      this.#resolve();
    }
  }

  /** Sends an answer that is too large to be taken whole while it arrives. */
  streamed(attempt: Attempt, socket: AnsweredSocket): void {
    const { core, client } = attempt;
    this.#context.largeClients.add(client, performance.now());
    this.#end();
    const relay = new Relay({
      ...this.forwarding,
      id: attempt.id,
      onBegin: (echoes) => {
        this.#began(attempt, performance.now());
        core.echoes = echoes;
      },
      release: () => attempt.released(),
    });
    relay.done.then(this.#resolve, (fault: unknown) => {
      core.counts.failed(faultKind(fault));
      this.#reject(upstreamFault(fault));
    });
    streamAnswer(socket, relay, this.forwarding.request, this.#context.timeoutMs);
  }

  /** The core has begun to answer. */
  #began(attempt: Attempt, now: number): void {
    const { core, createdAt, askedAt, hedgeLane } = attempt;
    core.limit.learn(createdAt, now);
    core.newestAnswered = Math.max(core.newestAnswered, askedAt);
    core.isSilent = false;
    core.counts.answered(now - createdAt);
    this.#context.cores.noteAnswer(core, now - createdAt);
    if (now - askedAt < STALLED_AFTER_MS) hedgeLane?.refund();
  }

  failed(attempt: Attempt, fault: unknown): void {
    const { core } = attempt;
    core.counts.failed(faultKind(fault));
    this.#attempts = this.#attempts.filter((one) => one !== attempt);
    if (fault instanceof AnswerTooLarge) this.#askForLarge();
    else if (this.#attempts.length > 0) return;
    else if (this.isAbandoned) this.#fail(new ClientGone());
    else if (!this.#tryElsewhere(core, fault)) this.#fail(fault);
  }

  /** On a connection of its own, where the answer can be streamed. */
  #askForLarge(): void {
    const now = performance.now();
    this.#context.largeClients.add(this.forwarding.request.client, now);
    this.#cancelAll();
    this.#askAlone(this.#context.cores.next(), now);
  }

  #tryElsewhere(core: Core, fault: unknown): boolean {
    const { cores } = this.#context;
    if (neverArrived(fault)) {
      setReady(core, false, (fault as Error).message);
      this.#unreachable = [...this.#unreachable, core];
      if (cores.areAll(this.#unreachable)) return false;
      this.#count -= 1;
    } else if (!this.hasAttemptsLeft || !isConnectionFault(fault)) return false;
    this.#askAlone(cores.next(this.#unreachable.length > 0 ? this.#unreachable : [core]), performance.now());
    return true;
  }

  #askAlone(core: Core, now: number, hedgeLane?: Lane): void {
    const attempt = this.#begin(core, now);
    if (attempt === undefined) return;
    attempt.hedgeLane = hedgeLane;
    attempt.askAlone();
  }

  /** Undefined if the core is full. */
  #begin(core: Core, now: number): Attempt | undefined {
    if (core.limit.isFull) {
      const fault = unavailable('The queue for connections to a core is full.');
      core.counts.failed(faultKind(fault));
      if (this.#attempts.length === 0) this.#fail(fault);
      return undefined;
    }
    const attempt = new Attempt(this, core, now);
    this.#attempts = this.#attempts.length === 0 ? [attempt] : [...this.#attempts, attempt];
    this.#count += 1;
    return attempt;
  }

  #giveUp(now: number): void {
    for (const attempt of this.#attempts) attempt.timedOut(now);
    this.#fail(new CoreTooSlow());
  }

  #fail(fault: unknown): void {
    this.#end();
    this.#reject(upstreamFault(fault));
  }

  #end(): void {
    this.#context.remove(this);
    this.#cancelAll();
  }

  #cancelAll(): void {
    const attempts = this.#attempts;
    this.#attempts = NONE;
    for (const attempt of attempts) attempt.cancel();
  }

  #laneOf(core: Core, now: number): Lane {
    return this.#context.slowClients.has(this.forwarding.request.client, now) ? core.slowLane : core.quickLane;
  }
}
