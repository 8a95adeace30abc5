import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import { JsonError, parseJson } from '../schemas/json.ts';
import { faultsOf, must } from '../schemas/must.ts';
import { HttpError } from './errors.ts';
import { announcesBody, type BegunRequest, BODY_BYTES, type BrokenRequest, FAULT } from './request-head.ts';

/**
 * Reads the whole body of a JSON request. Answers `Expect: 100-continue` once the headers are acceptable.
 * @throws {HttpError} 415 for another media type or a compressed body, 413 as soon as it exceeds `maxBytes`, 400 when
 * it ends early
 */
export function readJsonBytes(request: IncomingMessage, response: ServerResponse, maxBytes: number): Promise<Buffer> {
  if (!isPlainJson(request)) throw new HttpError('unsupported_media_type');
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  // HTTP/1.0 has no interim responses, even for a client that expects one (RFC 9110 §10.1.1).
  if (request.headers.expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
  return collect(request, maxBytes);
}

const tooLarge = (maxBytes: number): HttpError =>
  new HttpError('payload_too_large', `The request body is too large: at most ${maxBytes} bytes are allowed.`);

/** Refuses a body that the operation does not accept: its unread bytes would be read as the next request. */
export const takesNoBody = (): HttpError => new HttpError('invalid_request', 'This operation accepts no body.');

function isPlainJson(request: IncomingMessage): boolean {
  const { 'content-type': type, 'content-encoding': coding = 'identity' } = request.headers;
  if (type === undefined) return !announcesBody(request);
  return isJson(type) && coding.toLowerCase() === 'identity';
}

/** JSON is UTF-8 (RFC 8259 §8.1), so no other charset is accepted. Other parameters have no meaning. */
function isJson(contentType: string): boolean {
  if (contentType === 'application/json') return true;
  const [type, ...parameters] = contentType.split(';').map((part) => part.trim().toLowerCase());
  return type === 'application/json' && parameters.every((one) => !one.startsWith('charset') || UTF_8.test(one));
}

const UTF_8 = /^charset="?utf-?8"?$/;

/** Makes the reading of an incomplete body fail. A request whose body is not being read is not affected. */
export function breakBody(request: BrokenRequest, fault: HttpError): void {
  request[FAULT] ??= fault;
  request.emit('close');
}

/** Uses listeners, because an early exit from a `for await` loop would destroy the connection before a 413 is sent. */
function collect(request: BrokenRequest & BegunRequest, maxBytes: number): Promise<Buffer> {
  // A request that announces no body has ended from the start and emits no event (optimizeEmptyRequests).
  if (request.readableEnded) return Promise.resolve(Buffer.alloc(0));
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const chunks: Buffer[] = [];
  let length = 0;
  let hasEnded = false;
  request[BODY_BYTES] = () => length;
  const broken = () => {
    if (!hasEnded) reject(request[FAULT] ?? new HttpError('invalid_request', 'The body ended early.'));
  };
  request.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (length > maxBytes) reject(tooLarge(maxBytes));
    else chunks.push(chunk);
  });
  request.on('end', () => {
    hasEnded = true;
    resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
  });
  request.on('close', broken);
  if (request.destroyed || request[FAULT] !== undefined) broken();
  return promise;
}

/** No valid body comes near this number of values. */
export const MAX_VALUES = 1_000;

/**
 * Reads the body and checks it against `schema`.
 * @param maxValues the maximum number of values in all its objects and arrays together
 * @throws {HttpError} 413 above `maxBytes`, 415 for another media type, 400 for anything the schema refuses
 */
export async function readBody<S extends z.ZodType>(
  schema: S,
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
  maxValues = MAX_VALUES,
): Promise<z.infer<S>> {
  const bytes = await readJsonBytes(request, response, maxBytes);
  if (bytes.length === 0) throw new HttpError('invalid_request', 'A JSON body is required.');
  const result = schema.safeParse(parse(bytes, maxValues), { error: ofType });
  if (!result.success) throw new HttpError('invalid_request', `The body is not valid: ${faultsOf(result.error)}.`);
  return result.data;
}

function parse(bytes: Buffer, maxValues: number): unknown {
  try {
    return parseJson(bytes, maxValues);
  } catch (fault) {
    if (fault instanceof JsonError) throw new HttpError('invalid_request', fault.message, { cause: fault });
    throw fault;
  }
}

/** The message for a value of the wrong type, unless the schema has its own message. */
const ofType: z.core.$ZodErrorMap = (issue) =>
  issue.code === 'invalid_type' ? must(`be ${TYPES[issue.expected] ?? `a ${issue.expected}`}`)(issue) : undefined;

const TYPES: Readonly<Record<string, string>> = { array: 'a list', object: 'an object', record: 'an object' };
