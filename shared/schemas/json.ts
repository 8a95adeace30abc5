/**
 * JSON (RFC 8259) that keeps every int64 exact and accepts nothing ambiguous. Integers beyond 2^53 are read as bigint,
 * and bigints are written digit by digit. It refuses invalid UTF-8, a byte order mark, duplicate members and deep
 * nesting.
 */

declare global {
  interface JSON {
    rawJSON(text: string): { readonly rawJSON: string };
  }
}

/** A fault in a JSON text. The message is sent to the client. */
export class JsonError extends Error {}

const MAX_DEPTH = 32;
const MAX_INT64_DIGITS = 19;
/** Integers of up to this many digits are exact as doubles. */
const EXACT_DIGITS = 15;
const NUMBER = /-?(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?/y;
const WORD = /true|false|null/y;
const NEEDS_DECODING = /[\\\p{Cc}]/u;
const QUOTE = 0x22;
const COLON = 0x3a;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const LARGE_E = 0x45;
const SMALL_E = 0x65;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;
const LINE_FEED = 0x0a;
const RETURN = 0x0d;
const TAB = 0x09;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Reads the value of a JSON text. Integers that a number represents exactly become numbers; larger ones of up to 19
 * digits become bigints.
 * @param maxValues the maximum number of values in all objects and arrays together. Each value costs time, and V8 is
 *   slow for members with new names
 * @throws {JsonError} unless the input is one unambiguous JSON text in UTF-8
 */
export function parseJson(bytes: Uint8Array, maxValues = Number.POSITIVE_INFINITY): unknown {
  return new Reader(decode(bytes), maxValues).read();
}

/** JSON text of a value that may contain bigints. */
export function toJson(value: unknown): string {
  return JSON.stringify(withoutBigInts(value));
}

/** Returns a copy that JSON.stringify can write without a callback per member, which would cost three times as much. */
function withoutBigInts(value: unknown): unknown {
  if (typeof value === 'bigint') {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : JSON.rawJSON(value.toString());
  }
  if (Array.isArray(value)) return value.map(withoutBigInts);
  if (!isPlainObject(value)) return value;
  const copy: Record<string, unknown> = {};
  for (const name of Object.keys(value)) {
    const member = withoutBigInts(value[name]);
    setMember(copy, name, member);
  }
  return copy;
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (cause) {
    throw new JsonError('The body is not valid UTF-8.', { cause });
  }
}

/**
 * Reads a JSON text in one pass. JSON.parse drops digits and duplicate members. With a reviver it sees the digits, but
 * costs ten times as much for many small values.
 */
class Reader {
  readonly #text: string;
  readonly #maxValues: number;
  #values = 0;
  #at = 0;
  #depth = 0;

  constructor(text: string, maxValues: number) {
    this.#text = text;
    this.#maxValues = maxValues;
  }

  read(): unknown {
    const value = this.#value(this.#next());
    if (!Number.isNaN(this.#next())) throw invalid();
    return value;
  }

  /** Moves to the next character that is not white space, and returns its code; NaN at the end. */
  #next(): number {
    let code = this.#text.charCodeAt(this.#at);
    while (code === SPACE || code === LINE_FEED || code === RETURN || code === TAB)
      code = this.#text.charCodeAt(++this.#at);
    return code;
  }

  #value(code: number): unknown {
    if (++this.#values > this.#maxValues) throw new JsonError(`The body has more than ${this.#maxValues} values.`);
    if (code === QUOTE) return this.#string();
    if (code === OPEN_OBJECT) return this.#object();
    if (code === OPEN_ARRAY) return this.#array();
    return code === MINUS || isDigit(code) ? this.#number(code) : this.#word();
  }

  #open(): void {
    if (++this.#depth > MAX_DEPTH) throw new JsonError(`The body is nested more than ${MAX_DEPTH} levels deep.`);
    this.#at += 1;
  }

  #array(): unknown[] {
    this.#open();
    const values: unknown[] = [];
    if (this.#isEnd(CLOSE_ARRAY)) return values;
    do values.push(this.#value(this.#next()));
    while (this.#goesOn(CLOSE_ARRAY));
    return values;
  }

  #object(): Record<string, unknown> {
    this.#open();
    const members: Record<string, unknown> = {};
    if (this.#isEnd(CLOSE_OBJECT)) return members;
    do {
      if (this.#next() !== QUOTE) throw invalid();
      const name = this.#string();
      if (Object.hasOwn(members, name)) throw new JsonError(`The body has the member ${JSON.stringify(name)} twice.`);
      if (this.#next() !== COLON) throw invalid();
      this.#at += 1;
      setMember(members, name, this.#value(this.#next()));
    } while (this.#goesOn(CLOSE_OBJECT));
    return members;
  }

  #isEnd(close: number): boolean {
    if (this.#next() !== close) return false;
    this.#close();
    return true;
  }

  /** Reads what follows a value: a comma or the closing bracket. */
  #goesOn(close: number): boolean {
    const code = this.#next();
    if (code !== COMMA && code !== close) throw invalid();
    if (code === close) this.#close();
    else this.#at += 1;
    return code === COMMA;
  }

  #close(): void {
    this.#depth -= 1;
    this.#at += 1;
  }

  /** Names are compared after decoding, so "a" and "\u0061" are the same. */
  #string(): string {
    const start = this.#at;
    const end = endOfString(this.#text, start);
    this.#at = end;
    const content = this.#text.slice(start + 1, end - 1);
    return NEEDS_DECODING.test(content) ? parseToken(this.#text.slice(start, end)) : content;
  }

  #number(first: number): unknown {
    const start = this.#at;
    let whole = 0;
    let code = first;
    while (isDigit(code)) {
      whole = whole * 10 + code - ZERO;
      code = this.#text.charCodeAt(++this.#at);
    }
    const digits = this.#at - start;
    const isPlain = digits > 0 && digits <= EXACT_DIGITS && (first !== ZERO || digits === 1);
    if (isPlain && code !== POINT && code !== SMALL_E && code !== LARGE_E) return whole;
    NUMBER.lastIndex = start;
    const match = NUMBER.exec(this.#text);
    if (match === null) throw invalid();
    this.#at = NUMBER.lastIndex;
    return exactNumber(match);
  }

  #word(): unknown {
    WORD.lastIndex = this.#at;
    const match = WORD.exec(this.#text);
    if (match === null) throw invalid();
    this.#at = WORD.lastIndex;
    return match[0] === 'null' ? null : match[0] === 'true';
  }
}

const isDigit = (code: number): boolean => code >= ZERO && code <= NINE;

const invalid = (cause?: unknown) => new JsonError('The body is not valid JSON.', { cause });

function parseToken(text: string): string {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw invalid(cause);
  }
}

/** Sets a member safely. An object without a prototype would accept any name, but takes twice as long to write. */
function setMember(members: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') members[name] = value;
  else Object.defineProperty(members, name, { value, enumerable: true, configurable: true, writable: true });
}

/** A fraction that a double would round to an integer, such as 1.00000000000000000001, becomes NaN. */
function exactNumber([source, whole = '', fraction = '', exponent = '0']: RegExpExecArray): number | bigint {
  const value = Number(source);
  const written = whole + fraction;
  const end = endOfDigits(written);
  const digits = written.slice(0, end).replace(/^0+/, '');
  if (digits === '') return value;
  // The value consists of the digits and this many zeros.
  const zeros = Number(exponent) + whole.length - end;
  if (zeros < 0) return Number.isInteger(value) ? Number.NaN : value;
  if (digits.length + zeros > MAX_INT64_DIGITS || Number.isSafeInteger(value)) return value;
  return BigInt((source.startsWith('-') ? '-' : '') + digits + '0'.repeat(zeros));
}

/**
 * Finds where the trailing zeros begin. A regular expression would restart at every inner zero: 8 s for 64 kB of them.
 */
function endOfDigits(text: string): number {
  let end = text.length;
  while (text[end - 1] === '0') end--;
  return end;
}

function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (end > 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  if (end < 0) throw invalid();
  return end + 1;
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === '\\') backslashes++;
  return backslashes % 2 === 1;
}
