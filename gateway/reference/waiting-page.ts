import { safetyHeaders } from '../../shared/static-file.ts';
import type { Standing } from '../access/verdict.ts';
import type { Exchange } from '../exchange.ts';
import { retryAfterSeconds } from '../respond/limit-headers.ts';

/** What a person reads who has asked for the reference too often; a program gets the Error shape. */

/** A browser names the type when it opens a page; what a script fetches is asked for with other types. */
export const takesHtml = (accept = ''): boolean => accept.toLowerCase().includes('text/html');

/** Answers 429. @param headers X-Request-Id, the limits and Retry-After, as a flat list */
export function sendWaitingPage({ standing, request, response }: Exchange, headers: readonly string[]): void {
  const seconds = retryAfterSeconds(standing as Standing) ?? 1;
  const body = page(seconds === 1 ? 'a second' : `${seconds} seconds`);
  const own = ['Content-Type', 'text/html; charset=utf-8', 'Cache-Control', 'no-store', ...safetyHeaders()];
  response.writeHead(429, [...own, ...headers, 'Content-Length', String(Buffer.byteLength(body))]);
  response.end(request.method === 'HEAD' ? undefined : body);
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
