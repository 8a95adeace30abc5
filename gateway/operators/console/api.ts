import { useEffect, useState } from 'preact/hooks';
import type { CallerAnswer, FoundAnswer, KeysAnswer, TopAnswer } from '../api/answers.ts';
import { firstFilled, readSorted, withWho } from '../clients.ts';

/**
 * The client of the admin API: calls, polling, and the state of the gateway as its responses show it. The operator's
 * token and name are kept in this tab until it is closed or the operator logs out.
 */

const TOKEN = 'admin-token';
const AUTHOR = 'author';
/** The gateway waits up to 5 seconds for Redis. If the reply is lost, it then finds out whether the change was made. */
const TIMEOUT_MS = 15_000;

export const keptToken = (): string | null => sessionStorage.getItem(TOKEN);
/** Also notifies a dialog that was opened before this login. */
export function keepToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
  dispatchEvent(new Event('token-kept'));
}

/** The name is sent with each change. */
export const author = (): string => sessionStorage.getItem(AUTHOR) ?? '';
export const rememberAuthor = (name: string): void => sessionStorage.setItem(AUTHOR, name);

/** Who is logged in; undefined until the gateway has responded. */
let caller: CallerAnswer | undefined;
export const currentCaller = (): CallerAnswer | undefined => caller;
export function noteCaller(answer: CallerAnswer | undefined): void {
  caller = answer;
}

/** The name of the token, if it has one. The gateway then records it with each change, in place of a typed name. */
export const tokenName = (): string | undefined => caller?.name;

/** Forgets the token and the name. */
export function forgetCaller(): void {
  noteCaller(undefined);
  sessionStorage.clear();
}

/** A refusal by the gateway, with its message. */
export class ApiError extends Error {
  readonly code: string;
  readonly status: number;
  /** The value of Retry-After, in seconds; null if the response has none. */
  readonly retryAfter: string | null;

  constructor(answer: { message?: string; code?: string }, status: number, retryAfter: string | null) {
    super(answer.message ?? `The gateway responded with status ${status}.`);
    this.code = answer.code ?? '';
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

interface CallOptions {
  readonly body?: unknown;
  readonly ifMatch?: string | null;
  readonly token?: string | null;
  /** Why a change is made. */
  readonly reason?: string | undefined;
  /** Whether the call changes nothing, although it is not a GET. */
  readonly isTrial?: true;
}

/**
 * Makes one call.
 * @returns the body, undefined if there is none, and its ETag
 * @throws {ApiError|Error} if the gateway refuses it, or does not respond
 */
export async function callApi<T = unknown>(
  method: string,
  path: string,
  { body, ifMatch, token = keptToken(), reason, isTrial }: CallOptions = {},
): Promise<{ readonly body: T; readonly etag: string | null }> {
  // Calls that were in progress at logout stop here.
  if (token === null) throw new Error('You are not logged in.');
  const headers: Record<string, string> = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (ifMatch) headers['If-Match'] = ifMatch;
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const isChange = method !== 'GET' && !isTrial;
  const target = isChange ? withWho(path, author() || undefined, reason) : path;
  const { response, text } = await ask(target, { method, headers, ...sent }, isChange);
  const value = read(text, isChange && response.status >= 500);
  const { ok, status, headers: received } = response;
  const fault = ok
    ? undefined
    : new ApiError((value ?? {}) as { message?: string }, status, received.get('Retry-After'));
  if (path === STATE) askedAt = undefined;
  // A change may fail even if the data can be read.
  if (!isChange && readsStore(path)) noteRead(status === 503 ? fault?.message : undefined);
  if (fault === undefined) return { body: value as T, etag: received.get('ETag') };
  if (status === 401 && token === keptToken()) dispatchEvent(new Event('token-refused'));
  throw fault;
}

export const bodyOf = async <T>(path: string): Promise<T> => (await callApi<T>('GET', path)).body;

const MAYBE_MADE = ' The change may have been made: check the audit log before you repeat it.';

/** The browser stores nothing, and no cookie is sent. */
async function ask(
  path: string,
  request: RequestInit,
  isChange: boolean,
): Promise<{ response: Response; text: string }> {
  if (path === STATE) askedAt ??= new Date();
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
    throw new Error(`The gateway does not respond.${isChange ? MAYBE_MADE : ''}`, { cause });
  }
}

/** @param isUnknown whether a change may have been made: a proxy may send its own page in place of a lost response */
function read(text: string, isUnknown: boolean): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch (cause) {
    throw new Error(`This server is not a gateway’s admin listener.${isUnknown ? MAYBE_MADE : ''}`, { cause });
  }
}

