import { setTimeout as sleep } from 'node:timers/promises';
import slotOf from 'cluster-key-slot';
import type { Cluster } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { connectCluster } from '../../gateway/stores/redis/connection.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { type Change, type LogEntry, NotMade } from '../../gateway/stores/storage.ts';
import { cleanUp } from '../support/clean-up.ts';
import { readableLog } from '../support/log.ts';
import { moveSlot, startRedisCluster } from '../support/redis-cluster.ts';
import { auditEntry, idOfKey, issuing, revoking } from '../support/redis-storage.ts';
import { targetOf } from '../support/redis-target.ts';

const cluster = await startRedisCluster();

async function connected(): Promise<Cluster> {
  const redis = await connectCluster(targetOf('cluster', cluster.urls), readableLog().logger);
  cleanUp(() => redis.disconnect());
  await allReady(redis);
  return redis;
}

async function allReady(redis: Cluster): Promise<void> {
  while (redis.nodes('master').filter(({ status }) => status === 'ready').length < 3) await sleep(20);
}

const redis = await connected();
const storage = new RedisStorage(redis);
let keys = 0;
const newKey = (): string => idOfKey(++keys);

const auditLog = () => storage.tail('audit', { count: 10_000 });
const actionsOn = async (id: string, log = auditLog()): Promise<string[]> =>
  (await log).filter(([, { target }]) => target === id).map(([, { action }]) => action as string);

const renaming = (id: string): Change => ({
  parts: [{ record: `key:${id}`, exists: true, expect: { name: undefined }, set: { name: 'new' } }],
  entries: [auditEntry(id), auditEntry(id, 'ban.lift')],
});

const left = async (id: string) => [
  await redis.smembers('gateway:outboxes'),
  await redis.exists(`gateway:outbox:{${id}}`),
];

/**
 * Opens a storage whose gateway is killed at its nth call to Redis: before the call, or after it but before its reply.
 */
async function dying(calls: number, isSent: boolean) {
  const connection = await connected();
  const send = connection.sendCommand.bind(connection);
  let [made, isDead] = [0, false];
  connection.sendCommand = (...command) => {
    if (isDead) return new Promise(() => {});
    isDead = ++made === calls;
    if (isDead && isSent) void Promise.resolve(send(...command)).catch(() => undefined);
    return isDead ? new Promise(() => {}) : send(...command);
  };
  return { storage: new RedisStorage(connection), isDead: () => isDead, close: () => connection.disconnect() };
}

const others = await Promise.all([connected(), connected()]);
const survivors = others.map((one) => new RedisStorage(one, { leftBehindMs: 100 }));

/** Lets other gateways finish the interrupted changes until none is left. */
async function takeOver(): Promise<void> {
  await Promise.all(others.map(allReady));
  while ((await redis.scard('gateway:outboxes')) > 0) {
    await Promise.all(survivors.map((one) => one.moveOutboxes()));
    await sleep(50);
  }
}

const CHANGES: [what: string, of: (id: string) => Change, actions: string[]][] = [
  ['issues a key', issuing, ['key.create']],
  ['changes a key', renaming, ['ban.lift', 'key.change']],
  ['revokes a key', revoking, ['key.revoke']],
];

describe.for(CHANGES)('a gateway that %s', ([, of, actions]) => {
  test.for([true, false])(
    'leaves exactly one copy of each audit entry in the log, even if it is killed at any step (its last call was sent: %s)',
    async (isSent) => {
      const made: boolean[] = [];
      for (let calls = 1; ; calls++) {
        const id = newKey();
        if (of !== issuing) await storage.change({ ...issuing(id), entries: [] });
        const before = await storage.read(`key:${id}`);
        const gateway = await dying(calls, isSent);
        const whole = gateway.storage.change(of(id));
        const isWhole = await Promise.race([
          whole,
          expect
            .poll(gateway.isDead)
            .toBe(true)
            .then(() => undefined),
        ]);
        // Gives its last call time to arrive.
        await sleep(100);
        await takeOver();
        const after = await storage.read(`key:${id}`);
        const isMade = JSON.stringify(after) !== JSON.stringify(before);
        expect([calls, await actionsOn(id)]).toEqual([calls, isMade ? actions : []]);
        expect(await left(id)).toEqual([[], 0]);
        const isListed = (await redis.zscore('gateway:keys', id)) !== null;
        if (of !== revoking) expect([calls, isListed]).toEqual([calls, after !== undefined]);
        gateway.close();
        made.push(isMade);
        if (isWhole) break;
      }
      // Ensures that it was killed at least once before the change, and at several steps after it.
      expect(made.filter((one) => !one).length).toBeGreaterThan(0);
      expect(made.filter(Boolean).length).toBeGreaterThan(3);
    },
  );
});

