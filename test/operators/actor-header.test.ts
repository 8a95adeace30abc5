import { expect, test } from 'vitest';
import { readGatewaySettings } from '../../gateway/config.ts';
import { activityOf } from '../support/activity.ts';
import { type Answer, post } from '../support/http.ts';
import { get, tokenFor } from '../support/operators.ts';
import { ADMIN_TOKEN, type Stack, startStack } from '../support/stack.ts';

const HEADER = 'X-Forwarded-User';

function createKey(stack: Stack, headers: Record<string, string | string[]>, body: object = {}): Promise<Answer> {
  // Node writes headers as Latin-1 only if the body is no text.
  const key = Buffer.from(JSON.stringify({ name: 'acme', plan: 'free', ...body }));
  return post(`${stack.adminUrl}/keys`, key, { key: ADMIN_TOKEN, headers });
}

const actorOf = async (stack: Stack) => (await activityOf(stack, '?limit=1'))[0]?.actor;

const trusting = await startStack({ ACTOR_HEADER: HEADER, TRUSTED_PROXIES: '127.0.0.1' });

test('a trusted proxy names the actor, whatever the body says', async () => {
  await createKey(trusting, { 'x-forwarded-user': 'ada@example.com' }, { author: 'eve' });
  expect(await actorOf(trusting)).toBe('ada@example.com');
  await createKey(trusting, { 'x-forwarded-user': Buffer.from('Jürgen').toString('latin1') });
  expect(await actorOf(trusting)).toBe('Jürgen');
  await createKey(trusting, {});
  expect(await actorOf(trusting)).toBe('unknown');
});

test('the token, not the actor, decides what is allowed', async () => {
  const { token } = await tokenFor(trusting, 'viewer', 'proxy');
  for (const [key, status] of [
    [token, 403],
    [undefined, 401],
  ] as const) {
    const sent = { key, headers: { 'x-forwarded-user': 'ada' } };
    expect((await post(`${trusting.adminUrl}/keys`, { name: 'a', plan: 'free' }, sent)).status).toBe(status);
  }
});

test.for([
  ['from any other peer', { ACTOR_HEADER: HEADER, TRUSTED_PROXIES: '10.0.0.0/8' }],
  ['without the setting', { TRUSTED_PROXIES: '127.0.0.1' }],
] as const)('%s the actor header is ignored', async ([, environment]) => {
  const stack = await startStack(environment);
  await createKey(stack, { 'x-forwarded-user': 'eve' });
  expect(await actorOf(stack)).toBe('unknown');
});

test.for([
  ['twice', ['ada', 'eve']],
  ['empty', ''],
  ['longer than a name', 'a'.repeat(101)],
  ['with a tab', 'a\tb'],
] as const)("an actor's name that comes %s is 400 and changes nothing", async ([, value]) => {
  const before = await get(trusting, '/keys');
  const answer = await createKey(trusting, { 'x-forwarded-user': value as string | string[] });
  expect([answer.status, answer.json]).toEqual([400, expect.objectContaining({ code: 'invalid_request' })]);
  expect(await get(trusting, '/keys')).toEqual(before);
});

test.for([
  [{ ACTOR_HEADER: HEADER }, 'TRUSTED_PROXIES: is required with ACTOR_HEADER'],
  [{ ACTOR_HEADER: 'a b', TRUSTED_PROXIES: '127.0.0.1' }, 'ACTOR_HEADER: must be the name of a header'],
  [{ ACTOR_HEADER: 'Cookie', TRUSTED_PROXIES: '127.0.0.1' }, 'ACTOR_HEADER: must not be a header that holds a secret'],
] as const)('the setting %j is refused', ([settings, message]) => {
  expect(() => readGatewaySettings(settings)).toThrow(message);
});
