import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type {
  DoctorAnswer,
  HistoryAnswer,
  KeysAnswer,
  RequestsAnswer,
  TokensAnswer,
} from '../../gateway/operators/api/answers.ts';
import { activityOf } from '../support/activity.ts';
import { idOf } from '../support/api-key.ts';
import { FAILED_REQUESTS } from '../support/browser.ts';
import { openConsole } from '../support/console.ts';
import { ctl } from '../support/ctl.ts';
import { startFaultProxy } from '../support/fault-proxy.ts';
import { send } from '../support/http.ts';
import { get, hashOf, issueId, onRedis, operatorsRedis, tokenFor, viewOf } from '../support/operators.ts';
import { startProcess } from '../support/process.ts';
import { connectionTo, ownRedis } from '../support/redis-database.ts';
import { startWithReplica } from '../support/replica.ts';
import { type Stack, startStack, temporaryFolder } from '../support/stack.ts';
import { eventually } from '../support/workers.ts';

/** Errors that operators get if Redis is down or slow, or if a change is incomplete or no replica has confirmed it. */

const { url, redis, fresh } = await operatorsRedis();

const UNAVAILABLE = { code: 'unavailable', message: expect.any(String), status: 503 };

test('without Redis, the admin listener answers 503 with the reason, makes no change later, and logs no digest', async () => {
  const server = await ownRedis({ appendonly: 'yes', dir: await temporaryFolder() });
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '500' });
  const id = await issueId(stack);
  await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 600 });
  const reason = async () => (await get<{ message: string }>(stack, '/keys')).message;
  server.pause();
  expect(await reason()).toBe('Redis does not answer.');
  server.resume();
  await server.stop();
  await expect.poll(reason).toBe('Redis is not connected.');
  for (const [method, path, body] of [
    ['GET', '/keys', undefined],
    ['POST', '/keys', { name: 'secretive', plan: 'free' }],
    ['POST', `/keys/${id}/reset`, {}],
    ['PATCH', '/plans/free', { minute: 5 }],
  ] as const) {
    const { json } = await stack.admin(method, path, body);
    expect([method, json]).toEqual([method, UNAVAILABLE]);
  }
  expect(JSON.stringify(stack.log)).not.toMatch(/secret:|secretive/);
  await server.restart();
  await expect.poll(() => viewOf(stack, id)).toMatchObject({ state: 'banned' });
  expect((await activityOf(stack)).map(({ action }) => action)).toEqual(['ban.set', 'key.create']);
});

test.for([
  ['/abc', 'REDIS_URL: must name a database by its number'],
  ['/99', 'REDIS_URL: this Redis has no database 99.'],
] as const)('a REDIS_URL that ends in %s is refused at the start', async ([path, message]) => {
  const REDIS_URL = new URL(path, url).href;
  const { code, err } = await startProcess(process.execPath, ['gateway/main.ts'], {
    REDIS_URL,
    PORT: '0',
    ADMIN_PORT: '0',
    DATA_DIR: await temporaryFolder(),
  }).ended;
  expect([code, err]).toEqual([1, expect.stringContaining(message)]);
});

test('a request whose body ends early during the token lookup is completed and logged', async () => {
  const proxy = await startFaultProxy(url);
  const stack = await startStack({ REDIS_URL: proxy.url, REDIS_TIMEOUT_MS: '2000' });
  const { token } = await tokenFor(stack, 'operator', 'grace');
  proxy.set({ kind: 'delay', ms: 300 });
  const client = net.connect(Number(new URL(stack.adminUrl).port), '127.0.0.1');
  const lines = ['POST /keys HTTP/1.1', 'Host: 127.0.0.1', `Authorization: Bearer ${token}`];
  client.write([...lines, 'Content-Type: application/json', 'Content-Length: 100', '', '{'].join('\r\n'));
  await sleep(100);
  client.resetAndDestroy();
  const line = { actor: 'grace', operation: 'createKey', status: 400 };
  await expect.poll(() => stack.log).toContainEqual(expect.objectContaining(line));
});

test('a plan change whose audit entry cannot be written succeeds with a warning', async () => {
  const stack = await fresh();
  await redis.set('gateway:plans:history', 'spoilt');
  const answer = await stack.admin('PATCH', '/plans/free', { minute: 61, author: 'ann', reason: 'test' });
  const warning = '199 - "The change is in force, but the plan history could not be written."';
  expect(answer).toMatchObject({ status: 200, json: { minute: 61 }, headers: { warning } });
  expect(await redis.hget('gateway:plans', 'free.minute')).toBe('61');
  const lost = stack.log.filter(({ msg }) => msg === 'a plan change is in force, but the plan history lacks it');
  expect(lost).toMatchObject([
    {
      level: 50,
      reason: expect.stringContaining('WRONGTYPE'),
      change: { author: 'ann', changes: [{ field: 'free.minute', from: '60', to: '61' }] },
    },
  ]);
  expect((await ctl(stack, 'plans', 'set', 'free', '--minute', '62')).err).toContain(
    'Note: The change is in force, but the plan history could not be written.',
  );
  // During this time, the gateway reads the table several times, and each read would detect an unrecorded change.
  await sleep(600);
  expect(stack.log.filter(({ level }) => level >= 50)).toHaveLength(2);
});

