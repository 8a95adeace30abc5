import { unavailable } from '../../shared/errors.ts';
import { type Answer, sendAnswer } from './answer.ts';
import type { CoreCounts } from './core-counts.ts';
import type { Core, Cores } from './cores.ts';
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
import type { PipelinedConnection } from './pipelined-connection.ts';
import { Attempt } from './read-attempt.ts';
import { SlowClients } from './slow-clients.ts';

/** Reads with small answers: pipelined, asked again where another connection or core does better, the first answer wins. */

const LOOK_EVERY_MS = 20;
/** An answer to a request asked so much later proves that the core is well, and the one in front slow. */
const OVERTAKEN_BY_MS = 20;
/** Asked again without such a proof, to find out. */
const PROBES = 4;
const PROBE_AGAIN_AFTER_MS = 500;
/** Part of the time limit after which a silent core's reads are asked of another. */
const SILENT_AFTER = 0.1;
/** First attempt and second. Cores that cannot be reached do not count. */
const MAX_ATTEMPTS = 2;

export class Reads {
  readonly cores: Cores;
  readonly counts: CoreCounts;
  readonly slowClients = new SlowClients();
  readonly #silentAfterMs: number;
  /** A list: V8 lets what was in a Set that requests come into and go out of grow old. */
  readonly #underWay: Read[] = [];
  readonly #probes = new Map<Lane, { left: number; until: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(cores: Cores, counts: CoreCounts, timeoutMs: number) {
    this.cores = cores;
    this.counts = counts;
    this.#silentAfterMs = timeoutMs * SILENT_AFTER;
  }

  /**
   * Ends when the answer has been handed over.
   * @throws {AnswerTooLarge} for an answer that is to be streamed
   * @throws the last attempt's fault
   */
  forward(forwarding: Forwarding): Promise<void> {
    const read = new Read(this, forwarding, this.#underWay.length);
    this.#underWay.push(read);
    this.#timer ??= setInterval(() => setImmediate(() => this.#look()), LOOK_EVERY_MS).unref();
    read.ask(this.cores.next());
    return read.done;
  }

  /** The last one takes its place. */
  over(read: Read): void {
    if (read.place === OVER) return;
    const last = this.#underWay.pop() as Read;
    this.#underWay[read.place] = last;
    last.place = read.place;
    if (last === read) this.#underWay.pop();
    read.place = OVER;
  }

  /** Called after the poll phase: an answer that waits in a socket while our own process stands still is no late one. */
  #look(): void {
    const now = performance.now();
    for (const read of [...this.#underWay]) read.look(now, this.#silentAfterMs);
    for (const core of this.cores.all)
      for (const lane of [core.quickLane, core.slowLane])
        for (const connection of lane.connections) {
          connection.endUnwanted();
          if (connection.stalledMs(now) >= STALLED_AFTER_MS) this.#unblock(core, lane, connection, now);
        }
    if (this.#underWay.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Asks again what waits behind a slow answer. */
  #unblock(core: Core, lane: Lane, connection: PipelinedConnection, now: number): void {
    const front = connection.front as Attempt | undefined;
    const isProven = front === undefined || core.newestAnswered > front.askedAt + OVERTAKEN_BY_MS;
    if (front !== undefined && isProven) this.slowClients.add(front.client, now);
    const probed = new Set<string>();
    for (const attempt of connection.blocked as Attempt[]) {
      if (!attempt.isWanted || !attempt.read.mayAskAgain) continue;
      if (!isProven && (probed.has(attempt.client) || !this.#mayProbe(lane, now))) continue;
      probed.add(attempt.client);
      attempt.read.askAgain(this.cores.other(core) ?? core, now);
    }
  }

  #mayProbe(lane: Lane, now: number): boolean {
    let probes = this.#probes.get(lane);
    if (probes === undefined || probes.until <= now) {
      probes = { left: PROBES, until: now + PROBE_AGAIN_AFTER_MS };
      this.#probes.set(lane, probes);
    }
    probes.left -= 1;
    return probes.left >= 0;
  }
}

const NONE: readonly never[] = [];
/** The place of a read that is not under way any more. */
const OVER = -1;

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
    if (lane.mayAskAgain()) this.#askAlone(core, now, lane);
  }

  look(now: number, silentAfterMs: number): void {
    if (this.forwarding.response.destroyed) this.#fail(new ClientGone());
    else if (this.forwarding.deadline <= now) this.#giveUp(now);
    else if (now - this.forwarding.askedAt >= silentAfterMs && this.mayAskAgain) {
      const other = this.#attempts[0] && this.#reads.cores.other(this.#attempts[0].core);
      if (other !== undefined) this.askAgain(other, now);
    }
  }

  answered(attempt: Attempt, answer: Answer, now: number): void {
    const { response, extraHeaders } = this.forwarding;
    const { core } = attempt;
    core.limit.learn(attempt.createdAt, now);
    core.newestAnswered = Math.max(core.newestAnswered, attempt.askedAt);
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
