import type { IncomingMessage, ServerResponse } from 'node:http';
import { HttpError } from './errors.ts';

/**
 * The whole body of a request that must be JSON, as bytes. Answers `Expect: 100-continue` first, once the headers say that
 * the body would be taken.
 * @throws {HttpError} 415 for another media type or a compressed body, 413 as soon as it is longer than `maxBytes`,
 *   400 when it ends early
 */
export async function readJsonBytes(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
): Promise<Buffer> {
  if (!isPlainJson(request)) throw new HttpError('unsupported_media_type');
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw new HttpError('payload_too_large');
  // HTTP/1.0 has no interim answers, whatever its client expects (RFC 9110 §10.1.1).
  if (request.headers.expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
  return await collect(request, maxBytes);
}

/** Whether headers announce a body at all (RFC 9112 §6). */
export function announcesBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}

/** Of a body where the operation has none: it would go unread, and what follows it be taken for the next request. */
export const takesNoBody = (): HttpError => new HttpError('invalid_request', 'This operation takes no body.');

function isPlainJson(request: IncomingMessage): boolean {
  if (!announcesBody(request) && request.headers['content-type'] === undefined) return true;
  const type = request.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase();
  return type === 'application/json' && (request.headers['content-encoding'] ?? 'identity') === 'identity';
}

/** Listeners, not `for await`: leaving such a loop early destroys the connection that the 413 is to be sent on. */
function collect(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const chunks: Buffer[] = [];
  let length = 0;
  request.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (length > maxBytes) reject(new HttpError('payload_too_large'));
    else chunks.push(chunk);
  });
  request.once('end', () => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
  request.once('close', () => reject(new HttpError('invalid_request', 'The body ended early.')));
  return promise;
}
