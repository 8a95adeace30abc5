import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { ClientGone, CoreRefusedUs, CoreTooSlow, EndUnknown, WrongAnswer } from './faults.ts';
import { hasBody, hasHeader, requestIdOf, responseHeaders } from './upstream-headers.ts';

/** The client's side of a streamed answer. */
export interface RelayOptions {
  /** The X-Request-Id of the attempt. */
  readonly id: string;
  readonly response: ServerResponse;
  /** A flat list when the answer begins, sent after the core's own headers. */
  readonly extraHeaders: () => readonly string[];
  /** The deadline for the first byte to the client, including waiting time, as of performance.now(). */
  readonly deadline: number;
  /** Called when the answer begins, with whether it carries the attempt's id. It must not carry another one. */
  readonly onBegin: (echoes: boolean) => void;
  /** Called once undici has released the request, which can be later than its client. */
  readonly release: () => void;
}

/**
 * Streams an answer on its own connection: a slow client slows the core down. If the answer breaks after its head was
 * sent, the client's connection is cut, so that the answer never looks complete.
 */
export class Relay implements Dispatcher.DispatchHandler {
  /** Ends when the answer was handed over; rejects with the fault that prevented it. */
  readonly done: Promise<void>;
  readonly #response: ServerResponse;
  readonly #extraHeaders: () => readonly string[];
  readonly #deadline: NodeJS.Timeout;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  readonly #id: string;
  readonly #onBegin: (echoes: boolean) => void;
  readonly #release: () => void;
  #status = 0;
  #headers: string[] = [];
  #controller: Dispatcher.DispatchController | undefined;
  #aborted: Error | undefined;
  /** Pieces that wait in our own buffers. */
  #unsent = 0;

  constructor({ id, response, extraHeaders, deadline, onBegin, release }: RelayOptions) {
    this.#response = response;
    this.#extraHeaders = extraHeaders;
    this.#id = id;
    this.#onBegin = onBegin;
    this.#release = release;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    // Our own timer: undici's is coarse.
    this.#deadline = setTimeout(() => this.#abort(new CoreTooSlow()), deadline - performance.now());
    // After 'close' there is neither another 'close' nor a 'drain'.
    if (response.destroyed) this.#abort(new ClientGone());
    else response.once('close', this.#onClientGone);
  }

  /** Whether nothing of the answer waits in our own buffers. */
  get isSent(): boolean {
    return this.#unsent === 0;
  }

  readonly #onSent = (): void => {
    this.#unsent -= 1;
  };

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#aborted !== undefined) controller.abort(this.#aborted);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    const rawHeaders = (controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1'));
    const echoed = requestIdOf(rawHeaders);
    this.#onBegin(echoed === this.#id);
    if (echoed !== undefined && echoed !== this.#id) this.#abort(new WrongAnswer());
    else if (CoreRefusedUs.saysSo(status)) this.#abort(new CoreRefusedUs(status));
    else this.#begin(status, rawHeaders);
  }

  #begin(status: number, rawHeaders: readonly string[]): void {
    this.#status = status;
    this.#headers = responseHeaders(rawHeaders, status);
    if (hasBody(this.#response.req.method === 'HEAD', status) && !hasKnownEnd(rawHeaders))
      this.#abort(new EndUnknown());
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#response.headersSent) this.#sendHead();
    this.#unsent += 1;
    if (this.#response.write(chunk, this.#onSent)) return;
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
    this.#response.writeHead(this.#status, this.#headers.concat(this.#extraHeaders()));
  }

  /** Gives the request up, wherever it is. */
  #abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
    // The client need not wait until undici has ended its side.
    this.#settle(reason);
  }

  /** Ends the client's side; undici's side may end later. */
  #settle(fault?: unknown): void {
    clearTimeout(this.#deadline);
    this.#response.removeListener('close', this.#onClientGone);
    if (fault === undefined) this.#resolve();
    else this.#reject(fault);
  }

  readonly #onClientGone = (): void => {
    if (!this.#response.writableFinished) this.#abort(new ClientGone());
  };
}

/** Whether the end of an answer is known before its connection ends (RFC 9112 §6.3). */
const hasKnownEnd = (rawHeaders: readonly string[]): boolean =>
  hasHeader(rawHeaders, 'content-length') || hasHeader(rawHeaders, 'transfer-encoding');