export const isKeyId = (text: string): boolean => /^[0-9A-Za-z]{12}$/.test(text);
export const keyPath = (id: string): string => `/keys/${encodeURIComponent(id)}`;

/**
 * The state of the gateway is polled every second. It is unknown once a response has been missing for this long, so a
 * single failed poll changes nothing.
 */
const KNOWN_WITHIN_MS = 2_500;
const STATE = '/traffic';

/** How many reads in a row must fail before the page reports it. */
const MISSES = 2;

export interface Trouble {
  readonly kind: 'silent' | 'unreadable';
  readonly since: Date;
  /** Why data cannot be read. */
  readonly why?: string | undefined;
}

/** When the first request for the state was sent after the last response to one. */
let askedAt: Date | undefined;
/** The last reads, if they failed, and how many in a row. */
let unreadable: (Trouble & { readonly misses: number }) | undefined;

/** Requests that fail without Redis. The plan table can be read without it. */
const readsStore = (path: string): boolean => /^\/(keys|bans|plans\/|usage|activity|tokens)/.test(path);

/** @param why the message of a failed read; undefined after a successful one */
function noteRead(why: string | undefined): void {
  const { since = new Date(), misses = 0 } = unreadable ?? {};
  unreadable = why === undefined ? undefined : { kind: 'unreadable', since, why, misses: misses + 1 };
}

/** The most serious current problem; undefined if there is none. */
function trouble(): Trouble | undefined {
  if (askedAt !== undefined && Date.now() - askedAt.getTime() > KNOWN_WITHIN_MS)
    return { kind: 'silent', since: askedAt };
  return unreadable !== undefined && unreadable.misses >= MISSES ? unreadable : undefined;
}

/** `trouble`, kept current: a poll without a response renders nothing, so a timer renders while requests fail. */
export function useTrouble(): Trouble | undefined {
  const [, render] = useState<number>();
  useEffect(() => {
    const timer = setInterval(() => render(trouble() && Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  return trouble();
}

/** The last response to a poll, and any fault since then. */
export interface Polled<T> {
  readonly value?: T | undefined;
  readonly fault?: Error | undefined;
}

/** The polls of the current page. */
const polls = new Set<() => Promise<void>>();

/** Polls everything immediately, so that the page shows a change. */
export const refresh = async (): Promise<void> => void (await Promise.all([...polls].map((poll) => poll())));

/**
 * Polls while the page is visible. Each call waits for the previous response.
 * @param name identifies what is polled, for example by its path. A new name clears the value
 * @param ask may throw. It is replaced only together with the name
 */
export function usePolled<T>(name: string, everyMs: number, ask: () => Promise<T> = () => bodyOf<T>(name)): Polled<T> {
  const [state, setState] = useState<Polled<T> & { readonly name: string }>({ name });

  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async () => {
      try {
        const value = await ask();
        if (!isOver) setState({ name, value });
      } catch (fault) {
        if (!isOver)
          setState((old) => ({ name, value: old.name === name ? old.value : undefined, fault: fault as Error }));
      }
    };
    const turn = async () => {
      if (!document.hidden) await poll();
      if (!isOver) timer = setTimeout(turn, everyMs);
    };
    void turn();
    const seen = () => void (!document.hidden && poll());
    document.addEventListener('visibilitychange', seen);
    polls.add(poll);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
      polls.delete(poll);
    };
  }, [name, everyMs]);

  return state.name === name ? state : {};
}

const KEYS_EVERY_MS = 5_000;
/** The number of keys that one call checks. */
const CHECKED_AT_ONCE = 5_000;

/**
 * Polls a list of keys. The more calls a sorted one takes, the less often it is read.
 * @param compare the order of the list, for which all keys are read; undefined for the order in which they are found
 */
export function useKeyList<T extends KeysAnswer | TopAnswer | FoundAnswer>(
  path: string,
  asked: Readonly<Record<string, string>>,
  compare?: (a: T['keys'][number], b: T['keys'][number]) => number,
): Polled<T> {
  const [calls, setCalls] = useState(1);
  return usePolled(`${path} ${JSON.stringify(asked)}`, KEYS_EVERY_MS * calls, async () => {
    if (compare === undefined) return await firstFilled<T>(bodyOf, path, asked, ({ keys }) => keys);
    const list = await readSorted<T>(bodyOf, path, asked, compare);
    setCalls(Math.max(1, Math.ceil(('total' in list ? list.total : 0) / CHECKED_AT_ONCE)));
    return list;
  });
}
