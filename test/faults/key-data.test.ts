import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { scrape } from '../support/metrics.ts';
import { ask } from '../support/paced-load.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { withModes } from '../support/redis-fault.ts';
import { createKey } from '../support/redis-keys.ts';
import { startStack } from '../support/stack.ts';

const { url, redis } = await emptyDatabase();
// Even a busy machine meets this long deadline, so only key data causes local decisions here.
const stack = await startStack({ REDIS_URL: url, REDIS_TIMEOUT_MS: '2000' });
const bystander = await createKey(redis, { minute: 1_000_000, day: 1_000_000 });

const MINUTE = 10;
const SPENT = 3;

const askWith = async (key: string) => withModes([await ask(stack.gateway, key)], stack.log)[0];

async function withoutSecrets(redis: Redis, hash: string, ...more: string[]): Promise<void> {
  const fields = (await redis.hkeys(hash)).filter((field) => field.startsWith('secret'));
  await redis.hdel(hash, ...fields, ...more);
}

/** States in which a manual change or a partial restore can leave a key's hash. */
const spoils: [name: string, spoil: (redis: Redis, hash: string) => unknown][] = [
  ['a string', (redis, hash) => redis.multi().del(hash).set(hash, 'text').exec()],
  ['a list', (redis, hash) => redis.multi().del(hash).rpush(hash, 'plan', 'free').exec()],
  ['a hash with only its state', (redis, hash) => withoutSecrets(redis, hash, 'plan', 'minute', 'day', 'created_at')],
  ['a key without secrets', (redis, hash) => withoutSecrets(redis, hash)],
  ['a key without a plan', (redis, hash) => redis.hdel(hash, 'plan')],
  ['a key on an unknown plan', (redis, hash) => redis.hset(hash, 'plan', 'platinum')],
  ['a key on a plan with a line feed', (redis, hash) => redis.hset(hash, 'plan', 'free minute=60 day=1000\npro')],
  ['a key with a word as its expiry', (redis, hash) => redis.hset(hash, 'expires_at', 'some day')],
  [
    'an enterprise key with only one limit',
    (redis, hash) => redis.multi().hset(hash, 'plan', 'enterprise').hdel(hash, 'day').exec(),
  ],
];

test.for(spoils)(
  'if a key turns into %s, decisions on it use its last known data, and other keys are not affected',
  async ([, spoil]) => {
    const [seen, unseen] = [await createKey(redis, { minute: MINUTE }), await createKey(redis, { minute: MINUTE })];
    for (let sent = 0; sent < SPENT; sent++) await askWith(seen.apiKey);
    const whole = await redis.hgetall(seen.hash);
    const rejectedBefore = (await scrape(stack.adminUrl)).sum('gateway_key_values_rejected_total') ?? 0;
    const spoiledAt = performance.now();
    await spoil(redis, seen.hash);
    await spoil(redis, unseen.hash);

    const answers = [];
    for (let sent = 0; sent < 3 * MINUTE; sent++) {
      const [answer, stranger, other] = await Promise.all(
        [seen, unseen, bystander].map(({ apiKey }) => askWith(apiKey)),
      );
      expect([other?.status, other?.mode]).toEqual([200, 'shared']);
      expect([stranger?.status, stranger?.headers['retry-after']]).toEqual([503, '1']);
      answers.push(answer);
    }
    expect(new Set(answers.map((answer) => `${answer?.status} ${answer?.mode}`))).toEqual(
      new Set(['200 local', '429 local']),
    );
    const admitted = answers.filter((answer) => answer?.admitted).length;
    expect(admitted).toBeGreaterThanOrEqual(MINUTE - SPENT);
    expect(admitted).toBeLessThanOrEqual(MINUTE - SPENT + Math.ceil((performance.now() - spoiledAt) / 6_000));

    const rejected = (await scrape(stack.adminUrl)).sum('gateway_key_values_rejected_total') ?? 0;
    expect(rejected - rejectedBefore).toBeGreaterThanOrEqual(admitted);

    await redis.multi().del(seen.hash).hset(seen.hash, whole).exec();
    const again = await askWith(seen.apiKey);
    // The requests that were admitted locally may have been charged by now.
    expect([200, 429]).toContain(again?.status);
    expect(again?.mode).toBe('shared');
  },
);

test('a gateway rejects a deleted key and forgets its data', async () => {
  const key = await createKey(redis);
  await askWith(key.apiKey);
  await redis.del(key.hash);
  expect((await askWith(key.apiKey))?.status).toBe(401);
  await redis.hset(key.hash, 'minute', '5');
  expect((await askWith(key.apiKey))?.status).toBe(503);
});
