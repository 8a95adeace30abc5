import type { Redis } from 'ioredis';
import { type Credential, createApiKey } from '../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../gateway/limiter/key-record.ts';
import type { Decision, Limiter } from '../../gateway/limiter/limiter.ts';
import {
  DEFAULT_PLANS,
  type Plan,
  type PlanName,
  type PlansInForce,
  type PlanTable,
} from '../../gateway/limiter/plans.ts';
import { Keys } from '../../gateway/stores/keys.ts';
import { RedisLimiter } from '../../gateway/stores/redis/limiter.ts';
import { RedisStorage } from '../../gateway/stores/redis/storage.ts';
import { withOwn } from '../../gateway/stores/storage.ts';
import { cleanUp } from './clean-up.ts';
import { embeddedParts } from './one-process.ts';
import { connectedRedis } from './redis-database.ts';
import { secretWith } from './secrets.ts';
import { databaseFolder } from './stack.ts';

export const SECOND = 1_000_000;
/** The time at which the tests start. It is not a whole second. */
export const BEGIN = 1_795_132_800_123_457;

/** A limiter and its keys. The test controls the clock and the plan table. */
export interface LimiterUnderTest {
  readonly limiter: Limiter;
  readonly keys: Keys;
  now: number;
  plans: PlanTable;
  /** The plan table, as a limiter reads it. */
  readonly inForce: PlansInForce;
  setPlan(name: PlanName, changes: Plan): void;
  createKey(record?: Partial<KeyRecord>): Promise<Credential>;
}

function underTest(open: (under: LimiterUnderTest) => { limiter: Limiter; keys: Keys }): LimiterUnderTest {
  const under: LimiterUnderTest = {
    now: BEGIN,
    plans: DEFAULT_PLANS,
    inForce: {
      get table() {
        return under.plans;
      },
    },
    setPlan(name: PlanName, changes: Plan) {
      this.plans = { ...this.plans, [name]: { ...this.plans[name], ...changes } };
    },
    async createKey(record: Partial<KeyRecord> = {}) {
      const { credential } = createApiKey();
      const { secrets = [], ...given } = { plan: 'free', name: 'test', createdAt: this.now, ...record } as const;
      await this.keys.create(credential.id, { ...given, secrets: [secretWith(credential.digest), ...secrets] });
      return credential;
    },
  } as LimiterUnderTest;
  return Object.assign(under, open(under));
}

/** The embedded limiter. */
export async function memoryUnderTest(): Promise<LimiterUnderTest> {
  const folder = await databaseFolder();
  return underTest((under) => {
    const { storage, limiterOf } = embeddedParts(folder, {}, () => under.now);
    const limiter = limiterOf(under.inForce);
    cleanUp(async () => {
      await limiter.stop();
      await storage.close();
    });
    return { keys: new Keys(withOwn(storage, { now: async () => under.now })), limiter };
  });
}

/** decide.lua on a real Redis. */
export async function redisUnderTest(
  url: string,
): Promise<LimiterUnderTest & { redis: Redis; charger: Pick<RedisLimiter, 'charge'> }> {
  const redis = await connectedRedis(url);
  const under = underTest((self) => ({
    keys: new Keys(withOwn(new RedisStorage(redis), { now: async () => self.now })),
    limiter: new RedisLimiter(redis, self.inForce, { clock: () => self.now }),
  }));
  return Object.assign(under, { redis, charger: under.limiter as RedisLimiter });
}

/** Both limiters by name, for tests that cover both. */
export const bothLimiters = (url: string): readonly [name: string, open: () => Promise<LimiterUnderTest>][] => [
  ['the embedded limiter', memoryUnderTest],
  ['decide.lua', () => redisUnderTest(url)],
];

/** Outcomes of concurrent requests, such as 'admitted×3 refused×2'. */
export async function burst(under: LimiterUnderTest, credential: Credential, count: number): Promise<string> {
  const verdicts = await Promise.all(Array.from({ length: count }, () => under.limiter.decide(credential)));
  const outcomes = verdicts.map(({ outcome }) => outcome);
  const runs = [...new Set(outcomes)].map(
    (outcome) => `${outcome}×${outcomes.filter((other) => other === outcome).length}`,
  );
  return runs.join(' ');
}

/** The decision on one request with a valid key. */
export const decision = async (under: LimiterUnderTest, credential: Credential): Promise<Decision> =>
  (await under.limiter.decide(credential)) as Decision;
