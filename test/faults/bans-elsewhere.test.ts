import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { startStack } from '../support/stack.ts';

test('a gateway that loses Redis does not serve keys that another gateway has banned once or twice', async () => {
  const { url } = await emptyDatabase();
  const proxy = await startFaultProxy(url);
  const here = await startStack({ REDIS_URL: url });
  const there = await startStack({ REDIS_URL: proxy.url });
  await here.admin('PATCH', '/plans/free', { ban_after: 2, ban_grace_seconds: 0, ban_seconds: 300 });
  const [once, twice] = [await here.issueKey({ minute: 5 }), await here.issueKey({ minute: 5 })];
  const other = await here.issueKey();
  const ask = async (gateway: string, key: string) => (await send(`${gateway}/v1/pets`, { key })).status;
  const ban = async (key: string) => {
    const last = async () => (await send(`${here.gateway}/v1/pets`, { key })).json;
    await expect.poll(last, { interval: 1 }).toMatchObject({ code: 'key_banned' });
    await sleep(1_000);
  };
  await ban(twice);
  expect((await here.admin('POST', `/keys/${idOf(twice)}/reset`, {})).status).toBe(200);
  for (const key of [once, twice, other]) expect(await ask(there.gateway, key)).toBe(200);
  await ban(once);
  await ban(twice);
  proxy.set({ kind: 'reset' });
  expect(await ask(there.gateway, other)).toBe(200);
  for (const key of [once, twice])
    for (let asked = 0; asked < 10; asked++) expect([429, 503]).toContain(await ask(there.gateway, key));
});
