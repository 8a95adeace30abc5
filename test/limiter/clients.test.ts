import { expect, test } from 'vitest';
import { type Client, type KnownKey, noDebt } from '../../gateway/limiter/client.ts';
import { Clients } from '../../gateway/limiter/clients.ts';
import { type Credential, createApiKey, credentialOf, MAX_SECRETS } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { BEGIN, redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';

/** Tests how a gateway uses the key data that it last received from Redis. */

const { url } = await emptyDatabase();
const redis = await redisUnderTest(url);
const MINUTE = 60;

/** @param ahead by how much the Redis clock has been set back */
function knownKeys(ahead = () => 0) {
  const monotonic = () => redis.now + ahead();
  const known = new Clients(() => redis.plans, monotonic);
  return {
    known,
    async decideInRedis(credential: Credential) {
      const verdict = await redis.limiter.decide(credential);
      known.note(credential, verdict);
      return verdict.outcome;
    },
    decideHere: (credential: Credential) => known.decide(credential, 'later')?.outcome,
  };
}

/** A rotated key with its old and its new secret. */
async function rotatedKey(graceSeconds: number, record = {}) {
  const { credential: old } = createApiKey();
  const now = await redis.createKey({
    minute: MINUTE,
    secrets: [secretWith(old.digest, { expiresAt: redis.now + graceSeconds * SECOND })],
    ...record,
  });
  return { now, old: credentialOf(now.id, old.digest) };
}

test('a key in its grace period has one local allowance for both secrets', async () => {
  const { decideInRedis, decideHere } = knownKeys();
  const { now, old } = await rotatedKey(3_600);
  for (const credential of [now, old]) expect(await decideInRedis(credential)).toBe('admitted');
  const outcomes = Array.from({ length: 2 * MINUTE }, (_, at) => decideHere(at % 2 === 0 ? now : old));
  expect(outcomes.filter((outcome) => outcome === 'admitted')).toHaveLength(MINUTE - 2);
  expect(new Set(outcomes)).toEqual(new Set(['admitted', 'refused']));
});

test('local decisions accept no secret of a key that was deleted, disabled or expired in Redis', async () => {
  const change = {
    deleted: (key: string) => redis.redis.del(key),
    disabled: (key: string) => redis.redis.hset(key, 'disabled', '1'),
    ended: (key: string) => redis.redis.hset(key, 'expires_at', '1'),
  };
  for (const how of ['deleted', 'disabled', 'ended'] as const) {
    const { decideInRedis, decideHere, known } = knownKeys();
    const { now, old } = await rotatedKey(3_600);
    const elsewhere = knownKeys();
    for (const credential of [now, old]) await elsewhere.decideInRedis(credential);
    redis.now += 1;
    for (const credential of [now, old]) await decideInRedis(credential);
    await change[how](`gateway:key:{${now.id}}`);
    redis.now += 1;
    expect(await decideInRedis(now)).toBe('unauthorized');
    expect([decideHere(now), decideHere(old)]).toEqual([undefined, undefined]);
    // Another process of this gateway, which has older data on the key, accepts no secret either.
    elsewhere.known.takeOver(now.id, known.known(now.id) as KnownKey, redis.now);
    expect(elsewhere.decideHere(old)).toBe(undefined);
  }
});

test('a wrong or expired secret is unknown locally and does not affect the other secrets of its key', async () => {
  const { decideInRedis, decideHere } = knownKeys();
  const { now, old } = await rotatedKey(3);
  for (const credential of [now, old]) await decideInRedis(credential);
  redis.now += 4 * SECOND;
  expect(await decideInRedis(old)).toBe('unauthorized');
  const wrong = credentialOf(now.id, 'wrong');
  expect(await decideInRedis(wrong)).toBe('unauthorized');
  expect([decideHere(wrong), decideHere(now)]).toEqual([undefined, 'admitted']);
});

test('a local refusal gets a place in line and is not a strike', async () => {
  redis.setPlan('pro', { ban_after: 3, ban_grace_seconds: 0 });
  const { known, decideInRedis } = knownKeys();
  const key = await redis.createKey({ plan: 'pro', minute: 6 });
  await decideInRedis(key);
  const here = Array.from({ length: 105 }, () => known.decide(key, 'later') as Decision);
  const refused = here.filter(({ outcome }) => outcome === 'refused');
  expect(refused).toHaveLength(100);
  expect(refused.map(({ retryAt = 0 }) => retryAt - redis.now)).toEqual(
    refused.map((_, at) => Math.min(10 * (at + 1), 900) * SECOND),
  );
  // Redis answers again and has recorded none of the refusals.
  await redis.limiter.decide(key);
  expect((await redis.keys.get(key.id))?.refusals.strikesUntil).toBe(0);
});

test("in shadow mode, an operator's ban is in force locally, but a ban by a decision is not", async () => {
  redis.setPlan('business', { minute: 2, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 600, mode: 'enforce' });
  const { decideInRedis, decideHere } = knownKeys();
  const both = [await redis.createKey({ plan: 'business' }), await redis.createKey({ plan: 'business' })] as const;
  const [byOperator, byDecision] = both;
  await redis.keys.change(byOperator.id, () => ({ ban: { text: 'scrapes', until: redis.now + 600 * SECOND } }));
  for (let asked = 0; asked < 4; asked++) await redis.limiter.decide(byDecision);
  for (const key of both) expect(await decideInRedis(key)).toBe('banned');
  expect(both.map(decideHere)).toEqual(['banned', 'banned']);
  redis.setPlan('business', { mode: 'shadow' });
  expect(both.map(decideHere)).toEqual(['banned', 'admitted']);
  expect([await decideInRedis(byOperator), await decideInRedis(byDecision)]).toEqual(['banned', 'admitted']);
  expect(both.map(decideHere)).toEqual(['banned', 'admitted']);
});

test("a plan's changed limit is in force locally, except for keys with their own limit", async () => {
  redis.setPlan('pro', { minute: 100, day: 1_000, ban_after: 1_000 });
  const { known, decideInRedis } = knownKeys();
  const [ofPlan, own] = [await redis.createKey({ plan: 'pro' }), await redis.createKey({ plan: 'pro', minute: 50 })];
  for (const key of [ofPlan, own]) await decideInRedis(key);
  const minutes = () => [ofPlan, own].map((key) => (known.decide(key, 'peek') as Decision).buckets[0]);
  redis.setPlan('pro', { minute: 10 });
  expect(minutes()).toMatchObject([
    { limit: 10, tokens: 10 },
    { limit: 50, tokens: 49 },
  ]);
  const admitted = Array.from({ length: 20 }, () => known.decide(ofPlan, 'later')?.outcome);
  expect(admitted.filter((outcome) => outcome === 'admitted')).toHaveLength(10);
  // Tokens are refilled at the raised limit only from now on.
  redis.setPlan('pro', { minute: 6_000 });
  redis.now += 6 * SECOND;
  expect(minutes()).toMatchObject([
    { limit: 6_000, tokens: 1 },
    { limit: 50, tokens: 50 },
  ]);
});

test('keys and grace periods expire locally as they do in Redis', async () => {
  const { decideInRedis, decideHere } = knownKeys();
  const { now, old } = await rotatedKey(5, { expiresAt: redis.now + 10 * SECOND });
  for (const credential of [now, old]) await decideInRedis(credential);
  redis.now += 4 * SECOND;
  expect([now, old].map(decideHere)).toEqual(['admitted', 'admitted']);
  redis.now += 2 * SECOND;
  expect([now, old].map(decideHere)).toEqual(['admitted', 'unauthorized']);
  redis.now += 4 * SECOND;
  expect([now, old].map(decideHere)).toEqual(['unauthorized', 'unauthorized']);
});

test('a secret is accepted locally for 15 minutes after Redis last accepted this secret', async () => {
  const { decideInRedis, decideHere } = knownKeys();
  const { now, old } = await rotatedKey(86_400);
  await decideInRedis(old);
  redis.now += 600 * SECOND;
  await decideInRedis(now);
  redis.now += 600 * SECOND;
  expect([now, old].map(decideHere)).toEqual(['admitted', undefined]);
});

test('local admissions are subtracted from the levels in Redis until they are charged', async () => {
  const { known, decideInRedis, decideHere } = knownKeys();
  const key = await redis.createKey({ minute: MINUTE });
  await decideInRedis(key);
  for (let sent = 0; sent < 9; sent++) expect(decideHere(key)).toBe('admitted');
  // Redis may already have charged this admission.
  expect(known.decide(key, 'not again')?.outcome).toBe('admitted');
  expect(known.debtors()).toMatchObject([{ id: key.id, debt: { admitted: 9, shadowed: 0, refused: 0 } }]);
  await decideInRedis(key);
  const left = () => (known.decide(key, 'peek') as Decision).buckets.map(({ tokens }) => tokens);
  expect(left()).toEqual([MINUTE - 11, 1_000 - 11]);
  const [client] = known.debtors();
  const [charged] = await redis.charger.charge([{ ...noDebt(), id: key.id, admitted: 9, due: 9, asOf: 1 }]);
  const { decision } = charged as { decision: Decision };
  known.settle(client as Client, { ...noDebt(), admitted: 9, due: 9 }, decision);
  expect([known.debtors(), left()]).toEqual([[], [MINUTE - 11, 1_000 - 11]]);
});

test('the least recently used keys are forgotten first', async () => {
  const { known, decideInRedis, decideHere } = knownKeys();
  const [used, unused] = [await redis.createKey({ day: 1e9, minute: 1e9 }), await redis.createKey()];
  const verdict = await redis.limiter.decide(used);
  for (const credential of [used, unused]) await decideInRedis(credential);
  for (let at = 0; at < 60_000; at++) {
    known.note(credentialOf(`id-${at}`, ''), verdict as never);
    if (at % 1_000 === 0) expect(decideHere(used)).toBe('admitted');
  }
  expect(decideHere(used)).toBe('admitted');
  expect(decideHere(unused)).toBe(undefined);
});

test('a later change to a key is detected even if a request holds an evicted record of it', async () => {
  const { known, decideInRedis } = knownKeys();
  const key = await redis.createKey();
  const verdict = await redis.limiter.decide(key);
  await decideInRedis(key);
  const inHand = known.verified(key);
  const askedAt = redis.now;
  for (let at = 0; at < 60_000; at++) known.note(credentialOf(`id-${at}`, ''), verdict as never);
  redis.now += 1;
  await decideInRedis(key);
  expect(known.hasChangedSince(key.id, askedAt, inHand)).toBe(false);
  known.noteChange(key.id);
  expect(known.hasChangedSince(key.id, askedAt, inHand)).toBe(true);
});

test('if two processes have data on a key, the newer data is used', async () => {
  const [first, second] = [knownKeys(), knownKeys()];
  const key = await redis.createKey({ minute: MINUTE });
  await first.decideInRedis(key);
  redis.now += 1_000;
  for (let spent = 0; spent < 9; spent++) await second.decideInRedis(key);
  const machine = knownKeys();
  for (const { known } of [second, first]) machine.known.takeOver(key.id, known.known(key.id) as never, redis.now);
  const outcomes = Array.from({ length: MINUTE }, () => machine.decideHere(key));
  expect(outcomes.filter((outcome) => outcome === 'admitted')).toHaveLength(MINUTE - 10);
  expect(redis.now).toBeGreaterThan(BEGIN);
});

test('if the reply to a charge arrives after replies that Redis sent later, their levels are used', async () => {
  const [worker, machine] = [knownKeys(), knownKeys()];
  const key = await redis.createKey({ minute: MINUTE });
  await worker.decideInRedis(key);
  await machine.decideInRedis(key);
  const client = machine.known.verified(key) as Client;
  const debt = { ...noDebt(), admitted: 1, due: 1 };
  Object.assign(client.debt, debt);
  const [charged] = await redis.charger.charge([{ ...debt, id: key.id }]);
  redis.now += 1;
  for (let spent = 0; spent < 50; spent++) await worker.decideInRedis(key);
  redis.now += 1;
  machine.known.settle(client, debt, (charged as { decision: Decision }).decision);
  machine.known.takeOver(key.id, worker.known.known(key.id) as KnownKey, redis.now);
  const outcomes = Array.from({ length: MINUTE }, () => machine.decideHere(key));
  expect(outcomes.filter((outcome) => outcome === 'admitted')).toHaveLength(MINUTE - 53);
});

/** Creates a key and makes decisions until it is banned, for 10 s. */
async function bannedKey() {
  const { known, decideInRedis } = knownKeys();
  redis.setPlan('free', { minute: 6, ban_after: 1, ban_grace_seconds: 0, ban_seconds: 10 });
  const key = await redis.createKey();
  for (let sent = 0; sent < 8; sent++) await decideInRedis(key);
  const recall = (credential = key) => {
    const client = known.verified(credential);
    return client && known.bannedVerdict(client, credential);
  };
  return { known, key, recall, decideInRedis };
}

test('a ban is cached for a second, and its verdict advances with the time', async () => {
  const { recall, decideInRedis, key } = await bannedKey();
  const first = recall() as Decision;
  redis.now += 900_000;
  const later = recall() as Decision;
  expect([later.outcome, later.bannedUntil, later.now - first.now]).toEqual(['banned', first.bannedUntil, 900_000]);
  expect(later.buckets[0]?.fraction).toBeGreaterThan(first.buckets[0]?.fraction as number);
  redis.now += 100_000;
  expect(recall()).toBe(undefined);
  await decideInRedis(key);
  expect(recall()?.outcome).toBe('banned');
});

const bansOf = (known: Clients) => [...known.all()].filter((client) => known.isBanned(client)).length;

test('a cached ban is not revealed to wrong secrets, expires on time, and is dropped when its key changes', async () => {
  const { known, key, recall, decideInRedis } = await bannedKey();
  expect(recall(credentialOf(key.id, '0'.repeat(64)))).toBe(undefined);
  expect(bansOf(known)).toBe(1);
  redis.now += 10 * SECOND - 300_000;
  await decideInRedis(key);
  expect(recall()?.outcome).toBe('banned');
  known.noteChange(key.id);
  expect([recall(), bansOf(known)]).toEqual([undefined, 0]);
  redis.now += 1;
  await decideInRedis(key);
  expect([recall()?.outcome, bansOf(known)]).toEqual(['banned', 1]);
  redis.now += 300_000;
  expect([recall(), bansOf(known)]).toEqual([undefined, 0]);
});

test('a ban that shadow mode ignored is in force locally once the plan enforces again', async () => {
  const { known, decideInRedis, decideHere } = knownKeys();
  const key = await redis.createKey({ plan: 'business' });
  redis.setPlan('business', { mode: 'shadow' });
  await redis.redis.hset(`gateway:key:{${key.id}}`, { banned_until: '9999999999' });
  expect([await decideInRedis(key), decideHere(key)]).toEqual(['admitted', 'admitted']);
  redis.setPlan('business', { mode: 'enforce' });
  expect([decideHere(key), known.verified(key) !== undefined]).toEqual(['banned', true]);
});

test('a cached ban is dropped once its plan is in shadow mode', async () => {
  const { recall } = await bannedKey();
  expect(recall()?.outcome).toBe('banned');
  redis.setPlan('free', { mode: 'shadow' });
  expect(recall()).toBe(undefined);
});

test('the least recently used secret of a key is forgotten when more secrets are known than a key can have', async () => {
  const { known, decideInRedis, decideHere } = knownKeys();
  const others = Array.from({ length: MAX_SECRETS - 1 }, () => createApiKey().credential.digest);
  const first = await redis.createKey({ secrets: others.map((digest) => secretWith(digest)) });
  const credentials = [first, ...others.map((digest) => credentialOf(first.id, digest))];
  for (const credential of credentials) await decideInRedis(credential);
  await decideInRedis(first);
  // As if one secret had been revoked and another created.
  const verdict = known.verified(first)?.lastReply?.decision as Decision;
  known.note(credentialOf(first.id, createApiKey().credential.digest), verdict);
  expect(credentials.map((credential) => decideHere(credential) === undefined)).toEqual(
    credentials.map((_, at) => at === 1),
  );
});

test('when any key may have changed, no local decision uses earlier data', async () => {
  const { known, decideInRedis, decideHere } = knownKeys();
  const key = await redis.createKey();
  await decideInRedis(key);
  known.doubtAll();
  expect([decideHere(key), known.hasChangedSince('another', redis.now)]).toEqual([undefined, true]);
  redis.now += 1;
  await decideInRedis(key);
  expect(decideHere(key)).toBe('admitted');
});

test('a change to an unused key invalidates pending replies and uses no memory', async () => {
  const { known, decideHere } = knownKeys();
  const [key, inUse] = [await redis.createKey(), await redis.createKey()];
  known.note(inUse, await redis.limiter.decide(inUse));
  const askedAt = redis.now;
  for (let at = 0; at < 60_000; at++) known.noteChange(`restored-${at}`);
  expect(decideHere(inUse)).toBe('admitted');
  known.note(key, await redis.limiter.decide(key), askedAt);
  expect([decideHere(key), known.hasChangedSince('unheard of', askedAt)]).toEqual([undefined, true]);
  redis.now += 1;
  known.note(key, await redis.limiter.decide(key));
  expect(decideHere(key)).toBe('admitted');
});

test('after the Redis clock was set back, a change still invalidates earlier decisions', async () => {
  let ahead = 0;
  const { known, decideInRedis, decideHere } = knownKeys(() => ahead);
  const key = await redis.createKey();
  await decideInRedis(key);
  expect(decideHere(key)).toBe('admitted');
  [redis.now, ahead] = [redis.now - 5 * SECOND, 5 * SECOND];
  known.noteChange(key.id);
  expect([decideHere(key), known.hasChangedSince(key.id, redis.now + ahead)]).toEqual([undefined, true]);
  redis.now += 1;
  await decideInRedis(key);
  expect(decideHere(key)).toBe('admitted');
});

test("after the Redis clock was set back, another process still takes over Redis' next decision, including a ban", async () => {
  let ahead = 0;
  const [worker, machine] = [knownKeys(() => ahead), knownKeys(() => ahead)];
  const key = await redis.createKey();
  const share = () => machine.known.takeOver(key.id, worker.known.known(key.id) as KnownKey, redis.now + ahead);
  await worker.decideInRedis(key);
  redis.now += 1;
  share();
  expect(machine.decideHere(key)).toBe('admitted');
  [redis.now, ahead] = [redis.now - 600 * SECOND, 600 * SECOND];
  const until = '9999999999';
  await redis.redis.hset(`gateway:key:{${key.id}}`, { banned_until: until, ban_reason_until: until });
  redis.now += 1;
  expect(await worker.decideInRedis(key)).toBe('banned');
  redis.now += 1;
  share();
  expect(machine.decideHere(key)).toBe('banned');
});
