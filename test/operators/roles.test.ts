import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { describe, expect, test } from 'vitest';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import { hasDigest } from '../../gateway/operators/tokens.ts';
import { idOf } from '../support/api-key.ts';
import { cleanUp } from '../support/clean-up.ts';
import { everythingIn } from '../support/embedded-database.ts';
import { type Answer, post, send } from '../support/http.ts';
import { startRedisServer } from '../support/redis.ts';
import { emptyDatabase } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack } from '../support/stack.ts';

const { url: redisUrl, redis } = await emptyDatabase();
const withRedis = { REDIS_URL: redisUrl, REDIS_TIMEOUT_MS: '5000' };

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
const NEEDED: Readonly<Record<string, Role>> = {
  describeApi: 'viewer',
  showPlans: 'viewer',
  showHistory: 'viewer',
  tryPlan: 'viewer',
  listKeys: 'viewer',
  topKeys: 'viewer',
  findKeys: 'viewer',
  getKey: 'viewer',
  explainKey: 'viewer',
  explainRequest: 'viewer',
  listRequests: 'viewer',
  listBans: 'viewer',
  listActivity: 'viewer',
  whoAmI: 'viewer',
  listTokens: 'viewer',
  showTraffic: 'viewer',
  showMinutes: 'viewer',
  showKeyUsage: 'viewer',
  doctor: 'viewer',
  listUsage: 'viewer',
  backUp: 'viewer',
  noteBackup: 'operator',
  rollBackPlans: 'operator',
  changePlan: 'operator',
  changePlans: 'operator',
  createKey: 'operator',
  changeKey: 'operator',
  revokeKey: 'operator',
  rotateKey: 'operator',
  addSecret: 'operator',
  changeSecret: 'operator',
  revokeSecret: 'operator',
  setBan: 'operator',
  liftBan: 'operator',
  resetKey: 'operator',
  reindexKeys: 'operator',
  restore: 'admin',
  createToken: 'admin',
  revokeToken: 'admin',
};

describe.for(bothStacks(redisUrl))('with %s', ([, environment]) => {
  test.for(ROLES)('%s may do what the role allows and gets 403 beyond it', async (role) => {
    const stack = await startStack(environment);
    const { token } = await makeToken(stack, role);
    for (const { name, method, path } of ROUTES) {
      const allowed = ROLES.indexOf(role) >= ROLES.indexOf(NEEDED[name] as Role);
      const answer = await callWith(stack, token, method, path.replaceAll(/\{\w+\}/g, 'none'));
      expect([name, answer.status === 403]).toEqual([name, !allowed]);
      if (!allowed) expect(answer.json).toEqual(FORBIDDEN);
    }
    expect(Object.keys(NEEDED).sort()).toEqual([...new Set(ROUTES.map(({ name }) => name))].sort());
  });

  test('a viewer changes nothing', async () => {
    const stack = await startStack(environment);
    const key = await stack.issueKey();
    const { token } = await makeToken(stack, 'viewer');
    const before = (await stack.admin('GET', `/keys/${idOf(key)}`)).json;
    for (const [method, path, body] of [
      ['PATCH', `/keys/${idOf(key)}`, { disabled: true }],
      ['DELETE', `/keys/${idOf(key)}`, undefined],
      ['POST', '/tokens', { name: 'me', role: 'admin' }],
    ] as const)
      expect((await callWith(stack, token, method, path, body)).status).toBe(403);
    expect((await stack.admin('GET', `/keys/${idOf(key)}`)).json).toEqual(before);
    expect((await stack.admin('GET', '/activity?limit=1')).json).toMatchObject({
      activity: [{ action: 'token.create' }],
    });
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

  test('tokens are listed without their secrets, and a revoked token is 401 at once', async () => {
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

  test('only the digest of a token is stored', async () => {
    await redis.flushdb();
    const stack = await startStack(environment);
    const { token } = await makeToken(stack, 'viewer');
    await stack.stop();
    const stored =
      'REDIS_URL' in environment
        ? JSON.stringify(await redis.hgetall('gateway:tokens'))
        : everythingIn(stack.directory);
    expect(stored).toContain(createHash('sha256').update(token).digest('hex'));
    expect(stored).not.toContain(token.slice(12));
    expect(JSON.stringify(stack.log)).not.toContain(token.slice(12));
  });

  test('a backup has no tokens, so a restore brings none back', async () => {
    const stack = await startStack(environment);
    const { id, token } = await makeToken(stack, 'admin');
    const { text } = await stack.admin('GET', '/backup');
    expect(text).not.toContain(id);
    expect(text).not.toContain(createHash('sha256').update(token).digest('hex'));
  });

  test('a token that is nearly right, cut, or empty is 401', async () => {
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

test('while Redis is away a recently used token can still read, and others get 503', async () => {
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
