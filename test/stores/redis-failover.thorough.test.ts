import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { connectRedis } from '../../gateway/stores/redis/connection.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { NotMade, Unconfirmed, Unknown } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { readableLog } from '../support/log.ts';
import { MASTER_NAME, startSentinels } from '../support/redis-sentinel.ts';
import { idOfKey, issuing } from '../support/redis-storage.ts';
import { targetOf } from '../support/redis-target.ts';

test('when a primary is killed, no acknowledged key is lost, and no key exists that was reported as not issued', async () => {
  const watched = await startSentinels();
  const redis = await connectRedis(
    targetOf('sentinel', watched.urls, { masterName: MASTER_NAME }),
    readableLog().logger,
  );
  cleanUp(() => redis.disconnect());
  await expect.poll(() => redis.status).toBe('ready');
  const storage = new RedisStorage(redis);
  const outcomes = new Map<string, unknown>();
  let [issued, isDone] = [0, false];
  const issueKeys = async () => {
    while (!isDone) {
      const id = idOfKey(++issued);
      outcomes.set(id, await storage.change(issuing(id)).catch((fault) => fault));
      if (outcomes.get(id) !== true) await sleep(20);
    }
  };
  const issuers = Array.from({ length: 4 }, issueKeys);
  await sleep(500);
  const lost = await watched.primary();
  await lost.server.stop();
  await expect.poll(() => watched.primary()).not.toBe(lost);
  const before = outcomes.size;
  await expect
    .poll(() => [...outcomes.values()].slice(before).filter((one) => one === true).length)
    .toBeGreaterThan(50);
  isDone = true;
  await Promise.all(issuers);

  /** Repeats a read whose connection was lost: on a busy machine, the sentinels may replace the new primary too. */
  const surely = async <T>(read: () => Promise<T>): Promise<T> => {
    for (let tries = 0; ; tries++) {
      try {
        return await read();
      } catch (fault) {
        if (tries === 100) throw fault;
        await sleep(100);
      }
    }
  };
  // Keys and entries are compared as one primary has them.
  let [primary, entries, existing]: [unknown, unknown[], Set<string>] = [undefined, [], new Set()];
  while ((await watched.primary()) !== primary) {
    primary = await watched.primary();
    entries = (await surely(() => storage.tail('audit', { count: 10_000 }))).map(([, { target: id }]) => id);
    existing = new Set();
    for (const id of outcomes.keys())
      if ((await surely(() => storage.read(`key:${id}`))) !== undefined) existing.add(id);
  }
  for (const [id, outcome] of outcomes) {
    const exists = existing.has(id);
    if (outcome === true) expect([id, exists]).toEqual([id, true]);
    else if (outcome instanceof NotMade) expect([id, exists]).toEqual([id, false]);
    else expect([Unconfirmed, Unknown]).toContain((outcome as Error).constructor);
    expect(entries.filter((one) => one === id)).toHaveLength(exists ? 1 : 0);
  }
  expect([...outcomes.values()].filter((one) => one === true).length).toBeGreaterThan(100);
});
