import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import { hasDigest } from '../../gateway/operators/tokens.ts';
import { cleanUp } from '../support/clean-up.ts';
import { everythingIn } from '../support/embedded-database.ts';
import { type Answer, post, send } from '../support/http.ts';
import { get, issueId, onRedis } from '../support/operators.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = onRedis(redisUrl);

const ROLES = ['viewer', 'operator', 'admin'] as const;
type Role = (typeof ROLES)[number];

interface Made {
  readonly id: string;
  readonly token: string;
}

async function makeToken(stack: Stack, role: Role, name: string = role): Promise<Made> {
  const answer = await stack.admin('POST', '/tokens', { name, role });
  expect([answer.status, answer.headers['cache-control']]).toEqual([201, 'no-store']);
  return answer.json as Made;
}

const FORBIDDEN = { code: 'forbidden', message: expect.any(String), status: 403 };

/** The lowest role of each operation. A new operation must be added here. */
const OF_ROLES: Readonly<Record<Role, string>> = {
  viewer: `describeApi showPlans showHistory tryPlan listKeys topKeys findKeys getKey explainKey explainRequest
    listRequests listBans listActivity whoAmI listTokens showTraffic showMinutes showKeyUsage doctor listUsage backUp`,
  operator: `noteBackup rollBackPlans changePlan changePlans createKey changeKey revokeKey rotateKey addSecret
    changeSecret revokeSecret setBan liftBan resetKey reindexKeys`,
  admin: 'restore createToken revokeToken',
};
const NEEDED: Readonly<Record<string, Role>> = Object.fromEntries(
  ROLES.flatMap((role) => OF_ROLES[role].split(/\s+/).map((name) => [name, role])),
);

describe.for(bothStacks(redisUrl))('with %s', ([, environment]) => {
  test.for(ROLES)('the role %s may call its operations; any other one gets 403 and changes nothing', async (role) => {
    const stack = await startStack(environment);
    const id = await issueId(stack);
    const { token } = await makeToken(stack, role);
    const everything = () => Promise.all(['/keys', '/plans', '/tokens', '/activity'].map((path) => get(stack, path)));
    const before = await everything();
    for (const { name, method, path } of ROUTES) {
      const allowed = ROLES.indexOf(role) >= ROLES.indexOf(NEEDED[name] as Role);
      const of = allowed ? 'none' : id;
      const answer = await callWith(stack, token, method, path.replaceAll(/\{\w+\}/g, of));
      expect([name, answer.status === 403]).toEqual([name, !allowed]);
      if (!allowed) expect([answer.json, await everything()]).toEqual([FORBIDDEN, before]);
    }
    expect(Object.keys(NEEDED).sort()).toEqual([...new Set(ROUTES.map(({ name }) => name))].sort());
  });

  test('the name of a token is the actor, whatever its holder claims', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const { id, token } = await makeToken(stack, 'operator', 'ann');
    await callWith(stack, token, 'POST', '/keys', { name: 'acme', plan: 'free', author: 'somebody else' });
    await callWith(stack, token, 'PATCH', '/plans/free', { minute: 61, author: 'somebody else' });
    expect((await stack.admin('GET', '/activity?limit=2')).json).toMatchObject({
      activity: [
        { actor: 'ann', token: id, action: 'plan.change' },
        { actor: 'ann', token: id, action: 'key.create' },
      ],
    });
    expect((await stack.admin('GET', '/plans/history')).json).toMatchObject({ history: [{ author: 'ann' }] });
    const lines = stack.log.filter(({ msg, operation }) => msg === 'operator request' && operation === 'createKey');
    expect(lines).toMatchObject([{ actor: 'ann' }]);
  });

  test('tokens are listed without their secrets, and a revoked token gets 401 at once', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const { id, token } = await makeToken(stack, 'viewer', 'ann');
    const listed = await stack.admin('GET', '/tokens');
    expect(listed.json).toEqual({ tokens: [{ id, name: 'ann', role: 'viewer', createdAt: expect.any(String) }] });
    expect((await callWith(stack, token, 'GET', '/plans')).status).toBe(200);
    expect((await stack.admin('DELETE', `/tokens/${id}`)).status).toBe(204);
    expect((await callWith(stack, token, 'GET', '/plans')).status).toBe(401);
    expect((await stack.admin('DELETE', `/tokens/${id}`)).status).toBe(404);
    expect((await stack.admin('GET', '/tokens')).json).toEqual({ tokens: [] });
  });

  test('only the digest of a token is stored, and a backup does not contain it', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const { id, token } = await makeToken(stack, 'viewer');
    const digest = createHash('sha256').update(token).digest('hex');
    const { text } = await stack.admin('GET', '/backup');
    for (const part of [id, digest]) expect(text).not.toContain(part);
    await stack.stop();
    const stored =
      'REDIS_URL' in environment
        ? JSON.stringify(await redis.hgetall('gateway:tokens'))
        : everythingIn(stack.directory);
    expect(stored).toContain(digest);
    expect(stored).not.toContain(token.slice(12));
    expect(JSON.stringify(stack.log)).not.toContain(token.slice(12));
  });

  test('a token that is nearly right, truncated or empty gets 401', async () => {
    const stack = await startStack(environment);
    const { id, token } = await makeToken(stack, 'admin');
    const last = token.at(-2) === 'A' ? 'B' : 'A';
    const wrong = [`${token.slice(0, -2)}${last}${token.at(-1)}`, token.slice(0, -1), `op_${id}_`, `op_${id}`, id, ''];
    for (const text of wrong)
      expect([text, (await callWith(stack, text, 'GET', '/plans')).status]).toEqual([text, 401]);
    expect((await send(`${stack.adminUrl}/plans`)).status).toBe(401);
  });
});

