import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DAY, MINUTE } from '../../gateway/limiter/bucket.ts';
import { type Credential, createApiKey } from '../../gateway/limiter/credential.ts';
import { decide } from '../../gateway/limiter/decide.ts';
import {
  type Count,
  countsOf,
  DAYS_KEPT,
  FRESH,
  type KeyEntry,
  type KeyState,
  MINUTES_KEPT,
  usedOfDay,
} from '../../gateway/limiter/key-record.ts';
import type { BucketState, Decision, Limiter } from '../../gateway/limiter/limiter.ts';
import { DEFAULT_PLANS } from '../../gateway/limiter/plans.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { BEGIN, type LimiterUnderTest, memoryUnderTest, redisUnderTest, SECOND } from '../support/limiters.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { secretWith } from '../support/secrets.ts';
import { thoroughly } from '../support/thorough.ts';

const { url, redis: database } = await emptyDatabase();

async function memoryFleet(): Promise<Fleet> {
  const under = await memoryUnderTest();
  return { under, gateways: [under.limiter] };
}

/** The limiters of three gateways that share their data. */
async function redisFleet() {
  await database.flushdb();
  const under = await redisUnderTest(url);
  const another = (): Limiter => new RedisLimiter(under.redis, under.inForce, { clock: () => under.now });
  return { under, gateways: [under.limiter, another(), another()] };
}

interface Fleet {
  readonly under: LimiterUnderTest;
  readonly gateways: readonly Limiter[];
}

/** An independent count of the outcomes that clients saw. `unit` is a minute or a day in microseconds. */
class Seen {
  readonly #counts = new Map<string, { admitted: number; refused: number }>();

  add(id: string, now: number, outcome: string): void {
    for (const unit of [MINUTE, DAY]) {
      const name = `${id} ${unit} ${Math.floor(now / unit)}`;
      const count = this.#counts.get(name) ?? { admitted: 0, refused: 0 };
      count[outcome === 'admitted' ? 'admitted' : 'refused'] += 1;
      this.#counts.set(name, count);
    }
  }

  /** The counts of the last `kept` minutes or days. */
  of(id: string, unit: number, now: number, kept: number): Count[] {
    const from = Math.floor(now / unit) - kept + 1;
    return Array.from({ length: kept }, (_, index) => from + index).flatMap((at) => {
      const count = this.#counts.get(`${id} ${unit} ${at}`);
      return count === undefined ? [] : [{ at, ...count }];
    });
  }
}

/** The stored counts of the last `kept` minutes or days. */
function countsIn(entry: KeyEntry, unit: 'minutes' | 'days', now: number): Count[] {
  const [length, kept] = unit === 'minutes' ? [MINUTE, MINUTES_KEPT] : [DAY, DAYS_KEPT];
  return countsOf(entry.usage[unit], entry).filter(({ at }) => at > Math.floor(now / length) - kept);
}

async function walked(under: LimiterUnderTest, limit = 2): Promise<Map<string, KeyEntry>> {
  const found: KeyEntry[] = [];
  let after: Parameters<typeof under.keys.walk>[0]['after'];
  do {
    const { keys, next } = await under.keys.walk({ after, limit });
    found.push(...keys);
    after = next;
  } while (after !== undefined);
  const byId = new Map(found.map((entry) => [entry.id, entry]));
  expect(found).toHaveLength(byId.size);
  return byId;
}

const untilDayEnds = DAY - (BEGIN % DAY);
const wait = fc.oneof(
  fc.constantFrom(1, SECOND, MINUTE - 1, MINUTE, DAY, untilDayEnds - 1, untilDayEnds, 36 * DAY),
  fc.integer({ min: 0, max: 3 * MINUTE }),
  fc.integer({ min: 0, max: 2 * DAY }),
);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant('ask' as const),
      key: fc.nat(2),
      gateway: fc.nat(2),
      times: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ type: fc.constant('wait' as const), wait }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant('revoke' as const), key: fc.nat(2) }) },
);

async function happens(
  { under, gateways }: Fleet,
  keys: readonly Credential[],
  seen: Seen,
  { type, ...what }: typeof step extends fc.Arbitrary<infer S> ? S : never,
): Promise<void> {
  if ('wait' in what) under.now += what.wait;
  if (!('key' in what)) return;
  const credential = keys[what.key] as Credential;
  if (type === 'revoke') await under.keys.remove(credential.id);
  if (!('times' in what)) return;
  for (let time = 0; time < what.times; time++) {
    const { outcome } = await (gateways[what.gateway % gateways.length] as Limiter).decide(credential);
    if (outcome !== 'unauthorized') seen.add(credential.id, under.now, outcome);
  }
}

