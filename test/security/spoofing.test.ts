import { expect, test } from 'vitest';
import { listeningCore } from '../support/faulty-core.ts';
import { sendBytes } from '../support/http.ts';
import { startStack } from '../support/stack.ts';

/** Headers that a core may trust, because clients cannot set them. */
const TRUSTED =
  'Authorization Content-Length Host X-Caller-Id X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Request-Id'.split(
    ' ',
  );
const OTHERS = 'Forwarded X-Forwarded-Port X-Real-IP True-Client-IP X-Original-URL X-Http-Method-Override'.split(' ');

const SPELLINGS: readonly ((name: string) => string)[] = [
  (name) => name,
  (name) => name.toLowerCase(),
  (name) => name.toUpperCase(),
  (name) => name.replaceAll('-', '_'),
  (name) => name.replaceAll('-', '.'),
  (name) => `${name}|`,
];

/** Neither a valid request id nor a valid length, so that its use is detected. */
const CLAIM = 'claimed by me';
const ways = (name: string): string[][] => [
  [`${name}: ${CLAIM}`],
  [`${name}: ${CLAIM}`, `${name}: ${CLAIM}`],
  [`${name}: ${CLAIM}`, 'Expect: 100-continue'],
  [`${name}: ${CLAIM}`, `Connection: keep-alive, ${name}`],
  [`Connection: ${name}, ${name.toLowerCase()}`],
  [`Connection: ${name}`, 'Connection: keep-alive'],
];

/** The trusted headers that the core received, in order and without the unique id. */
const trustedIn = (head: string): string[] =>
  head
    .split('\r\n')
    .filter((line) => TRUSTED.some((name) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`)))
    .map((line) => line.replace(/(x-request-id: )[0-9a-f-]{36}\.[0-9a-z]+$/i, '$1…'));

test('a client cannot set, duplicate or remove a header that the core trusts, however it spells the name', async () => {
  const core = await listeningCore();
  const stack = await startStack({ CORE_URL: core.url, CORE_TOKEN: 'token-of-the-core' });
  const key = await stack.issueKey({ plan: 'enterprise', minute: 100_000, day: 100_000 });
  /** Sends a valid POST with these lines before its headers. @returns the status of the final answer */
  const sendWith = async (lines: readonly string[]): Promise<number> => {
    const own = ['Host: gateway.test', `Authorization: Bearer ${key}`, 'Content-Type: application/json'];
    const head = ['POST /v1/pets HTTP/1.1', ...lines, ...own, 'Content-Length: 2', 'Connection: close'];
    const raw = await sendBytes(stack.gateway, `${head.join('\r\n')}\r\n\r\n{}`);
    return Number([...raw.matchAll(/^HTTP\/1\.1 (\d+) /gm)].at(-1)?.[1]);
  };

  expect(await sendWith([])).toBe(200);
  const expected = trustedIn(core.heads[0] ?? '');
  expect(expected.map((line) => line.split(':', 1)[0]?.toLowerCase()).sort()).toEqual(
    TRUSTED.map((name) => name.toLowerCase()),
  );

  const lists = [...TRUSTED, ...OTHERS].flatMap((name) => SPELLINGS.flatMap((spell) => ways(spell(name))));
  const statuses: number[] = [];
  for (const lines of lists) {
    core.heads.length = 0;
    statuses.push(await sendWith(lines));
    for (const head of core.heads) {
      expect(trustedIn(head), lines.join()).toEqual(expected);
      expect(head, lines.join()).not.toContain(CLAIM);
    }
  }
  // Nearly all requests are admitted with the claim removed. A second credential, host or length causes a refusal.
  expect([...new Set(statuses)].sort()).toEqual([200, 400, 401]);
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThan(400);
});
