import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createApiKey, parseApiKey } from '../../gateway/limiter/credential.ts';
import { cleanUp } from '../support/clean-up.ts';
import { withCheck } from '../support/credentials.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';
import { median } from '../support/statistics.ts';
import { fact, TIMED } from '../support/timed.ts';

const ROUNDS = 300;

/** All keys are well-formed, because clients can check the form of a key themselves. */
test('the response time of a 401 does not reveal why a key is invalid', TIMED, async () => {
  const { url } = await emptyDatabase();
  const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '2000', TRUSTED_PROXIES: '127.0.0.1' });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  cleanUp(() => agent.destroy());
  const [good, other, revoked] = [await stack.issueKey(), await stack.issueKey(), await stack.issueKey()];
  await stack.admin('DELETE', `/keys/${parseApiKey(revoked)?.id}`);
  const expired = await stack.issueKey({ expiresAt: new Date(Date.now() + 300).toISOString() });
  await sleep(301);
  const keys = {
    unknown: createApiKey().apiKey,
    revoked,
    expired,
    'wrong secret': withCheck(`${good.slice(0, 16)}${other.slice(16, 48)}`),
  };

  const times = new Map<string, number[]>(Object.keys(keys).map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, key] of Object.entries(keys)) {
      // Each request has its own address, so that none exceeds its allowance.
      const headers = { 'x-forwarded-for': `10.${round >> 8}.${round & 255}.${Object.keys(keys).indexOf(name)}` };
      const startedAt = performance.now();
      const { status } = await send(`${stack.gateway}/v1/pets`, { key, agent, headers });
      times.get(name)?.push(performance.now() - startedAt);
      await fact(() => expect(status).toBe(401));
    }
  }
  const medians = [...times.values()].map(median);
  const middle = median(medians);
  for (const each of medians) expect(Math.abs(each - middle)).toBeLessThan(0.2 * middle);
});
