import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { hasHeader, responseHeaders } from './headers.ts';

/** The client's side of a forwarded request. */
export interface RelayOptions {
  readonly response: ServerResponse;
  /** Put behind the core's own headers, as a flat list. */
  readonly extraHeaders: readonly string[];
  /** For the answer to begin to be passed on, the time that the request waits its turn counted in. */
  readonly timeoutMs: number;
  /** Called when the answer begins, or is given up. */
  readonly onAnswer: (began: boolean) => void;
  /** Called once undici has let go of the request, which can be later than its client has. */
  readonly release: () => void;
}

/** What every way of passing an answer on has in common: its deadline, its client that may leave, and its one end. */
export abstract class Relay implements Dispatcher.DispatchHandler {
  /** Ends when the answer was handed over; fails with what kept it from that. */
  readonly done: Promise<void>;
  protected readonly response: ServerResponse;
  protected status = 0;
  protected headers: string[] = [];
  readonly #extraHeaders: readonly string[];
  readonly #deadline: NodeJS.Timeout;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  readonly #onAnswer: (began: boolean) => void;
  readonly #release: () => void;

  constructor({ response, extraHeaders, timeoutMs, onAnswer, release }: RelayOptions) {
    this.response = response;
    this.#extraHeaders = extraHeaders;
    this.#onAnswer = onAnswer;
    this.#release = release;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    // Our own clock: undici's is coarse, and does not run while a request waits its turn.
    this.#deadline = setTimeout(() => this.#giveUp(), timeoutMs);
    response.once('close', this.#onClientGone);
  }

  /** Gives the request up, wherever it is. */
  abstract abort(reason: Error): void;
  abstract onRequestStart(controller: Dispatcher.DispatchController): void;
  abstract onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void;

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    this.#onAnswer(true);
    if (status === 401 || status === 403) {
      this.abort(new CoreRefusedUs(status));
      return;
    }
    this.status = status;
    const rawHeaders = (controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1'));
    this.headers = responseHeaders(rawHeaders);
    if (this.hasBody && !tellsItsEnd(rawHeaders)) this.abort(new EndUnknown());
  }

  onResponseEnd(): void {
    this.#release();
    this.settle();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, fault: Error): void {
    this.#release();
    this.settle(fault);
  }

  protected get hasBody(): boolean {
    return this.response.req.method !== 'HEAD' && this.status !== 204 && this.status !== 304;
  }

  protected sendHead(): void {
    clearTimeout(this.#deadline);
    this.response.writeHead(this.status, this.headers.concat(this.#extraHeaders));
  }

  /** The client's end of it; undici's may come later. */
  protected settle(fault?: unknown): void {
    clearTimeout(this.#deadline);
    this.response.removeListener('close', this.#onClientGone);
    if (fault === undefined) this.#resolve();
    else this.#reject(fault);
  }

  #giveUp(): void {
    this.#onAnswer(false);
    this.abort(new CoreTooSlow());
  }

  readonly #onClientGone = (): void => {
    if (!this.response.writableFinished) this.abort(new ClientGone());
  };
}

/** Whether it can be told where an answer ends other than by the end of its connection (RFC 9112 §6.3). */
const tellsItsEnd = (rawHeaders: readonly string[]): boolean =>
  hasHeader(rawHeaders, 'content-length') || hasHeader(rawHeaders, 'transfer-encoding');

/** An answer that ends where its connection does: one that broke off would look whole. */
class EndUnknown extends Error {
  override readonly message = 'The core answered with neither a length nor chunks.';
}

/** No answer in time. */
export class CoreTooSlow extends Error {
  override readonly message = 'No answer in time.';
}

/** The client left before its answer was complete. Nobody else is to blame. */
export class ClientGone extends Error {
  override readonly message = 'The client went away.';
}

/** Clients' keys are settled before anything is forwarded; what the core refuses is our own token. */
export class CoreRefusedUs extends Error {
  constructor(status: number) {
    super(`The core answered ${status}: CORE_TOKEN is not the one that it asks for.`);
  }
}
