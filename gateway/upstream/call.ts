import type { ServerResponse } from 'node:http';
import type { FairShare } from '../../shared/fair-share.ts';
import { unavailable } from '../../shared/http/errors.ts';
import { type Answer, type AnswerHead, AnswerTooLarge, type Destination, type Done, sendAnswer } from './answer.ts';
import { type Core, type CoreChoice, LARGE_NOTED_MS } from './core.ts';
import {
  ClientGone,
  CoreTooSlow,
  faultIn,
  faultKind,
  isOfConnection,
  NotConnected,
  upstreamFault,
  WrongAnswer,
} from './faults.ts';
import { attemptIdOf, isRepeatable, pathOf, responseHeaders, type UpstreamRequest } from './headers.ts';
import type { HandshakeWire } from './tunnel.ts';
import type { PendingRequest, Wire } from './wire.ts';

/** A read may be sent twice, a write only once. Attempts to reach an unreachable core do not count. */
const MAX_ATTEMPTS = { read: 2, write: 1 };

const NONE: readonly never[] = [];

export interface CallContext {
  readonly cores: CoreChoice;
  readonly timeoutMs: number;
  remove(call: Call): void;
}

/**
 * One request to the cores. At any time it is on one wire or waits for one. Once it is sent again elsewhere, the
 * response to its first attempt is dropped.
 */
export class Call implements PendingRequest {
  readonly request: UpstreamRequest;
  /** Its index in the list of running calls. */
  place: number;
  /** The X-Request-Id of the current attempt. */
  id = '';
  /** When the current attempt was handed to a wire. */
  sentAt = 0;
  isWanted = true;
  isAlone = false;
  readonly #context: CallContext;
  readonly #destination: Destination;
  readonly #response: ServerResponse;
  readonly #extraHeaders: readonly string[];
  readonly #done: Done;
  readonly #kind: 'read' | 'write';
  readonly #arrivedAt = performance.now();
  /** When the current attempt began; it may have waited for a wire afterwards. */
  #begunAt = 0;
  /** The core of the current attempt; undefined if there is none. */
  #core: Core | undefined;
  #wire: Wire | HandshakeWire | undefined;
  /** The places of which this request takes one, or waits for one, while it is alone. */
  #places: FairShare | undefined;
  #unreachable: readonly Core[] = NONE;
  /** The head of the response being streamed, and when its next piece became due. */
  #streamed: AnswerHead | undefined;
  #readSince = 0;
  #attempts = 0;
  /** Whether this request tests a silent core. Such tests are rare, so resending one is not charged to `Resends`. */
  #isTry = false;

  /** @param extraHeaders flat list, sent after the core's own headers */
  constructor(
    context: CallContext,
    request: UpstreamRequest,
    destination: Destination,
    extraHeaders: readonly string[],
    done: Done,
    place: number,
  ) {
    this.#context = context;
    this.request = request;
    this.#destination = destination;
    this.#response = destination.response;
    this.#extraHeaders = extraHeaders;
    this.#done = done;
    this.place = place;
    this.#kind = isRepeatable(request) ? 'read' : 'write';
  }

  /** The client whose fair share includes this request's own wire. */
  get client(): string {
    return this.request.client.id;
  }

  /** Whether another attempt may be made before this one is answered. */
  get mayBeResent(): boolean {
    return this.isWanted && !this.#response.destroyed && this.#attempts < MAX_ATTEMPTS[this.#kind];
  }

