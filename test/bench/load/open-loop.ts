import { readFileSync } from 'node:fs';
import net from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../support/statistics.ts';
import { NEW_PET } from './asks.ts';
import type { Load, LoadResult } from './load.ts';

/**
 * An open loop in its own process: requests are sent at a fixed rate, whether earlier ones were answered or not, and latency
 * is measured from the time at which a request was due. A late answer therefore delays all requests due after it, as it does
 * for real users (no coordinated omission). Requests due within one grain of time are sent together, and answers are seen up
 * to one grain late, for all contenders alike. The first second is not measured, because it opens the connections and warms
 * up this driver. It uses plain sockets with one request at a time, because a client library would use more CPU than the
 * measured program.
 *
 *     node test/bench/load/open-loop.ts load.json     {"url":…,"connections":32,"seconds":2,"asks":[…],"rate":1000}
 */

/** Finer than Node's timers, which count whole milliseconds. */
const GRAIN_MS = 0.2;
const LEAD_IN_SECONDS = 1;
const PATIENCE_MS = 2_000;

const load = JSON.parse(readFileSync(process.argv[2] as string, 'utf8')) as Load & { rate: number };
const { url, connections: count, seconds, asks, rate } = load;
const { hostname, host, port } = new URL(url);
const requests = asks.map(({ method, path, key }) => {
  const head = `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n`;
  if (method === 'GET') return `${head}\r\n`;
  return `${head}Content-Type: application/json\r\nContent-Length: ${NEW_PET.length}\r\n\r\n${NEW_PET}`;
});
let turn = 0;

/** A wait on this never wakes, so it only times out. */
const nobody = new Int32Array(new SharedArrayBuffer(4));

const total = Math.floor(rate * (LEAD_IN_SECONDS + seconds));
const latencies: number[] = [];
let answered = 0;
let refused = 0;

/** The due times of the requests that wait for a connection. */
const waiting: number[] = [];

/** A connection, on which an answer is complete when it has as many bytes behind its head as the head says. */
class Connection {
  readonly #socket = net.connect({ host: hostname, port: Number(port), noDelay: true });
  #due: number | undefined;
  #received = '';

  constructor() {
    this.#socket.setEncoding('latin1').on('data', (text) => this.#take(String(text)));
    this.#socket.on('error', () => {});
    this.#socket.on('close', () => connections.delete(this));
  }

  get isFree(): boolean {
    return this.#due === undefined;
  }

  send(due: number): void {
    this.#due = due;
    this.#socket.write(requests[turn++ % requests.length] as string);
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(text: string): void {
    this.#received += text;
    const end = this.#received.indexOf('\r\n\r\n') + 4;
    const length = Number(/\r\ncontent-length: *(\d+)/i.exec(this.#received)?.[1]);
    if (end < 4 || this.#received.length < end + length) return;
    this.#note(this.#received, this.#due ?? 0);
    // A server may end a connection with an answer (RFC 9112 §9.6).
    if (/\r\nconnection: *close\r\n/i.test(this.#received.slice(0, end))) {
      this.close();
      connections.delete(this);
      connections.add(new Connection());
      sendWaiting();
      return;
    }
    this.#received = '';
    this.#due = undefined;
    sendWaiting();
  }

  #note(answer: string, due: number): void {
    answered += 1;
    if (due >= countsFrom) latencies.push(performance.now() - due);
    if (Number(answer.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length)) >= 400) refused += 1;
  }
}

const connections = new Set<Connection>();
while (connections.size < count) connections.add(new Connection());

function send(due: number): void {
  for (const connection of connections) {
    if (!connection.isFree) continue;
    connection.send(due);
    return;
  }
  waiting.push(due);
}

function sendWaiting(): void {
  const next = waiting.shift();
  if (next !== undefined) send(next);
}

const startedAt = performance.now();
const countsFrom = startedAt + LEAD_IN_SECONDS * 1_000;
for (let sent = 0; sent < total; ) {
  for (; sent < total; sent++) {
    const due = startedAt + (sent * 1_000) / rate;
    if (due > performance.now()) break;
    send(due);
  }
  Atomics.wait(nobody, 0, 0, GRAIN_MS);
  await nextTurn();
}
const deadline = performance.now() + PATIENCE_MS;
while (answered < total && performance.now() < deadline) await sleep(5);

const result: LoadResult = {
  requests: answered,
  seconds: (performance.now() - startedAt) / 1_000,
  p50Ms: quantile(latencies, 0.5),
  p99Ms: quantile(latencies, 0.99),
  refused,
  failures: total - answered,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
for (const connection of connections) connection.close();