test('an empty or malformed digest matches no token', () => {
  const token = `op_00000000_${'a'.repeat(43)}`;
  const digest = createHash('sha256').update(token).digest('hex');
  expect(hasDigest(token, digest)).toBe(true);
  for (const [text, stored] of [
    ['', digest],
    ['', createHash('sha256').update('').digest('hex')],
    [token, ''],
    [token, 'x'],
    [token, digest.slice(2)],
  ] as const)
    expect(hasDigest(text, stored)).toBe(false);
});

test('a token written into Redis by hand without a digest grants nothing', async () => {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  for (const digest of ['', undefined, '0'])
    await redis.hset('gateway:tokens', '00000000', JSON.stringify({ name: 'a', role: 'admin', createdAt: '', digest }));
  expect((await callWith(stack, `op_00000000_${'a'.repeat(43)}`, 'GET', '/plans')).status).toBe(401);
  expect((await stack.admin('GET', '/tokens')).json).toEqual({ tokens: [] });
});

test('while Redis is down a recently used token can still read, and others get 503', async () => {
  const server = await startRedisServer();
  cleanUp(server.stop);
  const stack = await startStack({ REDIS_URL: server.url });
  const [used, unused] = [await makeToken(stack, 'viewer'), await makeToken(stack, 'viewer')];
  expect((await callWith(stack, used.token, 'GET', '/traffic')).status).toBe(200);
  await server.stop();
  await expect.poll(async () => (await callWith(stack, unused.token, 'GET', '/traffic')).status).toBe(503);
  expect((await callWith(stack, used.token, 'GET', '/traffic')).status).toBe(200);
  expect((await callWith(stack, `${used.token.slice(0, -1)}_`, 'GET', '/traffic')).status).toBe(401);
});

function callWith(stack: Stack, token: string, method: string, path: string, body: unknown = {}): Promise<Answer> {
  if (method === 'GET' || method === 'DELETE') return send(stack.adminUrl + path, { method, key: token });
  return post(stack.adminUrl + path, body, { method, key: token });
}

test('at most a thousand tokens can exist', async () => {
  await redis.flushdb();
  const stack = await startStack(withRedis);
  const other = new Redis(redisUrl);
  cleanUp(() => other.disconnect());
  for (let at = 0; at < 1_000; at++) other.hset('gateway:tokens', String(at).padStart(8, '0'), '{}');
  await other.ping();
  expect((await stack.admin('POST', '/tokens', { name: 'a', role: 'viewer' })).status).toBe(409);
});
