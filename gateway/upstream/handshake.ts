import type { Waiter } from '../../shared/fair-share.ts';
import { unavailable } from '../../shared/http/errors.ts';
import { type Destination, type Done, sendAnswer, type WholeAnswer } from './answer.ts';
import type { CallContext } from './call.ts';
import type { Core } from './core.ts';
import { ClientGone, CoreTooSlow, faultIn, faultKind, isOfConnection, NotConnected, upstreamFault } from './faults.ts';
import { attemptIdOf, type UpstreamRequest } from './headers.ts';
import { openTunnel, Tunnel, type TunnelAttempt, type Upgrade } from './tunnel.ts';

/** Like a read, a handshake may be sent twice. */
const MAX_ATTEMPTS = 2;

export interface HandshakeRequest {
  readonly request: UpstreamRequest;
  readonly destination: Destination;
  /** Flat list, sent after the core's own headers. */
  readonly extraHeaders: readonly string[];
  readonly upgrade: Upgrade;
  /** Called before `done` if the WebSocket is open. */
  readonly opened: (tunnel: Tunnel) => void;
  readonly done: Done;
}

/**
 * One WebSocket handshake with the cores, as `Call` is one request. It has a connection of its own, and takes one of the
 * places of reads until the core has answered. An open tunnel takes none.
 */
export class Handshake implements Waiter {
  /** Its index in the list of running calls. */
  place: number;
  readonly #context: CallContext;
  readonly #asked: HandshakeRequest;
  readonly #arrivedAt = performance.now();
  /** When the current attempt began, and when it was sent; in between it may have waited for a place. */
  #begunAt = 0;
  #sentAt = 0;
  #core: Core | undefined;
  /** Undefined while the handshake waits for a place. */
  #attempt: TunnelAttempt | undefined;
  #attempts = 0;
  #unreachable: readonly Core[] = [];
  /** Whether it tests a silent core. */
  #isTry = false;

  constructor(context: CallContext, asked: HandshakeRequest, place: number) {
    this.#context = context;
    this.#asked = asked;
    this.place = place;
  }

  get client(): string {
    return this.#asked.request.client.id;
  }

