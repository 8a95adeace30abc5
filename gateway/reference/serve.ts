import { takesNoBody } from '../../shared/body.ts';
import { HttpError, methodNotAllowed } from '../../shared/errors.ts';
import { isCurrent, MAX_LIST_LENGTH } from '../../shared/static-file.ts';
import type { AddressAllowance } from '../access/address-allowance.ts';
import type { Exchange } from '../exchange.ts';
import { limitHeaders } from '../respond/limit-headers.ts';
import type { ReferenceFile } from './files.ts';

interface Asked {
  readonly method: string;
  readonly hasBody: boolean;
}

interface ServeOptions {
  readonly allowance: AddressAllowance;
  readonly draftFields: boolean;
}

/**
 * Answers with a file of the reference. Anyone may have it, with a key or without, within the address's allowance.
 * @throws {HttpError} 429, 405 or 400
 */
export async function serveReference(
  exchange: Exchange,
  asked: Asked,
  file: ReferenceFile,
  { allowance, draftFields }: ServeOptions,
): Promise<void> {
  exchange.standing = allowance.charge(exchange.address);
  exchange.outcome = 'reference';
  if (exchange.standing.outcome === 'refused') throw new HttpError('rate_limit_exceeded');
  if (asked.method !== 'GET' && asked.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  exchange.route = file;
  if (asked.hasBody) throw takesNoBody();
  const ours = ['X-Request-Id', exchange.id, ...limitHeaders(exchange.standing, draftFields)];
  await send(exchange, file, ours);
}

async function send({ request, response }: Exchange, file: ReferenceFile, ours: readonly string[]): Promise<void> {
  const headers = [...file.headers, ...ours];
  if (isCurrent(request.headers['if-none-match'], file.etag)) {
    response.writeHead(304, headers).end();
    return;
  }
  const compress = takesGzip(request.headers['accept-encoding']);
  const body = compress ? await file.compressed() : file.body;
  if (compress) headers.push('Content-Encoding', 'gzip');
  response.writeHead(file.status, [...headers, 'Content-Length', String(body.length)]);
  response.end(request.method === 'HEAD' ? undefined : body);
}

/** Whether gzip is named and not refused with a weight of 0 (RFC 9110 §12.5.3). */
function takesGzip(acceptEncoding = ''): boolean {
  if (acceptEncoding.length > MAX_LIST_LENGTH) return false;
  return acceptEncoding.split(',').some((coding) => {
    const [name, weight = ''] = coding.toLowerCase().split(';');
    return name?.trim() === 'gzip' && !/^\s*q=0(?:\.0*)?\s*$/.test(weight);
  });
}
