import { takesNoBody } from '../../shared/body.ts';
import { HttpError, methodNotAllowed } from '../../shared/errors.ts';
import { isCurrent, MAX_LIST_LENGTH } from '../../shared/static-file.ts';
import type { AddressAllowance } from '../access/address-allowance.ts';
import type { Exchange } from '../exchange.ts';
import { limitHeaders } from '../respond/limit-headers.ts';
import type { ReferenceFile } from './files.ts';
import { sendWaitingPage, takesHtml } from './waiting-page.ts';

interface Asked {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  readonly hasBody: boolean;
}

interface ServeOptions {
  /** Reading has an allowance of its own: it takes nothing from what an address may call without a key. */
  readonly readers: AddressAllowance;
  readonly draftFields: boolean;
}

/**
 * Answers with a file of the reference. Anyone may have it, with a key or without, within the address's allowance. It is no
 * decision on a key, and not counted as one.
 * @throws {HttpError} 429, 405 or 400
 */
export async function serveReference(
  exchange: Exchange,
  asked: Asked,
  file: ReferenceFile,
  { readers, draftFields }: ServeOptions,
): Promise<void> {
  exchange.outcome = 'reference';
  const isKnown = isCurrent(exchange.request.headers['if-none-match'], file.etag);
  exchange.standing = readers.charge(exchange.address, isKnown ? 1 : file.cost);
  const ours = ['X-Request-Id', exchange.id, ...limitHeaders(exchange.standing, draftFields)];
  if (exchange.standing.outcome === 'refused') {
    const refusal = new HttpError('rate_limit_exceeded');
    if (!takesHtml(exchange.request.headers.accept)) throw refusal;
    exchange.error = refusal;
    sendWaitingPage(exchange, ours);
    return;
  }
  if (asked.method !== 'GET' && asked.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  exchange.route = file;
  if (asked.hasBody) throw takesNoBody();
  const mark = asked.target.indexOf('?');
  ours.push('Cache-Control', file.cacheControl(mark === -1 ? '' : asked.target.slice(mark + 1)));
  const headers = [...file.headers, ...ours];
  if (isKnown) exchange.response.writeHead(304, headers).end();
  else await send(exchange, file, headers);
}

async function send({ request, response }: Exchange, file: ReferenceFile, headers: string[]): Promise<void> {
  const compress = takesGzip(request.headers['accept-encoding']);
  const body = compress ? await file.compressed() : file.body;
  if (compress) headers.push('Content-Encoding', 'gzip');
  headers.push('Content-Length', String(body.length));
  response.writeHead(file.status, headers);
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
