import slotOf from 'cluster-key-slot';
import { expect, test } from 'vitest';
import type { ActivityAnswer } from '../../gateway/operators/api/answers.ts';
import { issueId, tokenFor } from '../support/operators.ts';
import { startRedisCluster } from '../support/redis-cluster.ts';
import { startStack } from '../support/stack.ts';

test('on a cluster, every change is in the audit log exactly once, and tokens work', async () => {
  const { urls, ownerOf } = await startRedisCluster();
  const stack = await startStack({ REDIS_MODE: 'cluster', REDIS_URL: urls, REDIS_TIMEOUT_MS: '2000' });
  const ids = await Promise.all(Array.from({ length: 8 }, () => issueId(stack)));
  for (const id of ids) {
    await stack.admin('PATCH', `/keys/${id}`, { name: 'renamed' });
    const again = { headers: { 'x-request-id': 'one' } };
    for (let sent = 0; sent < 2; sent++) await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 60 }, again);
    await stack.admin('DELETE', `/keys/${id}`);
  }
  await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'ada' });
  const { token } = await tokenFor(stack, 'viewer');
  const { activity } = (await stack.admin('GET', '/activity', undefined, { key: token })).json as ActivityAnswer;
  const actionsOn = (target: string) => activity.filter((one) => one.target === target).map(({ action }) => action);
  for (const id of ids) expect(actionsOn(id)).toEqual(['key.revoke', 'ban.set', 'key.change', 'key.create']);
  expect([actionsOn('free'), activity[0]?.action, activity.length]).toEqual([['plan.change'], 'token.create', 34]);
  const { history } = (await stack.admin('GET', '/plans/history')).json as { history: object[] };
  expect(history).toMatchObject([{ author: 'ada' }]);

  const { redis } = await ownerOf(slotOf('gateway:activity'));
  await redis.del('gateway:activity');
  await redis.set('gateway:activity', 'spoilt');
  const before = stack.log.length;
  await stack.issueKey();
  expect(stack.log.slice(before).filter(({ level }) => level === 50)).toMatchObject([
    { msg: 'a change is in force, but the audit log lacks it', activity: { action: 'key.create' } },
  ]);
});
