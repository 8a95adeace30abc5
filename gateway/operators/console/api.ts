import { author } from './author.ts';
import { noteAnswer, noteQuestion } from './connection.ts';

/**
 * The client of the admin API that served this page. The token stays in this tab until logout or until it is closed.
 */

const TOKEN = 'admin-token';
/** The gateway waits up to 5 seconds for Redis, then asks for the result of the change. */
const TIMEOUT_MS = 15_000;
const UNAUTHORIZED = 401;

export const keptToken = (): string | null => sessionStorage.getItem(TOKEN);
export const keepToken = (token: string): void => sessionStorage.setItem(TOKEN, token);
export const forgetToken = (): void => sessionStorage.removeItem(TOKEN);

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
export class Unreachable extends Error {}

interface CallOptions {
  readonly body?: unknown;
  readonly ifMatch?: string | undefined;
  readonly token?: string | null;
  /** Why a change is made. A body with an author has its own reason. */
  readonly reason?: string | undefined;
  /** Whether it changes nothing, although it is no GET. */
  readonly isTrial?: true;
}

export interface Answered<T> {
  readonly body: T;
  readonly etag: string | null;
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
): Promise<Answered<T>> {
  // Calls that were running at logout stop here.
  if (token === null) throw new Unreachable('Nobody is logged in.');
  const headers: Record<string, string> = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (ifMatch !== undefined) headers['If-Match'] = ifMatch;
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const isChange = method !== 'GET' && !isTrial;
  const { response, text } = await ask(isChange ? saying(path, reason) : path, { method, headers, ...sent });
  const value = read(text);
  noteAnswer(path, response.status);
  if (response.ok) return { body: value as T, etag: response.headers.get('ETag') };
  if (response.status === UNAUTHORIZED && token === keptToken()) dispatchEvent(new Event('token-refused'));
  throw new ApiError((value ?? {}) as { message?: string }, response.status, response.headers.get('Retry-After'));
}

export const get = <T>(path: string): Promise<Answered<T>> => callApi<T>('GET', path);

/** Returns only the body, for answers in parts. */
export const bodyOf = async <T>(path: string): Promise<T> => (await get<T>(path)).body;

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