/** A gateway that uses a Redis with a replica. */
const { url: replicatedUrl, redis: primary, replica } = await startWithReplica();
const stack = await startStack(onRedis(replicatedUrl));

/** The answer to a change that no replica has confirmed. */
const REPEATABLE = {
  status: 503,
  json: {
    code: 'unavailable',
    message: expect.stringMatching(/The change was made, .* It is safe to repeat the change\.$/),
  },
};

const deleted = async (stack: Stack, paths: readonly string[]) =>
  await Promise.all(paths.map(async (path) => (await stack.admin('DELETE', path)).status));

test('a revocation gets 503 on every gateway until a replica has received it, and 404 after that', async () => {
  const [one, other] = [stack, await startStack(onRedis(replicatedUrl))];
  const id = await issueId(one);
  const made = async (path: string, body: object) => ((await one.admin('POST', path, body)).json as { id: string }).id;
  const paths = [
    `/keys/${id}/secrets/${await made(`/keys/${id}/secrets`, { name: 'second' })}`,
    `/keys/${await issueId(one)}`,
    `/tokens/${await made('/tokens', { name: 'ann', role: 'viewer' })}`,
  ];
  const rotatedOne = await issueId(one);
  const { secrets } = await viewOf(one, rotatedOne);
  const rotation = { graceSeconds: 0, secretId: secrets[0]?.id };
  const rotated = async (stack: Stack) => (await stack.admin('POST', `/keys/${rotatedOne}/rotate`, rotation)).status;
  replica.pause();
  for (const stack of [one, other])
    expect(await Promise.all([deleted(stack, paths), rotated(stack)])).toEqual([[503, 503, 503], 503]);
  // The changes were made, so the log must name their actors.
  const logged = [...one.log, ...other.log].filter(({ msg }) => msg === 'activity').map((line) => line.activity);
  const actions = logged.map((activity) => (activity as { action: string }).action);
  const revocations = actions.filter((action) => action.endsWith('.revoke'));
  expect(revocations.sort()).toEqual(['key.revoke', 'secret.revoke', 'token.revoke']);
  replica.resume();
  for (const stack of [other, one]) await expect.poll(() => deleted(stack, paths)).toEqual([404, 404, 404]);
  // The repeated call cannot determine which secret replaced the old one.
  expect(await rotated(other)).toBe(404);
});

test('if no replica has a new key or token, the error names it, because nobody has received its secret', async () => {
  const id = await issueId(stack);
  replica.pause();
  const [added, issued, token] = await Promise.all([
    stack.admin('POST', `/keys/${id}/secrets`, { name: 'lost' }),
    stack.admin('POST', '/keys', { name: 'lost', plan: 'free' }),
    stack.admin('POST', '/tokens', { name: 'lost', role: 'viewer' }),
  ]);
  replica.resume();
  const said = /If the (?:key|secret|token) (\w+) exists, nobody has received it: revoke it\./;
  const ids = [added, issued, token].map(({ status, text }) => [status, said.exec(text)?.[1]]);
  const { keys } = await get<KeysAnswer>(stack, '/keys');
  const { tokens } = await get<TokensAnswer>(stack, '/tokens');
  const isLost = ({ name }: { name: string }) => name === 'lost';
  expect(ids).toEqual([
    [503, keys.find((one) => one.id === id)?.secrets.find(isLost)?.id],
    [503, keys.find(isLost)?.id],
    [503, tokens.find(isLost)?.id],
  ]);
});

test('a restored key gets 503 until a replica has received it, even when the restore is repeated', async () => {
  const id = await issueId(stack);
  const { at, keys } = (await stack.admin('GET', '/backup')).json as { at: string; keys: { id: string }[] };
  await primary.del(hashOf(id));
  await primary.zrem('gateway:keys', id);
  const restored = () => stack.admin('POST', '/restore', { at, keys: keys.filter((one) => one.id === id) });
  replica.pause();
  expect([(await restored()).status, (await restored()).status]).toEqual([503, 503]);
  replica.resume();
  await expect.poll(async () => (await restored()).json).toMatchObject({ restored: 0, present: 1 });
});

