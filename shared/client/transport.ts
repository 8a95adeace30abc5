import { setTimeout as sleep } from 'node:timers/promises';
import { type Dispatcher, errors, Pool } from 'undici';
import { z } from 'zod';
import type { ErrorCode } from '../http/errors.ts';
import { http } from '../http/node-http.ts';
import { IDEMPOTENCY_KEY } from '../http/request-head.ts';
import { parseJson, toJson } from '../schemas/json.ts';

/** Sends requests to the core, with timeouts, safe retries and typed errors. */

export type StoreErrorCode = ErrorCode | 'unreachable' | 'timeout' | 'aborted' | 'invalid_answer';

interface StoreErrorDetails {
  readonly status?: number;
  readonly retryAfterSeconds?: number | undefined;
  readonly cause?: unknown;
}

/** The only error that the client throws. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly code: StoreErrorCode;
  /** The HTTP status; 0 without a response. */
  readonly status: number;
  readonly retryAfterSeconds?: number | undefined;

  constructor(code: StoreErrorCode, message: string, { status = 0, retryAfterSeconds, cause }: StoreErrorDetails = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.status = status;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Limits of one call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** The time for the whole call, including retries. By default the client's own timeout applies. */
  readonly timeoutMs?: number | undefined;
}

export interface StoreRequest {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
  /** Makes a POST safe to repeat. Every POST needs one. */
  readonly idempotencyKey?: string;
}

export interface StoreAnswer {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly bytes: Uint8Array;
}

export interface StoreClientOptions {
  /** The core's origin, for instance http://127.0.0.1:7001. */
  readonly url: string;
  /** The core's CORE_TOKEN, if it has one. */
  readonly token?: string | undefined;
  /** The time for each call, including retries. */
  readonly timeoutMs?: number;
  /** The maximum number of connections to the core. More calls wait. */
  readonly connections?: number;
}

const CONNECT_TIMEOUT_MS = 1_000;
/** Less than the core's own 5 s, so that a connection is not used while the core closes it. */
const KEEP_ALIVE_MS = 4_000;
/** The longest timer of Node, 24 days. A longer one would fire after a millisecond. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const INVALID_TIMEOUT = 'timeoutMs must be a number from 1.';
/** The pauses in ms before the second and the third attempt. */
const PAUSES_MS = [50, 200];

