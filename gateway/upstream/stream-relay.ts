import type { Dispatcher } from 'undici';
import { Relay } from './relay.ts';

/**
 * Passes an answer on as it comes, on a connection of its own: a slow client slows the core down. Once its head is sent,
 * an answer that breaks off is cut off, never ended as if it were whole.
 */
export class StreamRelay extends Relay {
  #controller: Dispatcher.DispatchController | undefined;
  #aborted: Error | undefined;

  override abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(reason);
    // A request that waits its turn is told of an abort only when the turn comes; its client need not wait for that.
    this.settle(reason);
  }

  override onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#aborted !== undefined) controller.abort(this.#aborted);
  }

  override onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.response.headersSent) this.sendHead();
    if (this.response.write(chunk)) return;
    controller.pause();
    this.response.once('drain', () => controller.resume());
  }

  override onResponseEnd(): void {
    if (!this.response.headersSent) this.sendHead();
    this.response.end();
    super.onResponseEnd();
  }

  override onResponseError(controller: Dispatcher.DispatchController | undefined, fault: Error): void {
    if (this.response.headersSent) this.response.destroy();
    super.onResponseError(controller, this.#aborted ?? fault);
  }
}