test('a reset that no replica has received gets 503 with a note that it was made, and is safe to repeat', async () => {
  const id = await issueId(stack);
  await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 600 });
  const reset = async () => await stack.admin('POST', `/keys/${id}/reset`, { reason: 'a test' });
  replica.pause();
  expect(await reset()).toMatchObject(REPEATABLE);
  replica.resume();
  await expect.poll(async () => (await reset()).status).toBe(200);
  expect(await viewOf(stack, id)).toMatchObject({ state: 'active' });
});

test('a rollback that no replica has received can be repeated, and the change stays rolled back', async () => {
  await stack.admin('PATCH', '/plans/free', { minute: 1 });
  const minute = async () => (await get<{ free: { minute: number } }>(stack, '/plans')).free.minute;
  replica.pause();
  for (let call = 0; call < 2; call++) {
    expect(await stack.admin('POST', '/plans/rollback', { reason: 'a test' })).toMatchObject(REPEATABLE);
    expect(await minute()).toBe(60);
  }
  expect(await ctl(stack, 'plans', 'rollback', '--yes')).toMatchObject({
    code: 1,
    err: expect.stringContaining('It is safe to repeat the change.'),
  });
  expect(await minute()).toBe(60);
  replica.resume();
  await expect.poll(async () => (await stack.admin('POST', '/plans/rollback', {})).status).toBe(200);
  expect(await ctl(stack, 'plans', 'rollback', '--yes')).toMatchObject({
    code: 0,
    err: expect.stringMatching(/^Note: The last change is itself a rollback\. To revert it, roll back \d+-\d+$/m),
  });
  const { history } = await get<HistoryAnswer>(stack, '/plans/history');
  expect([await minute(), history.length]).toEqual([60, 2]);
  expect((await ctl(stack, 'plans', 'rollback', '--yes', '--id', history[0]?.id ?? '')).code).toBe(0);
  expect(await minute()).toBe(1);
});

test('/readyz and the console name each of several faults', async () => {
  const { url: own } = await ownRedis();
  const stack = await startStack({ REDIS_URL: own, CORE_URL: 'http://127.0.0.1:1' });
  await connectionTo(own).multi().del('gateway:plans').set('gateway:plans', 'text').exec();
  const both = /^core \S+ .+ \(fault since \S+Z\)\. plan table .+ \(fault since \S+Z\)\.$/;
  await eventually(async () => ((await send(`${stack.adminUrl}/readyz`)).json as { detail?: string }).detail).toMatch(
    both,
  );
  const { page, excuse } = await openConsole(stack, '/console/plans');
  excuse(FAILED_REQUESTS);
  await page.locator('#state').getByText('1 more finding: see Health.').waitFor();
});

test('without Redis, the reason for refusing a key that was never verified is shown as it was logged', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '250' });
  const key = await stack.issueKey();
  await server.stop();
  expect((await send(`${stack.gateway}/v1/pets`, { key })).status).toBe(503);
  const reason = expect.stringMatching(/^Redis is unavailable, and this gateway has not verified the key/);
  const list = async () => (await get<RequestsAnswer>(stack, `/requests?keyId=${idOf(key)}&status=503`)).requests;
  await expect.poll(list).toMatchObject([{ reason, advice: 'Check Redis, as the runbook describes.' }]);
  expect(stack.log.find(({ status }) => status === 503)).toMatchObject({ reason });
});

test('if Redis hangs before a gateway can answer, that gateway is not reported as silent', async () => {
  const server = await ownRedis();
  const stack = await startStack({ REDIS_URL: server.url, REDIS_TIMEOUT_MS: '250' });
  const other = connectionTo(server.url);
  const checked = async (hang = () => {}) => {
    await other.del('gateway:questions:{elsewhere:7:aa}');
    await other.zadd('gateway:gateways', Math.floor(Date.now() / 1_000), 'elsewhere:7:aa');
    const asked = other.blpop('gateway:questions:{elsewhere:7:aa}', 10).then(hang);
    const { findings } = await get<DoctorAnswer>(stack, '/doctor');
    await asked;
    return findings.filter(({ about }) => /^(other gateways|gateway )/.test(about));
  };
  // After a stall of this process, it is unknown whether Redis or the other gateway was slow.
  await expect
    .poll(() => checked(), { timeout: 60_000 })
    .toMatchObject([{ about: 'gateway elsewhere:7', status: 'unknown', found: 'does not answer' }]);
  expect(await checked(() => server.pause())).toMatchObject([
    { about: 'other gateways', status: 'unknown', found: 'cannot be queried through Redis' },
  ]);
  server.resume();
});
