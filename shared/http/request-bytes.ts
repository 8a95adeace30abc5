import type { IncomingMessage } from 'node:http';

const LINE_FEED = 0x0a;
const RETURN = 0x0d;
/** Ends a head, and a body in chunks. Node's parser accepts no other line endings. */
const EMPTY_LINE = '\r\n\r\n';
/** Heads are seldom longer. A text is searched in a third of the time that a buffer takes. */
const USUAL_BYTES = 1_024;

/**
 * Divides the bytes of a connection before Node's parser gets them, so that the parser gets at most one request at a
 * time. Also checks the request line, because the parser skips further spaces and another parser may not (RFC 9112 §3).
 * What else is malformed, the parser refuses.
 */
export class RequestBytes {
  /** Whether the next bytes belong to a request that has begun. */
  isInBody = false;
  /** The beginning of a head that is not complete; of chunks, what may be the beginning of an empty line. */
  #begun = '';
  /** Of a body with a length; 0 in chunks. */
  #left = 0;
  #isEnded = false;

  /**
   * Where the part ends that begins here: a head, a body with a length, or chunks up to an empty line, which may be
   * within one. -1 if the request line has more than one space between its parts.
   */
  endOfPart(bytes: Buffer, at: number): number {
    if (this.#left > 0) return this.#endOfLength(bytes, at);
    const begun = this.#begun;
    const from = this.isInBody || begun !== '' ? at : behindBreaks(bytes, at);
    let text = begun + bytes.toString('latin1', from, from + USUAL_BYTES);
    let end = text.indexOf(EMPTY_LINE);
    if (end === -1 && from + USUAL_BYTES < bytes.length) {
      text = begun + bytes.toString('latin1', from);
      end = text.indexOf(EMPTY_LINE);
    }
    if (!this.isInBody && hasTwoSpaces(text)) return -1;
    this.#isEnded = end !== -1;
    this.#begun = this.#isEnded ? '' : text.slice(this.isInBody ? -3 : 0);
    return this.#isEnded ? from + end + EMPTY_LINE.length - begun.length : bytes.length;
  }

  /** Called when the parser has read a part. @param request the one that it reads, or read last */
  follow(request: IncomingMessage | null): void {
    if (!this.#isEnded) return;
    this.isInBody = request?.complete === false;
    if (this.isInBody) this.#left = Number(request?.headers['content-length'] ?? 0);
  }

  #endOfLength(bytes: Buffer, at: number): number {
    const end = Math.min(at + this.#left, bytes.length);
    this.#left -= end - at;
    this.#isEnded = this.#left === 0;
    return end;
  }
}

function hasTwoSpaces(head: string): boolean {
  const at = head.indexOf('  ');
  return at !== -1 && !/[\r\n]/.test(head.slice(0, at));
}

/** The parser skips line breaks before a request. */
function behindBreaks(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === RETURN || bytes[at] === LINE_FEED) at++;
  return at;
}
