import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

/**
 * The client of the admin API that served this page: calls, what their answers show about the gateway, and polling. The
 * token and the name of the person at this console stay in this tab until logout or until it is closed.
 */

const TOKEN = 'admin-token';
const AUTHOR = 'author';
/** The gateway waits up to 5 seconds for Redis, then asks for the result of the change. */
const TIMEOUT_MS = 15_000;

export const keptToken = (): string | null => sessionStorage.getItem(TOKEN);
export const keepToken = (token: string): void => sessionStorage.setItem(TOKEN, token);

/** The name is sent with each change. */
export const author = (): string => sessionStorage.getItem(AUTHOR) ?? '';
export const rememberAuthor = (name: string): void => sessionStorage.setItem(AUTHOR, name);

/** Forgets the token and the name. */
export const forgetCaller = (): void => [TOKEN, AUTHOR].forEach((item) => void sessionStorage.removeItem(item));

/** A refusal by the gateway, with its message. */
export class ApiError extends Error {
  readonly code: string;
  readonly status: number;
  /** The wait in seconds; null if the response has none. */
  readonly retryAfter: string | null;

  constructor(answer: { message?: string; code?: string }, status: number, retryAfter: string | null) {
    super(answer.message ?? `The gateway answered with status ${status}.`);
    this.code = answer.code ?? '';
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The gateway did not respond. */
class Unreachable extends Error {}

interface CallOptions {
  readonly body?: unknown;
  readonly ifMatch?: string | null;
  readonly token?: string | null;
  /** Why a change is made. A body with an author has its own reason. */
  readonly reason?: string | undefined;
  /** Whether it changes nothing, although it is no GET. */
  readonly isTrial?: true;
}

/**
 * Makes one call.
 * @returns the body, undefined if there is none, and its ETag
 * @throws {ApiError|Unreachable}
 */
export async function callApi<T = unknown>(
  method: string,
  path: string,
  { body, ifMatch, token = keptToken(), reason, isTrial }: CallOptions = {},
): Promise<{ readonly body: T; readonly etag: string | null }> {
  // Calls that were running at logout stop here.
  if (token === null) throw new Unreachable('Nobody is logged in.');
  const headers: Record<string, string> = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (ifMatch) headers['If-Match'] = ifMatch;
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const isChange = method !== 'GET' && !isTrial;
  const { response, text } = await ask(isChange ? saying(path, reason) : path, { method, headers, ...sent });
  const value = read(text);
  const { ok, status, headers: received } = response;
  const fault = ok
    ? undefined
    : new ApiError((value ?? {}) as { message?: string }, status, received.get('Retry-After'));
  noteAnswer(path, status);
  if (!isChange && readsStore(path)) noteRead(fault);
  if (fault === undefined) return { body: value as T, etag: received.get('ETag') };
  if (status === 401 && token === keptToken()) dispatchEvent(new Event('token-refused'));
  throw fault;
}

export const bodyOf = async <T>(path: string): Promise<T> => (await callApi<T>('GET', path)).body;

/** Adds who makes a change and why to its path, for the audit log. */
function saying(path: string, reason: string | undefined): string {
  const said = new URLSearchParams({ ...(author() && { author: author() }), ...(reason && { reason }) });
  return said.size === 0 ? path : `${path}${path.includes('?') ? '&' : '?'}${said}`;
}

/** The browser stores nothing, and no cookie is sent. */
async function ask(path: string, request: RequestInit): Promise<{ response: Response; text: string }> {
  noteQuestion(path);
  try {
    const response = await fetch(path, {
      ...request,
      signal: AbortSignal.timeout(TIMEOUT_MS),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
    return { response, text: await response.text() };
  } catch (cause) {
    noteAnswer(path, undefined);
    throw new Unreachable('The gateway does not answer.', { cause });
  }
}

function read(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch (cause) {
    throw new Unreachable('This server is not a gateway’s admin listener.', { cause });
  }
}

export const keyPath = (id: string): string => `/keys/${encodeURIComponent(id)}`;

/** A single missed answer does not count. */
const MISSES = 2;

/** The state of the gateway is polled all the time. Without an answer for this long, it is unknown. */
const KNOWN_WITHIN_MS = 2_000;
const STATE = '/traffic';

interface Streak {
  readonly since: Date;
  readonly misses: number;
}

export interface Trouble {
  readonly kind: 'silent' | 'unreadable';
  readonly since: Date;
  /** Why data cannot be read. */
  readonly why?: string;
}

/** When the oldest unanswered request for the state was sent. */
let askedAt: Date | undefined;
let silent: Streak | undefined;
let unreadable: (Streak & { readonly why: string }) | undefined;

const longer = (streak: Streak | undefined): Streak => ({
  since: streak?.since ?? new Date(),
  misses: (streak?.misses ?? 0) + 1,
});

/** Requests that fail without Redis. The plan table is known without it. */
const readsStore = (path: string): boolean => /^\/(keys|bans|plans\/|usage|activity|tokens)/.test(path);

/** Called before every request. */
function noteQuestion(path: string): void {
  if (path === STATE) askedAt ??= new Date();
}

/** Called after every request. @param status undefined if the gateway did not respond */
function noteAnswer(path: string, status: number | undefined): void {
  if (path === STATE) askedAt = undefined;
  silent = status === undefined ? longer(silent) : undefined;
}

/** Called after every answer that needs Redis, and after no change: the data may be well although one failed. */
function noteRead(fault: ApiError | undefined): void {
  unreadable = fault?.status === 503 ? { ...longer(unreadable), why: fault.message } : undefined;
}

/** The most serious current trouble; undefined if there is none. */
export function trouble(): Trouble | undefined {
  if (askedAt !== undefined && Date.now() - askedAt.getTime() > KNOWN_WITHIN_MS)
    return { kind: 'silent', since: silent?.since ?? askedAt };
  if (silent !== undefined && silent.misses >= MISSES) return { kind: 'silent', since: silent.since };
  if (unreadable !== undefined && unreadable.misses >= MISSES) return { kind: 'unreadable', ...unreadable };
  return undefined;
}

/** Polls at once. */
export type Refresh = () => Promise<void>;

/** What a page shows of the gateway: the last answer, and any fault since then. */
export interface Polled<T> {
  readonly value: T | undefined;
  readonly fault: Error | undefined;
  readonly refresh: Refresh;
}

/**
 * Polls while the page is visible. Each call follows the previous answer.
 * @param name identifies what is polled: a new name clears the value
 * @param ask may throw
 * @param cause polls at once when it changes
 */
export function usePolled<T>(name: string, everyMs: number, ask: () => Promise<T>, cause?: string): Polled<T> {
  const [state, setState] = useState<{ name: string; value?: T | undefined; fault?: Error }>({ name });
  const latest = useRef(ask);
  latest.current = ask;
  const current = useRef(name);
  current.current = name;

  const refresh = useCallback(async () => {
    const asked = current.current;
    try {
      const value = await latest.current();
      if (current.current === asked) setState({ name: asked, value });
    } catch (fault) {
      if (current.current === asked)
        setState((old) => ({ name: asked, value: old.name === asked ? old.value : undefined, fault: fault as Error }));
    }
  }, []);

  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) await refresh();
      if (!isOver) timer = setTimeout(turn, everyMs);
    };
    void turn();
    const seen = () => void (!document.hidden && refresh());
    document.addEventListener('visibilitychange', seen);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    };
  }, [name, everyMs, cause, refresh]);

  const { value, fault }: typeof state = state.name === name ? state : { name };
  return { value, fault, refresh };
}
