import { safetyHeaders } from '../../shared/http/static-file.ts';
import type { LimitStatus } from '../limiter/verdict.ts';
import { retryAfterSeconds } from './limit-headers.ts';
import type { OwnAnswer } from './send-own-answer.ts';

/** The 429 page for a person who asked for the reference too often. Programs get the Error shape. */

/** Browsers list text/html when they open a page. Scripts ask for other types. */
export const takesHtml = (accept = ''): boolean => accept.toLowerCase().includes('text/html');

/** The 429 answer for a person. @param addressStatus says how long to wait */
export function waitingPage(addressStatus: LimitStatus): OwnAnswer {
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
