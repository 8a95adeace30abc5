/** Parts of hostile byte streams. `{method}`, `{id}` and `{key}` are filled in when they are sent. */

export interface Case {
  readonly name: string;
  /** Written with a short pause between them. */
  readonly writes: readonly string[];
  /** Cuts the connection directly after the last write, without waiting for an answer. */
  readonly cut?: true;
}

/** A request without a key, so it must never be admitted, nor reach the core in the body of another. */
export const HIDDEN = 'GET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n';
export const LINE = '{method} /v1/pets HTTP/1.1';
const HOST = 'Host: a';
export const CREDENTIALS = ['Authorization: Bearer {key}', 'X-Request-Id: {id}'];
const TYPE = 'Content-Type: application/json';
export const CHUNKED = 'Transfer-Encoding: chunked';
export const LAST_CHUNK = '0\r\n\r\n';

/** A head with a valid key; these headers come last. */
export const head = (headers: readonly string[], line = LINE): string =>
  `${[line, HOST, ...CREDENTIALS, TYPE, ...headers].join('\r\n')}\r\n\r\n`;

/** A head with only these lines. */
export const bareHead = (lines: readonly string[]): string => `${lines.join('\r\n')}\r\n\r\n`;

export const length = (body: string): string => `Content-Length: ${body.length}`;

/** A request with a valid key and a body with a length. */
export const withBody = (body: string, headers: readonly string[] = []): string =>
  head([...headers, length(body)]) + body;

export const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;

/** A case with a single write. */
export const one = (name: string, bytes: string): Case => ({ name, writes: [bytes] });
