import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Credential, createApiKey, credentialOf, SCOPES } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import type { Verdict } from '../../gateway/limiter/limiter.ts';
import { parseNetwork } from '../../gateway/limiter/networks.ts';
import { DEFAULT_PLANS, PLAN_FIELDS, PLAN_NAMES } from '../../gateway/limiter/plans.ts';
import { BEGIN, type LimiterUnderTest, memoryUnderTest, redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

const { url } = await emptyDatabase();
const KEYS = 3;
/** Few runs locally: model.test.ts checks the same rules more cheaply. */
const RUNS = thoroughly(200, 100);

/** Small limits cause refusals, large ones test the arithmetic. */
const limit = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 5 }) },
  fc.integer({ min: 1, max: 1_000_000_000 }),
);
const key = fc.nat({ max: KEYS - 1 });
const duration = fc.oneof(
  fc.constantFrom(0, 1, SECOND - 1, SECOND, 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND),
  fc.integer({ min: 0, max: 3 * SECOND }),
  fc.integer({ min: -90_000 * SECOND, max: 90_000 * SECOND }),
);

const event = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({ type: fc.constant('requests' as const), key, count: fc.integer({ min: 1, max: 6 }) }),
  },
  { weight: 4, arbitrary: fc.record({ type: fc.constant('time' as const), duration }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('plan' as const),
      plan: fc.constantFrom(...PLAN_NAMES),
      changes: fc.record(
        {
          minute: limit,
          day: limit,
          ban_after: limit,
          ban_grace_seconds: fc.oneof(fc.constant(0), fc.nat({ max: 60 })),
          ban_seconds: limit,
          mode: fc.constantFrom(...PLAN_FIELDS.mode.options),
        },
        { requiredKeys: [] },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('override' as const), key, minute: limit, day: limit }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('disable' as const), key, disabled: fc.boolean() }) },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant('at once' as const),
      keys: fc.array(key, { minLength: 2, maxLength: 40 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('wrong secret' as const), key }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('old secret' as const), key }) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant('bound secret' as const),
      key,
      scope: fc.constantFrom(...SCOPES, undefined),
      address: fc.constantFrom('10.0.0.1', '10.127.255.255', '10.128.0.0', '::ffff:10.1.1.1', '2001:db8::1', ''),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('revoke' as const), key }) },
);

type Event = typeof event extends fc.Arbitrary<infer E> ? E : never;

const OLD_SECRET = 'b'.repeat(64);
const WRONG_SECRET = 'c'.repeat(64);
const BOUND_SECRET = 'd'.repeat(64);

/** For reading only, from one network. */
const boundSecrets = () => [
  secretWith(BOUND_SECRET, { scope: ['read'], networks: [parseNetwork('10.0.0.0/9') as string] }),
];

/** Runs one history on one limiter. @returns all verdicts, and the final state as operators see it */
async function live(under: LimiterUnderTest, credentials: readonly Credential[], history: readonly Event[]) {
  const records: KeyRecord[] = credentials.map(({ digest }, index) => ({
    name: `key ${index}`,
    plan: index === 0 ? 'free' : 'enterprise',
    secrets: [secretWith(digest), secretWith(OLD_SECRET, { expiresAt: BEGIN + 120 * SECOND }), ...boundSecrets()],
    createdAt: BEGIN,
    expiresAt: BEGIN + 400_000 * SECOND,
    ...(index === 0 ? {} : { minute: index, day: 1_000_000_000 }),
  }));
  for (const [index, { id }] of credentials.entries()) await under.keys.create(id, records[index] as KeyRecord);

  const said: Verdict[] = [];
  for (const happening of history) {
    const { id, digest } = credentials['key' in happening ? happening.key : 0] as Credential;
    const ask = async (secret: string) => void said.push(await under.limiter.decide(credentialOf(id, secret)));
    if (happening.type === 'requests') for (let sent = 0; sent < happening.count; sent++) await ask(digest);
    if (happening.type === 'at once') said.push(...(await askAtOnce(under, credentials, happening.keys)));
    if (happening.type === 'wrong secret') await ask(WRONG_SECRET);
    if (happening.type === 'old secret') await ask(OLD_SECRET);
    if (happening.type === 'bound secret') {
      const { scope, address, count } = happening;
      const bound = credentialOf(id, BOUND_SECRET, { scope, address });
      said.push(...(await Promise.all(Array.from({ length: count }, () => under.limiter.decide(bound)))));
    }
    if (happening.type === 'time') under.now = Math.max(SECOND, under.now + happening.duration);
    if (happening.type === 'plan') under.setPlan(happening.plan, happening.changes);
    if (happening.type === 'revoke') await under.keys.remove(id);
    if (happening.type === 'override' || happening.type === 'disable') {
      const { type: _type, key: _key, ...changes } = happening;
      await under.keys.change(id, () => ({ record: changes }));
    }
  }
  const entries = await Promise.all(credentials.map(({ id }) => under.keys.get(id)));
  return {
    said,
    counts: entries.map(
      (entry) => entry && [entry.admitted, entry.refused, entry.bannedUntil, entry.shadowed, entry.usage, entry.used],
    ),
  };
}

/** Requests of one turn of the event loop. They go to Redis in one call. */
const askAtOnce = (under: LimiterUnderTest, credentials: readonly Credential[], keys: readonly number[]) =>
  Promise.all(keys.map((index) => under.limiter.decide(credentials[index] as Credential)));

test('the embedded limiter and decide.lua agree on random histories', async () => {
  const [memory, redis] = [await memoryUnderTest(), await redisUnderTest(url)];
  let decisions = 0;
  const outcomes = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(event, { minLength: 10, maxLength: 60 }), async (history) => {
      Object.assign(memory, { now: BEGIN, plans: DEFAULT_PLANS });
      const credentials = Array.from({ length: KEYS }, () => createApiKey().credential);
      Object.assign(redis, { now: memory.now, plans: memory.plans });
      const expected = await live(memory, credentials, history);
      expect(await live(redis, credentials, history)).toEqual(expected);
      decisions += expected.said.length;
      for (const verdict of expected.said)
        outcomes.add('isShadowed' in verdict && verdict.isShadowed ? 'shadowed' : verdict.outcome);
    }),
    { numRuns: RUNS },
  );
  expect(decisions).toBeGreaterThan(12 * RUNS);
  expect([...outcomes].sort()).toEqual(['admitted', 'banned', 'forbidden', 'refused', 'shadowed', 'unauthorized']);
}, 120_000);
