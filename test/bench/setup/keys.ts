import type { Redis } from 'ioredis';
import { createApiKey } from '../../../gateway/access/credential.ts';
import type { KeyRecord } from '../../../gateway/access/keys.ts';
import { keyOf, toHash } from '../../../gateway/access/redis/key-hash.ts';
import { post } from '../../support/http.ts';

/** The API keys that one contender is asked with; nobody else uses them. */
export interface Keys {
  /** Never refused. */
  readonly hot: string;
  /** A thousand, none of them ever refused. */
  readonly many: readonly string[];
  /** Good for three requests a minute. */
  readonly few: string;
  /** Good for one a minute, and never banned. */
  readonly over: string;
  readonly banned: string;
}

const BOUNDLESS = { plan: 'enterprise', minute: 1_000_000_000, day: 1_000_000_000 } as const;
const FEW = { ...BOUNDLESS, minute: 3 };
const MANY = 1_000;
const MADE_UP = 10_000;

/** Issues keys as the gateway's operators would, straight into Redis. */
export async function issueKeys(redis: Redis): Promise<Keys> {
  const nextYear = Math.floor(Date.now() / 1_000) + 365 * 86_400;
  return {
    hot: await issue(redis, BOUNDLESS),
    many: await Promise.all(Array.from({ length: MANY }, () => issue(redis, BOUNDLESS))),
    few: await issue(redis, FEW),
    over: await issue(redis, { plan: 'free', minute: 1, day: 1_000_000_000 }),
    banned: await issue(redis, BOUNDLESS, { banned_until: String(nextYear), as_of: String(nextYear - 365 * 86_400) }),
  };
}

async function issue(redis: Redis, limits: Pick<KeyRecord, 'plan' | 'minute' | 'day'>, state = {}): Promise<string> {
  const { apiKey, credential } = createApiKey();
  const record = { ...limits, name: 'bench', secret: credential.digest, createdAt: Date.now() * 1_000 };
  await redis.hset(keyOf(credential.id), { ...toHash(record), ...state });
  return apiKey;
}

/** Keys of a gateway on its own, which only it can issue. */
export async function issueEmbeddedKeys(adminUrl: string, token: string): Promise<Pick<Keys, 'hot' | 'few'>> {
  const create = async (limits: object) => {
    const { status, json } = await post(`${adminUrl}/keys`, { name: 'bench', ...limits }, { key: token });
    if (status !== 201) throw new Error(`The gateway answered ${status} to a new key.`);
    return (json as { key: string }).key;
  };
  return { hot: await create(BOUNDLESS), few: await create(FEW) };
}

/** Keys that nobody issued, with a right check: only a look at the data tells. */
export const makeUpKeys = (): string[] => Array.from({ length: MADE_UP }, () => createApiKey().apiKey);
