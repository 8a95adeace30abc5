import { expect, test } from 'vitest';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { serveHttp } from '../support/http-server.ts';
import { startStack } from '../support/stack.ts';

/** What the doctor finds out about a core that is a service of one's own. */

/** A core that answers its readiness and its reads with these statuses. */
async function coreWith(ready: number, read: number) {
  const paths: string[] = [];
  const url = await serveHttp(({ url: path = '' }, response) => {
    paths.push(path);
    response.writeHead(path === '/readyz' ? ready : read, { 'content-length': 0 }).end();
  });
  return { url, paths };
}

async function findings(CORE_URL: string) {
  const stack = await startStack({ CORE_URL });
  const { json } = await stack.admin('GET', '/doctor');
  return (json as DoctorAnswer).findings.filter(({ about }) => about.startsWith('core '));
}

test.for([
  [200, 200, 'good', /^is ready, and answers in \d+ ms$/],
  [204, 200, 'fault', /^is not ready: \/readyz answers 204$/],
  [404, 200, 'warning', /^has no \/readyz: it answers 404$/],
  // It is there, whatever it thinks of the request.
  [200, 400, 'good', /^is ready/],
  [200, 404, 'good', /^is ready/],
  [200, 401, 'fault', /^rejects our token$/],
  [200, 403, 'fault', /^rejects our token$/],
  [404, 401, 'fault', /^rejects our token$/],
  [200, 500, 'fault', /^answers 500 to GET \/v1\/pets$/],
] as const)(
  'a core that answers /readyz with %i and a read with %i is a finding: %s',
  async ([ready, read, status, found]) => {
    const core = await coreWith(ready, read);
    const [finding, ...others] = await findings(core.url);
    expect([finding, others]).toMatchObject([{ status, found: expect.stringMatching(found) }, []]);
    if (status === 'warning') expect(finding?.advice).toMatch(/several.*\/readyz/);
  },
);

test('one of several cores needs /readyz, because the gateway sends it no requests without', async () => {
  const cores = [await coreWith(404, 200), await coreWith(200, 200)];
  const found = await findings(cores.map(({ url }) => url).join());
  expect(found.map(({ status }) => status).sort()).toEqual(['fault', 'good']);
});