  /** Makes the first attempt. Reads share a wire if possible. */
  send(): void {
    const now = this.#arrivedAt;
    const core = this.#context.cores.first(this.#kind, now);
    this.#isTry = core.isSilent;
    if (!this.#begin(core, now)) return;
    try {
      if (this.#kind === 'read' && core.echoes) this.#wire = core.wiresFor(this.request, now)?.send(this, now);
      if (this.#wire === undefined) this.#waitForOwn(core);
    } catch (fault) {
      this.failed(fault);
    }
  }

  /**
   * Sends the request again on a wire of its own, because a response ahead of it is late.
   * @param isOwnFault whether that response is for the same client
   */
  resend(core: Core, now: number, isOwnFault = false): void {
    const late = this.#core;
    if (late === undefined || core.limit.isFull || !(this.#isTry || core.resends.take(isOwnFault))) return;
    late.counts.resent();
    this.#forget();
    this.#sendAlone(core, now);
  }

  checkDeadlines(now: number, silentAfterMs: number): void {
    // A core may continue a request even if its connection is closed. A sent request therefore counts until it is answered
    // or late, so that a client that disconnects gets no more than its share.
    if (this.#response.destroyed && (!this.#isSent || this.#streamed !== undefined)) this.#fail(new ClientGone());
    else if (this.#streamed !== undefined) this.#checkStream(now);
    else if (this.#isLate(now)) this.#giveUp(now);
    else if (now - this.#arrivedAt >= silentAfterMs) this.#lookElsewhere(now, silentAfterMs);
  }

  #lookElsewhere(now: number, silentAfterMs: number): void {
    const core = this.#core;
    const { cores } = this.#context;
    if (core === undefined || cores.isOnlyReady(core)) return;
    // A request that has waited for a wire is late only if the core takes long.
    if (this.#isSent && now - this.sentAt < silentAfterMs) return;
    if (this.#isSent && core.newestAnswered < this.sentAt) core.fallSilent(now);
    const mayLeave = this.#isSent ? this.mayBeResent : core.isSilent;
    const other = mayLeave ? cores.other(core) : undefined;
    if (other === undefined) return;
    if (this.#isSent) this.resend(other, now);
    else this.#move(other, now);
  }

  /** Moves a request that waits for a wire to another core. Nothing was sent, so even a write may move. */
  #move(other: Core, now: number): void {
    this.#forget();
    this.#attempts -= 1;
    this.#sendAlone(other, now);
  }

  /** Whether the deadline, which all attempts share, has passed. */
  #isLate(now: number): boolean {
    return now - this.#arrivedAt >= this.#context.timeoutMs;
  }

  #checkStream(now: number): void {
    const isLate = !this.#response.headersSent && this.#isLate(now);
    // While the client is still receiving a piece, nothing is due from the core.
    if (isLate || now - this.#readSince >= this.#context.timeoutMs) this.#wire?.end(new CoreTooSlow());
  }

  /** Called when the request may have a wire of its own. */
  start(): void {
    const wire = (this.#core as Core).takeOwn(this.request);
    this.#wire = wire;
    // Sends only after the poll phase, which shows whether the core has closed the wire or sent unsolicited bytes.
    const { id } = this;
    setImmediate(() => this.#send(wire, id));
  }

  #send(wire: Wire | HandshakeWire, id: string): void {
    if (this.id !== id) return;
    if (!this.isWanted) {
      this.#leave();
      return;
    }
    this.sentAt = performance.now();
    try {
      if (this.#response.destroyed) throw new ClientGone();
      wire.send(this, this.sentAt);
    } catch (fault) {
      this.failed(fault);
    }
  }

  answered(answer: Answer, now: number, blocker: PendingRequest | undefined): void {
    const core = this.#core as Core;
    if (this.#kind === 'read' && (this.isAlone || blocker !== undefined)) core.noteSlow(this, blocker, now);
    if (this.isWanted) {
      this.#began(core, now);
      if (this.isAlone && this.request.upgrade === undefined) core.echoes = answer.requestId === this.id;
      const fault = answer.status >= 400 && faultIn(answer.status, answer.headers, answer.body.length === 0);
      if (fault) {
        this.failed(fault);
        return;
      }
    }
    if (this.isAlone && answer.requestId !== this.id) this.#wire?.end();
    this.#leave();
    if (!this.isWanted) return;
    if (this.#response.destroyed) this.#fail(new ClientGone());
    else {
      this.#end();
      if (answer.status !== 101) this.#destination.coreCode = sendAnswer(answer, this.#response, this.#headersNow());
      this.#done();
    }
  }

  streamed(head: AnswerHead, now: number): void {
    const core = this.#core as Core;
    this.#noteLarge(now);
    this.#began(core, now);
    core.echoes = head.requestId === this.id;
    if (core.large?.takeNow(this.client)) {
      this.#places?.release(this.client);
      this.#places = core.large;
    }
    this.#streamed = head;
    this.#readSince = now;
    const fault = head.status >= 400 && faultIn(head.status, head.headers, false);
    if (fault) this.#wire?.end(fault);
  }

  /** Sends the head only with the first piece, so that the client still gets an error if the core fails before that. */
  piece(parts: readonly Buffer[], isEnd: boolean): void {
    const response = this.#response;
    const { status, headers, requestId } = this.#streamed as AnswerHead;
    const wire = this.#wire as Wire;
    const id = this.id;
    const sent = (fault?: Error | null) => {
      // The call may have ended in the meantime, and the wire may carry another request.
      if (fault || !this.isWanted || this.id !== id) return;
      this.#readSince = performance.now();
      wire.goOn();
      if (!isEnd) return;
      this.#context.remove(this);
      this.isWanted = false;
      if (requestId !== id) wire.end();
      this.#leave();
      this.#done();
    };
    this.#readSince = Number.POSITIVE_INFINITY;
    if (response.destroyed) return;
    if (!response.headersSent) response.writeHead(status, responseHeaders(headers, status).concat(this.#headersNow()));
    for (const [at, part] of parts.entries())
      response.write(part, at === parts.length - 1 && !isEnd ? sent : undefined);
    if (isEnd) response.end(sent);
  }

  failed(fault: unknown): void {
    const core = this.#core as Core;
    if (fault instanceof WrongAnswer) core.echoes = false;
    this.#noteTimes(performance.now());
    this.#endOwn();
    if (!this.isWanted) return;
    if (fault instanceof AnswerTooLarge) this.#noteLarge(performance.now());
    else core.counts.failed(faultKind(fault));
    if (this.#streamed !== undefined) this.#fail(fault);
    else if (this.#response.destroyed) this.#fail(new ClientGone());
    else if (fault instanceof AnswerTooLarge) {
      // On a wire of its own, the response can be streamed instead of failing with a 502.
      core.counts.resent();
      this.#sendAlone(this.#context.cores.next(), performance.now());
    } else if (!this.#tryElsewhere(core, fault)) this.#fail(fault);
  }

  #headersNow(): readonly string[] {
    const { lateHeaders } = this.#destination;
    return lateHeaders === undefined ? this.#extraHeaders : [...this.#extraHeaders, ...lateHeaders()];
  }

  #noteLarge(now: number): void {
    Object.assign(this.request.client, { largeUntil: now + LARGE_NOTED_MS, largePath: pathOf(this.request.target) });
  }

  #tryElsewhere(core: Core, fault: unknown): boolean {
    const { cores } = this.#context;
    if (fault instanceof NotConnected) {
      core.setReady(false, fault.message);
      this.#unreachable = [...this.#unreachable, core];
      if (cores.areAll(this.#unreachable)) return false;
      this.#attempts -= 1;
    } else if (!this.mayBeResent || !isOfConnection(fault, cores.areAll([core]))) return false;
    this.#sendAlone(cores.next(this.#unreachable.length > 0 ? this.#unreachable : [core]), performance.now());
    return true;
  }

  #sendAlone(core: Core, now: number): void {
    if (this.#begin(core, now)) this.#waitForOwn(core);
  }

  #waitForOwn(core: Core): void {
    this.isAlone = true;
    this.#places = this.#kind === 'read' ? core.reads : core.writes;
    this.#places.take(this);
  }

  /** Begins an attempt. @returns false if the core is full; the call has then failed */
  #begin(core: Core, now: number): boolean {
    if (core.limit.isFull) {
      const fault = unavailable('The queue for connections to a core is full.');
      core.counts.failed(faultKind(fault));
      this.#fail(fault);
      return false;
    }
    this.#core = core;
    this.#wire = undefined;
    this.isAlone = false;
    this.id = attemptIdOf(this.request.id);
    this.#begunAt = now;
    this.sentAt = now;
    this.#attempts += 1;
    core.limit.enter(now);
    return true;
  }

  #began(core: Core, now: number): void {
    this.#noteTimes(now);
    core.answered(this.#begunAt, this.sentAt, now);
    if (this.#context.cores.isAnswerProof) core.setReady(true);
  }

  #noteTimes(now: number): void {
    if (!this.#isSent || this.#streamed !== undefined) return;
    this.#destination.sentAt = this.sentAt;
    this.#destination.answeredAt = now;
  }

  /** False while the call waits for a wire, because its client already uses as many as it may. */
  get #isSent(): boolean {
    return this.#wire !== undefined;
  }

  #giveUp(now: number): void {
    // An attempt that was not sent says nothing about the core.
    if (this.#isSent) {
      const { limit, counts } = this.#core as Core;
      limit.noteAnswer(this.#begunAt, now);
      counts.answered(now - this.#begunAt);
      counts.failed('timeout');
    }
    this.#fail(new CoreTooSlow());
  }

  /** Does nothing if the call has already ended, because one sweep can find a call twice. */
  #fail(fault: unknown): void {
    if (!this.isWanted) return;
    this.#noteTimes(performance.now());
    this.#end();
    this.#done(upstreamFault(fault));
  }

  /** Ends a call whose response is no longer wanted. The call's own wire is closed, so that the core notices. */
  #end(): void {
    this.#context.remove(this);
    if (!this.isWanted) return;
    this.isWanted = false;
    if (this.#core === undefined) return;
    if (!this.#isSent) this.#stopWaiting();
    else if (this.isAlone) this.#wire?.end();
  }

  /** Ends the current attempt before another begins. */
  #forget(): void {
    if (this.#isSent) {
      this.#wire?.forget(this);
      this.#endOwn();
    } else this.#stopWaiting();
  }

  #stopWaiting(): void {
    const core = this.#core;
    if (core === undefined) return;
    this.#places?.cancel(this);
    core.limit.leave();
    this.#core = undefined;
  }

  /** Closes the call's own wire, so that the rest of a response cannot reach the next request. */
  #endOwn(): void {
    if (this.isAlone) this.#wire?.end();
    this.#leave();
  }

  /** Releases what the attempt holds at its core. */
  #leave(): void {
    const core = this.#core;
    const wire = this.#wire;
    if (core === undefined) return;
    this.#core = undefined;
    this.#wire = undefined;
    core.limit.leave();
    if (!this.isAlone || wire === undefined) return;
    core.giveBack(wire);
    this.#places?.release(this.client);
  }
}
