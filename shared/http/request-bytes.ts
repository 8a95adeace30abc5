import type { IncomingMessage } from 'node:http';

/** What is wrong with the bytes of a connection, by the codes of Node and llhttp, or by those below. */
export interface Fault {
  readonly code?: string;
  readonly reason?: string;
}
const NO_REQUEST_LINE: Fault = { code: 'NO_REQUEST_LINE' };
const NO_CHUNK_SIZE: Fault = { code: 'NO_CHUNK_SIZE' };
/** llhttp's code for long extensions. */
const LONG_CHUNK_LINE: Fault = { code: 'HPE_CHUNK_EXTENSIONS_OVERFLOW' };
const MANY_CHUNKS: Fault = { code: 'MANY_CHUNKS' };

const LINE_FEED = 0x0a;
const RETURN = 0x0d;
/** A chunk costs as much as many bytes. A body may have FREE_CHUNKS, and one more for every BYTES_A_CHUNK bytes. */
const FREE_CHUNKS = 500;
const BYTES_A_CHUNK = 128;
/** The length of the line break behind the data of a chunk. */
const LINE_BREAK = 2;
/** The end of a head and of trailers. Node's parser accepts no other line endings. */
const EMPTY_LINE = '\r\n\r\n';
/** A whole line that is not a method, a target and a version of HTTP, separated by one space each. */
const OTHER_LINE = /^(?![^ \r\n]+ [^ \r\n]+ HTTP\/)[^\r\n]*[\r\n]/;
const CHUNK_LINE = /^([\da-f]+)[^\r\n]*\r\n/i;
/**
 * Heads are rarely longer, and lines before chunks never. Searching a text takes a third of the time of searching a
 * buffer.
 */
const USUAL_BYTES = 1_024;

/**
 * Divides the bytes of a connection before Node's parser gets them, so that the parser gets at most one request at a
 * time. It also checks the request line: the parser skips extra spaces, which another parser may not (RFC 9112 §3), and
 * accepts RTSP and lines without a version. The parser itself refuses all else that is malformed.
 */
export class RequestBytes {
  /** Whether the next bytes belong to the body of a request. */
  isInBody = false;
  /**
   * The bytes read so far of an incomplete request line or chunk line; otherwise the beginning of a possible empty
   * line.
   */
  #begun = '';
  /** Whether the request line of the present head is complete. */
  #hasLine = false;
  /** The bytes left of a body with a length, or of a chunk. */
  #left = 0;
  /** How many more chunks the body may have. */
  #chunksLeft = 0;
  #isEnded = false;

  /**
   * The end of the part that begins here: a head, a body with a length, a chunk, or trailers. A fault if the request
   * line is invalid, a chunk has no size, or there are too many chunks.
   */
  endOfPart(bytes: Buffer, at: number): number | Fault {
    if (this.#left > 0) return this.#endOfLength(bytes, at);
    const begun = this.#begun;
    const from = this.isInBody || begun !== '' ? at : behindBreaks(bytes, at);
    const lineEnd = this.isInBody || this.#hasLine ? from : bytes.indexOf(LINE_FEED, from);
    const read = Math.min(Math.max(from + USUAL_BYTES, lineEnd + 1), bytes.length);
    let text = begun + bytes.toString('latin1', from, read);
    if (this.isInBody) {
      const [line = '', size = ''] = CHUNK_LINE.exec(text) ?? [];
      if (line === '' && text.includes('\n')) return NO_CHUNK_SIZE;
      if (line === '' && text.length >= USUAL_BYTES) return LONG_CHUNK_LINE;
      this.#left = Number.parseInt(size, 16) || 0;
      if (this.#left > 0) {
        this.#begun = '';
        this.#chunksLeft += this.#left / BYTES_A_CHUNK - 1;
        if (this.#chunksLeft < 0) return MANY_CHUNKS;
        this.#left += line.length - begun.length + LINE_BREAK;
        return this.#endOfLength(bytes, at);
      }
    }
    const near = text.indexOf(EMPTY_LINE);
    const far = near === -1 ? bytes.indexOf(EMPTY_LINE, Math.max(from, read - EMPTY_LINE.length), 'latin1') : -1;
    this.#isEnded = near !== -1 || far !== -1;
    // If the part ends here, other requests can follow. They are not converted to text.
    if (!this.#isEnded) text += bytes.toString('latin1', read);
    if (!this.isInBody && !this.#hasLine && OTHER_LINE.test(text)) return NO_REQUEST_LINE;
    this.#hasLine = !this.#isEnded && !this.isInBody && (this.#hasLine || text.includes('\n'));
    this.#begun = this.#isEnded ? '' : text.slice(this.#hasLine ? -3 : 0);
    if (!this.#isEnded) return bytes.length;
    return EMPTY_LINE.length + (near === -1 ? far : from + near - begun.length);
  }

  /**
   * Called when the parser has read a part.
   * @param request the request that the parser is reading, or has read last
   */
  follow(request: IncomingMessage | null): void {
    if (!this.#isEnded) return;
    if (!this.isInBody) this.#chunksLeft = FREE_CHUNKS;
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

/** The parser skips line breaks before a request. */
function behindBreaks(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === RETURN || bytes[at] === LINE_FEED) at++;
  return at;
}
