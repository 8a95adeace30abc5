/** Talks to the admin API that served this page. The token is kept in this tab, until it is closed or logged out. */

const TOKEN = 'admin-token';
/** The gateway asks Redis for 5 seconds, and then for what became of the change. */
const TIMEOUT_MS = 15_000;

export const keptToken = () => sessionStorage.getItem(TOKEN);
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);

/** What the gateway refuses, in its words. */
export class ApiError extends Error {
  constructor({ message, code, status }, retryAfter) {
    super(message);
    this.code = code;
    this.status = status;
    /** Seconds; null where it says nothing. */
    this.retryAfter = retryAfter;
  }
}

/** The gateway did not answer. */
export class Unreachable extends Error {}

/**
 * One call.
 * @returns the body, undefined where there is none, and its ETag
 * @throws {ApiError|Unreachable}
 */
export async function callApi(method, path, { body, ifMatch, token = keptToken() } = {}) {
  // What was under way when somebody logged out asks no more.
  if (token === null) throw new Unreachable('Nobody is logged in.');
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (ifMatch !== undefined) headers['If-Match'] = ifMatch;
  const { response, text } = await ask(path, { method, headers, body: body && JSON.stringify(body) });
  const value = read(text);
  if (response.ok) return { body: value, etag: response.headers.get('ETag') };
  if (response.status === 401 && token === keptToken()) dispatchEvent(new Event('token-refused'));
  throw new ApiError({ ...value, status: response.status }, response.headers.get('Retry-After'));
}

/** Nothing is kept by the browser, and no cookie sent. */
async function ask(path, request) {
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(path, {
      ...request,
      signal,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
    return { response, text: await response.text() };
  } catch (cause) {
    throw new Unreachable('The gateway does not answer.', { cause });
  }
}

function read(text) {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch (cause) {
    throw new Unreachable('What answers is no gateway’s admin listener.', { cause });
  }
}

/**
 * A page of a list. The gateway looks at so many keys in one call; whoever searches goes on until something is found.
 * @param path with its query, without the offset
 * @param member of the answer that holds the entries
 */
export async function listFrom(path, member, offset) {
  for (let at = offset; ; ) {
    const { body } = await callApi('GET', `${path}&offset=${at}`);
    if (body[member].length > 0 || body.next === undefined) return body;
    at = body.next;
  }
}

/** What a refusal of a body says of each of these members; what it says of none is `rest`. */
export function faultsOf({ message }, members) {
  const parts = message
    .replace(/^The body is not valid: /, '')
    .replace(/\.$/, '')
    .split('; ');
  const faults = {};
  const rest = [];
  for (const part of parts) {
    const member = members.find((name) => part.startsWith(`${name} `));
    if (member === undefined) rest.push(part);
    else faults[member] = part;
  }
  return { faults, rest: rest.join('; ') };
}
