import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { ClientGone, CoreRefusedUs, CoreTooSlow, EndUnknown, WrongAnswer } from './faults.ts';
import { hasBody, hasHeader, requestIdOf, responseHeaders } from './headers.ts';

/** The client's side of a forwarded request. */
export interface RelayOptions {
  readonly response: ServerResponse;
  /** Put behind the core's own headers, as a flat list. */
  readonly extraHeaders: readonly string[];
  /** For the answer to begin to be passed on, the time that the request waits its turn counted in; of performance.now(). */
  readonly deadline: number;
  /** The request's, which the answer must not contradict. */
  readonly id: string;
  /** Called when the answer begins, or is given up; tells whether it carries the request's id. */
  readonly onAnswer: (began: boolean, echoes: boolean) => void;
  /** Called once undici has let go of the request, which can be later than its client has. */
  readonly release: () => void;
}

/**
 * Passes an answer on as it comes, on a connection of its own: a slow client slows the core down. Once its head is sent,
 * an answer that breaks off is cut off, never ended as if it were whole.
 */
export class Relay implements Dispatcher.DispatchHandler {
  /** Ends when the answer was handed over; fails with what kept it from that. */
  readonly done: Promise<void>;
  readonly #response: ServerResponse;
  readonly #extraHeaders: readonly string[];
  readonly #deadline: NodeJS.Timeout;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  readonly #id: string;
  readonly #onAnswer: (began: boolean, echoes: boolean) => void;
  readonly #release: () => void;
  #status = 0;
  #headers: string[] = [];
  #controller: Dispatcher.DispatchController | undefined;
  #aborted: Error | undefined;

  constructor({ response, extraHeaders, deadline, id, onAnswer, release }: RelayOptions) {
    this.#response = response;
    this.#extraHeaders = extraHeaders;
    this.#id = id;
    this.#onAnswer = onAnswer;
    this.#release = release;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    // Our own clock: undici's is coarse, and does not run while a request waits its turn.
    this.#deadline = setTimeout(() => this.#giveUp(), deadline - performance.now());
    response.once('close', this.#onClientGone);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#aborted !== undefined) controller.abort(this.#aborted);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    const rawHeaders = (controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1'));
    const echoed = requestIdOf(rawHeaders);
    this.#onAnswer(true, echoed === this.#id);
    if (echoed !== undefined && echoed !== this.#id) this.#abort(new WrongAnswer());
    else if (CoreRefusedUs.saysSo(status)) this.#abort(new CoreRefusedUs(status));
    else this.#begin(status, rawHeaders);
  }

  #begin(status: number, rawHeaders: readonly string[]): void {
    this.#status = status;
    this.#headers = responseHeaders(rawHeaders, status);
    if (hasBody(this.#response.req.method === 'HEAD', status) && !tellsItsEnd(rawHeaders))
      this.#abort(new EndUnknown());
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#response.headersSent) this.#sendHead();
    if (this.#response.write(chunk)) return;
    controller.pause();
    this.#response.once('drain', () => controller.resume());
  }

  onResponseEnd(): void {
    if (!this.#response.headersSent) this.#sendHead();
    this.#response.end();
    this.#release();
    this.#settle();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, fault: Error): void {
    if (this.#response.headersSent) this.#response.destroy();
    this.#release();
    this.#settle(this.#aborted ?? fault);
  }

  #sendHead(): void {
    clearTimeout(this.#deadline);
    this.#response.writeHead(this.#status, this.#headers.concat(this.#extraHeaders));
  }

  /** Gives the request up, wherever it is. */
  #abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
    // A request that waits its turn is told of an abort only when the turn comes; its client need not wait for that.
    this.#settle(reason);
  }

  /** The client's end of it; undici's may come later. */
  #settle(fault?: unknown): void {
    clearTimeout(this.#deadline);
    this.#response.removeListener('close', this.#onClientGone);
    if (fault === undefined) this.#resolve();
    else this.#reject(fault);
  }

  #giveUp(): void {
    this.#onAnswer(false, false);
    this.#abort(new CoreTooSlow());
  }

  readonly #onClientGone = (): void => {
    if (!this.#response.writableFinished) this.#abort(new ClientGone());
  };
}

/** Whether it can be told where an answer ends other than by the end of its connection (RFC 9112 §6.3). */
const tellsItsEnd = (rawHeaders: readonly string[]): boolean =>
  hasHeader(rawHeaders, 'content-length') || hasHeader(rawHeaders, 'transfer-encoding');
