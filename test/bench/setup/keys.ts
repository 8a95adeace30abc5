import type { Redis } from 'ioredis';
import { createApiKey } from '../../../gateway/limiter/credential.ts';
import type { KeyRecord } from '../../../gateway/limiter/key-record.ts';
import type { PlanName } from '../../../gateway/limiter/plans.ts';
import { writeKey } from '../../../gateway/stores/key-hash.ts';
import { keyOf } from '../../../gateway/stores/redis/calls.ts';
import { INDEX } from '../../../gateway/stores/redis/step.ts';
import { post } from '../../support/http.ts';
import { secretWith } from '../../support/secrets.ts';

/** The API keys for requests to one contender. No other contender shares them. */
export interface Keys {
  /** A key that is never refused. */
  readonly hot: string;
  /** A thousand keys of all plans, which are never refused. */
  readonly many: readonly string[];
  /** A key with a limit of three requests per minute. */
  readonly few: string;
  /** A key with a limit of one request per minute, which is never banned. */
  readonly over: string;
  /** Twenty keys like `over`. */
  readonly manyOver: readonly string[];
  readonly banned: string;
}

export const BOUNDLESS = { plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 } as const;
const FEW = { ...BOUNDLESS, minute: 3 };
const OVER = { plan: 'free', minute: 1, day: 1_000_000_000 } as const;
const MANY = 1_000;
const MANY_OVER = 20;
const MADE_UP = 10_000;

/** Of ten keys, seven are Free and two Pro; the last is Business or Enterprise. */
function planOf(at: number): PlanName {
  if (at % 10 < 7) return 'free';
  if (at % 10 < 9) return 'pro';
  return at % 20 === 9 ? 'business' : 'enterprise';
}

/** Issues keys directly in Redis, with the same data as if an operator had issued them. */
export async function issueKeys(redis: Redis): Promise<Keys> {
  const nextYear = Math.floor(Date.now() / 1_000) + 365 * 86_400;
  return {
    hot: await issue(redis, BOUNDLESS),
    many: await Promise.all(Array.from({ length: MANY }, (_, at) => issue(redis, { ...BOUNDLESS, plan: planOf(at) }))),
    few: await issue(redis, FEW),
    over: await issue(redis, OVER),
    manyOver: await Promise.all(Array.from({ length: MANY_OVER }, () => issue(redis, OVER))),
    banned: await issue(redis, BOUNDLESS, {
      banned_until: String(nextYear),
      left: `${nextYear - 365 * 86_400} 1/1 1/1`,
    }),
  };
}

/** Issues keys that appear in operators' lists but send no requests. */
export async function issueListedKeys(redis: Redis, count: number): Promise<void> {
  for (let at = 0; at < count; at += MANY)
    await Promise.all(
      Array.from({ length: MANY }, async (_, number) => {
        const key = await issue(redis, { ...BOUNDLESS, plan: planOf(number) });
        await redis.zadd(INDEX, Date.now() / 1_000, key.split('_')[1] as string);
      }),
    );
}

async function issue(redis: Redis, limits: Pick<KeyRecord, 'plan' | 'minute' | 'day'>, state = {}): Promise<string> {
  const { apiKey, credential } = createApiKey();
  const secrets = [secretWith(credential.digest)];
  const record = { ...limits, name: 'bench', secrets, createdAt: Date.now() * 1_000 };
  await redis.hset(keyOf(credential.id), { ...writeKey(record), ...state });
  return apiKey;
}

/** Issues keys for an embedded gateway through its admin API, because nothing else can write to its storage. */
export async function issueEmbeddedKeys(adminUrl: string, token: string): Promise<Pick<Keys, 'hot' | 'few'>> {
  const create = async (limits: object) => {
    const { status, json } = await post(`${adminUrl}/keys`, { name: 'bench', ...limits }, { key: token });
    if (status !== 201) throw new Error(`The gateway returned ${status} for the creation of a key.`);
    return (json as { key: string }).key;
  };
  return { hot: await create(BOUNDLESS), few: await create(FEW) };
}

/** Makes up keys with a valid checksum, so that only a lookup shows that they were never issued. */
export const makeUpKeys = (): string[] => Array.from({ length: MADE_UP }, () => createApiKey().apiKey);
