import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Debt, noDebt } from '../../gateway/limiter/client.ts';
import { Clients } from '../../gateway/limiter/clients.ts';
import { createApiKey, credentialOf } from '../../gateway/limiter/credential.ts';
import type { Decision } from '../../gateway/limiter/limiter.ts';
import { type Charged, Debts } from '../../gateway/limiter/outage.ts';
import { writeKey } from '../../gateway/stores/key-hash.ts';
import { keyOf } from '../../gateway/stores/redis/calls.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { cleanUp } from '../support/clean-up.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { BEGIN, redisUnderTest, SECOND } from '../support/limiters.ts';
import { connectedRedis, emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

/** Requests that a gateway admitted during a Redis outage are charged afterwards. */

const { url } = await emptyDatabase();
const under = await redisUnderTest(url);

const newClients = () =>
  new Clients(
    () => under.plans,
    () => under.now,
  );

const charge = async (id: string, admitted: number, refused = 0, shadowed = 0, retryAt = 0) =>
  await chargeDebt(id, { admitted, refused, shadowed, retryAt, asOf: under.now });

const chargeDebt = async (id: string, debt: Partial<Debt>) =>
  (await under.charger.charge([{ ...noDebt(), due: (debt.admitted ?? 0) - (debt.spared ?? 0), ...debt, id }]))[0];

const tokensIn = (decision: object | undefined) => (decision as Decision).buckets.map(({ tokens }) => tokens);

test('a charge needs no secret, takes tokens, counts as usage, and is not a strike', async () => {
  const { id } = await under.createKey({ minute: 10, day: 100 });
  const charged = await charge(id, 4, 3);
  expect(charged).toMatchObject({ forgiven: 0, decision: { mode: 'shared' } });
  expect(tokensIn((charged as { decision: Decision }).decision)).toEqual([6, 96]);
  const entry = await under.keys.get(id);
  expect(entry).toMatchObject({ admitted: 4, refused: 3, refusals: { lineUntil: 0, strikesUntil: 0 } });
  expect(entry?.usage.minutes).toMatchObject([{ admitted: 0, refused: 0 }]);
});

test('no key is banned before the latest retry time that its clients received while Redis was down', async () => {
  under.setPlan('pro', { ban_after: 3, ban_grace_seconds: 0 });
  const key = await under.createKey({ plan: 'pro', minute: 6 });
  await charge(key.id, 6, 20, 0, under.now + 30 * SECOND);
  const outcomes = async (count: number) => {
    const decided = await Promise.all(Array.from({ length: count }, () => under.limiter.decide(key)));
    return new Set(decided.map(({ outcome }) => outcome));
  };
  expect(await outcomes(20)).toEqual(new Set(['refused']));
  under.now += 30 * SECOND;
  expect(await outcomes(20)).toEqual(new Set(['admitted', 'refused', 'banned']));
});

test('requests that were admitted only because of shadow mode count as usage and take no token', async () => {
  const { id } = await under.createKey({ minute: 10, day: 100 });
  const charged = await charge(id, 1, 0, 5);
  expect(tokensIn((charged as { decision: Decision }).decision)).toEqual([9, 99]);
  expect(await under.keys.get(id)).toMatchObject({ admitted: 6, shadowed: 5, refused: 0 });
});

test('a charge reports how many of its requests were admitted before a reset, and these are forgiven', async () => {
  const { id } = await under.createKey({ minute: 10, day: 100 });
  const before = under.now;
  under.now += 5 * SECOND;
  await under.keys.change(id, () => ({ ban: 'reset' }));
  expect(await chargeDebt(id, { admitted: 3, asOf: before })).toMatchObject({ forgiven: 3 });
  expect(await chargeDebt(id, { admitted: 3, spared: 2, asOf: under.now + 1 })).toMatchObject({ forgiven: 2 });
  expect(await under.keys.get(id)).toMatchObject({ admitted: 6 });
});

/** Random events for a key and its gateway. The gateway is not notified of a reset elsewhere. */
const HISTORY = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.constant('ask Redis' as const) },
    { weight: 4, arbitrary: fc.constant('decide here' as const) },
    { weight: 2, arbitrary: fc.constantFrom('send a charge' as const, 'receive the reply' as const) },
    { weight: 1, arbitrary: fc.constantFrom('reset here' as const, 'reset elsewhere' as const) },
  ),
  { maxLength: 40 },
);

