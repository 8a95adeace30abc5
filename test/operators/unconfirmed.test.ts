import { expect, test } from 'vitest';
import { idOf } from '../support/api-key.ts';
import { ctl } from '../support/ctl.ts';
import { startWithReplica } from '../support/replica.ts';
import { type Stack, startStack } from '../support/stack.ts';

/** Two gateways over a Redis with a replica. */
async function setUp() {
  const { url, ...redis } = await startWithReplica();
  const environment = { REDIS_URL: url, REDIS_TIMEOUT_MS: '5000' };
  return { ...redis, stacks: [await startStack(environment), await startStack(environment)] as const };
}

const deleted = async (stack: Stack, paths: readonly string[]) =>
  await Promise.all(paths.map(async (path) => (await stack.admin('DELETE', path)).status));

test('a revocation is 503 on every gateway until a replica has it, and 404 after that', async () => {
  const {
    replica,
    stacks: [one, other],
  } = await setUp();
  const id = idOf(await one.issueKey());
  const made = async (path: string, body: object) => ((await one.admin('POST', path, body)).json as { id: string }).id;
  const paths = [
    `/keys/${id}/secrets/${await made(`/keys/${id}/secrets`, { name: 'second' })}`,
    `/keys/${idOf(await one.issueKey())}`,
    `/tokens/${await made('/tokens', { name: 'ann', role: 'viewer' })}`,
  ];
  const rotatedOne = idOf(await one.issueKey());
  const { secrets } = (await one.admin('GET', `/keys/${rotatedOne}`)).json as { secrets: { id: string }[] };
  const rotation = { graceSeconds: 0, secretId: secrets[0]?.id };
  const rotated = async (stack: Stack) => (await stack.admin('POST', `/keys/${rotatedOne}/rotate`, rotation)).status;
  replica.pause();
  for (const stack of [one, other])
    expect(await Promise.all([deleted(stack, paths), rotated(stack)])).toEqual([[503, 503, 503], 503]);
  // They are made, so the log says who made them.
  const logged = [...one.log, ...other.log].filter(({ msg }) => msg === 'activity').map((line) => line.activity);
  const actions = logged.map((activity) => (activity as { action: string }).action);
  const revocations = actions.filter((action) => action.endsWith('.revoke'));
  expect(revocations.sort()).toEqual(['key.revoke', 'secret.revoke', 'token.revoke']);
  replica.resume();
  for (const stack of [other, one]) await expect.poll(() => deleted(stack, paths)).toEqual([404, 404, 404]);
  // Which secret has taken its place, the repetition cannot know.
  expect(await rotated(other)).toBe(404);
});

test('a key or token issued without a replica that has it is named, because nobody has its secret', async () => {
  const {
    replica,
    stacks: [stack],
  } = await setUp();
  const id = idOf(await stack.issueKey());
  replica.pause();
  const [added, issued, token] = await Promise.all([
    stack.admin('POST', `/keys/${id}/secrets`, { name: 'second' }),
    stack.admin('POST', '/keys', { name: 'second', plan: 'free' }),
    stack.admin('POST', '/tokens', { name: 'ann', role: 'viewer' }),
  ]);
  replica.resume();
  const said = /If the (?:key|secret|token) (\w+) exists, nobody has received it: revoke it\./;
  const ids = [added, issued, token].map(({ status, text }) => [status, said.exec(text)?.[1]]);
  const { keys } = (await stack.admin('GET', '/keys')).json as { keys: { id: string; secrets: { id: string }[] }[] };
  const { tokens } = (await stack.admin('GET', '/tokens')).json as { tokens: { id: string }[] };
  const key = keys.find((one) => one.id === id);
  expect(ids).toEqual([
    [503, key?.secrets.at(-1)?.id],
    [503, keys.find((one) => one !== key)?.id],
    [503, tokens[0]?.id],
  ]);
});

test('a restored key is 503 until a replica has it, also when the restore is repeated', async () => {
  const {
    redis,
    replica,
    stacks: [stack],
  } = await setUp();
  const id = idOf(await stack.issueKey());
  const page = (await stack.admin('GET', '/backup')).json as { at: string; keys: unknown[] };
  await redis.del(`gateway:key:{${id}}`);
  await redis.zrem('gateway:keys', id);
  const restored = async () => await stack.admin('POST', '/restore', { at: page.at, keys: page.keys });
  replica.pause();
  expect([(await restored()).status, (await restored()).status]).toEqual([503, 503]);
  replica.resume();
  await expect.poll(async () => (await restored()).json).toMatchObject({ restored: 0, present: 1 });
});

test('a reset that no replica has is 503 with the note that it was made, and can be repeated safely', async () => {
  const {
    replica,
    stacks: [stack],
  } = await setUp();
  const id = idOf(await stack.issueKey());
  await stack.admin('PUT', `/keys/${id}/ban`, { seconds: 600 });
  const reset = async () => await stack.admin('POST', `/keys/${id}/reset`, { reason: 'a test' });
  replica.pause();
  expect(await reset()).toMatchObject({
    status: 503,
    json: { code: 'unavailable', message: expect.stringMatching(/The change was made, .* It is safe to repeat it\.$/) },
  });
  replica.resume();
  await expect.poll(async () => (await reset()).status).toBe(200);
  expect((await stack.admin('GET', `/keys/${id}`)).json).toMatchObject({ state: 'active' });
});

test('a rollback that no replica has can be repeated, and the change stays rolled back', async () => {
  const {
    replica,
    stacks: [stack],
  } = await setUp();
  await stack.admin('PATCH', '/plans/free', { minute: 1 });
  const minute = async () => ((await stack.admin('GET', '/plans')).json as { free: { minute: number } }).free.minute;
  replica.pause();
  for (let call = 0; call < 2; call++) {
    expect(await stack.admin('POST', '/plans/rollback', { reason: 'a test' })).toMatchObject({
      status: 503,
      json: { message: expect.stringMatching(/The change was made, .* It is safe to repeat it\.$/) },
    });
    expect(await minute()).toBe(60);
    expect(await ctl(stack, 'plans', 'rollback', '--yes')).toMatchObject({
      code: 1,
      err: expect.stringContaining('It is safe to repeat it.'),
    });
    expect(await minute()).toBe(60);
  }
  replica.resume();
  await expect.poll(async () => (await stack.admin('POST', '/plans/rollback', {})).status).toBe(200);
  expect(await ctl(stack, 'plans', 'rollback', '--yes')).toMatchObject({
    code: 0,
    err: expect.stringMatching(/^Note: The last change is a rollback itself\. To revert it, send its id: \d+-\d+$/m),
  });
  const { history } = (await stack.admin('GET', '/plans/history')).json as { history: { id: string }[] };
  expect([await minute(), history.length]).toEqual([60, 2]);
  expect((await ctl(stack, 'plans', 'rollback', '--yes', '--id', history[0]?.id ?? '')).code).toBe(0);
  expect(await minute()).toBe(1);
});