  get #isClientGone(): boolean {
    return this.#asked.upgrade.socket.destroyed;
  }

  send(): void {
    const core = this.#context.cores.first('read', this.#arrivedAt);
    this.#isTry = core.isSilent;
    this.#begin(core, this.#arrivedAt);
  }

  /** Called when the handshake has a place. */
  start(): void {
    const { address: core } = this.#core as Core;
    const { request, extraHeaders, upgrade } = this.#asked;
    const headers = [...request.headers, 'X-Request-Id', attemptIdOf(request.id)];
    try {
      if (this.#isClientGone) throw new ClientGone();
      const attempt = openTunnel({ core, target: request.target, headers, extraHeaders }, upgrade);
      this.#attempt = attempt;
      this.#sentAt = performance.now();
      attempt.result.then(
        (result) => this.#attempt === attempt && this.#answered(result),
        (fault: unknown) => this.#attempt === attempt && this.#failed(fault),
      );
    } catch (fault) {
      this.#failed(fault);
    }
  }

  /** Like a request, a sent handshake whose client disconnects counts until it is answered or late. */
  checkDeadlines(now: number, silentAfterMs: number): void {
    const ms = now - this.#arrivedAt;
    if (this.#core === undefined) return;
    if (this.#attempt === undefined && this.#asked.destination.response.destroyed) this.#fail(new ClientGone());
    else if (ms >= this.#context.timeoutMs) this.#giveUp(this.#core, now);
    else if (ms >= silentAfterMs) this.#lookElsewhere(this.#core, now, silentAfterMs);
  }

  /** Closes its connection. */
  close(): void {
    this.#attempt?.end();
  }

  #begin(core: Core, now: number): void {
    if (core.limit.isFull) {
      const fault = unavailable('The queue for connections to a core is full.');
      core.counts.failed(faultKind(fault));
      this.#fail(fault);
      return;
    }
    this.#core = core;
    this.#begunAt = now;
    this.#attempts += 1;
    core.limit.enter(now);
    core.reads.take(this);
  }

  #answered(result: Tunnel | WholeAnswer): void {
    const core = this.#core as Core;
    const now = performance.now();
    this.#noteTimes(now);
    core.answered(this.#begunAt, this.#sentAt, now);
    if (this.#context.cores.isAnswerProof) core.setReady(true);
    const isOpen = result instanceof Tunnel;
    const fault = isOpen ? undefined : faultIn(result.status, result.headers, result.body.length === 0);
    if (fault !== undefined) this.#failed(fault);
    else if (this.#isClientGone && !isOpen) this.#fail(new ClientGone());
    else {
      this.#end();
      if (isOpen) this.#asked.opened(result);
      else this.#forward(result);
      this.#asked.done();
    }
  }

  #forward(answer: WholeAnswer): void {
    const { destination, extraHeaders } = this.#asked;
    const late = destination.lateHeaders?.() ?? [];
    destination.coreCode = sendAnswer(answer, destination.response, [...extraHeaders, ...late]);
  }

  #failed(fault: unknown): void {
    const core = this.#core as Core;
    core.counts.failed(faultKind(fault));
    this.#noteTimes(performance.now());
    this.#leave();
    if (this.#isClientGone || !this.#tryElsewhere(core, fault)) this.#fail(fault);
  }

  #tryElsewhere(core: Core, fault: unknown): boolean {
    const { cores } = this.#context;
    if (fault instanceof NotConnected) {
      core.setReady(false, fault.message);
      this.#unreachable = [...this.#unreachable, core];
      if (cores.areAll(this.#unreachable)) return false;
      this.#attempts -= 1;
    } else if (this.#attempts === MAX_ATTEMPTS || !isOfConnection(fault, cores.areAll([core]))) return false;
    this.#begin(cores.next(this.#unreachable.length > 0 ? this.#unreachable : [core]), performance.now());
    return true;
  }

  #lookElsewhere(core: Core, now: number, silentAfterMs: number): void {
    const isSent = this.#attempt !== undefined;
    if (this.#context.cores.isOnlyReady(core) || (isSent && now - this.#sentAt < silentAfterMs)) return;
    if (isSent && core.newestAnswered < this.#sentAt) core.fallSilent(now);
    const mayLeave = isSent ? this.#attempts < MAX_ATTEMPTS && !this.#isClientGone : core.isSilent;
    const other = mayLeave ? this.#context.cores.other(core) : undefined;
    if (other === undefined || (isSent && !this.#isTry && !core.resends.take(false))) return;
    if (isSent) core.counts.resent();
    else this.#attempts -= 1;
    this.#attempt?.end();
    this.#leave();
    this.#begin(other, now);
  }

  #giveUp({ limit, counts }: Core, now: number): void {
    const fault = new CoreTooSlow();
    // An attempt that was not sent says nothing about the core.
    if (this.#attempt !== undefined) {
      limit.noteAnswer(this.#begunAt, now);
      counts.answered(now - this.#begunAt);
      counts.failed(faultKind(fault));
      this.#noteTimes(now);
      this.#attempt.end();
    }
    this.#fail(fault);
  }

  #noteTimes(now: number): void {
    if (this.#attempt === undefined) return;
    Object.assign(this.#asked.destination, { sentAt: this.#sentAt, answeredAt: now });
  }

  #fail(fault: unknown): void {
    const { response } = this.#asked.destination;
    const end = () => this.#asked.done(upstreamFault(fault));
    this.#end();
    // The response of a client that has just disconnected is about to close, and is recorded with 499 then.
    if (this.#isClientGone && !response.destroyed) response.once('close', end);
    else end();
  }

  #end(): void {
    this.#context.remove(this);
    this.#leave();
  }

  /** Releases what the attempt holds at its core. */
  #leave(): void {
    const core = this.#core;
    if (core === undefined) return;
    this.#core = undefined;
    this.#attempt = undefined;
    core.limit.leave();
    if (!core.reads.cancel(this)) core.reads.release(this.client);
  }
}