test('in any order of decisions, charges and resets, tokens are taken only for admissions after the last reset', async () => {
  const property = fc.asyncProperty(HISTORY, async (history) => {
    const clients = newClients();
    const key = await under.createKey({ minute: 1e6, day: 1_000 });
    let resetAt = 0;
    let repliedAt = -1;
    let isKnown = true;
    /** For each token taken: the time of the Redis reply whose levels admitted the request. */
    const taken: number[] = [];
    const underWay: { debt: Debt; answer: Promise<Charged | undefined> }[] = [];
    async function act(step: (typeof history)[number]) {
      under.now += 1_000;
      const [client] = clients.debtors();
      if (step === 'ask Redis') {
        clients.note(key, await under.limiter.decide(key));
        repliedAt = under.now;
        taken.push(repliedAt);
      } else if (step === 'decide here') {
        if (clients.decide(key, 'later') !== undefined) taken.push(repliedAt);
      } else if (step === 'send a charge') {
        // Only one charge is sent at a time.
        if (client === undefined || underWay.length > 0) return;
        underWay.push({ debt: { ...client.debt }, answer: chargeDebt(key.id, client.debt) });
        await underWay[0]?.answer;
      } else if (step === 'receive the reply') {
        const charge = underWay.shift();
        if (charge === undefined || client === undefined) return;
        const answer = await charge.answer;
        const decision = typeof answer === 'object' ? answer.decision : undefined;
        clients.settle(client, charge.debt, decision);
        // The reply to a charge also has the levels.
        repliedAt = Math.max(repliedAt, decision?.now ?? 0);
      } else {
        await under.keys.change(key.id, () => ({ ban: 'reset' }));
        resetAt = under.now;
        if (step === 'reset here') clients.noteChange(key.id, true);
        else isKnown = false;
      }
    }
    for (const step of history) await act(step);
    for (const step of ['receive the reply', 'send a charge', 'receive the reply'] as const) await act(step);
    expect(clients.debtors()).toEqual([]);
    const [, left] = tokensIn((await under.limiter.peek(key)) as Decision) as [number, number];
    const since = taken.filter((at) => at > resetAt).length;
    expect(left).toBeGreaterThanOrEqual(1_000 - since);
    if (isKnown) expect(left).toBe(1_000 - since);
    expect((await under.keys.get(key.id))?.admitted).toBe(taken.length);
  });
  const lateAnswer = [
    'ask Redis',
    'decide here',
    'send a charge',
    'reset here',
    'ask Redis',
    'receive the reply',
    'decide here',
  ] as const;
  await fc.assert(property, { numRuns: thoroughly(600, 200), examples: [[[...lateAnswer]]] });
});

test('a charge does not bring back a deleted key', async () => {
  const { id } = await under.createKey();
  await under.redis.del(keyOf(id));
  expect(await charge(id, 3)).toBe('gone');
  expect(await under.redis.exists(keyOf(id))).toBe(0);
});

