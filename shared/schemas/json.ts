/**
 * JSON that keeps every int64 exact and accepts nothing ambiguous. Integers beyond 2^53 are read as bigint from their
 * source text, and bigints are written digit by digit (ECMAScript's JSON.parse source text access). Invalid UTF-8, a
 * byte order mark, duplicate members and deep nesting are refused.
 */

declare global {
  interface JSON {
    rawJSON(text: string): { readonly rawJSON: string };
    parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown;
  }
}

/** The fault of a JSON text, in words for its sender. */
export class JsonError extends Error {}

const MAX_DEPTH = 32;
const MAX_INT64_DIGITS = 19;
/** A number that a double may not hold: 15 digits are always exact, an exponent makes any number large or small. */
const INEXACT = /\d[\d.]{14}|\d[eE]/;
const NUMBER = /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * The value of a JSON text. Integers that fit a number exactly are numbers; larger ones of up to 19 digits are bigints.
 * @throws {JsonError} unless the input is one unambiguous JSON text in UTF-8
 */
export function parseJson(bytes: Uint8Array): unknown {
  const text = decode(bytes);
  const value = parse(text);
  refuseDuplicatesAndDepth(text);
  return value;
}

/** JSON text of a value that may contain bigints. */
export function toJson(value: unknown): string {
  return JSON.stringify(withoutBigInts(value));
}

/** A copy that JSON.stringify can write without callbacks. A callback for every member costs three times as much. */
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
    // An object without a prototype would accept any name, but takes twice as long to write.
    if (name === '__proto__') Object.defineProperty(copy, name, { value: member, enumerable: true });
    else copy[name] = member;
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

function parse(text: string): unknown {
  try {
    // A reviver costs six times as much.
    return INEXACT.test(text) ? JSON.parse(text, exactNumber) : JSON.parse(text);
  } catch (cause) {
    throw new JsonError('The body is not valid JSON.', { cause });
  }
}

/** The value by its source text. A fraction that reads as an integer, as 1.00000000000000000001 does, becomes NaN. */
function exactNumber(_key: string, value: unknown, { source = '' }: { source?: string }): unknown {
  const [, whole = '', fraction = '', exponent = '0'] = (typeof value === 'number' && NUMBER.exec(source)) || [];
  const written = whole + fraction;
  const end = endOfDigits(written);
  const digits = written.slice(0, end).replace(/^0+/, '');
  if (digits === '') return value;
  // The value is the digits and this many zeros.
  const zeros = Number(exponent) + whole.length - end;
  if (zeros < 0) return Number.isInteger(value) ? Number.NaN : value;
  if (digits.length + zeros > MAX_INT64_DIGITS || Number.isSafeInteger(value)) return value;
  return BigInt((source.startsWith('-') ? '-' : '') + digits + '0'.repeat(zeros));
}

/** Where the zeros begin that end a number. A pattern would begin anew at every zero within: 8 s for 64 kB of them. */
function endOfDigits(text: string): number {
  let end = text.length;
  while (text[end - 1] === '0') end--;
  return end;
}

/**
 * One pass over a text that JSON.parse has accepted. Names are compared after decoding, so "a" and "\u0061" are the
 * same.
 */
function refuseDuplicatesAndDepth(text: string): void {
  const open: (Set<string> | undefined)[] = [];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') {
      const end = endOfString(text, at);
      if (isMemberName(text, end)) rememberName(open.at(-1), nameOf(text.slice(at + 1, end - 1)));
      at = end - 1;
    } else if (character === '{' || character === '[') {
      if (open.push(character === '{' ? new Set() : undefined) > MAX_DEPTH) {
        throw new JsonError(`The body is nested more than ${MAX_DEPTH} levels deep.`);
      }
    } else if (character === '}' || character === ']') {
      open.pop();
    }
  }
}

function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end + 1;
}

/** Whether the character follows an odd number of backslashes. */
function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === '\\') backslashes++;
  return backslashes % 2 === 1;
}

function isMemberName(text: string, from: number): boolean {
  let at = from;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at++;
  return text[at] === ':';
}

const nameOf = (source: string): string => (source.includes('\\') ? JSON.parse(`"${source}"`) : source);

function rememberName(names: Set<string> | undefined, name: string): void {
  if (names?.has(name)) throw new JsonError(`The body has the member ${JSON.stringify(name)} twice.`);
  names?.add(name);
}
