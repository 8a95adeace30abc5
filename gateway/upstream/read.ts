import { unavailable } from '../../shared/errors.ts';
import { type Answer, sendAnswer } from './answer.ts';
import type { Core } from './cores.ts';
import {
  AnswerTooLarge,
  ClientGone,
  CoreRefusedUs,
  CoreTooSlow,
  faultKind,
  isConnectionFault,
  neverArrived,
} from './faults.ts';
import type { Forwarding } from './forward.ts';
import { requestIdOf } from './headers.ts';
import { type Lane, STALLED_AFTER_MS } from './lane.ts';
import { Attempt } from './read-attempt.ts';
import type { Reads } from './reads.ts';

/** First attempt and second. Cores that cannot be reached do not count. */
const MAX_ATTEMPTS = 2;

const NONE: readonly never[] = [];

/** One read on its way. */
export class Read {
  readonly forwarding: Forwarding;
  readonly done: Promise<void>;
  /** In the list of those under way. */
  place: number;
  readonly #reads: Reads;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  #unreachable: readonly Core[] = NONE;
  #attempts: readonly Attempt[] = NONE;
  #count = 0;

  constructor(reads: Reads, forwarding: Forwarding, place: number) {
    this.#reads = reads;
    this.place = place;
    this.forwarding = forwarding;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get mayAskAgain(): boolean {
    return this.#count < MAX_ATTEMPTS;
  }

  /** First attempt: where it can be pipelined, it is. */
  ask(core: Core): void {
    const { request, askedAt } = this.forwarding;
    const attempt = this.#begin(core, askedAt);
    if (attempt === undefined) return;
    try {
      const isNew = !request.hasGivenId || !core.givenIds.note(request.id);
      const lane = this.#laneOf(core, askedAt);
      if (core.echoes && isNew && lane.ask(attempt, askedAt)) attempt.lane = lane;
      else attempt.askAlone(!isNew);
    } catch (fault) {
      attempt.failed(fault);
    }
  }

  /** Another attempt beside the one that takes its time. The first answer wins. */
  askAgain(core: Core, now: number): void {
    const lane = this.#laneOf(core, now);
    if (!lane.mayAskAgain()) return;
    const [late] = this.#attempts;
    if (late !== undefined) this.#reads.counts.askedAgain(late.core.origin);
    this.#askAlone(core, now, lane);
  }

  look(now: number, silentAfterMs: number): void {
    if (this.forwarding.response.destroyed) this.#fail(new ClientGone());
    else if (this.forwarding.deadline <= now) this.#giveUp(now);
    else if (now - this.forwarding.askedAt >= silentAfterMs && this.mayAskAgain) {
      const [attempt] = this.#attempts;
      const other = attempt && this.#reads.cores.other(attempt.core);
      if (attempt === undefined || other === undefined) return;
      attempt.core.isSilent = attempt.core.newestAnswered < attempt.askedAt;
      this.askAgain(other, now);
    }
  }

  answered(attempt: Attempt, answer: Answer, now: number): void {
    const { response, extraHeaders } = this.forwarding;
    const { core } = attempt;
    core.limit.learn(attempt.createdAt, now);
    core.newestAnswered = Math.max(core.newestAnswered, attempt.askedAt);
    core.isSilent = false;
    this.#reads.counts.answered(core.origin, now - attempt.createdAt);
    this.#reads.cores.answers(core);
    if (attempt.lane !== undefined) attempt.lane.answered();
    else core.echoes = requestIdOf(answer.headers) === this.forwarding.request.id;
    if (now - attempt.askedAt < STALLED_AFTER_MS) attempt.paidBy?.refund();
    if (CoreRefusedUs.saysSo(answer.status)) {
      this.#countFault(core, new CoreRefusedUs(answer.status));
      this.#fail(new CoreRefusedUs(answer.status));
    } else if (response.destroyed) this.#fail(new ClientGone());
    else {
      this.#end();
      sendAnswer(answer, response, extraHeaders);
      this.#resolve();
    }
  }

  failed(attempt: Attempt, fault: unknown): void {
    const { core } = attempt;
    this.#countFault(core, fault);
    this.#attempts = this.#attempts.filter((one) => one !== attempt);
    if (fault instanceof AnswerTooLarge) this.#fail(fault);
    else if (this.#attempts.length > 0) return;
    else if (this.forwarding.response.destroyed) this.#fail(new ClientGone());
    else if (!this.#tryElsewhere(core, fault)) this.#fail(fault);
  }

  #tryElsewhere(core: Core, fault: unknown): boolean {
    const { cores } = this.#reads;
    if (neverArrived(fault)) {
      core.ready = false;
      this.#unreachable = [...this.#unreachable, core];
      if (this.#unreachable.length === cores.all.length) return false;
      this.#count -= 1;
    }
    if (!this.mayAskAgain || !isConnectionFault(fault)) return false;
    this.#askAlone(cores.next(this.#unreachable.length > 0 ? this.#unreachable : [core]), performance.now());
    return true;
  }

  #askAlone(core: Core, now: number, paidBy?: Lane): void {
    const attempt = this.#begin(core, now);
    if (attempt === undefined) return;
    attempt.paidBy = paidBy;
    const { hasGivenId, id } = this.forwarding.request;
    attempt.askAlone(hasGivenId && core.givenIds.note(id));
  }

  /** Undefined where the core is full. */
  #begin(core: Core, now: number): Attempt | undefined {
    if (core.limit.isFull) {
      const fault = unavailable('The queue for connections to a core is full.');
      this.#countFault(core, fault);
      if (this.#attempts.length === 0) this.#fail(fault);
      return undefined;
    }
    const attempt = new Attempt(this, core, now);
    this.#attempts = this.#attempts.length === 0 ? [attempt] : [...this.#attempts, attempt];
    this.#count += 1;
    return attempt;
  }

  #giveUp(now: number): void {
    for (const { core, createdAt } of this.#attempts) {
      core.limit.learn(createdAt, now);
      this.#reads.counts.answered(core.origin, now - createdAt);
      this.#countFault(core, new CoreTooSlow());
    }
    this.#fail(new CoreTooSlow());
  }

  #fail(fault: unknown): void {
    this.#end();
    this.#reject(fault);
  }

  #end(): void {
    this.#reads.over(this);
    const attempts = this.#attempts;
    this.#attempts = NONE;
    for (const attempt of attempts) attempt.cancel();
  }

  #countFault(core: Core, fault: unknown): void {
    this.#reads.counts.failed(core.origin, faultKind(fault));
  }

  #laneOf(core: Core, now: number): Lane {
    return this.#reads.slowClients.has(this.forwarding.request.client, now) ? core.slowLane : core.quickLane;
  }
}
