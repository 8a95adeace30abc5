import type { Asked } from './asked.ts';
import { type ConnectionOptions, MAX_DEPTH, PipelinedConnection } from './pipelined-connection.ts';

const CONNECTIONS = 16;
/** Up to this depth, requests go to a connection whose answers flow. One slow answer delays at most this many. */
const DEPTH = 64;
/**
 * After this time without an answer another connection is better. It is first taken from a few, so that each write
 * carries many requests.
 */
const FLOWING_MS = 10;
const FEW = 4;
/** After this time without an answer any other connection is better. */
export const STALLED_AFTER_MS = 40;

/** The budget for hedged requests: this many at first, then a tenth of the answers. */
const BURST = 64;
const EARNED_PER_ANSWER = 0.1;

/** A few pipelined connections to one core, and a budget for hedging requests that wait behind a slow answer. */
export class Lane {
  readonly connections: PipelinedConnection[] = [];
  readonly #url: string;
  readonly #options: Omit<ConnectionOptions, 'needsEcho'>;
  #budget = BURST;

  constructor(url: string, options: Omit<ConnectionOptions, 'needsEcho'>) {
    this.#url = url;
    this.#options = options;
  }

  /**
   * Sends a request on the connection that is likely to answer it first.
   * @returns false if all are full
   */
  ask(asked: Asked, now: number): boolean {
    const connection =
      this.#flowing(now, FLOWING_MS, FEW) ??
      this.#another(FEW) ??
      this.#flowing(now, STALLED_AFTER_MS, CONNECTIONS) ??
      this.#another(CONNECTIONS) ??
      this.#leastBad(now);
    if (connection.depth === MAX_DEPTH) return false;
    connection.ask(asked, now);
    return true;
  }

  /**
   * Takes a hedged request from the budget. The budget ensures that a slow core does not get every request twice.
   * @returns false if none is left
   */
  takeHedge(): boolean {
    if (this.#budget < 1) return false;
    this.#budget -= 1;
    return true;
  }

  answered(): void {
    this.#earn(EARNED_PER_ANSWER);
  }

  /** The hedged request was right, so it is free. */
  refund(): void {
    this.#earn(1);
  }

  close(): void {
    for (const connection of this.connections) connection.close();
  }

  #earn(share: number): void {
    this.#budget = Math.min(this.#budget + share, BURST);
  }

  /** The first of this many connections whose answers flow. */
  #flowing(now: number, withinMs: number, of: number): PipelinedConnection | undefined {
    for (let at = 0; at < of; at++) {
      const connection = this.connections[at];
      if (connection === undefined) return undefined;
      if (connection.depth < DEPTH && connection.stalledMs(now) < withinMs) return connection;
    }
    return undefined;
  }

  #another(most: number): PipelinedConnection | undefined {
    if (this.connections.length >= most) return undefined;
    const connection = new PipelinedConnection(this.#url, { ...this.#options, needsEcho: true });
    this.connections.push(connection);
    return connection;
  }

  #leastBad(now: number): PipelinedConnection {
    const cost = (connection: PipelinedConnection) =>
      connection.depth === MAX_DEPTH ? Number.POSITIVE_INFINITY : connection.stalledMs(now) + 20 * connection.depth;
    return this.connections.reduce((best, connection) => (cost(connection) < cost(best) ? connection : best));
  }
}
