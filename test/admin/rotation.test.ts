import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

const { url } = await emptyDatabase();

describe.for([
  ['the embedded limiter', {}],
  ['Redis', { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' }],
] as const)('with %s', async ([, environment]) => {
  const stack = await startStack(environment);
  const statusOf = async (key: string) => (await send(`${stack.gateway}/v1/pets`, { key })).status;

  test('a rotation within the grace of another ends the secret that is named, and without a name none', async () => {
    const old = await stack.issueKey();
    const rotate = (body: unknown) => stack.admin('POST', `/keys/${idOf(old)}/rotate`, body);
    const whole = ({ json }: { json: unknown }) => (json as { key: string }).key;
    const statuses = (...keys: string[]) => Promise.all(keys.map(statusOf));
    expect((await rotate({ graceSeconds: 60, ends: 'new' })).status).toBe(409);

    const second = whole(await rotate({ graceSeconds: 60 }));
    const refused = await rotate({ graceSeconds: 60 });
    expect([refused.status, (refused.json as { message: string }).message]).toEqual([
      409,
      expect.stringMatching(
        /^This key has two secrets: .* until \S+Z\. Say which ends now: `ends` is new, .* or old\.$/,
      ),
    ]);
    expect(await statuses(old, second)).toEqual([200, 200]);

    const third = whole(await rotate({ graceSeconds: 60, ends: 'new' }));
    expect(await statuses(old, second, third)).toEqual([200, 401, 200]);
    const fourth = whole(await rotate({ graceSeconds: 60, ends: 'old' }));
    expect(await statuses(old, third, fourth)).toEqual([401, 200, 200]);
    const fifth = whole(await rotate({ graceSeconds: 0 }));
    expect(await statuses(third, fourth, fifth)).toEqual([401, 401, 200]);
    expect((await rotate({ graceSeconds: 60, ends: 'both' })).status).toBe(400);
  });
});
