import { readFileSync } from 'node:fs';
import net from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../support/statistics.ts';
import { NEW_PET } from './asks.ts';
import type { Load, LoadResult } from './load.ts';

/** Finer than Node's timers, which count whole milliseconds. */
const GRAIN_MS = 0.2;
/** Nothing ever notifies this array, so a wait on it always times out. */
const nobody = new Int32Array(new SharedArrayBuffer(4));

interface Answer {
  readonly status: number;
  readonly head: string;
  readonly body: string;
}

interface Sent {
  /** The bytes of the request. */
  readonly text: string;
  /** Called once, with the response or with the reason why there is none. */
  ended(answer: Answer | 'cut' | 'no answer'): void;
}

/** Sends a request on an idle connection. */
type Connection = (sent: Sent) => void;

interface Target {
  readonly url: string;
  /** The address to connect from. */
  readonly from?: string;
  readonly mostConnections: number;
  /** The maximum time to wait for the last responses. */
  readonly patienceMs: number;
}

/**
 * Sends requests at a fixed rate, whether or not earlier ones have been answered, and measures latency from the time at
 * which a request was due. A stall therefore adds to the latency of all requests due during it, as it does for real
 * users (no coordinated omission). It acts once per GRAIN_MS: requests that fall due in between are sent together, and
 * responses may be noticed that much later. This is the same for all measured programs. Each of its plain sockets
 * carries one request at a time, because a client library would use more CPU than the measured program.
 */
export class OpenLoop {
  readonly #target: Target;
  readonly #open = new Set<Sent>();
  readonly #waiting: Sent[] = [];
  /** Ordered by idle time, longest first, so that no connection is idle for long. */
  readonly #free: Connection[] = [];
  #connections = 0;

  constructor(target: Target) {
    this.#target = target;
  }

  /** Sends `count` requests, then waits for the responses. Abandons requests that are unanswered at the deadline. */
  async drive(count: number, rate: number, request: (number: number, due: number) => Sent): Promise<void> {
    const startedAt = performance.now();
    for (let sent = 0; sent < count; ) {
      for (; sent < count; sent++) {
        const due = startedAt + (sent * 1_000) / rate;
        if (due > performance.now()) break;
        const next = request(sent, due);
        this.#open.add(next);
        this.#waiting.push(next);
        this.#sendWaiting();
      }
      Atomics.wait(nobody, 0, 0, GRAIN_MS);
      await nextTurn();
    }
    const deadline = performance.now() + this.#target.patienceMs;
    while (this.#open.size > 0 && performance.now() < deadline) await sleep(5);
    this.#waiting.length = 0;
    for (const late of this.#open) this.#end(late, 'no answer');
  }

  #sendWaiting(): void {
    while (this.#waiting.length > 0) {
      const connection = this.#free.shift() ?? this.#connect();
      if (connection === undefined) return;
      connection(this.#waiting.shift() as Sent);
    }
  }

  #end(sent: Sent, answer: Parameters<Sent['ended']>[0]): void {
    if (this.#open.delete(sent)) sent.ended(answer);
  }

  /** Opens a connection. A response is complete once its body has as many bytes as its Content-Length. */
  #connect(): Connection | undefined {
    const { url, from, mostConnections } = this.#target;
    if (this.#connections >= mostConnections) return undefined;
    this.#connections += 1;
    const { hostname, port } = new URL(url);
    const socket = net.connect({
      host: hostname,
      port: Number(port),
      noDelay: true,
      ...(from !== undefined && { localAddress: from }),
    });
    let sent: Sent | undefined;
    let received = '';
    const connection: Connection = (next) => {
      sent = next;
      socket.write(next.text);
    };
    socket.setEncoding('latin1').on('data', (text) => {
      received += text;
      const end = received.indexOf('\r\n\r\n') + 4;
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(received)?.[1]);
      if (end < 4 || received.length < end + length || sent === undefined) return;
      const [answered, head, body] = [sent, received.slice(0, end), received.slice(end)];
      [sent, received] = [undefined, ''];
      this.#end(answered, { status: Number(head.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length)), head, body });
      // A server may close a connection after a response (RFC 9112 §9.6).
      if (/\r\nconnection: *close\r\n/i.test(head)) socket.destroy();
      else {
        this.#free.push(connection);
        this.#sendWaiting();
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#connections -= 1;
      const at = this.#free.indexOf(connection);
      if (at !== -1) this.#free.splice(at, 1);
      if (sent !== undefined) this.#end(sent, 'cut');
      this.#sendWaiting();
    });
    return connection;
  }
}

/** The requests of this period are not counted. They open the connections and warm up this driver. */
const LEAD_IN_SECONDS = 1;
const PATIENCE_MS = 2_000;

/**
 * `node test/bench/load/open-loop.ts load.json`; the file has
 * {"url":…,"connections":32,"seconds":2,"asks":[…],"rate":1000}
 */
async function run(load: Load & { rate: number }): Promise<LoadResult> {
  const { url, connections, seconds, asks, rate } = load;
  const { host } = new URL(url);
  const requests = asks.map(({ method, path, key }) => {
    const head = `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n`;
    if (method === 'GET') return `${head}\r\n`;
    return `${head}Content-Type: application/json\r\nContent-Length: ${NEW_PET.length}\r\n\r\n${NEW_PET}`;
  });
  const total = Math.floor(rate * (LEAD_IN_SECONDS + seconds));
  const latencies: number[] = [];
  let [answered, refused] = [0, 0];
  const startedAt = performance.now();
  await new OpenLoop({ url, mostConnections: connections, patienceMs: PATIENCE_MS }).drive(
    total,
    rate,
    (number, due) => ({
      text: requests[number % requests.length] as string,
      ended(answer) {
        if (typeof answer === 'string') return;
        answered += 1;
        if (number >= rate * LEAD_IN_SECONDS) latencies.push(performance.now() - due);
        if (answer.status >= 400) refused += 1;
      },
    }),
  );
  return {
    requests: answered,
    seconds: (performance.now() - startedAt) / 1_000,
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
    refused,
    failures: total - answered,
  };
}

if (import.meta.main) {
  const result = await run(JSON.parse(readFileSync(process.argv[2] as string, 'utf8')));
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
}
