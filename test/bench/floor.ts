import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { type Credential, parseApiKey } from '../../gateway/limiter/credential.ts';
import { DEFAULT_PLANS, planText, readPlans } from '../../gateway/limiter/plans.ts';
import { keepTickClass } from '../../shared/process/run.ts';

/**
 * The floor: a gateway on one page that does only the necessary work. It authenticates, decides in Redis with
 * decide.lua, forwards to the core, sends the limit headers, writes logs and counts requests. It has no defences, and
 * relies on well-behaved clients, cores and Redis servers. The real gateway's additional cost is the price of its
 * guarantees.
 */

// As in the gateway. Without this, the floor would be slower after an idle period.
keepTickClass();
const { CORE_URL = '', REDIS_URL = '', PORT = '0' } = process.env;
const core = new URL(CORE_URL);
const log = pino({ base: null }, pino.destination({ sync: false, minLength: 4_096 }));
const counts = { requests: 0, admitted: 0, refused: 0, milliseconds: 0 };

// 1. The decision: one call decides all requests that arrived in the same event loop turn or during the previous call,
// grouped by key.

interface Asked {
  readonly credential: Credential;
  readonly answered: ((reply: string) => void)[];
}

const redis = new Redis(REDIS_URL);
redis.defineCommand('decide', { lua: readFileSync('gateway/limiter/decide.lua', 'utf8') });
const { decide } = redis as unknown as { decide(...words: (string | number)[]): Promise<string[]> };
const plans = planText(readPlans(await redis.hgetall('gateway:plans'), DEFAULT_PLANS).table);
let asked = new Map<string, Asked>();
let isDeciding = false;

function ask(credential: Credential, answered: (reply: string) => void): void {
  const others = asked.get(credential.cacheKey);
  if (others !== undefined) others.answered.push(answered);
  else {
    asked.set(credential.cacheKey, { credential, answered: [answered] });
    if (asked.size === 1 && !isDeciding) setImmediate(decideAll);
  }
}

async function decideAll(): Promise<void> {
  const batch = [...asked.values()];
  asked = new Map();
  isDeciding = true;
  const keys = batch.map(({ credential }) => `gateway:key:{${credential.id}}`);
  const presented = batch.flatMap(({ credential, answered }) => [credential.digest, answered.length]);
  const replies = await decide.call(redis, keys.length, ...keys, '', plans, ...presented);
  let at = 0;
  for (const { answered } of batch) for (const answer of answered) answer(replies[at++] ?? '');
  isDeciding = false;
  if (asked.size > 0) setImmediate(decideAll);
}

// 2. The status and headers for a verdict.

/** A level as decide.lua writes it: `59.5/60`. */
function levelOf(text = ''): [left: number, limit: number] {
  const slash = text.indexOf('/');
  return [Number(text.slice(0, slash)), Number(text.slice(slash + 1))];
}

/** @returns the status, which is 200 unless the request is refused, and the limit headers */
function verdictOf(reply: string): [status: number, headers: string[]] {
  const [outcome, , time = '', minute, day, bannedUntil, retryAt] = reply.split(' ');
  if (minute === undefined) return [401, ['WWW-Authenticate', 'Bearer']];
  const now = Number(time);
  const [minuteLeft, minuteLimit] = levelOf(minute);
  const [dayLeft, dayLimit] = levelOf(day);
  const isMinute = minuteLeft <= dayLeft;
  const [left, limit, window] = isMinute ? [minuteLeft, minuteLimit, 60] : [dayLeft, dayLimit, 86_400];
  const isRefused = outcome === 'refused' || outcome === 'banned';
  const end = isRefused
    ? Number(outcome === 'banned' ? bannedUntil : retryAt) / 1e6
    : now + ((limit - left) * window) / limit;
  const headers = [
    'X-RateLimit-Limit',
    String(limit),
    'X-RateLimit-Remaining',
    String(isRefused ? 0 : Math.floor(left)),
    'X-RateLimit-Reset',
    String(Math.ceil(end)),
    'RateLimit-Policy',
    `"minute";q=${minuteLimit};w=60, "day";q=${dayLimit};w=86400`,
    'RateLimit',
    `"minute";r=${Math.floor(minuteLeft)};t=60, "day";r=${Math.floor(dayLeft)};t=86400`,
  ];
  if (isRefused) headers.push('Retry-After', String(Math.max(1, Math.ceil(end - now))));
  return [isRefused ? 429 : outcome === 'forbidden' ? 403 : 200, headers];
}

// 3. The core: the reads of all clients are pipelined on a few connections, and each write has its own connection.

interface Answer {
  readonly status: number;
  readonly headers: string[];
  readonly body: Buffer;
}

const IDLE_MS = 2_000;

/** A connection to the core. All requests of an event loop turn are sent in a single write. */
class Wire {
  isOpen = true;
  readonly #socket = net.connect(Number(core.port), core.hostname).setNoDelay();
  readonly #waiting: ((answer: Answer) => void)[] = [];
  #unread: Buffer = Buffer.alloc(0);
  #unsent = '';

