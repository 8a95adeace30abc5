import { expect, test } from 'vitest';
import { createApiKey } from '../../gateway/limiter/credential.ts';
import { TailFollower } from '../../gateway/primary/changes.ts';
import type { Changed } from '../../gateway/primary/channel.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { connectedRedis, emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

/** What another gateway changed becomes known by the audit log. */

const { url } = await emptyDatabase();
const redis = await connectedRedis(url);
const storage = new RedisStorage(redis);
const keys = new Keys(storage);

const AUDIT = 'gateway:activity';

function follower(hasOneClock = false) {
  const told: Changed[] = [];
  const tail = new TailFollower(storage, async (changed) => void told.push(changed), hasOneClock);
  return {
    tail,
    async told() {
      await tail.follow();
      return told.splice(0);
    },
  };
}

async function changedKey(): Promise<string> {
  const { credential } = createApiKey();
  const record = {
    plan: 'free',
    name: 'test',
    createdAt: Date.now() * 1_000,
    secrets: [secretWith(credential.digest)],
  };
  await keys.create(credential.id, record as never);
  return credential.id;
}

const entryAbout = (target: string, at = '*') => redis.xadd(AUDIT, at, 'target', target, 'action', 'key.change');

test('each change of a key is reported once, and anything may be new at first or once the last entry seen is gone', async () => {
  const id = await changedKey();
  const { told } = follower();
  expect(await told()).toEqual([{ anyKey: true }]);
  expect(await told()).toEqual([]);
  for (const target of [id, id, 'free', '*']) await entryAbout(target);
  expect(await told()).toEqual([{ key: id }]);
  // More than the first page.
  for (let at = 0; at < 60; at++) await entryAbout(id);
  expect(await told()).toEqual([{ key: id }]);
  for (let at = 0; at < 600; at++) await entryAbout(id);
  expect(await told()).toEqual([{ anyKey: true }]);
  await redis.del(AUDIT);
  expect(await told()).toEqual([{ anyKey: true }]);
  await entryAbout(id);
  expect(await told()).toEqual([{ key: id }]);
});

test('a name, tags and a new secret concern no decision, and are not reported', async () => {
  const id = await changedKey();
  const { told } = follower();
  await told();
  const about = (action: string, ...fields: string[]) => {
    const changes = JSON.stringify(fields.map((field) => ({ field, to: 'x' })));
    return redis.xadd(AUDIT, '*', 'target', id, 'action', action, 'changes', changes);
  };
  await about('key.create', 'plan');
  await about('key.change', 'name', 'tags');
  await about('secret.create', 'secret', 'scope');
  await about('secret.change', 'secret', 'name');
  expect(await told()).toEqual([]);
  await about('secret.change', 'secret', 'name', 'networks');
  expect(await told()).toEqual([{ key: id }]);
});

test('while something else is in the place of the log, any key may have changed', async () => {
  const { told, tail } = follower();
  await told();
  await redis.set(AUDIT, 'nonsense');
  await expect(tail.follow()).rejects.toThrow('WRONGTYPE');
  await redis.del(AUDIT);
  expect(await told()).toEqual([{ anyKey: true }, { anyKey: true }]);
  expect(await told()).toEqual([]);
});

test('a reset is reported even if another change of the key followed', async () => {
  const [id, other] = [await changedKey(), await changedKey()];
  const { told } = follower();
  await told();
  await redis.xadd(AUDIT, '*', 'target', id, 'action', 'key.reset');
  for (const target of [other, id]) await entryAbout(target);
  expect(await told()).toEqual([{ key: id, isReset: true }, { key: other }]);
  await entryAbout(id);
  expect(await told()).toEqual([{ key: id }]);
});

test('a change has the time of the clock that decides, if there is one', async () => {
  const id = await changedKey();
  const { told } = follower(true);
  await told();
  await entryAbout(id, '9000000000000-1');
  await entryAbout(id, '9000000000007-1');
  expect(await told()).toEqual([{ key: id, at: 9_000_000_000_008_000 }]);
});
