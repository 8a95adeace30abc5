/** The small parts of which hostile byte streams are made. `{method}`, `{id}` and `{key}` are filled in as they are sent. */

export interface Case {
  readonly name: string;
  /** What is written, a moment apart. */
  readonly writes: readonly string[];
  /** Cuts the connection at once behind the last of them, instead of listening for an answer. */
  readonly cut?: true;
}

/** A request that nobody may ever decide on, since it bears no key: it must not get to the core in anything's body. */
export const HIDDEN = 'GET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n';
export const LINE = '{method} /v1/pets HTTP/1.1';
const HOST = 'Host: a';
export const CREDENTIALS = ['Authorization: Bearer {key}', 'X-Request-Id: {id}'];
const TYPE = 'Content-Type: application/json';
export const CHUNKED = 'Transfer-Encoding: chunked';
export const LAST_CHUNK = '0\r\n\r\n';

/** A head with a good key, these headers behind the others. */
export const head = (headers: readonly string[], line = LINE): string =>
  `${[line, HOST, ...CREDENTIALS, TYPE, ...headers].join('\r\n')}\r\n\r\n`;

/** A head made of nothing but what is given. */
export const bareHead = (lines: readonly string[]): string => `${lines.join('\r\n')}\r\n\r\n`;

export const length = (body: string): string => `Content-Length: ${body.length}`;

/** A request with a good key and a body whose length is told. */
export const withBody = (body: string, headers: readonly string[] = []): string =>
  head([...headers, length(body)]) + body;

export const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;

/** A case that is one write. */
export const one = (name: string, bytes: string): Case => ({ name, writes: [bytes] });