  constructor() {
    this.#socket.on('data', (bytes) => this.#read(bytes));
    this.#socket.on('close', () => {
      this.isOpen = false;
    });
    // Closes the connection before the core does. Otherwise a request could be sent just as the core closes it.
    this.#socket.setTimeout(IDLE_MS, () => {
      if (this.#waiting.length > 0) return;
      this.isOpen = false;
      this.#socket.end();
    });
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  ask(text: string, answered: (answer: Answer) => void): void {
    this.#waiting.push(answered);
    if (this.#unsent === '') setImmediate(() => this.#send());
    this.#unsent += text;
  }

  #send(): void {
    this.#socket.write(this.#unsent);
    this.#unsent = '';
  }

  #read(bytes: Buffer): void {
    let unread = this.#unread.length === 0 ? bytes : Buffer.concat([this.#unread, bytes]);
    for (let end = unread.indexOf('\r\n\r\n'); end !== -1; end = unread.indexOf('\r\n\r\n')) {
      const [first = '', ...lines] = unread.toString('latin1', 0, end).split('\r\n');
      const headers: string[] = [];
      let length = 0;
      for (const line of lines) {
        const colon = line.indexOf(': ');
        const [name, value] = [line.slice(0, colon), line.slice(colon + 2)];
        if (name === 'Content-Length') length = Number(value);
        if (name !== 'Connection' && name !== 'Keep-Alive' && name !== 'Date') headers.push(name, value);
      }
      if (unread.length < end + 4 + length) break;
      const body = unread.subarray(end + 4, end + 4 + length);
      unread = unread.subarray(end + 4 + length);
      this.#waiting.shift()?.({ status: Number(first.slice(9, 12)), headers, body });
    }
    this.#unread = unread;
  }
}

const readers = Array.from({ length: 4 }, () => new Wire());
const writers: Wire[] = [];

function forward(method: string, target: string, headers: string, body: string, answered: (answer: Answer) => void) {
  const text = `${method} ${target} HTTP/1.1\r\nHost: ${core.host}\r\n${headers}\r\n${body}`;
  if (method === 'GET') reader().ask(text, answered);
  else {
    const wire = writer();
    wire.ask(text, (answer) => {
      writers.push(wire);
      answered(answer);
    });
  }
}

/** The connection with the fewest requests in flight. */
function reader(): Wire {
  let idlest = 0;
  for (const [at, wire] of readers.entries()) {
    if (!wire.isOpen) readers[at] = new Wire();
    if (wire.waiting < (readers[idlest]?.waiting ?? 0)) idlest = at;
  }
  return readers[idlest] as Wire;
}

function writer(): Wire {
  for (let wire = writers.pop(); wire !== undefined; wire = writers.pop()) if (wire.isOpen) return wire;
  return new Wire();
}

// 4. The path of a request.

function serve(request: IncomingMessage, response: ServerResponse): void {
  const startedAt = performance.now();
  const { method = '', url = '', headers } = request;
  const id = (headers['x-request-id'] as string | undefined) ?? randomUUID();
  const credential = parseApiKey(headers.authorization?.slice('Bearer '.length) ?? '');

  function answer(status: number, ours: string[], theirs: string[], body: string | Buffer): void {
    response.writeHead(status, [...theirs, 'X-Request-Id', id, 'X-Content-Type-Options', 'nosniff', ...ours]);
    response.end(body);
    observe(status);
  }

  function refuse(status: number, ours: string[]): void {
    const body = JSON.stringify({ code: http.STATUS_CODES[status], message: http.STATUS_CODES[status], status });
    answer(status, ours, ['Content-Type', 'application/json', 'Content-Length', String(body.length)], body);
  }

  function observe(status: number): void {
    const durationMs = performance.now() - startedAt;
    counts.requests += 1;
    counts[status < 400 ? 'admitted' : 'refused'] += 1;
    counts.milliseconds += durationMs;
    log.info({ requestId: id, method, path: url, status, keyId: credential?.id, durationMs }, 'request');
  }

  if (credential === undefined) {
    refuse(401, ['WWW-Authenticate', 'Bearer']);
    return;
  }
  ask(credential, (reply) => {
    const [status, limits] = verdictOf(reply);
    const ours = `X-Request-Id: ${id}\r\nX-Caller-Id: ${credential.id}\r\n`;
    const answered = (one: Answer) => answer(one.status, limits, one.headers, one.body);
    if (status !== 200) refuse(status, limits);
    else if (method === 'GET') forward(method, url, ours, '', answered);
    else {
      let body = '';
      request.setEncoding('utf8').on('data', (text) => {
        body += text;
      });
      request.on('end', () => {
        const length = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`;
        forward(method, url, ours + length, body, answered);
      });
    }
  });
}

const server = http.createServer({ keepAliveTimeout: 60_000 }, serve).listen(Number(PORT), '127.0.0.1', () => {
  process.send?.({ floor: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