test('10,000 admissions for 2,000 keys are each charged once', async () => {
  const limiter = new RedisLimiter(under.redis, under.inForce, { clock: () => under.now, timeoutMs: 1_000 });
  const clients = newClients();
  const keys = Array.from({ length: 2_000 }, () => createApiKey().credential);
  const digest = '0'.repeat(64);
  const fields = writeKey({ plan: 'free', name: '', createdAt: BEGIN, secrets: [secretWith(digest)] });
  const fill = under.redis.pipeline();
  for (const { id } of keys) fill.hset(keyOf(id), fields);
  await fill.exec();
  const verdict = (await limiter.decide(credentialOf(keys[0]!.id, digest))) as Decision;
  for (const { id } of keys) {
    clients.note(credentialOf(id, digest), verdict);
    for (let sent = 0; sent < 5; sent++) clients.decide(credentialOf(id, digest), 'later');
  }
  const debts = new Debts(clients, limiter);
  cleanUp(() => debts.stop());
  await debts.settle();
  expect(clients.debtors()).toEqual([]);
  expect(debts.counted()[0]?.values).toEqual([
    { labels: { fate: 'charged' }, value: 10_000 },
    { labels: { fate: 'forgiven' }, value: 0 },
    { labels: { fate: 'unknown' }, value: 0 },
  ]);
  const counts = await Promise.all(keys.slice(1).map(({ id }) => under.redis.hget(keyOf(id), 'admitted')));
  expect(new Set(counts)).toEqual(new Set(['5']));
});

test('a reply to a charge still provides the bucket levels if it arrives after the deadline of a decision', async () => {
  const { id } = await under.createKey({ minute: 10, day: 100 });
  const proxy = await startFaultProxy(url);
  const late = await connectedRedis(proxy.url);
  const charger = new RedisLimiter(late, under.inForce, { clock: () => under.now, timeoutMs: 50 });
  proxy.set({ kind: 'delay', ms: 150 });
  const [charged] = await charger.charge([{ ...noDebt(), admitted: 4, due: 4, asOf: under.now, id }]);
  expect(tokensIn((charged as { decision: Decision }).decision)).toEqual([6, 96]);
});

test('a charge without a reply is counted and not repeated, and one that was not executed is sent again', async () => {
  const clients = newClients();
  const key = await under.createKey();
  clients.note(key, await under.limiter.decide(key));
  const sent: number[] = [];
  const ends: Charged[] = ['not run', 'unknown', 'unknown'];
  const charger = {
    atOnce: 256,
    answers: async () => true,
    async charge(debts: readonly { admitted: number }[]) {
      sent.push(debts[0]!.admitted);
      return [ends.shift() as Charged];
    },
  };
  const debts = new Debts(clients, charger);
  cleanUp(() => debts.stop());
  for (let asked = 0; asked < 3; asked++) clients.decide(key, 'later');
  for (let round = 0; round < 4; round++) await debts.settle();
  expect([sent, clients.debtors()]).toEqual([[3, 3], []]);
  expect(debts.counted()[0]?.values).toContainEqual({ labels: { fate: 'unknown' }, value: 3 });
});

test("lowering a key's limit reduces its debt, so its clients wait at most two minutes", async () => {
  const key = await under.createKey({ minute: 1_000, day: 100_000 });
  await charge(key.id, 1_995);
  expect(tokensIn(await under.limiter.decide(key))).toEqual([-995, 98_005]);
  await under.keys.change(key.id, () => ({ record: { minute: 60 } }));
  const refused = (await under.limiter.decide(key)) as Decision;
  expect([tokensIn(refused)[0], (refused.retryAt ?? 0) - under.now]).toEqual([-60, 61 * SECOND]);
  for (let waited = 0; waited < 60; waited += 5) {
    under.now += 5 * SECOND;
    expect(await under.limiter.decide(key)).toMatchObject({ outcome: 'refused' });
  }
  under.now += SECOND;
  expect(await under.limiter.decide(key)).toMatchObject({ outcome: 'admitted' });
});

test('if the Redis clock is set back after a reset, later admissions are charged', async () => {
  const key = await under.createKey({ minute: 10, day: 100 });
  await under.limiter.decide(key);
  await under.keys.change(key.id, () => ({ ban: 'reset' }));
  under.now -= 600 * SECOND;
  await under.limiter.decide(key);
  under.now += 1;
  const charged = (await charge(key.id, 4)) as { decision: Decision; forgiven: number };
  expect([charged.forgiven, tokensIn(charged.decision)]).toEqual([0, [5, 95]]);
});
