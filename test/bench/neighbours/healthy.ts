import net from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../support/statistics.ts';
import { NEW_PET } from '../load/asks.ts';

/**
 * The healthy client, in its own process. It is an open loop: requests are sent at a fixed rate, and latency is measured from
 * the time at which a request was due. It lists, gets and sometimes adds pets on persistent connections, and checks each
 * answer against its request: status, request id, and the requested pet.
 *
 *     HEALTHY='{"url":…,"key":…,"from":"127.0.0.9","readsOnly":false}', and over the message channel {"rate":200,"seconds":6}
 */

export interface HealthyClient {
  readonly url: string;
  readonly key: string;
  /** The address that it connects from. */
  readonly from: string;
  readonly readsOnly: boolean;
}

export interface Drive {
  readonly rate: number;
  readonly seconds: number;
}

export interface HealthyResult {
  readonly requests: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** The number of faults of each kind. */
  readonly errors: Readonly<Record<string, number>>;
}

interface Request {
  readonly due: number;
  readonly id: string;
  readonly text: string;
  /** The fault of an answer; undefined if there is none. */
  fault(status: number, body: string): string | undefined;
}

/** Finer than Node's timers, which count whole milliseconds. */
const GRAIN_MS = 0.3;
/** Longer than the gateway waits for its core. */
const PATIENCE_MS = 6_000;
const MAX_CONNECTIONS = 256;
const PETS = 20;
/** One of this many requests is a POST, half are lists, and the others get a pet. */
const MIX = 10;

const { url, key, from, readsOnly } = JSON.parse(process.env.HEALTHY ?? '{}') as HealthyClient;
const { hostname, host, port } = new URL(url);
const nobody = new Int32Array(new SharedArrayBuffer(4));

const statusFault = (status: number, wanted: number) => (status === wanted ? undefined : String(status));

function request(number: number, due: number): Request {
  const id = `healthy-${process.pid}-${number}`;
  const head = (line: string, ...more: string[]) =>
    [`${line} HTTP/1.1`, `Host: ${host}`, `Authorization: Bearer ${key}`, `X-Request-Id: ${id}`, ...more, '', ''].join(
      '\r\n',
    );
  const turn = number % MIX;
  if (turn === 0 && !readsOnly) {
    const text = head('POST /v1/pets', 'Content-Type: application/json', `Content-Length: ${NEW_PET.length}`) + NEW_PET;
    return { due, id, text, fault: (status) => statusFault(status, 201) };
  }
  if (turn <= MIX / 2) {
    const fault = (status: number, body: string) =>
      statusFault(status, 200) ?? (body.startsWith('[{"id":') ? undefined : 'wrong answer');
    return { due, id, text: head('GET /v1/pets'), fault };
  }
  const pet = 1 + (number % PETS);
  const fault = (status: number, body: string) =>
    statusFault(status, 200) ?? (body.startsWith(`{"id":${pet},`) ? undefined : 'wrong answer');
  return { due, id, text: head(`GET /v1/pets/${pet}`), fault };
}

/** One measurement: the requests sent, and their results. */
class Measure {
  readonly latencies: number[] = [];
  readonly errors: Record<string, number> = {};
  readonly open = new Set<Request>();

  done(of: Request, fault: string | undefined): void {
    if (!this.open.delete(of)) return;
    this.latencies.push(performance.now() - of.due);
    if (fault !== undefined) this.errors[fault] = (this.errors[fault] ?? 0) + 1;
  }
}

let measure = new Measure();
const waiting: Request[] = [];
/** The connection that has been idle longest comes first, so that none is idle for long. */
const free: Connection[] = [];
let connections = 0;

class Connection {
  readonly #socket = net.connect({ host: hostname, port: Number(port), localAddress: from, noDelay: true });
  #request: Request | undefined;
  #received = '';

  constructor() {
    connections += 1;
    this.#socket.setEncoding('latin1').on('data', (text) => this.#take(String(text)));
    this.#socket.on('error', () => {});
    this.#socket.on('close', () => this.#closed());
  }

  send(next: Request): void {
    this.#request = next;
    this.#socket.write(next.text);
  }

  #take(text: string): void {
    this.#received += text;
    const end = this.#received.indexOf('\r\n\r\n') + 4;
    const length = Number(/\r\ncontent-length: *(\d+)/i.exec(this.#received)?.[1]);
    if (end < 4 || this.#received.length < end + length || this.#request === undefined) return;
    const status = Number(this.#received.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length));
    const isOwn = this.#received.slice(0, end).includes(`: ${this.#request.id}\r\n`);
    const fault = this.#request.fault(status, this.#received.slice(end)) ?? (isOwn ? undefined : 'wrong request id');
    measure.done(this.#request, fault);
    this.#received = '';
    this.#request = undefined;
    const next = waiting.shift();
    if (next !== undefined) this.send(next);
    else free.push(this);
  }

  #closed(): void {
    connections -= 1;
    const at = free.indexOf(this);
    if (at !== -1) free.splice(at, 1);
    if (this.#request !== undefined) measure.done(this.#request, 'cut');
  }
}

function send(next: Request): void {
  measure.open.add(next);
  const connection = free.shift() ?? (connections < MAX_CONNECTIONS ? new Connection() : undefined);
  if (connection === undefined) waiting.push(next);
  else connection.send(next);
}

let sent = 0;

async function drive({ rate, seconds }: Drive): Promise<HealthyResult> {
  measure = new Measure();
  const startedAt = performance.now();
  for (let count = 0; count < rate * seconds; ) {
    for (; count < rate * seconds; count++, sent++) {
      const due = startedAt + (count * 1_000) / rate;
      if (due > performance.now()) break;
      send(request(sent, due));
    }
    Atomics.wait(nobody, 0, 0, GRAIN_MS);
    await nextTurn();
  }
  const deadline = performance.now() + PATIENCE_MS;
  while (measure.open.size > 0 && performance.now() < deadline) await sleep(5);
  for (const late of measure.open) measure.done(late, 'no answer');
  waiting.length = 0;
  const { latencies, errors } = measure;
  const at = (share: number) => quantile(latencies, share);
  return { requests: latencies.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1), errors };
}

process.on('message', async (message: Drive) => process.send?.(await drive(message)));
process.send?.({});
