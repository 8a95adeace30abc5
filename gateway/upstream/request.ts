/** What goes to the core. */
export interface UpstreamRequest {
  readonly method: string;
  /** Path and query in canonical form. */
  readonly target: string;
  /** Flat list, filtered. */
  readonly headers: string[];
  readonly body: Buffer | undefined;
  /** Its X-Request-Id, which is among the headers too. */
  readonly id: string;
  /** Whether the client chose the id, so that others may bear it too. */
  readonly hasGivenId: boolean;
  /** Whose request it is: clients share connections fairly. */
  readonly client: string;
}

/** Whether it may be asked for twice, and on a connection with others: it reads, and has no body. */
export const isRepeatable = ({ method, body }: UpstreamRequest): boolean =>
  (method === 'GET' || method === 'HEAD') && body === undefined;

/** What can stand in a field's value (RFC 9110 §5.5). What ends a line would begin another header, or another request. */
const NOT_IN_VALUES = /[^\t\x20-\x7e\x80-\xff]/;

/**
 * The text of a request without a body, each character a byte (RFC 9112 §3).
 * @param host as the core is called
 * @throws for a value that no parser that we know of would have let in
 */
export function writeRequest({ method, target, headers }: UpstreamRequest, host: string): string {
  let text = `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n`;
  for (let at = 0; at < headers.length; at += 2) {
    const value = headers[at + 1] as string;
    if (NOT_IN_VALUES.test(value)) throw new Error(`The header ${headers[at]} has a value that cannot be sent.`);
    text += `${headers[at]}: ${value}\r\n`;
  }
  return `${text}\r\n`;
}
