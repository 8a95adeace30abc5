import { safetyHeaders } from '../../shared/static-file.ts';
import type { LimitStatus } from '../access/verdict.ts';
import { retryAfterSeconds } from './limit-headers.ts';
import type { OwnAnswer } from './own-answers.ts';

/** What a person reads who has asked for the reference too often; a program gets the Error shape. */

/** A browser names the type when it opens a page; what a script fetches is asked for with other types. */
export const takesHtml = (accept = ''): boolean => accept.toLowerCase().includes('text/html');

/** The answer of 429 to a person. @param addressStatus says how long to wait */
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
