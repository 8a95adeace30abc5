import type { IncomingHttpHeaders } from 'node:http';
import { takesNoBody } from '../../shared/http/body.ts';
import { methodNotAllowed } from '../../shared/http/errors.ts';
import type { LimitStatus } from '../limiter/limiter.ts';
import type { ReferenceFile } from '../reference/files.ts';
import { isCurrent, MAX_LIST_LENGTH, safetyHeaders } from '../static-file.ts';
import { ADDRESS_LIMITED } from './authorize.ts';
import { retryAfterSeconds } from './client-headers.ts';
import type { Exchange } from './exchange.ts';
import type { OwnAnswer } from './send-answer.ts';

interface FileRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  readonly hasBody: boolean;
}

/** The cost of a file in reads. @param headers the request's headers: a file that the client already has costs one */
export const costOf = (file: ReferenceFile, headers: IncomingHttpHeaders): number =>
  isCurrent(headers['if-none-match'], file.etag) ? 1 : file.cost;

/**
 * Answers with a file of the reference. It needs no key; the address's allowance pays.
 * @throws {HttpError} 429, 405 or 400
 */
export async function answerWithFile(
  exchange: Exchange,
  asked: FileRequest,
  file: ReferenceFile,
  addressStatus: LimitStatus,
): Promise<OwnAnswer> {
  const { headers } = exchange.request;
  if (addressStatus.outcome === 'refused') {
    if (!isPage(asked.target) || !takesHtml(headers.accept)) throw ADDRESS_LIMITED;
    exchange.error = ADDRESS_LIMITED;
    return waitingPage(addressStatus);
  }
  if (asked.method !== 'GET' && asked.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
  exchange.route = file;
  if (asked.hasBody) throw takesNoBody();
  const mark = asked.target.indexOf('?');
  const kept = file.cacheControl(mark === -1 ? '' : asked.target.slice(mark + 1));
  const ours = [...file.headers, 'Cache-Control', kept];
  if (isCurrent(headers['if-none-match'], file.etag)) return { status: 304, headers: ours };
  if (!takesGzip(headers['accept-encoding'])) return { status: file.status, headers: ours, body: file.body };
  return { status: file.status, headers: [...ours, 'Content-Encoding', 'gzip'], body: await file.compressed() };
}

/** Whether gzip is listed and its weight is not 0 (RFC 9110 §12.5.3). */
function takesGzip(acceptEncoding = ''): boolean {
  if (acceptEncoding.length > MAX_LIST_LENGTH) return false;
  return acceptEncoding.split(',').some((coding) => {
    const [name, weight = ''] = coding.toLowerCase().split(';');
    return name?.trim() === 'gzip' && !/^\s*q=0(?:\.0*)?\s*$/.test(weight);
  });
}

/** Only programs read the description of the API. */
const isPage = (target: string): boolean => target.startsWith('/docs');

/** Browsers accept text/html when they open a page. Scripts accept other types. */
const takesHtml = (accept = ''): boolean => accept.toLowerCase().includes('text/html');

/**
 * The 429 page for people who open the reference too often. Programs get the Error shape.
 * @param addressStatus determines the time to wait
 */
function waitingPage(addressStatus: LimitStatus): OwnAnswer {
  const seconds = retryAfterSeconds(addressStatus) ?? 1;
  const headers = ['Content-Type', 'text/html; charset=utf-8', 'Cache-Control', 'no-store', ...safetyHeaders()];
  return { status: 429, headers, body: page(seconds === 1 ? 'a second' : `${seconds} seconds`) };
}

const page = (wait: string): string => `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>Too many requests</title>
  </head>
  <body>
    <main>
      <h1>Too many requests</h1>
      <p>This page was asked for too often from your network. Come back in ${wait}.</p>
    </main>
  </body>
</html>
`;
