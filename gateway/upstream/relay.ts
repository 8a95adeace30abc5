import type { ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { responseHeaders } from './headers.ts';

/**
 * Passes one answer of the core on to one client, as undici's dispatcher delivers it. An answer that came in one piece
 * leaves in one write. Once its head is sent, an answer that breaks off is cut off, never ended as if it were whole.
 */
export class Relay implements Dispatcher.DispatchHandler {
  readonly done: Promise<void>;
  readonly #response: ServerResponse;
  readonly #extraHeaders: readonly string[];
  readonly #deadline: NodeJS.Timeout;
  readonly #resolve: () => void;
  readonly #reject: (fault: unknown) => void;
  readonly #release: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #aborted: Error | undefined;
  #status = 0;
  #headers: string[] = [];
  #length: number | undefined;

  /**
   * @param timeoutMs for the head of the answer to come, the time that the request waits its turn counted in
   * @param release called once undici has let go of the request, which can be later than its client has
   */
  constructor(response: ServerResponse, extraHeaders: readonly string[], timeoutMs: number, release: () => void) {
    this.#response = response;
    this.#extraHeaders = extraHeaders;
    this.#release = release;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.done = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#deadline = setTimeout(() => this.abort(new CoreTooSlow()), timeoutMs);
    response.once('close', this.#onClientGone);
  }

  /** Gives the request up, wherever it is. */
  abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
    // A request that waits its turn is told of an abort only when the turn comes; its client need not wait for that.
    this.#settle(reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#aborted !== undefined) controller.abort(this.#aborted);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (status < 200) return;
    clearTimeout(this.#deadline);
    if (status === 401 || status === 403) {
      this.abort(new CoreRefusedUs(status));
      return;
    }
    this.#status = status;
    this.#headers = responseHeaders((controller.rawHeaders as Buffer[]).map((text) => text.toString('latin1')));
    this.#length = contentLength(this.#headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const response = this.#response;
    const isWhole = !response.headersSent && chunk.length === this.#length;
    this.#sendHead();
    if (isWhole) response.end(chunk);
    else if (!response.write(chunk)) {
      controller.pause();
      response.once('drain', () => controller.resume());
    }
  }

  onResponseEnd(): void {
    this.#sendHead();
    if (!this.#response.writableEnded) this.#response.end();
    this.#release();
    this.#settle();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, fault: Error): void {
    if (this.#response.headersSent) this.#response.destroy();
    this.#release();
    this.#settle(this.#aborted ?? fault);
  }

  #sendHead(): void {
    if (this.#response.headersSent) return;
    this.#response.writeHead(this.#status, [...this.#headers, ...this.#extraHeaders]);
  }

  readonly #onClientGone = (): void => {
    if (!this.#response.writableFinished) this.abort(new ClientGone());
  };

  #settle(fault?: unknown): void {
    clearTimeout(this.#deadline);
    this.#response.removeListener('close', this.#onClientGone);
    if (fault === undefined) this.#resolve();
    else this.#reject(fault);
  }
}

/** No answer in time, by our own clock: undici's is coarse and does not run while a request waits its turn. */
export class CoreTooSlow extends Error {
  override readonly message = 'No answer in time.';
}

/** The client left before its answer was complete. Nobody else is to blame. */
export class ClientGone extends Error {
  override readonly message = 'The client went away.';
}

/** Clients' keys are settled before anything is forwarded; what the core refuses is our own token. */
class CoreRefusedUs extends Error {
  constructor(status: number) {
    super(`The core answered ${status}: CORE_TOKEN is not the one that it asks for.`);
  }
}

function contentLength(headers: readonly string[]): number | undefined {
  for (let at = 0; at < headers.length; at += 2) {
    if (headers[at]?.toLowerCase() === 'content-length') return Number(headers[at + 1]);
  }
  return undefined;
}
