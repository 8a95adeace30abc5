import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();

async function codeOf(stack: Stack, key: string): Promise<string> {
  const answer = await send(`${stack.gateway}/v1/pets`, { key });
  return answer.status === 200 ? 'ok' : (answer.json as { code: string }).code;
}

interface Bans {
  readonly bans: { id: string; banReason?: string; bannedUntil: string }[];
  readonly next?: number;
}

const bansOf = async (stack: Stack) => ((await stack.admin('GET', '/bans')).json as Bans).bans;

describe.for(bothStacks(redisUrl))('with %s', async ([, environment]) => {
  const stack = await startStack(environment);

  test('a ban is set with its reason, listed, in force at once, and ends on time', async () => {
    const key = await stack.issueKey({ name: 'scraper' });
    await codeOf(stack, key);
    const set = await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 3, reason: 'scrapes everything' });
    expect([set.status, set.json]).toEqual([
      200,
      expect.objectContaining({ state: 'banned', banReason: 'scrapes everything' }),
    ]);
    const answer = await send(`${stack.gateway}/v1/pets`, { key });
    expect([answer.status, (answer.json as { code: string }).code]).toEqual([429, 'key_banned']);
    expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(3);
    expect(await bansOf(stack)).toMatchObject([{ id: idOf(key), name: 'scraper', banReason: 'scrapes everything' }]);
    await sleep(3_050);
    expect(await codeOf(stack, key)).toBe('ok');
    expect(await bansOf(stack)).toEqual([]);
  });

  test("the reason of an operator's ban is not shown for a later automatic ban", async () => {
    await stack.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
    const key = await stack.issueKey({ minute: 1, day: 1 });
    await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 1, reason: 'by an operator' });
    await sleep(2_100);
    for (let sent = 0; sent < 4; sent++) await codeOf(stack, key);
    const shown = (await stack.admin('GET', `/keys/${idOf(key)}`)).json;
    expect(shown).toMatchObject({ state: 'banned' });
    expect(shown).not.toHaveProperty('banReason');
    await stack.admin('DELETE', `/keys/${idOf(key)}`);
  });
});

test('bans are found among many keys, a limited number per call', async () => {
  await redis.flushdb();
  const stack = await startStack({ REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' });
  const key = await stack.issueKey();
  await stack.admin('PUT', `/keys/${idOf(key)}/ban`, { seconds: 600 });
  const fill = redis.pipeline();
  for (let at = 0; at < 6_000; at++)
    fill.zadd('gateway:keys', Date.now() / 1_000 + 1, `x${String(at).padStart(11, '0')}`);
  await fill.exec();
  const first = (await stack.admin('GET', '/bans')).json as Bans;
  expect([first.bans, first.next]).toEqual([[], 5_000]);
  const second = (await stack.admin('GET', `/bans?offset=${first.next}`)).json as Bans;
  expect(second.bans).toMatchObject([{ id: idOf(key) }]);
  expect(second.next).toBeUndefined();
});