/** These statuses are worth a retry: the request was not carried out, or an Idempotency-Key protects it. */
const PASSING: ReadonlySet<number> = new Set([502, 503, 504]);
const REPEATABLE: ReadonlySet<string> = new Set(['GET', 'POST']);
/** These errors occur before a connection exists, so nothing can have arrived. */
const NEVER_SENT: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT']);
const CLOSED: ReadonlySet<string> = new Set(['UND_ERR_CLOSED', 'UND_ERR_DESTROYED']);
const MALFORMED: ReadonlySet<string> = new Set(['UND_ERR_HEADERS_OVERFLOW', 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH']);

/**
 * Opens a pool of connections to the core. The first call opens the first connection.
 * @throws for a URL that is not a plain origin, a token that is not a valid header value, or a limit below one
 */
export function openTransport({ url, token, timeoutMs = 5_000, connections = 16 }: StoreClientOptions) {
  if (!isOrigin(url)) throw new TypeError('url must be an origin such as http://127.0.0.1:7001.');
  if (!isTimeout(timeoutMs)) throw new TypeError(INVALID_TIMEOUT);
  if (!Number.isInteger(connections) || connections < 1)
    throw new TypeError('connections must be a whole number from 1.');
  const authorization: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
  // A request that undici cannot write blocks its connection for good, so the headers are checked first.
  for (const [name, value] of Object.entries(authorization)) http.validateHeaderValue(name, value);
  // Only the call's own timeout applies. The timeouts of undici are coarse and do not run while a request waits for a
  // connection.
  const pool = new Pool(url, {
    connections,
    connectTimeout: CONNECT_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    headersTimeout: 0,
    bodyTimeout: 0,
  });

  let closed: Promise<void> | undefined;
  return {
    /** @throws {StoreError} unless the response is a success */
    async call(request: StoreRequest, options: CallOptions = {}): Promise<StoreAnswer> {
      const callMs = options.timeoutMs ?? timeoutMs;
      if (!isTimeout(callMs)) throw new StoreError('invalid_request', INVALID_TIMEOUT);
      const limit = startLimit(callMs, options.signal);
      try {
        const written = { ...write(request, authorization), signal: limit.signal };
        return await repeatWhereSafe(request.method, limit, () => attempt(pool, written, limit.signal));
      } finally {
        limit.end();
      }
    },
    /** Finishes the calls in progress. Later calls are refused. */
    close: (): Promise<void> => (closed ??= pool.close()),
  };
}

const isTimeout = (ms: number): boolean => ms >= 1;

function isOrigin(url: string): boolean {
  const { protocol, origin, href } = URL.parse(url) ?? {};
  return (protocol === 'http:' || protocol === 'https:') && href === `${origin}/`;
}

function write(request: StoreRequest, authorization: Record<string, string>): Dispatcher.RequestOptions {
  const { method, path, body, idempotencyKey } = request;
  const headers = { ...authorization };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (idempotencyKey !== undefined) headers[IDEMPOTENCY_KEY] = `"${idempotencyKey}"`;
  return { method, path, headers, body: body === undefined ? null : toJson(body) };
}

/** Reads the body of a response that must match `schema`. @throws {StoreError} `invalid_answer` if it does not */
export function readAnswer<S extends z.ZodType>(schema: S, answer: StoreAnswer): z.output<S> {
  try {
    return schema.parse(parseJson(answer.bytes));
  } catch (cause) {
    const message = `The store sent status ${answer.status} with an unexpected body.`;
    throw new StoreError('invalid_answer', message, { ...detailsOf(answer), cause });
  }
}

/** Combines a timeout with the caller's signal. AbortSignal.timeout would hold each call's memory until it fires. */
function startLimit(timeoutMs: number, signal: AbortSignal | undefined) {
  const clock = new AbortController();
  const onTime = () => clock.abort(new DOMException(`No response within ${timeoutMs} ms.`, 'TimeoutError'));
  const timer = setTimeout(onTime, Math.min(timeoutMs, LONGEST_TIMER_MS));
  return {
    signal: AbortSignal.any(signal === undefined ? [clock.signal] : [clock.signal, signal]),
    /** The deadline, by `performance.now()`. */
    endsAt: performance.now() + timeoutMs,
    end: () => clearTimeout(timer),
  };
}

type Limit = ReturnType<typeof startLimit>;

/** Makes up to three attempts. Throws the last fault at once if the next attempt would begin after the timeout. */
async function repeatWhereSafe<T>(method: string, { signal, endsAt }: Limit, once: () => Promise<T>): Promise<T> {
  for (const pauseMs of PAUSES_MS) {
    try {
      return await once();
    } catch (fault) {
      if (!(fault instanceof StoreError) || !mayRepeat(method, fault)) throw fault;
      // Waits half to one and a half times the pause, so that callers that failed together do not retry together.
      const waitMs = pauseMs * (0.5 + Math.random()) + (fault.retryAfterSeconds ?? 0) * 1_000;
      if (performance.now() + waitMs >= endsAt) throw fault;
      await sleep(waitMs, undefined, { signal }).catch(() => {
        throw interruption(signal);
      });
    }
  }
  return await once();
}

function mayRepeat(method: string, { code, status, cause }: StoreError): boolean {
  if (code === 'unreachable' && NEVER_SENT.has(codeOf(cause))) return true;
  return REPEATABLE.has(method) && (code === 'unreachable' || PASSING.has(status));
}

async function attempt(pool: Pool, written: Dispatcher.RequestOptions, signal: AbortSignal): Promise<StoreAnswer> {
  const answer = await unlessAborted(signal, () => exchange(pool, written)).catch((cause) => {
    throw signal.aborted ? interruption(signal) : noAnswer(cause);
  });
  if (answer.status >= 300) throw refusal(answer);
  return answer;
}

async function exchange(pool: Pool, written: Dispatcher.RequestOptions): Promise<StoreAnswer> {
  const { statusCode, headers, body } = await pool.request(written);
  return { status: statusCode, headers, bytes: await body.bytes() };
}

/** undici reports an abort only once the request has a connection. This function reports it at once. */
async function unlessAborted<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  signal.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work(), aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function interruption({ reason }: AbortSignal): StoreError {
  const isTime = reason instanceof DOMException && reason.name === 'TimeoutError';
  if (isTime) return new StoreError('timeout', reason.message, { cause: reason });
  return new StoreError('aborted', 'The call was aborted.', { cause: reason });
}

function noAnswer(cause: unknown): StoreError {
  const code = codeOf(cause);
  if (CLOSED.has(code)) return new StoreError('aborted', 'The client is closed.', { cause });
  // undici's parser errors have no code.
  if (cause instanceof errors.HTTPParserError || MALFORMED.has(code)) {
    return new StoreError('invalid_answer', 'The store sent a response that is not valid HTTP.', { cause });
  }
  return new StoreError('unreachable', 'The store could not be reached, or the connection broke.', { cause });
}

const codeOf = (fault: unknown): string => String((fault as { code?: unknown } | undefined)?.code);

/** A newer core may have codes that this client does not know. They are passed on unchanged. */
const ErrorAnswer = z.object({
  code: z.custom<ErrorCode>((code) => typeof code === 'string'),
  message: z.string(),
});

function refusal(answer: StoreAnswer): StoreError {
  const { code, message } = readAnswer(ErrorAnswer, answer);
  return new StoreError(code, message, detailsOf(answer));
}

const detailsOf = ({ status, headers }: StoreAnswer): StoreErrorDetails => ({
  status,
  retryAfterSeconds: secondsIn(String(headers['retry-after'])),
});

/** Retry-After is a number of seconds or, from some proxies, a date (RFC 9110 §10.2.3). */
function secondsIn(retryAfter: string): number | undefined {
  if (/^\d+$/.test(retryAfter)) return Number(retryAfter);
  const at = retryAfter.endsWith(' GMT') ? Date.parse(retryAfter) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - Date.now()) / 1_000));
}
