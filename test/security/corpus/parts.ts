/** Parts of hostile byte streams. `{method}`, `{id}` and `{key}` are replaced before they are sent. */

export interface Case {
  readonly name: string;
  /** The writes are sent with short pauses between them. */
  readonly writes: readonly string[];
  /** Closes the connection directly after the last write, without waiting for an answer. */
  readonly cut?: true;
}

/** A request without a key, which must neither be admitted nor reach the core in the body of another one. */
export const HIDDEN = 'GET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n';
export const LINE = '{method} /v1/pets HTTP/1.1';
const HOST = 'Host: a';
export const CREDENTIALS = ['Authorization: Bearer {key}', 'X-Request-Id: {id}'];
const TYPE = 'Content-Type: application/json';
export const CHUNKED = 'Transfer-Encoding: chunked';
export const LAST_CHUNK = '0\r\n\r\n';

/** A head with a valid key that ends with these headers. */
export const head = (headers: readonly string[], line = LINE): string =>
  `${[line, HOST, ...CREDENTIALS, TYPE, ...headers].join('\r\n')}\r\n\r\n`;

/** A head that consists of these lines. */
export const bareHead = (lines: readonly string[]): string => `${lines.join('\r\n')}\r\n\r\n`;

export const length = (body: string): string => `Content-Length: ${body.length}`;

/** A request with a valid key and a body with a length. */
export const withBody = (body: string, headers: readonly string[] = []): string =>
  head([...headers, length(body)]) + body;

export const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;

export const one = (name: string, bytes: string): Case => ({ name, writes: [bytes] });
