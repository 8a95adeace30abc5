import { createHash } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readCoreSettings } from '../../core/config.ts';
import { readGatewaySettings } from '../../gateway/config.ts';
import type { DoctorAnswer } from '../../gateway/operators/api/answers.ts';
import { ROUTES } from '../../gateway/operators/api/routes.ts';
import { hasDigest, keptToken, tokenFile } from '../../gateway/operators/tokens.ts';
import { bearerTokens } from '../../shared/http/service.ts';
import { CLI } from '../support/ctl.ts';
import { everythingIn } from '../support/embedded-database.ts';
import { send } from '../support/http.ts';
import { get, issueId, operatorsRedis, tokenFor } from '../support/operators.ts';
import { type Ended, startProcess, startService } from '../support/process.ts';
import { ownRedis } from '../support/redis-database.ts';
import { bothStacks, type Stack, startStack, temporaryFolder } from '../support/stack.ts';

const { url, redis, fresh } = await operatorsRedis();

const ROLES = ['viewer', 'operator', 'admin'] as const;
type Role = (typeof ROLES)[number];

const callWith = (stack: Stack, key: string | undefined, method: string, path: string, body?: unknown) =>
  stack.admin(method, path, body, { key });

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

describe.for(bothStacks(url))('with %s', ([, environment]) => {
  test.for(ROLES)('the %s role may call its operations; all others get 403 and change nothing', async (role) => {
    const stack = await startStack(environment);
    const id = await issueId(stack);
    const { token } = await tokenFor(stack, role);
    const everything = () => Promise.all(['/keys', '/plans', '/tokens', '/activity'].map((path) => get(stack, path)));
    const before = await everything();
    for (const { name, method, path } of ROUTES) {
      const allowed = ROLES.indexOf(role) >= ROLES.indexOf(NEEDED[name] as Role);
      const of = allowed ? 'none' : id;
      const body = method === 'GET' || method === 'DELETE' ? undefined : {};
      const answer = await callWith(stack, token, method, path.replaceAll(/\{\w+\}/g, of), body);
      expect([name, answer.status === 403]).toEqual([name, !allowed]);
      if (!allowed) expect([answer.json, await everything()]).toEqual([FORBIDDEN, before]);
    }
    expect(Object.keys(NEEDED).sort()).toEqual([...new Set(ROUTES.map(({ name }) => name))].sort());
  });

  test('the name of a token is the actor, whatever its holder claims', async () => {
    const stack = await fresh(environment);
    const { id, token } = await tokenFor(stack, 'operator');
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
    const stack = await fresh(environment);
    const { id, token } = await tokenFor(stack, 'viewer');
    const listed = await stack.admin('GET', '/tokens');
    expect(listed.json).toEqual({ tokens: [{ id, name: 'ann', role: 'viewer', createdAt: expect.any(String) }] });
    expect((await callWith(stack, token, 'GET', '/plans')).status).toBe(200);
    expect((await stack.admin('DELETE', `/tokens/${id}`)).status).toBe(204);
    expect((await callWith(stack, token, 'GET', '/plans')).status).toBe(401);
    expect((await stack.admin('DELETE', `/tokens/${id}`)).status).toBe(404);
    expect((await stack.admin('GET', '/tokens')).json).toEqual({ tokens: [] });
  });

  test('only the digest of a token is stored, and a backup does not contain it', async () => {
    const stack = await fresh(environment);
    const { id, token } = await tokenFor(stack, 'viewer');
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

  test('a slightly wrong, truncated or empty token gets 401, and the scheme may be in lower case', async () => {
    const stack = await startStack(environment);
    const { id, token } = await tokenFor(stack, 'admin');
    const last = token.at(-2) === 'A' ? 'B' : 'A';
    const wrong = [`${token.slice(0, -2)}${last}${token.at(-1)}`, token.slice(0, -1), `op_${id}_`, `op_${id}`, id, ''];
    for (const text of wrong)
      expect([text, (await callWith(stack, text, 'GET', '/plans')).status]).toEqual([text, 401]);
    const statusWith = async (headers: Record<string, string>) =>
      (await stack.admin('GET', '/plans', undefined, { key: undefined, headers })).status;
    expect(await statusWith({ authorization: `bearer ${token}` })).toBe(200);
    expect(await statusWith({})).toBe(401);
    for (const authorization of ['', 'Bearer', 'Bearer ', 'Bearer x', `Basic ${token}`, token])
      expect([authorization, await statusWith({ authorization })]).toEqual([authorization, 401]);
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

test('a token written into Redis by hand without its digest grants nothing', async () => {
  const stack = await fresh();
  const token = `op_00000000_${'a'.repeat(43)}`;
  const whole = createHash('sha256').update(token).digest('hex');
  for (const digest of ['', undefined, '0', whole.slice(2)]) {
    await redis.hset('gateway:tokens', '00000000', JSON.stringify({ name: 'a', role: 'admin', createdAt: '', digest }));
    expect([digest, (await callWith(stack, token, 'GET', '/plans')).status]).toEqual([digest, 401]);
  }
  expect((await stack.admin('GET', '/tokens')).json).toEqual({ tokens: [] });
});

test('while Redis is down, a recently used token can still read, and others get 503', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url });
  const [used, unused] = [await tokenFor(stack, 'viewer'), await tokenFor(stack, 'viewer')];
  expect((await callWith(stack, used.token, 'GET', '/traffic')).status).toBe(200);
  await server.stop();
  await expect.poll(async () => (await callWith(stack, unused.token, 'GET', '/traffic')).status).toBe(503);
  expect((await callWith(stack, used.token, 'GET', '/traffic')).status).toBe(200);
  expect((await callWith(stack, `${used.token.slice(0, -1)}_`, 'GET', '/traffic')).status).toBe(401);
});

test('while gateway:tokens holds another value, named tokens get 503 instead of 401, and the doctor names the key', async () => {
  const stack = await fresh();
  const { id, token } = await tokenFor(stack, 'viewer');
  await redis.rename('gateway:tokens', 'test:tokens');
  await redis.set('gateway:tokens', 'junk');
  const message = 'gateway:tokens in Redis holds a value of the wrong type. Check the value, then delete it.';
  expect(await callWith(stack, token, 'GET', '/plans')).toMatchObject({ status: 503, json: { message } });
  expect(await stack.admin('GET', '/tokens')).toMatchObject({ status: 503, json: { message } });
  expect((await stack.admin('DELETE', `/tokens/${id}`)).status).toBe(503);
  const findings = async () =>
    (await get<DoctorAnswer>(stack, '/doctor')).findings.filter(({ about }) => about === 'operator tokens');
  expect(await findings()).toMatchObject([
    { status: 'fault', found: expect.stringContaining('gateway:tokens'), advice: expect.stringContaining('DEL') },
  ]);
  const line = { msg: 'operator request', status: 503, reason: expect.stringContaining('gateway:tokens in Redis') };
  await expect.poll(() => stack.log).toContainEqual(expect.objectContaining(line));
  await redis.rename('test:tokens', 'gateway:tokens');
  expect((await callWith(stack, token, 'GET', '/plans')).status).toBe(200);
  expect(await findings()).toEqual([]);
});

test('at most a thousand tokens can exist', async () => {
  const stack = await fresh();
  const ids = Array.from({ length: 1_000 }, (_, at) => String(at).padStart(8, '0'));
  await redis.hset('gateway:tokens', Object.fromEntries(ids.map((id) => [id, '{}'])));
  expect((await stack.admin('POST', '/tokens', { name: 'a', role: 'viewer' })).status).toBe(409);
});

/** The token that a gateway generates, and tokens in settings. */

const settingsIn = (DATA_DIR: string) => ({ DATA_DIR, PORT: '0', ADMIN_PORT: '0', LOG_LEVEL: 'silent' });

/** Runs the shell command `limits`, then starts a gateway that is expected to fail. */
const failedStart = (DATA_DIR: string, limits = ':'): Promise<Ended> =>
  startProcess('sh', ['-c', `${limits}; exec ${process.execPath} gateway/main.ts`], settingsIn(DATA_DIR)).ended;

test('three simultaneous starts in a new folder agree on one token, which only the owner can read, 300 times in a row', async () => {
  const folder = await temporaryFolder();
  for (let round = 0; round < 300; round++) {
    const directory = join(folder, String(round));
    const tokens = await Promise.all([keptToken(directory), keptToken(directory), keptToken(directory)]);
    const kept = (await readFile(tokenFile(directory), 'utf8')).trim();
    expect([...new Set([...tokens, kept])]).toEqual([expect.stringMatching(/^[\w-]{43}$/)]);
    expect(await readdir(directory)).toEqual(['admin-token']);
    expect((await stat(tokenFile(directory))).mode & 0o777).toBe(0o600);
  }
});

test('gateways that start at the same time agree on one token, and each requires it', async () => {
  const DATA_DIR = await temporaryFolder();
  await redis.flushdb();
  const gateways = await Promise.all(
    Array.from({ length: 3 }, () => startService('gateway/main.ts', { ...settingsIn(DATA_DIR), REDIS_URL: url })),
  );
  const key = (await readFile(tokenFile(DATA_DIR), 'utf8')).trim();
  for (const { addresses } of gateways) {
    expect((await send(`${addresses.admin}/plans`)).status).toBe(401);
    expect((await send(`${addresses.admin}/plans`, { key })).status).toBe(200);
  }
});

/** The message about a file without a valid token. */
const sentenceOn = (folder: string): string =>
  `${tokenFile(folder)} does not contain a token of at least 16 characters without spaces. ` +
  'Remove the file and restart the gateway, which creates a new one, or set ADMIN_TOKEN.';

test.for([
  ['no text', ''],
  ['a blank line', '\n'],
  ['one character', 'x'],
  ['15 characters', 'x'.repeat(15)],
  ['two words', 'sixteen characters and more'],
] as const)('a token file with %s is refused and not changed', async ([, text]) => {
  const folder = await temporaryFolder();
  await writeFile(tokenFile(folder), text);
  await expect(keptToken(folder)).rejects.toThrow(sentenceOn(folder));
  expect(await readFile(tokenFile(folder), 'utf8')).toBe(text);
});

test('with an empty token file, the gateway and ctl exit with a message', async () => {
  const folder = await temporaryFolder();
  await writeFile(tokenFile(folder), '');
  const command = startProcess(process.execPath, [CLI, 'plans', 'show'], { DATA_DIR: folder }).ended;
  const refused = { code: 1, out: '', err: `${sentenceOn(folder)}\n` };
  expect(await Promise.all([failedStart(folder), command])).toEqual([refused, refused]);
});

test('a start on a full disk fails with a message and leaves no file behind; a later start creates a token', async () => {
  const folder = await temporaryFolder();
  const { code, err } = await failedStart(folder, 'ulimit -f 0');
  expect(code).toBe(1);
  expect(err).toMatch(/^DATA_DIR \S+ holds no database, and none can be created\. .*\n$/);
  expect((await readdir(folder)).filter((name) => !['lock', 'reserve'].includes(name))).toEqual([]);
  const { addresses } = await startService('gateway/main.ts', settingsIn(folder));
  expect((await send(`${addresses.admin}/plans`)).status).toBe(401);
});

test('a service cannot be created with an empty list of tokens or with an empty token', () => {
  for (const tokens of [[], [''], ['token-of-the-tests', '']])
    expect(() => bearerTokens(() => tokens)).toThrow('A service token must not be empty.');
});

const LONG = 'x'.repeat(16);

test.for(['', 'x', 'x'.repeat(15), `${LONG},`, `,${LONG}`, `${LONG},,${LONG}`, `${LONG}, ${LONG}`, `${LONG},x`])(
  'the token %j is refused as CORE_TOKEN by gateway and core',
  (token) => {
    const fault = `CORE_TOKEN: must ${token === '' ? 'not be empty' : 'be a token of at least 16 characters, without spaces'}`;
    expect(() => readCoreSettings({ CORE_TOKEN: token })).toThrow(fault);
    expect(() => readGatewaySettings({ CORE_TOKEN: token })).toThrow(fault);
  },
);

test('an ADMIN_TOKEN that is too short is refused, and an empty one is replaced by a generated token', () => {
  expect(() => readGatewaySettings({ ADMIN_TOKEN: 'x' })).toThrow('ADMIN_TOKEN: must be a token of at least 16');
  expect(readGatewaySettings({ ADMIN_TOKEN: '' }).ADMIN_TOKEN).toBeUndefined();
});