test.for([
  ['the embedded limiter', memoryFleet, thoroughly(60, 12)],
  ['three gateways on one Redis', redisFleet, thoroughly(40, 8)],
] as const)(
  '%s: usage by minute and by day equals what clients saw, across days and after a key is revoked',
  async ([, makeFleet, numRuns]) => {
    let counted = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60 }), async (steps) => {
        const fleet = await makeFleet();
        const { under } = fleet;
        // Keys must not be banned, because usage does not count refusals by a ban.
        under.setPlan('free', { minute: 3, ban_after: 1_000_000_000 });
        const keys = await Promise.all(Array.from({ length: 3 }, () => under.createKey({ name: 'counted' })));
        const seen = new Seen();
        for (const each of steps) await happens(fleet, keys, seen, each);
        const entries = await walked(under);
        for (const { id } of keys) {
          const entry = entries.get(id) as KeyEntry;
          expect(entry).toMatchObject({ record: { name: 'counted', plan: 'free' } });
          const days = seen.of(id, DAY, under.now, DAYS_KEPT);
          expect(countsIn(entry, 'days', under.now)).toEqual(days);
          if (!entry.isRevoked)
            expect(countsIn(entry, 'minutes', under.now)).toEqual(seen.of(id, MINUTE, under.now, MINUTES_KEPT));
          counted += days.length;
        }
      }),
      { numRuns },
    );
    expect(counted).toBeGreaterThan(numRuns);
  },
);

test.for([
  ['the embedded limiter', memoryFleet],
  ['Redis', redisFleet],
] as const)('%s: usage of a key is kept for an hour by minute and for 36 days by day', async ([, make]) => {
  const { under } = await make();
  const credential = await under.createKey({ minute: 1_000_000, day: 1_000_000 });
  const ask = async (times: number, pause: number) => {
    for (let time = 0; time < times; time++) {
      await under.limiter.decide(credential);
      under.now += pause;
    }
  };
  await ask(100, DAY);
  await ask(200, MINUTE);
  const { usage } = (await under.keys.get(credential.id)) as KeyEntry;
  expect([usage.minutes.length, usage.days.length]).toEqual([MINUTES_KEPT, DAYS_KEPT]);
  const now = under.now - MINUTE;
  expect(countsIn((await under.keys.get(credential.id)) as KeyEntry, 'minutes', now)).toHaveLength(MINUTES_KEPT);
});

test.for([
  ['the embedded limiter', memoryFleet],
  ['Redis', redisFleet],
] as const)('%s: requests that a ban refuses are not counted, not even the one that begins it', async ([, make]) => {
  const { under } = await make();
  const credential = await under.createKey({ minute: 1, day: 1_000 });
  const outcomes: string[] = [];
  while (outcomes.at(-2) !== 'banned') {
    outcomes.push((await under.limiter.decide(credential)).outcome);
    under.now += SECOND;
  }
  const entry = (await under.keys.get(credential.id)) as KeyEntry;
  const [day] = countsOf(entry.usage.days, entry);
  expect(day).toMatchObject({
    admitted: outcomes.filter((outcome) => outcome === 'admitted').length,
    refused: outcomes.filter((outcome) => outcome === 'refused').length,
  });
});

test('damaged usage fields are reset and do not prevent decisions', async () => {
  const { under } = await redisFleet();
  const credential = await under.createKey();
  const hash = `gateway:marks:{${credential.id}}`;
  await under.limiter.decide(credential);
  for (const spoilt of [
    'x'.repeat(100_000),
    'a b:c 1:2',
    '',
    '1:2:3:4 -1:0:0 1:nan:0',
    ' '.repeat(4_000),
    '\n\t'.repeat(90),
  ]) {
    await database.hset(hash, { usage_minutes: spoilt, usage_days: spoilt });
    under.now += DAY;
    expect((await under.limiter.decide(credential)).outcome).toBe('admitted');
    const { usage } = (await under.keys.get(credential.id)) as KeyEntry;
    expect(usage.days).toMatchObject([{ at: Math.floor(under.now / DAY), refused: 0 }]);
    expect(await database.hstrlen(hash, 'usage_days')).toBeLessThan(4_200);
  }
});

