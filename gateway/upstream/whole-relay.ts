import type { Dispatcher } from 'undici';
import { hasHeader } from './headers.ts';
import { Relay, type RelayOptions } from './relay.ts';

/** More than this is better streamed. */
const MAX_BYTES = 262_144;

/**
 * Takes a whole answer before any of it is passed on, then passes it on in one write. For connections that requests share:
 * there an answer must never wait for its client, and one that nobody wants any more is still taken, for those behind it.
 */
export class WholeRelay extends Relay {
  readonly #chunks: Buffer[] = [];
  #length = 0;
  #isOver = false;
  readonly #writing: () => void;
  #controller: Dispatcher.DispatchController | undefined;

  /** @param writing called when the request is about to be written */
  constructor(options: RelayOptions, writing: () => void) {
    super(options);
    this.#writing = writing;
  }

  override abort(reason: Error): void {
    this.#isOver = true;
    this.settle(reason);
  }

  /** The connection that it was sent on is gone. */
  lose(fault: Error): void {
    this.#controller?.abort(fault);
  }

  override onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#writing();
  }

  override onResponseData(_controller: unknown, chunk: Buffer): void {
    if (this.#isOver) return;
    this.#length += chunk.length;
    this.#chunks.push(chunk);
    if (this.#length > MAX_BYTES) this.abort(new AnswerTooLarge());
  }

  override onResponseEnd(): void {
    if (!this.#isOver) this.#send();
    super.onResponseEnd();
  }

  #send(): void {
    if (!this.hasBody) {
      this.sendHead();
      this.response.end();
      return;
    }
    const body = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    // An answer that came in chunks gets the length that it turned out to have.
    if (!hasHeader(this.headers, 'content-length')) this.headers.push('Content-Length', String(body.length));
    this.sendHead();
    // Head and body leave in one write where both are text of one encoding; latin1 keeps every byte as it is.
    this.response.end(body.toString('latin1'), 'latin1');
  }
}

/** The answer is one to be streamed: nothing of it was passed on, so it can be asked for again. */
export class AnswerTooLarge extends Error {
  override readonly message = `The answer has more than ${MAX_BYTES} bytes.`;
}