test('a change that arrives after other gateways have taken it over is not made', async () => {
  const connection = await connected();
  const send = connection.sendCommand.bind(connection);
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let isHeld = false;
  connection.sendCommand = async (command, ...more) => {
    const isChange = command.args.some((part) => String(part).includes('"parts"'));
    isHeld ||= isChange;
    if (isChange) await released;
    return await send(command, ...more);
  };
  const id = newKey();
  const change = new RedisStorage(connection).change(issuing(id)).catch((fault) => fault);
  await expect.poll(() => isHeld).toBe(true);
  await takeOver();
  release();
  expect(await change).toBeInstanceOf(NotMade);
  expect([await storage.read(`key:${id}`), await actionsOn(id), await left(id)]).toEqual([undefined, [], [[], 0]]);
  expect(await redis.zscore('gateway:keys', id)).toBeNull();
});

test('a change that other gateways take over at the same time is made with its audit entry or not at all', async () => {
  const hasty = new RedisStorage(await connected(), { leftBehindMs: 0 });
  let isDone = false;
  const moving = (async () => {
    while (!isDone) await hasty.moveOutboxes();
  })();
  const tokens = Array.from({ length: 150 }, (_, at) => `t${at}`);
  const made = await Promise.all(
    tokens.map((id, at) => {
      const parts: Change['parts'] = [{ record: at % 2 ? 'tokens' : 'plans', set: { [id]: 'x' } }];
      return storage.change({ parts, entries: [auditEntry(id)] }).catch((fault) => {
        expect(fault).toBeInstanceOf(NotMade);
        return false;
      });
    }),
  );
  isDone = true;
  await moving;
  await takeOver();
  const log = auditLog();
  for (const [at, id] of tokens.entries())
    expect([id, await actionsOn(id, log)]).toEqual([id, made[at] ? ['key.change'] : []]);
  expect(made.filter(Boolean).length).toBeGreaterThan(0);
  await redis.del('gateway:plans');
  await redis.del('gateway:tokens');
});

test('an invalid outbox entry is dropped, and one for a log that is not a stream is reported', async () => {
  const id = newKey();
  const lost: LogEntry[] = [];
  const reporting = new RedisStorage(redis, { onLost: (entry) => void lost.push(entry), leftBehindMs: 0 });
  await redis.rpush(`gateway:outbox:{${id}}`, 'typed', '{"id":1}');
  await redis.sadd('gateway:outboxes', 'typed', `x ${id}`);
  await expect
    .poll(async () => {
      await reporting.moveOutboxes();
      return await left(id);
    })
    .toEqual([[], 0]);
  await redis.rename('gateway:activity', 'saved:{gateway:activity}');
  await redis.set('gateway:activity', 'spoilt');
  expect(await reporting.change(issuing(id))).toBe(true);
  expect(lost).toEqual([auditEntry(id, 'key.create')]);
  expect(await left(id)).toEqual([[], 0]);
  await redis.rename('saved:{gateway:activity}', 'gateway:activity');
});

test('on a cluster, the index is rebuilt from all nodes', async () => {
  const ids = Array.from({ length: 30 }, newKey);
  for (const id of ids) await storage.change(issuing(id));
  await redis.zrem('gateway:keys', ...ids);
  expect([...(await storage.unlistedKeys())].sort()).toEqual(ids);
  expect([await storage.relistKeys(), await storage.unlistedKeys()]).toEqual([30, []]);
  expect(await storage.isEmpty()).toBe(false);
});

test("while a key's slot migrates, changes to the key are made with their audit entries or refused", async () => {
  const id = newKey();
  await storage.change(issuing(id));
  const slot = slotOf(`{${id}}`);
  const from = await cluster.ownerOf(slot);
  const to = cluster.nodes.find((node) => node !== from) as typeof from;
  let isDone = false;
  const made: boolean[] = [];
  const changing = (async () => {
    for (let at = 0; !isDone; at++) {
      const part = { record: `key:${id}`, exists: true, set: { name: `name ${at}` } } as const;
      const change = storage.change({ parts: [part], entries: [auditEntry(id, `change ${at}`)] });
      made.push(await change.catch((fault) => (fault instanceof NotMade ? false : Promise.reject(fault))));
      await sleep(30);
    }
  })();
  await sleep(100);
  await moveSlot(cluster, slot, to, { pauseMs: 200 });
  await sleep(500);
  isDone = true;
  await changing;
  await takeOver();
  const expected = made.flatMap((one, at) => (one ? [`change ${at}`] : [])).reverse();
  expect(await actionsOn(id)).toEqual([...expected, 'key.create']);
  expect(made.at(-1)).toBe(true);
});

test("while the audit log's node is down, changes on other nodes are made, and their entries are added later", async () => {
  const node = await cluster.ownerOf(slotOf('gateway:activity'));
  for (const name of ['gateway:outboxes', 'gateway:tokens']) expect(await cluster.ownerOf(slotOf(name))).not.toBe(node);
  node.server.pause();
  const beganAt = performance.now();
  const parts: Change['parts'] = [{ record: 'tokens', set: { ann: 'x' } }];
  expect(await storage.change({ parts, entries: [auditEntry('ann', 'token.create')] })).toBe(true);
  expect(performance.now() - beganAt).toBeLessThan(1_800);
  node.server.resume();
  await allReady(redis);
  await takeOver();
  expect(await actionsOn('ann')).toEqual(['token.create']);
});