test('for 36 days, a revoked key keeps its usage and its place among revoked keys, but no secret', async () => {
  const { under } = await redisFleet();
  const credential = await under.createKey();
  await under.limiter.decide(credential);
  under.now += DAY;
  await under.limiter.decide(credential);
  await under.keys.remove(credential.id);
  const left = `gateway:usage:{${credential.id}}`;
  expect(await database.exists(`gateway:key:{${credential.id}}`, `gateway:marks:{${credential.id}}`)).toBe(0);
  expect(Object.keys(await database.hgetall(left)).sort()).toEqual([
    'admitted',
    'created_at',
    'left',
    'name',
    'plan',
    'revoked',
    'usage_days',
  ]);
  expect(await database.ttl(left)).toBeGreaterThan(36 * 86_400 - 60);
  expect(await database.ttl(left)).toBeLessThanOrEqual(36 * 86_400);

  expect((await walked(under)).get(credential.id)).toMatchObject({ isRevoked: true, admitted: 2 });
});

test('a secret that was written by hand with an unusual id works and does not affect other keys', async () => {
  const { under } = await redisFleet();
  const [odd, usual] = [await under.createKey(), await under.createKey()];
  const field = `secret:${odd.digest}`;
  for (const secret of ['-------- - read,write - 0 typed', 'typed_by - read,write - ', '(((((((( - read,write - ']) {
    await database.hset(`gateway:key:{${odd.id}}`, field, secret);
    const outcomes = await Promise.all([odd, usual].map((credential) => under.limiter.decide(credential)));
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(['admitted', 'admitted']);
  }
  await database.hset(`gateway:key:{${odd.id}}`, field, 'typed123 - read,write - ');
  const { isReadable, record } = (await under.keys.get(odd.id)) as KeyEntry;
  expect([isReadable, record.secrets.map(({ id, name }) => [id, name])]).toEqual([true, [['typed123', '']]]);
});

test("the gateway and decide.lua accept the same times in a key's hash", async () => {
  const { under } = await redisFleet();
  for (const text of [
    '1795132800.00000000000000',
    '0001795132800.5',
    '9999999999',
    '10000000000',
    '1e9',
    '17.',
    '.5',
    '',
  ]) {
    const credential = await under.createKey();
    const hash = `gateway:key:{${credential.id}}`;
    under.now = 1_000_000_000 * 1e6;
    await database.hset(hash, 'expires_at', text);
    await database.hdel(hash, 'ok_secrets');
    const { outcome } = await under.limiter.decide(credential);
    const { isReadable } = (await under.keys.get(credential.id)) as KeyEntry;
    expect([text, isReadable]).toEqual([text, outcome !== 'undecided']);
  }
});

const steps = fc.array(
  fc.record({
    // Sometimes the clock is set back.
    minutes: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 0, max: 1_800 }) }, fc.constant(-400)),
    requests: fc.nat(40),
    raise: fc.nat(60),
  }),
  { minLength: 1, maxLength: 30 },
);

/** Calls `see` after each burst of requests with one key. */
function walkDays(
  walk: typeof steps extends fc.Arbitrary<infer S> ? S : never,
  limit: number,
  see: (day: BucketState, state: KeyState, now: number) => void,
): void {
  const { credential } = createApiKey();
  const secrets = [secretWith(credential.digest)];
  let [state, now, day] = [FRESH, BEGIN, limit];
  for (const { minutes, requests, raise } of walk) {
    now += minutes * MINUTE;
    day += raise;
    const record = { plan: 'free', name: '', secrets, createdAt: 0, minute: 1_000, day } as const;
    for (let sent = 0; sent < requests; sent++) {
      const decided = decide(record, state, credential, DEFAULT_PLANS[record.plan], now);
      state = decided.state ?? state;
      const decision = decided.verdict as Decision;
      see(decision.buckets[1] as BucketState, state, decision.now);
    }
  }
}

test('while the limit stays the same, the tokens used of the day equal those missing from the bucket', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 60 }), (walk, limit) =>
      walkDays(
        walk.map((step) => ({ ...step, raise: 0 })),
        limit,
        (day, state, now) => expect(usedOfDay(day, state, now)).toBe(day.limit - day.tokens),
      ),
    ),
    { numRuns: 300 },
  );
});

test('even after the limit is raised, reported usage never exceeds the requests admitted yesterday and today', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 60 }), (walk, limit) =>
      walkDays(walk, limit, (day, state, now) => {
        const used = usedOfDay(day, state, now);
        const yesterday = Math.floor(now / DAY) - 1;
        const counts = countsOf(state.usage.days, state).filter(({ at }) => at >= yesterday);
        expect(used).toBeLessThanOrEqual(counts.reduce((sum, { admitted }) => sum + admitted, 0));
        expect(used).toBeLessThanOrEqual(day.limit - day.tokens);
      }),
    ),
    { numRuns: 300 },
  );
});
